//! Which of many neighbouring intervals a number lies in.

/// Neighbouring intervals of numbers from 0 on.
///
/// A table tells the first interval that a run of 2^shift numbers touches; there are a few runs for each interval, so
/// that few numbers ask for a second look.
#[derive(Debug)]
pub(super) struct Intervals {
    /// Where each ends, rising.
    ends: Vec<u64>,
    first: Vec<u32>,
    shift: u32,
}

/// Runs for each interval, on average.
const RUNS: u64 = 4;

impl Intervals {
    /// The intervals that end at `ends`, which rise.
    pub(super) fn new(ends: Vec<u64>) -> Intervals {
        let numbers = ends.last().copied().unwrap_or(0);
        let runs = RUNS * ends.len() as u64;
        let shift = (numbers / runs.max(1)).max(1).ilog2();
        let mut interval = 0;
        let first = (0..=numbers >> shift).map(|run| {
            while interval < ends.len() && ends[interval] <= run << shift {
                interval += 1;
            }
            interval as u32
        });
        Intervals {
            first: first.collect(),
            ends,
            shift,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The interval that a number lies in; there is one.
    #[inline]
    pub(super) fn of(&self, number: u64) -> usize {
        let mut interval = self.first[(number >> self.shift) as usize] as usize;
        while self.ends[interval] <= number {
            interval += 1;
        }
        interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_key::KeyedRng;

    #[test]
    fn numbers_find_their_interval() {
        let mut rng = KeyedRng::new(4);
        for spread in [1, 3, 50, 10_000, 1 << 40] {
            for count in [1, 2, 7, 300] {
                let mut ends: Vec<u64> = (0..count).map(|_| 1 + rng.below(spread)).collect();
                ends.sort_unstable();
                ends.dedup();
                let intervals = Intervals::new(ends.clone());
                assert_eq!(intervals.len(), ends.len());
                let last = ends[ends.len() - 1];
                let near = ends.iter().flat_map(|&end| [end - 1, end]);
                let drawn = (0..200).map(|_| rng.below(last));
                for number in near.chain(drawn).filter(|&number| number < last) {
                    let expected = ends.partition_point(|&end| end <= number);
                    assert_eq!(intervals.of(number), expected, "{number} of {ends:?}");
                }
            }
        }
    }
}
