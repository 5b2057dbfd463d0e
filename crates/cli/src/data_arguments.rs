//! The flags that describe the data.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use pelton_train::{
    ClassName, ClassSetting, DataConfig, Decimal, FeatureType, Header, IoMode, Missing, NamedKind,
    path_text,
};

use crate::bytes::size;

/// Flags that describe the data.
#[derive(Debug, Default, Args)]
pub struct DataArguments {
    /// Format of the files: libsvm, csv, tsv, prow, npy, fvecs, text (one record a line), tokens:LENGTH (runs
    /// of LENGTH words of a text), bytes:LENGTH (runs of LENGTH bytes), raw:FIELDS (such as
    /// raw:u8[28,28],label:u8), jsonl (jsonl:KEY,… for some keys), npz (npz:ARRAY,… for some arrays), tfrecord,
    /// array_record (tfrecord:bytes and array_record:bytes for undecoded records), mds, litdata, parquet, arrow
    /// (parquet:COLUMN,… for some columns), idx, cifar10, cifar100, tar or folder (default: by name and
    /// content)
    #[arg(long)]
    pub format: Option<String>,
    /// Feature indices of LIBSVM text start at 0
    #[arg(long)]
    pub zero_based: bool,
    /// Whether the first line of CSV and TSV names the columns: auto, yes or no (default: auto, which looks at
    /// the line and refuses an ambiguous one)
    #[arg(long)]
    pub header: Option<Header>,
    /// What separates the fraction of numbers in CSV and TSV: auto, point or comma (default: auto, which takes
    /// commas where semicolons separate cells and numbers have commas)
    #[arg(long)]
    pub decimal: Option<Decimal>,
    /// Label column of CSV, TSV, npy and --label-file: first, last, a position from 1, or a name; the field to
    /// use as label in records with several fields (default: label); for tar samples json:KEY, an integer or
    /// string in their .json members (dots between nested keys)
    #[arg(long)]
    pub label: Option<String>,
    /// Table (CSV, TSV) of the classes of a folder's images; the first line names its columns
    #[arg(long)]
    pub label_file: Option<PathBuf>,
    /// Column of --label-file that names the image
    #[arg(long)]
    pub file_column: Option<String>,
    /// Label to train as +1 against all others: a number, or a name where classes have names
    #[arg(long)]
    pub positive: Option<ClassName>,
    /// Classes in the order of their indices, separated by commas or in a file with one a line (default: those
    /// of the data); records of other classes are bad records
    #[arg(long, value_name = "CLASSES")]
    pub classes: Option<ClassSetting>,
    /// Fill missing cells of CSV and TSV (empty, NA, NaN, null, ?), and null and NaN in JSON Lines, Parquet
    /// and Arrow: zero, mean (features only: the column's mean in the training data) or flag (linear models: the
    /// mean, and a feature that is 1 where a value is missing), or error: such records are bad (default: flag for the
    /// tables that `train linear` is given, else error)
    #[arg(long)]
    pub missing: Option<Missing>,
    /// What a column of a table is for a linear model, as in age=number, where it is not what it seems: number,
    /// category (a feature a value), hash:BITS (values by their hash), text (words and pairs of words by their
    /// hash), date, log1p (ln(1+x)), bins:N (a feature an interval), offset or exposure (added with weight 1, as it is
    /// or as its logarithm), ignore, label or weight; a:b=cross:BITS hashes several together; columns without names by position, and a * at the end stands for any
    /// rest of a name (repeatable; the last one that fits a column counts)
    #[arg(long, value_name = "NAME=KIND")]
    pub column: Vec<NamedKind>,
    /// Type of the features of CSV, TSV and npy where records are not rows for `train linear`: f32, f64, or
    /// checked (default: f32, but a record whose whole numbers f32 would round is bad)
    #[arg(long)]
    pub dtype: Option<FeatureType>,
    /// How files are opened: auto, direct, buffered or pread
    #[arg(long)]
    pub io: Option<IoMode>,
    /// Folder for indexes, decompressed text and demo data
    #[arg(long)]
    pub cache_dir: Option<PathBuf>,
    /// Keep data read from servers (s3://, gs://, az://, https://) in the cache folder, up to this size, such
    /// as 50GB (default: 0, keep nothing); the least recently used data is removed first
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub remote_cache: Option<u64>,
    /// Slow reads down to the speed of a device: hdd, ssd, optane, pfs (a node's share of a parallel file
    /// system) or none; each rank has its own device
    #[arg(long)]
    pub device_model: Option<String>,
}

impl DataArguments {
    /// Writes the flags that were given over a configuration.
    pub fn apply(self, config: &mut DataConfig) {
        set_option(&mut config.format, self.format);
        config.zero_based |= self.zero_based;
        set(&mut config.header, self.header);
        set(&mut config.decimal, self.decimal);
        set(&mut config.label, self.label);
        set_option(&mut config.label_file, self.label_file);
        set(&mut config.file_column, self.file_column);
        set_option(&mut config.positive, self.positive);
        set_option(&mut config.classes, self.classes);
        set_option(&mut config.missing, self.missing);
        if !self.column.is_empty() {
            config.columns = self.column;
        }
        set(&mut config.dtype, self.dtype);
        set(&mut config.io, self.io);
        set_option(&mut config.cache_dir, self.cache_dir);
        match self.device_model.as_deref() {
            Some("none") => config.device_model = None,
            Some(model) => config.device_model = Some(model.to_string()),
            None => {}
        }
        if let Some(bytes) = self.remote_cache {
            config.remote_cache_bytes = Some(bytes).filter(|bytes| *bytes > 0);
        }
    }

    /// The data configuration of these flags over the given paths.
    pub fn config(self, paths: Vec<String>) -> DataConfig {
        let mut config = DataConfig {
            paths,
            ..DataConfig::default()
        };
        self.apply(&mut config);
        config
    }
}

/// The help of `--order`.
pub fn order_help() -> String {
    format!("Order: {}", pelton_train::Order::forms())
}

/// Parses the name of data, of any bytes, to its text.
pub fn name() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|name| path_text(Path::new(&name)))
}

/// Refuses flags without effect: whether that applies, the flag, and the setting that makes it so.
pub fn refuse_idle(flags: &[(bool, &str, String)]) -> anyhow::Result<()> {
    match flags.iter().find(|(is_idle, ..)| *is_idle) {
        Some((_, flag, with)) => anyhow::bail!("{flag} does nothing {with}; leave it out"),
        None => Ok(()),
    }
}

/// Takes what was given.
pub fn set<T>(place: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *place = value;
    }
}

/// Takes what was given.
pub fn set_option<T>(place: &mut Option<T>, given: Option<T>) {
    if given.is_some() {
        *place = given;
    }
}
