//! A table of the classes of images: names of classes ascend and are not empty.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::read_label_table;

fuzz_target!(|bytes: &[u8]| {
    if let Some(names) = read_label_table(bytes) {
        assert!(names.is_sorted_by(|a, b| a < b));
        assert!(names.iter().all(|name| !name.is_empty()));
    }
});
