//! Which format a file is in, by its name and its first bytes.

use std::path::Path;

/// The formats read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FormatKind {
    /// LIBSVM text.
    Libsvm,
    /// Comma-separated numbers.
    Csv,
    /// Tab-separated numbers.
    Tsv,
    /// A NumPy matrix.
    Npy,
    /// Pelton's packed rows.
    Packed,
}

impl FormatKind {
    /// What messages and reports call the format.
    pub fn name(self) -> &'static str {
        match self {
            FormatKind::Libsvm => "libsvm",
            FormatKind::Csv => "csv",
            FormatKind::Tsv => "tsv",
            FormatKind::Npy => "npy",
            FormatKind::Packed => "prow",
        }
    }

    /// The format called `name` in [`FormatKind::name`].
    pub fn from_name(name: &str) -> Option<FormatKind> {
        [
            FormatKind::Libsvm,
            FormatKind::Csv,
            FormatKind::Tsv,
            FormatKind::Npy,
            FormatKind::Packed,
        ]
        .into_iter()
        .find(|kind| kind.name() == name)
    }
}

/// How the bytes of a file are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// By the first bytes: names lie more often.
    pub(crate) fn of(head: &[u8]) -> Option<Compression> {
        match head {
            [0x1f, 0x8b, ..] => Some(Compression::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
            _ => None,
        }
    }
}

/// Magic bytes first, then the name, then what the first line looks like; `None` for anything that
/// is no text. `path` may end in `.gz` or `.zst` when `head` is decompressed.
pub(crate) fn detect(path: &Path, head: &[u8]) -> Option<FormatKind> {
    if head.starts_with(crate::packed::MAGIC) {
        return Some(FormatKind::Packed);
    }
    if head.starts_with(b"\x93NUMPY") {
        return Some(FormatKind::Npy);
    }
    let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    let name = name
        .strip_suffix(".gz")
        .or(name.strip_suffix(".zst"))
        .unwrap_or(&name);
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("csv") => return Some(FormatKind::Csv),
        Some("tsv") => return Some(FormatKind::Tsv),
        Some("libsvm" | "svm" | "svmlight") => return Some(FormatKind::Libsvm),
        Some("npy") => return Some(FormatKind::Npy),
        Some("prow") => return Some(FormatKind::Packed),
        _ => {}
    }
    if head.contains(&0) {
        return None;
    }
    let line = head.split(|byte| *byte == b'\n').find(|line| {
        let line = line.trim_ascii();
        !line.is_empty() && !line.starts_with(b"#")
    });
    let Some(line) = line else {
        // Nothing but blank lines and comments so far: as LIBSVM text it is read on, and found to hold
        // no records where none follow.
        return Some(FormatKind::Libsvm);
    };
    Some(if line.contains(&b':') {
        FormatKind::Libsvm
    } else if line.contains(&b',') {
        FormatKind::Csv
    } else if line.contains(&b'\t') {
        FormatKind::Tsv
    } else {
        FormatKind::Libsvm
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, head: &[u8], expected: Option<FormatKind>) {
        assert_eq!(detect(Path::new(name), head), expected, "{name}");
    }

    #[test]
    fn by_name_and_content() {
        check("a9a", b"-1 3:1\n", Some(FormatKind::Libsvm));
        check("a9a.t", b"# c\n\n+1 3:1\n", Some(FormatKind::Libsvm));
        check("labels", b"1\n2\n", Some(FormatKind::Libsvm));
        check("x.CSV", b"1 2", Some(FormatKind::Csv));
        check("x.csv.gz", b"1 2", Some(FormatKind::Csv));
        check("x.data", b"1,2,3\n", Some(FormatKind::Csv));
        check("x.data", b"1\t2\t3\n", Some(FormatKind::Tsv));
        check("x.csv", b"\x93NUMPY", Some(FormatKind::Npy));
        check("x.txt", crate::packed::MAGIC, Some(FormatKind::Packed));
        check("photo", b"\xff\xd8\x00\x10", None);
        check("comments", b"# a\n\n  \n#", Some(FormatKind::Libsvm));
        for kind in ["libsvm", "csv", "tsv", "npy", "prow"] {
            assert_eq!(
                FormatKind::from_name(kind).map(FormatKind::name),
                Some(kind)
            );
        }
        assert_eq!(Compression::of(b"\x1f\x8b\x08"), Some(Compression::Gzip));
        assert_eq!(
            Compression::of(b"\x28\xb5\x2f\xfd"),
            Some(Compression::Zstd)
        );
        assert_eq!(Compression::of(b"1 1:1"), None);
    }
}
