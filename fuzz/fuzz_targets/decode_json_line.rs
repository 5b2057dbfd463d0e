//! A line of JSON as a row of fields, which reads as one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::Row;
use pelton_format::raw::decode_json_line;

fuzz_target!(|bytes: &[u8]| {
    if let Some((fields, rows)) = decode_json_line(bytes) {
        let Row::Bytes(row) = rows.row(0) else { panic!("rows of bytes") };
        assert!(fields.split(row).is_ok());
    }
});
