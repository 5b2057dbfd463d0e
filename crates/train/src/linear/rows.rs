//! The job over rows that lie in memory already, as an array does: what it takes over files that fit in memory, without
//! files, ranks and checkpoints. The same rows in the same order give the same model to the last bit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelton_format::{ClassMap, Layout, RowTable, Rows, Slot};
use pelton_key::{Stage, key};
use pelton_linear::{
    Certificate, FeatureNumbering, FeatureSums, FineDescent, InnerPasses, LinearError, Model,
    Newton, OutOfCore, Problem, Scaling, Simd, Weights, alone, modelled_costs,
};
use pelton_run::Interrupt;

use super::newton::{self, most_passes};
use super::outcome::Fitted;
use super::scaling;
use super::setup::{self, Shape};
use crate::config::{LinearConfig, Solver};
use crate::error::TrainError;

/// Most visits of a row where nothing is said.
const MOST_VISITS: u64 = 1000;
/// Bytes of rows up to which `auto` tries coordinate descent first: as many as stay in a processor's caches.
const RACE_BYTES: f64 = 16e6;

/// What a solver found: weights, their certificate, and the epochs or passes that it took.
type Solved = (Weights, Certificate, u64);

/// Trains a linear model on the rows of some segments, which `labels` has the classes of; they are scaled in place. What
/// is in `centre` was subtracted from each feature before it became f32, for the standard scale to take in. Of the
/// configuration nothing is looked at that is about files, orders or blocks.
///
/// Errors: a bad configuration; rows of fewer than two classes or of no features; an interruption.
pub fn fit_rows(
    config: &LinearConfig,
    mut segments: Vec<Rows>,
    labels: ClassMap,
    features: usize,
    centre: Option<&[f64]>,
    interrupt: &Interrupt,
) -> Result<Fitted, TrainError> {
    super::check(config)?;
    let mut config = config.clone();
    let records: usize = segments.iter().map(Rows::len).sum();
    let shape = Shape {
        name: "the data".to_string(),
        layout: segments.first().map_or(Layout::Sparse, Rows::layout),
        records: records as u64,
        features: features as u64,
        stored: segments
            .iter()
            .map(|rows| rows.stored_values() as u64)
            .sum(),
    };
    let problem = Arc::new(setup::problem(&config, &labels, &shape)?);
    let chosen = config.solver;
    let memory = config.memory_bytes;
    setup::resolve_solver(&mut config, &problem, &shape, memory, 1)?;
    let mut scale = None;
    if config.scale != Scaling::None {
        let mut sums = FeatureSums::new(features);
        for rows in &segments {
            (0..rows.len()).for_each(|i| sums.add_row(rows.row(i)));
        }
        scale = sums.scale(config.scale, shape.layout, &mut alone::<TrainError>)?;
    }
    if let Some(scale) = &scale {
        segments.iter_mut().for_each(|rows| rows.scale(scale));
    }
    let scale = scale.and_then(|scale| match centre {
        Some(centre) => scaling::moved(&scale, centre),
        None => Some(scale),
    });
    let mut rows = table(segments);
    let advice = match &scale {
        Some(_) => None,
        None => scaling::advice(&rows),
    };
    let newton_can = Newton::fits(&problem, memory);
    let values = shape.values_of_a_row();
    // Of more the model knows enough, and a false start costs seconds.
    let is_small = 4.0 * values * shape.records as f64 <= RACE_BYTES;
    let solved = match config.solver {
        Solver::Newton if chosen == Solver::Newton || config.target.is_none() || !is_small => None,
        _ => {
            // What the processor's caches hold takes less time to visit than the model says, and more to make products of.
            let a_value = match shape.layout {
                Layout::Dense { .. } => 0.2,
                _ => 2.0,
            };
            let race = Race {
                visit: 30.0 + a_value * values,
                newton: 2.0 * modelled_costs(&problem, shape.records, values).1,
                open: chosen == Solver::Auto && newton_can && is_small,
                newton_can,
            };
            by_descent(&config, &problem, &mut rows, race, interrupt)?
        }
    };
    let solved = match solved {
        Some(solved) => Ok(solved),
        None => by_newton(&config, &problem, &rows, interrupt),
    };
    let (weights, certificate, epochs) = solved?;
    Ok(Fitted {
        model: Model {
            loss: config.loss,
            cost: Some(config.cost),
            class_weights: problem.class_weights().to_vec(),
            classes: labels,
            means: None,
            weights,
            scale,
            columns: None,
        },
        certificate,
        epochs,
        advice,
        notes: Vec::new(),
    })
}

/// Every row in order; its number is its id.
fn table(segments: Vec<Rows>) -> RowTable {
    let slots: Vec<Slot> = (0..)
        .zip(&segments)
        .flat_map(|(segment, rows)| (0..rows.len() as u32).map(move |row| Slot { segment, row }))
        .collect();
    let ids = (0..slots.len() as u64).collect();
    RowTable::from_parts(segments, slots, ids)
}

fn by_newton(
    config: &LinearConfig,
    problem: &Arc<Problem>,
    rows: &RowTable,
    interrupt: &Interrupt,
) -> Result<Solved, TrainError> {
    let wanted = config.target.unwrap_or(newton::WANTED);
    let mut newton = Newton::new(Arc::clone(problem), rows.len(), wanted, Simd::best());
    let most = most_passes(config, true);
    for pass in 1.. {
        newton.begin_pass();
        if !newton.add(rows, interrupt)? {
            return Err(LinearError::Interrupted { undone: false }.into());
        }
        let found = newton.end_pass(&mut alone::<TrainError>)?;
        if found.done || pass >= most {
            return Ok((newton.best().0, found.certificate, pass));
        }
    }
    unreachable!("there is a last pass")
}

/// When coordinate descent gives way to Newton's method.
struct Race {
    /// Nanoseconds of a visit, and of Newton's method to the end, about.
    visit: f64,
    newton: f64,
    /// Whether it does so for being slower.
    open: bool,
    /// Whether Newton's method can be used at all.
    newton_can: bool,
}

impl Race {
    /// Whether Newton's method is expected to be at the target sooner than coordinate descent, which has these gaps after
    /// these visits.
    fn is_lost(&self, gaps: &[(u64, f64)], target: f64) -> bool {
        let (visit, newton) = (self.visit, self.newton);
        let &[.., (before, was), (visits, gap)] = gaps else {
            return false;
        };
        let spent = visit * visits as f64;
        let pace = (was / gap).ln() / (visit * (visits - before) as f64);
        let left = (gap / target).ln() / pace;
        let late = !(pace > 0.0 && left < 0.5 * newton);
        self.open && (spent > 0.2 * newton && late || spent > newton)
    }
}

/// Whether epochs bring the weights no nearer to the optimum, as where 32 bits allow no better.
fn is_stuck(gaps: &[(u64, f64)]) -> bool {
    let (last, earlier) = gaps.split_last().expect("an epoch was made");
    earlier.len() >= 3
        && earlier[earlier.len() - 3..]
            .iter()
            .all(|(_, gap)| last.1 > 0.7 * gap)
}

/// `None` where Newton's method is to take over.
fn by_descent(
    config: &LinearConfig,
    problem: &Arc<Problem>,
    rows: &mut RowTable,
    race: Race,
    interrupt: &Interrupt,
) -> Result<Option<Solved>, TrainError> {
    let mut options = setup::options(config, true);
    let all = (rows.len() * problem.subproblems()) as u64;
    if let (true, InnerPasses::Until { at_most, .. }) = (race.open, &mut options.inner) {
        // An epoch takes an eighth of what Newton's method takes, at most.
        let passes = race.newton / (8.0 * race.visit * all as f64);
        *at_most = (*at_most).min(passes as u32).max(1);
    }
    let mut solver = OutOfCore::new(Arc::clone(problem), rows.len() as u64, options);
    solver.end_when(Arc::clone(interrupt));
    let mut numbering = None;
    if !race.open {
        numbering = FeatureNumbering::renumber(rows, problem.features()).map(Arc::new);
    }
    if let Some(numbering) = &numbering {
        solver.renumber(Arc::clone(numbering));
    }
    let ends = |visits: u64, epoch: u64| match config.epochs == LinearConfig::default().epochs {
        true => epoch >= config.epochs && visits >= MOST_VISITS * all || epoch >= MOST_VISITS,
        false => epoch >= config.epochs,
    };
    // Newton's method takes rows by the features' own numbers.
    let newton_can = race.newton_can && numbering.is_none();
    let target = config.target.unwrap_or(0.0);
    let (mut visits, mut gaps) = (0, Vec::new());
    loop {
        let epoch = gaps.len() as u64;
        solver.begin_epoch(epoch, false)?;
        solver.train(rows, 0)?;
        visits += solver.end_epoch().visits;
        let (certificate, _, is_snapshot) = solver.certify(rows)?;
        let gap = certificate.relative_gap();
        gaps.push((visits, gap));
        if gap <= target || ends(visits, epoch + 1) {
            let weights = solver.into_weights(is_snapshot);
            return Ok(Some((weights, certificate, epoch + 1)));
        }
        if is_stuck(&gaps) && problem.loss().needs_fine_steps() {
            break;
        }
        if race.is_lost(&gaps, target) || is_stuck(&gaps) && newton_can {
            return Ok(None);
        }
    }
    // In 64 bits.
    let problem = Arc::new(solver.problem().clone());
    let fine = FineDescent::new(&problem, rows, solver.duals(), Simd::best());
    let mut fine = fine.expect("the loss needs it");
    loop {
        let epoch = gaps.len() as u64;
        visits += fine.round(key(config.seed, epoch, Stage::Inner(1)), interrupt);
        if interrupt.load(Ordering::Relaxed) {
            return Err(LinearError::Interrupted { undone: false }.into());
        }
        let (weights, certificate) = fine.certify()?;
        let gap = certificate.relative_gap();
        gaps.push((visits, gap));
        if gap <= target || ends(visits, epoch + 1) {
            let weights = match &numbering {
                Some(numbering) => numbering.widen(&weights),
                None => weights,
            };
            return Ok(Some((weights, certificate, epoch + 1)));
        }
        if race.is_lost(&gaps, target) || is_stuck(&gaps) && newton_can {
            return Ok(None);
        }
    }
}
