//! A place in the sequence of batches.

/// A place in the endless sequence of batches: the next one to be produced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Epoch, from 0.
    pub epoch: u64,
    /// The step within the epoch.
    pub next: u64,
}
