//! Reads of mapped files that meet no data: the file was cut short, or its disk has failed.
//!
//! The system answers such a read with SIGBUS, which ends the process. Here the missing page is replaced by
//! zeros instead and the range is marked as broken, so that whoever copied from it can see that what it got is
//! worthless. Signals for any other address go where they went before.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Ranges that can be watched at a time.
const MOST_RANGES: usize = 1024;
/// The start of a place that is being filled: no address.
const CLAIMED: usize = 1;

static WATCHED: [Place; MOST_RANGES] = [const { Place::free() }; MOST_RANGES];
/// What was done about the signal before; `None` if it cannot be handled.
static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();

struct Place {
    /// First address; 0 if the place is free.
    start: AtomicUsize,
    end: AtomicUsize,
    broken: AtomicBool,
}

impl Place {
    const fn free() -> Place {
        Place {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
        }
    }
}

/// A range of addresses of a mapped file that is watched until this is dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    place: usize,
}

impl Watched {
    /// Watches `addresses`, of whole pages that are mapped and stay so meanwhile; `None` where that is not to be had.
    pub fn new(addresses: Range<usize>) -> Option<Watched> {
        (*BEFORE.get_or_init(install))?;
        let claim = |place: &Place| {
            let claimed =
                place
                    .start
                    .compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Relaxed);
            claimed.is_ok()
        };
        let place = WATCHED.iter().position(claim)?;
        let claimed = &WATCHED[place];
        claimed.broken.store(false, Ordering::Relaxed);
        claimed.end.store(addresses.end, Ordering::Relaxed);
        claimed.start.store(addresses.start, Ordering::Release);
        Some(Watched { place })
    }

    /// Whether all that was read of the range so far was data.
    pub fn intact(&self) -> bool {
        // Whoever has read a page of zeros sees the mark, which was made before the page.
        fence(Ordering::SeqCst);
        !WATCHED[self.place].broken.load(Ordering::SeqCst)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let place = &WATCHED[self.place];
        place.end.store(0, Ordering::Release);
        place.start.store(0, Ordering::Release);
    }
}

/// Bytes of a page of this system.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: it reads a number, which signal handlers may do too.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

fn install() -> Option<libc::sigaction> {
    // SAFETY: an all-zero sigaction is one that may be written over: its fields are numbers and addresses.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: as above; every field that matters is set below.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
    ours.sa_sigaction = handler as usize;
    // Not on the thread's own stack where it has another, and with what the thread masks left as it is.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: both point to valid structures, and the handler does only what a signal handler may: atomic
    // loads and stores, and bare system calls.
    let outcome = unsafe {
        libc::sigemptyset(&raw mut ours.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const ours, &raw mut before)
    };
    (outcome == 0).then_some(before)
}

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the system calls a handler with SA_SIGINFO with a valid pointer, and the address is set for this signal
    // where it is the system that sends it.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let by_the_system = code > 0;
    if by_the_system && replaced(address) {
        return;
    }
    // BEFORE may still be empty on the first call of `install`; then the default it is.
    let before = BEFORE.get().copied().flatten();
    // SAFETY: the former action, or the default one, which is all zeros, is valid; returning repeats the
    // read that failed, now under that action, and a signal that somebody sent is sent again.
    unsafe {
        let before = before.unwrap_or_else(|| std::mem::zeroed());
        libc::sigaction(signal, &raw const before, std::ptr::null_mut());
        if !by_the_system {
            libc::raise(signal);
        }
    }
}

/// Puts zeros in the place of the page at a watched address; false if it is none.
fn replaced(address: usize) -> bool {
    let holds = |place: &&Place| {
        let start = place.start.load(Ordering::Acquire);
        start > CLAIMED && (start..place.end.load(Ordering::Acquire)).contains(&address)
    };
    let Some(place) = WATCHED.iter().find(holds) else {
        return false;
    };
    place.broken.store(true, Ordering::SeqCst);
    let page = page_bytes();
    let start = address - address % page;
    // SAFETY: the page lies within a watched range, which is mapped, is read only through raw pointers, and
    // whose readers throw away what they read once it is marked.
    let zeros = unsafe {
        mmap_anonymous(
            start as *mut c_void,
            page,
            ProtFlags::READ,
            MapFlags::PRIVATE | MapFlags::FIXED,
        )
    };
    zeros.is_ok()
}
