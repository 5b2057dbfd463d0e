//! What can be wrong with the columns of a table.

use std::path::PathBuf;

use pelton_batch::Difference;

/// Why the columns of a table cannot be told, or do not go with others.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// Cells are separated by something else than the format says.
    #[error("{}: its cells seem to be separated by {found}; {remedy}", path.display())]
    Delimiter {
        /// The file.
        path: PathBuf,
        /// What separates them, in words.
        found: &'static str,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A first line that may be names or a record.
    #[error("{}: line 1 ({line}) may name the columns or be a record: {why}; set `header` to yes or no", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// How the line begins.
        line: String,
        /// What speaks for names.
        why: &'static str,
    },
    /// Nothing but labels.
    #[error("{}: has one column, the label, and no features; check the file, or read its lines with `format` text", path.display())]
    OneColumn {
        /// The file.
        path: PathBuf,
    },
    /// Other columns than those of the data before it.
    #[error("{}: {difference}, unlike {of}; give it the same columns, in any order", path.display())]
    Columns {
        /// The file.
        path: PathBuf,
        /// How its columns differ.
        difference: Box<Difference>,
        /// What it is compared with.
        of: String,
    },
}
