//! A slice that several threads write at once, each to separate elements.
#![allow(unsafe_code)]

use std::marker::PhantomData;

/// A slice shared by threads that access disjoint ranges.
///
/// For rows of a matrix cut by columns no safe split exists; the alternative, a copy for each thread, would move
/// every number once more.
#[derive(Clone, Copy)]
pub struct Disjoint<'a> {
    start: *mut f32,
    len: usize,
    of: PhantomData<&'a mut [f32]>,
}

// SAFETY: access is only through unsafe functions; their callers keep threads apart.
unsafe impl Send for Disjoint<'_> {}
// SAFETY: as above.
unsafe impl Sync for Disjoint<'_> {}

impl<'a> Disjoint<'a> {
    pub fn new(slice: &'a mut [f32]) -> Disjoint<'a> {
        Disjoint {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            of: PhantomData,
        }
    }

    /// Numbers `at..at + len`. Panics if they end beyond the slice.
    ///
    /// # Safety
    /// No thread writes any of them while the result lives.
    #[inline(always)]
    pub unsafe fn read(&self, at: usize, len: usize) -> &'a [f32] {
        assert!(at <= self.len && len <= self.len - at, "beyond a slice");
        // SAFETY: inside the slice; the caller keeps writers away.
        unsafe { std::slice::from_raw_parts(self.start.add(at), len) }
    }

    /// Mutable numbers `at..at + len`. Panics if they end beyond the slice.
    ///
    /// # Safety
    /// No other thread reads or writes any of them while the result lives.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn write(&self, at: usize, len: usize) -> &'a mut [f32] {
        assert!(at <= self.len && len <= self.len - at, "beyond a slice");
        // SAFETY: inside the slice; the caller keeps all others away.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }
}
