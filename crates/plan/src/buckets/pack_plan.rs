//! A plan whose batches are rows of several sentences each.
//!
//! The order of the plan below is taken in look-aheads of some thousand sentences. Those of one are
//! packed into rows ([`Packing`]), the rows are put in a random order, and the sentences are dealt
//! to the places of their length in the order they came. A batch is a number of rows; it may span
//! look-aheads, and the last of an epoch may be smaller. A row is a list of segments; whoever computes on
//! it resets the state, and masks attention, at the start of each.
//!
//! *Seeking.* How many rows a look-ahead fills follows from how many sentences of each length it has, so
//! a place is sought by counting lengths and packing counts, without dealing. The row at which each look-ahead begins is kept, 8 bytes each, for two epochs.
//! Rejected: one list of open rows for the whole epoch, which fills a few rows more and makes every
//! row depend on all sentences before it.
//!
//! **RL\***. Full order brings any sentences into a look-ahead: N!/∏ W_w! ways. Within one, sentences of
//! equal length are dealt in any order, and R rows come in any order, of which those of equal pattern
//! p, m_p of them, differ by their sentences alone: R!/∏ m_p! · ∏ k_ℓ! ways, k_ℓ sentences having pieces of
//! length ℓ. A sentence that is cut has pieces of the row's length and a rest; where several have
//! the same rest, both come in one order: a factor 1/s_ℓ! for s_ℓ cut sentences with rest ℓ. Each way
//! is equally likely, so that
//!
//! ```text
//! RL* = (ln N! − Σ_w (ln W_w! − ln R! + Σ ln m_p! − Σ ln k_ℓ! + Σ ln s_ℓ!)) / ln N!
//! ```
//!
//! (at most 1: the pieces of cut sentences have more orders than sentences do) is the share of the entropy, given how the lengths of an epoch fall into look-aheads; between
//! epochs it moves in the fourth place.

use std::sync::{Mutex, PoisonError};

use super::packing::{Packing, Pattern};
use super::plan::global_batch;
use super::table::Table;
use crate::error::PlanError;
use crate::key::{GOLDEN_GAMMA, Stage, key, mix};
use crate::order::Order;
use crate::plan::Plan;
use crate::randomness::ln_factorial;
use crate::rng::KeyedRng;

/// A part of a sentence, or all of it, in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The sentence.
    pub id: u64,
    /// Its first token in this row; 0 unless it is longer than a row.
    pub start: u32,
    /// Its tokens in this row.
    pub length: u32,
}

/// Segments side by side, the longest first; what they leave of the row is padding.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PackedRow {
    /// The segments. State is reset at the start of each.
    pub segments: Vec<Segment>,
}

/// A plan whose batches are rows of several sentences each: a pure function of the plan below, the
/// packing and the lengths.
///
/// Shared between threads by reference; what it keeps inside changes speed, never results.
#[derive(Debug)]
pub struct PackPlan {
    plan: Plan,
    packing: Packing,
    batch: u64,
    lengths: Table,
    tokens: u128,
    kept: Mutex<Kept>,
}

/// What was found out about epochs and look-aheads; most recently used first.
#[derive(Debug, Default)]
struct Kept {
    epochs: Vec<EpochRows>,
    windows: Vec<Window>,
}

/// Most pieces a look-ahead could have, so that they can be counted in four bytes.
pub(crate) const MAX_PIECES: u64 = 1 << 31;

/// Most counters of pieces by look-ahead and length, 4 bytes each.
const MAX_COUNTERS: u64 = 1 << 23;

const EPOCHS: usize = 2;
const WINDOWS: usize = 2;

/// The row at which each look-ahead of an epoch begins, as far as it was looked at.
#[derive(Debug)]
struct EpochRows {
    epoch: u64,
    starts: Vec<u64>,
}

/// The rows of one look-ahead.
#[derive(Debug)]
struct Window {
    epoch: u64,
    number: u64,
    rows: Vec<PackedRow>,
}

impl PackPlan {
    /// Rows of the sentences that `plan` numbers, `length_of` telling the length of each. It is called
    /// once for every id; batches are the plan's, of a number of rows.
    pub fn new(
        plan: Plan,
        packing: Packing,
        length_of: impl Fn(u64) -> u32,
    ) -> Result<PackPlan, PlanError> {
        let batch = global_batch(&plan)?;
        let lengths: Vec<u32> = (0..plan.records()).map(length_of).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let rows = u64::from(longest).div_ceil(packing.row_length().into());
        if rows * u64::from(packing.look_ahead()) > MAX_PIECES {
            let packing = packing.to_string();
            return Err(PlanError::CutTooOften { packing, longest });
        }
        Ok(PackPlan {
            tokens: lengths.iter().map(|&length| u128::from(length)).sum(),
            lengths: Table::new(plan.records(), longest, |id| lengths[id as usize]),
            kept: Mutex::default(),
            plan,
            packing,
            batch,
        })
    }

    /// The plan whose order the sentences come in.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The length of each sentence.
    pub(crate) fn lengths(&self) -> &Table {
        &self.lengths
    }

    /// The packing.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Rows of an epoch. Costs a pass over the epoch's ids, once.
    pub fn rows(&self, epoch: u64) -> u64 {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.look_through(&mut kept, epoch, u64::MAX);
        kept.epochs[0].starts[self.windows() as usize]
    }

    /// Batches of an epoch. Costs a pass over the epoch's ids, once.
    pub fn steps(&self, epoch: u64) -> u64 {
        self.rows(epoch).div_ceil(self.batch)
    }

    /// Cells that hold padding over all cells of an epoch; 0 where there are none.
    pub fn padded_fraction(&self, epoch: u64) -> f64 {
        let cells = u128::from(self.rows(epoch)) * u128::from(self.packing.row_length());
        (cells - self.tokens) as f64 / cells.max(1) as f64
    }

    /// Appends the rows of the global batch of a step. A step of an epoch that was not looked at
    /// before costs a pass over the ids before it. Asserts `step < steps`.
    pub fn batch_rows(&self, epoch: u64, step: u64, rows: &mut Vec<PackedRow>) {
        let first = step * self.batch;
        let end = first.saturating_add(self.batch);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.look_through(&mut kept, epoch, end);
        let starts = &kept.epochs[0].starts;
        let known = starts[starts.len() - 1];
        assert!(
            first < known,
            "step {step} of {} an epoch",
            known.div_ceil(self.batch)
        );
        // After the last look-ahead stands the number of rows.
        let windows = &starts[..starts.len() - 1];
        let from = windows.partition_point(|&start| start <= first) - 1;
        let to = windows.partition_point(|&start| start < end);
        let windows = windows[from..to].to_vec();
        for (number, start) in (from as u64..).zip(windows) {
            let window = self.window(&mut kept, epoch, number);
            let from = first.saturating_sub(start) as usize;
            let to = ((end - start) as usize).min(window.rows.len());
            rows.extend_from_slice(&window.rows[from.min(to)..to]);
        }
    }

    /// The exact randomness RL* of an epoch over `full` order, derived above; 0 where every epoch is
    /// the same; not known of other orders. Costs a pass over the epoch's ids.
    pub fn rl_exact(&self, epoch: u64) -> Option<f64> {
        match self.plan.order() {
            _ if self.plan.records() <= 1 => return Some(1.0),
            Order::Full => {}
            _ => return self.plan.is_same_every_epoch().then_some(0.0),
        }
        let all = ln_factorial(self.plan.records() as f64);
        let mut counter = Counter::new(self.packing);
        let mut sentences = Sentences::default();
        let windows = (0..self.windows()).map(|window| {
            self.sentences(epoch, window, &mut sentences);
            let held = ln_factorial(sentences.ids.len() as f64);
            held - counter.ln_orders(&sentences.lengths)
        });
        Some(((all - windows.sum::<f64>()) / all).min(1.0))
    }

    /// Look-aheads of an epoch.
    fn windows(&self) -> u64 {
        self.plan
            .records()
            .div_ceil(self.packing.look_ahead().into())
    }

    /// Finds where look-aheads of `epoch` begin, up to that with row `row`, and moves the epoch to the
    /// front.
    fn look_through(&self, kept: &mut Kept, epoch: u64, row: u64) {
        let mut rows = match kept.epochs.iter().position(|rows| rows.epoch == epoch) {
            Some(place) => kept.epochs.remove(place),
            None => {
                kept.epochs.truncate(EPOCHS - 1);
                let starts = vec![0];
                EpochRows { epoch, starts }
            }
        };
        if rows.starts.len() == 1 && self.counting_pays(row) {
            rows.starts = self.starts(epoch);
        }
        let mut counter = Counter::new(self.packing);
        let mut sentences = Sentences::default();
        let mut known = rows.starts[rows.starts.len() - 1];
        while known < row && (rows.starts.len() as u64) <= self.windows() {
            self.sentences(epoch, rows.starts.len() as u64 - 1, &mut sentences);
            let patterns = counter.pack(&sentences.lengths);
            known += patterns
                .iter()
                .map(|pattern| u64::from(pattern.rows))
                .sum::<u64>();
            rows.starts.push(known);
        }
        kept.epochs.insert(0, rows);
    }

    /// Whether looking at all sentences at once is possible, and faster than doing it look-ahead by
    /// look-ahead up to a row.
    fn counting_pays(&self, row: u64) -> bool {
        let row_length = u64::from(self.packing.row_length());
        let rows = self.tokens / u128::from(row_length);
        let is_late = u128::from(row) >= rows / 5 * 2;
        is_late && self.plan.is_invertible() && can_count(self.packing, self.windows())
    }

    /// Where each look-ahead of an epoch begins.
    fn starts(&self, epoch: u64) -> Vec<u64> {
        let by_number = |visit: &mut dyn FnMut(&[u64], &[u64])| {
            self.plan.by_number(epoch, visit);
        };
        count_starts(self.packing, self.windows(), &self.lengths, by_number)
    }

    /// The sentences of a look-ahead, in order.
    fn sentences(&self, epoch: u64, window: u64, into: &mut Sentences) {
        let first = window * u64::from(self.packing.look_ahead());
        let len = u64::from(self.packing.look_ahead()).min(self.plan.records() - first);
        into.ids.resize(len as usize, 0);
        into.lengths.resize(len as usize, 0);
        self.plan.fill_ids(epoch, first, &mut into.ids);
        self.lengths.gather(&into.ids, &mut into.lengths);
    }

    fn window<'a>(&self, kept: &'a mut Kept, epoch: u64, number: u64) -> &'a Window {
        let of = |window: &Window| (window.epoch, window.number) == (epoch, number);
        let window = match kept.windows.iter().position(of) {
            Some(place) => kept.windows.remove(place),
            None => {
                kept.windows.truncate(WINDOWS - 1);
                let rows = self.deal(epoch, number);
                Window {
                    epoch,
                    number,
                    rows,
                }
            }
        };
        kept.windows.insert(0, window);
        &kept.windows[0]
    }

    /// The rows of a look-ahead with their sentences.
    fn deal(&self, epoch: u64, number: u64) -> Vec<PackedRow> {
        let mut sentences = Sentences::default();
        self.sentences(epoch, number, &mut sentences);
        let mut pieces: Vec<Segment> = Vec::with_capacity(sentences.ids.len());
        for (&id, &length) in sentences.ids.iter().zip(&sentences.lengths) {
            let of_sentence = self.packing.pieces(length);
            pieces.extend(of_sentence.map(|(start, length)| Segment { id, start, length }));
        }
        // Stable, so that pieces of one length stay in the order they came; the longest are first.
        pieces.sort_by_key(|piece| std::cmp::Reverse(piece.length));
        let patterns = Counter::new(self.packing).pack(&sentences.lengths);
        let each =
            |(place, pattern): (u32, &Pattern)| std::iter::repeat_n(place, pattern.rows as usize);
        let mut order: Vec<u32> = (0..).zip(&patterns).flat_map(each).collect();
        // A plan that is the same in every epoch stays so.
        let epoch = if self.plan.is_same_every_epoch() {
            0
        } else {
            epoch
        };
        let stage = Stage::PackedRows(number);
        KeyedRng::new(key(self.plan.seed(), epoch, stage)).shuffle(&mut order);
        let mut next = NextPieces::new(&pieces);
        order
            .iter()
            .map(|&place| next.row(&patterns[place as usize]))
            .collect()
    }

    /// Memory the plan may come to hold, beyond its own few hundred bytes.
    pub fn memory_bytes(&self) -> u64 {
        let starts = (EPOCHS as u64) * 8 * (self.windows() + 1);
        // A segment, and its row's list where the row holds no other.
        let longest = u64::from(self.packing.look_ahead()).min(self.plan.records());
        let windows = (WINDOWS as u64) * longest * (16 + 24);
        self.plan.memory_bytes() + self.lengths.bytes() + starts + windows
    }

    /// A number that two plans share when they give the same rows by construction.
    pub fn fingerprint(&self) -> u64 {
        [
            self.plan.fingerprint(),
            self.lengths.digest(),
            self.packing.row_length().into(),
            self.packing.look_ahead().into(),
        ]
        .into_iter()
        .fold(3, |state, word| {
            mix(state ^ word).wrapping_mul(GOLDEN_GAMMA).rotate_left(7)
        })
    }
}

/// Whether the pieces of so many look-aheads can be counted at once.
pub(crate) fn can_count(packing: Packing, windows: u64) -> bool {
    let lengths = u64::from(packing.row_length()) + 1;
    windows.saturating_mul(lengths) <= MAX_COUNTERS
}

/// The row at which each look-ahead begins, and the number of rows. `by_number` shows numbers of sentences, whose
/// lengths lie side by side, with their positions, and pieces are counted there: looking lengths up in the order
/// that sentences come takes three times as long.
pub(crate) fn count_starts(
    packing: Packing,
    windows: u64,
    lengths: &Table,
    by_number: impl FnOnce(&mut dyn FnMut(&[u64], &[u64])),
) -> Vec<u64> {
    let columns = packing.row_length() as usize + 1;
    let look_ahead = u64::from(packing.look_ahead());
    let mut counts = vec![0_u32; windows as usize * columns];
    let mut of_run = Vec::new();
    by_number(&mut |numbers, positions| {
        of_run.resize(numbers.len(), 0);
        lengths.gather(numbers, &mut of_run);
        for (position, &length) in positions.iter().zip(&of_run) {
            let window = (position / look_ahead) as usize;
            let of_window = &mut counts[window * columns..][..columns];
            for (_, piece) in packing.pieces(length) {
                of_window[piece as usize] += 1;
            }
        }
    });
    let mut starts = vec![0];
    let mut known = 0;
    for of_window in counts.chunks_exact(columns) {
        let pieces = (0..columns as u32).zip(of_window.iter().copied()).rev();
        let pieces: Vec<(u32, u32)> = pieces.filter(|&(_, count)| count > 0).collect();
        let patterns = packing.pack(&pieces);
        let rows = patterns.iter().map(|pattern| u64::from(pattern.rows));
        known += rows.sum::<u64>();
        starts.push(known);
    }
    starts
}

/// Sentences in the order they come.
#[derive(Debug, Default)]
struct Sentences {
    ids: Vec<u64>,
    lengths: Vec<u32>,
}

/// Deals the pieces of each length in turn.
pub(crate) struct NextPieces<'a> {
    pieces: &'a [Segment],
    /// For each length, falling: the next piece.
    next: Vec<(u32, usize)>,
}

impl<'a> NextPieces<'a> {
    /// Over pieces by falling length.
    pub(crate) fn new(pieces: &'a [Segment]) -> NextPieces<'a> {
        let mut next: Vec<(u32, usize)> = Vec::new();
        for (place, piece) in pieces.iter().enumerate() {
            if next
                .last()
                .is_none_or(|&(length, _)| length != piece.length)
            {
                next.push((piece.length, place));
            }
        }
        NextPieces { pieces, next }
    }

    pub(crate) fn row(&mut self, pattern: &Pattern) -> PackedRow {
        let mut segments = Vec::new();
        for &(length, count) in &pattern.pieces {
            let of_length = self.next.partition_point(|next| next.0 > length);
            let place = &mut self.next[of_length].1;
            segments.extend_from_slice(&self.pieces[*place..][..count as usize]);
            *place += count as usize;
        }
        PackedRow { segments }
    }
}

/// Counts the pieces of a look-ahead by length; kept between look-aheads.
pub(crate) struct Counter {
    packing: Packing,
    /// Pieces by length.
    counts: Vec<u32>,
    /// Lengths that occur.
    seen: Vec<u32>,
}

impl Counter {
    pub(crate) fn new(packing: Packing) -> Counter {
        Counter {
            packing,
            counts: vec![0; packing.row_length() as usize + 1],
            seen: Vec::new(),
        }
    }

    /// The rows for sentences of these lengths.
    pub(crate) fn pack(&mut self, lengths: &[u32]) -> Vec<Pattern> {
        let pieces = self.count(lengths);
        self.packing.pack(&pieces)
    }

    /// How many pieces have each length, by falling length.
    fn count(&mut self, lengths: &[u32]) -> Vec<(u32, u32)> {
        for &length in lengths {
            for (_, piece) in self.packing.pieces(length) {
                let count = &mut self.counts[piece as usize];
                if *count == 0 {
                    self.seen.push(piece);
                }
                *count += 1;
            }
        }
        self.seen.sort_unstable_by(|a, b| b.cmp(a));
        self.seen
            .drain(..)
            .map(|length| (length, std::mem::take(&mut self.counts[length as usize])))
            .collect()
    }

    /// ln of the number of ways in which sentences of these lengths are emitted, any order of them coming
    /// in: R!/∏ m_p! · ∏ k_ℓ! / ∏ s_ℓ! of the module's derivation.
    fn ln_orders(&mut self, lengths: &[u32]) -> f64 {
        let row_length = self.packing.row_length();
        let ln = |count: u32| ln_factorial(f64::from(count));
        let patterns = self.pack(lengths);
        let mut orders = ln(patterns.iter().map(|pattern| pattern.rows).sum());
        orders -= patterns.iter().map(|pattern| ln(pattern.rows)).sum::<f64>();
        let whole = lengths.iter().filter(|&&length| length >= row_length);
        orders += ln(whole.count() as u32);
        let shorter = self
            .count(lengths)
            .into_iter()
            .filter(|&(length, _)| length < row_length);
        orders += shorter.map(|(_, count)| ln(count)).sum::<f64>();
        let rests: Vec<u32> = lengths
            .iter()
            .filter(|&&length| length > row_length && length % row_length != 0)
            .map(|length| length % row_length)
            .collect();
        orders
            - self
                .count(&rests)
                .into_iter()
                .map(|(_, cut)| ln(cut))
                .sum::<f64>()
    }
}

#[cfg(test)]
mod tests;
