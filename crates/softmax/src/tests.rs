//! Against sums over all classes in f64, with difference quotients as gradients.

use pelton_comm::{Comm, run_ranks, share};
use pelton_kernels::Precision;
use pelton_key::{KeyedRng, mix};

use super::*;

mod estimates;
mod heads;
mod near;
mod pass;
mod rows;
mod several;

const D: usize = 7;

const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::Bf16];

const LARS: Rule = Rule::Lars {
    momentum: 0.9,
    trust: 0.1,
};

/// Numbers between −1 and 1 that look random.
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut rng = KeyedRng::new(seed);
    (0..n).map(|_| 2.0 * rng.next_f64() as f32 - 1.0).collect()
}

/// Inputs of a head.
struct Case {
    logits: Logits,
    precision: Precision,
    classes: usize,
    features: Vec<f32>,
    weights: Vec<f32>,
    labels: Vec<u64>,
    active: Option<Vec<u32>>,
    /// How many classes an active class outside the batch stands for.
    count: f32,
}

impl Case {
    fn new(logits: Logits, batch: usize, classes: usize, seed: u64) -> Case {
        let label = |i: usize| ((i as u64 + seed) * 2_654_435_761) % classes as u64;
        Case {
            logits,
            precision: Precision::F32,
            classes,
            features: numbers(batch * D, seed + 1),
            weights: numbers(classes * D, seed + 2),
            labels: (0..batch).map(label).collect(),
            active: None,
            count: 1.0,
        }
    }

    fn of(mut self, precision: Precision) -> Case {
        self.precision = precision;
        self
    }

    fn count_of(&self, class: u64) -> f32 {
        if self.labels.contains(&class) {
            1.0
        } else {
            self.count
        }
    }

    /// Every third class, each standing for `count`, and those of the batch.
    fn some(mut self, count: f32) -> Case {
        self.count = count;
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
                        let z = if is_right {
                            with_margin(z, margin).0
                        } else {
                            z
                        };
                        f64::from(scale) * z
                    }
                }
            };
            let all: Vec<u32> = match &self.active {
                Some(active) => active.clone(),
                None => (0..self.classes as u32).collect(),
            };
            let count = |class: u32| f64::from(self.count_of(u64::from(class)));
            let sum: f64 = all
                .into_iter()
                .map(|class| count(class) * logit(class).exp())
                .sum();
            sum.ln() - logit(label as u32)
        })
        .sum()
    }

    /// Features near the vectors of their classes, with small losses.
    fn sure(mut self) -> Case {
        let rows = self.features.chunks_exact_mut(D).zip(&self.labels);
        for (x, &label) in rows {
            let w = &self.weights[label as usize * D..][..D];
            x.iter_mut().zip(w).for_each(|(x, w)| *x = w + 0.2 * *x);
        }
        self
    }

    /// Loss, and half its gradient by features and by weights, of all classes, from derivatives in f64.
    fn exact(&self) -> (f64, Vec<f64>, Vec<f64>) {
        let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
        let (features, weights) = (wide(&self.features), wide(&self.weights));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mut found = (0.0, vec![0.0; features.len()], vec![0.0; weights.len()]);
        for (i, &label) in self.labels.iter().enumerate() {
            let x = &features[i * D..][..D];
            let rows: Vec<&[f64]> = weights.chunks_exact(D).collect();
            let Logits::Cosine { scale, margin } = self.logits else {
                panic!("cosines");
            };
            let scale = f64::from(scale);
            let cosines: Vec<f64> = rows
                .iter()
                .map(|w| dot(x, w) / (dot(x, x) * dot(w, w)).sqrt())
                .collect();
            let own = cosines[label as usize];
            let (with_margin, slope) = with_margin(own, margin);
            // Σ e^(z − z_y) over the other classes; a case stays within the range of f64.
            let relative = |class: usize| (scale * (cosines[class] - with_margin)).exp();
            let others: f64 = (0..rows.len())
                .filter(|&class| class != label as usize)
                .map(relative)
                .sum();
            found.0 += if others.is_finite() {
                others.ln_1p()
            } else {
                let most = cosines.iter().copied().fold(f64::MIN, f64::max);
                let sum: f64 = cosines.iter().map(|z| (scale * (z - most)).exp()).sum();
                scale * (most - with_margin) + sum.ln()
            };
            let most = cosines.iter().copied().fold(with_margin, f64::max);
            let power = |z: f64| (scale * (z - most)).exp();
            let sum: f64 = power(with_margin)
                + (0..rows.len())
                    .filter(|&class| class != label as usize)
                    .map(|class| power(cosines[class]))
                    .sum::<f64>();
            for (class, w) in rows.iter().enumerate() {
                let by_cosine = if class == label as usize {
                    let wrong: f64 = (0..rows.len())
                        .filter(|&other| other != class)
                        .map(|other| power(cosines[other]) / sum)
                        .sum();
                    -0.5 * scale * wrong * slope
                } else {
                    0.5 * scale * power(cosines[class]) / sum
                };
                let (long, wide) = (dot(x, x).sqrt(), dot(w, w).sqrt());
                for j in 0..D {
                    let (x, w) = (x[j] / long, w[j] / wide);
                    found.1[i * D + j] += by_cosine * (w - cosines[class] * x) / long;
                    found.2[class * D + j] += by_cosine * (x - cosines[class] * w) / wide;
                }
            }
        }
        found
    }

    /// The results of rank `comm.rank()` of several: sums, and the features' gradient and the weights of all ranks.
    fn step(&self, comm: &Comm, scratch: usize, update: Update) -> (Sums, Vec<f32>, Vec<f32>) {
        let here = share(self.classes, comm.rank(), comm.size());
        let weights = self.weights[here.start * D..here.end * D].to_vec();
        let rows = ClassRows::new(here.start as u64, D, weights);
        let mut head = Head::new(
            rows,
            self.logits,
            self.precision,
            self.classes as u64,
            scratch,
        );
        let active: Option<Vec<u32>> = self.active.as_ref().map(|active| {
            let mine = active.iter().filter(|&&c| here.contains(&(c as usize)));
            mine.map(|c| c - here.start as u32).collect()
        });
        let rows = active.iter().flatten();
        let counts: Vec<f32> = rows
            .map(|&row| self.count_of(here.start as u64 + u64::from(row)))
            .collect();
        let active = match &active {
            Some(rows) => Active::Rows(rows, &counts),
            None => Active::All,
        };
        let mut scored = head
            .score(&self.features, (&self.labels).into(), active)
            .unwrap();
        let sums = head.reduce(&mut scored, 0.5, None, comm).unwrap();
        let mut gradient = scored.gradient().to_vec();
        head.update(std::slice::from_ref(&scored), &update, comm)
            .unwrap();
        comm.all_reduce(&mut gradient, pelton_comm::Reduction::Sum)
            .unwrap();
        let weights = comm.all_gather_ragged(head.rows().weights()).unwrap();
        (sums, gradient, weights.concat())
    }
}

/// cos(m₁·θ + m₂) − m₃ by the definition, and its slope.
fn with_margin(z: f64, margin: Margin) -> (f64, f64) {
    let [m1, m2, m3] = [margin.factor, margin.angle, margin.cosine].map(f64::from);
    let (angle, turn) = (z.acos(), (std::f64::consts::PI - m2) / m1);
    if angle < turn {
        let angle_with = m1 * angle + m2;
        let slope = m1 * angle_with.sin() / angle.sin();
        (angle_with.cos() - m3, slope)
    } else {
        let line = (std::f64::consts::PI - turn) * turn.sin();
        (z - line - m3, 1.0)
    }
}

/// A combined margin with all parts.
const COMBINED: Margin = Margin {
    factor: 1.2,
    angle: 0.3,
    cosine: 0.15,
};

const STEEP: Update = Update {
    rule: Rule::Sgd {
        momentum: 0.0,
        nesterov: false,
    },
    rate: 1.0,
    weight_decay: 0.0,
    scale: 1.0,
};

fn cosine(margin: Margin) -> Logits {
    Logits::Cosine { scale: 8.0, margin }
}

fn all_logits() -> [Logits; 5] {
    [
        Logits::Product,
        cosine(Margin::NONE),
        cosine(Margin::cosine(0.2)),
        cosine(Margin::angle(0.5)),
        cosine(COMBINED),
    ]
}

/// The slope of `f` at `x` along coordinate `i`.
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
        for count in [0.0, 1.0, 7.5] {
            let case = Case::new(logits, 5, 61, 3);
            let case = if count == 0.0 { case } else { case.some(count) };
            let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|&x| f64::from(x)).collect() };
            let (x, w) = (wide(&case.features), wide(&case.weights));
            let (sums, gradient, stepped) = case.step(&Comm::alone(), 1 << 20, STEEP);
            let loss = case.loss(&x, &w);
            assert!(
                (sums.loss - loss).abs() < 1e-4 * loss,
                "{logits:?}: {} {loss}",
                sums.loss
            );
            for (i, &found) in gradient.iter().enumerate() {
                let exact = 0.5 * slope(&case.features, i, |x| case.loss(x, &w));
                let found = f64::from(found);
                assert!(
                    (found - exact).abs() < 2e-5,
                    "{logits:?} x{i}: {found} {exact}"
                );
            }
            for (i, (&before, &after)) in case.weights.iter().zip(&stepped).enumerate() {
                let exact = 0.5 * slope(&case.weights, i, |w| case.loss(&x, w));
                let found = f64::from(before - after);
                assert!(
                    (found - exact).abs() < 2e-5,
                    "{logits:?} w{i}: {found} {exact}"
                );
            }
        }
    }
}

/// At scales of logits with e^(scale·(cos θ − 1)) = 0 in f32, and at others, loss and gradients are those of f64, for
/// examples far from their class and near it.
#[test]
fn any_scale_gives_losses_and_gradients_of_f64() {
    for scale in [1.0, 16.0, 34.0, 60.0, 64.0, 88.0, 128.0, 300.0, 1000.0f32] {
        for margin in [
            Margin::NONE,
            Margin::cosine(0.2),
            Margin::angle(0.5),
            COMBINED,
        ] {
            // Of few classes no cosine is near 1.
            for (is_sure, classes) in [(false, 3), (false, 1500), (true, 1500)] {
                let case = Case::new(Logits::Cosine { scale, margin }, 6, classes, 11);
                let case = if is_sure { case.sure() } else { case };
                let (loss, by_features, by_weights) = case.exact();
                for ranks in 1..=4 {
                    let what = format!(
                        "scale {scale}, {margin:?}, {classes} classes, sure {is_sure}, {ranks} ranks"
                    );
                    let found = run_ranks(ranks, |comm: Comm| {
                        Ok::<_, HeadError>(case.step(&comm, 0, STEEP))
                    });
                    let (sums, gradient, stepped) = found.unwrap().remove(0);
                    // A cosine is rounded, and the scale makes that larger; so do margins in angles.
                    let part = 1e-6 * (8.0 + f64::from(scale));
                    assert!(
                        (sums.loss - loss).abs() <= part * loss.min(6.0) + 1e-6 * loss,
                        "{what}: {} {loss}",
                        sums.loss
                    );
                    let largest = |x: &[f64]| x.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
                    let near = |found: &[f64], exact: &[f64], roundings: f64| {
                        let most = largest(exact);
                        for (found, exact) in found.iter().zip(exact) {
                            assert!(
                                (found - exact).abs() <= part * most + roundings,
                                "{what}: {found} {exact}, at most {most}"
                            );
                        }
                    };
                    let gradient: Vec<f64> = gradient.iter().map(|&g| g.into()).collect();
                    near(&gradient, &by_features, 1e-30);
                    let step: Vec<f64> = case
                        .weights
                        .iter()
                        .zip(&stepped)
                        .map(|(w, s)| f64::from(*w) - f64::from(*s))
                        .collect();
                    // A weight of about 1 is rounded when it takes its step.
                    near(&step, &by_weights, 1.2e-7 * largest(&by_weights).max(1.0));
                }
            }
        }
    }
}

/// Loss and gradients with products in bf16 equal those in f32 up to the rounding of operands to 8 bits.
#[test]
fn bf16_is_near_f32() {
    for logits in all_logits() {
        let case = Case::new(logits, 40, 3001, 9).some(2.0);
        let (sums, by_features, weights) = case.step(&Comm::alone(), 0, STEEP);
        let half = case.of(Precision::Bf16);
        let (half_sums, half_by_features, half_weights) = half.step(&Comm::alone(), 0, STEEP);
        assert!(sums.loss != half_sums.loss);
        assert!((sums.loss - half_sums.loss).abs() < 1e-3 * sums.loss);
        let off = |a: &[f32], b: &[f32], zero: &[f32]| {
            let square = |a: &[f32], b: &[f32]| -> f32 {
                a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum()
            };
            (square(a, b) / square(a, zero)).sqrt()
        };
        let zeros = vec![0.0; by_features.len()];
        let by_features = off(&by_features, &half_by_features, &zeros);
        let by_weights = off(&weights, &half_weights, &half.weights);
        // Two roundings of 2⁻⁹, and those of a logit of 8 times a cosine.
        assert!(by_features < 0.01, "{logits:?}: {by_features}");
        assert!(by_weights < 0.01, "{logits:?}: {by_weights}");
    }
}

/// Numbers that are NaN, or too large for f32, end a step instead of counting as a loss.
#[test]
fn numbers_that_are_none_are_refused() {
    let each = PRECISIONS.map(|precision| all_logits().map(|logits| (precision, logits)));
    for (precision, logits) in each.concat() {
        for (place, value) in [
            (0, f32::NAN),
            (0, f32::INFINITY),
            (0, 1e38),
            (40 * D, f32::NAN),
        ] {
            for of_features in [true, false] {
                let mut case = Case::new(logits, 60, 50, 3);
                case.labels[0] = 0;
                if of_features {
                    case.features[place] = value
                } else {
                    case.weights[place] = value
                }
                // A product with such a large weight is still finite in f32.
                if logits == Logits::Product && value == 1e38 && !of_features {
                    continue;
                }
                let rows = ClassRows::new(0, D, case.weights.clone());
                let head = Head::new(rows, logits, precision, 50, 0);
                let scored = head.score(&case.features, (&case.labels).into(), Active::All);
                let found = scored
                    .and_then(|mut scored| head.reduce(&mut scored, 1.0, None, &Comm::alone()));
                assert!(
                    matches!(found, Err(HeadError::NotFinite { .. })),
                    "{logits:?} {value}: {found:?}"
                );
            }
        }
    }
}

/// Several chunks; kept products or not; ranks that divide the classes unequally.
#[test]
fn chunks_scratch_and_ranks_change_nothing() {
    let update = Update {
        rule: Rule::Sgd {
            momentum: 0.9,
            nesterov: false,
        },
        rate: 0.1,
        weight_decay: 1e-3,
        scale: 1.0,
    };
    let each = PRECISIONS.map(|precision| all_logits().map(|logits| (precision, logits)));
    for (precision, logits) in each.concat() {
        let case = Case::new(logits, 33, 2311, 5).some(4.5).of(precision);
        // In bf16 the gradient sums exponentials that are rounded relative to the largest logits of a rank.
        let tolerance = match precision {
            Precision::F32 => 1e-5,
            Precision::Bf16 => 2e-3,
        };
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
                    a.iter().zip(b).all(|(a, b)| (a - b).abs() < tolerance)
                };
                assert!(near(&gradient, &kept.1), "{logits:?}, {ranks} ranks");
                assert!(near(&weights, &kept.2), "{logits:?}, {ranks} ranks");
            }
        }
    }
}

/// Logits far beyond the range of e^x, a single class, features of zeros: results stay finite.
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
    let head = Head::new(rows, Logits::Product, Precision::F32, 5, 0);
    let refused = |features: &[f32], labels: &[u64], active| {
        head.score(features, labels.into(), active)
            .err()
            .unwrap()
            .to_string()
    };
    let label = refused(&case.features, &[1, 5], Active::All);
    assert!(
        label.contains("example 1 of the batch has label 5"),
        "{label}"
    );
    let inactive = refused(&case.features, &[1, 4], Active::Rows(&[0, 1], &[1.0, 1.0]));
    assert!(inactive.contains("class 4 of example 1"), "{inactive}");
    let mut features = case.features.clone();
    features[D] = f32::NAN;
    let nan = refused(&features, &[1, 4], Active::All);
    assert!(
        nan.contains("the logits of example 1 of the batch are not finite"),
        "{nan}"
    );
}

/// A graph of all ranks' neighbours, as lists by class; the same in every precision.
fn neighbours(weights: &[f32], d: usize, k: usize, ranks: usize) -> Vec<Vec<u32>> {
    let [f32, bf16] = PRECISIONS.map(|precision| neighbours_in(precision, weights, d, k, ranks));
    assert!(f32 == bf16, "{ranks} ranks, k {k}, d {d}");
    f32
}

fn neighbours_in(
    precision: Precision,
    weights: &[f32],
    d: usize,
    k: usize,
    ranks: usize,
) -> Vec<Vec<u32>> {
    let found = run_ranks(ranks, |comm: Comm| {
        let here = share(weights.len() / d, comm.rank(), comm.size());
        let own = weights[here.start * d..here.end * d].to_vec();
        let rows = ClassRows::new(here.start as u64, d, own);
        let found = Neighbours::find(&rows, k, precision, &comm)?;
        Ok::<_, HeadError>((0..here.len()).map(|i| found.of(i).to_vec()).collect())
    });
    let found: Vec<Vec<Vec<u32>>> = found.unwrap();
    found.concat()
}

/// Against all cosines in f64: every neighbour is among the nearest, itself first, for any number of ranks.
#[test]
fn neighbours_are_the_nearest() {
    let (d, count) = (5, 4500);
    let mut weights = numbers(count * d, 4);
    // Two equal classes, and one without a direction.
    weights.copy_within(0..d, 4000 * d);
    weights[7 * d..8 * d].fill(0.0);
    let one = neighbours(&weights, d, 9, 1);
    for ranks in [2, 3] {
        assert_eq!(one, neighbours(&weights, d, 9, ranks), "{ranks} ranks");
    }
    let row = |i: usize| &weights[i * d..][..d];
    let dot = |a: usize, b: usize| -> f64 {
        let pairs = row(a).iter().zip(row(b));
        pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let cosine = |a, b| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(1e-12);
    for class in (0..count).step_by(97).chain([0, 7, 4000]) {
        let found = &one[class];
        assert_eq!((found.len(), found[0]), (9, class as u32));
        let mut distinct = found.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 9);
        let others = (0..count).filter(|&other| other != class);
        let mut exact: Vec<f64> = others.map(|other| cosine(class, other)).collect();
        exact.sort_unstable_by(|a, b| b.total_cmp(a));
        for (place, &other) in found[1..].iter().enumerate() {
            let found = cosine(class, other as usize);
            assert!((found - exact[place]).abs() < 1e-6, "{class}: {found}");
        }
    }
    assert_eq!(neighbours(&weights[..4 * d], d, 9, 3)[2].len(), 4);
}

/// Rows as of trained classes: spread out, in clusters, equal, and all in nearly one direction, with every product
/// within the error of bf16.
#[test]
fn neighbours_are_the_same_in_every_precision() {
    for (d, count, k, spread) in [
        (64, 3000, 10, 1.0),
        (17, 2500, 40, 1.0),
        (300, 700, 5, 0.5),
        (33, 2200, 10, 0.03),
        (32, 2200, 12, 0.001),
        (8, 300, 400, 0.2),
    ] {
        let mut weights = numbers(count * d, 6);
        let centres = numbers(20 * d, 7);
        for (class, row) in weights.chunks_exact_mut(d).enumerate() {
            // Of the last a few are equal.
            let cluster = if spread == 0.001 { 0 } else { class % 20 };
            let centre = &centres[cluster * d..][..d];
            for (x, centre) in row.iter_mut().zip(centre) {
                *x = *centre + spread * *x;
            }
        }
        weights.copy_within(0..9 * d, (count - 9) * d);
        let one = neighbours(&weights, d, k, 1);
        assert_eq!(one, neighbours(&weights, d, k, 3), "d {d}, k {k}");
    }
}

/// The same classes on any number of ranks, within the budget, the nearest first.
#[test]
fn a_selection_takes_the_nearest_of_the_batch() {
    let (d, count, k) = (6, 1000, 12);
    let weights = numbers(count * d, 8);
    let lists = neighbours(&weights, d, k, 1);
    let labels = [3u64, 500, 999, 3];
    let select = |ranks: usize, all: u64| -> Vec<u64> {
        let budget = |all: u64| Budget {
            near: all,
            all,
            corrected: true,
        };
        let found = run_ranks(ranks, |comm: Comm| {
            let here = share(count, comm.rank(), comm.size());
            let own = weights[here.start * d..here.end * d].to_vec();
            let rows = ClassRows::new(here.start as u64, d, own);
            let neighbours = Neighbours::find(&rows, k, Precision::F32, &comm)?;
            let graph = Graph::divide(&neighbours, &comm)?;
            let mut selection = Selection::default();
            // A second selection does not remember the first.
            let mut draws = Draws::new(3);
            let mut select = |labels: &[u64], all, key| {
                let chosen =
                    graph.select(labels, budget(all), key, &mut draws, &mut selection, &comm)?;
                Ok::<_, HeadError>(chosen.rows.to_vec())
            };
            select(&[1, 2], 300, 5)?;
            let chosen = select(&labels, all, 9)?;
            let chosen = chosen.iter().map(|&row| u64::from(row) + here.start as u64);
            Ok::<_, HeadError>(chosen.collect())
        });
        let found: Vec<Vec<u64>> = found.unwrap();
        found.concat()
    };
    for budget in [0, 3, 20, 36, 400] {
        let one = select(1, budget);
        assert!(one.is_sorted_by(|a, b| a < b));
        for ranks in [2, 3, 4] {
            assert_eq!(one, select(ranks, budget), "{budget}, {ranks} ranks");
        }
        assert!(one.len() as u64 <= budget.max(3), "{budget}: {}", one.len());
        assert!([3, 500, 999].iter().all(|label| one.contains(label)));
        if budget >= 36 {
            let mut near = [3, 500, 999]
                .iter()
                .flat_map(|&label: &usize| &lists[label]);
            assert!(near.all(|&id| one.contains(&u64::from(id))));
        }
    }
    assert_eq!(select(1, 0), [3, 500, 999]);
    // Half of a position is filled with neighbours, not with draws.
    let near: Vec<u32> = [3, 500, 999]
        .iter()
        .flat_map(|&label: &usize| lists[label][..3].to_vec())
        .collect();
    let some = select(1, 8);
    assert_eq!(some.len(), 8);
    assert!(some.iter().all(|&class| near.contains(&(class as u32))));
    // A little below the budget, which is then seldom passed.
    assert!(select(1, 400).len() > 320);
}
