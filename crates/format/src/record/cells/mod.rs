//! Cells of delimited text: quotes, encodings, decimal commas, words for missing values, the line of names.

pub(crate) mod column_kind;
pub(crate) mod decimal;
pub(crate) mod encoding;
pub(crate) mod heading;
pub(crate) mod known_columns;
pub(crate) mod label_column;
pub(crate) mod libsvm_token;
pub(crate) mod quoted;
pub(crate) mod words;
