//! The fields of a row, by a schema.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::decode_json_line;

const FIRST: &[u8] = br#"{"a": [[1, 2], [3, 4]], "b": "text", "c": 0.5}"#;

fuzz_target!(|bytes: &[u8]| {
    let (fields, _) = decode_json_line(FIRST).expect("it is an object");
    let Ok(found) = fields.split(bytes) else { return };
    let elements: usize = found.iter().map(|field| field.bytes.len()).sum();
    assert!(elements <= bytes.len());
});
