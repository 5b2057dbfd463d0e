//! Examples drawn from several parts of the data in given shares, which they have at any point of a run.
//!
//! **Order.** The examples of all epochs are one sequence, which a tree of choices deals to the parts:
//!
//! * Parts of equal shares are a *round*: every example of a round goes to another part, in a new random order.
//! * Two nodes of shares f ≤ a − f of a are a *split*. Its examples are cut in windows from ⌊k·a/f⌋ to ⌊(k + 1)·a/f⌋,
//!   and a random example of each window goes to the smaller one. The smaller one's count of the first n is then
//!   n·f/a to less than one.
//!
//! Nodes are joined as in a Huffman code, the two smallest first. Windows and orders are drawn by (seed, number, node),
//! so the sequence has no period.
//!
//! **Counts.** If a node deviates by e from its share, a child of its split deviates by less than 1 + q·e, q being
//! its own share there. So with two parts, or any number with equal shares, each part's count at any point is its
//! share to less than one example. In a Huffman code an inner node has at most 2/3 of the one above it (its sibling
//! is not smaller than either of its children), so inner nodes deviate by less than 1 + 2/3·3 = 3 and parts by less
//! than 4, however many there are.
//!
//! **Records.** A part is read in endless passes, each in a different order: no record is repeated before all others of
//! its part were used, across epochs too.
//!
//! Any position is computed from (parts, seed, epoch): a choice at each node on the path to its part, and a
//! permutation. Rejected: a permutation of an epoch's counts, with which shares are wrong by up to √E within it;
//! drawing the part of each example at random, which makes them wrong by that at any length; the chairman assignment
//! (Tijdeman 1980), which deviates by less than one with any parts, and needs all choices before.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;
use std::sync::Arc;

use pelton_key::{Digest, KeyedRng, Stage, key};

use crate::error::PlanError;
use crate::ordering::{EpochWalk, Ids};
use crate::permutation::Permutation;
use crate::randomness::ln_factorial;
use crate::selection::Selection;
use crate::spec::Part;

/// Sum of the shares: weights become integers with this sum.
const SHARES: f64 = (1_u64 << 53) as f64;
/// Largest weight of a part; only proportions matter.
const MOST_WEIGHT: f64 = 1e30;

/// Most examples of an epoch: then all products fit 128 bits.
const MAX_EXAMPLES: u64 = 1 << 53;

/// Examples drawn from several parts in given shares.
#[derive(Debug)]
pub(crate) struct Mixture {
    parts: Vec<KeptPart>,
    /// The choices; the last is the first to be made.
    nodes: Vec<Node>,
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
}

/// A choice among parts.
#[derive(Debug)]
enum Node {
    /// To these parts in turn, in rounds of random orders.
    Round(Vec<usize>),
    /// `few` of `all` to the first of two nodes, which is not the larger one.
    Split {
        few: u64,
        all: u64,
        nodes: [usize; 2],
    },
}

/// A window of a split: what comes before it, and the example that goes to the smaller node.
struct Window {
    number: u128,
    chosen: u128,
}

/// The draws of an epoch, and their order.
#[derive(Debug)]
struct MixedEpoch {
    mixture: Arc<Mixture>,
    /// Examples of the epochs before.
    before: u128,
    /// The last round of each node, and the last pass over each part.
    rounds: Vec<Option<(u128, Permutation)>>,
    passes: Vec<Option<(u64, Permutation)>>,
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
            kept.push(KeptPart { numbers, share });
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
        let shares = kept.iter().map(|part| part.share).sum();
        let mixture = Mixture {
            nodes: nodes(&kept),
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
        let mut drawn = vec![0; self.parts.len()];
        let mut open = vec![(
            self.nodes.len() - 1,
            epochs.into() * u128::from(self.examples),
        )];
        while let Some((node, count)) = open.pop() {
            match &self.nodes[node] {
                Node::Split { few, all, nodes } => {
                    let window = self.window(node, (*few, *all), count);
                    let first = window.number + u128::from(window.chosen < count);
                    open.extend([(nodes[0], first), (nodes[1], count - first)]);
                }
                Node::Round(parts) => {
                    let (rounds, rest) = in_rounds(count, parts.len() as u64);
                    let order = self.round(node, rounds);
                    for (place, &part) in parts.iter().enumerate() {
                        let came = order.position_of(place as u64) < rest;
                        drawn[part] = rounds + u128::from(came);
                    }
                }
            }
        }
        drawn
    }

    /// The window of a split that holds the `count`-th example that comes to it.
    fn window(&self, node: usize, (few, all): (u64, u64), count: u128) -> Window {
        // Windows are the same in each run of `all`.
        let (runs, count) = in_rounds(count, all);
        let (few_wide, all_wide) = (u128::from(few), u128::from(all));
        let number = ((u128::from(count) + 1) * few_wide).div_ceil(all_wide) - 1;
        let start = number * all_wide / few_wide;
        let end = (number + 1) * all_wide / few_wide;
        let number = runs * few_wide + number;
        let key = key(self.seed, number as u64, Stage::Mixed(node as u64));
        let chosen = start + u128::from(KeyedRng::new(key).below((end - start) as u64));
        Window {
            number,
            chosen: runs * all_wide + chosen,
        }
    }

    /// The order of the parts of a round.
    fn round(&self, node: usize, round: u128) -> Permutation {
        let parts = match &self.nodes[node] {
            Node::Round(parts) => parts.len() as u64,
            Node::Split { .. } => 0,
        };
        let key = key(self.seed, round as u64, Stage::Mixed(node as u64));
        Permutation::new(parts, key)
    }

    fn of_epoch(self: &Arc<Self>, epoch: u64) -> MixedEpoch {
        MixedEpoch {
            before: u128::from(epoch) * u128::from(self.examples),
            rounds: vec![None; self.nodes.len()],
            passes: vec![None; self.parts.len()],
            mixture: Arc::clone(self),
        }
    }

    /// ln of the orders that an epoch can have if each part is drawn once or less: those of the parts, and of the
    /// examples of each.
    pub(crate) fn ln_orders(&self) -> f64 {
        let examples = self.examples as f64;
        let of_parts = self.parts.iter().map(|part| {
            let share = part.share as f64 / self.shares as f64;
            ln_factorial(share * examples)
        });
        let mut counts = vec![0.0; self.nodes.len()];
        counts[self.nodes.len() - 1] = examples;
        let mut orders: f64 = of_parts.sum();
        for (node, choice) in self.nodes.iter().enumerate().rev() {
            let count = counts[node];
            match choice {
                Node::Round(parts) => {
                    let parts = parts.len() as f64;
                    orders += count / parts * ln_factorial(parts);
                }
                Node::Split { few, all, nodes } => {
                    let first = count * (*few as f64 / *all as f64);
                    counts[nodes[0]] = first;
                    counts[nodes[1]] = count - first;
                    // Windows have one of two lengths, next to their mean.
                    let mean = *all as f64 / *few as f64;
                    let (short, longer) = (mean.floor(), mean.fract());
                    orders += first * ((1.0 - longer) * short.ln() + longer * (short + 1.0).ln());
                }
            }
        }
        orders
    }

    /// The order of one pass over a part.
    fn pass(&self, part: usize, pass: u64) -> Permutation {
        let key = key(self.seed, pass, Stage::Part(part as u64));
        Permutation::new(self.parts[part].len(), key)
    }

    /// A number that changes with the parts and their shares.
    pub(crate) fn fingerprint(&self) -> u64 {
        let of_part = |part: &KeptPart| [part.numbers.start, part.numbers.end, part.share];
        Digest::new("mixture")
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
        let permutation = |len: u64| {
            let table = 4 * len.min(Permutation::TABLE_LIMIT);
            size_of::<Option<(u128, Permutation)>>() as u64 + table
        };
        let rounds = self.nodes.iter().map(|node| match node {
            Node::Round(parts) => permutation(parts.len() as u64),
            Node::Split { .. } => permutation(0),
        });
        let passes = self.parts.iter().map(|part| permutation(part.len()));
        rounds.sum::<u64>() + passes.sum::<u64>()
    }
}

impl EpochWalk for MixedEpoch {
    fn fill(&mut self, start: u64, out: &mut [u64]) {
        for (position, slot) in (start..).zip(out) {
            let (part, drawn) = self.part_at(self.before + u128::from(position));
            let kept = &self.mixture.parts[part];
            let (pass, place) = in_rounds(drawn, kept.len());
            // More passes than 2^64 begin again with the first.
            let pass = pass as u64;
            let order = match &mut self.passes[part] {
                Some((known, order)) if *known == pass => order,
                other => &mut other.insert((pass, self.mixture.pass(part, pass))).1,
            };
            *slot = kept.numbers.start + order.get(place);
        }
    }
}

impl MixedEpoch {
    /// The part that an example of the run is of, and how many it drew before.
    fn part_at(&mut self, example: u128) -> (usize, u128) {
        let mixture = &*self.mixture;
        let (mut node, mut count) = (mixture.nodes.len() - 1, example);
        loop {
            match &mixture.nodes[node] {
                Node::Split { few, all, nodes } => {
                    let window = mixture.window(node, (*few, *all), count);
                    (node, count) = if window.chosen == count {
                        (nodes[0], window.number)
                    } else {
                        let first = window.number + u128::from(window.chosen < count);
                        (nodes[1], count - first)
                    };
                }
                Node::Round(parts) => {
                    let (round, place) = in_rounds(count, parts.len() as u64);
                    let order = match &mut self.rounds[node] {
                        Some((known, order)) if *known == round => order,
                        other => &mut other.insert((round, mixture.round(node, round))).1,
                    };
                    return (parts[order.get(place) as usize], round);
                }
            }
        }
    }
}

/// The tree of choices: a round for the parts of each share, and splits of these.
fn nodes(parts: &[KeptPart]) -> Vec<Node> {
    let mut by_share: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (number, part) in parts.iter().enumerate().filter(|(_, part)| part.share > 0) {
        by_share.entry(part.share).or_default().push(number);
    }
    let mut nodes = Vec::with_capacity(2 * by_share.len());
    let mut open = BinaryHeap::new();
    for (share, parts) in by_share {
        open.push(Reverse((share * parts.len() as u64, nodes.len())));
        nodes.push(Node::Round(parts));
    }
    while let (Some(Reverse(few)), Some(Reverse(many))) = (open.pop(), open.pop()) {
        let all = few.0 + many.0;
        open.push(Reverse((all, nodes.len())));
        nodes.push(Node::Split {
            few: few.0,
            all,
            nodes: [few.1, many.1],
        });
    }
    nodes
}

/// Whole rounds of a length within a count, and the rest.
fn in_rounds(count: u128, len: u64) -> (u128, u64) {
    match u64::try_from(count) {
        Ok(count) => (u128::from(count / len), count % len),
        Err(_) => (count / u128::from(len), (count % u128::from(len)) as u64),
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

    /// Counted from the ids themselves: two parts, and parts of equal shares, have theirs to one example at any point of
    /// a run, others to four.
    #[test]
    fn parts_have_their_shares_at_any_point() {
        let mut rng = KeyedRng::new(3);
        let mut worst = [0.0_f64; 2];
        for round in 0..300_u64 {
            let parts = if round % 3 == 0 { 2 } else { 1 + rng.below(12) };
            let all_equal = round % 3 == 1;
            let weights: Vec<(u64, f64)> = (0..parts)
                .map(|_| {
                    let weight = match rng.below(5) {
                        _ if all_equal => 0.3,
                        0 => 1.0,
                        1 => 0.0,
                        2 => rng.next_f64().powi(8),
                        _ => rng.next_f64(),
                    };
                    (1 + rng.below(40), weight)
                })
                .collect();
            let examples = 1 + rng.below(if round % 2 == 0 { 60 } else { 2000 });
            let sum: f64 = weights.iter().map(|part| part.1).sum();
            let Ok(mixture) = mixture(&weights, Some(examples)) else {
                let too_small = |&(_, weight): &(u64, f64)| {
                    weight > 0.0 && weight / sum * (examples as f64) < 1.01
                };
                assert!(sum == 0.0 || weights.iter().any(too_small), "{weights:?}");
                continue;
            };
            let ends: Vec<u64> = weights
                .iter()
                .scan(0, |end, part| {
                    *end += part.0;
                    Some(*end)
                })
                .collect();
            let there = weights.iter().filter(|part| part.1 > 0.0).count();
            let (kind, bound) = if there <= 2 || all_equal {
                (0, 1.0)
            } else {
                (1, 4.0)
            };
            let mut drawn = vec![0_u64; weights.len()];
            for epoch in 0..4 {
                for (position, id) in (1..).zip(epoch_of(&mixture, epoch)) {
                    drawn[ends.partition_point(|&end| end <= id)] += 1;
                    let examples = (epoch * examples + position) as f64;
                    for (&drawn, &(_, weight)) in drawn.iter().zip(&weights) {
                        let error = (drawn as f64 - examples * weight / sum).abs();
                        assert!(error < bound + 1e-6, "{weights:?} {examples}: {error}");
                        worst[kind] = worst[kind].max(error);
                    }
                }
                let said = mixture
                    .drawn(epoch + 1)
                    .into_iter()
                    .map(|drawn| drawn as u64);
                assert_eq!(drawn, said.collect::<Vec<u64>>());
            }
        }
        // The bounds are met nearly, and not by far.
        assert!(worst[0] > 0.9 && worst[1] > 1.0, "{worst:?}");
    }

    /// Batches do not always begin with the same part, whatever their size.
    #[test]
    fn the_parts_follow_no_cycle() {
        for parts in [
            vec![(500, 1.0), (500, 1.0)],
            vec![(500, 3.0), (500, 1.0), (500, 2.0)],
        ] {
            let mixture = mixture(&parts, Some(6000)).unwrap();
            let ids = epoch_of(&mixture, 1);
            for batch in 2..40 {
                for slot in [0, batch - 1] {
                    let first = ids.iter().skip(slot).step_by(batch).map(|id| id / 500);
                    let (mut counts, mut all) = (vec![0.0; parts.len()], 0.0);
                    for part in first {
                        counts[part as usize] += 1.0;
                        all += 1.0;
                    }
                    let sum: f64 = parts.iter().map(|part| part.1).sum();
                    for (count, (_, weight)) in counts.iter().zip(&parts) {
                        // Six deviations of independent draws.
                        let (expected, p) = (all * weight / sum, weight / sum);
                        let bound = 6.0 * (expected * (1.0 - p)).sqrt();
                        assert!(
                            (count - expected).abs() < bound,
                            "{batch} {slot}: {counts:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn reachable_orders_are_counted() {
        let level =
            |parts: &[(u64, f64)], examples| mixture(parts, Some(examples)).unwrap().ln_orders();
        // One part: all orders. Two equal ones: pairs of both orders, and those of the records of each.
        let ln = ln_factorial;
        assert!((level(&[(9, 1.0)], 9) - ln(9.0)).abs() < 1e-9);
        let pairs = 4.0 * 2_f64.ln() + 2.0 * ln(4.0);
        assert!((level(&[(4, 1.0), (4, 1.0)], 8) - pairs).abs() < 1e-9);
        // One of three: windows of three.
        let thirds = 3.0 * 3_f64.ln() + ln(3.0) + ln(6.0);
        assert!((level(&[(3, 1.0), (6, 2.0)], 9) - thirds).abs() < 1e-9);
        // Two of five: windows of two and of three.
        let fifths = 2_f64.ln() + 3_f64.ln() + ln(2.0) + ln(3.0);
        assert!((level(&[(2, 2.0), (3, 3.0)], 5) - fifths).abs() < 1e-9);
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

    /// Also in epochs so late that the examples before them exceed 64 bits.
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
