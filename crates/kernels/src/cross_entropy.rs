//! Softmax and cross-entropy in one pass over blocks of rows.
//!
//! loss of a row = (1 − s)·(lse − x_t) + s·(lse − mean x), lse = log Σ e^x, s the label smoothing; its gradient by x_j
//! is p_j − s/v − (1 − s)·\[j = t\]. A row of 10 000 classes stays in the first-level cache between its maximum, its
//! exponentials and its gradient, so memory sees each logit read once and its gradient written once, in place. The
//! alternative, log-softmax and then its backward, moves five times as much.

use rayon::prelude::*;

use crate::math::{exp, normal};
use crate::simd::{self, Kernel, Simd};
use crate::sums;

/// The right class of each row.
#[derive(Clone, Copy, Debug)]
pub enum Targets<'a> {
    /// As PyTorch has them.
    I64(&'a [i64]),
    /// As a vocabulary has them.
    U32(&'a [u32]),
}

impl Targets<'_> {
    fn len(&self) -> usize {
        match self {
            Targets::I64(t) => t.len(),
            Targets::U32(t) => t.len(),
        }
    }

    #[inline(always)]
    fn at(&self, row: usize) -> i64 {
        match self {
            Targets::I64(t) => t[row],
            Targets::U32(t) => i64::from(t[row]),
        }
    }
}

/// Factor on the gradient of each row's loss.
#[derive(Clone, Copy, Debug)]
pub enum Upstream<'a> {
    /// The loss is the sum over counted rows, times this.
    Sum(f32),
    /// The loss is the mean over counted rows, times this.
    Mean(f32),
    /// A factor for each row.
    Rows(&'a [f32]),
}

/// Cross-entropy of `logits` \[n, classes\] against `targets` \[n\].
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'a> {
    /// Numbers in a row of logits.
    pub classes: usize,
    /// The right class of each row, below `classes`.
    pub targets: Targets<'a>,
    /// A row with this target does not count: no loss, a gradient of zeros.
    pub ignore: Option<i64>,
    /// Share of the target spread evenly over all classes.
    pub smoothing: f32,
    /// Added to every row of logits.
    pub bias: Option<&'a [f32]>,
}

/// Losses of many rows together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// Sum over counted rows.
    pub sum: f64,
    /// Rows counted.
    pub count: usize,
    /// Counted rows with the target as the first largest logit.
    pub correct: usize,
}

impl Loss {
    /// Mean over counted rows; NaN if there are none, as in PyTorch.
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    fn plus(self, other: Loss) -> Loss {
        Loss {
            sum: self.sum + other.sum,
            count: self.count + other.count,
            correct: self.correct + other.correct,
        }
    }
}

impl CrossEntropy<'_> {
    /// Only losses; `logits` are unchanged. `rows` \[n\], if given, gets the loss of each row.
    ///
    /// Panics if sizes do not fit or a counted target is not a class; so does `gradient`.
    pub fn loss(&self, logits: &[f32], rows: Option<&mut [f32]>) -> Loss {
        self.loss_at(Simd::current(), logits, rows)
    }

    pub(crate) fn loss_at(&self, level: Simd, logits: &[f32], rows: Option<&mut [f32]>) -> Loss {
        self.check(logits.len());
        let each = sums::rows_each(self.targets.len());
        let block = each * self.classes;
        let parts: Vec<Loss> = with_rows(logits.par_chunks(block), rows, each)
            .enumerate()
            .map_init(
                || vec![0.0; self.classes],
                |scratch, (i, (logits, rows))| {
                    let kernel = LossOfRows(self, i * each, logits, scratch, rows);
                    simd::run(level, kernel)
                },
            )
            .collect();
        parts.into_iter().fold(Loss::default(), Loss::plus)
    }

    /// Losses; replaces `logits` by their gradient times `upstream`.
    ///
    /// `bias_gradient` \[classes\], if given, gets the sum of the gradient's rows; `rows` \[n\], if
    /// given, gets the loss of each row (before `upstream`).
    pub fn gradient(
        &self,
        logits: &mut [f32],
        upstream: Upstream<'_>,
        bias_gradient: Option<&mut [f32]>,
        rows: Option<&mut [f32]>,
    ) -> Loss {
        self.gradient_at(Simd::current(), logits, upstream, bias_gradient, rows)
    }

    pub(crate) fn gradient_at(
        &self,
        level: Simd,
        logits: &mut [f32],
        upstream: Upstream<'_>,
        bias_gradient: Option<&mut [f32]>,
        rows: Option<&mut [f32]>,
    ) -> Loss {
        self.check(logits.len());
        let n = self.targets.len();
        let upstream = match upstream {
            Upstream::Mean(g) => {
                let counted = (0..n).filter(|&row| !self.ignored(row)).count();
                Upstream::Sum(g / counted.max(1) as f32)
            }
            Upstream::Rows(g) => {
                assert_eq!(g.len(), n, "upstream gradients and targets");
                upstream
            }
            Upstream::Sum(_) => upstream,
        };
        let each = sums::rows_each(n);
        let blocks = n.div_ceil(each);
        // One row of sums for each block, added up in their order afterwards.
        let width = bias_gradient.as_ref().map_or(0, |_| self.classes);
        let mut sums = vec![0.0; blocks * width];
        let mut sums_of: Vec<&mut [f32]> = match width {
            0 => (0..blocks).map(|_| Default::default()).collect(),
            _ => sums.chunks_exact_mut(width).collect(),
        };
        let block = each * self.classes;
        let parts: Vec<Loss> = with_rows(logits.par_chunks_mut(block), rows, each)
            .zip(sums_of.par_iter_mut())
            .enumerate()
            .map(|(i, ((logits, rows), sums))| {
                let kernel = GradientOfRows {
                    of: self,
                    first: i * each,
                    logits,
                    upstream,
                    sums,
                    rows,
                };
                simd::run(level, kernel)
            })
            .collect();
        if let Some(total) = bias_gradient {
            crate::sums::over_rows(&sums, total);
        }
        parts.into_iter().fold(Loss::default(), Loss::plus)
    }

    fn check(&self, logits: usize) {
        assert!(self.classes > 0, "no classes");
        let n = self.targets.len();
        assert_eq!(logits, n * self.classes, "logits and targets");
        if let Some(bias) = self.bias {
            assert_eq!(bias.len(), self.classes, "bias and classes");
        }
    }

    #[inline(always)]
    fn ignored(&self, row: usize) -> bool {
        self.ignore == Some(self.targets.at(row))
    }

    /// The loss of a row that counts; `x` becomes e^(x − max); returns its sum too.
    #[inline(always)]
    fn exponentials(&self, row: usize, x: &mut [f32]) -> (f64, bool, f32) {
        let target = self.targets.at(row);
        assert!(
            (0..self.classes as i64).contains(&target),
            "target {target} of row {row} is not one of {} classes",
            self.classes
        );
        let target = target as usize;
        if let Some(bias) = self.bias {
            for (x, b) in x.iter_mut().zip(bias) {
                *x += b;
            }
        }
        let max = sums::max(x);
        let right = x[target];
        let mean = match self.smoothing {
            0.0 => 0.0,
            _ => f64::from(sums::sum(x)) / x.len() as f64,
        };
        let correct = right == max && x[..target].iter().all(|&x| x < max);
        for x in x.iter_mut() {
            *x = exp(*x - max);
        }
        let total = sums::sum(x);
        let lse = f64::from(max) + f64::from(total).ln();
        let smoothing = f64::from(self.smoothing);
        let mut loss = (1.0 - smoothing) * (lse - f64::from(right));
        if smoothing != 0.0 {
            loss += smoothing * (lse - mean);
        }
        (loss, correct, total)
    }
}

/// Chunks of logits, each with its chunk of `rows`, empty if `rows` is `None`.
fn with_rows<C>(
    chunks: C,
    rows: Option<&mut [f32]>,
    each: usize,
) -> rayon::iter::Zip<C, rayon::vec::IntoIter<&mut [f32]>>
where
    C: IndexedParallelIterator,
{
    let rows: Vec<&mut [f32]> = match rows {
        Some(rows) => rows.chunks_mut(each).collect(),
        None => (0..chunks.len()).map(|_| Default::default()).collect(),
    };
    chunks.zip(rows)
}

struct LossOfRows<'a>(
    &'a CrossEntropy<'a>,
    usize,
    &'a [f32],
    &'a mut [f32],
    &'a mut [f32],
);

impl Kernel for LossOfRows<'_> {
    type Output = Loss;

    #[inline(always)]
    fn run(self) -> Loss {
        let LossOfRows(of, first, logits, scratch, rows) = self;
        let mut all = Loss::default();
        for (i, x) in logits.chunks_exact(of.classes).enumerate() {
            let mut loss = 0.0;
            if !of.ignored(first + i) {
                scratch.copy_from_slice(x);
                let (l, correct, _) = of.exponentials(first + i, scratch);
                loss = l;
                all.sum += l;
                all.count += 1;
                all.correct += usize::from(correct);
            }
            if let Some(row) = rows.get_mut(i) {
                *row = loss as f32;
            }
        }
        all
    }
}

struct GradientOfRows<'a> {
    of: &'a CrossEntropy<'a>,
    first: usize,
    logits: &'a mut [f32],
    upstream: Upstream<'a>,
    sums: &'a mut [f32],
    rows: &'a mut [f32],
}

impl Kernel for GradientOfRows<'_> {
    type Output = Loss;

    #[inline(always)]
    fn run(self) -> Loss {
        let of = self.of;
        let mut all = Loss::default();
        for (i, x) in self.logits.chunks_exact_mut(of.classes).enumerate() {
            let row = self.first + i;
            let mut loss = 0.0;
            if of.ignored(row) {
                x.fill(0.0);
            } else {
                let (l, correct, total) = of.exponentials(row, x);
                loss = l;
                all.sum += l;
                all.count += 1;
                all.correct += usize::from(correct);
                let g = match self.upstream {
                    Upstream::Rows(g) => g[row],
                    Upstream::Sum(g) | Upstream::Mean(g) => g,
                };
                let scale = g / total;
                let shared = g * of.smoothing / of.classes as f32;
                let own = g * (1.0 - of.smoothing);
                let target = of.targets.at(row) as usize;
                if self.sums.is_empty() {
                    for x in x.iter_mut() {
                        *x = normal(*x * scale - shared);
                    }
                } else {
                    for (x, sum) in x.iter_mut().zip(self.sums.iter_mut()) {
                        *x = normal(*x * scale - shared);
                        *sum += *x;
                    }
                    self.sums[target] -= own;
                }
                x[target] -= own;
            }
            if let Some(row) = self.rows.get_mut(i) {
                *row = loss as f32;
            }
        }
        all
    }
}
