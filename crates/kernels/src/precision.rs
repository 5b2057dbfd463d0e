//! Operands of products in bf16: 8 bits of an f32's 24, rounded to nearest, ties to even, while blocks are copied.
//!
//! AVX-512 multiplies pairs that are adjacent along k (`vdpbf16ps`), twice as many numbers an instruction as of f32. A
//! pair takes the room of one f32, so the rest of a product is unchanged, with half as many numbers along k. Other
//! levels multiply the rounded numbers as f32: equal operands at the speed of f32.

use std::ops::Range;

use crate::block_source::BlockSource;
use crate::simd::{Kernel, Simd, run};

pelton_key::names! {
    /// The format that the operands of a product are rounded to. Its sums are f32.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Precision: "a precision" {
        /// No rounding: they are f32.
        #[default]
        F32 = "f32",
        /// bfloat16: the range of f32 and 8 bits. Numbers below 1.2e-38 may count as 0.
        Bf16 = "bf16",
    }
}

impl Precision {
    /// `x` as products take it.
    #[inline]
    pub fn round(self, x: f32) -> f32 {
        match self {
            Precision::F32 => x,
            Precision::Bf16 => f32::from_bits(rounded(x)),
        }
    }

    /// Whether products of this precision are faster than those of f32 here.
    pub fn is_fast(self) -> bool {
        self.pairs(Simd::current())
    }

    /// Whether products take pairs.
    pub(crate) fn pairs(self, level: Simd) -> bool {
        self == Precision::Bf16 && level.has_bf16()
    }
}

/// The form of an operand's numbers.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Single,
    Rounded,
    /// Each is two rounded numbers of adjacent rows, the first in the lower half of its bits.
    PairsOfRows,
    /// The same of adjacent columns.
    PairsOfColumns,
}

impl Form {
    /// `pairs` if products take them, else single numbers.
    fn of(level: Simd, precision: Precision, pairs: Form) -> Form {
        match precision {
            Precision::F32 => Form::Single,
            Precision::Bf16 if precision.pairs(level) => pairs,
            Precision::Bf16 => Form::Rounded,
        }
    }
}

/// An operand as tiles multiply it.
pub(crate) struct Operand<'a> {
    source: &'a dyn BlockSource,
    form: Form,
}

impl<'a> Operand<'a> {
    /// An operand with rows along k.
    pub(crate) fn by_rows(
        level: Simd,
        precision: Precision,
        source: &'a dyn BlockSource,
    ) -> Operand<'a> {
        Operand::new(level, precision, source, Form::PairsOfRows)
    }

    /// An operand with columns along k.
    pub(crate) fn by_columns(
        level: Simd,
        precision: Precision,
        source: &'a dyn BlockSource,
    ) -> Operand<'a> {
        Operand::new(level, precision, source, Form::PairsOfColumns)
    }

    fn new(
        level: Simd,
        precision: Precision,
        source: &'a dyn BlockSource,
        pairs: Form,
    ) -> Operand<'a> {
        let form = Form::of(level, precision, pairs);
        Operand { source, form }
    }

    /// Numbers of the source in each, down and across.
    fn each(&self) -> [usize; 2] {
        match self.form {
            Form::Single | Form::Rounded => [1, 1],
            Form::PairsOfRows => [2, 1],
            Form::PairsOfColumns => [1, 2],
        }
    }

    /// The same block of the source.
    fn inside(&self, rows: &Range<usize>, cols: &Range<usize>) -> (Range<usize>, Range<usize>) {
        let [high, wide] = self.each();
        let rows = rows.start * high..(rows.end * high).min(self.source.rows());
        (
            rows,
            cols.start * wide..(cols.end * wide).min(self.source.cols()),
        )
    }
}

/// Rows and columns of a block of f32 that is rounded at a time.
const BLOCK: [usize; 2] = [16, 128];

impl BlockSource for Operand<'_> {
    fn rows(&self) -> usize {
        self.source.rows().div_ceil(self.each()[0])
    }

    fn cols(&self) -> usize {
        self.source.cols().div_ceil(self.each()[1])
    }

    fn copy(
        &self,
        level: Simd,
        rows: Range<usize>,
        cols: Range<usize>,
        to: &mut [f32],
        stride: usize,
    ) {
        if self.form == Form::Single {
            return self.source.copy(level, rows, cols, to, stride);
        }
        let ([high, wide], row, col) = (self.each(), rows.start, cols.start);
        let mut round = |rows: Range<usize>, cols: Range<usize>, from: &[f32], apart: usize| {
            let round = Round {
                form: self.form,
                from,
                apart,
                to: &mut to[(rows.start - row) * stride + cols.start - col..],
                stride,
                shape: [rows.len(), cols.len()],
            };
            run(level, round);
        };
        let is_whole =
            rows.end * high <= self.source.rows() && cols.end * wide <= self.source.cols();
        if let Some((data, apart)) = self.source.direct().filter(|_| is_whole) {
            let from = data.get(row * high * apart + col * wide..).unwrap_or(&[]);
            return round(rows, cols, from, apart);
        }
        let mut block = [0.0f32; BLOCK[0] * BLOCK[1]];
        let (tall, long) = (BLOCK[0] / high, BLOCK[1] / wide);
        for row in rows.clone().step_by(tall) {
            for col in cols.clone().step_by(long) {
                let part = row..(row + tall).min(rows.end);
                let cols = col..(col + long).min(cols.end);
                let (from_rows, from_cols) = self.inside(&part, &cols);
                if !is_whole {
                    block.fill(0.0);
                }
                let source = self.source;
                source.copy(level, from_rows, from_cols, &mut block, BLOCK[1]);
                round(part, cols, &block, BLOCK[1]);
            }
        }
    }

    fn is_zero(&self, rows: Range<usize>, cols: Range<usize>) -> bool {
        let (rows, cols) = self.inside(&rows, &cols);
        self.source.is_zero(rows, cols)
    }

    fn unit(&self) -> usize {
        self.source.unit()
    }

    fn direct(&self) -> Option<(&[f32], usize)> {
        let direct = self.source.direct();
        direct.filter(|_| self.form == Form::Single)
    }
}

/// Rounds numbers, in pairs of adjacent ones if products take pairs.
pub(crate) fn round_line(level: Simd, precision: Precision, from: &[f32], to: &mut [f32]) {
    let form = Form::of(level, precision, Form::PairsOfColumns);
    let shape = [1, to.len()];
    run(
        level,
        Round {
            form,
            from,
            apart: 0,
            to,
            stride: 0,
            shape,
        },
    );
}

/// Rounds lines of `len` numbers. If products take pairs, these join a line and the next, or 0 after the last; every
/// `step`-th line starts pairs.
pub(crate) fn round_lines(
    level: Simd,
    precision: Precision,
    from: &[f32],
    len: usize,
    step: usize,
    to: &mut [f32],
) {
    let form = Form::of(level, precision, Form::PairsOfRows);
    for (i, to) in to.chunks_exact_mut(len).enumerate() {
        let rest = &from[i * step * len..];
        let mut last = Vec::new();
        if rest.len() < 2 * len {
            last = rest.to_vec();
            last.resize(2 * len, 0.0);
        }
        let from = if last.is_empty() { rest } else { &last };
        let round = Round {
            form,
            from,
            apart: len,
            to,
            stride: 0,
            shape: [1, len],
        };
        run(level, round);
    }
}

/// Rounds `shape` numbers or pairs.
struct Round<'a> {
    form: Form,
    from: &'a [f32],
    apart: usize,
    to: &'a mut [f32],
    stride: usize,
    shape: [usize; 2],
}

/// The bits of `x` rounded to bf16, which are the upper half of them.
#[inline(always)]
fn rounded(x: f32) -> u32 {
    let bits = x.to_bits();
    let even = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    // NaN stays NaN.
    let bits = if x.is_nan() { bits | 1 << 22 } else { even };
    bits & 0xffff_0000
}

impl Kernel for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let [down, across] = self.shape;
        let pair = |first: f32, second: f32| f32::from_bits(rounded(first) >> 16 | rounded(second));
        for i in 0..down {
            let to = &mut self.to[i * self.stride..][..across];
            match self.form {
                Form::PairsOfRows => {
                    let first = &self.from[2 * i * self.apart..][..across];
                    let second = &self.from[(2 * i + 1) * self.apart..][..across];
                    for ((to, &x), &y) in to.iter_mut().zip(first).zip(second) {
                        *to = pair(x, y);
                    }
                }
                Form::PairsOfColumns => {
                    let from = self.from[i * self.apart..][..2 * across].as_chunks::<2>().0;
                    for (to, &[x, y]) in to.iter_mut().zip(from) {
                        *to = pair(x, y);
                    }
                }
                Form::Single | Form::Rounded => {
                    let from = &self.from[i * self.apart..][..across];
                    for (to, &x) in to.iter_mut().zip(from) {
                        *to = f32::from_bits(rounded(x));
                    }
                }
            }
        }
    }
}
