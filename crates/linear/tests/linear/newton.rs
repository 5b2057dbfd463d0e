//! Newton's method: against coordinate descent, on problems that stall coordinate descent, in pieces, over ranks, from
//! a saved state.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::{Layout, RowTable, Rows};
use pelton_linear::*;
use support::{dense, over_ranks, planted, table};

static NEVER: AtomicBool = AtomicBool::new(false);
const LOSSES: [Loss; 3] = [Loss::Hinge, Loss::SquaredHinge, Loss::Logistic];

fn primal(problem: &Problem, rows: &RowTable, weights: &Weights) -> f64 {
    let mut losses = LossSum::new(problem);
    losses.add(problem, rows, weights, Simd::best()).unwrap();
    losses.primal(problem, weights)
}

fn end_pass(newton: &mut Newton) -> PassFigures {
    newton.end_pass(&mut alone::<LinearError>).unwrap()
}

/// The certificate and the weights found, and the passes they took.
fn solve(problem: &Problem, rows: &RowTable, wanted: f64) -> (Certificate, Weights, usize) {
    let problem = Arc::new(problem.clone());
    let mut newton = Newton::new(Arc::clone(&problem), rows.len(), wanted, Simd::best());
    for pass in 1.. {
        newton.begin_pass();
        assert!(newton.add(rows, &NEVER).unwrap());
        let found = end_pass(&mut newton);
        if found.done || pass == 300 {
            let (weights, losses) = newton.best();
            let exact = primal(&problem, rows, &weights);
            let stated = found.certificate.primal;
            // It includes the possible rounding of margins, at the cost of a unit of loss.
            let rounding = 1e-6 + 1e-13 * problem.cost(0) * rows.len() as f64;
            assert!(
                exact <= stated && stated <= exact * (1.0 + rounding),
                "{exact} {stated}"
            );
            if let Some(losses) = losses {
                assert!((losses.primal(&problem, &weights) / exact - 1.0).abs() < 1e-12);
                assert_eq!(losses.rows, rows.len() as u64);
            }
            return (found.certificate, weights, pass);
        }
    }
    unreachable!()
}

#[test]
fn both_solvers_reach_one_optimum() {
    for loss in LOSSES {
        for (layout, classes) in [
            (Layout::Dense { width: 12 }, 2),
            (Layout::Sparse, 2),
            (Layout::Dense { width: 12 }, 3),
        ] {
            let rows = table(planted(layout, 500, 12, classes, 3));
            let plain = Problem::new(loss, 0.7, 12, classes).unwrap();
            let biased = plain.clone().with_bias(1.0).unwrap();
            let weighted = plain.clone().with_class_weight(1, 3.0).unwrap();
            for problem in [plain, biased, weighted] {
                let (certificate, _, passes) = solve(&problem, &rows, 1e-6);
                let gap = certificate.relative_gap();
                assert!(
                    gap <= 1e-6,
                    "{loss:?} {layout:?}: {certificate:?} in {passes} passes"
                );
                let mut weights = Weights::zeros(&problem);
                let mut duals = Duals::zeros(&problem, rows.len());
                let inner = InnerPasses::Until {
                    epsilon: 1e-4,
                    at_most: 3000,
                };
                let mut scratch = Scratch::new(Simd::best());
                solve_block(
                    &problem,
                    &rows,
                    &mut weights,
                    &mut duals,
                    inner,
                    1,
                    &mut scratch,
                )
                .unwrap();
                let other = primal(&problem, &rows, &weights);
                let difference = (certificate.primal - other).abs() / other;
                assert!(difference < 1e-4, "{loss:?}: {certificate:?} {other}");
            }
        }
    }
}

/// The promise is few passes: about ten for many rows, for any sizes of the features.
#[test]
fn few_passes_are_enough() {
    fn check(loss: Loss, sizes: &[f32], offset: f32, most: usize) {
        let width = sizes.len();
        let planted = planted(Layout::Dense { width }, 20_000, width, 2, 9);
        let mut rows = Rows::new(Layout::Dense { width });
        for i in 0..planted.len() {
            let row = dense(planted.row(i), width);
            let row: Vec<f32> = (row.iter().zip(sizes))
                .map(|(v, s)| (*v as f32 + offset) * s)
                .collect();
            rows.push_dense(planted.label(i), &row);
        }
        let problem = Problem::new(loss, 1.0, width, 2)
            .unwrap()
            .with_bias(1.0)
            .unwrap();
        let (certificate, _, passes) = solve(&problem, &table(rows), 1e-6);
        let gap = certificate.relative_gap();
        assert!(
            gap <= 1e-6 && passes <= most,
            "{loss:?}: {gap} in {passes} passes"
        );
    }
    let sizes = [1e4, 1.0, 3e-3, 700.0, 1.0, 25.0];
    for (loss, most) in [
        (Loss::Logistic, 10),
        (Loss::SquaredHinge, 10),
        (Loss::Hinge, 40),
    ] {
        check(loss, &[1.0; 6], 0.0, most);
        check(loss, &sizes, 0.0, 2 * most);
        check(loss, &sizes, 30.0, 4 * most);
    }
}

#[test]
fn odd_data_is_solved_too() {
    let few = |rows: usize| {
        let mut made = Rows::new(Layout::Dense { width: 3 });
        for i in 0..rows {
            made.push_dense(
                i as u32 % 2,
                &[1.0, 0.0, if i % 2 == 0 { 1.0 } else { -1.0 }],
            );
        }
        table(made)
    };
    for loss in LOSSES {
        let problem = Problem::new(loss, 1.0, 3, 2).unwrap();
        for rows in [1, 2, 7] {
            let (certificate, ..) = solve(&problem, &few(rows), 1e-6);
            assert!(
                certificate.relative_gap() <= 1e-6,
                "{loss:?} {rows}: {certificate:?}"
            );
        }
        let mut empty = Rows::new(Layout::Sparse);
        for i in 0..4 {
            empty.push_sparse(i % 2, &[], &[]);
        }
        let (certificate, ..) = solve(&problem, &table(empty), 1e-6);
        assert!(
            (certificate.primal - 4.0 * loss.at(0.0)).abs() < 1e-6,
            "{certificate:?}"
        );
        assert!(certificate.relative_gap() <= 1e-6, "{certificate:?}");
    }
}

#[test]
fn what_it_cannot_take_is_refused() {
    let problem = |features| Problem::new(Loss::Hinge, 1.0, features, 2).unwrap();
    assert!(newton_pays(&problem(20), 1_000_000, 20.0));
    assert!(
        !newton_pays(&problem(20), 0, 20.0),
        "it solves equations even for no rows"
    );
    assert!(
        !newton_pays(&problem(800), 500, 800.0),
        "few rows of many features"
    );
    assert!(!newton_pays(&problem(2000), 1_000_000, 2000.0));
    let add = |rows: Rows, records: usize| {
        let mut newton = Newton::new(Arc::new(problem(3)), records, 1e-3, Simd::best());
        newton.begin_pass();
        newton.add(&table(rows), &NEVER)
    };
    let dense = |label: u32, row: &[f32]| {
        let mut rows = Rows::new(Layout::Dense { width: row.len() });
        rows.push_dense(label, row);
        rows
    };
    assert!(matches!(
        add(dense(0, &[1.0; 4]), 1),
        Err(LinearError::Width { .. })
    ));
    assert!(matches!(
        add(dense(2, &[1.0; 3]), 1),
        Err(LinearError::UnknownClass { .. })
    ));
    let mut sparse = Rows::new(Layout::Sparse);
    sparse.push_sparse(0, &[3], &[1.0]);
    assert!(matches!(
        add(sparse, 1),
        Err(LinearError::FeatureOutOfRange { .. })
    ));
}

/// Passes in blocks of any size, cut short now and then, saved and restored between passes: the same bits.
#[test]
fn it_goes_on_bit_for_bit() {
    for loss in LOSSES {
        let rows = planted(Layout::Dense { width: 7 }, 900, 7, 3, 5);
        let problem = Arc::new(Problem::new(loss, 30.0, 7, 3).unwrap());
        let new = || Newton::new(Arc::clone(&problem), 900, 1e-7, Simd::best());
        let all = table(rows);
        let (mut whole, mut halted) = (new(), new());
        for pass in 0..40 {
            whole.begin_pass();
            assert!(whole.add(&all, &NEVER).unwrap());
            let expected = end_pass(&mut whole);
            if pass % 3 == 0 {
                halted.begin_pass();
                assert!(
                    !halted.add(&all, &AtomicBool::new(true)).unwrap(),
                    "it was told to stop"
                );
            }
            let mut restored = new();
            restored.restore(&halted.save()).unwrap();
            halted = restored;
            halted.begin_pass();
            assert!(halted.add(&all, &NEVER).unwrap());
            assert_eq!(end_pass(&mut halted), expected, "{loss:?} pass {pass}");
            if expected.done {
                break;
            }
        }
        assert_eq!(whole.best().0, halted.best().0);
        let mut other = Newton::new(
            Arc::new(Problem::new(loss, 1.0, 70, 3).unwrap()),
            900,
            1e-7,
            Simd::best(),
        );
        assert!(other.restore(&whole.save()).is_err());
    }
}

/// A run that met its target continues to a smaller one.
#[test]
fn a_finished_run_continues_to_a_smaller_gap() {
    for loss in LOSSES {
        let rows = table(planted(Layout::Dense { width: 7 }, 900, 7, 3, 5));
        let problem = Arc::new(Problem::new(loss, 30.0, 7, 3).unwrap());
        let to_the_end = |newton: &mut Newton| {
            loop {
                newton.begin_pass();
                assert!(newton.add(&rows, &NEVER).unwrap());
                let pass = end_pass(newton);
                if pass.done {
                    return pass.certificate.relative_gap();
                }
            }
        };
        let mut first = Newton::new(Arc::clone(&problem), 900, 1e-1, Simd::best());
        assert!(to_the_end(&mut first) > 1e-6);
        let mut second = Newton::new(Arc::clone(&problem), 900, 1e-6, Simd::best());
        second.restore(&first.save()).unwrap();
        let gap = to_the_end(&mut second);
        assert!(gap <= 1e-6, "{loss:?}: {gap}");
    }
}

#[test]
fn ranks_take_the_same_steps_over_the_rows_of_all() {
    for loss in LOSSES {
        let rows = planted(Layout::Sparse, 700, 9, 2, 6);
        let problem = Arc::new(Problem::new(loss, 2.0, 9, 2).unwrap());
        let (expected, _, passes) = solve(&problem, &table(rows.clone()), 1e-6);
        for ranks in [2, 3] {
            let new = || Newton::new(Arc::clone(&problem), 700, 1e-6, Simd::best());
            let found = over_ranks(&rows, ranks, new);
            assert!(
                found.iter().all(|other| *other == found[0]),
                "the same on all ranks"
            );
            let difference = (found[0].0.primal - expected.primal).abs() / expected.primal;
            assert!(
                difference < 1e-6 && found[0].2.abs_diff(passes) <= 3,
                "{loss:?}"
            );
        }
    }
}

/// If a plane divides the classes, all α stay far below a large cost: the bend is steep, and the rounding of w shows
/// early.
#[test]
fn costs_far_above_the_dual_variables() {
    for (count, width) in [(60, 2), (500, 5), (4000, 12)] {
        let planted = planted(Layout::Dense { width }, count, width, 2, 7);
        for separable in [true, false] {
            let mut rows = Rows::new(Layout::Dense { width });
            for i in 0..planted.len() {
                let row = dense(planted.row(i), width);
                let row: Vec<f32> = row.iter().map(|&v| v as f32).collect();
                let side: f32 = row.iter().sum();
                match separable {
                    true if side.abs() < 0.3 => {}
                    true => rows.push_dense(u32::from(side > 0.0), &row),
                    false => rows.push_dense(planted.label(i), &row),
                }
            }
            let rows = table(rows);
            for loss in LOSSES {
                for cost in [1.0, 1e2, 1e4, 1e6] {
                    let problem = Problem::new(loss, cost, width, 2).unwrap();
                    let problem = problem.with_bias(1.0).unwrap();
                    let (certificate, _, passes) = solve(&problem, &rows, 1e-4);
                    let gap = certificate.relative_gap();
                    assert!(
                        gap <= 1e-4 && passes <= 100,
                        "{loss:?} {count} {separable} {cost}: {certificate:?} in {passes} passes"
                    );
                }
            }
        }
    }
}

/// The shapes that stalled a proximal method: about as many rows in the bend as features, at any cost and scale.
#[test]
fn ordinary_problems_are_solved_at_any_scale() {
    for (count, width) in [(100, 20), (100, 100), (500, 50), (300, 120)] {
        for uneven in [false, true] {
            let planted = planted(Layout::Dense { width }, count, width, 2, 11);
            let mut rows = Rows::new(Layout::Dense { width });
            for i in 0..planted.len() {
                let size = |j: usize| 10.0_f64.powi((j % 7) as i32 - 3);
                let row = dense(planted.row(i), width).into_iter().enumerate();
                let row: Vec<f32> = row
                    .map(|(j, v)| (v * if uneven { size(j) } else { 1.0 }) as f32)
                    .collect();
                rows.push_dense(planted.label(i), &row);
            }
            let rows = table(rows);
            for loss in LOSSES {
                for cost in [1e-2, 1.0, 1e2] {
                    let problem = Problem::new(loss, cost, width, 2).unwrap();
                    let problem = problem.with_bias(1.0).unwrap();
                    for wanted in [1e-3, 1e-4] {
                        let (certificate, _, passes) = solve(&problem, &rows, wanted);
                        let gap = certificate.relative_gap();
                        assert!(
                            gap <= wanted && passes <= 80,
                            "{loss:?} {count}×{width} {uneven} {cost}: {gap} in {passes} passes"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_free_bias_is_found_by_every_solver() {
    // Rows far from 0, most of one class: a regularised bias would be far from the free one.
    let plain = planted(Layout::Sparse, 600, 40, 2, 5);
    let mut rows = pelton_format::Rows::new(Layout::Sparse);
    for i in 0..plain.len() {
        if plain.label(i) == 0 || i % 5 == 0 {
            rows.push(plain.label(i), plain.row(i));
        }
    }
    let (count, rows) = (rows.len(), table(rows));
    for loss in LOSSES {
        for cost in [0.01, 1.0] {
            let problem = Problem::new(loss, cost, 40, 2).unwrap().with_free_bias();
            let problem = Arc::new(problem);
            let mut newton = Newton::new(Arc::clone(&problem), count, 1e-6, Simd::best());
            let mut best = f64::INFINITY;
            for _ in 0..200 {
                newton.begin_pass();
                assert!(newton.add(&rows, &NEVER).unwrap());
                let found = end_pass(&mut newton);
                best = found.certificate.primal;
                if found.done {
                    assert!(found.certificate.relative_gap() < 2e-6, "{loss}: {found:?}");
                    break;
                }
            }
            let regularised = Problem::new(loss, cost, 40, 2).unwrap();
            let regularised = Arc::new(regularised.with_bias(1.0).unwrap());
            let mut other = Newton::new(regularised, count, 1e-6, Simd::best());
            for _ in 0..200 {
                other.begin_pass();
                assert!(other.add(&rows, &NEVER).unwrap());
                if end_pass(&mut other).done {
                    break;
                }
            }
            let bias = |newton: &Newton| newton.best().0.vector(0)[40];
            assert!((bias(&newton) - bias(&other)).abs() > 1e-3, "{loss} {cost}");
            for blocks in [1, 4] {
                let options = OutOfCoreOptions {
                    inner: InnerPasses::Until {
                        epsilon: 0.01,
                        at_most: 50,
                    },
                    tighten: Some(1e-4),
                    skip: false,
                    coded_rows: 0,
                    snapshots: false,
                    held: true,
                    seed: 1,
                };
                let mut solver = OutOfCore::new(Arc::clone(&problem), count as u64, options);
                let (mut gap, mut primal) = (f64::INFINITY, f64::INFINITY);
                for epoch in 0..60 {
                    solver.begin_epoch(epoch, true).unwrap();
                    for block in 0..blocks {
                        let ids: Vec<u64> = (0..count as u64)
                            .filter(|id| (id + epoch) % blocks == block)
                            .collect();
                        solver.train(&rows.select(&ids), block).unwrap();
                    }
                    solver.end_epoch();
                    let (found, ..) = solver.certify(&rows).unwrap();
                    gap = found.relative_gap().min(gap);
                    primal = found.primal.min(primal);
                    if gap < 1e-4 {
                        break;
                    }
                }
                let most = if blocks == 1 { 1e-4 } else { 2e-2 };
                assert!(gap <= most, "{loss} {cost} in {blocks}: {gap}");
                assert!(primal <= best * (1.0 + most) && best <= primal * (1.0 + 1e-6));
            }
            let duals = Duals::zeros(&problem, count);
            let fine = FineDescent::new(&problem, &rows, &duals, &[0.0], Simd::best());
            let Some(mut fine) = fine else { continue };
            for round in 0..80 {
                fine.round(round, &NEVER);
            }
            let (_, found) = fine.certify().unwrap();
            assert!(found.relative_gap() < 1e-5, "{cost} in f64: {found:?}");
        }
    }
}
