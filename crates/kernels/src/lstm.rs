//! One layer of LSTM over a whole sequence, forward and backward.
//!
//! Symbols, PyTorch's: gates i, f, g, o in this order; x_t input, h_t output, c_t cell; for each step
//! i, f, o = σ(·), g = tanh(·) of W_ih x_t + b_ih + W_hh h_(t−1) + b_hh; c_t = f c_(t−1) + i g; h_t = o tanh c_t.
//!
//! The input's part is one product for all steps, and so are the gradients of weights and input. What has to go
//! step by step is W_hh h, whose weights are copied once into the order of the loops; gates are computed where
//! the product left its sums, in the first-level cache. Rows of the batch do not wait for one another: each group
//! of rows runs the whole sequence on a thread. Where there are more threads than groups worth having, hidden
//! units are divided too, and the threads of a group meet at each step (`team`).
#![allow(unsafe_code)]

use std::ops::Range;

use rayon::prelude::*;

use crate::block::{self, Block, DEPTH, LEFT_ROW};
use crate::disjoint::Disjoint;
use crate::math::{sigmoid, tanh};
use crate::simd::{self, Kernel, Simd};
use crate::{Matrix, gemm, sums, team};

/// Rows of a group that are computed together; also the fewest rows for which a group is worth making.
const HIGH: usize = 14;

/// Operations of a step for which meeting another thread (about 0.3 µs) is worth while.
const MEETING: usize = 150_000;

/// Sizes of a layer's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lstm {
    /// T.
    pub steps: usize,
    /// B.
    pub batch: usize,
    /// I.
    pub input: usize,
    /// H.
    pub hidden: usize,
}

/// Weights in PyTorch's layout; `b_ih` and `b_hh` are summed.
#[derive(Clone, Copy, Debug)]
pub struct LstmWeights<'a> {
    /// \[4H, I\].
    pub w_ih: &'a [f32],
    /// \[4H, H\].
    pub w_hh: &'a [f32],
    /// \[4H\].
    pub b_ih: &'a [f32],
    /// \[4H\].
    pub b_hh: &'a [f32],
}

/// What a step does to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Goes on from the state before.
    Next,
    /// Begins from a state of zeros: the first word of a sentence in a row of several.
    Reset,
    /// Padding: output and cell stay as they were.
    Hold,
}

/// Positions \[steps, batch\] of rows of these lengths: padding is held.
pub fn positions_of_lengths(steps: usize, lengths: &[usize]) -> Vec<Position> {
    let at = |t: usize| {
        lengths.iter().map(move |&length| match t < length {
            true => Position::Next,
            false => Position::Hold,
        })
    };
    (0..steps).flat_map(at).collect()
}

/// What a forward pass reads besides weights.
#[derive(Clone, Copy, Debug)]
pub struct LstmInput<'a> {
    /// \[T, B, I\].
    pub x: &'a [f32],
    /// \[B, H\].
    pub h0: &'a [f32],
    /// \[B, H\].
    pub c0: &'a [f32],
    /// \[T, B\]; all `Next` if none.
    pub positions: Option<&'a [Position]>,
}

/// What a backward pass writes.
#[derive(Debug)]
pub struct LstmGradients<'a> {
    /// \[T, B, I\]; none where the input needs no gradient.
    pub dx: Option<&'a mut [f32]>,
    /// \[B, H\].
    pub dh0: &'a mut [f32],
    /// \[B, H\]. Before the call: the gradient of the last cell.
    pub dc0: &'a mut [f32],
    /// \[4H, I\], added to.
    pub dw_ih: &'a mut [f32],
    /// \[4H, H\], added to.
    pub dw_hh: &'a mut [f32],
    /// \[4H\], added to: the gradient of `b_ih` and, equally, of `b_hh`.
    pub db: &'a mut [f32],
}

impl Lstm {
    /// Forward. Writes `y` \[T, B, H\] (h of every step; the last is h_n), `cells` \[T, B, H\] (the last is c_n) and
    /// `gates` \[T, B, 4H\]; `backward` needs all three. Panics where sizes do not fit; so does `backward`.
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

    /// Backward. `dy` \[T, B, H\] is the gradient of `y` (add h_n's to its last step). `gates` is used up: it becomes the
    /// gradient of the sums before σ and tanh.
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
            gemm(d, w_ih, dx, inputs, false);
        }
        let x = Matrix::new(input.x, rows, inputs);
        gemm(d.transposed(), x, gradients.dw_ih, inputs, true);
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
        gemm(d.transposed(), before, gradients.dw_hh, hidden, true);
        sums::add_columns(gates, gradients.db);
    }

    /// For each block of `wide` units 4H rows of `wide` weights, as `fill` writes them.
    fn panels(&self, wide: usize, fill: impl Fn(&mut [f32], usize) + Sync) -> Vec<f32> {
        let each = 4 * self.hidden * wide;
        let mut panels = vec![0.0; self.hidden.div_ceil(wide) * each];
        let blocks = panels.par_chunks_mut(each);
        blocks
            .enumerate()
            .for_each(|(block, panel)| fill(panel, block));
        panels
    }

    /// Runs `step(number, rows, blocks of units)` for all steps, rows and units, on all threads.
    fn divide(
        &self,
        wide: usize,
        steps: usize,
        step: impl Fn(usize, Range<usize>, Range<usize>) + Sync,
    ) {
        let threads = rayon::current_num_threads();
        let blocks = self.hidden.div_ceil(wide);
        let groups = threads.min(self.batch.div_ceil(HIGH));
        let rows = self.batch.div_ceil(groups);
        let work = 8 * rows * self.hidden * self.hidden;
        let parts = (threads / groups).min(work / MEETING).clamp(1, blocks);
        (0..groups).into_par_iter().for_each(|group| {
            let rows = share(self.batch, group, groups);
            team::steps(steps, parts, |number, part| {
                step(number, rows.clone(), share(blocks, part, parts));
            });
        });
    }

    fn check(
        &self,
        input: &LstmInput<'_>,
        weights: &LstmWeights<'_>,
        y: &[f32],
        cells: &[f32],
        gates: &[f32],
    ) {
        let Lstm {
            steps,
            batch,
            input: inputs,
            hidden,
        } = *self;
        let rows = steps * batch;
        for (what, got, expected) in [
            ("x", input.x.len(), rows * inputs),
            ("h0", input.h0.len(), batch * hidden),
            ("c0", input.c0.len(), batch * hidden),
            ("positions", input.positions.map_or(rows, <[_]>::len), rows),
            ("w_ih", weights.w_ih.len(), 4 * hidden * inputs),
            ("w_hh", weights.w_hh.len(), 4 * hidden * hidden),
            ("b_ih", weights.b_ih.len(), 4 * hidden),
            ("b_hh", weights.b_hh.len(), 4 * hidden),
            ("y", y.len(), rows * hidden),
            ("cells", cells.len(), rows * hidden),
            ("gates", gates.len(), rows * 4 * hidden),
        ] {
            assert_eq!(got, expected, "numbers of {what}");
        }
    }
}

impl LstmInput<'_> {
    #[inline(always)]
    fn position(&self, sizes: &Lstm, t: usize, row: usize) -> Position {
        self.positions
            .map_or(Position::Next, |p| p[t * sizes.batch + row])
    }
}

/// Share `number` of `shares` nearly equal ones of 0..n.
fn share(n: usize, number: usize, shares: usize) -> Range<usize> {
    n * number / shares..n * (number + 1) / shares
}

/// Calls `f` with nearly equal runs of at most `HIGH` rows.
fn for_high(rows: Range<usize>, f: impl Fn(Range<usize>)) {
    let runs = rows.len().div_ceil(HIGH);
    for run in 0..runs {
        let part = share(rows.len(), run, runs);
        f(rows.start + part.start..rows.start + part.end);
    }
}

/// `W` numbers at most, filled up with zeros; without a call where there are `W`.
#[inline(always)]
fn vector<const W: usize>(from: &[f32]) -> [f32; W] {
    match <[f32; W]>::try_from(from) {
        Ok(whole) => whole,
        Err(_) => std::array::from_fn(|i| from.get(i).copied().unwrap_or(0.0)),
    }
}

/// Writes as many numbers as `to` takes.
#[inline(always)]
fn put<const W: usize>(from: &[f32; W], to: &mut [f32]) {
    match <&mut [f32; W]>::try_from(&mut *to) {
        Ok(to) => *to = *from,
        Err(_) => to.copy_from_slice(&from[..to.len()]),
    }
}

/// Copies rows of a left operand, `rows` high, each of `len` numbers, for blocks of at most `DEPTH`.
fn left_rows<'r>(rows: usize, len: usize, row: impl Fn(usize) -> Option<&'r [f32]>) -> Vec<f32> {
    let depth = depth(len);
    let mut to = vec![0.0; len.div_ceil(depth) * HIGH * LEFT_ROW];
    for i in 0..rows {
        let Some(row) = row(i) else { continue };
        for (part, to) in row.chunks(depth).zip(to.chunks_exact_mut(HIGH * LEFT_ROW)) {
            to[i * LEFT_ROW..][..part.len()].copy_from_slice(part);
        }
    }
    to
}

/// Nearly equal blocks of `len`, none above `DEPTH`.
fn depth(len: usize) -> usize {
    len.div_ceil(len.div_ceil(DEPTH))
}

/// What all steps of a forward pass share.
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
            // SAFETY: step t − 1 is done, and nobody writes its states again.
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
            // SAFETY: only this call writes these rows and units of step t, and nobody reads them before it is done.
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

/// What all steps of a backward pass share.
struct Backward<'a> {
    sizes: Lstm,
    level: Simd,
    input: LstmInput<'a>,
    panels: &'a [f32],
    cells: &'a [f32],
    dy: &'a [f32],
    /// Activated gates, behind the step; the gradient of their sums, from it on.
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
        // The step after, whose sums' gradients come back through W_hh.
        let after = steps - step;
        let mut sums = vec![0.0; rows.len() * W];
        let d = left_rows(rows.len(), 4 * hidden, |i| {
            let row = rows.start + i;
            let comes =
                after < steps && self.input.position(&self.sizes, after, row) == Position::Next;
            // SAFETY: step `after` is done, and nobody writes its gates again.
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
            // What came through W_hh, or past a held step.
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
