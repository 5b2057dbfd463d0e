//! Layer normalisation: y = (x − mean)/√(variance + eps)·gamma + beta over each row.

use rayon::prelude::*;

use crate::simd::{self, Kernel, Simd};
use crate::sums;

/// Normalisation of rows of `gamma.len()` numbers.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm<'a> {
    /// \[d\].
    pub gamma: &'a [f32],
    /// \[d\].
    pub beta: &'a [f32],
    /// Added to the variance.
    pub eps: f32,
}

impl LayerNorm<'_> {
    /// `x` \[n, d\] → `y` \[n, d\], and `statistics` \[n, 2\], mean and 1/√(variance + eps) of each row, for
    /// `backward`. Panics if sizes do not fit; so does `backward`.
    pub fn forward(&self, x: &[f32], y: &mut [f32], statistics: &mut [f32]) {
        self.forward_at(Simd::current(), x, y, statistics);
    }

    pub(crate) fn forward_at(&self, level: Simd, x: &[f32], y: &mut [f32], statistics: &mut [f32]) {
        let (rows, d) = self.check(x, statistics);
        assert_eq!(x.len(), y.len(), "output");
        let each = sums::rows_each(rows);
        y.par_chunks_mut(each * d)
            .zip(x.par_chunks(each * d))
            .zip(statistics.par_chunks_mut(each * 2))
            .for_each(|((y, x), statistics)| {
                simd::run(
                    level,
                    Forward {
                        of: self,
                        x,
                        y,
                        statistics,
                    },
                );
            });
    }

    /// The gradients `dx` \[n, d\], `dgamma` and `dbeta` \[d\] from `dy`.
    pub fn backward(
        &self,
        x: &[f32],
        statistics: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        dgamma: &mut [f32],
        dbeta: &mut [f32],
    ) {
        self.backward_at(Simd::current(), x, statistics, dy, dx, dgamma, dbeta);
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn backward_at(
        &self,
        level: Simd,
        x: &[f32],
        statistics: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        dgamma: &mut [f32],
        dbeta: &mut [f32],
    ) {
        let (rows, d) = self.check(x, statistics);
        assert!(dy.len() == x.len() && dx.len() == x.len(), "gradients");
        assert!(
            dgamma.len() == d && dbeta.len() == d,
            "gradients of gamma and beta"
        );
        let each = sums::rows_each(rows);
        // A row of sums for each block, added up in their order.
        let mut gammas = vec![0.0; rows.div_ceil(each) * d];
        let mut betas = gammas.clone();
        dx.par_chunks_mut(each * d)
            .zip(x.par_chunks(each * d))
            .zip(dy.par_chunks(each * d))
            .zip(statistics.par_chunks(each * 2))
            .zip(gammas.par_chunks_mut(d))
            .zip(betas.par_chunks_mut(d))
            .for_each(|(((((dx, x), dy), statistics), dgamma), dbeta)| {
                let of = self;
                simd::run(
                    level,
                    Backward {
                        of,
                        x,
                        statistics,
                        dy,
                        dx,
                        dgamma,
                        dbeta,
                    },
                );
            });
        sums::over_rows(&gammas, dgamma);
        sums::over_rows(&betas, dbeta);
    }

    fn check(&self, x: &[f32], statistics: &[f32]) -> (usize, usize) {
        let d = self.gamma.len();
        assert!(d > 0 && self.beta.len() == d, "gamma and beta");
        assert_eq!(x.len() % d, 0, "whole rows");
        assert_eq!(statistics.len(), x.len() / d * 2, "statistics");
        (x.len() / d, d)
    }
}

struct Forward<'a> {
    of: &'a LayerNorm<'a>,
    x: &'a [f32],
    y: &'a mut [f32],
    statistics: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Forward {
            of,
            x,
            y,
            statistics,
        } = self;
        let d = of.gamma.len();
        let rows = x.chunks_exact(d).zip(y.chunks_exact_mut(d));
        for ((x, y), of_row) in rows.zip(statistics.chunks_exact_mut(2)) {
            let mean = sums::sum(x) / d as f32;
            // Differences first: the variance of large, similar numbers keeps its precision.
            for (y, x) in y.iter_mut().zip(x) {
                *y = x - mean;
            }
            let variance = sums::dot(y, y) / d as f32;
            let rstd = 1.0 / (variance + of.eps).sqrt();
            for ((y, gamma), beta) in y.iter_mut().zip(of.gamma).zip(of.beta) {
                *y = *y * rstd * gamma + beta;
            }
            of_row[0] = mean;
            of_row[1] = rstd;
        }
    }
}

struct Backward<'a> {
    of: &'a LayerNorm<'a>,
    x: &'a [f32],
    statistics: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
    dgamma: &'a mut [f32],
    dbeta: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Backward {
            of,
            x,
            statistics,
            dy,
            dx,
            dgamma,
            dbeta,
        } = self;
        let d = of.gamma.len();
        let rows = x.chunks_exact(d).zip(dy.chunks_exact(d));
        let mut normal = vec![0.0; d];
        for (((x, dy), dx), of_row) in rows
            .zip(dx.chunks_exact_mut(d))
            .zip(statistics.chunks_exact(2))
        {
            let (mean, rstd) = (of_row[0], of_row[1]);
            for (n, x) in normal.iter_mut().zip(x) {
                *n = (x - mean) * rstd;
            }
            for (((sum, bias), n), dy) in dgamma.iter_mut().zip(&mut *dbeta).zip(&normal).zip(dy) {
                *sum += n * dy;
                *bias += dy;
            }
            for ((dx, dy), gamma) in dx.iter_mut().zip(dy).zip(of.gamma) {
                *dx = dy * gamma;
            }
            let along = sums::dot(dx, &normal) / d as f32;
            let level = sums::sum(dx) / d as f32;
            for (dx, n) in dx.iter_mut().zip(&normal) {
                *dx = rstd * (*dx - level - n * along);
            }
        }
    }
}
