//! TODO

pub(crate) mod delimited;
pub(crate) mod json_lines;
pub(crate) mod libsvm;
pub(crate) mod lines;
pub(crate) mod stream;
pub(crate) mod tables;
