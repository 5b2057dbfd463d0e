//! TODO

pub(crate) mod common_labels;
pub(crate) mod common_layout;
pub(crate) mod decoder;
pub(crate) mod fingerprint;
pub(crate) mod format;
pub(crate) mod in_order;
pub(crate) mod names_file;
pub(crate) mod origin;
pub(crate) mod places;
pub(crate) mod sample;
