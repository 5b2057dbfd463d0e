//! The 512-byte headers of tar files: ustar, GNU and pax, with checked arithmetic throughout.
//!
//! ```text
//! 0 name 100 | 100 mode 8 | 108 uid 8 | 116 gid 8 | 124 size 12 | 136 mtime 12 | 148 checksum 8
//! 156 type 1 | 157 link name 100 | 257 magic 6, version 2 | 265 … | 345 prefix 155
//! ```
//!
//! Numbers are octal text, or big-endian binary if the first bit is set (GNU). Long names are in separate headers
//! before the one they belong to: GNU `L`, or pax `x` with records `LENGTH KEY=VALUE\n`. The `tar` crate was rejected:
//! we need offsets and ranges, over files and bytes in memory, without an object a member.

use std::ops::Range;

/// Bytes of a header, and the unit to which data are padded.
pub(crate) const BLOCK: usize = 512;

/// The content of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TarHeader {
    pub(crate) kind: u8,
    pub(crate) size: u64,
    /// The range of the name within the header.
    pub(crate) name: Range<usize>,
    /// The range of the name's prefix, which a slash separates from it.
    pub(crate) prefix: Range<usize>,
}

/// Whether the checksum of a header fits; that of zeros does not.
pub(crate) fn has_checksum(block: &[u8; BLOCK]) -> bool {
    let Some(stored) = number(&block[148..156]) else {
        return false;
    };
    let sum = |signed: bool| {
        let bytes = block.iter().enumerate().map(|(at, &byte)| match at {
            148..156 => i64::from(b' '),
            _ if signed => i64::from(byte as i8),
            _ => i64::from(byte),
        });
        bytes.sum::<i64>()
    };
    // Old writers added signed bytes.
    stored > 0 && (stored as i64 == sum(false) || stored as i64 == sum(true))
}

/// Parses a header; `None` for a block of zeros, which ends an archive.
pub(crate) fn parse(block: &[u8; BLOCK]) -> Result<Option<TarHeader>, &'static str> {
    if !has_checksum(block) {
        return if block.iter().all(|byte| *byte == 0) {
            Ok(None)
        } else {
            Err("a header's checksum does not fit")
        };
    }
    let Some(size) = number(&block[124..136]) else {
        return Err("a header's size is not a number");
    };
    let until_zero = |range: Range<usize>| {
        let field = &block[range.clone()];
        let length = field.iter().position(|byte| *byte == 0);
        range.start..range.start + length.unwrap_or(field.len())
    };
    // GNU's own headers, `ustar` and two blanks, have other fields instead of the prefix.
    let prefix = match &block[257..263] {
        b"ustar\0" => until_zero(345..500),
        _ => 0..0,
    };
    Ok(Some(TarHeader {
        kind: block[156],
        size,
        name: until_zero(0..100),
        prefix,
    }))
}

/// A number of a header: octal digits between blanks and zeros, or big-endian binary.
fn number(field: &[u8]) -> Option<u64> {
    if let Some((first, rest)) = field.split_first()
        && first & 0x80 != 0
    {
        // 0xff would be negative.
        let high = u64::from(first & 0x7f);
        return rest.iter().try_fold(high, |value, byte| {
            Some(value.checked_mul(256)? | u64::from(*byte))
        });
    }
    let text = field.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = text.trim_ascii();
    if text.is_empty() {
        return Some(0);
    }
    text.iter().try_fold(0u64, |value, byte| match byte {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// The relevant records of a pax header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pax {
    /// The range of the path in the records.
    pub(crate) path: Option<Range<usize>>,
    pub(crate) size: Option<u64>,
    pub(crate) sparse: bool,
}

/// Parses the records of a pax header.
pub(crate) fn parse_pax(records: &[u8]) -> Result<Pax, &'static str> {
    const BAD: &str = "a pax header's records do not hold together";
    let mut pax = Pax::default();
    let mut at = 0;
    // Some writers pad with zeros.
    while at < records.len() && records[at] != 0 {
        let rest = &records[at..];
        let blank = memchr::memchr(b' ', rest).ok_or(BAD)?;
        let length = std::str::from_utf8(&rest[..blank]).ok();
        let length: usize = length.and_then(|text| text.parse().ok()).ok_or(BAD)?;
        if length <= blank + 1 || length > rest.len() || rest[length - 1] != b'\n' {
            return Err(BAD);
        }
        let record = &rest[blank + 1..length - 1];
        let equals = memchr::memchr(b'=', record).ok_or(BAD)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        match key {
            b"path" => {
                let from = at + blank + 1 + equals + 1;
                pax.path = Some(from..from + value.len());
            }
            b"size" => {
                let text = std::str::from_utf8(value).ok();
                pax.size = Some(text.and_then(|text| text.parse().ok()).ok_or(BAD)?);
            }
            _ => pax.sparse |= key.starts_with(b"GNU.sparse."),
        }
        at += length;
    }
    Ok(pax)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"\0\0\0"), Some(0));
        assert_eq!(number(b"12x\0"), None);
        assert_eq!(
            number(b"\x80\0\0\0\0\0\0\x02\0\0\0\x01"),
            Some(0x2_0000_0001)
        );
        assert_eq!(
            number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
            None
        );
        assert_eq!(number(&[b'7'; 30]), None);
    }

    #[test]
    fn pax_records() {
        let pax = parse_pax(b"12 size=100\n10 path=a\n19 mtime=1.5000000\n").unwrap();
        assert_eq!((pax.size, pax.path), (Some(100), Some(20..21)));
        assert!(parse_pax(b"23 GNU.sparse.major=1\n\0").is_err());
        assert!(parse_pax(b"22 GNU.sparse.major=1\n\0\0").unwrap().sparse);
        for bad in [
            &b"x"[..],
            b"6 a=\n",
            b"99 path=a\n",
            b"3 a\n",
            b"9999999999999999999999 a=b\n",
            b"10 size=-1\n",
            b"0 a=b\n",
        ] {
            assert!(parse_pax(bad).is_err(), "{bad:?}");
        }
    }
}
