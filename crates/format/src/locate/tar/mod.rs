//! TODO

pub(crate) mod walk;
pub(crate) mod header;
