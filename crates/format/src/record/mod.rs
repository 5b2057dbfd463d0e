//! Parts of records, independent of files: errors, numbers, cells of tables, labels, rows, options.

pub(crate) mod cells;
pub(crate) mod contents;
pub(crate) mod error;
pub(crate) mod expected;
pub(crate) mod json;
pub(crate) mod kind;
pub(crate) mod labels;
pub(crate) mod mixing;
pub(crate) mod numbering;
pub(crate) mod numbers;
pub(crate) mod options;
pub(crate) mod remote;
pub(crate) mod rows;
