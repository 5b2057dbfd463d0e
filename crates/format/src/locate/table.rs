//! The cells of a record of a table.

use std::borrow::Cow;

use crate::record::cells::words::{is_missing, is_missing_number, truth};
use crate::record::error::Fault;
use crate::record::labels::stored::Label;
use crate::record::numbers::parse::parse_f64;
use crate::record::numbers::written_number::WrittenNumber;

/// A cell of a column of features.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell<'a> {
    /// No value.
    Missing,
    Number(f64),
    /// Text that may spell a number or a mark of a missing value.
    Spelled(Cow<'a, [u8]>),
    /// A string, which spells nothing else.
    Text(Cow<'a, [u8]>),
    /// A date as text, with the number that stores it, which is used if numbers are wanted.
    #[cfg_attr(not(feature = "columns"), allow(dead_code))]
    Date(String, f64),
}

impl Cell<'_> {
    /// Whether the cell is missing.
    pub(crate) fn is_missing(&self) -> bool {
        match self {
            Cell::Missing => true,
            Cell::Number(value) => value.is_nan(),
            Cell::Spelled(text) | Cell::Text(text) => is_missing(text),
            Cell::Date(..) => false,
        }
    }

    /// Whether the cell is missing in a column of numbers or dates.
    pub(crate) fn is_missing_number(&self) -> bool {
        match self {
            Cell::Spelled(text) | Cell::Text(text) => is_missing_number(text),
            _ => self.is_missing(),
        }
    }

    /// Whether it is typed as text, so that digits in it are not a number.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self, Cell::Text(_) | Cell::Date(..))
    }

    /// The number that it is or spells; truth values are 1 and 0.
    pub(crate) fn number(&self) -> Option<f64> {
        let written = || Some(self.written()?.value);
        self.plain_number().or_else(written)
    }

    /// The same for numbers as programs write them.
    pub(crate) fn plain_number(&self) -> Option<f64> {
        match self {
            Cell::Number(value) => Some(*value).filter(|value| value.is_finite()),
            Cell::Spelled(text) | Cell::Text(text) => parse_f64(text).ok().or_else(|| truth(text)),
            Cell::Date(_, value) => Some(*value),
            Cell::Missing => None,
        }
    }

    /// The number of its text, with thousands or a unit; not a code that begins with 0.
    pub(crate) fn written(&self) -> Option<WrittenNumber> {
        match self {
            Cell::Spelled(text) | Cell::Text(text) => WrittenNumber::parse(text, false),
            Cell::Missing | Cell::Number(_) | Cell::Date(..) => None,
        }
    }

    /// Its text as written, even if that is a mark of a missing value.
    pub(crate) fn as_written(&self) -> Cow<'_, [u8]> {
        match self {
            Cell::Spelled(text) | Cell::Text(text) => Cow::Borrowed(text),
            Cell::Missing | Cell::Number(_) | Cell::Date(..) => self.text(),
        }
    }

    /// Its text; whole numbers are without a point. Empty if it is missing.
    pub(crate) fn text(&self) -> Cow<'_, [u8]> {
        match self {
            _ if self.is_missing() => Cow::Borrowed(b""),
            Cell::Missing => Cow::Borrowed(b""),
            Cell::Number(value) => Cow::Owned(value.to_string().into_bytes()),
            Cell::Spelled(text) | Cell::Text(text) => Cow::Borrowed(text),
            Cell::Date(text, _) => Cow::Borrowed(text.as_bytes()),
        }
    }
}

/// Takes the cells of a record with the index of their columns among those of features.
pub(crate) type TakeCell<'a> = dyn FnMut(usize, Cell<'_>) -> Result<(), Fault> + 'a;

/// Records that are rows of a table.
pub(crate) trait Cells: Sync {
    /// Names of the columns of features: of the header, or positions from 1 as text.
    fn names(&self) -> &[String];

    /// Whether some column holds text or dates, as far as is known before the records are read.
    fn has_text(&self) -> bool;

    /// Calls `take` with the cells of record `record` in any order; columns that lack one are missing.
    fn read<'b>(
        &self,
        record: u64,
        bytes: &'b [u8],
        take: &mut TakeCell<'_>,
    ) -> Result<Label<'b>, Fault>;
}
