//! The fault of a token that is not a valid number.

use crate::record::numbers::parse::Feature;

use crate::record::error::{Fault, excerpt};
use crate::record::numbers::parse::NotANumber;

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

/// A whole number that this type of feature rounds.
#[cold]
pub(crate) fn rounded<T: Feature>(column: u64, found: String) -> Fault {
    let remedy = if T::MOST_EXACT == f32::MOST_EXACT {
        "features of 32 bits round; read them with `dtype` f64, or with `dtype` f32 as they are rounded"
    } else {
        "features of 64 bits round; store the table as Parquet, whose columns keep their types, or read it with `dtype` f32 as it is rounded"
    };
    Fault::column(
        &column.to_string(),
        &format!("holds {found}, which {remedy}"),
    )
}
