//! Batches of packed rows, of any sequence.
//!
//! A look-ahead of appearances is packed into rows ([`Packing`]), the rows are put in a random order, and the
//! appearances are dealt to the slots of their length in the order they came. A batch is a number of rows; it may
//! span look-aheads. As the last two share the rest ([`Last`]), rows are dealt for two batches in advance. This may
//! swap two appearances of an example in one look-ahead; their copies are then counted in the new order.
//!
//! *Seeking.* The number of rows that a look-ahead fills follows from its number of appearances of each length, so a
//! row is found by counting lengths from the epoch's start, or from the start of a look-ahead that a hint gives.
//! Rejected: one list of open rows for the whole epoch, which fills a few rows more and makes every row depend on all
//! sentences before it.
//!
//! **RL\***. Full order brings any examples into a look-ahead: N!/∏ W_w! choices. Within one, examples of equal
//! length are assigned in any order, and R rows come in any order; the m_p rows of equal pattern p differ only by
//! their examples: R!/∏ m_p! · ∏ k_ℓ! ways, k_ℓ examples having pieces of length ℓ. An example that is cut has pieces
//! of the row's length and a rest; if several have the same rest, both come in one order: a factor 1/s_ℓ! for s_ℓ cut
//! examples with rest ℓ. All outcomes are equally likely, so that
//!
//! ```text
//! RL* = (ln N! − Σ_w (ln W_w! − ln R! + Σ ln m_p! − Σ ln k_ℓ! + Σ ln s_ℓ!)) / ln N!
//! ```
//!
//! (at most 1: the pieces of cut examples have more orders than examples do) is the share of the entropy, given how
//! the lengths of an epoch fall into look-aheads; between epochs it varies in the fourth decimal.

use std::collections::VecDeque;
use std::ops::Range;

use pelton_key::{Digest, KeyedRng, Stage, key};

use crate::batching::{Cuts, Last};
use crate::buckets::{NextPieces, Packing, PieceCounter, Segment, Table};
use crate::error::PlanError;
use crate::hint::Standing;
use crate::randomness::ln_factorial;
use crate::sequence::{Appearances, Sequence};
use crate::step_batch::{Draw, Piece, StepBatch};

/// Most pieces a look-ahead could have, so that they can be counted in four bytes.
const MAX_PIECES: u64 = 1 << 31;

/// Batches of packed rows.
#[derive(Debug)]
pub(crate) struct Packed {
    packing: Packing,
    /// Rows of a batch.
    batch: u64,
    last: Last,
    /// Whether every epoch is the same.
    same: bool,
    /// The length of each example, by its number.
    lengths: Table,
    /// The greatest length, and that of the shortest piece.
    longest: u32,
    shortest_piece: u32,
}

/// The batches of an epoch from a step on.
#[derive(Debug)]
pub(crate) struct PackedWalk {
    step: u64,
    ahead: LookAheads,
    /// The look-aheads with rows to come, how many rows of the first came out, and how many the others have.
    dealt: VecDeque<DealtRows>,
    done: usize,
    rows: u64,
    /// Look-aheads before those, and their rows.
    passed: u64,
    before: u64,
}

/// The look-aheads of an epoch from one of them on.
#[derive(Debug)]
struct LookAheads {
    epoch: u64,
    at: Appearances,
    /// Look-aheads read.
    number: u64,
    /// The appearances of the last one, with their lengths.
    draws: Vec<Draw>,
    numbers: Vec<u64>,
    lengths: Vec<u32>,
}

/// The rows of one look-ahead.
#[derive(Debug, Default)]
struct DealtRows {
    draws: Vec<Draw>,
    pieces: Vec<Piece>,
    /// The end of each row among the draws.
    ends: Vec<u32>,
}

impl Packed {
    /// Over examples `0..kept`.
    pub(crate) fn new(
        packing: Packing,
        (batch, last): (u64, Last),
        kept: u64,
        same: bool,
        length_of: impl Fn(u64) -> u32,
    ) -> Result<Packed, PlanError> {
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
        Ok(Packed {
            shortest_piece: lengths.iter().map(last_piece).min().unwrap_or(0),
            lengths: Table::new(kept, longest, |number| lengths[number as usize]),
            packing,
            batch,
            last,
            same,
            longest,
        })
    }

    pub(crate) fn packing(&self) -> Packing {
        self.packing
    }

    /// The greatest length, if it is cut into several rows.
    pub(crate) fn longest_cut(&self) -> Option<u32> {
        (self.longest > self.packing.row_length()).then_some(self.longest)
    }

    /// Rows of an epoch. Costs a pass over it.
    fn rows(&self, sequence: &Sequence, epoch: u64) -> u64 {
        let mut counter = PieceCounter::new(self.packing);
        let mut ahead = LookAheads::new(sequence, epoch, 0, self.packing);
        let mut rows = 0;
        while ahead.read(self, sequence) {
            rows += counter.rows(&ahead.lengths);
        }
        rows
    }

    /// Batches of an epoch. Costs a pass over it.
    pub(crate) fn steps(&self, sequence: &Sequence, epoch: u64) -> u64 {
        self.cuts(self.rows(sequence, epoch)).steps()
    }

    /// The fewest rows of a batch of an epoch. Costs a pass over it.
    pub(crate) fn smallest_batch(&self, sequence: &Sequence, epoch: u64) -> Option<u64> {
        self.cuts(self.rows(sequence, epoch)).shortest()
    }

    fn cuts(&self, rows: u64) -> Cuts {
        Cuts::runs(rows, self.batch, self.last)
    }

    /// Cells that hold padding over all cells of an epoch; 0 without cells. Costs a pass over the epoch.
    pub(crate) fn padded_fraction(&self, sequence: &Sequence, epoch: u64) -> f64 {
        let mut counter = PieceCounter::new(self.packing);
        let mut ahead = LookAheads::new(sequence, epoch, 0, self.packing);
        let (mut rows, mut tokens) = (0_u128, 0_u128);
        while ahead.read(self, sequence) {
            rows += u128::from(counter.rows(&ahead.lengths));
            tokens += ahead.lengths.iter().map(|&n| u128::from(n)).sum::<u128>();
        }
        let cells = rows * u128::from(self.packing.row_length());
        (cells - tokens) as f64 / cells.max(1) as f64
    }

    /// The exact randomness RL* of an epoch with all orders of its examples equally likely, derived above; 0 if every
    /// epoch is the same; unknown for other orders, mixtures and echoed examples. Costs a pass over the epoch.
    pub(crate) fn rl_exact(
        &self,
        sequence: &Sequence,
        epoch: u64,
        is_uniform: bool,
    ) -> Option<f64> {
        let examples = sequence.examples.len;
        if sequence.examples.expected().is_some() || !sequence.echo.echo().is_none() {
            return None;
        }
        if examples <= 1 {
            return Some(1.0);
        }
        if !is_uniform {
            return self.same.then_some(0.0);
        }
        let all = ln_factorial(examples as f64);
        let mut counter = PieceCounter::new(self.packing);
        let mut ahead = LookAheads::new(sequence, epoch, 0, self.packing);
        let mut lost = 0.0;
        while ahead.read(self, sequence) {
            lost += ln_factorial(ahead.lengths.len() as f64) - counter.ln_orders(&ahead.lengths);
        }
        Some(((all - lost) / all).min(1.0))
    }

    /// The most draws of a batch, or more.
    pub(crate) fn largest_batch(&self, sequence: &Sequence) -> u64 {
        let row_length = self.packing.row_length();
        let cuts = u64::from(self.longest)
            .div_ceil(u64::from(row_length))
            .max(1);
        let all = sequence.len().saturating_mul(cuts);
        // Any number of empty pieces goes into a row.
        let most = row_length.checked_div(self.shortest_piece).map(u64::from);
        most.map_or(all, |most| all.min(most.saturating_mul(self.batch)))
    }

    /// The most examples that appeared and appear again within their look-ahead.
    pub(crate) fn most_waiting(&self, sequence: &Sequence) -> u64 {
        if self.longest_cut().is_some() || !sequence.echo.echo().is_none() {
            self.packing.look_ahead().into()
        } else {
            0
        }
    }

    pub(crate) fn memory_bytes(&self, sequence: &Sequence) -> u64 {
        let look_ahead = u64::from(self.packing.look_ahead()).min(sequence.len());
        let dealt = self.largest_batch(sequence).saturating_mul(2);
        let dealt = look_ahead.saturating_add(dealt).min(sequence.len());
        let (read, of_draw) = (
            size_of::<Draw>() + 12,
            size_of::<Draw>() + size_of::<Piece>(),
        );
        self.lengths.bytes() + look_ahead * read as u64 + dealt * (of_draw as u64 + 4)
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        Digest::new("packed")
            .words([
                self.lengths.digest(),
                self.packing.row_length().into(),
                self.packing.look_ahead().into(),
                self.batch,
                self.last as u64,
            ])
            .value()
    }

    /// From a step on; `None` if the epoch ends before it.
    pub(crate) fn walk(
        &self,
        sequence: &Sequence,
        epoch: u64,
        step: u64,
        hint: Option<&Standing>,
    ) -> Option<PackedWalk> {
        let look_aheads = sequence.len().div_ceil(self.packing.look_ahead().into());
        let known = hint.and_then(|hint| match hint.counts[..] {
            [rows] if hint.place < look_aheads => Some((hint.place, rows)),
            _ => None,
        });
        let (number, mut rows) = known.unwrap_or((0, 0));
        let mut counter = PieceCounter::new(self.packing);
        let mut ahead = LookAheads::new(sequence, epoch, number, self.packing);
        // The rows before each look-ahead, until those of the step and of all before it are known.
        let mut before = Vec::new();
        while rows < (step + 1).saturating_mul(self.batch) && ahead.read(self, sequence) {
            before.push(rows);
            rows += counter.rows(&ahead.lengths);
        }
        let cuts = self.cuts(rows);
        let first = (step < cuts.steps()).then(|| cuts.start(step))?;
        let Some(passed) = before.partition_point(|&rows| rows <= first).checked_sub(1) else {
            return self.walk(sequence, epoch, step, None);
        };
        let (number, before) = (number + passed as u64, before[passed]);
        let mut walk = PackedWalk {
            step,
            ahead: LookAheads::new(sequence, epoch, number, self.packing),
            dealt: VecDeque::new(),
            done: (first - before) as usize,
            rows: 0,
            passed: number,
            before,
        };
        walk.deal(self, sequence);
        Some(walk)
    }

    /// The rows of a look-ahead.
    fn deal(&self, sequence: &Sequence, ahead: &LookAheads) -> DealtRows {
        // Segments name the index of the appearance in the look-ahead.
        let mut pieces: Vec<Segment> = Vec::with_capacity(ahead.draws.len());
        for (place, &length) in (0..).zip(&ahead.lengths) {
            let of_example = self.packing.pieces(length);
            pieces.extend(of_example.map(|(start, length)| Segment {
                place,
                piece: Piece { start, length },
            }));
        }
        // Stable, so that pieces of one length stay in the order they came; the longest are first.
        pieces.sort_by_key(|segment| std::cmp::Reverse(segment.piece.length));
        let patterns = PieceCounter::new(self.packing).pack(&ahead.lengths);
        let each = |(place, rows): (u32, u32)| std::iter::repeat_n(place, rows as usize);
        let rows = patterns.iter().map(|pattern| pattern.rows);
        let mut order: Vec<u32> = (0..).zip(rows).flat_map(each).collect();
        let epoch = if self.same { 0 } else { ahead.epoch };
        let stage = Stage::PackedRows(ahead.number - 1);
        KeyedRng::new(key(sequence.examples.seed, epoch, stage)).shuffle(&mut order);
        let mut dealt = DealtRows {
            draws: Vec::with_capacity(pieces.len()),
            pieces: Vec::with_capacity(pieces.len()),
            ends: Vec::with_capacity(order.len()),
        };
        let mut next = NextPieces::new(&pieces);
        for place in order {
            next.row(&patterns[place as usize], |segment| {
                dealt.draws.push(ahead.draws[segment.place as usize]);
                dealt.pieces.push(segment.piece);
            });
            dealt.ends.push(dealt.draws.len() as u32);
        }
        if self.most_waiting(sequence) > 0 {
            dealt.count_copies();
        }
        dealt
    }
}

impl LookAheads {
    fn new(sequence: &Sequence, epoch: u64, number: u64, packing: Packing) -> LookAheads {
        LookAheads {
            epoch,
            at: sequence.walk(epoch, number * u64::from(packing.look_ahead())),
            number,
            draws: Vec::new(),
            numbers: Vec::new(),
            lengths: Vec::new(),
        }
    }

    /// Reads the next look-ahead; false after the last.
    fn read(&mut self, packed: &Packed, sequence: &Sequence) -> bool {
        let left = sequence.len() - self.at.place();
        let count = left.min(packed.packing.look_ahead().into());
        self.draws.clear();
        self.at.read(sequence, count, &mut self.draws);
        self.numbers.clear();
        self.numbers.extend(self.draws.iter().map(|draw| draw.id));
        self.lengths.resize(self.draws.len(), 0);
        packed.lengths.gather(&self.numbers, &mut self.lengths);
        self.number += u64::from(count > 0);
        count > 0
    }
}

impl PackedWalk {
    /// Deals the next look-ahead; false after the last.
    fn deal(&mut self, packed: &Packed, sequence: &Sequence) -> bool {
        let read = self.ahead.read(packed, sequence);
        if read {
            let dealt = packed.deal(sequence, &self.ahead);
            self.rows += dealt.ends.len() as u64;
            self.dealt.push_back(dealt);
        }
        read
    }

    /// Puts the rows of the next batch into `out`; false after the last.
    pub(crate) fn next(
        &mut self,
        packed: &Packed,
        sequence: &Sequence,
        out: &mut StepBatch,
    ) -> bool {
        let ahead = match packed.last {
            Last::Even => packed.batch.saturating_mul(2),
            Last::Short | Last::Drop => packed.batch,
        };
        while self.rows - (self.done as u64) < ahead && self.deal(packed, sequence) {}
        let left = self.rows - self.done as u64;
        if left == 0 {
            return false;
        }
        let mut left = packed.cuts(left).longest() as usize;
        while left > 0 {
            let Some(dealt) = self.dealt.front() else {
                break;
            };
            let rows = dealt.ends.len();
            let some = self.done..rows.min(self.done + left);
            (left, self.done) = (left - some.len(), some.end);
            dealt.append(some, out);
            if self.done == rows {
                self.dealt.pop_front();
                (self.done, self.passed) = (0, self.passed + 1);
                self.rows -= rows as u64;
                self.before += rows as u64;
            }
        }
        self.step += 1;
        out.padded_length = Some(packed.packing.row_length());
        true
    }

    pub(crate) fn has_more(&self, sequence: &Sequence) -> bool {
        self.rows > 0 || self.ahead.at.place() < sequence.len()
    }

    /// The first look-ahead with rows to come and the rows before it; `None` after the last.
    pub(crate) fn standing(&self) -> Option<Standing> {
        (!self.dealt.is_empty()).then(|| Standing {
            step: self.step,
            place: self.passed,
            counts: vec![self.before],
        })
    }
}

impl DealtRows {
    fn append(&self, rows: Range<usize>, out: &mut StepBatch) {
        let first = rows.start.checked_sub(1).map_or(0, |row| self.ends[row]);
        let mut start = first;
        for &end in &self.ends[rows] {
            out.row_draws.push(end - start);
            start = end;
        }
        let draws = first as usize..start as usize;
        out.extend(&self.draws[draws.clone()]);
        out.pieces.extend_from_slice(&self.pieces[draws]);
    }

    /// Numbers the copies of every piece in their order, and marks the last of the last.
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
