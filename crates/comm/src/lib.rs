//! Ranks that work on one job: collectives, messages, and windows into each other's memory.
//!
//! ```
//! use pelton_comm::{CommError, Reduction, run_ranks};
//!
//! let sums = run_ranks(3, |comm| {
//!     let mut sum = [comm.rank() as f64];
//!     comm.all_reduce(&mut sum, Reduction::Sum)?;
//!     Ok::<_, CommError>(sum[0])
//! });
//! assert_eq!(sums.unwrap(), [3.0; 3]);
//! ```
//!
//! A [`Comm`] is one rank's end. Three transports carry it: [`run_ranks`] makes the ranks threads of this
//! process; the processes that a launcher started are ranks by [`run_launched`], over its MPI or over [`tcp`];
//! [`launched`] says whether there are such. Collectives are built once on
//! messages (`operation.rs`), so all transports give the same results, to the bit; [`conformance`] holds them to it.
//!
//! - *Reductions are deterministic*: the same operands on the same number of ranks give the same bits in
//!   every run, on any transport (`number.rs`).
//! - *Windows* ([`Comm::allocate`]) are filled by their owners, shared, and then read by all without
//!   the owner's help.
//! - *A failing rank ends the job*: the waits of all others end with an error that names it, within
//!   milliseconds among threads and over TCP, within seconds under MPI. So does a process that is not heard of for a
//!   minute (`heartbeat.rs`).
//! - *Ranks start equal* ([`Comm::agree`]): data, settings and state are compared before the first step.
//!
//! Only slices of plain numbers travel; their meaning is up to the caller.

mod error;
mod number;

mod agree;
mod comm;
mod pending;
mod underway;
mod window;

mod operation;
mod transport;

#[cfg(not(loom))]
mod heartbeat;
#[cfg(not(loom))]
mod host;
mod launcher;
mod local;
#[cfg(not(loom))]
mod mpi;
#[cfg(not(loom))]
mod processes;
mod run;
#[cfg(not(loom))]
pub mod tcp;

pub mod conformance;

pub use agree::Alike;
pub use comm::{Comm, Traffic};
pub use error::{CommError, EndedRank, FailedRank, RankError};
pub use launcher::{Launched, Meeting, launched};
pub use number::{Number, Reduction};
pub use operation::{reduction_messages, share};
pub use pending::Pending;
#[cfg(not(loom))]
pub use processes::{Joined, abort, run_launched};
pub use run::{run_ranks, run_ranks_over};
pub use transport::Get;
pub use window::{FillWindow, Window};
