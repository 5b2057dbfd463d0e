//! The matrix that a convolution multiplies by, never laid out in memory: a row for each output pixel, with the
//! numbers of the image that its kernel covers.

use std::ops::Range;

use crate::block_source::{BlockSource, copy_run};
use crate::simd::{Kernel, Simd, run};

/// The geometry of a kernel on one axis of an image: output pixel o, tap t covers input pixel o·stride − padding + t.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) taps: usize,
    pub(crate) stride: usize,
    /// Negative if the first pixels are left out.
    pub(crate) padding: isize,
}

impl Axis {
    fn first(&self, output: usize) -> isize {
        (output * self.stride) as isize - self.padding
    }

    fn inside(&self, output: usize, tap: usize) -> bool {
        let at = self.first(output) + tap as isize;
        at >= 0 && at < self.input as isize
    }
}

/// Rows: output pixels. Columns: taps from top to bottom, left to right, each with all channels.
///
/// Rows are in the order \[batch, height, width\], or \[height, width, batch\] with `batch_inside`: then long runs of
/// rows have the same position, and taps outside the image for all of them need no multiplication.
#[derive(Clone, Copy)]
pub(crate) struct Window<'a> {
    pub(crate) image: &'a [f32],
    pub(crate) batch: usize,
    pub(crate) channels: usize,
    pub(crate) y: Axis,
    pub(crate) x: Axis,
    pub(crate) batch_inside: bool,
}

impl Window<'_> {
    /// The (batch, y, x) of a row.
    pub(crate) fn position(&self, row: usize) -> (usize, usize, usize) {
        let (high, wide) = (self.y.output, self.x.output);
        if self.batch_inside {
            let (pixel, batch) = (row / self.batch, row % self.batch);
            (batch, pixel / wide, pixel % wide)
        } else {
            (row / (high * wide), row / wide % high, row % wide)
        }
    }

    /// Copies the input under the first line of taps of an output line, at stride 1, without repeats and with zeros
    /// outside the image.
    pub(crate) fn copy_line(&self, image: usize, output: usize, to: &mut [f32]) {
        let line = self.x.input * self.channels;
        let at = usize::try_from(self.y.first(output)).unwrap_or(usize::MAX);
        let from = if at < self.y.input {
            &self.image[(image * self.y.input + at) * line..][..line]
        } else {
            &[]
        };
        copy_inside(from, self.x.first(0) * self.channels as isize, to);
    }
}

impl BlockSource for Window<'_> {
    fn rows(&self) -> usize {
        self.batch * self.y.output * self.x.output
    }

    fn cols(&self) -> usize {
        self.y.taps * self.x.taps * self.channels
    }

    fn copy(
        &self,
        level: Simd,
        rows: Range<usize>,
        cols: Range<usize>,
        to: &mut [f32],
        stride: usize,
    ) {
        run(level, CopyWindow(*self, rows, cols, to, stride));
    }

    fn unit(&self) -> usize {
        if self.batch_inside && self.batch >= 64 {
            self.batch
        } else {
            1
        }
    }

    fn is_zero(&self, rows: Range<usize>, cols: Range<usize>) -> bool {
        if !self.batch_inside || rows.is_empty() || cols.is_empty() {
            return false;
        }
        let pixels = rows.start / self.batch..(rows.end - 1) / self.batch + 1;
        let taps = cols.start / self.channels..(cols.end - 1) / self.channels + 1;
        pixels.into_iter().all(|pixel| {
            let (y, x) = (pixel / self.x.output, pixel % self.x.output);
            taps.clone().all(|tap| {
                !self.y.inside(y, tap / self.x.taps) || !self.x.inside(x, tap % self.x.taps)
            })
        })
    }
}

struct CopyWindow<'a>(Window<'a>, Range<usize>, Range<usize>, &'a mut [f32], usize);

impl Kernel for CopyWindow<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let CopyWindow(window, rows, cols, to, stride) = self;
        let (y, x) = (window.y, window.x);
        let line = x.taps * window.channels;
        let input_line = x.input * window.channels;
        if cols.is_empty() {
            return;
        }
        // The input under one line of taps is contiguous in the image.
        let taps = cols.start / line..(cols.end - 1) / line + 1;
        let mut row = rows.start;
        while row < rows.end {
            // Pixels of one line of the output, which are copied tap by tap.
            let (b, oy, ox) = window.position(row);
            let line_end = if window.batch_inside {
                1
            } else {
                x.output - ox
            };
            let count = line_end.min(rows.end - row);
            let to = &mut to[(row - rows.start) * stride..];
            let left = x.first(ox) * window.channels as isize;
            let step = (x.stride * window.channels) as isize;
            let mut column = 0;
            for tap in taps.clone() {
                let from = (cols.start + column) - tap * line;
                let length = (line - from).min(cols.len() - column);
                let iy = y.first(oy) + tap as isize;
                let inside = iy >= 0 && iy < y.input as isize;
                let image = if inside {
                    let at = (b * y.input + iy as usize) * input_line;
                    &window.image[at..at + input_line]
                } else {
                    &[]
                };
                copy_line(
                    image,
                    left + from as isize,
                    step,
                    &mut to[column..],
                    stride,
                    length,
                    count,
                );
                column += length;
            }
            row += count;
        }
    }
}

/// Copies `count` runs that begin `step` apart in `image`, and `stride` apart in `to`.
#[inline(always)]
fn copy_line(
    image: &[f32],
    begin: isize,
    step: isize,
    to: &mut [f32],
    stride: usize,
    length: usize,
    count: usize,
) {
    // A length that is known in advance needs no loop.
    match length {
        48 => copy_runs(image, begin, step, to, stride, 48, count),
        96 => copy_runs(image, begin, step, to, stride, 96, count),
        _ => copy_runs(image, begin, step, to, stride, length, count),
    }
}

#[inline(always)]
fn copy_runs(
    image: &[f32],
    begin: isize,
    step: isize,
    to: &mut [f32],
    stride: usize,
    length: usize,
    count: usize,
) {
    for (i, to) in to.chunks_mut(stride).take(count).enumerate() {
        let to = &mut to[..length];
        let begin = begin + i as isize * step;
        match image.get(begin as usize..(begin as usize).wrapping_add(length)) {
            Some(run) => copy_run(run, to),
            None => copy_inside(image, begin, to),
        }
    }
}

/// Copies a run that starts `begin` numbers into `image`, with zeros outside.
#[inline(always)]
fn copy_inside(image: &[f32], begin: isize, to: &mut [f32]) {
    let before = begin.min(0).unsigned_abs().min(to.len());
    let (left, rest) = to.split_at_mut(before);
    let begin = begin.max(0) as usize;
    let inside = image.len().saturating_sub(begin).min(rest.len());
    let (middle, right) = rest.split_at_mut(inside);
    left.fill(0.0);
    if inside > 0 {
        copy_run(&image[begin..begin + inside], middle);
    }
    right.fill(0.0);
}
