//! Read many byte ranges at once from anything.

mod read;

pub use read::{AlignedBuffer, Granularity, RangeRead, Storage, StorageError};
