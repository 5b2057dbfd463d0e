//! Page units: runs of whole records that are read as one range.
//!
//! A unit is the shortest run of whole records, from the end of the last unit, that has at least `unit_bytes` bytes;
//! the last unit of the data may be smaller. Units are cut at record boundaries and not at page boundaries, so no
//! record is split between two and none is lost; a unit of u pages touches at most u + 1.
//!
//! Records of one size need only arithmetic; others a table of first records, 4 bytes a unit (8 from 2^32
//! records on), which is negligible per record when records are much smaller than a unit. When each record is a
//! unit there is no table.

use std::ops::Range;

use crate::selection::Selection;
use pelton_key::mix;

/// A cut of the records `0..records` into units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Units {
    records: u64,
    unit_bytes: u64,
    cut: Cut,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Cut {
    /// Every unit has this many records, the last perhaps fewer.
    Even {
        records_a_unit: u64,
    },
    /// First record of each unit, then the number of records.
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Units {
    /// Units of `records` records of `record_bytes` bytes each.
    pub fn fixed(records: u64, record_bytes: u64, unit_bytes: u64) -> Units {
        let records_a_unit = unit_bytes.div_ceil(record_bytes.max(1)).max(1);
        Units {
            records,
            unit_bytes,
            cut: Cut::Even { records_a_unit },
        }
    }

    /// Units of records with these lengths in bytes, in file order.
    pub fn from_lengths(lengths: impl IntoIterator<Item = u64>, unit_bytes: u64) -> Units {
        let mut starts = Starts::default();
        let mut records = 0_u64;
        let mut filled = u64::MAX; // the first record starts a unit
        for length in lengths {
            if filled >= unit_bytes {
                starts.push(records);
                filled = 0;
            }
            filled = filled.saturating_add(length);
            records += 1;
        }
        let cut = starts.finish(records);
        Units {
            records,
            unit_bytes,
            cut,
        }
    }

    /// One record a unit: the default before the lengths are known.
    pub(crate) fn single(records: u64, unit_bytes: u64) -> Units {
        Units {
            records,
            unit_bytes,
            cut: Cut::Even { records_a_unit: 1 },
        }
    }

    /// The same units with the records that a selection keeps, by their numbers; units without one are left
    /// out. The selection is of as many records.
    pub(crate) fn kept(&self, selection: &Selection) -> Units {
        let mut starts = Starts::default();
        let mut before = 0;
        for unit in 0..self.len() {
            let end = selection.rank(self.unit_records(unit).end);
            if end > before {
                starts.push(before);
            }
            before = end;
        }
        Units {
            records: before,
            unit_bytes: self.unit_bytes,
            cut: starts.finish(before),
        }
    }

    /// Records covered.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The size units were cut for.
    pub fn unit_bytes(&self) -> u64 {
        self.unit_bytes
    }

    /// Number of units.
    pub fn len(&self) -> u64 {
        match &self.cut {
            Cut::Even { records_a_unit } => self.records.div_ceil(*records_a_unit),
            Cut::Narrow(starts) => starts.len() as u64 - 1,
            Cut::Wide(starts) => starts.len() as u64 - 1,
        }
    }

    /// Whether there is no unit, as when there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The records of a unit. Asserts `unit < len`.
    pub fn unit_records(&self, unit: u64) -> Range<u64> {
        assert!(unit < self.len(), "unit {unit} of {}", self.len());
        let index = unit as usize;
        match &self.cut {
            Cut::Even { records_a_unit } => {
                let first = unit * records_a_unit;
                first..self.records.min(first.saturating_add(*records_a_unit))
            }
            Cut::Narrow(starts) => u64::from(starts[index])..u64::from(starts[index + 1]),
            Cut::Wide(starts) => starts[index]..starts[index + 1],
        }
    }

    /// The first record of a unit. Asserts that the unit exists.
    pub(crate) fn first_record(&self, unit: u64) -> u64 {
        match &self.cut {
            Cut::Even { records_a_unit } => unit * records_a_unit,
            Cut::Narrow(starts) => u64::from(starts[unit as usize]),
            Cut::Wide(starts) => starts[unit as usize],
        }
    }

    /// The unit of a record: arithmetic, or a search in the table. Asserts `record < records`.
    pub fn unit_of(&self, record: u64) -> u64 {
        assert!(record < self.records, "record {record} of {}", self.records);
        let after = match &self.cut {
            Cut::Even { records_a_unit } => return record / records_a_unit,
            Cut::Narrow(starts) => starts.partition_point(|&start| u64::from(start) <= record),
            Cut::Wide(starts) => starts.partition_point(|&start| start <= record),
        };
        after as u64 - 1
    }

    /// Records in every unit but the last, which may have fewer, if all have the same number.
    pub(crate) fn records_a_unit(&self) -> Option<u64> {
        match &self.cut {
            Cut::Even { records_a_unit } => Some(*records_a_unit),
            _ => None,
        }
    }

    /// Mean number of records in a unit; 1 when there are none.
    pub fn mean_records(&self) -> f64 {
        if self.is_empty() {
            1.0
        } else {
            self.records as f64 / self.len() as f64
        }
    }

    /// Memory the table takes.
    pub fn table_bytes(&self) -> u64 {
        match &self.cut {
            Cut::Even { .. } => 0,
            Cut::Narrow(starts) => 4 * starts.capacity() as u64,
            Cut::Wide(starts) => 8 * starts.capacity() as u64,
        }
    }

    /// A number that changes with any change of the cut.
    pub(crate) fn fingerprint(&self) -> u64 {
        let state = mix(mix(self.records ^ 0x55AA) ^ self.unit_bytes);
        let fold = |state: u64, start: u64| mix(state.rotate_left(5) ^ start);
        match &self.cut {
            Cut::Even { records_a_unit } => fold(state, *records_a_unit),
            Cut::Narrow(starts) => starts
                .iter()
                .fold(state, |s, &start| fold(s, u64::from(start))),
            Cut::Wide(starts) => starts.iter().fold(state, |s, &start| fold(s, start)),
        }
    }
}

/// Starts under construction: narrow until a start no longer fits.
#[derive(Default)]
struct Starts {
    narrow: Vec<u32>,
    wide: Vec<u64>,
}

impl Starts {
    fn push(&mut self, start: u64) {
        match u32::try_from(start) {
            Ok(start) if self.wide.is_empty() => self.narrow.push(start),
            _ => {
                if self.wide.is_empty() {
                    self.wide = std::mem::take(&mut self.narrow)
                        .into_iter()
                        .map(u64::from)
                        .collect();
                }
                self.wide.push(start);
            }
        }
    }

    fn finish(mut self, records: u64) -> Cut {
        let units = (self.narrow.len() + self.wide.len()) as u64;
        if units == records {
            return Cut::Even { records_a_unit: 1 };
        }
        self.push(records);
        if self.wide.is_empty() {
            self.narrow.shrink_to_fit();
            Cut::Narrow(self.narrow)
        } else {
            self.wide.shrink_to_fit();
            Cut::Wide(self.wide)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(units: &Units) -> Vec<Range<u64>> {
        for record in 0..units.records() {
            let unit = units.unit_of(record);
            assert!(units.unit_records(unit).contains(&record));
            assert_eq!(units.first_record(unit), units.unit_records(unit).start);
        }
        (0..units.len())
            .map(|unit| units.unit_records(unit))
            .collect()
    }

    #[test]
    fn units_are_the_shortest_runs_that_reach_the_size() {
        let units = Units::from_lengths([10, 10, 10, 40, 5, 30, 1], 20);
        assert_eq!(cut(&units), [0..2, 2..4, 4..6, 6..7]);
        assert_eq!(units.records(), 7);
        assert_eq!(units.mean_records(), 1.75);
    }

    #[test]
    fn equal_lengths_cut_as_the_arithmetic_does() {
        for records in 0..40 {
            for record_bytes in 1..12 {
                for unit_bytes in 1..30 {
                    let fixed = Units::fixed(records, record_bytes, unit_bytes);
                    let lengths = (0..records).map(|_| record_bytes);
                    let listed = Units::from_lengths(lengths, unit_bytes);
                    assert_eq!(cut(&fixed), cut(&listed));
                }
            }
        }
    }

    #[test]
    fn records_as_large_as_units_need_no_table() {
        assert_eq!(
            Units::from_lengths([5000, 4096, 9000], 4096).table_bytes(),
            0
        );
        assert_eq!(
            Units::from_lengths([5000, 4000, 9000], 4096).table_bytes(),
            4 * 3
        );
    }

    #[test]
    fn empty_records_and_no_records_are_fine() {
        assert_eq!(Units::from_lengths([0, 0, 0], 4).unit_records(0), 0..3);
        assert!(Units::from_lengths([], 4).is_empty());
        assert!(Units::fixed(0, 0, 4).is_empty());
        assert_eq!(Units::fixed(3, 0, 4).unit_records(0), 0..3);
    }

    #[test]
    fn starts_beyond_32_bits_widen_the_table() {
        let mut starts = Starts::default();
        for start in [0, 7, 1 << 32, (1 << 32) + 9] {
            starts.push(start);
        }
        let cut = starts.finish((1 << 32) + 20);
        assert_eq!(
            cut,
            Cut::Wide(vec![0, 7, 1 << 32, (1 << 32) + 9, (1 << 32) + 20])
        );
    }
}
