//! One parallel pass over a text file: the starts of its records, labels and totals.
//!
//! Threads take chunks of [`CHUNK`] bytes in file order, each read into a buffer that stays in the second-level
//! cache, with some bytes of margin on both sides so that the label after the last newline and the last index before
//! the first one are at hand. A chunk depends on no other; its results are merged in file order. A file with a chunk
//! that its margins do not settle, or with comments after its first record, is scanned again line by line by
//! [`scan_lines`], which is also the reference in the tests.
//!
//! The quotes in a larger margin before a chunk of a table show whether it begins within a quoted cell; if they leave
//! it open, it is assumed not to. Merging compares that with the end of the chunk before
//! ([`ChunkQuotes`](crate::locate::places::chunk_quotes::ChunkQuotes)).
//!
//! Only the label and the last index of a line are parsed. A bad line is counted too: decoding reports its fault.
//!
//! Cost: one read of the file; memory 2.5 bytes a record for the result and a few megabytes.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::locate::places::chunks_in_order::{CHUNK, scan_in_order};
use crate::locate::places::elias_fano::EliasFanoBuilder;
use crate::locate::places::input::{Input, InputReader};
use crate::locate::places::located::Located;
use crate::locate::places::newlines::newlines_in;
use crate::locate::places::newlines::without_line_end;
use crate::locate::places::scan_chunk::{
    Backward, ChunkFound, LineShape, Scan, Stopped, Worker, count_queries, last_index,
};
use crate::record::cells::encoding::is_part_of_utf8;
use crate::record::cells::libsvm_token::label_token;
use crate::record::cells::quoted::{closing_quote, never_closes, opening_quote};
use crate::record::error::FormatError;
use crate::record::labels::codes::Codes;
use crate::record::labels::label_cell::{LabelCell, label_cell};
use crate::record::labels::{LabelCollector, MOST_NAMES, too_many_labels};

/// Longer lines are not records, so a file without newlines does not fill the memory.
const LONGEST_LINE: u64 = 1 << 30;

/// Longer cells in quotes are not cells, so a stray quote does not make one of the rest of the file.
const LONGEST_QUOTED: usize = 16 << 20;

/// Scans the bytes of a file from `from`, which is the start of a line, up to `size`.
pub(crate) fn scan_file(
    file: &Input,
    shape: LineShape,
    from: u64,
    size: u64,
    threads: usize,
    interrupt: &AtomicBool,
) -> Result<Located, FormatError> {
    let (from, comments) = first_record(file, shape, from, size)?;
    let scan = Scan {
        file,
        shape,
        from,
        size,
        interrupt,
    };
    let mut found = match scan.in_parallel(threads)? {
        Some(merged) => merged,
        None => scan_lines(&scan)?,
    };
    found.comments += comments;
    found.finish(shape, size)
}

/// Offset of the first line that is a record, or `size`, and the number of comments before it.
fn first_record(
    file: &Input,
    shape: LineShape,
    from: u64,
    size: u64,
) -> Result<(u64, u64), FormatError> {
    let mut lines = Lines::new(file, from, size, shape.delimiter());
    let mut comments = 0;
    while let Some((start, line)) = lines.next()? {
        if is_record(line, shape) {
            return Ok((start, comments));
        }
        comments += u64::from(!line.trim_ascii().is_empty());
    }
    Ok((size, comments))
}

/// The first record of cells from `from` on, with its offset.
pub(crate) fn first_record_from(
    file: &Input,
    from: u64,
    size: u64,
    delimiter: u8,
) -> Result<Option<(u64, Vec<u8>)>, FormatError> {
    let mut lines = Lines::new(file, from, size, Some(delimiter));
    while let Some((start, line)) = lines.next()? {
        if !line.trim_ascii().is_empty() {
            return Ok(Some((start, line.to_vec())));
        }
    }
    Ok(None)
}

fn is_record(line: &[u8], shape: LineShape) -> bool {
    if shape == LineShape::Text {
        return true;
    }
    let line = line.trim_ascii_start();
    match line.first() {
        None => false,
        Some(b'#') => !shape.is_libsvm(),
        Some(_) => true,
    }
}

/// Lines of a file with their offsets, loaded one at a time. If cells have a delimiter, a newline in quotes does not
/// end a line.
pub(crate) struct Lines<'a> {
    file: &'a Input,
    reader: io::Take<BufReader<InputReader<&'a Input>>>,
    at: u64,
    line: Vec<u8>,
    delimiter: Option<u8>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(file: &'a Input, from: u64, size: u64, delimiter: Option<u8>) -> Lines<'a> {
        let reader = BufReader::with_capacity(64 << 10, file.from(from));
        Lines {
            file,
            reader: reader.take(size - from),
            at: from,
            line: Vec::new(),
            delimiter,
        }
    }

    pub(crate) fn next(&mut self) -> Result<Option<(u64, &[u8])>, FormatError> {
        self.line.clear();
        // The quote that opened the cell at the line's present end, and the position from which it may close.
        let mut open = None;
        loop {
            let before = self.line.len();
            let mut limited = self.reader.by_ref().take(LONGEST_LINE - before as u64);
            let length = limited.read_until(b'\n', &mut self.line)?;
            if self.line.len() as u64 == LONGEST_LINE {
                let what = "a line is longer than 1 GiB";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what).into());
            }
            open = self.open_quote(before, open);
            match open {
                None => break,
                Some(quote) if length == 0 || self.line.len() - quote > LONGEST_QUOTED => {
                    let before = self.file.from(0).take(self.at + quote as u64);
                    return Err(never_closes(newlines_in(before)? + 1));
                }
                Some(_) => {}
            }
        }
        let start = self.at;
        self.at += self.line.len() as u64;
        Ok((!self.line.is_empty()).then_some((start, &self.line)))
    }

    /// The quote of the cell that is open at the end of the line, if `open` was before byte `at`.
    fn open_quote(&self, mut at: usize, mut open: Option<usize>) -> Option<usize> {
        let delimiter = self.delimiter?;
        loop {
            if let Some(quote) = open {
                let Some(closing) = closing_quote(&self.line, at.max(quote + 1)) else {
                    return open;
                };
                at = closing + 1;
            }
            let rest = at..self.line.len();
            open = Some(opening_quote(&self.line, rest, |byte| byte == delimiter)?);
        }
    }
}

/// Results in file order.
struct Merged {
    starts: EliasFanoBuilder,
    labels: LabelCollector,
    names: BTreeSet<String>,
    /// The exceeded limit of labels.
    too_many_labels: Option<usize>,
    queries: u64,
    /// Colons of LIBSVM text, including those of query ids.
    colons: u64,
    comments: u64,
    index_end: u64,
    nonzeros: u64,
    longest: u64,
    /// Whether the chunks so far end within quotes.
    in_quotes: bool,
    /// A chunk assumed something else.
    is_irregular: bool,
    /// Whether the text of a table is not UTF-8.
    is_other_text: bool,
}

impl Merged {
    fn new(mean_bytes: u64) -> Merged {
        Merged {
            starts: EliasFanoBuilder::new(mean_bytes),
            labels: LabelCollector::default(),
            names: BTreeSet::new(),
            too_many_labels: None,
            queries: 0,
            colons: 0,
            comments: 0,
            index_end: 0,
            nonzeros: 0,
            longest: 0,
            in_quotes: false,
            is_irregular: false,
            is_other_text: false,
        }
    }

    #[inline]
    fn start(&mut self, at: u64) {
        if let Some(last) = self.starts.last() {
            self.longest = self.longest.max(at - last);
        }
        self.starts.push(at);
    }

    /// Starts at `base` plus each of `offsets`.
    fn starts_after(&mut self, base: u64, offsets: &[u32]) {
        let Some((&first, rest)) = offsets.split_first() else {
            return;
        };
        self.start(base + u64::from(first));
        let gaps = rest.iter().zip(offsets).map(|(next, start)| next - start);
        self.longest = self.longest.max(u64::from(gaps.max().unwrap_or(0)));
        self.starts.extend(base, rest);
    }

    fn label(&mut self, value: f64) {
        if !self.labels.add(value) {
            self.too_many_labels = Some(self.labels.limit());
        }
    }

    fn name(&mut self, name: String) {
        self.names.insert(name);
        if self.names.len() > MOST_NAMES {
            self.too_many_labels = Some(MOST_NAMES);
        }
    }

    /// Takes over the result of the next chunk, and empties its lists.
    fn add(&mut self, scan: &Scan<'_>, chunk: u64, found: &mut ChunkFound) {
        self.is_irregular |= found.begins_in_quotes != self.in_quotes;
        self.in_quotes = found.ends_in_quotes;
        self.is_other_text |= found.is_other_text;
        self.starts_after(scan.from + chunk * CHUNK, &found.starts);
        for &label in &found.labels {
            self.label(label);
        }
        std::mem::take(&mut found.names)
            .into_iter()
            .for_each(|name| self.name(name));
        self.queries += found.queries;
        self.index_end = self.index_end.max(found.index_end);
        self.nonzeros += match scan.shape {
            LineShape::Libsvm | LineShape::LibsvmTargets => {
                // A query id that begins in one chunk may have its colon in the next.
                self.colons += found.colons;
                0
            }
            LineShape::Text => found.text_bytes,
            LineShape::Delimited { .. } => found.starts.len() as u64 * scan.shape.features(),
        };
        found.starts.clear();
        found.labels.clear();
    }

    fn finish(mut self, shape: LineShape, size: u64) -> Result<Located, FormatError> {
        if let Some(limit) = self.too_many_labels {
            return Err(too_many_labels(limit));
        }
        let mut labels = self.labels.into_values();
        let mut names = Vec::new();
        // Among numbers a name is a fault of its record.
        if labels.is_empty() {
            names.extend(self.names);
            labels.extend((0..names.len()).map(|label| label as f64));
        }
        if let Some(last) = self.starts.last() {
            self.longest = self.longest.max(size - last);
        }
        Ok(Located {
            first_bad: None,
            starts: self.starts.finish(size),
            end: size,
            codes: Codes::One,
            names,
            tallies: match shape {
                LineShape::Libsvm | LineShape::LibsvmTargets => vec![self.queries, self.comments],
                LineShape::Delimited { .. } => vec![u64::from(self.is_other_text)],
                LineShape::Text => Vec::new(),
            },
            labels,
            index_end: self.index_end,
            nonzeros: self.nonzeros + self.colons.saturating_sub(self.queries),
            longest: self.longest,
        })
    }
}

/// The plain scan: line by line, correct for any content.
fn scan_lines(scan: &Scan<'_>) -> Result<Merged, FormatError> {
    let shape = scan.shape;
    let mut merged = Merged::new(128);
    let mut lines = Lines::new(scan.file, scan.from, scan.size, shape.delimiter());
    while let Some((start, line)) = lines.next()? {
        scan.check_interrupt()?;
        if shape.is_libsvm() {
            merged.comments += u64::from(line.contains(&b'#'));
        }
        if !is_record(line, shape) {
            continue;
        }
        merged.start(start);
        let label = match shape {
            LineShape::Libsvm | LineShape::LibsvmTargets => {
                let line = line
                    .split(|byte| matches!(byte, b'#' | b'\n'))
                    .next()
                    .unwrap_or_default();
                merged.queries += count_queries(line);
                merged.colons += memchr::memchr_iter(b':', line).count() as u64;
                if let Backward::Index { index, .. } = last_index(line, line.len()) {
                    merged.index_end = merged.index_end.max(index + 1);
                }
                let label = Cow::Borrowed(label_token(line.trim_ascii_start()));
                Some(label).filter(|_| shape == LineShape::Libsvm)
            }
            LineShape::Text => {
                merged.nonzeros += without_line_end(line).len() as u64;
                None
            }
            LineShape::Delimited {
                delimiter,
                label,
                columns,
                ..
            } => {
                merged.nonzeros += shape.features();
                merged.is_other_text |= !is_part_of_utf8(line);
                let cell = label.and_then(|label| label_cell(line, delimiter, label, columns));
                cell.and_then(|cell| shape.label_text(cell))
            }
        };
        match label
            .as_deref()
            .map_or(LabelCell::Neither, LabelCell::parse)
        {
            LabelCell::Number(value) => merged.label(value),
            LabelCell::Name(name) if shape != LineShape::Libsvm => merged.name(name.to_string()),
            _ => {}
        }
        if merged.too_many_labels.is_some() {
            break;
        }
    }
    Ok(merged)
}
impl Scan<'_> {
    fn check_interrupt(&self) -> io::Result<()> {
        if self.interrupt.load(Ordering::Relaxed) {
            Err(io::ErrorKind::Interrupted.into())
        } else {
            Ok(())
        }
    }

    /// `None` if only [`scan_lines`] can decide.
    fn in_parallel(&self, threads: usize) -> io::Result<Option<Merged>> {
        let chunks = (self.size - self.from).div_ceil(CHUNK);
        let mut merged = None;
        let outcome = scan_in_order(
            chunks,
            threads,
            || Worker::new(self),
            |worker, chunk, spare| {
                self.check_interrupt().map_err(Stopped::Failed)?;
                worker.scan_chunk(chunk, spare)
            },
            |chunk, found: &mut ChunkFound| {
                let merged = merged.get_or_insert_with(|| {
                    // The first chunk's mean length determines the split of the offsets.
                    let records = (found.starts.len() as u64).max(1);
                    Merged::new(CHUNK.min(self.size - self.from) / records)
                });
                merged.add(self, chunk, found);
                merged.too_many_labels.is_none() && !merged.is_irregular
            },
        );
        if merged.as_ref().is_some_and(|merged| merged.is_irregular) {
            return Ok(None);
        }
        match outcome {
            Ok(()) => Ok(Some(merged.unwrap_or_else(|| Merged::new(1)))),
            Err(Stopped::Irregular) => Ok(None),
            Err(Stopped::Failed(error)) => Err(error),
        }
    }
}
