//! Peers' memory as a storage.
//!
//! [`PeerCache::new`] spreads a data set over the memory of all ranks and hands out the same data set
//! with storages that read that memory. Readers cannot tell the difference, and need not: any rank reads
//! any record with a one-sided get, or a plain copy where it holds it itself, straight into the buffer
//! that it lent. Ranks exchange no messages about what they read.

mod error;

mod cache;
mod meters;

mod load_table;
mod loads;
mod placement;
mod resident;
mod runs;
mod space;

mod backend;
mod load;
mod loader;
mod turns;

mod checksums;
mod peer_file;
mod peers;

pub use cache::{CacheOptions, PeerCache, Pipeline};
pub use error::CacheError;
pub use loads::loads_for;
pub use meters::CacheMeters;
pub use placement::Placement;
