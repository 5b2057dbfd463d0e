//! A sample of a tar file: its members are within it, for any content.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_format::members;
use pelton_format::raw::{is_whole_group, mend_tar};

fuzz_target!(|bytes: &[u8]| {
    let mut group = bytes.to_vec();
    mend_tar(&mut group);
    let whole = group.as_ptr_range();
    for member in members(&group) {
        let part = member.bytes.as_ptr_range();
        assert!(part.start >= whole.start && part.end <= whole.end);
        assert!(!member.file_name.is_empty() && member.extension.len() < member.file_name.len());
    }
    is_whole_group(&group);
});
