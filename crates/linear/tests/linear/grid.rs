//! Models trained side by side are those that are trained one by one: each cost on the records of each part of the
//! folds.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::{Layout, RowTable, Rows};
use pelton_linear::*;
use pelton_plan::{Batching, Catalog, Order, Plan, PlanSpec};
use support::{Numbers, planted, table};

const FEATURES: usize = 7;
const ROWS: usize = 90;
/// Costs are f32; those of a grid are rounded once more.
const COST_ROUNDING: f64 = 2e-7;

static NEVER: AtomicBool = AtomicBool::new(false);

/// The best weights and their certificate.
fn newton(problem: &Problem, rows: &RowTable, wanted: f64) -> (Weights, Certificate) {
    let mut newton = Newton::new(Arc::new(problem.clone()), rows.len(), wanted, Simd::best());
    for pass in 0.. {
        newton.begin_pass();
        assert!(newton.add(rows, &NEVER).unwrap());
        let found = newton.end_pass(&mut alone::<LinearError>).unwrap();
        if found.done || pass == 200 {
            return (newton.best().0, found.certificate);
        }
    }
    unreachable!()
}

/// Epochs over blocks, some without a read of all rows, and the certificate of a separate pass.
fn descent(problem: &Problem, rows: &Rows, coded_rows: usize, seed: u64) -> (Weights, Certificate) {
    let plan = PlanSpec::new(Order::Full, Batching::Batches(3), seed);
    let plan = Plan::new(&plan, Catalog::new(ROWS as u64)).unwrap();
    let options = OutOfCoreOptions {
        inner: InnerPasses::Until {
            epsilon: 1e-4,
            at_most: 300,
        },
        tighten: None,
        skip: coded_rows == 0,
        coded_rows,
        snapshots: true,
        held: false,
        seed,
    };
    let mut solver = OutOfCore::new(Arc::new(problem.clone()), ROWS as u64, options);
    for epoch in 0..60 {
        solver.begin_epoch(epoch, epoch % 4 == 3).unwrap();
        for step in 0..plan.steps(0) {
            let mut ids = Vec::new();
            ids.extend(plan.step_ids(epoch, step));
            ids.retain(|&id| solver.wants(id));
            let mut block = Rows::new(rows.layout());
            for &id in &ids {
                block.push(rows.label(id as usize), rows.row(id as usize));
            }
            let block = RowTable::from_rows(block, ids);
            solver.train(&block, step).unwrap();
        }
        let ended = solver.end_epoch();
        if let Some(primal) = ended.certified_primal {
            let certificate = Certificate {
                primal,
                dual: ended.dual,
            };
            if certificate.relative_gap() < 1e-6 || epoch == 59 {
                return (solver.into_weights(true), certificate);
            }
        }
    }
    unreachable!()
}

/// The rows that are not in a fold, with their weights.
fn part(rows: &Rows, weights: &[f32], folds: &[u8], fold: u8) -> (RowTable, Arc<[f32]>) {
    let mut left = Rows::new(rows.layout());
    let seen = (0..rows.len()).filter(|&i| folds[i] != fold);
    for i in seen.clone() {
        left.push(rows.label(i), rows.row(i));
    }
    (table(left), seen.map(|i| weights[i]).collect())
}

/// Rows of a loss: classes, or targets by them.
fn labelled(loss: Loss, rows: Rows, numbers: &mut Numbers) -> Rows {
    if !loss.has_real_targets() {
        return rows;
    }
    let mut with_targets = Rows::new(rows.layout());
    for i in 0..rows.len() {
        let number = rows.label(i) as f32 + 0.5 * numbers.symmetric();
        let target = match loss {
            Loss::Poisson => number.abs().round(),
            _ => number,
        };
        with_targets.push(target.to_bits(), rows.row(i));
    }
    with_targets
}

fn check(loss: Loss, classes: usize, seed: u64) {
    let mut numbers = Numbers::new(seed);
    let layout = match numbers.below(2) {
        0 => Layout::Sparse,
        _ => Layout::Dense { width: FEATURES },
    };
    let rows = planted(layout, ROWS, FEATURES, classes, seed);
    let rows = labelled(loss, rows, &mut numbers);
    let count = 2 + numbers.below(3) as u8;
    let folds: Arc<[u8]> = (0..ROWS).map(|i| i as u8 % count).collect();
    let mut base = Problem::new(loss, 0.05, FEATURES, classes).unwrap();
    base = match numbers.below(3) {
        0 => base.with_bias(1.0).unwrap(),
        1 => base.with_free_bias(),
        _ => base,
    };
    if !loss.has_real_targets() && numbers.below(2) == 0 {
        base = base.with_class_weight(1, 3.0).unwrap();
    }
    let is_weighted = numbers.below(2) == 0;
    let weight = |numbers: &mut Numbers| match is_weighted {
        true => [0.0, 1.0, 0.5, 2.0][numbers.below(4)],
        false => 1.0,
    };
    let weights: Arc<[f32]> = (0..ROWS).map(|_| weight(&mut numbers)).collect();
    let factors = [1.0, 40.0, 0.1];
    let mut weighted = base.clone();
    if is_weighted {
        weighted = weighted.with_sample_weights(Arc::clone(&weights)).unwrap();
    }
    let grid = weighted.with_grid(&factors, Some((Arc::clone(&folds), count)));
    let grid = grid.unwrap();
    assert_eq!(grid.models(), 3 * usize::from(count));
    let table = table(rows.clone());
    let coded_rows = usize::from(layout != Layout::Sparse) * 30;
    let mut found = vec![
        ("newton", newton(&grid, &table, 1e-6)),
        ("blocks", descent(&grid, &rows, 0, seed)),
    ];
    if coded_rows > 0 {
        found.push(("codes", descent(&grid, &rows, coded_rows, seed)));
    }
    let each = grid.subproblems_of_model();
    for (method, (weights_of_all, certificate)) in found {
        let what = format!("{loss} of {classes} classes, {method}, {seed}");
        let gap = certificate.primal - certificate.dual;
        let free_blocks = base.bias_is_free() && method != "newton";
        let wanted = if free_blocks { 1e-2 } else { 1e-3 };
        assert!(
            certificate.relative_gap() <= wanted,
            "{what}: {certificate:?}"
        );
        let (mut least, mut most) = (0.0, 0.0);
        for model in 0..grid.models() {
            let (factor, fold) = (factors[model / usize::from(count)], model as u8 % count);
            let (seen, own_weights) = part(&rows, &weights, &folds, fold);
            let mut alone = Problem::new(loss, 0.05 * factor, FEATURES, classes).unwrap();
            if let Some(bias) = base.bias() {
                alone = alone.with_bias(bias).unwrap();
            }
            if base.bias_is_free() {
                alone = alone.with_free_bias();
            }
            for (class, weight) in (0..).zip(base.class_weights()) {
                alone = alone.with_class_weight(class, *weight).unwrap();
            }
            if is_weighted {
                alone = alone.with_sample_weights(own_weights).unwrap();
            }
            let (optimal, bounds) = newton(&alone, &seen, 1e-9);
            least += bounds.dual / factor;
            most += bounds.primal / factor;
            let vectors = (model * each..(model + 1) * each)
                .map(|subproblem| weights_of_all.vector(subproblem).to_vec());
            let own = Weights::from_vectors(FEATURES, base.bias(), vectors.collect());
            let mut losses = LossSum::new(&alone);
            losses.add(&alone, &seen, &own, Simd::best()).unwrap();
            let primal = losses.primal(&alone, &own);
            // The certificate bounds the suboptimality of each model; and P is strongly convex in all weights except a
            // free bias.
            let lacks = factor * gap + 1e-6 * primal;
            assert!(
                primal - bounds.dual <= lacks,
                "{what}: model {model} {primal} {bounds:?} {gap}"
            );
            let allowed = 2.0 * (lacks + bounds.primal - bounds.dual);
            for k in 0..each {
                let pairs = own.vector(k)[..FEATURES].iter().zip(optimal.vector(k));
                let off: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
                assert!(
                    off.sqrt() <= allowed.sqrt() + 1e-5,
                    "{what}: model {model} {off}"
                );
            }
        }
        assert!(
            certificate.dual <= most * (1.0 + COST_ROUNDING),
            "{what}: {certificate:?} {most}"
        );
        assert!(
            certificate.primal >= least * (1.0 - 1e-6),
            "{what}: {certificate:?} {least}"
        );
    }
}

#[test]
fn models_side_by_side_are_those_trained_one_by_one() {
    for seed in 1..=3 {
        for loss in [Loss::Hinge, Loss::SquaredHinge, Loss::Logistic] {
            check(loss, 2, seed);
            check(loss, 3, seed + 100);
        }
        check(Loss::Squared, 2, seed);
        check(Loss::EpsilonInsensitive(0.1), 2, seed);
        check(Loss::Poisson, 2, seed);
    }
}

/// A grid of one factor without folds gives the same bits as the problem alone.
#[test]
fn a_grid_of_one_model_is_the_problem() {
    let rows = planted(Layout::Dense { width: FEATURES }, ROWS, FEATURES, 3, 4);
    for loss in [Loss::Hinge, Loss::SquaredHinge, Loss::Logistic] {
        let alone = Problem::new(loss, 0.7, FEATURES, 3).unwrap();
        let grid = alone.clone().with_grid(&[1.0], None).unwrap();
        assert_eq!(descent(&alone, &rows, 0, 5), descent(&grid, &rows, 0, 5));
        let table = table(rows.clone());
        assert_eq!(newton(&alone, &table, 1e-6), newton(&grid, &table, 1e-6));
    }
}

#[test]
fn costs_that_no_solver_can_use_are_refused() {
    let problem = Problem::new(Loss::Hinge, 1.0, 3, 2).unwrap();
    for factor in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-40] {
        let refused = problem.clone().with_grid(&[1.0, factor], None);
        assert!(
            matches!(refused, Err(LinearError::Cost { .. })),
            "{factor} {refused:?}"
        );
    }
}
