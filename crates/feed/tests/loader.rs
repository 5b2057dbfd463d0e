//! Loaders hand out exactly what the plan says, whatever the stages, threads, access path and place they
//! begin at.

mod fixtures;

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fixtures::open;
use pelton_batch::{Array, Batch, Layout};
use pelton_feed::{
    AutoEcho, BadExamples, Collate, EchoPoint, FeedError, Function, Loader, LoaderOptions,
    LoaderState, Stages, TEXT, Tokenise, Value,
};
use pelton_fetch::FetchError;
use pelton_fetch::{Access, Cursor};
use pelton_format::{Dataset, FormatKind, LabelColumn, OpenOptions};
use pelton_plan::{Batching, Catalog, Order, Place, Plan, PlanSpec, StepBatch};
use pelton_text::{Ends, Vocabulary, VocabularyOptions};

/// Lines whose content says which they are, of different lengths.
fn lines(folder: &Path, records: u64) -> Arc<Dataset> {
    let line = |id: u64| format!("id {id} {}", "word ".repeat((id * 7 % 13) as usize));
    let text: Vec<String> = (0..records).map(line).collect();
    let path = folder.join("lines.txt");
    fs::write(&path, text.join("\n")).unwrap();
    open(&[path])
}

fn spec(batch: u64, echo: &str, batch_echo: &str) -> PlanSpec {
    PlanSpec {
        echo: echo.parse().unwrap(),
        batch_echo: batch_echo.parse().unwrap(),
        ..PlanSpec::new(Order::Full, batch, 7)
    }
}

fn stream(dataset: &Dataset, spec: &PlanSpec) -> Arc<Plan> {
    Arc::new(Plan::new(spec, Catalog::of(dataset.records())).unwrap())
}

fn options() -> LoaderOptions {
    LoaderOptions {
        end_epoch: Some(2),
        threads: 3,
        ..LoaderOptions::with_memory(4 << 20)
    }
}

/// The id that a line begins with.
fn said(bytes: &[u8]) -> u64 {
    let digits = bytes.split(|&byte| byte == b' ').nth(1).unwrap();
    std::str::from_utf8(digits).unwrap().parse().unwrap()
}

/// The one field beside the labels.
fn data(batch: &Batch) -> &Array {
    batch.fields.iter().next().unwrap().1
}

/// Samples of a batch, as bytes, padding included.
fn samples(batch: &Batch) -> Vec<Vec<u8>> {
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

/// What is compared of a batch: its place, its ids and copies, and its samples.
type Seen = (u64, u64, Vec<u64>, Vec<u32>, Vec<Vec<u8>>);

fn seen(batch: &Batch) -> Seen {
    (
        batch.epoch,
        batch.step,
        batch.ids.clone(),
        batch.copies.clone(),
        samples(batch),
    )
}

fn run(
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
fn planned(stream: &Plan, epochs: u64) -> Vec<(u64, u64, Vec<u64>, Vec<u32>)> {
    let mut batch = StepBatch::default();
    let mut all = Vec::new();
    let mut walk = stream.walk(Place::default(), None);
    while walk.place().epoch < epochs && walk.next(&mut batch) {
        let (ids, copies) = (batch.ids.clone(), batch.copies.clone());
        all.push((batch.epoch, batch.step, ids, copies));
    }
    all
}

/// Marks every sample with the random key of its appearance, in place of an augmentation.
fn marked() -> Stages {
    ragged().then(marking())
}

fn ragged() -> Stages {
    Stages::default().collated(Collate::Ragged)
}

fn marking() -> Function {
    Function::at_appearance(|sample, appearance| {
        let Some(Value::Bytes(bytes)) = sample.get_mut(TEXT) else {
            return Err("lines are bytes".into());
        };
        let mark = format!(" #{:016x}", appearance.key);
        bytes.to_mut().extend_from_slice(mark.as_bytes());
        Ok(())
    })
}

fn all_kinds() -> Vec<(PlanSpec, EchoPoint)> {
    let before = EchoPoint::BeforeAugment;
    vec![
        (spec(7, "1", "1"), before),
        (spec(7, "2:16", "1"), before),
        (spec(7, "2.5:8", "1"), EchoPoint::AfterAugment),
        (spec(7, "1", "2:4"), before),
        (spec(1000, "3", "1"), before),
        (
            PlanSpec {
                order: Order::Sequential,
                batching: Batching::DropLast(10),
                ..spec(10, "1.3:20", "1")
            },
            before,
        ),
    ]
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
    // Another field is the label: the one of that name gives way.
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
    assert_eq!(distinct(&spec(8, "3", "1"), EchoPoint::BeforeAugment), 120);
    assert_eq!(distinct(&spec(8, "3", "1"), EchoPoint::AfterAugment), 40);
    assert_eq!(distinct(&spec(8, "1", "3:2"), EchoPoint::BeforeAugment), 40);
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
fn failing(bad: &'static [u64]) -> Stages {
    Stages::default().then(Function::at_read(|_, appearance| {
        match bad.contains(&appearance.id) {
            true => Err("it does not like it".into()),
            false => Ok(()),
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
        "each repeat is augmented anew"
    );
    assert_eq!(loader.state().auto_batches * 4, meters.echoed_examples);

    // A consumer that is slower than the source gets no repeats.
    let mut loader = Loader::new(dataset, stream, marked(), &auto).unwrap();
    while loader.next().transpose().unwrap().is_some() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let meters = loader.meters();
    // Threads that a busy machine holds up for that long may cost a few.
    assert!(meters.echoed_examples <= 100, "{}", meters.echoed_examples);
}

#[test]
fn a_state_of_something_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 50);
    let first = stream(&dataset, &spec(8, "1", "1"));
    let other = stream(&dataset, &spec(9, "1", "1"));
    let loader = Loader::new(
        Arc::clone(&dataset),
        Arc::clone(&first),
        marked(),
        &options(),
    )
    .unwrap();
    let state = loader.state();
    let refused = |state: &LoaderState, stream: &Plan| {
        let error = state
            .resume(&dataset, stream, &marked(), &options())
            .unwrap_err();
        assert!(matches!(error, FeedError::State(_)));
        error.to_string()
    };
    assert!(refused(&state, &other).contains("another order"));
    let mut beyond = state.clone();
    beyond.step = 8;
    assert!(refused(&beyond, &first).contains("beyond"));
    let elsewhere = tempfile::tempdir().unwrap();
    let data = lines(elsewhere.path(), 49);
    let error = state
        .resume(&data, &first, &marked(), &options())
        .unwrap_err();
    assert!(error.to_string().contains("other data"), "{error}");
    let json = state.to_json();
    for text in [
        "",
        "{}",
        "[1]",
        &json.replace("\"version\":3", "\"version\":4"),
        &json.replace("\"version\":3", "\"version\":2"),
        &json[..20],
    ] {
        let error = LoaderState::from_json(text).unwrap_err();
        assert!(matches!(error, FeedError::State(_)), "{text}: {error}");
    }
    assert_eq!(LoaderState::from_json(&json).unwrap(), state);
    let options = state
        .resume(&dataset, &first, &marked(), &options())
        .unwrap();
    assert_eq!(options.start, Cursor::default());
}

/// A pipeline that numbers words by the vocabulary of `text`.
fn of_words(text: &str, end: bool) -> Stages {
    let vocabulary = Vocabulary::from_sentences([text], &VocabularyOptions::default()).unwrap();
    let ends = Ends { begin: false, end };
    Stages::default().then(Tokenise::by(Arc::new(vocabulary), ends))
}

#[test]
fn a_state_of_another_vocabulary_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 50);
    let stream = stream(&dataset, &spec(8, "1", "1"));
    let state_of = |stages: &Stages| {
        let (dataset, stream) = (Arc::clone(&dataset), Arc::clone(&stream));
        let mut loader = Loader::new(dataset, stream, stages.clone(), &options()).unwrap();
        loader.next().unwrap().unwrap();
        loader.state()
    };
    let resume =
        |state: &LoaderState, stages: &Stages| state.resume(&dataset, &stream, stages, &options());
    let words = of_words("id word", true);
    let state = state_of(&words);
    // Words counted otherwise have the same numbers.
    let options = resume(&state, &of_words("id word id", true)).unwrap();
    assert_eq!(options.start, Cursor { epoch: 0, next: 1 });

    let refused = |state: &LoaderState, stages: &Stages, reason: &str| {
        let error = resume(state, stages).unwrap_err();
        assert!(matches!(error, FeedError::State(_)));
        assert!(error.to_string().contains(reason), "{error}");
    };
    for other in [
        of_words("id words", true),
        of_words("word word id", true),
        of_words("id word", false),
    ] {
        refused(&state, &other, "another vocabulary");
    }
    refused(&state, &marked(), "of a pipeline that decodes text");
    let plain = state_of(&marked());
    resume(&plain, &marked()).unwrap();
    refused(&plain, &words, "does not decode text");

    for version in 1..3 {
        let json = format!(
            "{{\"version\":{version},\"data\":\"0\",\"plan\":\"0\",\"epoch\":0,\"step\":1}}"
        );
        let error = LoaderState::from_json(&json).unwrap_err().to_string();
        let says = format!("it has version {version} and this program reads version 3");
        assert!(error.contains(&says), "{error}");
    }
}

/// A state holds a hint of the last 64 steps, and one without it, or with a damaged one, means the same batches.
#[test]
fn a_state_goes_on_with_its_hint_and_without() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = lines(folder.path(), 3000);
    let spec = PlanSpec {
        buckets: Some("static:9,10,20".parse().unwrap()),
        ..spec(7, "2:16", "1")
    };
    let length_of = |id| dataset.locate(id).length as u32;
    let over = Catalog::of(dataset.records()).with_lengths(&length_of);
    let stream = Arc::new(Plan::new(&spec, over).unwrap());
    let planned = planned(&stream, 2);
    let new = |options: &LoaderOptions| {
        Loader::new(Arc::clone(&dataset), Arc::clone(&stream), marked(), options).unwrap()
    };
    let mut loader = new(&options());
    for (step, expected) in planned.iter().enumerate() {
        let batch = loader.next().unwrap().unwrap();
        assert_eq!((&batch.ids, &batch.copies), (&expected.2, &expected.3));
        // Nothing is gained by a hint of the first steps of an epoch.
        if step % 97 != 96 || expected.1 < 64 {
            continue;
        }
        let json = loader.state().to_json();
        let hint = json.split("\"hint\":\"").nth(1).expect("a hint");
        let (hint, _) = hint.split_once('"').unwrap();
        let damaged = json.replace(hint, &hint.replace('a', "b"));
        let without = json.replace(&format!(",\"hint\":\"{hint}\""), "");
        assert!(without.len() < json.len());
        for json in [&json, &damaged, &without] {
            let state = LoaderState::from_json(json).unwrap();
            let options = state.resume(&dataset, &stream, &marked(), &options());
            let mut resumed = new(&options.unwrap());
            for expected in planned[step + 1..].iter().take(3) {
                let batch = resumed.next().unwrap().unwrap();
                assert_eq!((&batch.ids, &batch.copies), (&expected.2, &expected.3));
            }
        }
    }
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
    // One batch in hand, eight under way or ready, one begun, and two that the feed is ahead.
    let few = reads_of_first(Some(1));
    assert!((4..=4 * 12).contains(&few), "{few}");
    let many = reads_of_first(None);
    assert!(many > 500, "{many}");
}
