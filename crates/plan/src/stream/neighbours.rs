//! Brings together numbers whose positions are near each other.
//!
//! Counters of an epoch take megabytes, and adding to them at random is waiting for memory. Here (position, number)
//! pairs are first written to a list for each run of 2^shift positions, and those of a list are shown together once
//! it is full: lists grow at their ends, and what is counted of a run of positions fits the cache.

/// Lists are shown once they hold so many.
const LIST: usize = 4096;

/// Pairs that are shown at a time.
const SHOWN: usize = 1024;

/// Collects numbers by position.
#[derive(Debug)]
pub(super) struct Neighbours {
    /// At most 32.
    shift: u32,
    /// Place in the run, then number; [`LIST`] for each run.
    pairs: Vec<u64>,
    /// How many are in each list.
    lens: Vec<u32>,
    positions: Vec<u64>,
    numbers: Vec<u32>,
}

impl Neighbours {
    /// Over the positions `0..end`, in lists of about `run` neighbours.
    pub(super) fn new(end: u64, run: u64) -> Neighbours {
        let shift = run.clamp(1, 1 << 32).ilog2();
        let lists = (end >> shift) as usize + 1;
        Neighbours {
            shift,
            pairs: vec![0; lists * LIST],
            lens: vec![0; lists],
            positions: Vec::with_capacity(SHOWN),
            numbers: Vec::with_capacity(SHOWN),
        }
    }

    /// Adds pairs, and shows lists that are full.
    pub(super) fn add(
        &mut self,
        positions: &[u64],
        numbers: &[u32],
        mut show: impl FnMut(&[u64], &[u32]),
    ) {
        let mask = (1_u64 << self.shift) - 1;
        for (&position, &number) in positions.iter().zip(numbers) {
            let list = (position >> self.shift) as usize;
            let len = self.lens[list] as usize;
            self.pairs[list * LIST + len] = (position & mask) << 32 | u64::from(number);
            self.lens[list] += 1;
            if len + 1 == LIST {
                self.show(list, &mut show);
            }
        }
    }

    /// Shows all pairs that were not shown.
    pub(super) fn finish(mut self, mut show: impl FnMut(&[u64], &[u32])) {
        for list in 0..self.lens.len() {
            self.show(list, &mut show);
        }
    }

    fn show(&mut self, list: usize, show: &mut impl FnMut(&[u64], &[u32])) {
        let first = (list as u64) << self.shift;
        let len = std::mem::take(&mut self.lens[list]) as usize;
        for pairs in self.pairs[list * LIST..][..len].chunks(SHOWN) {
            self.positions.clear();
            self.numbers.clear();
            let positions = pairs.iter().map(|pair| first + (pair >> 32));
            self.positions.extend(positions);
            self.numbers.extend(pairs.iter().map(|&pair| pair as u32));
            show(&self.positions, &self.numbers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permutation::Permutation;

    #[test]
    fn every_pair_is_shown_once_among_its_neighbours() {
        for (end, run) in [(1, 1), (5000, 1), (50_000, 7000), (100_000, u64::MAX)] {
            let order = Permutation::new(end, 3);
            let mut neighbours = Neighbours::new(end, run);
            let mut seen = vec![None; end as usize];
            let mut show = |positions: &[u64], numbers: &[u32]| {
                let run = run.clamp(1, 1 << 32).ilog2();
                assert!(positions.iter().all(|at| at >> run == positions[0] >> run));
                for (&position, &number) in positions.iter().zip(numbers) {
                    assert_eq!(seen[position as usize].replace(number), None);
                }
            };
            let mut positions = Vec::new();
            for first in (0..end).step_by(100) {
                let numbers: Vec<u32> = (first as u32..end.min(first + 100) as u32).collect();
                positions.resize(numbers.len(), 0);
                order.fill_positions(first, &mut positions);
                neighbours.add(&positions, &numbers, &mut show);
            }
            neighbours.finish(&mut show);
            let expected = (0..end).map(|position| Some(order.get(position) as u32));
            assert!(seen.into_iter().eq(expected));
        }
    }
}
