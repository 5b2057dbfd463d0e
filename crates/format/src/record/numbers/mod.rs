//! Numbers as text, and the faults of malformed ones.

pub(crate) mod bad_number;
pub(crate) mod parse;
pub(crate) mod written_number;
