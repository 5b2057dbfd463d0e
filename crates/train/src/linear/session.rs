//! Runs epochs: from the feed's batches, or over rows that all lie in memory; checkpoints between
//! blocks; ends by epochs, by a certified target, or by an interruption.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pelton_fetch::{FetchOptions, Meters};
use pelton_format::RowTable;
use pelton_linear::{Certificate, DualBound, LinearError, LossSum, OutOfCore, Peers, Weights};
use pelton_plan::Place;
use pelton_run::{EpochRecord, Event, EventWriter, Observer, RunFolder};

use super::evaluation::for_each_batch;
use super::first_pass::totals_of;
use super::ranks::{Agreed, Ranks};
use super::setup::Setup;
use super::source::Source;
use crate::checkpoint::Totals;
use crate::config::LinearConfig;
use crate::error::TrainError;

mod saving;

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
    pub advice: Option<String>,
    /// What to say of records that were left out.
    pub left_out: Option<String>,
    pub ranks: u64,
    pub communication_s: f64,
    pub communication_bytes: u64,
}

/// One run of the job, from a start or a checkpoint to its end.
pub(super) struct Session<'a> {
    config: &'a LinearConfig,
    setup: &'a Setup,
    ranks: Ranks<'a>,
    optimum: Option<f64>,
    began: Instant,
    solver: OutOfCore,
    cursor: Place,
    in_epoch: bool,
    epochs: Vec<EpochRecord>,
    earlier: Totals,
    earlier_wall_s: f64,
    evaluations: Totals,
    checkpointed: Instant,
    /// Whether an epoch ended since the last checkpoint.
    unsaved: bool,
    /// Estimated gap below which the next certificate is worth a pass.
    attempt_below: f64,
    /// Work of all ranks since this session began, as last agreed.
    work: Totals,
    /// That of the last epoch over rows in memory.
    held_certificate: Option<Certified>,
    at_epoch_start: Totals,
    events: Option<EventWriter>,
    /// What would make training easier.
    advice: Option<String>,
}

impl<'a> Session<'a> {
    pub fn new(
        config: &'a LinearConfig,
        setup: &'a Setup,
        ranks: Ranks<'a>,
        began: Instant,
    ) -> Result<Session<'a>, TrainError> {
        let dataset = &setup.data.dataset;
        let mut solver = OutOfCore::new(setup.problem.clone(), dataset.records(), setup.options);
        solver.end_when(Arc::clone(&setup.interrupt));
        if let Some(numbering) = &setup.numbering {
            solver.rows_come_renumbered(numbering);
        }
        Ok(Session {
            config,
            setup,
            ranks,
            optimum: None,
            began,
            solver,
            cursor: Place::default(),
            in_epoch: false,
            epochs: Vec::new(),
            earlier: Totals::default(),
            earlier_wall_s: 0.0,
            evaluations: setup.before,
            checkpointed: Instant::now(),
            unsaved: false,
            attempt_below: config.target.unwrap_or(0.0),
            work: Totals::default(),
            held_certificate: None,
            at_epoch_start: Totals::default(),
            events: None,
            advice: None,
        })
    }

    /// Leaves time that is not the run's own out of its seconds.
    pub fn leave_out(&mut self, spent: Duration) {
        self.began += spent;
    }

    /// Trains to the end; relative differences refer to `optimum`. An interruption saves the state
    /// and is an error.
    pub fn train(
        mut self,
        optimum: Option<f64>,
        folder: &mut RunFolder,
        interrupt: &AtomicBool,
        observer: Observer<'_>,
    ) -> Result<Trained, TrainError> {
        let certifying = self
            .epochs
            .last()
            .is_some_and(|last| self.is_promising(last));
        let uncertified = self.epochs.pop_if(|_| certifying);
        folder.keep_metrics(self.epochs.len())?;
        self.optimum = optimum;
        let mut source = Source::open(
            self.setup,
            self.cursor,
            Some(self.config.epochs),
            self.ranks,
        )?;
        self.check_bad_records(&source.meters())?;
        source.renumber(&mut self.solver);
        if let Some(note) = source.describe() {
            observer(Event::Note(&note));
        }
        let mut certified = match uncertified {
            Some(record) => self.record_epoch(record, &mut source, folder, observer)?,
            None => None,
        };
        while certified.is_none() {
            if self.next_epoch() >= self.config.epochs {
                break;
            }
            if !self.in_epoch {
                let begun = self.begin_epoch();
                self.unless_interrupted(begun, &source, folder)?;
            }
            self.run_epoch(&mut source, folder, interrupt, observer)?;
            certified = self.end_epoch(&mut source, folder, observer)?;
            if certified.is_none() && self.agree(&source, interrupt)?.interrupted {
                self.save(&source, folder)?;
                return Err(interrupted(folder));
            }
        }
        let meters = source.meters();
        let access = source.access();
        self.advice = source.take_advice();
        // A feed gives its memory back to the pass that may follow.
        let held = source.into_rows();
        self.finish(certified, held, meters, access)
    }

    fn next_epoch(&self) -> u64 {
        let over = !self.in_epoch && !self.epochs.is_empty();
        self.solver.epoch() + u64::from(over)
    }

    fn begin_epoch(&mut self) -> Result<(), TrainError> {
        let epoch = self.next_epoch();
        // With snapshots, an epoch that reads all rows certifies. It is worth it when the estimate is
        // near, and in the second epoch: what was settled first was settled against weights that had
        // seen little, and where few epochs suffice this one ends the run.
        let near = self.epochs.last().is_some_and(|last| {
            self.config
                .target
                .is_some_and(|target| last.relative_gap <= 3.0 * target)
        });
        let reads_all = self.setup.options.snapshots && (near || epoch == 1);
        let solver = &mut self.solver;
        self.ranks
            .together(|peers| solver.begin_epoch(epoch, reads_all, peers))?;
        self.in_epoch = true;
        self.cursor = Place { epoch, step: 0 };
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
        let what = format!("epoch {}", epoch + 1);
        let total = self.setup.plan.steps(0);
        while self.in_epoch {
            let trained = source.train_next(&mut self.solver, self.ranks);
            let Some(step) = self.unless_interrupted(trained, source, folder)? else {
                self.in_epoch = false;
                break;
            };
            self.cursor = step.end;
            self.in_epoch = !step.ends_epoch;
            observer(Event::Progress {
                what: &what,
                done: self.cursor.step,
                total,
            });
            let agreed = self.agree(source, interrupt)?;
            // An epoch whose last block is done is ended first: a checkpoint before that would be
            // taken for one between epochs, and the epoch would be trained twice.
            if self.in_epoch && agreed.interrupted {
                self.checkpoint(source, folder)?;
                return Err(interrupted(folder));
            }
            if agreed.due && self.in_epoch {
                self.checkpoint(source, folder)?;
            }
        }
        Ok(())
    }

    /// Saves the state where a block, or what goes before an epoch, was given up for an interruption: on all
    /// ranks alike. Where it could not be undone, the run goes on from the last checkpoint.
    fn unless_interrupted<T>(
        &mut self,
        done: Result<T, TrainError>,
        source: &Source,
        folder: &RunFolder,
    ) -> Result<T, TrainError> {
        match done {
            Err(TrainError::Linear(LinearError::Interrupted { undone: false })) => {
                Err(interrupted(folder))
            }
            Err(error) if error.is_interruption() => {
                self.checkpoint(source, folder)?;
                Err(interrupted(folder))
            }
            done => done,
        }
    }

    /// Agrees with the other ranks on what to do now, and adds up the work of all.
    fn agree(&mut self, source: &Source, interrupt: &AtomicBool) -> Result<Agreed, TrainError> {
        let due = self.checkpointed.elapsed().as_secs_f64() >= self.config.checkpoint_every_s;
        let meters = source.meters();
        self.check_bad_records(&meters)?;
        let interrupted = interrupt.load(Ordering::Relaxed);
        let agreed = self.ranks.agree(interrupted, due, totals_of(&meters))?;
        self.work = agreed.totals;
        Ok(agreed)
    }

    fn check_bad_records(&self, meters: &Meters) -> Result<(), TrainError> {
        let (feed, dataset) = (&self.setup.feed, &self.setup.data.dataset);
        self.ranks.check_bad_records(feed, dataset, meters)
    }

    /// Ends the epoch and records it; returns the certificate that ends the run, with its weights.
    fn end_epoch(
        &mut self,
        source: &mut Source,
        folder: &mut RunFolder,
        observer: Observer<'_>,
    ) -> Result<Option<Certified>, TrainError> {
        let solver = &mut self.solver;
        let outcome = self.ranks.together(|peers| solver.end_epoch(peers))?;
        let work = self.work;
        let primal = outcome.certified_primal.unwrap_or(outcome.primal_estimate);
        let certificate = Certificate {
            primal,
            dual: outcome.dual,
        };
        let record = EpochRecord {
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
            wait_s: work.wait_s - self.at_epoch_start.wait_s,
            compute_s: work.compute_s - self.at_epoch_start.compute_s,
            read_bytes: work.read_bytes - self.at_epoch_start.read_bytes,
            used_bytes: work.used_bytes - self.at_epoch_start.used_bytes,
            ..EpochRecord::default()
        };
        self.earlier.visits += outcome.visits;
        self.earlier.rows += outcome.rows;
        self.at_epoch_start = work;
        if self.is_promising(&record) {
            // The pass that certifies may be interrupted: the epoch is saved before it, as one that
            // is still to be certified.
            self.epochs.push(record.clone());
            self.checkpoint(source, folder)?;
            self.epochs.pop();
        }
        self.record_epoch(record, source, folder, observer)
    }

    /// Records an epoch, after the pass that certifies it where it is worth one.
    fn record_epoch(
        &mut self,
        mut record: EpochRecord,
        source: &mut Source,
        folder: &mut RunFolder,
        observer: Observer<'_>,
    ) -> Result<Option<Certified>, TrainError> {
        let ends = self.certified_end(&mut record, source)?;
        record.relative_difference = self.difference(record.primal);
        record.passes = self.passes();
        record.wall_s = self.earlier_wall_s + self.began.elapsed().as_secs_f64();
        observer(Event::Epoch(&record));
        folder.append_metrics(&record)?;
        write_events(&mut self.events, folder, &record);
        self.epochs.push(record);
        self.unsaved = true;
        let last = self.next_epoch() >= self.config.epochs;
        if ends.is_none() && (last || self.save_is_cheap()?) {
            self.save(source, folder)?;
        }
        Ok(ends)
    }

    fn difference(&self, primal: f64) -> Option<f64> {
        let optimum = self.optimum?;
        Some((primal - optimum) / optimum)
    }

    /// Whether the estimate of an epoch that has no certificate promises that a pass of its own
    /// would find one.
    fn is_promising(&self, record: &EpochRecord) -> bool {
        self.config.target.is_some()
            && !self.setup.options.snapshots
            && !self.setup.in_core
            && !record.certified
            && record.relative_gap <= self.attempt_below
    }

    /// The certificate that meets the target, where there is one: the epoch's own, or one bought
    /// with an evaluation pass when the estimate promises it.
    fn certified_end(
        &mut self,
        record: &mut EpochRecord,
        source: &mut Source,
    ) -> Result<Option<Certified>, TrainError> {
        if let Some(rows) = source.rows() {
            // Nothing need be read for it.
            let found = self.evaluate_now(Some(rows), &self.setup.feed, true)?;
            record.primal = found.certificate.primal;
            record.dual = found.certificate.dual;
            record.relative_gap = found.certificate.relative_gap();
            record.certified = true;
            let meets = self
                .config
                .target
                .is_some_and(|target| record.relative_gap <= target);
            self.held_certificate = Some(found);
            return Ok(meets.then_some(found));
        }
        let Some(target) = self.config.target else {
            return Ok(None);
        };
        if record.certified {
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
        if !self.is_promising(record) {
            return Ok(None);
        }
        let estimate = record.relative_gap;
        let feed = source.room_for_pass(self.setup);
        let found = self.evaluate_now(None, &feed, false)?;
        record.primal = found.certificate.primal;
        record.dual = found.certificate.dual;
        record.relative_gap = found.certificate.relative_gap();
        record.certified = true;
        if record.relative_gap <= target {
            return Ok(Some(found));
        }
        // With skip the pass has found out the rows that are settled no more: the next estimate is
        // a better one. Without, it would be as wrong again.
        if self.setup.options.skip {
            self.attempt_below = target;
        } else {
            self.attempt_below = estimate * 0.7;
        }
        Ok(None)
    }

    /// Certifies the present w, or with `best` the best weights at hand: over the rows `held` where all are in memory,
    /// else with a pass of its own. What such a pass is for has been saved, so an interruption ends it at once.
    fn evaluate_now(
        &mut self,
        held: Option<&RowTable>,
        feed: &FetchOptions,
        best: bool,
    ) -> Result<Certified, TrainError> {
        if let Some(rows) = held {
            let began = Instant::now();
            let certify = |peers: &mut Peers<'_, _>| self.solver.certify(rows, peers);
            let (certificate, losses, is_snapshot) = self.ranks.together(certify)?;
            self.earlier.compute_s += began.elapsed().as_secs_f64();
            return Ok(Certified {
                is_snapshot,
                accuracy: losses.accuracy(),
                certificate,
            });
        }
        let feed = &FetchOptions {
            interrupt: Arc::clone(&self.setup.interrupt),
            ..feed.clone()
        };
        let dataset = &self.setup.data.dataset;
        let solver = &mut self.solver;
        let is_snapshot = best
            && self
                .ranks
                .together(|peers| solver.take_best_as_snapshot(peers))?;
        let unsettled = solver.begin_settling(self.ranks.size());
        let mut losses = LossSum::new(solver.problem());
        let mut bound = DualBound::new(solver.problem());
        let meters = for_each_batch(dataset, feed, |batch| {
            Ok(solver.check_rows(&batch.rows, is_snapshot, &mut losses, &mut bound)?)
        })?;
        self.ranks.together(|peers| {
            solver.end_settling(unsettled, peers)?;
            losses.add_up(peers)?;
            bound.add_up(peers)
        })?;
        let weights = match self.solver.snapshot() {
            Some(snapshot) if is_snapshot => &snapshot.weights,
            _ => self.solver.weights(),
        };
        let found = Certified {
            is_snapshot,
            accuracy: losses.accuracy(),
            certificate: Certificate {
                primal: losses.primal(weights),
                dual: bound.value(),
            },
        };
        let pass = self.ranks.agree(false, false, totals_of(&meters))?;
        self.evaluations = self.evaluations.plus(&Totals {
            rows: losses.rows,
            ..pass.totals
        });
        Ok(found)
    }

    fn finish(
        mut self,
        certified: Option<Certified>,
        held: Option<RowTable>,
        meters: Meters,
        access: String,
    ) -> Result<Trained, TrainError> {
        let found = match certified.or(self.held_certificate) {
            Some(found) => found,
            None => {
                let whole = FetchOptions {
                    memory_bytes: self.setup.memory_bytes,
                    ..self.setup.feed.clone()
                };
                self.evaluate_now(held.as_ref(), &whole, true)?
            }
        };
        let passes = self.passes();
        if let Some(last) = self.epochs.last_mut() {
            last.passes = passes;
        }
        let totals = self.totals();
        let (bytes, seconds) = self.ranks.traffic()?;
        let communication_bytes = self.earlier.communication_bytes + bytes;
        let communication_s = self.earlier.communication_s + seconds;
        let mut weights = self.solver.into_weights(found.is_snapshot);
        if let Some(numbering) = &self.setup.numbering {
            weights = numbering.widen(&weights);
        }
        Ok(Trained {
            weights,
            certificate: found.certificate,
            train_accuracy: found.accuracy,
            totals,
            wall_s: self.earlier_wall_s + self.began.elapsed().as_secs_f64(),
            waiting: meters.verdict().to_string(),
            left_out: pelton_data::left_out(&self.setup.data.dataset, &meters.skipped_ids),
            advice: self.advice,
            epochs: self.epochs,
            access,
            ranks: self.ranks.size() as u64,
            communication_s,
            communication_bytes,
        })
    }

    fn totals(&self) -> Totals {
        self.earlier.plus(&self.work).plus(&self.evaluations)
    }

    /// Rows used so far over the rows of the data.
    fn passes(&self) -> f64 {
        let rows = self.earlier.rows + self.evaluations.rows;
        rows as f64 / self.setup.data.dataset.records().max(1) as f64
    }
}

/// A certificate, of the solver's snapshot or of its current weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Certified {
    is_snapshot: bool,
    certificate: Certificate,
    accuracy: f64,
}

/// Writes the epoch for TensorBoard. What cannot be written is left out: `metrics.jsonl` has it.
pub(super) fn write_events(
    events: &mut Option<EventWriter>,
    folder: &RunFolder,
    record: &EpochRecord,
) {
    if !folder.is_written() {
        return;
    }
    if events.is_none() {
        *events = EventWriter::create(folder.path(), record.epoch).ok();
    }
    if let Some(events) = events {
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

pub(super) fn interrupted(folder: &RunFolder) -> TrainError {
    TrainError::Interrupted {
        folder: folder.path().display().to_string(),
    }
}
