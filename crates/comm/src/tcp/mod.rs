//! Ranks that are processes, connected by TCP: nothing to install, and any launcher can start them.
//!
//! Processes that a launcher numbered [meet](crate::Meeting) at the address of rank 0. Others open a [`Listener`], give
//! the others its address by other means, and [connect](Listener::connect). Between two ranks there is one connection, with
//! a thread that writes and one that reads, so sends never wait. That makes 2 (n − 1) threads a rank, which is right for
//! some dozens of ranks. Windows are read over connections of their own (`reads.rs`). Received messages go through the same exchange as
//! between threads of one process (`local/exchange.rs`).
//!
//! One more thread sends a heartbeat every few seconds; a rank that is not heard of for a minute has failed.
//!
//! A token that all ranks know keeps others out; nothing is encrypted, as with MPI and the like.

mod connect;
mod link;
mod meeting;
mod memory;
mod reads;
mod wire;
mod world;

pub use connect::Listener;
pub(crate) use link::comm_of;
pub use world::Job;
pub(crate) use world::World;
