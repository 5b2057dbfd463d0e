//! The interface of a transport: messages between ranks and access to each other's memory.
//!
//! Everything else (collectives, reductions, non-blocking forms) is built on this once, in
//! `operation.rs`, so that it behaves the same on every transport. MPI's own collectives were rejected: their lengths
//! are 32-bit counts, the order of their reductions is unspecified, and a rank inside one cannot hear that another
//! failed. The cost is one copy of each message.

use std::any::Any;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::CommError;

/// One range of a read: `buffer.len()` bytes at `offset` of the window of `rank`.
#[derive(Debug)]
pub struct Get<'b> {
    /// The rank that holds the bytes; may be the reader itself.
    pub rank: usize,
    /// First byte.
    pub offset: u64,
    /// The destination.
    pub buffer: &'b mut [u8],
}

/// Messages between the ranks of one communicator.
///
/// Between two ranks, messages of one tag arrive in the order in which they were sent.
pub(crate) trait Transport: Send {
    /// This rank.
    fn rank(&self) -> usize;

    /// Ranks there are.
    fn size(&self) -> usize;

    /// The rank in the whole job of `rank`.
    fn world_rank(&self, rank: usize) -> usize;

    /// Sends a message; never waits for the receiver.
    fn send(&self, to: usize, tag: u32, message: Bytes) -> Result<(), CommError>;

    /// The next message from `from` with `tag`, if it is here; an error if it cannot come any more because a rank
    /// failed or ended.
    fn try_receive(&self, from: usize, tag: u32) -> Result<Option<Bytes>, CommError>;

    /// Bytes sent to other ranks so far.
    fn sent_bytes(&self) -> u64;

    /// Bytes a second of the modelled network, if there is one.
    fn modelled_bytes_per_s(&self) -> Option<f64> {
        None
    }

    /// A count that grows when something arrives.
    fn arrivals(&self) -> u64;

    /// Waits until [`Transport::arrivals`] may differ from `seen`.
    fn idle(&self, seen: u64) -> Result<(), CommError>;

    /// The error of a failed rank, if one is known.
    fn failure(&self) -> Result<(), CommError>;

    /// A communicator of `group`; `None` for a rank that is in no group. All ranks call it.
    fn split(&self, group: Option<&Group>) -> Result<Option<Box<dyn Transport>>, CommError>;

    /// Shows something to the ranks that are threads of this process.
    fn show(&self, _something: Option<Arc<dyn Any + Send + Sync>>) {}

    /// The object that one of them shows.
    fn shown(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Memory that other ranks will be able to read. All ranks call it.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, CommError>;
}

/// A group of a split.
pub(crate) struct Group {
    /// The same for all members, different between the groups of one split.
    pub(crate) number: usize,
    /// The number of the split, of its communicator, that made it.
    pub(crate) sequence: u64,
    /// Ranks of the communicator that was split, in the order of their new ranks.
    pub(crate) members: Vec<usize>,
}

/// Sends a message to all ranks and returns theirs, by rank.
pub(crate) type GatherMessages<'a> = &'a mut dyn FnMut(Bytes) -> Result<Vec<Bytes>, CommError>;

/// One rank's side of a window. Shared and unshared in turn; `get` is called only between `share`
/// and `unshare`, and with ranges inside the windows.
pub(crate) trait Memory: Send + Sync {
    /// This rank's bytes.
    fn local(&self) -> &[u8];

    /// The same, to be written. Called only while unshared.
    fn local_mut(&mut self) -> &mut [u8];

    /// Shows all ranks' memory to all; `gather` is also a barrier.
    fn share(&mut self, gather: GatherMessages<'_>) -> Result<(), CommError>;

    /// Ends all reads; afterwards no other rank reads this memory.
    fn unshare(&mut self, gather: GatherMessages<'_>) -> Result<(), CommError>;

    /// Reads `gets`, running `work` meanwhile if the transport can. All reads are done when it returns, also if
    /// `work` panics.
    fn get(&self, gets: &mut [Get<'_>], work: &mut dyn FnMut()) -> Result<(), CommError>;

    /// Gives the memory back. All ranks call it.
    fn free(self: Box<Self>) -> Result<(), CommError>;
}

/// Memory of a window on `rank`.
pub(crate) fn zeroed(rank: usize, bytes: usize) -> Result<BytesMut, CommError> {
    let mut memory: Vec<u8> = Vec::new();
    let reserved = memory.try_reserve_exact(bytes);
    reserved.map_err(|_| CommError::WindowMemory { rank, bytes })?;
    // Freed at once: this only tests whether the memory is available, and zeroed pages are untouched.
    drop(memory);
    Ok(BytesMut::zeroed(bytes))
}
