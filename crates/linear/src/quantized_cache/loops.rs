//! The loops over quantised rows, each compiled for every processor level.

use pelton_format::{Row, RowTable};

use super::codes::{MOST_ERROR, QuantizedCache, UNFIT};
use super::quantizer::Quantizer;
use crate::kernels::{self, Dots, Kernel, Simd, Vectors, pass_loop, prefetch_slice};
use crate::solve::{A_VISIT, VisitRows};
use crate::step::Step;
use crate::visit::{RowAddress, Visit};

/// How many bytes of a long row are prefetched; the processor's own prefetcher follows.
const BYTES_AHEAD: usize = 4096;

/// Makes w exact in rows with an α that changed while they were cached.
pub(super) struct Settle<'a> {
    pub q: &'a Quantizer,
    pub block: &'a RowTable,
    pub changes: &'a [(usize, f32)],
    pub w: &'a mut [f32],
}

impl Kernel for Settle<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let q = self.q;
        let mut x = vec![0.0; q.padded()];
        let mut codes = vec![0; q.padded()];
        for &(i, scale) in self.changes {
            if let Row::Dense(values) = self.block.row(i) {
                x[..values.len()].copy_from_slice(values);
                // Encoding a row always gives the same bytes, whether it is still cached or not.
                q.encode(&x, &mut codes);
                q.add_error(&codes, &x, scale, self.w);
            }
        }
    }
}

/// Encodes rows of a block.
pub(super) struct Encode<'a> {
    pub q: &'a Quantizer,
    pub block: &'a RowTable,
    /// Indices in the block, and slots.
    pub coming: &'a [(usize, usize)],
    pub w: &'a [Vec<f32>],
    pub codes: &'a mut [u8],
    pub residuals: &'a mut [f32],
    pub norms: &'a mut [f32],
    pub slack: &'a mut [f32],
    pub bias: f32,
}

impl Kernel for Encode<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let q = self.q;
        let mut x = vec![0.0; q.padded()];
        for &(i, slot) in self.coming {
            let Row::Dense(values) = self.block.row(i) else {
                continue;
            };
            x[..values.len()].copy_from_slice(values);
            let row = &mut self.codes[slot * q.padded()..(slot + 1) * q.padded()];
            let (norm, error) = q.encode(&x, row);
            if error > MOST_ERROR * norm {
                self.norms[slot] = UNFIT;
                self.slack[slot] = f32::INFINITY;
                continue;
            }
            self.norms[slot] = norm + self.bias * self.bias;
            let residuals = &mut self.residuals[slot * self.w.len()..];
            for (residual, w) in residuals.iter_mut().zip(self.w) {
                *residual = q.dot_error(row, &x, w);
            }
        }
    }
}

/// The cached rows in one subproblem.
pub(super) struct CodedRows<'a> {
    pub cache: &'a QuantizedCache,
    pub q: &'a Quantizer,
    pub bias: f32,
    pub subproblem: usize,
}

impl VisitRows for CodedRows<'_> {
    fn pass<S: Step>(
        &self,
        simd: Simd,
        w: &mut [f32],
        step: &mut S,
        visits: &mut [Visit],
        order: &[u32],
        settled: &mut [bool],
    ) {
        kernels::run(
            simd,
            CodedPass {
                rows: self,
                w,
                step,
                visits,
                order,
                settled,
            },
        );
    }

    fn visit_cost(&self, _: RowAddress) -> f64 {
        const A_CODE: f64 = 0.2;
        A_VISIT + A_CODE * self.q.padded() as f64
    }
}

/// One pass over the cached rows.
struct CodedPass<'a, S> {
    rows: &'a CodedRows<'a>,
    w: &'a mut [f32],
    step: &'a mut S,
    visits: &'a mut [Visit],
    order: &'a [u32],
    settled: &'a mut [bool],
}

impl<S: Step> Kernel for CodedPass<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let CodedPass {
            rows,
            w,
            step,
            visits,
            order,
            settled,
        } = self;
        pass_loop(&mut Coded { rows, w }, step, visits, order, settled);
    }
}

/// w (padded, then the bias weight) and the cached rows.
struct Coded<'a> {
    rows: &'a CodedRows<'a>,
    w: &'a mut [f32],
}

impl Coded<'_> {
    #[inline(always)]
    fn row(&self, place: RowAddress) -> &[u8] {
        let length = self.rows.q.padded();
        let start = place.start as usize * length;
        &self.rows.cache.codes[start..start + length]
    }
}

impl Dots for Coded<'_> {
    #[inline(always)]
    fn dot(&self, place: RowAddress) -> f32 {
        let CodedRows {
            cache,
            q,
            bias,
            subproblem,
        } = self.rows;
        let residual = cache.residuals[place.start as usize * cache.subproblems + subproblem];
        q.dot(self.row(place), self.w) + bias * self.w[q.padded()] + residual
    }

    #[inline(always)]
    fn prefetch_row(&self, place: RowAddress) {
        let row = self.row(place);
        prefetch_slice(&row[..row.len().min(BYTES_AHEAD)]);
    }

    #[inline(always)]
    fn prefetch_weights(&self, _: RowAddress) {}
}

impl Vectors for Coded<'_> {
    #[inline(always)]
    fn add(&mut self, place: RowAddress, scale: f32) {
        let (q, bias) = (self.rows.q, self.rows.bias);
        let start = place.start as usize * q.padded();
        let codes = &self.rows.cache.codes[start..start + q.padded()];
        q.add(codes, scale, self.w);
        self.w[q.padded()] += scale * bias;
    }
}
