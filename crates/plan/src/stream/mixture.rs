//! Examples drawn from several parts of the data in given shares.
//!
//! **Counts.** An epoch of E examples takes n_j from part j. After every epoch k the sums C_j(k) are whole numbers
//! with |C_j(k) − k·E·w_j| < 1, so that shares are exact however long a run is; largest remainders an epoch would
//! drift, and over all epochs at once could ask for n_j = −1. Example m of part j may be drawn once
//! k·E·w_j > m − 1 and must be once k·E·w_j ≥ m; taking what must come first, first, meets every such date, for a
//! schedule that does so exists (the chairman assignment problem: Tijdeman, 1980) and earliest due dates find one
//! wherever there is one for pieces of equal size.
//!
//! **Order.** A permutation of the epoch's E places puts n_0 of them in part 0, the next n_1 in part 1 and so on. The
//! examples of a part are those of endless passes over it, each pass in an order of its own: no record comes a second
//! time before all others of its part came once, also from one epoch to the next.
//!
//! Any place follows from (parts, seed, epoch) alone: two permutations evaluated. Counts of epoch k cost k steps the
//! first time. Rejected: drawing the part of each example at random, whose shares are off by √E.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::selection::Selection;
use super::spec::Part;
use crate::error::PlanError;
use crate::key::{GOLDEN_GAMMA, Stage, key, mix};
use crate::permutation::Permutation;

/// Sum of the shares: weights are taken to so many parts of 1.
const SHARES: f64 = (1_u64 << 53) as f64;

/// Most examples of an epoch and epochs after which counts begin anew: then all products fit 128 bits.
const MAX_EXAMPLES: u64 = 1 << 53;
const CYCLE: u64 = 1 << 20;

/// Runs of the places of an epoch that are looked up together; where there are more, each place is by itself.
const MOST_RUNS: usize = 32;

/// Known sums that are kept.
const KNOWN: usize = 4;

/// Examples drawn from several parts in given shares.
#[derive(Debug)]
pub(super) struct Mixture {
    parts: Vec<KeptPart>,
    /// Sum of the shares.
    shares: u64,
    examples: u64,
    seed: u64,
    /// After how many epochs of a cycle how many examples of each part were drawn.
    known: Mutex<Vec<(u64, Vec<u64>)>>,
}

/// A part by the numbers of its kept records.
#[derive(Debug)]
struct KeptPart {
    numbers: Range<u64>,
    share: u64,
}

/// What an epoch draws from a part: examples `drawn..drawn + count` of its endless passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    /// Examples drawn in the epochs before.
    pub(super) drawn: u128,
    pub(super) count: u64,
}

/// Places of an epoch, before they are permuted, that one pass over a part serves.
struct Run {
    places: Range<u64>,
    part: usize,
    pass: u64,
    /// The place within the pass that the first one has.
    first: u64,
}

impl Mixture {
    /// Over `0..records`, of which a selection may keep a few.
    pub(super) fn new(
        parts: &[Part],
        epoch_examples: Option<u64>,
        records: u64,
        selection: Option<&Selection>,
        seed: u64,
    ) -> Result<Mixture, PlanError> {
        let sum: f64 = parts.iter().map(|part| part.weight).sum();
        let mut kept = Vec::with_capacity(parts.len());
        for (number, part) in parts.iter().enumerate() {
            if !(part.weight >= 0.0 && part.weight.is_finite()) {
                let weight = part.weight.to_string();
                return Err(PlanError::BadWeight {
                    part: number,
                    weight,
                });
            }
            if part.ids.start > part.ids.end || part.ids.end > records {
                return Err(PlanError::PartOutside {
                    part: number,
                    start: part.ids.start,
                    end: part.ids.end,
                    records,
                });
            }
            let numbers = selection.map_or(part.ids.clone(), |kept| kept.numbers(&part.ids));
            if part.weight > 0.0 && numbers.is_empty() {
                return Err(PlanError::EmptyPart { part: number });
            }
            let share = (part.weight / sum * SHARES).round() as u64;
            kept.push(KeptPart {
                numbers,
                share: share.max(u64::from(part.weight > 0.0)),
            });
        }
        if !(sum > 0.0 && sum.is_finite()) {
            return Err(PlanError::NoWeight);
        }
        let all = kept.iter().filter(|part| part.share > 0).map(KeptPart::len);
        let examples = epoch_examples.unwrap_or_else(|| all.fold(0, u64::saturating_add));
        if examples > MAX_EXAMPLES {
            let limit = MAX_EXAMPLES;
            return Err(PlanError::MixtureEpoch { examples, limit });
        }
        Ok(Mixture {
            shares: kept.iter().map(|part| part.share).sum(),
            parts: kept,
            examples,
            seed,
            known: Mutex::default(),
        })
    }

    /// Examples of an epoch, the same in every one.
    pub(super) fn examples(&self) -> u64 {
        self.examples
    }

    /// The numbers of the kept records of each part with a weight, and the examples that a mean epoch draws from it.
    pub(super) fn expected(&self) -> impl Iterator<Item = (Range<u64>, f64)> {
        self.parts.iter().filter(|part| part.share > 0).map(|part| {
            let share = part.share as f64 / self.shares as f64;
            (part.numbers.clone(), share * self.examples as f64)
        })
    }

    /// What an epoch draws from each part.
    pub(super) fn turns(&self, epoch: u64) -> Vec<Turn> {
        let of_cycle = self.drawn(epoch % CYCLE);
        let next = self.drawn(epoch % CYCLE + 1);
        let cycles = epoch / CYCLE;
        let before = if cycles > 0 {
            self.drawn(CYCLE)
        } else {
            vec![0; self.parts.len()]
        };
        let drawn = before.iter().zip(&of_cycle);
        drawn
            .zip(&next)
            .map(|((&cycle, &drawn), &next)| Turn {
                drawn: u128::from(cycle) * u128::from(cycles) + u128::from(drawn),
                count: next - drawn,
            })
            .collect()
    }

    /// Examples of each part that the first `epochs` of a cycle draw.
    fn drawn(&self, epochs: u64) -> Vec<u64> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.iter().filter(|known| known.0 <= epochs);
        let (from, mut drawn) = before
            .max_by_key(|known| known.0)
            .cloned()
            .unwrap_or_else(|| (0, vec![0; self.parts.len()]));
        for epoch in from..epochs {
            self.draw(epoch, &mut drawn);
        }
        known.retain(|known| known.0 != epochs);
        known.truncate(KNOWN - 1);
        known.insert(0, (epochs, drawn.clone()));
        drawn
    }

    /// Adds what an epoch of a cycle draws.
    fn draw(&self, epoch: u64, drawn: &mut [u64]) {
        let due = u128::from(epoch + 1) * u128::from(self.examples);
        let shares = u128::from(self.shares);
        let mut left = due as i128;
        // Parts that may draw one more, and for each the share-scaled time by which it must.
        let mut one_more: Vec<(usize, u128)> = Vec::new();
        for (number, (part, drawn)) in self.parts.iter().zip(drawn.iter_mut()).enumerate() {
            let scaled = due * u128::from(part.share);
            let must = (scaled / shares) as u64;
            if *drawn <= must && scaled % shares > 0 {
                one_more.push((number, u128::from(must) + 1));
            }
            *drawn = must.max(*drawn);
            left -= i128::from(*drawn);
        }
        // (m / share) of one against another, without fractions.
        one_more.sort_by(|&(a, due_a), &(b, due_b)| {
            let share = |part: usize| u128::from(self.parts[part].share);
            (due_a * share(b)).cmp(&(due_b * share(a)))
        });
        debug_assert!((0..=one_more.len() as i128).contains(&left));
        for &(number, _) in one_more.iter().take(left.max(0) as usize) {
            drawn[number] += 1;
        }
    }

    /// The examples at positions `start..start + out.len()` of an epoch, by number.
    pub(super) fn fill(&self, epoch: u64, start: u64, out: &mut [u64]) {
        let turns = self.turns(epoch);
        let order = Permutation::new(self.examples, key(self.seed, epoch, Stage::Order));
        order.fill(start, out);
        let runs: Vec<Run> = self.runs(&turns).take(MOST_RUNS + 1).collect();
        if runs.len() <= MOST_RUNS {
            return self.look_up_runs(&runs, out);
        }
        let ends: Vec<u64> = ends(&turns).collect();
        for place in out {
            *place = self.look_up(&turns, &ends, *place);
        }
    }

    /// The runs of an epoch, in order.
    fn runs(&self, turns: &[Turn]) -> impl Iterator<Item = Run> {
        let starts = std::iter::once(0).chain(ends(turns)).collect::<Vec<u64>>();
        let of_part = move |(part, &turn): (usize, &Turn)| {
            let (start, end) = (starts[part], starts[part + 1]);
            let mut place = start;
            std::iter::from_fn(move || {
                let drawn = turn.drawn + u128::from(place - start);
                (place < end).then(|| {
                    let (pass, first) = self.parts[part].pass_of(drawn);
                    let count = (self.parts[part].len() - first).min(end - place);
                    place += count;
                    Run {
                        places: place - count..place,
                        part,
                        pass,
                        first,
                    }
                })
            })
        };
        turns.iter().enumerate().flat_map(of_part)
    }

    /// Shows every example of an epoch with its position, in runs of consecutive numbers: two inverses for each,
    /// and one for records that an unfinished pass has no turn for.
    pub(super) fn by_number(&self, epoch: u64, mut visit: impl FnMut(&[u64], &[u64])) {
        const RUN: usize = 1024;
        let turns = self.turns(epoch);
        let order = Permutation::new(self.examples, key(self.seed, epoch, Stage::Order));
        let mut in_pass = [0; RUN];
        let (mut numbers, mut places) = (Vec::with_capacity(RUN), Vec::with_capacity(RUN));
        for run in self.runs(&turns) {
            let part = &self.parts[run.part];
            let pass = self.pass(run.part, run.pass);
            let served = run.first..run.first + (run.places.end - run.places.start);
            for first in (0..part.len()).step_by(RUN) {
                let len = (part.len() - first).min(RUN as u64) as usize;
                pass.fill_positions(first, &mut in_pass[..len]);
                numbers.clear();
                places.clear();
                for (number, place) in (part.numbers.start + first..).zip(&in_pass[..len]) {
                    if served.contains(place) {
                        numbers.push(number);
                        places.push(run.places.start + (place - served.start));
                    }
                }
                order.positions_of_each(&mut places);
                visit(&numbers, &places);
            }
        }
    }

    fn look_up_runs(&self, runs: &[Run], out: &mut [u64]) {
        let mut found = vec![0; out.len()];
        let (mut slots, mut places) = (Vec::new(), Vec::new());
        for run in runs {
            slots.clear();
            places.clear();
            for (slot, place) in out.iter().enumerate() {
                if run.places.contains(place) {
                    slots.push(slot);
                    places.push(run.first + (place - run.places.start));
                }
            }
            if slots.is_empty() {
                continue;
            }
            self.pass(run.part, run.pass).get_each(&mut places);
            for (&slot, &record) in slots.iter().zip(&places) {
                found[slot] = self.parts[run.part].numbers.start + record;
            }
        }
        out.copy_from_slice(&found);
    }

    fn look_up(&self, turns: &[Turn], ends: &[u64], place: u64) -> u64 {
        let part = ends.partition_point(|&end| end <= place);
        let first = ends[part] - turns[part].count;
        let drawn = turns[part].drawn + u128::from(place - first);
        let (pass, place) = self.parts[part].pass_of(drawn);
        self.parts[part].numbers.start + self.pass(part, pass).get(place)
    }

    /// The order of one pass over a part.
    fn pass(&self, part: usize, pass: u64) -> Permutation {
        let key = key(self.seed, pass, Stage::Part(part as u64));
        // The places of the epoch are in random order already, so that what a short network lacks cannot be
        // seen, and a table for each of thousands of passes would be slow.
        Permutation::without_table(self.parts[part].len(), key)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.parts.len() as u64 * (24 + KNOWN as u64 * 8)
    }

    /// A number that changes with the parts and their shares.
    pub(super) fn fingerprint(&self) -> u64 {
        let of_part = |part: &KeptPart| [part.numbers.start, part.numbers.end, part.share];
        let words = self.parts.iter().flat_map(of_part);
        [self.examples, self.seed]
            .into_iter()
            .chain(words)
            .fold(4, |state, word| {
                mix(state ^ word).wrapping_mul(GOLDEN_GAMMA).rotate_left(7)
            })
    }
}

impl KeptPart {
    fn len(&self) -> u64 {
        self.numbers.end - self.numbers.start
    }

    /// The pass that the `drawn`-th example of the part is of, and its place there.
    fn pass_of(&self, drawn: u128) -> (u64, u64) {
        let len = u128::from(self.len());
        // More passes than 2^64 begin again with the first.
        ((drawn / len) as u64, (drawn % len) as u64)
    }
}

/// Where the places of each part end.
fn ends(turns: &[Turn]) -> impl Iterator<Item = u64> {
    turns.iter().scan(0, |end, turn| {
        *end += turn.count;
        Some(*end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::KeyedRng;

    fn mixture(parts: &[(u64, f64)], examples: Option<u64>) -> Mixture {
        let mut start = 0;
        let parts: Vec<Part> = parts
            .iter()
            .map(|&(len, weight)| {
                start += len;
                let ids = start - len..start;
                Part { ids, weight }
            })
            .collect();
        Mixture::new(&parts, examples, start, None, 7).unwrap()
    }

    #[test]
    fn sums_are_within_one_of_the_shares_after_every_epoch() {
        let mut rng = KeyedRng::new(3);
        for round in 0..300 {
            let parts = 1 + rng.below(12);
            let examples = rng.below(if round % 2 == 0 { 12 } else { 5000 });
            let weights: Vec<(u64, f64)> = (0..parts)
                .map(|_| {
                    let weight = match rng.below(4) {
                        0 => 1.0,
                        1 => rng.next_f64() * 1e-2,
                        _ => rng.next_f64(),
                    };
                    (1 + rng.below(40), weight)
                })
                .collect();
            let sum: f64 = weights.iter().map(|part| part.1).sum();
            let mixture = mixture(&weights, Some(examples));
            let mut drawn = vec![0_u64; weights.len()];
            for epoch in 0..200_u64 {
                let turns = mixture.turns(epoch);
                assert_eq!(turns.iter().map(|turn| turn.count).sum::<u64>(), examples);
                for ((drawn, turn), &(_, weight)) in drawn.iter_mut().zip(&turns).zip(&weights) {
                    assert_eq!(u128::from(*drawn), turn.drawn);
                    *drawn += turn.count;
                    let expected = (epoch + 1) as f64 * examples as f64 * weight / sum;
                    let error = *drawn as f64 - expected;
                    assert!(error.abs() < 1.0 + 1e-6, "{weights:?} {examples}: {error}");
                }
            }
        }
    }

    #[test]
    fn every_record_of_a_part_comes_before_one_comes_again() {
        let parts = [(7, 1.0), (50, 2.0), (2000, 3.0), (1, 0.5), (9, 0.0)];
        for examples in [None, Some(13), Some(999)] {
            let mixture = mixture(&parts, examples);
            let mut seen = vec![0_u32; 2067];
            let mut ids = vec![0; mixture.examples() as usize];
            for epoch in 0..20 {
                mixture.fill(epoch, 0, &mut ids);
                ids.iter().for_each(|&id| seen[id as usize] += 1);
                let mut start = 0;
                for (turn, (len, _)) in mixture.turns(epoch).iter().zip(parts) {
                    let of_part = &seen[start..start + len as usize];
                    let least = ((turn.drawn + u128::from(turn.count)) / u128::from(len)) as u32;
                    assert!(of_part.iter().all(|&n| n == least || n == least + 1));
                    start += len as usize;
                }
            }
        }
    }

    #[test]
    fn it_can_be_entered_anywhere() {
        for parts in [
            vec![(700, 1.0), (300, 2.0)],
            vec![(3, 1.0), (2, 5.0), (1000, 1.0)],
        ] {
            let mixture = mixture(&parts, Some(1500));
            for epoch in [0, 5, CYCLE + 3, u64::MAX] {
                let mut whole = vec![0; 1500];
                mixture.fill(epoch, 0, &mut whole);
                for start in (0..1490).step_by(37) {
                    let mut some = [0; 10];
                    mixture.fill(epoch, start, &mut some);
                    assert_eq!(some, whole[start as usize..][..10]);
                }
            }
        }
    }
}
