//! The reference under MPI: nothing but `MPI_Get` and a flush.

use std::ffi::{c_int, c_void};
use std::ptr;

use mpi::ffi;
use pelton_comm::Comm;

use super::{Range, WINDOW_BYTES};

/// A window of all ranks; given back when it is dropped, by all of them.
struct BareWindow(ffi::MPI_Win);

impl BareWindow {
    fn allocate() -> BareWindow {
        let mut start: *mut u8 = ptr::null_mut();
        // SAFETY: MPI runs; it stores a pointer at `place`, to memory that is written before it is read.
        unsafe {
            let mut window = ffi::RSMPI_WIN_NULL;
            let (info, comm) = (ffi::RSMPI_INFO_NULL, ffi::RSMPI_COMM_WORLD);
            let (size, place) = (WINDOW_BYTES as isize, (&raw mut start).cast::<c_void>());
            let code = ffi::MPI_Win_allocate(size, 1, info, comm, place, &mut window);
            assert_eq!(code, 0, "MPI_Win_allocate");
            start.write_bytes(1, WINDOW_BYTES);
            ffi::MPI_Win_lock_all(ffi::MPI_MODE_NOCHECK as c_int, window);
            ffi::MPI_Win_sync(window);
            ffi::MPI_Barrier(comm);
            BareWindow(window)
        }
    }

    /// A method, so that closures capture the window and not only its handle.
    fn handle(&self) -> ffi::MPI_Win {
        self.0
    }
}

impl Drop for BareWindow {
    fn drop(&mut self) {
        // SAFETY: a valid window, locked; no reads are under way.
        unsafe {
            ffi::MPI_Win_unlock_all(self.0);
            ffi::MPI_Win_free(&mut self.0);
        }
    }
}

/// Reads a batch of ranges.
pub(super) fn get_loop(_: &Comm) -> impl FnMut(&[Range], &mut [u8]) + use<> {
    let window = BareWindow::allocate();
    move |ranges, buffer| {
        for ((rank, offset, length), place) in ranges.iter().zip(buffer.chunks_mut(ranges[0].2)) {
            let (start, length) = (place.as_mut_ptr().cast::<c_void>(), *length as c_int);
            // SAFETY: the range lies in the window; the buffer is not touched before the flush below.
            let code = unsafe {
                let (byte, at) = (ffi::RSMPI_UINT8_T, *offset as isize);
                let rank = *rank as c_int;
                ffi::MPI_Get(start, length, byte, rank, at, length, byte, window.handle())
            };
            assert_eq!(code, 0, "MPI_Get");
        }
        // SAFETY: a valid window, locked.
        let code = unsafe { ffi::MPI_Win_flush_all(window.handle()) };
        assert_eq!(code, 0, "MPI_Win_flush_all");
    }
}
