//! From the input to outputs, cells and gates.
#![allow(unsafe_code)]

use std::ops::Range;

use super::layer::{Lstm, LstmInput, LstmWeights, Position};
use super::steps::{HIGH, depth, for_high, left_rows, put, vector};
use crate::block::{self, Block, LEFT_ROW};
use crate::disjoint::Disjoint;
use crate::gemm::gemm;
use crate::math::{sigmoid, tanh};
use crate::matrix::Matrix;
use crate::precision::Precision;
use crate::simd::{self, Kernel, Simd};

impl Lstm {
    /// Forward. Writes `y` \[T, B, H\] (h of every step; the last is h_n), `cells` \[T, B, H\] (the last is c_n) and
    /// `gates` \[T, B, 4H\]; `backward` needs all three. Panics if sizes do not fit; so does `backward`.
    pub fn forward(
        &self,
        input: LstmInput<'_>,
        weights: LstmWeights<'_>,
        y: &mut [f32],
        cells: &mut [f32],
        gates: &mut [f32],
    ) {
        self.forward_at(Simd::current(), input, weights, y, cells, gates);
    }

    pub(crate) fn forward_at(
        &self,
        level: Simd,
        input: LstmInput<'_>,
        weights: LstmWeights<'_>,
        y: &mut [f32],
        cells: &mut [f32],
        gates: &mut [f32],
    ) {
        self.check(&input, &weights, y, cells, gates);
        let Lstm {
            steps,
            batch,
            input: inputs,
            hidden,
        } = *self;
        if hidden == 0 || batch == 0 {
            return;
        }
        gemm(
            Precision::F32,
            Matrix::new(input.x, steps * batch, inputs),
            Matrix::new(weights.w_ih, 4 * hidden, inputs).transposed(),
            gates,
            4 * hidden,
            false,
        );
        let bias: Vec<f32> = weights
            .b_ih
            .iter()
            .zip(weights.b_hh)
            .map(|(a, b)| a + b)
            .collect();
        let wide = block::columns(level, 1);
        // For each block of units and each two gates, k by k: the columns of W_hhᵀ. Two gates make a tile as wide as
        // it can be.
        let panels = self.panels(wide, |panel, block| {
            for gate in 0..4 {
                let panel = &mut panel[gate / 2 * hidden * 2 * wide + gate % 2 * wide..];
                for u in 0..wide.min(hidden - block * wide) {
                    let row = (gate * hidden + block * wide + u) * hidden;
                    for (p, &w) in weights.w_hh[row..row + hidden].iter().enumerate() {
                        panel[p * 2 * wide + u] = w;
                    }
                }
            }
        });
        let forward = Forward {
            sizes: *self,
            level,
            input,
            panels: &panels,
            bias: &bias,
            y: Disjoint::new(y),
            cells: Disjoint::new(cells),
            gates: Disjoint::new(gates),
        };
        self.divide(wide, steps, |t, rows, blocks| {
            for_high(rows, |rows| match wide {
                16 => forward.step::<16>(t, rows, blocks.clone()),
                8 => forward.step::<8>(t, rows, blocks.clone()),
                _ => forward.step::<4>(t, rows, blocks.clone()),
            });
        });
    }
}

/// Shared by all steps of a forward pass.
struct Forward<'a> {
    sizes: Lstm,
    level: Simd,
    input: LstmInput<'a>,
    panels: &'a [f32],
    bias: &'a [f32],
    y: Disjoint<'a>,
    cells: Disjoint<'a>,
    gates: Disjoint<'a>,
}

impl Forward<'_> {
    /// Step `t` of some rows, at most `HIGH`, for blocks of `W` units.
    fn step<const W: usize>(&self, t: usize, rows: Range<usize>, blocks: Range<usize>) {
        let hidden = self.sizes.hidden;
        let h = left_rows(rows.len(), hidden, |i| {
            let row = rows.start + i;
            let reset = self.input.position(&self.sizes, t, row) == Position::Reset;
            (!reset).then(|| self.before(&self.y, self.input.h0, t, row, 0, hidden))
        });
        let mut sums = vec![0.0; rows.len() * 4 * W];
        for block in blocks {
            let panel = &self.panels[block * 4 * hidden * W..(block + 1) * 4 * hidden * W];
            for (pair, panel) in panel.chunks_exact(2 * hidden * W).enumerate() {
                let each = depth(hidden);
                let left = h.chunks_exact(HIGH * LEFT_ROW);
                for (part, (a, b)) in left.zip(panel.chunks(each * 2 * W)).enumerate() {
                    let product = Block {
                        level: self.level,
                        depth: b.len() / (2 * W),
                        a,
                        a_stride: None,
                        b,
                        b_stride: 2 * W,
                    };
                    let sums = &mut sums[pair * 2 * W..];
                    product.multiply(rows.len(), 2 * W, sums, 4 * W, part > 0);
                }
            }
            simd::run(
                self.level,
                ForwardGates::<W> {
                    of: self,
                    t,
                    rows: &rows,
                    block,
                    sums: &sums,
                },
            );
        }
    }

    /// Numbers of a row's state before step `t`.
    #[inline(always)]
    fn before<'s>(
        &'s self,
        states: &Disjoint<'s>,
        start: &'s [f32],
        t: usize,
        row: usize,
        at: usize,
        len: usize,
    ) -> &'s [f32] {
        let Lstm { batch, hidden, .. } = self.sizes;
        match t {
            0 => &start[row * hidden + at..][..len],
            // SAFETY: step t − 1 is done, and no thread writes its states again.
            _ => unsafe { states.read(((t - 1) * batch + row) * hidden + at, len) },
        }
    }
}

/// Gates, cells and outputs of a block of units from the products with h.
struct ForwardGates<'a, const W: usize> {
    of: &'a Forward<'a>,
    t: usize,
    rows: &'a Range<usize>,
    block: usize,
    sums: &'a [f32],
}

impl<const W: usize> Kernel for ForwardGates<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let ForwardGates {
            of,
            t,
            rows,
            block,
            sums,
        } = self;
        let Lstm { batch, hidden, .. } = of.sizes;
        let first = block * W;
        let len = W.min(hidden - first);
        let bias: [[f32; W]; 4] =
            std::array::from_fn(|gate| vector(&of.bias[gate * hidden + first..][..len]));
        for (row, sums) in rows.clone().zip(sums.chunks_exact(4 * W)) {
            let position = of.input.position(&of.sizes, t, row);
            let at = (t * batch + row) * hidden + first;
            // SAFETY: only this call writes these rows and units of step t, and no thread reads them before it is done.
            let (y, cell) = unsafe { (of.y.write(at, len), of.cells.write(at, len)) };
            if position == Position::Hold {
                y.copy_from_slice(of.before(&of.y, of.input.h0, t, row, first, len));
                cell.copy_from_slice(of.before(&of.cells, of.input.c0, t, row, first, len));
                continue;
            }
            let mut c = match position {
                Position::Reset => [0.0; W],
                _ => vector(of.before(&of.cells, of.input.c0, t, row, first, len)),
            };
            let gates: [&mut [f32]; 4] = std::array::from_fn(|gate| {
                let at = ((t * batch + row) * 4 + gate) * hidden + first;
                // SAFETY: as above.
                unsafe { of.gates.write(at, len) }
            });
            let [mut i, mut f, mut g, mut o]: [[f32; W]; 4] = std::array::from_fn(|gate| {
                let mut z: [f32; W] = vector(gates[gate]);
                let sums: [f32; W] = vector(&sums[gate * W..][..W]);
                for u in 0..W {
                    z[u] += sums[u] + bias[gate][u];
                }
                z
            });
            let mut h = [0.0; W];
            for u in 0..W {
                i[u] = sigmoid(i[u]);
                f[u] = sigmoid(f[u]);
                g[u] = tanh(g[u]);
                o[u] = sigmoid(o[u]);
                c[u] = f[u] * c[u] + i[u] * g[u];
                h[u] = o[u] * tanh(c[u]);
            }
            put(&h, y);
            put(&c, cell);
            for (gate, values) in gates.into_iter().zip([&i, &f, &g, &o]) {
                put(values, gate);
            }
        }
    }
}
