//! A line of JSON as a row of fields, which reads as one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::{fields, raw::decode_json_line};

fuzz_target!(|bytes: &[u8]| {
    let mut row = Vec::new();
    if decode_json_line(bytes, &mut row) {
        assert!(fields(&row).is_ok());
    }
});
