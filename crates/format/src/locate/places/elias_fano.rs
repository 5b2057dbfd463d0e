//! A strictly ascending list of 64-bit numbers in about 2 + log2(mean gap) bits each.
//!
//! Each number is split: its low `low_bits` are packed side by side, its high part is written in unary in a bit string
//! with one 1 a number (Elias 1974, Fano 1971; the choice of `low_bits` = floor(log2(universe / count)) as in Vigna,
//! "Quasi-succinct indices", WSDM 2013). Finding number `i` means finding the i-th 1: every [`SUPER`]-th position is
//! stored whole and every [`SUB`]-th as 16 bits from there, 0.56 bits a number, and the rest is a scan of one or two
//! words; if a block of [`SUPER`] ones spans 65536 bits or more, all their positions are stored (Okanohara and
//! Sadakane, ALENEX 2007). A plain `Vec<u64>` is 8 bytes a number and was rejected for that.
//!
//! Cost: at a mean gap of 64 KiB 18.6 bits a number; `get` two cache misses; sequential walks a
//! few cycles a number.

/// Ones between positions stored whole.
const SUPER: u64 = 1024;
/// Ones between positions stored relative to the whole one before.
const SUB: u64 = 32;
/// Marks a block with all its positions stored.
const SPARSE: u64 = 1 << 63;

/// The list.
#[derive(Clone, Debug, Default)]
pub struct EliasFano {
    len: u64,
    low_bits: u32,
    low: Vec<u64>,
    high: Vec<u64>,
    /// Position of the first one of each block, or [`SPARSE`] and the index of its ones in `sparse`.
    supers: Vec<u64>,
    subs: Vec<u16>,
    sparse: Vec<u64>,
}

/// The arrays of a list as they are stored in a file.
#[derive(Clone, Copy, Debug)]
pub struct EliasFanoParts<'a> {
    /// Numbers in the list.
    pub len: u64,
    /// Low bits a number.
    pub low_bits: u32,
    /// Packed low bits.
    pub low: &'a [u64],
    /// The unary bit string.
    pub high: &'a [u64],
}

impl EliasFano {
    /// Numbers in the list.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes the list takes in memory.
    pub fn heap_bytes(&self) -> u64 {
        let words = self.low.len() + self.high.len() + self.supers.len() + self.sparse.len();
        (8 * words + 2 * self.subs.len()) as u64
    }

    /// The `i`-th number; panics unless `i` is below [`EliasFano::len`].
    #[inline]
    pub fn get(&self, i: u64) -> u64 {
        self.walk(i).current().expect("i is below the length")
    }

    /// A walk over the numbers from the `i`-th on.
    #[inline]
    pub fn walk(&self, i: u64) -> Walk<'_> {
        if i >= self.len {
            return Walk {
                list: self,
                index: self.len,
                word: 0,
                bits: 0,
            };
        }
        let position = self.select(i);
        let word = (position / 64) as usize;
        Walk {
            list: self,
            index: i,
            word,
            bits: self.high[word] & (u64::MAX << (position % 64)),
        }
    }

    /// The arrays to store.
    pub fn parts(&self) -> EliasFanoParts<'_> {
        EliasFanoParts {
            len: self.len,
            low_bits: self.low_bits,
            low: &self.low,
            high: &self.high,
        }
    }

    /// The list over stored arrays, or `None` unless they are a strictly ascending list of exactly
    /// `len` numbers below `universe`. Costs one pass.
    pub fn from_parts(
        len: u64,
        low_bits: u32,
        low: Vec<u64>,
        high: Vec<u64>,
        universe: u64,
    ) -> Option<EliasFano> {
        let low_words = len.checked_mul(u64::from(low_bits))?.div_ceil(64);
        let ones: u64 = high.iter().map(|word| u64::from(word.count_ones())).sum();
        if low_bits > 63 || low.len() as u64 != low_words || ones != len {
            return None;
        }
        // Keeps every number within 64 bits.
        if (high.len() as u64).checked_mul(64)? > u64::MAX >> low_bits {
            return None;
        }
        let mut list = EliasFano {
            len,
            low_bits,
            low,
            high,
            ..EliasFano::default()
        };
        list.build_select();
        let mut last = None;
        for number in list.walk(0) {
            if number >= universe || last.is_some_and(|last| number <= last) {
                return None;
            }
            last = Some(number);
        }
        Some(list)
    }

    #[inline]
    fn low_part(&self, i: u64) -> u64 {
        if self.low_bits == 0 {
            return 0;
        }
        let bit = i * u64::from(self.low_bits);
        let (word, shift) = ((bit / 64) as usize, bit % 64);
        let mut value = self.low[word] >> shift;
        if shift + u64::from(self.low_bits) > 64 {
            value |= self.low[word + 1] << (64 - shift);
        }
        value & ((1 << self.low_bits) - 1)
    }

    /// Position of the i-th one of `high`.
    #[inline]
    fn select(&self, i: u64) -> u64 {
        let start = self.supers[(i / SUPER) as usize];
        if start & SPARSE != 0 {
            return self.sparse[((start & !SPARSE) + i % SUPER) as usize];
        }
        let position = start + u64::from(self.subs[(i / SUB) as usize]);
        let mut word = (position / 64) as usize;
        let mut bits = self.high[word] & (u64::MAX << (position % 64));
        let mut left = (i % SUB) as u32;
        loop {
            let ones = bits.count_ones();
            if left < ones {
                break;
            }
            left -= ones;
            word += 1;
            bits = self.high[word];
        }
        word as u64 * 64 + nth_one(bits, left)
    }

    fn build_select(&mut self) {
        self.supers = Vec::with_capacity(self.len.div_ceil(SUPER) as usize);
        self.subs = Vec::with_capacity(self.len.div_ceil(SUB) as usize);
        self.sparse = Vec::new();
        let high = std::mem::take(&mut self.high);
        let mut marks = Vec::with_capacity((SUPER / SUB) as usize);
        let mut before = 0u64;
        for (at, &word) in high.iter().enumerate() {
            let after = before + u64::from(word.count_ones());
            let mut mark = before.next_multiple_of(SUB);
            while mark < after {
                let position = at as u64 * 64 + nth_one(word, (mark - before) as u32);
                if mark > 0 && mark.is_multiple_of(SUPER) {
                    self.close_block(&high, &marks, position);
                    marks.clear();
                }
                marks.push(position);
                mark += SUB;
            }
            before = after;
        }
        if !marks.is_empty() {
            self.close_block(&high, &marks, high.len() as u64 * 64);
        }
        self.high = high;
    }

    /// Notes a block by the positions of every [`SUB`]-th of its ones and the start of the next one.
    fn close_block(&mut self, high: &[u64], marks: &[u64], end: u64) {
        let first = marks[0];
        let spans_far = end - first > u64::from(u16::MAX);
        if spans_far {
            self.supers.push(SPARSE | self.sparse.len() as u64);
            for at in first / 64..end.div_ceil(64) {
                let mut bits = high[at as usize];
                while bits != 0 {
                    let position = at * 64 + u64::from(bits.trailing_zeros());
                    if (first..end).contains(&position) {
                        self.sparse.push(position);
                    }
                    bits &= bits - 1;
                }
            }
        } else {
            self.supers.push(first);
        }
        let offset = |position: &u64| {
            if spans_far {
                0
            } else {
                (position - first) as u16
            }
        };
        self.subs.extend(marks.iter().map(offset));
    }
}

/// Position of the n-th one of a word that has more than `n`.
#[inline]
fn nth_one(mut word: u64, n: u32) -> u64 {
    for _ in 0..n {
        word &= word - 1;
    }
    u64::from(word.trailing_zeros())
}

/// A walk over consecutive numbers.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    list: &'a EliasFano,
    /// Index of the current number.
    index: u64,
    word: usize,
    /// Word `word` of the high bits from the current one on.
    bits: u64,
}

impl Walk<'_> {
    /// Index of the number that [`Walk::current`] gives.
    #[inline]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The current number of the walk, `None` past the end.
    #[inline]
    pub fn current(&mut self) -> Option<u64> {
        if self.index >= self.list.len {
            return None;
        }
        while self.bits == 0 {
            self.word += 1;
            self.bits = self.list.high[self.word];
        }
        let position = self.word as u64 * 64 + u64::from(self.bits.trailing_zeros());
        let high = position - self.index;
        Some((high << self.list.low_bits) | self.list.low_part(self.index))
    }

    /// Steps to the next number.
    #[inline]
    pub fn advance(&mut self) {
        if self.index < self.list.len {
            self.index += 1;
            self.bits &= self.bits.wrapping_sub(1);
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        let number = self.current()?;
        self.advance();
        Some(number)
    }
}

/// Builds a list from ascending numbers in one pass, without knowing their count.
///
/// The split is fixed from an estimate of the mean gap; [`EliasFanoBuilder::finish`] repacks when
/// the estimate was off.
#[derive(Debug)]
pub struct EliasFanoBuilder {
    list: EliasFano,
    last: Option<u64>,
}

impl EliasFanoBuilder {
    /// A builder for numbers about `mean_gap` apart.
    pub fn new(mean_gap: u64) -> EliasFanoBuilder {
        EliasFanoBuilder {
            list: EliasFano {
                low_bits: low_bits_for(mean_gap),
                ..EliasFano::default()
            },
            last: None,
        }
    }

    /// Numbers pushed.
    pub fn len(&self) -> u64 {
        self.list.len
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.list.len == 0
    }

    /// The number pushed last.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// Appends a number; panics unless it is above the last.
    #[inline]
    pub fn push(&mut self, number: u64) {
        assert!(self.last.is_none_or(|last| number > last), "numbers ascend");
        self.last = Some(number);
        let list = &mut self.list;
        if list.low_bits > 0 {
            let low = number & ((1 << list.low_bits) - 1);
            let shift = (list.len * u64::from(list.low_bits)) % 64;
            if shift == 0 {
                list.low.push(low);
            } else {
                *list.low.last_mut().expect("a word is open") |= low << shift;
                if shift + u64::from(list.low_bits) > 64 {
                    list.low.push(low >> (64 - shift));
                }
            }
        }
        let position = (number >> list.low_bits) + list.len;
        let word = (position / 64) as usize;
        if word >= list.high.len() {
            list.high.resize(word + 1, 0);
        }
        list.high[word] |= 1 << (position % 64);
        list.len += 1;
    }

    /// Appends `base` plus each of `offsets`, which ascend; panics unless the first is above the last
    /// number.
    pub fn extend(&mut self, base: u64, offsets: &[u32]) {
        let (Some(&first), Some(&end)) = (offsets.first(), offsets.last()) else {
            return;
        };
        let (first, end) = (base + u64::from(first), base + u64::from(end));
        assert!(self.last.is_none_or(|last| first > last), "numbers ascend");
        self.last = Some(end);
        let list = &mut self.list;
        let bits = u64::from(list.low_bits);
        let len = list.len + offsets.len() as u64;
        let words = (((end >> bits) + len) / 64 + 1) as usize;
        list.high.resize(words.max(list.high.len()), 0);
        list.low
            .reserve((offsets.len() as u64 * bits / 64) as usize + 1);
        // The open word of low bits is kept in a register over the loop.
        let mut shift = (list.len * bits) % 64;
        let mut open = if shift == 0 {
            0
        } else {
            list.low.pop().expect("a word is open")
        };
        let mut last = None;
        for (position, offset) in (list.len..).zip(offsets) {
            debug_assert!(last.replace(*offset).is_none_or(|last| last < *offset));
            let number = base + u64::from(*offset);
            let low = number & ((1 << bits) - 1);
            open |= low << shift;
            shift += bits;
            if shift >= 64 {
                list.low.push(open);
                shift -= 64;
                open = if shift == 0 { 0 } else { low >> (bits - shift) };
            }
            let position = (number >> bits) + position;
            list.high[(position / 64) as usize] |= 1 << (position % 64);
        }
        if shift > 0 {
            list.low.push(open);
        }
        list.len = len;
    }

    /// The finished list of numbers below `universe`.
    pub fn finish(self, universe: u64) -> EliasFano {
        let mut list = self.list;
        let best = low_bits_for(universe / list.len.max(1));
        if best.abs_diff(list.low_bits) > 1 {
            let mut again = EliasFanoBuilder::new(universe / list.len.max(1));
            // A walk needs no select structure when it starts at the first number.
            let from_first = Walk {
                list: &list,
                index: 0,
                word: 0,
                bits: list.high.first().copied().unwrap_or(0),
            };
            from_first.for_each(|number| again.push(number));
            list = again.list;
        }
        list.low.shrink_to_fit();
        list.high.shrink_to_fit();
        list.build_select();
        list
    }
}

fn low_bits_for(mean_gap: u64) -> u32 {
    mean_gap.max(1).ilog2().min(40)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(numbers: &[u64], estimate: u64) -> EliasFano {
        let universe = numbers.last().map_or(0, |last| last + 1);
        let mut builder = EliasFanoBuilder::new(estimate);
        numbers.iter().for_each(|&number| builder.push(number));
        let list = builder.finish(universe);
        let mut in_runs = EliasFanoBuilder::new(estimate);
        for run in numbers.chunks(numbers.len() / 3 + 1) {
            if run[run.len() - 1] - run[0] <= u64::from(u32::MAX) {
                let offsets: Vec<u32> = run.iter().map(|number| (number - run[0]) as u32).collect();
                in_runs.extend(run[0], &offsets);
            } else {
                run.iter().for_each(|number| in_runs.push(*number));
            }
        }
        assert!(in_runs.finish(universe).walk(0).eq(numbers.iter().copied()));
        assert_eq!(list.len(), numbers.len() as u64);
        assert!(list.walk(0).eq(numbers.iter().copied()));
        for (i, &number) in numbers.iter().enumerate() {
            assert_eq!(list.get(i as u64), number);
        }
        for from in (0..numbers.len()).step_by(numbers.len() / 7 + 1) {
            assert!(list.walk(from as u64).eq(numbers[from..].iter().copied()));
        }
        let parts = list.parts();
        let again = EliasFano::from_parts(
            parts.len,
            parts.low_bits,
            parts.low.to_vec(),
            parts.high.to_vec(),
            universe,
        )
        .expect("stored arrays load");
        assert!(again.walk(0).eq(numbers.iter().copied()));
        list
    }

    #[test]
    fn small_lists() {
        check(&[], 1);
        check(&[0], 1);
        check(&[u64::from(u32::MAX) * 1000], 1 << 30);
        for n in 1..200u64 {
            check(&(0..n).map(|i| i * 3).collect::<Vec<_>>(), 3);
        }
    }

    #[test]
    fn one_enormous_gap_does_not_slow_or_break_it() {
        let mut numbers: Vec<u64> = (0..5000).map(|i| i * 70).collect();
        numbers.extend((0..5000u64).map(|i| (1 << 30) + i * 70));
        check(&numbers, 70);
    }

    #[test]
    fn at_most_two_and_a_half_bytes_up_to_64_kib_apart() {
        for gap in [1u64, 2, 30, 72, 112, 1000, 44_000, 65_535] {
            let numbers: Vec<u64> = (0..100_000).map(|i| i * gap + (i * 7919) % gap).collect();
            let list = check(&numbers, gap);
            let bytes = list.heap_bytes() as f64 / 100_000.0;
            assert!(bytes <= 2.5, "{bytes} bytes a number at gaps of {gap}");
        }
    }

    #[test]
    fn foreign_arrays_are_refused() {
        let refused = |len, bits, low: &[u64], high: &[u64], universe| {
            EliasFano::from_parts(len, bits, low.to_vec(), high.to_vec(), universe).is_none()
        };
        assert!(refused(1, 0, &[], &[0], 10));
        assert!(refused(2, 0, &[], &[1], 10));
        assert!(refused(1, 64, &[0], &[1], 10));
        assert!(refused(1, 8, &[], &[1], 10));
        assert!(refused(1, 0, &[], &[1 << 20], 10));
        assert!(refused(2, 4, &[0x22], &[0b11], 100));
        assert!(refused(u64::MAX, 2, &[], &[], 100));
        assert!(!refused(2, 4, &[0x32], &[0b11], 100));
    }

    proptest! {
        #[test]
        fn any_gaps(gaps in prop::collection::vec(1u64..100_000, 0..3000), estimate in 1u64..1_000_000) {
            let numbers: Vec<u64> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
            check(&numbers, estimate);
        }
    }
}
