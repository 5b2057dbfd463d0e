//! From the gradient of outputs to those of input, state and weights.
#![allow(unsafe_code)]

use std::ops::Range;

use rayon::prelude::*;

use super::layer::{Lstm, LstmInput, LstmWeights, Position};
use super::steps::{HIGH, depth, for_high, left_rows, put, vector};
use crate::block::{self, Block, LEFT_ROW};
use crate::disjoint::Disjoint;
use crate::gemm::{gemm, gemm_over_rows};
use crate::math::tanh;
use crate::matrix::Matrix;
use crate::precision::Precision;
use crate::simd::{self, Kernel, Simd};
use crate::sums;

/// The outputs of a backward pass.
#[derive(Debug)]
pub struct LstmGradients<'a> {
    /// \[T, B, I\]; `None` if the input needs no gradient.
    pub dx: Option<&'a mut [f32]>,
    /// \[B, H\].
    pub dh0: &'a mut [f32],
    /// \[B, H\]. Before the call: the gradient of the last cell.
    pub dc0: &'a mut [f32],
    /// \[4H, I\].
    pub dw_ih: &'a mut [f32],
    /// \[4H, H\].
    pub dw_hh: &'a mut [f32],
    /// \[4H\]: the gradient of `b_ih` and, equally, of `b_hh`.
    pub db: &'a mut [f32],
}

impl Lstm {
    /// Backward. `dy` \[T, B, H\] is the gradient of `y` (add h_n's to its last step). `gates` is used up: it
    /// becomes the gradient of the sums before σ and tanh.
    pub fn backward(
        &self,
        input: LstmInput<'_>,
        weights: LstmWeights<'_>,
        saved: (&[f32], &[f32], &mut [f32]),
        dy: &[f32],
        gradients: LstmGradients<'_>,
    ) {
        self.backward_at(Simd::current(), input, weights, saved, dy, gradients);
    }

    pub(crate) fn backward_at(
        &self,
        level: Simd,
        input: LstmInput<'_>,
        weights: LstmWeights<'_>,
        saved: (&[f32], &[f32], &mut [f32]),
        dy: &[f32],
        gradients: LstmGradients<'_>,
    ) {
        let (y, cells, gates) = saved;
        self.check(&input, &weights, y, cells, gates);
        let Lstm {
            steps,
            batch,
            input: inputs,
            hidden,
        } = *self;
        assert_eq!(dy.len(), y.len(), "gradient of the output");
        assert_eq!(gradients.dh0.len(), batch * hidden, "dh0");
        assert_eq!(gradients.dc0.len(), batch * hidden, "dc0");
        assert_eq!(gradients.db.len(), 4 * hidden, "db");
        if hidden == 0 || batch == 0 {
            return;
        }
        let wide = 2 * block::columns(level, 1);
        // For each block of units, k by k: the columns of W_hh.
        let panels = self.panels(wide, |panel, block| {
            let first = block * wide;
            let count = wide.min(hidden - first);
            for (p, to) in panel.chunks_exact_mut(wide).enumerate() {
                let from = p * hidden + first;
                to[..count].copy_from_slice(&weights.w_hh[from..from + count]);
            }
        });
        gradients.dh0.fill(0.0);
        let backward = Backward {
            sizes: *self,
            level,
            input,
            panels: &panels,
            cells,
            dy,
            gates: Disjoint::new(gates),
            dh: Disjoint::new(gradients.dh0),
            dc: Disjoint::new(gradients.dc0),
        };
        self.divide(wide, steps + 1, |step, rows, blocks| {
            for_high(rows, |rows| match wide {
                32 => backward.step::<32>(step, rows, blocks.clone()),
                16 => backward.step::<16>(step, rows, blocks.clone()),
                _ => backward.step::<8>(step, rows, blocks.clone()),
            });
        });
        let rows = steps * batch;
        let d = Matrix::new(gates, rows, 4 * hidden);
        if let Some(dx) = gradients.dx {
            let w_ih = Matrix::new(weights.w_ih, 4 * hidden, inputs);
            gemm(Precision::F32, d, w_ih, dx, inputs, false);
        }
        let x = Matrix::new(input.x, rows, inputs);
        gemm_over_rows(Precision::F32, d, x, gradients.dw_ih);
        // The state that each step began from.
        let mut before = vec![0.0; rows * hidden];
        before
            .par_chunks_mut(batch * hidden)
            .enumerate()
            .for_each(|(t, before)| {
                before.copy_from_slice(match t {
                    0 => input.h0,
                    _ => &y[(t - 1) * batch * hidden..t * batch * hidden],
                });
                for (row, before) in before.chunks_exact_mut(hidden).enumerate() {
                    if input.position(self, t, row) != Position::Next {
                        before.fill(0.0);
                    }
                }
            });
        let before = Matrix::new(&before, rows, hidden);
        gemm_over_rows(Precision::F32, d, before, gradients.dw_hh);
        sums::of_columns(gates, gradients.db);
    }
}

/// Shared by all steps of a backward pass.
struct Backward<'a> {
    sizes: Lstm,
    level: Simd,
    input: LstmInput<'a>,
    panels: &'a [f32],
    cells: &'a [f32],
    dy: &'a [f32],
    /// Activated gates, before the step; the gradient of their sums, from it on.
    gates: Disjoint<'a>,
    /// The gradient of h that a held row passes on; at the end, of h_0.
    dh: Disjoint<'a>,
    /// The gradient of the cell.
    dc: Disjoint<'a>,
}

impl Backward<'_> {
    /// Step T − 1 − `step`; after the last of them, the gradient of h_0.
    fn step<const W: usize>(&self, step: usize, rows: Range<usize>, blocks: Range<usize>) {
        let Lstm {
            steps,
            batch,
            hidden,
            ..
        } = self.sizes;
        // The step after; the gradients of its sums come back through W_hh.
        let after = steps - step;
        let mut sums = vec![0.0; rows.len() * W];
        let d = left_rows(rows.len(), 4 * hidden, |i| {
            let row = rows.start + i;
            let comes =
                after < steps && self.input.position(&self.sizes, after, row) == Position::Next;
            // SAFETY: step `after` is done, and no thread writes its gates again.
            comes.then(|| unsafe {
                self.gates
                    .read((after * batch + row) * 4 * hidden, 4 * hidden)
            })
        });
        for block in blocks {
            let panel = &self.panels[block * 4 * hidden * W..(block + 1) * 4 * hidden * W];
            let each = depth(4 * hidden);
            let columns = block::columns(self.level, W.min(hidden - block * W));
            let left = d.chunks_exact(HIGH * LEFT_ROW);
            for (part, (a, b)) in left.zip(panel.chunks(each * W)).enumerate() {
                if after == steps {
                    break;
                }
                let product = Block {
                    level: self.level,
                    depth: b.len() / W,
                    a,
                    a_stride: None,
                    b,
                    b_stride: W,
                };
                product.multiply(rows.len(), columns, &mut sums, W, part > 0);
            }
            simd::run(
                self.level,
                BackwardGates::<W> {
                    of: self,
                    after,
                    rows: &rows,
                    block,
                    sums: &sums,
                },
            );
        }
    }
}

/// Gradients of a block of units at a step from those of its output.
struct BackwardGates<'a, const W: usize> {
    of: &'a Backward<'a>,
    after: usize,
    rows: &'a Range<usize>,
    block: usize,
    sums: &'a [f32],
}

impl<const W: usize> Kernel for BackwardGates<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let BackwardGates {
            of,
            after,
            rows,
            block,
            sums,
        } = self;
        let Lstm { batch, hidden, .. } = of.sizes;
        let first = block * W;
        let len = W.min(hidden - first);
        for (row, sums) in rows.clone().zip(sums.chunks_exact(W)) {
            let carried = row * hidden + first;
            // SAFETY: only this call touches these rows and units of dh and dc in this step.
            let (carried_dh, carried_dc) =
                unsafe { (of.dh.write(carried, len), of.dc.write(carried, len)) };
            // The gradient through W_hh, or past a held step.
            let mut dh: [f32; W] = vector(carried_dh);
            let sums: [f32; W] = vector(sums);
            for u in 0..W {
                dh[u] += sums[u];
            }
            if after == 0 {
                put(&dh, carried_dh);
                continue;
            }
            let t = after - 1;
            let at = (t * batch + row) * hidden + first;
            let dy: [f32; W] = vector(&of.dy[at..at + len]);
            for u in 0..W {
                dh[u] += dy[u];
            }
            let gates: [&mut [f32]; 4] = std::array::from_fn(|gate| {
                let at = ((t * batch + row) * 4 + gate) * hidden + first;
                // SAFETY: only this call touches these rows and units of step t.
                unsafe { of.gates.write(at, len) }
            });
            let position = of.input.position(&of.sizes, t, row);
            if position == Position::Hold {
                put(&dh, carried_dh);
                gates.into_iter().for_each(|gate| gate.fill(0.0));
                continue;
            }
            carried_dh.fill(0.0);
            let before: [f32; W] = match (position, t) {
                (Position::Reset, _) => [0.0; W],
                (_, 0) => vector(&of.input.c0[carried..carried + len]),
                _ => vector(&of.cells[at - batch * hidden..][..len]),
            };
            let c: [f32; W] = vector(&of.cells[at..at + len]);
            let [mut i, mut f, mut g, mut o]: [[f32; W]; 4] =
                std::array::from_fn(|gate| vector(gates[gate]));
            let mut dc: [f32; W] = vector(carried_dc);
            for u in 0..W {
                let tc = tanh(c[u]);
                let d = dc[u] + dh[u] * o[u] * (1.0 - tc * tc);
                let di = d * g[u] * i[u] * (1.0 - i[u]);
                let dg = d * i[u] * (1.0 - g[u] * g[u]);
                let df = d * before[u] * f[u] * (1.0 - f[u]);
                dc[u] = d * f[u];
                o[u] = dh[u] * tc * o[u] * (1.0 - o[u]);
                i[u] = di;
                f[u] = df;
                g[u] = dg;
            }
            if position == Position::Reset {
                dc = [0.0; W];
            }
            put(&dc, carried_dc);
            for (gate, values) in gates.into_iter().zip([&i, &f, &g, &o]) {
                put(values, gate);
            }
        }
    }
}
