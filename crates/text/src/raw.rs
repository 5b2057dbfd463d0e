//! Entry points over plain bytes, for fuzzing; not part of the interface.

use std::path::Path;

use crate::vocabulary::Vocabulary;

/// A vocabulary from the bytes of its file, if they are valid.
pub fn load_vocabulary(file: &[u8]) -> Option<Vocabulary> {
    Vocabulary::from_file(file, Path::new("memory")).ok()
}

/// The bytes of a vocabulary's file.
pub fn vocabulary_file(vocabulary: &Vocabulary) -> Vec<u8> {
    vocabulary.to_file()
}

/// A file with a valid first line and checksum, and with the other lines `lines`.
pub fn mend_vocabulary(lines: &[u8]) -> Vec<u8> {
    let mut file = b"pelton-vocabulary 1\n".to_vec();
    file.extend_from_slice(lines);
    let checksum = crc32c::crc32c(&file);
    file.extend_from_slice(format!("crc32c {checksum:08x}\n").as_bytes());
    file
}
