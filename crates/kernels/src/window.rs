//! The matrix that a convolution multiplies by, never laid out in memory: a row for each output pixel, with the
//! numbers of the image that its kernel covers.

use std::ops::Range;

use crate::simd::{Kernel, Simd, run};
use crate::source::{Source, copy_run};

/// Where a kernel lies on one axis of an image: output pixel o, tap t covers input pixel o·stride − padding + t.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) taps: usize,
    pub(crate) stride: usize,
    /// Negative where the first pixels are left out.
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
/// Rows are in the order \[batch, height, width\], or \[height, width, batch\] where `batch_inside`: then long runs of
/// rows have the same position, and taps that lie outside the image for all of them need no multiplication.
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

    fn next(&self, (b, y, x): (usize, usize, usize)) -> (usize, usize, usize) {
        if self.batch_inside && b + 1 < self.batch {
            return (b + 1, y, x);
        }
        let b = if self.batch_inside { 0 } else { b };
        if x + 1 < self.x.output {
            (b, y, x + 1)
        } else if y + 1 < self.y.output {
            (b, y + 1, 0)
        } else {
            (b + 1, 0, 0)
        }
    }
}

impl Source for Window<'_> {
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
        // What the taps of one line cover lies side by side in the image.
        let taps = cols.start / line..(cols.end - 1) / line + 1;
        let mut position = window.position(rows.start);
        for to in to.chunks_mut(stride).take(rows.len()) {
            let (b, oy, ox) = position;
            let (top, left) = (y.first(oy), x.first(ox) * window.channels as isize);
            let mut rest = &mut to[..cols.len()];
            let mut from = cols.start - taps.start * line;
            for tap in taps.clone() {
                let (to, after) = rest.split_at_mut(rest.len().min(line - from));
                let (iy, begin) = (top + tap as isize, left + from as isize);
                if iy < 0 || iy >= y.input as isize {
                    to.fill(0.0);
                } else {
                    let image = (b * y.input + iy as usize) * input_line;
                    let image = &window.image[image..image + input_line];
                    match image.get(begin as usize..(begin as usize).wrapping_add(to.len())) {
                        Some(run) => copy_run(run, to),
                        None => copy_inside(image, begin, to),
                    }
                }
                rest = after;
                from = 0;
            }
            position = window.next(position);
        }
    }
}

/// Copies a run that begins `begin` numbers into `image`, with zeros for what lies outside.
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
