//! Plain text: every line is a record, empty ones too, so that nothing is dropped and record `n` is line
//! `n + 1`.
//!
//! A record's range ends with its line end; the row is the line without it (`\n` or `\r\n`). Bytes are passed on as
//! they are: no encoding is required, and a byte order mark at the start is left out. All records are of one class.
//!
//! Cost: one parallel scan for newlines, kept in a sidecar; about 2 + log2(mean length) bits a line.

use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::places::LINE_ENDS;
use crate::locate::places::scan_chunk::LineShape;
use crate::locate::sample::SampleShape;
use crate::record::contents::Contents;
use crate::record::error::FormatError;
use crate::record::kind::{Head, Look};

/// Plain text, one record a line.
pub(crate) struct Text;

impl Format for Text {
    fn name(&self) -> &'static str {
        "text"
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        (head.look == Some(Look::Text)).then_some(Match::Lines)
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
        let (located, index) = source.lines(LineShape::Text, source.start(), notes)?;
        let shard = Shard::samples(Contents::Text, 0, Vec::new(), SampleShape::Line);
        Ok(shard.at(located, index, LINE_ENDS))
    }
}
