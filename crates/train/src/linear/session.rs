//! Runs epochs: from the feed's batches, or over rows that all lie in memory; checkpoints between
//! blocks; ends by epochs, by a certified target, or by an interruption.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pelton_feed::{Cursor, FeedOptions, Meters};
use pelton_linear::{Certificate, OutOfCore, Weights};

use super::certify::evaluate;
use super::setup::Setup;
use super::source::Source;
use crate::checkpoint::{self, Progress, Totals};
use crate::config::LinearConfig;
use crate::data::fetch_rows;
use crate::error::TrainError;
use crate::event::{EpochRecord, Event, Observer};
use crate::run_folder::RunFolder;
use crate::tensorboard::EventWriter;

/// What training left.
#[derive(Debug)]
pub(super) struct Trained {
    pub weights: Weights,
    pub certificate: Certificate,
    pub train_accuracy: f64,
    pub epochs: Vec<EpochRecord>,
    pub totals: Totals,
    pub wall_s: f64,
    pub access: String,
    pub waiting: String,
}

/// One run of the job, from a start or a checkpoint to its end.
pub(super) struct Session<'a> {
    config: &'a LinearConfig,
    setup: &'a Setup,
    optimum: Option<f64>,
    began: Instant,
    solver: OutOfCore,
    cursor: Cursor,
    in_epoch: bool,
    steps_done: u64,
    /// Whether the first planned block was planned before the checkpoint this session began from.
    replay: bool,
    epochs: Vec<EpochRecord>,
    earlier: Totals,
    earlier_wall_s: f64,
    evaluations: Totals,
    checkpointed: Instant,
    /// Estimated gap below which the next certificate is worth a pass.
    attempt_below: f64,
    at_epoch_start: Meters,
    events: Option<EventWriter>,
}

impl<'a> Session<'a> {
    pub fn new(
        config: &'a LinearConfig,
        setup: &'a Setup,
        optimum: Option<f64>,
        began: Instant,
    ) -> Result<Session<'a>, TrainError> {
        let dataset = &setup.data.dataset;
        let solver = OutOfCore::new(
            setup.problem.clone(),
            dataset.records(),
            dataset.layout(),
            setup.options,
        );
        Ok(Session {
            config,
            setup,
            optimum,
            began,
            solver,
            cursor: Cursor::default(),
            in_epoch: false,
            steps_done: 0,
            replay: false,
            epochs: Vec::new(),
            earlier: Totals::default(),
            earlier_wall_s: 0.0,
            evaluations: Totals::default(),
            checkpointed: Instant::now(),
            attempt_below: config.target.unwrap_or(0.0),
            at_epoch_start: Meters::default(),
            events: None,
        })
    }

    /// Goes on from the folder's checkpoint; without one the run begins anew.
    pub fn resume(
        &mut self,
        folder: &mut RunFolder,
        observer: Observer<'_>,
    ) -> Result<(), TrainError> {
        let path = checkpoint_path(folder);
        if !path.exists() {
            observer(Event::Note("no checkpoint was written yet: starting anew"));
            return Ok(());
        }
        let (progress, state) = checkpoint::read(&path)?;
        let wrong = |problem: &str| TrainError::Checkpoint {
            path: path.display().to_string(),
            problem: problem.to_string(),
        };
        if progress.data != self.setup.data.dataset.fingerprint() {
            return Err(wrong("is of other data, or the data changed"));
        }
        if progress.plan != self.setup.plan.fingerprint() {
            return Err(wrong(
                "is of another order, seed, memory budget or number of blocks",
            ));
        }
        let cached = fetch_rows(&self.setup.data.dataset, &state.cached)?;
        self.solver.restore(state, cached)?;
        self.cursor = progress.cursor();
        self.in_epoch = progress.in_epoch;
        self.steps_done = progress.steps_done;
        self.replay = progress.in_epoch;
        self.earlier_wall_s = progress.wall_s;
        self.earlier = progress.totals;
        folder.keep_metrics(progress.epochs.len())?;
        self.epochs = progress.epochs;
        self.attempt_below = progress.attempt_below;
        observer(Event::Note(&format!(
            "going on from epoch {}, block {}",
            self.cursor.epoch, self.steps_done
        )));
        Ok(())
    }

    /// Trains to the end. An interruption saves the state and is an error.
    pub fn train(
        mut self,
        folder: &mut RunFolder,
        interrupt: &AtomicBool,
        observer: Observer<'_>,
    ) -> Result<Trained, TrainError> {
        let mut source = Source::open(self.setup, self.cursor, Some(self.config.epochs))?;
        if let Some(note) = source.describe() {
            observer(Event::Note(&note));
        }
        let mut certified = None;
        while certified.is_none() && self.next_epoch() < self.config.epochs {
            if !self.in_epoch {
                self.begin_epoch()?;
            }
            self.run_epoch(&mut source, folder, interrupt, observer)?;
            certified = self.end_epoch(&mut source, folder, observer)?;
        }
        let meters = source.meters();
        let access = source.access();
        drop(source);
        self.finish(certified, meters, access)
    }

    fn next_epoch(&self) -> u64 {
        let over = !self.in_epoch && !self.epochs.is_empty();
        self.solver.epoch() + u64::from(over)
    }

    fn begin_epoch(&mut self) -> Result<(), TrainError> {
        let epoch = self.next_epoch();
        // An epoch that reads all rows certifies; it is worth it when the estimate is near.
        let near = self.epochs.last().is_some_and(|last| {
            self.config
                .target
                .is_some_and(|target| last.relative_gap <= 3.0 * target)
        });
        self.solver.begin_epoch(epoch, near)?;
        self.in_epoch = true;
        self.steps_done = 0;
        self.cursor = Cursor { epoch, next: 0 };
        Ok(())
    }

    fn run_epoch(
        &mut self,
        source: &mut Source,
        folder: &RunFolder,
        interrupt: &AtomicBool,
        observer: Observer<'_>,
    ) -> Result<(), TrainError> {
        let epoch = self.solver.epoch();
        let what = format!("epoch {epoch}");
        let total = self.setup.plan.steps();
        while self.in_epoch {
            let replay = std::mem::take(&mut self.replay);
            let Some(step) = source.train_next(&mut self.solver, replay)? else {
                self.in_epoch = false;
                break;
            };
            self.cursor = step.end;
            self.steps_done += 1;
            self.in_epoch = !step.ends_epoch;
            observer(Event::Progress {
                what: &what,
                done: self.steps_done,
                total,
            });
            if interrupt.load(Ordering::Relaxed) {
                self.checkpoint(source, folder)?;
                return Err(TrainError::Interrupted {
                    folder: folder.path().display().to_string(),
                });
            }
            let due = self.checkpointed.elapsed().as_secs_f64() >= self.config.checkpoint_every_s;
            if due && self.in_epoch {
                self.checkpoint(source, folder)?;
            }
        }
        Ok(())
    }

    /// Records the epoch; returns the certificate that ends the run, with its weights.
    fn end_epoch(
        &mut self,
        source: &mut Source,
        folder: &mut RunFolder,
        observer: Observer<'_>,
    ) -> Result<Option<Certified>, TrainError> {
        let outcome = self.solver.end_epoch()?;
        let meters = source.meters();
        let primal = outcome.certified_primal.unwrap_or(outcome.primal_estimate);
        let certificate = Certificate {
            primal,
            dual: outcome.dual,
        };
        let mut record = EpochRecord {
            epoch: self.solver.epoch() + 1,
            primal,
            dual: outcome.dual,
            relative_gap: certificate.relative_gap(),
            certified: outcome.certified_primal.is_some(),
            visits: outcome.visits,
            rows: outcome.rows,
            rows_left_out: self
                .setup
                .data
                .dataset
                .records()
                .saturating_sub(outcome.rows),
            wait_s: meters.wait_s - self.at_epoch_start.wait_s,
            compute_s: meters.compute_s - self.at_epoch_start.compute_s,
            read_bytes: meters.read_bytes - self.at_epoch_start.read_bytes,
            used_bytes: meters.used_bytes - self.at_epoch_start.used_bytes,
            ..EpochRecord::default()
        };
        self.earlier.visits += outcome.visits;
        self.earlier.rows += outcome.rows;
        let ends = self.certified_end(&mut record, outcome.certified_primal.is_some())?;
        record.relative_difference = self
            .optimum
            .map(|optimum| (record.primal - optimum) / optimum);
        record.passes = self.passes();
        record.wall_s = self.earlier_wall_s + self.began.elapsed().as_secs_f64();
        self.at_epoch_start = meters;
        observer(Event::Epoch(&record));
        folder.append_metrics(&record)?;
        self.write_events(folder, &record);
        self.epochs.push(record);
        if ends.is_none() {
            self.checkpoint(source, folder)?;
        }
        Ok(ends)
    }

    /// The certificate that meets the target, where there is one: the epoch's own, or one bought
    /// with an evaluation pass when the estimate promises it.
    fn certified_end(
        &mut self,
        record: &mut EpochRecord,
        certified: bool,
    ) -> Result<Option<Certified>, TrainError> {
        let Some(target) = self.config.target else {
            return Ok(None);
        };
        if certified {
            let snapshot = self.solver.snapshot().expect("it was certified");
            return Ok((record.relative_gap <= target).then(|| Certified {
                is_snapshot: true,
                accuracy: snapshot.losses.accuracy(),
                certificate: Certificate {
                    primal: record.primal,
                    dual: record.dual,
                },
            }));
        }
        if self.setup.options.snapshots || record.relative_gap > self.attempt_below {
            return Ok(None);
        }
        let estimate = record.relative_gap;
        let found = self.evaluate_now(&self.setup.evaluation_feed())?;
        record.primal = found.certificate.primal;
        record.relative_gap = found.certificate.relative_gap();
        record.certified = true;
        if record.relative_gap <= target {
            return Ok(Some(found));
        }
        self.attempt_below = estimate * 0.7;
        Ok(None)
    }

    /// Writes the epoch for TensorBoard. What cannot be written is left out: `metrics.jsonl` has it.
    fn write_events(&mut self, folder: &RunFolder, record: &EpochRecord) {
        if self.events.is_none() {
            self.events = EventWriter::create(folder.path(), record.epoch).ok();
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
    }

    fn evaluate_now(&mut self, feed: &FeedOptions) -> Result<Certified, TrainError> {
        let dataset = &self.setup.data.dataset;
        let weights = self.solver.weights();
        let evaluation = evaluate(dataset, &self.setup.problem, weights, feed)?;
        let found = Certified {
            is_snapshot: false,
            accuracy: evaluation.losses.accuracy(),
            certificate: Certificate {
                primal: evaluation.losses.primal(weights),
                dual: self.solver.dual(),
            },
        };
        self.evaluations = self.evaluations.plus(&Totals {
            rows: evaluation.losses.rows,
            ..totals_of(&evaluation.meters)
        });
        Ok(found)
    }

    fn finish(
        mut self,
        certified: Option<Certified>,
        meters: Meters,
        access: String,
    ) -> Result<Trained, TrainError> {
        let found = match certified {
            Some(found) => found,
            None => {
                let whole = FeedOptions {
                    memory_bytes: self.setup.memory_bytes,
                    ..self.setup.feed.clone()
                };
                self.evaluate_now(&whole)?
            }
        };
        let passes = self.passes();
        if let Some(last) = self.epochs.last_mut() {
            last.passes = passes;
        }
        let totals = self.totals(&meters);
        Ok(Trained {
            weights: self.solver.into_weights(found.is_snapshot),
            certificate: found.certificate,
            train_accuracy: found.accuracy,
            totals,
            wall_s: self.earlier_wall_s + self.began.elapsed().as_secs_f64(),
            waiting: meters.verdict().to_string(),
            epochs: self.epochs,
            access,
        })
    }

    fn totals(&self, meters: &Meters) -> Totals {
        self.earlier
            .plus(&totals_of(meters))
            .plus(&self.evaluations)
    }

    /// Rows used so far over the rows of the data.
    fn passes(&self) -> f64 {
        let rows = self.earlier.rows + self.evaluations.rows;
        rows as f64 / self.setup.data.dataset.records().max(1) as f64
    }

    fn checkpoint(&mut self, source: &Source, folder: &RunFolder) -> Result<(), TrainError> {
        let state = self.solver.save();
        let progress = Progress {
            version: 0,
            checksum: 0,
            data: self.setup.data.dataset.fingerprint(),
            plan: self.setup.plan.fingerprint(),
            cursor_epoch: self.cursor.epoch,
            next: self.cursor.next,
            epoch: state.epoch,
            steps_done: self.steps_done,
            in_epoch: self.in_epoch,
            reads_all: state.reads_all,
            gap: state.gap,
            counters: state.counters,
            mean_blocks: state.mean_blocks,
            snapshot_rows: state.snapshot_rows,
            attempt_below: self.attempt_below,
            wall_s: self.earlier_wall_s + self.began.elapsed().as_secs_f64(),
            totals: self.totals(&source.meters()),
            epochs: self.epochs.clone(),
        };
        checkpoint::write(&checkpoint_path(folder), &progress, &state)?;
        self.checkpointed = Instant::now();
        Ok(())
    }
}

/// A certificate, of the solver's snapshot or of its current weights.
pub(super) struct Certified {
    is_snapshot: bool,
    certificate: Certificate,
    accuracy: f64,
}

fn checkpoint_path(folder: &RunFolder) -> PathBuf {
    folder.path().join("checkpoint").join("state.safetensors")
}

fn totals_of(meters: &Meters) -> Totals {
    Totals {
        load_s: meters.load_s,
        compute_s: meters.compute_s,
        overlap_s: meters.overlap_s(),
        wait_s: meters.wait_s,
        prepare_s: meters.prepare_s,
        read_bytes: meters.read_bytes,
        used_bytes: meters.used_bytes,
        written_bytes: meters.written_bytes,
        visits: 0,
        rows: 0,
        skipped_records: meters.skipped_records,
    }
}
