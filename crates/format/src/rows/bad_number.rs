//! What is wrong with a token that should have been a number.

use crate::error::{Fault, excerpt};
use crate::rows::number::NotANumber;

/// The fault of a token that should have been a finite value.
#[cold]
pub(crate) fn bad_number(
    why: NotANumber,
    column: u64,
    token: &[u8],
    bad: impl FnOnce(String) -> Fault,
) -> Fault {
    let found = excerpt(token);
    match why {
        NotANumber::Malformed => bad(found),
        NotANumber::NotFinite => Fault::not_finite(column, &found),
        NotANumber::Overflow => Fault::overflow(column, &found),
    }
}
