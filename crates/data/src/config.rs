//! Configuration of data: its location and how it is read.

use std::path::{Path, PathBuf};

use pelton_feed::as_text;
use pelton_format::{
    ClassName, Decimal, FeatureType, FileClasses, Header, Missing, NamedKind, RowLayout,
};
use pelton_storage::{LocalMode, path_text};
use serde::{Deserialize, Serialize};

use crate::class_setting::ClassSetting;
use crate::names;

/// The location of data and how it is read as rows with labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataConfig {
    /// Files of the data set in order, as [`path_text`](pelton_storage::path_text()) has them, or one
    /// `demo:NAME[:ROWS][:test]`.
    pub paths: Vec<String>,
    /// A text whose line N belongs to line N of the text in `paths`.
    #[serde(with = "path_text")]
    pub pair: Option<PathBuf>,
    /// Format of every file, such as csv or tar; by name and content where absent.
    pub format: Option<String>,
    /// Whether feature indices in LIBSVM text start at 0.
    pub zero_based: bool,
    /// Whether the first line of CSV and TSV names the columns: auto, yes or no.
    pub header: Header,
    /// What separates the fraction of numbers in CSV and TSV: auto, point or comma.
    pub decimal: Decimal,
    /// Label column of CSV, TSV and npy: `first`, `last`, a position from 1, or a name; of tar samples `json:KEY`.
    pub label: String,
    /// Table of the classes of a folder's images, which `label` is a column of.
    #[serde(with = "path_text")]
    pub label_file: Option<PathBuf>,
    /// Column of that table that names the image: `first`, `last`, a position from 1, or a name.
    pub file_column: String,
    /// Classes of image files that are named one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_classes: Option<FileClasses>,
    /// Label to train as +1 against all others.
    pub positive: Option<ClassName>,
    /// The classes in the order of their numbers; those of the data where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassSetting>,
    /// Replacement for missing values of CSV, TSV, JSON Lines, Parquet and Arrow: zero, mean or flag; by
    /// default such records are bad.
    pub missing: Option<Missing>,
    /// What columns of tables hold, for linear models; found by a pass over the data for the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<NamedKind>,
    /// Whether columns that are not numbers become features.
    #[serde(skip)]
    pub codes_columns: bool,
    /// Type of the features of CSV, TSV and `.npy` in batches: f32, f64, or checked: f32, where a whole number
    /// that it would round makes a bad record.
    #[serde(skip_serializing)]
    pub dtype: FeatureType,
    /// How files are opened.
    #[serde(with = "as_text")]
    pub io: IoMode,
    /// Folder for indexes of read-only folders, decompressed text and demo data.
    #[serde(with = "path_text")]
    pub cache_dir: Option<PathBuf>,
    /// Bytes of what was read from servers that the cache folder may hold; nothing is kept where absent.
    pub remote_cache_bytes: Option<u64>,
    /// Device model that limits the speed of reads: hdd, ssd or optane.
    pub device_model: Option<String>,
    /// Whether paths are counts of records that a program makes.
    #[serde(skip)]
    pub of_items: bool,
    /// Whether to accept rows of bytes, for jobs that only read data.
    #[serde(skip)]
    pub bytes_too: bool,
    /// Whether rows of `.npy` are always arrays, without a label column.
    #[serde(skip_serializing)]
    pub whole_arrays: bool,
    /// Whether sparse rows become dense, as jobs that compute with them want it.
    #[serde(skip)]
    pub rows: RowLayout,
    /// Whether labels are real targets, not classes.
    #[serde(skip)]
    pub targets: bool,
    /// Whether classes without names are ordered by number, as in nets.
    #[serde(skip)]
    pub by_number: bool,
    /// Whether damage found at opening is left to the reader's policy for bad records.
    #[serde(skip)]
    pub tolerant: bool,
}

impl Default for DataConfig {
    fn default() -> DataConfig {
        DataConfig {
            paths: Vec::new(),
            pair: None,
            format: None,
            zero_based: false,
            header: Header::Auto,
            decimal: Decimal::Auto,
            label: "last".to_string(),
            label_file: None,
            file_column: "first".to_string(),
            file_classes: None,
            positive: None,
            classes: None,
            missing: None,
            columns: Vec::new(),
            codes_columns: false,
            dtype: FeatureType::Checked,
            io: IoMode(LocalMode::Auto),
            cache_dir: None,
            remote_cache_bytes: None,
            device_model: None,
            of_items: false,
            bytes_too: false,
            whole_arrays: false,
            rows: RowLayout::Stored,
            targets: false,
            by_number: false,
            tolerant: false,
        }
    }
}

impl DataConfig {
    /// The local files and folders that are read, with those of `other`: what a result must not replace.
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

    /// The same, with sparse rows decoded as `rows` says.
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

    /// The same as nets read it: rows of bytes are accepted, classes keep the order of their numbers, and their
    /// pipeline applies a policy to damage.
    pub fn for_nets(&self) -> DataConfig {
        DataConfig {
            by_number: true,
            ..self.with_bytes().leaving_damage(true)
        }
    }

    /// The same, with damage that opening finds left to the reader's policy for bad records, or else an error.
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

/// [`LocalMode`] as text: auto, direct, buffered or pread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoMode(pub LocalMode);

impl std::fmt::Display for IoMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            LocalMode::Direct => "direct",
            LocalMode::Buffered => "buffered",
            LocalMode::Pread => "pread",
            _ => "auto",
        })
    }
}

impl std::str::FromStr for IoMode {
    type Err = String;

    fn from_str(text: &str) -> Result<IoMode, String> {
        Ok(IoMode(match text {
            "auto" => LocalMode::Auto,
            "direct" => LocalMode::Direct,
            "buffered" => LocalMode::Buffered,
            "pread" => LocalMode::Pread,
            _ => {
                return Err(format!(
                    "`{text}` is not an I/O mode: use auto, direct, buffered or pread"
                ));
            }
        }))
    }
}
