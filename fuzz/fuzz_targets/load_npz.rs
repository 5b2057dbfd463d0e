//! The entries of an .npz file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::read_entries;

fuzz_target!(|bytes: &[u8]| {
    if let Some(entries) = read_entries(bytes) {
        assert!(!entries.is_empty());
    }
});
