//! Chooses open settings: the solver, and the rows to cache or skip.

use pelton_data::OpenedData;
use pelton_fetch::Access;
use pelton_format::{ClassMap, Dataset, Layout};
use pelton_linear::{
    Lbfgs, Loss, MOST_NEWTON_FEATURES, Newton, Penalty, Problem, lbfgs_cost, modelled_costs,
    newton_pays,
};
use pelton_plan::Order;

use super::budget::{self, asked_bytes};
use super::division::LEAST_CODED_FEATURES;
use super::problem::Shape;
use crate::config::{LinearConfig, Solver};
use crate::error::TrainError;

/// Mean row length from which skipping a row skips a page.
const PAGE_BYTES: u64 = 4096;
/// Default share of the budget for quantised rows; with more, blocks get small and are read in small pieces.
const CODED_SHARE: f64 = 0.6;

/// The default loss: a regression loss if labels are numbers rather than classes, else one with probabilities, over all
/// classes jointly if the other settings permit it.
pub(super) fn guess_loss(config: &LinearConfig, labels: &ClassMap, records: u64) -> Loss {
    let is_of_classes = !config.class_weights.is_empty()
        || config.balanced
        || config.threshold.is_some()
        || config.data.positive.is_some()
        || config.data.classes.is_some();
    let by_pairs = !is_free(config)
        || config.penalty != Penalty::L2
        || !matches!(config.solver, Solver::Auto | Solver::Lbfgs);
    if !is_of_classes && are_targets(labels, records) {
        Loss::Squared
    } else if labels.len() <= 2 || by_pairs {
        Loss::Logistic
    } else {
        Loss::Multinomial
    }
}

/// Whether labels look like numbers to predict rather than classes: some are not integers, or there are many and each
/// has few records or they do not count up from 0 or 1.
fn are_targets(labels: &ClassMap, records: u64) -> bool {
    const SOME: usize = 20;
    const MANY: usize = 100;
    const EACH: u64 = 20;
    let (values, count) = (labels.values(), labels.len());
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let counts = (least == 0.0 || least == 1.0) && most - least < 1.5 * count as f64;
    let are_rare = count > MANY && records < EACH * count as u64;
    labels.names().is_empty()
        && count > 2
        && (values.iter().any(|value| value.fract() != 0.0) || are_rare || count > SOME && !counts)
}

/// Whether no setting requires coordinate descent.
fn is_free(config: &LinearConfig) -> bool {
    let defaults = LinearConfig::default();
    config.order == defaults.order
        && config.access == defaults.access
        && config.inner_passes == defaults.inner_passes
        && config.cache_fraction.is_none()
        && config.blocks.is_none()
        && !config.skip
}

/// Chooses the open settings of one of `ranks` ranks for a problem, given that a process may use `limit` bytes; returns
/// a note if that lowers the budget.
///
/// Errors: settings that contradict the solver or the rows; tables larger than the limit.
pub(super) fn choose(
    config: &mut LinearConfig,
    data: &OpenedData,
    problem: &Problem,
    ranks: usize,
    limit: Option<u64>,
) -> Result<Option<String>, TrainError> {
    let (shape, free) = (Shape::from_data(data), config.solver == Solver::Auto);
    let memory = asked_bytes(config, &data.dataset);
    choose_solver(config, problem, &shape, memory, ranks)?;
    let note = budget::fit(config, free && ranks == 1, data, problem, ranks, limit)?;
    choose_kept(config, &data.dataset)?;
    Ok(note)
}

/// Chooses the solver if the configuration does not. Settings that only one solver supports decide: orders, blocks,
/// inner passes and access paths belong to coordinate descent.
pub(super) fn choose_solver(
    config: &mut LinearConfig,
    problem: &Problem,
    shape: &Shape,
    memory: u64,
    ranks: usize,
) -> Result<(), TrainError> {
    let (loss, is_coupled) = (config.loss, problem.is_coupled());
    match config.solver {
        Solver::Newton | Solver::CoordinateDescent if is_coupled => {
            return Err(TrainError::config(format!(
                "`solver` {} finds the weights of each class apart, and `loss` {loss} of {} classes needs l-bfgs; leave `solver` out, or use `loss` logistic for each class against the rest",
                config.solver,
                problem.classes()
            )));
        }
        Solver::Lbfgs if !Lbfgs::applies(problem) => {
            return Err(TrainError::config(format!(
                "`solver` l-bfgs needs a smooth loss and `penalty` l2, and `loss` {loss} with `penalty` {} is not smooth; leave `solver` out",
                config.penalty
            )));
        }
        _ => {}
    }
    if !is_coupled && ranks > 1 && config.solver == Solver::CoordinateDescent {
        return Err(TrainError::config(format!(
            "`solver` coordinate-descent runs on one rank, and there are {ranks}; use one rank, or leave `solver` out for Newton's method"
        )));
    }
    let free = is_free(config);
    match problem.penalty() {
        Penalty::L2 => {}
        Penalty::None => return choose_unpenalised(config, problem, free),
        Penalty::L1 | Penalty::ElasticNet(_) => return choose_working_set(config, free),
    }
    if config.solver == Solver::WorkingSet {
        return Err(TrainError::config(
            "`solver` working-set is for `penalty` l1 and elastic-net; leave it out".to_string(),
        ));
    }
    if is_coupled {
        if !free {
            return Err(TrainError::config(format!(
                "`loss` {loss} of more than two classes is trained by L-BFGS, which reads every row in each pass, in the order of the files, without `order`, `access`, `blocks`, `inner_passes`, `skip` or `cache_fraction`; leave these out"
            )));
        }
        config.solver = Solver::Lbfgs;
        return Ok(());
    }
    if config.solver == Solver::Lbfgs {
        return if free {
            Ok(())
        } else {
            Err(TrainError::config(
                "`solver` l-bfgs reads every row in each pass, in the order of the files, without `order`, `access`, `blocks`, `inner_passes`, `skip` or `cache_fraction`; leave these or `solver` out".to_string(),
            ))
        };
    }
    let width = problem.features() + usize::from(problem.bias().is_some());
    if config.solver == Solver::Newton && width > MOST_NEWTON_FEATURES {
        return Err(TrainError::config(format!(
            "`solver` newton supports at most {MOST_NEWTON_FEATURES} features, and the data has {width} with the bias; leave `solver` out"
        )));
    }
    if config.is_warm() || problem.offset().is_some() {
        return choose_special(config, problem, shape, memory, free);
    }
    if ranks > 1 && width > MOST_NEWTON_FEATURES && Lbfgs::applies(problem) && free {
        config.solver = Solver::Lbfgs;
        return Ok(());
    }
    if ranks > 1 {
        if width > MOST_NEWTON_FEATURES {
            return Err(TrainError::config(format!(
                "{ranks} ranks need Newton's method, which supports at most {MOST_NEWTON_FEATURES} features, and the data has {width} with the bias; use one rank"
            )));
        }
        if !free {
            return Err(TrainError::config(format!(
                "{ranks} ranks need Newton's method, which reads every row in each pass, in the order of the files, without `order`, `access`, `blocks`, `inner_passes`, `skip` or `cache_fraction`; leave these out or use one rank"
            )));
        }
        config.solver = Solver::Newton;
    }
    if config.solver == Solver::Newton && !free {
        return Err(TrainError::config(
            "`solver` newton reads every row in each pass, in the order of the files, without `order`, `access`, `blocks`, `inner_passes`, `skip` or `cache_fraction`; leave these or `solver` out".to_string(),
        ));
    }
    if config.solver == Solver::Auto {
        config.solver = if free {
            cheapest(problem, shape, memory)
        } else {
            Solver::CoordinateDescent
        };
    }
    Ok(())
}

/// The solver with the fewest operations, by their cost models. With many features and classes, coordinate descent
/// comes first: on text it needs few visits; otherwise L-BFGS takes over. For real targets it takes three times as long
/// as L-BFGS. Rows that do not fit in memory are read in each pass, and L-BFGS makes many.
fn cheapest(problem: &Problem, shape: &Shape, memory: u64) -> Solver {
    let (records, values) = (shape.records, shape.values_of_a_row());
    let is_narrow = problem.features() < MOST_NEWTON_FEATURES;
    let row_bytes = match shape.layout {
        Layout::Dense { .. } => 4.0,
        _ => 8.0,
    };
    let bytes = row_bytes * values * records as f64;
    let newton = if Newton::fits(problem, memory) {
        modelled_costs(problem, records, values).1
    } else {
        f64::INFINITY
    };
    let fits = || bytes + Lbfgs::bytes(problem) as f64 <= memory as f64;
    let can_pass = is_narrow || problem.loss().has_real_targets();
    if can_pass && lbfgs_cost(problem, records, values) < newton && fits() {
        Solver::Lbfgs
    } else if newton.is_finite() && newton_pays(problem, records, values) {
        Solver::Newton
    } else {
        Solver::CoordinateDescent
    }
}

fn choose_unpenalised(
    config: &mut LinearConfig,
    problem: &Problem,
    free: bool,
) -> Result<(), TrainError> {
    let width = problem.features() + usize::from(problem.bias().is_some());
    if width > MOST_NEWTON_FEATURES {
        return Err(TrainError::config(format!(
            "`penalty` none supports at most {MOST_NEWTON_FEATURES} features, and the data has {width} with the bias; leave `penalty` out"
        )));
    }
    if !free || !matches!(config.solver, Solver::Auto | Solver::Newton) {
        return Err(TrainError::config(
            "`penalty` none needs Newton's method, which reads every row in each pass, in the order of the files, without another `solver`, `order`, `access`, `blocks`, `inner_passes`, `skip` or `cache_fraction`; leave these out".to_string(),
        ));
    }
    config.solver = Solver::Newton;
    Ok(())
}

/// Refuses solvers that cannot start from given weights or take an offset, and chooses among the others.
fn choose_special(
    config: &mut LinearConfig,
    problem: &Problem,
    shape: &Shape,
    memory: u64,
    free: bool,
) -> Result<(), TrainError> {
    let setting = if config.is_warm() {
        "warm_start"
    } else {
        "offset"
    };
    let is_smooth = Lbfgs::applies(problem);
    if !is_smooth || !free || config.solver == Solver::CoordinateDescent {
        return Err(TrainError::config(format!(
            "`{setting}` needs a smooth loss, and a solver that reads every row in each pass, in the order of the files, without `order`, `access`, `blocks`, `inner_passes`, `skip` or `cache_fraction`; leave these out, or use loss logistic or squared"
        )));
    }
    if problem.offset().is_some() && config.solver == Solver::Newton {
        return Err(TrainError::config(
            "an offset with `penalty` l2 needs `solver` l-bfgs; leave `solver` out".to_string(),
        ));
    }
    if config.solver == Solver::Auto {
        config.solver = match cheapest(problem, shape, memory) {
            Solver::Newton if problem.offset().is_none() => Solver::Newton,
            _ => Solver::Lbfgs,
        };
    }
    Ok(())
}

fn choose_working_set(config: &mut LinearConfig, free: bool) -> Result<(), TrainError> {
    let penalty = config.penalty;
    if !matches!(config.solver, Solver::Auto | Solver::WorkingSet) {
        return Err(TrainError::config(format!(
            "`solver` {} does not support `penalty` {penalty}; leave one of them out",
            config.solver
        )));
    }
    if !free {
        return Err(TrainError::config(format!(
            "`penalty` {penalty} needs working sets, which read every row in each pass, in the order of the files, without `order`, `access`, `blocks`, `inner_passes`, `skip` or `cache_fraction`; leave these out"
        )));
    }
    config.solver = Solver::WorkingSet;
    Ok(())
}

/// Decides which rows to skip or keep in memory, if the configuration does not: the choice that saves most reading in
/// full order. That means quantised rows and, with a target, `skip` for long sparse rows. Narrow dense rows are solved
/// in two passes anyway, and short sparse ones share their pages with others, so skipping them saves no reading and
/// costs visits.
fn choose_kept(config: &mut LinearConfig, dataset: &Dataset) -> Result<(), TrainError> {
    if config.solver.is_by_passes() {
        return Ok(());
    }
    let long = matches!(dataset.layout(), Layout::Dense { width } if width >= LEAST_CODED_FEATURES);
    if let Some(kept) = config.cache_fraction {
        if kept > 0.0 && !long {
            return Err(TrainError::config(format!(
                "`cache_fraction` {kept} needs dense rows of {LEAST_CODED_FEATURES} features or more, and these are shorter or sparse; leave it out"
            )));
        }
        return Ok(());
    }
    let free = matches!(config.order, Order::Full) && config.blocks.is_none() && !config.skip;
    let share = match dataset.layout() {
        Layout::Dense { .. } if free && long => CODED_SHARE,
        Layout::Sparse
            if free
                && config.target.gap().is_some()
                && config.access == Access::Auto
                && dataset.bytes() >= PAGE_BYTES * dataset.records() =>
        {
            config.skip = true;
            0.0
        }
        _ => 0.0,
    };
    config.cache_fraction = Some(share);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_told_from_targets() {
        let check = |labels: Vec<f64>, records: u64, expected: bool| {
            let said = format!("{:?}", &labels[..labels.len().min(3)]);
            let labels = ClassMap::from_first_appearance(labels);
            assert_eq!(are_targets(&labels, records), expected, "{said}");
        };
        let range = |from: u32, to: u32, step: usize| -> Vec<f64> {
            (from..to).step_by(step).map(f64::from).collect()
        };
        check(vec![0.5, 1.5], 100, false);
        check(vec![0.5, 1.0, 1.5], 100, true);
        check(vec![-1.0, 1.0], 100, false);
        check(range(0, 1000, 1), 50_000, false);
        check(range(0, 1000, 1), 5000, true);
        check(range(1, 27, 1), 100, false);
        check(range(1922, 2012, 1), 500_000, true);
        check(range(320, 626, 9), 5000, true);
        check(range(1, 8, 1), 20, false);
    }
}
