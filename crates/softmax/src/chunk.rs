//! Loops over a chunk of classes: products are \[classes, batch\], so that the numbers side by side belong to
//! different examples and no sum runs across a vector.

use pelton_kernels::math::{exp, normal};
use pelton_kernels::simd::{self, Kernel, Simd};
use pelton_kernels::sums::dot;
use rayon::prelude::*;

use crate::rows::Factors;

/// Lengths below this count as this, so that zeros have a direction; as PyTorch's `normalize` has it.
const SHORTEST: f32 = 1e-12;

/// Classes that a task takes.
const EACH: usize = 32;

/// Writes rows of length 1 to `unit` and one over the lengths they had to `inverse`.
///
/// `row(i)` is the i-th row, for each entry of `inverse`. With `is_cosine` false they are copied as they are.
pub(crate) fn unit_rows<'a>(
    row: impl Fn(usize) -> &'a [f32] + Sync,
    is_cosine: bool,
    unit: &mut [f32],
    inverse: &mut [f32],
) {
    let d = unit.len() / inverse.len().max(1);
    let level = Simd::current();
    unit.par_chunks_mut((EACH * d).max(1))
        .zip(inverse.par_chunks_mut(EACH))
        .enumerate()
        .with_min_len(8)
        .for_each(|(task, (unit, inverse))| {
            let rows = unit.chunks_exact_mut(d).zip(inverse);
            for (i, (unit, inverse)) in rows.enumerate() {
                unit.copy_from_slice(row(task * EACH + i));
                if is_cosine {
                    *inverse = simd::run(level, MakeUnit(unit));
                } else {
                    *inverse = 1.0;
                }
            }
        });
}

struct MakeUnit<'a>(&'a mut [f32]);

impl Kernel for MakeUnit<'_> {
    type Output = f32;

    #[inline(always)]
    fn run(self) -> f32 {
        let square = dot(self.0, self.0);
        // A row that overflows has no direction; as zeros it would count as one that is at right angles to all.
        let inverse = if square.is_finite() {
            1.0 / square.sqrt().max(SHORTEST)
        } else {
            f32::NAN
        };
        for x in self.0.iter_mut() {
            *x *= inverse;
        }
        inverse
    }
}

/// The gradient by a row from that by the row of length 1: without the component along the row.
pub(crate) struct Project<'a> {
    pub(crate) gradient: &'a mut [f32],
    pub(crate) unit: &'a [f32],
    pub(crate) inverse: f32,
}

impl Kernel for Project<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let along = dot(self.gradient, self.unit);
        for (g, u) in self.gradient.iter_mut().zip(self.unit) {
            *g = (*g - along * u) * self.inverse;
        }
    }
}

/// Column by column of `products` \[n, batch\], the largest of it and of `best` into `best`.
pub(crate) fn largest(products: &[f32], scale: f32, best: &mut [f32]) {
    let batch = best.len();
    let level = Simd::current();
    let parts: Vec<Vec<f32>> = products
        .par_chunks(EACH * batch)
        .map(|rows| {
            let mut most = vec![f32::NEG_INFINITY; batch];
            simd::run(level, Largest(rows, scale, &mut most));
            most
        })
        .collect();
    for part in parts {
        for (best, x) in best.iter_mut().zip(part) {
            *best = best.max(x);
        }
    }
}

struct Largest<'a>(&'a [f32], f32, &'a mut [f32]);

impl Kernel for Largest<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Largest(rows, scale, most) = self;
        for row in rows.chunks_exact(most.len()) {
            for (most, z) in most.iter_mut().zip(row) {
                let z = z * scale;
                *most = if z > *most { z } else { *most };
            }
        }
    }
}

/// `out` = count·factor·e^(scale·products − shift), each \[n, batch\]; `counts` \[n\], `factor` and `shift` \[batch\].
/// `totals` gets the sums of the columns added.
pub(crate) fn exponentials(
    products: &[f32],
    counts: &[f32],
    scale: f32,
    shift: &[f32],
    factor: &[f32],
    out: &mut [f32],
    totals: &mut [f64],
) {
    let batch = shift.len();
    let level = Simd::current();
    let parts: Vec<Vec<f32>> = products
        .par_chunks(EACH * batch)
        .zip(counts.par_chunks(EACH))
        .zip(out.par_chunks_mut(EACH * batch))
        .map(|((products, counts), out)| {
            let mut sums = vec![0.0; batch];
            let kernel = Exponentials {
                products,
                counts,
                scale,
                shift,
                factor,
                out,
                sums: &mut sums,
            };
            simd::run(level, kernel);
            sums
        })
        .collect();
    for part in parts {
        for (total, x) in totals.iter_mut().zip(part) {
            *total += f64::from(x);
        }
    }
}

struct Exponentials<'a> {
    products: &'a [f32],
    counts: &'a [f32],
    scale: f32,
    shift: &'a [f32],
    factor: &'a [f32],
    out: &'a mut [f32],
    sums: &'a mut [f32],
}

impl Kernel for Exponentials<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let batch = self.shift.len();
        let rows = self.products.chunks_exact(batch).zip(self.counts);
        for ((products, count), out) in rows.zip(self.out.chunks_exact_mut(batch)) {
            let by_example = out.iter_mut().zip(self.sums.iter_mut());
            let from = products.iter().zip(self.shift).zip(self.factor);
            for ((out, sum), ((z, shift), factor)) in by_example.zip(from) {
                let e = normal(count * factor * exp(z * self.scale - shift));
                *out = e;
                *sum += e;
            }
        }
    }
}

/// A step of one row: `gradient` is that of the row of length 1 until here.
pub(crate) struct StepOfRow<'a> {
    pub(crate) factors: Factors,
    pub(crate) gradient: &'a [f32],
    pub(crate) weights: &'a mut [f32],
    /// Empty without momentum.
    pub(crate) velocity: &'a mut [f32],
}

impl Kernel for StepOfRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Factors {
            of_gradient,
            of_velocity,
            momentum,
            weight_decay,
            nesterov,
        } = self.factors;
        let rows = self.weights.iter_mut().zip(self.gradient);
        if self.velocity.is_empty() {
            for (w, g) in rows {
                *w -= of_velocity * of_gradient * (g + weight_decay * *w);
            }
            return;
        }
        let along = self.factors.along();
        let ahead = if nesterov { of_velocity } else { 0.0 };
        for ((w, g), v) in rows.zip(self.velocity) {
            let g = of_gradient * (g + weight_decay * *w);
            *v = normal(momentum * *v + g);
            *w -= along * *v + ahead * g;
        }
    }
}
