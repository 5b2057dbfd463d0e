//! Peers' memory as a storage (DeepIO: Zhu et al., MASCOTS 2018).
//!
//! [`PeerCache::new`] spreads a data set over the memory of all ranks and hands out the same data set
//! with storages that read that memory. Readers cannot tell the difference and need not: any rank reads
//! any record with a one-sided get, or a plain copy where it holds it itself, straight into the buffer
//! that the reader lent. No rank answers requests, and none tells another what it reads; the plan, which
//! all know, decides what lies where.
//!
//! | [`Pipeline`] | when | what leaves the backend |
//! |---|---|---|
//! | in memory | all data fits | each byte once a run |
//! | opportunistic | less fits, and the order is one of loads | an epoch: each byte that is not in memory, at most once |
//! | ordered | less fits, any other order | an epoch: what is not in memory, record by record |
//!
//! *In memory* the data is cut into one run a rank (`runs.rs`). *Opportunistic* order draws its records
//! from one load after the other (`pelton_plan::Order::Opportunistic`): memory has two halves, and a
//! thread of each rank (`loader.rs`) brings the next load into one while the other is read; its units
//! lie where `load_table.rs` says. Reads wait for a load that is not there yet. *Ordered* keeps a
//! fixed part of every run, which is the best that any policy can do for an order that uses each record once
//! an epoch; `runs.rs` has the argument. [`loads_for`] says how many loads an epoch takes, and
//! [`PeerCache::placement`] which rank holds a record, for those who deal out work by it.
//!
//! The way of a read: `peer_file.rs` → `peers.rs` finds where each range lies and makes one batch of
//! gets → `pelton_comm::Window`.
//!
//! What goes wrong anywhere ends every rank: a failed rank ends the others' gets and waits with an error
//! that names it, a failed loader tells the others before they wait for it. Readers get it as a
//! `StorageError`.

#[cfg(test)]
mod fixture;

mod error;

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

pub use cache::{CacheOptions, PeerCache, Pipeline};
pub use error::CacheError;
pub use load_size::loads_for;
pub use meters::CacheMeters;
pub use placement::Placement;
