//! Why data could not be opened, read or written.
//!
//! What is wrong with one record is a [`Fault`], which knows nothing of files; [`FormatError`] says the file and the place.

pub(crate) mod excerpt;
pub(crate) mod recognition;
pub(crate) mod system;
pub(crate) mod table;

pub(crate) use self::excerpt::excerpt;
use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use pelton_storage::StorageError;

use crate::error::recognition::RecognitionError;
use crate::error::table::TableError;
use crate::labels::json::JsonFault;

/// Why a data set could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// A data set of no files.
    #[error("no data file is given; name at least one")]
    NoFiles,
    /// Nothing lies at the path.
    #[error("{}: no such file; check the path", path.display())]
    NotFound {
        /// The path as given.
        path: PathBuf,
    },
    /// A folder, pipe or device where a file is needed.
    #[error("{}: is {found}; name a regular file", path.display())]
    NotAFile {
        /// The path as given.
        path: PathBuf,
        /// What lies there, such as `a folder`.
        found: &'static str,
    },
    /// A file for a folder.
    #[error("{}: is a file; name a folder of images, or leave out `format` folder", path.display())]
    NotAFolder {
        /// The path as given.
        path: PathBuf,
    },
    /// The operating system refused an operation.
    #[error("{}: cannot {operation} ({source}); {}", path.display(), remedy(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted, such as `open it`.
        operation: &'static str,
        /// The system's own error.
        source: io::Error,
    },
    /// The disk filled up while a file was written; what had been written is removed.
    #[error("{}: no space is left on the disk to write it; free some or choose another folder", path.display())]
    NoSpace {
        /// The file being written.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// The storage under a file failed.
    #[error(transparent)]
    Storage(StorageError),
    /// The columns of a table cannot be told, or do not go with others.
    #[error(transparent)]
    Table(#[from] TableError),
    /// No records.
    #[error("{}: holds no records; check that it is the right file", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The format cannot be told, or not be read as it is compressed.
    #[error(transparent)]
    Recognition(#[from] RecognitionError),
    /// What is wrong with a file whose format was found by what its first lines look like.
    #[error(
        "{error}; its format was not named, and by its first lines it was taken for {kind}: name another with `format`, such as `format` text where it is prose"
    )]
    Guessed {
        /// What is wrong.
        error: Box<FormatError>,
        /// The format's name.
        kind: &'static str,
    },
    /// Bytes where features to train on are needed.
    #[error("{}: is in format {kind}, whose records are bytes and no features; give one of {others}", path.display())]
    NoFeatures {
        /// The file.
        path: PathBuf,
        /// The format's name.
        kind: &'static str,
        /// The formats that hold features.
        others: String,
    },
    /// A line of a text file is not a record.
    #[error("{}: line {line}: {fault}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// Byte offset of the line.
        offset: u64,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A record of a binary file is not sound.
    #[error("{}: record {record} at byte {offset}: {fault}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Number of the record in its file, from 0.
        record: u64,
        /// Byte offset of the record.
        offset: u64,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A packed file whose header, offsets or ends do not hold together.
    #[error("{}: is damaged at byte {offset}: {what}; pack it again from its source", path.display())]
    DamagedPacked {
        /// The file.
        path: PathBuf,
        /// Where the damage shows.
        offset: u64,
        /// What does not hold.
        what: &'static str,
    },
    /// A packed file of a later version.
    #[error("{}: is packed in version {found}, and this program reads up to {expected}; update it or pack again", path.display())]
    PackedVersion {
        /// The file.
        path: PathBuf,
        /// The newest version read here.
        expected: u32,
        /// The version found.
        found: u32,
    },
    /// The labels of IDX images are not there or do not fit.
    #[error("{}: {what}", path.display())]
    IdxLabels {
        /// The file of images.
        path: PathBuf,
        /// What is wrong, and the remedy.
        what: String,
    },
    /// A CIFAR file whose size is no whole number of records.
    #[error("{}: its {size} bytes are no whole number of records of {record_bytes}; it is truncated or of another kind: fetch it again or name its `format`", path.display())]
    Cifar {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// Bytes of a record.
        record_bytes: u64,
    },
    /// A tar file that ends within a member.
    #[error("{}: is cut off: member {member} at byte {offset} needs the file to reach byte {needed}; fetch it again", path.display())]
    TarTruncated {
        /// The file.
        path: PathBuf,
        /// The member that is not whole.
        member: String,
        /// Where it starts.
        offset: u64,
        /// Where it would end.
        needed: u64,
    },
    /// A tar file with a header that is none.
    #[error("{}: is damaged at byte {offset}: {what}; fetch or make it again", path.display())]
    TarDamaged {
        /// The file.
        path: PathBuf,
        /// Where it shows.
        offset: u64,
        /// What does not hold.
        what: &'static str,
    },
    /// A sparse member of a tar file.
    #[error("{}: member {member} at byte {offset} is sparse, so its bytes do not lie side by side; make the archive again without --sparse", path.display())]
    TarSparse {
        /// The file.
        path: PathBuf,
        /// The member.
        member: String,
        /// Where it starts.
        offset: u64,
    },
    /// Members of one sample that do not follow one another.
    #[error("{}: members of sample {key} come again at byte {offset} after those of others; make the archive again with its members in order of their names", path.display())]
    TarRepeated {
        /// The file.
        path: PathBuf,
        /// The key of the sample.
        key: String,
        /// Where the sample goes on.
        offset: u64,
    },
    /// A sample that has an extension twice.
    #[error("{}: member {member} at byte {offset} has the extension of one before it in its sample (upper and lower case are one); leave one of the two out and make the archive again", path.display())]
    TarTwice {
        /// The file.
        path: PathBuf,
        /// Its name.
        member: String,
        /// Where it starts.
        offset: u64,
    },
    /// A class member that holds no number.
    #[error("{}: member {member} at byte {offset} holds {found:?}, which is no number; write classes as numbers", path.display())]
    TarClass {
        /// The file.
        path: PathBuf,
        /// The member.
        member: String,
        /// Where its bytes start.
        offset: u64,
        /// What it holds.
        found: String,
    },
    /// A sample whose member `json` says no class.
    #[error("{}: sample {sample}: {fault}", path.display())]
    TarLabel {
        /// The file.
        path: PathBuf,
        /// The key of the sample: what the names of its members begin with.
        sample: String,
        /// What is wrong, and the remedy.
        fault: JsonFault,
    },
    /// A setting that formats of others have a use for.
    #[error("{}: is {kind}, and {setting}", path.display())]
    SettingElsewhere {
        /// The file.
        path: PathBuf,
        /// Its format.
        kind: &'static str,
        /// What the setting is for, and the remedy.
        setting: &'static str,
    },
    /// A label that other formats state.
    #[error("{}: is {kind}, which `label` {wanted} is not for; {remedy}", path.display())]
    LabelElsewhere {
        /// The file.
        path: PathBuf,
        /// Its format.
        kind: &'static str,
        /// What was asked for.
        wanted: String,
        /// What to give instead.
        remedy: &'static str,
    },
    /// A file that does not hold what its format says.
    #[error("{}: byte {offset}: {what}; {remedy}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where it shows.
        offset: u64,
        /// What does not hold.
        what: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A folder without images.
    #[error("{}: is a folder that holds no images (.jpg, .jpeg, .png or .webp); name a folder of images, or files by a pattern such as {}/*.tar", path.display(), path.display())]
    NoImages {
        /// The folder.
        path: PathBuf,
    },
    /// An image outside the folders that are classes.
    #[error("{}: lies next to the folders that are classes and has none; move it into one, or give a table with `label_file`", path.display())]
    NoClass {
        /// The image.
        path: PathBuf,
    },
    /// Folders within folders without end.
    #[error("{}: lies more than {limit} folders deep; look for a link that leads back", path.display())]
    TooDeep {
        /// The folder.
        path: PathBuf,
        /// The most that is followed.
        limit: usize,
    },
    /// A table of labels that cannot be read as one.
    #[error("{}: line {line}: {what}", path.display())]
    LabelTable {
        /// The table.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// What is wrong, and the remedy.
        what: String,
    },
    /// Images none of which the table of labels has.
    #[error("{}: has no row in {}, nor has any other image of the folder; check the table and its `file_column`", path.display(), table.display())]
    Unlabelled {
        /// The first image.
        path: PathBuf,
        /// The table.
        table: PathBuf,
    },
    /// The label column does not exist.
    #[error("{}: has no label column {wanted}; its columns are {columns}; name one of them with `label`", path.display())]
    NoLabelColumn {
        /// The file.
        path: PathBuf,
        /// The column asked for.
        wanted: String,
        /// The columns there are.
        columns: String,
    },
    /// Several columns have the name of the label column.
    #[error("{}: line 1: columns {first} and {second} are both named {name:?}; give the label's position, as in `label` {second}", path.display())]
    AmbiguousLabelColumn {
        /// The file.
        path: PathBuf,
        /// The name asked for.
        name: String,
        /// Position of the first column of that name, from 1.
        first: usize,
        /// Position of the second.
        second: usize,
    },
    /// A column that is asked for does not exist.
    #[error("{}: has no column {wanted}; its columns are {columns}; name some of them with `format`", path.display())]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        wanted: String,
        /// The columns there are.
        columns: String,
    },
    /// A column that is asked for holds what no record can.
    #[error("{}: column {column} holds {found}; name columns of numbers, strings or lists of numbers with `format`", path.display())]
    ColumnType {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// What it holds.
        found: String,
    },
    /// A Parquet or Arrow file that is damaged or cut off.
    #[error("{}: {what}; fetch or write it again", path.display())]
    DamagedTable {
        /// The file.
        path: PathBuf,
        /// What does not hold.
        what: String,
    },
    /// More distinct labels than a classification has.
    #[error("{}: has more than {limit} distinct labels, so they look like regression targets; Pelton trains classifiers", path.display())]
    TooManyLabels {
        /// The file.
        path: PathBuf,
        /// The most that is accepted.
        limit: usize,
    },
    /// One label is taken for +1, and no record has it or every record does.
    #[error("{}: {found} record has the label {positive}, which is to stand for +1; name another with `positive`", path.display())]
    OneSided {
        /// The file, the first of several.
        path: PathBuf,
        /// The label that stands for +1.
        positive: String,
        /// `no` or `every`.
        found: &'static str,
    },
    /// Two files of a data set do not go together.
    #[error("{}: holds {found} where {} holds {expected}; train on them separately or convert one", path.display(), first.display())]
    MixedLayouts {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: String,
        /// The first file.
        first: PathBuf,
        /// What that holds.
        expected: String,
    },
    /// Dense data of another width than the model.
    #[error("{}: has {found} features where the model has {expected}; use data with the columns the model was trained on", path.display())]
    FeatureCount {
        /// The file.
        path: PathBuf,
        /// Features of the model.
        expected: u64,
        /// Features of the file.
        found: u64,
    },
    /// The one that asked for the data wants it no longer.
    #[error("{}: interrupted while it was read; nothing is saved, start again", path.display())]
    Interrupted {
        /// The file.
        path: PathBuf,
    },
    /// Compressed text that ends early or is damaged.
    #[error("{}: cannot be decompressed ({source}); it is truncated or damaged: fetch or compress it again", path.display())]
    Compressed {
        /// The compressed file.
        path: PathBuf,
        /// What the decompressor says.
        source: io::Error,
    },
    /// A file that is no longer what was opened.
    #[error("{}: changed while it was read ({what}: {expected} became {found}); leave data alone during a run and start again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// As it was opened.
        expected: String,
        /// As it is now.
        found: String,
    },
    /// A row that the packed file being written cannot hold.
    #[error("{}: row {row} cannot be packed: {what}", path.display())]
    Unpackable {
        /// The file being written.
        path: PathBuf,
        /// Number of the row, from 0.
        row: u64,
        /// Why not.
        what: &'static str,
    },
}

impl FormatError {
    /// The same, of a file whose format `kind` was found by what its first lines look like.
    pub(crate) fn after_guess(self, kind: &'static str) -> FormatError {
        FormatError::Guessed {
            error: Box::new(self),
            kind,
        }
    }
}

/// What is wrong with one record, in a sentence that ends with the remedy. Columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(Cow<'static, str>);

impl Fault {
    /// No record where one was.
    pub(crate) const NO_RECORD: Fault =
        Fault::of("holds no record; the file changed after it was indexed: run again");
    /// A label outside the record that is missing or no class.
    pub(crate) const NO_CLASS: Fault = Fault::of(
        "its label is missing or cannot be read; leave such records out with `on_bad_record` skip, or name another one with `label`",
    );

    pub(crate) const fn of(what: &'static str) -> Fault {
        Fault(Cow::Borrowed(what))
    }

    #[cold]
    pub(crate) fn new(what: impl Into<Cow<'static, str>>) -> Fault {
        Fault(what.into())
    }

    /// A label that is no number.
    #[cold]
    pub(crate) fn bad_label(found: &str) -> Fault {
        Fault::new(format!(
            "label {found:?} is not a number; write classes as numbers"
        ))
    }

    /// A label cell that holds no label.
    #[cold]
    pub(crate) fn missing_label(column: u64) -> Fault {
        Fault::new(format!(
            "column {column}, the label, is empty or holds no value; remove the record, or name another column with `label`"
        ))
    }

    /// A label that is not among those known.
    #[cold]
    pub(crate) fn unknown_label(found: f64) -> Fault {
        Fault::new(format!(
            "label {found} does not occur in the training data or the given classes; remove the record or add the class"
        ))
    }

    /// A class that is not among those known.
    #[cold]
    pub(crate) fn unknown_class(found: &str) -> Fault {
        Fault::new(format!(
            "class {found:?} does not occur in the training data or the given classes; remove the record or add the class"
        ))
    }

    /// A value that is not finite.
    #[cold]
    pub(crate) fn not_finite(column: u64, found: &str) -> Fault {
        Fault::new(format!(
            "value {found:?} in column {column} is not finite; replace it or remove the record"
        ))
    }

    /// A value that 32 bits cannot hold.
    #[cold]
    pub(crate) fn overflow(column: u64, found: &str) -> Fault {
        Fault::new(format!(
            "value {found:?} in column {column} is beyond 32-bit floating point; scale the feature"
        ))
    }

    /// What is wrong with a column, called by its name or position.
    #[cold]
    pub(crate) fn column(column: &str, what: &str) -> Fault {
        Fault::new(format!("column {column} {what}"))
    }
}

#[cfg(test)]
mod tests;

/// What to do about an error of the system.
fn remedy(source: &io::Error) -> &'static str {
    const TOO_MANY_OPEN_FILES: i32 = 24;
    match source.raw_os_error() {
        Some(TOO_MANY_OPEN_FILES) => {
            "the data has more files than a process may have open: raise the hard limit (`ulimit -Hn`), or merge files"
        }
        _ => "check the path, its permissions and the device",
    }
}
