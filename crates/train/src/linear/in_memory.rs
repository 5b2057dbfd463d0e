//! Training over rows in memory, on one rank: an array, or the records of files that fit. The same rows in the
//! same order give the same model to the last bit.
//!
//! ```text
//! coordinate descent in f32 → in f64, for losses with a kink, where f32 brings no more
//!                           ↘ Newton's method or L-BFGS, where visits bring no more, or are expected to be later at the
//!                             target
//! ```

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pelton_fetch::Meters;
use pelton_format::{Layout, RowTable};
use pelton_key::{Stage as KeyStage, key};
use pelton_linear::{
    Certificate, FeatureNumbering, FineDescent, InnerPasses, Lbfgs, LinearError, LossSum, Newton,
    OutOfCore, PassSolver, Penalty, Problem, Simd, Weights, modelled_costs,
};
use pelton_run::{EpochRecord, Interrupt};

use super::division;
use super::first_pass::totals_of;
use super::journal::{Journal, Solved};
use super::passes::{self, Over, Passes, WANTED};
use super::problem::Shape;
use super::ranks::Ranks;
use crate::checkpoint::{Progress, State};
use crate::config::{LinearConfig, Solver, Target};
use crate::error::TrainError;

/// Most visits of a row by default.
const MOST_VISITS: u64 = 1000;
/// Bytes of rows, up to which `auto` tries coordinate descent first: about the size of a processor's caches.
const RACE_BYTES: f64 = 16e6;

/// A run over rows in memory.
pub(super) struct InMemory<'a> {
    pub config: &'a LinearConfig,
    pub problem: Arc<Problem>,
    pub shape: Shape,
    pub interrupt: &'a Interrupt,
    /// Weights to begin from.
    pub start: Option<&'a Weights>,
    /// The single rank.
    pub ranks: Ranks<'a>,
    /// Whether the configuration left the solver open; it then holds the cost model's choice.
    pub is_open: bool,
    /// Bytes that the tables of methods of passes, and those of coordinate descent in f64, may take.
    pub newton_room: u64,
    pub fine_room: u64,
}

/// The stage of a run.
pub(super) enum Stage {
    /// Coordinate descent, in an epoch or between two.
    Descent { solver: OutOfCore, in_epoch: bool },
    /// In f64, from these weights and α; if empty, from the solver's.
    Fine(OutOfCore, Vec<Vec<f64>>),
    /// A method of passes, after this many epochs of the others.
    Passes(Box<dyn PassSolver>, usize),
}

impl InMemory<'_> {
    /// The first stage.
    pub fn begin(&self) -> Stage {
        if self.config.solver.is_by_passes() && !self.is_raced() {
            return Stage::Passes(self.by_passes(), 0);
        }
        Stage::Descent {
            solver: self.descent(),
            in_epoch: false,
        }
    }

    /// Whether to switch from coordinate descent to Newton's method if that is expected to reach the target sooner.
    pub fn is_raced(&self) -> bool {
        self.race().is_open
    }

    /// The stage saved in a checkpoint.
    pub fn resume(&self, progress: &Progress, state: State<'static>) -> Result<Stage, TrainError> {
        let mut solver = self.descent();
        Ok(match state {
            State::Descent(state) => {
                solver.restore(*state)?;
                Stage::Descent {
                    solver,
                    in_epoch: progress.in_epoch,
                }
            }
            State::Fine(values) => Stage::Fine(solver, values),
            State::Newton(points) => {
                let mut newton = self.by_passes();
                newton.restore(&points)?;
                Stage::Passes(newton, progress.epochs_before as usize)
            }
        })
    }

    /// Trains to the end, from a stage. An interruption saves the state and is an error.
    pub fn train(
        &self,
        mut stage: Stage,
        mut rows: RowTable,
        meters: &mut Meters,
        journal: &mut Journal<'_>,
    ) -> Result<Solved, TrainError> {
        journal.keep_metrics()?;
        let race = self.race();
        let mut numbering = None;
        if !matches!(stage, Stage::Passes(..)) && !race.is_open {
            numbering = FeatureNumbering::renumber(&mut rows, self.problem.features());
        }
        let numbering = numbering.map(Arc::new);
        if let (Some(numbering), Stage::Descent { solver, .. } | Stage::Fine(solver, _)) =
            (&numbering, &mut stage)
        {
            solver.renumber(Arc::clone(numbering));
        }
        let course = Course {
            run: self,
            rows: &rows,
            race,
            numbering,
        };
        loop {
            let next = match stage {
                Stage::Descent { solver, in_epoch } => {
                    course.descend(solver, in_epoch, meters, journal)?
                }
                Stage::Fine(solver, values) => {
                    course.descend_finely(&solver, &values, meters, journal)?
                }
                Stage::Passes(newton, before) => {
                    let mut passes = Passes {
                        over: Over::Rows(&rows),
                        problem: &self.problem,
                        records: self.shape.records,
                        ranks: self.ranks,
                        interrupt: self.interrupt,
                        meters,
                        content: None,
                        advice: None,
                    };
                    let config = &self.config_of_passes();
                    return passes::train(newton, before, config, true, &mut passes, journal);
                }
            };
            stage = match next {
                ControlFlow::Break(solved) => return Ok(solved),
                ControlFlow::Continue(stage) => stage,
            };
        }
    }

    fn values(&self) -> f64 {
        self.shape.values_of_a_row()
    }

    fn race(&self) -> Race {
        // For rows in the processor's caches, visits take less time than in the model, and products more.
        let a_value = match self.shape.layout {
            Layout::Dense { .. } => 0.2,
            _ => 2.0,
        };
        let is_small = 4.0 * self.values() * self.shape.records as f64 <= RACE_BYTES;
        let newton_can = Newton::fits(&self.problem, self.newton_room);
        let lbfgs_can =
            Lbfgs::applies(&self.problem) && Lbfgs::bytes(&self.problem) <= self.newton_room;
        let costs = modelled_costs(&self.problem, self.shape.records, self.values());
        Race {
            visit: 30.0 + a_value * self.values(),
            newton: 2.0 * costs.1,
            // For more rows the model is good enough, and a false start costs seconds; if L-BFGS applies, it always is.
            is_open: self.is_open
                && !Lbfgs::applies(&self.problem)
                && self.problem.penalty() == Penalty::L2
                && self.config.target != Target::None
                && is_small
                && newton_can,
            passes_can: newton_can || lbfgs_can,
        }
    }

    /// The configuration with the method of passes that takes over.
    fn config_of_passes(&self) -> LinearConfig {
        let solver = match self.config.solver {
            solver if solver.is_by_passes() => solver,
            _ if Newton::fits(&self.problem, self.newton_room) => Solver::Newton,
            _ => Solver::Lbfgs,
        };
        LinearConfig {
            solver,
            ..self.config.clone()
        }
    }

    fn visits_of_a_pass(&self) -> u64 {
        self.shape.records * self.problem.subproblems() as u64
    }

    fn descent(&self) -> OutOfCore {
        let mut options = division::options(self.config, true);
        let race = self.race();
        if let (true, InnerPasses::Until { at_most, .. }) = (race.is_open, &mut options.inner) {
            // An epoch takes an eighth of what Newton's method takes, at most.
            let passes = race.newton / (8.0 * race.visit * self.visits_of_a_pass() as f64);
            *at_most = (*at_most).min(passes as u32).max(1);
        }
        let problem = Arc::clone(&self.problem);
        let mut solver = OutOfCore::new(problem, self.shape.records, options);
        solver.end_when(Arc::clone(self.interrupt));
        solver
    }

    fn by_passes(&self) -> Box<dyn PassSolver> {
        let needs = passes::Needs {
            problem: &self.problem,
            records: self.shape.records,
            interrupt: self.interrupt,
            memory: self.newton_room,
            start: self.start,
        };
        passes::solver_for(&self.config_of_passes(), &needs)
    }

    /// Whether there is memory for w, α and the lengths of rows in f64.
    fn fine_fits(&self) -> bool {
        let width = self.problem.features() as u64 + 1;
        let tables = self.problem.subproblems() as u64 * (12 * width + 12 * self.shape.records);
        tables + 12 * self.shape.records <= self.fine_room
    }
}

/// Decides when coordinate descent hands over to Newton's method.
struct Race {
    /// Nanoseconds of a visit, and of Newton's method to the end, about.
    visit: f64,
    newton: f64,
    /// Whether it may hand over for being slower.
    is_open: bool,
    /// Whether a method of passes can be used at all.
    passes_can: bool,
}

impl Race {
    /// Whether Newton's method is expected to reach the target sooner than coordinate descent with these gaps
    /// after these visits.
    fn is_lost(&self, gaps: &[(u64, f64)], target: f64) -> bool {
        let (visit, newton) = (self.visit, self.newton);
        let &[.., (before, was), (visits, gap)] = gaps else {
            return false;
        };
        let spent = visit * visits as f64;
        let pace = (was / gap).ln() / (visit * (visits - before) as f64);
        let left = (gap / target).ln() / pace;
        let late = !(pace > 0.0 && left < 0.5 * newton);
        // `newton` is twice the model's estimate, which is too low for many features.
        self.is_open && (spent > 0.1 * newton && late || spent > 0.25 * newton)
    }
}

/// Visits so far and the gap, after each epoch.
fn gaps(epochs: &[EpochRecord]) -> Vec<(u64, f64)> {
    let mut visits = 0;
    let after = |epoch: &EpochRecord| {
        visits += epoch.visits;
        (visits, epoch.relative_gap)
    };
    epochs.iter().map(after).collect()
}

/// Whether epochs no longer approach the optimum, for instance at the precision of 32 bits.
fn is_stuck(gaps: &[(u64, f64)]) -> bool {
    let Some((last, earlier)) = gaps.split_last() else {
        return false;
    };
    earlier.len() >= 3
        && earlier[earlier.len() - 3..]
            .iter()
            .all(|(_, gap)| last.1 > 0.7 * gap)
}

/// The step after an epoch.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Ends,
    Epoch,
    Fine,
    Passes,
}

/// The epochs of coordinate descent over the rows of a run.
struct Course<'a> {
    run: &'a InMemory<'a>,
    rows: &'a RowTable,
    race: Race,
    /// The new indices of the rows' features, if they were renumbered.
    numbering: Option<Arc<FeatureNumbering>>,
}

impl Course<'_> {
    /// In f32.
    fn descend(
        &self,
        mut solver: OutOfCore,
        mut in_epoch: bool,
        meters: &mut Meters,
        journal: &mut Journal<'_>,
    ) -> Result<ControlFlow<Solved, Stage>, TrainError> {
        let mut found = None;
        let then = loop {
            let then = self.then(journal, false);
            if then != Then::Epoch {
                break then;
            }
            let began = Instant::now();
            let epoch = journal.epochs.len() as u64;
            let trained = if in_epoch {
                Ok(())
            } else {
                solver.begin_epoch(epoch, false)
            };
            in_epoch = trained.is_ok();
            match trained.and_then(|()| solver.train(self.rows, 0)) {
                Err(LinearError::Interrupted { undone }) => {
                    if undone {
                        save_descent(&solver, in_epoch, journal)?;
                    }
                    return Err(journal.interrupted());
                }
                trained => trained?,
            };
            in_epoch = false;
            journal.progress(&format!("epoch {}", epoch + 1), 1, 1);
            let visits = solver.end_epoch().visits;
            let (certificate, losses, is_snapshot) = solver.certify(self.rows)?;
            found = Some((certificate, losses, is_snapshot));
            meters.compute_s += began.elapsed().as_secs_f64();
            self.record(visits, certificate, meters, journal)?;
            self.keep(solver.saved_bytes(), journal, |journal| {
                save_descent(&solver, false, journal)
            })?;
        };
        match then {
            Then::Fine => {
                journal.note(
                    "coordinate descent continues in 64 bits, because 32 bits make no further progress",
                );
                Ok(ControlFlow::Continue(Stage::Fine(solver, Vec::new())))
            }
            Then::Passes => Ok(self.give_way(journal)),
            Then::Ends | Then::Epoch => {
                let (certificate, losses, is_snapshot) = match found {
                    Some(found) => found,
                    None => solver.certify(self.rows)?,
                };
                Ok(ControlFlow::Break(Solved {
                    weights: solver.into_weights(is_snapshot),
                    certificate,
                    accuracy: losses.accuracy(),
                    solver: Solver::CoordinateDescent,
                    precision: None,
                }))
            }
        }
    }

    fn give_way(&self, journal: &mut Journal<'_>) -> ControlFlow<Solved, Stage> {
        let method = self.run.config_of_passes().solver.method();
        journal.note(&format!("{method} takes over from coordinate descent"));
        ControlFlow::Continue(Stage::Passes(self.run.by_passes(), journal.epochs.len()))
    }

    /// In f64, from `values`, or if empty from the α of `solver`.
    fn descend_finely(
        &self,
        solver: &OutOfCore,
        values: &[Vec<f64>],
        meters: &mut Meters,
        journal: &mut Journal<'_>,
    ) -> Result<ControlFlow<Solved, Stage>, TrainError> {
        let (problem, simd) = (solver.problem(), Simd::best());
        let fine = FineDescent::new(problem, self.rows, solver.duals(), solver.centres(), simd);
        let mut fine = fine.ok_or(LinearError::StateMismatch {
            part: "coordinate descent in f64",
        })?;
        let mut then = Then::Epoch;
        if !values.is_empty() {
            fine.restore(values)?;
            then = self.then(journal, true);
        }
        let mut found = None;
        while then == Then::Epoch {
            let began = Instant::now();
            let (epoch, interrupt) = (journal.epochs.len() as u64, self.run.interrupt);
            let order = key(self.run.config.seed, epoch, KeyStage::Inner(1));
            let visits = fine.round(order, interrupt);
            if interrupt.load(Ordering::Relaxed) {
                // The round is lost: the run resumes from the checkpoint before.
                return Err(journal.interrupted());
            }
            journal.progress(&format!("epoch {}", epoch + 1), 1, 1);
            let (weights, certificate) = fine.certify()?;
            found = Some((weights, certificate));
            meters.compute_s += began.elapsed().as_secs_f64();
            self.record(visits, certificate, meters, journal)?;
            self.keep(2 * solver.saved_bytes(), journal, |journal| {
                journal.checkpoint(Progress::default(), &State::Fine(fine.save()))
            })?;
            then = self.then(journal, true);
        }
        if then == Then::Passes {
            return Ok(self.give_way(journal));
        }
        let (weights, certificate) = match found {
            Some(found) => found,
            None => fine.certify()?,
        };
        let mut losses = LossSum::new(problem);
        losses.add(problem, self.rows, &weights, simd)?;
        Ok(ControlFlow::Break(Solved {
            weights: match &self.numbering {
                Some(numbering) => numbering.widen(&weights),
                None => weights,
            },
            certificate,
            accuracy: losses.accuracy(),
            solver: Solver::CoordinateDescent,
            precision: None,
        }))
    }

    fn record(
        &self,
        visits: u64,
        certificate: Certificate,
        meters: &Meters,
        journal: &mut Journal<'_>,
    ) -> Result<(), TrainError> {
        journal.agree(false, false, totals_of(meters))?;
        let record = journal.end_epoch(visits, self.rows.len() as u64);
        journal.record(EpochRecord {
            primal: certificate.primal,
            dual: certificate.dual,
            relative_gap: certificate.relative_gap(),
            certified: true,
            ..record
        })
    }

    /// The next stage after the epochs so far; `fine` says that the last was in f64.
    fn then(&self, journal: &Journal<'_>, fine: bool) -> Then {
        let config = self.run.config;
        let gaps = gaps(&journal.epochs);
        let Some(&(visits, gap)) = gaps.last() else {
            return Then::Epoch;
        };
        let target = config.target.gap().unwrap_or(WANTED);
        let stuck = is_stuck(&gaps);
        // Passes take rows by the features' own indices.
        let passes_can = self.race.passes_can && self.numbering.is_none();
        let is_fine = !fine && self.run.problem.loss().needs_fine_steps() && self.run.fine_fits();
        // Without a target, the precision of 32 bits is enough.
        let most = config.target.most();
        let is_near = most.is_none_or(|most| gap <= most) && config.target.gap().is_none();
        let is_over = self.is_over(visits, gaps.len() as u64);
        // The default limit of visits applies only if no other method can take over.
        let goes_on = passes_can && config.epochs == LinearConfig::default().epochs;
        if gap <= target || stuck && is_near {
            Then::Ends
        } else if is_over && goes_on && !is_near {
            Then::Passes
        } else if is_over {
            Then::Ends
        } else if stuck && is_fine {
            Then::Fine
        } else if self.race.is_lost(&gaps, target) || stuck && passes_can {
            Then::Passes
        } else {
            Then::Epoch
        }
    }

    /// Whether these visits and epochs reach the limit of the configuration.
    fn is_over(&self, visits: u64, epochs: u64) -> bool {
        let most = self.run.config.epochs;
        if most == LinearConfig::default().epochs {
            let all = self.run.visits_of_a_pass();
            epochs >= most && visits >= MOST_VISITS * all || epochs >= MOST_VISITS
        } else {
            epochs >= most
        }
    }

    /// Writes a checkpoint of this many bytes after an epoch if it costs little, is due, or the run ends here,
    /// for instance by an interruption.
    fn keep(
        &self,
        bytes: u64,
        journal: &mut Journal<'_>,
        save: impl FnOnce(&mut Journal<'_>) -> Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        let interrupted = self.run.interrupt.load(Ordering::Relaxed);
        let epochs = gaps(&journal.epochs);
        let last = epochs.last();
        let over = last.is_some_and(|(visits, _)| self.is_over(*visits, epochs.len() as u64));
        let due = journal.unsaved_s() >= self.run.config.checkpoint_every_s;
        if journal.is_written() && (interrupted || over || due || journal.is_cheap(bytes)) {
            save(journal)?;
        }
        if interrupted {
            Err(journal.interrupted())
        } else {
            Ok(())
        }
    }
}

fn save_descent(
    solver: &OutOfCore,
    in_epoch: bool,
    journal: &mut Journal<'_>,
) -> Result<(), TrainError> {
    let state = solver.save();
    let progress = Progress {
        cursor_epoch: state.epoch,
        next: u64::from(!in_epoch),
        ..Progress::of_descent(&state, in_epoch)
    };
    journal.checkpoint(progress, &State::Descent(Box::new(state)))
}
