//! Examples drawn from several parts of the data in given shares.
//!
//! **Counts.** With shares s_j of S, S_j = s_0 + … + s_j and round(x) = ⌊x + ½⌋, the first k examples of a run have
//! C_j(k) = round(k·S_j/S) − round(k·S_{j−1}/S) of part j, which is k·s_j/S to one example, however long the run is.
//! An epoch of E examples takes what C_j gains over its E examples: that is never negative where E·s_j/S is 1 or
//! more, so that parts with less are refused.
//!
//! **Order.** A permutation of the epoch's E places puts n_0 of them in part 0, the next n_1 in part 1 and so on. A
//! part is read in endless passes, each in a different order: no record is repeated before all others of its
//! part were used, across epochs too.
//!
//! Any position is computed from (parts, seed, epoch) by evaluating two permutations. Rejected: drawing the
//! part of each example at random, which makes shares wrong by √E; largest remainders in each epoch, which
//! drift.

use std::ops::Range;
use std::sync::Arc;

use pelton_key::{Digest, Stage, key};

use crate::error::PlanError;
use crate::ordering::{EpochWalk, Ids};
use crate::permutation::Permutation;
use crate::selection::Selection;
use crate::spec::Part;

/// Sum of the shares: weights become integers with this sum.
const SHARES: f64 = (1_u64 << 53) as f64;
/// Largest weight of a part; only proportions matter.
const MOST_WEIGHT: f64 = 1e30;

/// Most examples of an epoch: then all products fit 128 bits.
const MAX_EXAMPLES: u64 = 1 << 53;

/// Passes of an epoch whose orders are kept, 80 bytes each. Where there are more, the order of a pass is made for
/// each place.
const MOST_PASSES: u64 = 4096;

/// Examples drawn from several parts in given shares.
#[derive(Debug)]
pub(crate) struct Mixture {
    parts: Vec<KeptPart>,
    /// Sum of the shares.
    shares: u64,
    examples: u64,
    seed: u64,
}

/// A part by the numbers of its kept records.
#[derive(Debug)]
struct KeptPart {
    numbers: Range<u64>,
    share: u64,
    /// The shares of this part and those before.
    shares: u64,
}

/// What an epoch draws, and in which order.
#[derive(Debug)]
struct MixedEpoch {
    mixture: Arc<Mixture>,
    order: Permutation,
    turns: Vec<Turn>,
    /// Where each part's places end, before they are permuted.
    ends: Vec<u64>,
}

/// What an epoch draws from a part.
#[derive(Debug)]
struct Turn {
    /// Places of the parts before.
    start: u64,
    /// The pass that its first place is of, and the place there.
    pass: u64,
    first: u64,
    /// The orders of its passes, where they are kept.
    orders: Vec<Permutation>,
}

impl Mixture {
    /// Over `0..records`, before any selection.
    pub(crate) fn new(
        parts: &[Part],
        epoch_examples: Option<u64>,
        records: u64,
        selection: Option<&Selection>,
        seed: u64,
    ) -> Result<Mixture, PlanError> {
        let sum: f64 = parts.iter().map(|part| part.weight).sum();
        let mut kept: Vec<KeptPart> = Vec::with_capacity(parts.len());
        let mut shares = 0;
        for (part, Part { ids, weight }) in parts.iter().enumerate() {
            if !(0.0..=MOST_WEIGHT).contains(weight) {
                let weight = format!("{weight:?}");
                return Err(PlanError::BadWeight { part, weight });
            }
            if ids.start > ids.end || ids.end > records {
                return Err(PlanError::PartOutside {
                    part,
                    start: ids.start,
                    end: ids.end,
                    records,
                });
            }
            let numbers = selection.map_or(ids.clone(), |kept| kept.numbers(ids));
            if *weight > 0.0 && numbers.is_empty() {
                return Err(PlanError::EmptyPart { part });
            }
            let share = (weight / sum * SHARES).round() as u64;
            shares += share;
            kept.push(KeptPart {
                numbers,
                share,
                shares,
            });
        }
        if !(sum > 0.0 && sum.is_finite()) {
            return Err(PlanError::NoWeight);
        }
        let weighted = kept.iter().zip(parts).filter(|(_, part)| part.weight > 0.0);
        let all = weighted.clone().map(|(kept, _)| kept.len());
        let examples = epoch_examples.unwrap_or_else(|| all.fold(0, u64::saturating_add));
        if examples > MAX_EXAMPLES {
            let limit = MAX_EXAMPLES;
            return Err(PlanError::MixtureEpoch { examples, limit });
        }
        let mixture = Mixture {
            shares,
            examples,
            seed,
            parts: kept,
        };
        for (part, kept) in mixture.parts.iter().enumerate() {
            let scaled = u128::from(kept.share) * u128::from(examples);
            if parts[part].weight > 0.0 && scaled < u128::from(shares) {
                return Err(PlanError::PartTooSmall { part, examples });
            }
        }
        Ok(mixture)
    }

    /// Examples of an epoch, the same in every one.
    pub(crate) fn examples(&self) -> u64 {
        self.examples
    }

    /// The numbers of the kept records of parts with a weight, and how often a mean epoch draws each.
    pub(crate) fn expected(&self) -> impl Iterator<Item = (u64, f64)> {
        let parts = self.parts.iter().filter(|part| part.share > 0);
        parts.flat_map(|part| {
            let share = part.share as f64 / self.shares as f64;
            let draws = share * self.examples as f64 / part.len() as f64;
            part.numbers.clone().map(move |number| (number, draws))
        })
    }

    /// Examples of each part that an epoch draws.
    pub(crate) fn counts(&self, epoch: u64) -> Vec<u64> {
        let (before, after) = (self.drawn(epoch), self.drawn(u128::from(epoch) + 1));
        let gains = after.iter().zip(before);
        gains
            .map(|(after, before)| (after - before) as u64)
            .collect()
    }

    /// Examples of each part that the first epochs draw.
    fn drawn(&self, epochs: impl Into<u128>) -> Vec<u128> {
        let all = epochs.into() * u128::from(self.examples);
        let shares = u128::from(self.shares);
        let (whole, rest) = (all / shares, all % shares);
        let mut before = 0;
        let of_part = self.parts.iter().map(|part| {
            let sum = u128::from(part.shares);
            let rounded = whole * sum + (2 * rest * sum + shares) / (2 * shares);
            rounded - std::mem::replace(&mut before, rounded)
        });
        of_part.collect()
    }

    fn of_epoch(self: &Arc<Self>, epoch: u64) -> MixedEpoch {
        let mut start = 0;
        let mut left = MOST_PASSES;
        let mut ends = Vec::with_capacity(self.parts.len());
        let turns = self.drawn(epoch).into_iter().zip(self.counts(epoch));
        let turns = turns.enumerate().map(|(part, (drawn, count))| {
            let len = self.parts[part].len().max(1);
            // More passes than 2^64 begin again with the first.
            let pass = (drawn / u128::from(len)) as u64;
            let first = (drawn % u128::from(len)) as u64;
            let passes = (first + count).div_ceil(len);
            let kept = if passes <= left { passes } else { 0 };
            left -= kept;
            start += count;
            ends.push(start);
            Turn {
                start: start - count,
                pass,
                first,
                orders: (0..kept)
                    .map(|later| self.pass(part, pass.wrapping_add(later)))
                    .collect(),
            }
        });
        MixedEpoch {
            turns: turns.collect(),
            ends,
            order: Permutation::new(self.examples, key(self.seed, epoch, Stage::Order)),
            mixture: Arc::clone(self),
        }
    }

    /// The order of one pass over a part.
    fn pass(&self, part: usize, pass: u64) -> Permutation {
        // The places of the epoch are in random order already, so that what a short network lacks cannot be
        // seen, and a table for each of thousands of passes would be slow.
        let key = key(self.seed, pass, Stage::Part(part as u64));
        Permutation::without_table(self.parts[part].len(), key)
    }

    /// A number that changes with the parts and their shares.
    pub(crate) fn fingerprint(&self) -> u64 {
        let of_part = |part: &KeptPart| [part.numbers.start, part.numbers.end, part.share];
        Digest::new(4)
            .words([self.examples, self.seed])
            .words(self.parts.iter().flat_map(of_part))
            .value()
    }
}

impl Ids for Arc<Mixture> {
    fn walk(&self, epoch: u64) -> Box<dyn EpochWalk> {
        Box::new(self.of_epoch(epoch))
    }

    /// Memory that an epoch takes.
    fn memory_bytes(&self) -> u64 {
        let parts = self.parts.len() as u64;
        parts * (size_of::<Turn>() as u64 + 8) + MOST_PASSES * size_of::<Permutation>() as u64
    }
}

impl EpochWalk for MixedEpoch {
    fn fill(&mut self, start: u64, out: &mut [u64]) {
        self.order.fill(start, out);
        for slot in out {
            let part = self.ends.partition_point(|&end| end <= *slot);
            let (turn, kept) = (&self.turns[part], &self.mixture.parts[part]);
            let place = turn.first + (*slot - turn.start);
            let (pass, place) = (place / kept.len(), place % kept.len());
            let number = match turn.orders.get(pass as usize) {
                Some(order) => order.get(place),
                None => self
                    .mixture
                    .pass(part, turn.pass.wrapping_add(pass))
                    .get(place),
            };
            *slot = kept.numbers.start + number;
        }
    }
}

impl KeptPart {
    fn len(&self) -> u64 {
        self.numbers.end - self.numbers.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_key::KeyedRng;

    fn mixture(parts: &[(u64, f64)], examples: Option<u64>) -> Result<Arc<Mixture>, PlanError> {
        let mut start = 0;
        let parts: Vec<Part> = parts
            .iter()
            .map(|&(len, weight)| {
                start += len;
                let ids = start - len..start;
                Part { ids, weight }
            })
            .collect();
        Mixture::new(&parts, examples, start, None, 7).map(Arc::new)
    }

    fn epoch_of(mixture: &Arc<Mixture>, epoch: u64) -> Vec<u64> {
        let mut ids = vec![0; mixture.examples() as usize];
        mixture.of_epoch(epoch).fill(0, &mut ids);
        ids
    }

    #[test]
    fn sums_are_within_one_of_the_shares_after_every_epoch() {
        let mut rng = KeyedRng::new(3);
        let mut checked = 0;
        for round in 0..300 {
            let parts = 1 + rng.below(12);
            let examples = rng.below(if round % 2 == 0 { 60 } else { 5000 });
            let weights: Vec<(u64, f64)> = (0..parts)
                .map(|_| {
                    let weight = match rng.below(4) {
                        0 => 1.0,
                        1 => 0.0,
                        _ => rng.next_f64(),
                    };
                    (1 + rng.below(40), weight)
                })
                .collect();
            let sum: f64 = weights.iter().map(|part| part.1).sum();
            let Ok(mixture) = mixture(&weights, Some(examples)) else {
                let too_small = |&(_, weight): &(u64, f64)| {
                    weight > 0.0 && weight / sum * (examples as f64) < 1.01
                };
                assert!(sum == 0.0 || weights.iter().any(too_small), "{weights:?}");
                continue;
            };
            checked += 1;
            let mut drawn = vec![0_u64; weights.len()];
            for epoch in 0..200_u64 {
                let counts = mixture.counts(epoch);
                assert_eq!(counts.iter().sum::<u64>(), examples);
                for ((drawn, count), &(_, weight)) in drawn.iter_mut().zip(counts).zip(&weights) {
                    *drawn += count;
                    let expected = (epoch + 1) as f64 * examples as f64 * weight / sum;
                    let error = *drawn as f64 - expected;
                    assert!(error.abs() < 1.0 + 1e-6, "{weights:?} {examples}: {error}");
                }
            }
        }
        assert!(checked > 100, "{checked}");
    }

    #[test]
    fn every_record_of_a_part_comes_before_one_comes_again() {
        let parts = [(7, 1.0), (50, 2.0), (2000, 3.0), (1, 0.5), (9, 0.0)];
        for examples in [None, Some(13), Some(999)] {
            let mixture = mixture(&parts, examples).unwrap();
            let mut seen = vec![0_u32; 2067];
            for epoch in 0..20 {
                for id in epoch_of(&mixture, epoch) {
                    seen[id as usize] += 1;
                }
                let mut start = 0;
                for (drawn, (len, _)) in mixture.drawn(epoch + 1).into_iter().zip(parts) {
                    let of_part = &seen[start..start + len as usize];
                    let least = (drawn / u128::from(len)) as u32;
                    assert!(of_part.iter().all(|&n| n == least || n == least + 1));
                    start += len as usize;
                }
            }
        }
    }

    /// Also where passes are too many to keep their orders, and in epochs whose examples no 64 bits count.
    #[test]
    fn it_can_be_entered_anywhere() {
        for parts in [
            vec![(700, 1.0), (300, 2.0)],
            vec![(3, 1.0), (2, 5.0), (1000, 1.0)],
            vec![(1, 7.0), (1000, 1.0)],
        ] {
            let mixture = mixture(&parts, Some(9000)).unwrap();
            for epoch in [0, 5, u64::MAX] {
                let whole = epoch_of(&mixture, epoch);
                for start in (0..8990).step_by(370) {
                    let mut some = [0; 10];
                    mixture.of_epoch(epoch).fill(start, &mut some);
                    assert_eq!(some, whole[start as usize..][..10]);
                }
            }
        }
    }
}
