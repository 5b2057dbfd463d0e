//! A pass over the caller's rows, on random problems against sums in f64 and difference quotients.

use pelton_kernels::Precision;
use pelton_key::KeyedRng;

use super::super::*;
use super::numbers;

struct Problem {
    d: usize,
    weights: Vec<f32>,
    features: Vec<f32>,
    labels: Vec<u64>,
    /// How many labels each example has.
    own: Vec<usize>,
    /// By label.
    factors: Vec<f32>,
    rows: Vec<u32>,
    counts: Vec<f32>,
    logits: Logits,
}

impl Problem {
    fn random(seed: u64) -> Problem {
        let mut rng = KeyedRng::new(seed);
        let mut upto = |n: u64| (rng.next_f64() * n as f64) as u64;
        let (classes, d, batch) = (2 + upto(60), 4 + upto(20) as usize, 1 + upto(40) as usize);
        // One label each, or none to four, which then stand for themselves.
        let several = seed.is_multiple_of(2);
        let mut lists: Vec<Vec<u64>> = (0..batch)
            .map(|_| {
                let many = if several { upto(5) } else { 1 };
                (0..many).map(|_| upto(classes)).collect()
            })
            .collect();
        for list in &mut lists {
            list.sort_unstable();
            list.dedup();
        }
        let own: Vec<usize> = lists.iter().map(Vec::len).collect();
        let labels = lists.concat();
        let rows = (0..classes).filter(|row| labels.contains(row) || upto(3) > 0);
        let rows: Vec<u32> = rows.map(|row| row as u32).collect();
        let counts = rows.iter().map(|&row| {
            let is_own = several && labels.contains(&u64::from(row));
            if is_own { 1.0 } else { 1.0 + upto(4) as f32 }
        });
        let counts = counts.collect();
        let logits = [
            "product",
            "cosine:16",
            "cosface:8:0.3",
            "arcface:8:0.4",
            "combined:8:1.1:0.2:0.1",
        ];
        let weights = numbers(classes as usize * d, seed + 1);
        Problem {
            d,
            features: numbers(batch * d, seed + 2),
            weights,
            factors: (numbers(labels.len(), seed + 3).iter().map(|x| x.abs())).collect(),
            labels,
            own,
            rows,
            counts,
            logits: logits[upto(5) as usize].parse().unwrap(),
        }
    }

    fn labels(&self) -> Labels<'_> {
        Labels {
            classes: &self.labels,
            counts: Some(&self.own),
        }
    }

    fn found(&self, precision: Precision) -> (f64, PassGradients) {
        let pass = Pass {
            weights: &self.weights,
            d: self.d,
            logits: self.logits,
            precision,
        };
        let mut gradients = PassGradients::default();
        let active = Active::Rows(&self.rows, &self.counts);
        let given = (&self.features, self.labels(), &self.factors);
        let loss = pass.losses(given.0, given.1, given.2, active, Some(&mut gradients));
        let alone = pass.losses(given.0, given.1, given.2, active, None);
        let loss = loss.unwrap();
        assert!((loss - alone.unwrap()).abs() <= 1e-6 * (1.0 + loss.abs()));
        (loss, gradients)
    }

    /// The definition, for features and weights of the active rows.
    fn expected(&self, features: &[f64], weights: &[f64]) -> f64 {
        let d = self.d;
        let length = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-12);
        let cosine = !matches!(self.logits, Logits::Product);
        let scale = f64::from(self.logits.scale());
        let rows = features.chunks_exact(d).zip(&self.own);
        let rows = rows.flat_map(|(x, &own)| std::iter::repeat_n(x, own));
        let each = rows.zip(&self.labels).zip(&self.factors);
        each.map(|((x, &label), &factor)| {
            let products = weights.chunks_exact(d).map(|w| {
                let product: f64 = x.iter().zip(w).map(|(a, b)| a * b).sum();
                if cosine {
                    product / length(x) / length(w)
                } else {
                    product
                }
            });
            let own = self
                .rows
                .iter()
                .position(|&row| u64::from(row) == label)
                .unwrap();
            let (mut sum, mut right) = (0.0, 0.0);
            for ((place, z), &count) in products.enumerate().zip(&self.counts) {
                if place == own {
                    let [m1, m2, m3] = match self.logits {
                        Logits::Product => [1.0, 0.0, 0.0],
                        Logits::Cosine { margin, .. } => {
                            [margin.factor, margin.angle, margin.cosine].map(f64::from)
                        }
                    };
                    let angle = m1 * z.clamp(-1.0, 1.0).acos() + m2;
                    let turned = if angle < std::f64::consts::PI {
                        angle.cos() - m3
                    } else {
                        let turn = ((std::f64::consts::PI - m2) / m1).min(std::f64::consts::PI);
                        z - (std::f64::consts::PI - turn) * turn.sin() - m3
                    };
                    right = scale * if cosine { turned } else { z };
                    sum += right.exp();
                } else {
                    sum += f64::from(count) * (scale * z).exp();
                }
            }
            f64::from(factor) * (sum.ln() - right)
        })
        .sum()
    }
}

#[test]
fn losses_and_gradients_are_those_of_the_definition() {
    for seed in 0..300 {
        let problem = Problem::random(1000 * seed);
        let (loss, gradients) = problem.found(Precision::F32);
        let d = problem.d;
        let features: Vec<f64> = problem.features.iter().map(|&x| f64::from(x)).collect();
        let rows = problem.rows.iter().map(|&row| row as usize * d);
        let weights = rows.flat_map(|at| &problem.weights[at..at + d]);
        let weights: Vec<f64> = weights.map(|&x| f64::from(x)).collect();
        let expected = problem.expected(&features, &weights);
        assert!(
            (loss - expected).abs() <= 2e-5 * (1.0 + expected.abs()),
            "{seed}: {loss} {expected}"
        );
        assert_eq!(gradients.features.len(), features.len());
        assert_eq!(gradients.rows.len(), weights.len());
        // Along a random direction of each.
        let along = |from: &[f64], direction: &[f32], h: f64| -> Vec<f64> {
            from.iter()
                .zip(direction)
                .map(|(x, u)| x + h * f64::from(*u))
                .collect()
        };
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter()
                .zip(b)
                .map(|(x, y)| f64::from(*x) * f64::from(*y))
                .sum()
        };
        let h = 1e-6;
        let direction = numbers(features.len(), seed + 9);
        let slope = [h, -h].map(|h| problem.expected(&along(&features, &direction, h), &weights));
        let slope = (slope[0] - slope[1]) / (2.0 * h);
        let length = dot(&gradients.features, &gradients.features).sqrt();
        let error = (dot(&gradients.features, &direction) - slope).abs();
        assert!(
            error <= 1e-3 * (0.01 + length),
            "{seed}: {error} of {length}"
        );
        let direction = numbers(weights.len(), seed + 10);
        let slope = [h, -h].map(|h| problem.expected(&features, &along(&weights, &direction, h)));
        let slope = (slope[0] - slope[1]) / (2.0 * h);
        let length = dot(&gradients.rows, &gradients.rows).sqrt();
        let error = (dot(&gradients.rows, &direction) - slope).abs();
        assert!(
            error <= 1e-3 * (0.01 + length),
            "{seed}: {error} of {length}"
        );
        // Rounded operands are near.
        let (half, _) = problem.found(Precision::Bf16);
        assert!(
            (half - loss).abs() <= 0.05 * (1.0 + loss.abs()),
            "{seed}: {half} {loss}"
        );
    }
}

#[test]
fn what_is_wrong_is_an_error() {
    let mut problem = Problem::random(7);
    let losses = |problem: &Problem| {
        let pass = Pass {
            weights: &problem.weights,
            d: problem.d,
            logits: problem.logits,
            precision: Precision::F32,
        };
        let active = Active::Rows(&problem.rows, &problem.counts);
        pass.losses(
            &problem.features,
            problem.labels(),
            &problem.factors,
            active,
            None,
        )
    };
    assert!(losses(&problem).is_ok());
    let before = std::mem::replace(&mut problem.labels[0], u64::MAX);
    assert!(matches!(losses(&problem), Err(HeadError::Label { .. })));
    problem.labels[0] = before;
    let row = problem
        .rows
        .iter()
        .position(|&row| u64::from(row) == before)
        .unwrap();
    problem.rows.remove(row);
    problem.counts.remove(row);
    assert!(matches!(losses(&problem), Err(HeadError::Inactive { .. })));
    problem.features[0] = f32::NAN;
    assert!(losses(&problem).is_err());
    let mut problem = Problem::random(8);
    let example = problem.own.iter().position(|&own| own > 1).unwrap();
    let first: usize = problem.own[..example].iter().sum();
    problem.labels[first + 1] = problem.labels[first];
    let error = losses(&problem).unwrap_err();
    assert!(matches!(error, HeadError::Twice { example: of, .. } if of == example));
}
