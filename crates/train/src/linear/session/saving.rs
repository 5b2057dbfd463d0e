//! A session's checkpoints: written between blocks, and gone on from.

use pelton_data::fetch_rows;
use pelton_fetch::pane_row_bytes;
use pelton_format::RowTable;
use pelton_linear::SavedState;

use super::super::journal::Journal;
use super::super::resume::{self, Before};
use super::super::source::Source;
use super::Session;
use crate::checkpoint::{Progress, State};
use crate::error::TrainError;

impl Session<'_> {
    /// Restores a state that is of this very run.
    pub(super) fn restore(
        &mut self,
        before: &Before,
        progress: &Progress,
        state: SavedState<'static>,
    ) -> Result<(), TrainError> {
        let (task, ranks) = (self.task, self.task.ranks);
        let wrong = |problem: &str| before.wrong(problem);
        if progress.blocks == 1
            && !task.division.budget.in_core
            && progress.ranks != ranks.size() as u64
        {
            return Err(wrong(&resume::whole_does_not_fit(task)));
        }
        if progress.plan != task.division.plan.fingerprint() {
            return Err(wrong(
                "is of another order, seed, memory budget or number of blocks",
            ));
        }
        if let Some(part) = resume::beyond_plan(task.division.plan.steps(0), progress) {
            return Err(wrong(&format!(
                "says that {part}, which this run cannot have reached"
            )));
        }
        self.solver.restore(state)?;
        self.encode_again()?;
        self.cursor = progress.cursor();
        self.in_epoch = progress.in_epoch;
        self.attempt_below = progress.attempt_below;
        Ok(())
    }

    /// Reads the rows that are kept as codes again, a share of the budget at a time.
    fn encode_again(&mut self) -> Result<(), TrainError> {
        let dataset = &self.task.rows.data.dataset;
        let rows = self.task.division.budget.bytes / (8 * pane_row_bytes(dataset));
        let ids = self.solver.coded_ids().to_vec();
        let mut first = 0;
        for ids in ids.chunks(rows.max(1) as usize) {
            let rows = RowTable::from_rows(fetch_rows(dataset, ids)?, ids.to_vec());
            self.solver.encode_again(first, &rows);
            first += ids.len();
        }
        Ok(())
    }

    /// Whether, by the clock of rank 0, a checkpoint at the end of this epoch costs little beside the time since the last.
    pub(super) fn save_is_cheap(&self, journal: &Journal<'_>) -> Result<bool, TrainError> {
        const BYTES_A_SECOND: f64 = 5e8;
        const MOST_SHARE: f64 = 0.03;
        let cost = self.solver.saved_bytes() as f64 / BYTES_A_SECOND;
        let cheap = cost <= MOST_SHARE * journal.unsaved_s();
        self.task.ranks.any(cheap && self.task.ranks.rank() == 0)
    }

    /// Writes a checkpoint unless the last one is of this very state.
    pub(super) fn save(
        &mut self,
        source: &Source,
        journal: &mut Journal<'_>,
    ) -> Result<(), TrainError> {
        if self.unsaved {
            self.checkpoint(source, journal)?;
        }
        Ok(())
    }

    /// Writes a checkpoint of the state of all ranks.
    pub(super) fn checkpoint(
        &mut self,
        source: &Source,
        journal: &mut Journal<'_>,
    ) -> Result<(), TrainError> {
        let plan = &self.task.division.plan;
        let state = self.solver.save();
        let progress = Progress {
            plan: plan.fingerprint(),
            blocks: plan.steps(0),
            cursor_epoch: self.cursor.epoch,
            next: self.cursor.next,
            epoch: state.epoch,
            in_epoch: self.in_epoch,
            reads_all: state.reads_all,
            gap: state.gap,
            counters: state.counters,
            mean_blocks: state.mean_blocks,
            snapshot_rows: state.snapshot_rows,
            bound_additions: state.bound.as_ref().map_or(0, |bound| bound.additions),
            attempt_below: self.attempt_below,
            access: source.access(),
            ..Progress::default()
        };
        journal.checkpoint(progress, &State::Descent(Box::new(state)))?;
        self.unsaved = false;
        Ok(())
    }
}
