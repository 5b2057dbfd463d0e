//! Pooling: the maximum or the mean of windows of an image, channels last.
//!
//! The position of each maximum is saved, one byte a number; finding it again from x and y would read four times as
//! much. The backward passes run over input lines; each line collects from the windows that cover it, so that lines can
//! be divided among threads.

use std::ops::Range;

use rayon::prelude::*;

use crate::simd::{Kernel, Simd, run};

/// The shapes of a pooling. Images are \[batch, height, width, channels\].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Images.
    pub batch: usize,
    /// Height and width of the input.
    pub input: [usize; 2],
    /// Channels.
    pub channels: usize,
    /// Height and width of the window; at most 256 pixels for maxima.
    pub kernel: [usize; 2],
    /// Steps of the window, down and to the right.
    pub stride: [usize; 2],
    /// Pixels around the input, above and below, left and right, at most half of the window. They never are the
    /// maximum; in means they count as zeros.
    pub padding: [usize; 2],
}

impl Pool {
    /// One window for the whole image.
    pub fn global(batch: usize, input: [usize; 2], channels: usize) -> Pool {
        Pool {
            batch,
            input,
            channels,
            kernel: input,
            stride: [1, 1],
            padding: [0, 0],
        }
    }

    /// Height and width of the output. Panics if the window is larger than the padded input or the padding more than
    /// half of it.
    pub fn output(&self) -> [usize; 2] {
        [0, 1].map(|axis| {
            let size = self.input[axis] + 2 * self.padding[axis];
            let (kernel, stride) = (self.kernel[axis], self.stride[axis]);
            assert!(
                kernel > 0 && stride > 0 && kernel <= size && self.padding[axis] <= kernel / 2,
                "a window of {kernel} on {size} pixels"
            );
            (size - kernel) / stride + 1
        })
    }

    /// Numbers in an input.
    pub fn input_len(&self) -> usize {
        self.batch * self.input[0] * self.input[1] * self.channels
    }

    /// Numbers in an output.
    pub fn output_len(&self) -> usize {
        let [high, wide] = self.output();
        self.batch * high * wide * self.channels
    }

    /// Maxima and their positions: pixel indices in a window, line by line. The first of several equal ones wins; NaN
    /// wins over all.
    pub fn max(&self, x: &[f32], y: &mut [f32], places: &mut [u8]) {
        self.max_at(Simd::current(), x, y, places);
    }

    /// Gradient of the input of `max`.
    pub fn max_backward(&self, dy: &[f32], places: &[u8], dx: &mut [f32]) {
        assert_eq!(places.len(), dy.len(), "places of maxima");
        self.backward_at(Simd::current(), dy, Some(places), dx);
    }

    /// Means.
    pub fn mean(&self, x: &[f32], y: &mut [f32]) {
        self.mean_at(Simd::current(), x, y);
    }

    /// Gradient of the input of `mean`.
    pub fn mean_backward(&self, dy: &[f32], dx: &mut [f32]) {
        self.backward_at(Simd::current(), dy, None, dx);
    }

    fn check(&self, x: usize, y: usize) {
        assert_eq!(x, self.input_len(), "input of a pooling");
        assert_eq!(y, self.output_len(), "output of a pooling");
    }

    /// Numbers in a line of the output.
    fn line(&self) -> usize {
        (self.output()[1] * self.channels).max(1)
    }

    fn max_at(&self, level: Simd, x: &[f32], y: &mut [f32], places: &mut [u8]) {
        self.check(x.len(), y.len());
        assert_eq!(places.len(), y.len(), "places of maxima");
        assert!(
            self.kernel[0] * self.kernel[1] <= 256,
            "a window of more than 256 pixels"
        );
        let line = self.line();
        let lines = y.par_chunks_mut(line).zip(places.par_chunks_mut(line));
        lines.enumerate().for_each(|(number, (y, places))| {
            run(
                level,
                MaxLine {
                    pool: self,
                    x,
                    number,
                    y,
                    places,
                },
            );
        });
    }

    fn mean_at(&self, level: Simd, x: &[f32], y: &mut [f32]) {
        self.check(x.len(), y.len());
        y.par_chunks_mut(self.line())
            .enumerate()
            .for_each(|(number, y)| {
                run(
                    level,
                    MeanLine {
                        pool: self,
                        x,
                        number,
                        y,
                    },
                );
            });
    }

    fn backward_at(&self, level: Simd, dy: &[f32], places: Option<&[u8]>, dx: &mut [f32]) {
        self.check(dx.len(), dy.len());
        let line = (self.input[1] * self.channels).max(1);
        dx.par_chunks_mut(line)
            .enumerate()
            .for_each(|(number, dx)| {
                run(
                    level,
                    BackwardLine {
                        pool: self,
                        dy,
                        places,
                        number,
                        dx,
                    },
                );
            });
    }

    /// The taps of a window inside the image, and the pixel under the first of them.
    #[inline(always)]
    fn inside(&self, axis: usize, output: usize) -> (Range<usize>, usize) {
        let at = output * self.stride[axis];
        let first = self.padding[axis].saturating_sub(at);
        let last = self.kernel[axis].min(self.input[axis] + self.padding[axis] - at);
        (first..last, at + first - self.padding[axis])
    }
}

struct MaxLine<'a> {
    pool: &'a Pool,
    x: &'a [f32],
    number: usize,
    y: &'a mut [f32],
    places: &'a mut [u8],
}

impl Kernel for MaxLine<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let MaxLine {
            pool,
            x,
            number,
            y,
            places,
        } = self;
        let [high, _] = pool.output();
        let (b, oy) = (number / high, number % high);
        let channels = pool.channels;
        let (down, top) = pool.inside(0, oy);
        let pixels = y
            .chunks_exact_mut(channels)
            .zip(places.chunks_exact_mut(channels));
        for (ox, (y, places)) in pixels.enumerate() {
            let (right, left) = pool.inside(1, ox);
            let mut first = true;
            for (iy, ky) in (top..).zip(down.clone()) {
                for (ix, kx) in (left..).zip(right.clone()) {
                    let at = ((b * pool.input[0] + iy) * pool.input[1] + ix) * channels;
                    let x = &x[at..at + channels];
                    let place = (ky * pool.kernel[1] + kx) as u8;
                    if first {
                        y.copy_from_slice(x);
                        places.fill(place);
                        first = false;
                        continue;
                    }
                    for ((y, old), &x) in y.iter_mut().zip(places.iter_mut()).zip(x) {
                        let more = x > *y || x.is_nan();
                        *y = if more { x } else { *y };
                        *old = if more { place } else { *old };
                    }
                }
            }
        }
    }
}

struct MeanLine<'a> {
    pool: &'a Pool,
    x: &'a [f32],
    number: usize,
    y: &'a mut [f32],
}

impl Kernel for MeanLine<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let MeanLine { pool, x, number, y } = self;
        let [high, _] = pool.output();
        let (b, oy) = (number / high, number % high);
        let channels = pool.channels;
        let share = 1.0 / (pool.kernel[0] * pool.kernel[1]) as f32;
        let (down, top) = pool.inside(0, oy);
        for (ox, y) in y.chunks_exact_mut(channels).enumerate() {
            let (right, left) = pool.inside(1, ox);
            y.fill(0.0);
            for iy in top..top + down.len() {
                for ix in left..left + right.len() {
                    let at = ((b * pool.input[0] + iy) * pool.input[1] + ix) * channels;
                    for (y, x) in y.iter_mut().zip(&x[at..at + channels]) {
                        *y += x;
                    }
                }
            }
            for y in y {
                *y *= share;
            }
        }
    }
}

struct BackwardLine<'a> {
    pool: &'a Pool,
    dy: &'a [f32],
    /// Positions of maxima; `None` for means.
    places: Option<&'a [u8]>,
    number: usize,
    dx: &'a mut [f32],
}

impl Kernel for BackwardLine<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let BackwardLine {
            pool,
            dy,
            places,
            number,
            dx,
        } = self;
        let [high, wide] = pool.output();
        let (b, iy) = (number / pool.input[0], number % pool.input[0]);
        let channels = pool.channels;
        let share = 1.0 / (pool.kernel[0] * pool.kernel[1]) as f32;
        dx.fill(0.0);
        let at = iy + pool.padding[0];
        // Windows that cover this line.
        let first = (at + 1)
            .saturating_sub(pool.kernel[0])
            .div_ceil(pool.stride[0]);
        let last = (at / pool.stride[0] + 1).min(high);
        for oy in first..last {
            let ky = at - oy * pool.stride[0];
            for ox in 0..wide {
                let from = ((b * high + oy) * wide + ox) * channels;
                let dy = &dy[from..from + channels];
                let (right, left) = pool.inside(1, ox);
                for (ix, kx) in (left..).zip(right) {
                    let dx = &mut dx[ix * channels..][..channels];
                    match places {
                        None => {
                            for (dx, dy) in dx.iter_mut().zip(dy) {
                                *dx += dy * share;
                            }
                        }
                        Some(places) => {
                            let place = (ky * pool.kernel[1] + kx) as u8;
                            let places = &places[from..from + channels];
                            for ((dx, &dy), &at) in dx.iter_mut().zip(dy).zip(places) {
                                *dx += if at == place { dy } else { 0.0 };
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small whole numbers, often equal, with exact sums.
    fn numbers(n: usize, seed: usize) -> Vec<f32> {
        (0..n)
            .map(|i| ((((i + seed) * 2_654_435_761) >> 9) % 7) as f32 - 3.0)
            .collect()
    }

    fn check(pool: Pool) {
        let x = numbers(pool.input_len(), 1);
        let dy = numbers(pool.output_len(), 2);
        let [high, wide] = pool.output();
        let area = pool.kernel[0] * pool.kernel[1];
        // All by the definition, window by window.
        let mut y = vec![f32::NEG_INFINITY; dy.len()];
        let mut places = vec![0u8; dy.len()];
        let mut sums = vec![0.0f32; dy.len()];
        let mut dx_max = vec![0.0f32; x.len()];
        let mut dx_mean = vec![0.0f64; x.len()];
        for o in 0..dy.len() {
            let (c, ox) = (o % pool.channels, o / pool.channels % wide);
            let (oy, b) = (
                o / pool.channels / wide % high,
                o / pool.channels / wide / high,
            );
            let mut winner = None;
            for place in 0..area {
                let (ky, kx) = (place / pool.kernel[1], place % pool.kernel[1]);
                let iy = (oy * pool.stride[0] + ky).wrapping_sub(pool.padding[0]);
                let ix = (ox * pool.stride[1] + kx).wrapping_sub(pool.padding[1]);
                if iy >= pool.input[0] || ix >= pool.input[1] {
                    continue;
                }
                let i = ((b * pool.input[0] + iy) * pool.input[1] + ix) * pool.channels + c;
                sums[o] += x[i];
                dx_mean[i] += f64::from(dy[o]) / area as f64;
                if x[i] > y[o] {
                    (y[o], places[o], winner) = (x[i], place as u8, Some(i));
                }
            }
            dx_max[winner.expect("a pixel inside")] += dy[o];
        }
        for level in Simd::available() {
            let (mut got, mut at) = (vec![f32::NAN; dy.len()], vec![9; dy.len()]);
            pool.max_at(level, &x, &mut got, &mut at);
            assert_eq!(
                (&got, &at),
                (&y, &places),
                "maxima of {pool:?} at {level:?}"
            );
            let mut dx = vec![f32::NAN; x.len()];
            pool.backward_at(level, &dy, Some(&places), &mut dx);
            assert_eq!(dx, dx_max, "gradient of maxima of {pool:?} at {level:?}");
            pool.mean_at(level, &x, &mut got);
            for (got, sum) in got.iter().zip(&sums) {
                // The reciprocal and the product round once each.
                let mean = sum / area as f32;
                assert!(
                    (got - mean).abs() <= 4.0 * f32::EPSILON * mean.abs(),
                    "mean of {pool:?}"
                );
            }
            pool.backward_at(level, &dy, None, &mut dx);
            for (got, &expected) in dx.iter().zip(&dx_mean) {
                // Each of up to `area` summands, at most 3 / area, rounds three times.
                let error = (f64::from(*got) - expected).abs();
                assert!(
                    error <= 9.0 * f64::from(f32::EPSILON),
                    "gradient of means of {pool:?}"
                );
            }
        }
    }

    #[test]
    fn equals_the_definition() {
        let pool = |[batch, high, wide, channels]: [usize; 4], kernel, stride, padding| Pool {
            batch,
            input: [high, wide],
            channels,
            kernel,
            stride,
            padding,
        };
        check(pool([2, 8, 6, 16], [2, 2], [2, 2], [0, 0]));
        check(pool([2, 7, 9, 5], [3, 3], [2, 2], [0, 0]));
        check(pool([3, 9, 8, 33], [3, 3], [2, 2], [1, 1]));
        check(pool([1, 5, 4, 3], [2, 3], [1, 2], [1, 0]));
        check(pool([1, 9, 9, 2], [2, 2], [4, 3], [0, 0]));
        check(Pool::global(3, [7, 5], 19));
        check(Pool::global(2, [1, 1], 1));
    }

    #[test]
    fn not_a_number_wins() {
        let pool = Pool::global(1, [1, 3], 1);
        let (mut y, mut places) = ([0.0], [0]);
        pool.max(&[1.0, f32::NAN, 2.0], &mut y, &mut places);
        assert!(y[0].is_nan());
        assert_eq!(places, [1]);
    }
}
