//! Operations that run while their rank computes.
//!
//! The operand is handed over and the result handed back, so no buffer is lent to an operation that
//! outlives the borrow: a `Pending` may be forgotten without harm. Borrowed buffers were rejected for
//! that reason; the cost is one copy into the result.

use std::marker::PhantomData;

use bytemuck::Pod;

use crate::CommError;
use crate::underway::Underway;

/// A running operation. It advances while its [`Comm`](crate::Comm) waits for anything, and in
/// [`Pending::test`]; when dropped, it continues without a result, because other ranks need this rank's part. It
/// does not outlive its `Comm`: wait, or end with a [`Comm::barrier`](crate::Comm::barrier), before that is dropped.
#[derive(Debug)]
#[must_use = "an operation is done when it has been waited for"]
pub struct Pending<'c, T: Pod> {
    underway: &'c Underway,
    ticket: u64,
    values: PhantomData<T>,
}

impl<'c, T: Pod> Pending<'c, T> {
    pub(crate) fn new(underway: &'c Underway, ticket: u64) -> Pending<'c, T> {
        Pending {
            underway,
            ticket,
            values: PhantomData,
        }
    }

    /// Advances the operation without waiting; whether it is done, successfully or with an error.
    pub fn test(&self) -> bool {
        self.underway.advance();
        self.underway.is_done(self.ticket)
    }

    /// Waits for the result.
    pub fn wait(self) -> Result<Vec<T>, CommError> {
        let arrived = self.underway.finish(self.ticket)?;
        self.underway.values_of(&arrived, self.underway.link.rank())
    }
}

impl<T: Pod> Drop for Pending<'_, T> {
    fn drop(&mut self) {
        self.underway.abandon(self.ticket);
    }
}
