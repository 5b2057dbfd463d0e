//! Batch normalisation with the operations after it in a net: y = relu(gamma · (x − mean) / std + beta + residual).
//!
//! Images are \[…, channels\]; all dimensions before the channels are called pixels here. Forward: one pass over x for
//! the statistics, one that writes y. Backward: one pass for the sums, one that writes the gradients. Only mean and
//! 1/std are kept from forward to backward; y > 0 gives the mask of a ReLU.
//!
//! Sums of a chunk of pixels run in f32, of differences from a value near the mean; chunks are joined in f64 by the
//! formula of Chan, Golub and LeVeque (1983). So a mean that is large next to the deviation costs no digits.

use rayon::prelude::*;

use crate::simd::{Kernel, Simd, run};

/// Channels that one step of a loop handles.
const LANES: usize = 16;

/// Batch normalisation over the pixels of `channels` channels.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm<'a> {
    /// Factor of each channel.
    pub gamma: &'a [f32],
    /// The parameters of each channel.
    pub beta: &'a [f32],
    /// Added to the variance.
    pub epsilon: f32,
    /// Whether negative results become 0.
    pub relu: bool,
}

/// Mean and variance over all batches so far.
#[derive(Debug)]
pub struct Running<'a> {
    /// Mean of each channel.
    pub mean: &'a mut [f32],
    /// Variance of each channel, divided by n − 1.
    pub variance: &'a mut [f32],
    /// Share of the newest batch.
    pub momentum: f32,
}

/// Results of the forward pass for the backward one.
#[derive(Debug)]
pub struct Saved<'a> {
    /// Mean of each channel in this batch.
    pub mean: &'a mut [f32],
    /// 1 / √(variance + epsilon) of each channel, the variance divided by n.
    pub inverse_deviation: &'a mut [f32],
}

/// The inputs of the backward pass.
#[derive(Clone, Copy, Debug)]
pub struct Backward<'a> {
    /// Input of the forward pass.
    pub x: &'a [f32],
    /// Output of the forward pass; read only with a ReLU.
    pub y: &'a [f32],
    /// Gradient of the output.
    pub dy: &'a [f32],
    /// See `Saved`.
    pub mean: &'a [f32],
    /// See `Saved`.
    pub inverse_deviation: &'a [f32],
}

/// The outputs of the backward pass.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// Of the input.
    pub x: &'a mut [f32],
    /// Of gamma.
    pub gamma: &'a mut [f32],
    /// Of beta.
    pub beta: &'a mut [f32],
    /// Of the residual.
    pub residual: Option<&'a mut [f32]>,
}

impl BatchNorm<'_> {
    /// Normalises by the statistics of this batch, and brings the running ones up to date.
    pub fn train(
        &self,
        x: &[f32],
        residual: Option<&[f32]>,
        running: Option<Running<'_>>,
        saved: Saved<'_>,
        y: &mut [f32],
    ) {
        self.train_at(Simd::current(), x, residual, running, saved, y);
    }

    /// Normalises by running statistics.
    pub fn evaluate(
        &self,
        x: &[f32],
        residual: Option<&[f32]>,
        mean: &[f32],
        variance: &[f32],
        y: &mut [f32],
    ) {
        let inverse: Vec<f32> = variance
            .iter()
            .map(|v| (v + self.epsilon).sqrt().recip())
            .collect();
        self.apply(Simd::current(), x, residual, mean, &inverse, y);
    }

    /// Gradients of the operation of `train`.
    pub fn backward(&self, from: Backward<'_>, to: Gradients<'_>) {
        self.backward_at(Simd::current(), from, to);
    }

    fn train_at(
        &self,
        level: Simd,
        x: &[f32],
        residual: Option<&[f32]>,
        running: Option<Running<'_>>,
        saved: Saved<'_>,
        y: &mut [f32],
    ) {
        let channels = self.gamma.len();
        let chunk = chunk(x.len(), channels);
        let shift: Vec<f32> = x.iter().take(channels).copied().collect();
        let sums = |x: &[f32]| {
            let mut sums = vec![0.0f32; 2 * channels];
            run(level, Deviations(x, &shift, &mut sums));
            (x.len() / channels, sums)
        };
        let parts: Vec<(usize, Vec<f32>)> = x.par_chunks(chunk).map(sums).collect();
        let n = x.len() / channels.max(1);
        let mut running = running;
        for c in 0..channels {
            // Count, mean and sum of squared deviations of all chunks so far.
            let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
            for (rows, sums) in &parts {
                let rows = *rows as f64;
                let (sum, square) = (f64::from(sums[c]), f64::from(sums[channels + c]));
                let part_mean = sum / rows;
                let part_squares = (square - sum * part_mean).max(0.0);
                let (difference, total) = (part_mean - mean, count + rows);
                mean += difference * rows / total;
                squares += part_squares + difference * difference * count * rows / total;
                count = total;
            }
            let mean = (mean + f64::from(shift.get(c).copied().unwrap_or(0.0))) as f32;
            saved.mean[c] = mean;
            let variance = squares / count.max(1.0);
            saved.inverse_deviation[c] = (variance + f64::from(self.epsilon)).sqrt().recip() as f32;
            if let Some(running) = &mut running {
                let unbiased = (squares / (n.max(2) - 1) as f64) as f32;
                running.mean[c] += running.momentum * (mean - running.mean[c]);
                running.variance[c] += running.momentum * (unbiased - running.variance[c]);
            }
        }
        self.apply(level, x, residual, saved.mean, saved.inverse_deviation, y);
    }

    fn apply(
        &self,
        level: Simd,
        x: &[f32],
        residual: Option<&[f32]>,
        mean: &[f32],
        inverse: &[f32],
        y: &mut [f32],
    ) {
        let channels = self.gamma.len();
        assert_eq!(x.len(), y.len(), "input and output of batch norm");
        assert!(
            residual.is_none_or(|residual| residual.len() == x.len()),
            "residual of batch norm"
        );
        let scale: Vec<f32> = self.gamma.iter().zip(inverse).map(|(g, i)| g * i).collect();
        let shift: Vec<f32> = (0..channels)
            .map(|c| (-mean[c]).mul_add(scale[c], self.beta[c]))
            .collect();
        let chunk = chunk(x.len(), channels);
        y.par_chunks_mut(chunk).enumerate().for_each(|(i, y)| {
            let part = i * chunk..i * chunk + y.len();
            let apply = Apply {
                x: &x[part.clone()],
                residual: residual.map(|residual| &residual[part]),
                scale: &scale,
                shift: &shift,
                relu: self.relu,
                y,
            };
            run(level, apply);
        });
    }

    fn backward_at(&self, level: Simd, from: Backward<'_>, to: Gradients<'_>) {
        let channels = self.gamma.len();
        let Backward {
            x,
            dy,
            mean,
            inverse_deviation: inverse,
            ..
        } = from;
        // Without a ReLU, y = 1 lets every gradient pass.
        let y = self.relu.then_some(from.y);
        assert_eq!(x.len(), dy.len(), "input and output gradient of batch norm");
        assert_eq!(x.len(), to.x.len(), "input and its gradient");
        assert!(
            y.is_none_or(|y| y.len() == x.len()),
            "input and output of batch norm"
        );
        let chunk = chunk(x.len(), channels);
        let parts: Vec<Vec<f32>> = x
            .par_chunks(chunk)
            .enumerate()
            .map(|(i, x)| {
                let part = i * chunk..i * chunk + x.len();
                let mut sums = vec![0.0f32; 2 * channels];
                run(
                    level,
                    GradientSums(x, y.map(|y| &y[part.clone()]), &dy[part], mean, &mut sums),
                );
                sums
            })
            .collect();
        let n = (x.len() / channels.max(1)) as f64;
        // dx = scale · g + slope · (x − mean) + offset
        let mut factors = vec![[0.0f32; 3]; channels];
        for c in 0..channels {
            let sum = |at: usize| parts.iter().map(|part| f64::from(part[at])).sum::<f64>();
            let (plain, weighted) = (sum(c), sum(channels + c) * f64::from(inverse[c]));
            to.beta[c] = plain as f32;
            to.gamma[c] = weighted as f32;
            let scale = f64::from(self.gamma[c]) * f64::from(inverse[c]);
            let slope = -scale * f64::from(inverse[c]) * weighted / n;
            factors[c] = [scale as f32, slope as f32, (-scale * plain / n) as f32];
        }
        let [scale, slope, offset] =
            [0, 1, 2].map(|i| factors.iter().map(|f| f[i]).collect::<Vec<f32>>());
        let step = |i: usize, dx: &mut [f32], residual: Option<&mut [f32]>| {
            let part = i * chunk..i * chunk + dx.len();
            let kernel = ApplyGradient {
                x: &x[part.clone()],
                y: y.map(|y| &y[part.clone()]),
                dy: &dy[part],
                factors: [&scale, &slope, &offset, mean],
                dx,
                residual,
            };
            run(level, kernel);
        };
        match to.residual {
            None => {
                to.x.par_chunks_mut(chunk)
                    .enumerate()
                    .for_each(|(i, dx)| step(i, dx, None))
            }
            Some(residual) => {
                assert_eq!(
                    x.len(),
                    residual.len(),
                    "input and gradient of the residual"
                );
                let both =
                    to.x.par_chunks_mut(chunk)
                        .zip(residual.par_chunks_mut(chunk));
                both.enumerate()
                    .for_each(|(i, (dx, residual))| step(i, dx, Some(residual)));
            }
        }
    }
}

/// Numbers in a chunk: whole pixels, about 64 KiB, but at least 64 pixels.
fn chunk(len: usize, channels: usize) -> usize {
    assert!(
        channels > 0 && len.is_multiple_of(channels),
        "{len} numbers of {channels} channels"
    );
    ((1 << 14) / channels).max(64) * channels
}

/// Two terms of each number of an image, which are summed over pixels. A trait and not closures, because only methods
/// can be made to compile into the loop that calls them.
trait Terms {
    /// For 16 numbers from `at` on, the first of channel `c`.
    fn wide(&self, at: usize, c: usize) -> [[f32; LANES]; 2];
    /// Of one number.
    fn single(&self, at: usize, c: usize) -> [f32; 2];
}

/// Sums over pixels of both terms of each channel, into the two halves of `sums`.
///
/// Four times sixteen channels at a time, or sixteen channels of four pixels, so that no sum waits for the one before
/// it.
#[inline(always)]
fn sum_terms(terms: impl Terms, pixels: usize, channels: usize, sums: &mut [f32]) {
    const AT_ONCE: usize = 4;
    let mut put = |c: usize, total: &[[f32; LANES]; 2]| {
        for (half, values) in total.iter().enumerate() {
            sums[half * channels + c..][..LANES].copy_from_slice(values);
        }
    };
    let wide = channels / (AT_ONCE * LANES) * AT_ONCE * LANES;
    for c in (0..wide).step_by(AT_ONCE * LANES) {
        let mut total = [[[0.0f32; LANES]; 2]; AT_ONCE];
        for pixel in 0..pixels {
            for (lane, total) in total.iter_mut().enumerate() {
                let c = c + lane * LANES;
                add(total, &terms.wide(pixel * channels + c, c));
            }
        }
        for (lane, total) in total.iter().enumerate() {
            put(c + lane * LANES, total);
        }
    }
    let whole = channels / LANES * LANES;
    for c in (wide..whole).step_by(LANES) {
        let mut total = [[[0.0f32; LANES]; 2]; AT_ONCE];
        let groups = pixels / AT_ONCE;
        for group in 0..groups {
            for (lane, total) in total.iter_mut().enumerate() {
                add(
                    total,
                    &terms.wide((group * AT_ONCE + lane) * channels + c, c),
                );
            }
        }
        for pixel in groups * AT_ONCE..pixels {
            add(&mut total[0], &terms.wide(pixel * channels + c, c));
        }
        let [mut first, second, third, fourth] = total;
        add(&mut first, &second);
        add(&mut first, &third);
        add(&mut first, &fourth);
        put(c, &first);
    }
    for c in whole..channels {
        for pixel in 0..pixels {
            let [plain, other] = terms.single(pixel * channels + c, c);
            sums[c] += plain;
            sums[channels + c] += other;
        }
    }
}

#[inline(always)]
fn add(total: &mut [[f32; LANES]; 2], terms: &[[f32; LANES]; 2]) {
    for half in 0..2 {
        for i in 0..LANES {
            total[half][i] += terms[half][i];
        }
    }
}

#[inline(always)]
fn lanes(x: &[f32], at: usize) -> &[f32; LANES] {
    x[at..].first_chunk().expect("whole lanes")
}

/// Sums of x − shift and of its square.
struct Deviations<'a>(&'a [f32], &'a [f32], &'a mut [f32]);

impl Kernel for Deviations<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Deviations(x, shift, sums) = self;
        let terms = DeviationTerms { x, shift };
        sum_terms(terms, x.len() / shift.len(), shift.len(), sums);
    }
}

struct DeviationTerms<'a> {
    x: &'a [f32],
    shift: &'a [f32],
}

impl Terms for DeviationTerms<'_> {
    #[inline(always)]
    fn wide(&self, at: usize, c: usize) -> [[f32; LANES]; 2] {
        let (x, shift) = (lanes(self.x, at), lanes(self.shift, c));
        let mut terms = [[0.0; LANES]; 2];
        for i in 0..LANES {
            let d = x[i] - shift[i];
            terms[0][i] = d;
            terms[1][i] = d * d;
        }
        terms
    }

    #[inline(always)]
    fn single(&self, at: usize, c: usize) -> [f32; 2] {
        let d = self.x[at] - self.shift[c];
        [d, d * d]
    }
}

/// Sums of the gradient after the ReLU, and of its product with x − mean.
struct GradientSums<'a>(
    &'a [f32],
    Option<&'a [f32]>,
    &'a [f32],
    &'a [f32],
    &'a mut [f32],
);

impl Kernel for GradientSums<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let GradientSums(x, y, dy, mean, sums) = self;
        let (pixels, channels) = (x.len() / mean.len(), mean.len());
        match y {
            Some(y) => sum_terms(
                GradientTerms::<true> { x, y, dy, mean },
                pixels,
                channels,
                sums,
            ),
            None => sum_terms(
                GradientTerms::<false> { x, y: x, dy, mean },
                pixels,
                channels,
                sums,
            ),
        }
    }
}

struct GradientTerms<'a, const RELU: bool> {
    x: &'a [f32],
    y: &'a [f32],
    dy: &'a [f32],
    mean: &'a [f32],
}

impl<const RELU: bool> Terms for GradientTerms<'_, RELU> {
    #[inline(always)]
    fn wide(&self, at: usize, c: usize) -> [[f32; LANES]; 2] {
        let (x, y) = (lanes(self.x, at), lanes(self.y, at));
        let (dy, mean) = (lanes(self.dy, at), lanes(self.mean, c));
        let mut terms = [[0.0; LANES]; 2];
        for i in 0..LANES {
            let g = if !RELU || y[i] > 0.0 { dy[i] } else { 0.0 };
            terms[0][i] = g;
            terms[1][i] = g * (x[i] - mean[i]);
        }
        terms
    }

    #[inline(always)]
    fn single(&self, at: usize, c: usize) -> [f32; 2] {
        let g = if !RELU || self.y[at] > 0.0 {
            self.dy[at]
        } else {
            0.0
        };
        [g, g * (self.x[at] - self.mean[c])]
    }
}

struct Apply<'a> {
    x: &'a [f32],
    residual: Option<&'a [f32]>,
    scale: &'a [f32],
    shift: &'a [f32],
    relu: bool,
    y: &'a mut [f32],
}

impl Kernel for Apply<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Apply {
            x,
            residual,
            scale,
            shift,
            relu,
            y,
        } = self;
        match (residual, relu) {
            (Some(residual), true) => apply::<true, true>(x, residual, scale, shift, y),
            (Some(residual), false) => apply::<true, false>(x, residual, scale, shift, y),
            (None, true) => apply::<false, true>(x, x, scale, shift, y),
            (None, false) => apply::<false, false>(x, x, scale, shift, y),
        }
    }
}

#[inline(always)]
fn apply<const RESIDUAL: bool, const RELU: bool>(
    x: &[f32],
    residual: &[f32],
    scale: &[f32],
    shift: &[f32],
    y: &mut [f32],
) {
    let one = |x: f32, residual: f32, scale: f32, shift: f32| {
        let y = x * scale + shift + if RESIDUAL { residual } else { 0.0 };
        if RELU && y < 0.0 { 0.0 } else { y }
    };
    let channels = scale.len();
    let whole = channels / LANES * LANES;
    for (pixel, y) in y.chunks_exact_mut(channels).enumerate() {
        for c in (0..whole).step_by(LANES) {
            let at = pixel * channels + c;
            let (x, residual) = (lanes(x, at), lanes(residual, at));
            let (scale, shift) = (lanes(scale, c), lanes(shift, c));
            let y: &mut [f32; LANES] = y[c..].first_chunk_mut().expect("whole lanes");
            for i in 0..LANES {
                y[i] = one(x[i], residual[i], scale[i], shift[i]);
            }
        }
        for c in whole..channels {
            let at = pixel * channels + c;
            y[c] = one(x[at], residual[at], scale[c], shift[c]);
        }
    }
}

struct ApplyGradient<'a> {
    x: &'a [f32],
    y: Option<&'a [f32]>,
    dy: &'a [f32],
    /// scale, slope, offset, mean
    factors: [&'a [f32]; 4],
    dx: &'a mut [f32],
    residual: Option<&'a mut [f32]>,
}

impl Kernel for ApplyGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let ApplyGradient {
            x,
            y,
            dy,
            factors,
            dx,
            residual,
        } = self;
        match (y, residual) {
            (Some(y), None) => apply_gradient::<true, false>(x, y, dy, factors, dx, &mut []),
            (None, None) => apply_gradient::<false, false>(x, x, dy, factors, dx, &mut []),
            (Some(y), Some(r)) => apply_gradient::<true, true>(x, y, dy, factors, dx, r),
            (None, Some(r)) => apply_gradient::<false, true>(x, x, dy, factors, dx, r),
        }
    }
}

#[inline(always)]
fn apply_gradient<const RELU: bool, const RESIDUAL: bool>(
    x: &[f32],
    y: &[f32],
    dy: &[f32],
    [scale, slope, offset, mean]: [&[f32]; 4],
    dx: &mut [f32],
    residual: &mut [f32],
) {
    let masked = |y: f32, dy: f32| if !RELU || y > 0.0 { dy } else { 0.0 };
    let channels = scale.len();
    let whole = channels / LANES * LANES;
    for (pixel, dx) in dx.chunks_exact_mut(channels).enumerate() {
        for c in (0..whole).step_by(LANES) {
            let at = pixel * channels + c;
            let (x, y, dy) = (lanes(x, at), lanes(y, at), lanes(dy, at));
            let (scale, slope) = (lanes(scale, c), lanes(slope, c));
            let (offset, mean) = (lanes(offset, c), lanes(mean, c));
            let dx: &mut [f32; LANES] = dx[c..].first_chunk_mut().expect("whole lanes");
            let mut g = [0.0; LANES];
            for i in 0..LANES {
                g[i] = masked(y[i], dy[i]);
                dx[i] = scale[i] * g[i] + slope[i] * (x[i] - mean[i]) + offset[i];
            }
            if RESIDUAL {
                residual[at..at + LANES].copy_from_slice(&g);
            }
        }
        for c in whole..channels {
            let at = pixel * channels + c;
            let g = masked(y[at], dy[at]);
            dx[c] = scale[c] * g + slope[c] * (x[at] - mean[c]) + offset[c];
            if RESIDUAL {
                residual[at] = g;
            }
        }
    }
}

#[cfg(test)]
mod tests;
