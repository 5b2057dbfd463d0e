//! Text that is not UTF-8.
//!
//! A cell that is not UTF-8 is read as Windows-1252, a superset of Latin-1 that Excel writes. Each cell decides for
//! itself, so that one record is read without the rest of the file. UTF-16 is refused: its newlines and delimiters are
//! not single bytes.

use std::borrow::Cow;
use std::str;

use crate::record::error::FormatError;

/// The characters of the bytes 80 to 9F; those that Windows-1252 leaves out are control characters, as in the WHATWG
/// standard.
const FROM_80: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}',
    '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// The text as UTF-8.
#[inline]
pub(crate) fn as_utf8(text: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if text.is_ascii() || str::from_utf8(&text).is_ok() {
        return text;
    }
    let letter = |byte: &u8| match byte {
        0x80..=0x9f => FROM_80[usize::from(byte - 0x80)],
        _ => char::from(*byte),
    };
    Cow::Owned(text.iter().map(letter).collect::<String>().into_bytes())
}

/// Whether a part of a text is UTF-8; characters that its ends cut do not count.
pub(crate) fn is_part_of_utf8(part: &[u8]) -> bool {
    const MOST_CUT: usize = 3;
    let is_inner = |byte: &&u8| **byte & 0xc0 == 0x80;
    let cut = part.iter().take(MOST_CUT).take_while(is_inner).count();
    match str::from_utf8(&part[cut..]) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    }
}

/// Errors: the first bytes of a file are those of UTF-16 text, a byte order mark and an ASCII letter.
pub(crate) fn refuse_utf16(head: &[u8]) -> Result<(), FormatError> {
    match head {
        [0xff, 0xfe, 1..=0xff, 0, ..] | [0xfe, 0xff, 0, 1..=0xff, ..] => Err(FormatError::new(
            "is text in UTF-16, which is not read; convert it to UTF-8, as `iconv -f UTF-16 -t UTF-8 OLD > NEW` does",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_letters() {
        let check = |text: &[u8], expected: &str| {
            assert_eq!(as_utf8(Cow::Borrowed(text)), expected.as_bytes());
        };
        check(b"Oslo", "Oslo");
        check("Tromsø".as_bytes(), "Tromsø");
        check(b"Troms\xf8", "Tromsø");
        check(b"\x80 5\xa0000 \x9f", "€ 5\u{a0}000 Ÿ");
    }

    #[test]
    fn parts_of_utf8() {
        let text = "aø€😀".as_bytes();
        for from in 0..text.len() {
            for to in from..=text.len() {
                assert!(is_part_of_utf8(&text[from..to]), "{from} {to}");
            }
        }
        assert!(!is_part_of_utf8(b"Troms\xf8,1\n"));
    }

    #[test]
    fn utf16_is_refused() {
        assert!(refuse_utf16(b"\xff\xfea\0,\0").is_err());
        assert!(refuse_utf16(b"\xfe\xff\0a").is_err());
        for other in [&b"\xef\xbb\xbfa"[..], b"\xff\xfe", b"\xff\xfe\0\0", b"a,b"] {
            assert!(refuse_utf16(other).is_ok());
        }
    }
}
