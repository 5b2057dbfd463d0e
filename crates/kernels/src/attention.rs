//! Causal self-attention by blocks: out_t = Σ_s softmax_s(q_t·k_s / √d)·v_s over s ≤ t in the segment of t.
//!
//! The T × T matrix never exists: for a block of queries, scores of up to 256 keys at a time are made, turned into
//! weights and used, all in cache. Forward keeps the largest score so far and rescales when a later block has a
//! larger one (online softmax); it saves log Σ e^score of each query, from which backward makes the weights again.
//!
//! Queries, keys and values are read where a fused projection leaves them, \[batch, T, 3, heads, d\], and each head is
//! copied once to where its rows lie side by side: T·d moves beside T²·d operations.

use rayon::prelude::*;

use crate::block::{self, Block, DEPTH, LEFT_ROW};
use crate::disjoint::Disjoint;
use crate::math::exp;
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
    /// \[batch, T\]. Neighbours with the same number are a segment, and no position sees another segment: several
    /// texts packed into one row.
    pub segments: Option<&'a [u32]>,
}

impl Attention<'_> {
    /// `qkv` \[batch, T, 3, heads, d\] → `out` \[batch, T, heads, d\] and `log_sums` \[batch, heads, T\], which `backward`
    /// needs. Panics where sizes do not fit; so does `backward`.
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
        self.each_head(log_sums, |row, head, log_sums| {
            let one = Head {
                of: self,
                level,
                row,
                head,
                starts: &starts[row * self.steps..],
            };
            one.forward(qkv, &out, log_sums);
        });
    }

    /// The gradient of `qkv` from that of `out`, with what `forward` wrote. `dqkv` is overwritten.
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
        // What a query's gradient has in common for all keys.
        let mut shared = vec![0.0; log_sums.len()];
        self.each_head(&mut shared, |row, head, shared| {
            let one = Head {
                of: self,
                level,
                row,
                head,
                starts: &starts[row * self.steps..],
            };
            let log_sums = &log_sums[(row * self.heads + head) * self.steps..][..self.steps];
            one.backward(qkv, out, log_sums, dout, &dqkv, shared);
        });
    }

    fn each_head(&self, per_query: &mut [f32], f: impl Fn(usize, usize, &mut [f32]) + Sync) {
        let heads = per_query.par_chunks_mut(self.steps.max(1)).enumerate();
        heads.for_each(|(i, part)| f(i / self.heads, i % self.heads, part));
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

/// One head of one row of the batch.
struct Head<'a> {
    of: &'a Attention<'a>,
    level: Simd,
    row: usize,
    head: usize,
    /// For each position the first that it sees.
    starts: &'a [usize],
}

/// A part of `qkv`.
#[derive(Clone, Copy)]
enum Part {
    Query,
    Key,
    Value,
}

impl Head<'_> {
    /// Where position `t` of a part begins in `qkv`.
    fn at(&self, t: usize, part: Part) -> usize {
        let of = self.of;
        (((self.row * of.steps + t) * 3 + part as usize) * of.heads + self.head) * of.width
    }

    /// Where position `t` begins in the output.
    fn out_at(&self, t: usize) -> usize {
        ((self.row * self.of.steps + t) * self.of.heads + self.head) * self.of.width
    }

    /// All positions of a part side by side, each filled up to `wide` numbers.
    fn rows(&self, qkv: &[f32], part: Part, wide: usize) -> Vec<f32> {
        let mut rows = vec![0.0; self.of.steps * wide];
        for (t, row) in rows.chunks_exact_mut(wide.max(1)).enumerate() {
            row[..self.of.width].copy_from_slice(&qkv[self.at(t, part)..][..self.of.width]);
        }
        rows
    }

    /// The same, exchanged: for each number of the head, all positions, filled up to `long`.
    fn columns(&self, qkv: &[f32], part: Part, long: usize) -> Vec<f32> {
        let mut columns = vec![0.0; self.of.width * long];
        for t in 0..self.of.steps {
            let row = &qkv[self.at(t, part)..][..self.of.width];
            for (j, &x) in row.iter().enumerate() {
                columns[j * long + t] = x;
            }
        }
        columns
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

    fn forward(&self, qkv: &[f32], out: &Disjoint<'_>, log_sums: &mut [f32]) {
        let Attention { steps, width, .. } = *self.of;
        let wide = block::columns(self.level, width);
        let long = steps + DEPTH;
        let keys = self.columns(qkv, Part::Key, long);
        let values = self.rows(qkv, Part::Value, wide);
        let mut queries = vec![0.0; QUERIES * LEFT_ROW];
        let mut scores = vec![0.0; QUERIES * LEFT_ROW];
        let mut sums = vec![0.0; QUERIES * wide];
        let (mut largest, mut total) = ([0.0; QUERIES], [0.0; QUERIES]);
        self.each_block(|query, count, key, keys_here| {
            if key == self.starts[query] {
                for i in 0..count {
                    let row = &qkv[self.at(query + i, Part::Query)..][..width];
                    for (to, x) in queries[i * LEFT_ROW..].iter_mut().zip(row) {
                        *to = x * self.scale();
                    }
                }
                sums.fill(0.0);
                largest.fill(f32::NEG_INFINITY);
                total.fill(0.0);
            }
            let columns = block::columns(self.level, keys_here);
            self.product(&queries, width, &keys[key..], long).multiply(
                count,
                columns,
                &mut scores,
                LEFT_ROW,
                false,
            );
            let kernel = Weigh {
                head: self,
                query,
                count,
                key,
                keys: keys_here,
                scores: &mut scores,
                largest: &mut largest,
                total: &mut total,
                sums: &mut sums,
                wide,
            };
            simd::run(self.level, kernel);
            self.product(&scores, keys_here, &values[key * wide..], wide)
                .multiply(count, wide, &mut sums, wide, true);
            if key + keys_here == query + count {
                for i in 0..count {
                    // SAFETY: no other head and no other query has this place.
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
        qkv: &[f32],
        out: &[f32],
        log_sums: &[f32],
        dout: &[f32],
        dqkv: &Disjoint<'_>,
        shared: &mut [f32],
    ) {
        let Attention { steps, width, .. } = *self.of;
        let wide = block::columns(self.level, width);
        let long = steps + DEPTH;
        let keys = self.columns(qkv, Part::Key, long);
        let values = self.columns(qkv, Part::Value, long);
        let key_rows = self.rows(qkv, Part::Key, wide);
        let (mut dkeys, mut dvalues) = (vec![0.0; steps * wide], vec![0.0; steps * wide]);
        let [mut queries, mut douts, mut weights, mut dscores] =
            std::array::from_fn(|_| vec![0.0; QUERIES * LEFT_ROW]);
        let mut dqueries = vec![0.0; QUERIES * wide];
        for (t, shared) in shared.iter_mut().enumerate() {
            let at = self.out_at(t);
            let both = out[at..at + width].iter().zip(&dout[at..at + width]);
            *shared = both.map(|(o, d)| o * d).sum();
        }
        let write = |t: usize, part: Part, from: &[f32]| {
            // SAFETY: no other head and no other position has this place.
            #[allow(unsafe_code)]
            let to = unsafe { dqkv.write(self.at(t, part), width) };
            to.copy_from_slice(&from[..width]);
        };
        self.each_block(|query, count, key, keys_here| {
            let first = key == self.starts[query];
            if first {
                for i in 0..count {
                    let row = &qkv[self.at(query + i, Part::Query)..][..width];
                    for (to, x) in queries[i * LEFT_ROW..].iter_mut().zip(row) {
                        *to = x * self.scale();
                    }
                    let row = &dout[self.out_at(query + i)..][..width];
                    douts[i * LEFT_ROW..][..width].copy_from_slice(row);
                }
            }
            let columns = block::columns(self.level, keys_here);
            self.product(&queries, width, &keys[key..], long).multiply(
                count,
                columns,
                &mut weights,
                LEFT_ROW,
                false,
            );
            self.product(&douts, width, &values[key..], long).multiply(
                count,
                columns,
                &mut dscores,
                LEFT_ROW,
                false,
            );
            let kernel = Reweigh {
                head: self,
                query,
                count,
                key,
                keys: keys_here,
                log_sums,
                shared,
                weights: &mut weights,
                dscores: &mut dscores,
            };
            simd::run(self.level, kernel);
            self.product(&dscores, keys_here, &key_rows[key * wide..], wide)
                .multiply(count, wide, &mut dqueries, wide, !first);
            let sides = [
                (&dscores, &queries, &mut dkeys),
                (&weights, &douts, &mut dvalues),
            ];
            for (a, b, c) in sides {
                let mut product = self.product(a, count, b, LEFT_ROW);
                product.a_stride = Some(LEFT_ROW);
                product.multiply(keys_here, wide, &mut c[key * wide..], wide, true);
            }
            if key + keys_here == query + count {
                for i in 0..count {
                    let row = &mut dqueries[i * wide..][..width];
                    row.iter_mut().for_each(|x| *x *= self.scale());
                    write(query + i, Part::Query, row);
                }
            }
        });
        for t in 0..steps {
            write(t, Part::Key, &dkeys[t * wide..]);
            write(t, Part::Value, &dvalues[t * wide..]);
        }
    }

    /// Which of the keys `key..key + keys` query `t` sees, counted from `key`.
    #[inline(always)]
    fn seen(&self, t: usize, key: usize, keys: usize) -> std::ops::Range<usize> {
        let end = (t + 1).saturating_sub(key).min(keys);
        self.starts[t].saturating_sub(key).min(end)..end
    }
}

/// Turns scores into weights relative to the largest score so far.
struct Weigh<'a> {
    head: &'a Head<'a>,
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
            let here = sums::max(row);
            let largest = if here > before { here } else { before };
            for x in row.iter_mut() {
                *x = exp(*x - largest);
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
    head: &'a Head<'a>,
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
                *w = exp(*w - log_sum);
                *d = *w * (*d - shared);
            }
        }
    }
}
