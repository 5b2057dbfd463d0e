//! The arrays of an Elias-Fano list: an accepted list ascends, and selecting agrees with walking.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::load_elias_fano;

fuzz_target!(|bytes: &[u8]| {
    let words: Vec<u64> = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .collect();
    if let Some(list) = load_elias_fano(&words) {
        let numbers: Vec<u64> = list.walk(0).collect();
        assert_eq!(numbers.len() as u64, list.len());
        assert!(numbers.is_sorted_by(|a, b| a < b));
        for (i, number) in numbers.iter().enumerate() {
            assert_eq!(list.get(i as u64), *number);
        }
    }
});
