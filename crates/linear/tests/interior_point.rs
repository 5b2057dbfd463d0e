//! The interior-point solver against coordinate descent, and where coordinate descent stalls.

mod support;

use pelton_format::{Layout, RowTable, Rows};
use pelton_linear::{
    Certificate, Duals, InnerPasses, LinearError, Loss, LossSum, Problem, Scratch, Simd, Weights,
    dual_value, interior_fits, solve_block, solve_interior,
};
use support::{planted, table};

fn primal(problem: &Problem, rows: &RowTable, weights: &Weights) -> f64 {
    let mut losses = LossSum::new(problem);
    losses.add(problem, rows, weights, Simd::best()).unwrap();
    losses.primal(weights)
}

fn interior(problem: &Problem, rows: &RowTable, wanted: f64) -> (Certificate, Weights, Duals) {
    let mut weights = Weights::zeros(problem);
    let mut duals = Duals::zeros(problem, rows.len());
    let found = solve_interior(problem, rows, wanted, &mut weights, &mut duals, &mut || {
        true
    });
    let found = found.unwrap().unwrap();
    let certificate = Certificate {
        primal: primal(problem, rows, &found.weights),
        dual: dual_value(&weights, &duals),
    };
    (certificate, weights, duals)
}

#[test]
fn both_solvers_reach_one_optimum() {
    for loss in [Loss::Hinge, Loss::SquaredHinge] {
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
                let (certificate, _, _) = interior(&problem, &rows, 1e-6);
                assert!(certificate.relative_gap() < 3e-6, "{certificate:?}");
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

#[test]
fn features_of_very_different_sizes_do_not_slow_it() {
    let sizes = [1e4_f32, 1.0, 3e-3, 700.0, 1.0, 25.0];
    let planted = planted(Layout::Dense { width: 6 }, 800, 6, 2, 9);
    let mut rows = Rows::new(Layout::Dense { width: 6 });
    for i in 0..planted.len() {
        let pelton_format::Row::Dense(values) = planted.row(i) else {
            unreachable!();
        };
        let scaled: Vec<f32> = values.iter().zip(sizes).map(|(v, s)| v * s).collect();
        rows.push_dense(planted.label(i), &scaled);
    }
    let rows = table(rows);
    for loss in [Loss::Hinge, Loss::SquaredHinge] {
        let problem = Problem::new(loss, 1.0, 6, 2).unwrap();
        let (certificate, _, _) = interior(&problem, &rows, 1e-6);
        assert!(certificate.relative_gap() < 1e-4, "{certificate:?}");
        let mut weights = Weights::zeros(&problem);
        let mut duals = Duals::zeros(&problem, rows.len());
        let mut scratch = Scratch::new(Simd::best());
        let inner = InnerPasses::Fixed(500);
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
        let descent = Certificate {
            primal: primal(&problem, &rows, &weights),
            dual: dual_value(&weights, &duals),
        };
        assert!(
            descent.relative_gap() > 100.0 * certificate.relative_gap(),
            "the case is one in which coordinate descent stalls: {descent:?}"
        );
    }
}

#[test]
fn odd_data_is_solved_too() {
    let one_row = |rows: usize| {
        let mut made = Rows::new(Layout::Dense { width: 3 });
        for i in 0..rows {
            made.push_dense(
                i as u32 % 2,
                &[1.0, 0.0, if i % 2 == 0 { 1.0 } else { -1.0 }],
            );
        }
        table(made)
    };
    let problem = Problem::new(Loss::Hinge, 1.0, 3, 2).unwrap();
    for rows in [1, 2, 7] {
        let (certificate, _, _) = interior(&problem, &one_row(rows), 1e-6);
        assert!(certificate.relative_gap() < 1e-5, "{rows}: {certificate:?}");
    }
    let mut empty = Rows::new(Layout::Sparse);
    for i in 0..4 {
        empty.push_sparse(i % 2, &[], &[]);
    }
    let (certificate, _, _) = interior(&problem, &table(empty), 1e-6);
    assert!((certificate.primal - 4.0).abs() < 1e-6, "{certificate:?}");
    assert!(certificate.relative_gap() < 1e-5, "{certificate:?}");
}

#[test]
fn what_it_cannot_take_is_refused() {
    assert!(!interior_fits(
        &Problem::new(Loss::Logistic, 1.0, 3, 2).unwrap()
    ));
    assert!(!interior_fits(
        &Problem::new(Loss::Hinge, 1.0, 513, 2).unwrap()
    ));
    let problem = Problem::new(Loss::Hinge, 1.0, 3, 2).unwrap();
    let solve = |rows: Rows, records: usize| {
        let mut weights = Weights::zeros(&problem);
        let mut duals = Duals::zeros(&problem, records);
        let ids = (0..rows.len() as u64).collect();
        let rows = RowTable::from_rows(rows, ids);
        solve_interior(&problem, &rows, 1e-3, &mut weights, &mut duals, &mut || {
            true
        })
    };
    let dense = |label: u32, row: &[f32]| {
        let mut rows = Rows::new(Layout::Dense { width: row.len() });
        rows.push_dense(label, row);
        rows
    };
    assert!(matches!(
        solve(dense(0, &[1.0; 4]), 1),
        Err(LinearError::Width { .. })
    ));
    assert!(matches!(
        solve(dense(2, &[1.0; 3]), 1),
        Err(LinearError::UnknownClass { .. })
    ));
    let outside = solve(dense(0, &[1.0; 3]), 0);
    assert!(matches!(outside, Err(LinearError::RecordOutOfRange { .. })));
    let mut sparse = Rows::new(Layout::Sparse);
    sparse.push_sparse(0, &[3], &[1.0]);
    assert!(matches!(
        solve(sparse, 1),
        Err(LinearError::FeatureOutOfRange { .. })
    ));
}

#[test]
fn stopped_it_changes_nothing() {
    let rows = table(planted(Layout::Dense { width: 5 }, 100, 5, 2, 1));
    let problem = Problem::new(Loss::Hinge, 1.0, 5, 2).unwrap();
    let (mut weights, mut duals) = (Weights::zeros(&problem), Duals::zeros(&problem, 100));
    let mut asked = 0;
    let found = solve_interior(&problem, &rows, 1e-6, &mut weights, &mut duals, &mut || {
        asked += 1;
        asked < 4
    });
    assert!(found.unwrap().is_none());
    assert_eq!(weights, Weights::zeros(&problem));
    assert_eq!(duals, Duals::zeros(&problem, 100));
}
