//! Safe functions over MPI's own: the only unsafe code of this crate.
//!
//! Three facts make them safe. Handles are used only while MPI runs: `run.rs` ends it when nothing holds
//! a [`Session`] any more, and every type here is made through one and kept next to one. Buffers of
//! messages belong to the request that uses them and are leaked rather than freed under it. Calls may
//! come from any thread, for [`Session::start`] accepts nothing less than `MPI_THREAD_MULTIPLE`.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use bytes::Bytes;

use super::library::{self as mpi, CHOICE, library};
use crate::transport::Get;
use crate::{CommError, launched};

/// Longer messages and reads travel in pieces of this length, messages with a last one that is shorter, so that no length
/// exceeds MPI's 32-bit counts.
pub(super) const PIECE_BYTES: usize = 64 << 20;

/// This process's rank, for messages of errors; −1 before MPI has run.
static WORLD_RANK: AtomicI32 = AtomicI32::new(-1);

/// Whether MPI runs.
static RUNS: AtomicBool = AtomicBool::new(false);

pub(crate) fn world_rank() -> usize {
    usize::try_from(WORLD_RANK.load(Ordering::Relaxed)).unwrap_or(0)
}

/// MPI's text for an error code.
pub(super) fn error_text(code: c_int) -> String {
    let mut text = [0_u8; mpi::LONGEST_ERROR];
    let mut length = 0;
    // SAFETY: the buffer has the size that MPI demands.
    let result = unsafe { mpi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length) };
    if result != mpi::SUCCESS {
        return format!("error {code}");
    }
    let length = usize::try_from(length).map_or(0, |length| length.min(text.len()));
    String::from_utf8_lossy(&text[..length]).into_owned()
}

pub(crate) fn runs() -> bool {
    RUNS.load(Ordering::Relaxed)
}

/// Ends all processes of the job; does nothing if MPI does not run.
pub(crate) fn abort(code: c_int) {
    if runs() {
        // SAFETY: MPI runs.
        unsafe { mpi::MPI_Abort(library().comm_world, code) };
    }
}

/// MPI, running. It ends when this is dropped, unless it is forgotten.
pub(super) struct Session {
    _private: (),
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: started by `start`, and nothing uses it any more.
        unsafe { mpi::MPI_Finalize() };
        RUNS.store(false, Ordering::Relaxed);
    }
}

impl Session {
    /// Starts MPI; once in a process.
    pub(super) fn start() -> Result<Session, CommError> {
        let unusable = |reason: String| CommError::MpiUnusable { reason };
        let library = mpi::load().map_err(unusable)?;
        prefer_sound_windows(library);
        let (mut started, mut level) = (0, 0);
        // SAFETY: may be called at any time.
        check("MPI_Initialized", unsafe {
            mpi::MPI_Initialized(&mut started)
        })?;
        if started != 0 {
            return Err(unusable(
                "it was started before in this process".to_string(),
            ));
        }
        // SAFETY: MPI does not run yet; arguments may be left out.
        let code = unsafe {
            let none = (ptr::null_mut(), ptr::null_mut());
            mpi::MPI_Init_thread(none.0, none.1, library.thread_multiple, &mut level)
        };
        check("MPI_Init_thread", code)?;
        RUNS.store(true, Ordering::Relaxed);
        let session = Session { _private: () };
        if level < library.thread_multiple {
            let reason =
                "the library was built without MPI_THREAD_MULTIPLE; install one that has it";
            return Err(unusable(reason.to_string()));
        }
        let world = session.world();
        // SAFETY: MPI runs, and both handles are constants of the library.
        let code = unsafe { mpi::MPI_Comm_set_errhandler(world.0, library.errors_return) };
        check("MPI_Comm_set_errhandler", code)?;
        WORLD_RANK.store(world.rank()? as i32, Ordering::Relaxed);
        if world.largest_tag()? < crate::comm::LARGEST_TAG {
            return Err(unusable("the library has too few message tags".to_string()));
        }
        // A library that is not the launcher's takes each process for a job of one.
        let size = world.size()?;
        match launched()?.and_then(|launched| launched.size()) {
            Some(stated) if stated != size => Err(unusable(format!(
                "the launcher started {stated} processes and {} sees {size}; name the launcher's library in {CHOICE}",
                library.version
            ))),
            _ => Ok(session),
        }
    }

    /// All ranks.
    pub(super) fn world(&self) -> RawComm {
        RawComm(library().comm_world)
    }
}

/// Ranks Open MPI's implementations of windows: shared memory if all ranks are on one machine, then UCX, and only
/// then its own RDMA, unless the user has chosen.
///
/// By default its `osc/rdma` comes first. In 4.1 that names the files behind windows by the number of a
/// communicator, which groups of one machine have in common: windows that they allocate at the same
/// time fail, or share memory. Shared memory is also the faster of the two (`window_bandwidth`). Between machines 4.1 takes
/// UCX over TCP only if nothing else may be chosen, and the others have no windows under several threads.
fn prefer_sound_windows(library: &mpi::Library) {
    const PRIORITY: &str = "OMPI_MCA_osc_rdma_priority";
    const CHOICE: &str = "OMPI_MCA_osc";
    if [PRIORITY, CHOICE]
        .iter()
        .any(|name| std::env::var_os(name).is_some())
    {
        return;
    }
    let number = |name: &str| std::env::var(name).ok()?.parse::<usize>().ok();
    let here = number("OMPI_COMM_WORLD_LOCAL_SIZE");
    let is_far = here.is_some() && here < number("OMPI_COMM_WORLD_SIZE");
    let (name, value) = if is_far && library.version.starts_with("Open MPI v4") {
        (CHOICE, "ucx")
    } else {
        // Below the priorities 100 of osc/sm and 60 of osc/ucx.
        (PRIORITY, "50")
    };
    // SAFETY: ranks join before they start threads that read the environment; a program in Python that has such threads
    // sets variables in the same way.
    unsafe { std::env::set_var(name, value) };
}

/// A communicator's handle.
#[derive(Clone, Copy)]
pub(super) struct RawComm(usize);

// SAFETY: a handle, not memory; MPI allows its use by any thread at MPI_THREAD_MULTIPLE.
unsafe impl Send for RawComm {}
// SAFETY: as above.
unsafe impl Sync for RawComm {}

impl RawComm {
    pub(super) fn rank(self) -> Result<usize, CommError> {
        let mut rank = 0;
        // SAFETY: a valid handle and memory for the result.
        check("MPI_Comm_rank", unsafe {
            mpi::MPI_Comm_rank(self.0, &mut rank)
        })?;
        Ok(rank as usize)
    }

    pub(super) fn size(self) -> Result<usize, CommError> {
        let mut size = 0;
        // SAFETY: a valid handle and memory for the result.
        check("MPI_Comm_size", unsafe {
            mpi::MPI_Comm_size(self.0, &mut size)
        })?;
        Ok(size as usize)
    }

    fn largest_tag(self) -> Result<u32, CommError> {
        let (mut value, mut found): (*mut c_int, c_int) = (ptr::null_mut(), 0);
        let place = (&raw mut value).cast::<c_void>();
        // SAFETY: MPI stores a pointer to an integer of its own at `place`.
        let code = unsafe { mpi::MPI_Comm_get_attr(self.0, library().tag_ub, place, &mut found) };
        check("MPI_Comm_get_attr", code)?;
        // SAFETY: if the attribute was found, the pointer is to an integer that lives as long as MPI.
        let largest = if found != 0 { unsafe { *value } } else { 0 };
        Ok(u32::try_from(largest).unwrap_or(0))
    }

    /// One more communicator of the same ranks. All ranks call it.
    pub(super) fn duplicate(self) -> Result<RawComm, CommError> {
        let mut new = library().comm_null;
        // SAFETY: a valid handle and memory for the result.
        check("MPI_Comm_dup", unsafe {
            mpi::MPI_Comm_dup(self.0, &mut new)
        })?;
        Ok(RawComm(new))
    }

    /// A communicator of those with the same color, by key; `None` without a color. All ranks call it.
    pub(super) fn split(
        self,
        color: Option<usize>,
        key: usize,
    ) -> Result<Option<RawComm>, CommError> {
        let color_number = color.map_or(mpi::UNDEFINED, |color| color as c_int);
        let mut new = library().comm_null;
        // SAFETY: a valid handle and memory for the result.
        let code = unsafe { mpi::MPI_Comm_split(self.0, color_number, key as c_int, &mut new) };
        check("MPI_Comm_split", code)?;
        Ok(color.map(|_| RawComm(new)))
    }

    /// Gives a communicator back, not that of all ranks. All its ranks call it.
    pub(super) fn free(mut self) -> Result<(), CommError> {
        // SAFETY: the handle came from a split; its owner keeps no copy.
        check("MPI_Comm_free", unsafe { mpi::MPI_Comm_free(&mut self.0) })
    }

    pub(super) fn send(self, to: usize, tag: u32, message: Bytes) -> Result<Request, CommError> {
        let length = message_length(message.len());
        let mut request = Request::new(Buffer::Sent(message));
        let Buffer::Sent(message) = &*request.buffer else {
            unreachable!("made above");
        };
        let start = message.as_ptr().cast::<c_void>();
        // SAFETY: the buffer is owned by the request, is not changed, and outlives its use by MPI.
        let code = unsafe {
            let (to, tag) = (to as c_int, tag as c_int);
            mpi::MPI_Isend(
                start,
                length,
                library().uint8,
                to,
                tag,
                self.0,
                &mut request.handle,
            )
        };
        check("MPI_Isend", code)?;
        Ok(request)
    }

    /// Begins to receive the next message from `from`, or from any rank, if there is one; also says
    /// who sent it.
    pub(super) fn try_receive(
        self,
        from: Option<usize>,
        tag: u32,
    ) -> Result<Option<(usize, Request)>, CommError> {
        let source = from.map_or(library().any_source, |from| from as c_int);
        let mut message = library().message_null;
        let (mut found, mut status) = (0, mpi::Status::default());
        // SAFETY: a valid handle and memory for the results.
        let code = unsafe {
            let (found, status) = (&mut found, &raw mut status);
            mpi::MPI_Improbe(source, tag as c_int, self.0, found, &mut message, status)
        };
        check("MPI_Improbe", code)?;
        if found == 0 {
            return Ok(None);
        }
        let mut length = 0;
        // SAFETY: a status that MPI filled and memory for the result.
        let code = unsafe { mpi::MPI_Get_count(&status, library().uint8, &mut length) };
        check("MPI_Get_count", code)?;
        let bytes = vec![0; length as usize];
        let mut request = Request::new(Buffer::Received(bytes));
        let Buffer::Received(bytes) = &mut *request.buffer else {
            unreachable!("made above");
        };
        let start = bytes.as_mut_ptr().cast::<c_void>();
        // SAFETY: the buffer is as long as the message, is owned by the request, is not looked at until
        // it is done, and outlives its use by MPI.
        let code = unsafe {
            let (message, handle) = (&mut message, &mut request.handle);
            mpi::MPI_Imrecv(start, length, library().uint8, message, handle)
        };
        check("MPI_Imrecv", code)?;
        Ok(Some((status.source(), request)))
    }
}

/// A length that MPI can count; messages are cut into pieces long before that.
fn message_length(bytes: usize) -> c_int {
    c_int::try_from(bytes).expect("messages are sent in pieces")
}

/// A message in flight, with its bytes.
pub(super) struct Request {
    handle: usize,
    buffer: ManuallyDrop<Buffer>,
    done: bool,
}

enum Buffer {
    Sent(Bytes),
    Received(Vec<u8>),
}

// SAFETY: a handle and the buffer it uses; MPI allows their use by any thread at MPI_THREAD_MULTIPLE.
unsafe impl Send for Request {}

impl Request {
    fn new(buffer: Buffer) -> Request {
        Request {
            handle: library().request_null,
            buffer: ManuallyDrop::new(buffer),
            done: false,
        }
    }

    /// Whether MPI has done with the message.
    pub(super) fn test(&mut self) -> Result<bool, CommError> {
        if !self.done {
            let mut done = 0;
            // SAFETY: the handle is of a request that is not done yet, and statuses may be ignored.
            let code =
                unsafe { mpi::MPI_Test(&mut self.handle, &mut done, library().status_ignore()) };
            check("MPI_Test", code)?;
            self.done = done != 0;
        }
        Ok(self.done)
    }

    /// The received bytes, once the request is done.
    pub(super) fn take(&mut self) -> Vec<u8> {
        assert!(self.done, "a message was fetched before it was there");
        match &mut *self.buffer {
            Buffer::Received(bytes) => std::mem::take(bytes),
            Buffer::Sent(_) => Vec::new(),
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.done {
            // SAFETY: dropped here only, and MPI has done with it.
            unsafe { ManuallyDrop::drop(&mut self.buffer) };
        }
        // Otherwise MPI may still use the buffer, so it is leaked.
    }
}

/// Drops the requests that are done.
pub(super) fn forget_done(requests: &mut Vec<Request>) -> Result<(), CommError> {
    let mut place = 0;
    while place < requests.len() {
        if requests[place].test()? {
            requests.swap_remove(place);
        } else {
            place += 1;
        }
    }
    Ok(())
}

/// A window, locked for reading from its allocation to its end.
#[derive(Clone, Copy)]
pub(super) struct RawWindow {
    handle: usize,
    start: *mut u8,
    length: usize,
}

// SAFETY: a handle that MPI lets any thread use, and memory that is borrowed through `&self` and
// `&mut self` of the one `MpiMemory` that holds it.
unsafe impl Send for RawWindow {}
// SAFETY: as above.
unsafe impl Sync for RawWindow {}

impl RawWindow {
    /// Zeroed memory. All ranks call it.
    pub(super) fn allocate(comm: RawComm, bytes: usize) -> Result<RawWindow, CommError> {
        let (info, mut handle) = (library().info_null, library().win_null);
        let mut start: *mut u8 = ptr::null_mut();
        let size = isize::try_from(bytes).map_err(|_| CommError::WindowMemory {
            rank: world_rank(),
            bytes,
        })?;
        // SAFETY: a valid communicator; MPI stores a pointer in `start`.
        let code = unsafe {
            let place = (&raw mut start).cast::<c_void>();
            mpi::MPI_Win_allocate(size, 1, info, comm.0, place, &mut handle)
        };
        check("MPI_Win_allocate", code).map_err(|error| CommError::MpiUnusable {
            reason: format!(
                "{} has no windows between these machines ({error}); under Open MPI 4 install UCX and give mpirun -x OMPI_MCA_osc=ucx, or use Open MPI 5 or MPICH",
                library().version
            ),
        })?;
        // SAFETY: a window just made, and a constant of the library.
        let code = unsafe { mpi::MPI_Win_set_errhandler(handle, library().errors_return) };
        check("MPI_Win_set_errhandler", code)?;
        if bytes > 0 {
            // SAFETY: MPI has allocated `bytes` bytes there, and no rank reads them yet.
            unsafe { start.write_bytes(0, bytes) };
        }
        // SAFETY: a window just made; no rank locks it exclusively, which is what NOCHECK says.
        let code = unsafe { mpi::MPI_Win_lock_all(library().mode_nocheck, handle) };
        check("MPI_Win_lock_all", code)?;
        Ok(RawWindow {
            handle,
            start,
            length: bytes,
        })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: MPI's memory of that length, initialised, and not written while `self` is borrowed:
        // other ranks only read.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }

    /// To be called only while no other rank reads the window.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.length == 0 {
            return &mut [];
        }
        // SAFETY: as above, borrowed exclusively, and by the caller's promise not read by others.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }

    /// Makes this rank's writes visible to others' reads, and theirs to ours.
    pub(super) fn sync(&self) -> Result<(), CommError> {
        // SAFETY: a valid window, locked.
        check("MPI_Win_sync", unsafe { mpi::MPI_Win_sync(self.handle) })
    }

    /// Reads all ranges, which must be inside the windows, while `work` runs.
    pub(super) fn get(
        &self,
        gets: &mut [Get<'_>],
        own: usize,
        work: &mut dyn FnMut(),
    ) -> Result<(), CommError> {
        let flush = Flush(self.handle);
        for get in gets {
            let start = get.offset as usize;
            if get.rank == own {
                let end = start + get.buffer.len();
                get.buffer.copy_from_slice(&self.bytes()[start..end]);
                continue;
            }
            let mut offset = start;
            for piece in get.buffer.chunks_mut(c_int::MAX as usize) {
                self.start_get(get.rank, offset, piece)?;
                offset += piece.len();
            }
        }
        work();
        drop(flush);
        Ok(())
    }

    /// Lends `buffer` to MPI until the next flush.
    fn start_get(&self, rank: usize, offset: usize, buffer: &mut [u8]) -> Result<(), CommError> {
        let (length, rank) = (buffer.len() as c_int, rank as c_int);
        let start = buffer.as_mut_ptr().cast::<c_void>();
        // SAFETY: the range is inside the target's window, the window is locked, and the buffer stays lent until the
        // `Flush` of the caller has been dropped.
        let code = unsafe {
            let (unit, at) = (library().uint8, offset as isize);
            mpi::MPI_Get(start, length, unit, rank, at, length, unit, self.handle)
        };
        check("MPI_Get", code)
    }

    /// Starts to read a range of another rank's window, which must be inside it, into memory of the request: so a read
    /// from a machine that is gone can be given up.
    pub(super) fn start_far_get(
        &self,
        rank: usize,
        offset: usize,
        length: usize,
    ) -> Result<Request, CommError> {
        let mut request = Request::new(Buffer::Received(vec![0; length]));
        let Buffer::Received(bytes) = &mut *request.buffer else {
            unreachable!("made above");
        };
        let start = bytes.as_mut_ptr().cast::<c_void>();
        let (length, rank, unit) = (length as c_int, rank as c_int, library().uint8);
        // SAFETY: the range is inside the target's window, the window is locked, and the buffer is owned by the request,
        // is not looked at until it is done, and outlives its use by MPI.
        let code = unsafe {
            let (at, request) = (offset as isize, &mut request.handle);
            mpi::MPI_Rget(
                start,
                length,
                unit,
                rank,
                at,
                length,
                unit,
                self.handle,
                request,
            )
        };
        check("MPI_Rget", code)?;
        Ok(request)
    }

    /// Gives the window back. All ranks call it.
    pub(super) fn free(mut self) -> Result<(), CommError> {
        // SAFETY: a valid window, locked by its allocation.
        check("MPI_Win_unlock_all", unsafe {
            mpi::MPI_Win_unlock_all(self.handle)
        })?;
        // SAFETY: unlocked, and its one owner gives it up.
        check("MPI_Win_free", unsafe {
            mpi::MPI_Win_free(&mut self.handle)
        })
    }
}

/// Completes all reads of a window when it is dropped, be it by an error or a panic.
struct Flush(usize);

impl Drop for Flush {
    fn drop(&mut self) {
        // SAFETY: a valid window, locked.
        let code = unsafe { mpi::MPI_Win_flush_all(self.0) };
        if code != mpi::SUCCESS {
            // MPI could still write into buffers that are about to be given back to their owners.
            abort(1);
            panic!("MPI_Win_flush_all failed: {}", error_text(code));
        }
    }
}

/// The error of a call, unless it succeeded.
fn check(call: &'static str, code: i32) -> Result<(), CommError> {
    if code == mpi::SUCCESS {
        return Ok(());
    }
    Err(CommError::Mpi {
        call,
        rank: world_rank(),
        code,
        message: error_text(code),
    })
}
