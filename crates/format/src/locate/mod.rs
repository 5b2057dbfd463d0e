//! Finding records in a file, and decoding one: the traits [`format::Format`] and [`decoder::Decoder`], offsets,
//! sidecars.

pub(crate) mod checksum;
pub(crate) mod common_labels;
pub(crate) mod common_layout;
pub(crate) mod decoder;
pub(crate) mod field_labels;
pub(crate) mod fingerprint;
pub(crate) mod format;
pub(crate) mod in_order;
pub(crate) mod missing;
pub(crate) mod names_file;
pub(crate) mod origin;
pub(crate) mod places;
pub(crate) mod reach;
pub(crate) mod sample;
pub(crate) mod scanned;
pub(crate) mod span;
pub(crate) mod table;
pub(crate) mod tar;
