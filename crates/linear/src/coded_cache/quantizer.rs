//! Values of a feature as bytes, and the loops over rows of them.
//!
//! A feature is quantized uniformly, x̂ = offset + step · code, code < 256, over the range of the first
//! rows and an eighth more on either side, or, where a few values lie far out, over 32 deviations. For a
//! normal distribution the squared error is 1e-4 of the variance.
//!
//! The loops are plain ones over sixteen lanes, compiled for each processor level, where they become
//! vector code; they add in one order, so every level gives the same result.

use pelton_format::{Row, RowTable};

/// Numbers in a register of the widest processors.
const LANES: usize = 16;
/// Rows from which a quantizer is made: more change its steps by under a hundredth.
const SAMPLE: usize = 4096;
/// The largest code.
const LAST: f64 = 255.0;
/// What is added to the range seen on either side: later rows reach beyond that of the first.
const WIDER: f64 = 0.125;
/// The most deviations that a range spans.
const MOST_DEVIATIONS: f64 = 32.0;

/// How each feature is quantized. Vectors are padded to whole registers with features that are always 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quantizer {
    pub features: usize,
    pub offsets: Vec<f32>,
    pub steps: Vec<f32>,
    inverse_steps: Vec<f32>,
}

/// Length of a padded vector, and bytes of a row's codes.
pub(super) fn padded(features: usize) -> usize {
    features.next_multiple_of(LANES)
}

impl Quantizer {
    /// A quantizer for rows like the first of `block`, which must be dense.
    pub fn from_rows(features: usize, block: &RowTable) -> Quantizer {
        let count = block.len().min(SAMPLE);
        let mut sums = vec![(0.0_f64, 0.0_f64, f32::INFINITY, f32::NEG_INFINITY); features];
        for i in 0..count {
            let Row::Dense(values) = block.row(i) else {
                continue;
            };
            for ((sum, squares, least, most), &value) in sums.iter_mut().zip(values) {
                *sum += f64::from(value);
                *squares += f64::from(value) * f64::from(value);
                *least = least.min(value);
                *most = most.max(value);
            }
        }
        let n = count.max(1) as f64;
        let parts = sums.iter().map(|&(sum, squares, least, most)| {
            let mean = sum / n;
            let deviation = (squares / n - mean * mean).max(0.0).sqrt();
            let (least, most) = (f64::from(least), f64::from(most));
            let range = (1.0 + 2.0 * WIDER) * (most - least);
            let widest = MOST_DEVIATIONS * deviation;
            let (offset, range) = if range <= widest {
                (least - WIDER * (most - least), range)
            } else {
                (mean - 0.5 * widest, widest)
            };
            let step = range / LAST;
            (offset as f32, step as f32)
        });
        let (offsets, steps) = parts.unzip();
        Quantizer::from_parts(features, offsets, steps)
    }

    /// The quantizer of given offsets and steps, one a feature. Those that lead beyond the numbers of
    /// f32 become 0: x̂ may be as far from x as it likes, but not infinite.
    pub fn from_parts(features: usize, mut offsets: Vec<f32>, mut steps: Vec<f32>) -> Quantizer {
        assert_eq!((offsets.len(), steps.len()), (features, features));
        for (offset, step) in offsets.iter_mut().zip(&mut steps) {
            if !offset.is_finite() {
                *offset = 0.0;
            }
            let reach = offset.abs() + step.abs() * LAST as f32;
            if !reach.is_finite() || *step < f32::MIN_POSITIVE {
                *step = 0.0;
            }
        }
        offsets.resize(padded(features), 0.0);
        steps.resize(padded(features), 0.0);
        let inverse = |&step: &f32| if step > 0.0 { 1.0 / step } else { 0.0 };
        Quantizer {
            features,
            inverse_steps: steps.iter().map(inverse).collect(),
            offsets,
            steps,
        }
    }

    /// Length of padded vectors.
    pub fn padded(&self) -> usize {
        self.offsets.len()
    }

    /// Writes the codes of `x` (padded); returns ‖x̂‖² and ‖x − x̂‖².
    #[inline(always)]
    pub fn encode(&self, x: &[f32], codes: &mut [u8]) -> (f32, f32) {
        let mut squares = [0.0_f32; LANES];
        let mut errors = [0.0_f32; LANES];
        let codes = codes.as_chunks_mut::<LANES>().0.iter_mut();
        let x = x.as_chunks::<LANES>().0.iter();
        let offsets = self.offsets.as_chunks::<LANES>().0.iter();
        let steps = self.steps.as_chunks::<LANES>().0.iter();
        let inverses = self.inverse_steps.as_chunks::<LANES>().0.iter();
        let parameters = offsets.zip(steps).zip(inverses);
        for ((codes, x), ((offsets, steps), inverses)) in codes.zip(x).zip(parameters) {
            for lane in 0..LANES {
                let code = (x[lane] - offsets[lane]) * inverses[lane] + 0.5;
                let code = code.max(0.0).min(LAST as f32) as i32;
                codes[lane] = code as u8;
                let value = offsets[lane] + steps[lane] * code as f32;
                squares[lane] += value * value;
                errors[lane] += (x[lane] - value) * (x[lane] - value);
            }
        }
        (squares.iter().sum(), errors.iter().sum())
    }

    /// x̂ of the sixteen features of part `part`.
    #[inline(always)]
    fn decode(&self, part: usize, codes: &[u8; LANES]) -> [f32; LANES] {
        let offsets = &self.offsets.as_chunks::<LANES>().0[part];
        let steps = &self.steps.as_chunks::<LANES>().0[part];
        let mut values = [0.0_f32; LANES];
        for lane in 0..LANES {
            values[lane] = offsets[lane] + steps[lane] * i32::from(codes[lane]) as f32;
        }
        values
    }

    /// w·x̂, w padded.
    #[inline(always)]
    pub fn dot(&self, codes: &[u8], w: &[f32]) -> f32 {
        let mut sums = [[0.0_f32; LANES]; 2];
        let parts = codes.as_chunks::<LANES>().0.iter();
        for (part, (codes, w)) in parts.zip(w.as_chunks::<LANES>().0).enumerate() {
            let values = self.decode(part, codes);
            for lane in 0..LANES {
                sums[part % 2][lane] += w[lane] * values[lane];
            }
        }
        let [even, odd] = sums;
        even.iter().zip(odd).map(|(even, odd)| even + odd).sum()
    }

    /// w += scale·x̂, w padded.
    #[inline(always)]
    pub fn add(&self, codes: &[u8], scale: f32, w: &mut [f32]) {
        let parts = codes.as_chunks::<LANES>().0.iter();
        for (part, (codes, w)) in parts.zip(w.as_chunks_mut::<LANES>().0).enumerate() {
            let values = self.decode(part, codes);
            for lane in 0..LANES {
                w[lane] += scale * values[lane];
            }
        }
    }

    /// w·(x − x̂), both padded.
    #[inline(always)]
    pub fn dot_error(&self, codes: &[u8], x: &[f32], w: &[f32]) -> f32 {
        let mut sums = [0.0_f32; LANES];
        let parts = codes.as_chunks::<LANES>().0.iter();
        let vectors = x
            .as_chunks::<LANES>()
            .0
            .iter()
            .zip(w.as_chunks::<LANES>().0);
        for (part, (codes, (x, w))) in parts.zip(vectors).enumerate() {
            let values = self.decode(part, codes);
            for lane in 0..LANES {
                sums[lane] += w[lane] * (x[lane] - values[lane]);
            }
        }
        sums.iter().sum()
    }

    /// w += scale·(x − x̂), all padded.
    #[inline(always)]
    pub fn add_error(&self, codes: &[u8], x: &[f32], scale: f32, w: &mut [f32]) {
        let parts = codes.as_chunks::<LANES>().0.iter();
        let vectors = x
            .as_chunks::<LANES>()
            .0
            .iter()
            .zip(w.as_chunks_mut::<LANES>().0);
        for (part, (codes, (x, w))) in parts.zip(vectors).enumerate() {
            let values = self.decode(part, codes);
            for lane in 0..LANES {
                w[lane] += scale * (x[lane] - values[lane]);
            }
        }
    }
}
