//! Division of steps among threads, and the code that both passes share in a step.

use std::ops::Range;

use rayon::prelude::*;

use super::layer::Lstm;
use crate::block::{DEPTH, LEFT_ROW};
use crate::team;

/// Rows of a group that are computed together; also the fewest rows of a useful group.
pub const HIGH: usize = 14;

/// Operations of a step for which meeting another thread (about 0.3 µs) is worth while.
const MEETING: usize = 150_000;

impl Lstm {
    /// For each block of `wide` units 4H rows of `wide` weights, as `fill` writes them.
    pub(super) fn panels(&self, wide: usize, fill: impl Fn(&mut [f32], usize) + Sync) -> Vec<f32> {
        let each = 4 * self.hidden * wide;
        let mut panels = vec![0.0; self.hidden.div_ceil(wide) * each];
        let blocks = panels.par_chunks_mut(each);
        blocks
            .enumerate()
            .for_each(|(block, panel)| fill(panel, block));
        panels
    }

    /// Runs `step(index, rows, blocks of units)` for all steps, rows and units, on all threads.
    pub(super) fn divide(
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
}

/// Share `number` of `shares` nearly equal ones of 0..n.
pub fn share(n: usize, number: usize, shares: usize) -> Range<usize> {
    n * number / shares..n * (number + 1) / shares
}

/// Calls `f` with nearly equal runs of at most `HIGH` rows.
pub fn for_high(rows: Range<usize>, f: impl Fn(Range<usize>)) {
    let runs = rows.len().div_ceil(HIGH);
    for run in 0..runs {
        let part = share(rows.len(), run, runs);
        f(rows.start + part.start..rows.start + part.end);
    }
}

/// At most `W` numbers, padded with zeros; without a call if there are `W`.
#[inline(always)]
pub fn vector<const W: usize>(from: &[f32]) -> [f32; W] {
    match <[f32; W]>::try_from(from) {
        Ok(whole) => whole,
        Err(_) => std::array::from_fn(|i| from.get(i).copied().unwrap_or(0.0)),
    }
}

/// Writes as many numbers as `to` takes.
#[inline(always)]
pub fn put<const W: usize>(from: &[f32; W], to: &mut [f32]) {
    match <&mut [f32; W]>::try_from(&mut *to) {
        Ok(to) => *to = *from,
        Err(_) => to.copy_from_slice(&from[..to.len()]),
    }
}

/// Copies rows of a left operand, `rows` high, each of `len` numbers, for blocks of at most `DEPTH`.
pub fn left_rows<'r>(
    rows: usize,
    len: usize,
    row: impl Fn(usize) -> Option<&'r [f32]>,
) -> Vec<f32> {
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
pub fn depth(len: usize) -> usize {
    len.div_ceil(len.div_ceil(DEPTH))
}
