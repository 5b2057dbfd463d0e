//! Requirements on every loss of the list; and the optimum of `squared` solves the normal equations.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::{Layout, RowTable, Rows};

use super::*;
use crate::visit::{RowAddress, Visit};
use crate::*;

fn number(stream: &mut crate::random::Stream) -> f64 {
    (stream.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

/// A row of each sign and some targets and costs.
fn rows_of(loss: Loss) -> Vec<RowTerms> {
    let function = loss.function();
    let mut rows = Vec::new();
    for cost in [0.3_f32, 1.0, 40.0] {
        for (sign, target) in [(1.0, 1.0), (-1.0, 1.0), (1.0, -2.5), (1.0, 0.0), (1.0, 7.0)] {
            let is_real = function.has_real_targets();
            if (target == 1.0 || is_real && function.accepts(target)) && (sign > 0.0 || !is_real) {
                let cost = f64::from(cost);
                rows.push(RowTerms {
                    sign,
                    target,
                    cost,
                    dual: function.dual(cost),
                });
            }
        }
    }
    rows
}

fn newton(loss: Loss, row: &RowTerms, u: f64, tau: f64) -> NewtonTerms {
    let function = loss.function();
    let target = f64::from(row.target);
    function.newton(u, target, row.cost, tau, function.prepared(u))
}

#[test]
fn names_are_read_and_written() {
    for &loss in Loss::ALL {
        assert_eq!(loss.to_string().parse::<Loss>().unwrap(), loss);
        let others = Loss::ALL.iter().filter(|other| **other != loss);
        for other in others {
            let own = loss.function().liblinear();
            let theirs = other.function().liblinear();
            assert!(own.iter().all(|name| !theirs.contains(name)));
        }
    }
    let refused = "l1".parse::<Loss>().unwrap_err();
    assert!(
        refused.contains("use hinge, squared-hinge, logistic"),
        "{refused}"
    );
    for (text, loss) in [
        ("huber", Loss::Huber(1.35)),
        ("huber:0.5", Loss::Huber(0.5)),
        ("epsilon-insensitive:0", Loss::EpsilonInsensitive(0.0)),
    ] {
        assert_eq!(text.parse::<Loss>().unwrap(), loss);
    }
    assert_eq!(Loss::Huber(1.0).with_epsilon(2.0), Ok(Loss::Huber(2.0)));
    for wrong in [
        "huber:0",
        "huber:x",
        "huber:",
        "squared:1",
        "epsilon-insensitive:-1",
        "huber:inf",
    ] {
        assert!(wrong.parse::<Loss>().is_err(), "{wrong}");
    }
    let refused = Loss::Squared.with_epsilon(1.0).unwrap_err();
    assert!(refused.contains("`epsilon` does not apply to loss squared"));
    let help = Loss::help();
    assert!(help.starts_with("Loss: hinge, squared-hinge"), "{help}");
}

/// The curvature is minus the slope of α, the path minus that over τ, and the dual term is the loss plus α u, less the
/// gap of smoothing.
#[test]
fn terms_of_newtons_method_are_derivatives_and_bounds() {
    for &loss in Loss::ALL {
        for (row, tau) in rows_of(loss)
            .iter()
            .zip([1.0, 0.05, 1e-3].into_iter().cycle())
        {
            let cost = row.cost;
            for step in -60..60 {
                let u = 0.07 * f64::from(step) + 0.013;
                let (h, terms) = (1e-6, newton(loss, row, u, tau));
                let what = format!("{loss} at {u}, {row:?}: {terms:?}");
                let at = |u, tau| newton(loss, row, u, tau).alpha;
                let bend = -(at(u + h, tau) - at(u - h, tau)) / (2.0 * h);
                assert!((bend - terms.curvature).abs() < 1e-4 * cost / tau, "{what}");
                let path = -(at(u, tau + h) - at(u, tau - h)) / (2.0 * h);
                assert!((path - terms.path).abs() < 1e-4 * cost / tau, "{what}");
                let target = f64::from(row.target);
                let value = cost * loss.function().value(u, target);
                let [stated, slope] = loss.function().newton_loss(u, target, cost);
                assert!((stated - value).abs() <= 1e-14 * value && terms.loss >= 0.0);
                assert!((terms.loss - value).abs() <= 1e-12 * cost, "{what}");
                let moved = cost * loss.function().value(u + 1e-7, target);
                assert!((moved - value).abs() <= 1.01e-7 * slope, "{what}");
                assert!(terms.smoothing >= -1e-12 * cost, "{what}");
                let bound = value + terms.alpha * u - terms.smoothing;
                assert!((terms.term - bound).abs() < 1e-9 * cost.max(1.0), "{what}");
                if loss.function().smoothing().is_none() {
                    assert_eq!((terms.path, terms.smoothing), (0.0, 0.0), "{what}");
                }
            }
        }
    }
    // What is left is at most τ on either side of the bend.
    for row in rows_of(Loss::Hinge) {
        for step in -60..60 {
            let terms = newton(Loss::Hinge, &row, 0.07 * f64::from(step), 0.05);
            assert!(terms.smoothing <= row.cost * 0.05 * (1.0 + 1e-12));
            assert!((0.0..=row.cost).contains(&terms.alpha));
        }
    }
}

/// Fenchel's inequality, the basis of certificates, at any α within the bounds; with equality at Newton's α.
#[test]
fn a_kink_is_a_jump_of_the_slope() {
    let h = 1e-4;
    for &loss in Loss::ALL {
        let function = loss.function();
        let target = if loss.has_real_targets() { 1.5 } else { 1.0 };
        let value = |u: f64| function.value(u, target);
        let jump = |at: i32| {
            let u = f64::from(at) * h;
            (value(u + h) - 2.0 * value(u) + value(u - h)) / h
        };
        let largest = (-40_000..40_000).map(jump).fold(0.0, f64::max);
        assert_eq!(loss.is_smooth(), largest < 0.1, "{loss}: {largest}");
    }
}

#[test]
fn no_dual_term_lies_above_the_loss() {
    let mut stream = crate::random::Stream::new(3);
    for &loss in Loss::ALL {
        let function = loss.function();
        for row in rows_of(loss) {
            for _ in 0..400 {
                let u = 3.0 * number(&mut stream);
                let inside = 3.0 * row.cost * number(&mut stream);
                let (lower, upper) = (f64::from(row.dual.lower), f64::from(row.dual.upper));
                let stored = inside.clamp(lower, upper) as f32;
                // Near its upper end the α of the logistic loss is stored from there.
                let centred = loss.has_probabilities() && f64::from(stored) > 0.5 * row.cost;
                let stored = if centred {
                    stored - row.cost as f32
                } else {
                    stored
                };
                let alpha = function.decode(&row, stored);
                let value = row.cost * function.value(u, f64::from(row.target));
                let term = function.dual_term(&row, stored) - function.term_error(&row, stored);
                assert!(
                    term <= value + alpha * u + 1e-13 * (value + (alpha * u).abs()),
                    "{loss} {row:?} at {u}, α {alpha}: {term}"
                );
            }
        }
    }
}

/// After a step no α near by is better for the row alone.
#[test]
fn a_step_goes_to_the_best_dual_variable() {
    let mut stream = crate::random::Stream::new(4);
    for &loss in Loss::ALL {
        let function = loss.function();
        for row in rows_of(loss) {
            for _ in 0..100 {
                let q = 0.1 + number(&mut stream).abs() + f64::from(row.dual.diagonal);
                let u = 2.0 * number(&mut stream);
                let mut visit = Visit {
                    place: RowAddress::default(),
                    label: 0,
                    alpha: 0.0,
                    gradient: 0.0,
                    q: q as f32,
                    inverse_q: 1.0 / q as f32,
                };
                let dot = row.sign * u as f32;
                let outcome = function.step(&row, &mut visit, dot, &mut Watch::default());
                let found = function.decode(&row, visit.alpha);
                let moved = f64::from(outcome.scale * row.sign);
                assert!((moved - found).abs() <= 1e-6 * (1.0 + found.abs()));
                let plain = q - f64::from(row.dual.diagonal);
                let gain = |stored: f32| {
                    let alpha = function.decode(&row, stored);
                    function.dual_term(&row, stored) - alpha * u - 0.5 * plain * alpha * alpha
                };
                let best = gain(visit.alpha);
                let fine = function.fine_step(&row, 0.0, f64::from(u as f32), plain);
                assert!((fine - found).abs() <= 1e-4 * row.cost, "{fine} {found}");
                for change in [-1e-2, -1e-3, 1e-3, 1e-2] {
                    let (lower, upper) = (row.dual.lower, row.dual.upper);
                    let other = (found as f32 + change * row.cost as f32).clamp(lower, upper);
                    assert!(
                        gain(other) <= best + 1e-5 * row.cost,
                        "{loss} {row:?} at {u}: {found} and {other}"
                    );
                }
            }
        }
    }
}

/// Rows of real targets, near a plane.
fn regression(count: usize, features: usize) -> (RowTable, Vec<Vec<f64>>, Vec<f64>) {
    let mut stream = crate::random::Stream::new(9);
    let plane: Vec<f64> = (0..features).map(|_| number(&mut stream)).collect();
    let mut rows = Rows::new(Layout::Dense { width: features });
    let (mut xs, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let x: Vec<f32> = (0..features).map(|_| number(&mut stream) as f32).collect();
        let wide: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let dot: f64 = plane.iter().zip(&wide).map(|(w, x)| w * x).sum();
        let target = (5.0 * dot - 1.0 + 0.5 * number(&mut stream)) as f32;
        rows.push_dense(target.to_bits(), &x);
        xs.push(wide);
        targets.push(f64::from(target));
    }
    let ids = (0..count as u64).collect();
    (RowTable::from_rows(rows, ids), xs, targets)
}

/// w of (I + C Σ x xᵀ) w = C Σ t x by Gaussian elimination, and its primal value.
fn normal_equations(xs: &[Vec<f64>], targets: &[f64], cost: f64) -> (Vec<f64>, f64) {
    let d = xs[0].len();
    let mut a = vec![vec![0.0; d + 1]; d];
    for (i, row) in a.iter_mut().enumerate() {
        for (x, t) in xs.iter().zip(targets) {
            (0..d).for_each(|j| row[j] += cost * x[i] * x[j]);
            row[d] += cost * t * x[i];
        }
        row[i] += 1.0;
    }
    for k in 0..d {
        let pivot = a[k].clone();
        for (_, row) in a.iter_mut().enumerate().filter(|(i, _)| *i != k) {
            let factor = row[k] / pivot[k];
            row.iter_mut()
                .zip(&pivot)
                .for_each(|(a, p)| *a -= factor * p);
        }
    }
    let w: Vec<f64> = (0..d).map(|i| a[i][d] / a[i][i]).collect();
    let dot = |x: &[f64]| w.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
    let losses = xs.iter().zip(targets).map(|(x, t)| (t - dot(x)).powi(2));
    let primal = 0.5 * dot(&w) + 0.5 * cost * losses.sum::<f64>();
    (w, primal)
}

#[test]
fn least_squares_are_those_of_the_normal_equations() {
    for (cost, bias) in [(0.1, None), (2.0, Some(1.0)), (50.0, None)] {
        let (rows, mut xs, targets) = regression(400, 7);
        let mut problem = Problem::new(Loss::Squared, cost, 7, 1).unwrap();
        if let Some(bias) = bias {
            problem = problem.with_bias(bias).unwrap();
            xs.iter_mut().for_each(|x| x.push(f64::from(bias)));
        }
        let (expected, optimum) = normal_equations(&xs, &targets, problem.cost(0));
        let problem = Arc::new(problem);
        let check = |what: &str, found: Certificate, weights: &Weights, allowed: f64| {
            assert!(
                found.dual <= optimum * (1.0 + 1e-13),
                "{what}: {found:?}, {optimum}"
            );
            assert!(
                found.primal >= optimum * (1.0 - 1e-13),
                "{what}: {found:?}, {optimum}"
            );
            assert!(found.relative_gap() <= allowed, "{what}: {found:?}");
            for (w, expected) in weights.vector(0).iter().zip(&expected) {
                let allowed = if allowed < 1.0 { 2e-3 } else { f64::INFINITY };
                assert!(
                    (f64::from(*w) - expected).abs() < allowed,
                    "{what}: {w} {expected}"
                );
            }
        };
        // Coordinate descent over blocks; its certificates hold from the first epoch on.
        let options = OutOfCoreOptions {
            inner: InnerPasses::Until {
                epsilon: 1e-5,
                at_most: 2000,
            },
            tighten: None,
            skip: false,
            coded_rows: 0,
            snapshots: false,
            held: true,
            seed: 1,
        };
        let mut solver = OutOfCore::new(Arc::clone(&problem), 400, options);
        for epoch in 0..6 {
            solver.begin_epoch(epoch, true).unwrap();
            solver.train(&rows, 0).unwrap();
            solver.end_epoch();
            let (found, losses, _) = solver.certify(&rows).unwrap();
            assert_eq!(losses.correct, 0, "there are no classes");
            assert!(found.dual <= optimum * (1.0 + 1e-13), "{found:?} {optimum}");
            let gap = gap_of_rows(
                &problem,
                &rows,
                solver.weights(),
                solver.duals(),
                Simd::best(),
            );
            let stated = found.primal - found.dual;
            assert!((gap.unwrap() - stated).abs() <= 1e-3 * optimum, "{found:?}");
        }
        let (found, ..) = solver.certify(&rows).unwrap();
        check("coordinate descent", found, solver.weights(), 1e-4);
        let negative = solver.duals().stored(0).iter().any(|alpha| *alpha < 0.0);
        assert!(negative, "some α are negative");
        // Any α at all gives a bound.
        let mut stream = crate::random::Stream::new(6);
        for size in [1e-3, 0.1, 10.0] {
            let alpha = (0..400).map(|_| (size * number(&mut stream)) as f32);
            let duals = Duals::from_parts(400, vec![alpha.collect()], vec![0.0]);
            let mut bound = DualBound::new(&problem);
            bound.add(&problem, &rows, &duals, Simd::best());
            assert!(bound.value(&problem) <= optimum);
        }
        // Newton's method: the step from w = 0 ends at the optimum.
        let mut newton = Newton::new(Arc::clone(&problem), 400, 1e-9, Simd::best());
        let mut passes = 0;
        let found = loop {
            newton.begin_pass();
            newton.add(&rows, &AtomicBool::new(false)).unwrap();
            let found = newton.end_pass(&mut alone::<LinearError>).unwrap();
            check(
                "Newton's bounds",
                found.certificate,
                &newton.best().0,
                f64::INFINITY,
            );
            passes += 1;
            if found.done || passes == 10 {
                break found;
            }
        };
        check("Newton's method", found.certificate, &newton.best().0, 1e-9);
        assert!(passes <= 5, "{passes}");
    }
}

#[test]
fn what_a_loss_of_targets_cannot_do_is_refused() {
    let problem = Problem::new(Loss::Squared, 1.0, 2, 1).unwrap();
    let mut rows = Rows::new(Layout::Dense { width: 2 });
    rows.push_dense(f32::NAN.to_bits(), &[1.0, 2.0]);
    let rows = RowTable::from_rows(rows, vec![0]);
    let mut solver = OutOfCore::new(
        Arc::new(problem.clone()),
        1,
        OutOfCoreOptions {
            inner: InnerPasses::Fixed(1),
            tighten: None,
            skip: false,
            coded_rows: 0,
            snapshots: false,
            held: true,
            seed: 0,
        },
    );
    solver.begin_epoch(0, true).unwrap();
    let refused = solver.train(&rows, 0).unwrap_err();
    assert!(matches!(refused, LinearError::Target { .. }), "{refused}");
    let counts = Problem::new(Loss::Poisson, 1.0, 2, 0).unwrap();
    let refused = counts.check_label((-1.0_f32).to_bits(), 7).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("record 7 (from 0) has the target -1")
    );
    let model = Model {
        loss: Loss::Squared,
        cost: Some(1.0),
        class_weights: Vec::new(),
        classes: pelton_format::ClassMap::default(),
        means: None,
        penalty: Penalty::L2,
        bias_is_free: false,
        weights: Weights::zeros(&problem),
        scale: None,
        threshold: None,
        target_centre: 0.0,
        columns: None,
    };
    let path = std::path::Path::new("model.txt");
    let refused = model.write_liblinear(path, &AtomicBool::new(false));
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("model of loss squared cannot"), "{text}");
}
