//! A TFRecord file: its records follow one another within it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::find_tfrecords;

fuzz_target!(|bytes: &[u8]| {
    let mut end = 0;
    for range in find_tfrecords(bytes).unwrap_or_default() {
        assert!(range.start == end + 12 && range.start <= range.end);
        end = range.end + 4;
        assert!(end <= bytes.len());
    }
});
