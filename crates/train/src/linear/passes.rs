//! Pass methods, such as Newton's, over rows in memory or over files in their order, with a line of metrics after each
//! pass, checkpoints between passes, and a certificate of the last.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pelton_comm::Alike;
use pelton_data::check_limit;
use pelton_fetch::{FetchOptions, Meters};
use pelton_format::{ContentSum, Dataset, RowTable};
use pelton_linear::{
    Certificate, Exchange, Lbfgs, LinearError, LossSum, Newton, PassFigures, PassSolver, Penalty,
    Problem, SideBySide, Simd, Unpenalised, Weights, WorkingSet,
};
use pelton_run::{EpochRecord, Interrupt};
use pelton_storage::in_parallel;

use super::evaluation::{evaluate, for_each_batch};
use super::first_pass::totals_of;
use super::journal::{Found, Journal, Solved, Trained};
use super::method::Method;
use super::ranks::Ranks;
use super::reading::hold;
use super::resume::{self, Before, digest_of};
use super::scaling;
use super::task::Task;
use crate::checkpoint::{Progress, State, Totals};
use crate::config::{LinearConfig, Solver, Target};
use crate::error::TrainError;

/// Relative gap that ends a run without a target: steps this near cost no more than earlier ones.
pub(super) const WANTED: f64 = 1e-6;
/// Default limit of passes over rows in memory, and of L-BFGS and working sets over any: the inner passes that an epoch
/// of coordinate descent may make over its block, which cost no less.
const MOST_PASSES: u64 = 300;

/// The inputs of a pass method.
pub(super) struct Needs<'a> {
    pub problem: &'a Arc<Problem>,
    pub records: u64,
    pub interrupt: &'a Interrupt,
    /// Bytes available in addition to the rows.
    pub memory: u64,
    /// Weights to begin from.
    pub start: Option<&'a Weights>,
}

/// The configured pass method, at its start.
pub(super) fn solver_for(config: &LinearConfig, needs: &Needs<'_>) -> Box<dyn PassSolver> {
    let problem = Arc::clone(needs.problem);
    let wanted = config.target.gap().unwrap_or(WANTED);
    let records = usize::try_from(needs.records).unwrap_or(usize::MAX);
    let (memory, interrupt, simd) = (needs.memory, needs.interrupt, Simd::best());
    let mut solver: Box<dyn PassSolver> = match config.solver {
        _ if problem.penalty() == Penalty::None => Box::new(Unpenalised::new(problem, simd)),
        Solver::WorkingSet => {
            let interrupt = Arc::clone(interrupt);
            Box::new(WorkingSet::new(problem, wanted, memory, interrupt, simd))
        }
        Solver::Lbfgs if problem.is_coupled() && problem.models() > 1 => {
            Box::new(SideBySide::new(problem, records, wanted, simd))
        }
        Solver::Lbfgs => Box::new(Lbfgs::new(problem, records, wanted, simd)),
        Solver::Newton | Solver::CoordinateDescent | Solver::Auto => {
            Box::new(Newton::new(problem, records, wanted, simd))
        }
    };
    if let Some(start) = needs.start {
        solver.start(start);
    }
    solver
}

/// Most passes of a run.
pub(super) fn most_passes(config: &LinearConfig, in_core: bool) -> u64 {
    let is_open = config.epochs == LinearConfig::default().epochs;
    let reads_often = matches!(config.solver, Solver::Lbfgs | Solver::WorkingSet);
    if is_open && (in_core || reads_often) {
        MOST_PASSES
    } else {
        config.epochs
    }
}

/// The rows that passes read.
#[derive(Clone, Copy)]
pub(super) enum Over<'a> {
    /// This rank's rows, in memory.
    Rows(&'a RowTable),
    /// Files, in their order.
    Files(&'a Arc<Dataset>, &'a FetchOptions),
}

/// Passes over the rows of all ranks.
pub(super) struct Passes<'a> {
    pub over: Over<'a>,
    pub problem: &'a Problem,
    pub records: u64,
    pub ranks: Ranks<'a>,
    pub interrupt: &'a Interrupt,
    pub meters: &'a mut Meters,
    /// Content sum of the records of files, once known.
    pub content: Option<ContentSum>,
    /// Filled with advice for easier training, if the rows of files should be examined.
    pub advice: Option<&'a mut Option<String>>,
}

impl Passes<'_> {
    /// One pass, with progress in rows reported to `seen`; `None` if an interruption ended it, on all ranks, with
    /// nothing changed.
    pub fn make(
        &mut self,
        solver: &mut dyn PassSolver,
        seen: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<PassFigures>, TrainError> {
        let interrupt = self.interrupt;
        solver.begin_pass();
        let whole = match self.over {
            Over::Rows(rows) => {
                let began = Instant::now();
                let whole = in_parallel(|| solver.add(rows, interrupt))??;
                self.meters.compute_s += began.elapsed().as_secs_f64();
                whole
            }
            Over::Files(dataset, feed) => {
                let total = self.records / self.ranks.size() as u64;
                let mut done = 0;
                let mut advice = self.advice.take();
                let mut content = ContentSum::default();
                let read = for_each_batch(dataset, feed, |batch| {
                    done += batch.rows.len() as u64;
                    if let Some(advice) = advice.take() {
                        *advice = scaling::advice(&batch.rows);
                    }
                    in_parallel(|| solver.add(&batch.rows, interrupt))??;
                    content += batch.content;
                    seen(done, total);
                    Ok(())
                });
                let whole = match read {
                    Ok(meters) => {
                        self.content = Some(content);
                        *self.meters = added(self.meters, &meters);
                        !interrupt.load(Ordering::Relaxed)
                    }
                    Err(error) if error.is_interruption() => false,
                    Err(error) => return Err(error),
                };
                check_limit(self.ranks.0, feed.on_bad_record, dataset, self.meters)?;
                whole
            }
        };
        if self.ranks.any(!whole)? {
            return Ok(None);
        }
        let mut failed = None;
        let found = self.ranks.together(|peers| {
            let mut peers = |what: Exchange<'_>| {
                peers(what).map_err(|error| {
                    failed = Some(error);
                    LinearError::Exchange
                })
            };
            Ok(solver.end_pass(&mut peers))
        })?;
        match failed {
            Some(error) => Err(error),
            None => Ok(Some(found?)),
        }
    }

    /// The weights found, the share of rows that they predict right, and the totals of measuring that share.
    fn best(&self, solver: &dyn PassSolver) -> Result<(Weights, f64, Totals), TrainError> {
        let (weights, losses) = solver.best();
        if let Some(losses) = losses {
            return Ok((weights, losses.accuracy(), Totals::default()));
        }
        let mut spent = Totals::default();
        let mut losses = match self.over {
            Over::Rows(rows) => {
                let mut losses = LossSum::new(self.problem);
                losses.add(self.problem, rows, &weights, Simd::best())?;
                losses
            }
            Over::Files(dataset, feed) => {
                let found = evaluate(dataset, self.problem, &weights, feed, None)?;
                let work = totals_of(&found.meters);
                spent = self.ranks.agree(false, false, work)?.totals;
                found.losses
            }
        };
        spent.rows = self.records;
        self.ranks.together(|peers| losses.add_up(peers))?;
        Ok((weights, losses.accuracy(), spent))
    }
}

/// The added meters of passes over files.
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

/// Makes passes to the end, after this many epochs of coordinate descent. An interruption saves the state and is
/// an error.
pub(super) fn train(
    mut solver: Box<dyn PassSolver>,
    epochs_before: usize,
    config: &LinearConfig,
    in_memory: bool,
    passes: &mut Passes<'_>,
    journal: &mut Journal<'_>,
) -> Result<Solved, TrainError> {
    let save = |solver: &dyn PassSolver, journal: &mut Journal<'_>| {
        let progress = Progress {
            epochs_before: epochs_before as u64,
            ..Progress::default()
        };
        journal.checkpoint(progress, &State::Newton(solver.save()))
    };
    let wanted = config.target.gap().unwrap_or(WANTED);
    let limit = most_passes(config, in_memory);
    let visits = passes.records * passes.problem.subproblems() as u64;
    let last = journal.epochs.get(epochs_before..).and_then(<[_]>::last);
    // Working sets, and runs that report the precision of weights, repeat the pass over the weights they resume from;
    // its line of metrics exists already.
    let is_precise = passes.problem.penalty() == Penalty::None;
    let looks_again = is_precise || passes.problem.penalty().l1_share() > 0.0;
    let mut done = !is_precise && last.is_some_and(|last| last.relative_gap <= wanted);
    let mut recorded = last
        .filter(|_| looks_again)
        .map(|last| (last.primal, last.dual));
    loop {
        // Content sum of the rows in memory, or of the pass before.
        if let Some(content) = passes.content.take() {
            journal.see(content);
            journal.end_content()?;
        }
        let made = (journal.epochs.len() - epochs_before) as u64;
        if done || made >= limit {
            break;
        }
        let what = format!("pass {}", made + 1);
        let began = Instant::now();
        let seen = &mut |done, total| journal.progress(&what, done, total);
        let Some(found) = passes.make(&mut *solver, seen)? else {
            save(&*solver, journal)?;
            return Err(journal.interrupted());
        };
        // Rank 0's clock decides for all ranks.
        let every = config.checkpoint_every_s;
        let due = journal.unsaved_s() >= every || began.elapsed().as_secs_f64() >= every;
        let agreed = journal.agree(false, due, totals_of(passes.meters))?;
        let record = EpochRecord {
            primal: found.certificate.primal,
            dual: found.certificate.dual,
            relative_gap: found.certificate.relative_gap(),
            certified: found.is_proved,
            ..journal.end_epoch(visits, passes.records)
        };
        if recorded.take() != Some((record.primal, record.dual)) {
            journal.record(record)?;
        }
        done = found.done;
        if agreed.due {
            save(&*solver, journal)?;
        }
    }
    save(&*solver, journal)?;
    let (weights, accuracy, spent) = passes.best(&*solver)?;
    journal.done = journal.done.plus(&spent);
    let last = journal.epochs.last();
    Ok(Solved {
        weights,
        certificate: Certificate {
            primal: last.map_or(f64::INFINITY, |last| last.primal),
            dual: last.map_or(f64::NEG_INFINITY, |last| last.dual),
        },
        accuracy,
        solver: config.solver.by_passes(),
        precision: solver.precision(),
    })
}

/// One session over files on any number of ranks, from a start or a checkpoint to its end.
pub(super) struct PassSession<'a> {
    task: &'a Task<'a>,
    solver: Box<dyn PassSolver>,
    /// Passes made before.
    made: usize,
}

impl<'a> PassSession<'a> {
    /// A session with the task's configuration and this target.
    pub fn new(task: &'a Task<'a>, target: Target) -> PassSession<'a> {
        let config = LinearConfig {
            target,
            ..task.config.clone()
        };
        let needs = Needs {
            problem: &task.problem,
            records: task.rows.data.dataset.records(),
            interrupt: task.interrupt,
            memory: task.division.budget.bytes / 2,
            start: task.start.as_ref(),
        };
        PassSession {
            task,
            solver: solver_for(&config, &needs),
            made: 0,
        }
    }

    /// Calls `work` with the solver and the passes over the rows of the task, which are read first if they fit in
    /// memory.
    pub fn over<T>(
        self,
        work: impl FnOnce(Box<dyn PassSolver>, &mut Passes<'_>) -> Result<T, TrainError>,
    ) -> Result<(T, Meters, Option<String>), TrainError> {
        let task = self.task;
        let held = if task.division.budget.in_core {
            Some(hold(task)?)
        } else {
            None
        };
        let (rows, mut meters, mut advice) = match held {
            Some((rows, meters, advice)) => (Some(rows), meters, advice),
            None => (None, Meters::default(), None),
        };
        let is_scaled = task.rows.scale.is_some();
        let mut feed = task.division.budget.feed.clone();
        feed.sums = true;
        if task.config.solver == Solver::WorkingSet {
            // The other half is for columns.
            feed.memory_bytes /= 2;
        }
        let passes = &mut Passes {
            over: match &rows {
                Some(rows) => Over::Rows(rows),
                None => Over::Files(&task.rows.data.dataset, &feed),
            },
            problem: &task.problem,
            records: task.rows.data.dataset.records(),
            ranks: task.ranks,
            interrupt: task.interrupt,
            meters: &mut meters,
            content: rows.as_ref().map(ContentSum::new),
            advice: (!is_scaled && rows.is_none()).then_some(&mut advice),
        };
        let done = work(self.solver, passes)?;
        Ok((done, meters, advice))
    }
}

impl Method for PassSession<'_> {
    fn restore(
        &mut self,
        before: &Before,
        progress: &Progress,
        state: State<'static>,
    ) -> Result<String, TrainError> {
        let State::Newton(saved) = state else {
            return Err(resume::other_solver(before));
        };
        self.solver.restore(&saved)?;
        self.made = progress.epochs.len();
        Ok(format!("pass {}", self.made + 1))
    }

    fn place(&self) -> Alike {
        let points = self.solver.save();
        Alike::default()
            .with("the count of finished passes", self.made)
            .with_digest(
                "weights with the fingerprint",
                digest_of(points.iter().map(Vec::as_slice)),
            )
    }

    fn train(self: Box<Self>, journal: &mut Journal<'_>) -> Result<Trained, TrainError> {
        let (config, in_core) = (&self.task.config, self.task.division.budget.in_core);
        journal.keep_metrics()?;
        let train =
            |solver, passes: &mut Passes<'_>| train(solver, 0, config, in_core, passes, journal);
        let (solved, meters, advice) = self.over(train)?;
        let access = if in_core { "memory" } else { "window" };
        journal.finish(Found {
            solved,
            access: access.to_string(),
            meters,
            advice,
        })
    }
}
