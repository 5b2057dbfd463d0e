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
