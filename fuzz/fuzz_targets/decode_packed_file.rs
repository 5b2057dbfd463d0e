//! A packed file, opened and read to its end. Checksums are put right first, so that the checks
//! behind them are reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::{decode_packed_file, mend_packed_file};

fuzz_target!(|bytes: &[u8]| {
    decode_packed_file(bytes);
    let mut mended = bytes.to_vec();
    mend_packed_file(&mut mended);
    decode_packed_file(&mended);
});
