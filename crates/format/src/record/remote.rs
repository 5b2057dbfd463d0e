//! Remote files, with names such as `s3://bucket/file`.
//!
//! The caller opens them: this crate knows a [`Storage`] and a tag of the file's state.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use pelton_storage::{Storage, StorageError};

/// An opened remote file.
#[derive(Clone, Debug)]
pub struct RemoteFile {
    /// Reads its bytes, and fails once the file has changed.
    pub storage: Arc<dyn Storage>,
    /// The first 64 KiB, or the whole file.
    pub head: Vec<u8>,
    /// Bytes of the file.
    pub size: u64,
    /// The server's tag of its content, as an integer that differs if the content does.
    pub tag: u64,
}

/// Opens a file by its name.
type Open = dyn Fn(&Path) -> Result<RemoteFile, StorageError> + Send + Sync;

/// Opens remote files.
#[derive(Clone)]
pub struct OpenRemote(Arc<Open>);

impl OpenRemote {
    /// Opens files with a function of the name.
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

/// Whether a name is that of a remote file: letters followed by `://`.
pub fn is_remote(name: &Path) -> bool {
    let name = name.as_os_str().as_encoded_bytes();
    let Some(end) = memchr::memmem::find(name, b"://") else {
        return false;
    };
    end > 0 && name[..end].iter().all(u8::is_ascii_alphanumeric)
}

/// A name without its part from `?` or `#` on, which does not belong to the path: it may contain a key.
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
