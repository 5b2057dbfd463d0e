//! The records of a run: the figures of its epochs, reported to the observer and written to the folder, and
//! its checkpoints.

use std::sync::Arc;
use std::time::Instant;

use pelton_data::{DataError, summed};
use pelton_fetch::Meters;
use pelton_format::{ContentSum, Dataset};
use pelton_linear::{Certificate, Precision, Weights};
use pelton_run::{EpochRecord, Event, EventWriter, Observer, RunFolder, Set};

use super::ranks::{Agreed, Ranks};
use super::resume::{KEPT, STATE};
use crate::checkpoint::{self, Progress, State, Totals};
use crate::config::Solver;
use crate::error::TrainError;

/// A solution.
pub(super) struct Solved {
    pub weights: Weights,
    pub certificate: Certificate,
    /// Share of the training examples that it predicts right.
    pub accuracy: f64,
    /// The solver that found it.
    pub solver: Solver,
    /// How precise the weights of each subproblem are, without a penalty.
    pub precision: Option<Vec<Precision>>,
}

/// The solution, and how training read rows to find it.
pub(super) struct Found {
    pub solved: Solved,
    /// How rows were read.
    pub access: String,
    /// Meters of this rank's reading.
    pub meters: Meters,
    /// Advice for easier training.
    pub advice: Option<String>,
}

/// The solution and the records of the run.
pub(super) struct Trained {
    pub found: Found,
    pub epochs: Vec<EpochRecord>,
    pub totals: Totals,
    pub wall_s: f64,
    pub ranks: u64,
}

/// The journal of one session, from a start or a checkpoint to its end.
pub(super) struct Journal<'a> {
    folder: &'a mut RunFolder,
    observer: Observer<'a>,
    ranks: Ranks<'a>,
    records: u64,
    /// The optimum for relative differences.
    pub optimum: Option<f64>,
    began: Instant,
    earlier_wall_s: f64,
    checkpointed: Instant,
    /// The common part of every checkpoint.
    pub heading: Progress,
    pub epochs: Vec<EpochRecord>,
    /// Work of sessions before this one and of passes, and the rows and visits of epochs.
    pub done: Totals,
    /// Work of all ranks since this session began, as last agreed.
    work: Totals,
    at_epoch_start: Totals,
    events: Option<EventWriter>,
    /// The data, if it is in files.
    pub data: Option<Arc<Dataset>>,
    /// Content sum of its records in the first whole epoch, on all ranks.
    first: Option<ContentSum>,
    /// Content sum of this epoch so far, on this rank.
    so_far: Option<ContentSum>,
}

impl<'a> Journal<'a> {
    /// For a run over this many records from the start.
    pub fn new(
        folder: &'a mut RunFolder,
        observer: Observer<'a>,
        ranks: Ranks<'a>,
        records: u64,
        began: Instant,
    ) -> Journal<'a> {
        Journal {
            folder,
            observer,
            ranks,
            records,
            optimum: None,
            began,
            earlier_wall_s: 0.0,
            checkpointed: Instant::now(),
            heading: Progress::default(),
            epochs: Vec::new(),
            done: Totals::default(),
            work: Totals::default(),
            at_epoch_start: Totals::default(),
            events: None,
            data: None,
            first: None,
            so_far: Some(ContentSum::default()),
        }
    }

    /// Takes over the figures of the sessions before.
    pub fn resume(&mut self, progress: Progress, is_scaled: bool) {
        self.earlier_wall_s = progress.wall_s;
        self.done = self.done.plus(&progress.totals);
        self.epochs = progress.epochs;
        // Means of features are added up rank by rank, so the last bits of scaled rows depend on the number of ranks.
        let is_same = progress.ranks == self.heading.ranks || !is_scaled;
        self.first = progress.first.filter(|_| is_same);
        let so_far = progress.so_far.filter(|_| is_same);
        self.so_far = so_far.map(|so_far| match self.ranks.rank() {
            0 => so_far,
            _ => ContentSum::default(),
        });
    }

    /// Adds the content sum of rows of this rank.
    pub fn see(&mut self, content: ContentSum) {
        if let Some(so_far) = &mut self.so_far {
            *so_far += content;
        }
    }

    /// Ends an epoch of the data: compares its content sum with that of the first epoch. All ranks call it.
    ///
    /// Errors: different contents of the same records.
    pub fn end_content(&mut self) -> Result<(), TrainError> {
        let whole = self.so_far.replace(ContentSum::default());
        let Some(whole) = summed(whole, self.ranks.0)? else {
            return Ok(());
        };
        let first = *self.first.get_or_insert(whole);
        match &self.data {
            Some(data) if first.contradicts(whole) => {
                Err(DataError::from(data.other_content()).into())
            }
            _ => Ok(()),
        }
    }

    /// Deletes the lines of metrics of epochs that will be trained again.
    pub fn keep_metrics(&mut self) -> Result<(), TrainError> {
        Ok(self.folder.keep_metrics(self.epochs.len())?)
    }

    pub fn progress(&mut self, what: &str, done: u64, total: u64) {
        (self.observer)(Event::Progress { what, done, total });
    }

    pub fn note(&mut self, text: &str) {
        (self.observer)(Event::Note(text));
    }

    /// Agrees with the other ranks on what to do now, and adds up the work of all.
    pub fn agree(
        &mut self,
        interrupted: bool,
        due: bool,
        work: Totals,
    ) -> Result<Agreed, TrainError> {
        let agreed = self.ranks.agree(interrupted, due, work)?;
        self.work = agreed.totals;
        Ok(agreed)
    }

    /// The figures of the epoch that ends, computed from the work of all ranks; begins the next epoch.
    pub fn end_epoch(&mut self, visits: u64, rows: u64) -> EpochRecord {
        let (now, before) = (self.work, self.at_epoch_start);
        self.at_epoch_start = now;
        self.done.visits += visits;
        self.done.rows += rows;
        EpochRecord {
            epoch: self.epochs.len() as u64 + 1,
            visits,
            rows,
            rows_left_out: self.records.saturating_sub(rows),
            wait_s: now.wait_s - before.wait_s,
            compute_s: now.compute_s - before.compute_s,
            read_bytes: now.read_bytes - before.read_bytes,
            used_bytes: now.used_bytes - before.used_bytes,
            ..EpochRecord::default()
        }
    }

    /// Records an epoch: notifies the observer, and writes a line of metrics. TensorBoard events that cannot
    /// be written are left out: `metrics.jsonl` has it.
    pub fn record(&mut self, record: EpochRecord) -> Result<(), TrainError> {
        let record = EpochRecord {
            relative_difference: self.optimum.map(|best| (record.primal - best) / best),
            passes: self.passes(),
            wall_s: self.wall_s(),
            ..record
        };
        (self.observer)(Event::Epoch(&record));
        self.folder.append_metrics(&record)?;
        if self.folder.is_written() && self.events.is_none() {
            self.events = EventWriter::create(self.folder.path(), record.epoch).ok();
        }
        if let Some(events) = &mut self.events {
            let mut values = vec![
                ("objective/primal", record.primal),
                ("objective/dual", record.dual),
                ("convergence/relative_gap", record.relative_gap),
                ("progress/passes", record.passes),
                ("time/wait_s", record.wait_s),
                ("time/compute_s", record.compute_s),
            ];
            if let Some(difference) = record.relative_difference {
                values.push(("convergence/relative_difference", difference));
            }
            let _ = events.scalars(record.epoch, &values);
        }
        self.epochs.push(record);
        Ok(())
    }

    /// Whether there are files to write.
    pub fn is_written(&self) -> bool {
        self.folder.is_written()
    }

    /// Whether a checkpoint of this many bytes costs little compared with the time since the last.
    pub fn is_cheap(&self, bytes: u64) -> bool {
        const BYTES_A_SECOND: f64 = 5e8;
        const MOST_SHARE: f64 = 0.03;
        bytes as f64 / BYTES_A_SECOND <= MOST_SHARE * self.unsaved_s()
    }

    /// Seconds since the last checkpoint.
    pub fn unsaved_s(&self) -> f64 {
        self.checkpointed.elapsed().as_secs_f64()
    }

    /// Writes a checkpoint on rank 0: the state of all ranks, the progress of the method, and the figures so far.
    pub fn checkpoint(&mut self, method: Progress, state: &State<'_>) -> Result<(), TrainError> {
        let totals = self.totals()?;
        let so_far = summed(self.so_far, self.ranks.0)?;
        if self.folder.is_written() {
            let heading = &self.heading;
            let progress = Progress {
                data: heading.data,
                files: heading.files,
                first: self.first,
                so_far,
                plan: heading.plan,
                blocks: heading.blocks,
                ranks: heading.ranks,
                numbered: heading.numbered,
                packed: heading.packed,
                wall_s: self.wall_s(),
                epochs: self.epochs.clone(),
                totals,
                ..method
            };
            let (number, mut files) = self.folder.begin(Set::Checkpoint)?;
            files.retain(|name, _| name == KEPT);
            let name = format!("{STATE}-{number}.safetensors");
            let path = self.folder.path().join(&name);
            let (text, tensors) = checkpoint::parts(&progress, state);
            let entry = self.folder.write_checkpoint(&name, &text, tensors)?;
            files.insert(name, entry);
            self.folder.commit(Set::Checkpoint, number, files)?;
            let (epochs, block) = (progress.epochs.len(), progress.next);
            tracing::debug!(path = %path.display(), epochs, block, "checkpoint written");
        }
        self.checkpointed = Instant::now();
        Ok(())
    }

    /// The error of an interrupted run.
    pub fn interrupted(&self) -> TrainError {
        TrainError::interrupted_in(self.folder.path())
    }

    /// Ends the session.
    pub fn finish(&mut self, found: Found) -> Result<Trained, TrainError> {
        let passes = self.passes();
        if let Some(last) = self.epochs.last_mut() {
            last.passes = passes;
        }
        Ok(Trained {
            found,
            totals: self.totals()?,
            wall_s: self.wall_s(),
            epochs: std::mem::take(&mut self.epochs),
            ranks: self.ranks.size() as u64,
        })
    }

    /// All work so far, including communication between ranks.
    fn totals(&self) -> Result<Totals, TrainError> {
        let (communication_bytes, communication_s) = self.ranks.traffic()?;
        let sent = Totals {
            communication_bytes,
            communication_s,
            ..Totals::default()
        };
        Ok(self.done.plus(&self.work).plus(&sent))
    }

    /// Rows used so far over the rows of the data.
    fn passes(&self) -> f64 {
        self.done.rows as f64 / self.records.max(1) as f64
    }

    fn wall_s(&self) -> f64 {
        self.earlier_wall_s + self.began.elapsed().as_secs_f64()
    }
}
