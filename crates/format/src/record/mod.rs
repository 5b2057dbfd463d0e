//! TODO

pub(crate) mod cells;
pub(crate) mod contents;
pub(crate) mod error;
pub(crate) mod kind;
pub(crate) mod labels;
pub(crate) mod numbering;
pub(crate) mod options;
pub(crate) mod remote;
pub(crate) mod rows;
