//! The scan of one chunk: starts of records, new labels and the largest last index, from the chunk's
//! bytes and its margins alone.
//!
//! Most lines cost two look-ups: a label and a line end that the thread has seen before, each identified by its eight
//! bytes; only new ones are parsed. On lines of 70 bytes that is three times as fast as parsing each.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::AtomicBool;

use crate::locate::places::chunk_quotes::ChunkQuotes;
use crate::locate::places::chunks_in_order::CHUNK;
use crate::locate::places::input::Input;
use crate::locate::places::newlines::find_newlines;
use crate::record::cells::decimal::cell_text;
use crate::record::cells::encoding::is_part_of_utf8;
use crate::record::cells::libsvm_token::QUERY;
use crate::record::cells::quoted::Cells;
use crate::record::labels::label_cell::LabelCell;

/// Bytes before a chunk that are read with it.
const BEHIND: u64 = 256;
/// The same for a table with quotes: cells of text are hardly longer.
const BEHIND_QUOTES: u64 = 32 << 10;
/// Bytes after a chunk that are read with it.
const AHEAD: u64 = 256;
/// The same if the label is not at an end of the line.
const AHEAD_OF_COLUMN: u64 = 64 << 10;

/// The structure of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineShape {
    /// LIBSVM text.
    Libsvm,
    /// LIBSVM text with targets as labels; a scan skips them.
    LibsvmTargets,
    /// Cells between delimiters; `label` is the column of the label (from 0), if there is one.
    Delimited {
        delimiter: u8,
        decimal_comma: bool,
        label: Option<usize>,
        columns: usize,
    },
    /// Text; every line is a record, empty or not.
    Text,
}

impl LineShape {
    /// The delimiter of cells.
    pub(crate) fn delimiter(self) -> Option<u8> {
        match self {
            LineShape::Delimited { delimiter, .. } => Some(delimiter),
            _ => None,
        }
    }

    /// The text of a label's cell; `None` if decoding it is an error.
    #[inline]
    pub(crate) fn label_text(self, cell: &[u8]) -> Option<Cow<'_, [u8]>> {
        match self {
            LineShape::Delimited { decimal_comma, .. } => cell_text(cell, decimal_comma, 0).ok(),
            _ => Some(Cow::Borrowed(cell)),
        }
    }

    /// Features of a row of cells; 0 for other lines.
    pub(crate) fn features(self) -> u64 {
        match self {
            LineShape::Delimited { label, columns, .. } => {
                (columns - usize::from(label.is_some())) as u64
            }
            LineShape::Libsvm | LineShape::LibsvmTargets | LineShape::Text => 0,
        }
    }

    /// Whether lines are LIBSVM text.
    pub(crate) fn is_libsvm(self) -> bool {
        matches!(self, LineShape::Libsvm | LineShape::LibsvmTargets)
    }
}

/// The bytes being scanned: `from..size` of a file.
pub(crate) struct Scan<'a> {
    pub(crate) file: &'a Input,
    pub(crate) shape: LineShape,
    pub(crate) from: u64,
    pub(crate) size: u64,
    /// Ends the scan early when set.
    pub(crate) interrupt: &'a AtomicBool,
}

/// The result of one chunk.
#[derive(Default)]
pub(crate) struct ChunkFound {
    /// Starts of records, from the start of the chunk.
    pub(crate) starts: Vec<u32>,
    pub(crate) labels: Vec<f64>,
    /// Labels that are not numbers.
    pub(crate) names: BTreeSet<String>,
    pub(crate) index_end: u64,
    pub(crate) colons: u64,
    /// Query ids.
    pub(crate) queries: u64,
    /// Bytes of the lines of text without their ends.
    pub(crate) text_bytes: u64,
    pub(crate) begins_in_quotes: bool,
    pub(crate) ends_in_quotes: bool,
    /// Whether its text is not UTF-8, in a table.
    pub(crate) is_other_text: bool,
}

/// Why a chunk has no result.
pub(crate) enum Stopped {
    /// Its lines cannot be determined from the chunk alone.
    Irregular,
    Failed(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Stopped {
        Stopped::Failed(error)
    }
}

/// Slots for words that a thread has seen.
const KNOWN: usize = 4096;

/// A lossy set of words: each word has one slot, which holds the last word written there.
struct Known<'a>(&'a mut [u64]);

impl Known<'_> {
    #[inline]
    fn place(&mut self, word: u64) -> &mut u64 {
        let slot = word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        &mut self.0[slot as usize]
    }
}

/// One thread's buffers and the words it has seen.
pub(crate) struct Worker<'a> {
    scan: &'a Scan<'a>,
    buffer: Vec<u8>,
    newlines: Vec<u32>,
    known: Vec<u64>,
    known_ends: Vec<u64>,
    /// Bytes before a chunk that are read with it.
    behind: u64,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(scan: &'a Scan<'a>) -> Worker<'a> {
        Worker {
            scan,
            buffer: Vec::new(),
            newlines: Vec::new(),
            known: vec![0; KNOWN],
            known_ends: vec![0; KNOWN],
            behind: BEHIND,
        }
    }

    pub(crate) fn scan_chunk(
        &mut self,
        chunk: u64,
        spare: ChunkFound,
    ) -> Result<ChunkFound, Stopped> {
        let scan = self.scan;
        let start = scan.from + chunk * CHUNK;
        let end = (start + CHUNK).min(scan.size);
        let ahead = match scan.shape {
            LineShape::Delimited {
                label: Some(label),
                columns,
                ..
            } if label > 0 && label + 1 < columns => AHEAD_OF_COLUMN,
            _ => AHEAD,
        };
        let window_end = (end + ahead).min(scan.size);
        let mut buffer = std::mem::take(&mut self.buffer);
        let (window_start, has_quotes) = loop {
            let window_start = start.saturating_sub(self.behind).max(scan.from);
            buffer.resize((window_end - window_start) as usize, 0);
            scan.file.read_exact_at(&mut buffer, window_start)?;
            let is_table = scan.shape.delimiter().is_some();
            let has_quotes = is_table && memchr::memchr(b'"', &buffer).is_some();
            if !has_quotes || self.behind == BEHIND_QUOTES {
                break (window_start, has_quotes);
            }
            self.behind = BEHIND_QUOTES;
        };
        let mut newlines = std::mem::take(&mut self.newlines);
        let inside = (start - window_start) as usize..(end - window_start) as usize;
        let tally = find_newlines(&buffer[inside.clone()], &mut newlines);
        if scan.shape == LineShape::Text {
            let found = lines_of_text(&buffer, inside, &newlines, chunk == 0, spare);
            self.buffer = buffer;
            self.newlines = newlines;
            return Ok(found);
        }
        if tally.comment && scan.shape.is_libsvm() {
            return Err(Stopped::Irregular);
        }
        let (reaches_back, reaches_end) = (window_start == scan.from, window_end == scan.size);
        let quotes = match scan.shape.delimiter().filter(|_| has_quotes) {
            Some(delimiter) => ChunkQuotes::new(
                &buffer,
                inside.clone(),
                reaches_back,
                reaches_end,
                delimiter,
            )
            .ok_or(Stopped::Irregular)?,
            None => ChunkQuotes::default(),
        };
        if quotes.ends_in_quotes && end == scan.size {
            return Err(Stopped::Irregular);
        }
        if !quotes.cells.is_empty() {
            quotes.remove_quoted(&mut newlines, inside.start);
        }
        let mut lines = ChunkLines {
            shape: scan.shape,
            window: &buffer,
            reaches_back,
            reaches_end,
            quotes: &quotes,
            inside: inside.start,
            known: Known(&mut self.known),
            known_ends: Known(&mut self.known_ends),
            found: ChunkFound {
                index_end: 0,
                colons: tally.colons,
                queries: 0,
                text_bytes: 0,
                begins_in_quotes: quotes.begins_in_quotes,
                ends_in_quotes: quotes.ends_in_quotes,
                is_other_text: scan.shape.delimiter().is_some()
                    && !buffer[inside.clone()].is_ascii()
                    && !is_part_of_utf8(&buffer[inside.clone()]),
                ..spare
            },
        };
        if chunk == 0 {
            lines.start(inside.start)?;
        }
        lines.found.starts.reserve(newlines.len() + 1);
        for &newline in &newlines {
            let at = inside.start + newline as usize;
            lines.end(at)?;
            lines.start(at + 1)?;
        }
        if end == scan.size && buffer.last() != Some(&b'\n') {
            lines.end(buffer.len())?;
        }
        let mut found = lines.found;
        if scan.shape.is_libsvm() {
            // A line that begins in the chunk may end in its margin.
            let end = (inside.end + QUERY.len() - 1).min(buffer.len());
            found.queries = count_queries(&buffer[inside.start..end]);
        }
        self.buffer = buffer;
        self.newlines = newlines;
        Ok(found)
    }
}

/// The lines of text that start within `inside` of a window, except that the one at its very start counts only if
/// `from_start`; and the bytes of text there. A line that starts at the chunk's end belongs to the next chunk, if there
/// is one: starts are counted after newlines, so it is counted here.
fn lines_of_text(
    window: &[u8],
    inside: std::ops::Range<usize>,
    newlines: &[u32],
    from_start: bool,
    mut found: ChunkFound,
) -> ChunkFound {
    let is_last = inside.end == window.len();
    let length = (inside.end - inside.start) as u32;
    if from_start && length > 0 {
        found.starts.push(0);
    }
    // A newline at the end of the file starts no line.
    let starting = match newlines.last() {
        Some(&last) if is_last && last + 1 == length => newlines.len() - 1,
        _ => newlines.len(),
    };
    found
        .starts
        .extend(newlines[..starting].iter().map(|newline| newline + 1));
    let returns = newlines
        .iter()
        .filter(|&&newline| {
            let at = inside.start + newline as usize;
            at > 0 && window[at - 1] == b'\r'
        })
        .count();
    found.text_bytes = u64::from(length) - newlines.len() as u64 - returns as u64;
    found.index_end = 0;
    found.colons = 0;
    found.queries = 0;
    found
}

/// Finds the starts and ends of lines within a chunk's window.
struct ChunkLines<'a> {
    shape: LineShape,
    window: &'a [u8],
    /// The window starts at the start of the scan.
    reaches_back: bool,
    /// The window ends at the end of the file.
    reaches_end: bool,
    quotes: &'a ChunkQuotes,
    /// Start of the chunk in the window.
    inside: usize,
    known: Known<'a>,
    known_ends: Known<'a>,
    found: ChunkFound,
}

impl ChunkLines<'_> {
    /// A line starts at `at`: a record unless it is blank.
    #[inline]
    fn start(&mut self, at: usize) -> Result<(), Stopped> {
        // Nearly every line of LIBSVM text starts with a short label that was seen before.
        if self.shape == LineShape::Libsvm
            && let Some(word) = word_at(self.window, at)
        {
            let length = bytes_before_blank(word);
            if (1..8).contains(&length) {
                let token = word & ((1 << (8 * length)) - 1);
                if *self.known.place(token) == token {
                    self.found.starts.push((at - self.inside) as u32);
                    return Ok(());
                }
            }
        }
        self.start_slowly(at)
    }

    fn start_slowly(&mut self, at: usize) -> Result<(), Stopped> {
        let mut text = at;
        loop {
            match self.window.get(text) {
                Some(b' ' | b'\t' | b'\r' | 0x0c) => text += 1,
                Some(b'\n') => return Ok(()),
                Some(_) => break,
                None if self.reaches_end => return Ok(()),
                None => return Err(Stopped::Irregular),
            }
        }
        self.found.starts.push((at - self.inside) as u32);
        match self.shape {
            LineShape::Libsvm => self.label_from(text, |byte| byte <= b' '),
            LineShape::LibsvmTargets | LineShape::Text => Ok(()),
            LineShape::Delimited { label: None, .. } => Ok(()),
            LineShape::Delimited {
                label: Some(label),
                columns,
                ..
            } if label + 1 == columns && label > 0 => Ok(()),
            LineShape::Delimited {
                label: Some(label),
                delimiter,
                ..
            } if !self.quotes.cells.is_empty() => self.label_among_quotes(at, label, delimiter),
            LineShape::Delimited {
                label: Some(0),
                delimiter,
                ..
            } => self.label_from(at, |byte| byte == delimiter || byte == b'\n'),
            LineShape::Delimited {
                label: Some(label),
                delimiter,
                ..
            } => {
                let rest = &self.window[at..];
                let line = match memchr::memchr(b'\n', rest) {
                    Some(end) => &rest[..end],
                    None => rest,
                };
                let cut_off = line.len() == rest.len() && !self.reaches_end;
                let mut ends = memchr::memchr_iter(delimiter, line);
                let from = ends.nth(label - 1).map(|delimiter| delimiter + 1);
                let to = ends.next();
                match (from, to) {
                    (Some(from), Some(to)) => self.label(at + from, at + to),
                    _ if cut_off => return Err(Stopped::Irregular),
                    _ => {}
                }
                Ok(())
            }
        }
    }

    /// The label of the record at `at`, in a chunk with quotes.
    fn label_among_quotes(
        &mut self,
        at: usize,
        label: usize,
        delimiter: u8,
    ) -> Result<(), Stopped> {
        let rest = &self.window[at..];
        let mut cells = Cells::new(rest, delimiter);
        let cell = (0..=label).map_while(|_| cells.next_range()).nth(label);
        let cut_off = !self.reaches_end && !rest[cells.end..].contains(&b'\n');
        match cell {
            Some(cell) if !cells.is_done() || label == 0 && !cut_off => {
                self.label(at + cell.start, at + cell.end);
            }
            _ if cut_off => return Err(Stopped::Irregular),
            _ => {}
        }
        Ok(())
    }

    /// The last delimiter or newline before `at` that is not in quotes.
    #[inline]
    fn separator_before(&self, mut at: usize, delimiter: u8) -> Option<usize> {
        loop {
            let mut before = self.window[..at].iter();
            let found = before.rposition(|byte| *byte == delimiter || *byte == b'\n')?;
            match self.quotes.cell_around(found) {
                Some(cell) => at = cell.start,
                None => return Some(found).filter(|found| *found >= self.quotes.known_from),
            }
        }
    }

    /// The line before `at` ends there.
    #[inline]
    fn end(&mut self, at: usize) -> Result<(), Stopped> {
        match self.shape {
            LineShape::Libsvm | LineShape::LibsvmTargets => return self.end_of_features(at),
            LineShape::Delimited {
                label: Some(label),
                columns,
                delimiter,
                ..
            } if label + 1 == columns && label > 0 => match self.separator_before(at, delimiter) {
                Some(place) if self.window[place] == delimiter => self.label(place + 1, at),
                Some(_) => {}
                None if self.reaches_back => {}
                None => return Err(Stopped::Irregular),
            },
            LineShape::Delimited { .. } | LineShape::Text => {}
        }
        Ok(())
    }

    #[inline]
    fn end_of_features(&mut self, at: usize) -> Result<(), Stopped> {
        // Lines that end in the same bytes have the same last index.
        let last_word = at
            .checked_sub(8)
            .and_then(|from| word_at(self.window, from));
        if let Some(word) = last_word
            && *self.known_ends.place(word) == word
        {
            return Ok(());
        }
        match last_index(self.window, at) {
            Backward::Index { index, from } => {
                self.found.index_end = self.found.index_end.max(index + 1);
                if let Some(word) = last_word
                    && from > at - 8
                {
                    *self.known_ends.place(word) = word;
                }
            }
            Backward::LineStart => {}
            Backward::WindowStart if self.reaches_back => {}
            Backward::WindowStart => return Err(Stopped::Irregular),
        }
        Ok(())
    }

    #[inline]
    fn label_from(&mut self, at: usize, ends: impl Fn(u8) -> bool) -> Result<(), Stopped> {
        let length = self.window[at..].iter().position(|byte| ends(*byte));
        let end = match length {
            Some(length) => at + length,
            None if self.reaches_end => self.window.len(),
            None => return Err(Stopped::Irregular),
        };
        self.label(at, end);
        Ok(())
    }

    #[inline]
    fn label(&mut self, from: usize, to: usize) {
        let length = to - from;
        if length == 0 {
            return;
        }
        if length <= 8
            && let Some(word) = word_at(self.window, from)
        {
            let token = word & (u64::MAX >> (64 - 8 * length));
            let place = self.known.place(token);
            if *place == token {
                return;
            }
            *place = token;
        }
        let text = self.shape.label_text(&self.window[from..to]);
        match text.as_deref().map_or(LabelCell::Neither, LabelCell::parse) {
            LabelCell::Number(value) => self.found.labels.push(value),
            LabelCell::Name(name)
                if self.shape != LineShape::Libsvm && !self.found.names.contains(name) =>
            {
                self.found.names.insert(name.to_string());
            }
            _ => {}
        }
    }
}

/// The number of query ids in LIBSVM text.
pub(crate) fn count_queries(text: &[u8]) -> u64 {
    memchr::memmem::find_iter(text, QUERY).count() as u64
}

#[inline]
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(eight.try_into().expect("eight bytes")))
}

/// The number of bytes of the eight, lowest first, before the first that is a blank or below.
#[inline]
fn bytes_before_blank(word: u64) -> u32 {
    let below = word.wrapping_sub(0x2121_2121_2121_2121) & !word & 0x8080_8080_8080_8080;
    below.trailing_zeros() / 8
}

/// The end of a line, scanned backwards.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Backward {
    /// The digits before the last colon; they start at `from`.
    Index { index: u64, from: usize },
    /// The line has no index.
    LineStart,
    /// The window ends before the line does.
    WindowStart,
}

/// The last index of the line that ends before `end`.
#[inline]
pub(crate) fn last_index(window: &[u8], end: usize) -> Backward {
    let mut at = end;
    loop {
        if at == 0 {
            return Backward::WindowStart;
        }
        at -= 1;
        match window[at] {
            b':' => break,
            b'\n' => return Backward::LineStart,
            _ => {}
        }
    }
    let mut index = 0u64;
    let mut scale = 1u64;
    loop {
        if at == 0 {
            return Backward::WindowStart;
        }
        let before = window[at - 1];
        if before == b'\n' {
            return Backward::LineStart;
        }
        let digit = before.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        index = index.saturating_add(u64::from(digit).saturating_mul(scale));
        scale = scale.saturating_mul(10);
        at -= 1;
    }
    // An index that decoding refuses does not count for the number of features.
    if scale == 1 || index > u64::from(u32::MAX) {
        return Backward::LineStart;
    }
    Backward::Index { index, from: at }
}
