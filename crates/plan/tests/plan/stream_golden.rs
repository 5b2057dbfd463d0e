//! The batches of pipelines never change: compares the crate with `golden/streams.txt`, which a second
//! implementation, `golden/streams.py`, wrote.

use pelton_key::mix;
use pelton_plan::{
    Catalog, Last, Order, Part, Place, Plan, PlanSpec, Sampler, Selection, StepBatch,
};

/// Lengths from 1 to 30, most of them small; one in 16 up to 90.
fn length_of(record: u64) -> u32 {
    let random = mix(record + 1);
    let long = (random >> 24) % 70 * u64::from((random >> 32).is_multiple_of(16));
    (1 + random % 10 + (random >> 8) % 11 * ((random >> 16) % 2) + long) as u32
}

fn part(text: &str) -> Part {
    let fields: Vec<&str> = text.split('/').collect();
    Part {
        ids: fields[0].parse().unwrap()..fields[1].parse().unwrap(),
        weight: fields[2].parse().unwrap(),
    }
}

fn weight(record: u64) -> f64 {
    [0.0, 1.0, 0.1, 3.0, 0.25][(mix(record ^ 99) % 5) as usize]
}

fn class_of(record: u64) -> u32 {
    [0, 0, 0, 0, 0, 1, 1, 4][(mix(record ^ 77) % 8) as usize]
}

fn words(batch: &StepBatch) -> Vec<u64> {
    let repeated = if batch.batch_copy > 0 {
        batch.fresh_batch + 1
    } else {
        0
    };
    let mut words = vec![repeated];
    for draw in batch.draws() {
        words.extend([
            draw.id,
            draw.position,
            u64::from(draw.copy),
            u64::from(draw.last),
        ]);
    }
    words
}

fn check_line(line: &str) {
    let fields: Vec<&str> = line.split(' ').collect();
    let number = |field: usize| -> u64 { fields[field].parse().unwrap() };
    let (dropped, examples, batch) = (number(0), number(2), number(5));
    let (records, seed, epoch) = (number(7), number(8), number(9));
    let keeps = |id: u64| dropped == 0 || !mix(id).is_multiple_of(dropped);
    let mut spec = PlanSpec::new(Order::Full, batch, seed);
    spec.sampler = match fields[1] {
        "weights" => Some(Sampler::Weights((0..records).map(weight).collect())),
        "classes" => Some(Sampler::Classes((0..records).map(class_of).collect())),
        "ids" => {
            let ids = (0..examples).map(|i| mix(i ^ 55) % records);
            Some(Sampler::Ids(ids.filter(|&id| keeps(id)).collect()))
        }
        _ => None,
    };
    match fields[1] {
        "-" | "ids" => {}
        "weights" | "classes" => spec.epoch_examples = Some(examples),
        mixture => {
            spec.mixture = Some(mixture.split(',').map(part).collect());
            spec.epoch_examples = Some(examples);
        }
    }
    spec.echo = fields[3].parse().unwrap();
    spec.batch_echo = fields[6].parse().unwrap();
    match fields[4] {
        "-" => {}
        "short" => spec.last = Last::Short,
        "drop" => spec.last = Last::Drop,
        policy => spec.buckets = Some(policy.parse().unwrap()),
    }
    let selection = (dropped > 0).then(|| Selection::new(records, keeps));
    let over = Catalog::new(records).with_selection(selection);
    let plan = Plan::new(&spec, over.with_lengths(&length_of)).unwrap();

    let mut batch = StepBatch::default();
    let mut walk = plan.walk(Place { epoch, step: 0 }, None);
    let mut digest = 0_u64;
    for step in 0..plan.steps(epoch) {
        assert!(walk.next(&mut batch));
        assert_eq!((batch.epoch, batch.step), (epoch, step));
        let words = words(&batch);
        if step == 0 {
            let expected: Vec<u64> = (12..fields.len()).map(number).collect();
            assert_eq!(words[..expected.len()], expected, "{line}");
        }
        for word in std::iter::once(words.len() as u64).chain(words) {
            digest = mix(digest.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ word);
        }
    }
    assert_eq!(
        (plan.steps(epoch), digest),
        (number(10), number(11)),
        "{line}"
    );
}

#[test]
fn every_pipeline_gives_the_recorded_batches() {
    let lines = include_str!("golden/streams.txt").lines();
    let mut checked = 0;
    for line in lines.filter(|line| !line.starts_with('#')) {
        check_line(line);
        checked += 1;
    }
    assert_eq!(checked, 54);
}
