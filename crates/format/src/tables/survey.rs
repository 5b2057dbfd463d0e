//! What the columns of a table hold: one pass over all records of all files.
//!
//! Threads take runs of records; what they find is put together in the order of the records, so that sums do not
//! depend on the number of threads. Of a record that cannot be read, the cells before the fault count.
//!
//! Memory: up to [`MOST_VALUES`] values of each column, and 4 bytes a record where a column holds weights.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use pelton_storage::{AlignedBuffer, RangeRead, Storage, StorageError};

use crate::error::{FormatError, excerpt};
use crate::format::{Opened, scan_threads};
use crate::formats::delimited::heading::excerpt_of_names;
use crate::options::OpenOptions;
use crate::places::chunks_in_order::scan_in_order;
use crate::rows::scale::COARSE;
use crate::tables::cells::{Cell, Cells};
use crate::tables::coded::places_of;
use crate::tables::dates::Moment;
use crate::tables::kind::ColumnKind;

/// Most values of a column that get a feature each, and bytes of them.
pub(crate) const MOST_VALUES: usize = 10_000;
const MOST_VALUE_BYTES: usize = 4 << 20;
/// About so many bytes of records are read at a time.
const RUN_BYTES: u64 = 1 << 20;

/// What one column holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnFound {
    /// Cells with a value, and without.
    pub(crate) present: u64,
    pub(crate) missing: u64,
    /// Cells that are or spell numbers.
    pub(crate) numbers: u64,
    sum: f64,
    /// Cells that spell dates, with the sum of their years, and those of them with a time other than midnight.
    pub(crate) dates: u64,
    years: f64,
    pub(crate) timed: u64,
    /// Blanks within cells.
    pub(crate) blanks: u64,
    /// The first value that is no number: its record and an excerpt.
    pub(crate) first_text: Option<(u64, String)>,
    /// The values, unless they are too many.
    values: BTreeSet<Box<[u8]>>,
    value_bytes: usize,
    pub(crate) has_too_many: bool,
    /// Whether all numbers are whole, their bounds, and the sum of their squares.
    is_broken: bool,
    bounds: Option<(f64, f64)>,
    squares: f64,
}

impl ColumnFound {
    fn add(&mut self, cell: &Cell<'_>, record: u64, keeps_values: bool) {
        if cell.is_missing() {
            self.missing += 1;
            return;
        }
        self.present += 1;
        match cell.number().filter(|_| !cell.is_text()) {
            Some(value) => {
                self.numbers += 1;
                self.sum += f64::from(value as f32);
                self.is_broken |= value.fract() != 0.0;
                self.squares += value * value;
                let (least, most) = self.bounds.unwrap_or((value, value));
                self.bounds = Some((least.min(value), most.max(value)));
            }
            None => {
                let text = cell.text();
                if self.first_text.is_none() {
                    self.first_text = Some((record, excerpt(&text)));
                }
                self.blanks += memchr::memchr_iter(b' ', &text).count() as u64;
                if let Some(moment) = Moment::parse(&text) {
                    self.dates += 1;
                    self.years += moment.years();
                    self.timed += u64::from(!moment.is_midnight());
                }
            }
        }
        if keeps_values && !self.has_too_many {
            let text = cell.text();
            if !self.values.contains(&*text) {
                self.keep(text.into_owned().into_boxed_slice());
            }
        }
    }

    fn keep(&mut self, value: Box<[u8]>) {
        self.value_bytes += value.len();
        self.values.insert(value);
        if self.values.len() > MOST_VALUES || self.value_bytes > MOST_VALUE_BYTES {
            self.values.clear();
            self.has_too_many = true;
        }
    }

    /// Adds what later records hold.
    fn merge(&mut self, later: ColumnFound) {
        self.present += later.present;
        self.missing += later.missing;
        self.numbers += later.numbers;
        self.sum += later.sum;
        self.dates += later.dates;
        self.years += later.years;
        self.timed += later.timed;
        self.blanks += later.blanks;
        self.squares += later.squares;
        self.is_broken |= later.is_broken;
        self.bounds = match (self.bounds, later.bounds) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        self.first_text = self.first_text.take().or(later.first_text);
        if later.has_too_many {
            self.values.clear();
            self.has_too_many = true;
        }
        for value in later.values {
            if !self.has_too_many && !self.values.contains(&value) {
                self.keep(value);
            }
        }
    }

    /// The mean of the numbers; 0 where there are none.
    pub(crate) fn mean(&self) -> f32 {
        (self.sum / self.numbers.max(1) as f64) as f32
    }

    /// The mean of the dates, in years.
    pub(crate) fn mean_years(&self) -> f32 {
        (self.years / self.dates.max(1) as f64) as f32
    }

    /// The values in order, and the empty one first where cells are missing; `None` where they are too many. Bytes
    /// that are no UTF-8 are replaced.
    pub(crate) fn values(&self) -> Option<Vec<String>> {
        if self.has_too_many {
            return None;
        }
        let missing = (self.missing > 0).then(String::new);
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let all = self.values.iter().map(|value| text(value));
        Some(missing.into_iter().chain(all).collect())
    }

    /// Number of values, where they are few.
    pub(crate) fn distinct(&self) -> Option<usize> {
        (!self.has_too_many).then_some(self.values.len())
    }

    /// Whether its numbers differ by so little, for their size, that 32 bits round the differences away.
    pub(crate) fn is_coarse(&self) -> bool {
        self.bounds.is_some_and(|(least, most)| {
            least < most && least.abs().max(most.abs()) > COARSE * (most - least)
        })
    }

    /// Whether every whole number from the least to the largest occurs once, as numbers of rows do: by their count,
    /// sum and sum of squares.
    pub(crate) fn counts_rows(&self) -> bool {
        const FEW: u64 = 20;
        let Some((least, most)) = self.bounds else {
            return false;
        };
        let n = self.present as f64;
        if self.present < FEW || self.is_broken || self.numbers < self.present {
            return false;
        }
        let sum = n * (least + most) / 2.0;
        let squares = n * ((least + most).powi(2) / 4.0 + (n * n - 1.0) / 12.0);
        let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
        most - least + 1.0 == n && is_near(self.sum, sum) && is_near(self.squares, squares)
    }
}

/// What a table holds.
#[derive(Default)]
pub(crate) struct Survey {
    /// By column of features of the first file.
    pub(crate) columns: Vec<ColumnFound>,
    /// What the user says that they hold.
    pub(crate) kinds: Vec<Option<ColumnKind>>,
    /// The weights of records; NaN where a record has none.
    pub(crate) weights: Vec<f32>,
    /// Records that cannot be read.
    pub(crate) bad: u64,
}

/// What a run of records holds.
#[derive(Default)]
struct Run {
    columns: Vec<ColumnFound>,
    weights: Vec<f32>,
    bad: u64,
}

/// What the user says that each of the columns `names` holds.
///
/// Errors: a column that is not there, or several weights.
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
    for given in &options.column_kinds {
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
            .find(|given| given.is_of(name))
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
    Ok(kinds)
}

/// Reads every record of the tables `opened`.
pub(crate) fn survey(opened: &[Opened], options: &OpenOptions) -> Result<Survey, FormatError> {
    let first = opened[0].shard.decoder.cells().expect("a table");
    let names = first.names();
    let kinds = kinds_of(names, options).map_err(|error| error.in_file(&opened[0].path))?;
    let mut all = Survey {
        columns: vec![ColumnFound::default(); names.len()],
        kinds,
        ..Survey::default()
    };
    // Whether the values of a column are kept; `None` where nothing must be known of it.
    let keeps_values = |kind: &Option<ColumnKind>| match kind {
        None | Some(ColumnKind::Category) => Some(true),
        Some(ColumnKind::Number | ColumnKind::Date) => Some(false),
        Some(_) => None,
    };
    let keeps: Vec<Option<bool>> = all.kinds.iter().map(keeps_values).collect();
    let weight = (all.kinds.iter()).position(|kind| *kind == Some(ColumnKind::Weight));
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
            cells: table,
            places: &places,
            keeps: &keeps,
            weight,
        };
        table.survey(options, &mut all)?;
    }
    Ok(all)
}

struct Table<'a> {
    file: &'a Opened,
    cells: &'a (dyn Cells + 'a),
    /// The column of the first file that each is.
    places: &'a [Option<usize>],
    /// Of which columns of the first file the values are kept; `None` where nothing must be known.
    keeps: &'a [Option<bool>],
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
            columns: vec![ColumnFound::default(); self.keeps.len()],
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
                if let Some(keeps_values) = self.keeps[place] {
                    columns[place].add(&cell, record, keeps_values);
                }
            }
            Ok(())
        });
        if self.weight.is_some() {
            run.weights.push(weight);
        }
        run.bad += u64::from(read.is_err());
        if read.is_ok() && seen < self.keeps.len() {
            self.lacking(record, bytes, columns);
        }
    }

    /// Counts the columns of which the record has no cell.
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

/// Reads `length` bytes at `from`; returns where in the buffer they are.
pub(crate) fn read_span(
    storage: &dyn Storage,
    from: u64,
    length: u64,
    buffer: &mut AlignedBuffer,
) -> Result<Range<usize>, StorageError> {
    let units = storage.granularity();
    let (offset, whole) = units.align_out(from, length).unwrap_or((from, length));
    buffer.resize(whole as usize, 0);
    let mut read = [RangeRead {
        offset,
        buffer: &mut buffer[..],
        filled: 0,
    }];
    storage.read_batch(&mut read)?;
    let skip = (from - offset) as usize;
    Ok(skip..skip + length as usize)
}
