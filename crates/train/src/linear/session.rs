//! Coordinate descent on one rank, block by block, over files that do not fit in memory; checkpoints between
//! blocks; ends by epochs, by a certified target, or by an interruption.

use std::sync::atomic::Ordering;

use pelton_comm::Alike;
use pelton_fetch::FetchOptions;
use pelton_linear::{Certificate, DualBound, LinearError, LossSum, OutOfCore};
use pelton_plan::Place;
use pelton_run::EpochRecord;

use super::evaluation::for_each_batch;
use super::first_pass::totals_of;
use super::journal::{Found, Journal, Solved, Trained};
use super::method::Method;
use super::ranks::Agreed;
use super::reading::Reading;
use super::resume::{self, Before, digest_of};
use super::task::Task;
use crate::checkpoint::{Progress, State, Totals};
use crate::config::Solver;
use crate::error::TrainError;

mod saving;

/// One session, from a start or a checkpoint to its end.
pub(super) struct Session<'a> {
    task: &'a Task<'a>,
    solver: OutOfCore,
    cursor: Place,
    in_epoch: bool,
    /// Whether an epoch ended since the last checkpoint.
    unsaved: bool,
    /// Estimated gap below which the next certificate is worth a pass.
    attempt_below: f64,
}

impl<'a> Session<'a> {
    pub fn new(task: &'a Task<'a>) -> Session<'a> {
        Session {
            task,
            solver: task.descent(task.division.options),
            cursor: Place::default(),
            in_epoch: false,
            unsaved: false,
            attempt_below: task.config.target.gap().unwrap_or(0.0),
        }
    }

    fn next_epoch(&self, journal: &Journal<'_>) -> u64 {
        let over = !self.in_epoch && !journal.epochs.is_empty();
        self.solver.epoch() + u64::from(over)
    }

    fn begin_epoch(&mut self, journal: &Journal<'_>) -> Result<(), TrainError> {
        let epoch = self.next_epoch(journal);
        // With snapshots, an epoch that reads all rows certifies. It is worth it when the estimate is near, and in the
        // second epoch: rows settled first were settled against weights that had seen little, and if few epochs suffice
        // this one ends the run.
        let near = journal.epochs.last().is_some_and(|last| {
            let target = self.task.config.target.gap();
            target.is_some_and(|target| last.relative_gap <= 3.0 * target)
        });
        let reads_all = self.task.division.options.snapshots && (near || epoch == 1);
        self.solver.begin_epoch(epoch, reads_all)?;
        self.in_epoch = true;
        self.cursor = Place { epoch, step: 0 };
        Ok(())
    }

    fn run_epoch(
        &mut self,
        reading: &mut Reading,
        journal: &mut Journal<'_>,
    ) -> Result<(), TrainError> {
        let what = format!("epoch {}", self.solver.epoch() + 1);
        let total = self.task.division.plan.steps(0);
        while self.in_epoch {
            let trained = reading.train_next(&mut self.solver);
            let Some(step) = self.unless_interrupted(trained, reading, journal)? else {
                self.in_epoch = false;
                break;
            };
            self.cursor = step.end;
            self.in_epoch = !step.ends_epoch;
            journal.see(step.content);
            journal.progress(&what, self.cursor.step, total);
            let agreed = self.agree(reading, journal)?;
            // An epoch with its last block done is ended first: otherwise the checkpoint would look like one between
            // epochs, and the run would train the epoch twice.
            if self.in_epoch && agreed.interrupted {
                self.checkpoint(reading, journal)?;
                return Err(journal.interrupted());
            }
            if agreed.due && self.in_epoch {
                self.checkpoint(reading, journal)?;
            }
        }
        Ok(())
    }

    /// Saves the state if an interruption ended a block, or the work before an epoch, on all ranks. If it could not be
    /// undone, the run resumes from the last checkpoint.
    fn unless_interrupted<T>(
        &mut self,
        done: Result<T, TrainError>,
        reading: &Reading,
        journal: &mut Journal<'_>,
    ) -> Result<T, TrainError> {
        match done {
            Err(TrainError::Linear(LinearError::Interrupted { undone: false })) => {
                Err(journal.interrupted())
            }
            Err(error) if error.is_interruption() => {
                self.checkpoint(reading, journal)?;
                Err(journal.interrupted())
            }
            done => done,
        }
    }

    /// Agrees with the other ranks on what to do now, and adds up the work of all.
    fn agree(&self, reading: &Reading, journal: &mut Journal<'_>) -> Result<Agreed, TrainError> {
        let due = journal.unsaved_s() >= self.task.config.checkpoint_every_s;
        let meters = reading.meters();
        self.task.check_bad_records(&meters)?;
        let interrupted = self.task.interrupt.load(Ordering::Relaxed);
        journal.agree(interrupted, due, totals_of(&meters))
    }

    /// Ends the epoch and records it; returns the certificate that ends the run, with its weights.
    fn end_epoch(
        &mut self,
        reading: &mut Reading,
        journal: &mut Journal<'_>,
    ) -> Result<Option<Certified>, TrainError> {
        journal.end_content()?;
        let ended = self.solver.end_epoch();
        let certificate = Certificate {
            primal: ended.certified_primal.unwrap_or(ended.primal_estimate),
            dual: ended.dual,
        };
        let record = EpochRecord {
            primal: certificate.primal,
            dual: certificate.dual,
            relative_gap: certificate.relative_gap(),
            certified: ended.certified_primal.is_some(),
            ..journal.end_epoch(ended.visits, ended.rows)
        };
        if self.is_promising(&record) {
            // The certifying pass may be interrupted, so the epoch is saved before it, as not yet certified.
            journal.epochs.push(record.clone());
            self.checkpoint(reading, journal)?;
            journal.epochs.pop();
        }
        self.record_epoch(record, reading, journal)
    }

    /// Records an epoch, after a certifying pass if that is worth it.
    fn record_epoch(
        &mut self,
        mut record: EpochRecord,
        reading: &mut Reading,
        journal: &mut Journal<'_>,
    ) -> Result<Option<Certified>, TrainError> {
        let ends = self.certified_end(&mut record, reading, journal)?;
        journal.record(record)?;
        self.unsaved = true;
        let last = self.next_epoch(journal) >= self.task.config.epochs;
        if ends.is_none() && (last || journal.is_cheap(self.solver.saved_bytes())) {
            self.save(reading, journal)?;
        }
        Ok(ends)
    }

    /// Whether the estimate of an epoch without a certificate suggests that a separate pass would reach the
    /// target.
    fn is_promising(&self, record: &EpochRecord) -> bool {
        self.task.config.target.gap().is_some()
            && !self.task.division.options.snapshots
            && !record.certified
            && record.relative_gap <= self.attempt_below
    }

    /// The certificate that meets the target, if any: the epoch's own, or one from an evaluation pass if the estimate
    /// is promising.
    fn certified_end(
        &mut self,
        record: &mut EpochRecord,
        reading: &mut Reading,
        journal: &mut Journal<'_>,
    ) -> Result<Option<Certified>, TrainError> {
        let target = self.task.config.target.gap();
        let meets =
            |record: &EpochRecord| target.is_some_and(|target| record.relative_gap <= target);
        if target.is_none() {
            return Ok(None);
        }
        if record.certified {
            let snapshot = self.solver.snapshot().expect("it was certified");
            return Ok(meets(record).then(|| Certified {
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
        let feed = reading.room_for_pass(self.task);
        let found = self.evaluate(&feed, false, journal)?;
        put(found.certificate, record);
        if meets(record) {
            return Ok(Some(found));
        }
        // With skip the pass has found the rows that are no longer settled, so the next estimate is better. Without, it
        // would be as wrong again.
        self.attempt_below = if self.task.division.options.skip {
            target.unwrap_or(0.0)
        } else {
            estimate * 0.7
        };
        Ok(None)
    }

    /// Certifies the present w, or with `best` the best weights available, with a separate pass. The state has
    /// been saved before, so an interruption ends the pass at once.
    fn evaluate(
        &mut self,
        feed: &FetchOptions,
        best: bool,
        journal: &mut Journal<'_>,
    ) -> Result<Certified, TrainError> {
        let solver = &mut self.solver;
        let is_snapshot = best && solver.take_best_as_snapshot()?;
        let mut losses = LossSum::new(solver.problem());
        let mut bound = DualBound::new(solver.problem());
        let meters = for_each_batch(&self.task.rows.data.dataset, feed, |batch| {
            Ok(solver.check_rows(&batch.rows, is_snapshot, &mut losses, &mut bound)?)
        })?;
        let weights = match self.solver.snapshot() {
            Some(snapshot) if is_snapshot => &snapshot.weights,
            _ => self.solver.weights(),
        };
        let found = Certified {
            is_snapshot,
            accuracy: losses.accuracy(),
            certificate: Certificate {
                primal: losses.primal(self.solver.problem(), weights),
                dual: bound.value(self.solver.problem()),
            },
        };
        journal.done = journal.done.plus(&Totals {
            rows: losses.rows,
            ..totals_of(&meters)
        });
        Ok(found)
    }
}

impl Method for Session<'_> {
    fn restore(
        &mut self,
        before: &Before,
        progress: &Progress,
        state: State<'static>,
    ) -> Result<String, TrainError> {
        let State::Descent(state) = state else {
            return Err(resume::other_solver(before));
        };
        self.restore_descent(before, progress, *state)?;
        let (epoch, block) = (self.cursor.epoch + 1, self.cursor.step + 1);
        Ok(format!("epoch {epoch}, block {block}"))
    }

    fn place(&self) -> Alike {
        let weights = self.solver.weights();
        let vectors = (0..weights.subproblems()).map(|k| weights.vector(k));
        Alike::default()
            .with("the next epoch", self.cursor.epoch)
            .with("the next block", self.cursor.step)
            .with_digest("weights with the fingerprint", digest_of(vectors))
    }

    fn train(mut self: Box<Self>, journal: &mut Journal<'_>) -> Result<Trained, TrainError> {
        let (task, epochs) = (self.task, self.task.config.epochs);
        let certifying = journal.epochs.last();
        let certifying = certifying.is_some_and(|last| self.is_promising(last));
        let uncertified = journal.epochs.pop_if(|_| certifying);
        journal.keep_metrics()?;
        let mut reading = Reading::open(task, self.cursor, Some(epochs))?;
        task.check_bad_records(&reading.meters())?;
        if let Some(note) = reading.describe() {
            journal.note(&note);
        }
        let mut certified = match uncertified {
            Some(record) => self.record_epoch(record, &mut reading, journal)?,
            None => None,
        };
        while certified.is_none() && self.next_epoch(journal) < epochs {
            if !self.in_epoch {
                let begun = self.begin_epoch(journal);
                self.unless_interrupted(begun, &reading, journal)?;
            }
            self.run_epoch(&mut reading, journal)?;
            certified = self.end_epoch(&mut reading, journal)?;
            if certified.is_none() && self.agree(&reading, journal)?.interrupted {
                self.save(&reading, journal)?;
                return Err(journal.interrupted());
            }
        }
        let (meters, access, advice) = reading.close();
        let certified = match certified {
            Some(certified) => certified,
            None => self.evaluate(&task.division.budget.feed, true, journal)?,
        };
        let mut weights = self.solver.into_weights(certified.is_snapshot);
        if let Some(numbering) = &task.rows.numbering {
            weights = numbering.widen(&weights);
        }
        journal.finish(Found {
            solved: Solved {
                weights,
                certificate: certified.certificate,
                accuracy: certified.accuracy,
                solver: Solver::CoordinateDescent,
                precision: None,
            },
            access,
            meters,
            advice,
        })
    }
}

/// A certificate, of the solver's snapshot or of its current weights.
#[derive(Clone, Copy, Debug)]
struct Certified {
    is_snapshot: bool,
    certificate: Certificate,
    accuracy: f64,
}

/// Stores a certificate in the record of an epoch.
fn put(certificate: Certificate, record: &mut EpochRecord) {
    record.primal = certificate.primal;
    record.dual = certificate.dual;
    record.relative_gap = certificate.relative_gap();
    record.certified = true;
}
