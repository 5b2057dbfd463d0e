//! Against sums over all classes in f64, whose gradients are differences.

use pelton_comm::{Comm, run_ranks, share};

use super::*;

const D: usize = 7;

/// Numbers between −1 and 1 that look random.
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// What a head works on.
struct Case {
    logits: Logits,
    classes: usize,
    features: Vec<f32>,
    weights: Vec<f32>,
    labels: Vec<u64>,
    active: Option<Vec<u32>>,
}

impl Case {
    fn new(logits: Logits, batch: usize, classes: usize, seed: u64) -> Case {
        let label = |i: usize| ((i as u64 + seed) * 2_654_435_761) % classes as u64;
        Case {
            logits,
            classes,
            features: numbers(batch * D, seed + 1),
            weights: numbers(classes * D, seed + 2),
            labels: (0..batch).map(label).collect(),
            active: None,
        }
    }

    /// Every third class, and those of the batch.
    fn some(mut self) -> Case {
        let is_active = |c: &u32| c.is_multiple_of(3) || self.labels.contains(&u64::from(*c));
        self.active = Some((0..self.classes as u32).filter(is_active).collect());
        self
    }

    /// The sum of losses, by the definition.
    fn loss(&self, features: &[f64], weights: &[f64]) -> f64 {
        let rows = features.chunks_exact(D).zip(&self.labels);
        rows.map(|(x, &label)| {
            let logit = |class: u32| {
                let w = &weights[class as usize * D..][..D];
                let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
                let is_right = u64::from(class) == label;
                match self.logits {
                    Logits::Product => dot(x, w),
                    Logits::Cosine { scale, margin } => {
                        let z = dot(x, w) / (dot(x, x) * dot(w, w)).sqrt();
                        let z = match margin {
                            Margin::Cosine(m) if is_right => z - f64::from(m),
                            Margin::Angle(m) if is_right => {
                                let m = f64::from(m);
                                if z.acos() + m < std::f64::consts::PI {
                                    (z.acos() + m).cos()
                                } else {
                                    z - m * m.sin()
                                }
                            }
                            _ => z,
                        };
                        f64::from(scale) * z
                    }
                }
            };
            let all: Vec<u32> = match &self.active {
                Some(active) => active.clone(),
                None => (0..self.classes as u32).collect(),
            };
            let sum: f64 = all.into_iter().map(|class| logit(class).exp()).sum();
            sum.ln() - logit(label as u32)
        })
        .sum()
    }

    /// What rank `comm.rank()` of several makes of it: sums, and the features' gradient and the weights of all ranks.
    fn step(&self, comm: &Comm, scratch: usize, update: Update) -> (Sums, Vec<f32>, Vec<f32>) {
        let here = share(self.classes, comm.rank(), comm.size());
        let weights = self.weights[here.start * D..here.end * D].to_vec();
        let rows = ClassRows::new(here.start as u64, D, weights);
        let mut head = Head::new(rows, self.logits, self.classes as u64, scratch);
        let active: Option<Vec<u32>> = self.active.as_ref().map(|active| {
            let mine = active.iter().filter(|&&c| here.contains(&(c as usize)));
            mine.map(|c| c - here.start as u32).collect()
        });
        let active = match &active {
            Some(rows) => Active::Rows(rows),
            None => Active::All,
        };
        let mut scored = head.score(&self.features, &self.labels, active).unwrap();
        let sums = head.reduce(&mut scored, 0.5, comm).unwrap();
        let mut gradient = scored.gradient().to_vec();
        head.update(&scored, 0.5, update);
        comm.all_reduce(&mut gradient, pelton_comm::Reduction::Sum)
            .unwrap();
        let weights = comm.all_gather_ragged(head.rows().weights()).unwrap();
        (sums, gradient, weights.concat())
    }
}

const STEEP: Update = Update {
    rate: 1.0,
    momentum: 0.0,
    weight_decay: 0.0,
};

fn cosine(margin: Margin) -> Logits {
    Logits::Cosine { scale: 8.0, margin }
}

fn all_logits() -> [Logits; 4] {
    [
        Logits::Product,
        cosine(Margin::None),
        cosine(Margin::Cosine(0.2)),
        cosine(Margin::Angle(0.5)),
    ]
}

/// The slope of `f` at `x` along number `i`.
fn slope(x: &[f32], i: usize, f: impl Fn(&[f64]) -> f64) -> f64 {
    let at = |step: f64| {
        let mut x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        x[i] += step;
        f(&x)
    };
    (at(1e-5) - at(-1e-5)) / 2e-5
}

#[test]
fn losses_and_gradients_are_those_of_the_definition() {
    for logits in all_logits() {
        for is_all in [true, false] {
            let case = Case::new(logits, 5, 61, 3);
            let case = if is_all { case } else { case.some() };
            let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|&x| f64::from(x)).collect() };
            let (x, w) = (wide(&case.features), wide(&case.weights));
            let (sums, gradient, stepped) = case.step(&Comm::alone(), 1 << 20, STEEP);
            let loss = case.loss(&x, &w);
            assert!(
                (sums.loss - loss).abs() < 1e-4 * loss,
                "{logits:?}: {} {loss}",
                sums.loss
            );
            for i in 0..x.len() {
                let exact = 0.5 * slope(&case.features, i, |x| case.loss(x, &w));
                let found = f64::from(gradient[i]);
                assert!(
                    (found - exact).abs() < 2e-5,
                    "{logits:?} x{i}: {found} {exact}"
                );
            }
            for i in 0..w.len() {
                let exact = 0.5 * slope(&case.weights, i, |w| case.loss(&x, w));
                let found = f64::from(case.weights[i] - stepped[i]);
                assert!(
                    (found - exact).abs() < 2e-5,
                    "{logits:?} w{i}: {found} {exact}"
                );
            }
        }
    }
}

/// Several chunks; kept products or not; ranks that divide the classes unequally.
#[test]
fn chunks_scratch_and_ranks_change_nothing() {
    let update = Update {
        rate: 0.1,
        momentum: 0.9,
        weight_decay: 1e-3,
    };
    for logits in all_logits() {
        let case = Case::new(logits, 33, 2311, 5).some();
        let kept = case.step(&Comm::alone(), 1 << 30, update);
        assert_eq!(kept, case.step(&Comm::alone(), 0, update), "{logits:?}");
        for ranks in [2, 3, 4] {
            let found = run_ranks(ranks, |comm: Comm| {
                Ok::<_, HeadError>(case.step(&comm, 0, update))
            });
            for (sums, gradient, weights) in found.unwrap() {
                assert!((sums.loss - kept.0.loss).abs() < 1e-5 * kept.0.loss);
                assert_eq!(sums.correct, kept.0.correct);
                let near = |a: &[f32], b: &[f32]| {
                    assert_eq!(a.len(), b.len());
                    a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5)
                };
                assert!(near(&gradient, &kept.1), "{logits:?}, {ranks} ranks");
                assert!(near(&weights, &kept.2), "{logits:?}, {ranks} ranks");
            }
        }
    }
}

#[test]
fn a_row_that_waits_loses_momentum_and_keeps_its_weights() {
    let update = Update {
        rate: 0.1,
        momentum: 0.5,
        weight_decay: 0.0,
    };
    let rows = ClassRows::new(0, 2, vec![1.0, 0.0, 0.0, 1.0, 0.5, 0.5]);
    let mut head = Head::new(rows, Logits::Product, 3, 0);
    let mut step = |label: u64, active: &[u32]| {
        let mut scored = head
            .score(&[1.0, 2.0], &[label], Active::Rows(active))
            .unwrap();
        head.reduce(&mut scored, 1.0, &Comm::alone()).unwrap();
        head.update(&scored, 1.0, update);
        (head.rows().row(2).to_vec(), head.rows().velocity[4])
    };
    let (before, first) = step(0, &[0, 2]);
    assert!(first > 0.0);
    assert_eq!(step(1, &[0, 1]), (before.clone(), first));
    // Alone with the right class, the gradient of a row is its share times the features.
    let (w, v) = step(0, &[0, 2]);
    assert!((before[0] - w[0] - 0.1 * v).abs() < 1e-6);
    let share = v - 0.25 * first;
    assert!(share > 0.0 && share < 1.0, "{share}");
}

/// Logits far beyond what e^x can hold, one class alone, features of zeros: numbers stay numbers.
#[test]
fn extremes_stay_finite() {
    for logits in all_logits() {
        for (size, classes) in [(1e4, 40), (0.0, 40), (1.0, 1)] {
            let mut case = Case::new(logits, 3, classes, 9);
            for x in &mut case.features {
                *x *= size;
            }
            let (sums, gradient, weights) = case.step(&Comm::alone(), 0, STEEP);
            assert!(
                sums.loss.is_finite() && sums.loss >= 0.0,
                "{logits:?} {size}"
            );
            assert!(gradient.iter().chain(&weights).all(|x| x.is_finite()));
            if classes == 1 {
                assert_eq!((sums.loss, sums.correct), (0.0, 3));
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let case = Case::new(Logits::Product, 2, 5, 1);
    let rows = ClassRows::new(0, D, case.weights.clone());
    let head = Head::new(rows, Logits::Product, 5, 0);
    let refused = |features: &[f32], labels: &[u64], active| {
        head.score(features, labels, active)
            .err()
            .unwrap()
            .to_string()
    };
    let label = refused(&case.features, &[1, 5], Active::All);
    assert!(
        label.contains("example 1 of the batch has label 5"),
        "{label}"
    );
    let inactive = refused(&case.features, &[1, 4], Active::Rows(&[0, 1]));
    assert!(inactive.contains("class 4 of example 1"), "{inactive}");
    let mut features = case.features.clone();
    features[D] = f32::NAN;
    let nan = refused(&features, &[1, 4], Active::All);
    assert!(
        nan.contains("example 1 of the batch are not finite"),
        "{nan}"
    );
}
