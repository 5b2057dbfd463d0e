//! Ranks that are threads of this process: nothing to install, nothing to start.
//!
//! A message is handed over by reference, not copied. So is a window: a `get` is a plain copy out of the peer's
//! memory, and this transport needs no unsafe code.

mod exchange;
#[cfg(all(test, loom))]
mod exchange_model;
mod link;
mod network;
mod run;

#[cfg(not(loom))]
pub(crate) use exchange::{Exchange, Route};
pub(crate) use link::Link;
#[cfg(not(loom))]
pub(crate) use run::panic_message;
pub use run::{run_ranks, run_ranks_over};
