//! Which format a file is in, by its name and its first bytes.

use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;

use crate::number::parse_f64;

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
    /// Plain text, one record a line.
    Text,
    /// IDX images with a file of labels beside them, as MNIST has.
    Idx,
    /// CIFAR-10 in binary form.
    Cifar10,
    /// CIFAR-100 in binary form.
    Cifar100,
    /// A tar file of samples (WebDataset).
    Tar,
    /// A folder of image files.
    Folder,
    /// Text as one stream, cut every so many words and newlines.
    Tokens(NonZeroU32),
    /// Bytes of any file, cut every so many.
    Bytes(NonZeroU32),
}

/// Those that have no length in their names.
const KINDS: [FormatKind; 11] = [
    FormatKind::Libsvm,
    FormatKind::Csv,
    FormatKind::Tsv,
    FormatKind::Npy,
    FormatKind::Packed,
    FormatKind::Text,
    FormatKind::Idx,
    FormatKind::Cifar10,
    FormatKind::Cifar100,
    FormatKind::Tar,
    FormatKind::Folder,
];

impl FormatKind {
    /// What messages call the format; without its length, where it has one.
    pub fn name(self) -> &'static str {
        match self {
            FormatKind::Libsvm => "libsvm",
            FormatKind::Csv => "csv",
            FormatKind::Tsv => "tsv",
            FormatKind::Npy => "npy",
            FormatKind::Packed => "prow",
            FormatKind::Text => "text",
            FormatKind::Idx => "idx",
            FormatKind::Cifar10 => "cifar10",
            FormatKind::Cifar100 => "cifar100",
            FormatKind::Tar => "tar",
            FormatKind::Folder => "folder",
            FormatKind::Tokens(_) => "tokens",
            FormatKind::Bytes(_) => "bytes",
        }
    }

    /// The format that is displayed as `name`, such as `csv` or `tokens:35`.
    pub fn from_name(name: &str) -> Option<FormatKind> {
        let Some((unit, length)) = name.split_once(':') else {
            return KINDS.into_iter().find(|kind| kind.name() == name);
        };
        // A sign is no digit, though a number may begin with one.
        let length = length.parse().ok().filter(|_| !length.starts_with('+'))?;
        match unit {
            "tokens" => Some(FormatKind::Tokens(length)),
            "bytes" => Some(FormatKind::Bytes(length)),
            _ => None,
        }
    }

    /// Whether its records are rows of features, or pictures of one size, whose pixels can be.
    pub(crate) fn has_features(self) -> bool {
        matches!(
            self,
            FormatKind::Libsvm
                | FormatKind::Csv
                | FormatKind::Tsv
                | FormatKind::Npy
                | FormatKind::Packed
                | FormatKind::Idx
                | FormatKind::Cifar10
                | FormatKind::Cifar100
        )
    }

    /// The names of all formats, for messages.
    pub fn names() -> String {
        let plain = KINDS.map(FormatKind::name).join(", ");
        format!("{plain}, tokens:LENGTH, bytes:LENGTH")
    }
}

impl fmt::Display for FormatKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatKind::Tokens(length) | FormatKind::Bytes(length) => {
                write!(f, "{}:{length}", self.name())
            }
            _ => f.write_str(self.name()),
        }
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

/// Magic bytes first, then the name, then what the first lines look like; `None` for anything that
/// is no text. `path` may end in `.gz` or `.zst` when `head` and `size` are of the decompressed file.
/// Where only features will do, text that does not look like numbers is taken for a table of numbers all
/// the same: its first line then says what is wrong with it.
pub(crate) fn detect(
    path: &Path,
    head: &[u8],
    size: u64,
    features_only: bool,
) -> Option<FormatKind> {
    if head.starts_with(crate::packed::MAGIC) {
        return Some(FormatKind::Packed);
    }
    if head.starts_with(b"\x93NUMPY") {
        return Some(FormatKind::Npy);
    }
    if is_tar(head) {
        return Some(FormatKind::Tar);
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
        Some("tar" | "tgz") => return Some(FormatKind::Tar),
        Some("bin") => return cifar(name, size),
        _ => {}
    }
    let says_idx = ["-idx", ".idx"].iter().any(|part| name.contains(part));
    if says_idx || matches!(head, [0, 0, 8, 1..=4, ..]) {
        return Some(FormatKind::Idx);
    }
    if head.contains(&0) {
        return None;
    }
    Some(match text_kind(name, head) {
        FormatKind::Text if features_only => numbers_kind(head),
        kind => kind,
    })
}

/// The checksum of a first header fits, whatever dialect it is in.
fn is_tar(head: &[u8]) -> bool {
    head.first_chunk::<512>()
        .is_some_and(crate::tar_header::has_checksum)
}

/// By the names of the published files, whose sizes tell CIFAR-100 from other `train.bin`.
fn cifar(name: &str, size: u64) -> Option<FormatKind> {
    let stem = name.strip_suffix(".bin")?;
    if stem.starts_with("data_batch") || stem == "test_batch" {
        return Some(FormatKind::Cifar10);
    }
    let fits = size.is_multiple_of(crate::cifar::record_bytes(FormatKind::Cifar100));
    (matches!(stem, "train" | "test") && fits).then_some(FormatKind::Cifar100)
}

/// The lines that are neither blank nor comments.
fn lines_of(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|byte| *byte == b'\n').filter(|line| {
        let line = line.trim_ascii();
        !line.is_empty() && !line.starts_with(b"#")
    })
}

/// The format of numbers that a first line is nearest to.
fn numbers_kind(head: &[u8]) -> FormatKind {
    let line = lines_of(head).next().unwrap_or_default();
    if line.contains(&b':') {
        FormatKind::Libsvm
    } else if line.contains(&b',') {
        FormatKind::Csv
    } else if line.contains(&b'\t') {
        FormatKind::Tsv
    } else {
        FormatKind::Libsvm
    }
}

/// What the lines of a text look like: numbers in some form, or words.
fn text_kind(name: &str, head: &[u8]) -> FormatKind {
    let mut lines = lines_of(head);
    let Some(line) = lines.next() else {
        // Nothing but blank lines and comments so far: as LIBSVM text it is read on, and found to hold
        // no records where none follow.
        return FormatKind::Libsvm;
    };
    let is_number = |cell: &[u8]| parse_f64(cell.trim_ascii()).is_ok();
    let is_feature = |token: &[u8]| match memchr::memchr(b':', token) {
        Some(colon) => is_number(&token[..colon]) && is_number(&token[colon + 1..]),
        None => false,
    };
    let mut tokens = line
        .split(u8::is_ascii_whitespace)
        .filter(|token| !token.is_empty());
    // A time of day is no feature: half of the tokens must be, or a label come first.
    let features = tokens.clone().filter(|token| is_feature(token)).count();
    let labelled = tokens
        .clone()
        .next()
        .is_some_and(|token| token.split(|byte| *byte == b',').all(is_number));
    if features > 0 && (labelled || 2 * features >= tokens.clone().count()) {
        return FormatKind::Libsvm;
    }
    // The first line may be a heading; a file of one line is taken for what its delimiter says, unless
    // its name says text.
    let second = lines.next();
    let says_text = [".txt", ".text"].iter().any(|end| name.ends_with(end));
    let has_numbers = |delimiter: u8| match second {
        Some(second) => second.split(|byte| *byte == delimiter).any(is_number),
        None => !says_text,
    };
    if line.contains(&b',') && has_numbers(b',') {
        FormatKind::Csv
    } else if line.contains(&b'\t') && has_numbers(b'\t') {
        FormatKind::Tsv
    } else if tokens.next().is_some_and(is_number)
        || line.contains(&b':') && !says_text && second.is_none()
    {
        FormatKind::Libsvm
    } else {
        FormatKind::Text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, head: &[u8], expected: Option<FormatKind>) {
        assert_eq!(
            detect(Path::new(name), head, 3074, false),
            expected,
            "{name}"
        );
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
        check(
            "train.en",
            b"Two men, old and new.\nNo: one.\n",
            Some(FormatKind::Text),
        );
        check(
            "ptb.train.txt",
            b" aer banknote \n pierre <unk> N\n",
            Some(FormatKind::Text),
        );
        let prose = b"Dear reader\nyours\n";
        check("letter", prose, Some(FormatKind::Text));
        let as_numbers = detect(Path::new("letter"), prose, 99, true);
        assert_eq!(as_numbers, Some(FormatKind::Libsvm));
        check("one.txt", b"a, b: c", Some(FormatKind::Text));
        check(
            "delicious.txt",
            b"12920 500 983\n1,2 0:0.5\n",
            Some(FormatKind::Libsvm),
        );
        check("x.data", b"a,b,label\n1,2,3\n", Some(FormatKind::Csv));
        check("bad", b"cat 1:2 3:4\n", Some(FormatKind::Libsvm));
        check("train-images-idx3-ubyte.gz", b"\x01", Some(FormatKind::Idx));
        check("x", b"\0\0\x08\x03\0", Some(FormatKind::Idx));
        check("data_batch_1.bin", b"\0", Some(FormatKind::Cifar10));
        check("train.bin", b"\0", Some(FormatKind::Cifar100));
        check("other.bin", b"\0", None);
        check("x.tar", b"\0", Some(FormatKind::Tar));
        for name in FormatKind::names().split(", ") {
            let name = name.replace("LENGTH", "4294967295");
            let kind = FormatKind::from_name(&name).unwrap();
            assert_eq!(kind.to_string(), name);
        }
        for name in [
            "",
            "tokens",
            "tokens:",
            "tokens:0",
            "bytes:-1",
            "bytes:+1",
            "bytes:4294967296",
            "csv:3",
        ] {
            assert_eq!(FormatKind::from_name(name), None, "{name}");
        }
        assert_eq!(Compression::of(b"\x1f\x8b\x08"), Some(Compression::Gzip));
        assert_eq!(
            Compression::of(b"\x28\xb5\x2f\xfd"),
            Some(Compression::Zstd)
        );
        assert_eq!(Compression::of(b"1 1:1"), None);
    }
}
