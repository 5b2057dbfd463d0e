//! TODO

pub(crate) mod bad_number;
pub(crate) mod number;
pub(crate) mod written_number;
