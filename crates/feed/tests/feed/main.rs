//! Loaders, in one program, so that it is linked once.

#[path = "../../../fetch/tests/fetch/fixtures/mod.rs"]
mod fixtures;
#[allow(dead_code)]
#[path = "../../../format/tests/format/support/tar.rs"]
mod tar;

mod fields;
mod functions;
mod in_place;
mod loader;
mod loader_budgets;
mod loader_random;
mod number_pictures;
mod samples;
mod states;
mod unreadable_records;

use pelton_feed::FeedError;
use pelton_fetch::FetchError;
use pelton_storage::StorageErrorKind;

/// The kind of a storage's error, if that is the cause.
fn storage_kind(error: &FeedError) -> Option<StorageErrorKind> {
    match error {
        FeedError::Fetch(FetchError::Storage(error)) => Some(error.kind),
        FeedError::Fetch(FetchError::Format(error)) => error.storage().map(|error| error.kind),
        _ => None,
    }
}
