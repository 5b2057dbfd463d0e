//! Where records lie: by arithmetic, in lists of starts, found by scans and kept in sidecars.

pub(crate) mod byte_source;
pub(crate) mod chunks_in_order;
pub(crate) mod compressed;
pub(crate) mod elias_fano;
pub(crate) mod fingerprint;
pub(crate) mod gathered;
pub(crate) mod input;
pub(crate) mod line_scan;
pub(crate) mod located;
pub(crate) mod newlines;
pub(crate) mod scan_chunk;
pub(crate) mod sidecar;
pub(crate) mod stamp;
pub(crate) mod token_scan;
