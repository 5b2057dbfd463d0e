//! The requirements of every transport, as functions that all ranks of a job run together.
//!
//! [`CASES`] succeed on any number of ranks. In each of [`FAILURES`] the last rank fails differently; the others must
//! end with an error that names it. Failed expectations panic, as in a test.

mod collectives;
mod failures;
mod messages;
mod numbers;
mod pending;
mod windows;

pub use failures::{FAILURES, FailureCase, REASON, WITHIN, check_ends, failing_rank};

use crate::{Comm, CommError};

/// A case: its name and what all ranks run.
pub type Case = (&'static str, fn(&Comm) -> Result<(), CommError>);

/// All cases that must succeed.
pub const CASES: &[Case] = &[
    ("ranks", collectives::ranks),
    ("barrier", collectives::barrier),
    ("broadcast", collectives::broadcast),
    ("all-gather", collectives::all_gather),
    ("ragged all-gather", collectives::all_gather_ragged),
    ("all-reduce", collectives::all_reduce),
    ("order of reduction", collectives::reduction_order),
    ("reduce-scatter", collectives::reduce_scatter),
    ("ragged reduce-scatter", collectives::reduce_scatter_ragged),
    ("agreement", collectives::agreement),
    ("messages", messages::ring),
    ("order of messages", messages::order),
    ("large messages", messages::large),
    ("counted bytes", messages::counted),
    ("split", messages::split),
    ("separate communicators", messages::separate),
    ("second thread", messages::second_thread),
    ("interleaved operations", pending::interleaved),
    ("operations between barriers", pending::between_barriers),
    ("abandoned operations", pending::abandoned),
    ("receptions", pending::receptions),
    ("window", windows::reads),
    ("ragged window", windows::ragged),
    ("refilled window", windows::refills),
    ("many small reads", windows::many),
    ("reads from threads", windows::threads),
    ("windows of groups", windows::groups),
    ("reads out of the window", windows::out_of_window),
    ("wrong ranks and lengths", messages::wrong_arguments),
];

/// Runs all of [`CASES`] on the ranks of `comm`, telling `before` each name first.
pub fn check_comm(comm: &Comm, mut before: impl FnMut(&str)) -> Result<(), CommError> {
    for (name, case) in CASES {
        before(name);
        case(comm)?;
        comm.barrier()?;
    }
    Ok(())
}
