//! How files number their features, for messages and users.

use std::fmt;

/// How a file numbers its features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Numbering {
    /// From 0.
    FromZero,
    /// From 1.
    FromOne,
    /// By columns, which count from 1; one of them is the label, if there is one.
    Columns {
        /// The label's column.
        label: Option<u64>,
    },
}

impl Numbering {
    /// By columns; column `label` (from 0) is the label.
    pub(crate) fn of_columns(label: Option<usize>) -> Numbering {
        Numbering::Columns {
            label: label.map(|label| label as u64 + 1),
        }
    }

    /// The number that the file gives to the rows' feature `index`.
    pub fn of(self, index: u64) -> u64 {
        match self {
            Numbering::FromZero => index,
            Numbering::FromOne => index + 1,
            Numbering::Columns { label } => {
                index + 1 + u64::from(label.is_some_and(|label| index + 1 >= label))
            }
        }
    }
}

impl fmt::Display for Numbering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Numbering::FromZero => f.write_str("features from 0, as the file counts"),
            Numbering::FromOne => f.write_str("features from 1, as the file counts"),
            Numbering::Columns { label: Some(label) } => {
                write!(f, "columns from 1; the label is column {label}")
            }
            Numbering::Columns { label: None } => f.write_str("columns from 1, without a label"),
        }
    }
}
