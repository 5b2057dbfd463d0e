//! Ranks that are threads of this process: nothing to install, nothing to start.
//!
//! A message is handed over by reference, not copied. So is a window: a `get` is a plain copy out of the peer's
//! memory, and this transport needs no unsafe code.

pub(crate) mod exchange;
#[cfg(all(test, loom))]
mod exchange_model;
pub(crate) mod link;
pub(crate) mod network;

#[cfg(not(loom))]
pub(crate) use exchange::{Exchange, Route};
pub(crate) use link::Link;
