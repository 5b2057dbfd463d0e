//! Batches of packed rows, of any sequence.
//!
//! A look-ahead of appearances is packed into rows ([`Packing`]), the rows are put in a random order, and the
//! appearances are dealt to the places of their length in the order they came. A batch is a number of rows; it may
//! span look-aheads, and the last of an epoch may be smaller. Two appearances of an example in one look-ahead may
//! change places by that; their copies are then counted in the order they come out.
//!
//! *Seeking.* How many rows a look-ahead fills follows from how many appearances of each length it has, so a place is
//! sought by counting lengths (`row_starts.rs`), without dealing. The row at which each look-ahead begins is kept,
//! 8 bytes each, for two epochs.
//! Rejected: one list of open rows for the whole epoch, which fills a few rows more and makes every
//! row depend on all sentences before it.
//!
//! **RL\***. Full order brings any examples into a look-ahead: N!/∏ W_w! ways. Within one, examples of
//! equal length are dealt in any order, and R rows come in any order, of which those of equal pattern
//! p, m_p of them, differ by their examples alone: R!/∏ m_p! · ∏ k_ℓ! ways, k_ℓ examples having pieces of
//! length ℓ. An example that is cut has pieces of the row's length and a rest; where several have
//! the same rest, both come in one order: a factor 1/s_ℓ! for s_ℓ cut examples with rest ℓ. Each way
//! is equally likely, so that
//!
//! ```text
//! RL* = (ln N! − Σ_w (ln W_w! − ln R! + Σ ln m_p! − Σ ln k_ℓ! + Σ ln s_ℓ!)) / ln N!
//! ```
//!
//! (at most 1: the pieces of cut examples have more orders than examples do) is the share of the entropy, given how
//! the lengths of an epoch fall into look-aheads; between epochs it moves in the fourth place.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::batch::{Draw, Piece, StreamBatch};
use super::row_starts::{Packed, Walk, by_number};
use super::sequence::{Sequence, Source};
use crate::buckets::{NextPieces, Packing, PieceCounter, Segment, Table};
use crate::error::PlanError;
use crate::order::Order;
use crate::randomness::ln_factorial;
use pelton_key::KeyedRng;
use pelton_key::{GOLDEN_GAMMA, Stage, key, mix};

/// Most pieces a look-ahead could have, so that they can be counted in four bytes.
const MAX_PIECES: u64 = 1 << 31;

const EPOCHS: usize = 2;
const WINDOWS: usize = 2;

/// Batches of packed rows.
#[derive(Debug)]
pub(super) struct Rows {
    sequence: Sequence,
    packing: Packing,
    /// Rows of a batch.
    batch: u64,
    seed: u64,
    /// The length of each example, by its number.
    lengths: Table,
    /// The sum of the lengths, the greatest, and the length of the shortest piece.
    tokens: u128,
    longest: u32,
    shortest_piece: u32,
    kept: Mutex<Kept>,
}

/// What was found out; most recently used first.
#[derive(Debug, Default)]
struct Kept {
    epochs: Vec<EpochRows>,
    windows: Vec<Window>,
}

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
    draws: Vec<Draw>,
    pieces: Vec<Piece>,
    /// Where each row begins among the draws, then how many these are.
    rows: Vec<u32>,
}

/// Appearances of a look-ahead with their lengths.
#[derive(Debug, Default)]
struct Ahead {
    draws: Vec<Draw>,
    numbers: Vec<u64>,
    lengths: Vec<u32>,
}

impl Rows {
    /// Over a sequence of the examples `0..kept`.
    pub(super) fn new(
        sequence: Sequence,
        packing: Packing,
        batch: u64,
        kept: u64,
        seed: u64,
        length_of: impl Fn(u64) -> u32,
    ) -> Result<Rows, PlanError> {
        let lengths: Vec<u32> = (0..kept).map(length_of).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let pieces = u64::from(longest).div_ceil(packing.row_length().into());
        if pieces * u64::from(packing.look_ahead()) > MAX_PIECES {
            let packing = packing.to_string();
            return Err(PlanError::CutTooOften { packing, longest });
        }
        let last_piece = |&length: &u32| match length % packing.row_length() {
            0 => length.min(packing.row_length()),
            rest => rest,
        };
        let shortest_piece = lengths.iter().map(last_piece).min().unwrap_or(0);
        Ok(Rows {
            tokens: lengths.iter().map(|&length| u128::from(length)).sum(),
            lengths: Table::new(kept, longest, |number| lengths[number as usize]),
            sequence,
            packing,
            batch,
            seed,
            longest,
            shortest_piece,
            kept: Mutex::default(),
        })
    }

    pub(super) fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    pub(super) fn packing(&self) -> Packing {
        self.packing
    }

    /// The greatest length, where it is cut into several rows.
    pub(super) fn longest_cut(&self) -> Option<u32> {
        (self.longest > self.packing.row_length()).then_some(self.longest)
    }

    /// Rows of an epoch. Costs a pass over the epoch, once.
    pub(super) fn rows(&self, epoch: u64) -> u64 {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.look_through(&mut kept, epoch, u64::MAX);
        kept.epochs[0].starts[self.packed(epoch).look_aheads() as usize]
    }

    /// Batches of an epoch.
    pub(super) fn steps(&self, epoch: u64) -> u64 {
        self.rows(epoch).div_ceil(self.batch)
    }

    /// Cells that hold padding over all cells of an epoch; 0 where there are none. Costs a pass over the epoch, and
    /// another where tokens are not the same in each.
    pub(super) fn padded_fraction(&self, epoch: u64) -> f64 {
        let times = self.sequence.echo().echo().whole();
        let tokens = match (self.sequence.source(), times) {
            (Source::Plan(_), Some(times)) => self.tokens * u128::from(times),
            _ => {
                let mut ahead = Ahead::default();
                let windows = 0..self.packed(epoch).look_aheads();
                let of_window = windows.map(|window| {
                    self.ahead(epoch, window, &mut ahead);
                    ahead.lengths.iter().map(|&n| u128::from(n)).sum::<u128>()
                });
                of_window.sum()
            }
        };
        let cells = u128::from(self.rows(epoch)) * u128::from(self.packing.row_length());
        (cells - tokens) as f64 / cells.max(1) as f64
    }

    /// The exact randomness RL* of an epoch over `full` order, derived above; 0 where every epoch is
    /// the same; not known of other orders, mixtures and echoed examples. Costs a pass over the epoch.
    pub(super) fn rl_exact(&self, epoch: u64) -> Option<f64> {
        let Source::Plan(plan) = self.sequence.source() else {
            return None;
        };
        match plan.order() {
            _ if !self.sequence.echo().echo().is_none() => return None,
            _ if plan.records() <= 1 => return Some(1.0),
            Order::Full => {}
            _ => return plan.is_same_every_epoch().then_some(0.0),
        }
        let all = ln_factorial(plan.records() as f64);
        let mut counter = PieceCounter::new(self.packing);
        let mut ahead = Ahead::default();
        let windows = (0..self.packed(epoch).look_aheads()).map(|window| {
            self.ahead(epoch, window, &mut ahead);
            let held = ln_factorial(ahead.lengths.len() as f64);
            held - counter.ln_orders(&ahead.lengths)
        });
        Some(((all - windows.sum::<f64>()) / all).min(1.0))
    }

    /// The most draws of a batch, or more.
    pub(super) fn largest_batch(&self) -> u64 {
        let row_length = self.packing.row_length();
        let cuts = u64::from(self.longest)
            .div_ceil(u64::from(row_length))
            .max(1);
        let all = self.sequence.appearances().saturating_mul(cuts);
        // Any number of empty pieces goes into a row.
        let most = row_length.checked_div(self.shortest_piece).map(u64::from);
        most.map_or(all, |most| all.min(most.saturating_mul(self.batch)))
    }

    /// The most examples that appeared and appear again within their look-ahead.
    pub(super) fn most_waiting(&self) -> u64 {
        if self.longest_cut().is_some() || !self.sequence.echo().echo().is_none() {
            u64::from(self.packing.look_ahead())
        } else {
            0
        }
    }

    /// Puts the rows of a step into `out`. Asserts that the epoch has it.
    pub(super) fn fill(&self, epoch: u64, step: u64, out: &mut StreamBatch) {
        let first = step * self.batch;
        let end = first.saturating_add(self.batch);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.look_through(&mut kept, epoch, end);
        let starts = &kept.epochs[0].starts;
        let known = starts[starts.len() - 1];
        assert!(first < known, "step {step} of an epoch of {known} rows");
        // After the last look-ahead stands the number of rows.
        let windows = &starts[..starts.len() - 1];
        let from = windows.partition_point(|&start| start <= first) - 1;
        let to = windows.partition_point(|&start| start < end);
        let windows = windows[from..to].to_vec();
        for (number, start) in (from as u64..).zip(windows) {
            let window = self.window(&mut kept, epoch, number);
            let rows = window.rows.len() - 1;
            let from = (first.saturating_sub(start) as usize).min(rows);
            let to = ((end - start) as usize).min(rows);
            window.append(from..to, out);
        }
        out.padded_length = Some(self.packing.row_length());
    }

    fn packed(&self, epoch: u64) -> Packed<'_> {
        Packed {
            sequence: &self.sequence,
            packing: self.packing,
            lengths: &self.lengths,
            longest: self.longest,
            epoch,
        }
    }

    /// Finds where look-aheads of `epoch` begin, up to that with row `row`, and moves the epoch to the front.
    fn look_through(&self, kept: &mut Kept, epoch: u64, row: u64) {
        let mut rows = match kept.epochs.iter().position(|rows| rows.epoch == epoch) {
            Some(place) => kept.epochs.remove(place),
            None => {
                kept.epochs.truncate(EPOCHS - 1);
                let starts = vec![0];
                EpochRows { epoch, starts }
            }
        };
        let packed = self.packed(epoch);
        if rows.starts.len() == 1 && self.is_late(row) && packed.counts_by_number() {
            rows.starts = by_number(packed);
        }
        let mut known = rows.starts[rows.starts.len() - 1];
        let mut walk = None;
        while known < row && (rows.starts.len() as u64) <= packed.look_aheads() {
            let walk = walk.get_or_insert_with(|| Walk::new(packed));
            known += walk.rows(rows.starts.len() as u64 - 1);
            rows.starts.push(known);
        }
        kept.epochs.insert(0, rows);
    }

    /// Whether most of an epoch lies before a row: then all of it is counted as fast.
    fn is_late(&self, row: u64) -> bool {
        let examples = self.sequence.source().examples().max(1) as f64;
        let times = self.sequence.appearances() as f64 / examples;
        let rows = self.tokens as f64 * times / f64::from(self.packing.row_length());
        row as f64 >= 0.4 * rows
    }

    /// The appearances of a look-ahead, in order.
    fn ahead(&self, epoch: u64, window: u64, into: &mut Ahead) {
        let look_ahead = u64::from(self.packing.look_ahead());
        let first = window * look_ahead;
        let end = self.sequence.appearances().min(first + look_ahead);
        into.draws.clear();
        self.sequence.fill(epoch, first..end, &mut into.draws);
        into.numbers.clear();
        into.numbers.extend(into.draws.iter().map(|draw| draw.id));
        into.lengths.resize(into.draws.len(), 0);
        self.lengths.gather(&into.numbers, &mut into.lengths);
    }

    fn window<'a>(&self, kept: &'a mut Kept, epoch: u64, number: u64) -> &'a Window {
        let of = |window: &Window| (window.epoch, window.number) == (epoch, number);
        let window = match kept.windows.iter().position(of) {
            Some(place) => kept.windows.remove(place),
            None => {
                kept.windows.truncate(WINDOWS - 1);
                self.deal(epoch, number)
            }
        };
        kept.windows.insert(0, window);
        &kept.windows[0]
    }

    /// The rows of a look-ahead with their appearances.
    fn deal(&self, epoch: u64, number: u64) -> Window {
        let mut ahead = Ahead::default();
        self.ahead(epoch, number, &mut ahead);
        // Segments go by the place of the appearance in the look-ahead.
        let mut pieces: Vec<Segment> = Vec::with_capacity(ahead.draws.len());
        for (id, &length) in (0..).zip(&ahead.lengths) {
            let of_example = self.packing.pieces(length);
            pieces.extend(of_example.map(|(start, length)| Segment { id, start, length }));
        }
        // Stable, so that pieces of one length stay in the order they came; the longest are first.
        pieces.sort_by_key(|piece| std::cmp::Reverse(piece.length));
        let patterns = PieceCounter::new(self.packing).pack(&ahead.lengths);
        let each = |(place, rows): (u32, u32)| std::iter::repeat_n(place, rows as usize);
        let rows = patterns.iter().map(|pattern| pattern.rows);
        let mut order: Vec<u32> = (0..).zip(rows).flat_map(each).collect();
        let same = self.sequence.source().is_same_every_epoch();
        let key = key(
            self.seed,
            if same { 0 } else { epoch },
            Stage::PackedRows(number),
        );
        KeyedRng::new(key).shuffle(&mut order);
        let mut window = Window {
            epoch,
            number,
            draws: Vec::with_capacity(pieces.len()),
            pieces: Vec::with_capacity(pieces.len()),
            rows: vec![0],
        };
        let mut next = NextPieces::new(&pieces);
        for place in order {
            for segment in next.row(&patterns[place as usize]).segments {
                window.draws.push(ahead.draws[segment.id as usize]);
                window.pieces.push(Piece {
                    start: segment.start,
                    length: segment.length,
                });
            }
            window.rows.push(window.draws.len() as u32);
        }
        if self.most_waiting() > 0 {
            window.count_copies();
        }
        window
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let starts = (EPOCHS as u64) * 8 * (self.packed(0).look_aheads() + 1);
        let longest = u64::from(self.packing.look_ahead()).min(self.sequence.appearances());
        let of_draw = size_of::<Draw>() + size_of::<Piece>() + 4;
        let windows = (WINDOWS as u64) * longest * of_draw as u64;
        self.sequence.memory_bytes() + self.lengths.bytes() + starts + windows
    }

    /// A digest of the lengths.
    pub(super) fn digest(&self) -> u64 {
        self.lengths.digest()
    }

    pub(super) fn fingerprint(&self) -> u64 {
        [
            self.lengths.digest(),
            self.packing.row_length().into(),
            self.packing.look_ahead().into(),
            self.batch,
        ]
        .into_iter()
        .fold(3, |state, word| {
            mix(state ^ word).wrapping_mul(GOLDEN_GAMMA).rotate_left(7)
        })
    }
}

impl Window {
    fn append(&self, rows: Range<usize>, out: &mut StreamBatch) {
        let starts = &self.rows[rows.start..=rows.end];
        let lengths = starts.windows(2).map(|ends| ends[1] - ends[0]);
        out.row_draws.extend(lengths);
        let draws = starts[0] as usize..starts[starts.len() - 1] as usize;
        out.draws.extend_from_slice(&self.draws[draws.clone()]);
        out.pieces.extend_from_slice(&self.pieces[draws]);
    }

    /// Numbers the copies of every piece in the order they come out, and marks the last of the last.
    fn count_copies(&mut self) {
        let mut order: Vec<u32> = (0..self.draws.len() as u32).collect();
        let position = |slot: u32| self.draws[slot as usize].position;
        let piece = |slot: u32| self.pieces[slot as usize].start;
        order.sort_by_key(|&slot| (position(slot), piece(slot), slot));
        let mut copies = Vec::new();
        for alike in order.chunk_by(|&a, &b| (position(a), piece(a)) == (position(b), piece(b))) {
            let of_piece = alike.iter().map(|&slot| self.draws[slot as usize].copy);
            let mut of_piece: Vec<u32> = of_piece.collect();
            of_piece.sort_unstable();
            copies.extend(alike.iter().copied().zip(of_piece));
        }
        let mut last: Vec<u32> = Vec::new();
        for of_example in order.chunk_by(|&a, &b| position(a) == position(b)) {
            let draws = of_example.iter().map(|&slot| &self.draws[slot as usize]);
            if draws.clone().any(|draw| draw.last) {
                last.extend(of_example.iter().max());
            }
        }
        for (slot, copy) in copies {
            self.draws[slot as usize].copy = copy;
        }
        self.draws.iter_mut().for_each(|draw| draw.last = false);
        for slot in last {
            self.draws[slot as usize].last = true;
        }
    }
}
