//! One parallel pass over a text file: the starts of its records, labels and totals.
//!
//! Threads take chunks of [`CHUNK`] bytes in file order, each read into a buffer that stays in the second-level
//! cache, with some bytes of margin on both sides so that the label after the last newline and the last index before
//! the first one are at hand. A chunk depends on no other; its results are merged in file order. A chunk that its
//! margins do not settle, and every file with comments after its first record, is scanned again line by line by
//! [`scan_lines`], which is also the reference in the tests.
//!
//! Only the label and the last index of a line are parsed. A bad line is counted too: decoding it says what is wrong.
//!
//! Cost: one read of the file; memory 2.5 bytes a record for the result and a few megabytes.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::FormatError;
use crate::formats::delimited::{LabelCell, label_cell};
use crate::formats::libsvm::label_token;
use crate::labels::codes::Codes;
use crate::labels::{LabelCollector, MOST_NAMES, too_many_labels};
use crate::places::chunks_in_order::{CHUNK, scan_in_order};
use crate::places::elias_fano::EliasFanoBuilder;
use crate::places::input::{Input, InputReader};
use crate::places::located::Located;
use crate::places::scan_chunk::{
    Backward, ChunkFound, LineShape, Scan, Stopped, Worker, count_queries, last_index,
};
use crate::rows::sample::without_line_end;

/// Longer lines are not records, so a file without newlines does not fill the memory.
const LONGEST_LINE: u64 = 1 << 30;

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
fn first_record(file: &Input, shape: LineShape, from: u64, size: u64) -> io::Result<(u64, u64)> {
    let mut lines = Lines::new(file, from, size);
    let mut comments = 0;
    while let Some((start, line)) = lines.next()? {
        if is_record(line, shape) {
            return Ok((start, comments));
        }
        comments += u64::from(!line.trim_ascii().is_empty());
    }
    Ok((size, comments))
}

/// The first line from `from` on that is not blank, with its offset.
pub(crate) fn first_line_from(
    file: &Input,
    from: u64,
    size: u64,
) -> io::Result<Option<(u64, Vec<u8>)>> {
    let mut lines = Lines::new(file, from, size);
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

/// Lines of a file with their offsets, loaded one at a time.
pub(crate) struct Lines<'a> {
    reader: io::Take<BufReader<InputReader<&'a Input>>>,
    at: u64,
    line: Vec<u8>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(file: &'a Input, from: u64, size: u64) -> Lines<'a> {
        let reader = BufReader::with_capacity(64 << 10, file.from(from));
        Lines {
            reader: reader.take(size - from),
            at: from,
            line: Vec::new(),
        }
    }

    pub(crate) fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        self.line.clear();
        let mut limited = self.reader.by_ref().take(LONGEST_LINE);
        let length = limited.read_until(b'\n', &mut self.line)?;
        if length as u64 == LONGEST_LINE {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a line is longer than 1 GiB",
            ));
        }
        let start = self.at;
        self.at += length as u64;
        Ok((length > 0).then_some((start, &self.line)))
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
                LineShape::Delimited { .. } | LineShape::Text => Vec::new(),
            },
            labels,
            index_end: self.index_end,
            nonzeros: self.nonzeros + self.colons.saturating_sub(self.queries),
            longest: self.longest,
        })
    }
}

/// The plain scan: line by line, correct for any content.
fn scan_lines(scan: &Scan<'_>) -> io::Result<Merged> {
    let shape = scan.shape;
    let mut merged = Merged::new(128);
    let mut lines = Lines::new(scan.file, scan.from, scan.size);
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
                let label = label_token(line.trim_ascii_start());
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
            } => {
                merged.nonzeros += shape.features();
                let line = line.trim_ascii_end();
                label.and_then(|label| label_cell(line, delimiter, label, columns))
            }
        };
        match label.map_or(LabelCell::Neither, LabelCell::of) {
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

    /// `None` where only [`scan_lines`] can decide.
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
                merged.too_many_labels.is_none()
            },
        );
        match outcome {
            Ok(()) => Ok(Some(merged.unwrap_or_else(|| Merged::new(1)))),
            Err(Stopped::Irregular) => Ok(None),
            Err(Stopped::Failed(error)) => Err(error),
        }
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    /// Starts, labels, names and counts.
    fn summary(contents: &Located) -> (Vec<u64>, Vec<f64>, Vec<String>, Vec<u64>) {
        let mut counts = vec![contents.index_end, contents.nonzeros, contents.longest];
        counts.extend(&contents.tallies);
        (
            contents.starts.walk(0).collect(),
            contents.labels.clone(),
            contents.names.clone(),
            counts,
        )
    }

    /// Scans `text` both ways and returns the number of records.
    fn check(text: &[u8], shape: LineShape) -> u64 {
        scanned(text, shape).starts.len()
    }

    /// Scans `text` both ways.
    fn scanned(text: &[u8], shape: LineShape) -> Located {
        let input = Input::of_bytes(text);
        let size = text.len() as u64;
        let (from, comments) = first_record(&input, shape, 0, size).unwrap();
        let plain = scan_lines(&Scan {
            file: &input,
            shape,
            from,
            size,
            interrupt: &AtomicBool::new(false),
        });
        let mut plain = plain.unwrap();
        plain.comments += comments;
        let plain = plain.finish(shape, size).unwrap();
        for threads in [1, 3] {
            let stop = AtomicBool::new(false);
            let fast = scan_file(&input, shape, 0, size, threads, &stop).unwrap();
            assert_eq!(summary(&fast), summary(&plain));
        }
        plain
    }

    /// Whether the parallel scan handles `text` without the plain one.
    fn is_regular(text: &[u8], shape: LineShape) -> bool {
        let input = Input::of_bytes(text);
        let scan = Scan {
            file: &input,
            shape,
            from: 0,
            size: text.len() as u64,
            interrupt: &AtomicBool::new(false),
        };
        scan.in_parallel(2).unwrap().is_some()
    }

    const LAST: LineShape = LineShape::Delimited {
        delimiter: b',',
        label: Some(2),
        columns: 3,
    };
    const MIDDLE: LineShape = LineShape::Delimited {
        delimiter: b',',
        label: Some(1),
        columns: 3,
    };
    const FIRST: LineShape = LineShape::Delimited {
        delimiter: b',',
        label: Some(0),
        columns: 3,
    };
    const NONE: LineShape = LineShape::Delimited {
        delimiter: b',',
        label: None,
        columns: 3,
    };

    #[test]
    fn names_of_classes() {
        let text = b"1,Class_1,b\n2,true,\"Class_1\"\n2,Class_1,NA\n";
        let found = scanned(text, MIDDLE);
        assert_eq!(found.names, ["Class_1", "true"]);
        assert_eq!(found.labels, [0.0, 1.0]);
        assert_eq!(scanned(text, LAST).names, ["Class_1", "b"]);
        // Next to numbers they are none.
        let mixed = scanned(b"1,2,3\n1,2,x\n1,2,1e300\n", LAST);
        assert_eq!((mixed.labels, mixed.names.len()), (vec![3.0], 0));
        let without = scanned(text, NONE);
        assert_eq!((without.labels.len(), without.names.len()), (0, 0));
        assert_eq!(without.nonzeros, 9);
        let many: String = (0..=MOST_NAMES).map(|i| format!("1,2,x{i}\n")).collect();
        let input = Input::of_bytes(many.as_bytes());
        let found = scan_file(
            &input,
            LAST,
            0,
            many.len() as u64,
            2,
            &AtomicBool::new(false),
        );
        assert!(found.unwrap_err().to_string().contains("distinct labels"));
    }

    #[test]
    fn query_numbers_and_comments_are_counted() {
        let mut text = b"# head\n".to_vec();
        for i in 0..100_000 {
            writeln!(text, "{} qid:{} 1:0.5 2:1", i % 3, i / 7).unwrap();
        }
        let found = scanned(&text, LineShape::Libsvm);
        assert_eq!(found.tallies, [100_000, 1]);
        assert_eq!((found.nonzeros, found.index_end), (200_000, 3));
        // At every place around the end of a chunk.
        for shift in 0..24 {
            let mut shifted = vec![b'1'; shift];
            shifted.extend_from_slice(&text[7..CHUNK as usize + 400]);
            check(&shifted, LineShape::Libsvm);
        }
        text.extend_from_slice(b"1 qid:1 2:1 # doc\n");
        let found = scanned(&text, LineShape::Libsvm);
        assert_eq!(found.tallies, [100_001, 2]);
        assert_eq!(found.nonzeros, 200_001);
    }

    #[test]
    fn lines_of_every_kind() {
        assert_eq!(check(b"1 1:2 3:4\n-1 2:1\n", LineShape::Libsvm), 2);
        assert_eq!(
            check(b"\n\n  \n1 1:2\n\n\t\r\n-1 2:1 \r\n\n", LineShape::Libsvm),
            2
        );
        assert_eq!(
            check(b"# head\n1 1:2 # 7:8\n# mid\n-1 9:1", LineShape::Libsvm),
            2
        );
        assert_eq!(check(b"1\n2\n3", LineShape::Libsvm), 3);
        assert_eq!(check(b"", LineShape::Libsvm), 0);
        assert_eq!(check(b"", LineShape::Text), 0);
        assert_eq!(check(b"\n", LineShape::Text), 1);
        assert_eq!(check(b"\n\na b\r\n \n#c", LineShape::Text), 5);
        assert_eq!(check(b"\n\n", LineShape::Libsvm), 0);
        assert_eq!(
            check(
                b"x y:z :: 4294967296:1 99999999999999999999999:1\n:",
                LineShape::Libsvm
            ),
            2
        );
        for shape in [FIRST, MIDDLE, LAST] {
            assert_eq!(check(b"1,2,3\n\n4,5,6\r\n7,8\n\"9\",10,\"11\"", shape), 4);
        }
    }

    #[test]
    fn lines_across_chunks() {
        let mut text = Vec::new();
        let mut index = 1;
        while text.len() < 3 * CHUNK as usize {
            writeln!(text, "{} 1:0.5 {}:{}", index % 7, index + 1, index % 10).unwrap();
            index += 1;
        }
        assert!(check(&text, LineShape::Libsvm) > 30_000);
        assert!(is_regular(&text, LineShape::Libsvm));
        // A newline, a label and an index fall on every place around the chunk's end.
        for shift in 0..40 {
            let mut shifted = vec![b'1'; shift];
            shifted.extend_from_slice(&text[..CHUNK as usize + 400]);
            check(&shifted, LineShape::Libsvm);
        }
    }

    #[test]
    fn lines_longer_than_chunks() {
        let mut text = Vec::new();
        for line in 0..3 {
            write!(text, "{line}").unwrap();
            for index in 1..60_000 {
                write!(text, " {index}:0.25").unwrap();
            }
            text.push(b'\n');
        }
        assert!(text.len() > 6 * CHUNK as usize / 2);
        assert_eq!(check(&text, LineShape::Libsvm), 3);
        assert!(is_regular(&text, LineShape::Libsvm));
        let cells = text
            .iter()
            .map(|byte| if *byte == b' ' { b',' } else { *byte });
        let cells: Vec<u8> = cells.collect();
        let columns = 60_000;
        for label in [0, 1, 2, 30_000, columns - 1].map(Some) {
            check(
                &cells,
                LineShape::Delimited {
                    delimiter: b',',
                    label,
                    columns,
                },
            );
        }
        // A margin full of blanks leaves it to the plain scan.
        let mut blank = b"1 1:1".to_vec();
        blank.resize(2 * CHUNK as usize + 1000, b' ');
        blank.extend_from_slice(b"\n2 7:1");
        assert_eq!(check(&blank, LineShape::Libsvm), 2);
        assert!(!is_regular(&blank, LineShape::Libsvm));
    }

    proptest! {
        #[test]
        fn fast_equals_plain(text in "([-1 :\n\t\r,#2x]|qid:){0,300}", repeat in 1usize..3000) {
            let bytes = text.repeat(repeat).into_bytes();
            let cut = bytes.len().min(2 * CHUNK as usize);
            check(&bytes[..cut], LineShape::Libsvm);
            let without = text.replace('#', "").repeat(repeat).into_bytes();
            let cut = without.len().min(2 * CHUNK as usize);
            for shape in [LineShape::Libsvm, LineShape::LibsvmTargets, FIRST, MIDDLE, LAST, NONE] {
                check(&without[..cut], shape);
            }
        }
    }
}
