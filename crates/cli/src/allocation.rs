//! How the process returns memory to the system.
//!
//! The C library maps blocks one by one only above a threshold, and raises the threshold, up to 32 MiB, whenever such a
//! block is freed. Buffers of some hundred KiB, filled by one thread and freed by another, then stay in that thread's
//! heap, full of holes: a run with a budget of 34 MB took 101 MB, with a fixed threshold 39 MB, in the same time.
//! Rejected: another allocator, since it would add a C build for one number.
#![allow(unsafe_code)]

/// Blocks of at least this many bytes return to the system when freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const GIVEN_BACK: i32 = 256 << 10;

/// Fixes the threshold. Call it before starting any thread.
pub fn give_back_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt reads two numbers and changes a setting of the allocator; no other thread runs.
    let taken = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, GIVEN_BACK) };
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    debug_assert_eq!(taken, 1);
}

/// Keeps large blocks in the process, since steps of a net allocate the same ones again and again. Call it before
/// starting any thread.
#[cfg(feature = "nets")]
pub fn keep_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt reads two numbers and changes a setting of the allocator; no other thread runs.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30);
    }
}
