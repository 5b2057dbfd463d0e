//! The plan of a run: which records each step of each epoch uses, in which order.
//!
//! Everything is addressed by (epoch, step) or (epoch, position) and computed on demand:
//!
//! | order | ids of a step | seek |
//! |---|---|---|
//! | sequential, full | one permutation evaluation an id | O(1) |
//! | page | one evaluation a unit | O(1) by step; by position one pass over the units before it |
//! | queue | one draw an id | replay of the epoch, or from a kept cursor |
//! | block | one evaluation an id | O(1) by step |
//! | opportunistic | two evaluations an id | O(log loads); one pass over the units an epoch where they are uneven |
//!
//! Rejected: a stored shuffled index (8 bytes a record and a shuffle before the first batch), and a
//! batch that is not the same on every rank count (resume would then depend on the cluster).

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::batching::{Batching, Cuts};
use crate::blocks::Blocks;
use crate::error::PlanError;
use crate::opportunistic::Opportunistic;
use crate::order::Order;
use crate::permutation::Permutation;
use crate::queue::Queue;
use crate::randomness::Randomness;
use crate::units::Units;
use pelton_key::{GOLDEN_GAMMA, Stage, key, mix};

/// Most records a plan can number.
const MAX_RECORDS: u64 = 1 << 63;

/// Most slots of a shuffle buffer or permuted blocks: their tables have 8 and 24 bytes an entry.
const MAX_TABLE: u64 = 1 << 28;

/// Most loads of an opportunistic order, each of which keeps its permutation.
const MAX_LOADS: u64 = 1 << 24;

/// Which records each step of each epoch uses: a pure function of what it was made from.
///
/// Shared between threads by reference; the small caches inside change speed, never results.
#[derive(Debug)]
pub struct Plan {
    records: u64,
    order: Order,
    batching: Batching,
    seed: u64,
    /// Cuts of the epoch: in records, for `page` in units, for `block` in blocks.
    cuts: Cuts,
    source: Source,
}

/// Units looked up at a time when an epoch is walked.
const UNIT_CHUNK: usize = 256;

/// What an order needs beyond its parameters.
#[derive(Debug)]
enum Source {
    Sequential,
    Full,
    Page {
        units: Units,
        cursor: Mutex<PageCursor>,
    },
    Queue(Queue),
    Block(Blocks),
    Opportunistic(Opportunistic),
}

/// A known pair of places: the record position at which a unit position of an epoch begins.
#[derive(Debug, Clone, Copy, Default)]
struct PageCursor {
    epoch: u64,
    unit_position: u64,
    position: u64,
}

impl Plan {
    /// A plan over the records `0..records`.
    ///
    /// `block` orders take one block a step and do not look at `batching`. A `page` or `opportunistic`
    /// order takes every record for a unit; [`over_units`](Self::over_units) knows how records lie.
    pub fn new(
        records: u64,
        order: Order,
        batching: Batching,
        seed: u64,
    ) -> Result<Plan, PlanError> {
        if records > MAX_RECORDS {
            return Err(PlanError::TooManyRecords { records });
        }
        let mut cuts = Cuts::new(batching, records, 1.0);
        let source = match order {
            Order::Page { unit_bytes } | Order::Opportunistic { unit_bytes, .. } => {
                return Plan::over_units(Units::single(records, unit_bytes), order, batching, seed);
            }
            Order::Sequential => Source::Sequential,
            Order::Full => Source::Full,
            Order::Queue { examples: 0, .. } => return Err(PlanError::EmptyQueue),
            Order::Queue {
                examples,
                initial_shuffle,
            } => {
                check_table(order, examples.min(records), MAX_TABLE)?;
                Source::Queue(Queue::new(records, examples, initial_shuffle, seed))
            }
            Order::Block { blocks, permute } => {
                if blocks == 0 || blocks > records {
                    return Err(PlanError::BlockCount { blocks, records });
                }
                check_table(order, if permute { blocks } else { 0 }, MAX_TABLE)?;
                cuts = Cuts::new(Batching::Batches(blocks), records, 1.0);
                Source::Block(Blocks::new(records, blocks, permute, seed))
            }
        };
        Ok(Plan {
            records,
            order,
            batching,
            seed,
            cuts: cuts?,
            source,
        })
    }

    /// A plan over the records of `units`, for a `page` or `opportunistic` order.
    ///
    /// A batch of a `page` order becomes a fixed number of units: the number of examples asked for divided by the mean
    /// records of a unit, rounded, at least one. The number of examples in a batch then varies a
    /// little, but a step can be sought without a pass over the units, and records that are read
    /// together are used together. Batches of an `opportunistic` order are of examples.
    pub fn over_units(
        units: Units,
        order: Order,
        batching: Batching,
        seed: u64,
    ) -> Result<Plan, PlanError> {
        let (Order::Page { unit_bytes } | Order::Opportunistic { unit_bytes, .. }) = order else {
            return Err(PlanError::UnitsUnused {
                order: order.to_string(),
            });
        };
        if unit_bytes == 0 {
            return Err(PlanError::EmptyUnit);
        }
        let records = units.records();
        if units.unit_bytes() != unit_bytes {
            return Err(PlanError::UnitsMismatch {
                expected_records: records,
                expected_unit_bytes: unit_bytes,
                found_records: records,
                found_unit_bytes: units.unit_bytes(),
            });
        }
        // Whatever is wrong with the batches of records is so with those of units.
        let mut cuts = Cuts::new(batching, records, 1.0)?;
        let source = if let Order::Opportunistic { loads, .. } = order {
            check_table(order, loads, MAX_LOADS)?;
            load_source(units, loads, seed)?
        } else {
            cuts = page_cuts(&units, batching)?;
            page_source(units)
        };
        Ok(Plan {
            records,
            order,
            batching,
            seed,
            cuts,
            source,
        })
    }

    /// The same plan [over](Self::over_units) `units`.
    pub fn with_units(self, units: Units) -> Result<Plan, PlanError> {
        match self.order {
            Order::Page { unit_bytes } | Order::Opportunistic { unit_bytes, .. }
                if units.records() != self.records =>
            {
                Err(PlanError::UnitsMismatch {
                    expected_records: self.records,
                    expected_unit_bytes: unit_bytes,
                    found_records: units.records(),
                    found_unit_bytes: units.unit_bytes(),
                })
            }
            order => Plan::over_units(units, order, self.batching, self.seed),
        }
    }

    /// Records an epoch draws from.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The order.
    pub fn order(&self) -> Order {
        self.order
    }

    /// The batching asked for.
    pub fn batching(&self) -> Batching {
        self.batching
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The units of a `page` or `opportunistic` order.
    pub fn units(&self) -> Option<&Units> {
        match &self.source {
            Source::Page { units, .. } => Some(units),
            Source::Opportunistic(loads) => Some(loads.units()),
            _ => None,
        }
    }

    /// Loads an epoch of an `opportunistic` order is read in.
    pub fn loads(&self) -> Option<u64> {
        match &self.source {
            Source::Opportunistic(loads) => Some(loads.loads()),
            _ => None,
        }
    }

    /// The units that a load of an epoch reads, by number, so that neighbours stand together.
    /// Asserts that the order has [`loads`](Self::loads) and this one.
    pub fn load_units(&self, epoch: u64, load: u64) -> Vec<u64> {
        self.opportunistic().load_units(epoch, load)
    }

    /// The positions of an epoch that a load serves. Loads serve them in turn, the first from 0 on.
    /// Asserts that the order has [`loads`](Self::loads) and this one.
    pub fn load_positions(&self, epoch: u64, load: u64) -> Range<u64> {
        self.opportunistic().load_positions(epoch, load)
    }

    /// The load that reads a record in an epoch. Asserts that the order has [`loads`](Self::loads)
    /// and `id < records`.
    pub fn load_of(&self, epoch: u64, id: u64) -> u64 {
        self.opportunistic().load_of(epoch, id)
    }

    /// Batches an epoch has, the same in every epoch.
    pub fn steps(&self) -> u64 {
        self.cuts.steps()
    }

    /// Examples in the global batch of a step. Asserts `step < steps`.
    pub fn step_len(&self, epoch: u64, step: u64) -> u64 {
        let range = self.cuts.range(step);
        match &self.source {
            Source::Page { units, .. } => {
                let order = self.unit_order(epoch, units);
                range
                    .map(|position| run_len(&units.unit_records(order.get(position))))
                    .sum()
            }
            Source::Block(blocks) => blocks.block_len(blocks.block_of(epoch, step)),
            _ => range.end - range.start,
        }
    }

    /// The most examples of a step, or a little more. A pass over the units of a `page` order.
    pub(crate) fn largest_step(&self) -> u64 {
        match (&self.source, self.order) {
            (Source::Page { units, .. }, _) => {
                let longest = (0..units.len()).map(|unit| run_len(&units.unit_records(unit)));
                let units_a_step = self.cuts.longest();
                longest.max().unwrap_or(0).saturating_mul(units_a_step)
            }
            (_, Order::Block { blocks, .. }) => self.records.div_ceil(blocks),
            _ => self.cuts.longest(),
        }
        .min(self.records)
    }

    /// The positions of the epoch's order that a step covers. O(1), for `page` one pass over the
    /// units before it. Asserts `step < steps`.
    pub fn step_positions(&self, epoch: u64, step: u64) -> Range<u64> {
        match &self.source {
            Source::Page { units, .. } => {
                let range = self.cuts.range(step);
                let start = self.positions_before_unit(epoch, units, range.start);
                start..start + self.step_len(epoch, step)
            }
            Source::Block(blocks) => blocks.step_positions(epoch, step),
            _ => self.cuts.range(step),
        }
    }

    /// Appends the ids of the global batch of a step, in order. Asserts `step < steps`.
    pub fn batch_ids(&self, epoch: u64, step: u64, ids: &mut Vec<u64>) {
        let range = self.cuts.range(step);
        match &self.source {
            Source::Page { units, .. } => {
                let mut unit_ids = vec![0; run_len(&range) as usize];
                self.unit_order(epoch, units)
                    .fill(range.start, &mut unit_ids);
                for unit in unit_ids {
                    ids.extend(units.unit_records(unit));
                }
            }
            Source::Block(blocks) => blocks.append(blocks.block_of(epoch, step), ids),
            _ => {
                let filled = ids.len();
                ids.resize(filled + run_len(&range) as usize, 0);
                self.fill_ids(epoch, range.start, &mut ids[filled..]);
            }
        }
    }

    /// The ids at positions `start..start + out.len()` of an epoch's order, dropped records
    /// included. Asserts that the positions exist.
    pub fn fill_ids(&self, epoch: u64, start: u64, out: &mut [u64]) {
        self.check_run(start, out.len());
        match &self.source {
            _ if out.is_empty() => {}
            Source::Sequential => {
                for (slot, id) in out.iter_mut().zip(start..) {
                    *slot = id;
                }
            }
            Source::Full => self.record_order(epoch).fill(start, out),
            Source::Page { units, cursor } => self.fill_page_ids(epoch, start, out, units, cursor),
            Source::Queue(queue) => queue.fill(epoch, start, out),
            Source::Block(blocks) => blocks.fill(epoch, start, out),
            Source::Opportunistic(loads) => loads.fill(epoch, start, out),
        }
    }

    /// Where `id` stands in an epoch's order; `None` for `page` and `queue`, which cannot be inverted
    /// without a pass over the epoch. Asserts `id < records`.
    pub fn position_of(&self, epoch: u64, id: u64) -> Option<u64> {
        assert!(id < self.records, "record {id} of {}", self.records);
        match &self.source {
            Source::Sequential => Some(id),
            Source::Full => Some(self.record_order(epoch).position_of(id)),
            Source::Block(blocks) => Some(blocks.position_of(epoch, id)),
            Source::Opportunistic(loads) => {
                let mut place = [id];
                loads.positions_of_each(epoch, &mut place);
                Some(place[0])
            }
            Source::Page { .. } | Source::Queue(_) => None,
        }
    }

    /// Whether [`position_of`](Self::position_of) and [`positions_of`](Self::positions_of) answer.
    pub fn is_invertible(&self) -> bool {
        !matches!(self.source, Source::Page { .. } | Source::Queue(_))
    }

    /// The positions of consecutive ids in an epoch's order, `out[i]` that of `ids.start + i`.
    /// Asserts that the order [is invertible](Self::is_invertible), that the ids exist and that
    /// `out` is as long as they are many.
    pub fn positions_of(&self, epoch: u64, ids: Range<u64>, out: &mut [u64]) {
        assert_eq!(run_len(&ids), out.len() as u64, "one place for each id");
        self.check_run(ids.start, out.len());
        match &self.source {
            Source::Sequential => {
                for (slot, id) in out.iter_mut().zip(ids) {
                    *slot = id;
                }
            }
            Source::Full => self.record_order(epoch).fill_positions(ids.start, out),
            Source::Block(blocks) => blocks.fill_positions(epoch, ids.start, out),
            Source::Opportunistic(loads) => {
                for (slot, id) in out.iter_mut().zip(ids) {
                    *slot = id;
                }
                loads.positions_of_each(epoch, out);
            }
            Source::Page { .. } | Source::Queue(_) => panic!("order {} has no inverse", self.order),
        }
    }

    /// Shows every id of an epoch with its position, in runs of consecutive ids.
    /// Asserts that the order [is invertible](Self::is_invertible).
    pub(crate) fn by_number(&self, epoch: u64, mut visit: impl FnMut(&[u64], &[u64])) {
        const RUN: u64 = 1024;
        let (mut ids, mut positions) = ([0; RUN as usize], [0; RUN as usize]);
        for first in (0..self.records).step_by(RUN as usize) {
            let end = self.records.min(first + RUN);
            let len = (end - first) as usize;
            for (slot, id) in ids[..len].iter_mut().zip(first..) {
                *slot = id;
            }
            self.positions_of(epoch, first..end, &mut positions[..len]);
            visit(&ids[..len], &positions[..len]);
        }
    }

    /// Replaces each id by its position in an epoch's order, the ids being in any order. Asserts that
    /// the order [is invertible](Self::is_invertible) and that the ids exist.
    pub fn positions_of_each(&self, epoch: u64, places: &mut [u64]) {
        match &self.source {
            Source::Full => self.record_order(epoch).positions_of_each(places),
            Source::Opportunistic(loads) => loads.positions_of_each(epoch, places),
            _ => {
                for place in places {
                    let position = self.position_of(epoch, *place);
                    *place = position.expect("the order has an inverse");
                }
            }
        }
    }

    /// Replaces each position of an epoch's order by the id there, the positions being in any order.
    /// Asserts that they exist.
    pub fn ids_of_each(&self, epoch: u64, places: &mut [u64]) {
        match &self.source {
            Source::Full => self.record_order(epoch).get_each(places),
            Source::Opportunistic(loads) => loads.ids_of_each(epoch, places),
            _ => {
                for place in places {
                    let position = *place;
                    self.fill_ids(epoch, position, std::slice::from_mut(place));
                }
            }
        }
    }

    /// The fixed block a step uses, by which whatever is kept about a block can be found again;
    /// `None` when batches are not fixed blocks. Asserts `step < steps`.
    pub fn block_of(&self, epoch: u64, step: u64) -> Option<u64> {
        assert!(
            step < self.steps(),
            "step {step} of {} an epoch",
            self.steps()
        );
        match &self.source {
            Source::Sequential => Some(step),
            Source::Block(blocks) => Some(blocks.block_of(epoch, step)),
            _ => None,
        }
    }

    /// Whether the batches have the same members in the same order in every epoch, whatever the
    /// order of the batches.
    pub fn blocks_are_fixed(&self) -> bool {
        matches!(self.order, Order::Sequential | Order::Block { .. })
    }

    /// Whether every epoch has the same batches in the same order.
    pub fn is_same_every_epoch(&self) -> bool {
        matches!(
            self.order,
            Order::Sequential | Order::Block { permute: false, .. }
        )
    }

    /// Memory the plan may come to hold, beyond its own few hundred bytes; part of a reader's budget.
    pub fn memory_bytes(&self) -> u64 {
        match (&self.source, self.order) {
            (Source::Page { units, .. }, _) => units.table_bytes(),
            (Source::Queue(queue), _) => queue.memory_bytes(),
            (Source::Opportunistic(loads), _) => loads.memory_bytes(),
            (
                Source::Block(_),
                Order::Block {
                    blocks,
                    permute: true,
                },
            ) => 24 * blocks,
            _ => 0,
        }
    }

    /// How well the order shuffles.
    pub fn randomness(&self) -> Randomness {
        Randomness::of(self.order, self.records, self.units().map_or(0, Units::len))
    }

    /// A number that two plans share when they give the same sequence by construction; kept in
    /// checkpoints so that a run is not resumed under another plan.
    pub fn fingerprint(&self) -> u64 {
        let (kind, a, b) = match self.order {
            Order::Sequential => (1, 0, 0),
            Order::Full => (2, 0, 0),
            Order::Page { unit_bytes } => (3, unit_bytes, 0),
            Order::Queue {
                examples,
                initial_shuffle,
            } => (4, examples, u64::from(initial_shuffle)),
            Order::Block { blocks, permute } => (5, blocks, u64::from(permute)),
            Order::Opportunistic { loads, unit_bytes } => (6, loads, unit_bytes),
        };
        let (batch_kind, batch) = match self.batching {
            _ if matches!(self.order, Order::Block { .. }) => (0, 0),
            Batching::Examples(examples) => (1, examples),
            Batching::DropLast(examples) => (2, examples),
            Batching::Batches(batches) => (3, batches),
        };
        let units = self.units().map_or(0, Units::fingerprint);
        [
            self.records,
            kind,
            a,
            b,
            batch_kind,
            batch,
            self.seed,
            units,
        ]
        .iter()
        .fold(1, |state, &word| {
            mix(state ^ word).wrapping_mul(GOLDEN_GAMMA).rotate_left(7)
        })
    }

    fn opportunistic(&self) -> &Opportunistic {
        match &self.source {
            Source::Opportunistic(loads) => loads,
            _ => panic!("order {} has no loads", self.order),
        }
    }

    fn record_order(&self, epoch: u64) -> Permutation {
        Permutation::new(self.records, key(self.seed, epoch, Stage::Order))
    }

    fn unit_order(&self, epoch: u64, units: &Units) -> Permutation {
        Permutation::new(units.len(), key(self.seed, epoch, Stage::Order))
    }

    fn check_run(&self, start: u64, count: usize) {
        assert!(
            start <= self.records && count as u64 <= self.records - start,
            "{count} from {start} on, of {} records",
            self.records
        );
    }

    fn positions_before_unit(&self, epoch: u64, units: &Units, unit_position: u64) -> u64 {
        let order = self.unit_order(epoch, units);
        let mut chunk = [0; UNIT_CHUNK];
        let mut positions = 0;
        let mut at = 0;
        while at < unit_position {
            let count = (unit_position - at).min(UNIT_CHUNK as u64);
            order.fill(at, &mut chunk[..count as usize]);
            for &unit in &chunk[..count as usize] {
                positions += run_len(&units.unit_records(unit));
            }
            at += count;
        }
        positions
    }

    /// Walks the units of the epoch from the last known place, or from the start.
    fn fill_page_ids(
        &self,
        epoch: u64,
        start: u64,
        mut out: &mut [u64],
        units: &Units,
        cursor: &Mutex<PageCursor>,
    ) {
        let known = *cursor.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = known.epoch == epoch && known.position <= start;
        let mut at = if usable {
            known
        } else {
            PageCursor {
                epoch,
                ..PageCursor::default()
            }
        };
        let order = self.unit_order(epoch, units);
        let mut chunk = [0; UNIT_CHUNK];
        'epoch: loop {
            let count = (units.len() - at.unit_position).min(chunk.len() as u64) as usize;
            order.fill(at.unit_position, &mut chunk[..count]);
            for &unit in &chunk[..count] {
                let mut records = units.unit_records(unit);
                let end = at.position + run_len(&records);
                if end > start {
                    records.start += start.saturating_sub(at.position);
                    let here = run_len(&records).min(out.len() as u64) as usize;
                    let (run, rest) = out.split_at_mut(here);
                    for (slot, id) in run.iter_mut().zip(records) {
                        *slot = id;
                    }
                    out = rest;
                    if out.is_empty() {
                        break 'epoch;
                    }
                }
                at.position = end;
                at.unit_position += 1;
            }
        }
        *cursor.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
}

fn check_table(order: Order, entries: u64, limit: u64) -> Result<(), PlanError> {
    if entries > limit {
        return Err(PlanError::TableTooLarge {
            order: order.to_string(),
            entries,
            limit,
        });
    }
    Ok(())
}

/// Batches of whole units.
fn page_cuts(units: &Units, batching: Batching) -> Result<Cuts, PlanError> {
    let cuts = Cuts::new(batching, units.len(), 1.0 / units.mean_records());
    cuts.map_err(|error| match error {
        PlanError::TooManyBatches { batches, .. } => PlanError::TooManyUnitBatches {
            batches,
            units: units.len(),
            unit_bytes: units.unit_bytes(),
            records: units.records(),
        },
        other => other,
    })
}

fn page_source(units: Units) -> Source {
    Source::Page {
        units,
        cursor: Mutex::new(PageCursor::default()),
    }
}

fn load_source(units: Units, loads: u64, seed: u64) -> Result<Source, PlanError> {
    if loads == 0 || loads > units.len().max(1) {
        return Err(PlanError::LoadCount {
            loads,
            units: units.len(),
            unit_bytes: units.unit_bytes(),
            records: units.records(),
        });
    }
    if units.records_a_unit().is_none() {
        let order = Order::Opportunistic {
            loads,
            unit_bytes: units.unit_bytes(),
        };
        check_table(order, units.len(), u64::from(u32::MAX))?;
    }
    Ok(Source::Opportunistic(Opportunistic::new(
        units, loads, seed,
    )))
}

fn run_len(range: &Range<u64>) -> u64 {
    range.end - range.start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_batch_is_a_number_of_units() {
        let plan = Plan::new(
            100,
            Order::Page { unit_bytes: 8 },
            Batching::Examples(10),
            0,
        )
        .unwrap();
        let plan = plan.with_units(Units::fixed(100, 2, 8)).unwrap();
        // 25 units of 4 records; 10 examples are 2.5 units, rounded to 3.
        assert_eq!(plan.steps(), 9);
        assert_eq!(plan.step_len(0, 0), 12);
        assert_eq!(plan.step_len(0, 8), 4);
    }

    #[test]
    fn tables_are_accounted_for() {
        let bytes = |records, order: &str| {
            let order = order.parse().unwrap();
            Plan::new(records, order, Batching::Examples(1), 0)
                .unwrap()
                .memory_bytes()
        };
        assert_eq!(bytes(1 << 40, "full"), 0);
        assert_eq!(bytes(1 << 40, "block:40"), 0);
        assert_eq!(bytes(1 << 40, "block:40:permute"), 960);
        assert_eq!(bytes(1 << 40, "queue:1000"), 16_000);
        assert_eq!(bytes(10, "queue:1000"), 160);
    }
}
