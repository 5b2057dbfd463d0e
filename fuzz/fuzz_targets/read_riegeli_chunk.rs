//! A chunk of a Riegeli file: its records fill its bytes.
#![no_main]

mod edits;

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::{mend_riegeli_chunk, read_riegeli_chunk};

/// A chunk of the records "abc" and "d", without compression.
fn good() -> Vec<u8> {
    let mut chunk = vec![0; 40];
    chunk[24..26].copy_from_slice(b"r\x02");
    chunk[32] = 4;
    chunk.extend(b"\0\x02\x03\x01abcd");
    mend_riegeli_chunk(&mut chunk);
    chunk
}

fn check(bytes: &[u8]) {
    if let Some((sizes, values)) = read_riegeli_chunk(bytes) {
        assert_eq!(sizes.iter().sum::<u64>(), values.len() as u64);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let good = good();
    assert_eq!(read_riegeli_chunk(&good), Some((vec![3, 1], b"abcd".to_vec())));
    check(bytes);
    let mut edited = edits::edited(&good, bytes);
    mend_riegeli_chunk(&mut edited);
    check(&edited);
});
