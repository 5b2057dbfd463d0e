//! A packed file, opened and read to its end. The target corrects checksums first, so that the input reaches the
//! checks after them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::{decode_packed_file, mend_packed_file};

fuzz_target!(|bytes: &[u8]| {
    decode_packed_file(bytes);
    let mut mended = bytes.to_vec();
    mend_packed_file(&mut mended);
    decode_packed_file(&mended);
});
