//! Why data could not be opened, read or written.
//!
//! [`FormatError`] is a file, a position in it, and a sentence that ends with the remedy. The code that detects the
//! error writes the sentence; `open` adds the path. A [`Fault`] describes the error of one record, without naming the
//! file.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::error::Error;
use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use pelton_storage::StorageError;

use crate::record::error::FormatErrorKind as Kind;

/// Why a data set could not be opened, read or written: the file, the position in it, the error and the remedy.
pub struct FormatError(Box<Parts>);

struct Parts {
    /// `None` until [`FormatError::in_file`].
    path: Option<PathBuf>,
    position: Position,
    what: Cow<'static, str>,
    kind: Kind,
}

/// The kinds of [`FormatError`] that callers treat differently.
#[derive(Debug)]
#[non_exhaustive]
pub enum FormatErrorKind {
    /// The data or a setting for it is wrong.
    Input,
    /// The data holds no records.
    Empty,
    /// No column, or more than one, matches the requested label.
    LabelColumn,
    /// The content does not fit the format.
    Malformed,
    /// One record is wrong; others can still be read.
    Record,
    /// The storage or the system under a file failed, the file changed, or reading was interrupted.
    Storage(StorageError),
}

/// A position in a file.
enum Position {
    Unknown,
    Byte(u64),
    /// From 1.
    Line(u64),
    /// From 0, with its first byte.
    Record(u64, u64),
}

impl FormatError {
    /// The data or a setting for it is wrong: a sentence that ends with the remedy.
    #[cold]
    pub(crate) fn new(what: impl Into<Cow<'static, str>>) -> FormatError {
        FormatError(Box::new(Parts {
            path: None,
            position: Position::Unknown,
            what: what.into(),
            kind: Kind::Input,
        }))
    }

    /// The bytes from `offset` on violate the format.
    #[cold]
    pub(crate) fn malformed(offset: u64, what: impl Into<Cow<'static, str>>) -> FormatError {
        let error = FormatError::new(what).of_kind(Kind::Malformed);
        error.at(Position::Byte(offset))
    }

    /// The error of one bad record.
    #[cold]
    pub(crate) fn of_record(fault: Fault) -> FormatError {
        FormatError::new(fault.0).of_kind(Kind::Record)
    }

    /// The file holds no records.
    #[cold]
    pub(crate) fn empty() -> FormatError {
        FormatError::new("holds no records; check that it is the right file").of_kind(Kind::Empty)
    }

    /// Reading was interrupted.
    #[cold]
    pub fn interrupted() -> FormatError {
        StorageError::interrupted("").into()
    }

    /// A failed operation on `path`, such as `open it`.
    #[cold]
    pub fn io(path: &Path, operation: &str, source: io::Error) -> FormatError {
        StorageError::failed(path.display(), operation, source).into()
    }

    /// The same error on line `line`, from 1.
    pub(crate) fn at_line(self, line: u64) -> FormatError {
        self.at(Position::Line(line))
    }

    /// The same error in record `record`, which starts at byte `offset`.
    pub(crate) fn in_record(self, record: u64, offset: u64) -> FormatError {
        self.at(Position::Record(record, offset))
    }

    fn at(mut self, position: Position) -> FormatError {
        self.0.position = position;
        self
    }

    /// The same error, with a remedy if the content of the file is malformed.
    pub(crate) fn with_remedy(mut self, remedy: &str) -> FormatError {
        if let Kind::Malformed = self.0.kind {
            self.0.what = format!("{}; {remedy}", self.0.what).into();
        }
        self
    }

    /// The same error of another kind.
    pub(crate) fn of_kind(mut self, kind: Kind) -> FormatError {
        self.0.kind = kind;
        self
    }

    /// The same error in `path`, unless it names a file already.
    pub fn in_file(mut self, path: &Path) -> FormatError {
        if let Kind::Storage(error) = &mut self.0.kind {
            if error.path.is_empty() {
                error.path = path.display().to_string();
            }
        } else {
            self.0.path.get_or_insert_with(|| path.to_path_buf());
        }
        self
    }

    /// The same error of a file with a format, `kind`, that was guessed from its first lines.
    pub(crate) fn after_guess(mut self, kind: &'static str) -> FormatError {
        let what = &self.0.what;
        self.0.what = format!(
            "{what}; the format was guessed as {kind} from the first lines: name another with `format`, such as `format` text for prose"
        )
        .into();
        self
    }

    /// Whether it says that `path` holds no records.
    pub(crate) fn says_empty(&self, path: &Path) -> bool {
        matches!(self.0.kind, Kind::Empty) && self.0.path.as_deref() == Some(path)
    }

    /// The kind of the error, for callers that treat kinds differently.
    pub fn kind(&self) -> &FormatErrorKind {
        &self.0.kind
    }

    /// The error of the storage, if that failed.
    pub fn storage(&self) -> Option<&StorageError> {
        match &self.0.kind {
            Kind::Storage(error) => Some(error),
            _ => None,
        }
    }
}

impl Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts {
            path,
            position,
            what,
            kind,
        } = &*self.0;
        if let Kind::Storage(error) = kind {
            return error.fmt(f);
        }
        if let Some(path) = path {
            write!(f, "{}: ", path.display())?;
        }
        match position {
            Position::Unknown => f.write_str(what),
            Position::Byte(offset) => write!(f, "byte {offset}: {what}"),
            Position::Line(line) => write!(f, "line {line}: {what}"),
            Position::Record(record, offset) => {
                write!(f, "record {record} at byte {offset}: {what}")
            }
        }
    }
}

impl fmt::Debug for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl Error for FormatError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.storage()?.source()
    }
}

impl From<StorageError> for FormatError {
    fn from(error: StorageError) -> FormatError {
        FormatError::new("").of_kind(Kind::Storage(error))
    }
}

impl From<io::Error> for FormatError {
    /// A failed read; [`FormatError::in_file`] adds the path.
    fn from(error: io::Error) -> FormatError {
        StorageError::failed("", "read it", error).into()
    }
}

/// Errors: reading was to stop.
#[inline]
pub(crate) fn check_interrupt(interrupt: &AtomicBool) -> Result<(), FormatError> {
    if interrupt.load(Ordering::Relaxed) {
        Err(FormatError::interrupted())
    } else {
        Ok(())
    }
}

/// The error of one record, in a sentence that ends with the remedy. Columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(Cow<'static, str>);

impl Fault {
    /// The record has disappeared since indexing.
    pub(crate) const NO_RECORD: Fault =
        Fault::fixed("holds no record; the file changed after it was indexed: run again");
    /// A label outside the record that is missing or not a class.
    pub(crate) const NO_CLASS: Fault = Fault::fixed(
        "its label is missing or cannot be read; leave such records out with `on_bad_record` skip, or name another one with `label`",
    );

    pub(crate) const fn fixed(what: &'static str) -> Fault {
        Fault(Cow::Borrowed(what))
    }

    /// A record without a label, if targets are needed.
    pub(crate) const NO_TARGET: Fault = Fault::fixed(
        "has no label, and a regression needs a target; name its column with `label`, or give files with labels",
    );

    #[cold]
    pub(crate) fn new(what: impl Into<Cow<'static, str>>) -> Fault {
        Fault(what.into())
    }

    /// A label that is not a number.
    #[cold]
    pub(crate) fn bad_label(found: &str) -> Fault {
        Fault::new(format!(
            "label {found:?} is not a number; write labels as numbers"
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

    /// A target that 32 bits cannot hold.
    #[cold]
    pub(crate) fn large_target(found: f64) -> Fault {
        Fault::new(format!(
            "target {found} is beyond 32-bit floating point; scale the targets"
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

    /// A fault in a column, given by its name or position.
    #[cold]
    pub(crate) fn column(column: &str, what: &str) -> Fault {
        Fault::new(format!("column {column} {what}"))
    }
}

/// At most 40 characters of a token, for a message.
#[cold]
pub(crate) fn excerpt(token: &[u8]) -> String {
    let start = &token[..token.len().min(160)];
    let mut short: String = String::from_utf8_lossy(start).chars().take(40).collect();
    if short.len() < token.len() {
        short.push('…');
    }
    short
}
