//! Newton's method: passes over rows in memory, or over the files in their order, with a line of metrics after
//! each, checkpoints between them, and the certificate of the last.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pelton_comm::Alike;
use pelton_fetch::{Cursor, Meters};
use pelton_linear::{Certificate, LossSum, Newton, NewtonPass, Simd, Weights};
use pelton_run::{EpochRecord, Event, Observer};
use pelton_storage::in_parallel;

use super::evaluation::{evaluate, for_each_batch};
use super::first_pass::totals_of;
use super::journal::{Found, Journal, Trained};
use super::method::Method;
use super::resume::{self, Before, digest_of};
use super::scaling;
use super::source::Source;
use super::task::Task;
use crate::checkpoint::{Progress, State, Totals};
use crate::config::LinearConfig;
use crate::error::TrainError;

/// Relative gap that ends a run without a target: steps that are this near cost no more than those before.
pub(super) const WANTED: f64 = 1e-6;
/// Most passes over rows in memory where nothing is said: as many as an epoch of coordinate descent may make over its
/// block, and they cost no more.
const MOST_PASSES_IN_MEMORY: u64 = 300;

/// Most passes of a run.
pub(super) fn most_passes(config: &LinearConfig, in_core: bool) -> u64 {
    match in_core && config.epochs == LinearConfig::default().epochs {
        true => MOST_PASSES_IN_MEMORY,
        false => config.epochs,
    }
}

/// Passes over the rows of a task.
pub(super) struct Passes<'a> {
    task: &'a Task<'a>,
    newton: Newton,
    /// All rows, where they lie in memory.
    source: Option<Source>,
    meters: Meters,
    /// Whether the first rows are still to be looked at for advice, and what was found.
    looks: bool,
    advice: Option<String>,
}

impl<'a> Passes<'a> {
    pub fn new(task: &'a Task<'a>, wanted: f64) -> Passes<'a> {
        let records = usize::try_from(task.rows.data.dataset.records()).unwrap_or(usize::MAX);
        let problem = Arc::clone(&task.problem);
        Passes {
            task,
            newton: Newton::new(problem, records, wanted, Simd::best()),
            source: None,
            meters: Meters::default(),
            looks: task.rows.scale.is_none(),
            advice: None,
        }
    }

    /// Reads rows that fit in memory, once.
    fn load(&mut self) -> Result<(), TrainError> {
        if self.task.division.budget.in_core && self.source.is_none() {
            let mut source = Source::open(self.task, Cursor::default(), None)?;
            self.advice = source.take_advice();
            self.meters = source.meters();
            self.source = Some(source);
        }
        Ok(())
    }

    /// One pass, of which `seen` is told so many of so many rows; `None` where an interruption ended it, on all ranks,
    /// and nothing has changed.
    pub fn pass(
        &mut self,
        seen: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<NewtonPass>, TrainError> {
        self.load()?;
        let began = Instant::now();
        let Task {
            ranks, interrupt, ..
        } = *self.task;
        let dataset = &self.task.rows.data.dataset;
        let (newton, advice) = (&mut self.newton, &mut self.advice);
        newton.begin_pass();
        let whole = match self.source.as_ref().and_then(Source::rows) {
            Some(rows) => {
                let whole = in_parallel(|| newton.add(rows, interrupt))??;
                self.meters.compute_s += began.elapsed().as_secs_f64();
                whole
            }
            None => {
                let mut looks = std::mem::take(&mut self.looks);
                let mut done = 0;
                let read = for_each_batch(dataset, &self.task.division.budget.feed, |batch| {
                    done += batch.rows.len() as u64;
                    if std::mem::take(&mut looks) {
                        *advice = scaling::advice(&batch.rows);
                    }
                    in_parallel(|| newton.add(&batch.rows, interrupt))??;
                    seen(done, dataset.records() / ranks.size() as u64);
                    Ok(())
                });
                match read {
                    Ok(meters) => {
                        self.meters = added(&self.meters, &meters);
                        !interrupt.load(Ordering::Relaxed)
                    }
                    Err(error) if error.is_interruption() => false,
                    Err(error) => return Err(error),
                }
            }
        };
        self.task.check_bad_records(&self.meters)?;
        if ranks.any(!whole)? {
            return Ok(None);
        }
        let newton = &mut self.newton;
        Ok(Some(ranks.together(|peers| newton.end_pass(peers))?))
    }

    /// The weights found, their losses over all rows, and what it took to sum these.
    fn best(&self) -> Result<(Weights, LossSum, Totals), TrainError> {
        let (weights, losses) = self.newton.best();
        if let Some(losses) = losses {
            return Ok((weights, losses, Totals::default()));
        }
        let Task { ranks, .. } = *self.task;
        let (problem, dataset) = (&self.task.problem, &self.task.rows.data.dataset);
        let mut spent = Totals::default();
        let mut losses = match self.source.as_ref().and_then(Source::rows) {
            Some(rows) => {
                let mut losses = LossSum::new(problem);
                losses.add(problem, rows, &weights, Simd::best())?;
                losses
            }
            None => {
                let feed = &self.task.division.budget.feed;
                let found = evaluate(dataset, problem, &weights, feed)?;
                spent = ranks.agree(false, false, totals_of(&found.meters))?.totals;
                found.losses
            }
        };
        spent.rows = dataset.records();
        ranks.together(|peers| losses.add_up(peers))?;
        Ok((weights, losses, spent))
    }
}

/// What several passes over files took.
fn added(all: &Meters, pass: &Meters) -> Meters {
    Meters {
        load_s: all.load_s + pass.load_s,
        compute_s: all.compute_s + pass.compute_s,
        wait_s: all.wait_s + pass.wait_s,
        prepare_s: all.prepare_s + pass.prepare_s,
        read_bytes: all.read_bytes + pass.read_bytes,
        used_bytes: all.used_bytes + pass.used_bytes,
        written_bytes: all.written_bytes + pass.written_bytes,
        ..pass.clone()
    }
}

/// One session of Newton's method, from a start or a checkpoint to its end.
pub(super) struct NewtonSession<'a> {
    task: &'a Task<'a>,
    passes: Passes<'a>,
    /// Relative gap that ends it.
    wanted: f64,
    made: usize,
}

impl<'a> NewtonSession<'a> {
    pub fn new(task: &'a Task<'a>) -> NewtonSession<'a> {
        let wanted = task.config.target.unwrap_or(WANTED);
        NewtonSession {
            task,
            passes: Passes::new(task, wanted),
            wanted,
            made: 0,
        }
    }

    fn save(&self, journal: &mut Journal<'_>) -> Result<(), TrainError> {
        let state = State::Newton(self.passes.newton.save());
        journal.checkpoint(Progress::default(), &state)
    }
}

impl Method for NewtonSession<'_> {
    fn resume(
        &mut self,
        before: &Before,
        observer: Observer<'_>,
    ) -> Result<Option<Progress>, TrainError> {
        let Some((progress, state)) = resume::read(before, self.task, observer)? else {
            return Ok(None);
        };
        let State::Newton(saved) = state else {
            return Err(resume::other_solver(before));
        };
        self.passes.newton.restore(&saved)?;
        self.made = progress.epochs.len();
        observer(Event::Note(&format!(
            "going on from pass {}",
            self.made + 1
        )));
        Ok(Some(progress))
    }

    fn place(&self) -> Alike {
        let points = self.passes.newton.save();
        Alike::default()
            .with("the count of finished passes", self.made)
            .with_digest(
                "weights with the fingerprint",
                digest_of(points.iter().map(Vec::as_slice)),
            )
    }

    fn train(mut self: Box<Self>, journal: &mut Journal<'_>) -> Result<Trained, TrainError> {
        let config = self.task.config;
        journal.keep_metrics()?;
        let limit = most_passes(config, self.task.division.budget.in_core);
        let records = self.task.rows.data.dataset.records();
        let visits = records * self.task.problem.subproblems() as u64;
        let mut done = journal
            .epochs
            .last()
            .is_some_and(|last| last.relative_gap <= self.wanted);
        while !done && (journal.epochs.len() as u64) < limit {
            let what = format!("pass {}", journal.epochs.len() + 1);
            let began = Instant::now();
            let seen = &mut |done, total| journal.progress(&what, done, total);
            let Some(found) = self.passes.pass(seen)? else {
                self.save(journal)?;
                return Err(journal.interrupted());
            };
            // One clock decides for all ranks.
            let every = config.checkpoint_every_s;
            let due = journal.unsaved_s() >= every || began.elapsed().as_secs_f64() >= every;
            let agreed = journal.agree(false, due, totals_of(&self.passes.meters))?;
            let record = EpochRecord {
                primal: found.certificate.primal,
                dual: found.certificate.dual,
                relative_gap: found.certificate.relative_gap(),
                certified: true,
                ..journal.end_epoch(visits, records)
            };
            journal.record(record)?;
            done = found.done;
            if agreed.due {
                self.save(journal)?;
            }
        }
        self.save(journal)?;
        let (weights, losses, spent) = self.passes.best()?;
        journal.done = journal.done.plus(&spent);
        let last = journal.epochs.last();
        let certificate = Certificate {
            primal: last.map_or(f64::INFINITY, |last| last.primal),
            dual: last.map_or(f64::NEG_INFINITY, |last| last.dual),
        };
        let access = match self.task.division.budget.in_core {
            true => "memory",
            false => "window",
        };
        journal.finish(Found {
            weights,
            certificate,
            train_accuracy: losses.accuracy(),
            access: access.to_string(),
            meters: self.passes.meters,
            advice: self.passes.advice,
        })
    }
}
