//! A kept listing of a folder of images: a good one with edits and a corrected checksum; its paths stay below the
//! folder.
#![no_main]

mod edits;

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use pelton_format::raw::{folder_index, load_folder_index, mend_folder_index};

fuzz_target!(|script: &[u8]| {
    let mut bytes = edits::edited(&folder_index(), script);
    mend_folder_index(&mut bytes);
    let root = Path::new("/root folder");
    for (path, class) in load_folder_index(&bytes, root).unwrap_or_default() {
        let below = path.strip_prefix(root).expect("below the folder");
        let mut parts = below.components();
        assert!(parts.all(|part| matches!(part, Component::Normal(_))));
        assert!(["a", "b"].contains(&class.as_str()) || script.len() >= 4);
    }
});
