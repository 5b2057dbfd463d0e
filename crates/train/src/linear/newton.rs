//! Runs Newton's method: passes over rows in memory, or over the files in their order, with a line of metrics after
//! each, checkpoints between them, and the certificate of the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pelton_comm::Alike;
use pelton_fetch::{FetchOptions, Meters};
use pelton_linear::{LossSum, Newton, NewtonPass, Simd};
use pelton_plan::Place;
use pelton_run::{EpochRecord, Event, EventWriter, Observer, RunFolder};
use pelton_storage::in_parallel;

use super::evaluation::{evaluate, for_each_batch};
use super::first_pass::totals_of;
use super::ranks::Ranks;
use super::resume::{self, Before, digest_of};
use super::scaling;
use super::session::{Trained, interrupted, write_events};
use super::setup::Setup;
use super::source::Source;
use crate::checkpoint::{self, Progress, State, Totals};
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

/// Where passes get their rows.
pub(super) struct Passes<'a> {
    setup: &'a Setup,
    ranks: Ranks<'a>,
    newton: Newton,
    /// All rows, where they lie in memory.
    source: Option<Source>,
    meters: Meters,
    /// Whether the first rows are still to be looked at for advice, and what was found.
    looks: bool,
    advice: Option<String>,
}

impl<'a> Passes<'a> {
    pub fn new(setup: &'a Setup, wanted: f64, ranks: Ranks<'a>) -> Passes<'a> {
        let records = usize::try_from(setup.data.dataset.records()).unwrap_or(usize::MAX);
        let problem = Arc::clone(&setup.problem);
        Passes {
            setup,
            ranks,
            newton: Newton::new(problem, records, wanted, Simd::best()),
            source: None,
            meters: Meters::default(),
            looks: setup.scale.is_none(),
            advice: None,
        }
    }

    /// Reads rows that fit in memory, once.
    fn load(&mut self) -> Result<(), TrainError> {
        if self.setup.in_core && self.source.is_none() {
            let mut source = Source::open(self.setup, Place::default(), None, self.ranks)?;
            self.advice = source.take_advice();
            self.meters = source.meters();
            self.source = Some(source);
        }
        Ok(())
    }

    fn feed(&self) -> FetchOptions {
        FetchOptions {
            memory_bytes: self.setup.memory_bytes,
            interrupt: Arc::clone(&self.setup.interrupt),
            ..self.setup.feed.clone()
        }
    }

    /// One pass; `None` where an interruption ended it, on all ranks, and nothing has changed.
    pub fn pass(
        &mut self,
        interrupt: &AtomicBool,
        what: &str,
        observer: Observer<'_>,
    ) -> Result<Option<NewtonPass>, TrainError> {
        self.load()?;
        let began = Instant::now();
        let feed = self.feed();
        let (newton, advice) = (&mut self.newton, &mut self.advice);
        let mut looks = std::mem::take(&mut self.looks);
        newton.begin_pass();
        let dataset = &self.setup.data.dataset;
        let whole = match self.source.as_ref().and_then(Source::rows) {
            Some(rows) => {
                let whole = in_parallel(|| newton.add(rows, interrupt))??;
                self.meters.compute_s += began.elapsed().as_secs_f64();
                whole
            }
            None => {
                let mut done = 0;
                let read = for_each_batch(dataset, &feed, |batch| {
                    done += batch.rows.len() as u64;
                    if std::mem::take(&mut looks) {
                        *advice = scaling::advice(&batch.rows);
                    }
                    in_parallel(|| newton.add(&batch.rows, interrupt))??;
                    observer(Event::Progress {
                        what,
                        done,
                        total: dataset.records() / self.ranks.size() as u64,
                    });
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
        self.ranks.check_bad_records(&feed, dataset, &self.meters)?;
        if self.ranks.any(!whole)? {
            return Ok(None);
        }
        let newton = &mut self.newton;
        let found = self.ranks.together(|peers| newton.end_pass(peers))?;
        Ok(Some(found))
    }

    /// Losses of the weights found over all rows.
    fn losses(&self) -> Result<(pelton_linear::Weights, LossSum, Totals), TrainError> {
        let (weights, losses) = self.newton.best();
        if let Some(losses) = losses {
            return Ok((weights, losses, Totals::default()));
        }
        let (problem, dataset) = (&self.setup.problem, &self.setup.data.dataset);
        let mut totals = Totals {
            rows: dataset.records(),
            ..Totals::default()
        };
        let mut losses = match self.source.as_ref().and_then(Source::rows) {
            Some(rows) => {
                let mut losses = LossSum::new(problem);
                losses.add(problem, rows, &weights, Simd::best())?;
                losses
            }
            None => {
                let found = evaluate(dataset, problem, &weights, &self.feed())?;
                totals = totals.plus(&totals_of(&found.meters));
                found.losses
            }
        };
        self.ranks.together(|peers| losses.add_up(peers))?;
        Ok((weights, losses, totals))
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

/// One run by Newton's method, from a start or a checkpoint to its end.
pub(super) struct NewtonSession<'a> {
    config: &'a LinearConfig,
    setup: &'a Setup,
    ranks: Ranks<'a>,
    passes: Passes<'a>,
    began: Instant,
    epochs: Vec<EpochRecord>,
    earlier: Totals,
    earlier_wall_s: f64,
    rows: u64,
    checkpointed: Instant,
    done: bool,
    events: Option<EventWriter>,
}

impl<'a> NewtonSession<'a> {
    pub fn new(
        config: &'a LinearConfig,
        setup: &'a Setup,
        ranks: Ranks<'a>,
        began: Instant,
    ) -> NewtonSession<'a> {
        let wanted = config.target.unwrap_or(WANTED);
        NewtonSession {
            config,
            setup,
            ranks,
            passes: Passes::new(setup, wanted, ranks),
            began,
            epochs: Vec::new(),
            earlier: setup.before,
            earlier_wall_s: 0.0,
            rows: 0,
            checkpointed: Instant::now(),
            done: false,
            events: None,
        }
    }

    /// Where the run begins, which all ranks have alike.
    pub fn place(&self) -> Alike {
        let points = self.passes.newton.save();
        Alike::default()
            .with("the count of finished passes", self.epochs.len())
            .with_digest(
                "weights with the fingerprint",
                digest_of(points.iter().map(Vec::as_slice)),
            )
    }

    /// Goes on from the checkpoint of the run before.
    ///
    /// Errors: a checkpoint that is damaged or of another run.
    pub fn resume(&mut self, before: &Before, observer: Observer<'_>) -> Result<(), TrainError> {
        let Some((progress, state)) = resume::read(before, self.config, self.setup, observer)?
        else {
            return Ok(());
        };
        let State::Newton(saved) = state else {
            return Err(resume::other_solver(before));
        };
        self.passes.newton.restore(&saved)?;
        self.earlier_wall_s = progress.wall_s;
        self.earlier = progress.totals;
        self.epochs = progress.epochs;
        observer(Event::Note(&format!(
            "going on from pass {}",
            self.epochs.len() + 1
        )));
        Ok(())
    }

    /// Leaves time that is not the run's own out of its seconds.
    pub fn leave_out(&mut self, spent: Duration) {
        self.began += spent;
    }

    /// Makes passes to the end. An interruption saves the state and is an error.
    pub fn train(
        mut self,
        optimum: Option<f64>,
        folder: &mut RunFolder,
        interrupt: &AtomicBool,
        observer: Observer<'_>,
    ) -> Result<Trained, TrainError> {
        folder.keep_metrics(self.epochs.len())?;
        let limit = most_passes(self.config, self.setup.in_core);
        let mut before = totals_of(&self.passes.meters);
        let meets = |record: &EpochRecord| {
            let wanted = self.config.target.unwrap_or(WANTED);
            record.relative_gap <= wanted
        };
        self.done = self.epochs.last().is_some_and(meets);
        while !self.done && (self.epochs.len() as u64) < limit {
            let what = format!("pass {}", self.epochs.len() + 1);
            let pass_began = Instant::now();
            let Some(found) = self.passes.pass(interrupt, &what, observer)? else {
                self.save(folder)?;
                return Err(interrupted(folder));
            };
            let records = self.setup.data.dataset.records();
            self.rows += records;
            let now = totals_of(&self.passes.meters);
            let record = EpochRecord {
                epoch: self.epochs.len() as u64 + 1,
                passes: self.earlier_passes() + self.rows as f64 / records.max(1) as f64,
                primal: found.certificate.primal,
                dual: found.certificate.dual,
                relative_gap: found.certificate.relative_gap(),
                certified: true,
                relative_difference: optimum.map(|best| (found.certificate.primal - best) / best),
                visits: records * self.setup.problem.subproblems() as u64,
                rows: records,
                rows_left_out: 0,
                wall_s: self.earlier_wall_s + self.began.elapsed().as_secs_f64(),
                wait_s: now.wait_s - before.wait_s,
                compute_s: now.compute_s - before.compute_s,
                read_bytes: now.read_bytes - before.read_bytes,
                used_bytes: now.used_bytes - before.used_bytes,
            };
            before = now;
            observer(Event::Epoch(&record));
            folder.append_metrics(&record)?;
            write_events(&mut self.events, folder, &record);
            self.epochs.push(record);
            self.done = found.done;
            // One clock decides for all ranks.
            let every = self.config.checkpoint_every_s;
            let due = self.checkpointed.elapsed().as_secs_f64() >= every
                || pass_began.elapsed().as_secs_f64() >= every;
            if self.ranks.any(due && self.ranks.rank() == 0)? {
                self.save(folder)?;
            }
        }
        self.save(folder)?;
        self.finish()
    }

    fn earlier_passes(&self) -> f64 {
        self.earlier.rows as f64 / self.setup.data.dataset.records().max(1) as f64
    }

    fn totals(&self) -> Totals {
        let own = Totals {
            rows: self.rows,
            visits: self.rows * self.setup.problem.subproblems() as u64,
            ..totals_of(&self.passes.meters)
        };
        self.earlier.plus(&own)
    }

    /// Writes a checkpoint: rank 0 does, of the state that all ranks have alike.
    fn save(&mut self, folder: &RunFolder) -> Result<(), TrainError> {
        if folder.is_written() {
            let progress = Progress {
                data: self.setup.data.dataset.fingerprint(),
                ranks: self.ranks.size() as u64,
                wall_s: self.earlier_wall_s + self.began.elapsed().as_secs_f64(),
                totals: self.totals(),
                scale: self.config.scale,
                packed: self.setup.packed,
                epochs: self.epochs.clone(),
                ..Progress::default()
            };
            let path = resume::checkpoint_path(folder.path());
            let state = State::Newton(self.passes.newton.save());
            checkpoint::write(&path, &progress, &state)?;
            let passes = self.epochs.len();
            tracing::debug!(path = %path.display(), passes, "checkpoint written");
        }
        self.checkpointed = Instant::now();
        Ok(())
    }

    fn finish(self) -> Result<Trained, TrainError> {
        let (weights, losses, evaluation) = self.passes.losses()?;
        let last = self.epochs.last();
        let certificate = pelton_linear::Certificate {
            primal: last.map_or(f64::INFINITY, |last| last.primal),
            dual: last.map_or(f64::NEG_INFINITY, |last| last.dual),
        };
        let (bytes, seconds) = self.ranks.traffic()?;
        let own = self.totals().plus(&evaluation);
        let totals = self.ranks.agree(false, false, own)?.totals;
        Ok(Trained {
            weights,
            certificate,
            train_accuracy: losses.accuracy(),
            wall_s: self.earlier_wall_s + self.began.elapsed().as_secs_f64(),
            waiting: self.passes.meters.verdict().to_string(),
            left_out: pelton_data::left_out(
                &self.setup.data.dataset,
                &self.passes.meters.skipped_ids,
            ),
            advice: self.passes.advice,
            access: access_of(self.setup),
            ranks: self.ranks.size() as u64,
            communication_s: seconds,
            communication_bytes: bytes,
            epochs: self.epochs,
            totals,
        })
    }
}

fn access_of(setup: &Setup) -> String {
    match setup.in_core {
        true => "memory".to_string(),
        false => "window".to_string(),
    }
}
