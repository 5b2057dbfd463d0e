//! TODO

pub(crate) mod cells;
pub(crate) mod column_kind;
pub(crate) mod decimal;
pub(crate) mod encoding;
pub(crate) mod heading;
pub(crate) mod known_columns;
pub(crate) mod label_column;
pub(crate) mod libsvm_token;
pub(crate) mod words;
