//! Problems that once ended far from their optimum, through every solver of passes that they have.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::{Layout, RowTable, Rows};
use pelton_linear::*;
use support::{Numbers, primal_value, table};

static NEVER: AtomicBool = AtomicBool::new(false);

/// The certificate, the weights and the passes of each solver.
fn solve_by_all(problem: &Problem, rows: &RowTable, wanted: f64) -> Vec<(Certificate, Weights)> {
    let (shared, simd) = (Arc::new(problem.clone()), Simd::best());
    let mut solvers: Vec<Box<dyn PassSolver>> = Vec::new();
    if problem.penalty() == Penalty::L2 {
        let newton = Newton::new(shared.clone(), rows.len(), wanted, simd);
        solvers.push(Box::new(newton));
        if Lbfgs::applies(problem) {
            let lbfgs = Lbfgs::new(shared, rows.len(), wanted, simd);
            solvers.push(Box::new(lbfgs));
        }
    } else {
        let set = WorkingSet::new(shared, wanted, 1 << 30, Arc::default(), simd);
        solvers.push(Box::new(set));
    }
    let solve = |mut solver: Box<dyn PassSolver>| {
        for pass in 1.. {
            solver.begin_pass();
            assert!(solver.add(rows, &NEVER).unwrap());
            let found = solver.end_pass(&mut alone::<LinearError>).unwrap();
            if found.done || pass == 300 {
                return (found.certificate, solver.best().0);
            }
        }
        unreachable!()
    };
    solvers.into_iter().map(solve).collect()
}

fn normal(numbers: &mut Numbers) -> f32 {
    (0..12).map(|_| numbers.symmetric()).sum::<f32>() * 0.5
}

/// Counts of a mean that one of normal columns changes. Rows of the count 0 once kept every weight at 0 under a penalty
/// of ‖w‖₁: their model was bent without end.
#[test]
fn counts_of_any_mean_are_fitted_under_every_penalty() {
    fn check(count: usize, width: usize, mean: f64) {
        let mut numbers = Numbers::new(count as u64);
        let mut rows = Rows::new(Layout::Dense { width });
        for _ in 0..count {
            let row: Vec<f32> = (0..width).map(|_| normal(&mut numbers)).collect();
            // As many events as fit between exponential distances.
            let least = (-mean * (0.3 * f64::from(row[0])).exp()).exp();
            let (mut events, mut product) = (0, 1.0);
            loop {
                product *= 0.5 + 0.5 * f64::from(numbers.symmetric());
                if product <= least {
                    break;
                }
                events += 1;
            }
            rows.push_dense((events as f32).to_bits(), &row);
        }
        let rows = table(rows);
        for share in [0.0, 0.1, 1.0] {
            for cost in [1e-3, 1.0] {
                let problem = Problem::new(Loss::Poisson, cost, width, 1).unwrap();
                let problem = problem.with_free_bias();
                let penalty = Penalty::with_l1_share(share).unwrap();
                let problem = problem.with_penalty(penalty).unwrap();
                for (found, weights) in solve_by_all(&problem, &rows, 1e-6) {
                    let gap = found.relative_gap();
                    assert!(
                        gap <= 1e-6,
                        "{count}×{width} mean {mean} share {share} C {cost}: {gap:e}"
                    );
                    let bias = f64::from(weights.vector(0)[width]);
                    assert!((bias - mean.ln()).abs() < 0.5, "{bias} {mean}");
                }
            }
        }
    }
    check(1000, 5, 3.0);
    check(1000, 5, 30.0);
    check(200, 1, 0.2);
    check(2000, 20, 1.0);
}

/// Targets that the bias alone fits: the optimum is 0, and so is the gap.
#[test]
fn perfect_fits_have_no_gap() {
    let losses = [
        Loss::Squared,
        Loss::Huber(1.35),
        // Of the squared one the edge of the tube is an optimum, and f32 has no weight there.
        Loss::EpsilonInsensitive(0.1),
    ];
    for loss in losses {
        for target in [0.0_f32, 3.0, -0.7, 1e6, 1e-6] {
            for share in [0.0, 0.5, 1.0] {
                let mut numbers = Numbers::new(5);
                let mut rows = Rows::new(Layout::Dense { width: 7 });
                for _ in 0..50 {
                    let row: Vec<f32> = (0..7).map(|_| normal(&mut numbers)).collect();
                    rows.push_dense(target.to_bits(), &row);
                }
                let problem = Problem::new(loss, 1.0, 7, 1).unwrap().with_free_bias();
                let penalty = Penalty::with_l1_share(share).unwrap();
                let Ok(problem) = problem.with_penalty(penalty) else {
                    continue;
                };
                let rows = table(rows);
                for (found, weights) in solve_by_all(&problem, &rows, 1e-6) {
                    let exact = primal_value(&problem, &rows, &weights);
                    assert!(
                        found.relative_gap() <= 1e-6,
                        "{loss} {target} share {share}: {found:?} {exact}"
                    );
                }
            }
        }
    }
}

/// Fewer rows than columns, which are fitted with no residual that counts.
#[test]
fn rows_that_columns_fit_exactly_reach_their_target() {
    for (count, width) in [(10, 20), (30, 8)] {
        for cost in [1.0, 1e3, 1e6] {
            let mut numbers = Numbers::new(9);
            let mut rows = Rows::new(Layout::Dense { width });
            for _ in 0..count {
                let row: Vec<f32> = (0..width).map(|_| numbers.symmetric()).collect();
                let target = row[0] - 2.0 * row[1] + 0.5;
                rows.push_dense(target.to_bits(), &row);
            }
            let rows = table(rows);
            for loss in [Loss::Squared, Loss::Huber(0.5)] {
                for share in [0.0, 0.5, 1.0] {
                    let problem = Problem::new(loss, cost, width, 1).unwrap();
                    let problem = problem.with_free_bias();
                    let penalty = Penalty::with_l1_share(share).unwrap();
                    let problem = problem.with_penalty(penalty).unwrap();
                    for (number, (found, _)) in
                        solve_by_all(&problem, &rows, 1e-6).iter().enumerate()
                    {
                        let gap = found.relative_gap();
                        assert!(
                            gap <= 1e-6,
                            "{loss} {count}×{width} C {cost} share {share} solver {number}: {gap:e}"
                        );
                    }
                }
            }
        }
    }
}

/// Columns that outnumber the rows: models of few curved directions, which coordinate descent once slid along for 20 s.
#[test]
fn a_huber_elastic_net_of_more_columns_than_rows_takes_no_time() {
    let (count, width) = (100, 176);
    let mut numbers = Numbers::new(3);
    let mut rows = Rows::new(Layout::Dense { width });
    for _ in 0..count {
        let common = normal(&mut numbers);
        let row: Vec<f32> = (0..width).map(|_| common + normal(&mut numbers)).collect();
        let outlier = if numbers.below(10) == 0 { 20.0 } else { 1.0 };
        let target = row[0] - row[1] + 3.0 + outlier * normal(&mut numbers);
        rows.push_dense(target.to_bits(), &row);
    }
    let rows = table(rows);
    for share in [0.05, 0.5, 0.95] {
        for cost in [0.1, 1.0, 100.0] {
            let problem = Problem::new(Loss::Huber(1.35), cost, width, 1).unwrap();
            let problem = problem.with_free_bias();
            let problem = problem.with_penalty(Penalty::ElasticNet(share)).unwrap();
            let began = std::time::Instant::now();
            let (found, _) = &solve_by_all(&problem, &rows, 1e-6)[0];
            println!(
                "share {share} C {cost}: {:e} in {:?}",
                found.relative_gap(),
                began.elapsed()
            );
            assert!(found.relative_gap() <= 1e-6, "share {share} C {cost}");
        }
    }
}
