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
use std::sync::{Arc, Mutex, PoisonError};

use super::intervals::Intervals;
use super::selection::Selection;
use super::spec::Part;
use crate::division::Divider;
use crate::error::PlanError;
use crate::groups::Groups;
use crate::permutation::Permutation;
use pelton_key::{GOLDEN_GAMMA, Stage, key, mix};

/// Sum of the shares: weights are taken to so many parts of 1.
const SHARES: f64 = (1_u64 << 53) as f64;

/// Most examples of an epoch and epochs after which counts begin anew: then all products fit 128 bits.
const MAX_EXAMPLES: u64 = 1 << 53;
const CYCLE: u64 = 1 << 20;

/// Passes over a part in an epoch whose orders are kept, and parts for which they are. The order of other passes is
/// made for each place.
const MOST_PASSES: u64 = 4;
const MOST_PARTS: usize = 1024;

/// Places of an epoch looked up at a time.
const CHUNK: usize = 4096;

/// Records of a part that the second-level cache holds numbers of; passes over it are taken in their order.
const SMALL: u64 = 1 << 16;

/// Records of a part of which many passes are looked up side by side.
const TINY: u64 = 64;

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
    /// The epochs last asked for, even ones at 0 and odd ones at 1.
    epochs: Mutex<[Option<Arc<Epoch>>; 2]>,
}

/// What an epoch draws, and in which order.
#[derive(Debug)]
struct Epoch {
    number: u64,
    order: Permutation,
    turns: Vec<Turn>,
    /// Its places before they are permuted, which of them belong together, and how they are looked up.
    intervals: Intervals,
    runs: Vec<(Run, Lookup)>,
}

/// Where the records of a run are found.
#[derive(Debug)]
enum Lookup {
    /// In the order of its pass.
    Pass(Box<Permutation>),
    /// In the order of the pass that each place is of: the run goes through many.
    EachPass(Divider),
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

/// Places of an epoch, before they are permuted, that one pass over a part serves, or several.
#[derive(Debug)]
struct Run {
    places: Range<u64>,
    part: usize,
    /// The pass of the first place.
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
            epochs: Mutex::default(),
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
        let epoch = self.epoch(epoch);
        epoch.order.fill(start, out);
        let mut groups = Groups::default();
        let (mut of_place, mut passes) = (Vec::new(), Vec::new());
        for places in out.chunks_mut(CHUNK) {
            of_place.clear();
            of_place.extend(places.iter().map(|&place| epoch.intervals.of(place) as u32));
            groups.change(epoch.runs.len(), &of_place, places, |run, places| {
                let (run, lookup) = &epoch.runs[run];
                for place in &mut *places {
                    *place = run.first + (*place - run.places.start);
                }
                let part = &self.parts[run.part];
                match lookup {
                    Lookup::Pass(pass) => pass.get_each(places),
                    Lookup::EachPass(by_len) => {
                        passes.clear();
                        passes.extend(places.iter_mut().map(|place| {
                            let pass = by_len.divide(*place);
                            *place -= pass * part.len();
                            run.pass.wrapping_add(pass)
                        }));
                        let key_of = |pass| self.pass_key(run.part, pass);
                        Permutation::get_each_keyed(part.len(), &passes, key_of, places);
                    }
                }
                for place in places {
                    *place += part.numbers.start;
                }
            });
        }
    }

    fn epoch(&self, number: u64) -> Arc<Epoch> {
        let mut epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut epochs[(number % 2) as usize];
        match slot {
            Some(epoch) if epoch.number == number => Arc::clone(epoch),
            _ => Arc::clone(slot.insert(Arc::new(self.epoch_of(number)))),
        }
    }

    fn epoch_of(&self, number: u64) -> Epoch {
        let turns = self.turns(number);
        let mut runs = Vec::new();
        for (part, places) in of_parts(&turns) {
            let whole = self.run(&turns, part, places);
            let len = self.parts[part].len();
            let places = whole.places.end - whole.places.start;
            if self.parts.len() <= MOST_PARTS && whole.first + places <= MOST_PASSES * len {
                runs.extend(self.passes(whole).map(|run| {
                    let pass = self.pass(run.part, run.pass);
                    (run, Lookup::Pass(Box::new(pass)))
                }));
            } else {
                let passes = Divider::new(len, whole.first + places);
                runs.push((whole, Lookup::EachPass(passes)));
            }
        }
        Epoch {
            number,
            order: Permutation::new(self.examples, key(self.seed, number, Stage::Order)),
            turns,
            intervals: Intervals::new(runs.iter().map(|(run, _)| run.places.end).collect()),
            runs,
        }
    }

    /// The places of an epoch that are of one part.
    fn run(&self, turns: &[Turn], part: usize, places: Range<u64>) -> Run {
        let (pass, first) = self.parts[part].pass_of(turns[part].drawn);
        Run {
            places,
            part,
            pass,
            first,
        }
    }

    /// The run of each pass that a run goes through, in order.
    fn passes(&self, run: Run) -> impl Iterator<Item = Run> {
        let len = self.parts[run.part].len();
        let (mut start, mut pass, mut first) = (run.places.start, run.pass, run.first);
        std::iter::from_fn(move || {
            let count = (len - first).min(run.places.end - start);
            let of_pass = Run {
                places: start..start + count,
                part: run.part,
                pass,
                first,
            };
            start += count;
            (pass, first) = (pass.wrapping_add(1), 0);
            (count > 0).then_some(of_pass)
        })
    }

    /// Shows every example of an epoch with its position: numbers of a run rise, or lie within a part so small that
    /// what is known of its records is near.
    pub(super) fn by_number(&self, epoch: u64, mut visit: impl FnMut(&[u64], &[u64])) {
        let epoch = self.epoch(epoch);
        let mut shown = Shown::default();
        for (part, places) in of_parts(&epoch.turns) {
            let run = self.run(&epoch.turns, part, places);
            let mut show = |shown: &mut Shown| shown.show(&epoch.order, &mut visit);
            if self.parts[part].len() <= TINY {
                let key_of = |pass| self.pass_key(part, pass);
                shown.add_passes(&self.parts[part], &run, key_of, &mut show);
            } else {
                self.passes(run)
                    .for_each(|run| self.add_pass(&run, &mut shown, &mut show));
            }
        }
        shown.show(&epoch.order, &mut visit);
    }

    /// Adds the examples of a run through one pass.
    fn add_pass(&self, run: &Run, shown: &mut Shown, show: impl FnMut(&mut Shown)) {
        let part = &self.parts[run.part];
        let pass = self.pass(run.part, run.pass);
        let count = run.places.end - run.places.start;
        // By number, records of the pass are looked at that are not drawn. In its order, those drawn are looked
        // up far from each other, which costs as much as two others.
        if part.len() <= SMALL || count < part.len() / 2 {
            shown.add_in_order(part, &pass, run, show);
        } else {
            shown.add_by_number(part, &pass, run, show);
        }
    }

    /// The order of one pass over a part.
    fn pass(&self, part: usize, pass: u64) -> Permutation {
        // The places of the epoch are in random order already, so that what a short network lacks cannot be
        // seen, and a table for each of thousands of passes would be slow.
        Permutation::without_table(self.parts[part].len(), self.pass_key(part, pass))
    }

    #[inline]
    fn pass_key(&self, part: usize, pass: u64) -> u64 {
        key(self.seed, pass, Stage::Part(part as u64))
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let of_part = 24 + KNOWN as u64 * 8 + 2 * 40;
        let of_run = size_of::<(Run, Lookup)>() + size_of::<Permutation>() + 8 * 8;
        // A pass ends with a part, or with its records.
        let parts = self.parts.iter().filter(|part| part.share > 0);
        let runs = parts.fold(0, |sum: u64, part| {
            let share = part.share as f64 / self.shares as f64;
            let passes = share * self.examples as f64 / part.len() as f64;
            sum + (passes as u64).saturating_add(2).min(MOST_PASSES)
        });
        self.parts.len() as u64 * of_part + 2 * runs * of_run as u64
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

/// Examples that wait to be shown, with their places in the epoch before it is permuted.
#[derive(Default)]
struct Shown {
    numbers: Vec<u64>,
    places: Vec<u64>,
}

/// Examples looked at, and shown, at a time.
const SHOWN: usize = 1024;

impl Shown {
    /// Adds the examples of a run in the order of its pass.
    fn add_in_order(
        &mut self,
        part: &KeptPart,
        pass: &Permutation,
        run: &Run,
        mut show: impl FnMut(&mut Shown),
    ) {
        for first in run.places.clone().step_by(SHOWN) {
            let places = first..run.places.end.min(first + SHOWN as u64);
            let from = self.numbers.len();
            self.numbers
                .resize(from + (places.end - places.start) as usize, 0);
            let numbers = &mut self.numbers[from..];
            pass.fill(run.first + (first - run.places.start), numbers);
            for number in numbers {
                *number += part.numbers.start;
            }
            self.places.extend(places);
            if self.numbers.len() >= SHOWN {
                show(self);
            }
        }
    }

    /// Adds the examples of a run through short passes, of which some are looked up side by side.
    fn add_passes(
        &mut self,
        part: &KeptPart,
        run: &Run,
        key_of: impl Fn(u64) -> u64 + Copy,
        mut show: impl FnMut(&mut Shown),
    ) {
        const TOGETHER: u64 = 64;
        let (len, count) = (part.len(), run.places.end - run.places.start);
        let passes = (run.first + count).div_ceil(len);
        let (mut numbers_of, mut at) = (Vec::new(), Vec::new());
        for first in (0..passes).step_by(TOGETHER as usize) {
            let passes = first..passes.min(first + TOGETHER);
            numbers_of.clear();
            numbers_of.extend(passes.clone().map(|pass| run.pass.wrapping_add(pass)));
            at.clear();
            (0..len).for_each(|place| at.extend(passes.clone().map(|_| place)));
            Permutation::get_each_keyed(len, &numbers_of, key_of, &mut at);
            let mut found = at.iter();
            for place in 0..len {
                for (pass, number) in passes.clone().zip(&mut found) {
                    let place = (pass * len + place).wrapping_sub(run.first);
                    if place < count {
                        self.numbers.push(part.numbers.start + number);
                        self.places.push(run.places.start + place);
                    }
                }
            }
            if self.numbers.len() >= SHOWN {
                show(self);
            }
        }
    }

    /// Adds the examples of a run by number, out of all records of the part.
    fn add_by_number(
        &mut self,
        part: &KeptPart,
        pass: &Permutation,
        run: &Run,
        mut show: impl FnMut(&mut Shown),
    ) {
        let mut in_pass = [0; SHOWN];
        let count = run.places.end - run.places.start;
        for first in (0..part.len()).step_by(SHOWN) {
            let in_pass = &mut in_pass[..(part.len() - first).min(SHOWN as u64) as usize];
            pass.fill_positions(first, in_pass);
            let mut len = self.numbers.len();
            self.numbers.resize(len + in_pass.len(), 0);
            self.places.resize(len + in_pass.len(), 0);
            for (number, &place) in (part.numbers.start + first..).zip(&*in_pass) {
                // Written in any case, and kept where the pass gets there: no branch to be wrong about.
                let place = place.wrapping_sub(run.first);
                self.numbers[len] = number;
                self.places[len] = run.places.start.wrapping_add(place);
                len += usize::from(place < count);
            }
            self.numbers.truncate(len);
            self.places.truncate(len);
            if len >= SHOWN {
                show(self);
            }
        }
    }

    fn show(&mut self, order: &Permutation, visit: &mut impl FnMut(&[u64], &[u64])) {
        order.positions_of_each(&mut self.places);
        visit(&self.numbers, &self.places);
        self.numbers.clear();
        self.places.clear();
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

/// The parts that an epoch draws from, with their places before they are permuted.
fn of_parts(turns: &[Turn]) -> impl Iterator<Item = (usize, Range<u64>)> {
    let mut start = 0;
    let places = turns.iter().map(move |turn| {
        start += turn.count;
        start - turn.count..start
    });
    places.enumerate().filter(|(_, places)| !places.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_key::KeyedRng;

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

    impl Mixture {
        fn look_up(&self, turns: &[Turn], ends: &[u64], place: u64) -> u64 {
            let part = ends.partition_point(|&end| end <= place);
            let first = ends[part] - turns[part].count;
            let drawn = turns[part].drawn + u128::from(place - first);
            let (pass, place) = self.parts[part].pass_of(drawn);
            self.parts[part].numbers.start + self.pass(part, pass).get(place)
        }
    }

    /// Runs together, run by run, and the epoch by number give what one place at a time does.
    #[test]
    fn every_way_to_look_up_gives_the_same() {
        let large = SMALL + 40_000;
        for (parts, examples) in [
            (vec![(700, 1.0), (300, 2.0)], 1500),
            // More runs than are kept.
            (vec![(1, 1.0), (2, 1.0), (3, 1.0), (90_000, 1.0)], 60_000),
            // Passes of a large part of which much, or little, is drawn.
            (vec![(large, 5.0), (40_000, 1.0)], 100_000),
            (vec![(large, 1.0), (10, 1.0), (large, 2.0)], 100_000),
        ] {
            let mixture = mixture(&parts, Some(examples));
            for epoch in [0, 3, CYCLE + 3] {
                let kept = mixture.epoch(epoch);
                let sums = kept.turns.iter().scan(0, |end, turn| {
                    *end += turn.count;
                    Some(*end)
                });
                let ends: Vec<u64> = sums.collect();
                let mut expected = vec![0; examples as usize];
                kept.order.fill(0, &mut expected);
                for place in &mut expected {
                    *place = mixture.look_up(&kept.turns, &ends, *place);
                }
                let mut filled = vec![0; examples as usize];
                mixture.fill(epoch, 0, &mut filled);
                assert_eq!(filled, expected);
                let mut seen = vec![None; examples as usize];
                mixture.by_number(epoch, |numbers, positions| {
                    assert_eq!(numbers.len(), positions.len());
                    for (&number, &position) in numbers.iter().zip(positions) {
                        assert_eq!(seen[position as usize].replace(number), None);
                    }
                });
                assert!(seen.into_iter().eq(expected.into_iter().map(Some)));
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
