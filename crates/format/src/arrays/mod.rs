//! Formats of arrays of numbers: npy, npz, IDX, CIFAR, fvecs, packed rows, raw records, generated mixtures.

pub(crate) mod cifar;
pub(crate) mod fvecs;
pub(crate) mod ids;
pub(crate) mod idx;
pub(crate) mod megatron;
pub(crate) mod mixture;
pub(crate) mod npy;
pub(crate) mod npz;
pub(crate) mod packed;
pub(crate) mod raw_records;
pub(crate) mod windows;
