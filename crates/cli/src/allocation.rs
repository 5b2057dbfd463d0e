//! How the process returns memory to the system.
//!
//! The C library takes blocks from the system one by one only above a size that it raises, up to
//! 32 MiB, whenever such a block is freed. Buffers of some hundred KiB, filled by one thread and freed by
//! another, then stay in that thread's heap, full of holes: a run within a budget of 34 MB took 101 MB,
//! with a fixed size 39 MB, in the same time. Another allocator was rejected: it would be one more
//! build in C for one number.
#![allow(unsafe_code)]

/// Blocks of this many bytes go back to the system when they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const GIVEN_BACK: i32 = 256 << 10;

/// Sets the size. Call it before any thread is started.
pub fn give_back_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt reads two numbers and changes a setting of the allocator; no other thread runs.
    let taken = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, GIVEN_BACK) };
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    debug_assert_eq!(taken, 1);
}

/// Keeps large blocks in the process, since steps of a net allocate the same ones again and again. Call it
/// before any thread is started.
#[cfg(feature = "nets")]
pub fn keep_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt reads two numbers and changes a setting of the allocator; no other thread runs.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30);
    }
}
