//! The order of one epoch, there and back.

use std::ops::Range;
use std::sync::Arc;

use crate::numbering::Numbering;
use crate::ordering::{Inverse, count_from};
use crate::plan_parts::{Groups, PlanParts};
use crate::runs::Runs;

/// The position of each record in one epoch of an order with an inverse, and the record at each position.
///
/// Making one, once an epoch, costs one pass over the units of an `opportunistic` order, or over the blocks of a
/// permuted one, and nothing otherwise.
#[derive(Debug)]
pub struct EpochOrder {
    plan: Arc<PlanParts>,
    epoch: u64,
    ids: Box<dyn Inverse>,
}

impl EpochOrder {
    pub(crate) fn new(plan: Arc<PlanParts>, epoch: u64) -> Option<EpochOrder> {
        // A record may be anywhere in a list, or not in it.
        if matches!(plan.numbering, Numbering::Listed(_)) {
            return None;
        }
        let ids = plan.sequence.examples.ids.inverse(epoch)?;
        Some(EpochOrder { plan, epoch, ids })
    }

    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The records at positions `start..start + out.len()`. Asserts that they exist.
    pub fn fill(&self, start: u64, out: &mut [u64]) {
        self.check(start, out.len());
        if !out.is_empty() {
            self.ids.fill(start, out);
        }
        self.plan.numbering.to_records(out);
    }

    /// Replaces each position by the record there. Asserts that the positions exist.
    pub fn ids_of_each(&self, places: &mut [u64]) {
        self.ids.ids_of_each(places);
        self.plan.numbering.to_records(places);
    }

    /// The position of a record. Asserts that the order has it.
    pub fn position_of(&self, id: u64) -> u64 {
        let mut place = [id];
        self.positions_of_each(&mut place);
        place[0]
    }

    /// Replaces each record by its position, the records being in any order. Asserts that the order has them.
    pub fn positions_of_each(&self, places: &mut [u64]) {
        match self.plan.numbering.selection() {
            Some(selection) => {
                for place in &mut *places {
                    *place = selection.rank(*place);
                }
            }
            None => {
                let records = self.plan.records;
                let exist = places.iter().all(|&id| id < records);
                assert!(exist, "a record of {records} is outside");
            }
        }
        self.ids.positions_of_each(places);
    }

    /// The positions of neighbouring records, `out[i]` that of `ids.start + i`. Asserts that the order has them.
    pub fn positions_of(&self, ids: Range<u64>, out: &mut [u64]) {
        if self.plan.numbering.selection().is_none() && ids.end <= self.plan.records {
            return self.ids.fill_positions(ids.start, out);
        }
        count_from(ids.start, out);
        self.positions_of_each(out);
    }

    /// The positions that a step covers; `None` if steps are not runs of the order, as with echo or buckets,
    /// or if the epoch has no such step.
    pub fn step_positions(&self, step: u64) -> Option<Range<u64>> {
        let plan = &*self.plan;
        let is_plain = plan.sequence.echo.echo().is_none() && plan.batch_echo.is_none();
        match &plan.groups {
            Groups::Runs(runs) if !is_plain || step >= runs.steps() => None,
            Groups::Runs(Runs::Places(cuts)) => Some(cuts.range(step)),
            Groups::Runs(Runs::Own(_)) => self.ids.step_positions(step),
            Groups::Bucketed(_) | Groups::Packed(_) => None,
        }
    }

    /// The units that a load of an `opportunistic` order reads, in ascending order, so neighbours are
    /// together; `None` if there is no such load.
    pub fn load_units(&self, load: u64) -> Option<Vec<u64>> {
        self.ids.load_units(load)
    }

    /// The positions that a load of an `opportunistic` order serves. Loads serve them in turn, the first from 0 on.
    /// `None` if there is no such load.
    pub fn load_positions(&self, load: u64) -> Option<Range<u64>> {
        self.ids.load_positions(load)
    }

    /// The load of an `opportunistic` order that reads a record. Asserts that the order has the record.
    pub fn load_of(&self, id: u64) -> Option<u64> {
        let selection = self.plan.numbering.selection();
        let number = selection.map_or(id, |selection| selection.rank(id));
        self.ids.load_of(number)
    }

    fn check(&self, start: u64, count: usize) {
        let examples = self.plan.sequence.examples.len;
        assert!(
            start <= examples && count as u64 <= examples - start,
            "{count} from {start} on, of {examples}"
        );
    }
}
