//! A sidecar: its checksum is corrected first, and the list it yields is within the data.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::{load_sidecar, mend_sidecar};

const SIZE: u64 = 100_000;

fuzz_target!(|fields: &[u8]| {
    let sidecar = mend_sidecar(fields, SIZE, 7);
    if let Some(starts) = load_sidecar(&sidecar, SIZE, 7) {
        let starts: Vec<u64> = starts.walk(0).collect();
        assert!(starts.is_sorted_by(|a, b| a < b));
        assert!(starts.iter().all(|start| *start < SIZE));
    }
});
