//! How a data set is opened.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_storage::LocalOptions;
use serde::{Deserialize, Serialize};

use crate::record::cells::column_kind::NamedKind;
use crate::record::cells::decimal::Decimal;
use crate::record::cells::heading::Header;
use crate::record::cells::known_columns::KnownColumns;
use crate::record::cells::label_column::LabelColumn;
use crate::record::error::{FormatError, check_interrupt};
use crate::record::expected::Expected;
use crate::record::kind::FormatKind;
use crate::record::labels::ClassMap;
use crate::record::labels::class_name::ClassName;
use crate::record::labels::file_classes::FileClasses;
use crate::record::remote::OpenRemote;
use crate::record::rows::feature_type::FeatureType;

/// How files are opened for reading records.
pub type StorageChoice = LocalOptions;

/// Whether rows that are stored sparse are decoded as dense ones, with a 0 for every missing feature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowLayout {
    /// As stored.
    #[default]
    Stored,
    /// Dense if at least half of the cells are stored and features are few: such rows take no more memory, and
    /// computing with them takes a quarter of the time.
    DenseWhereFull,
    /// The same, and rows of coded tables that stay sparse store the zeros of their numbers, for a scale that shifts
    /// these.
    WithZeros,
    /// Dense.
    Dense,
}

impl RowLayout {
    /// Up to this many features, nearly full rows are made dense: few cells are added then.
    const MOST_FEATURES: u64 = 4096;

    /// Whether `records` sparse rows with `nonzeros` entries of `features` features are made dense.
    pub fn makes_dense(self, records: u64, features: u64, nonzeros: u64) -> bool {
        match self {
            RowLayout::Stored => false,
            RowLayout::DenseWhereFull | RowLayout::WithZeros => {
                features <= RowLayout::MOST_FEATURES
                    && u128::from(records) * u128::from(features) <= 2 * u128::from(nonzeros)
            }
            RowLayout::Dense => true,
        }
    }
}

pelton_key::names! {
    /// Replacements for missing cells.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Missing: "a way to fill missing cells" {
        /// 0.
        Zero = "zero",
        /// The mean of the column over the rows that have a value in it; 0 if no row has one.
        Mean = "mean",
        /// The mean, and another feature that is 1 if the value is missing.
        Flag = "flag",
        /// As `Flag` for tables that a linear model is trained on, as `Error` elsewhere.
        Auto = "auto",
        /// Nothing: a missing cell is a fault.
        Error = "error",
    }
}

impl Missing {
    /// Whether it always fills missing cells.
    pub fn fills(self) -> bool {
        !matches!(self, Missing::Auto | Missing::Error)
    }

    /// Whether it needs means.
    pub fn has_means(self) -> bool {
        matches!(self, Missing::Mean | Missing::Flag)
    }
}

/// The remedy for [`Missing::Mean`] if records are fields.
pub(crate) const MEAN_OF_FIELDS: &str = "`missing` mean is for features; give `missing` zero, which makes 0 of numbers and the empty one of strings and lists, or fill them in a function of yours";

/// How a data set is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The format of every file; recognised by name and content if `None`.
    pub format: Option<FormatKind>,
    /// Refuse data without features to train on: text, files of images, samples. The pixels of pictures of one size
    /// (IDX, CIFAR) are features from 0 to 1.
    pub features_only: bool,
    /// Whether rows that are stored sparse are decoded as dense ones.
    pub rows: RowLayout,
    /// LIBSVM indices count from 0.
    pub zero_based: bool,
    /// Whether paths are counts of records that a program makes.
    pub of_items: bool,
    /// Classes of image files that are named one by one.
    pub file_classes: Option<FileClasses>,
    /// Which column of CSV, TSV and `.npy` is the label.
    pub label: LabelColumn,
    /// Whether the first line of CSV and TSV names the columns.
    pub header: Header,
    /// The decimal mark of numbers in CSV and TSV.
    pub decimal: Decimal,
    /// The columns of the training set, for reading a test set: files that name theirs must have the same, in any
    /// order.
    pub columns: Option<KnownColumns>,
    /// Rows of `.npy` are arrays of any kind, without a label column.
    pub whole_arrays: bool,
    /// A table with the classes of a folder's images in its column `label`.
    pub label_file: Option<PathBuf>,
    /// The column of that table that names the image.
    pub file_column: LabelColumn,
    /// Two classes: this label is +1, all others are -1.
    pub positive: Option<ClassName>,
    /// The known classes, such as those of the training set when reading a test set; other classes are faults.
    pub labels: Option<ClassMap>,
    /// Labels are real targets, not classes: the label of a decoded record is the bits of its target as an f32, and
    /// labels are not listed.
    pub targets: bool,
    /// Sort classes without names by their numbers, as for nets; otherwise rows of features have them in order of first
    /// appearance.
    pub by_number: bool,
    /// If a scan finds damage, return a record that cannot be decoded instead of an error, so that the reader applies
    /// its policy; [`Dataset::first_bad`](crate::Dataset::first_bad) reports it.
    pub tolerant: bool,
    /// Accept unknown labels: predictions do not use them.
    pub any_label: bool,
    /// The model's number of features, for reading a test set: sparse rows lose further features, dense rows must have
    /// as many. If labels do not matter, a CSV, TSV or `.npy` file with this many columns has no label.
    pub features: Option<u64>,
    /// Replacements for missing cells of CSV and TSV; they are faults if `None`.
    pub missing: Option<Missing>,
    /// Whether table cells that are not numbers become features, according to their columns.
    pub codes_columns: bool,
    /// The kinds of columns; a pass over the data finds those of the others. The last one that fits a column counts.
    pub column_kinds: Vec<NamedKind>,
    /// The type of decoded features; f32 if `features_only`.
    pub dtype: FeatureType,
    /// Sizes and checksums of files, as stated by an index; [`Dataset::open`](crate::Dataset::open) fills it in.
    pub expected: Arc<HashMap<PathBuf, Expected>>,
    /// The training set's means, for reading a test set with [`Missing::Mean`].
    pub means: Option<Arc<[f32]>>,
    /// The folder for decompressed text, and for sidecars that cannot be next to the data; the user's cache folder if
    /// `None`.
    pub cache_dir: Option<PathBuf>,
    /// Whether sidecars are read and written.
    pub sidecar: bool,
    /// How files are opened for reading records.
    pub storage: StorageChoice,
    /// Opens remote files, with names like `s3://…`; such names are ordinary paths if `None`.
    pub remote: Option<OpenRemote>,
    /// Threads of a scan; one for each processor if 0.
    pub scan_threads: usize,
    /// Set by the caller to stop opening with [`FormatError::interrupted`](crate::FormatError::interrupted).
    pub interrupt: Arc<AtomicBool>,
}

impl OpenOptions {
    /// The type of decoded features: jobs that compute with them take f32, and check the effect of rounding.
    pub(crate) fn feature_type(&self) -> FeatureType {
        if self.features_only {
            FeatureType::F32
        } else {
            self.dtype
        }
    }

    /// Errors: the caller has set `interrupt`.
    pub(crate) fn check_interrupt(&self) -> Result<(), FormatError> {
        check_interrupt(&self.interrupt)
    }

    /// Whether rows with this many columns contain only the features of a model; labels are not used then.
    pub(crate) fn are_all_features(&self, columns: usize) -> bool {
        self.any_label && self.features == Some(columns as u64)
    }
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            format: None,
            features_only: false,
            rows: RowLayout::Stored,
            zero_based: false,
            label: LabelColumn::default(),
            header: Header::Auto,
            decimal: Decimal::Auto,
            columns: None,
            whole_arrays: false,
            label_file: None,
            file_column: LabelColumn::First,
            file_classes: None,
            of_items: false,
            positive: None,
            labels: None,
            targets: false,
            by_number: false,
            tolerant: false,
            any_label: false,
            features: None,
            missing: None,
            codes_columns: false,
            column_kinds: Vec::new(),
            dtype: FeatureType::Checked,
            expected: Arc::default(),
            means: None,
            cache_dir: None,
            sidecar: true,
            storage: StorageChoice::default(),
            remote: None,
            scan_threads: 0,
            interrupt: Arc::default(),
        }
    }
}
