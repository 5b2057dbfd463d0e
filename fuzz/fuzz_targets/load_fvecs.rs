//! The vectors of an .fvecs file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::load_fvecs;

fuzz_target!(|bytes: &[u8]| {
    if let Some(rows) = load_fvecs(bytes) {
        assert_eq!(4 * (rows.len() + rows.values().len()), bytes.len());
        assert!(rows.values().iter().all(|value| value.is_finite()));
    }
});
