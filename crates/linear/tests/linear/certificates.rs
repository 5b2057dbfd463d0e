//! A certificate is a proof: on random problems no dual value is above the optimum and no primal value below it, for
//! any solver, loss, weights of classes and records, bias and blocks.
//!
//! The optimum is bounded from above by a reference that shares nothing with the library: coordinate descent in f64
//! over plain vectors, and the primal value of its w from the definition. `PELTON_CERTIFICATES` sets the number of
//! problems.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::{Layout, RowTable, Rows};
use pelton_linear::*;
use pelton_plan::{Batching, Catalog, Order, Plan, PlanSpec};
use support::{Numbers, dense, push, table};

struct Case {
    problem: Problem,
    /// Whether weights of records differ so much that Newton's method may not end.
    is_uneven: bool,
    rows: Rows,
}

fn uniform(numbers: &mut Numbers) -> f64 {
    0.5 + 0.5 * f64::from(numbers.symmetric())
}

/// Rows of features of one size or of very different ones, often far from 0, labels at random or planted or rare.
fn case(numbers: &mut Numbers) -> Case {
    let (count, features) = (1 + numbers.below(30), 1 + numbers.below(6));
    let classes = if numbers.below(4) == 0 { 3 } else { 2 };
    let layout = match numbers.below(2) {
        0 => Layout::Dense { width: features },
        _ => Layout::Sparse,
    };
    let spread = [0.0, 2.0][numbers.below(2)];
    let power =
        |numbers: &mut Numbers, spread: f64| 10.0_f64.powf(spread * (2.0 * uniform(numbers) - 1.0));
    let sizes: Vec<f64> = (0..features).map(|_| power(numbers, spread)).collect();
    let offset = [0.0, 0.0, 5.0][numbers.below(3)];
    let rare = numbers.below(3) == 0;
    let losses = [
        Loss::Hinge,
        Loss::SquaredHinge,
        Loss::Logistic,
        Loss::Squared,
        Loss::EpsilonInsensitive([0.0, 0.1, 1.0][numbers.below(3)]),
        Loss::SquaredEpsilonInsensitive([0.0, 0.1, 1.0][numbers.below(3)]),
        Loss::Huber([0.05, 1.35][numbers.below(2)]),
        Loss::Poisson,
    ];
    let loss = losses[numbers.below(losses.len())];
    // Targets: their size and their distance from 0 in units of it, or counts.
    let (size, centre) = (power(numbers, 2.0), [0.0, 0.0, 4.0][numbers.below(3)]);
    let target = |numbers: &mut Numbers, row: &[f32]| -> f32 {
        let planted = [f64::from(row[0]) / sizes[0], 0.0][numbers.below(2)];
        let number = planted + centre + f64::from(numbers.symmetric());
        match loss {
            Loss::Poisson if numbers.below(3) == 0 => 0.0,
            Loss::Poisson => (number.abs() * size.min(30.0)).round() as f32,
            _ => (size * number) as f32,
        }
    };
    let mut rows = Rows::new(layout);
    for _ in 0..count {
        let row: Vec<f32> = sizes
            .iter()
            .map(|size| match numbers.below(5) {
                0 => 0.0,
                _ => (size * (f64::from(numbers.symmetric()) + offset)) as f32,
            })
            .collect();
        let label = match (rare, numbers.below(3)) {
            (true, _) => u32::from(numbers.below(15) != 0),
            (false, 0) => numbers.below(classes) as u32,
            _ => u32::from(row[0] > (sizes[0] * offset) as f32),
        };
        let label = if loss.has_real_targets() {
            target(numbers, &row).to_bits()
        } else {
            label
        };
        push(&mut rows, label, &row);
    }
    let cost = power(numbers, 3.0);
    let mut problem = Problem::new(loss, cost, features, classes).unwrap();
    if numbers.below(2) == 0 {
        problem = problem
            .with_bias([1.0, 0.3, 20.0][numbers.below(3)])
            .unwrap();
    }
    if numbers.below(3) == 0 {
        problem = problem.with_free_bias();
    }
    if numbers.below(3) == 0 && !loss.has_real_targets() {
        problem = problem.with_class_weight(1, power(numbers, 1.0)).unwrap();
    }
    let is_uneven = numbers.below(6) == 0;
    if is_uneven || numbers.below(4) == 0 {
        let spread = if is_uneven { 2.0 } else { 1.0 };
        let weight = |numbers: &mut Numbers| match numbers.below(4) {
            0 => 0.0,
            1 => 1.0,
            _ => power(numbers, spread) as f32,
        };
        let mut weights: Vec<f32> = (0..count).map(|_| weight(numbers)).collect();
        weights[numbers.below(count)] = 2.0;
        problem = problem.with_sample_weights(weights.into()).unwrap();
    }
    Case {
        problem,
        is_uneven,
        rows,
    }
}

/// −ξ'(u) of a real target, from the definition; at a kink anything between the slopes of either side.
fn pull(loss: Loss, target: f64, u: f64) -> f64 {
    let r = target - u;
    match loss {
        Loss::Squared => r,
        Loss::EpsilonInsensitive(epsilon) => {
            f64::from(i8::from(r > epsilon) - i8::from(r < -epsilon))
        }
        Loss::SquaredEpsilonInsensitive(epsilon) => 2.0 * r.signum() * (r.abs() - epsilon).max(0.0),
        Loss::Huber(epsilon) => r.clamp(-epsilon, epsilon),
        Loss::Poisson => target - u.exp(),
        Loss::Hinge | Loss::SquaredHinge | Loss::Logistic | Loss::Multinomial => {
            unreachable!("of classes")
        }
    }
}

/// ξ(u) of a real target, from the definition.
fn loss_of_target(loss: Loss, target: f64, u: f64) -> f64 {
    let r = (target - u).abs();
    match loss {
        Loss::Squared => 0.5 * r * r,
        Loss::EpsilonInsensitive(epsilon) => (r - epsilon).max(0.0),
        Loss::SquaredEpsilonInsensitive(epsilon) => (r - epsilon).max(0.0).powi(2),
        Loss::Huber(epsilon) if r <= epsilon => 0.5 * r * r,
        Loss::Huber(epsilon) => epsilon * (r - 0.5 * epsilon),
        Loss::Poisson if target == 0.0 => u.exp(),
        Loss::Poisson => u.exp() - target * u + target * target.ln() - target,
        Loss::Hinge | Loss::SquaredHinge | Loss::Logistic | Loss::Multinomial => {
            unreachable!("of classes")
        }
    }
}

/// The best α for a single row: the solution of α' = −C ξ'(u') with u' = u + q (α' − α), by halving in u', which also
/// works at kinks.
fn best_of_target(loss: Loss, (target, cost): (f64, f64), alpha: f64, u: f64, q: f64) -> f64 {
    if q == 0.0 {
        return alpha;
    }
    let excess = |v: f64| v - u - q * (cost * pull(loss, target, v) - alpha);
    let (mut low, mut high) = (u - 1.0, u + 1.0);
    while excess(low) > 0.0 {
        low -= 2.0 * (high - low);
    }
    while excess(high) < 0.0 {
        high += 2.0 * (high - low);
    }
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if excess(middle) > 0.0 {
            high = middle;
        } else {
            low = middle;
        }
    }
    alpha + (0.5 * (low + high) - u) / q
}

/// The least primal value found by coordinate descent in f64, over all subproblems. A free bias is found by descent
/// with a constant feature that is large, and then again with the other weights as they are, by halving the slope.
fn reference(case: &Case) -> f64 {
    let Case { problem, rows, .. } = case;
    let features = problem.features();
    let x: Vec<Vec<f64>> = (0..rows.len())
        .map(|i| {
            let mut x = dense(rows.row(i), features);
            let bias = problem.bias().map(f64::from);
            x.extend(if problem.bias_is_free() {
                Some(30.0)
            } else {
                bias
            });
            x
        })
        .collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut total = 0.0;
    for subproblem in 0..problem.subproblems() {
        let is_real = problem.loss().has_real_targets();
        let y: Vec<f64> = (0..rows.len())
            .map(|i| match is_real {
                true => 1.0,
                false => f64::from(problem.sign(subproblem, rows.label(i))),
            })
            .collect();
        let target = |i: usize| f64::from(f32::from_bits(rows.label(i)));
        let cost: Vec<f64> = (0..rows.len())
            .map(|i| problem.cost_of(if is_real { 0 } else { rows.label(i) }, i as u64))
            .collect();
        let mut w = vec![0.0; x[0].len()];
        let mut alpha = vec![0.0; x.len()];
        let mut best = f64::INFINITY;
        for pass in 0..400 {
            let mut moved = 0.0_f64;
            for i in 0..x.len() {
                let (q, m) = (dot(&x[i], &x[i]), y[i] * dot(&w, &x[i]));
                let new = match problem.loss() {
                    loss if is_real => best_of_target(loss, (target(i), cost[i]), alpha[i], m, q),
                    Loss::Hinge if q == 0.0 => cost[i],
                    Loss::Hinge => (alpha[i] + (1.0 - m) / q).clamp(0.0, cost[i]),
                    Loss::SquaredHinge => {
                        let d = 0.5 / cost[i];
                        (alpha[i] + (1.0 - m - d * alpha[i]) / (q + d)).max(0.0)
                    }
                    Loss::Logistic => {
                        // ln(α / (C − α)) + q (α − α₀) + m = 0, by halving.
                        let (mut low, mut high) = (0.0, cost[i]);
                        for _ in 0..70 {
                            let a = 0.5 * (low + high);
                            if (a / (cost[i] - a)).ln() + q * (a - alpha[i]) + m > 0.0 {
                                high = a;
                            } else {
                                low = a;
                            }
                        }
                        0.5 * (low + high)
                    }
                    loss => unreachable!("{loss} is of real targets"),
                };
                let change = new - alpha[i];
                moved = moved.max(change.abs() / cost[i].min(1.0));
                alpha[i] = new;
                w.iter_mut()
                    .zip(&x[i])
                    .for_each(|(w, x)| *w += change * y[i] * x);
            }
            if pass % 20 == 19 || moved < 1e-14 {
                let value = |w: &[f64]| {
                    let loss = |i: usize| {
                        let u = y[i] * dot(w, &x[i]);
                        cost[i]
                            * match is_real {
                                true => loss_of_target(problem.loss(), target(i), u),
                                false => problem.loss().at(u),
                            }
                    };
                    (0..x.len()).map(loss).sum::<f64>()
                };
                let mut w = w.clone();
                let mut squares = dot(&w, &w);
                if problem.bias_is_free() {
                    let (mut low, mut high) = (-1e4, 1e4);
                    let at = |w: &mut Vec<f64>, bias: f64| {
                        *w.last_mut().unwrap() = bias;
                        value(w)
                    };
                    for _ in 0..200 {
                        let [a, b] = [low + (high - low) / 3.0, high - (high - low) / 3.0];
                        if at(&mut w, a) < at(&mut w, b) {
                            high = b;
                        } else {
                            low = a;
                        }
                    }
                    squares = dot(&w, &w) - w.last().unwrap().powi(2);
                }
                best = best.min(0.5 * squares + value(&w));
            }
            if moved < 1e-14 {
                break;
            }
        }
        total += best;
    }
    total
}

/// Checks a certificate against a primal value that some w has.
fn check(what: &str, number: u64, found: Certificate, reached: f64) {
    let slack = 1e-13 * reached;
    assert!(
        found.dual <= reached + slack,
        "{what} of problem {number}: {found:?}, {reached} is reached"
    );
    assert!(
        found.primal >= found.dual - slack,
        "{what} of problem {number}: {found:?}"
    );
}

/// Coordinate descent over blocks, with every method of certification.
fn descend(case: &Case, number: u64, numbers: &mut Numbers, reached: f64) {
    let Case { problem, rows, .. } = case;
    let records = rows.len() as u64;
    let held = numbers.below(3) == 0;
    let blocks = if held {
        1
    } else {
        1 + numbers.below(rows.len().min(4)) as u64
    };
    let plan = Plan::new(
        &PlanSpec::new(Order::Full, Batching::Batches(blocks), number),
        Catalog::new(records),
    )
    .unwrap();
    let options = OutOfCoreOptions {
        inner: InnerPasses::Until {
            epsilon: [0.1, 1e-3][numbers.below(2)],
            at_most: 30,
        },
        tighten: None,
        skip: !held && numbers.below(2) == 0,
        coded_rows: 0,
        snapshots: !held && numbers.below(2) == 0,
        held,
        seed: number,
    };
    let mut solver = OutOfCore::new(Arc::new(problem.clone()), records, options);
    let all = table(rows.clone());
    for epoch in 0..4 {
        let reads_all = numbers.below(2) == 0;
        solver.begin_epoch(epoch, reads_all).unwrap();
        for step in 0..plan.steps(0) {
            let mut ids = Vec::new();
            ids.extend(plan.step_ids(epoch, step));
            ids.retain(|&id| solver.wants(id));
            let mut block = Rows::new(rows.layout());
            for &id in &ids {
                block.push(rows.label(id as usize), rows.row(id as usize));
            }
            solver
                .train(&RowTable::from_rows(block, ids), step)
                .unwrap();
        }
        let outcome = solver.end_epoch();
        if let Some(primal) = outcome.certified_primal {
            let dual = outcome.dual;
            check(
                "the epoch's certificate",
                number,
                Certificate { primal, dual },
                reached,
            );
        }
        if held {
            let (found, ..) = solver.certify(&all).unwrap();
            check("the certificate over rows held", number, found, reached);
        } else {
            let mut losses = LossSum::new(problem);
            let mut bound = DualBound::new(problem);
            solver
                .check_rows(&all, false, &mut losses, &mut bound)
                .unwrap();
            let found = Certificate {
                primal: losses.primal(problem, solver.weights()),
                dual: bound.value(problem),
            };
            check("the pass that certifies", number, found, reached);
        }
    }
    let mut bound = DualBound::new(problem);
    bound.add(problem, &all, solver.duals(), Simd::best());
    let exact: f64 = (0..problem.subproblems())
        .map(|subproblem| support::dual_value(problem, &all, solver.duals(), subproblem))
        .sum();
    // The error of decoding the α of the logistic loss is proportional to the costs.
    let is_real = problem.loss().has_real_targets();
    let costs: f64 = (0..rows.len())
        .map(|i| problem.cost_of(if is_real { 0 } else { rows.label(i) }, i as u64))
        .sum();
    // Terms of targets may be much larger than their sum.
    let size = |i: usize| {
        let alpha = solver.duals().alpha(problem, 0, i as u64, rows.label(i));
        let target = f64::from(f32::from_bits(rows.label(i)).abs());
        target * (alpha.abs() + problem.cost_of(0, i as u64))
    };
    let sizes: f64 = (0..rows.len()).filter(|_| is_real).map(size).sum();
    let allowed = 1e-10 * (exact.abs() + reached) + 1e-12 * (costs + sizes);
    let found = bound.value(problem);
    // The terms of scaled α are at least those in the bound.
    let is_near = problem.bias_is_free() || found >= exact - allowed;
    assert!(
        found <= exact + allowed && is_near,
        "problem {number}: {found} {exact}"
    );
}

fn newton(case: &Case, number: u64, reached: f64, wanted: f64) -> f64 {
    let Case { problem, rows, .. } = case;
    let all = table(rows.clone());
    let problem = Arc::new(problem.clone());
    let mut newton = Newton::new(problem, rows.len(), wanted, Simd::best());
    let never = AtomicBool::new(false);
    let mut gap = f64::INFINITY;
    for _ in 0..200 {
        newton.begin_pass();
        newton.add(&all, &never).unwrap();
        let found = newton.end_pass(&mut alone::<LinearError>).unwrap();
        check("Newton's certificate", number, found.certificate, reached);
        gap = found.certificate.relative_gap();
        if found.done {
            break;
        }
    }
    gap
}

/// The gap of coordinate descent in f64 after some rounds from α = 0.
fn finely(case: &Case, number: u64, reached: f64) {
    let Case { problem, rows, .. } = case;
    let all = table(rows.clone());
    let duals = Duals::zeros(problem, rows.len());
    let centres = vec![0.0; problem.subproblems()];
    let centres = &centres[..if problem.bias_is_free() {
        centres.len()
    } else {
        0
    }];
    let fine = FineDescent::new(problem, &all, &duals, centres, Simd::best());
    assert_eq!(fine.is_some(), problem.loss().needs_fine_steps());
    let Some(mut fine) = fine else { return };
    for round in 0..4 {
        fine.round(number + round, &AtomicBool::new(false));
        let (_, found) = fine.certify().unwrap();
        check("descent in f64", number, found, reached);
    }
}

#[test]
fn no_dual_value_lies_above_the_optimum() {
    let problems = std::env::var("PELTON_CERTIFICATES");
    let problems: u64 = problems.map_or(1500, |count| count.parse().unwrap());
    let mut far = 0;
    for number in 0..problems {
        let mut numbers = Numbers::new(number + 1);
        let case = case(&mut numbers);
        let reached = reference(&case);
        descend(&case, number, &mut numbers, reached);
        finely(&case, number, reached);
        let mut before = f64::INFINITY;
        // Weights without curvature, as a free bias with a few hinges, are less precise, and so are exactly fitted
        // targets, since f32 rounds the weights.
        let suffices: f64 = match case.problem.loss() {
            Loss::EpsilonInsensitive(_) | Loss::Huber(_) => 3e-3,
            _ if case.problem.bias_is_free() => 1e-3,
            _ => 0.0,
        };
        // Rows of one class, the others of weight 0, and a free bias: the optimum is 0, and a relative gap is
        // undefined.
        let has_optimum = |gap: f64| !case.problem.bias_is_free() || gap < 1e9;
        for wanted in [1e-1, 1e-3, 1e-4, 1e-9] {
            let gap = newton(&case, number, reached, wanted);
            // A smaller tolerance never proves less, down to the precision of f32.
            assert!(
                gap <= suffices.max(1.01 * before.max(wanted))
                    || case.is_uneven
                    || !has_optimum(gap),
                "problem {number}, tolerance {wanted}: {gap} after {before}"
            );
            before = gap;
        }
        far += u64::from(before > 1e-6 && has_optimum(before));
    }
    // Such small problems are the hard ones for a smoothed hinge.
    assert!(
        far * 30 <= problems,
        "Newton's method ends early on {far} of {problems}"
    );
}
