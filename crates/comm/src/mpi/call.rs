//! Return codes of MPI, all of which are looked at.

use mpi::ffi;

use super::raw;
use crate::CommError;

/// The error of a call, unless it succeeded.
pub(super) fn check(call: &'static str, code: i32) -> Result<(), CommError> {
    if code == ffi::MPI_SUCCESS as i32 {
        return Ok(());
    }
    Err(CommError::Mpi {
        call,
        rank: raw::world_rank(),
        code,
        message: raw::error_text(code),
    })
}
