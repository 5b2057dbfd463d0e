//! TODO

pub(crate) mod cifar;
pub(crate) mod fvecs;
pub(crate) mod idx;
pub(crate) mod mixture;
pub(crate) mod npy;
pub(crate) mod npz;
pub(crate) mod packed;
pub(crate) mod raw_records;
