//! At which row each look-ahead of an epoch begins.
//!
//! Only the lengths of a look-ahead count, and their order does not, so that nothing is dealt and few repeats of an
//! echo are put in order: those of a window whose repeats lie in two look-aheads.
//!
//! A [`Walk`] takes look-aheads in turn and looks lengths up in the order that examples come, which for a random order
//! is waiting for memory. [`by_number`] takes examples by number, whose lengths lie side by side, at the positions
//! that the inverse of the order gives: the epoch is cut where a look-ahead begins to take fresh examples or repeats,
//! lengths are counted in each cell of the cut, and a look-ahead is the sum of some cells.

use std::ops::{AddAssign, Range};

use super::intervals::Intervals;
use super::neighbours::Neighbours;
use super::sequence::Sequence;
use crate::buckets::{Packing, PieceCounter, Table};
use crate::division::Divider;
use crate::echo::Stretch;

/// Examples looked up at a time.
const RUN: u64 = 4096;

/// Most bytes of the counters of an epoch.
const COUNTER_BYTES: u64 = 1 << 25;

/// Bytes of the counters to which neighbours are added together: the first-level cache holds them. Counters that are
/// not more than the second number are added to at once.
const NEAR: u64 = 1 << 15;
const ALL_NEAR: u64 = 1 << 22;

/// Fewer examples are walked faster than counted.
const COUNTED: u64 = 1 << 16;

/// The examples of an epoch with what is packed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packed<'a> {
    pub(super) sequence: &'a Sequence,
    pub(super) packing: Packing,
    /// The length of each example, by its number.
    pub(super) lengths: &'a Table,
    /// The greatest length.
    pub(super) longest: u32,
    pub(super) epoch: u64,
}

impl Packed<'_> {
    /// Look-aheads of the epoch.
    pub(super) fn look_aheads(&self) -> u64 {
        let look_ahead = u64::from(self.packing.look_ahead());
        self.sequence.appearances().div_ceil(look_ahead)
    }

    fn places(&self, number: u64) -> Range<u64> {
        let look_ahead = u64::from(self.packing.look_ahead());
        let start = number * look_ahead;
        start..self.sequence.appearances().min(start + look_ahead)
    }

    /// Columns of the counters: the lengths that a piece can have.
    fn columns(&self) -> usize {
        self.packing.row_length().min(self.longest) as usize + 1
    }

    /// Whether the repeats of more than one example in two would have to be put in order.
    fn is_cut_finely(&self) -> bool {
        let echo = self.sequence.echo().echo();
        let phase = u64::from(echo.window()) as f64 * echo.factor();
        !echo.is_none() && f64::from(self.packing.look_ahead()) < 2.0 * phase
    }

    /// Classes of examples that are counted by themselves: as often as the echo brings them.
    fn classes(&self) -> usize {
        match self.sequence.echo().echo().whole() {
            Some(_) => 1,
            None => 2,
        }
    }

    /// Whether [`by_number`] can be asked, and is faster than a walk over all look-aheads.
    pub(super) fn counts_by_number(&self) -> bool {
        let cells = match self.sequence.echo().echo().is_none() {
            true => self.look_aheads(),
            false => self.look_aheads().saturating_mul(3 * self.classes() as u64),
        };
        let bytes = if self.fits_two_bytes() { 2 } else { 4 };
        let bytes = bytes * self.columns() as u64;
        self.sequence.source().is_invertible()
            && self.sequence.source().examples() >= COUNTED
            && !self.is_cut_finely()
            && cells.saturating_mul(bytes) <= COUNTER_BYTES
    }

    /// Whether the pieces of one length in one look-ahead always fit in a counter of two bytes.
    fn fits_two_bytes(&self) -> bool {
        let pieces = u64::from(self.longest).div_ceil(u64::from(self.packing.row_length()));
        u64::from(self.packing.look_ahead()).saturating_mul(pieces.max(1)) <= u64::from(u16::MAX)
    }
}

/// Counts the rows of look-aheads, fastest one after the other.
pub(super) struct Walk<'a> {
    packed: Packed<'a>,
    counter: PieceCounter,
    /// The lengths of the examples at neighbouring positions, from `first` on.
    lengths: Vec<u32>,
    first: u64,
    /// Examples looked up at a time, at least.
    run: u64,
    numbers: Vec<u64>,
    repeats: Repeats,
}

/// The repeats of a window, in order as far as it takes to tell which come before `cut`; all of them for `None`.
#[derive(Default)]
struct Repeats {
    window: Option<u64>,
    cut: Option<u64>,
    positions: Vec<u64>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(packed: Packed<'a>) -> Walk<'a> {
        Walk {
            packed,
            counter: PieceCounter::new(packed.packing),
            lengths: Vec::new(),
            first: 0,
            run: RUN,
            numbers: Vec::new(),
            repeats: Repeats::default(),
        }
    }

    /// Rows of a look-ahead.
    pub(super) fn rows(&mut self, look_ahead: u64) -> u64 {
        let echo = self.packed.sequence.echo();
        let stretch = echo.stretch(&self.packed.places(look_ahead));
        let fresh = self.look_up(&stretch.fresh);
        let lengths = self.lengths[fresh].iter();
        self.counter.add(lengths.map(|&length| (length, 1)));
        let whole = self.look_up(&stretch.whole);
        let lengths = self.lengths[whole].iter().copied();
        match echo.echo().whole() {
            Some(times) => {
                let more = times as u32 - 1;
                self.counter.add(lengths.map(|length| (length, more)));
            }
            None => {
                let more = stretch.whole.map(|position| echo.times_of(position) - 1);
                self.counter.add(lengths.zip(more));
            }
        }
        for (window, repeats) in stretch.parts.into_iter().flatten() {
            self.add_repeats(window, repeats);
        }
        self.counter.rows()
    }

    /// Adds some of the repeats of a window.
    fn add_repeats(&mut self, window: u64, repeats: Range<u64>) {
        if repeats.is_empty() {
            return;
        }
        let echo = self.packed.sequence.echo();
        // A look-ahead that is no shorter than the phase ends in it once at most.
        let is_long = u64::from(self.packed.packing.look_ahead()) >= echo.phase(window + 1).len();
        let inner = if repeats.start > 0 {
            repeats.start
        } else {
            repeats.end
        };
        let cut = is_long.then_some(inner);
        if (self.repeats.window, self.repeats.cut) != (Some(window), cut) {
            let positions = &mut self.repeats.positions;
            echo.repeats_around(self.packed.epoch, window, cut, positions);
            (self.repeats.window, self.repeats.cut) = (Some(window), cut);
        }
        let positions = std::mem::take(&mut self.repeats.positions);
        let some = &positions[repeats.start as usize..repeats.end as usize];
        let held = self.first..self.first + self.lengths.len() as u64;
        let all = echo.window(window);
        let (least, end) = if held.start <= all.start && all.end <= held.end {
            (all.start, all.end)
        } else {
            let least = some.iter().copied().min().unwrap_or(0);
            (least, some.iter().copied().max().unwrap_or(0) + 1)
        };
        let places = self.look_up(&(least..end));
        let lengths = &self.lengths[places];
        let of_repeats = some.iter().map(|at| (lengths[(at - least) as usize], 1));
        self.counter.add(of_repeats);
        self.repeats.positions = positions;
    }

    /// Looks up the examples at some positions, and returns where their lengths stand. Those asked for before stand
    /// elsewhere then.
    fn look_up(&mut self, positions: &Range<u64>) -> Range<usize> {
        if positions.is_empty() {
            return 0..0;
        }
        let held = self.first..self.first + self.lengths.len() as u64;
        if !(held.start..=held.end).contains(&positions.start) {
            self.lengths.clear();
            self.first = positions.start;
        }
        self.forget(positions);
        let known = self.first + self.lengths.len() as u64;
        if known < positions.end {
            let source = self.packed.sequence.source();
            let end = positions.end.max(known + self.run).min(source.examples());
            let from = self.lengths.len();
            self.numbers.resize((end - known) as usize, 0);
            self.lengths.resize(from + self.numbers.len(), 0);
            source.fill(self.packed.epoch, known, &mut self.numbers);
            self.packed
                .lengths
                .gather(&self.numbers, &mut self.lengths[from..]);
        }
        let start = (positions.start - self.first) as usize;
        start..start + (positions.end - positions.start) as usize
    }

    /// Drops lengths that later look-aheads do not ask for, once they are most.
    fn forget(&mut self, positions: &Range<u64>) {
        let echo = self.packed.sequence.echo().echo();
        let reach = 2 * u64::from(echo.window()) + u64::from(self.packed.packing.look_ahead());
        let before = positions.start.saturating_sub(self.first);
        let some = before.saturating_sub(reach) as usize;
        if some > self.lengths.len() / 2 {
            self.lengths.drain(..some);
            self.first += some as u64;
        }
    }
}

/// The row at which each look-ahead begins, and the number of rows.
pub(super) fn by_number(packed: Packed<'_>) -> Vec<u64> {
    if packed.fits_two_bytes() {
        starts::<u16>(packed)
    } else {
        starts::<u32>(packed)
    }
}

/// A counter of pieces.
trait Count: Copy + Default + AddAssign + TryFrom<u32> + Into<u32> {
    /// A number that fits because the counter does.
    fn of(number: u32) -> Self {
        Self::try_from(number).unwrap_or_default()
    }
}
impl Count for u16 {}
impl Count for u32 {}

fn starts<C: Count>(packed: Packed<'_>) -> Vec<u64> {
    let cells = Cells::new(packed);
    let counts = count::<C>(packed, &cells);
    let columns = packed.columns();
    let mut sums = vec![0_u32; columns];
    // Only examples that are asked for are looked up, and these lie far apart.
    let mut walk = Walk {
        run: 1,
        ..Walk::new(packed)
    };
    let mut known = 0;
    let ends = (0..packed.look_aheads()).map(|number| {
        let stretch = packed.sequence.echo().stretch(&packed.places(number));
        for (cell, times) in cells.of_stretch(&stretch) {
            let of_cell = &counts[cell * columns..][..columns];
            for (sum, &count) in sums.iter_mut().zip(of_cell) {
                *sum += times * count.into();
            }
        }
        for (length, sum) in (0..).zip(&mut sums) {
            walk.counter.add_pieces(length, std::mem::take(sum));
        }
        for (window, repeats) in stretch.parts.into_iter().flatten() {
            walk.add_repeats(window, repeats);
        }
        known += walk.counter.rows();
        known
    });
    std::iter::once(0).chain(ends).collect()
}

/// Counts the pieces of each length in each cell, by cell, then by length.
fn count<C: Count>(packed: Packed<'_>, cells: &Cells<'_>) -> Vec<C> {
    let columns = packed.columns();
    let row_length = packed.packing.row_length();
    let mut counts = vec![C::default(); cells.len() * columns];
    let mut cell_of = Vec::new();
    let mut add = |positions: &[u64], lengths: &[u32]| {
        cell_of.resize(positions.len(), 0);
        cells.of(positions, &mut cell_of);
        for (&cell, &length) in cell_of.iter().zip(lengths) {
            let of_cell = &mut counts[cell as usize * columns..][..columns];
            if length <= row_length {
                of_cell[length as usize] += C::of(1);
            } else {
                let whole = (length - 1) / row_length;
                of_cell[row_length as usize] += C::of(whole);
                of_cell[(length - whole * row_length) as usize] += C::of(1);
            }
        }
    };
    let source = packed.sequence.source();
    let cell_bytes = (columns * size_of::<C>()) as u64;
    let is_near = cells.len() as u64 * cell_bytes <= ALL_NEAR;
    let run = source.examples() / cells.len().max(1) as u64 * (NEAR / cell_bytes + 1);
    let mut neighbours = (!is_near).then(|| Neighbours::new(source.examples(), run));
    let mut lengths = Vec::new();
    source.by_number(packed.epoch, |numbers, positions| {
        lengths.resize(numbers.len(), 0);
        packed.lengths.gather(numbers, &mut lengths);
        match &mut neighbours {
            Some(neighbours) => neighbours.add(positions, &lengths, &mut add),
            None => add(positions, &lengths),
        }
    });
    if let Some(neighbours) = neighbours {
        neighbours.finish(&mut add);
    }
    counts
}

/// Runs of positions whose examples appear in the same look-aheads as often.
struct Cells<'a> {
    packed: Packed<'a>,
    cut: Cut,
    classes: usize,
    /// Examples come so often, those of a second class once more.
    times: u32,
}

enum Cut {
    /// Every so many positions.
    Even(Divider),
    Uneven(Intervals),
}

impl<'a> Cells<'a> {
    fn new(packed: Packed<'a>) -> Cells<'a> {
        let echo = packed.sequence.echo();
        let cut = if echo.echo().is_none() {
            let look_ahead = packed.packing.look_ahead().into();
            Cut::Even(Divider::new(look_ahead, echo.examples()))
        } else {
            let stretches = (0..packed.look_aheads()).map(|n| echo.stretch(&packed.places(n)));
            let edges = stretches.flat_map(|s| [s.fresh.end, s.whole.start, s.whole.end]);
            let mut ends: Vec<u64> = edges.chain([echo.examples()]).collect();
            ends.sort_unstable();
            ends.dedup();
            ends.retain(|&end| end > 0);
            Cut::Uneven(Intervals::new(ends))
        };
        Cells {
            packed,
            cut,
            classes: packed.classes(),
            times: echo.echo().factor() as u32,
        }
    }

    fn len(&self) -> usize {
        match &self.cut {
            Cut::Even(_) => self.packed.look_aheads() as usize,
            Cut::Uneven(intervals) => intervals.len() * self.classes,
        }
    }

    /// The cells that some positions are of.
    fn of(&self, positions: &[u64], cells: &mut [u32]) {
        let echo = self.packed.sequence.echo();
        match &self.cut {
            Cut::Even(divider) => {
                for (cell, &position) in cells.iter_mut().zip(positions) {
                    *cell = divider.divide(position) as u32;
                }
            }
            Cut::Uneven(intervals) => {
                for (cell, &position) in cells.iter_mut().zip(positions) {
                    *cell = intervals.of(position) as u32;
                }
            }
        }
        if self.classes == 2 {
            for (cell, &position) in cells.iter_mut().zip(positions) {
                *cell = 2 * *cell + u32::from(echo.times_of(position) > self.times);
            }
        }
    }

    /// The cells of a look-ahead, and how often their examples appear in it.
    fn of_stretch(&self, stretch: &Stretch) -> impl Iterator<Item = (usize, u32)> {
        let of_positions = |positions: &Range<u64>| match &self.cut {
            _ if positions.is_empty() => 0..0,
            Cut::Even(divider) => {
                let cell = divider.divide(positions.start) as usize;
                cell..cell + 1
            }
            Cut::Uneven(intervals) => {
                let first = intervals.of(positions.start) * self.classes;
                first..(intervals.of(positions.end - 1) + 1) * self.classes
            }
        };
        let fresh = of_positions(&stretch.fresh).map(|cell| (cell, 1));
        let of_class = |cell| (cell, self.times - 1 + (cell % self.classes) as u32);
        fresh.chain(of_positions(&stretch.whole).map(of_class))
    }
}

#[cfg(test)]
mod tests;
