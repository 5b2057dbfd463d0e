//! The entries of a tar file.

pub(crate) mod header;
pub(crate) mod walk;
