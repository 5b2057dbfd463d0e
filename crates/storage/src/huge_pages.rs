//! Large arrays on huge pages, if the system grants them.
//!
//! A direct read of 44 KB lands on eleven 4 KiB pages, each a separate piece of the request to the
//! device and an entry in its address tables. On 2 MiB pages it is one piece. On a virtual disk
//! this was worth a third of the throughput for buffers of 11 MiB (25 000 against 33 000 reads a
//! second), and nothing for buffers of 3 MiB. A visit of a sparse row touches some thirty weights,
//! each on a page of its own when there are millions of features: with 4 KiB pages nearly every
//! touch also misses the translation cache.
//!
//! Asking is a hint: a refusal only costs time, so it is ignored. Replacing the allocator was
//! rejected: it would change the memory of the whole process for the sake of a few arrays.

#![allow(unsafe_code)]

use crate::AlignedBuffer;

/// Bytes of an ordinary page.
const PAGE: usize = 4096;
/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// A buffer of `bytes` zeros on huge pages, as far as the system grants them: whole 2 MiB ranges if transparent huge
/// pages are on, ordinary pages otherwise.
pub fn huge_buffer(bytes: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::with_capacity(PAGE, bytes);
    // The advice must come before the first touch, which writes the zeros.
    let capacity = buffer.capacity();
    advise(buffer.as_mut_ptr(), capacity);
    buffer.resize(bytes, 0);
    buffer
}

/// `length` zeros, on huge pages if they fill some.
pub fn huge_zeros(length: usize) -> Vec<f32> {
    let mut values = vec![0.0; length];
    advise(values.as_mut_ptr().cast(), length * size_of::<f32>());
    values
}

/// `length` zeros, untouched, on huge pages if they fill some: they take memory when they are touched.
pub(crate) fn untouched_zeros(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    advise(bytes.as_mut_ptr(), length);
    bytes
}

/// An empty vector with room for `capacity` items, on huge pages if they fill some.
pub fn huge_vec<T>(capacity: usize) -> Vec<T> {
    let mut values: Vec<T> = Vec::with_capacity(capacity);
    let bytes = values.capacity() * size_of::<T>();
    advise(values.as_mut_ptr().cast(), bytes);
    values
}

/// Asks for huge pages for the ordinary pages that are wholly within `bytes` from `start`, which must be one
/// allocation, so that only the caller's memory is affected.
#[cfg(target_os = "linux")]
fn advise(start: *mut u8, bytes: usize) {
    use rustix::mm::{Advice, madvise};

    let before = start.align_offset(PAGE);
    let whole_pages = bytes.saturating_sub(before) / PAGE * PAGE;
    if whole_pages < HUGE_PAGE {
        return;
    }
    // SAFETY: the range is inside one allocation of the caller and starts and ends on page boundaries; this advice
    // changes which pages back the memory, never its contents.
    let advised = unsafe {
        madvise(
            start.wrapping_add(before).cast(),
            whole_pages,
            Advice::LinuxHugepage,
        )
    };
    // Only a hint: a kernel without huge pages refuses it and nothing else changes.
    let _ = advised;
}

#[cfg(not(target_os = "linux"))]
fn advise(_start: *mut u8, _bytes: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeroed_writable_and_aligned() {
        for bytes in [0, 1, 4095, 4096, 4097, (5 << 20) + 3] {
            let mut buffer = huge_buffer(bytes);
            assert_eq!(buffer.len(), bytes);
            assert!((buffer.as_ptr() as usize).is_multiple_of(4096));
            assert!(buffer.iter().all(|&byte| byte == 0));
            buffer.fill(7);
            assert!(buffer.iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn vectors_of_any_size_hold_what_is_written() {
        for length in [0, 1, 1000, HUGE_PAGE / 4, HUGE_PAGE, 2 * HUGE_PAGE + 5] {
            let mut values = huge_zeros(length);
            assert_eq!(values.len(), length);
            assert!(values.iter().all(|&value| value == 0.0));
            values.fill(7.0);
            assert!(values.iter().all(|&value| value == 7.0));
            let mut grown: Vec<u32> = huge_vec(length);
            assert!(grown.capacity() >= length);
            grown.extend(0..length as u32);
            assert!((0..).zip(&grown).all(|(i, &value)| i == value));
        }
    }
}
