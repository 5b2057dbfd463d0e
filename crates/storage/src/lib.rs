//! Reads many byte ranges at once, from any storage.
//!
//! ```
//! use pelton_storage::{MemoryStorage, RangeRead, Storage};
//!
//! let storage = MemoryStorage::new(b"the cat sat".to_vec());
//! let mut words = [[0; 3]; 2];
//! let [cat, sat] = &mut words;
//! storage.read_batch(&mut [
//!     RangeRead { offset: 4, buffer: cat, filled: 0 },
//!     RangeRead { offset: 8, buffer: sat, filled: 0 },
//! ])?;
//! assert_eq!(words, [*b"cat", *b"sat"]);
//! # Ok::<(), pelton_storage::StorageError>(())
//! ```
//!
//! [`Storage`] is the one trait: a batch of byte ranges in, filled buffers out. Three backends hold bytes: [`LocalFile`],
//! [`MemoryStorage`] and [`FileSet`], which presents many files as one. [`ScratchFile`] is a temporary file that can
//! also be written, asynchronously through a [`ScratchQueue`]. Decorators wrap any storage: [`Resident`] keeps blocks
//! in memory, [`ReadAhead`] prefetches, [`Metered`] counts, [`Throttled`] charges the time of a modelled device,
//! [`Faulty`] injects failures. All of them pass [`conformance::check_storage`]. [`probe_dir`] and [`quick_probe`]
//! measure the disk under a path. [`WholeFile`] writes all other files, [`Output`] those that a user names for
//! results.
//!
//! Unsafe code is in four modules: the io_uring rings for batches and for owned buffers, since the kernel writes into
//! memory that Rust lends it; [`Resident`], since several threads fill parts of its memory; and the one call that
//! asks for huge pages.

mod address;
mod error;
mod huge_pages;
mod read;

mod direct;
mod file_set;
mod local;
mod memory;
mod open_files;
mod page_cache;
pub mod path_text;
mod pread;
mod read_ahead;
mod resident;
#[cfg(target_os = "linux")]
mod ring;
mod scratch;
mod size;
mod spare_memory;
mod threads;
mod whole_file;

mod output;

mod cache_folder;

#[cfg(target_os = "linux")]
mod owned_ring;
mod scratch_queue;
mod transfer;

mod device_model;
mod faulty;
mod metered;
mod throttled;

pub mod conformance;
mod probe;

pub use address::{shown_address, without_secrets};
pub use cache_folder::{
    CACHE_LIMIT, CachedCopy, cache_folder, hold, make_cache_folder, tidy_cache_folder,
};
pub use device_model::{DeviceModel, DeviceUse, PAGE_BYTES};
pub use error::{StorageError, StorageErrorKind};
pub use faulty::{Faults, Faulty};
pub use file_set::{FileSet, SetFile, changed_ns};
pub use huge_pages::{huge_buffer, huge_vec, huge_zeros};
pub use local::{LocalFile, LocalMode, LocalOptions};
pub use memory::MemoryStorage;
pub use metered::{Metered, ReadMeter};
pub use open_files::{allow_open_files, open_file, open_with, read_file, read_text, regular_file};
pub use output::{Output, check_output, output_file, refuse_address};
pub use page_cache::cached_fraction;
pub use path_text::{path_of_text, path_text};
pub use probe::{
    DeviceProbe, PROBE_BLOCKS, PROBE_DEPTHS, ProbeOptions, ProbePattern, ProbePoint, QuickProbe,
    probe_dir, quick_probe,
};
pub use read::{AlignedBuffer, Granularity, RangeRead, Storage};
pub use read_ahead::ReadAhead;
pub use resident::Resident;
pub use scratch::ScratchFile;
pub use scratch_queue::ScratchQueue;
pub use size::{Memory, size};
pub use spare_memory::{memory_budget, memory_limit, spare_memory};
pub use threads::{in_parallel, on_threads, spawn, thread_pool};
pub use throttled::{ModelledDevice, ThrottleMode, Throttled};
pub use transfer::Transfer;
pub use whole_file::{WholeFile, is_temporary_name};
