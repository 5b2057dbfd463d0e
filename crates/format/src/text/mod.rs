//! Formats of text: tables of cells, LIBSVM, JSON Lines, lines, streams of tokens or bytes.

pub(crate) mod delimited;
pub(crate) mod json_lines;
pub(crate) mod libsvm;
pub(crate) mod lines;
pub(crate) mod stream;
pub(crate) mod tables;
