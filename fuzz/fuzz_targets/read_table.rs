//! All records of a Parquet or Arrow file. Panics of the libraries are caught and count as damage; any other panic
//! ends the run.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::read_table;

fuzz_target!(|bytes: &[u8]| {
    read_table(bytes);
});
