//! The sentences of errors.

use super::*;
use std::path::Path;

fn check(kind: io::ErrorKind, expected: &str) {
    let error = FormatError::io(Path::new("d/x"), "open it", kind.into());
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn system_errors_are_distinguished() {
    check(
        io::ErrorKind::NotFound,
        "d/x: no such file or folder; check the path",
    );
    check(
        io::ErrorKind::PermissionDenied,
        "d/x: cannot open it (permission denied)",
    );
    check(
        io::ErrorKind::StorageFull,
        "d/x: no space is left on the disk",
    );
    check(
        io::ErrorKind::QuotaExceeded,
        "d/x: no space is left on the disk",
    );
}

#[test]
fn long_tokens_are_cut() {
    assert_eq!(excerpt(b"abc"), "abc");
    assert_eq!(excerpt(&[b'x'; 1000]), format!("{}…", "x".repeat(40)));
    assert!(excerpt(&[0xff; 1000]).chars().count() <= 41);
}
