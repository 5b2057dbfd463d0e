//! Causal self-attention by blocks: out_t = Σ_s softmax_s(q_t·k_s / √d)·v_s over s ≤ t in the segment of t.
//!
//! The T × T matrix never exists: for a block of queries, scores of up to 256 keys at a time are computed, turned into
//! weights and used, all in cache. Forward keeps the largest score so far and rescales when a later block has a larger
//! one (online softmax); it saves log Σ e^score of each query, so that backward can recompute the weights.
//!
//! Queries, keys and values are read in the layout of a fused projection, \[batch, T, 3, heads, d\], and each
//! head is copied once to contiguous rows: T·d moves next to T²·d operations.

use rayon::prelude::*;

use crate::block::{self, Block, DEPTH, LEFT_ROW};
use crate::block_source::BlockSource;
use crate::disjoint::Disjoint;
use crate::math::exp;
use crate::matrix::Matrix;
use crate::simd::{self, Kernel, Simd};
use crate::sums;

/// Queries of a block: three of the highest tiles.
const QUERIES: usize = 42;

/// Sizes of a call.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Rows of the batch.
    pub batch: usize,
    /// T, positions in a row.
    pub steps: usize,
    /// Heads.
    pub heads: usize,
    /// d, numbers of a head at a position; at most 256.
    pub width: usize,
    /// \[batch, T\]. Adjacent positions with the same id form a segment, and no position sees another segment: several
    /// texts packed into one row.
    pub segments: Option<&'a [u32]>,
}

impl Attention<'_> {
    /// `qkv` \[batch, T, 3, heads, d\] → `out` \[batch, T, heads, d\] and `log_sums` \[batch, heads, T\], for
    /// `backward`. Panics if sizes do not fit; so does `backward`.
    pub fn forward(&self, qkv: &[f32], out: &mut [f32], log_sums: &mut [f32]) {
        self.forward_at(Simd::current(), qkv, out, log_sums);
    }

    pub(crate) fn forward_at(
        &self,
        level: Simd,
        qkv: &[f32],
        out: &mut [f32],
        log_sums: &mut [f32],
    ) {
        self.check(qkv, out, log_sums);
        let starts = self.starts();
        let out = Disjoint::new(out);
        self.each_head(log_sums, |row, head, log_sums, scratch| {
            let one = AttentionHead {
                of: self,
                level,
                row,
                head,
                starts: &starts[row * self.steps..],
            };
            one.forward(qkv, &out, log_sums, scratch);
        });
    }

    /// The gradient of `qkv` from that of `out` and the outputs of `forward`. Overwrites `dqkv`.
    pub fn backward(
        &self,
        qkv: &[f32],
        out: &[f32],
        log_sums: &[f32],
        dout: &[f32],
        dqkv: &mut [f32],
    ) {
        self.backward_at(Simd::current(), qkv, out, log_sums, dout, dqkv);
    }

    pub(crate) fn backward_at(
        &self,
        level: Simd,
        qkv: &[f32],
        out: &[f32],
        log_sums: &[f32],
        dout: &[f32],
        dqkv: &mut [f32],
    ) {
        self.check(qkv, out, log_sums);
        assert_eq!(dout.len(), out.len(), "gradient of the output");
        assert_eq!(
            dqkv.len(),
            qkv.len(),
            "gradient of queries, keys and values"
        );
        let starts = self.starts();
        let dqkv = Disjoint::new(dqkv);
        // The part of a query's gradient that is the same for all keys.
        let mut shared = vec![0.0; log_sums.len()];
        self.each_head(&mut shared, |row, head, shared, scratch| {
            let one = AttentionHead {
                of: self,
                level,
                row,
                head,
                starts: &starts[row * self.steps..],
            };
            let log_sums = &log_sums[(row * self.heads + head) * self.steps..][..self.steps];
            let given = Given {
                qkv,
                out,
                log_sums,
                dout,
            };
            one.backward(given, &dqkv, shared, scratch);
        });
    }

    fn each_head(
        &self,
        per_query: &mut [f32],
        f: impl Fn(usize, usize, &mut [f32], &mut Scratch) + Sync,
    ) {
        let heads = per_query.par_chunks_mut(self.steps.max(1)).enumerate();
        heads.for_each_init(Scratch::default, |scratch, (i, part)| {
            f(i / self.heads, i % self.heads, part, scratch);
        });
    }

    /// For each position the first of its segment.
    fn starts(&self) -> Vec<usize> {
        let mut starts = vec![0; self.batch * self.steps];
        if let Some(segments) = self.segments {
            assert_eq!(segments.len(), starts.len(), "segments");
            for i in 0..starts.len() {
                let t = i % self.steps;
                let same = t > 0 && segments[i] == segments[i - 1];
                starts[i] = if same { starts[i - 1] } else { t };
            }
        }
        starts
    }

    fn check(&self, qkv: &[f32], out: &[f32], log_sums: &[f32]) {
        let positions = self.batch * self.steps;
        assert!(self.width <= DEPTH, "a head is wider than {DEPTH}");
        assert_eq!(
            qkv.len(),
            positions * 3 * self.heads * self.width,
            "queries, keys and values"
        );
        assert_eq!(out.len(), positions * self.heads * self.width, "output");
        assert_eq!(log_sums.len(), positions * self.heads, "logarithms of sums");
    }
}

/// Buffers of a task: memory that is used again comes without page faults.
type Scratch = [Vec<f32>; 10];

/// Makes a buffer `n` zeros.
fn zeros(buffer: &mut Vec<f32>, n: usize) {
    buffer.clear();
    buffer.resize(n, 0.0);
}

/// One head of one row of the batch.
struct AttentionHead<'a> {
    of: &'a Attention<'a>,
    level: Simd,
    row: usize,
    head: usize,
    /// For each position the first that it sees.
    starts: &'a [usize],
}

/// The inputs of a head's backward pass; `log_sums` are the head's.
struct Given<'a> {
    qkv: &'a [f32],
    out: &'a [f32],
    log_sums: &'a [f32],
    dout: &'a [f32],
}

/// A part of `qkv`.
#[derive(Clone, Copy)]
enum Part {
    Query,
    Key,
    Value,
}

impl AttentionHead<'_> {
    /// Offset of position `t` of a part in `qkv`.
    fn at(&self, t: usize, part: Part) -> usize {
        let of = self.of;
        (((self.row * of.steps + t) * 3 + part as usize) * of.heads + self.head) * of.width
    }

    /// Offset of position `t` in the output.
    fn out_at(&self, t: usize) -> usize {
        ((self.row * self.of.steps + t) * self.of.heads + self.head) * self.of.width
    }

    /// Positions of a part as rows.
    fn part<'m>(&self, qkv: &'m [f32], first: usize, count: usize, part: Part) -> Matrix<'m> {
        let Attention { heads, width, .. } = *self.of;
        Matrix::strided(
            &qkv[self.at(first, part)..],
            count,
            width,
            3 * heads * width,
            1,
        )
    }

    /// Positions of the output, or of its gradient, as rows.
    fn out_rows<'m>(&self, out: &'m [f32], first: usize, count: usize) -> Matrix<'m> {
        let Attention { heads, width, .. } = *self.of;
        Matrix::strided(&out[self.out_at(first)..], count, width, heads * width, 1)
    }

    /// Copies a matrix to rows `stride` apart.
    fn copy(&self, from: Matrix<'_>, to: &mut [f32], stride: usize) {
        from.copy(self.level, 0..from.rows(), 0..from.cols(), to, stride);
    }

    /// Distance between rows of exchanged keys and values: room for the last block's rounding, and an odd number
    /// of cache lines, so that the lines of a tile spread over the whole cache.
    fn long(&self) -> usize {
        ((self.of.steps + 15).div_ceil(16) | 1) * 16
    }

    /// 1/√d.
    fn scale(&self) -> f32 {
        (1.0 / (self.of.width as f64).sqrt()) as f32
    }

    /// A product with a left operand of rows `LEFT_ROW` apart.
    fn product<'b>(&self, a: &'b [f32], depth: usize, b: &'b [f32], b_stride: usize) -> Block<'b> {
        Block {
            level: self.level,
            depth,
            a,
            a_stride: None,
            b,
            b_stride,
        }
    }

    /// Runs over blocks of queries, and in each over the blocks of keys that any of them sees: first query, queries,
    /// first key, keys.
    fn each_block(&self, mut f: impl FnMut(usize, usize, usize, usize)) {
        for query in (0..self.of.steps).step_by(QUERIES) {
            let end = (query + QUERIES).min(self.of.steps);
            for key in (self.starts[query]..end).step_by(DEPTH) {
                f(query, end - query, key, DEPTH.min(end - key));
            }
        }
    }

    fn forward(
        &self,
        qkv: &[f32],
        out: &Disjoint<'_>,
        log_sums: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let Attention { steps, width, .. } = *self.of;
        let wide = block::columns(self.level, width);
        let long = self.long();
        let [keys, values, queries, scores, sums, ..] = scratch;
        zeros(keys, width * long);
        zeros(values, steps * wide);
        self.copy(self.part(qkv, 0, steps, Part::Key).transposed(), keys, long);
        self.copy(self.part(qkv, 0, steps, Part::Value), values, wide);
        zeros(queries, QUERIES * LEFT_ROW);
        zeros(scores, QUERIES * LEFT_ROW);
        zeros(sums, QUERIES * wide);
        let (mut largest, mut total) = ([0.0; QUERIES], [0.0; QUERIES]);
        self.each_block(|query, count, key, keys_here| {
            if key == self.starts[query] {
                self.copy(self.part(qkv, query, count, Part::Query), queries, LEFT_ROW);
                sums.fill(0.0);
                largest.fill(f32::NEG_INFINITY);
                total.fill(0.0);
            }
            let columns = block::columns(self.level, keys_here);
            self.product(queries, width, &keys[key..], long)
                .multiply(count, columns, scores, LEFT_ROW, false);
            let kernel = Weigh {
                head: self,
                query,
                count,
                key,
                keys: keys_here,
                scores,
                largest: &mut largest,
                total: &mut total,
                sums,
                wide,
            };
            simd::run(self.level, kernel);
            self.product(scores, keys_here, &values[key * wide..], wide)
                .multiply(count, wide, sums, wide, true);
            if key + keys_here == query + count {
                for i in 0..count {
                    // SAFETY: no other head and no other query writes this range.
                    #[allow(unsafe_code)]
                    let to = unsafe { out.write(self.out_at(query + i), width) };
                    let by = 1.0 / total[i];
                    for (to, x) in to.iter_mut().zip(&sums[i * wide..]) {
                        *to = x * by;
                    }
                    log_sums[query + i] = largest[i] + total[i].ln();
                }
            }
        });
    }

    fn backward(
        &self,
        given: Given<'_>,
        dqkv: &Disjoint<'_>,
        shared: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let Given {
            qkv,
            out,
            log_sums,
            dout,
        } = given;
        let Attention { steps, width, .. } = *self.of;
        let wide = block::columns(self.level, width);
        let long = self.long();
        let [
            keys,
            values,
            key_rows,
            dkeys,
            dvalues,
            queries,
            douts,
            weights,
            dscores,
            dqueries,
        ] = scratch;
        zeros(keys, width * long);
        zeros(values, width * long);
        zeros(key_rows, steps * wide);
        self.copy(self.part(qkv, 0, steps, Part::Key).transposed(), keys, long);
        self.copy(
            self.part(qkv, 0, steps, Part::Value).transposed(),
            values,
            long,
        );
        self.copy(self.part(qkv, 0, steps, Part::Key), key_rows, wide);
        zeros(dkeys, steps * wide);
        zeros(dvalues, steps * wide);
        for block in [&mut *queries, douts, weights, dscores] {
            zeros(block, QUERIES * LEFT_ROW);
        }
        zeros(dqueries, QUERIES * wide);
        for (t, shared) in shared.iter_mut().enumerate() {
            let at = self.out_at(t);
            *shared = sums::dot(&out[at..at + width], &dout[at..at + width]);
        }
        let write = |t: usize, part: Part, from: &[f32]| {
            // SAFETY: no other head and no other position writes this range.
            #[allow(unsafe_code)]
            let to = unsafe { dqkv.write(self.at(t, part), width) };
            to.copy_from_slice(&from[..width]);
        };
        self.each_block(|query, count, key, keys_here| {
            let first = key == self.starts[query];
            if first {
                self.copy(self.part(qkv, query, count, Part::Query), queries, LEFT_ROW);
                self.copy(self.out_rows(dout, query, count), douts, LEFT_ROW);
            }
            let columns = block::columns(self.level, keys_here);
            self.product(queries, width, &keys[key..], long)
                .multiply(count, columns, weights, LEFT_ROW, false);
            self.product(douts, width, &values[key..], long)
                .multiply(count, columns, dscores, LEFT_ROW, false);
            let kernel = Reweigh {
                head: self,
                query,
                count,
                key,
                keys: keys_here,
                log_sums,
                shared,
                weights,
                dscores,
            };
            simd::run(self.level, kernel);
            self.product(dscores, keys_here, &key_rows[key * wide..], wide)
                .multiply(count, wide, dqueries, wide, !first);
            let sides = [
                (&*dscores, &*queries, &mut *dkeys),
                (&*weights, &*douts, &mut *dvalues),
            ];
            for (a, b, c) in sides {
                let mut product = self.product(a, count, b, LEFT_ROW);
                product.a_stride = Some(LEFT_ROW);
                product.multiply(keys_here, wide, &mut c[key * wide..], wide, true);
            }
            if key + keys_here == query + count {
                for i in 0..count {
                    write(query + i, Part::Query, &dqueries[i * wide..]);
                }
            }
        });
        for t in 0..steps {
            write(t, Part::Key, &dkeys[t * wide..]);
            write(t, Part::Value, &dvalues[t * wide..]);
        }
    }

    /// The keys of `key..key + keys` that query `t` sees, counted from `key`.
    #[inline(always)]
    fn seen(&self, t: usize, key: usize, keys: usize) -> std::ops::Range<usize> {
        let end = (t + 1).saturating_sub(key).min(keys);
        self.starts[t].saturating_sub(key).min(end)..end
    }
}

/// Turns scores into weights relative to the largest score so far.
struct Weigh<'a> {
    head: &'a AttentionHead<'a>,
    query: usize,
    count: usize,
    key: usize,
    keys: usize,
    scores: &'a mut [f32],
    largest: &'a mut [f32; QUERIES],
    total: &'a mut [f32; QUERIES],
    sums: &'a mut [f32],
    wide: usize,
}

impl Kernel for Weigh<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let scale = self.head.scale();
        for i in 0..self.count {
            let seen = self.head.seen(self.query + i, self.key, self.keys);
            let row = &mut self.scores[i * LEFT_ROW..][..self.keys];
            row[..seen.start].fill(0.0);
            row[seen.end..].fill(0.0);
            if seen.is_empty() {
                continue;
            }
            let row = &mut row[seen];
            let before = self.largest[i];
            let here = sums::max(row) * scale;
            let largest = if here > before { here } else { before };
            for x in row.iter_mut() {
                *x = exp(*x * scale - largest);
            }
            let mut total = sums::sum(row);
            if before != f32::NEG_INFINITY {
                let by = exp(before - largest);
                total += self.total[i] * by;
                for x in &mut self.sums[i * self.wide..][..self.wide] {
                    *x *= by;
                }
            }
            self.total[i] = total;
            self.largest[i] = largest;
        }
    }
}

/// Turns scores into final weights, and their gradients into gradients of the scores.
struct Reweigh<'a> {
    head: &'a AttentionHead<'a>,
    query: usize,
    count: usize,
    key: usize,
    keys: usize,
    log_sums: &'a [f32],
    shared: &'a [f32],
    weights: &'a mut [f32],
    dscores: &'a mut [f32],
}

impl Kernel for Reweigh<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let scale = self.head.scale();
        for i in 0..self.count {
            let t = self.query + i;
            let seen = self.head.seen(t, self.key, self.keys);
            let (log_sum, shared) = (self.log_sums[t], self.shared[t]);
            let weights = &mut self.weights[i * LEFT_ROW..][..self.keys];
            let dscores = &mut self.dscores[i * LEFT_ROW..][..self.keys];
            for row in [&mut *weights, &mut *dscores] {
                row[..seen.start].fill(0.0);
                row[seen.end..].fill(0.0);
            }
            for (w, d) in weights[seen.clone()].iter_mut().zip(&mut dscores[seen]) {
                *w = exp(*w * scale - log_sum);
                *d = *w * (*d - shared) * scale;
            }
        }
    }
}
