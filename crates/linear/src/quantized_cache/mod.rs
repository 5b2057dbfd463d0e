//! *Cache*, for long dense rows: undecided rows stay in memory between blocks as one byte a value, four times as many
//! as in f32.
//!
//! After each block the rows with the smallest slack are kept (selective block minimization, Chang and Roth, KDD 2011),
//! and in the first epoch, and between epochs, the problem is solved over all of them. A single block of a few thousand
//! rows cannot determine the thousands of unknowns in w, but the cached rows can: on 100 000 rows of 2000 features at
//! an eighth of the memory the weights after one pass are 5e-4 from the optimum, compared with 5e-2 for blocks alone
//! and 2e-2 for blocks with whole rows cached.
//!
//! **What is exact.** x̂ is a row as cached, x as stored. A row that is read is trained on as x. Later changes of its α
//! reach w through x̂, and its margin is approximated by w·x̂ + r, r = v·(x − x̂), with v the w when the row was read:
//! the error (w − v)·(x − x̂) vanishes as w settles. When the row is next read, w ← w + Δα y (x − x̂) makes w exact in
//! it. In an epoch that certifies, rows that have been read do not change, so at its end w = Σ α_i y_i x_i exactly; the
//! weights at its start, found with the cached rows, are its snapshot. So the certificate is based on the rows as
//! stored. A badly chosen cached row costs time, never correctness.
//!
//! Cost: [`QuantizedCache::row_bytes`] a cached row; a visit decodes a row once or twice, 0.1 ns a value; and 4 bytes a
//! record and 4 a subproblem of it.

mod codes;
mod loops;
mod quantizer;

use std::borrow::Cow;

use pelton_format::RowTable;
use pelton_storage::huge_vec;

use crate::block::Scratch;
use crate::duals::Duals;
use crate::error::LinearError;
use crate::kernels::{self, Simd};
use crate::problem::Problem;
use crate::solve::{BlockReport, InnerPasses, solve_rows};
use crate::visit::{RowAddress, Visit};
use crate::weights::Weights;
pub use codes::QuantizedCache;
use codes::UNFIT;
use loops::{CodedRows, Encode, Settle};
use quantizer::Quantizer;

/// Marks a dual variable with an exact part of w.
const EXACT: f32 = f32::NAN;
/// Marks a record that is not cached.
const NOT_HELD: u32 = u32::MAX;

/// The parts of a cache in a checkpoint: without the quantised values, which are encoded again from the rows.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedCodes<'a> {
    /// Offset of each feature, then step of each.
    pub quantizer: Cow<'a, [f32]>,
    /// Record of each slot.
    pub ids: Cow<'a, [u64]>,
    /// Residuals of each slot and subproblem.
    pub residuals: Cow<'a, [f32]>,
    /// Slack of each slot.
    pub slack: Cow<'a, [f32]>,
    /// α of each subproblem and record when w was last exact in it.
    pub before: Vec<Cow<'a, [f32]>>,
}

impl QuantizedCache {
    /// An empty cache for at most `capacity` of `records` rows.
    pub fn new(problem: &Problem, records: usize, capacity: usize) -> QuantizedCache {
        let subproblems = problem.subproblems();
        QuantizedCache {
            features: problem.features(),
            subproblems,
            capacity,
            quantizer: None,
            slots: vec![NOT_HELD; records],
            ids: Vec::with_capacity(capacity),
            codes: huge_vec(capacity * quantizer::padded(problem.features())),
            residuals: Vec::with_capacity(capacity * subproblems),
            norms: Vec::with_capacity(capacity),
            labels: Vec::with_capacity(capacity),
            slack: Vec::with_capacity(capacity),
            before: vec![vec![EXACT; records]; subproblems],
        }
    }

    /// Bytes of a cached row, including the solver's data for it.
    pub fn row_bytes(problem: &Problem) -> usize {
        // Id, norm, label, slack; the solver's entry, slot and id; residuals; codes.
        let adjacent = 20 + Scratch::bytes_for(1) + 16 + 4 * problem.subproblems();
        quantizer::padded(problem.features()) + adjacent
    }

    /// Bytes of the tables over all records, next to the memory budget.
    pub fn table_bytes(&self) -> usize {
        4 * self.slots.len() * (1 + self.subproblems)
    }

    /// Number of cached rows.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether no row is cached.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    fn stride(&self) -> usize {
        quantizer::padded(self.features)
    }

    /// Makes w exact in the rows of a block that has arrived.
    pub fn settle(
        &mut self,
        problem: &Problem,
        block: &RowTable,
        weights: &mut Weights,
        duals: &Duals,
        simd: Simd,
    ) {
        let Some(q) = &self.quantizer else { return };
        let loss = problem.loss().function();
        for (subproblem, before) in self.before.iter_mut().enumerate() {
            let stored = duals.stored(subproblem);
            let terms = problem.terms(subproblem);
            let mut changes = Vec::new();
            for i in 0..block.len() {
                let id = block.id(i) as usize;
                let old = std::mem::replace(&mut before[id], EXACT);
                if old.is_nan() {
                    continue;
                }
                let row = terms.of(block.label(i), id as u64);
                let change = loss.decode(&row, stored[id]) - loss.decode(&row, old);
                changes.push((i, change as f32 * row.sign));
            }
            if changes.is_empty() {
                continue;
            }
            let w = weights.vector_mut(subproblem);
            let mut padded = pad(q, &w[..self.features]);
            let settle = Settle {
                q,
                block,
                changes: &changes,
                w: &mut padded,
            };
            kernels::run(simd, settle);
            w[..self.features].copy_from_slice(&padded[..self.features]);
        }
    }

    /// Chooses the cached rows again, from those and the rows of a block with their slack.
    pub fn take_in(
        &mut self,
        problem: &Problem,
        block: &RowTable,
        slack: &[f32],
        weights: &Weights,
        simd: Simd,
    ) {
        let features = self.features;
        self.quantizer
            .get_or_insert_with(|| Quantizer::from_rows(features, block));
        let coming = self.choose(block, slack);
        let Some(q) = &self.quantizer else { return };
        let w: Vec<Vec<f32>> = (0..self.subproblems)
            .map(|subproblem| pad(q, &weights.vector(subproblem)[..features]))
            .collect();
        self.encode(problem, block, &coming, &w, simd);
    }

    /// Encodes rows of a block, given their indices in it and their slots, with the residuals for the weights `w`
    /// (padded).
    fn encode(
        &mut self,
        problem: &Problem,
        block: &RowTable,
        coming: &[(usize, usize)],
        w: &[Vec<f32>],
        simd: Simd,
    ) {
        let Some(q) = &self.quantizer else { return };
        let encode = Encode {
            q,
            block,
            coming,
            w,
            codes: &mut self.codes,
            residuals: &mut self.residuals,
            norms: &mut self.norms,
            slack: &mut self.slack,
            bias: problem.bias().unwrap_or(0.0),
        };
        kernels::run(simd, encode);
    }

    /// Record of each slot.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Encodes the rows of the slots from `first` on again when a run resumes from a checkpoint.
    pub fn encode_again(&mut self, problem: &Problem, first: usize, rows: &RowTable, simd: Simd) {
        let coming: Vec<(usize, usize)> = (0..rows.len()).map(|i| (i, first + i)).collect();
        for &(i, slot) in &coming {
            assert_eq!(self.ids[slot], rows.id(i));
            self.labels[slot] = rows.label(i);
        }
        // Residuals are as saved.
        self.encode(problem, rows, &coming, &[], simd);
    }

    /// Drops the cached rows with the most slack and makes room for those of the block with less; returns the indices
    /// in the block and the slots of the latter.
    fn choose(&mut self, block: &RowTable, slack: &[f32]) -> Vec<(usize, usize)> {
        // Rows of the block that are already cached keep their slot.
        let mut coming = Vec::new();
        let mut candidates: Vec<(f32, u64, usize)> = Vec::new();
        for (i, &slack) in slack.iter().enumerate() {
            let id = block.id(i);
            match self.slots[id as usize] {
                NOT_HELD if slack.is_finite() => candidates.push((slack, id, i)),
                NOT_HELD => {}
                slot => {
                    self.slack[slot as usize] = slack;
                    coming.push((i, slot as usize));
                }
            }
        }
        let order =
            |a: &(f32, u64, usize), b: &(f32, u64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        candidates.sort_unstable_by(order);
        let free = self.capacity - self.ids.len();
        for &(slack, id, i) in candidates.iter().take(free) {
            let slot = self.ids.len();
            self.slots[id as usize] = slot as u32;
            self.ids.push(id);
            self.codes.resize(self.codes.len() + self.stride(), 0);
            self.residuals
                .resize(self.residuals.len() + self.subproblems, 0.0);
            self.norms.push(0.0);
            self.labels.push(block.label(i));
            self.slack.push(slack);
            coming.push((i, slot));
        }
        let candidates = &candidates[free.min(candidates.len())..];
        if candidates.is_empty() {
            return coming;
        }
        let mut held: Vec<(f32, u64, usize)> = (0..self.ids.len())
            .map(|slot| (self.slack[slot], self.ids[slot], slot))
            .collect();
        held.sort_unstable_by(order);
        for (candidate, worst) in candidates.iter().zip(held.iter().rev()) {
            if order(candidate, worst).is_ge() {
                break;
            }
            let &(slack, id, i) = candidate;
            let slot = worst.2;
            self.slots[worst.1 as usize] = NOT_HELD;
            self.slots[id as usize] = slot as u32;
            self.ids[slot] = id;
            self.labels[slot] = block.label(i);
            self.slack[slot] = slack;
            coming.push((i, slot));
        }
        coming
    }

    /// Solves the problem over the cached rows, updating the present weights and duals.
    ///
    /// Errors: [`LinearError::Interrupted`] as set up by [`Scratch::end_when`].
    pub fn solve(
        &mut self,
        problem: &Problem,
        weights: &mut Weights,
        duals: &mut Duals,
        inner: InnerPasses,
        key: u64,
        scratch: &mut Scratch,
    ) -> Result<BlockReport, LinearError> {
        if self.quantizer.is_none() {
            return Ok(BlockReport::default());
        }
        let (held, mut padded) = self.begin(problem, weights, duals, scratch);
        let ids = &held.ids;
        let q = self.quantizer.as_ref().expect("looked at above");
        let rows = |subproblem| CodedRows {
            cache: self,
            q,
            bias: problem.bias().unwrap_or(0.0),
            subproblem,
        };
        let solved = solve_rows(problem, ids, rows, &mut padded, duals, inner, key, scratch);
        if solved.is_ok() {
            self.end(&held, &padded, weights, scratch);
        }
        self.forget_unchanged(&held, duals);
        solved
    }

    /// Prepares the visits of the cached rows; returns these, and the weights in the layout of the quantised rows:
    /// padded, then the bias weight.
    fn begin(
        &mut self,
        problem: &Problem,
        weights: &Weights,
        duals: &Duals,
        scratch: &mut Scratch,
    ) -> (Held, Vec<Vec<f32>>) {
        let fit = |&slot: &usize| self.norms[slot] >= 0.0;
        let slots: Vec<usize> = (0..self.ids.len()).filter(fit).collect();
        let ids: Vec<u64> = slots.iter().map(|&slot| self.ids[slot]).collect();
        let terms = problem.terms(0);
        scratch.visits.clear();
        scratch.squares.clear();
        if problem.has_grid() {
            let norms = slots.iter().map(|&slot| self.norms[slot]);
            scratch.squares.extend(norms);
        }
        scratch.visits.extend(slots.iter().map(|&slot| {
            let label = self.labels[slot];
            let q = self.norms[slot] + terms.of(label, self.ids[slot]).dual.diagonal;
            let place = RowAddress {
                segment: 0,
                start: slot as u32,
                length: 0,
            };
            Visit {
                place,
                label,
                alpha: 0.0,
                gradient: 0.0,
                q,
                inverse_q: 1.0 / q,
            }
        }));
        for (before, subproblem) in self.before.iter_mut().zip(0..) {
            let stored = duals.stored(subproblem);
            // A change that is still to be made exact stays one, from the same α.
            for &id in &ids {
                let before = &mut before[id as usize];
                if before.is_nan() {
                    *before = stored[id as usize];
                }
            }
        }
        let q = self.quantizer.as_ref().expect("rows are held as its codes");
        let padded = (0..self.subproblems).map(|subproblem| {
            let w = weights.vector(subproblem);
            let mut padded = pad(q, &w[..self.features]);
            padded.push(w.get(self.features).copied().unwrap_or(0.0));
            padded
        });
        (Held { slots, ids }, padded.collect())
    }

    /// Writes the solution back.
    fn end(&mut self, held: &Held, padded: &[Vec<f32>], weights: &mut Weights, scratch: &Scratch) {
        for (&slot, &slack) in held.slots.iter().zip(scratch.slack()) {
            self.slack[slot] = slack;
        }
        for (subproblem, padded) in padded.iter().enumerate() {
            let w = weights.vector_mut(subproblem);
            w[..self.features].copy_from_slice(&padded[..self.features]);
            if let (Some(bias), Some(found)) = (w.get_mut(self.features), padded.last()) {
                *bias = *found;
            }
        }
    }

    /// Rows with unchanged α need no correction.
    fn forget_unchanged(&mut self, held: &Held, duals: &Duals) {
        for subproblem in 0..self.subproblems {
            let stored = duals.stored(subproblem);
            for &id in &held.ids {
                let before = &mut self.before[subproblem][id as usize];
                if before.to_bits() == stored[id as usize].to_bits() {
                    *before = EXACT;
                }
            }
        }
    }

    /// The parts for a checkpoint, borrowed.
    pub fn save(&self) -> SavedCodes<'_> {
        let quantizer = self.quantizer.as_ref().map_or(Vec::new(), Quantizer::parts);
        SavedCodes {
            quantizer: quantizer.into(),
            ids: (&self.ids).into(),
            residuals: (&self.residuals).into(),
            slack: (&self.slack).into(),
            before: self.before.iter().map(|before| before.into()).collect(),
        }
    }

    /// Whether saved parts have the shapes of this cache.
    pub fn fits(&self, saved: &SavedCodes<'_>) -> bool {
        let (records, held) = (self.slots.len(), saved.ids.len());
        let quantizer = saved.quantizer.len();
        let mut ids = saved.ids.to_vec();
        ids.sort_unstable();
        (quantizer == 2 * self.features || (quantizer == 0 && held == 0))
            && ids.windows(2).all(|pair| pair[0] < pair[1])
            && ids.last().is_none_or(|&id| id < records as u64)
            && saved.residuals.len() == held * self.subproblems
            && saved.slack.len() == held
            && saved.before.len() == self.subproblems
            && saved.before.iter().all(|before| before.len() == records)
    }

    /// Resumes from valid saved parts, once [`QuantizedCache::encode_again`] has received the rows of every slot. If
    /// there are more rows than fit, it keeps those with the least slack; the others are corrected when read, like any
    /// row.
    pub fn restore(&mut self, saved: SavedCodes<'_>) {
        let (offsets, steps) = saved.quantizer.split_at(saved.quantizer.len() / 2);
        self.quantizer = (!offsets.is_empty())
            .then(|| Quantizer::from_parts(self.features, offsets.to_vec(), steps.to_vec()));
        let mut kept: Vec<usize> = (0..saved.ids.len()).collect();
        if kept.len() > self.capacity {
            kept.sort_unstable_by(|&a, &b| {
                saved.slack[a].total_cmp(&saved.slack[b]).then(a.cmp(&b))
            });
            kept.truncate(self.capacity);
            kept.sort_unstable();
        }
        for slot in kept {
            let id = saved.ids[slot];
            self.slots[id as usize] = self.ids.len() as u32;
            self.ids.push(id);
            let residuals = slot * self.subproblems..(slot + 1) * self.subproblems;
            self.residuals
                .extend_from_slice(&saved.residuals[residuals]);
            self.slack.push(saved.slack[slot]);
        }
        let held = self.ids.len();
        self.codes.resize(held * self.stride(), 0);
        self.norms.resize(held, UNFIT);
        self.labels.resize(held, 0);
        for (before, saved) in self.before.iter_mut().zip(&saved.before) {
            before.copy_from_slice(saved);
        }
    }
}

/// The rows that are solved over.
struct Held {
    slots: Vec<usize>,
    ids: Vec<u64>,
}

/// A vector padded with zeros to whole registers.
fn pad(q: &Quantizer, values: &[f32]) -> Vec<f32> {
    let mut padded = Vec::with_capacity(q.padded() + 1);
    padded.extend_from_slice(values);
    padded.resize(q.padded(), 0.0);
    padded
}

#[cfg(test)]
mod tests;
