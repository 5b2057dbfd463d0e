//! Small products with operands in cache, on the caller's thread, using the tiles of large products.
#![allow(unsafe_code)]

use crate::simd::Simd;
use crate::tile::{self, ROW, Tile};

pub(crate) use crate::tile::DEPTH;

/// Distance between rows of a row-major left operand; see [`Block::a_stride`].
pub const LEFT_ROW: usize = ROW;

/// A product of an \[m, depth\] matrix `a` with a \[depth, n\] matrix `b`.
pub struct Block<'a> {
    pub level: Simd,
    /// Length of the sums; at most [`DEPTH`] if `a` is row-major.
    pub depth: usize,
    pub a: &'a [f32],
    /// None: element (i, p) of `a` is at `i·LEFT_ROW + p`; else at `p·a_stride + i`.
    pub a_stride: Option<usize>,
    /// Element (p, j) is at `p·b_stride + j`.
    pub b: &'a [f32],
    pub b_stride: usize,
}

/// `n` rounded up to the columns that `Block::multiply` writes.
pub fn columns(level: Simd, n: usize) -> usize {
    n.next_multiple_of(tile::width(level) / 2)
}

impl Block<'_> {
    /// c = a·b, or += with `add`: `m` rows of `n` columns, `n` as `columns` rounds it. Panics if an operand is too
    /// short.
    pub fn multiply(&self, m: usize, n: usize, c: &mut [f32], c_stride: usize, add: bool) {
        if m == 0 || n == 0 {
            return;
        }
        assert_eq!(n, columns(self.level, n), "columns of a block");
        assert!(n <= c_stride && (m - 1) * c_stride + n <= c.len());
        let (height, width) = (tile::height(self.level), tile::width(self.level));
        // Equal heights: a last tile of one or two rows would take as long as one of five.
        let high = m.div_ceil(m.div_ceil(height));
        for column in (0..n).step_by(width) {
            for first in (0..m).step_by(high) {
                let count = high.min(m - first);
                let mut rows = [0; 16];
                for (i, row) in rows[..count].iter_mut().enumerate() {
                    *row = (first + i) * c_stride;
                }
                let step = if self.a_stride.is_some() { 1 } else { ROW };
                let tile = Tile {
                    depth: self.depth,
                    a: self.a.get(first * step..).unwrap_or_default(),
                    lines: 1,
                    pairs: false,
                    a_row: step,
                    a_column: self.a_stride.unwrap_or(1),
                    a_line: 0,
                    b: self.b.get(column..).unwrap_or_default(),
                    b_line: 0,
                    b_stride: self.b_stride,
                    narrow: n - column < width,
                    c: c[column..].as_mut_ptr(),
                    rows: &rows[..count],
                    add,
                    bias: None,
                    relu: false,
                };
                // SAFETY: rows and columns are inside `c`, as asserted above, and `c` is borrowed for writing.
                unsafe { tile::multiply(self.level, &tile) };
            }
        }
    }
}
