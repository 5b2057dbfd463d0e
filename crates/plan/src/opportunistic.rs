//! Opportunistic order: records are drawn from what one load of the memory holds (DeepIO, Zhu et
//! al., MASCOTS 2018, entropy-aware opportunistic ordering).
//!
//! The units of the data (runs of whole records that are read at once) are put in a random order,
//! that order is cut in `loads` near-equal runs of units, and the records of a run, a *load*, are
//! shuffled fully among themselves. Whoever holds the units of a load in memory can serve all of its
//! positions without reading anything else, and the backend sees each unit once an epoch, whole.
//!
//! DeepIO's servers draw independently of each other from what each has loaded, so that its order is
//! a fact about the machine. Here the loads are part of the plan and know nothing of ranks: any number
//! of ranks agree on them without a message, and a run resumes on another number.
//!
//! A position of the epoch is turned into an id in four steps: its load (search among the loads'
//! first positions), its place among the load's records (the keyed permutation of their number),
//! the unit there and the record in it. When all units but the last have one number of records that
//! is arithmetic; otherwise it takes a table of the epoch, 8 bytes a unit and 4 bytes for a first
//! guess, kept for two epochs so that a look-ahead across their border does not build it again and
//! again. A load also keeps its permutation (80 bytes, and 4 a record for up to 1024 of them).
//! Rejected: storing the shuffled ids of a load (8 bytes a record).

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::groups::Groups;
use crate::permutation::Permutation;
use crate::split::{near_equal_part, near_equal_start};
use crate::units::Units;
use pelton_key::{Stage, key};

/// Ids worked on at a time: their units stay in the first-level cache.
const CHUNK: usize = 256;

/// The same where neighbours are mostly of one unit.
const NEIGHBOURS: usize = 1024;

#[derive(Debug)]
pub(crate) struct Opportunistic {
    seed: u64,
    units: Units,
    loads: u64,
    /// The epochs last asked for, even ones at 0 and odd ones at 1.
    kept: Mutex<[Option<Arc<EpochLoads>>; 2]>,
}

/// One epoch's order of units and records.
#[derive(Debug)]
struct EpochLoads {
    epoch: u64,
    /// Place of a unit → unit.
    unit_order: Permutation,
    starts: UnitStarts,
    /// First position of each load, then the number of records.
    first_position: Vec<u64>,
    record_orders: Box<[OnceLock<Permutation>]>,
}

/// How many records lie before the unit at a place of the epoch's order.
#[derive(Debug)]
enum UnitStarts {
    /// `records_a_unit` in every unit, but for `missing` at the place `short`.
    Even {
        records_a_unit: u64,
        short: u64,
        missing: u64,
    },
    /// First record position of each place, then the number of records; and for each run of
    /// 2^`shift` positions the place that holds its first, then the last place.
    Table {
        first: Vec<u64>,
        guess: Vec<u32>,
        shift: u32,
    },
}

impl Opportunistic {
    /// Asserts `1 <= loads` and, unless there is no unit, `loads <= units`.
    pub(crate) fn new(units: Units, loads: u64, seed: u64) -> Opportunistic {
        assert!((1..=units.len().max(1)).contains(&loads), "{loads} loads");
        Opportunistic {
            seed,
            units,
            loads,
            kept: Mutex::default(),
        }
    }

    pub(crate) fn units(&self) -> &Units {
        &self.units
    }

    pub(crate) fn loads(&self) -> u64 {
        self.loads
    }

    pub(crate) fn fill(&self, epoch: u64, start: u64, mut out: &mut [u64]) {
        let order = self.of_epoch(epoch);
        let mut position = start;
        while !out.is_empty() {
            let load = order.load_at(position);
            let positions = order.positions(load);
            let here = (positions.end - position).min(out.len() as u64) as usize;
            let (run, rest) = out.split_at_mut(here);
            let records = self.record_order(&order, load);
            records.fill(position - positions.start, run);
            self.places_to_ids(&order, positions.start, run);
            position += here as u64;
            out = rest;
        }
    }

    /// Replaces each position by the id there.
    pub(crate) fn ids_of_each(&self, epoch: u64, places: &mut [u64]) {
        let order = self.of_epoch(epoch);
        for place in &mut *places {
            let load = order.load_at(*place);
            let first = order.first_position[load];
            *place = first + self.record_order(&order, load).get(*place - first);
        }
        self.places_to_ids(&order, 0, places);
    }

    /// Replaces each id by its position.
    pub(crate) fn positions_of_each(&self, epoch: u64, places: &mut [u64]) {
        let order = self.of_epoch(epoch);
        let mut groups = Groups::default();
        // Places before each run of neighbours of one unit, and its unit; then the load of each place.
        let (mut starts, mut units) = (Vec::new(), Vec::new());
        let (mut unit_places, mut loads) = (Vec::new(), Vec::new());
        for chunk in places.chunks_mut(NEIGHBOURS) {
            starts.clear();
            units.clear();
            let mut records = 0..0;
            for (at, place) in chunk.iter().enumerate() {
                if !records.contains(place) {
                    let unit = self.units.unit_of(*place);
                    records = self.units.unit_records(unit);
                    starts.push(at);
                    units.push(unit);
                }
            }
            unit_places.clone_from(&units);
            order.unit_order.positions_of_each(&mut unit_places);
            starts.push(chunk.len());
            loads.clear();
            for (run, (&unit, &unit_place)) in units.iter().zip(&unit_places).enumerate() {
                let load = near_equal_part(self.units.len(), self.loads, unit_place) as usize;
                let first = order.starts.start(unit_place) - order.first_position[load];
                let record = self.units.first_record(unit);
                for place in &mut chunk[starts[run]..starts[run + 1]] {
                    *place = first + (*place - record);
                    loads.push(load as u32);
                }
            }
            groups.change(self.loads as usize, &loads, chunk, |load, places| {
                self.record_order(&order, load).positions_of_each(places);
                let first = order.first_position[load];
                places.iter_mut().for_each(|place| *place += first);
            });
        }
    }

    /// The units of a load, by number.
    pub(crate) fn load_units(&self, epoch: u64, load: u64) -> Vec<u64> {
        let places = self.load_places(load);
        let mut units = vec![0; (places.end - places.start) as usize];
        let order = self.of_epoch(epoch);
        order.unit_order.fill(places.start, &mut units);
        units.sort_unstable();
        units
    }

    pub(crate) fn load_positions(&self, epoch: u64, load: u64) -> Range<u64> {
        assert!(load < self.loads, "load {load} of {}", self.loads);
        self.of_epoch(epoch).positions(load as usize)
    }

    pub(crate) fn load_of(&self, epoch: u64, id: u64) -> u64 {
        let unit = self.units.unit_of(id);
        let place = self.unit_order(epoch).position_of(unit);
        near_equal_part(self.units.len(), self.loads, place)
    }

    /// Bytes of two epochs' tables when every load's permutation is in use.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let units = self.units.len();
        let starts = match self.units.records_a_unit() {
            Some(_) => 0,
            None => 12 * (units + 2),
        };
        let orders = self.loads * (size_of::<OnceLock<Permutation>>() as u64 + 8);
        let in_tables = self.loads.saturating_mul(Permutation::TABLE_LIMIT);
        let tables = 4 * in_tables.min(self.units.records());
        self.units.table_bytes() + 2 * (starts + orders + tables)
    }

    /// Replaces the places that follow `first` in the order of whole units by the ids there.
    fn places_to_ids(&self, order: &EpochLoads, first: u64, places: &mut [u64]) {
        let mut units = [0; CHUNK];
        for chunk in places.chunks_mut(CHUNK) {
            let units = &mut units[..chunk.len()];
            order.starts.split_places(first, chunk, units);
            order.unit_order.get_each(units);
            for (place, &unit) in chunk.iter_mut().zip(&*units) {
                *place += self.units.first_record(unit);
            }
        }
    }

    fn load_places(&self, load: u64) -> Range<u64> {
        assert!(load < self.loads, "load {load} of {}", self.loads);
        let edge = |load| near_equal_start(self.units.len(), self.loads, load);
        edge(load)..edge(load + 1)
    }

    fn unit_order(&self, epoch: u64) -> Permutation {
        Permutation::new(self.units.len(), key(self.seed, epoch, Stage::LoadUnits))
    }

    fn record_order<'a>(&self, order: &'a EpochLoads, load: usize) -> &'a Permutation {
        order.record_orders[load].get_or_init(|| {
            let positions = order.positions(load);
            let stage = Stage::LoadRecords(load as u64);
            Permutation::new(
                positions.end - positions.start,
                key(self.seed, order.epoch, stage),
            )
        })
    }

    fn of_epoch(&self, epoch: u64) -> Arc<EpochLoads> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut kept[(epoch % 2) as usize];
        match slot {
            Some(order) if order.epoch == epoch => Arc::clone(order),
            _ => {
                // The old tables go first, so that never more than two epochs' are in memory.
                *slot = None;
                let order = Arc::new(self.order_of(epoch));
                *slot = Some(Arc::clone(&order));
                order
            }
        }
    }

    fn order_of(&self, epoch: u64) -> EpochLoads {
        let unit_order = self.unit_order(epoch);
        let starts = UnitStarts::new(&self.units, &unit_order);
        let first_position = (0..=self.loads)
            .map(|load| starts.start(near_equal_start(self.units.len(), self.loads, load)))
            .collect();
        EpochLoads {
            epoch,
            unit_order,
            starts,
            first_position,
            record_orders: (0..self.loads).map(|_| OnceLock::new()).collect(),
        }
    }
}

impl EpochLoads {
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

    /// Replaces each place of a record, counted from `from` on, by its offset in its unit, and puts
    /// the place of that unit beside it.
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
