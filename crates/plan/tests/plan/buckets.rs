//! Invariants of bucketed and packed plans: nothing is lost or repeated, batches stay within their limits, a walk can
//! start at any step, and batches match the recorded ones.

use pelton_key::mix;
use pelton_plan::{
    Batching, Catalog, Last, LengthHistogram, Order, Plan, PlanSpec, StepBatch, local_slots,
};
use proptest::prelude::*;

use crate::{ids_of, step_at, steps_of};

fn below(order: Order, batch: u64, seed: u64) -> PlanSpec {
    PlanSpec::new(order, batch, seed)
}

fn make(spec: PlanSpec, policy: &str, lengths: &[u32]) -> Plan {
    let length_of = |id| lengths[id as usize];
    let over = Catalog::new(lengths.len() as u64).with_lengths(&length_of);
    let spec = PlanSpec {
        buckets: Some(policy.parse().unwrap()),
        ..spec
    };
    Plan::new(&spec, over).unwrap()
}

/// Lengths that are close together, far apart, or all the same.
fn some_lengths(records: u64, spread: u32, seed: u64) -> Vec<u32> {
    (0..records)
        .map(|id| {
            let random = mix(id.wrapping_mul(31) ^ seed);
            let tail = if random >> 40 & 15 == 0 { 7 } else { 1 };
            (random % u64::from(spread) * tail) as u32
        })
        .collect()
}

/// All batches of an epoch with their buckets.
fn batches(plan: &Plan, epoch: u64) -> Vec<(usize, Vec<u64>)> {
    let steps = steps_of(plan, epoch);
    assert_eq!(steps.len() as u64, plan.steps(epoch));
    let bucket = |batch: StepBatch| (batch.bucket.unwrap() as usize, batch.ids);
    steps.into_iter().map(bucket).collect()
}

/// Full batches, and two that share the rest.
fn even_sizes(total: u64, batch: u64) -> Vec<u64> {
    let (full, rest) = (total / batch, total % batch);
    let mut sizes = vec![batch; full as usize];
    if rest > 0 {
        let both = rest + sizes.pop().unwrap_or(0);
        let halves = [both.div_ceil(2), both / 2];
        sizes.extend(if full > 0 {
            halves.to_vec()
        } else {
            vec![rest]
        });
    }
    sizes
}

fn check_buckets(spec: PlanSpec, policy: &str, lengths: &[u32]) {
    let records = lengths.len() as u64;
    let order_of = Plan::new(&spec, Catalog::new(records)).unwrap();
    let plan = make(spec, policy, lengths);
    let layout = plan.bucket_layout().unwrap();
    assert_eq!(layout.sentences(), records);
    assert_eq!(layout.batches(), plan.steps(0));
    for epoch in [0, 3] {
        let epoch_batches = batches(&plan, epoch);
        let mut seen: Vec<u64> = Vec::new();
        let mut sizes = vec![Vec::new(); layout.buckets().len()];
        for (number, ids) in &epoch_batches {
            let bucket = layout.buckets()[*number];
            sizes[*number].push(ids.len() as u64);
            for &id in ids {
                let length = lengths[id as usize];
                assert!(length <= bucket.longest);
                assert_eq!(&layout.buckets()[layout.bucket_of(length)], &bucket);
            }
            seen.extend(ids);
        }
        for (bucket, sizes) in layout.buckets().iter().zip(sizes) {
            assert_eq!(sizes, even_sizes(bucket.sentences, bucket.capacity));
        }
        // Sentences of a bucket come in the order of the plan below.
        let order = ids_of(&order_of, epoch);
        for bucket in 0..layout.buckets().len() {
            let of_bucket = |&id: &u64| layout.bucket_of(lengths[id as usize]) == bucket;
            let came: Vec<u64> = seen.iter().copied().filter(of_bucket).collect();
            let expected: Vec<u64> = order.iter().copied().filter(of_bucket).collect();
            assert_eq!(came, expected);
        }
        seen.sort_unstable();
        assert!(
            seen.into_iter().eq(0..records),
            "{policy} loses or repeats sentences"
        );
    }
}

/// A sentence or a piece of one.
#[derive(Debug, Clone, PartialEq)]
struct Segment {
    id: u64,
    start: u32,
    length: u32,
}

/// The rows of a batch.
fn rows_of(batch: &StepBatch) -> Vec<Vec<Segment>> {
    let segment = |(&id, piece): (&u64, &pelton_plan::Piece)| Segment {
        id,
        start: piece.start,
        length: piece.length,
    };
    let mut segments = batch.ids.iter().zip(&batch.pieces).map(segment);
    let rows = batch.row_draws.iter();
    rows.map(|&draws| segments.by_ref().take(draws as usize).collect())
        .collect()
}

fn rows(plan: &Plan, epoch: u64) -> Vec<Vec<Vec<Segment>>> {
    let steps = steps_of(plan, epoch);
    assert_eq!(steps.len() as u64, plan.steps(epoch));
    steps.iter().map(rows_of).collect()
}

fn check_rows(spec: PlanSpec, policy: &str, lengths: &[u32]) {
    let batch = match spec.batching {
        Batching::Examples(batch) => batch,
        batching => panic!("{batching}"),
    };
    let plan = make(spec, policy, lengths);
    let row_length = plan.packing().unwrap().row_length();
    for epoch in [0, 3] {
        let batches = rows(&plan, epoch);
        let row_count = batches.concat().len() as u64;
        let sizes: Vec<u64> = batches.iter().map(|rows| rows.len() as u64).collect();
        assert_eq!(sizes, even_sizes(row_count, batch));
        let mut segments: Vec<Segment> = Vec::new();
        for row in batches.concat() {
            let used: u32 = row.iter().map(|segment| segment.length).sum();
            assert!(used <= row_length && !row.is_empty());
            segments.extend(row);
        }
        // Each sentence once, whole or in pieces that follow one another.
        segments.sort_unstable_by_key(|segment| (segment.id, segment.start));
        let of_sentences = segments.chunk_by(|a, b| a.id == b.id);
        assert!(
            of_sentences
                .clone()
                .map(|pieces| pieces[0].id)
                .eq(0..lengths.len() as u64)
        );
        for pieces in of_sentences {
            let mut next = 0;
            for piece in pieces {
                assert_eq!(piece.start, next);
                next += piece.length;
            }
            assert_eq!(next, lengths[pieces[0].id as usize]);
        }
        let cells = row_count * u64::from(row_length);
        let tokens: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        let padded = (cells - tokens) as f64 / (cells.max(1) as f64);
        assert_eq!(plan.padded_fraction(epoch), Some(padded));
        let level = plan.rl_exact(epoch);
        assert!(
            level.is_none_or(|level| (0.0..=1.0 + 1e-12).contains(&level)),
            "{level:?}"
        );
    }
}

const POLICIES: [&str; 8] = [
    "none",
    "static:3",
    "static:5,10,20,40",
    "auto",
    "optimal:1",
    "optimal:4",
    "tokens:9",
    "tokens:100",
];

const PACKINGS: [&str; 5] = [
    "pack:1:3",
    "pack:9:1",
    "pack:30:7",
    "pack:30",
    "pack:200:50",
];

#[test]
fn every_sentence_comes_once_whatever_their_number() {
    for records in 0..=200 {
        let lengths = some_lengths(records, 25, records);
        for (place, policy) in POLICIES.into_iter().enumerate() {
            let batch = [1, 2, 7, 32][(records as usize + place) % 4];
            check_buckets(below(Order::Full, batch, 5), policy, &lengths);
        }
        for policy in PACKINGS {
            let batch = 1 + records % 9;
            check_rows(below(Order::Full, batch, 5), policy, &lengths);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_sentence_comes_once(
        records in 0_u64..6000,
        spread in 1_u32..200,
        batch in 1_u64..300,
        seed in any::<u64>(),
        policy in proptest::sample::select(POLICIES.to_vec()),
        packing in proptest::sample::select(PACKINGS.to_vec()),
        order in proptest::sample::select(vec!["full", "sequential", "queue:50", "page:8"]),
    ) {
        let lengths = some_lengths(records, spread, seed);
        let order: Order = order.parse().unwrap();
        check_buckets(below(order, batch, seed), policy, &lengths);
        check_rows(below(order, batch, seed), packing, &lengths);
    }
}

#[test]
fn every_step_can_be_sought() {
    let lengths = some_lengths(3000, 60, 1);
    for (policy, batch) in [("auto", 7), ("static:20,40", 64), ("tokens:90", 1)] {
        let plan = make(below(Order::Full, batch, 9), policy, &lengths);
        let walked = batches(&plan, 4);
        for step in (0..walked.len()).rev().step_by(3) {
            let batch = step_at(&plan, 4, step as u64);
            let found = (batch.bucket.unwrap() as usize, batch.ids);
            assert_eq!(found, walked[step], "{policy}, step {step}");
        }
    }
    for policy in ["pack:60:100", "pack:25:1000", "pack:100"] {
        let plan = make(below(Order::Full, 8, 9), policy, &lengths);
        let walked = rows(&plan, 4);
        for step in (0..walked.len()).rev() {
            let found = rows_of(&step_at(&plan, 4, step as u64));
            assert_eq!(found, walked[step], "{policy}, step {step}");
        }
    }
}

#[test]
fn ranks_share_each_batch_of_one_bucket_evenly() {
    let lengths = some_lengths(1000, 40, 3);
    let plan = make(below(Order::Full, 48, 1), "auto", &lengths);
    for (_, ids) in batches(&plan, 2) {
        for ranks in [1, 3, 4, 5] {
            let shares: Vec<&[u64]> = (0..ranks)
                .map(|rank| {
                    let slots = local_slots(ids.len() as u64, rank, ranks);
                    &ids[slots.start as usize..slots.end as usize]
                })
                .collect();
            assert_eq!(shares.concat(), ids);
            let sizes = || shares.iter().map(|share| share.len());
            let uneven = sizes().max().unwrap() - sizes().min().unwrap();
            assert!(uneven <= usize::from(ids.len() % ranks as usize > 0));
        }
    }
}

#[test]
fn a_batch_of_tokens_is_within_its_limit_or_one_sentence() {
    for max in [1, 10, 64, 300] {
        let lengths = some_lengths(2000, 60, max);
        let plan = below(Order::Full, 1, 1);
        let plan = make(plan, &format!("tokens:{max}"), &lengths);
        for (_, ids) in batches(&plan, 0) {
            let longest = ids.iter().map(|&id| lengths[id as usize]).max().unwrap();
            let cells = ids.len() as u64 * u64::from(longest);
            assert!(cells <= max || ids.len() == 1, "{cells} of {max}");
        }
    }
}

#[test]
fn one_batch_may_be_larger_than_the_data() {
    let lengths = [3, 9, 4];
    for batch in [3, 4, 1 << 40] {
        let plan = make(below(Order::Full, batch, 1), "auto", &lengths);
        assert_eq!(plan.steps(0), 1);
        let (_, ids) = batches(&plan, 0).remove(0);
        assert_eq!(ids.len(), 3);
        assert!(plan.memory_bytes(None) < 1 << 20);
        assert_eq!(plan.rl_exact(0), Some(1.0));
        let plan = make(below(Order::Full, batch, 1), "pack:10", &lengths);
        assert_eq!(plan.steps(0), 1);
    }
}

#[test]
fn orders_without_a_known_level_have_none() {
    let lengths = some_lengths(100, 20, 1);
    for (order, level) in [("sequential", Some(0.0)), ("queue:10", None)] {
        let plan = || below(order.parse().unwrap(), 4, 0);
        assert_eq!(make(plan(), "auto", &lengths).rl_exact(0), level);
        assert_eq!(make(plan(), "pack:40", &lengths).rl_exact(0), level);
    }
    // A plan that is the same in every epoch stays so.
    let plan = || below(Order::Sequential, 4, 0);
    let buckets = make(plan(), "auto", &lengths);
    assert_eq!(batches(&buckets, 0), batches(&buckets, 1));
    let packed = make(plan(), "pack:40:20", &lengths);
    assert_eq!(rows(&packed, 0), rows(&packed, 1));
}

#[test]
fn fingerprints_tell_lengths_and_policies_apart() {
    let lengths = some_lengths(300, 20, 1);
    let mut other = lengths.clone();
    let place = |length: u32| lengths.iter().position(|&other| other == length);
    let longest = *lengths.iter().max().unwrap();
    other.swap(place(0).unwrap(), place(longest).unwrap());
    let mut seen = std::collections::HashSet::new();
    for lengths in [&lengths, &other] {
        for policy in ["none", "static:10,20", "static:11,20", "auto"] {
            let plan = make(below(Order::Full, 4, 0), policy, lengths);
            // One bucket holds the same sentences whatever their lengths.
            assert!(
                seen.insert(plan.fingerprint()) || policy == "none",
                "{policy}"
            );
        }
        for policy in ["pack:100", "pack:101", "pack:100:10"] {
            let plan = make(below(Order::Full, 4, 0), policy, lengths);
            assert!(seen.insert(plan.fingerprint()), "{policy}");
        }
    }
}

#[test]
fn what_does_not_go_with_buckets_is_refused_with_a_remedy() {
    let refused = |batching: Batching, last, policy: &str, length: u32| {
        let spec = PlanSpec {
            buckets: Some(policy.parse().unwrap()),
            last,
            ..PlanSpec::new(Order::Full, batching, 0)
        };
        let length_of = |_| length;
        let over = Catalog::new(9).with_lengths(&length_of);
        Plan::new(&spec, over).unwrap_err().to_string()
    };
    for policy in ["auto", "pack:1"] {
        for (batching, last) in [
            (Batching::Examples(2), Last::Drop),
            (Batching::Batches(2), Last::Even),
        ] {
            let error = refused(batching, last, policy, 1);
            assert!(error.contains("`batch` 32 and `last` even"), "{error}");
        }
    }
    let error = refused(Batching::Examples(2), Last::Even, "pack:1", u32::MAX);
    assert!(error.contains("pack:4294967295:1024"), "{error}");
}

/// The lengths that the recorded batches are of.
fn recorded_length(record: u64) -> u32 {
    let random = mix(record + 1);
    let middle = (random >> 8) % 11 * ((random >> 16) % 2);
    let long = (random >> 24) % 70 * u64::from((random >> 32).is_multiple_of(16));
    (1 + random % 10 + middle + long) as u32
}

const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

fn digest(batches: &[Vec<u64>]) -> u64 {
    batches.iter().fold(0, |state, batch| {
        let numbers = std::iter::once(batch.len() as u64).chain(batch.iter().copied());
        numbers.fold(state, |state, number| {
            mix(state.wrapping_mul(GOLDEN_GAMMA) ^ number)
        })
    })
}

fn check_line(line: &str) {
    let mut words = line.split(' ');
    let policy = words.next().unwrap();
    let numbers: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
    let [batch, records, seed, epoch, count, expected] = numbers[..6] else {
        panic!("{line}");
    };
    let lengths: Vec<u32> = (0..records).map(recorded_length).collect();
    let plan = below(Order::Full, batch, seed);
    let found: Vec<Vec<u64>> = if policy.starts_with("pack") {
        let numbers = |piece: &Segment| [piece.id, piece.start.into(), piece.length.into()];
        let packed = rows(&make(plan, policy, &lengths), epoch).concat();
        let row = |row: &Vec<Segment>| row.iter().flat_map(numbers).collect();
        packed.iter().map(row).collect()
    } else {
        let plan = make(plan, policy, &lengths);
        batches(&plan, epoch)
            .into_iter()
            .map(|(_, ids)| ids)
            .collect()
    };
    assert_eq!(found[0], numbers[6..], "{line}");
    assert_eq!(found.len() as u64, count, "{line}");
    assert_eq!(digest(&found), expected, "{line}");
}

#[test]
fn every_policy_gives_the_recorded_batches() {
    let lines = include_str!("golden/buckets.txt").lines();
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
    lines.iter().for_each(|line| check_line(line));
    assert_eq!(lines.len(), 55);
    let lengths = LengthHistogram::new((0..1000).map(recorded_length));
    assert!(
        lengths.longest() > 60,
        "some sentences are to be cut and to be alone"
    );
}
