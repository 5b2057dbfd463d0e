//! Statistics of the columns of a table: one pass over all records of all files.
//!
//! Threads take runs of records; their results are merged in the order of the records, so that sums do not depend on
//! the number of threads. If a record cannot be read, its cells before the fault count.
//!
//! Memory: up to `MOST_VALUES` values of each column, and 4 bytes a record if a column holds weights.

use crate::locate::span::read_span;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use pelton_batch::Cross;
use pelton_storage::AlignedBuffer;

use crate::locate::format::{Opened, scan_threads};
use crate::locate::places::chunks_in_order::scan_in_order;
use crate::locate::table::Cells;
use crate::record::cells::column_kind::{ColumnKind, NamedKind};
use crate::record::cells::heading::excerpt_of_names;
use crate::record::error::FormatError;
use crate::record::options::OpenOptions;
use crate::text::tables::coded::places_of;
use crate::text::tables::column_found::{ColumnFound, Wanted};

/// Bytes of records read at a time, about.
const RUN_BYTES: u64 = 1 << 20;

/// Statistics of a table.
#[derive(Default)]
pub(crate) struct Survey {
    /// By column of features of the first file.
    pub(crate) columns: Vec<ColumnFound>,
    /// Their kinds, if the user gives them.
    pub(crate) kinds: Vec<Option<ColumnKind>>,
    /// Columns that are hashed together: as the user names them, with their indices and the binary logarithm of the
    /// number of features.
    pub(crate) crosses: Vec<(String, Cross)>,
    /// The weights of records; NaN if a record has none.
    pub(crate) weights: Vec<f32>,
    /// Records that cannot be read.
    pub(crate) bad: u64,
}

/// Statistics of a run of records.
#[derive(Default)]
struct Run {
    columns: Vec<ColumnFound>,
    weights: Vec<f32>,
    bad: u64,
}

/// The kinds that the user gives to the columns `names`.
///
/// Errors: a column that does not exist, or several columns of weights or offsets.
fn kinds_of(
    names: &[String],
    options: &OpenOptions,
) -> Result<Vec<Option<ColumnKind>>, FormatError> {
    let mut seen = HashSet::new();
    if let Some(twice) = names.iter().find(|name| !seen.insert(name.as_str())) {
        return Err(FormatError::new(format!(
            "has several columns named {twice:?}; give each a name of its own"
        )));
    }
    let is_cross = |given: &NamedKind| matches!(given.kind, ColumnKind::Cross(_));
    for given in options.column_kinds.iter().filter(|given| !is_cross(given)) {
        let is_label = given.kind == ColumnKind::Label;
        if !is_label && !names.iter().any(|name| given.is_of(name)) {
            return Err(FormatError::new(format!(
                "`column` {given}: there is no such column among those of features, {}",
                excerpt_of_names(names)
            )));
        }
    }
    // The last one counts, so that exceptions can follow a `*`.
    let kind = |name: &String| {
        let mut given = options.column_kinds.iter().rev();
        given
            .find(|given| !is_cross(given) && given.is_of(name))
            .map(|given| given.kind)
    };
    let kinds: Vec<Option<ColumnKind>> = names.iter().map(kind).collect();
    if kinds
        .iter()
        .filter(|kind| **kind == Some(ColumnKind::Weight))
        .count()
        > 1
    {
        return Err(FormatError::new(
            "`column` names several columns of weights; name one",
        ));
    }
    let is_offset =
        |kind: &Option<ColumnKind>| matches!(kind, Some(ColumnKind::Offset | ColumnKind::Exposure));
    let offsets: Vec<&str> = (names.iter().zip(&kinds))
        .filter(|(_, kind)| is_offset(kind))
        .map(|(name, _)| name.as_str())
        .collect();
    if let [first, second, ..] = offsets[..] {
        return Err(FormatError::new(format!(
            "`column` names several offsets or exposures, {first} and {second}; name one, such as their sum or product"
        )));
    }
    Ok(kinds)
}

/// The crosses that the user names, as indices of `names`.
///
/// Names may contain `:`, so the parts are looked up among the names. Errors: the parts are missing, can be read as
/// different columns, or include weights.
fn crosses_of(
    names: &[String],
    kinds: &[Option<ColumnKind>],
    given: &[NamedKind],
) -> Result<Vec<(String, Cross)>, FormatError> {
    let known: HashMap<&str, usize> = names.iter().map(String::as_str).zip(0..).collect();
    let mut crosses: Vec<(String, Cross)> = Vec::new();
    for given in given {
        let ColumnKind::Cross(bits) = given.kind else {
            continue;
        };
        let mut found = Vec::new();
        readings(&given.column, &known, &mut Vec::new(), &mut found);
        let wrong = |what: &str| FormatError::new(format!("`column` {given}: {what}"));
        let columns = match found.len() {
            0 => {
                return Err(wrong(&format!(
                    "a cross is of several different columns of features, as in a:b=cross; they are {}",
                    excerpt_of_names(names)
                )));
            }
            1 => found.swap_remove(0),
            _ => {
                return Err(wrong(
                    "because names contain `:` it can be read as different columns; rename one of them",
                ));
            }
        };
        let is_weight = |at: &&usize| kinds[**at] == Some(ColumnKind::Weight);
        if let Some(at) = columns.iter().find(is_weight) {
            let what = format!("column {} holds weights; cross other columns", names[*at]);
            return Err(wrong(&what));
        }
        // The last one counts.
        crosses.retain(|(_, cross)| cross.columns != columns);
        crosses.push((given.column.clone(), Cross { columns, bits }));
    }
    Ok(crosses)
}

/// Adds to `found` how `text` divides into different names, two or more with those `before`; stops at two readings.
fn readings(
    text: &str,
    known: &HashMap<&str, usize>,
    before: &mut Vec<usize>,
    found: &mut Vec<Vec<usize>>,
) {
    let ends = text.match_indices(':').map(|(at, _)| at);
    for end in ends.chain([text.len()]) {
        let Some(at) = known.get(&text[..end]).filter(|at| !before.contains(at)) else {
            continue;
        };
        if found.len() > 1 {
            return;
        }
        before.push(*at);
        if end < text.len() {
            readings(&text[end + 1..], known, before, found);
        } else if before.len() > 1 {
            found.push(before.clone());
        }
        before.pop();
    }
}

/// Reads every record of the tables `opened`.
pub(crate) fn survey(opened: &[Opened], options: &OpenOptions) -> Result<Survey, FormatError> {
    let first = opened[0].shard.decoder.cells().expect("a table");
    let names = first.names();
    let kinds = kinds_of(names, options).map_err(|error| error.in_file(&opened[0].path))?;
    let crosses = crosses_of(names, &kinds, &options.column_kinds)
        .map_err(|error| error.in_file(&opened[0].path))?;
    let mut all = Survey {
        columns: vec![ColumnFound::default(); names.len()],
        crosses,
        kinds,
        ..Survey::default()
    };
    let wanted = |kind: &Option<ColumnKind>| match kind {
        None | Some(ColumnKind::Category) => Some(Wanted::Values),
        Some(ColumnKind::Number | ColumnKind::Date) => Some(Wanted::Sums),
        Some(ColumnKind::Log1p) => Some(Wanted::Logs),
        Some(ColumnKind::Bins(_)) => Some(Wanted::Sample),
        Some(_) => None,
    };
    let wanted: Vec<Option<Wanted>> = all.kinds.iter().map(wanted).collect();
    let weight = (all.kinds.iter()).position(|kind| *kind == Some(ColumnKind::Weight));
    let mut records = 0;
    for file in opened {
        let table = file.shard.decoder.cells().expect("a table");
        let places = places_of(
            table.names(),
            names.iter().map(String::as_str),
            &opened[0].path,
        )
        .map_err(|error| error.in_file(&file.path))?;
        let table = Table {
            file,
            first: records,
            cells: table,
            places: &places,
            wanted: &wanted,
            weight,
        };
        table.survey(options, &mut all)?;
        records += file.shard.records;
    }
    Ok(all)
}

struct Table<'a> {
    file: &'a Opened,
    /// Records of the files before.
    first: u64,
    cells: &'a (dyn Cells + 'a),
    /// The index in the first file of each column, if wanted.
    places: &'a [Option<usize>],
    /// The statistics that each column of the first file needs, if any.
    wanted: &'a [Option<Wanted>],
    weight: Option<usize>,
}

impl Table<'_> {
    fn survey(&self, options: &OpenOptions, all: &mut Survey) -> Result<(), FormatError> {
        let (records, bytes) = (self.file.shard.records, self.file.shard.bytes);
        let mean = (bytes / records.max(1)).max(1);
        let run = (RUN_BYTES / mean).max(1);
        let runs = records.div_ceil(run);
        let scan = |buffer: &mut AlignedBuffer, number: u64, _: Run| {
            options.check_interrupt()?;
            let range = number * run..records.min((number + 1) * run);
            self.run(range, buffer)
        };
        let merge = |_: u64, run: &mut Run| {
            let run = std::mem::take(run);
            for (column, found) in all.columns.iter_mut().zip(run.columns) {
                column.merge(found);
            }
            all.weights.extend(run.weights);
            all.bad += run.bad;
            true
        };
        let buffer = || AlignedBuffer::with_capacity(4096, 0);
        let done = scan_in_order(runs, scan_threads(options), buffer, scan, merge);
        done.map_err(|error: FormatError| error.in_file(&self.file.path))
    }

    fn run(&self, range: Range<u64>, buffer: &mut AlignedBuffer) -> Result<Run, FormatError> {
        let mut run = Run {
            columns: vec![ColumnFound::default(); self.wanted.len()],
            ..Run::default()
        };
        let places = &self.file.shard.places;
        let (from, _) = places.get(range.start);
        let (last, length) = places.get(range.end - 1);
        let span = read_span(&*self.file.storage, from, last + length - from, buffer)?;
        for record in range {
            let (at, length) = places.get(record);
            let begin = span.start + (at - from) as usize;
            let bytes = &buffer[begin..begin + length as usize];
            self.record(record, bytes, &mut run);
        }
        Ok(run)
    }

    fn record(&self, record: u64, bytes: &[u8], run: &mut Run) {
        let (mut weight, mut seen) = (f32::NAN, 0);
        let columns = &mut run.columns;
        let read = self.cells.read(record, bytes, &mut |column, cell| {
            if let Some(place) = self.places[column] {
                seen += 1;
                if Some(place) == self.weight {
                    weight = cell.number().map_or(f32::NAN, |value| value as f32);
                }
                if let Some(wanted) = self.wanted[place] {
                    columns[place].add(&cell, (record, self.first + record), wanted);
                }
            }
            Ok(())
        });
        if self.weight.is_some() {
            run.weights.push(weight);
        }
        run.bad += u64::from(read.is_err());
        if read.is_ok() && seen < self.wanted.len() {
            self.lacking(record, bytes, columns);
        }
    }

    /// Counts a missing cell in each column that the record lacks.
    #[cold]
    fn lacking(&self, record: u64, bytes: &[u8], columns: &mut [ColumnFound]) {
        let mut seen = vec![false; columns.len()];
        let _ = self.cells.read(record, bytes, &mut |column, _| {
            if let Some(place) = self.places[column] {
                seen[place] = true;
            }
            Ok(())
        });
        for (column, _) in columns.iter_mut().zip(seen).filter(|(_, seen)| !seen) {
            column.missing += 1;
        }
    }
}
