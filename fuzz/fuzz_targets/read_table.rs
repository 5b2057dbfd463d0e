//! All records of a Parquet or Arrow file. What the libraries panic about is caught and counts as damage; whatever else
//! panics ends the run.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::read_table;

fuzz_target!(|bytes: &[u8]| {
    read_table(bytes);
});
