//! Samplers, which choose the records of an epoch other than each record once: a custom list, draws by weight,
//! or equal classes.
//!
//! * *Ids.* The order permutes the indices of the list's entries. A record that a filter leaves out is an error.
//! * *Classes.* A mixture (`mixture.rs`) over the records sorted by class, one part a class with equal shares. So
//!   classes are exact to one example at any length of a run, and all records of a class are used before one is
//!   repeated. Draws by weight 1/(records of the class) guarantee neither.
//! * *Weights.* The example at a position of an epoch is the record with a share of the sum of weights that contains
//!   a random number, drawn by the epoch's key and the position: with replacement, as in PyTorch's
//!   `WeightedRandomSampler`. Nothing is stored but the sums, 8 bytes a record; a draw is a binary search in them.
//!   Rejected: an alias table, which draws in O(1) from 12 to 16 bytes a record, but waits for memory just as long.

use std::sync::Arc;

use pelton_key::{Digest, KeyedRng, Stage, key};

use crate::error::PlanError;
use crate::ordering::{EpochWalk, Ids};
use crate::orders::Order;

/// The records of an epoch, if not each of them once.
#[derive(Debug, Clone, PartialEq)]
pub enum Sampler {
    /// These, the same ones in every epoch, in the order of the list if the plan's order is `sequential`, or shuffled
    /// by it. A record that is listed several times is as many examples.
    Ids(Arc<[u64]>),
    /// Independent draws by weight with replacement: one weight for every record; those of filtered records are
    /// ignored.
    Weights(Arc<[f64]>),
    /// Each class that has records as often as any other: the class of every record.
    Classes(Arc<[u32]>),
}

impl Sampler {
    /// Errors: an order that it cannot be used with, a wrong number of weights or classes, unknown records.
    pub(crate) fn check(&self, order: Order, records: u64) -> Result<(), PlanError> {
        let reads_neighbours = order.unit_bytes().is_some();
        let (found, what) = match self {
            Sampler::Ids(_) if reads_neighbours => {
                let order = order.to_string();
                return Err(PlanError::ListOrder { order });
            }
            Sampler::Ids(ids) => match ids.iter().find(|&&id| id >= records) {
                Some(&id) => return Err(PlanError::NoSuchRecord { id, records }),
                None => return Ok(()),
            },
            Sampler::Weights(weights) => (weights.len() as u64, "weights"),
            Sampler::Classes(classes) => (classes.len() as u64, "classes"),
        };
        if order != Order::Full {
            let order = order.to_string();
            return Err(PlanError::DrawOrder { order });
        }
        if found == records {
            Ok(())
        } else {
            Err(PlanError::SamplerLength {
                what,
                found,
                records,
            })
        }
    }
}

/// Sum of the weights, which become integers with this sum.
const SHARES: f64 = (1_u64 << 53) as f64;

/// Examples drawn by weight.
#[derive(Debug)]
pub(crate) struct Weighted {
    /// The shares of each number and those before.
    sums: Vec<u64>,
    seed: u64,
}

/// The draws of one epoch.
#[derive(Debug)]
struct WeightedEpoch {
    weighted: Arc<Weighted>,
    key: u64,
}

impl Weighted {
    /// Of numbers that have these weights.
    ///
    /// Errors: an invalid weight, by its index; no positive weight.
    pub(crate) fn new(
        weights: impl Iterator<Item = f64> + Clone,
        seed: u64,
    ) -> Result<Weighted, PlanError> {
        let mut total = 0.0;
        for (record, weight) in (0..).zip(weights.clone()) {
            if !(weight >= 0.0 && weight.is_finite()) {
                let weight = weight.to_string();
                return Err(PlanError::BadRecordWeight { record, weight });
            }
            total += weight;
        }
        if !(total > 0.0 && f64::is_finite(total)) {
            return Err(PlanError::NoRecordWeight);
        }
        let mut sum = 0.0;
        let sums = weights.map(|weight| {
            sum += weight;
            (sum / total * SHARES) as u64
        });
        Ok(Weighted {
            sums: sums.collect(),
            seed,
        })
    }

    fn of_epoch(self: &Arc<Self>, epoch: u64) -> WeightedEpoch {
        WeightedEpoch {
            weighted: Arc::clone(self),
            key: key(self.seed, epoch, Stage::Order),
        }
    }

    /// The share of each number in a draw.
    pub(crate) fn shares(&self) -> impl Iterator<Item = f64> {
        let mut before = 0;
        self.sums.iter().map(move |&sum| {
            let share = sum - std::mem::replace(&mut before, sum);
            share as f64 / SHARES
        })
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        Digest::new("weights")
            .words(self.sums.iter().copied())
            .value()
    }
}

impl Ids for Arc<Weighted> {
    fn walk(&self, epoch: u64) -> Box<dyn EpochWalk> {
        Box::new(self.of_epoch(epoch))
    }

    fn memory_bytes(&self) -> u64 {
        8 * self.sums.len() as u64
    }
}

impl EpochWalk for WeightedEpoch {
    /// The examples at positions `start..start + out.len()`, by number.
    fn fill(&mut self, start: u64, out: &mut [u64]) {
        let sums = &self.weighted.sums;
        let mut rng = KeyedRng::at(self.key, start);
        for slot in out {
            // The last sum is the greatest, so that there is one above every number drawn.
            let drawn = rng.next_u64() >> 11;
            *slot = sums.partition_point(|&sum| sum <= drawn) as u64;
        }
    }
}

/// The numbers of records sorted by class, each class in the order of the records, and the end of each class.
pub(crate) fn sorted_by_class(numbers: u64, class_of: impl Fn(u64) -> u32) -> (Vec<u64>, Vec<u64>) {
    let classes = (0..numbers)
        .map(&class_of)
        .max()
        .map_or(0, |most| most as usize + 1);
    let mut ends = vec![0_u64; classes];
    for number in 0..numbers {
        ends[class_of(number) as usize] += 1;
    }
    let mut sum = 0;
    for end in &mut ends {
        sum += std::mem::replace(end, sum);
    }
    // Each starts at the end of the one before, and moves to its own end as the class is filled.
    let mut sorted = vec![0; numbers as usize];
    for number in 0..numbers {
        let next = &mut ends[class_of(number) as usize];
        sorted[*next as usize] = number;
        *next += 1;
    }
    (sorted, ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_weights() {
        let weights = [0.0, 1.0, 0.0, 2.5, 0.5, 0.0];
        let weighted = Arc::new(Weighted::new(weights.into_iter(), 3).unwrap());
        let shares: Vec<f64> = weighted.shares().collect();
        for (share, weight) in shares.iter().zip(weights) {
            assert!((share - weight / 4.0).abs() < 1e-15);
        }
        let mut ids = vec![0; 40_000];
        weighted.of_epoch(5).fill(0, &mut ids);
        for (number, weight) in (0..).zip(weights) {
            let count = ids.iter().filter(|&&id| id == number).count() as f64;
            let expected = 10_000.0 * weight;
            // Six standard deviations of a binomial count.
            assert!(
                (count - expected).abs() <= 6.0 * expected.sqrt(),
                "{number}: {count}"
            );
        }
        let mut some = [0; 17];
        weighted.of_epoch(5).fill(12_345, &mut some);
        assert_eq!(some, ids[12_345..][..17], "it can be entered anywhere");
        weighted.of_epoch(6).fill(12_345, &mut some);
        assert_ne!(some, ids[12_345..][..17]);
    }

    #[test]
    fn classes_are_sorted_and_stay_in_order() {
        let class_of = [3, 0, 3, 1, 0, 3];
        let (sorted, ends) = sorted_by_class(6, |number| class_of[number as usize]);
        assert_eq!(sorted, [1, 4, 3, 0, 2, 5]);
        assert_eq!(ends, [2, 3, 3, 6]);
        assert_eq!(sorted_by_class(0, |_| 7), (vec![], vec![]));
    }
}
