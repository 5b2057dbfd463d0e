//! Random pipelines: mixture, filter, buckets or packing, echo, order, stages. Each resumes exactly from a random
//! step, on any number of ranks, whatever the threads, the access path and the memory.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::fixtures::open;
use pelton_batch::Shape;
use pelton_feed::{
    EchoPoint, Function, Loader, LoaderOptions, LoaderState, Stages, TEXT, TOKENS, Tokenise, Value,
};
use pelton_fetch::Access;
use pelton_format::Dataset;
use pelton_plan::{Catalog, Echo, Order, Part, Plan, PlanSpec, Selection, Units};
use pelton_text::{Ends, Tokenizer, Vocabulary, VocabularyOptions};
use proptest::prelude::*;

const RECORDS: u64 = 90;

/// Sentences of 1 to 20 words; the first word has the id.
fn sentence(id: u64) -> String {
    let mut words = vec![format!("s{id}")];
    words.extend((0..id * 11 % 20).map(|i| format!("w{}", (id + i) % 17)));
    words.join(" ")
}

fn length(id: u64) -> u32 {
    // The end of the sentence counts.
    (id * 11 % 20) as u32 + 2
}

fn dataset(folder: &Path) -> Arc<Dataset> {
    let text: Vec<String> = (0..RECORDS).map(sentence).collect();
    let path = folder.join("sentences.txt");
    fs::write(&path, text.join("\n")).unwrap();
    open(&[path])
}

fn vocabulary() -> Arc<Vocabulary> {
    let options = VocabularyOptions {
        tokenizer: Tokenizer::Whitespace,
        ..VocabularyOptions::default()
    };
    Arc::new(Vocabulary::from_sentences((0..RECORDS).map(sentence), &options).unwrap())
}

#[derive(Clone, Debug)]
struct Case {
    spec: PlanSpec,
    filter: Option<u64>,
    echo_point: EchoPoint,
    decodes: bool,
    marks: bool,
    start: prop::sample::Index,
    threads: usize,
    access: Access,
    world_size: u32,
}

fn echo() -> impl Strategy<Value = (Echo, Echo)> {
    let text = |text: &str| text.parse::<Echo>().unwrap();
    prop::sample::select(vec![
        (Echo::NONE, Echo::NONE),
        (text("2:8"), Echo::NONE),
        (text("1.5:30"), Echo::NONE),
        (text("3:200"), Echo::NONE),
        (Echo::NONE, text("2:3")),
        (Echo::NONE, text("1.7:5")),
    ])
}

fn cases() -> impl Strategy<Value = Case> {
    let orders = prop::sample::select(vec![
        "full",
        "sequential",
        "page:64",
        "queue:20",
        "block:5:permute",
        "opportunistic:3:64",
    ]);
    let buckets = prop::sample::select(vec![
        None,
        None,
        Some("static:5,12"),
        Some("auto"),
        Some("optimal:3"),
        Some("tokens:60"),
        Some("pack:24"),
        Some("pack:9:16"),
    ]);
    let mixtures = prop::sample::select(vec![None, None, Some([1.0, 3.0]), Some([0.2, 0.1])]);
    let filters = prop::sample::select(vec![None, None, Some(2), Some(5)]);
    let points = [
        EchoPoint::Read,
        EchoPoint::BeforeAugment,
        EchoPoint::AfterAugment,
    ];
    let how = (
        prop::sample::select(points.to_vec()),
        any::<bool>(),
        any::<bool>(),
        any::<prop::sample::Index>(),
        1..4_usize,
        any::<bool>(),
        1..4_u32,
    );
    (
        orders,
        buckets,
        mixtures,
        filters,
        echo(),
        1..12_u64,
        any::<u64>(),
        how,
    )
        .prop_map(
            |(order, buckets, mixture, filter, (echo, batch_echo), batch, seed, how)| {
                let (echo_point, decodes, marks, start, threads, direct, world_size) = how;
                let mixture = mixture.map(|[a, b]| {
                    let part = |ids, weight| Part { ids, weight };
                    vec![part(0..30, a), part(30..RECORDS, b)]
                });
                let order: Order = order.parse().unwrap();
                Case {
                    spec: PlanSpec {
                        echo,
                        batch_echo,
                        buckets: buckets.map(|policy| policy.parse().unwrap()),
                        order: if mixture.is_some() {
                            Order::Full
                        } else {
                            order
                        },
                        mixture,
                        ..PlanSpec::new(order, batch, seed)
                    },
                    filter,
                    echo_point,
                    decodes,
                    marks,
                    start,
                    threads,
                    access: if direct {
                        Access::Direct
                    } else {
                        Access::Window { gap_bytes: None }
                    },
                    world_size,
                }
            },
        )
}

fn stream(dataset: &Dataset, case: &Case) -> Option<Arc<Plan>> {
    let selection = case
        .filter
        .map(|divisor| Selection::new(RECORDS, |id| id % divisor != 0));
    let units = match case.spec.order {
        Order::Page { unit_bytes } | Order::Opportunistic { unit_bytes, .. } => {
            let lengths = (0..RECORDS).map(|id| dataset.locate(id).length);
            Some(Units::from_lengths(lengths, unit_bytes))
        }
        _ => None,
    };
    // Combinations that a plan refuses are refused by tests of its own.
    let over = Catalog {
        records: RECORDS,
        selection,
        units,
        length_of: Some(&length),
        second_length_of: None,
    };
    Plan::new(&case.spec, over).ok().map(Arc::new)
}

fn stages(case: &Case, vocabulary: &Arc<Vocabulary>) -> Stages {
    // Packed or bucketed samples must have the lengths of the plan.
    let decodes = case.decodes || case.spec.buckets.is_some();
    let ends = Ends {
        begin: false,
        end: true,
    };
    let stages = if decodes {
        Stages::default().then(Tokenise::by(Arc::clone(vocabulary), ends))
    } else {
        Stages::default()
    };
    if !case.marks {
        return stages;
    }
    stages.then(Function::at_appearance(|sample, appearance| {
        if let Some(Value::Tokens(tokens)) = sample.get_mut(TOKENS) {
            tokens.to_mut()[0] = appearance.key as u32;
        } else if let Some(Value::Bytes(text)) = sample.get_mut(TEXT) {
            text.to_mut()[0] = appearance.key as u8;
        } else {
            return Err("a line of text was expected".into());
        }
        Ok(())
    }))
}

/// A batch: epoch and step, ids, copies, shape, and elements.
type Seen = (u64, u64, Vec<u64>, Vec<u32>, Shape, Vec<u8>);

fn run(
    dataset: &Arc<Dataset>,
    stream: &Arc<Plan>,
    stages: Stages,
    options: &LoaderOptions,
    most: usize,
) -> (Vec<Seen>, LoaderState) {
    let mut loader = Loader::new(Arc::clone(dataset), Arc::clone(stream), stages, options).unwrap();
    let mut all = Vec::new();
    while all.len() < most {
        let Some(batch) = loader.next().transpose().unwrap() else {
            break;
        };
        let data = batch.fields.iter().next().unwrap().1;
        all.push((
            batch.epoch,
            batch.step,
            batch.ids.clone(),
            batch.copies.clone(),
            data.shape().clone(),
            data.bytes().to_vec(),
        ));
    }
    (all, loader.state())
}

/// Whether there is such a plan; if so, that it resumes at any step.
fn check(case: &Case) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let dataset = dataset(folder.path());
    let Some(stream) = stream(&dataset, case) else {
        return false;
    };
    let vocabulary = vocabulary();
    let options = LoaderOptions {
        end_epoch: Some(2),
        threads: 2,
        echo_point: case.echo_point,
        ..LoaderOptions::with_memory(20 << 20)
    };
    let all = usize::MAX;
    let with = || stages(case, &vocabulary);
    let (whole, end) = run(&dataset, &stream, with(), &options, all);
    let steps: u64 = (0..2).map(|epoch| stream.steps(epoch)).sum();
    assert_eq!(whole.len() as u64, steps);
    assert_eq!((end.epoch, end.step), (1, stream.steps(1)));

    let done = case.start.index(whole.len() + 1);
    let other = LoaderOptions {
        threads: case.threads,
        access: case.access,
        memory_bytes: 12 << 20,
        ..options.clone()
    };
    let (before, state) = run(&dataset, &stream, with(), &other, done);
    assert!(before == whole[..done], "the beginning");
    let resumed = state.resume(&dataset, &stream, &with(), &options).unwrap();
    let (rest, _) = run(&dataset, &stream, with(), &resumed, all);
    assert!(rest == whole[done..], "the rest from {done}");

    // Other ranks resume with the rest of the same global batches.
    let parts: Vec<Vec<Seen>> = (0..case.world_size)
        .map(|rank| {
            let options = LoaderOptions {
                rank,
                world_size: case.world_size,
                ..resumed.clone()
            };
            run(&dataset, &stream, with(), &options, all).0
        })
        .collect();
    for (step, whole) in whole[done..].iter().enumerate() {
        let of = |seen: &Seen| -> Vec<(u64, u32)> {
            seen.2.iter().copied().zip(seen.3.iter().copied()).collect()
        };
        let mut together: Vec<_> = parts.iter().flat_map(|part| of(&part[step])).collect();
        let mut expected = of(whole);
        together.sort_unstable();
        expected.sort_unstable();
        assert_eq!(together, expected, "step {step} from {done}");
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_pipeline_goes_on_from_any_step(case in cases()) {
        prop_assume!(check(&case));
    }
}
