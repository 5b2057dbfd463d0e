//! Opportunistic order: records are drawn from one load of the memory at a time (DeepIO, Zhu et al., MASCOTS 2018,
//! entropy-aware opportunistic ordering).
//!
//! The units of the data (runs of whole records that are read at once) are put in a random order,
//! that order is cut in `loads` near-equal runs of units, and the records of a run, a *load*, are
//! shuffled fully among themselves. A process that holds the units of a load in memory can serve all of its positions
//! without reading anything else, and the backend sees each unit once an epoch, whole.
//!
//! DeepIO's servers draw independently of each other from their own loads, so its order depends on the machine. Here
//! the loads are part of the plan and independent of ranks: any number of ranks agree on them without a message, and
//! a run resumes on another number.
//!
//! A position of the epoch is turned into an id in four steps: its load (search among the loads'
//! first positions), its index among the load's records (the keyed permutation of their number), the unit there and
//! the record in it. If all units but the last have the same number of records, that is arithmetic; otherwise it
//! takes a table of the epoch, 8 bytes a unit and 4 bytes for a first guess.
//! Rejected: storing the shuffled ids of a load (8 bytes a record).

use std::ops::Range;
use std::sync::Arc;

use pelton_key::{Stage, key};

use super::Opportunistic;
use crate::error::PlanError;
use crate::ordering::{EpochWalk, Ids, Inverse, Kind, Over, Spread};
use crate::permutation::Permutation;
use crate::randomness::{Randomness, exact_level_of_units, level_of_loads};
use crate::split::{near_equal_part, near_equal_start};
use crate::units::Units;

/// Most loads; a first position is stored for each.
const MOST_LOADS: u64 = 1 << 24;

impl Kind for Opportunistic {
    fn spread(&self) -> Spread {
        Spread::Neighbours
    }

    fn unit_bytes(&self) -> Option<u64> {
        Some(self.unit_bytes)
    }

    fn randomness(&self, records: u64, units: u64) -> Randomness {
        Randomness {
            rl: level_of_loads(units, records, self.loads),
            rl_exact: exact_level_of_units(units, records, self.loads),
        }
    }

    fn over(&self, over: &Over<'_>) -> Result<Box<dyn Ids>, PlanError> {
        let Opportunistic { loads, unit_bytes } = *self;
        let units = over.units(unit_bytes)?;
        over.check_table(loads, MOST_LOADS)?;
        if loads == 0 || loads > units.len().max(1) {
            return Err(PlanError::LoadCount {
                loads,
                units: units.len(),
                unit_bytes,
                records: over.records,
            });
        }
        if units.records_a_unit().is_none() {
            over.check_table(units.len(), u64::from(u32::MAX))?;
        }
        Ok(Box::new(Arc::new(Loads::new(units, loads, over.seed))))
    }
}

/// Ids worked on at a time: their units stay in the first-level cache.
const CHUNK: usize = 256;

#[derive(Debug)]
struct Loads {
    seed: u64,
    units: Units,
    loads: u64,
}

/// One epoch's order of units and records.
#[derive(Debug)]
struct EpochLoads {
    loads: Arc<Loads>,
    epoch: u64,
    /// Position of a unit → unit.
    unit_order: Permutation,
    starts: UnitStarts,
    /// First position of each load, then the number of records.
    first_position: Vec<u64>,
}

/// The order of the records of the load that was looked at last.
type LastLoad = Option<(usize, Permutation)>;

/// The number of records before the unit at a position of the epoch's order.
#[derive(Debug)]
enum UnitStarts {
    /// `records_a_unit` in every unit, less `missing` in the one at position `short`.
    Even {
        records_a_unit: u64,
        short: u64,
        missing: u64,
    },
    /// First record of the unit at each position, then the number of records; and for each run of 2^`shift` records
    /// the position of the unit with its first, then the last position.
    Table {
        first: Vec<u64>,
        guess: Vec<u32>,
        shift: u32,
    },
}

impl Loads {
    /// Asserts `1 <= loads` and, unless there is no unit, `loads <= units`.
    fn new(units: Units, loads: u64, seed: u64) -> Loads {
        assert!((1..=units.len().max(1)).contains(&loads), "{loads} loads");
        Loads { seed, units, loads }
    }

    fn of_epoch(self: &Arc<Self>, epoch: u64) -> EpochLoads {
        let unit_order =
            Permutation::new(self.units.len(), key(self.seed, epoch, Stage::LoadUnits));
        let starts = UnitStarts::new(&self.units, &unit_order);
        let first_position = (0..=self.loads)
            .map(|load| starts.start(near_equal_start(self.units.len(), self.loads, load)))
            .collect();
        EpochLoads {
            loads: Arc::clone(self),
            epoch,
            unit_order,
            starts,
            first_position,
        }
    }
}

impl Ids for Arc<Loads> {
    fn walk(&self, epoch: u64) -> Box<dyn EpochWalk> {
        Box::new(LoadsWalk {
            of_epoch: self.of_epoch(epoch),
            last: None,
        })
    }

    fn inverse(&self, epoch: u64) -> Option<Box<dyn Inverse>> {
        Some(Box::new(self.of_epoch(epoch)))
    }

    fn units(&self) -> Option<&Units> {
        Some(&self.units)
    }

    fn loads(&self) -> Option<u64> {
        Some(self.loads)
    }

    /// Bytes of an epoch's tables.
    fn memory_bytes(&self) -> u64 {
        let starts = match self.units.records_a_unit() {
            Some(_) => 0,
            None => 12 * (self.units.len() + 2),
        };
        self.units.table_bytes() + starts + 8 * (self.loads + 1) + 4 * Permutation::TABLE_LIMIT
    }
}

/// The records of an epoch, with the order of the load that was looked at last.
#[derive(Debug)]
struct LoadsWalk {
    of_epoch: EpochLoads,
    last: LastLoad,
}

impl EpochWalk for LoadsWalk {
    fn fill(&mut self, position: u64, out: &mut [u64]) {
        self.of_epoch.fill(position, out, &mut self.last);
    }
}

impl EpochLoads {
    /// The units of a load, in ascending order, so neighbours are together.
    fn units_of(&self, load: u64) -> Vec<u64> {
        let edge = |load| near_equal_start(self.loads.units.len(), self.loads.loads, load);
        let mut units = vec![0; (edge(load + 1) - edge(load)) as usize];
        self.unit_order.fill(edge(load), &mut units);
        units.sort_unstable();
        units
    }

    fn fill(&self, start: u64, mut out: &mut [u64], last: &mut LastLoad) {
        let mut position = start;
        while !out.is_empty() {
            let load = self.load_at(position);
            let positions = self.positions(load);
            let here = (positions.end - position).min(out.len() as u64) as usize;
            let (run, rest) = out.split_at_mut(here);
            self.record_order(load, last)
                .fill(position - positions.start, run);
            self.places_to_ids(positions.start, run);
            position += here as u64;
            out = rest;
        }
    }

    /// Replaces record positions, counted from `first` in the order of whole units, by the ids there.
    fn places_to_ids(&self, first: u64, places: &mut [u64]) {
        let mut units = [0; CHUNK];
        for chunk in places.chunks_mut(CHUNK) {
            let units = &mut units[..chunk.len()];
            self.starts.split_places(first, chunk, units);
            self.unit_order.get_each(units);
            for (place, &unit) in chunk.iter_mut().zip(&*units) {
                *place += self.loads.units.first_record(unit);
            }
        }
    }

    fn record_order<'a>(&self, load: usize, last: &'a mut LastLoad) -> &'a Permutation {
        let known = last.take().filter(|(known, _)| *known == load);
        let (_, order) = last.insert(known.unwrap_or_else(|| {
            let positions = self.positions(load);
            let key = key(self.loads.seed, self.epoch, Stage::LoadRecords(load as u64));
            (load, Permutation::new(positions.end - positions.start, key))
        }));
        order
    }

    fn positions(&self, load: usize) -> Range<u64> {
        self.first_position[load]..self.first_position[load + 1]
    }

    /// The load that serves a position. Every load has a record, so exactly one does.
    fn load_at(&self, position: u64) -> usize {
        self.first_position
            .partition_point(|&first| first <= position)
            - 1
    }
}

impl Inverse for EpochLoads {
    fn fill(&self, start: u64, out: &mut [u64]) {
        self.fill(start, out, &mut None);
    }

    /// Replaces each position by the id there.
    fn ids_of_each(&self, places: &mut [u64]) {
        let mut last = None;
        for place in &mut *places {
            let load = self.load_at(*place);
            let first = self.first_position[load];
            let order = self.record_order(load, &mut last);
            *place = first + order.get(*place - first);
        }
        self.places_to_ids(0, places);
    }

    /// Replaces each id by its position.
    fn positions_of_each(&self, places: &mut [u64]) {
        let units = &self.loads.units;
        let mut last = None;
        for place in places {
            let unit = units.unit_of(*place);
            let unit_place = self.unit_order.position_of(unit);
            let load = near_equal_part(units.len(), self.loads.loads, unit_place) as usize;
            let first = self.first_position[load];
            let inside =
                self.starts.start(unit_place) - first + (*place - units.first_record(unit));
            *place = first + self.record_order(load, &mut last).position_of(inside);
        }
    }

    fn load_units(&self, load: u64) -> Option<Vec<u64>> {
        (load < self.loads.loads).then(|| self.units_of(load))
    }

    fn load_positions(&self, load: u64) -> Option<Range<u64>> {
        (load < self.loads.loads).then(|| self.positions(load as usize))
    }

    fn load_of(&self, id: u64) -> Option<u64> {
        let place = self.unit_order.position_of(self.loads.units.unit_of(id));
        let units = self.loads.units.len();
        Some(near_equal_part(units, self.loads.loads, place))
    }
}

impl UnitStarts {
    fn new(units: &Units, order: &Permutation) -> UnitStarts {
        match (units.records_a_unit(), units.len().checked_sub(1)) {
            (Some(records_a_unit), Some(last)) => UnitStarts::Even {
                records_a_unit,
                short: order.position_of(last),
                missing: (last + 1) * records_a_unit - units.records(),
            },
            (Some(records_a_unit), None) => UnitStarts::Even {
                records_a_unit,
                short: 0,
                missing: 0,
            },
            (None, _) => UnitStarts::table(units, order),
        }
    }

    fn table(units: &Units, order: &Permutation) -> UnitStarts {
        let mut first = vec![0; units.len() as usize + 1];
        order.fill(0, &mut first[..units.len() as usize]);
        let mut position = 0;
        for place in &mut first[..units.len() as usize] {
            let records = units.unit_records(*place);
            *place = position;
            position += records.end - records.start;
        }
        first[units.len() as usize] = position;
        // A run is at least the mean of a unit, so there are no more runs than units.
        let shift = position
            .div_ceil(units.len().max(1))
            .next_power_of_two()
            .ilog2();
        let mut guess = Vec::with_capacity((position >> shift) as usize + 2);
        for (place, range) in first.windows(2).enumerate() {
            while (guess.len() as u64) << shift < range[1] {
                guess.push(place as u32);
            }
        }
        guess.push(units.len().saturating_sub(1) as u32);
        UnitStarts::Table {
            first,
            guess,
            shift,
        }
    }

    /// Records before the unit at `place`, which may be the number of units.
    fn start(&self, place: u64) -> u64 {
        match self {
            UnitStarts::Even {
                records_a_unit,
                short,
                missing,
            } => place * records_a_unit - if place > *short { *missing } else { 0 },
            UnitStarts::Table { first, .. } => first[place as usize],
        }
    }

    /// Replaces each position of a record, counted from `from`, by its offset in its unit, and puts the position of
    /// that unit into `units`.
    fn split_places(&self, from: u64, records: &mut [u64], units: &mut [u64]) {
        match self {
            UnitStarts::Even {
                records_a_unit,
                short,
                missing,
            } => {
                let short_end = (short + 1) * records_a_unit - missing;
                for (record, unit) in records.iter_mut().zip(units) {
                    let place = from + *record;
                    let whole = place + if place >= short_end { *missing } else { 0 };
                    *unit = whole / records_a_unit;
                    *record = whole % records_a_unit;
                }
            }
            UnitStarts::Table {
                first,
                guess,
                shift,
            } => {
                for (record, unit) in records.iter_mut().zip(units) {
                    let place = from + *record;
                    let run = (place >> shift) as usize;
                    let (low, high) = (guess[run] as usize, guess[run + 1] as usize);
                    let beyond = first[low + 1..=high].partition_point(|&start| start <= place);
                    *unit = (low + beyond) as u64;
                    *record = place - first[low + beyond];
                }
            }
        }
    }
}
