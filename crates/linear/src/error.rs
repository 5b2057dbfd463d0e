//! Errors.

use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinearError {
    /// The data have fewer than two classes.
    #[error("the data has {found} class(es); training needs at least two")]
    TooFewClasses {
        /// Number of classes.
        found: usize,
    },
    /// The number of features is 0 or too large.
    #[error("cannot train on {found} features a row; give data with 1 to 2^32 - 1 features")]
    Features {
        /// Number of features.
        found: usize,
    },
    /// The system refuses more threads.
    #[error(transparent)]
    Threads(#[from] pelton_storage::StorageError),
    /// Ranks could not exchange sums.
    #[error("the ranks could not add up their sums")]
    Exchange,
    /// The penalty needs a loss without kinks, of single vectors; without one, a likelihood.
    #[error(
        "loss {loss} does not support penalty {penalty}; give {others}, or leave the penalty out"
    )]
    Penalty {
        /// The penalty.
        penalty: String,
        /// The loss.
        loss: String,
        /// The losses that do.
        others: String,
    },
    /// Without a penalty, classes that a hyperplane separates.
    #[error(
        "the classes can be separated without an error, so that without a penalty ever larger weights are ever better; give penalty l2, or leave out the features that tell the label"
    )]
    Separable,
    /// Without a penalty, targets that are all 0.
    #[error(
        "every target is 0, so that without a penalty the intercept has no optimum; give penalty l2"
    )]
    NoCounts,
    /// An offset with a problem that does not allow one.
    #[error(
        "an offset needs a smooth loss, penalty l2 or none, and one vector a class; train with loss poisson, squared or logistic"
    )]
    Offset,
    /// The columns of the features with a weight do not fit in memory.
    #[error(
        "the columns of the features that have a weight take {needed} bytes, and {memory} are set aside for them; give more memory, or a lower cost for fewer weights"
    )]
    Columns {
        /// Bytes needed.
        needed: u64,
        /// Bytes there are.
        memory: u64,
    },
    /// The cost, or a cost times a class weight, is unusable.
    #[error(
        "a cost of {found:?} (possibly multiplied by the weights of a class or record) is out of range; give a number between 1e-30 and 1e30"
    )]
    Cost {
        /// The cost.
        found: f64,
    },
    /// A loss that ties the vectors of all classes together, for a method that finds them one by one.
    #[error(
        "loss {loss} of more than two classes is trained by L-BFGS alone; leave `solver` out, or use loss logistic for a model of each class against the rest"
    )]
    Coupled {
        /// The loss.
        loss: String,
    },
    /// A class without rows: its free bias would be unbounded.
    #[error(
        "class {class} (from 0) has no records of a weight above 0, so its free intercept has no optimum; use a regularised intercept, or leave the class out"
    )]
    AbsentClass {
        /// The class.
        class: usize,
    },
    /// The weight of a record is unusable.
    #[error("record {record} (from 0) has the weight {found}; weights are numbers of at least 0")]
    SampleWeight {
        /// Record id.
        record: u64,
        /// The weight.
        found: f32,
    },
    /// Every record has the weight 0.
    #[error(
        "every record has the weight 0, so there is nothing to learn; give some a weight above 0"
    )]
    NoSampleWeight,
    /// The bias is unusable.
    #[error("a bias of {found:e} is out of range; give a number above 0 and below 1e19, or none")]
    Bias {
        /// The bias.
        found: f32,
    },
    /// A threshold that cannot decide between the classes.
    #[error("`threshold` {found} {why}")]
    Threshold {
        /// The threshold.
        found: f64,
        /// The reason and a remedy.
        why: String,
    },
    /// A class weight or a label names a class that does not exist.
    #[error("class {class} does not exist: there are {classes} classes, counted from 0")]
    UnknownClass {
        /// The class named.
        class: u32,
        /// Number of classes.
        classes: usize,
    },
    /// A target that is not a number, or infinite.
    #[error(
        "record {record} (from 0) has the target {found}, which is not a finite number; remove the record or correct it"
    )]
    Target {
        /// Record id.
        record: u64,
        /// The target.
        found: f32,
    },
    /// A target below 0, for a loss that takes none.
    #[error(
        "record {record} (from 0) has the target {found}, and loss {loss} takes targets of at least 0; correct it, or train with another loss"
    )]
    NegativeTarget {
        /// Record id.
        record: u64,
        /// The target.
        found: f32,
        /// The loss.
        loss: String,
    },
    /// A row holds a feature that the model has no weight for.
    #[error(
        "record {record} has feature {index} (from 0), but the model has {features} features; \
         count the features of the whole data set before training"
    )]
    FeatureOutOfRange {
        /// Record id.
        record: u64,
        /// The feature.
        index: usize,
        /// Features of the model.
        features: usize,
    },
    /// A dense row has another width than the model.
    #[error("record {record} has {found} features, the model {expected}; use rows of equal length")]
    Width {
        /// Record id.
        record: u64,
        /// Features of the row.
        found: usize,
        /// Features of the model.
        expected: usize,
    },
    /// A row with a norm that overflows f32.
    #[error(
        "record {record}: the squares of its features exceed the range of f32; scale features down, for instance with `scale` standard"
    )]
    TooLarge {
        /// Record id.
        record: u64,
    },
    /// A row of bytes, which has no features.
    #[error(
        "record {record} contains bytes, not features; convert the data to rows of numbers first"
    )]
    NoFeatures {
        /// Record id.
        record: u64,
    },
    /// A record id is beyond the dual variables.
    #[error("record {record} is out of range: {records} records have a dual variable")]
    RecordOutOfRange {
        /// Record id.
        record: u64,
        /// Number of records.
        records: usize,
    },
    /// A model file cannot be opened, read or written.
    #[error("cannot {action} model file {path}: {source}; check the path, its permissions and the space left", path = .path.display())]
    Io {
        /// The failed action: "read", "write".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A damaged model file, or one of another kind.
    #[error(
        "model file {path} is damaged or of another kind: {place}: {found}; train again or \
copy it again", path = .path.display()
    )]
    MalformedModel {
        /// The file.
        path: PathBuf,
        /// The part of the file.
        place: String,
        /// The content found there.
        found: String,
    },
    /// LIBLINEAR's format cannot hold a label.
    #[error(
        "label {label} cannot be written to {path}, because LIBLINEAR's format has whole numbers only; \
write safetensors instead, or number the classes", path = .path.display()
    )]
    LabelNotInteger {
        /// The file that was to be written.
        path: PathBuf,
        /// The label.
        label: f64,
    },
    /// LIBLINEAR has no solver type for a loss.
    #[error("a model of loss {loss} cannot be written to {path}, because LIBLINEAR does not have this loss; write safetensors instead", path = .path.display())]
    NotInLiblinear {
        /// The file that was to be written.
        path: PathBuf,
        /// The loss.
        loss: String,
    },
    /// The run was to end while a block was trained.
    #[error("interrupted while a block was trained; nothing is saved, start again")]
    Interrupted {
        /// Whether everything is as it was before the block.
        undone: bool,
    },
    /// A saved state has other shapes than the run.
    #[error("the saved {part} do not fit this data and configuration; start again")]
    StateMismatch {
        /// The mismatch.
        part: &'static str,
    },
}
