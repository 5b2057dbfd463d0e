//! Peers' memory as a storage (DeepIO: Zhu et al., MASCOTS 2018).
//!
//! ```
//! use std::sync::Arc;
//!
//! use pelton_cache::{CacheError, CacheOptions, PeerCache, Pipeline};
//! use pelton_format::{Dataset, OpenOptions};
//! use pelton_plan::{Batching, Catalog, Order, Plan, PlanSpec};
//!
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("numbers.svm");
//! std::fs::write(&path, "1 1:1\n".repeat(100))?;
//! let data = Dataset::open(&[path], &OpenOptions::default())?;
//! let spec = PlanSpec::new(Order::Full, Batching::Examples(10), 7);
//! let plan = Arc::new(Plan::new(&spec, Catalog::new(data.records()))?);
//! let options = CacheOptions { memory_bytes: data.bytes(), ..CacheOptions::default() };
//! let meters = pelton_comm::run_ranks(2, |comm| {
//!     let cache = PeerCache::new(&comm, &data, &plan, &options)?;
//!     assert_eq!(cache.pipeline(), Pipeline::InMemory);
//!     // Read the records of `cache.dataset()` in the order of the plan.
//!     cache.finish(&comm)
//! });
//! assert_eq!(meters.map_err(|error| error.to_string())?.len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`PeerCache::new`] spreads a data set over the memory of all ranks and returns the same data set with storages that read
//! that memory. Readers see no difference: any rank reads any record with a one-sided get, or a plain copy if it
//! holds the record itself, straight into the reader's buffer. Ranks exchange no requests and do not report their
//! reads; the location of data follows from the plan, which all know.
//!
//! | [`Pipeline`] | when | read from the backend |
//! |---|---|---|
//! | in memory | all data fits | each byte once a run |
//! | opportunistic | less fits, and the order is one of loads | an epoch: each byte that is not in memory, at most once |
//! | ordered | less fits, any other order | an epoch: each record that is not in memory |
//!
//! *In memory* the data is cut into one run a rank (`runs.rs`). An *opportunistic* order draws its records from one
//! load after the other (`pelton_plan::Order::Opportunistic`): memory has two halves, and a thread of each rank
//! (`loader.rs`) brings the next load into one while the other is read; `load_table.rs` locates its units. Reads wait
//! for a load that is not there yet. *Ordered* keeps a fixed part of every run, which is the best any policy can do
//! for an order that uses each record once an epoch; `runs.rs` has the argument. [`loads_for`] says how many loads an
//! epoch takes, and [`PeerCache::placement`] which rank holds a record, for callers that distribute work by it.
//!
//! A read goes from `peer_file.rs` to `peers.rs`, which finds each range and makes one batch of gets, to
//! `pelton_comm::Window`.
//!
//! An error on one rank ends every rank: a failed rank ends the others' gets and waits with an error that names it, and a
//! failed loader notifies the others before they wait for it. Readers get it as a `StorageError`.

#[cfg(test)]
mod fixture;

mod error;
mod options;

mod agree;
mod cache;
mod meters;

mod load_size;
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

mod peer_file;
mod peers;

pub use cache::{PeerCache, Pipeline};
pub use error::CacheError;
pub use load_size::loads_for;
pub use meters::CacheMeters;
pub use options::CacheOptions;
pub use placement::Placement;
