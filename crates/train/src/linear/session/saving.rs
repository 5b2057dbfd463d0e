//! A session's checkpoints: written between blocks, and resumed from.

use pelton_data::fetch_rows;
use pelton_fetch::pane_row_bytes;
use pelton_format::RowTable;
use pelton_linear::SavedState;

use super::super::journal::Journal;
use super::super::reading::Reading;
use super::super::resume::{self, Before};
use super::Session;
use crate::checkpoint::{Progress, State};
use crate::error::TrainError;

impl Session<'_> {
    /// Restores a state of this run.
    pub(super) fn restore_descent(
        &mut self,
        before: &Before,
        progress: &Progress,
        state: SavedState<'static>,
    ) -> Result<(), TrainError> {
        resume::check_plan(before, self.task, progress)?;
        self.solver.restore(state)?;
        self.encode_again()?;
        self.cursor = progress.cursor();
        self.in_epoch = progress.in_epoch;
        self.attempt_below = progress.attempt_below;
        Ok(())
    }

    /// Reads the quantised rows again, a share of the budget at a time.
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

    /// Writes a checkpoint unless the last one is of this very state.
    pub(super) fn save(
        &mut self,
        reading: &Reading,
        journal: &mut Journal<'_>,
    ) -> Result<(), TrainError> {
        if self.unsaved {
            self.checkpoint(reading, journal)?;
        }
        Ok(())
    }

    /// Writes a checkpoint.
    pub(super) fn checkpoint(
        &mut self,
        reading: &Reading,
        journal: &mut Journal<'_>,
    ) -> Result<(), TrainError> {
        let state = self.solver.save();
        let progress = Progress {
            cursor_epoch: self.cursor.epoch,
            next: self.cursor.step,
            attempt_below: self.attempt_below,
            access: reading.access(),
            ..Progress::of_descent(&state, self.in_epoch)
        };
        journal.checkpoint(progress, &State::Descent(Box::new(state)))?;
        self.unsaved = false;
        Ok(())
    }
}
