//! The fault of a token that is not a valid number.

use crate::record::error::{Fault, excerpt};
use crate::record::rows::number::NotANumber;

/// The fault of a token that should be a finite value.
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
