//! Conditions on the solver's solutions: the certificate closes, the optimality conditions hold, and nothing depends on
//! how rows are stored or which instructions are used.

use crate::support;

use pelton_format::{Layout, Row, RowTable, Rows};
use pelton_linear::*;
use support::{planted, table};

const LOSSES: [Loss; 3] = [Loss::Hinge, Loss::SquaredHinge, Loss::Logistic];
const TIGHT: InnerPasses = InnerPasses::Until {
    epsilon: 1e-4,
    at_most: 100_000,
};

struct Solved {
    certificate: Certificate,
    accuracy: f64,
}

fn certify(
    problem: &Problem,
    table: &RowTable,
    weights: &Weights,
    duals: &Duals,
) -> (Certificate, f64) {
    let mut sum = LossSum::new(problem);
    sum.add(problem, table, weights, Simd::best()).unwrap();
    let certificate = Certificate {
        primal: sum.primal(problem, weights),
        dual: dual_value(problem, weights, duals),
    };
    (certificate, sum.accuracy())
}

fn solve(problem: &Problem, table: &RowTable, inner: InnerPasses, key: u64, simd: Simd) -> Solved {
    let mut weights = Weights::zeros(problem);
    let mut duals = Duals::zeros(problem, table.len());
    let mut scratch = Scratch::new(simd);
    solve_block(
        problem,
        table,
        &mut weights,
        &mut duals,
        inner,
        key,
        &mut scratch,
    )
    .unwrap();
    let (certificate, accuracy) = certify(problem, table, &weights, &duals);
    Solved {
        certificate,
        accuracy,
    }
}

#[test]
fn the_gap_closes_for_every_loss_layout_and_level() {
    for loss in LOSSES {
        for (layout, features) in [
            (Layout::Dense { width: 28 }, 28),
            (Layout::Dense { width: 45 }, 45),
            (Layout::Sparse, 60),
        ] {
            let rows = table(planted(layout, 500, features, 2, 1));
            for bias in [None, Some(1.0)] {
                let mut problem = Problem::new(loss, 1.0, features, 2).unwrap();
                if let Some(bias) = bias {
                    problem = problem.with_bias(bias).unwrap();
                }
                for simd in Simd::available() {
                    let solved = solve(&problem, &rows, TIGHT, 3, simd);
                    let gap = solved.certificate.relative_gap();
                    assert!(
                        (-1e-5..1e-4).contains(&gap),
                        "{loss:?} {layout:?} {bias:?} {simd:?}: {:?}, gap {gap}",
                        solved.certificate
                    );
                    assert!(solved.accuracy > 0.7);
                }
            }
        }
    }
}

/// A small problem of each loss with its solution.
fn solved(
    loss: Loss,
    layout: Layout,
    count: usize,
    features: usize,
) -> (Problem, RowTable, Weights, Duals) {
    let rows = table(planted(layout, count, features, 2, 5));
    let problem = Problem::new(loss, 0.5, features, 2).unwrap();
    let (weights, duals) = run(&problem, &rows, TIGHT, 11);
    (problem, rows, weights, duals)
}

fn run(problem: &Problem, rows: &RowTable, inner: InnerPasses, key: u64) -> (Weights, Duals) {
    let mut weights = Weights::zeros(problem);
    let mut duals = Duals::zeros(problem, rows.len());
    let mut scratch = Scratch::new(Simd::best());
    solve_block(
        problem,
        rows,
        &mut weights,
        &mut duals,
        inner,
        key,
        &mut scratch,
    )
    .unwrap();
    (weights, duals)
}

/// y w·x of each row, in f64.
fn margins(problem: &Problem, rows: &RowTable, weights: &Weights) -> Vec<f64> {
    let w = weights.vector(0);
    (0..rows.len())
        .map(|i| {
            let value: f64 = match rows.row(i) {
                Row::Dense(x) => x
                    .iter()
                    .zip(w)
                    .map(|(&x, &w)| f64::from(x) * f64::from(w))
                    .sum(),
                Row::Sparse { indices, values } => indices
                    .iter()
                    .zip(values)
                    .map(|(&i, &x)| f64::from(x) * f64::from(w[i as usize]))
                    .sum(),
                Row::Bytes(_) => panic!("rows are features"),
            };
            f64::from(problem.sign(0, rows.label(i))) * value
        })
        .collect()
}

#[test]
fn solutions_satisfy_the_optimality_conditions() {
    // The solver stops at gradients of 1e-4; f32 dots of 60 terms add at most 60·60·2^-24 < 3e-4.
    let tolerance = 5e-4;
    for layout in [Layout::Dense { width: 30 }, Layout::Sparse] {
        for loss in [Loss::Hinge, Loss::SquaredHinge] {
            let (problem, rows, weights, duals) = solved(loss, layout, 300, 30);
            for (i, margin) in margins(&problem, &rows, &weights).into_iter().enumerate() {
                let alpha = duals.alpha(&problem, 0, i as u64, rows.label(i));
                let diagonal = if loss == Loss::Hinge { 0.0 } else { 1.0 };
                let g = margin - 1.0 + diagonal * alpha;
                let at_upper = loss == Loss::Hinge && alpha >= 0.5;
                assert!(alpha >= 0.0);
                assert!(
                    alpha == 0.0 || g <= tolerance,
                    "{loss:?} row {i}: alpha {alpha}, g {g}"
                );
                assert!(
                    at_upper || g >= -tolerance,
                    "{loss:?} row {i}: alpha {alpha}, g {g}"
                );
            }
        }
        let (problem, rows, weights, duals) = solved(Loss::Logistic, layout, 300, 30);
        for (i, margin) in margins(&problem, &rows, &weights).into_iter().enumerate() {
            let alpha = duals.alpha(&problem, 0, i as u64, rows.label(i));
            let expected = 0.5 / (1.0 + margin.exp());
            assert!(
                (alpha - expected).abs() < tolerance,
                "row {i}: {alpha} against {expected}"
            );
        }
    }
}

#[test]
fn one_key_gives_one_solution_and_another_key_another() {
    let rows = table(planted(Layout::Sparse, 400, 50, 3, 2));
    for loss in LOSSES {
        let problem = Problem::new(loss, 1.0, 50, 3).unwrap();
        let first = run(&problem, &rows, InnerPasses::Fixed(3), 1);
        assert_eq!(first, run(&problem, &rows, InnerPasses::Fixed(3), 1));
        assert_ne!(first, run(&problem, &rows, InnerPasses::Fixed(3), 2));
    }
}

#[test]
fn a_fixed_number_of_passes_is_kept() {
    let rows = table(planted(Layout::Sparse, 100, 30, 2, 2));
    for loss in LOSSES {
        let problem = Problem::new(loss, 1.0, 30, 2).unwrap();
        for passes in [0, 1, 5, 300] {
            let mut weights = Weights::zeros(&problem);
            let mut duals = Duals::zeros(&problem, 100);
            let mut scratch = Scratch::new(Simd::best());
            let inner = InnerPasses::Fixed(passes);
            let report = solve_block(
                &problem,
                &rows,
                &mut weights,
                &mut duals,
                inner,
                1,
                &mut scratch,
            )
            .unwrap();
            assert_eq!(report.passes, passes);
            assert!(report.visits <= u64::from(passes) * 100);
        }
    }
}

#[test]
fn solving_block_after_block_reaches_the_same_optimum() {
    for loss in LOSSES {
        let rows = table(planted(Layout::Dense { width: 10 }, 600, 10, 2, 4));
        let problem = Problem::new(loss, 1.0, 10, 2).unwrap();
        let whole = solve(&problem, &rows, TIGHT, 1, Simd::best()).certificate;
        let mut weights = Weights::zeros(&problem);
        let mut duals = Duals::zeros(&problem, 600);
        let mut scratch = Scratch::new(Simd::best());
        let inner = InnerPasses::Until {
            epsilon: 1e-3,
            at_most: 200,
        };
        let mut dual_before = 0.0;
        for step in 0..1200_usize {
            let block = rows.slice(step % 6 * 100..step % 6 * 100 + 100);
            let key = step as u64;
            solve_block(
                &problem,
                &block,
                &mut weights,
                &mut duals,
                inner,
                key,
                &mut scratch,
            )
            .unwrap();
            let dual = dual_value(&problem, &weights, &duals);
            // Each block can only raise the dual value, up to the rounding of w.
            assert!(
                dual >= dual_before - 1e-5 * dual.abs(),
                "{loss:?} step {step}"
            );
            dual_before = dual;
        }
        let (certificate, _) = certify(&problem, &rows, &weights, &duals);
        let difference = (certificate.primal - whole.primal).abs() / whole.primal;
        assert!(
            difference < 1e-3,
            "{loss:?}: {certificate:?} against {whole:?}"
        );
    }
}

#[test]
fn weights_stay_the_sum_of_the_duals() {
    for loss in LOSSES {
        for classes in [2, 4] {
            let rows = table(planted(Layout::Sparse, 2000, 80, classes, 6));
            let problem = Problem::new(loss, 1.0, 80, classes)
                .unwrap()
                .with_bias(1.0)
                .unwrap();
            let (weights, duals) = run(&problem, &rows, InnerPasses::Fixed(60), 3);
            let mut bound = DualBound::new(&problem);
            bound.add(&problem, &rows, &duals, Simd::best());
            for (subproblem, exact) in bound.sums.iter().enumerate() {
                for (&w, &exact) in weights.vector(subproblem).iter().zip(exact) {
                    // Each of at most 2000 × 60 updates rounds a weight below 16 by 2^-21; errors of
                    // random sign add up to the square root of their number.
                    let allowed = 8.0 * (2000.0 * 60.0_f64).sqrt() * 2.0_f64.powi(-21);
                    assert!(
                        (f64::from(w) - exact).abs() < allowed,
                        "{loss:?}: {w} against {exact}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_class_weight_equals_listing_the_rows_so_often() {
    for loss in LOSSES {
        for classes in [2, 3] {
            let single = planted(Layout::Dense { width: 8 }, 150, 8, classes, 8);
            let mut doubled = single.clone();
            for i in (0..single.len()).filter(|&i| single.label(i) == 1) {
                doubled.push(1, single.row(i));
            }
            let (single, doubled) = (table(single), table(doubled));
            let plain = Problem::new(loss, 0.3, 8, classes).unwrap();
            let weighted = plain.clone().with_class_weight(1, 2.0).unwrap();
            let expected = solve(&plain, &doubled, TIGHT, 1, Simd::best())
                .certificate
                .primal;
            let found = solve(&weighted, &single, TIGHT, 1, Simd::best())
                .certificate
                .primal;
            assert!(
                (found - expected).abs() < 1e-4 * expected,
                "{loss:?}: {found} against {expected}"
            );
        }
    }
}

#[test]
fn rows_without_features_are_settled_at_once() {
    for loss in LOSSES {
        let mut rows = planted(Layout::Sparse, 50, 20, 2, 8);
        for label in [0, 1, 0] {
            rows.push_sparse(label, &[], &[]);
        }
        let rows = table(rows);
        let problem = Problem::new(loss, 1.0, 20, 2).unwrap();
        let certificate = solve(&problem, &rows, TIGHT, 2, Simd::best()).certificate;
        assert!(
            certificate.relative_gap().abs() < 1e-4,
            "{loss:?} {certificate:?}"
        );
    }
}

#[test]
fn rows_of_one_class_are_solved_too() {
    // A block may well hold rows of one class only, though the data hold two.
    for loss in LOSSES {
        let mut rows = Rows::new(Layout::Dense { width: 2 });
        for i in 0..20 {
            rows.push_dense(0, &[1.0, i as f32 / 20.0]);
        }
        let rows = table(rows);
        let problem = Problem::new(loss, 1.0, 2, 2).unwrap();
        let solved = solve(&problem, &rows, TIGHT, 2, Simd::best());
        assert!(solved.certificate.relative_gap().abs() < 1e-4, "{loss:?}");
        assert_eq!(solved.accuracy, 1.0);
    }
}

#[test]
fn slack_tells_settled_rows_from_free_ones() {
    let (problem, rows, mut weights, mut duals) = solved(Loss::Hinge, Layout::Sparse, 300, 30);
    let mut scratch = Scratch::new(Simd::best());
    let inner = InnerPasses::Fixed(1);
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
    let margins = margins(&problem, &rows, &weights);
    let mut settled = 0;
    for (i, &slack) in scratch.slack().iter().enumerate() {
        let alpha = duals.stored(0)[i];
        let free = alpha > 0.0 && alpha < 0.5;
        assert_eq!(slack < 0.0, free, "row {i}: alpha {alpha}, slack {slack}");
        if slack > 0.1 {
            settled += 1;
            let g = margins[i] - 1.0;
            assert!((f64::from(slack) - g.abs()).abs() < 1e-2);
            assert!((alpha == 0.0) == (g > 0.0), "row {i}: alpha {alpha}, g {g}");
        }
    }
    assert!(settled > 100, "only {settled} settled rows");
}
