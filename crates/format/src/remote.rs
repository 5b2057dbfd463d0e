//! Files that lie elsewhere than in a folder of this machine, under names such as `s3://bucket/file`.
//!
//! How they are opened is the caller's: this crate knows a [`Storage`] and what tells one state of a file from another.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use pelton_storage::{Storage, StorageError};

/// A file that was opened elsewhere.
#[derive(Clone, Debug)]
pub struct RemoteFile {
    /// Reads its bytes, and fails once they are no longer those of the file that was opened.
    pub storage: Arc<dyn Storage>,
    /// The first 64 KiB, or all there are.
    pub head: Vec<u8>,
    /// Bytes of the file.
    pub size: u64,
    /// What its server says of its content, as a number: differs where the content does.
    pub tag: u64,
}

/// Opens a file by its name.
type Open = dyn Fn(&Path) -> Result<RemoteFile, StorageError> + Send + Sync;

/// Opens what lies elsewhere.
#[derive(Clone)]
pub struct OpenRemote(Arc<Open>);

impl OpenRemote {
    /// Opens by a function from the name.
    pub fn new(
        open: impl Fn(&Path) -> Result<RemoteFile, StorageError> + Send + Sync + 'static,
    ) -> OpenRemote {
        OpenRemote(Arc::new(open))
    }

    /// Opens the file of this name.
    pub(crate) fn open(&self, name: &Path) -> Result<RemoteFile, StorageError> {
        (self.0)(name)
    }
}

impl fmt::Debug for OpenRemote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenRemote")
    }
}

/// Whether a name is of a file that lies elsewhere: letters and `://` in front.
pub fn is_remote(name: &Path) -> bool {
    let name = name.as_os_str().as_encoded_bytes();
    let Some(end) = memchr::memmem::find(name, b"://") else {
        return false;
    };
    end > 0 && name[..end].iter().all(u8::is_ascii_alphanumeric)
}

/// A name without what follows `?` or `#`, which in an address is no part of the place: it may hold a key.
pub(crate) fn without_query(name: &Path) -> &Path {
    if !is_remote(name) {
        return name;
    }
    let Some(text) = name.to_str() else {
        return name;
    };
    let end = text.find(['?', '#']).unwrap_or(text.len());
    Path::new(&text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_no_part_of_names() {
        let check = |name, expected| {
            assert_eq!(without_query(Path::new(name)), Path::new(expected));
        };
        check("https://h/x.tar?key=a/b", "https://h/x.tar");
        check("https://h/x.tar#part", "https://h/x.tar");
        check("what?.csv", "what?.csv");
    }

    #[test]
    fn names() {
        for name in ["s3://b/x", "https://h/x", "GS://b"] {
            assert!(is_remote(Path::new(name)), "{name}");
        }
        for name in [
            "x",
            "/a/s3://b",
            "://x",
            "s3:/x",
            "demo:higgs",
            "a b://c",
            "",
        ] {
            assert!(!is_remote(Path::new(name)), "{name}");
        }
    }
}
