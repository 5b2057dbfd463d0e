//! Convolutions of few channels: windows are read in place.
//!
//! `product` copies the window of every pixel, each number once for each tap. With few channels that takes about as
//! long as the multiplications. Here a strip of lines is copied once, with zeros around it. The numbers under one line
//! of taps are then contiguous, and those of the next pixel begin one pixel's channels further on, so a tile runs over
//! the taps line by line.
//!
//! In bf16 the pairs of the convolution are adjacent channels; those of the weight gradient are pixels one above the
//! other, since its tiles run along lines.

#![allow(unsafe_code)]

use std::ops::Range;

use rayon::prelude::*;

use crate::block_source::BlockSource;
use crate::precision::{Operand, Precision, round_line, round_lines};
use crate::product::{self, Packed, part};
use crate::simd::Simd;
use crate::tile::{self, Tile};
use crate::window::Window;

/// Numbers of a strip, 64 KiB.
const STRIP: usize = 16 << 10;

/// Partial sums of a weight gradient.
const PARTS: usize = 32;

/// Whether a convolution with stride 1 and this many output channels uses lines.
pub(crate) fn fits(window: &Window<'_>, out_channels: usize) -> bool {
    !window.batch_inside
        && window.x.taps > 1
        && tile::STEPS.contains(&window.channels)
        && out_channels.is_multiple_of(16)
}

/// y = window · weights, row by row, then the bias is added and, with `relu`, negative results become 0.
pub(crate) fn multiply(
    level: Simd,
    precision: Precision,
    window: Window<'_>,
    weights: &dyn BlockSource,
    bias: Option<&[f32]>,
    relu: bool,
    y: &mut [f32],
) {
    let pairs = precision.pairs(level);
    let weights = Operand::by_rows(level, precision, weights);
    let packed = Packed::new(level, &weights, weights.rows());
    let channels = window.channels / if pairs { 2 } else { 1 };
    let strips = Strips::new(window);
    let line = strips.line / window.channels * channels;
    let (n, wide) = (packed.n(), window.x.output);
    let offsets: [usize; tile::HIGHEST] = std::array::from_fn(|i| i * n);
    let tiles = wide.div_ceil(tile::height(level));
    let depth = window.x.taps * channels;
    let work = |scratch: &mut Scratch, number: usize, y: &mut [f32]| {
        let (image, lines) = strips.place(number);
        let mut pixels = strips.copy(image, lines, &mut scratch.pixels);
        if precision != Precision::F32 {
            let to = product::aligned(&mut scratch.rounded, pixels.len() / strips.line * line);
            round_line(level, precision, pixels, to);
            pixels = to;
        }
        for (column, narrow) in tile::columns(level, n) {
            let panel = packed.panel(0..packed.k(), column);
            let b_stride = panel.len() / packed.k();
            assert!(column + b_stride <= n);
            for (y_line, y) in y.chunks_exact_mut(wide * n).enumerate() {
                for tile in 0..tiles {
                    let part = part(wide, tile, tiles);
                    let tile = Tile {
                        depth,
                        lines: window.y.taps,
                        pairs,
                        a: &pixels[y_line * line + part.start * channels..],
                        a_row: channels,
                        a_column: 1,
                        a_line: line,
                        b: panel,
                        b_stride,
                        b_line: depth * b_stride,
                        narrow,
                        c: y[part.start * n + column..part.end * n].as_mut_ptr(),
                        rows: &offsets[..part.len()],
                        add: false,
                        bias: bias.map(|bias| &bias[column..]),
                        relu,
                    };
                    // SAFETY: row i of the tile is inside pixel i of the part, and the n numbers of a pixel hold all
                    // columns of the tile, as just asserted; y is borrowed mutably.
                    unsafe { tile::multiply(level, &tile) };
                }
            }
        }
    };
    let image = window.y.output * wide * n;
    let strip = strips.high * wide * n;
    y.par_chunks_mut(image.max(1))
        .enumerate()
        .flat_map(|(image, y)| {
            let first = image * strips.an_image;
            let parts = y.par_chunks_mut(strip).enumerate();
            parts.map(move |(strip, y)| (first + strip, y))
        })
        .for_each_init(Scratch::default, |scratch, (number, y)| {
            work(scratch, number, y)
        });
}

/// dw = dyᵀ · window. `dy` \[pixels, out\], `dw` \[out, taps × channels\].
pub(crate) fn weight_gradient(
    level: Simd,
    precision: Precision,
    window: Window<'_>,
    dy: &[f32],
    dw: &mut [f32],
) {
    let pairs = precision.pairs(level);
    // Lines of the output in a line of pairs.
    let each = if pairs { 2 } else { 1 };
    let strips = Strips::new(window);
    let (cols, wide) = (window.cols(), window.x.output);
    let out = dw.len() / cols;
    let taps = window.x.taps * window.channels;
    let tiles = out.div_ceil(tile::height(level));
    let a_part = strips.count().div_ceil(PARTS).max(1);
    let sum = |scratch: &mut Scratch, numbers: Range<usize>, dw: &mut [f32]| {
        for number in numbers.clone() {
            let (image, lines) = strips.place(number);
            let mut pixels = strips.copy(image, lines.clone(), &mut scratch.pixels);
            let dy = &dy[(image * window.y.output + lines.start) * wide * out..];
            let mut dy = &dy[..lines.len() * wide * out];
            if precision != Precision::F32 {
                let to = product::aligned(&mut scratch.rounded, pixels.len());
                round_lines(level, precision, pixels, strips.line, 1, to);
                pixels = to;
                let lines = lines.len().div_ceil(each);
                let to = product::aligned(&mut scratch.gradient, lines * wide * out);
                round_lines(level, precision, dy, wide * out, each, to);
                dy = to;
            }
            for tap in 0..window.y.taps {
                for tile in 0..tiles {
                    let part = part(out, tile, tiles);
                    let offsets: [usize; tile::HIGHEST] =
                        std::array::from_fn(|i| (part.start + i) * cols + tap * taps);
                    for (column, narrow) in tile::columns(level, taps) {
                        let tile = Tile {
                            depth: wide,
                            lines: lines.len().div_ceil(each),
                            pairs,
                            a: &dy[part.start..],
                            a_row: 1,
                            a_column: out,
                            a_line: wide * out,
                            b: &pixels[tap * strips.line + column..],
                            b_stride: window.channels,
                            b_line: each * strips.line,
                            narrow,
                            c: dw[column..].as_mut_ptr(),
                            rows: &offsets[..part.len()],
                            add: number > numbers.start,
                            bias: None,
                            relu: false,
                        };
                        // SAFETY: rows and columns of the tile are inside dw, which is borrowed mutably: columns of a
                        // tap come in whole narrow tiles, since channels are a multiple of their width.
                        unsafe { tile::multiply(level, &tile) };
                    }
                }
            }
        }
    };
    let (parts, len) = (strips.count().div_ceil(a_part), dw.len());
    product::sum_of_parts(parts, dw, |sums| {
        let sums = sums.par_chunks_mut(len).enumerate();
        sums.for_each_init(Scratch::default, |scratch, (part, dw)| {
            let numbers = part * a_part..((part + 1) * a_part).min(strips.count());
            sum(scratch, numbers, dw);
        });
    });
}

/// Room for a strip.
#[derive(Default)]
struct Scratch {
    pixels: Vec<f32>,
    /// The same in bf16.
    rounded: Vec<f32>,
    gradient: Vec<f32>,
}

/// The output in strips of lines.
struct Strips<'a> {
    window: Window<'a>,
    /// Output lines of a strip; the last of an image may have fewer.
    high: usize,
    /// Strips of an image.
    an_image: usize,
    /// Numbers of a line of the input, with the zeros around it.
    line: usize,
}

impl Strips<'_> {
    fn new(window: Window<'_>) -> Strips<'_> {
        let (y, x) = (window.y, window.x);
        let line = (x.output + x.taps - 1) * window.channels;
        let most = (STRIP / line).saturating_sub(y.taps - 1).max(1);
        let high = y.output.div_ceil(y.output.div_ceil(most));
        Strips {
            window,
            high,
            an_image: y.output.div_ceil(high),
            line,
        }
    }

    fn count(&self) -> usize {
        self.window.batch * self.an_image
    }

    /// The image of a strip, and its lines of the output.
    fn place(&self, number: usize) -> (usize, Range<usize>) {
        let (image, strip) = (number / self.an_image, number % self.an_image);
        let start = strip * self.high;
        (image, start..(start + self.high).min(self.window.y.output))
    }

    /// Copies the input of some output lines.
    fn copy<'s>(&self, image: usize, lines: Range<usize>, scratch: &'s mut Vec<f32>) -> &'s [f32] {
        let high = lines.len() + self.window.y.taps - 1;
        let to = product::aligned(scratch, high * self.line);
        for (i, to) in to.chunks_exact_mut(self.line).enumerate() {
            self.window.copy_line(image, lines.start + i, to);
        }
        to
    }
}
