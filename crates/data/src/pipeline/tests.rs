//! Pipelines from configurations and data.

use super::*;
use crate::config::DataConfig;
use crate::open::open;
use pelton_feed::{TARGET_TOKENS, TOKENS};
use pelton_run::Interrupt;

/// 100 sentences of 1 to 7 words.
fn sentences(folder: &std::path::Path, name: &str, records: usize) -> String {
    let path = folder.join(name);
    let lines = (0..records).map(|i| format!("word{i}{}\n", " the".repeat(i % 7)));
    std::fs::write(&path, lines.collect::<String>()).unwrap();
    path.display().to_string()
}

fn terms() -> PipelineTerms {
    PipelineTerms {
        order: Order::Full,
        among: None,
        sampler: None,
        lengths: None,
        batch: Some(8),
        seed: 3,
        epochs: Some(2),
        memory_bytes: 8 << 20,
        threads: 2,
        access: Access::Auto,
        cache: None,
        ranks: None,
        by_class: false,
        vocabulary: None,
    }
}

/// A hundred sentences to train on.
fn hundred(folder: &std::path::Path) -> DataConfig {
    DataConfig {
        paths: vec![sentences(folder, "train.txt", 100)],
        cache_dir: Some(folder.join("cache")),
        ..DataConfig::default()
    }
    .with_bytes()
}

/// As in a training job: loaders that begin, resume, and evaluate on other data with the same vocabulary.
#[test]
fn loaders_begin_go_on_and_evaluate() {
    let folder = tempfile::tempdir().unwrap();
    let data = hundred(folder.path());
    let test = vec![sentences(folder.path(), "test.txt", 20)];
    let (comm, interrupt) = (Comm::alone(), Interrupt::default());
    let observer = &mut |_: pelton_run::Event<'_>| {};
    let mut context = RunContext::new(&comm, &interrupt, observer);
    let opened = open(&data, &data.paths, None, &mut context).unwrap();
    let opened_test = open(&data, &test, None, &mut context).unwrap();
    let config = PipelineConfig {
        decode: "words".parse().unwrap(),
        buckets: Some("auto".parse().unwrap()),
        echo: Some("before:2:8".parse().unwrap()),
        ..PipelineConfig::default()
    };
    let pipeline = PreparedPipeline::new(&config, &terms(), &opened, &mut context).unwrap();
    let mut loader = pipeline.loader(None, &comm).unwrap();
    let mut ids = Vec::new();
    let mut states = Vec::new();
    loop {
        states.push(loader.state());
        let Some(batch) = loader.next() else { break };
        ids.push(batch.unwrap().ids);
    }
    assert_eq!(ids.concat().len(), 400, "two epochs, each example twice");
    loader.check_bad(&comm, false).unwrap();
    for at in [0, 1, ids.len() / 2, ids.len()] {
        let again = pipeline.loader(Some(&states[at]), &comm).unwrap();
        let rest: Vec<Vec<u64>> = again.map(|batch| batch.unwrap().ids).collect();
        assert_eq!(rest, ids[at..], "from batch {at}");
    }

    let measured = pipeline
        .evaluation(&opened_test, None, &mut context)
        .unwrap();
    let numbers = |word: &[u8]| pipeline.vocabulary().unwrap().id(word);
    assert_eq!(measured.vocabulary().unwrap().id(b"the"), numbers(b"the"));
    let mut loader = measured.loader(None, &comm).unwrap();
    for epoch in 0..2 {
        let steps = measured.plan().steps(epoch) as usize;
        let batches = loader.by_ref().take(steps);
        let ids = batches.flat_map(|batch| batch.unwrap().ids);
        assert_eq!(ids.collect::<Vec<u64>>(), (0..20).collect::<Vec<u64>>());
    }
}

/// A share of the records is held out: training sees only the others, evaluation only these.
#[test]
fn what_is_held_out_is_measured_and_not_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let data = hundred(folder.path());
    let (comm, interrupt) = (Comm::alone(), Interrupt::default());
    let observer = &mut |_: pelton_run::Event<'_>| {};
    let mut context = RunContext::new(&comm, &interrupt, observer);
    let opened = open(&data, &data.paths, None, &mut context).unwrap();
    let held = crate::HeldOut::share(100, 0.1, 3).unwrap();
    let config = PipelineConfig {
        decode: "words".parse().unwrap(),
        buckets: Some("auto".parse().unwrap()),
        // 3 words and the end: ids with i % 7 == 2 among the records in use.
        keep_lengths: Some("4..4".parse().unwrap()),
        ..PipelineConfig::default()
    };
    let any_length = PipelineConfig {
        keep_lengths: None,
        ..config.clone()
    };
    let terms = PipelineTerms {
        among: Some(held.training.clone()),
        epochs: Some(1),
        ..terms()
    };
    let mut seen = |config: &PipelineConfig| {
        let pipeline = PreparedPipeline::new(config, &terms, &opened, &mut context).unwrap();
        let ids = |loader: PipelineLoader, steps: u64| {
            let batches = loader.take(steps as usize);
            let mut ids: Vec<u64> = batches.flat_map(|batch| batch.unwrap().ids).collect();
            ids.sort_unstable();
            ids
        };
        let steps = pipeline.plan().steps(0);
        let trained = ids(pipeline.loader(None, &comm).unwrap(), steps);
        let measured = pipeline.validation(&held.validation, &mut context).unwrap();
        let steps = measured.plan().steps(0);
        (trained, ids(measured.loader(None, &comm).unwrap(), steps))
    };
    let of = |kept: &Selection, keeps: fn(&u64) -> bool| -> Vec<u64> {
        (0..100)
            .filter(|&id| kept.contains(id))
            .filter(keeps)
            .collect()
    };
    let (trained, measured) = seen(&any_length);
    assert_eq!(trained, of(&held.training, |_| true));
    assert_eq!(measured, of(&held.validation, |_| true));
    assert_eq!((trained.len(), measured.len()), (90, 10));
    let (trained, measured) = seen(&config);
    assert_eq!(trained, of(&held.training, |id| id % 7 == 2));
    assert_eq!(measured, of(&held.validation, |_| true));
}

/// Two paired texts: batches have both sides of every pair, each padded to its bucket's length.
#[test]
fn pairs_are_padded_on_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, words: &dyn Fn(usize) -> usize| {
        let path = folder.path().join(name);
        let lines = (0..200).map(|i| format!("{name}{i}{}\n", " und".repeat(words(i))));
        std::fs::write(&path, lines.collect::<String>()).unwrap();
        path
    };
    let (first, second) = (|i: usize| i % 9, |i: usize| i % 9 + i % 4);
    let path = file("a", &first);
    let data = DataConfig {
        paths: vec![path.display().to_string()],
        pair: Some(file("b", &second)),
        cache_dir: Some(folder.path().join("cache")),
        ..DataConfig::default()
    }
    .with_bytes();
    let (comm, interrupt) = (Comm::alone(), Interrupt::default());
    let observer = &mut |_: pelton_run::Event<'_>| {};
    let mut context = RunContext::new(&comm, &interrupt, observer);
    let opened = open(&data, &data.paths, None, &mut context).unwrap();
    let mut config = PipelineConfig {
        decode: "words".parse().unwrap(),
        ..PipelineConfig::default()
    };
    let refused = PreparedPipeline::new(&config, &terms(), &opened, &mut context);
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("give `decode` pairs"), "{error}");
    config.decode = "pairs".parse().unwrap();
    for policy in ["none", "static:4x5,6,9x20", "auto", "tokens:60"] {
        config.buckets = Some(policy.parse().unwrap());
        let pipeline = PreparedPipeline::new(&config, &terms(), &opened, &mut context).unwrap();
        let vocabulary = Arc::clone(pipeline.vocabulary().unwrap());
        let layout = pipeline.plan().bucket_layout().unwrap().clone();
        let mut loader = pipeline.loader(None, &comm).unwrap();
        let mut seen = 0;
        for batch in loader.by_ref() {
            let batch = batch.unwrap();
            let bucket = layout.buckets()[batch.bucket.unwrap() as usize];
            let sides = [
                (
                    TOKENS,
                    "a",
                    bucket.longest,
                    &first as &dyn Fn(usize) -> usize,
                ),
                (TARGET_TOKENS, "b", bucket.second, &second),
            ];
            for (name, word, longest, words) in sides {
                let tokens = batch.get(name).unwrap();
                assert_eq!(tokens.shape().dims, [batch.len(), longest as usize]);
                for (i, &id) in batch.ids.iter().enumerate() {
                    let mut text = Vec::new();
                    let ids = tokens.sample(i).as_chunks::<4>().0.iter();
                    let ids: Vec<u32> = ids.map(|id| u32::from_le_bytes(*id)).collect();
                    vocabulary.decode(&ids, &mut text).unwrap();
                    let und = " und".repeat(words(id as usize));
                    let expected = format!("{word}{id}{und}");
                    assert!(text.starts_with(expected.as_bytes()), "{policy}");
                    assert_eq!(ids.len(), words(id as usize) + 2, "words and the end");
                }
            }
            seen += batch.len();
        }
        assert_eq!(seen, 400);
        let padded = loader.meters().padded_fraction();
        assert!((padded - layout.padded_fraction()).abs() < 1e-9, "{policy}");
    }
    config.buckets = Some("optimal:4".parse().unwrap());
    let refused = PreparedPipeline::new(&config, &terms(), &opened, &mut context);
    let error = refused.err().unwrap().to_string();
    assert!(
        error.contains("does not apply to pairs of sentences"),
        "{error}"
    );
}

#[test]
fn settings_that_do_nothing_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = DataConfig {
        paths: vec![sentences(folder.path(), "train.txt", 9)],
        ..DataConfig::default()
    }
    .with_bytes();
    let (comm, interrupt) = (Comm::alone(), Interrupt::default());
    let observer = &mut |_: pelton_run::Event<'_>| {};
    let mut context = RunContext::new(&comm, &interrupt, observer);
    let opened = open(&data, &data.paths, None, &mut context).unwrap();
    let mut check = |config: PipelineConfig, part: &str| {
        let refused = PreparedPipeline::new(&config, &terms(), &opened, &mut context);
        let error = refused.err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    };
    let exif = PipelineConfig {
        exif: Exif::Apply,
        ..PipelineConfig::default()
    };
    check(exif, "`exif` apply does nothing with `decode` none");
    let planar = PipelineConfig {
        decode: "words".parse().unwrap(),
        planar: true,
        ..PipelineConfig::default()
    };
    check(planar, "`planar` applies to pictures");
    let vocabulary = PipelineConfig {
        vocabulary: Some("words.bin".into()),
        ..PipelineConfig::default()
    };
    check(vocabulary, "`vocabulary` words.bin does nothing");
    let mix = PipelineConfig {
        mix: Some(vec![0.5, 0.5]),
        ..PipelineConfig::default()
    };
    check(mix, "`mix` has 2 shares for 1 files");
}

/// Fields as long as `lengths` counts are packed; the other fields of a record have one value per sample.
#[test]
fn packed_rows_carry_other_fields() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.jsonl");
    let line = |i: usize| {
        let (words, ids) = ("a b ".repeat(1 + i % 5), vec![i; 1 + i % 7]);
        format!(
            "{{\"text\":\"{words}\",\"ids\":{ids:?},\"marks\":{ids:?},\"n\":{i},\"pair\":[{i},1]}}\n"
        )
    };
    std::fs::write(&path, (0..50).map(line).collect::<String>()).unwrap();
    let data = DataConfig {
        paths: vec![path.display().to_string()],
        cache_dir: Some(folder.path().join("cache")),
        ..DataConfig::default()
    }
    .with_bytes();
    let (comm, interrupt) = (Comm::alone(), Interrupt::default());
    let observer = &mut |_: pelton_run::Event<'_>| {};
    let mut context = RunContext::new(&comm, &interrupt, observer);
    let opened = open(&data, &data.paths, None, &mut context).unwrap();
    let mut batches = |decode: &str, lengths: Option<&str>, collate: &str| {
        let config = PipelineConfig {
            decode: decode.parse().unwrap(),
            buckets: Some("pack:30".parse().unwrap()),
            lengths: lengths.map(|text| text.parse().unwrap()),
            collate: collate.parse().unwrap(),
            ..PipelineConfig::default()
        };
        let terms = PipelineTerms {
            epochs: Some(1),
            ..terms()
        };
        let pipeline = PreparedPipeline::new(&config, &terms, &opened, &mut context)?;
        let loader = pipeline.loader(None, &comm)?;
        loader
            .map(|batch| batch.map_err(DataError::from))
            .collect::<Result<Vec<Batch>, _>>()
    };
    let refused = batches("none", None, "auto").unwrap_err().to_string();
    assert!(refused.contains("as in `lengths` field:"), "{refused}");
    for (decode, lengths, collate, packed) in [
        ("words", None, "auto", &["tokens"][..]),
        (
            "none",
            Some("field:ids"),
            "auto,pair=stack",
            &["ids", "marks"],
        ),
        (
            "none",
            Some("field:ids"),
            "auto,pair=stack,marks=ragged",
            &["ids"],
        ),
    ] {
        let mut seen = Vec::new();
        for batch in batches(decode, lengths, collate).unwrap() {
            let samples = batch.ids.len();
            for (name, array) in batch.fields.iter() {
                let is_packed = matches!(array.shape().layout, pelton_batch::Layout::Packed { .. });
                assert_eq!(is_packed, packed.contains(&name), "{decode} {name}");
                let rows = match &array.shape().layout {
                    pelton_batch::Layout::Ragged { offsets, .. } => offsets.len() - 1,
                    pelton_batch::Layout::Packed { lengths, .. } => lengths.len(),
                    _ => array.shape().dims[0],
                };
                assert_eq!(rows, samples, "{decode} {name}");
            }
            let numbers = batch.values::<i64>("n").unwrap();
            assert!(
                numbers
                    .iter()
                    .zip(&batch.ids)
                    .all(|(&n, &id)| n as u64 == id)
            );
            seen.extend(batch.ids);
        }
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..50), "{decode}");
    }
    let refused = batches("none", Some("field:ids"), "auto")
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("packed fields have the same lengths"),
        "{refused}"
    );
}
