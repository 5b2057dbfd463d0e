//! The boundaries that leave the least padding, by dynamic programming.
//!
//! With the lengths ℓ_1 < … < ℓ_n that occur and C_j sentences up to ℓ_j, k buckets over the first j
//! lengths cost
//!
//! ```text
//! f(k, j) = min_{i < j} f(k − 1, i) + ℓ_j · (C_j − C_i)     padded cells
//! ```
//!
//! The last term w(i, j) satisfies w(a, c) + w(b, d) ≤ w(a, d) + w(b, c) for a ≤ b ≤ c ≤ d, since the
//! difference is (ℓ_d − ℓ_c)·(C_b − C_a) ≥ 0. So the best i never falls as j rises, and a row of
//! f is filled by halving: the middle j first, which bounds i for both halves. Cost: O(k · n · log n)
//! time and 4·k·n bytes for the choices; trying every i would be O(k · n²).

use super::histogram::LengthHistogram;
use crate::error::PlanError;

/// Most choices that are kept, 4 bytes each.
const MAX_CHOICES: u64 = 1 << 28;

/// The ends of `buckets` buckets over the lengths of `histogram` that hold the fewest padded cells; fewer buckets if
/// there are fewer lengths.
pub(super) fn boundaries(histogram: &LengthHistogram, buckets: u32) -> Result<Vec<u32>, PlanError> {
    let counts = histogram.counts();
    let lengths = counts.len();
    if lengths <= buckets as usize {
        return Ok(counts.iter().map(|&(length, _)| length).collect());
    }
    let choices = u64::from(buckets) * lengths as u64;
    if choices > MAX_CHOICES {
        return Err(PlanError::OptimalTooLarge {
            buckets,
            lengths: lengths as u64,
            limit: MAX_CHOICES / lengths as u64,
        });
    }
    let costs = Costs::new(counts);
    // After one bucket; f(k, j) for k ≤ j alone exists, since a bucket holds at least one length.
    let mut cells: Vec<u128> = (0..=lengths).map(|j| costs.bucket(0, j)).collect();
    let mut chosen: Vec<Vec<u32>> = Vec::with_capacity(buckets as usize);
    for bucket in 1..buckets as usize {
        let mut row = Row {
            costs: &costs,
            before: &cells,
            cells: vec![u128::MAX; lengths + 1],
            chosen: vec![0; lengths + 1],
        };
        row.fill(bucket + 1, lengths, bucket, lengths - 1);
        let Row {
            cells: least,
            chosen: begins,
            ..
        } = row;
        cells = least;
        chosen.push(begins);
    }
    let mut end = lengths;
    let mut boundaries = vec![counts[end - 1].0];
    for row in chosen.iter().rev() {
        end = row[end] as usize;
        boundaries.push(counts[end - 1].0);
    }
    boundaries.reverse();
    Ok(boundaries)
}

/// The cost of a bucket of neighbouring lengths.
struct Costs {
    lengths: Vec<u128>,
    /// Number of sentences among the first lengths.
    before: Vec<u128>,
}

impl Costs {
    fn new(counts: &[(u32, u64)]) -> Costs {
        let mut before = vec![0];
        for &(_, count) in counts {
            before.push(before[before.len() - 1] + u128::from(count));
        }
        Costs {
            lengths: counts.iter().map(|&(length, _)| length.into()).collect(),
            before,
        }
    }

    /// Padded cells of one bucket of the lengths `from..to`.
    fn bucket(&self, from: usize, to: usize) -> u128 {
        match to {
            0 => 0,
            _ => self.lengths[to - 1] * (self.before[to] - self.before[from]),
        }
    }
}

/// One k of f(k, j).
struct Row<'a> {
    costs: &'a Costs,
    before: &'a [u128],
    cells: Vec<u128>,
    chosen: Vec<u32>,
}

impl Row<'_> {
    /// Fills `cells[low..=high]`; their best i is in `from..=to`.
    fn fill(&mut self, low: usize, high: usize, from: usize, to: usize) {
        if low > high {
            return;
        }
        let middle = low + (high - low) / 2;
        let best = (from..=to.min(middle - 1))
            .map(|i| (self.before[i] + self.costs.bucket(i, middle), i))
            .min()
            .expect("a bucket begins before it ends");
        self.cells[middle] = best.0;
        self.chosen[middle] = best.1 as u32;
        self.fill(low, middle - 1, from, best.1);
        self.fill(middle + 1, high, best.1, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_key::KeyedRng;

    fn padded_cells(counts: &[(u32, u64)], boundaries: &[u32]) -> u128 {
        let cells = |&(length, count): &(u32, u64)| {
            let end = boundaries.iter().find(|&&end| end >= length).unwrap();
            u128::from(*end) * u128::from(count)
        };
        counts.iter().map(cells).sum()
    }

    /// The least cells of any choice of `buckets` boundaries among the lengths, by trying them all.
    fn least(counts: &[(u32, u64)], buckets: usize) -> u128 {
        (0_u32..1 << (counts.len() - 1))
            .filter(|chosen| chosen.count_ones() as usize + 1 == buckets)
            .map(|chosen| {
                let mut ends: Vec<u32> = (0..counts.len() - 1)
                    .filter(|&place| chosen >> place & 1 == 1)
                    .map(|place| counts[place].0)
                    .collect();
                ends.push(counts[counts.len() - 1].0);
                padded_cells(counts, &ends)
            })
            .min()
            .unwrap()
    }

    #[test]
    fn no_other_boundaries_leave_less_padding() {
        let mut rng = KeyedRng::new(3);
        for round in 0..400 {
            let most = if round < 300 { 9 } else { 13 };
            let mut length = 0;
            let lengths: Vec<(u32, u32)> = (0..1 + rng.below(most))
                .map(|_| {
                    let (steps, counts) = (1 << rng.below(8), 1 << rng.below(10));
                    length += 1 + rng.below(steps) as u32;
                    (length, 1 + rng.below(counts) as u32)
                })
                .collect();
            let each = |&(length, count): &(u32, u32)| std::iter::repeat_n(length, count as usize);
            let histogram = LengthHistogram::new(lengths.iter().flat_map(each));
            let counts = histogram.counts();
            for buckets in 1..=counts.len() {
                let ends = boundaries(&histogram, buckets as u32).unwrap();
                assert_eq!(ends.len(), buckets);
                assert!(ends.windows(2).all(|pair| pair[0] < pair[1]));
                assert_eq!(*ends.last().unwrap(), histogram.longest());
                assert_eq!(
                    padded_cells(counts, &ends),
                    least(counts, buckets),
                    "{counts:?}"
                );
            }
        }
    }

    #[test]
    fn more_buckets_than_lengths_are_one_a_length() {
        let histogram = LengthHistogram::new([5, 2, 5, 9]);
        assert_eq!(boundaries(&histogram, 100).unwrap(), [2, 5, 9]);
        assert_eq!(boundaries(&LengthHistogram::default(), 3).unwrap(), [0; 0]);
    }

    #[test]
    fn a_table_that_would_not_fit_is_refused() {
        let histogram = LengthHistogram::new(0..1 << 20);
        let message = boundaries(&histogram, 1000).unwrap_err().to_string();
        assert!(message.contains("256 or fewer"), "{message}");
    }
}
