//! The spelling of raw records.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::parse_raw_layout;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = parse_raw_layout(text);
    }
});
