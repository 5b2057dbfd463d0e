//! The sources of a product's operands.

use std::ops::Range;

use crate::matrix::Matrix;
use crate::simd::{Kernel, Simd, run};

/// A matrix that blocks can be copied out of; it need not exist in memory as a whole.
pub(crate) trait BlockSource: Sync {
    fn rows(&self) -> usize;
    fn cols(&self) -> usize;

    /// Copies a block; its rows are `stride` apart in `to`. The gaps between rows are undefined.
    fn copy(
        &self,
        level: Simd,
        rows: Range<usize>,
        cols: Range<usize>,
        to: &mut [f32],
        stride: usize,
    );

    /// Whether every number of a block is known to be 0, so it may be skipped.
    fn is_zero(&self, _rows: Range<usize>, _cols: Range<usize>) -> bool {
        false
    }

    /// Blocks with a multiple of this many rows are more often zero.
    fn unit(&self) -> usize {
        1
    }

    /// The numbers themselves and the distance between rows, if rows are contiguous in memory.
    fn direct(&self) -> Option<(&[f32], usize)> {
        None
    }
}

impl BlockSource for Matrix<'_> {
    fn rows(&self) -> usize {
        Matrix::rows(self)
    }

    fn cols(&self) -> usize {
        Matrix::cols(self)
    }

    fn copy(
        &self,
        level: Simd,
        rows: Range<usize>,
        cols: Range<usize>,
        to: &mut [f32],
        stride: usize,
    ) {
        run(level, CopyMatrix(*self, rows, cols, to, stride));
    }

    fn direct(&self) -> Option<(&[f32], usize)> {
        (self.col_stride() == 1).then_some((self.data(), self.row_stride()))
    }
}

struct CopyMatrix<'a>(Matrix<'a>, Range<usize>, Range<usize>, &'a mut [f32], usize);

impl Kernel for CopyMatrix<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let CopyMatrix(from, rows, cols, to, stride) = self;
        if rows.is_empty() || cols.is_empty() {
            return;
        }
        let (down, right) = (from.row_stride(), from.col_stride());
        let data = &from.data()[rows.start * down + cols.start * right..];
        let (rows, cols) = (rows.len(), cols.len());
        if right == 1 {
            for i in 0..rows {
                copy_run(&data[i * down..][..cols], &mut to[i * stride..][..cols]);
            }
            return;
        }
        // Square by square, so that lines are still in the cache when their other numbers are wanted.
        const SIDE: usize = 16;
        for i in (0..rows).step_by(SIDE) {
            for j in (0..cols).step_by(SIDE) {
                let (high, wide) = (SIDE.min(rows - i), SIDE.min(cols - j));
                if down == 1 && high == SIDE && wide == SIDE {
                    let mut square = [[0.0f32; SIDE]; SIDE];
                    for (y, line) in square.iter_mut().enumerate() {
                        line.copy_from_slice(&data[i + (j + y) * right..][..SIDE]);
                    }
                    for x in 0..SIDE {
                        let line: &mut [f32; SIDE] = (&mut to[(i + x) * stride + j..][..SIDE])
                            .try_into()
                            .unwrap();
                        for y in 0..SIDE {
                            line[y] = square[y][x];
                        }
                    }
                } else {
                    for x in 0..high {
                        for y in 0..wide {
                            to[(i + x) * stride + j + y] = data[(i + x) * down + (j + y) * right];
                        }
                    }
                }
            }
        }
    }
}

/// `to.copy_from_slice(from)` without a call, for runs of a few vectors. A rest shorter than a vector is copied
/// together with numbers before it, once more.
#[inline(always)]
pub(crate) fn copy_run(from: &[f32], to: &mut [f32]) {
    let n = from.len();
    assert_eq!(n, to.len());
    if n >= 16 {
        for (to, from) in to
            .as_chunks_mut::<16>()
            .0
            .iter_mut()
            .zip(from.as_chunks::<16>().0)
        {
            *to = *from;
        }
        if !n.is_multiple_of(16) {
            copy_ends::<16>(from, to);
        }
    } else if n >= 8 {
        copy_ends::<8>(from, to);
    } else if n >= 4 {
        copy_ends::<4>(from, to);
    } else if n >= 2 {
        copy_ends::<2>(from, to);
    } else if n == 1 {
        to[0] = from[0];
    }
}

/// Copies the first and the last `N` numbers.
#[inline(always)]
fn copy_ends<const N: usize>(from: &[f32], to: &mut [f32]) {
    if let (Some(from), Some(to)) = (from.first_chunk::<N>(), to.first_chunk_mut::<N>()) {
        *to = *from;
    }
    if let (Some(from), Some(to)) = (from.last_chunk::<N>(), to.last_chunk_mut::<N>()) {
        *to = *from;
    }
}
