//! Problems without a penalty, with offsets, and begun from given weights, against calculations of their own in f64.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::{Layout, RowTable, Rows, Scale};
use pelton_linear::*;
use support::{Numbers, over_ranks, passes, primal_value, push, table};

static NEVER: AtomicBool = AtomicBool::new(false);
const LOSSES: [Loss; 3] = [Loss::Logistic, Loss::Squared, Loss::Poisson];

/// Rows of correlated features, and labels that depend on them.
fn rows(numbers: &mut Numbers, loss: Loss, count: usize, features: usize) -> Vec<(Vec<f32>, f64)> {
    let row = |_| {
        let common = numbers.symmetric();
        let x: Vec<f32> = (0..features)
            .map(|j| numbers.symmetric() + 0.5 * common + 0.1 * j as f32)
            .collect();
        let u: f64 = x
            .iter()
            .zip(1..)
            .map(|(x, j)| f64::from(*x) / f64::from(j))
            .sum::<f64>()
            - 0.3;
        let noise = f64::from(numbers.symmetric());
        let label = match loss {
            Loss::Logistic => f64::from(u8::from(u + 1.5 * noise < 0.0)),
            Loss::Poisson => ((u.exp() + 1.0) * (1.0 + noise)).floor(),
            _ => f64::from((u + noise) as f32),
        };
        (x, label)
    };
    (0..count).map(row).collect()
}

fn row_table(loss: Loss, layout: Layout, rows: &[(Vec<f32>, f64)]) -> RowTable {
    let mut all = Rows::new(layout);
    for (x, label) in rows {
        let label = if loss.has_real_targets() {
            (*label as f32).to_bits()
        } else {
            *label as u32
        };
        push(&mut all, label, x);
    }
    table(all)
}

/// Value, gradient and Hessian at w, the intercept last, by the definitions.
fn at(
    loss: Loss,
    rows: &[(Vec<f32>, f64)],
    costs: &[f64],
    w: &[f64],
) -> (f64, Vec<f64>, Vec<Vec<f64>>) {
    let width = w.len();
    let (mut value, mut gradient, mut hessian) =
        (0.0, vec![0.0; width], vec![vec![0.0; width]; width]);
    for ((x, label), cost) in rows.iter().zip(costs) {
        let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).chain([1.0]).collect();
        let u: f64 = x.iter().zip(w).map(|(x, w)| x * w).sum();
        let (own, slope, curvature) = match loss {
            Loss::Logistic => {
                // Class 0 is positive.
                let s = 1.0 - 2.0 * label;
                let p = 1.0 / (1.0 + (s * u).exp());
                ((-s * u).exp().ln_1p(), -s * p, p * (1.0 - p))
            }
            Loss::Poisson => {
                let t = *label;
                let own = if t > 0.0 { t * (t.ln() - u) - t } else { 0.0 };
                (own + u.exp(), u.exp() - t, u.exp())
            }
            _ => (0.5 * (u - label).powi(2), u - label, 1.0),
        };
        value += cost * own;
        for i in 0..width {
            gradient[i] += cost * slope * x[i];
            for j in 0..width {
                hessian[i][j] += cost * curvature * x[i] * x[j];
            }
        }
    }
    (value, gradient, hessian)
}

/// The inverse by elimination with pivots.
fn inverse(matrix: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let n = matrix.len();
    let mut rows: Vec<Vec<f64>> = matrix
        .iter()
        .enumerate()
        .map(|(i, row)| {
            row.iter()
                .copied()
                .chain((0..n).map(|j| f64::from(u8::from(i == j))))
                .collect()
        })
        .collect();
    for column in 0..n {
        let pivot = (column..n)
            .max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))
            .unwrap();
        rows.swap(column, pivot);
        let own = rows[column].clone();
        for (i, row) in rows.iter_mut().enumerate() {
            let factor = if i == column {
                1.0 - 1.0 / own[column]
            } else {
                row[column] / own[column]
            };
            row.iter_mut()
                .zip(&own)
                .for_each(|(value, own)| *value -= factor * own);
        }
    }
    rows.into_iter().map(|row| row[n..].to_vec()).collect()
}

/// The optimum by Newton's method with halved steps.
fn optimum(
    loss: Loss,
    rows: &[(Vec<f32>, f64)],
    costs: &[f64],
    width: usize,
) -> (f64, Vec<f64>, Vec<Vec<f64>>) {
    let mut w = vec![0.0; width];
    for _ in 0..200 {
        let (value, gradient, hessian) = at(loss, rows, costs, &w);
        let inverse = inverse(&hessian);
        let step: Vec<f64> = inverse
            .iter()
            .map(|row| -row.iter().zip(&gradient).map(|(a, b)| a * b).sum::<f64>())
            .collect();
        let mut part = 1.0;
        loop {
            let next: Vec<f64> = w.iter().zip(&step).map(|(w, s)| w + part * s).collect();
            if part < 1e-6 || at(loss, rows, costs, &next).0 <= value {
                w = next;
                break;
            }
            part /= 2.0;
        }
    }
    let (value, _, hessian) = at(loss, rows, costs, &w);
    (value, w, inverse(&hessian))
}

#[test]
fn weights_and_standard_errors_are_those_of_maximum_likelihood() {
    let mut numbers = Numbers::new(5);
    for (case, loss) in LOSSES.iter().cycle().take(30).enumerate() {
        let (loss, features) = (*loss, 1 + case % 6);
        let count = 40 + 10 * case;
        let rows = rows(&mut numbers, loss, count, features);
        let layout = [Layout::Dense { width: features }, Layout::Sparse][case % 2];
        let table = row_table(loss, layout, &rows);
        let mut problem = Problem::new(loss, 1.0, features, 2)
            .unwrap()
            .with_penalty(Penalty::None)
            .unwrap();
        problem = problem.with_free_bias();
        let mut costs = vec![1.0; count];
        if case % 3 == 1 {
            costs = (0..count).map(|_| numbers.below(4) as f64).collect();
            problem = problem
                .with_sample_weights(costs.iter().map(|c| *c as f32).collect())
                .unwrap();
        }
        let problem = Arc::new(problem);
        let mut solver = Unpenalised::new(Arc::clone(&problem), Simd::best());
        let (found, made) = passes(&mut solver, &table).unwrap();
        let (value, w, covariance) = optimum(loss, &rows, &costs, features + 1);
        assert!(!found.is_proved && made < 15, "{loss}: {made} passes");
        let off = (found.certificate.primal - value).abs();
        assert!(
            off <= 1e-9 * value.abs(),
            "{loss}: {} {value}",
            found.certificate.primal
        );
        let precise = solver.precision().unwrap().remove(0);
        // The scale: training subtracted 3 from features and multiplied by 2, so the weights are for such features.
        let scale = Scale::new(vec![2.0; features], vec![3.0; features]).unwrap();
        for scale in [None, Some(&scale)] {
            let inference =
                Inference::new(&problem, &precise, count as u64, scale, 0.5, case % 2 == 0);
            let sign = if case % 2 == 0 { -1.0 } else { 1.0 };
            let of = |j: usize| -> (f64, Vec<f64>) {
                let mut shares = vec![0.0; features + 1];
                match (j < features, scale) {
                    (true, None) => shares[j] = 1.0,
                    (true, Some(_)) => shares[j] = 2.0,
                    (false, None) => shares[features] = 1.0,
                    (false, Some(_)) => {
                        shares.fill(-6.0);
                        shares[features] = 1.0;
                    }
                }
                (if j < features { 0.0 } else { 0.5 }, shares)
            };
            let n: f64 = costs.iter().sum();
            let dispersion = if loss == Loss::Squared {
                2.0 * value / (n - w.len() as f64)
            } else {
                1.0
            };
            assert_eq!(inference.freedom.is_some(), loss == Loss::Squared);
            for found in &inference.coefficients {
                let (constant, shares) = of(found.feature.unwrap_or(features));
                let estimate =
                    sign * (constant + shares.iter().zip(&w).map(|(a, b)| a * b).sum::<f64>());
                let mut variance = 0.0;
                for (i, a) in shares.iter().enumerate() {
                    for (j, b) in shares.iter().enumerate() {
                        variance += dispersion * a * b * covariance[i][j];
                    }
                }
                let (precise, error) = (found.precise.unwrap(), variance.sqrt());
                assert!(
                    (found.estimate - estimate).abs() < 1e-6 * error,
                    "{loss}: {} {estimate} {error}",
                    found.estimate
                );
                assert!(
                    (precise.error / error - 1.0).abs() < 1e-6,
                    "{loss}: {} {error}",
                    precise.error
                );
                assert!((precise.statistic - estimate / error).abs() < 1e-5);
            }
        }
    }
}

#[test]
fn combinations_and_separable_classes_are_told() {
    let mut numbers = Numbers::new(6);
    let mut all = rows(&mut numbers, Loss::Squared, 200, 2);
    // The third is a combination, the fourth constant, the fifth only zeros.
    all.iter_mut()
        .for_each(|(x, _)| x.extend([x[0] - x[1], 7.0, 0.0]));
    let solve_for = |loss, all: &[(Vec<f32>, f64)]| {
        let width = all[0].0.len();
        let problem = Problem::new(loss, 1.0, width, 2)
            .unwrap()
            .with_penalty(Penalty::None);
        let problem = Arc::new(problem.unwrap().with_free_bias());
        let mut solver = Unpenalised::new(Arc::clone(&problem), Simd::best());
        let found = passes(&mut solver, &row_table(loss, Layout::Dense { width }, all));
        found.map(|_| {
            (
                Inference::new(
                    &problem,
                    &solver.precision().unwrap()[0],
                    200,
                    None,
                    0.0,
                    false,
                ),
                solver.best().0,
            )
        })
    };
    let (found, weights) = solve_for(Loss::Squared, &all).unwrap();
    let known: Vec<bool> = found
        .coefficients
        .iter()
        .map(|found| found.precise.is_some())
        .collect();
    assert_eq!(known, [true, true, true, false, false, false]);
    assert_eq!(weights.vector(0)[2..5], [0.0; 3]);
    let (_, w, _) = optimum(
        Loss::Squared,
        &all.iter()
            .map(|(x, y)| (x[..2].to_vec(), *y))
            .collect::<Vec<_>>(),
        &[1.0; 200],
        3,
    );
    assert!((found.coefficients[1].estimate - w[0]).abs() < 1e-9);
    // A feature that only records of one class have.
    let mut classes = rows(&mut numbers, Loss::Logistic, 200, 2);
    for (i, (x, label)) in classes.iter_mut().enumerate() {
        let own = i % 10 == 0;
        x.push(f32::from(u8::from(own)));
        *label = if own { 1.0 } else { *label };
    }
    let (found, weights) = solve_for(Loss::Logistic, &classes).unwrap();
    let unbounded: Vec<bool> = found
        .coefficients
        .iter()
        .map(|found| found.is_unbounded)
        .collect();
    assert_eq!(unbounded, [false, false, false, true]);
    assert!(weights.vector(0)[2] < -15.0 && found.coefficients[2].precise.is_some());
    // Separable, by one feature or by several.
    for (x, label) in &mut classes {
        *label = f64::from(u8::from(x[0] + x[1] > 0.3));
    }
    let refused = solve_for(Loss::Logistic, &classes).unwrap_err().to_string();
    assert!(refused.contains("separated"), "{refused}");
    classes.iter_mut().for_each(|(_, label)| *label = 0.0);
    let refused = solve_for(Loss::Poisson, &classes).unwrap_err().to_string();
    assert!(refused.contains("every target is 0"), "{refused}");
    let refused = Problem::new(Loss::Hinge, 1.0, 1, 2)
        .unwrap()
        .with_penalty(Penalty::None);
    assert!(refused.unwrap_err().to_string().contains("give logistic"));
}

#[test]
fn passes_resume_bit_for_bit_and_ranks_find_the_same() {
    for loss in LOSSES {
        let rows = rows(&mut Numbers::new(7), loss, 300, 4);
        let table = row_table(loss, Layout::Dense { width: 4 }, &rows);
        let problem = Problem::new(loss, 1.0, 4, 2)
            .unwrap()
            .with_penalty(Penalty::None);
        let problem = Arc::new(problem.unwrap().with_free_bias());
        let solver = || Unpenalised::new(Arc::clone(&problem), Simd::best());
        let mut whole = solver();
        passes(&mut whole, &table).unwrap();
        let mut resumed = solver();
        for _ in 0..300 {
            resumed.begin_pass();
            assert!(!resumed.add(&table, &AtomicBool::new(true)).unwrap());
            let mut other = solver();
            other.restore(&resumed.save()).unwrap();
            resumed = other;
            resumed.begin_pass();
            assert!(resumed.add(&table, &NEVER).unwrap());
            if resumed.end_pass(&mut alone::<LinearError>).unwrap().done {
                break;
            }
        }
        assert_eq!(whole.best().0, resumed.best().0);
        assert!(solver().restore(&[vec![0.0; 3]]).is_err() && solver().restore(&[]).is_err());
        let mut all = Rows::new(Layout::Dense { width: 4 });
        for (x, label) in &rows {
            let label = if loss.has_real_targets() {
                (*label as f32).to_bits()
            } else {
                *label as u32
            };
            push(&mut all, label, x);
        }
        for (_, weights, _) in over_ranks(&all, 3, solver) {
            for (own, other) in weights.vector(0).iter().zip(whole.best().0.vector(0)) {
                assert!(
                    (own - other).abs() < 1e-5 * other.abs().max(0.1),
                    "{loss}: {own} {other}"
                );
            }
        }
    }
}

/// An offset of least squares is subtracted from the targets; any other is checked by its primal value and bound.
#[test]
fn offsets_have_the_weight_1_and_true_certificates() {
    let mut numbers = Numbers::new(8);
    for (case, loss) in LOSSES.iter().cycle().take(24).enumerate() {
        let (loss, features) = (*loss, 2 + case % 4);
        let rows = rows(&mut numbers, loss, 150, features);
        let table = row_table(loss, Layout::Dense { width: features }, &rows);
        let (cost, at) = ([0.01, 1.0, 100.0][case / 3 % 3], case % features);
        let pose = |features: usize| {
            let problem = Problem::new(loss, cost, features, 2).unwrap();
            match case % 3 {
                0 => problem,
                1 => problem.with_bias(1.0).unwrap(),
                _ => problem.with_free_bias(),
            }
        };
        let problem = Arc::new(pose(features).with_offset(at).unwrap());
        let mut solver = Lbfgs::new(Arc::clone(&problem), 150, 1e-7, Simd::best());
        let (found, _) = passes(&mut solver, &table).unwrap();
        let weights = solver.best().0;
        assert_eq!(weights.vector(0)[at], 1.0);
        assert!(found.certificate.relative_gap() < 1e-6, "{loss}: {found:?}");
        // That of the other weights is in the penalty.
        let primal = primal_value(&problem, &table, &weights) - 0.5;
        assert!(primal <= found.certificate.primal * (1.0 + 1e-12));
        assert!(primal >= found.certificate.dual);
        assert!((primal / found.certificate.primal - 1.0).abs() < 1e-9);
        let mut losses = LossSum::new(&problem);
        losses
            .add(&problem, &table, &weights, Simd::best())
            .unwrap();
        assert!((losses.primal(&problem, &weights) / primal - 1.0).abs() < 1e-9);
        if loss == Loss::Squared {
            let off = rows.iter().map(|(x, y)| {
                let mut others = x.clone();
                let offset = f64::from(others.remove(at));
                (others, y - offset)
            });
            let off: Vec<(Vec<f32>, f64)> = off.collect();
            let layout = Layout::Dense {
                width: features - 1,
            };
            let plain = Arc::new(pose(features - 1));
            let mut solver = Lbfgs::new(plain, 150, 1e-9, Simd::best());
            let (expected, _) = passes(&mut solver, &row_table(loss, layout, &off)).unwrap();
            let ratio = found.certificate.primal / expected.certificate.primal;
            assert!((ratio - 1.0).abs() < 1e-5, "{ratio}");
        }
        // Without a penalty, too.
        if case % 3 == 2 {
            let problem = Problem::new(loss, 1.0, features, 2).unwrap();
            let problem = problem
                .with_penalty(Penalty::None)
                .unwrap()
                .with_free_bias();
            let problem = Arc::new(problem.with_offset(at).unwrap());
            let mut solver = Unpenalised::new(Arc::clone(&problem), Simd::best());
            let (found, _) = passes(&mut solver, &table).unwrap();
            assert_eq!(solver.best().0.vector(0)[at], 1.0);
            let inference = Inference::new(
                &problem,
                &solver.precision().unwrap()[0],
                150,
                None,
                0.0,
                false,
            );
            assert_eq!(inference.coefficients.len(), features);
            assert!(found.certificate.primal <= primal / cost + 1e-9);
        }
    }
    let refused = Problem::new(Loss::Hinge, 1.0, 2, 2)
        .unwrap()
        .with_offset(0)
        .unwrap_err();
    assert!(refused.to_string().contains("smooth loss"));
}

/// Every method of passes that starts at the optimum ends immediately.
#[test]
fn a_start_near_the_optimum_saves_passes() {
    for loss in LOSSES {
        let rows = rows(&mut Numbers::new(9), loss, 400, 6);
        let table = row_table(loss, Layout::Dense { width: 6 }, &rows);
        let plain = Problem::new(loss, 1.0, 6, 2).unwrap().with_free_bias();
        let of = |penalty| Arc::new(plain.clone().with_penalty(penalty).unwrap());
        let (l2, l1, none) = (of(Penalty::L2), of(Penalty::L1), of(Penalty::None));
        let new = |which: usize| -> Box<dyn PassSolver> {
            let simd = Simd::best();
            match which {
                0 => Box::new(Newton::new(Arc::clone(&l2), 400, 1e-6, simd)),
                1 => Box::new(Lbfgs::new(Arc::clone(&l2), 400, 1e-6, simd)),
                2 => Box::new(WorkingSet::new(
                    Arc::clone(&l1),
                    1e-6,
                    1 << 30,
                    Arc::default(),
                    simd,
                )),
                _ => Box::new(Unpenalised::new(Arc::clone(&none), simd)),
            }
        };
        for which in 0..4 {
            let mut cold = new(which);
            let (expected, made) = passes(&mut *cold, &table).unwrap();
            let mut warm = new(which);
            warm.start(&cold.best().0);
            let (found, again) = passes(&mut *warm, &table).unwrap();
            assert!(
                again <= 3 && again <= made,
                "{loss} {which}: {again} passes for {made}"
            );
            let [a, b] = [found, expected].map(|found| found.certificate.primal);
            assert!((a / b - 1.0).abs() < 2e-6, "{loss} {which}: {a} {b}");
        }
    }
    let classes = rows(&mut Numbers::new(9), Loss::Squared, 300, 4);
    let classes: Vec<(Vec<f32>, f64)> = classes
        .into_iter()
        .map(|(x, y)| (x, (y.abs() * 2.0).floor().min(2.0)))
        .collect();
    let table = row_table(Loss::Multinomial, Layout::Dense { width: 4 }, &classes);
    let problem = Arc::new(
        Problem::new(Loss::Multinomial, 1.0, 4, 3)
            .unwrap()
            .with_free_bias(),
    );
    let new = || Lbfgs::new(Arc::clone(&problem), 300, 1e-6, Simd::best());
    let mut cold = new();
    passes(&mut cold, &table).unwrap();
    let mut warm = new();
    warm.start(&cold.best().0);
    assert!(passes(&mut warm, &table).unwrap().1 <= 2);
}
