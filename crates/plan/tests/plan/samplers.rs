//! Custom lists, draws by weight and equally frequent classes, under any echo, batches, filter and buckets.

use std::collections::{HashMap, HashSet};

use pelton_key::mix;
use pelton_plan::{Catalog, Order, Part, Place, Plan, PlanError, PlanSpec, Sampler, Selection};
use proptest::prelude::*;

use crate::streams::{PlanCase, check, pipelines, records};
use crate::{ids_of, steps_of};

fn weights(records: u64, seed: u64) -> Vec<f64> {
    let weight = |id: u64| [0.0, 1.0, 0.5, 3.0][(mix(id ^ seed) % 4) as usize];
    (0..records).map(weight).collect()
}

/// Classes: the first has two thirds of the records, and some have none.
fn classes(records: u64, seed: u64) -> Vec<u32> {
    let class = |id: u64| [0, 0, 0, 0, 3, 7][(mix(id ^ seed) % 6) as usize];
    (0..records).map(class).collect()
}

/// Pipelines with records from a list (0), drawn by weight (1), or of equally frequent classes (2).
fn sampled(kind: usize) -> impl Strategy<Value = PlanCase> {
    let numbers = (1_u64..400, prop::option::of(20_u64..500));
    let drawn = (pipelines(false), numbers).prop_map(move |(mut pipeline, (length, examples))| {
        let case = pipeline.clone();
        let keeps = |id| case.keeps(id);
        let (records, seed, spec) = (pipeline.records, pipeline.spec.seed, &mut pipeline.spec);
        if kind > 0 {
            (spec.order, spec.epoch_examples) = (Order::Full, examples);
        } else if matches!(spec.order, Order::Page { .. } | Order::Opportunistic { .. }) {
            spec.order = Order::Full;
        }
        spec.sampler = Some(match kind {
            0 => {
                let ids = (0..length).map(|i| mix(i ^ seed) % records);
                Sampler::Ids(ids.filter(|&id| keeps(id)).collect())
            }
            1 => Sampler::Weights(weights(records, seed).into()),
            _ => Sampler::Classes(classes(records, seed).into()),
        });
        pipeline
    });
    drawn.prop_filter(
        "nothing to draw, or fewer records than blocks",
        |pipeline| {
            let refused = pipeline.try_make().err();
            assert!(matches!(
                refused,
                None | Some(
                    PlanError::NoRecordWeight | PlanError::NoWeight | PlanError::BlockCount { .. }
                )
            ));
            refused.is_none()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_list_comes_once_an_epoch(pipeline in sampled(0)) {
        let (plan, steps) = check(&pipeline);
        let Some(Sampler::Ids(ids)) = &pipeline.spec.sampler else { panic!("a list") };
        let mut listed: Vec<u64> = ids.to_vec();
        prop_assert_eq!(plan.examples(), listed.len() as u64);
        prop_assert!(plan.is_of_list() && plan.epoch_order(0).is_none());
        let by_position = records(&steps);
        if !pipeline.drops_last() {
            let mut found: Vec<u64> = by_position.values().copied().collect();
            if pipeline.spec.order == Order::Sequential {
                let at = |position| by_position[&(position as u64)];
                prop_assert_eq!(&(0..listed.len()).map(at).collect::<Vec<u64>>(), &listed);
            }
            found.sort_unstable();
            listed.sort_unstable();
            prop_assert_eq!(&found, &listed);
        }
        let distinct: HashSet<u64> = listed.into_iter().collect();
        prop_assert_eq!(plan.distinct_records(pipeline.epoch), distinct.len() as u64);
    }

    #[test]
    fn draws_are_of_kept_records_with_a_weight(pipeline in sampled(1)) {
        let (plan, steps) = check(&pipeline);
        let Some(Sampler::Weights(weights)) = &pipeline.spec.sampler else { panic!("weights") };
        let by_position = records(&steps);
        prop_assert!(by_position.values().all(|&id| pipeline.keeps(id) && weights[id as usize] > 0.0));
        let examples = pipeline.spec.epoch_examples;
        prop_assert_eq!(plan.examples(), examples.unwrap_or(pipeline.kept().len() as u64));
        if !pipeline.drops_last() {
            let distinct: HashSet<u64> = by_position.into_values().collect();
            prop_assert_eq!(plan.distinct_records(pipeline.epoch), distinct.len() as u64);
        }
    }

    #[test]
    fn classes_come_alike(pipeline in sampled(2)) {
        let (plan, steps) = check(&pipeline);
        let Some(Sampler::Classes(classes)) = &pipeline.spec.sampler else { panic!("classes") };
        let class_of = |id: u64| classes[id as usize] as usize;
        let there: HashSet<usize> = pipeline.kept().into_iter().map(class_of).collect();
        let counts = plan.realised_mixture(pipeline.epoch);
        prop_assert_eq!(counts.len(), there.iter().max().unwrap() + 1);
        let share = plan.examples() as f64 / there.len() as f64;
        for (class, &count) in counts.iter().enumerate() {
            let expected = if there.contains(&class) { share } else { 0.0 };
            prop_assert!((count as f64 - expected).abs() < 2.0, "{} of {}", count, expected);
        }
        if !pipeline.drops_last() {
            let mut found = vec![0; counts.len()];
            let by_position = records(&steps);
            prop_assert!(by_position.values().all(|&id| pipeline.keeps(id)));
            by_position.values().for_each(|&id| found[class_of(id)] += 1);
            prop_assert_eq!(found, counts);
        }
    }
}

fn plan(sampler: Sampler, records: u64) -> Plan {
    let mut spec = PlanSpec::new(Order::Full, 16, 5);
    spec.sampler = Some(sampler);
    Plan::new(&spec, Catalog::new(records)).unwrap()
}

/// The records of a class come in turn: none a second time before each came once.
#[test]
fn the_records_of_a_small_class_come_in_turn() {
    let classes: Vec<u32> = (0..1000).map(|id| u32::from(id % 100 == 7)).collect();
    let plan = plan(Sampler::Classes(classes.into()), 1000);
    let mut times: HashMap<u64, u32> = HashMap::new();
    for epoch in 0..3 {
        for id in ids_of(&plan, epoch).into_iter().filter(|id| id % 100 == 7) {
            *times.entry(id).or_default() += 1;
        }
        let (least, most) = (times.values().min(), times.values().max());
        assert_eq!(
            (times.len(), least, most),
            (10, Some(&(50 * (epoch as u32 + 1))), most)
        );
        assert!(most.unwrap() - least.unwrap() <= 1);
    }
    // Pairs of both classes limit the order.
    let level = plan.randomness().rl_exact;
    assert!((0.9..1.0).contains(&level), "{level}");
}

/// A list may be longer than the data, and of records in any order; the order of its entries is the plan's.
#[test]
fn a_list_is_shuffled_by_the_order() {
    let ids: Vec<u64> = (0..500).map(|i| i * 7 % 13).collect();
    let listed = plan(Sampler::Ids(ids.clone().into()), 20);
    let of_numbers = Plan::new(&PlanSpec::new(Order::Full, 16, 5), Catalog::new(500)).unwrap();
    let expected: Vec<u64> = ids_of(&of_numbers, 2)
        .into_iter()
        .map(|i| ids[i as usize])
        .collect();
    assert_eq!(ids_of(&listed, 2), expected);
    assert_eq!((listed.examples(), listed.distinct_records(0)), (500, 13));
    let empty = plan(Sampler::Ids([].into()), 20);
    assert_eq!(empty.steps(0), 0);
    assert!(
        !empty
            .walk(Place::default(), None)
            .next(&mut Default::default())
    );
}

/// The predicted padding of buckets of drawn records is right on average.
#[test]
fn buckets_know_what_is_drawn() {
    let lengths: Vec<u32> = (0..2000).map(|id| 1 + (mix(id) % 90) as u32).collect();
    let length_of = |id: u64| lengths[id as usize];
    let heavy_when_long = Sampler::Weights(lengths.iter().map(|&n| f64::from(n * n)).collect());
    let by_length = Sampler::Classes(lengths.iter().map(|&n| u32::from(n > 80)).collect());
    for sampler in [heavy_when_long, by_length] {
        let mut spec = PlanSpec::new(Order::Full, 16, 5);
        spec.sampler = Some(sampler);
        spec.epoch_examples = Some(20_000);
        spec.buckets = Some("optimal:4".parse().unwrap());
        let plan = Plan::new(&spec, Catalog::new(2000).with_lengths(&length_of)).unwrap();
        let (mut cells, mut tokens) = (0.0, 0.0);
        for batch in steps_of(&plan, 0) {
            cells += batch.len() as f64 * f64::from(batch.padded_length.unwrap());
            tokens += batch
                .ids
                .iter()
                .map(|&id| f64::from(length_of(id)))
                .sum::<f64>();
        }
        let found = (cells - tokens) / cells;
        let said = plan.padded_fraction(0).unwrap();
        assert!(
            (found - said).abs() < 0.1 * said,
            "{found} where {said} was said"
        );
    }
}

#[test]
fn impossible_samplers_are_refused_with_a_remedy() {
    let refusal = |change: &dyn Fn(&mut PlanSpec), says: &str| {
        let mut spec = PlanSpec::new(Order::Full, 8, 0);
        change(&mut spec);
        let error = Plan::new(&spec, Catalog::new(100)).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    let weights = |of: &[f64]| Some(Sampler::Weights([of, &[1.0; 98][..]].concat().into()));
    let classes = |records| Some(Sampler::Classes(vec![0; records].into()));
    for weight in [-1.0, f64::NAN, f64::INFINITY] {
        refusal(
            &|spec| spec.sampler = weights(&[0.0, weight]),
            "record 1 has the weight",
        );
    }
    let nothing = Some(Sampler::Weights(vec![0.0; 100].into()));
    refusal(
        &|spec| spec.sampler = nothing.clone(),
        "at least one a positive weight",
    );
    refusal(
        &|spec| spec.sampler = weights(&[f64::MAX; 2]),
        "positive, finite sum",
    );
    refusal(
        &|spec| spec.sampler = weights(&[]),
        "98 weights are given for 100 records",
    );
    refusal(
        &|spec| spec.sampler = classes(101),
        "101 classes are given for 100 records",
    );
    refusal(
        &|spec| spec.sampler = Some(Sampler::Ids([5, 100].into())),
        "give indices below 100",
    );
    refusal(
        &|spec| (spec.sampler, spec.order) = (classes(100), Order::Sequential),
        "give `order` full",
    );
    refusal(
        &|spec| {
            spec.sampler = Some(Sampler::Ids([5].into()));
            spec.order = Order::Page { unit_bytes: 1 };
        },
        "give `order` full, sequential",
    );
    refusal(
        &|spec| {
            spec.sampler = Some(Sampler::Ids([5].into()));
            spec.epoch_examples = Some(3);
        },
        "not 3 examples",
    );
    refusal(
        &|spec| {
            spec.sampler = classes(100);
            spec.mixture = Some(vec![Part {
                ids: 0..9,
                weight: 1.0,
            }]);
        },
        "give only one of them",
    );
    refusal(
        &|spec| {
            spec.sampler = Some(Sampler::Classes((0..100).map(|id| id % 9).collect()));
            spec.epoch_examples = Some(5);
        },
        "make epochs longer",
    );
}

#[test]
fn fingerprints_tell_samplers_apart() {
    let mut seen = HashMap::new();
    let mut check = |sampler: Option<Sampler>, examples: Option<u64>, kept: bool| {
        let mut spec = PlanSpec::new(Order::Full, 8, 0);
        (spec.sampler, spec.epoch_examples) = (sampler, examples);
        let selection = kept.then(|| Selection::new(100, |id| id % 10 < 9));
        let plan = Plan::new(&spec, Catalog::new(100).with_selection(selection)).unwrap();
        let says = format!("{spec:?} {kept}");
        if let Some(other) = seen.insert(plan.fingerprint(), says.clone()) {
            panic!("{says} and {other}");
        }
    };
    for kept in [false, true] {
        check(None, None, kept);
        if !kept {
            check(Some(Sampler::Ids((0..100).collect())), None, kept);
            check(Some(Sampler::Ids((0..100).rev().collect())), None, kept);
        }
        for examples in [None, Some(77)] {
            for one in [1.0, 2.0] {
                let weights = (0..100).map(|id| if id == 50 { one } else { 1.0 });
                check(Some(Sampler::Weights(weights.collect())), examples, kept);
            }
            for classes in [2, 3] {
                let classes = (0..100).map(|id| id % classes);
                check(Some(Sampler::Classes(classes.collect())), examples, kept);
            }
        }
    }
}
