//! L-BFGS for the multinomial loss: against Newton's method on all classes at once, in pieces, over ranks, from a saved
//! state.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::{Layout, RowTable, Rows};
use pelton_linear::*;
use support::{Numbers, dense, over_ranks, planted, push, table};

static NEVER: AtomicBool = AtomicBool::new(false);

/// P, its gradient and its Hessian at the weights of all classes, from their definitions.
struct Exact {
    rows: Vec<Vec<f64>>,
    labels: Vec<usize>,
    costs: Vec<f64>,
    classes: usize,
    free_bias: bool,
}

impl Exact {
    fn new(problem: &Problem, table: &RowTable) -> Exact {
        let rows = (0..table.len()).map(|i| {
            let mut row = dense(table.row(i), problem.features());
            row.extend(problem.bias().map(f64::from));
            row
        });
        let cost = |i: usize| problem.cost_of(table.label(i), table.id(i));
        Exact {
            rows: rows.collect(),
            labels: (0..table.len()).map(|i| table.label(i) as usize).collect(),
            costs: (0..table.len()).map(cost).collect(),
            classes: problem.classes(),
            free_bias: problem.bias_is_free(),
        }
    }

    fn width(&self) -> usize {
        self.rows[0].len()
    }

    /// Whether weight `j` of a class counts in the norm.
    fn counts(&self, j: usize) -> bool {
        !(self.free_bias && j + 1 == self.width())
    }

    /// The probabilities of a row, and its loss.
    fn shares(&self, w: &[f64], i: usize) -> (Vec<f64>, f64) {
        let of_class = |w: &[f64]| -> f64 { w.iter().zip(&self.rows[i]).map(|(w, x)| w * x).sum() };
        let values: Vec<f64> = w.chunks(self.width()).map(of_class).collect();
        let most = values.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = values.iter().map(|z| (z - most).exp()).sum();
        let shares = values.iter().map(|z| (z - most).exp() / sum).collect();
        // Without the loss that vanishes next to the largest value.
        let own = values[self.labels[i]];
        let others = values
            .iter()
            .enumerate()
            .filter(|(k, _)| *k != self.labels[i]);
        let rest: f64 = others.map(|(_, z)| (z - own).exp()).sum();
        let loss = if rest.is_finite() {
            rest.ln_1p()
        } else {
            most + sum.ln() - own
        };
        (shares, loss)
    }

    fn value(&self, w: &[f64]) -> f64 {
        let losses = (0..self.rows.len()).map(|i| self.costs[i] * self.shares(w, i).1);
        let width = self.width();
        let counting = w
            .iter()
            .enumerate()
            .filter(|(at, _)| self.counts(at % width));
        0.5 * counting.map(|(_, w)| w * w).sum::<f64>() + losses.sum::<f64>()
    }

    /// The least value that Newton's method finds with steps that are halved as often as is needed.
    fn optimum(&self) -> f64 {
        let (width, classes) = (self.width(), self.classes);
        let size = width * classes;
        let mut w = vec![0.0; size];
        let mut value = self.value(&w);
        for _ in 0..200 {
            let mut matrix = vec![vec![0.0; size + 1]; size];
            for at in 0..size {
                // A constant in all biases changes nothing: a little curvature leaves it where it is.
                let counts = f64::from(u8::from(self.counts(at % width)));
                matrix[at][at] = counts.max(1e-9);
                matrix[at][size] = counts * w[at];
            }
            for (i, x) in self.rows.iter().enumerate() {
                let (shares, _) = self.shares(&w, i);
                for k in 0..classes {
                    let own = f64::from(u8::from(self.labels[i] == k));
                    for j in 0..width {
                        let at = k * width + j;
                        matrix[at][size] += self.costs[i] * (shares[k] - own) * x[j];
                        for (l, share) in shares.iter().enumerate() {
                            let equal = f64::from(u8::from(k == l));
                            let factor = self.costs[i] * shares[k] * (equal - share) * x[j];
                            for (m, x) in x.iter().enumerate() {
                                matrix[at][l * width + m] += factor * x;
                            }
                        }
                    }
                }
            }
            let gradient: Vec<f64> = matrix.iter().map(|row| row[size]).collect();
            let step = solve(matrix);
            let slope: f64 = gradient.iter().zip(&step).map(|(a, b)| a * b).sum();
            let mut length = 1.0;
            let next = loop {
                let next: Vec<f64> = w.iter().zip(&step).map(|(w, s)| w - length * s).collect();
                let found = self.value(&next);
                if found <= value - 1e-4 * length * slope || length < 1e-12 {
                    break (next, found);
                }
                length *= 0.5;
            };
            if next.1 >= value {
                break;
            }
            (w, value) = next;
        }
        value
    }
}

/// Gaussian elimination of equations, with the right side in the last column.
fn solve(mut a: Vec<Vec<f64>>) -> Vec<f64> {
    let size = a.len();
    for k in 0..size {
        let best = (k..size).max_by(|&i, &j| a[i][k].abs().total_cmp(&a[j][k].abs()));
        a.swap(k, best.unwrap());
        let pivot = a[k].clone();
        for row in a.iter_mut().skip(k + 1) {
            let factor = row[k] / pivot[k];
            for (a, p) in row.iter_mut().zip(&pivot).skip(k) {
                *a -= factor * p;
            }
        }
    }
    let mut solution = vec![0.0; size];
    for k in (0..size).rev() {
        let known: f64 = (k + 1..size).map(|j| a[k][j] * solution[j]).sum();
        solution[k] = (a[k][size] - known) / a[k][k];
    }
    solution
}

/// Passes to the end, each judged by `check`; how many there were.
fn passes(
    lbfgs: &mut Lbfgs,
    rows: &RowTable,
    most: usize,
    mut check: impl FnMut(&Lbfgs, Certificate),
) -> usize {
    for pass in 1..=most {
        lbfgs.begin_pass();
        assert!(lbfgs.add(rows, &NEVER).unwrap());
        let found = lbfgs.end_pass(&mut alone::<LinearError>).unwrap();
        check(lbfgs, found.certificate);
        if found.done {
            return pass;
        }
    }
    most
}

/// A small problem of any kind.
fn random_problem(numbers: &mut Numbers) -> (Problem, RowTable) {
    let (classes, features) = (3 + numbers.below(4), 1 + numbers.below(6));
    let count = 2 * classes + numbers.below(45);
    let layout = if numbers.below(2) == 0 {
        Layout::Dense { width: features }
    } else {
        Layout::Sparse
    };
    let is_separable = numbers.below(4) == 0;
    let is_unscaled = numbers.below(3) == 0;
    let centres: Vec<f32> = (0..classes * features)
        .map(|_| numbers.symmetric())
        .collect();
    let sizes: Vec<f32> = (0..features)
        .map(|_| {
            if is_unscaled {
                10_f32.powi(numbers.below(6) as i32 - 3)
            } else {
                1.0
            }
        })
        .collect();
    let offset = if numbers.below(4) == 0 { 3.0 } else { 0.0 };
    let mut rows = Rows::new(layout);
    for i in 0..count {
        // Every class has a row of a weight above 0.
        let label = if i < 2 * classes {
            i / 2
        } else {
            numbers.below(classes)
        };
        let noise = if is_separable { 0.02 } else { 1.0 };
        let row: Vec<f32> = (0..features)
            .map(|j| {
                let kept = layout != Layout::Sparse || numbers.below(2) == 0;
                let x = centres[label * features + j] + noise * numbers.symmetric() + offset;
                if kept { x * sizes[j] } else { 0.0 }
            })
            .collect();
        push(&mut rows, label as u32, &row);
    }
    let cost = [1e-3, 0.03, 1.0, 10.0, 1e3][numbers.below(5)];
    let mut problem = Problem::new(Loss::Multinomial, cost, features, classes).unwrap();
    match numbers.below(4) {
        0 => {}
        1 => problem = problem.with_bias(1.0 + 0.5 * numbers.symmetric()).unwrap(),
        2 => problem = problem.with_free_bias(),
        _ => problem = problem.with_bias(2.5).unwrap().with_free_bias(),
    }
    if numbers.below(3) == 0 {
        problem = problem.with_class_weight(1, 3.0).unwrap();
    }
    if numbers.below(3) == 0 {
        let weights: Vec<f32> = (0..count)
            .map(|i| [1.0, 0.25, 4.0, 0.0][(i + 1) % 4])
            .collect();
        problem = problem.with_sample_weights(weights.into()).unwrap();
    }
    (problem, table(rows))
}

/// Every certificate of every pass is true, and nearly all runs reach their target.
#[test]
fn no_certificate_of_thousands_is_false() {
    let (mut reached, mut all, mut total) = (0, 0, 0);
    for seed in 0..2400 {
        let (problem, rows) = random_problem(&mut Numbers::new(seed));
        let exact = Exact::new(&problem, &rows);
        let optimum = exact.optimum();
        let problem = Arc::new(problem);
        let mut lbfgs = Lbfgs::new(Arc::clone(&problem), rows.len(), 1e-6, Simd::best());
        let mut last = f64::INFINITY;
        let made = passes(&mut lbfgs, &rows, 300, |lbfgs, found| {
            assert!(
                found.primal >= optimum * (1.0 - 1e-11),
                "{seed}: {found:?} {optimum}"
            );
            assert!(
                found.dual <= optimum * (1.0 + 1e-13),
                "{seed}: {found:?} {optimum}"
            );
            let (weights, losses) = lbfgs.best();
            let flat: Vec<f64> = (0..problem.classes())
                .flat_map(|k| weights.vector(k).iter().map(|&w| f64::from(w)))
                .collect();
            let value = exact.value(&flat);
            assert!(
                found.primal >= value * (1.0 - 1e-14),
                "{seed}: {found:?} {value}"
            );
            assert!(
                found.primal <= value * (1.0 + 1e-7),
                "{seed}: {found:?} {value}"
            );
            if let Some(losses) = losses {
                let mut again = LossSum::new(&problem);
                again.add(&problem, &rows, &weights, Simd::best()).unwrap();
                assert_eq!((again.rows, again.correct), (losses.rows, losses.correct));
                assert!((again.primal(&problem, &weights) / value - 1.0).abs() < 1e-12);
            }
            last = found.relative_gap();
        });
        all += 1;
        reached += usize::from(last <= 1e-6);
        total += made;
    }
    assert!(total < 25 * all, "{total} passes");
    assert!(reached * 1000 >= all * 995, "{reached} of {all}");
}

/// Overlapping classes.
fn planted_problem(layout: Layout, free_bias: bool) -> (Arc<Problem>, Rows) {
    let rows = planted(layout, 700, 9, 4, 6);
    let problem = Problem::new(Loss::Multinomial, 2.0, 9, 4).unwrap();
    let problem = if free_bias {
        problem.with_free_bias()
    } else {
        problem.with_bias(1.0).unwrap()
    };
    (Arc::new(problem), rows)
}

const LAYOUTS: [Layout; 2] = [Layout::Dense { width: 9 }, Layout::Sparse];

/// Passes cut short now and then, saved and restored between passes: the same bits.
#[test]
fn an_interrupted_run_resumes_bit_for_bit() {
    for (layout, free_bias) in LAYOUTS.into_iter().zip([true, false]) {
        let (problem, rows) = planted_problem(layout, free_bias);
        let rows = table(rows);
        let new = || Lbfgs::new(Arc::clone(&problem), 700, 1e-9, Simd::best());
        let (mut whole, mut halted) = (new(), new());
        for pass in 0..60 {
            whole.begin_pass();
            assert!(whole.add(&rows, &NEVER).unwrap());
            let expected = whole.end_pass(&mut alone::<LinearError>).unwrap();
            if pass % 3 == 0 {
                halted.begin_pass();
                assert!(!halted.add(&rows, &AtomicBool::new(true)).unwrap());
            }
            let mut restored = new();
            restored.restore(&halted.save()).unwrap();
            halted = restored;
            halted.begin_pass();
            assert!(halted.add(&rows, &NEVER).unwrap());
            let found = halted.end_pass(&mut alone::<LinearError>).unwrap();
            assert_eq!(found, expected, "pass {pass}");
            if expected.done {
                assert!(found.certificate.relative_gap() <= 1e-9);
                break;
            }
        }
        assert_eq!(whole.best().0, halted.best().0);
        let other = Problem::new(Loss::Multinomial, 2.0, 70, 4).unwrap();
        let mut other = Lbfgs::new(Arc::new(other), 700, 1e-9, Simd::best());
        assert!(other.restore(&whole.save()).is_err());
        // A run that met its target continues to a smaller one.
        let mut first = Lbfgs::new(Arc::clone(&problem), 700, 1e-2, Simd::best());
        passes(&mut first, &rows, 300, |_, _| ());
        let mut second = new();
        second.restore(&first.save()).unwrap();
        let mut gap = 1.0;
        passes(&mut second, &rows, 300, |_, found| {
            gap = found.relative_gap()
        });
        assert!(gap <= 1e-9, "{gap}");
    }
}

#[test]
fn ranks_take_the_same_steps_over_the_rows_of_all() {
    for (layout, free_bias) in LAYOUTS.into_iter().zip([false, true]) {
        let (problem, rows) = planted_problem(layout, free_bias);
        let mut alone = Lbfgs::new(Arc::clone(&problem), 700, 1e-7, Simd::best());
        let mut expected = None;
        let count = passes(&mut alone, &table(rows.clone()), 300, |_, found| {
            expected = Some(found);
        });
        let expected = expected.unwrap();
        for ranks in [2, 3] {
            let new = || Lbfgs::new(Arc::clone(&problem), 700, 1e-7, Simd::best());
            let found = over_ranks(&rows, ranks, new);
            assert!(found.iter().all(|other| *other == found[0]), "ranks differ");
            let difference = (found[0].0.primal - expected.primal).abs() / expected.primal;
            assert!(difference < 1e-7 && found[0].2.abs_diff(count) <= 2);
        }
    }
}

/// The plain loops, and rows of more features than a matrix is made for.
#[test]
fn loops_and_metrics_of_all_kinds_reach_one_optimum() {
    for wide in [false, true] {
        let features = if wide { 1100 } else { 9 };
        let mut optimum = None;
        for layout in [Layout::Dense { width: features }, Layout::Sparse] {
            for simd in [Simd::PLAIN, Simd::best()] {
                let planted = planted(Layout::Sparse, 150, 9, 3, 6);
                let mut rows = Rows::new(layout);
                for i in 0..planted.len() {
                    let mut row = vec![0.0; features];
                    for (j, x) in dense(planted.row(i), 9).into_iter().enumerate() {
                        row[j * (features / 9)] = x as f32;
                    }
                    push(&mut rows, planted.label(i), &row);
                }
                let problem = Problem::new(Loss::Multinomial, 1.0, features, 3).unwrap();
                let problem = Arc::new(problem.with_free_bias());
                let mut lbfgs = Lbfgs::new(problem, 150, 1e-8, simd);
                let mut last = None;
                passes(&mut lbfgs, &table(rows), 300, |_, found| last = Some(found));
                let last = last.unwrap();
                assert!(last.relative_gap() <= 1e-8, "{last:?}");
                let expected = *optimum.get_or_insert(last.primal);
                assert!((last.primal / expected - 1.0).abs() < 1e-7, "{last:?}");
            }
        }
    }
}

#[test]
fn two_classes_are_logistic_regression() {
    let rows = table(planted(Layout::Dense { width: 9 }, 300, 9, 2, 4));
    let problem = |loss| Arc::new(Problem::new(loss, 0.5, 9, 2).unwrap().with_free_bias());
    assert!(!problem(Loss::Multinomial).is_coupled());
    let solve = |loss| {
        let mut newton = Newton::new(problem(loss), 300, 1e-9, Simd::best());
        loop {
            newton.begin_pass();
            newton.add(&rows, &NEVER).unwrap();
            let found = newton.end_pass(&mut alone::<LinearError>).unwrap();
            if found.done {
                return (found.certificate, newton.best().0);
            }
        }
    };
    assert_eq!(solve(Loss::Multinomial), solve(Loss::Logistic));
    let shares = |loss, values: &[f64]| {
        let mut shares = Vec::new();
        probabilities(loss, values, &mut shares).unwrap();
        shares
    };
    assert_eq!(
        shares(Loss::Multinomial, &[0.3]),
        shares(Loss::Logistic, &[0.3])
    );
    let found = shares(Loss::Multinomial, &[1.0, -800.0, 2.0]);
    let expected = 1.0 / (1.0 + 1.0_f64.exp());
    assert!((found[0] - expected).abs() < 1e-15 && found[1] < 1e-300);
    assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-15);
}

#[test]
fn what_the_loss_of_all_classes_cannot_have_is_refused() {
    let rows = planted(Layout::Dense { width: 9 }, 60, 9, 3, 4);
    let problem = Problem::new(Loss::Multinomial, 1.0, 9, 3).unwrap();
    let mut weights = Weights::zeros(&problem);
    let mut duals = Duals::zeros(&problem, 60);
    let mut scratch = Scratch::new(Simd::best());
    let inner = InnerPasses::Fixed(1);
    let rows = table(rows);
    let refused = solve_block(
        &problem,
        &rows,
        &mut weights,
        &mut duals,
        inner,
        1,
        &mut scratch,
    );
    assert!(matches!(refused, Err(LinearError::Coupled { .. })));
    let refused = gap_of_rows(&problem, &rows, &weights, &duals, Simd::best());
    assert!(matches!(refused, Err(LinearError::Coupled { .. })));
    assert!(!Newton::fits(&problem, u64::MAX));
    // A class without rows has no least bias.
    let four = Problem::new(Loss::Multinomial, 1.0, 9, 4).unwrap();
    for problem in [four.clone().with_bias(1.0).unwrap(), four.with_free_bias()] {
        let is_free = problem.bias_is_free();
        let mut lbfgs = Lbfgs::new(Arc::new(problem), 60, 1e-3, Simd::best());
        lbfgs.begin_pass();
        lbfgs.add(&rows, &NEVER).unwrap();
        let found = lbfgs.end_pass(&mut alone::<LinearError>);
        assert_eq!(
            matches!(found, Err(LinearError::AbsentClass { class: 3 })),
            is_free
        );
    }
}
