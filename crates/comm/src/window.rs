//! One-sided windows: memory that every rank can read without the help of its owner.
//!
//! A window is either being filled by its owner ([`FillWindow`]) or read by all ([`Window`]); only the
//! collective calls [`FillWindow::share`] and [`Window::refill`] lead from one to the other. So reads have no
//! races: no byte is written while another rank may read it. Locks around each read,
//! MPI's alternative, were rejected; data is read far more often than it is replaced.

use std::fmt;

use crate::transport::{Get, Memory};
use crate::{Comm, CommError};

impl Comm {
    /// Allocates zeroed memory for others to read; each rank chooses its own number of `bytes`.
    pub fn allocate(&self, bytes: usize) -> Result<FillWindow, CommError> {
        // Exchanged before the memory is allocated, so no rank is left alone in a waiting call.
        let reported = self.all_gather_ragged(&[bytes as u64])?;
        let memory = self.allocate_memory(bytes)?;
        Ok(FillWindow {
            memory,
            sizes: reported.into_iter().flatten().collect(),
        })
    }
}

/// A window while its owner fills it.
pub struct FillWindow {
    memory: Box<dyn Memory>,
    sizes: Vec<u64>,
}

impl FillWindow {
    /// This rank's memory; zeros at first, later its last contents.
    pub fn local(&mut self) -> &mut [u8] {
        self.memory.local_mut()
    }

    /// Bytes each rank holds, by rank.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// Opens the window for reading when all ranks have filled theirs. All ranks call it, with the
    /// communicator that allocated the window or a duplicate.
    pub fn share(mut self, comm: &Comm) -> Result<Window, CommError> {
        self.memory
            .share(&mut |message| comm.gather_messages(message))?;
        Ok(Window {
            memory: self.memory,
            sizes: self.sizes,
        })
    }

    /// Gives the memory back. All ranks call it; with MPI, a window that is dropped instead keeps its memory until
    /// the job ends.
    pub fn free(self, comm: &Comm) -> Result<(), CommError> {
        comm.barrier()?;
        self.memory.free()
    }
}

impl fmt::Debug for FillWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FillWindow({:?})", self.sizes)
    }
}

/// A window while all ranks may read it, from any number of threads.
pub struct Window {
    memory: Box<dyn Memory>,
    sizes: Vec<u64>,
}

impl Window {
    /// Reads all ranges; they are in their buffers when this returns.
    ///
    /// Cost: one copy a range, straight into its buffer; ranges of other machines are all in flight together. No
    /// other rank takes part.
    ///
    /// Errors: [`CommError::OutOfWindow`] and [`CommError::NoSuchRank`] before anything is read,
    /// [`CommError::RankFailed`] if a rank is known to have failed; the buffers are then unspecified.
    pub fn get(&self, gets: &mut [Get<'_>]) -> Result<(), CommError> {
        self.get_while(gets, || ())
    }

    /// Reads all ranges while `work` runs and returns its result. This is how reads overlap with computing: the
    /// buffers stay lent until all reads are done, also if `work` panics.
    pub fn get_while<R>(
        &self,
        gets: &mut [Get<'_>],
        work: impl FnOnce() -> R,
    ) -> Result<R, CommError> {
        for get in &*gets {
            self.check(get)?;
        }
        let (mut work, mut result) = (Some(work), None);
        self.memory
            .get(gets, &mut || result = work.take().map(|work| work()))?;
        Ok(result.expect("a transport runs the work once"))
    }

    fn check(&self, get: &Get<'_>) -> Result<(), CommError> {
        let rank = get.rank;
        let Some(&size) = self.sizes.get(rank) else {
            let size = self.sizes.len();
            return Err(CommError::NoSuchRank { rank, size });
        };
        let length = get.buffer.len();
        let end = get.offset.checked_add(length as u64);
        if end.is_some_and(|end| end <= size) {
            return Ok(());
        }
        Err(CommError::OutOfWindow {
            rank,
            offset: get.offset,
            length,
            size,
        })
    }

    /// This rank's own memory.
    pub fn local(&self) -> &[u8] {
        self.memory.local()
    }

    /// Bytes each rank holds, by rank.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// Closes the window for reading when all ranks have come here. All ranks call it, with the
    /// communicator that allocated the window or a duplicate.
    pub fn refill(mut self, comm: &Comm) -> Result<FillWindow, CommError> {
        self.memory
            .unshare(&mut |message| comm.gather_messages(message))?;
        Ok(FillWindow {
            memory: self.memory,
            sizes: self.sizes,
        })
    }

    /// Gives the memory back when all ranks have come here. All ranks call it; see
    /// [`FillWindow::free`].
    pub fn free(self, comm: &Comm) -> Result<(), CommError> {
        self.refill(comm)?.memory.free()
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({:?})", self.sizes)
    }
}
