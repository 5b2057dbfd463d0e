//! The fields of a row.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::fields;

fuzz_target!(|bytes: &[u8]| {
    let Ok(found) = fields(bytes) else { return };
    let elements: usize = found.iter().map(|field| field.bytes.len()).sum();
    assert!(elements <= bytes.len());
});
