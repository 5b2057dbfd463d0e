//! The header of an IDX file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::parse_idx_header;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = parse_idx_header(bytes) {
        assert!(header.data_offset() <= bytes.len() as u64);
        assert!(header.record_bytes().is_none_or(|bytes| bytes > 0));
    }
});
