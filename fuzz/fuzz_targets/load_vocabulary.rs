//! A vocabulary: its first line and checksum are corrected first; an accepted one is written exactly as it was read,
//! and looking up its words gives their indices.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelton_text::raw::{load_vocabulary, mend_vocabulary, vocabulary_file};

fuzz_target!(|lines: &[u8]| {
    load_vocabulary(lines);
    let file = mend_vocabulary(lines);
    if let Some(vocabulary) = load_vocabulary(&file) {
        assert_eq!(vocabulary_file(&vocabulary), file);
        for id in 0..vocabulary.size() {
            let token = vocabulary.token(id).expect("every number has a token");
            assert_eq!(vocabulary.id(token), id);
        }
    }
});
