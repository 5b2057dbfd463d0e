//! Configuration of data: its location and how it is read.

use std::path::{Path, PathBuf};

use pelton_feed::settings::{bytes, list, on, path, some, value};
use pelton_feed::{as_text, settings};
use pelton_format::{
    ClassName, Decimal, FeatureType, FileClasses, FormatKind, Header, Missing, NamedKind, RowLayout,
};
use pelton_storage::{LocalMode, path_text};
use serde::{Deserialize, Serialize};

use crate::class_setting::ClassSetting;
use crate::names;

settings! {
    /// The location of data and how it is read as rows with labels.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct DataConfig: "Data" {
        paths: Vec<String> = Vec::new(),
            "Files of the data set in order, as [`path_text`](pelton_storage::path_text()) has them, or one `demo:NAME[:ROWS][:test]`.";
        #[serde(with = "path_text")]
        pair: Option<PathBuf> = None, "A text whose line N belongs to line N of the text in `paths`.";
        format: Option<String> = None, flag(One, some, help format!("Format of the files: {} (default: by name and content)", FormatKind::names())),
            "Format of the files.";
        zero_based: bool = false, flag(Switch, on), "Feature indices of LIBSVM text start at 0";
        header: Header = Header::Auto, flag(One, value),
            "Whether the first line of CSV and TSV names the columns: auto, yes or no (default: auto, which looks at the line and refuses an ambiguous one)";
        decimal: Decimal = Decimal::Auto, flag(One, value),
            "What separates the fraction of numbers in CSV and TSV: auto, point or comma (default: auto, which takes commas if semicolons separate cells and numbers have commas)";
        label: String = "last".to_string(), flag(One, value),
            "Label column of CSV, TSV, npy and `label_file`: first, last, a position from 1, or a name; the field to use as label in records with several fields (default: label); for tar samples json:KEY, an integer or string in their .json members (dots between nested keys)";
        #[serde(with = "path_text")]
        label_file: Option<PathBuf> = None, flag(One, path),
            "Table (CSV, TSV) of the classes of a folder's images; the first line names its columns";
        file_column: String = "first".to_string(), flag(One, value),
            "Column of `label_file` that names the image: first, last, a position from 1, or a name";
        #[serde(skip_serializing_if = "Option::is_none")]
        file_classes: Option<FileClasses> = None, "Classes of image files that are named one by one.";
        positive: Option<ClassName> = None, flag(One, some),
            "Label to train as +1 against all others: a number, or a name if classes have names";
        #[serde(skip_serializing_if = "Option::is_none")]
        classes: Option<ClassSetting> = None, flag(One, some),
            "Classes in the order of their indices, separated by commas or in a file with one a line (default: those of the data); records of other classes are bad records";
        missing: Option<Missing> = None, flag(One, some),
            "Fill missing cells of CSV and TSV (empty, NA, NaN, null, ?), and null and NaN in JSON Lines, Parquet and Arrow: zero, mean (features only: the column's mean in the training data) or flag (linear models: the mean, and a feature that is 1 where a value is missing), or error: such records are bad (default: flag for the tables that a linear model is trained on, else error)";
        #[serde(skip_serializing_if = "Vec::is_empty")]
        columns: Vec<NamedKind> = Vec::new(), flag(Each, list, as "column", of "NAME=KIND"),
            "What a column of a table is for a linear model, as in age=number, if it is not what it seems: number, category (a feature a value), hash:BITS (values by their hash), text (words and pairs of words by their hash), date, log1p (ln(1+x)), bins:N (a feature an interval), offset or exposure (added with weight 1, as it is or as its logarithm), ignore, label or weight; a:b=cross:BITS hashes several together; columns without names by position, and a * at the end stands for any rest of a name (repeatable; the last one that fits a column counts)";
        #[serde(skip)]
        codes_columns: bool = false, "Whether columns that are not numbers become features.";
        #[serde(skip_serializing)]
        dtype: FeatureType = FeatureType::Checked, flag(One, value),
            "Type of the features of CSV, TSV and npy if records are not rows for a linear model: f32, f64, or checked (default: f32, but a record whose whole numbers f32 would round is bad)";
        #[serde(with = "as_text")]
        io: LocalMode = LocalMode::Auto, flag(One, value), "How files are opened: auto, direct, buffered or pread";
        #[serde(with = "path_text")]
        cache_dir: Option<PathBuf> = None, flag(One, path), "Folder for indexes, decompressed text and demo data";
        remote_cache_bytes: Option<u64> = None, flag(One, bytes_or_none, as "remote_cache", of "SIZE"),
            "Keep data read from servers (s3://, gs://, az://, https://) in the cache folder, up to this size, such as 50GB (default: 0, keep nothing); the least recently used data is removed first";
        device_model: Option<String> = None, flag(One, device_or_none),
            "Slow reads down to the speed of a device: hdd, ssd, optane, pfs (a node's share of a parallel file system) or none; each rank has its own device";
        #[serde(skip)]
        of_items: bool = false, "Whether paths are counts of records that a program makes.";
        #[serde(skip)]
        bytes_too: bool = false, "Whether to accept rows of bytes, for jobs that only read data.";
        #[serde(skip_serializing)]
        whole_arrays: bool = false, "Whether rows of `.npy` are always arrays, without a label column.";
        #[serde(skip)]
        rows: RowLayout = RowLayout::Stored, "Whether sparse rows become dense, as jobs that compute with them want it.";
        #[serde(skip)]
        targets: bool = false, "Whether labels are real targets, not classes.";
        #[serde(skip)]
        by_number: bool = false, "Whether classes without names are ordered by number, as in nets.";
        #[serde(skip)]
        tolerant: bool = false, "Whether damage found at opening is left to the reader's policy for bad records.";
    }
}

fn bytes_or_none(field: &mut Option<u64>, texts: &[String]) -> Result<(), String> {
    let mut size = 0;
    bytes(&mut size, texts)?;
    *field = Some(size).filter(|size| *size > 0);
    Ok(())
}

fn device_or_none(field: &mut Option<String>, texts: &[String]) -> Result<(), String> {
    some(field, texts)?;
    field.take_if(|device| device == "none");
    Ok(())
}

impl DataConfig {
    /// The local input files and folders, with those of `other`, which a result must not replace.
    pub fn inputs<'a>(&self, other: impl IntoIterator<Item = &'a Path>) -> Vec<PathBuf> {
        let classes = match &self.classes {
            Some(ClassSetting::File(file)) => Some(file),
            _ => None,
        };
        let named = [self.pair.as_ref(), self.label_file.as_ref(), classes];
        let named = named.into_iter().flatten().cloned();
        let other = other.into_iter().map(Path::to_path_buf);
        names::local(&self.paths)
            .into_iter()
            .chain(named)
            .chain(other)
            .collect()
    }

    /// The same, with sparse rows decoded to the layout `rows`.
    pub fn with_rows(&self, rows: RowLayout) -> DataConfig {
        DataConfig {
            rows,
            ..self.clone()
        }
    }

    /// The same, with columns that are not numbers as features.
    pub fn with_codes(&self) -> DataConfig {
        DataConfig {
            codes_columns: true,
            ..self.clone()
        }
    }

    /// The same, with labels that are real targets.
    pub fn with_targets(&self, targets: bool) -> DataConfig {
        DataConfig {
            targets,
            ..self.clone()
        }
    }

    /// The same for nets: accepts rows of bytes, orders classes by number, and leaves damage to the policy of the
    /// pipeline.
    pub fn for_nets(&self) -> DataConfig {
        DataConfig {
            by_number: true,
            ..self.with_bytes().leaving_damage(true)
        }
    }

    /// The same, with damage found at opening left to the reader's policy for bad records, or an error without
    /// `tolerant`.
    pub fn leaving_damage(&self, tolerant: bool) -> DataConfig {
        DataConfig {
            tolerant,
            ..self.clone()
        }
    }

    /// The same, with rows of bytes accepted.
    pub fn with_bytes(&self) -> DataConfig {
        DataConfig {
            bytes_too: true,
            ..self.clone()
        }
    }
}
