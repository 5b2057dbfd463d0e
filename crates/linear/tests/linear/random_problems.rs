//! Random problems of every kind through every solver of passes: no certificate is false, a smaller target never proves
//! less, and ordinary problems reach theirs. `PELTON_RANDOM_PROBLEMS` sets the number of problems.
//!
//! Primal values are recomputed from their definition in f64. A dual value is false if it is above the primal value of
//! a much more precise solution, by any solver.

use crate::support;

use std::sync::Arc;

use pelton_format::{Layout, RowTable, Rows};
use pelton_linear::*;
use support::{Numbers, passes, primal_value, push, table};

const TARGETS: [f64; 4] = [1e-2, 1e-4, 1e-6, 1e-8];

struct Case {
    problem: Arc<Problem>,
    rows: RowTable,
    /// Whether columns and costs have ordinary sizes.
    is_ordinary: bool,
}

fn case(numbers: &mut Numbers) -> Case {
    let most = [60, 60, 400][numbers.below(3)];
    let (count, features) = (4 + numbers.below(most), 1 + numbers.below(12));
    let losses = [
        Loss::Hinge,
        Loss::SquaredHinge,
        Loss::Logistic,
        Loss::Multinomial,
        Loss::Squared,
        Loss::Huber([0.05, 1.35][numbers.below(2)]),
        Loss::EpsilonInsensitive(0.1),
        Loss::SquaredEpsilonInsensitive(0.1),
        Loss::Poisson,
    ];
    let loss = losses[numbers.below(losses.len())];
    let classes = if loss == Loss::Multinomial || numbers.below(4) == 0 {
        3
    } else {
        2
    };
    let layout = match numbers.below(2) {
        0 => Layout::Dense { width: features },
        _ => Layout::Sparse,
    };
    let power =
        |numbers: &mut Numbers, spread: f64| 10.0_f64.powf(spread * f64::from(numbers.symmetric()));
    let is_ordinary = numbers.below(4) != 0;
    let spread = if is_ordinary || loss == Loss::Poisson {
        0.3
    } else {
        2.0
    };
    let sizes: Vec<f32> = (0..features)
        .map(|_| power(numbers, spread) as f32)
        .collect();
    let offset = [0.0, 0.0, 2.0][numbers.below(3)];
    let is_separable = numbers.below(4) == 0;
    let noise = if is_separable { 0.0 } else { 1.0 };
    let mut rows = Rows::new(layout);
    for i in 0..count {
        let row: Vec<f32> = sizes
            .iter()
            .map(|size| match numbers.below(4) {
                0 => 0.0,
                _ => size * (numbers.symmetric() + offset),
            })
            .collect();
        let signal = row[0] / sizes[0] - offset;
        let label = if loss == Loss::Poisson {
            let mean = (noise * numbers.symmetric() + signal).exp() * 3.0;
            mean.round().to_bits()
        } else if loss.has_real_targets() {
            (3.0 * signal + noise * numbers.symmetric() + offset).to_bits()
        } else if i < classes {
            i as u32
        } else if !is_separable && numbers.below(3) == 0 {
            numbers.below(classes) as u32
        } else {
            u32::from(signal > 0.0)
        };
        push(&mut rows, label, &row);
    }
    let cost = power(numbers, if is_ordinary { 1.5 } else { 4.0 });
    let mut problem = Problem::new(loss, cost, features, classes).unwrap();
    match numbers.below(4) {
        0 => {}
        1 => problem = problem.with_bias([1.0, 0.3][numbers.below(2)]).unwrap(),
        2 => problem = problem.with_free_bias(),
        _ => problem = problem.with_bias(2.5).unwrap().with_free_bias(),
    }
    if numbers.below(4) == 0 && !loss.has_real_targets() {
        problem = problem.with_class_weight(1, 3.0).unwrap();
    }
    if numbers.below(4) == 0 {
        let weights: Vec<f32> = (0..count)
            .map(|i| if i < 3 { 1.0 } else { numbers.below(3) as f32 })
            .collect();
        problem = problem.with_sample_weights(weights.into()).unwrap();
    }
    let penalties = [
        Penalty::L2,
        Penalty::L2,
        Penalty::L1,
        Penalty::ElasticNet(0.5),
        Penalty::ElasticNet(0.05),
    ];
    let penalty = penalties[numbers.below(5)];
    if loss.is_smooth() && !problem.is_coupled() {
        problem = problem.with_penalty(penalty).unwrap();
    }
    Case {
        problem: Arc::new(problem),
        rows: table(rows),
        is_ordinary,
    }
}

/// The solvers that a problem has, by name.
fn solvers(case: &Case, wanted: f64) -> Vec<(&'static str, Box<dyn PassSolver>)> {
    let (problem, records, simd) = (&case.problem, case.rows.len(), Simd::best());
    let mut all: Vec<(&str, Box<dyn PassSolver>)> = Vec::new();
    if problem.penalty() != Penalty::L2 {
        let set = WorkingSet::new(problem.clone(), wanted, 1 << 20, Arc::default(), simd);
        all.push(("working sets", Box::new(set)));
        return all;
    }
    if !problem.is_coupled() {
        let newton = Newton::new(problem.clone(), records, wanted, simd);
        all.push(("Newton", Box::new(newton)));
    }
    if Lbfgs::applies(problem) {
        let lbfgs = Lbfgs::new(problem.clone(), records, wanted, simd);
        all.push(("L-BFGS", Box::new(lbfgs)));
    }
    all
}

/// Passes to the end.
fn solve(solver: &mut dyn PassSolver, rows: &RowTable) -> Certificate {
    passes(solver, rows).unwrap().0.certificate
}

#[test]
fn certificates_are_true_and_smaller_targets_prove_no_less() {
    let count = std::env::var("PELTON_RANDOM_PROBLEMS").ok();
    let count = count.and_then(|count| count.parse().ok()).unwrap_or(300);
    let mut faults = Vec::new();
    for seed in 0..count {
        let case = case(&mut Numbers::new(seed));
        let (problem, rows) = (&case.problem, &case.rows);
        let mut best = f64::INFINITY;
        for (_, mut solver) in solvers(&case, 1e-11) {
            solve(&mut *solver, rows);
            best = best.min(primal_value(problem, rows, &solver.best().0));
        }
        let mut before: Vec<Vec<f64>> = Vec::new();
        for wanted in TARGETS {
            let mut gaps = Vec::new();
            for (name, mut solver) in solvers(&case, wanted) {
                let found = solve(&mut *solver, rows);
                let (exact, gap) = (
                    primal_value(problem, rows, &solver.best().0),
                    found.relative_gap(),
                );
                let of = (
                    problem.loss(),
                    problem.penalty(),
                    problem.cost(0),
                    rows.len(),
                );
                let at = format!("{seed} {name} {of:?} {wanted:e}: {found:?} gap {gap:e}");
                if found.dual > best * (1.0 + 1e-12) {
                    faults.push(format!("{at}: dual above {best}"));
                }
                // It includes the possible rounding of margins, at the cost of a unit of loss.
                let more = if case.is_ordinary { 1e-7 } else { 1e-4 };
                let tiny = 1e-13 * exact + 1e-300;
                if found.primal < exact - tiny || found.primal > exact * (1.0 + more) + 1e-20 {
                    faults.push(format!("{at}: primal is {exact}"));
                }
                let number = gaps.len();
                if let Some(earlier) = before.last().map(|gaps| gaps[number])
                    && gap > earlier * (1.0 + 1e-9)
                    && gap > 100.0 * wanted
                {
                    faults.push(format!("{at}: the gap before was {earlier:e}"));
                }
                if case.is_ordinary && wanted == 1e-6 && gap > wanted {
                    faults.push(format!("{at}: ends early"));
                }
                gaps.push(gap);
            }
            before.push(gaps);
        }
    }
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}
