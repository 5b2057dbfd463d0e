//! Loaders return exactly the plan's batches, whatever the stages, threads, access path and start.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::fixtures::open;
use pelton_batch::{Array, Batch, Layout};
use pelton_feed::{
    Appearance, AutoEcho, BadExamples, Collate, EchoPoint, FeedError, Function, Loader,
    LoaderOptions, LoaderState, Sample, StageFailure, Stages, TEXT, Value,
};
use pelton_fetch::Access;
use pelton_fetch::FetchError;
use pelton_format::{Dataset, FormatKind, LabelColumn, OpenOptions};
use pelton_plan::{Catalog, Last, Order, Place, Plan, PlanSpec, Sampler, StepBatch};

/// Lines of different lengths; each contains its number.
pub fn lines(folder: &Path, records: u64) -> Arc<Dataset> {
    let line = |id: u64| format!("id {id} {}", "word ".repeat((id * 7 % 13) as usize));
    let text: Vec<String> = (0..records).map(line).collect();
    let path = folder.join("lines.txt");
    fs::write(&path, text.join("\n")).unwrap();
    open(&[path])
}

pub fn spec(batch: u64, echo: &str, batch_echo: &str) -> PlanSpec {
    PlanSpec {
        echo: echo.parse().unwrap(),
        batch_echo: batch_echo.parse().unwrap(),
        ..PlanSpec::new(Order::Full, batch, 7)
    }
}

pub fn stream(dataset: &Dataset, spec: &PlanSpec) -> Arc<Plan> {
    Arc::new(Plan::new(spec, Catalog::new(dataset.records())).unwrap())
}

pub fn options() -> LoaderOptions {
    LoaderOptions {
        end_epoch: Some(2),
        threads: 3,
        ..LoaderOptions::with_memory(4 << 20)
    }
}

/// The id that a line begins with.
pub fn said(bytes: &[u8]) -> u64 {
    let digits = bytes.split(|&byte| byte == b' ').nth(1).unwrap();
    std::str::from_utf8(digits).unwrap().parse().unwrap()
}

/// The one field other than the labels.
pub fn data(batch: &Batch) -> &Array {
    batch.fields.iter().next().unwrap().1
}

/// Samples of a batch, as bytes, padding included.
pub fn samples(batch: &Batch) -> Vec<Vec<u8>> {
    let array = data(batch);
    match array.shape().layout {
        Layout::Padded { .. } => {
            let each = array.bytes().len() / batch.len();
            array
                .bytes()
                .chunks(each.max(1))
                .map(<[u8]>::to_vec)
                .collect()
        }
        _ => (0..batch.len()).map(|i| array.sample(i).to_vec()).collect(),
    }
}

/// The compared parts of a batch: epoch and step, ids and copies, and samples.
pub type Seen = (u64, u64, Vec<u64>, Vec<u32>, Vec<Vec<u8>>);

pub fn seen(batch: &Batch) -> Seen {
    (
        batch.epoch,
        batch.step,
        batch.ids.clone(),
        batch.copies.clone(),
        samples(batch),
    )
}

pub fn run(
    dataset: &Arc<Dataset>,
    stream: &Arc<Plan>,
    stages: &Stages,
    options: &LoaderOptions,
) -> Vec<Seen> {
    let mut loader = Loader::new(
        Arc::clone(dataset),
        Arc::clone(stream),
        stages.clone(),
        options,
    )
    .unwrap();
    let mut all = Vec::new();
    while let Some(batch) = loader.next().transpose().unwrap() {
        all.push(seen(&batch));
    }
    all
}

/// The ids and copies that the plan lists.
pub fn planned(stream: &Plan, epochs: u64) -> Vec<(u64, u64, Vec<u64>, Vec<u32>)> {
    let mut batch = StepBatch::default();
    let mut all = Vec::new();
    let mut walk = stream.walk(Place::default(), None);
    while walk.place().epoch < epochs && walk.next(&mut batch) {
        let (ids, copies) = (batch.ids.clone(), batch.copies.clone());
        all.push((batch.epoch, batch.step, ids, copies));
    }
    all
}

/// Marks every sample with the random keys of its read and of its appearance, instead of augmentations.
pub fn marked() -> Stages {
    ragged().then(Function::at_read(mark)).then(marking())
}

pub fn ragged() -> Stages {
    Stages::default().collated(Collate::Ragged)
}

pub fn marking() -> Function {
    Function::at_appearance(mark)
}

fn mark(sample: &mut Sample<'_>, appearance: &Appearance) -> Result<(), StageFailure> {
    let Some(Value::Bytes(bytes)) = sample.get_mut(TEXT) else {
        return Err("lines are bytes".into());
    };
    let mark = format!(" #{:016x}", appearance.key);
    bytes.to_mut().extend_from_slice(mark.as_bytes());
    Ok(())
}

pub fn all_kinds() -> Vec<(PlanSpec, EchoPoint)> {
    let before = EchoPoint::BeforeAugment;
    vec![
        (spec(7, "1", "1"), before),
        (spec(7, "2:16", "1"), before),
        (spec(7, "1.7:16", "1"), EchoPoint::Read),
        (spec(7, "2.5:8", "1"), EchoPoint::AfterAugment),
        (spec(7, "1", "2:4"), before),
        (spec(1000, "3", "1"), before),
        (
            PlanSpec {
                order: Order::Sequential,
                last: Last::Drop,
                ..spec(10, "1.3:20", "1")
            },
            before,
        ),
        (listed("1"), before),
        (listed("1.5:8"), EchoPoint::Read),
    ]
}

/// More examples than there are records, some of them several times in one batch.
fn listed(echo: &str) -> PlanSpec {
    PlanSpec {
        sampler: Some(Sampler::Ids((0..400).map(|i| i * i % 53).collect())),
        ..spec(90, echo, "1")
    }
}

#[test]
fn batches_are_those_of_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 150);
    for (spec, echo_point) in all_kinds() {
        let stream = stream(&dataset, &spec);
        for (threads, access) in [(1, Access::Direct), (4, Access::Window { gap_bytes: None })] {
            let options = LoaderOptions {
                echo_point,
                threads,
                access,
                ..options()
            };
            for stages in [Stages::default(), marked()] {
                let all = run(&dataset, &stream, &stages, &options);
                let found: Vec<_> = all
                    .iter()
                    .map(|(epoch, step, ids, copies, _)| {
                        (*epoch, *step, ids.clone(), copies.clone())
                    })
                    .collect();
                assert_eq!(found, planned(&stream, 2), "{spec:?}");
                for (_, _, ids, _, samples) in &all {
                    let said: Vec<u64> = samples.iter().map(|sample| said(sample)).collect();
                    assert_eq!(&said, ids);
                }
            }
        }
    }
}

#[test]
fn named_arrays_are_fields_of_the_batch() {
    let folder = tempfile::tempdir().unwrap();
    let raw: Vec<u8> = (0..100u8).flat_map(|i| [i, i, i, 200 - i, i % 3]).collect();
    let path = folder.path().join("x.bin");
    fs::write(&path, raw).unwrap();
    let open_options = OpenOptions {
        format: FormatKind::from_name("raw:image:u8[3],x:u8,label:u8"),
        ..OpenOptions::default()
    };
    let dataset = Arc::new(Dataset::open(&[path], &open_options).unwrap());
    for echo in ["1", "2:10"] {
        let stream = stream(&dataset, &spec(8, echo, "1"));
        let stages = Stages::default();
        let loader = Loader::new(Arc::clone(&dataset), stream, stages, &options()).unwrap();
        let mut examples = 0;
        for batch in loader {
            let batch = batch.unwrap();
            let image: Vec<u8> = batch.ids.iter().flat_map(|&id| [id as u8; 3]).collect();
            assert_eq!(batch.get("image").unwrap().shape().dims, [batch.len(), 3]);
            assert_eq!(batch.values::<u8>("image").unwrap(), image);
            let x: Vec<u8> = batch.ids.iter().map(|&id| 200 - id as u8).collect();
            assert_eq!(batch.values::<u8>("x").unwrap(), x);
            let label: Vec<i64> = batch.ids.iter().map(|&id| id as i64 % 3).collect();
            assert_eq!(batch.values::<i64>("label").unwrap(), label);
            examples += batch.len();
        }
        assert_eq!(examples, if echo == "1" { 200 } else { 400 });
    }
    // Another field is the label: the one of that name is dropped.
    let by_x = OpenOptions {
        label: LabelColumn::Name("x".into()),
        ..open_options
    };
    let raw = dataset.files()[0].path().to_path_buf();
    let dataset = Arc::new(Dataset::open(&[raw], &by_x).unwrap());
    let plan = stream(&dataset, &spec(8, "1", "1"));
    let loader = Loader::new(dataset, plan, Stages::default(), &options()).unwrap();
    for batch in loader {
        let batch = batch.unwrap();
        let x: Vec<i64> = batch.ids.iter().map(|&id| 200 - id as i64).collect();
        assert_eq!(batch.values::<i64>("label").unwrap(), x);
        assert_eq!((batch.fields.len(), batch.get("x").is_some()), (2, false));
    }
    let path = folder.path().join("x.jsonl");
    let line = |i: usize| format!("{{\"text\": \"{}\", \"y\": {i}.5}}\n", "a".repeat(i));
    fs::write(&path, (0..50).map(line).collect::<String>()).unwrap();
    let dataset = open(&[path]);
    let stream = stream(&dataset, &spec(8, "1", "1"));
    let loader = Loader::new(dataset, stream, Stages::default(), &options()).unwrap();
    for batch in loader {
        let batch = batch.unwrap();
        let y: Vec<f64> = batch.ids.iter().map(|&id| id as f64 + 0.5).collect();
        assert_eq!(batch.values::<f64>("y").unwrap(), y);
        let text = batch.get("text").unwrap();
        for (i, id) in batch.ids.iter().enumerate() {
            assert_eq!(text.sample(i), vec![b'a'; *id as usize]);
        }
    }
}

#[test]
fn a_loader_goes_on_from_any_step() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 60);
    for (spec, echo_point) in all_kinds() {
        let stream = stream(&dataset, &spec);
        let options = LoaderOptions {
            echo_point,
            ..options()
        };
        let whole = run(&dataset, &stream, &marked(), &options);
        for done in (0..=whole.len()).step_by(3) {
            let mut loader = Loader::new(
                Arc::clone(&dataset),
                Arc::clone(&stream),
                marked(),
                &options,
            )
            .unwrap();
            for _ in 0..done {
                loader.next().unwrap().unwrap();
            }
            let state = LoaderState::from_json(&loader.state().to_json()).unwrap();
            drop(loader);
            let options = state
                .resume(&dataset, &stream, &marked(), &options)
                .unwrap();
            let rest = run(&dataset, &stream, &marked(), &options);
            assert!(rest == whole[done..], "{spec:?} after {done}");
        }
    }
}

#[test]
fn ranks_share_every_batch() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 100);
    for (spec, echo_point) in all_kinds() {
        let stream = stream(&dataset, &spec);
        let whole = run(
            &dataset,
            &stream,
            &marked(),
            &LoaderOptions {
                echo_point,
                ..options()
            },
        );
        for world_size in [2, 3] {
            let parts: Vec<Vec<Seen>> = (0..world_size)
                .map(|rank| {
                    let options = LoaderOptions {
                        rank,
                        world_size,
                        echo_point,
                        ..options()
                    };
                    run(&dataset, &stream, &marked(), &options)
                })
                .collect();
            for (step, whole) in whole.iter().enumerate() {
                let mut expected = whole.4.clone();
                let mut found: Vec<Vec<u8>> =
                    parts.iter().flat_map(|part| part[step].4.clone()).collect();
                expected.sort();
                found.sort();
                assert_eq!(found, expected, "{spec:?}, {world_size} ranks, step {step}");
            }
        }
    }
}

#[test]
fn copies_are_augmented_anew_or_alike() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 40);
    let distinct = |spec: &PlanSpec, echo_point| {
        let stream = stream(&dataset, spec);
        let options = LoaderOptions {
            echo_point,
            end_epoch: Some(1),
            ..options()
        };
        let all = run(&dataset, &stream, &marked(), &options);
        let samples = all.into_iter().flat_map(|seen| seen.4);
        samples.collect::<HashSet<_>>().len()
    };
    assert_eq!(distinct(&spec(8, "3", "1"), EchoPoint::Read), 120);
    assert_eq!(distinct(&spec(8, "3", "1"), EchoPoint::BeforeAugment), 120);
    assert_eq!(distinct(&spec(8, "3", "1"), EchoPoint::AfterAugment), 40);
    assert_eq!(distinct(&spec(8, "1", "3:2"), EchoPoint::BeforeAugment), 40);
}

/// Echo at each point spares the stages before it: reading, decoding, or augmentation too.
#[test]
fn each_point_spares_what_lies_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 40);
    for (echo_point, decoded, augmented) in [
        (EchoPoint::Read, 120, 120),
        (EchoPoint::BeforeAugment, 40, 120),
        (EchoPoint::AfterAugment, 40, 40),
    ] {
        let counts = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let [decodes, augments] = counts.each_ref().map(Arc::clone);
        let stages = ragged()
            .then(Function::at_read(move |_, _| {
                decodes.fetch_add(1, Relaxed);
                Ok(())
            }))
            .then(Function::at_appearance(move |_, _| {
                augments.fetch_add(1, Relaxed);
                Ok(())
            }));
        let options = LoaderOptions {
            echo_point,
            // Two copies of an example in progress at once are both decoded.
            threads: 1,
            end_epoch: Some(1),
            ..options()
        };
        let stream = stream(&dataset, &spec(8, "3", "1"));
        let mut loader = Loader::new(Arc::clone(&dataset), stream, stages, &options).unwrap();
        assert!(loader.by_ref().all(|batch| batch.is_ok()));
        assert_eq!(
            counts.map(|count| count.load(Relaxed)),
            [decoded, augmented]
        );
        let meters = loader.meters();
        assert_eq!((meters.fresh_examples, meters.echoed_examples), (40, 80));
        assert_eq!(meters.feed.used_bytes, dataset.bytes(), "each is read once");
        assert_eq!((meters.decoded_again, meters.read_again), (0, 0));
    }
}

#[test]
fn little_memory_gives_the_same_batches() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 400);
    let stream = stream(&dataset, &spec(4, "3:32", "1"));
    let whole = run(&dataset, &stream, &marked(), &options());
    let least = (0..)
        .map(|i| 20_000 + i * 20_000)
        .find(|&memory_bytes| {
            let options = LoaderOptions {
                memory_bytes,
                ..options()
            };
            let loader = Loader::new(
                Arc::clone(&dataset),
                Arc::clone(&stream),
                marked(),
                &options,
            );
            match loader {
                Ok(_) => true,
                Err(FeedError::Fetch(FetchError::BudgetTooSmall { needed, budget, .. })) => {
                    assert!(needed > budget);
                    false
                }
                Err(other) => panic!("{other}"),
            }
        })
        .unwrap();
    assert!(least < 2 << 20, "{least} bytes");
    let options = LoaderOptions {
        memory_bytes: least,
        ..options()
    };
    assert!(run(&dataset, &stream, &marked(), &options) == whole);
}

/// A function that fails on some records.
pub fn failing(bad: &'static [u64]) -> Stages {
    Stages::default().then(Function::at_read(|_, appearance| {
        if bad.contains(&appearance.id) {
            Err("it does not like it".into())
        } else {
            Ok(())
        }
    }))
}

#[test]
fn bad_examples_follow_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 30);
    let bad: &[u64] = &[3, 4, 17];
    for echo in ["1", "2"] {
        let stream = stream(&dataset, &spec(5, echo, "1"));
        let plan = planned(&stream, 1);
        let policy = |text: &str| LoaderOptions {
            bad_examples: text.parse::<BadExamples>().unwrap(),
            end_epoch: Some(1),
            ..options()
        };
        let skipped = run(&dataset, &stream, &failing(bad), &policy("skip"));
        let replaced = run(&dataset, &stream, &failing(bad), &policy("replace"));
        assert_eq!((skipped.len(), replaced.len()), (plan.len(), plan.len()));
        for (i, (_, _, ids, _)) in plan.iter().enumerate() {
            let good: Vec<u64> = ids.iter().copied().filter(|id| !bad.contains(id)).collect();
            assert_eq!(skipped[i].2, good, "left out");
            let whole = if good.is_empty() { 0 } else { ids.len() };
            assert_eq!(replaced[i].2.len(), whole, "filled up");
            assert!(replaced[i].2.iter().all(|id| good.contains(id)));
            for seen in [&skipped[i], &replaced[i]] {
                let said: Vec<u64> = seen.4.iter().map(|sample| said(sample)).collect();
                assert_eq!(said, seen.2, "each with its own sample");
            }
        }
        let ended = |options: &LoaderOptions| {
            let stages = failing(bad);
            let mut loader =
                Loader::new(Arc::clone(&dataset), Arc::clone(&stream), stages, options).unwrap();
            let mut batches = 0;
            loop {
                match loader.next().expect("it should fail") {
                    Ok(_) => batches += 1,
                    Err(error) => {
                        assert!(loader.next().is_none(), "it gives no more");
                        return (batches, error);
                    }
                }
            }
        };
        let first = plan
            .iter()
            .position(|(_, _, ids, _)| ids.iter().any(|id| bad.contains(id)));
        let (batches, error) = ended(&policy("fail"));
        assert_eq!(Some(batches), first, "batches before it are handed out");
        let text = error.to_string();
        assert!(
            text.contains("lines.txt: record ") && text.contains("does not like it"),
            "{text}"
        );
        let (_, error) = ended(&policy("skip:2"));
        assert!(
            matches!(
                error,
                FeedError::Fetch(FetchError::TooManyBadRecords { limit: 2, .. })
            ),
            "{error}"
        );
    }
}

#[test]
fn a_function_that_panics_ends_the_loader() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 30);
    let stream = stream(&dataset, &spec(5, "1", "1"));
    let stages = Stages::default().then(Function::at_read(|_, appearance| {
        assert!(appearance.id != 11, "eleven");
        Ok(())
    }));
    let mut loader = Loader::new(dataset, stream, stages, &options()).unwrap();
    let error = loader.find_map(Result::err).unwrap();
    assert!(error.to_string().contains("eleven"), "{error}");
}

#[test]
fn padding_and_stacking() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 50);
    let stream = stream(&dataset, &spec(8, "1", "1"));
    let with = |collate| Stages::default().collated(collate);
    let one = LoaderOptions {
        end_epoch: Some(1),
        ..options()
    };
    let mut loader = Loader::new(
        Arc::clone(&dataset),
        Arc::clone(&stream),
        with(Collate::Pad),
        &one,
    )
    .unwrap();
    let (mut padding, mut all) = (0, 0);
    while let Some(batch) = loader.next().transpose().unwrap() {
        let shape = data(&batch).shape();
        let Layout::Padded { lengths } = &shape.layout else {
            panic!("{shape:?}");
        };
        let length = shape.dims[1];
        assert_eq!(lengths.iter().max().copied().unwrap() as usize, length);
        for ((row, &id), &own) in samples(&batch).iter().zip(&batch.ids).zip(lengths) {
            assert_eq!(said(row), id);
            assert!(row[own as usize..].iter().all(|&byte| byte == 0));
            padding += length - own as usize;
            all += length;
        }
    }
    let meters = loader.meters();
    assert_eq!(
        (meters.padded_elements, meters.elements),
        (padding as u64, all as u64)
    );
    assert!(meters.padded_fraction() > 0.1);
    let mut loader = Loader::new(dataset, stream, with(Collate::Stack), &one).unwrap();
    let error = loader.find_map(Result::err).unwrap();
    let text = error.to_string();
    assert!(
        text.contains("has the shape") && text.contains("lines.txt"),
        "{text}"
    );
}

#[test]
fn repeats_fill_the_waiting_only() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 200);
    let stream = stream(&dataset, &spec(4, "1", "1"));
    let auto = LoaderOptions {
        auto_echo: Some(AutoEcho {
            most: 20.0,
            window: 64,
        }),
        threads: 1,
        end_epoch: Some(1),
        ..options()
    };
    let slow = ragged().then(Function::at_read(|_, _| {
        std::thread::sleep(Duration::from_millis(2));
        Ok(())
    }));
    let slow = slow.then(marking());
    let mut loader = Loader::new(Arc::clone(&dataset), Arc::clone(&stream), slow, &auto).unwrap();
    let mut fresh = Vec::new();
    let mut last: Vec<u64> = Vec::new();
    let mut distinct = HashSet::new();
    let mut samples_seen = 0;
    while let Some(batch) = loader.next().transpose().unwrap() {
        if batch.copies[0] == 0 {
            fresh.extend(batch.ids.clone());
        }
        assert!(
            batch.ids.iter().all(|id| !last.contains(id)),
            "a batch apart"
        );
        samples_seen += batch.len();
        distinct.extend(samples(&batch));
        last = batch.ids;
        std::thread::sleep(Duration::from_millis(1));
    }
    let plan: Vec<u64> = planned(&stream, 1).into_iter().flat_map(|b| b.2).collect();
    assert_eq!(
        fresh, plan,
        "fresh examples keep their order, and each comes once"
    );
    let meters = loader.meters();
    assert_eq!(meters.fresh_examples, 200);
    assert!(meters.echoed_examples >= 200, "{}", meters.echoed_examples);
    assert_eq!(
        distinct.len(),
        samples_seen,
        "each repeat is augmented again"
    );
    assert_eq!(loader.state().auto_batches * 4, meters.echoed_examples);

    // A consumer that is slower than the source gets no repeats.
    let mut loader = Loader::new(dataset, stream, marked(), &auto).unwrap();
    while loader.next().transpose().unwrap().is_some() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let meters = loader.meters();
    // Threads delayed for that long by a busy machine may cost a few.
    assert!(meters.echoed_examples <= 100, "{}", meters.echoed_examples);
}

#[test]
fn look_ahead_bounds_what_the_first_batch_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 2000);
    let stream = stream(&dataset, &spec(4, "1", "1"));
    let reads_of_first = |look_ahead| {
        let options = LoaderOptions {
            look_ahead,
            access: Access::Direct,
            ..options()
        };
        let dataset = Arc::clone(&dataset);
        let mut loader = Loader::new(dataset, Arc::clone(&stream), marked(), &options).unwrap();
        loader.next().unwrap().unwrap();
        loader.meters().feed.reads
    };
    // One batch with the consumer, eight in progress or ready, one begun, and two that the feed is ahead.
    let few = reads_of_first(Some(1));
    assert!((4..=4 * 12).contains(&few), "{few}");
    let many = reads_of_first(None);
    assert!(many > 500, "{many}");
}
