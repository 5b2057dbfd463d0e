//! The header of a NumPy file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::parse_npy_header;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = parse_npy_header(bytes) {
        assert!(header.data_offset <= bytes.len() as u64);
    }
});
