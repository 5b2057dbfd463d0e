//! Whole pipelines, drawn at random: their batches, from any step on.

use std::collections::HashMap;

use pelton_key::mix;
use pelton_plan::{
    Batching, BucketPolicy, Catalog, Draw, Echo, Last, Order, Part, Place, Plan, PlanError,
    PlanSpec, Selection, StepBatch, Units, expected_remote_share, share_of,
};
use proptest::prelude::*;

use crate::steps_of;

/// A pipeline and its data.
#[derive(Debug, Clone)]
pub(crate) struct PlanCase {
    pub(crate) records: u64,
    pub(crate) spec: PlanSpec,
    /// One record in this many is dropped; 0 filters nothing.
    dropped_one_in: u64,
    /// Whether records are pairs, if the policy takes them.
    pairs: bool,
    pub(crate) epoch: u64,
}

/// The length of a second side.
fn second_length_of(id: u64) -> u32 {
    length_of(id + 7) / 2 + length_of(id) / 2
}

pub(crate) fn length_of(id: u64) -> u32 {
    let random = mix(id + 1);
    (1 + random % 12 + (random >> 8) % 9 * ((random >> 16) % 2)) as u32
}

impl PlanCase {
    pub(crate) fn keeps(&self, id: u64) -> bool {
        self.dropped_one_in == 0 || !mix(id).is_multiple_of(self.dropped_one_in)
    }

    pub(crate) fn kept(&self) -> Vec<u64> {
        (0..self.records).filter(|&id| self.keeps(id)).collect()
    }

    /// Of an order and a bucket policy alone.
    pub(crate) fn plain(records: u64, order: &str, policy: &str) -> PlanCase {
        let mut spec = PlanSpec::new(order.parse().unwrap(), 8, 3);
        spec.buckets = (!policy.is_empty()).then(|| policy.parse().unwrap());
        PlanCase {
            records,
            spec,
            dropped_one_in: 0,
            pairs: false,
            epoch: 0,
        }
    }

    pub(crate) fn make(&self) -> Plan {
        self.try_make().unwrap()
    }

    /// Whether a part of the mixture has too few of the kept records for its weight, which is refused.
    fn has_too_small_part(&self) -> bool {
        matches!(self.try_make(), Err(PlanError::PartTooSmall { .. }))
    }

    pub(crate) fn try_make(&self) -> Result<Plan, PlanError> {
        let selection =
            (self.dropped_one_in > 0).then(|| Selection::new(self.records, |id| self.keeps(id)));
        let units = match self.spec.order {
            Order::Page { unit_bytes } | Order::Opportunistic { unit_bytes, .. } => {
                let lengths = (0..self.records).map(|id| 3 + mix(id) % 5);
                Some(Units::from_lengths(lengths, unit_bytes))
            }
            _ => None,
        };
        let over = Catalog {
            records: self.records,
            selection,
            units,
            length_of: Some(&length_of),
            second_length_of: self.is_of_pairs().then_some(&second_length_of),
        };
        Plan::new(&self.spec, over)
    }

    fn batch(&self) -> u64 {
        match self.spec.batching {
            Batching::Examples(batch) => batch,
            Batching::Batches(_) => unreachable!("none is drawn"),
        }
    }

    pub(crate) fn drops_last(&self) -> bool {
        self.spec.last == Last::Drop
    }

    fn is_of_pairs(&self) -> bool {
        match &self.spec.buckets {
            None | Some(BucketPolicy::Pack(_) | BucketPolicy::Optimal { .. }) => false,
            Some(BucketPolicy::StaticPairs(_)) => true,
            Some(_) => self.pairs,
        }
    }

    fn is_packed(&self) -> bool {
        matches!(self.spec.buckets, Some(BucketPolicy::Pack(_)))
    }
}

pub(crate) fn lasts() -> impl Strategy<Value = Last> {
    prop::sample::select(vec![Last::Even, Last::Short, Last::Drop])
}

fn orders() -> impl Strategy<Value = Order> {
    let orders = [
        "sequential",
        "full",
        "full",
        "queue:9",
        "block:5",
        "block:3:permute",
        "page:12",
        "opportunistic:2:8",
    ];
    prop::sample::select(orders.to_vec()).prop_map(|order| order.parse().unwrap())
}

fn echoes() -> impl Strategy<Value = (Echo, Echo)> {
    let echo = |text: &str| text.parse::<Echo>().unwrap();
    let pairs = [
        ("1", "1"),
        ("1", "1"),
        ("2:8", "1"),
        ("1.5:5", "1"),
        ("3.25:16", "1"),
        ("1", "2:3"),
        ("1", "1.5:4"),
    ];
    prop::sample::select(pairs.to_vec()).prop_map(move |(a, b)| (echo(a), echo(b)))
}

fn policies() -> impl Strategy<Value = Option<BucketPolicy>> {
    let policies = [
        "",
        "",
        "",
        "none",
        "static:5,9",
        "static:5x4,9x9,12",
        "auto",
        "optimal:3",
        "tokens:40",
        "pack:24:16",
        "pack:30:1000",
    ];
    let policy = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
    prop::sample::select(policies.to_vec()).prop_map(policy)
}

/// `mixed`: parts over all the records; every weighted one keeps some.
pub(crate) fn pipelines(mixed: bool) -> impl Strategy<Value = PlanCase> {
    let numbers = (
        20_u64..300,
        1_u64..20,
        lasts(),
        0_u64..5,
        0_u64..4,
        any::<u64>(),
    );
    let parts = (
        prop::collection::vec(0_u32..5, 3),
        prop::option::of(20_u64..500),
        any::<bool>(),
    );
    let drawn = (numbers, orders(), echoes(), policies(), parts).prop_map(move |drawn| {
        let (numbers, order, (echo, batch_echo), buckets, parts) = drawn;
        let (weights, epoch_examples, pairs) = parts;
        let (records, batch, last, dropped_one_in, epoch, seed) = numbers;
        let mut spec = PlanSpec::new(if mixed { Order::Full } else { order }, batch, seed);
        if last != Last::Drop || buckets.is_none() {
            spec.last = last;
        }
        (spec.echo, spec.batch_echo, spec.buckets) = (echo, batch_echo, buckets);
        if mixed {
            let third = records / 3;
            let ends = [0, third / 2 + 7, 2 * third, records];
            let weight = |part: usize| f64::from(weights[part]) + if part == 1 { 1.0 } else { 0.0 };
            let parts = (0..3).map(|part| Part {
                ids: ends[part]..ends[part + 1],
                weight: weight(part),
            });
            spec.mixture = Some(parts.collect());
            spec.epoch_examples = epoch_examples;
        }
        // Dropping every record of a part would be refused.
        let dropped_one_in = if dropped_one_in == 1 {
            0
        } else {
            dropped_one_in
        };
        PlanCase {
            records,
            spec,
            dropped_one_in,
            pairs,
            epoch,
        }
    });
    drawn.prop_filter("parts of an example or more", |p| !p.has_too_small_part())
}

/// Entering a new plan anywhere gives what a walk through the epoch gave.
fn check_entered_anywhere(pipeline: &PlanCase, steps: &[StepBatch]) {
    let plan = pipeline.make();
    let mut order: Vec<usize> = (0..steps.len()).collect();
    order.sort_by_key(|&step| mix(step as u64 ^ pipeline.spec.seed));
    let mut batch = StepBatch::default();
    for step in order.into_iter().take(6) {
        let place = Place {
            epoch: pipeline.epoch,
            step: step as u64,
        };
        let mut walk = plan.walk(place, None);
        for expected in steps[step..].iter().take(40) {
            assert!(walk.next(&mut batch));
            assert_eq!(&batch, expected, "from {step}");
        }
    }
}

/// Copies of each position come in order, the last of them is marked, and no more is held than predicted.
fn check_copies(plan: &Plan, steps: &[StepBatch], cut: bool) {
    let mut ends = HashMap::new();
    for (place, draw) in steps.iter().flat_map(StepBatch::draws).enumerate() {
        ends.insert(draw.position, place);
    }
    let mut seen: HashMap<(u64, u32), u32> = HashMap::new();
    let (mut fresh, mut done) = (std::collections::HashSet::new(), 0);
    let mut place = 0;
    for batch in steps {
        assert!(batch.len() as u64 <= plan.largest_batch());
        for (slot, draw) in batch.draws().enumerate() {
            assert_eq!(draw.last, ends[&draw.position] == place, "{draw:?}");
            let piece = batch.pieces.get(slot).map_or(0, |piece| piece.start);
            assert!(cut || piece == 0);
            let copies = seen.entry((draw.position, piece)).or_insert(0);
            assert_eq!(draw.copy, *copies, "{draw:?}");
            *copies += 1;
            fresh.insert(draw.position);
            done += u64::from(draw.last);
            assert!(fresh.len() as u64 - done <= plan.most_held(None));
            place += 1;
        }
    }
}

fn check_shares(steps: &[StepBatch]) {
    let mut share = Vec::new();
    for batch in steps {
        let slots = match batch.row_draws.len() {
            0 => batch.len(),
            rows => rows,
        };
        for world_size in [1, 2, 3, 7, 40] {
            let mut taken = vec![0; slots];
            for rank in 0..world_size {
                share_of(batch, rank, world_size, &mut share);
                assert!(share.len() <= slots.div_ceil(world_size as usize));
                assert!(share.is_sorted());
                share.iter().for_each(|&slot| taken[slot as usize] += 1);
            }
            assert!(taken.iter().all(|&times| times == 1));
        }
    }
}

/// The smallest batch is as predicted, and only the last of an epoch, or bucket, is less than half of the requested
/// size.
fn check_smallest(plan: &Plan, steps: &[StepBatch], epoch: u64) {
    let slots = |batch: &StepBatch| match batch.row_draws.len() {
        0 => batch.len() as u64,
        rows => rows as u64,
    };
    let smallest = steps.iter().map(slots).min();
    let said = plan.smallest_batch(epoch);
    if matches!(plan.order(), Order::Page { .. }) {
        assert!(said <= smallest);
    } else {
        assert_eq!(said, smallest);
    }
    let Batching::Examples(size) = plan.batching() else {
        return;
    };
    let by_itself = matches!(plan.order(), Order::Page { .. } | Order::Block { .. });
    if plan.last() == Last::Even && plan.bucket_layout().is_none() && !by_itself {
        let least = if steps.iter().filter(|batch| batch.batch_copy == 0).count() > 1 {
            size.div_ceil(2)
        } else {
            1
        };
        assert!(smallest.is_none_or(|smallest| smallest >= least));
    }
}

/// Batches, and repeats of batches, have the requested form.
fn check_forms(pipeline: &PlanCase, plan: &Plan, steps: &[StepBatch]) {
    let mut fresh: Vec<(&StepBatch, u32)> = Vec::new();
    for batch in steps {
        assert!(!batch.is_empty());
        let in_rows: u32 = batch.row_draws.iter().sum();
        if pipeline.is_packed() {
            assert_eq!(in_rows as usize, batch.len());
            assert_eq!(batch.pieces.len(), batch.len());
            let mut pieces = batch.pieces.iter();
            for &draws in &batch.row_draws {
                let row = pieces.by_ref().take(draws as usize);
                let tokens: u32 = row.map(|piece| piece.length).sum();
                assert!(tokens <= batch.padded_length.unwrap());
            }
        } else if let Some(layout) = plan.bucket_layout() {
            let bucket = batch.bucket.unwrap() as usize;
            let shape = layout.buckets()[bucket];
            assert!(batch.len() as u64 <= shape.capacity);
            let of_pairs = pipeline.is_of_pairs();
            let fits = |draw: Draw| {
                let second = second_length_of(draw.id) * u32::from(of_pairs);
                layout.bucket_of_pair([length_of(draw.id), second]) == Some(bucket)
            };
            assert!(batch.draws().all(fits));
            let second = (of_pairs && !shape.alone).then_some(shape.second);
            assert_eq!(batch.second_length, second);
            assert_eq!(batch.padded_length, (!shape.alone).then_some(shape.longest));
        }
        if batch.batch_copy == 0 {
            assert_eq!(batch.fresh_batch, fresh.len() as u64);
            fresh.push((batch, 1));
            continue;
        }
        let (first, times) = &mut fresh[batch.fresh_batch as usize];
        assert_eq!(
            (&first.ids, &first.positions),
            (&batch.ids, &batch.positions)
        );
        assert_eq!(first.row_draws, batch.row_draws);
        assert!(batch.copies.iter().all(|copy| copy == times));
        *times += 1;
    }
    for (number, &(_, times)) in (0..).zip(&fresh) {
        assert_eq!(times, times_of(pipeline.spec.batch_echo, number));
    }
}

/// How often an echo repeats the example, or batch, at a position.
fn times_of(echo: Echo, position: u64) -> u32 {
    let thousandths = (echo.factor() * 1000.0).round() as u64;
    ((position + 1) * thousandths / 1000 - position * thousandths / 1000) as u32
}

/// Fresh batches hold every appearance of every example, but for the batch that is left out.
fn check_nothing_lost(pipeline: &PlanCase, plan: &Plan, steps: &[StepBatch]) {
    let mut times: HashMap<u64, u32> = HashMap::new();
    let fresh = steps.iter().filter(|batch| batch.batch_copy == 0);
    let (mut draws, mut smaller) = (0, 0);
    for batch in fresh {
        for (slot, draw) in batch.draws().enumerate() {
            if batch.pieces.get(slot).is_none_or(|piece| piece.start == 0) {
                *times.entry(draw.position).or_default() += 1;
                draws += 1;
            }
        }
        smaller += u64::from((batch.len() as u64) < pipeline.batch());
    }
    let echo = pipeline.spec.echo;
    let appearances: u64 = (0..plan.examples())
        .map(|at| u64::from(times_of(echo, at)))
        .sum();
    assert_eq!(plan.appearances(), appearances);
    let order = pipeline.spec.order;
    let by_unit = matches!(order, Order::Page { .. } | Order::Block { .. });
    if !pipeline.drops_last()
        || (matches!(order, Order::Block { .. }) && pipeline.spec.echo.is_none())
    {
        assert_eq!(draws, plan.appearances());
        assert_eq!(times.len() as u64, plan.examples());
        for (&position, &times) in &times {
            assert_eq!(times, times_of(echo, position));
        }
    } else if !by_unit || !pipeline.spec.echo.is_none() {
        assert_eq!(
            draws,
            plan.appearances() / pipeline.batch() * pipeline.batch()
        );
        assert_eq!(smaller, 0);
    }
}

pub(crate) fn check(pipeline: &PlanCase) -> (Plan, Vec<StepBatch>) {
    let plan = pipeline.make();
    let steps = steps_of(&plan, pipeline.epoch);
    assert_eq!(steps.len() as u64, plan.steps(pipeline.epoch));
    assert_eq!(plan.fingerprint(), pipeline.make().fingerprint());
    check_smallest(&plan, &steps, pipeline.epoch);
    check_entered_anywhere(pipeline, &steps);
    check_copies(&plan, &steps, pipeline.is_packed());
    check_shares(&steps);
    check_forms(pipeline, &plan, &steps);
    check_nothing_lost(pipeline, &plan, &steps);
    (plan, steps)
}

/// The record of each position with a first draw in `steps`.
pub(crate) fn records(steps: &[StepBatch]) -> HashMap<u64, u64> {
    let mut records = HashMap::new();
    for draw in steps.iter().flat_map(StepBatch::draws) {
        let known = records.insert(draw.position, draw.id);
        assert!(known.is_none_or(|id| id == draw.id), "{draw:?}");
    }
    records
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_kept_record_comes_once_fresh(pipeline in pipelines(false)) {
        let (plan, steps) = check(&pipeline);
        let mut ids: Vec<u64> = records(&steps).into_values().collect();
        ids.sort_unstable();
        let kept = pipeline.kept();
        prop_assert_eq!(plan.examples(), kept.len() as u64);
        if pipeline.drops_last() {
            prop_assert!(ids.is_sorted_by(|a, b| a < b));
            prop_assert!(ids.iter().all(|id| kept.binary_search(id).is_ok()));
        } else {
            prop_assert_eq!(ids, kept);
        }
        prop_assert_eq!(plan.realised_mixture(0), Vec::<u64>::new());
    }

    #[test]
    fn parts_have_exactly_their_shares(pipeline in pipelines(true)) {
        let (plan, steps) = check(&pipeline);
        let parts = pipeline.spec.mixture.as_ref().unwrap();
        let counts = plan.realised_mixture(pipeline.epoch);
        prop_assert_eq!(counts.iter().sum::<u64>(), plan.examples());
        if !pipeline.drops_last() {
            let records = records(&steps);
            for (part, &count) in parts.iter().zip(&counts) {
                let of_part: Vec<u64> = records.values().copied().filter(|id| part.ids.contains(id)).collect();
                prop_assert_eq!(of_part.len() as u64, count);
                prop_assert!(of_part.iter().all(|&id| pipeline.keeps(id)));
            }
        }
        let sum: f64 = parts.iter().map(|part| part.weight).sum();
        let mut drawn = vec![0; parts.len()];
        for epoch in 0..20 {
            for (drawn, count) in drawn.iter_mut().zip(plan.realised_mixture(epoch)) {
                *drawn += count;
            }
            for (&drawn, part) in drawn.iter().zip(parts) {
                let share = (epoch + 1) as f64 * plan.examples() as f64 * part.weight / sum;
                prop_assert!((drawn as f64 - share).abs() < 2.0 + 1e-9);
            }
        }
    }
}

/// Most repeats are on the rank that took the fresh example, on any number of ranks.
#[test]
fn repeats_stay_where_the_fresh_example_was() {
    let mut spec = PlanSpec::new(Order::Full, 64, 1);
    spec.echo = "3:256".parse().unwrap();
    let stream = Plan::new(&spec, Catalog::new(20_000)).unwrap();
    for world_size in [2, 4, 7] {
        let mut rank_of = HashMap::new();
        let (mut moved, mut repeats) = (0, 0);
        for batch in steps_of(&stream, 0) {
            let mut takers = vec![0; batch.len()];
            for rank in 0..world_size {
                let mut share = Vec::new();
                share_of(&batch, rank, world_size, &mut share);
                share.iter().for_each(|&slot| takers[slot as usize] = rank);
            }
            for (draw, rank) in batch.draws().zip(takers) {
                if draw.copy == 0 {
                    rank_of.insert(draw.position, rank);
                }
                repeats += u64::from(draw.copy > 0);
                moved += u64::from(rank_of[&draw.position] != rank);
            }
        }
        // Both appearances are assigned with a share of at most that bound left over.
        let bound = 2.0 * expected_remote_share(64, world_size);
        assert!(
            (moved as f64) < bound * repeats as f64,
            "{moved} of {repeats}"
        );
    }
}

/// Checkpoints store fingerprints: they tell streams apart.
#[test]
fn fingerprints_tell_streams_apart() {
    let mut seen = HashMap::new();
    let mut check = |says: String, spec: &PlanSpec, selection: Option<Selection>| {
        let stream = Plan::new(
            spec,
            Catalog::new(100)
                .with_selection(selection)
                .with_lengths(&length_of),
        )
        .unwrap();
        if let Some(other) = seen.insert(stream.fingerprint(), says.clone()) {
            panic!("{says} and {other}");
        }
    };
    let part = |end, weight| Part {
        ids: 0..end,
        weight,
    };
    for seed in 0..2 {
        for policy in ["", "auto", "static:9", "pack:30", "pack:30:9"] {
            for echo in ["1", "2", "1.5", "2:9"] {
                for batch in [8, 9] {
                    let mut spec = PlanSpec::new(Order::Full, batch, seed);
                    spec.buckets = (!policy.is_empty()).then(|| policy.parse().unwrap());
                    spec.echo = echo.parse().unwrap();
                    let says = format!("{spec:?}");
                    check(says.clone(), &spec, None);
                    check(
                        says.clone() + " even",
                        &spec,
                        Some(Selection::new(100, |id| id % 2 == 0)),
                    );
                    check(
                        says + " odd",
                        &spec,
                        Some(Selection::new(100, |id| id % 2 == 1)),
                    );
                    for parts in [
                        vec![part(50, 1.0)],
                        vec![part(50, 1.0), part(100, 1.0)],
                        vec![part(50, 1.0), part(100, 2.0)],
                    ] {
                        spec.mixture = Some(parts);
                        spec.epoch_examples = None;
                        check(format!("{spec:?}"), &spec, None);
                        spec.epoch_examples = Some(77);
                        check(format!("{spec:?}"), &spec, None);
                    }
                    if echo != "1" {
                        spec.mixture = None;
                        spec.epoch_examples = None;
                        (spec.batch_echo, spec.echo) = (spec.echo, Echo::NONE);
                        check(format!("{spec:?}"), &spec, None);
                    }
                }
            }
        }
    }
}

#[test]
fn late_steps_of_long_epochs_are_those_of_a_walk() {
    let part = |ids, weight| Part { ids, weight };
    let parts = vec![
        part(0..30, 0.1),
        part(10_000..40_000, 2.0),
        part(40_000..90_000, 1.0),
    ];
    let cases = [
        ("full", "auto", "2:100", "1", false),
        ("full", "static:4,19", "1.5:64", "1", false),
        ("full", "tokens:300", "3:2000", "1", true),
        ("sequential", "optimal:3", "2.5:70000", "1", false),
        ("opportunistic:9:20", "auto", "2", "1", false),
        ("full", "auto", "1", "1", true),
        ("full", "static:1,2,19", "1", "2.5:40", true),
        ("full", "auto", "1", "2:40", false),
        ("queue:500", "auto", "2", "1", false),
        ("queue:500", "", "1", "2:9", false),
        ("page:300", "auto", "1", "1.5:9", false),
        ("full", "pack:30:500", "2", "1", false),
        ("full", "pack:30:500", "1", "1", true),
        ("full", "", "2", "1", true),
    ];
    for (order, policy, echo, batch_echo, mixed) in cases {
        let mut spec = PlanSpec::new(order.parse().unwrap(), 37, 5);
        spec.echo = echo.parse().unwrap();
        spec.batch_echo = batch_echo.parse().unwrap();
        spec.buckets = (!policy.is_empty()).then(|| policy.parse().unwrap());
        spec.mixture = mixed.then(|| parts.clone());
        let pipeline = PlanCase {
            records: 90_000,
            spec,
            dropped_one_in: 10,
            pairs: false,
            epoch: 3,
        };
        let plan = pipeline.make();
        let steps = steps_of(&plan, 3);
        check_copies(&plan, &steps, policy.starts_with("pack"));
        check_nothing_lost(&pipeline, &plan, &steps);
        let mut batch = StepBatch::default();
        for place in 0..6 {
            let step = (steps.len() - 1) * place / 5;
            let place = Place {
                epoch: 3,
                step: step as u64,
            };
            let mut walk = plan.walk(place, None);
            for expected in steps[step..].iter().take(90) {
                assert!(walk.next(&mut batch));
                assert_eq!(
                    &batch, expected,
                    "{order} {policy} {echo} {batch_echo}: {step}"
                );
            }
        }
    }
}
