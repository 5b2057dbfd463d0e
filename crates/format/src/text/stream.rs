//! Text and bytes as one stream, cut into records of a given number of tokens or bytes.
//!
//! `tokens:35` cuts a text every 35 tokens: words, and newlines, which end sentences. A record reaches from its first
//! token to the byte before the first token of the next, so that all records together are the text from its first
//! token on; the last one may have fewer tokens. `bytes:1024` cuts any file every 1024 bytes, by arithmetic, and the
//! last record may be shorter likewise. Rows are the unchanged bytes of records, all of one class: the reader turns
//! tokens into ids with a vocabulary.

use std::num::NonZeroU32;

use crate::locate::format::{Format, Shard, Source, scan_threads};
use crate::locate::places::Places;
use crate::locate::places::sidecar::RecordShape;
use crate::locate::places::token_scan::scan_tokens;
use crate::locate::sample::SampleShape;
use crate::record::contents::Contents;
use crate::record::error::FormatError;

/// How records of tokens are found, in words.
const TOKENS: &str = "from a count of words and line ends";

/// Text as one stream, cut after a fixed count of words and newlines.
pub(crate) struct Tokens;

impl Format for Tokens {
    fn name(&self) -> &'static str {
        "tokens"
    }

    fn argument(&self) -> Option<&'static str> {
        Some("LENGTH")
    }

    fn check(&self, argument: &str) -> Result<(), String> {
        length_of(argument).map(drop)
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
        let length = length_of(source.argument()).expect("it was checked");
        let (from, size) = (source.start(), source.stamp.size);
        let shape = RecordShape::Tokens(length);
        let (located, index) = source.located(shape, from, notes, || {
            let (threads, interrupt) = (scan_threads(source.options), &source.options.interrupt);
            let file = source.input()?;
            scan_tokens(&file, length, from, size, threads, interrupt)
        })?;
        let length = length.get();
        let (contents, shape) = (Contents::Tokens { length }, SampleShape::Tokens { length });
        let shard = Shard::samples(contents, 0, Vec::new(), shape);
        Ok(shard.at(located, index, TOKENS))
    }
}

/// The bytes of any file, cut at a fixed length.
pub(crate) struct Bytes;

impl Format for Bytes {
    fn name(&self) -> &'static str {
        "bytes"
    }

    fn argument(&self) -> Option<&'static str> {
        Some("LENGTH")
    }

    fn check(&self, argument: &str) -> Result<(), String> {
        length_of(argument).map(drop)
    }

    fn open(&self, source: &Source<'_>, _: &mut Vec<String>) -> Result<Shard, FormatError> {
        let length = length_of(source.argument()).expect("it was checked");
        let size = source.stamp.size;
        let length = length.get();
        let bytes = u64::from(length);
        let places = if size.is_multiple_of(bytes) {
            Places::Fixed { from: 0, bytes }
        } else {
            Places::Cut { bytes, end: size }
        };
        Ok(Shard {
            records: size.div_ceil(bytes),
            bytes: size,
            longest: size.min(bytes),
            places,
            ..Shard::samples(
                Contents::Bytes { length },
                size,
                Vec::new(),
                SampleShape::Bytes { length },
            )
        })
    }
}

/// Parses a length.
fn length_of(text: &str) -> Result<NonZeroU32, String> {
    // A sign is not a digit, though a number may begin with one.
    let length = text.parse().ok().filter(|_| !text.starts_with('+'));
    length.ok_or_else(|| {
        format!(
            "has a length that is not a whole number from 1 to {}; write tokens:LENGTH or bytes:LENGTH",
            u32::MAX
        )
    })
}
