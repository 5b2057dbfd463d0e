//! A keyed bijection of 0..2^bits by a Feistel network, and its walk down to 0..n.
//!
//! The bits are cut in two halves (unequal by one when `bits` is odd); rounds change the halves by
//! turns, `left ^= F(right)` then `right ^= F(left)`, so each round undoes itself and unequal halves
//! need no special case. The smallest network that covers `n` is less than twice as large as `n`; an
//! output outside 0..n is fed back until it lands inside (cycle walking: Black and Rogaway, "Ciphers
//! with arbitrary finite domains", CT-RSA 2002), under two evaluations an id on average.
//!
//! Rounds: four rounds of truly random functions are enough in theory for large halves (Luby and
//! Rackoff, 1988). With the functions here, the chi-square tests of `tests/statistics.rs` reject two,
//! three and four rounds and accept six; ten leave a margin, and cost 3 to 13 ns an id in bulk. On a full power of
//! two every network is an even permutation, as a product of rounds that each are; that is one bit of
//! ln(N!) and cannot be seen without all N outputs. Rejected: a linear congruential step or x·a mod p
//! (visible lattice between neighbours), AES rounds (not in generic x86-64), storing a shuffled table
//! (8 bytes a record).
//!
//! Bulk evaluation runs 64 or 16 lanes abreast and collects the outputs that must walk on instead of
//! branching on each. 32-bit lanes serve n ≤ 2^32, 64-bit lanes the rest; the two are different
//! bijections, which is part of the golden vectors.

#[cfg(target_arch = "x86_64")]
use pelton_cpu::Simd;
use pelton_key::{GOLDEN_GAMMA, mix};

/// Halves change by turns, so each is changed five times.
const ROUNDS: usize = 10;

/// Lanes that go through the rounds together in bulk, and in the remainder: a round waits for two products of its
/// own, and eight AVX2 registers of 32-bit lanes a half hide that better than two (4.0 ns an id, not 6.0).
const GROUP: usize = 64;
const LANES: usize = 16;

/// Ids evaluated between two compactions; its buffers (4 + 2 bytes an id) stay in the L1 cache.
const CHUNK: usize = 1024;

/// The word one id is computed in.
pub(crate) trait Lane: Copy {
    const ZERO: Self;
    fn from_u64(value: u64) -> Self;
    fn to_u64(self) -> u64;
    /// The round function: 32 well mixed bits of (half, key), best at the top.
    fn mixed(half: Self, key: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn shift_left(self, bits: u32) -> Self;
    fn shift_right(self, bits: u32) -> Self;
}

/// Odd multipliers with evenly spread bits, of xxHash's 32-bit variant.
const MULTIPLIER_1: u32 = 0x9E37_79B1;
const MULTIPLIER_2: u32 = 0x85EB_CA77;

macro_rules! lane_arithmetic {
    ($word:ty) => {
        const ZERO: $word = 0;
        #[inline(always)]
        fn from_u64(value: u64) -> $word {
            value as $word
        }
        #[inline(always)]
        fn to_u64(self) -> u64 {
            self as u64
        }
        #[inline(always)]
        fn xor(self, other: $word) -> $word {
            self ^ other
        }
        #[inline(always)]
        fn and(self, other: $word) -> $word {
            self & other
        }
        #[inline(always)]
        fn or(self, other: $word) -> $word {
            self | other
        }
        #[inline(always)]
        fn shift_left(self, bits: u32) -> $word {
            self << bits
        }
        #[inline(always)]
        fn shift_right(self, bits: u32) -> $word {
            self >> bits
        }
    };
}

impl Lane for u32 {
    lane_arithmetic!(u32);

    #[inline(always)]
    fn mixed(half: u32, key: u32) -> u32 {
        let h = (half ^ key).wrapping_mul(MULTIPLIER_1);
        (h ^ (h >> 15)).wrapping_mul(MULTIPLIER_2)
    }
}

impl Lane for u64 {
    lane_arithmetic!(u64);

    /// 32 × 32 → 64-bit products only, which every SIMD level has for 64-bit lanes.
    #[inline(always)]
    fn mixed(half: u64, key: u64) -> u64 {
        let low = |x: u64| x & 0xFFFF_FFFF;
        let h = low(half ^ key) * u64::from(MULTIPLIER_1);
        let h = low(h ^ (h >> 32)) * u64::from(MULTIPLIER_2);
        low(h ^ (h >> 32))
    }
}

/// Few ids, for which buffers of a chunk would take longer to clear than to use.
const FEW: usize = 64;

/// Numbers in a bulk evaluation, and which of them must walk further.
struct Scratch<W, const SIZE: usize> {
    lanes: [W; SIZE],
    pending: [u16; SIZE],
}

impl<W: Lane, const SIZE: usize> Scratch<W, SIZE> {
    #[inline(always)]
    fn new() -> Scratch<W, SIZE> {
        Scratch {
            lanes: [W::ZERO; SIZE],
            pending: [0; SIZE],
        }
    }
}

/// The network: 0..2^(left_bits + right_bits) onto itself.
#[derive(Debug, Clone)]
pub(crate) struct Network<W> {
    round_keys: [W; ROUNDS],
    left_bits: u32,
    right_bits: u32,
}

impl<W: Lane> Network<W> {
    /// The smallest network that covers `0..n`; `n` from 3 on so that both halves have a bit.
    pub(crate) fn covering(n: u64, key: u64) -> Network<W> {
        assert!(n > 2, "a network needs two halves");
        let bits = u64::BITS - (n - 1).leading_zeros();
        Network {
            round_keys: std::array::from_fn(|round| round_key(key, round)),
            left_bits: bits / 2,
            right_bits: bits - bits / 2,
        }
    }

    /// One evaluation, forwards or backwards, in plain scalar form: the oracle of the bulk path.
    #[inline(always)]
    fn evaluate<const INVERSE: bool>(&self, x: W) -> W {
        let mut halves = [x];
        self.evaluate_lanes::<INVERSE, 1>(&mut halves);
        halves[0]
    }

    #[inline(always)]
    fn evaluate_lanes<const INVERSE: bool, const K: usize>(&self, lanes: &mut [W; K]) {
        let (to_left, to_right) = (32 - self.left_bits, 32 - self.right_bits);
        let right_mask = W::from_u64((1 << self.right_bits) - 1);
        let mut left = lanes.map(|x| x.shift_right(self.right_bits));
        let mut right = lanes.map(|x| x.and(right_mask));
        for turn in 0..ROUNDS {
            let round = if INVERSE { ROUNDS - 1 - turn } else { turn };
            let key = self.round_keys[round];
            if round % 2 == 0 {
                for (l, &r) in left.iter_mut().zip(&right) {
                    *l = l.xor(W::mixed(r, key).shift_right(to_left));
                }
            } else {
                for (r, &l) in right.iter_mut().zip(&left) {
                    *r = r.xor(W::mixed(l, key).shift_right(to_right));
                }
            }
        }
        for ((lane, &l), &r) in lanes.iter_mut().zip(&left).zip(&right) {
            *lane = l.shift_left(self.right_bits).or(r);
        }
    }

    /// The image of `x < n` in `0..n`.
    pub(crate) fn walk<const INVERSE: bool>(&self, n: u64, x: u64) -> u64 {
        let mut lane = W::from_u64(x);
        loop {
            lane = self.evaluate::<INVERSE>(lane);
            if lane.to_u64() < n {
                return lane.to_u64();
            }
        }
    }

    /// `walk` for `start..start + out.len()`, in order, with the compiler's baseline instructions.
    #[inline(always)]
    fn walk_run<const INVERSE: bool>(&self, n: u64, start: u64, out: &mut [u64]) {
        match out.len() {
            0..=FEW => self.walk_run_in::<INVERSE, FEW>(n, start, out),
            _ => self.walk_run_in::<INVERSE, CHUNK>(n, start, out),
        }
    }

    #[inline(always)]
    fn walk_run_in<const INVERSE: bool, const SIZE: usize>(
        &self,
        n: u64,
        start: u64,
        out: &mut [u64],
    ) {
        let mut scratch = Scratch::<W, SIZE>::new();
        let mut first = start;
        for chunk in out.chunks_mut(SIZE) {
            // Lanes past the chunk hold unused numbers; evaluating whole groups is cheaper.
            let used = chunk.len().next_multiple_of(LANES);
            for (offset, lane) in scratch.lanes[..used].iter_mut().enumerate() {
                *lane = W::from_u64(first.wrapping_add(offset as u64));
            }
            first = first.wrapping_add(chunk.len() as u64);
            self.walk_chunk::<INVERSE, SIZE>(n, &mut scratch, chunk);
        }
    }

    /// `walk` for each of `places`, which it replaces.
    #[inline(always)]
    fn walk_each<const INVERSE: bool>(&self, n: u64, places: &mut [u64]) {
        match places.len() {
            0..=FEW => self.walk_each_in::<INVERSE, FEW>(n, places),
            _ => self.walk_each_in::<INVERSE, CHUNK>(n, places),
        }
    }

    #[inline(always)]
    fn walk_each_in<const INVERSE: bool, const SIZE: usize>(&self, n: u64, places: &mut [u64]) {
        let mut scratch = Scratch::<W, SIZE>::new();
        for chunk in places.chunks_mut(SIZE) {
            for (lane, &place) in scratch.lanes.iter_mut().zip(chunk.iter()) {
                *lane = W::from_u64(place);
            }
            self.walk_chunk::<INVERSE, SIZE>(n, &mut scratch, chunk);
        }
    }

    /// Walks the numbers in the lanes until each is below `n`, and puts them in `chunk`.
    #[inline(always)]
    fn walk_chunk<const INVERSE: bool, const SIZE: usize>(
        &self,
        n: u64,
        scratch: &mut Scratch<W, SIZE>,
        chunk: &mut [u64],
    ) {
        let Scratch { lanes, pending } = scratch;
        self.evaluate_groups::<INVERSE>(lanes, chunk.len());
        let mut outside = 0;
        for (offset, (slot, lane)) in chunk.iter_mut().zip(lanes.iter()).enumerate() {
            *slot = lane.to_u64();
            pending[outside] = offset as u16;
            outside += usize::from(*slot >= n);
        }
        while outside > 0 {
            for (lane, &offset) in lanes.iter_mut().zip(&pending[..outside]) {
                *lane = W::from_u64(chunk[usize::from(offset)]);
            }
            self.evaluate_groups::<INVERSE>(lanes, outside);
            let mut still_outside = 0;
            for index in 0..outside {
                let offset = pending[index];
                let value = lanes[index].to_u64();
                chunk[usize::from(offset)] = value;
                pending[still_outside] = offset;
                still_outside += usize::from(value >= n);
            }
            outside = still_outside;
        }
    }

    #[inline(always)]
    fn evaluate_groups<const INVERSE: bool>(&self, lanes: &mut [W], used: usize) {
        let used = used.next_multiple_of(LANES);
        let (groups, rest) = lanes[..used].as_chunks_mut::<GROUP>();
        for group in groups {
            self.evaluate_lanes::<INVERSE, GROUP>(group);
        }
        for group in rest.as_chunks_mut::<LANES>().0 {
            self.evaluate_lanes::<INVERSE, LANES>(group);
        }
    }
}

/// The key of a round.
#[inline(always)]
fn round_key<W: Lane>(key: u64, round: usize) -> W {
    let word = mix(key.wrapping_add((round as u64 + 1).wrapping_mul(GOLDEN_GAMMA)));
    W::from_u64(word >> 32)
}

/// The bulk path for the instructions this machine has. Every path gives the same numbers.
pub(crate) fn walk_run<W: Lane, const INVERSE: bool>(
    network: &Network<W>,
    n: u64,
    start: u64,
    out: &mut [u64],
) {
    #[cfg(target_arch = "x86_64")]
    {
        if Simd::current() >= Simd::Avx2 {
            return wide::with_avx2::<W, INVERSE>(network, n, start, out);
        }
    }
    network.walk_run::<INVERSE>(n, start, out);
}

/// The bulk path for numbers that do not follow each other: replaces each by its image.
pub(crate) fn walk_each<W: Lane, const INVERSE: bool>(
    network: &Network<W>,
    n: u64,
    places: &mut [u64],
) {
    #[cfg(target_arch = "x86_64")]
    {
        if Simd::current() >= Simd::Avx2 {
            return wide::each_with_avx2::<W, INVERSE>(network, n, places);
        }
    }
    network.walk_each::<INVERSE>(n, places);
}

/// The same loop compiled for wider registers: 1.7 times the baseline's ids a second on one core of a
/// server of 2023. Compiled for AVX-512 it gained 0 to 20 % more, which is not worth a third path; called through
/// [`pelton_cpu::run`] it lost a tenth.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod wide {
    use pelton_cpu::Simd;

    use super::{Lane, Network};

    pub(super) fn with_avx2<W: Lane, const INVERSE: bool>(
        network: &Network<W>,
        n: u64,
        start: u64,
        out: &mut [u64],
    ) {
        #[target_feature(enable = "avx2")]
        fn run<W: Lane, const INVERSE: bool>(f: &Network<W>, n: u64, start: u64, out: &mut [u64]) {
            f.walk_run::<INVERSE>(n, start, out);
        }
        assert!(Simd::Avx2.is_available());
        // SAFETY: the processor has the feature that the function is compiled for.
        unsafe { run::<W, INVERSE>(network, n, start, out) }
    }

    pub(super) fn each_with_avx2<W: Lane, const INVERSE: bool>(
        network: &Network<W>,
        n: u64,
        places: &mut [u64],
    ) {
        #[target_feature(enable = "avx2")]
        fn run<W: Lane, const INVERSE: bool>(f: &Network<W>, n: u64, places: &mut [u64]) {
            f.walk_each::<INVERSE>(n, places);
        }
        assert!(Simd::Avx2.is_available());
        // SAFETY: the processor has the feature that the function is compiled for.
        unsafe { run::<W, INVERSE>(network, n, places) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_paths<W: Lane, const INVERSE: bool>(n: u64, start: u64, len: usize) {
        let network = Network::<W>::covering(n, 0xC0FFEE ^ n);
        let expected: Vec<u64> = (start..start + len as u64)
            .map(|x| network.walk::<INVERSE>(n, x))
            .collect();
        let mut out = vec![0; len];
        network.walk_run::<INVERSE>(n, start, &mut out);
        assert_eq!(out, expected, "baseline, n {n}");
        #[cfg(target_arch = "x86_64")]
        {
            if Simd::Avx2.is_available() {
                out.fill(0);
                wide::with_avx2::<W, INVERSE>(&network, n, start, &mut out);
                assert_eq!(out, expected, "AVX2, n {n}");
            }
        }
        // Backwards, so that the numbers do not follow each other as a run does.
        let expected: Vec<u64> = expected.into_iter().rev().collect();
        let numbers: Vec<u64> = (start..start + len as u64).rev().collect();
        out.copy_from_slice(&numbers);
        network.walk_each::<INVERSE>(n, &mut out);
        assert_eq!(out, expected, "each by the baseline, n {n}");
        out.copy_from_slice(&numbers);
        walk_each::<W, INVERSE>(&network, n, &mut out);
        assert_eq!(out, expected, "each, n {n}");
    }

    #[test]
    fn every_bulk_path_equals_the_scalar_walk() {
        for n in [3_u64, 1025, 4096, 65_537, 1 << 20, (1 << 31) + 1, 1 << 32] {
            let len = n.min(3000) as usize;
            for start in [0, (n - len as u64) / 2, n - len as u64] {
                check_paths::<u32, false>(n, start, len);
                check_paths::<u32, true>(n, start, len);
            }
        }
        for n in [
            1025_u64,
            (1 << 32) + 1,
            1 << 33,
            (1 << 47) - 3,
            1 << 63,
            u64::MAX,
        ] {
            let len = n.min(3000) as usize;
            for start in [0, (n - len as u64) / 2, n - len as u64] {
                check_paths::<u64, false>(n, start, len);
                check_paths::<u64, true>(n, start, len);
            }
        }
    }

    #[test]
    fn odd_lengths_are_filled_to_the_last_id() {
        for len in [0, 1, 15, 16, 17, 1023, 1024, 1025, 2047] {
            check_paths::<u32, false>(70_000, 5, len);
        }
    }
}
