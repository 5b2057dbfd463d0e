//! Ranks that are processes started by `mpirun`.
//!
//! Messages are `MPI_Isend` and matched probes, all polled, so that a wait can hear that another rank
//! failed: a rank that blocks inside MPI cannot. Windows are `MPI_Win_allocate` under one
//! `MPI_Win_lock_all`, read by `MPI_Get` and `MPI_Win_flush` on one machine, by `MPI_Rget` and polling between several. MPI is started for use by several threads
//! (`MPI_THREAD_MULTIPLE`), and a library that offers less is refused.
//!
//! Only making and freeing communicators and windows blocks inside MPI, right after the ranks have met.
//!
//! A rank that fails notifies all others and waits at most two seconds for them to end; then its caller prints
//! the error and ends the rest of the job by [`abort`](crate::abort).

#[allow(unsafe_code)]
mod library;
#[allow(unsafe_code)]
mod raw;

mod notices;

mod link;
mod memory;
mod world;

pub(crate) use link::comm_of;
pub(crate) use raw::{abort, runs, world_rank};
pub(crate) use world::World;
