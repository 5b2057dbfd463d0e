//! Convolution in two dimensions, channels last.
//!
//! Every pass is one product of matrices; their blocks are copied straight out of the images (implicit GEMM):
//!
//! | pass | m | k | n |
//! |---|---|---|---|
//! | forward | output pixels | taps × in | out |
//! | input gradient, for each phase of the stride | input pixels | taps × out | in |
//! | weight gradient | out | output pixels | taps × in |
//!
//! An input pixel at phase p of the stride meets only every stride-th tap, so the input gradient of a convolution
//! with stride s is s² convolutions with stride 1 over the output gradient; no zeros are put between its pixels.

use std::ops::Range;

use rayon::prelude::*;

use crate::block_source::{BlockSource, copy_run};
use crate::lines;
use crate::matrix::Matrix;
use crate::precision::Precision;
use crate::product::{self, Left, Output, Right};
use crate::simd::Simd;
use crate::tile::DEPTH;
use crate::window::{Axis, Window};

/// The shapes of a convolution.
///
/// Images are \[batch, height, width, channels\]; weights \[output channels, kernel height, kernel width, input
/// channels\], which is how PyTorch lays out its \[out, in, height, width\] in the format channels last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    /// Images.
    pub batch: usize,
    /// Height and width of the input.
    pub input: [usize; 2],
    /// Channels of the input.
    pub in_channels: usize,
    /// Channels of the output.
    pub out_channels: usize,
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// Steps of the kernel, down and to the right.
    pub stride: [usize; 2],
    /// Zeros around the input, above and below, left and right.
    pub padding: [usize; 2],
    /// Of the numbers that are multiplied; all sums, and those of the bias, are f32.
    pub precision: Precision,
}

impl Conv {
    /// Height and width of the output. Panics if the kernel is larger than the padded input, or empty.
    pub fn output(&self) -> [usize; 2] {
        [0, 1].map(|axis| {
            let size = self.input[axis] + 2 * self.padding[axis];
            let (kernel, stride) = (self.kernel[axis], self.stride[axis]);
            assert!(
                kernel > 0 && stride > 0 && kernel <= size,
                "a kernel of {kernel} on {size} pixels"
            );
            (size - kernel) / stride + 1
        })
    }

    /// Numbers in an input.
    pub fn input_len(&self) -> usize {
        self.batch * self.input[0] * self.input[1] * self.in_channels
    }

    /// Numbers in an output.
    pub fn output_len(&self) -> usize {
        let [high, wide] = self.output();
        self.batch * high * wide * self.out_channels
    }

    /// Numbers in the weights.
    pub fn weights_len(&self) -> usize {
        self.out_channels * self.kernel[0] * self.kernel[1] * self.in_channels
    }

    /// y = x ∗ w + bias, then max(y, 0) with `relu`. `bias` \[out\].
    pub fn forward(&self, x: &[f32], w: &[f32], bias: Option<&[f32]>, relu: bool, y: &mut [f32]) {
        self.forward_at(Simd::current(), x, w, bias, relu, y);
    }

    /// Gradient of the input from that of the output.
    pub fn input_gradient(&self, dy: &[f32], w: &[f32], dx: &mut [f32]) {
        self.input_gradient_at(Simd::current(), dy, w, dx);
    }

    /// Gradient of the weights from the input and the gradient of the output.
    pub fn weight_gradient(&self, x: &[f32], dy: &[f32], dw: &mut [f32]) {
        self.weight_gradient_at(Simd::current(), x, dy, dw);
    }

    /// Gradient of the bias: sums over all pixels. `db` \[out\].
    pub fn bias_gradient(&self, dy: &[f32], db: &mut [f32]) {
        assert_eq!(dy.len(), self.output_len(), "output of a convolution");
        assert_eq!(db.len(), self.out_channels, "bias of a convolution");
        let pixels = dy.len() / self.out_channels.max(1);
        let chunk = pixels.div_ceil(64).max(64) * self.out_channels.max(1);
        let parts: Vec<Vec<f32>> = dy
            .par_chunks(chunk)
            .map(|dy| {
                let mut sum = vec![0.0; db.len()];
                for pixel in dy.chunks_exact(sum.len()) {
                    for (sum, x) in sum.iter_mut().zip(pixel) {
                        *sum += x;
                    }
                }
                sum
            })
            .collect();
        db.fill(0.0);
        for part in parts {
            for (sum, x) in db.iter_mut().zip(part) {
                *sum += x;
            }
        }
    }

    fn check(&self, x: usize, w: usize, y: usize) {
        assert_eq!(x, self.input_len(), "input of a convolution");
        assert_eq!(w, self.weights_len(), "weights of a convolution");
        assert_eq!(y, self.output_len(), "output of a convolution");
    }

    /// The windows that the kernel covers.
    fn window<'a>(&self, image: &'a [f32], batch_inside: bool) -> Window<'a> {
        let output = self.output();
        let [y, x] = [0, 1].map(|axis| Axis {
            input: self.input[axis],
            output: output[axis],
            taps: self.kernel[axis],
            stride: self.stride[axis],
            padding: self.padding[axis] as isize,
        });
        Window {
            image,
            batch: self.batch,
            channels: self.in_channels,
            y,
            x,
            batch_inside,
        }
    }

    pub(crate) fn forward_at(
        &self,
        level: Simd,
        x: &[f32],
        w: &[f32],
        bias: Option<&[f32]>,
        relu: bool,
        y: &mut [f32],
    ) {
        self.check(x.len(), w.len(), y.len());
        let window = self.window(x, self.small(self.output()));
        let weights = Matrix::new(w, self.out_channels, window.cols()).transposed();
        if self.stride == [1, 1] && lines::fits(&window, self.out_channels) {
            return lines::multiply(level, self.precision, window, &weights, bias, relu, y);
        }
        let depth = depth_of_taps(self.in_channels, window.cols());
        let [high, wide] = self.output();
        let output = Output {
            c: y,
            row: &|row| {
                let (b, y, x) = window.position(row);
                ((b * high + y) * wide + x) * self.out_channels
            },
            add: false,
            bias,
            relu,
        };
        product::multiply(
            level,
            self.precision,
            Left::Rows(&window),
            Right::Source(&weights),
            depth,
            output,
        );
    }

    pub(crate) fn input_gradient_at(&self, level: Simd, dy: &[f32], w: &[f32], dx: &mut [f32]) {
        self.check(dx.len(), w.len(), dy.len());
        let output = self.output();
        let [stride_y, stride_x] = self.stride;
        let small = self.small(output);
        for phase_y in 0..stride_y.min(self.input[0]) {
            for phase_x in 0..stride_x.min(self.input[1]) {
                let phase = [phase_y, phase_x];
                let first =
                    [0, 1].map(|axis| (phase[axis] + self.padding[axis]) % self.stride[axis]);
                let taps = [0, 1].map(|axis| {
                    let rest: usize = self.kernel[axis].saturating_sub(first[axis]);
                    rest.div_ceil(self.stride[axis])
                });
                let axis = |axis: usize| Axis {
                    input: output[axis],
                    output: (self.input[axis] - phase[axis]).div_ceil(self.stride[axis]),
                    taps: taps[axis],
                    stride: 1,
                    // Tap first + stride·u meets input pixel phase + stride·t at output pixel
                    // t + (phase + padding − first) / stride − u; u runs backwards here.
                    padding: taps[axis] as isize
                        - 1
                        - ((phase[axis] + self.padding[axis] - first[axis]) / self.stride[axis])
                            as isize,
                };
                let window = Window {
                    image: dy,
                    batch: self.batch,
                    channels: self.out_channels,
                    y: axis(0),
                    x: axis(1),
                    batch_inside: small,
                };
                let weights = BackwardWeights {
                    conv: self,
                    w,
                    first,
                    taps,
                };
                if self.stride == [1, 1] && lines::fits(&window, self.in_channels) {
                    return lines::multiply(
                        level,
                        self.precision,
                        window,
                        &weights,
                        None,
                        false,
                        dx,
                    );
                }
                let depth = depth_of_taps(self.out_channels, window.cols());
                let output = Output {
                    c: dx,
                    row: &|row| {
                        let (b, y, x) = window.position(row);
                        let (y, x) = (y * stride_y + phase_y, x * stride_x + phase_x);
                        ((b * self.input[0] + y) * self.input[1] + x) * self.in_channels
                    },
                    add: false,
                    bias: None,
                    relu: false,
                };
                product::multiply(
                    level,
                    self.precision,
                    Left::Rows(&window),
                    Right::Source(&weights),
                    depth,
                    output,
                );
            }
        }
    }

    pub(crate) fn weight_gradient_at(&self, level: Simd, x: &[f32], dy: &[f32], dw: &mut [f32]) {
        self.check(x.len(), dw.len(), dy.len());
        let window = self.window(x, self.small(self.output()));
        let few = self.in_channels.max(self.out_channels) <= 32;
        if few && self.stride == [1, 1] && lines::fits(&window, self.out_channels) {
            return lines::weight_gradient(level, self.precision, window, dy, dw);
        }
        // The output gradient in the window's order of pixels.
        let alone = |axis: Axis| Axis {
            input: axis.output,
            taps: 1,
            stride: 1,
            padding: 0,
            ..axis
        };
        let gradient = Window {
            image: dy,
            channels: self.out_channels,
            y: alone(window.y),
            x: alone(window.x),
            ..window
        };
        let depth = if window.batch_inside && self.batch <= DEPTH {
            DEPTH / self.batch * self.batch
        } else {
            DEPTH
        };
        product::multiply_long(level, self.precision, &gradient, &window, depth, dw);
    }

    /// Whether enough taps are outside the image that skipping them pays.
    fn small(&self, output: [usize; 2]) -> bool {
        self.batch >= 16 && output.iter().all(|&size| size <= 4) && self.kernel != [1, 1]
    }
}

/// Blocks of k that end at the end of a tap, unless too short.
fn depth_of_taps(channels: usize, k: usize) -> usize {
    if channels == 0 {
        return 1;
    }
    let taps = DEPTH / channels;
    if taps > 0 {
        let blocks = k.div_ceil(taps * channels).max(1);
        (k / channels).div_ceil(blocks).max(1) * channels
    } else {
        product::even_depth(channels)
    }
}

/// The weights as the input gradient at one phase of the stride multiplies them: a row for each tap, backwards, and
/// output channel; a column for each input channel.
struct BackwardWeights<'a> {
    conv: &'a Conv,
    w: &'a [f32],
    first: [usize; 2],
    taps: [usize; 2],
}

impl BlockSource for BackwardWeights<'_> {
    fn rows(&self) -> usize {
        self.taps[0] * self.taps[1] * self.conv.out_channels
    }

    fn cols(&self) -> usize {
        self.conv.in_channels
    }

    fn copy(&self, _: Simd, rows: Range<usize>, cols: Range<usize>, to: &mut [f32], stride: usize) {
        let conv = self.conv;
        for (i, row) in rows.enumerate() {
            let (tap, out) = (row / conv.out_channels, row % conv.out_channels);
            let tap = [tap / self.taps[1], tap % self.taps[1]];
            let [y, x] = [0, 1].map(|axis| {
                self.first[axis] + conv.stride[axis] * (self.taps[axis] - 1 - tap[axis])
            });
            let at = ((out * conv.kernel[0] + y) * conv.kernel[1] + x) * conv.in_channels;
            let from = &self.w[at + cols.start..at + cols.end];
            copy_run(from, &mut to[i * stride..][..from.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// y, dx, dw and db in f64, pixel by pixel; and the same sums of absolute values, which bound the error.
    struct Plain {
        y: Vec<[f64; 2]>,
        dx: Vec<[f64; 2]>,
        dw: Vec<[f64; 2]>,
        db: Vec<[f64; 2]>,
    }

    fn plain(conv: &Conv, x: &[f32], w: &[f32], dy: &[f32]) -> Plain {
        let [high, wide] = conv.output();
        let mut plain = Plain {
            y: vec![[0.0; 2]; conv.output_len()],
            dx: vec![[0.0; 2]; x.len()],
            dw: vec![[0.0; 2]; w.len()],
            db: vec![[0.0; 2]; conv.out_channels],
        };
        let put = |at: &mut [f64; 2], value: f64| {
            at[0] += value;
            at[1] += value.abs();
        };
        for (row, gradient) in dy.chunks_exact(conv.out_channels).enumerate() {
            let (b, oy, ox) = (row / (high * wide), row / wide % high, row % wide);
            for (o, &gradient) in gradient.iter().enumerate() {
                put(&mut plain.db[o], f64::from(gradient));
                for tap in 0..conv.kernel[0] * conv.kernel[1] {
                    let (ky, kx) = (tap / conv.kernel[1], tap % conv.kernel[1]);
                    let (iy, ix) = (oy * conv.stride[0] + ky, ox * conv.stride[1] + kx);
                    let (Some(iy), Some(ix)) = (
                        iy.checked_sub(conv.padding[0]),
                        ix.checked_sub(conv.padding[1]),
                    ) else {
                        continue;
                    };
                    if iy >= conv.input[0] || ix >= conv.input[1] {
                        continue;
                    }
                    for c in 0..conv.in_channels {
                        let i =
                            ((b * conv.input[0] + iy) * conv.input[1] + ix) * conv.in_channels + c;
                        let k = (o * conv.kernel[0] * conv.kernel[1] + tap) * conv.in_channels + c;
                        let (x, w, gradient) =
                            (f64::from(x[i]), f64::from(w[k]), f64::from(gradient));
                        put(&mut plain.y[row * conv.out_channels + o], x * w);
                        put(&mut plain.dx[i], gradient * w);
                        put(&mut plain.dw[k], gradient * x);
                    }
                }
            }
        }
        plain
    }

    fn numbers(n: usize, seed: u64) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    /// Sums of a few thousand products round a few thousand times, in random directions, each by at most 2⁻²⁴.
    fn near(what: &str, got: &[f32], expected: &[[f64; 2]]) {
        for (i, (&got, &[value, size])) in got.iter().zip(expected).enumerate() {
            let error = (f64::from(got) - value).abs();
            assert!(
                error <= 64.0 * 2f64.powi(-24) * (size + 1e-30),
                "{what}[{i}]: {got}, not {value}"
            );
        }
    }

    fn check(conv: Conv) {
        let x = numbers(conv.input_len(), 1);
        let w = numbers(conv.weights_len(), 2);
        let dy = numbers(conv.output_len(), 3);
        let bias = numbers(conv.out_channels, 4);
        for (level, precision) in Simd::available()
            .into_iter()
            .flat_map(|level| [(level, Precision::F32), (level, Precision::Bf16)])
        {
            let conv = Conv { precision, ..conv };
            let [rx, rw, rdy] =
                [&x, &w, &dy].map(|of| of.iter().map(|&x| precision.round(x)).collect::<Vec<_>>());
            let expected = plain(&conv, &rx, &rw, &rdy);
            let what = |pass: &str| format!("{pass} of {conv:?} at {level:?}");
            let mut y = vec![f32::NAN; conv.output_len()];
            conv.forward_at(level, &x, &w, None, false, &mut y);
            near(&what("y"), &y, &expected.y);
            let mut biased = vec![f32::NAN; conv.output_len()];
            conv.forward_at(level, &x, &w, Some(&bias), true, &mut biased);
            for (i, (&got, &y)) in biased.iter().zip(&y).enumerate() {
                assert_eq!(got, (y + bias[i % bias.len()]).max(0.0), "{}", what("bias"));
            }
            let mut dx = vec![f32::NAN; x.len()];
            conv.input_gradient_at(level, &dy, &w, &mut dx);
            near(&what("dx"), &dx, &expected.dx);
            let mut dw = vec![f32::NAN; w.len()];
            conv.weight_gradient_at(level, &x, &dy, &mut dw);
            near(&what("dw"), &dw, &expected.dw);
        }
        let mut db = vec![f32::NAN; conv.out_channels];
        conv.bias_gradient(&dy, &mut db);
        near("db", &db, &plain(&conv, &x, &w, &dy).db);
    }

    fn conv(
        [batch, high, wide, in_channels]: [usize; 4],
        out_channels: usize,
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
    ) -> Conv {
        Conv {
            batch,
            input: [high, wide],
            in_channels,
            out_channels,
            kernel,
            stride,
            padding,
            precision: Precision::F32,
        }
    }

    #[test]
    fn equals_the_plain_sums() {
        check(conv([1, 1, 1, 1], 1, [1, 1], [1, 1], [0, 0]));
        check(conv([2, 9, 7, 3], 5, [3, 3], [1, 1], [1, 1]));
        check(conv([2, 13, 11, 3], 17, [11, 11], [4, 4], [2, 2]));
        check(conv([1, 15, 14, 3], 33, [7, 7], [2, 2], [3, 3]));
        check(conv([2, 6, 9, 20], 18, [5, 5], [1, 1], [2, 2]));
        check(conv([3, 7, 8, 34], 40, [3, 3], [2, 2], [1, 1]));
        check(conv([2, 5, 6, 37], 70, [1, 1], [1, 1], [0, 0]));
        check(conv([2, 7, 8, 19], 6, [1, 1], [2, 2], [0, 0]));
        check(conv([2, 8, 5, 4], 3, [2, 3], [3, 1], [0, 2]));
        check(conv([1, 5, 5, 300], 7, [3, 3], [1, 1], [1, 1]));
        // By lines; the last in several strips of them.
        check(conv([2, 9, 17, 16], 48, [3, 3], [1, 1], [1, 1]));
        check(conv([3, 5, 6, 32], 16, [1, 2], [1, 1], [0, 1]));
        check(conv([2, 6, 5, 64], 64, [5, 4], [1, 1], [0, 3]));
        check(conv([2, 40, 33, 16], 16, [3, 3], [1, 1], [2, 0]));
        check(conv([2, 75, 34, 32], 32, [2, 3], [1, 1], [0, 1]));
        check(conv([2, 3, 3, 2], 2, [1, 1], [1, 1], [2, 1]));
    }

    #[test]
    fn leaves_out_taps_outside_small_images() {
        check(conv([17, 2, 2, 16], 33, [3, 3], [1, 1], [1, 1]));
        check(conv([130, 4, 3, 24], 20, [3, 3], [1, 1], [1, 1]));
        check(conv([64, 5, 4, 10], 12, [3, 3], [2, 2], [1, 1]));
        check(conv([300, 1, 2, 5], 4, [3, 3], [1, 1], [1, 1]));
        check(conv([64, 1, 1, 8], 4, [3, 3], [1, 1], [3, 3]));
    }

    #[test]
    fn odd_shapes() {
        let mut random = numbers(10_000, 9)
            .into_iter()
            .map(|x| ((x + 1.0) * 500.0) as usize);
        let mut pick = |from: usize, to: usize| from + random.next().unwrap() % (to - from + 1);
        for _ in 0..40 {
            let kernel = [pick(1, 5), pick(1, 5)];
            check(conv(
                [pick(1, 20), pick(5, 10), pick(5, 9), pick(1, 40)],
                pick(1, 50),
                kernel,
                [pick(1, 3), pick(1, 3)],
                [pick(0, kernel[0] - 1), pick(0, kernel[1] - 1)],
            ));
        }
    }
}
