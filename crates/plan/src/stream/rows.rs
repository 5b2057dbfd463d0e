//! Batches of packed rows, of any sequence.
//!
//! As in a [`PackPlan`], whose rows these are where both can be made: a look-ahead of appearances is packed into rows,
//! which come in a random order. Two appearances of an example in one look-ahead may change places by that; their
//! copies are then counted in the order they come out.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::batch::{Draw, Piece, StreamBatch};
use super::sequence::Sequence;
use crate::buckets::{
    Counter, MAX_PIECES, NextPieces, PackPlan, Packing, Segment, Table, can_count, count_starts,
};
use crate::error::PlanError;
use crate::key::{GOLDEN_GAMMA, Stage, key, mix};
use crate::plan::Plan;
use crate::rng::KeyedRng;

const EPOCHS: usize = 2;
const WINDOWS: usize = 2;

/// Fewer examples are packed faster in turn than counted.
const COUNTED: u64 = 1 << 16;

/// Batches of packed rows.
#[derive(Debug)]
pub(super) struct Rows {
    sequence: Sequence,
    packing: Packing,
    /// Rows of a batch.
    batch: u64,
    seed: u64,
    lengths: Lengths,
    /// Of the lengths; then the length of the shortest piece.
    mean_length: f64,
    longest: u32,
    shortest_piece: u32,
    kept: Mutex<Kept>,
}

/// The length of each example, by its number.
#[derive(Debug)]
enum Lengths {
    Own(Table),
    /// Of a plan that packs the same examples, and knows how random that is.
    OfPlan(Box<PackPlan>),
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
    /// Over a sequence of the examples `0..kept`; `plan` is that of the sequence, where it is one in which
    /// examples appear once and can be found.
    pub(super) fn new(
        sequence: Sequence,
        plan: Option<Plan>,
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
        let tokens: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        let mean_length = tokens as f64 / kept.max(1) as f64;
        let last_piece = |&length: &u32| match length % packing.row_length() {
            0 => length.min(packing.row_length()),
            rest => rest,
        };
        let shortest_piece = lengths.iter().map(last_piece).min().unwrap_or(0);
        let length_at = |number: u64| lengths[number as usize];
        let lengths = match plan {
            Some(plan) => Lengths::OfPlan(Box::new(PackPlan::new(plan, packing, length_at)?)),
            None => Lengths::Own(Table::new(kept, longest, length_at)),
        };
        Ok(Rows {
            sequence,
            packing,
            batch,
            seed,
            lengths,
            mean_length,
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

    /// The plan of the same rows, where there is one.
    pub(super) fn plan(&self) -> Option<&PackPlan> {
        match &self.lengths {
            Lengths::OfPlan(plan) => Some(plan),
            Lengths::Own(_) => None,
        }
    }

    /// Rows of an epoch. Costs a pass over the epoch, once.
    pub(super) fn rows(&self, epoch: u64) -> u64 {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.look_through(&mut kept, epoch, u64::MAX);
        kept.epochs[0].starts[self.windows() as usize]
    }

    /// Batches of an epoch.
    pub(super) fn steps(&self, epoch: u64) -> u64 {
        self.rows(epoch).div_ceil(self.batch)
    }

    /// Cells that hold padding over all cells of an epoch; 0 where there are none.
    pub(super) fn padded_fraction(&self, epoch: u64) -> f64 {
        let mut ahead = Ahead::default();
        let mut tokens = 0_u128;
        for window in 0..self.windows() {
            self.ahead(epoch, window, &mut ahead);
            tokens += ahead.lengths.iter().map(|&n| u128::from(n)).sum::<u128>();
        }
        let cells = u128::from(self.rows(epoch)) * u128::from(self.packing.row_length());
        (cells - tokens) as f64 / cells.max(1) as f64
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

    /// Look-aheads of an epoch.
    fn windows(&self) -> u64 {
        let look_ahead = u64::from(self.packing.look_ahead());
        self.sequence.appearances().div_ceil(look_ahead)
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
        if rows.starts.len() == 1 && self.counting_pays(row) {
            let by_number = |visit: &mut dyn FnMut(&[u64], &[u64])| {
                self.sequence.source().by_number(epoch, visit);
            };
            rows.starts = count_starts(self.packing, self.windows(), self.table(), by_number);
        }
        let mut counter = Counter::new(self.packing);
        let mut ahead = Ahead::default();
        let mut known = rows.starts[rows.starts.len() - 1];
        while known < row && (rows.starts.len() as u64) <= self.windows() {
            self.ahead(epoch, rows.starts.len() as u64 - 1, &mut ahead);
            let patterns = counter.pack(&ahead.lengths);
            known += patterns.iter().map(|p| u64::from(p.rows)).sum::<u64>();
            rows.starts.push(known);
        }
        kept.epochs.insert(0, rows);
    }

    /// Whether looking at all examples at once is possible, and faster than doing it look-ahead by look-ahead up to
    /// a row. Repeats stand at places of their own, which are not found by number.
    fn counting_pays(&self, row: u64) -> bool {
        let examples = self.sequence.appearances();
        let rows = examples as f64 * self.mean_length / f64::from(self.packing.row_length());
        row as f64 >= 0.4 * rows
            && examples >= COUNTED
            && self.sequence.echo().echo().is_none()
            && self.sequence.source().is_invertible()
            && can_count(self.packing, self.windows())
    }

    fn table(&self) -> &Table {
        match &self.lengths {
            Lengths::Own(table) => table,
            Lengths::OfPlan(plan) => plan.lengths(),
        }
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
        self.table().gather(&into.numbers, &mut into.lengths);
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
        let patterns = Counter::new(self.packing).pack(&ahead.lengths);
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
        let lengths = match &self.lengths {
            Lengths::Own(table) => table.bytes(),
            Lengths::OfPlan(plan) => plan.lengths().bytes() + plan.plan().memory_bytes(),
        };
        let starts = (EPOCHS as u64) * 8 * (self.windows() + 1);
        let longest = u64::from(self.packing.look_ahead()).min(self.sequence.appearances());
        let of_draw = size_of::<Draw>() + size_of::<Piece>() + 4;
        let windows = (WINDOWS as u64) * longest * of_draw as u64;
        self.sequence.memory_bytes() + lengths + starts + windows
    }

    pub(super) fn fingerprint(&self) -> u64 {
        [
            self.table().digest(),
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
