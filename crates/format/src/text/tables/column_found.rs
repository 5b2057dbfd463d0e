//! Statistics of one column of a table: counts of its cells by kind, and its values.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use pelton_batch::Slashes;
use pelton_key::mix;

use crate::locate::table::Cell;
use crate::record::cells::column_kind::ColumnKind;
use crate::record::error::excerpt;
use crate::record::numbers::written_number::WrittenNumber;
use crate::record::rows::scale::COARSE;
use crate::text::tables::dates::Moment;

/// Most values of a column that get a feature each, and bytes of them.
pub(crate) const MOST_VALUES: usize = 10_000;
const MOST_VALUE_BYTES: usize = 4 << 20;

/// Statistics of one column.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnFound {
    /// Cells with a value, and without.
    pub(crate) present: u64,
    pub(crate) missing: u64,
    /// Cells that mean a missing value in columns of numbers and dates, and their texts.
    marks: u64,
    mark_values: BTreeSet<Box<[u8]>>,
    /// Cells that are or spell numbers.
    pub(crate) numbers: u64,
    /// Strings of digits only, and cells with thousands or a unit, with the first of these.
    digits: u64,
    pub(crate) written: u64,
    pub(crate) first_written: Option<String>,
    unit: Option<&'static str>,
    units_differ: bool,
    /// All cells that are numbers of some kind, and their sum.
    summed: u64,
    sum: f64,
    /// Cells that spell dates if slashes have the day first, and if they have the month first.
    by_day: DatesFound,
    by_month: DatesFound,
    /// Whether one of them is a date only with slashes.
    has_slashes: bool,
    /// Blanks within cells.
    pub(crate) blanks: u64,
    /// The first value that is not a number: its record and an excerpt.
    pub(crate) first_text: Option<(u64, String)>,
    /// The values, unless they are too many.
    values: BTreeSet<Box<[u8]>>,
    value_bytes: usize,
    pub(crate) has_too_many: bool,
    /// Whether some number is not whole, the bounds of the numbers, and the sum of their squares.
    is_broken: bool,
    bounds: Option<(f64, f64)>,
    squares: f64,
    /// The number minus the index of its record: for the first number, and whether it differs for others.
    lead: Option<f64>,
    is_shuffled: bool,
    sample: Sample,
}

/// The statistics that a column needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Counts and sums.
    Sums,
    /// The same, with sums of sign(x) ln(1 + |x|).
    Logs,
    /// The values, too.
    Values,
    /// A sample of the numbers, too.
    Sample,
}

/// sign(x) ln(1 + |x|).
pub(crate) fn log1p(x: f64) -> f64 {
    libm::log1p(x.abs()).copysign(x)
}

/// A sample of the numbers: those of records with a hash of their index that ends in at least `level` zero bits.
/// `level` is the least that leaves at most `MOST`, so the sample depends neither on threads nor on how runs are
/// merged.
#[derive(Clone, Debug, Default)]
struct Sample {
    level: u32,
    /// Zero bits of the hash, and the number.
    drawn: Vec<(u32, f64)>,
}

impl Sample {
    const MOST: usize = 1 << 16;

    fn add(&mut self, zeros: u32, value: f64) {
        if zeros < self.level {
            return;
        }
        self.drawn.push((zeros, value));
        while self.drawn.len() > Sample::MOST && self.level < u64::BITS {
            self.raise(self.level + 1);
        }
    }

    fn raise(&mut self, level: u32) {
        self.level = level;
        self.drawn.retain(|(zeros, _)| *zeros >= level);
    }

    fn merge(&mut self, later: Sample) {
        if later.level > self.level {
            self.raise(later.level);
        }
        for (zeros, value) in later.drawn {
            self.add(zeros, value);
        }
    }
}

/// Dates of a column, in one order of day and month.
#[derive(Clone, Copy, Debug, Default)]
struct DatesFound {
    count: u64,
    /// The sum of their years.
    years: f64,
    /// Those with a time other than midnight.
    timed: u64,
}

impl DatesFound {
    fn add(&mut self, moment: Option<Moment>) {
        if let Some(moment) = moment {
            self.count += 1;
            self.years += moment.years();
            self.timed += u64::from(!moment.is_midnight());
        }
    }

    fn merge(&mut self, later: DatesFound) {
        self.count += later.count;
        self.years += later.years;
        self.timed += later.timed;
    }
}

impl ColumnFound {
    /// Adds a cell of the record with index `index` in its file and `record` among all files.
    pub(crate) fn add(&mut self, cell: &Cell<'_>, (index, record): (u64, u64), wanted: Wanted) {
        let keeps_values = wanted == Wanted::Values;
        if cell.is_missing() {
            self.missing += 1;
            return;
        }
        if cell.is_missing_number() {
            self.marks += 1;
            if keeps_values {
                self.mark_values.insert(cell.text().into_owned().into());
            }
            return;
        }
        self.present += 1;
        let plain = cell.plain_number();
        let is_plain = plain.is_some() && !cell.is_text();
        let written = if is_plain { None } else { cell.written() };
        if let Some(value) = plain.or(written.map(|written| written.value)) {
            if wanted == Wanted::Sample {
                self.sample.add(mix(record).trailing_zeros(), value);
            }
            let is_log = wanted == Wanted::Logs;
            self.add_number(if is_log { log1p(value) } else { value }, record);
        }
        if is_plain {
            self.numbers += 1;
        } else {
            self.add_text(&cell.text(), index, written);
        }
        if keeps_values && !self.has_too_many {
            let text = cell.text();
            if !self.values.contains(&*text) {
                self.keep(text.into_owned().into_boxed_slice());
            }
        }
    }

    fn add_number(&mut self, value: f64, record: u64) {
        self.summed += 1;
        self.sum += f64::from(value as f32);
        self.is_broken |= value.fract() != 0.0;
        self.squares += value * value;
        let (least, most) = self.bounds.unwrap_or((value, value));
        self.bounds = Some((least.min(value), most.max(value)));
        let lead = value - record as f64;
        self.is_shuffled |= *self.lead.get_or_insert(lead) != lead;
    }

    fn add_text(&mut self, text: &[u8], index: u64, written: Option<WrittenNumber>) {
        if self.first_text.is_none() {
            self.first_text = Some((index, excerpt(text)));
        }
        self.blanks += memchr::memchr_iter(b' ', text).count() as u64;
        if let Some(written) = written {
            if written.is_plain {
                self.digits += 1;
            } else {
                self.written += 1;
                self.first_written.get_or_insert_with(|| excerpt(text));
            }
            self.add_unit(written.unit);
        } else if let Some(moment) = Moment::parse(text, Slashes::Refused) {
            self.by_day.add(Some(moment));
            self.by_month.add(Some(moment));
        } else if text.contains(&b'/') {
            let (day, month) = (self.by_day.count, self.by_month.count);
            self.by_day.add(Moment::parse(text, Slashes::DayFirst));
            self.by_month.add(Moment::parse(text, Slashes::MonthFirst));
            self.has_slashes |= (day, month) != (self.by_day.count, self.by_month.count);
        }
    }

    fn add_unit(&mut self, unit: Option<&'static str>) {
        if let Some(unit) = unit {
            self.units_differ |= *self.unit.get_or_insert(unit) != unit;
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

    /// Merges the statistics of later records.
    pub(crate) fn merge(&mut self, later: ColumnFound) {
        self.present += later.present;
        self.missing += later.missing;
        self.marks += later.marks;
        self.mark_values.extend(later.mark_values);
        self.numbers += later.numbers;
        self.digits += later.digits;
        self.written += later.written;
        self.first_written = self.first_written.take().or(later.first_written);
        self.add_unit(later.unit);
        self.units_differ |= later.units_differ;
        self.summed += later.summed;
        self.sum += later.sum;
        self.by_day.merge(later.by_day);
        self.by_month.merge(later.by_month);
        self.has_slashes |= later.has_slashes;
        if let Some(lead) = later.lead {
            self.is_shuffled |= later.is_shuffled || *self.lead.get_or_insert(lead) != lead;
        }
        self.sample.merge(later.sample);
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

    /// The mean of the numbers; 0 without numbers.
    pub(crate) fn mean(&self) -> f32 {
        (self.sum / self.summed.max(1) as f64) as f32
    }

    /// The lower bounds of all but the first of `bins` intervals with about equally many numbers; fewer if one number
    /// is frequent.
    pub(crate) fn edges(&self, bins: u32) -> Vec<f64> {
        let mut sorted: Vec<f64> = self.sample.drawn.iter().map(|(_, value)| *value).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let Some(&least) = sorted.first() else {
            return Vec::new();
        };
        let bins = bins as usize;
        let mut edges: Vec<f64> = (1..bins).map(|k| sorted[k * sorted.len() / bins]).collect();
        edges.dedup();
        edges.retain(|edge| *edge > least);
        edges
    }

    /// Whether every cell is a plain number.
    pub(crate) fn is_plain(&self) -> bool {
        self.missing == 0 && self.marks == 0 && self.numbers == self.present
    }

    /// Whether at least half of the cells are numbers, without different units, so that others are bad cells rather
    /// than [codes](ColumnFound::are_codes).
    pub(crate) fn are_mostly_numbers(&self) -> bool {
        2 * self.numbers >= self.present && !self.units_differ && !self.are_codes()
    }

    /// Whether the cells are a few recurring names, mostly whole numbers: 135, 136 and 136A.
    fn are_codes(&self) -> bool {
        let others = self.present - self.numbers;
        let recur = |distinct: usize| 3 * distinct as u64 <= self.present;
        others > 1 && !self.is_broken && self.distinct().is_some_and(recur)
    }

    /// Whether it is a column of numbers with thousands or a unit, or of strings that are numbers except for a few
    /// marks of missing values.
    pub(crate) fn is_written(&self) -> bool {
        let is_known = self.written > 0 || self.marks > 0 && self.digits > 0;
        is_known && !self.units_differ && self.numbers + self.digits + self.written == self.present
    }

    /// How its dates are read: in the order of day and month that fits more cells.
    pub(crate) fn slashes(&self) -> Slashes {
        match self.by_day.count.cmp(&self.by_month.count) {
            Ordering::Greater => Slashes::DayFirst,
            Ordering::Less => Slashes::MonthFirst,
            Ordering::Equal => Slashes::Refused,
        }
    }

    /// Whether every cell is a date that is read in one order alone.
    pub(crate) fn are_dates(&self) -> bool {
        self.by_day.count.max(self.by_month.count) == self.present && !self.is_ambiguous()
    }

    /// Whether every cell is a date, and some may begin with the day or with the month.
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.has_slashes
            && [self.by_day, self.by_month]
                .iter()
                .all(|found| found.count == self.present)
    }

    /// The mean of its dates in years since 1970, rounded to hours so that text holds it exactly; and whether some have
    /// a time.
    pub(crate) fn dates(&self, slashes: Slashes) -> (f64, bool) {
        const PARTS: f64 = 1024.0;
        let found = match slashes {
            Slashes::Refused | Slashes::DayFirst => self.by_day,
            Slashes::MonthFirst => self.by_month,
        };
        let mean = found.years / found.count.max(1) as f64;
        ((mean * PARTS).round() / PARTS, found.timed > 0)
    }

    /// Counts the marks of missing values as missing in columns of numbers and dates and in columns that are left out,
    /// and as values elsewhere.
    pub(crate) fn settle_marks(&mut self, kind: ColumnKind) {
        let (marks, values) = (
            std::mem::take(&mut self.marks),
            std::mem::take(&mut self.mark_values),
        );
        if matches!(
            kind,
            ColumnKind::Number
                | ColumnKind::Log1p
                | ColumnKind::Bins(_)
                | ColumnKind::Date
                | ColumnKind::Offset
                | ColumnKind::Exposure
                | ColumnKind::Ignore
        ) {
            self.missing += marks;
            return;
        }
        self.present += marks;
        for value in values {
            if !self.has_too_many && !self.values.contains(&value) {
                self.keep(value);
            }
        }
    }

    /// Whether no cell has a value.
    pub(crate) fn has_none(&self) -> bool {
        self.present == 0
    }

    /// Whether all cells have the same value.
    pub(crate) fn is_constant(&self) -> bool {
        self.missing + self.marks == 0 && self.distinct() == Some(1)
    }

    /// The values in order, with an empty one first if cells are missing; `None` if they are too many.
    pub(crate) fn values(&self) -> Option<Vec<String>> {
        if self.has_too_many {
            return None;
        }
        let missing = (self.missing > 0).then(String::new);
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let all = self.values.iter().map(|value| text(value));
        Some(missing.into_iter().chain(all).collect())
    }

    /// How many different values; `None` if too many to count.
    pub(crate) fn distinct(&self) -> Option<usize> {
        (!self.has_too_many).then_some(self.values.len())
    }

    /// Whether its numbers differ by so little, for their size, that 32 bits round the differences away.
    pub(crate) fn is_coarse(&self) -> bool {
        self.bounds.is_some_and(|(least, most)| {
            least < most && least.abs().max(most.abs()) > COARSE * (most - least)
        })
    }

    /// Whether the numbers count the records in order, from 0 or 1 on.
    pub(crate) fn counts_in_order(&self) -> bool {
        !self.is_shuffled && self.lead.is_some_and(|lead| lead == 0.0 || lead == 1.0)
    }

    /// Whether every whole number from the least to the largest occurs once, as row numbers do; checks their count, sum
    /// and sum of squares.
    pub(crate) fn counts_rows(&self) -> bool {
        const FEW: u64 = 20;
        let Some((least, most)) = self.bounds else {
            return false;
        };
        let n = self.present as f64;
        if self.present < FEW || self.is_broken || self.numbers < self.present || self.marks > 0 {
            return false;
        }
        let sum = n * (least + most) / 2.0;
        let squares = n * ((least + most).powi(2) / 4.0 + (n * n - 1.0) / 12.0);
        let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
        most - least + 1.0 == n && is_near(self.sum, sum) && is_near(self.squares, squares)
    }
}
