//! Names of files as text, also if they are not UTF-8.
//!
//! Configurations, figures and models are text, and names of files any bytes. A byte that is not UTF-8 becomes `\xE9`:
//! readable, and, unlike with replacement characters, different for different names.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serializer};

/// A path as text.
pub fn path_text(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text += chunk.valid();
        for byte in chunk.invalid() {
            text += &format!("\\x{byte:02X}");
        }
    }
    text
}

/// The path that [`path_text`] has written. If a file with exactly this name exists, that is meant.
pub fn path_of_text(text: &str) -> PathBuf {
    let plain = PathBuf::from(text);
    match unescaped(text) {
        Some(path) if path.exists() && !plain.exists() => path,
        _ => plain,
    }
}

/// Whether two files match a text.
pub fn is_ambiguous(text: &str) -> bool {
    unescaped(text).is_some_and(|path| path.exists() && Path::new(text).exists())
}

/// The path with the escaped bytes of a text, if it has any.
fn unescaped(text: &str) -> Option<PathBuf> {
    let mut pieces = text.split("\\x");
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    let mut found = false;
    for piece in pieces {
        let byte = piece
            .get(..2)
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|byte| !byte.is_ascii()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&piece.as_bytes()[2..]);
                found = true;
            }
            None => bytes.extend([b"\\x", piece.as_bytes()].concat()),
        }
    }
    found.then(|| PathBuf::from(OsString::from_vec(bytes)))
}

/// Writes a path that may be absent as its text.
pub fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => to.serialize_some(&path_text(path)),
        None => to.serialize_none(),
    }
}

/// Writes a path as its text.
pub fn serialize_path<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path_text(path))
}

/// Reads it back.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    Ok(text.map(|text| path_of_text(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(name: &[u8]) -> PathBuf {
        PathBuf::from(OsString::from_vec(name.to_vec()))
    }

    #[test]
    fn names_of_any_bytes_are_text_and_come_back() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            (&b"plain.csv"[..], "plain.csv"),
            (b"caf\xe9.csv", "caf\\xE9.csv"),
            ("café".as_bytes(), "café"),
            (b"\xff\xfe\xc3", "\\xFF\\xFE\\xC3"),
            (b"a\\xE", "a\\xE"),
            (b"a\\x41", "a\\x41"),
        ] {
            let path = folder.path().join(bytes(name));
            std::fs::write(&path, "").unwrap();
            let written = path_text(&path);
            assert!(written.ends_with(text), "{written}");
            assert_eq!(path_of_text(&written), path);
            assert!(!is_ambiguous(&written));
        }
        let plain = folder.path().join("caf\\xE9.csv");
        std::fs::write(&plain, "").unwrap();
        let written = path_text(&plain);
        assert_eq!(path_of_text(&written), plain);
        assert!(is_ambiguous(&written));
        assert_eq!(path_of_text("\\xE9 absent"), Path::new("\\xE9 absent"));
    }
}
