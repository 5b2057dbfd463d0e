//! Names of formats, and the start of a file to recognise.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::record::cells::quoted::{Cells, bare};
use crate::record::cells::words::is_missing_number;
use crate::record::cells::words::is_number_with_comma;
use crate::record::error::FormatError;
use crate::record::numbers::parse::parse_f64;
use crate::record::remote::without_query;

/// Name of the format of records that a program makes.
pub(crate) const ITEMS: &str = "items";

/// A format by its name, such as `csv`, or by name and argument, such as `tokens:35`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FormatKind {
    name: &'static str,
    argument: Option<Arc<str>>,
}

impl FormatKind {
    pub(crate) fn new(name: &'static str, argument: Option<&str>) -> FormatKind {
        FormatKind {
            name,
            argument: argument.map(Arc::from),
        }
    }

    /// The format's name in messages, without its argument.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The format's argument.
    pub(crate) fn argument(&self) -> Option<&str> {
        self.argument.as_deref()
    }
}

impl fmt::Display for FormatKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        self.argument
            .iter()
            .try_for_each(|argument| write!(f, ":{argument}"))
    }
}

/// The compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// By the first bytes: names may be wrong.
    pub(crate) fn detect(head: &[u8]) -> Option<Compression> {
        match head {
            [0x1f, 0x8b, ..] => Some(Compression::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
            _ => None,
        }
    }
}

/// The compression of a file that is not decompressed here, by its first bytes.
pub(crate) fn unread_codec(head: &[u8]) -> Option<&'static str> {
    const BLOCK_OF_BZIP2: &[u8] = b"1AY&SY";
    match head {
        [b'B', b'Z', b'h', b'1'..=b'9', rest @ ..] if rest.starts_with(BLOCK_OF_BZIP2) => {
            Some("bzip2")
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some("xz"),
        [4, 0x22, 0x4d, 0x18, ..] => Some("LZ4"),
        [0xff, 6, 0, 0, b's', b'N', b'a', b'P', b'p', b'Y', ..] => Some("Snappy"),
        _ => None,
    }
}

/// The same by the end of its name: two codecs have no magic number.
pub(crate) fn codec_by_name(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()? {
        "br" => Some("Brotli"),
        "bz2" => Some("bzip2"),
        "lz4" => Some("LZ4"),
        "snappy" => Some("Snappy"),
        "xz" => Some("xz"),
        _ => None,
    }
}

/// The look of the first lines of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Libsvm,
    Csv,
    Tsv,
    Text,
}

/// The start of a file, for recognising its format.
pub(crate) struct Head<'a> {
    /// The name in lower case, without the ending of its compression.
    pub(crate) name: String,
    /// The first bytes, decompressed.
    pub(crate) bytes: &'a [u8],
    /// Bytes of the file, decompressed.
    pub(crate) size: u64,
    /// The look of its lines; `None` if it is not text.
    pub(crate) look: Option<Look>,
    /// Whether they look like prose although numbers are needed.
    pub(crate) is_forced: bool,
}

impl Head<'_> {
    /// `path` may end in `.gz` or `.zst` when `bytes` and `size` are of the decompressed file. If features are
    /// required, text that does not look like numbers is still read as a table of numbers, so that the error is about
    /// its first line.
    pub(crate) fn new<'a>(
        path: &Path,
        bytes: &'a [u8],
        size: u64,
        features_only: bool,
    ) -> Head<'a> {
        let name = without_query(path).file_name().unwrap_or_default();
        let name = name.to_string_lossy().to_ascii_lowercase();
        let name = name
            .strip_suffix(".gz")
            .or(name.strip_suffix(".zst"))
            .unwrap_or(&name);
        let is_text = !bytes.contains(&0) && !name.ends_with(".bin");
        let look = is_text.then(|| text_look(name, bytes));
        let is_forced = features_only && look == Some(Look::Text);
        let look = if is_forced {
            Some(numbers_look(bytes))
        } else {
            look
        };
        Head {
            name: name.to_owned(),
            bytes,
            size,
            look,
            is_forced,
        }
    }

    /// Whether the name ends in a dot and one of these.
    pub(crate) fn ends_in(&self, extensions: &[&str]) -> bool {
        let extension = self.name.rsplit_once('.').map(|(_, extension)| extension);
        extension.is_some_and(|extension| extensions.contains(&extension))
    }
}

/// The lines that are neither blank nor comments.
fn lines_of(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|byte| *byte == b'\n').filter(|line| {
        let line = line.trim_ascii();
        !line.is_empty() && !line.starts_with(b"#")
    })
}

/// The format of numbers that a first line resembles most.
fn numbers_look(head: &[u8]) -> Look {
    let line = lines_of(head).next().unwrap_or_default();
    if line.contains(&b':') {
        Look::Libsvm
    } else if line.contains(&b',') {
        Look::Csv
    } else if line.contains(&b'\t') {
        Look::Tsv
    } else if line.trim_ascii().contains(&b' ') {
        // The table format explains blanks as delimiters.
        Look::Csv
    } else {
        Look::Libsvm
    }
}

/// Lines that are examined after the first.
const TABLE_LINES: usize = 10;

/// The look of the lines of a text: numbers in some form, or words.
fn text_look(name: &str, head: &[u8]) -> Look {
    let mut lines = lines_of(head);
    let Some(line) = lines.next() else {
        // Only blank lines and comments so far: read it as LIBSVM text, which reports an empty file if no records
        // follow.
        return Look::Libsvm;
    };
    let is_number = |cell: &[u8]| parse_f64(cell.trim_ascii()).is_ok();
    let is_feature = |token: &[u8]| match memchr::memchr(b':', token) {
        Some(colon) => is_number(&token[..colon]) && is_number(&token[colon + 1..]),
        None => false,
    };
    // The first line of an extreme classification data set holds its sizes.
    let has_entries = |line: &[u8]| {
        let mut tokens = line.split(u8::is_ascii_whitespace);
        tokens.any(is_feature)
    };
    let tokens = line
        .split(u8::is_ascii_whitespace)
        .filter(|token| !token.is_empty());
    // A time of day is not a feature: half of the tokens must be features, or a label must come first.
    let features = tokens.clone().filter(|token| is_feature(token)).count();
    let labelled = tokens
        .clone()
        .next()
        .is_some_and(|token| token.split(|byte| *byte == b',').all(is_number));
    if features > 0 && (labelled || 2 * features >= tokens.clone().count()) {
        return Look::Libsvm;
    }
    let begins_with_number = tokens.clone().next().is_some_and(is_number);
    let are_entries = tokens.clone().skip(1).all(|token| token.contains(&b':'));
    // The first line may be a heading; a file of one line is read by its delimiter, unless its name says text. Prose
    // has numbers and commas too, but not as tables do.
    let more: Vec<&[u8]> = lines.take(TABLE_LINES).collect();
    let second = more.first().copied();
    let says_text = [".txt", ".text"].iter().any(|end| name.ends_with(end));
    let is_mostly_numbers = |line: &[u8], delimiter: u8| {
        let cells = Cells::new(line, delimiter).map(bare);
        let numbers = cells.clone().filter(|cell| is_number(cell)).count();
        let missing = cells.clone().filter(|cell| is_missing_number(cell)).count();
        numbers > 0 && 2 * (numbers + missing) > cells.count()
    };
    let is_table = |line: &[u8], delimiter: u8| {
        let mut cells = Cells::new(line, delimiter).map(bare);
        if says_text {
            is_mostly_numbers(line, delimiter)
        } else {
            cells.any(|cell| is_number(&cell))
        }
    };
    let cells = |line: &[u8], delimiter: u8| Cells::new(line, delimiter).count();
    let has_numbers = |delimiter: u8| match second {
        Some(second) => {
            let count = cells(line, delimiter);
            // The head may end within a line.
            let cut = usize::from(!head.ends_with(b"\n") && more.len() > 1);
            let mut whole = more[..more.len() - cut].iter();
            // If most cells are numbers, lines of other lengths are faults of a table.
            is_table(second, delimiter)
                && (whole.all(|line| cells(line, delimiter) == count)
                    || !says_text && is_mostly_numbers(second, delimiter))
        }
        None => !says_text,
    };
    // The table format explains other delimiters.
    let is_of = |delimiter: u8| {
        let second = second.unwrap_or_default();
        line.contains(&delimiter)
            && second.contains(&delimiter)
            && Cells::new(second, delimiter).all(|cell| is_number_with_comma(&bare(cell)))
    };
    if is_of(b';') || is_of(b'|') || line.contains(&b',') && has_numbers(b',') {
        Look::Csv
    } else if line.contains(&b'\t') && has_numbers(b'\t') {
        Look::Tsv
    } else if begins_with_number && (are_entries || second.is_some_and(has_entries))
        || line.contains(&b':') && !says_text && second.is_none()
    {
        Look::Libsvm
    } else {
        Look::Text
    }
}

/// The error for a file in an unsupported compression.
pub(crate) fn unread(codec: &str) -> FormatError {
    FormatError::new(format!(
        "is compressed with {codec}, which is not read; decompress it, or compress it with gzip or zstd"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_by_the_first_bytes() {
        assert_eq!(
            Compression::detect(b"\x1f\x8b\x08"),
            Some(Compression::Gzip)
        );
        assert_eq!(
            Compression::detect(b"\x28\xb5\x2f\xfd"),
            Some(Compression::Zstd)
        );
        assert_eq!(Compression::detect(b"1 1:1"), None);
    }
}
