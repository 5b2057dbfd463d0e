//! A session's checkpoints: written between blocks, and gone on from.

use std::time::Instant;

use pelton_comm::Alike;
use pelton_data::fetch_rows;
use pelton_fetch::pane_row_bytes;
use pelton_format::RowTable;
use pelton_linear::SavedState;
use pelton_run::{Event, Observer, RunFolder};

use super::super::resume::{self, Before, digest_of};
use super::super::source::Source;
use super::Session;
use crate::checkpoint::{self, Progress, State};
use crate::error::TrainError;

impl Session<'_> {
    /// Goes on from the checkpoint of the run before; without one the run begins anew.
    ///
    /// Errors: a checkpoint that is damaged or of another run. Nothing in the folder is changed.
    pub fn resume(&mut self, before: &Before, observer: Observer<'_>) -> Result<(), TrainError> {
        let Some((progress, state)) = resume::read(before, self.config, self.setup, observer)?
        else {
            return Ok(());
        };
        let State::Descent(mut state) = state else {
            return Err(resume::other_solver(before));
        };
        let wrong = |problem: &str| before.wrong(problem);
        if progress.blocks == 1 && !self.setup.in_core && progress.ranks != self.ranks.size() as u64
        {
            return Err(wrong(&self.setup.whole_does_not_fit(self.ranks.size())));
        }
        if progress.plan != self.setup.plan.fingerprint() {
            return Err(wrong(
                "is of another order, seed, memory budget or number of blocks",
            ));
        }
        if let Some(part) = resume::beyond_plan(self.setup, &progress) {
            return Err(wrong(&format!(
                "says that {part}, which this run cannot have reached"
            )));
        }
        let dataset = &self.setup.data.dataset;
        let (rank, owner) = (self.ranks.rank(), self.ranks.owner(dataset));
        if let Some(bound) = state.bound.as_mut().filter(|_| rank > 0) {
            // Rank 0 goes on with the sums of all.
            bound.to_mut().clear();
        }
        self.solver.restore(*state, &|id| owner(id) == rank)?;
        self.encode_again()?;
        self.cursor = progress.cursor();
        self.in_epoch = progress.in_epoch;
        self.earlier_wall_s = progress.wall_s;
        self.earlier = progress.totals;
        self.epochs = progress.epochs;
        self.attempt_below = progress.attempt_below;
        observer(Event::Note(&format!(
            "going on from epoch {}, block {}",
            self.cursor.epoch + 1,
            self.cursor.step + 1
        )));
        Ok(())
    }

    /// Where the run begins, which all ranks have alike.
    pub fn place(&self) -> Alike {
        let weights = self.solver.weights();
        let vectors = (0..weights.subproblems()).map(|k| weights.vector(k));
        Alike::default()
            .with("the next epoch", self.cursor.epoch)
            .with("the next block", self.cursor.step)
            .with_digest("weights with the fingerprint", digest_of(vectors))
    }

    /// Reads the rows that are kept as codes anew, a share of the budget at a time.
    fn encode_again(&mut self) -> Result<(), TrainError> {
        let dataset = &self.setup.data.dataset;
        let rows = self.setup.memory_bytes / (8 * pane_row_bytes(dataset));
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
    pub(super) fn save_is_cheap(&self) -> Result<bool, TrainError> {
        const BYTES_A_SECOND: f64 = 5e8;
        const MOST_SHARE: f64 = 0.03;
        let cost = self.solver.saved_bytes() as f64 / BYTES_A_SECOND;
        let cheap = cost <= MOST_SHARE * self.checkpointed.elapsed().as_secs_f64();
        self.ranks.any(cheap && self.ranks.rank() == 0)
    }

    /// Writes a checkpoint unless the last one is of this very state.
    pub(super) fn save(&mut self, source: &Source, folder: &RunFolder) -> Result<(), TrainError> {
        if self.unsaved {
            self.checkpoint(source, folder)?;
        }
        Ok(())
    }

    /// Writes a checkpoint: rank 0 does, of the state of all.
    pub(super) fn checkpoint(
        &mut self,
        source: &Source,
        folder: &RunFolder,
    ) -> Result<(), TrainError> {
        let owner = self.ranks.owner(&self.setup.data.dataset);
        let solver = &self.solver;
        let state = self.ranks.together(|peers| solver.save(&owner, peers))?;
        let traffic = self.ranks.traffic()?;
        if folder.is_written() {
            self.write_checkpoint(state, traffic, source, folder)?;
        }
        self.checkpointed = Instant::now();
        self.unsaved = false;
        Ok(())
    }

    fn write_checkpoint(
        &self,
        state: SavedState<'_>,
        traffic: (u64, f64),
        source: &Source,
        folder: &RunFolder,
    ) -> Result<(), TrainError> {
        let mut totals = self.totals();
        totals.communication_bytes += traffic.0;
        totals.communication_s += traffic.1;
        let progress = Progress {
            version: 0,
            checksum: 0,
            data: self.setup.data.dataset.fingerprint(),
            plan: self.setup.plan.fingerprint(),
            ranks: self.ranks.size() as u64,
            blocks: self.setup.plan.steps(0),
            numbered: self.setup.numbering.is_some(),
            scale: self.config.scale,
            packed: self.setup.packed,
            cursor_epoch: self.cursor.epoch,
            next: self.cursor.step,
            epoch: state.epoch,
            in_epoch: self.in_epoch,
            reads_all: state.reads_all,
            gap: state.gap,
            counters: state.counters,
            mean_blocks: state.mean_blocks,
            snapshot_rows: state.snapshot_rows,
            bound_additions: state.bound.as_ref().map_or(0, |bound| bound.additions),
            attempt_below: self.attempt_below,
            wall_s: self.earlier_wall_s + self.began.elapsed().as_secs_f64(),
            totals,
            access: source.access(),
            epochs: self.epochs.clone(),
        };
        let path = resume::checkpoint_path(folder.path());
        checkpoint::write(&path, &progress, &State::Descent(Box::new(state)))?;
        let (epoch, block) = (progress.epoch, progress.next);
        tracing::debug!(path = %path.display(), epoch, block, "checkpoint written");
        Ok(())
    }
}
