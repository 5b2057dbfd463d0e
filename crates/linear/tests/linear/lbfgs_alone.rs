//! L-BFGS for losses of single vectors: against Newton's method, over more columns than that supports, over ranks, from
//! a saved state. Random problems are in `random_problems.rs`.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::{Layout, RowTable, Rows};
use pelton_linear::*;
use support::{dense, over_ranks, passes, planted, primal_value, push, table};

static NEVER: AtomicBool = AtomicBool::new(false);
const LOSSES: [Loss; 6] = [
    Loss::Logistic,
    Loss::SquaredHinge,
    Loss::Squared,
    Loss::Huber(0.5),
    Loss::SquaredEpsilonInsensitive(0.1),
    Loss::Poisson,
];

/// Rows of three classes, or of targets that are 0, 1 or 2.
fn rows_of(loss: Loss, layout: Layout, count: usize, width: usize) -> Rows {
    let planted = planted(layout, count, width, 3, 8);
    let mut rows = Rows::new(layout);
    for i in 0..count {
        let label = planted.label(i);
        let label = if loss.has_real_targets() {
            (label as f32).to_bits()
        } else {
            label
        };
        rows.push(label, planted.row(i));
    }
    rows
}

fn lbfgs(problem: &Arc<Problem>, records: usize, wanted: f64) -> Lbfgs {
    Lbfgs::new(Arc::clone(problem), records, wanted, Simd::best())
}

/// Passes to the end; how many there were.
fn solve(solver: &mut dyn PassSolver, rows: &RowTable) -> (Certificate, usize) {
    let (found, made) = passes(solver, rows).unwrap();
    (found.certificate, made)
}

#[test]
fn every_loss_reaches_the_optimum_of_newtons_method() {
    for loss in LOSSES {
        for layout in [Layout::Dense { width: 9 }, Layout::Sparse] {
            let rows = table(rows_of(loss, layout, 400, 9));
            let plain = Problem::new(loss, 0.7, 9, 3).unwrap();
            let grid = plain.clone().with_free_bias();
            let folds: Vec<u8> = (0..400).map(|i| (i % 3) as u8).collect();
            let grid = grid.with_grid(&[0.1, 4.0], Some((folds.into(), 3)));
            for problem in [
                plain.clone(),
                plain.clone().with_bias(2.0).unwrap(),
                plain.with_free_bias(),
                grid.unwrap(),
            ] {
                let problem = Arc::new(problem);
                let mut own = lbfgs(&problem, 400, 1e-8);
                let (found, passes) = solve(&mut own, &rows);
                let mut newton = Newton::new(Arc::clone(&problem), 400, 1e-8, Simd::best());
                let (expected, _) = solve(&mut newton, &rows);
                let gap = found.relative_gap();
                assert!(gap <= 1e-7 && passes < 80, "{loss}: {gap} in {passes}");
                let off = (found.primal / expected.primal - 1.0).abs();
                assert!(off < 2e-7, "{loss}: {found:?} {expected:?}");
                let (weights, losses) = own.best();
                if let Some(losses) = losses {
                    let mut again = LossSum::new(&problem);
                    again.add(&problem, &rows, &weights, Simd::best()).unwrap();
                    assert_eq!((again.rows, again.correct), (losses.rows, losses.correct));
                    let values = [&again, &losses].map(|sum| sum.primal(&problem, &weights));
                    assert!((values[0] / values[1] - 1.0).abs() < 1e-12);
                }
            }
        }
    }
}

/// Columns beyond those that a matrix is made for, in both layouts, by plain loops too.
#[test]
fn more_columns_than_newtons_method_supports() {
    let width = 3000;
    let narrow = planted(Layout::Sparse, 500, 60, 2, 6);
    for loss in [Loss::Logistic, Loss::Squared] {
        let mut optimum = None;
        for layout in [Layout::Dense { width }, Layout::Sparse] {
            for simd in [Simd::PLAIN, Simd::best()] {
                let mut rows = Rows::new(layout);
                for i in 0..narrow.len() {
                    let mut row = vec![0.0; width];
                    for (j, x) in dense(narrow.row(i), 60).into_iter().enumerate() {
                        row[j * 50] = x as f32;
                    }
                    // A column of its own for each row.
                    row[1 + 5 * i + i % 4] = 0.5;
                    let label = narrow.label(i);
                    let label = if loss.has_real_targets() {
                        (label as f32).to_bits()
                    } else {
                        label
                    };
                    push(&mut rows, label, &row);
                }
                let rows = table(rows);
                let problem = Problem::new(loss, 1.0, width, 2).unwrap().with_free_bias();
                let problem = Arc::new(problem);
                let mut lbfgs = Lbfgs::new(Arc::clone(&problem), 500, 1e-6, simd);
                let (found, passes) = solve(&mut lbfgs, &rows);
                let gap = found.relative_gap();
                assert!(gap <= 1e-6 && passes < 60, "{loss}: {gap} in {passes}");
                let exact = primal_value(&problem, &rows, &lbfgs.best().0);
                assert!(found.primal >= exact && found.primal <= exact * (1.0 + 1e-9));
                let optimum = *optimum.get_or_insert(exact);
                assert!((exact / optimum - 1.0).abs() < 2e-6);
            }
        }
    }
}

/// Passes cut short now and then, saved and restored between passes: the same bits.
#[test]
fn an_interrupted_run_resumes_bit_for_bit() {
    for loss in LOSSES {
        let rows = table(rows_of(loss, Layout::Dense { width: 9 }, 700, 9));
        let problem = Problem::new(loss, 2.0, 9, 3).unwrap().with_free_bias();
        let problem = Arc::new(problem);
        let (mut whole, mut halted) = (lbfgs(&problem, 700, 1e-9), lbfgs(&problem, 700, 1e-9));
        for pass in 0..100 {
            whole.begin_pass();
            assert!(whole.add(&rows, &NEVER).unwrap());
            let expected = whole.end_pass(&mut alone::<LinearError>).unwrap();
            if pass % 3 == 0 {
                halted.begin_pass();
                assert!(!halted.add(&rows, &AtomicBool::new(true)).unwrap());
            }
            let mut restored = lbfgs(&problem, 700, 1e-9);
            restored.restore(&halted.save()).unwrap();
            halted = restored;
            halted.begin_pass();
            assert!(halted.add(&rows, &NEVER).unwrap());
            let found = halted.end_pass(&mut alone::<LinearError>).unwrap();
            assert_eq!(found, expected, "{loss} pass {pass}");
            if expected.done {
                break;
            }
        }
        assert_eq!(whole.best().0, halted.best().0);
        let other = Arc::new(Problem::new(loss, 2.0, 70, 3).unwrap());
        assert!(lbfgs(&other, 700, 1e-9).restore(&whole.save()).is_err());
    }
}

#[test]
fn ranks_take_the_same_steps_over_the_rows_of_all() {
    for loss in LOSSES {
        let rows = rows_of(loss, Layout::Sparse, 700, 9);
        let problem = Problem::new(loss, 2.0, 9, 3).unwrap().with_free_bias();
        let problem = Arc::new(problem);
        let (expected, count) = solve(&mut lbfgs(&problem, 700, 1e-7), &table(rows.clone()));
        for ranks in [2, 3] {
            let found = over_ranks(&rows, ranks, || lbfgs(&problem, 700, 1e-7));
            assert!(found.iter().all(|other| *other == found[0]), "ranks differ");
            let difference = (found[0].0.primal / expected.primal - 1.0).abs();
            let passes = found[0].2;
            assert!(
                difference < 1e-6 && passes.abs_diff(count) <= 3,
                "{loss}: {difference} {passes} {count}"
            );
        }
    }
}

#[test]
fn losses_and_penalties_with_kinks_are_refused() {
    let hinge = Problem::new(Loss::Hinge, 1.0, 9, 2).unwrap();
    assert!(!Lbfgs::applies(&hinge));
    let sparse = Problem::new(Loss::Logistic, 1.0, 9, 2).unwrap();
    let sparse = sparse.with_penalty(Penalty::ElasticNet(0.1)).unwrap();
    assert!(!Lbfgs::applies(&sparse));
    assert_eq!(lbfgs_cost(&sparse, 100, 9.0), f64::INFINITY);
    // More columns for fewer rows: Newton's method for ten columns, and L-BFGS for hundreds.
    for (width, is_cheaper) in [(10, false), (500, true)] {
        let problem = Problem::new(Loss::Logistic, 1.0, width, 2).unwrap();
        let newton = modelled_costs(&problem, 20_000, width as f64).1;
        assert_eq!(
            lbfgs_cost(&problem, 20_000, width as f64) < newton,
            is_cheaper
        );
    }
}
