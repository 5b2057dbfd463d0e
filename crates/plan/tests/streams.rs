//! Whole pipelines, drawn at random: what comes out of them, wherever they are entered.

use std::collections::HashMap;

use pelton_plan::{
    BucketPolicy, Draw, Echo, EchoPlan, Order, Part, Selection, StreamBatch, StreamPlan,
    StreamSpec, Units, mix, share_of,
};
use proptest::prelude::*;

/// A pipeline and what it is made over.
#[derive(Debug, Clone)]
struct Pipeline {
    records: u64,
    spec: StreamSpec,
    /// One record in so many is dropped; 0 filters nothing.
    dropped_one_in: u64,
    epoch: u64,
}

fn length_of(id: u64) -> u32 {
    let random = mix(id + 1);
    (1 + random % 12 + (random >> 8) % 9 * ((random >> 16) % 2)) as u32
}

impl Pipeline {
    fn keeps(&self, id: u64) -> bool {
        self.dropped_one_in == 0 || mix(id) % self.dropped_one_in != 0
    }

    fn kept(&self) -> Vec<u64> {
        (0..self.records).filter(|&id| self.keeps(id)).collect()
    }

    fn make(&self) -> StreamPlan {
        let selection =
            (self.dropped_one_in > 0).then(|| Selection::new(self.records, |id| self.keeps(id)));
        let units = match self.spec.order {
            Order::Page { unit_bytes } | Order::Opportunistic { unit_bytes, .. } => {
                let lengths = (0..self.records).map(|id| 3 + mix(id) % 5);
                Some(Units::from_lengths(lengths, unit_bytes))
            }
            _ => None,
        };
        StreamPlan::new(self.records, &self.spec, selection, units, Some(&length_of)).unwrap()
    }

    fn is_packed(&self) -> bool {
        matches!(self.spec.buckets, Some(BucketPolicy::Pack(_)))
    }
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
        "auto",
        "optimal:3",
        "tokens:40",
        "pack:24:16",
        "pack:30:1000",
    ];
    let policy = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
    prop::sample::select(policies.to_vec()).prop_map(policy)
}

/// `mixed`: parts over all the records, of which every weighted one keeps some.
fn pipelines(mixed: bool) -> impl Strategy<Value = Pipeline> {
    let numbers = (
        20_u64..300,
        1_u64..20,
        any::<bool>(),
        0_u64..5,
        0_u64..4,
        any::<u64>(),
    );
    let parts = (
        prop::collection::vec(0_u32..5, 3),
        prop::option::of(0_u64..500),
    );
    (numbers, orders(), echoes(), policies(), parts).prop_map(move |drawn| {
        let (numbers, order, (echo, batch_echo), buckets, (weights, epoch_examples)) = drawn;
        let (records, batch, drop_last, dropped_one_in, epoch, seed) = numbers;
        let mut spec = StreamSpec::new(if mixed { Order::Full } else { order }, batch, seed);
        spec.drop_last = drop_last && buckets.is_none();
        (spec.echo, spec.batch_echo, spec.buckets) = (echo, batch_echo, buckets);
        if mixed {
            let third = records / 3;
            let ends = [0, third / 2 + 7, 2 * third, records];
            let weight = |part: usize| f64::from(weights[part]) + if part == 1 { 0.3 } else { 0.0 };
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
        Pipeline {
            records,
            spec,
            dropped_one_in,
            epoch,
        }
    })
}

fn walk(plan: &StreamPlan, epoch: u64) -> Vec<StreamBatch> {
    let batch = |step| {
        let mut batch = StreamBatch::default();
        plan.batch(epoch, step, &mut batch);
        batch
    };
    (0..plan.steps(epoch)).map(batch).collect()
}

/// Entering a new plan anywhere gives what a walk through the epoch gave.
fn check_entered_anywhere(pipeline: &Pipeline, steps: &[StreamBatch]) {
    let one = pipeline.make();
    let mut order: Vec<usize> = (0..steps.len()).collect();
    order.sort_by_key(|&step| mix(step as u64 ^ pipeline.spec.seed));
    let mut batch = StreamBatch::default();
    for (place, step) in order.into_iter().enumerate() {
        one.batch(pipeline.epoch, step as u64, &mut batch);
        assert_eq!(batch, steps[step], "step {step}");
        if place < 3 {
            pipeline
                .make()
                .batch(pipeline.epoch, step as u64, &mut batch);
            assert_eq!(batch, steps[step], "step {step} at once");
        }
    }
}

/// Copies of each position come in order, the last of them is marked, and no more is held than was said.
fn check_copies(plan: &StreamPlan, steps: &[StreamBatch], cut: bool) {
    let mut ends = HashMap::new();
    for (place, draw) in steps.iter().flat_map(|batch| &batch.draws).enumerate() {
        ends.insert(draw.position, place);
    }
    let mut seen: HashMap<(u64, u32), u32> = HashMap::new();
    let (mut fresh, mut done) = (std::collections::HashSet::new(), 0);
    let mut place = 0;
    for batch in steps {
        assert!(batch.draws.len() as u64 <= plan.largest_batch());
        for (slot, draw) in batch.draws.iter().enumerate() {
            assert_eq!(draw.last, ends[&draw.position] == place, "{draw:?}");
            let piece = batch.pieces.get(slot).map_or(0, |piece| piece.start);
            assert!(cut || piece == 0);
            let copies = seen.entry((draw.position, piece)).or_insert(0);
            assert_eq!(draw.copy, *copies, "{draw:?}");
            *copies += 1;
            fresh.insert(draw.position);
            done += u64::from(draw.last);
            assert!(fresh.len() as u64 - done <= plan.most_held());
            place += 1;
        }
    }
}

fn check_shares(steps: &[StreamBatch]) {
    let mut share = Vec::new();
    for batch in steps {
        let slots = match batch.row_draws.len() {
            0 => batch.draws.len(),
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

/// Batches, and repeats of batches, have the form that was asked for.
fn check_forms(pipeline: &Pipeline, plan: &StreamPlan, steps: &[StreamBatch]) {
    let mut fresh: Vec<(&StreamBatch, u32)> = Vec::new();
    for batch in steps {
        assert!(!batch.draws.is_empty());
        let in_rows: u32 = batch.row_draws.iter().sum();
        if pipeline.is_packed() {
            assert_eq!(in_rows as usize, batch.draws.len());
            assert_eq!(batch.pieces.len(), batch.draws.len());
            let mut pieces = batch.pieces.iter();
            for &draws in &batch.row_draws {
                let row = pieces.by_ref().take(draws as usize);
                let tokens: u32 = row.map(|piece| piece.length).sum();
                assert!(tokens <= batch.padded_length.unwrap());
            }
        } else if let Some(layout) = plan.bucket_layout() {
            let bucket = batch.bucket.unwrap() as usize;
            let shape = layout.buckets()[bucket];
            assert!(batch.draws.len() as u64 <= shape.capacity);
            let fits = |draw: &Draw| layout.bucket_of(length_of(draw.id)) == bucket;
            assert!(batch.draws.iter().all(fits));
            assert_eq!(batch.padded_length, (!shape.alone).then_some(shape.longest));
        }
        match batch.repeat_of {
            None => fresh.push((batch, 1)),
            Some(number) => {
                let (first, times) = &mut fresh[number as usize];
                let ids = |batch: &StreamBatch| -> Vec<(u64, u64)> {
                    batch
                        .draws
                        .iter()
                        .map(|draw| (draw.id, draw.position))
                        .collect()
                };
                assert_eq!(ids(first), ids(batch));
                assert_eq!(first.row_draws, batch.row_draws);
                assert!(batch.draws.iter().all(|draw| draw.copy == *times));
                *times += 1;
            }
        }
    }
    let echo = EchoPlan::of_batches(fresh.len() as u64, pipeline.spec.batch_echo, 0).unwrap();
    for (number, &(_, times)) in (0..).zip(&fresh) {
        assert_eq!(times, echo.times_of(number));
    }
}

/// Fresh batches hold every appearance of every example, but for the batch that is left out.
fn check_nothing_lost(pipeline: &Pipeline, plan: &StreamPlan, steps: &[StreamBatch]) {
    let epoch = pipeline.epoch;
    let mut times: HashMap<u64, u32> = HashMap::new();
    let fresh = steps.iter().filter(|batch| batch.repeat_of.is_none());
    let (mut draws, mut smaller) = (0, 0);
    for batch in fresh {
        for (slot, draw) in batch.draws.iter().enumerate() {
            if batch.pieces.get(slot).is_none_or(|piece| piece.start == 0) {
                *times.entry(draw.position).or_default() += 1;
                draws += 1;
            }
        }
        smaller += u64::from((batch.draws.len() as u64) < pipeline.spec.batch);
    }
    let echo = EchoPlan::new(plan.examples(epoch), pipeline.spec.echo, 0).unwrap();
    assert_eq!(plan.appearances(epoch), echo.appearances());
    let order = pipeline.spec.order;
    let by_unit = matches!(order, Order::Page { .. } | Order::Block { .. });
    if !pipeline.spec.drop_last
        || (matches!(order, Order::Block { .. }) && pipeline.spec.echo.is_none())
    {
        assert_eq!(draws, plan.appearances(epoch));
        assert_eq!(times.len() as u64, plan.examples(epoch));
        for (&position, &times) in &times {
            assert_eq!(times, echo.times_of(position));
        }
    } else if !by_unit || !pipeline.spec.echo.is_none() {
        assert_eq!(
            draws,
            plan.appearances(epoch) / pipeline.spec.batch * pipeline.spec.batch
        );
        assert_eq!(smaller, 0);
    }
}

fn check(pipeline: &Pipeline) -> (StreamPlan, Vec<StreamBatch>) {
    let plan = pipeline.make();
    let steps = walk(&plan, pipeline.epoch);
    assert_eq!(plan.fingerprint(), pipeline.make().fingerprint());
    check_entered_anywhere(pipeline, &steps);
    check_copies(&plan, &steps, pipeline.is_packed());
    check_shares(&steps);
    check_forms(pipeline, &plan, &steps);
    check_nothing_lost(pipeline, &plan, &steps);
    (plan, steps)
}

/// The record of each position whose first draw came out.
fn records(steps: &[StreamBatch]) -> HashMap<u64, u64> {
    let mut records = HashMap::new();
    for draw in steps.iter().flat_map(|batch| &batch.draws) {
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
        prop_assert_eq!(plan.examples(0), kept.len() as u64);
        if pipeline.spec.drop_last {
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
        prop_assert_eq!(counts.iter().sum::<u64>(), plan.examples(0));
        if !pipeline.spec.drop_last {
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
                let share = (epoch + 1) as f64 * plan.examples(0) as f64 * part.weight / sum;
                prop_assert!((drawn as f64 - share).abs() < 1.0 + 1e-9);
            }
        }
    }
}
