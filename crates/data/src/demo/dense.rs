//! Dense generators: few features with little signal (`higgs`), many normalised ones (`epsilon`).

use pelton_format::Rows;

use super::draws::Draws;

pub(super) const HIGGS_FEATURES: usize = 28;
pub(super) const EPSILON_FEATURES: usize = 2000;

/// Numbers that distinguish the generators' keys.
const HIGGS: u32 = 0;
const EPSILON: u32 = 1;
/// Row index reserved for drawing a set's separator, beyond any row.
const SEPARATOR: u64 = u64::MAX;

/// 28 features like those of collision events: 21 measured ones, 8 of them skewed and positive before standardising,
/// and 7 combinations of measured ones, so features are correlated. The label is the sign of a linear score plus normal
/// noise about twice as large.
pub(super) struct Higgs {
    seed: u64,
    separator: [f64; HIGGS_FEATURES],
}

const MEASURED: usize = 21;
/// Every feature below this is exp(z/2), standardised.
const SKEWED: usize = 8;
/// Noise over score, in standard deviations. A score that correlates with (score + noise) by ρ
/// predicts its sign with accuracy 1 − acos(ρ)/π: 0.652 for ρ = 1/√(1 + 1.94²).
const HIGGS_NOISE: f64 = 1.94;
/// Shifts the threshold so that 53 % of labels are positive, as in HIGGS.
const HIGGS_OFFSET: f64 = 0.0753;

impl Higgs {
    pub(super) fn new(seed: u64) -> Higgs {
        let mut draws = Draws::new(seed, SEPARATOR, HIGGS);
        let mut separator: [f64; HIGGS_FEATURES] = std::array::from_fn(|_| draws.normal());
        let spread = separator.iter().map(|x| x * x).sum::<f64>().sqrt();
        separator.iter_mut().for_each(|x| *x /= spread);
        Higgs { seed, separator }
    }

    pub(super) fn append(&self, row: u64, rows: &mut Rows) {
        let mut draws = Draws::new(self.seed, row, HIGGS);
        let mut z = [0.0; HIGGS_FEATURES];
        z.iter_mut().for_each(|z| *z = draws.normal());
        let mut score = 0.0;
        let mut features = [0f32; HIGGS_FEATURES];
        for (j, feature) in features.iter_mut().enumerate() {
            let own = if j < MEASURED {
                z[j]
            } else {
                // Half the variance from three measured features, half its own.
                let from = 3 * (j - MEASURED);
                (z[from] + z[from + 1] + z[from + 2]) * (1.0f64 / 6.0).sqrt()
                    + z[j] * std::f64::consts::FRAC_1_SQRT_2
            };
            let value = if (SKEWED..MEASURED).contains(&j) {
                own
            } else {
                skewed(own)
            };
            score += value * self.separator[j];
            *feature = value as f32;
        }
        let noise = HIGGS_NOISE * draws.normal();
        let offset = HIGGS_OFFSET * (1.0 + HIGGS_NOISE * HIGGS_NOISE).sqrt();
        rows.push_dense(u32::from(score + noise + offset > 0.0), &features);
    }
}

/// exp(z/2) with mean 0 and variance 1: skewness 1.75, as momenta and masses have.
#[inline]
fn skewed(z: f64) -> f64 {
    // exp(z/2) has mean exp(1/8) and variance exp(1/2) − exp(1/4).
    const MEAN: f64 = 1.133_148_453_066_826_3;
    const DEVIATION: f64 = 0.603_901_072_417_190_9;
    (libm::exp(0.5 * z) - MEAN) * (1.0 / DEVIATION)
}

/// 2000 normal features of decreasing size, each row scaled to norm 1. The label is the sign of a linear score plus
/// noise.
pub(super) struct Epsilon {
    seed: u64,
    scale: Vec<f64>,
    separator: Vec<f64>,
    row: Vec<f64>,
    scaled: Vec<f32>,
}

const EPSILON_NOISE: f64 = 0.16;

impl Epsilon {
    pub(super) fn new(seed: u64) -> Epsilon {
        let mut draws = Draws::new(seed, SEPARATOR, EPSILON);
        // With sizes 1/√(1 + j/50) the variance is in a few hundred directions, so a tenth of the published
        // rows is enough to learn the separator.
        let scale: Vec<f64> = (0..EPSILON_FEATURES)
            .map(|j| 1.0 / (1.0 + j as f64 / 50.0).sqrt())
            .collect();
        let mut separator: Vec<f64> = scale.iter().map(|_| draws.normal()).collect();
        let variance: f64 = scale
            .iter()
            .zip(&separator)
            .map(|(scale, weight)| (scale * weight) * (scale * weight))
            .sum();
        separator.iter_mut().for_each(|x| *x /= variance.sqrt());
        Epsilon {
            seed,
            scale,
            separator,
            row: vec![0.0; EPSILON_FEATURES],
            scaled: vec![0.0; EPSILON_FEATURES],
        }
    }

    pub(super) fn append(&mut self, row: u64, rows: &mut Rows) {
        let mut draws = Draws::new(self.seed, row, EPSILON);
        for (value, scale) in self.row.iter_mut().zip(&self.scale) {
            *value = scale * draws.normal();
        }
        let mut score = 0.0;
        let mut squares = 0.0;
        for (value, weight) in self.row.iter().zip(&self.separator) {
            score += value * weight;
            squares += value * value;
        }
        let norm = squares.sqrt();
        for (scaled, value) in self.scaled.iter_mut().zip(&self.row) {
            *scaled = (value / norm) as f32;
        }
        let noise = EPSILON_NOISE * draws.normal();
        rows.push_dense(u32::from(score + noise > 0.0), &self.scaled);
    }
}
