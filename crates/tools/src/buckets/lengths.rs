//! Lengths from a file: of its lines, or numbers in one of its columns.
//!
//! Reads the file once through a small buffer, so lines may have any length. Memory: four bytes per length.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::atomic::Ordering;

use pelton_data::DataError;
use pelton_run::Interrupt;
use pelton_text::{LineLength, LineLengths};

use super::column::{Column, unreadable, whole, wrong};
use super::npy_lengths;

/// The lengths in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LengthSource {
    /// A line is a sentence; its length is its number of units plus one for the end.
    Lines(Unit),
    /// A row is a sentence, with its length in a column of CSV, TSV, plain numbers or `.npy`.
    Column(Column),
}

pelton_key::names! {
    /// The unit of lengths.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Unit: "a unit" {
        /// Runs of bytes without white space.
        #[default]
        Words = "words",
        /// Bytes, without the end of the line.
        Bytes = "bytes",
    }
}

/// Rows between checks for interruption.
const INTERRUPT_EVERY: usize = 1 << 16;

/// The longest line of a table; a longer one is not a row of numbers.
const MOST_ROW_BYTES: usize = 1 << 20;

/// The length of each sentence of a file, in order.
///
/// Errors: a file that cannot be read, a length that is not an integer below 2^32, an interruption.
pub fn read_lengths(
    path: &Path,
    source: &LengthSource,
    interrupt: &Interrupt,
) -> Result<Vec<u32>, DataError> {
    let file = pelton_storage::open_file(path).map_err(|error| unreadable(path, &error))?;
    let is_file = file.metadata().is_ok_and(|metadata| !metadata.is_dir());
    if !is_file {
        return Err(wrong(path, "is a folder; name one file of sentences"));
    }
    let mut reader = BufReader::with_capacity(1 << 18, file);
    lengths_of(path, &mut reader, source, interrupt)
}

/// The length of each sentence of a file that is open; `path` is named in errors.
pub(crate) fn lengths_of(
    path: &Path,
    reader: &mut impl BufRead,
    source: &LengthSource,
    interrupt: &Interrupt,
) -> Result<Vec<u32>, DataError> {
    let mut lengths = Vec::new();
    let mut push = |length: u32| {
        lengths.push(length);
        let is_due = lengths.len() % INTERRUPT_EVERY == 0;
        if is_due && interrupt.load(Ordering::Relaxed) {
            Err(DataError::Stopped {
                job: "reading lengths",
            })
        } else {
            Ok(())
        }
    };
    match source {
        LengthSource::Lines(unit) => lines(path, reader, *unit, &mut push)?,
        LengthSource::Column(column) => {
            let start = reader
                .fill_buf()
                .map_err(|error| unreadable(path, &error))?;
            if start.starts_with(npy_lengths::MAGIC) {
                npy_lengths::column(path, reader, column, &mut push)?;
            } else {
                rows(path, reader, column, &mut push)?;
            }
        }
    }
    Ok(lengths)
}

/// Counts the units of each line without storing it.
fn lines(
    path: &Path,
    reader: &mut impl BufRead,
    unit: Unit,
    push: &mut impl FnMut(u32) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let mut lines = LineLengths::default();
    let mut number = 0_u64;
    // Units and one for the end of the sentence.
    let mut push_line = |line: LineLength| {
        number += 1;
        let units = match unit {
            Unit::Words => line.words,
            Unit::Bytes => line.bytes,
        };
        push(u32::try_from(units + 1).map_err(|_| too_long(path, number))?)
    };
    loop {
        let bytes = reader
            .fill_buf()
            .map_err(|error| unreadable(path, &error))?;
        if bytes.is_empty() {
            break;
        }
        lines.push(bytes, &mut push_line)?;
        let read = bytes.len();
        reader.consume(read);
    }
    // The last line may lack its end.
    lines.finish().map_or(Ok(()), push_line)
}

/// Reads a column of text. The first line may name the columns.
fn rows(
    path: &Path,
    reader: &mut impl BufRead,
    column: &Column,
    push: &mut impl FnMut(u32) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let mut row = Vec::new();
    let mut place = match column {
        Column::Position(position) => Some(position - 1),
        Column::Name(_) => None,
    };
    for number in 1_u64.. {
        row.clear();
        let mut limited = std::io::Read::take(&mut *reader, MOST_ROW_BYTES as u64);
        let read = limited.read_until(b'\n', &mut row);
        if read.map_err(|error| unreadable(path, &error))? == 0 {
            break;
        }
        if row.len() == MOST_ROW_BYTES {
            let problem = format!(
                "line {number} is longer than {MOST_ROW_BYTES} bytes, so this is not a table; leave `column` out \
                 to count the words of lines"
            );
            return Err(wrong(path, &problem));
        }
        let text = String::from_utf8_lossy(&row);
        let cells = cells(text.trim_end_matches(['\n', '\r']));
        if cells.iter().all(|cell| cell.is_empty()) {
            continue;
        }
        let (Some(at), true) = (place, number > 1 || !names(&cells, place)) else {
            place = Some(position(path, column, &cells)?);
            continue;
        };
        push(cell(path, number, at, &cells)?)?;
    }
    Ok(())
}

/// Whether the first line names columns: its cell in the requested column is not a number.
fn names(cells: &[&str], place: Option<usize>) -> bool {
    let cell = place.and_then(|place| cells.get(place));
    cell.is_none_or(|cell| cell.parse::<f64>().is_err())
}

/// The cells of a line: separated by tabs, commas or semicolons (the first that occurs), without quotes.
fn cells(line: &str) -> Vec<&str> {
    let delimiter = line
        .chars()
        .find(|c| ['\t', ',', ';'].contains(c))
        .unwrap_or(',');
    let mut in_quotes = false;
    line.split(move |c| {
        in_quotes ^= c == '"';
        c == delimiter && !in_quotes
    })
    .map(|cell| cell.trim().trim_matches('"').trim())
    .collect()
}

/// The position of the column by the first line.
fn position(path: &Path, column: &Column, cells: &[&str]) -> Result<usize, DataError> {
    match column {
        Column::Position(position) if *position <= cells.len() => Ok(position - 1),
        Column::Position(position) => Err(wrong(
            path,
            &format!("has {} columns, so there is no column {position}", cells.len()),
        )),
        Column::Name(name) => cells.iter().position(|cell| cell == name).ok_or_else(|| {
            let first = cells.iter().take(8).copied().collect::<Vec<_>>().join(", ");
            wrong(
                path,
                &format!("has no column '{name}' in its first line ({first}); name one of these or a position"),
            )
        }),
    }
}

fn cell(path: &Path, line: u64, place: usize, cells: &[&str]) -> Result<u32, DataError> {
    let Some(cell) = cells.get(place) else {
        let problem = format!(
            "line {line} has {} columns, so there is no column {}; repair the line or name another column",
            cells.len(),
            place + 1
        );
        return Err(wrong(path, &problem));
    };
    // 12.0 is valid too: tables written from floating point contain it.
    let number = cell.parse::<f64>().ok().and_then(whole);
    number.ok_or_else(|| {
        let shown: String = cell.chars().take(40).collect();
        let problem = format!(
            "line {line}: '{shown}' is not a length; lengths are whole numbers from 0 to 4294967295"
        );
        wrong(path, &problem)
    })
}

fn too_long(path: &Path, line: u64) -> DataError {
    wrong(
        path,
        &format!("line {line} has 2^32 units or more; split it into sentences"),
    )
}
