//! Penalties with ‖w‖₁: on random problems no certificate is false, targets are reached, ranks agree, and interrupted
//! runs resume without a difference. `PELTON_CERTIFICATES` sets the number of problems.
//!
//! The optimum is bounded from above by a reference that shares nothing with the library: proximal gradient steps with
//! momentum in f64 over plain vectors, and the objective from its definition.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::{Layout, RowTable, Rows};
use pelton_linear::*;
use support::{Numbers, dense, over_ranks, passes, push, table};

static NEVER: AtomicBool = AtomicBool::new(false);

struct Case {
    problem: Problem,
    rows: Rows,
}

fn case(numbers: &mut Numbers) -> Case {
    let (count, features) = (2 + numbers.below(40), 1 + numbers.below(12));
    let classes = if numbers.below(4) == 0 { 3 } else { 2 };
    let layout = match numbers.below(2) {
        0 => Layout::Dense { width: features },
        _ => Layout::Sparse,
    };
    let losses = [
        Loss::SquaredHinge,
        Loss::Logistic,
        Loss::Squared,
        Loss::Huber([0.05, 1.35][numbers.below(2)]),
        Loss::SquaredEpsilonInsensitive(0.1),
    ];
    let loss = losses[numbers.below(losses.len())];
    let power =
        |numbers: &mut Numbers, spread: f64| 10.0_f64.powf(spread * f64::from(numbers.symmetric()));
    let sizes: Vec<f32> = (0..features).map(|_| power(numbers, 0.5) as f32).collect();
    let offset = [0.0, 0.0, 2.0][numbers.below(3)];
    let mut rows = Rows::new(layout);
    for i in 0..count {
        let row: Vec<f32> = sizes
            .iter()
            .map(|size| match numbers.below(4) {
                0 => 0.0,
                _ => size * (numbers.symmetric() + offset),
            })
            .collect();
        let label = if loss.has_real_targets() {
            (3.0 * row[0] + numbers.symmetric() + offset).to_bits()
        } else if i < classes {
            i as u32
        } else if numbers.below(3) == 0 {
            numbers.below(classes) as u32
        } else {
            u32::from(row[0] > sizes[0] * offset)
        };
        push(&mut rows, label, &row);
    }
    let mut problem = Problem::new(loss, power(numbers, 1.5), features, classes).unwrap();
    if numbers.below(2) == 0 {
        problem = problem.with_bias([1.0, 0.3][numbers.below(2)]).unwrap();
    }
    if numbers.below(2) == 0 {
        problem = problem.with_free_bias();
    }
    if numbers.below(4) == 0 {
        let weights: Vec<f32> = (0..count)
            .map(|i| if i < 3 { 1.0 } else { numbers.below(3) as f32 })
            .collect();
        problem = problem.with_sample_weights(weights.into()).unwrap();
    }
    let penalties = [
        Penalty::L1,
        Penalty::ElasticNet(0.5),
        Penalty::ElasticNet(0.05),
    ];
    let penalty = penalties[numbers.below(3)];
    Case {
        problem: problem.with_penalty(penalty).unwrap(),
        rows,
    }
}

/// Loss and slope of a margin, from the definition.
fn loss_of(loss: Loss, target: f64, u: f64) -> [f64; 2] {
    let r = target - u;
    match loss {
        Loss::SquaredHinge => {
            let short = (1.0 - u).max(0.0);
            [short * short, -2.0 * short]
        }
        Loss::Logistic => [
            (-u.abs()).exp().ln_1p() + (-u).max(0.0),
            -1.0 / (1.0 + u.exp()),
        ],
        Loss::Squared => [0.5 * r * r, -r],
        Loss::Huber(epsilon) => {
            let inner = r.abs().min(epsilon);
            [inner * (r.abs() - 0.5 * inner), -r.clamp(-epsilon, epsilon)]
        }
        Loss::SquaredEpsilonInsensitive(epsilon) => {
            let over = (r.abs() - epsilon).max(0.0);
            [over * over, -2.0 * over.copysign(r)]
        }
        _ => unreachable!("it is not tried"),
    }
}

/// The objective of a subproblem at w, and the slope of its smooth part.
fn objective(case: &Case, subproblem: usize, w: &[f64]) -> (f64, Vec<f64>) {
    let Case { problem, rows } = case;
    let share = problem.penalty().l1_share();
    let regularised =
        problem.features() + usize::from(problem.bias().is_some() && !problem.bias_is_free());
    let mut slope = vec![0.0; w.len()];
    let mut value = 0.0;
    for (j, w) in w.iter().enumerate().take(regularised) {
        value += share * w.abs() + 0.5 * (1.0 - share) * w * w;
        slope[j] = (1.0 - share) * w;
    }
    for i in 0..rows.len() {
        let mut x = dense(rows.row(i), problem.features());
        x.extend(problem.bias().map(f64::from));
        let (sign, target, class) = if problem.loss().has_real_targets() {
            (1.0, f64::from(f32::from_bits(rows.label(i))), 0)
        } else {
            let class = rows.label(i);
            (f64::from(problem.sign(subproblem, class)), 1.0, class)
        };
        let u: f64 = x.iter().zip(w).map(|(x, w)| x * w).sum();
        let [loss, bend] = loss_of(problem.loss(), target, sign * u);
        let cost = problem.cost_of(class, i as u64);
        value += cost * loss;
        for (slope, x) in slope.iter_mut().zip(&x) {
            *slope += cost * sign * bend * x;
        }
    }
    (value, slope)
}

/// An upper bound of the optimum, near it.
fn reference(case: &Case, subproblem: usize) -> f64 {
    let problem = &case.problem;
    let share = problem.penalty().l1_share();
    let length = problem.features() + usize::from(problem.bias().is_some());
    let is_free = |j: usize| problem.bias_is_free() && j == problem.features();
    let (mut w, mut ahead) = (vec![0.0; length], vec![0.0; length]);
    let (mut lipschitz, mut momentum): (f64, f64) = (1.0, 1.0);
    let mut best = objective(case, subproblem, &w).0;
    for _ in 0..4000 {
        let (value, slope) = objective(case, subproblem, &ahead);
        let next = loop {
            let step = |(j, (w, slope)): (usize, (&f64, &f64))| {
                let moved = w - slope / lipschitz;
                let kept = if is_free(j) { 0.0 } else { share / lipschitz };
                (moved.abs() - kept).max(0.0).copysign(moved)
            };
            let next: Vec<f64> = ahead.iter().zip(&slope).enumerate().map(step).collect();
            let smooth = |w: &[f64]| {
                let magnitudes = (0..length).filter(|&j| !is_free(j)).map(|j| w[j].abs());
                objective(case, subproblem, w).0 - share * magnitudes.sum::<f64>()
            };
            let moves: Vec<f64> = next.iter().zip(&ahead).map(|(a, b)| a - b).collect();
            let along: f64 = moves.iter().zip(&slope).map(|(m, s)| m * s).sum();
            let square: f64 = moves.iter().map(|m| m * m).sum();
            let allowed = smooth(&ahead) + along + 0.5 * lipschitz * square;
            if smooth(&next) <= allowed + 1e-12 * value.abs() || lipschitz > 1e12 {
                break next;
            }
            lipschitz *= 2.0;
        };
        let found = objective(case, subproblem, &next).0;
        if found > best {
            // Reset the momentum if the objective rises.
            momentum = 1.0;
        }
        best = best.min(found);
        let following = 0.5 * (1.0 + (1.0 + 4.0 * momentum * momentum).sqrt());
        let pull = (momentum - 1.0) / following;
        ahead = next
            .iter()
            .zip(&w)
            .map(|(new, old)| new + pull * (new - old))
            .collect();
        let moved = next
            .iter()
            .zip(&w)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        (w, momentum) = (next, following);
        if moved == 0.0 {
            break;
        }
    }
    best
}

fn solver(case: &Case, wanted: f64) -> WorkingSet {
    let (problem, interrupt) = (Arc::new(case.problem.clone()), Arc::default());
    WorkingSet::new(problem, wanted, 1 << 20, interrupt, Simd::best())
}

/// Passes to the end.
fn train(solver: &mut WorkingSet, rows: &RowTable) -> PassFigures {
    passes(solver, rows).unwrap().0
}

#[test]
fn no_certificate_is_false_and_targets_are_reached() {
    let count = std::env::var("PELTON_CERTIFICATES").ok();
    let count = count.and_then(|count| count.parse().ok()).unwrap_or(150);
    let mut far = 0;
    for number in 0..count {
        let case = case(&mut Numbers::new(number));
        let all = table(case.rows.clone());
        let mut solver = solver(&case, 1e-6);
        let found = train(&mut solver, &all).certificate;
        let subproblems = case.problem.subproblems();
        let optimum: f64 = (0..subproblems).map(|s| reference(&case, s)).sum();
        assert!(
            found.dual <= optimum * (1.0 + 1e-12),
            "problem {number}: {found:?} {optimum} {:?}",
            case.problem
        );
        let (weights, _) = solver.best();
        let exact: f64 = (0..subproblems)
            .map(|s| {
                let w: Vec<f64> = weights.vector(s).iter().map(|&w| f64::from(w)).collect();
                objective(&case, s, &w).0
            })
            .sum();
        assert!(
            found.primal >= exact * (1.0 - 1e-13) && found.primal <= exact * (1.0 + 1e-9),
            "problem {number}: {found:?} {exact}"
        );
        if found.relative_gap() > 1e-6 {
            far += 1;
            println!(
                "problem {number}: {:e} {:?}",
                found.relative_gap(),
                case.problem
            );
        }
    }
    assert!(far * 100 <= count, "{far} of {count} end early");
}

/// Sparse rows of many features, a few of them informative.
fn wide(count: usize, features: usize, seed: u64) -> Rows {
    let mut numbers = Numbers::new(seed);
    let mut rows = Rows::new(Layout::Sparse);
    for _ in 0..count {
        let mut row = vec![0.0; features];
        for _ in 0..20 {
            row[numbers.below(features)] = 1.0 + numbers.symmetric();
        }
        let m: f32 = row[..40].iter().sum::<f32>() - 0.5 + 0.3 * numbers.symmetric();
        push(&mut rows, u32::from(m > 0.0), &row);
    }
    rows
}

fn wide_problem() -> Problem {
    let problem = Problem::new(Loss::Logistic, 1.0, 2000, 2).unwrap();
    let problem = problem.with_penalty(Penalty::L1).unwrap();
    problem.with_free_bias()
}

#[test]
fn working_sets_leave_most_weights_0_and_prove_it() {
    let case = Case {
        problem: wide_problem(),
        rows: wide(1500, 2000, 3),
    };
    let all = table(case.rows.clone());
    let mut solver = solver(&case, 1e-6);
    let found = train(&mut solver, &all);
    assert!(found.certificate.relative_gap() <= 1e-6, "{found:?}");
    let [nonzero, all] = solver.best().0.nonzero();
    assert!(nonzero > 20 && nonzero < 600 && all == 2001, "{nonzero}");
}

#[test]
fn ranks_find_what_one_finds() {
    let problem = Arc::new(wide_problem());
    let rows = wide(900, 2000, 5);
    let new = || {
        let problem = Arc::clone(&problem);
        WorkingSet::new(problem, 1e-6, 1 << 20, Arc::default(), Simd::best())
    };
    let mut alone = new();
    let expected = train(&mut alone, &table(rows.clone()));
    for ranks in [2, 3] {
        let found = over_ranks(&rows, ranks, new);
        for (certificate, weights, _) in &found {
            assert_eq!(weights, &found[0].1, "all ranks have the same model");
            assert!(certificate.relative_gap() <= 1e-6);
            let off = (certificate.primal / expected.certificate.primal - 1.0).abs();
            assert!(off <= 2e-6, "{ranks} ranks: {off}");
        }
    }
}

#[test]
fn interrupted_anywhere_it_reaches_the_same_model() {
    let case = Case {
        problem: wide_problem(),
        rows: wide(700, 2000, 9),
    };
    let all = table(case.rows.clone());
    let mut whole = solver(&case, 1e-7);
    train(&mut whole, &all);
    let mut resumed = solver(&case, 1e-7);
    for pass in 0..100 {
        resumed.begin_pass();
        assert!(!resumed.add(&all, &AtomicBool::new(true)).unwrap());
        if pass % 3 == 1 {
            let mut other = solver(&case, 1e-7);
            other.restore(&resumed.save()).unwrap();
            resumed = other;
        }
        resumed.begin_pass();
        assert!(resumed.add(&all, &NEVER).unwrap());
        if resumed.end_pass(&mut alone).unwrap().done {
            break;
        }
    }
    assert_eq!(whole.best().0, resumed.best().0);
    let mut other = solver(&case, 1e-7);
    assert!(other.restore(&[vec![0.0; 3]]).is_err());
    assert!(other.restore(&[]).is_err());
}

#[test]
fn what_is_asked_too_much_is_refused_by_a_sentence() {
    let problem = Problem::new(Loss::Hinge, 1.0, 5, 2).unwrap();
    let refused = problem.with_penalty(Penalty::L1).unwrap_err().to_string();
    assert!(
        refused.contains("penalty l1") && refused.contains("squared-hinge"),
        "{refused}"
    );
    for wrong in ["l3", "elastic-net:2", "elastic-net:x", "elastic-net:-1"] {
        assert!(
            wrong
                .parse::<Penalty>()
                .unwrap_err()
                .contains("elastic-net:SHARE")
        );
    }
    for (text, share) in [("l2", 0.0), ("l1", 1.0), ("elastic-net:0.25", 0.25)] {
        let penalty: Penalty = text.parse().unwrap();
        assert_eq!(
            (penalty.l1_share(), penalty.to_string().as_str()),
            (share, text)
        );
    }
    let problem = Arc::new(wide_problem());
    let mut solver = WorkingSet::new(problem, 1e-6, 100, Arc::default(), Simd::best());
    let all = table(wide(900, 2000, 5));
    let refused = loop {
        solver.begin_pass();
        solver.add(&all, &NEVER).unwrap();
        if let Err(refused) = solver.end_pass(&mut alone) {
            break refused.to_string();
        }
    };
    assert!(refused.contains("more memory"), "{refused}");
}
