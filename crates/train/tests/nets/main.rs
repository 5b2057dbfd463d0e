//! Training of deep nets end to end: runs resume exactly, ranks agree, divergence is reported.

#![cfg(feature = "nets")]

mod finished;
mod settings;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pelton_comm::{Comm, run_ranks};
use pelton_data::{PeerConfig, PeerMode};
use pelton_run::{Event, Manifest, RunContext, RunOptions, Set};
use pelton_train::language::{LanguageNet, Parallel};
use pelton_train::{
    DataConfig, ImageConfig, LanguageConfig, NetSummary, TrainError, image, language,
};
use safetensors::SafeTensors;

const IMAGES: usize = 200;

/// CIFAR-10's format: a class, then three planes of 32 × 32 with a mean that depends on the class.
fn cifar(folder: &Path, name: &str) -> String {
    let mut file = Vec::new();
    for i in 0..IMAGES {
        let class = (i * 7 % 10) as u8;
        file.push(class);
        file.extend((0..3072).map(|at| (class as usize * 20 + at * (i + 3) % 47) as u8));
    }
    let path = folder.join(name);
    std::fs::write(&path, file).unwrap();
    path.display().to_string()
}

fn sentences(folder: &Path, name: &str) -> String {
    let line = |i: usize| {
        let words = (0..2 + i % 7).map(|at| format!("w{}", (i + at * at) % 13));
        words.collect::<Vec<_>>().join(" ") + "\n"
    };
    let path = folder.join(name);
    std::fs::write(&path, (0..120).map(line).collect::<String>()).unwrap();
    path.display().to_string()
}

fn small_image(folder: &Path) -> ImageConfig {
    let mut config = ImageConfig {
        width: 0.25,
        ..ImageConfig::default()
    };
    config.data.paths = vec![cifar(folder, "data_batch_1.bin")];
    config.data.cache_dir = Some(folder.join("cache"));
    config.pipeline.augment = "randomcrop:32:4,flip,normalise:0.5:0.5".parse().ok();
    config.fit.validation = "0.2".parse().ok();
    config.fit.test = vec![cifar(folder, "test_batch.bin")];
    config.fit.epochs = 2;
    config.fit.batch = 32;
    config
}

fn small_language(folder: &Path) -> LanguageConfig {
    let mut config = LanguageConfig {
        hidden: 16,
        dropout: 0.0,
        ..LanguageConfig::default()
    };
    config.data.paths = vec![sentences(folder, "train.txt")];
    config.data.cache_dir = Some(folder.join("cache"));
    config.fit.test = vec![sentences(folder, "test.txt")];
    config.fit.epochs = 2;
    config.fit.batch = 8;
    config.fit.rate = Some(1.0);
    config
}

/// Runs a job on one rank, interrupted after a number of steps if given.
fn run(
    out: PathBuf,
    resume: bool,
    steps: Option<usize>,
    job: impl FnOnce(RunContext<'_>) -> Result<NetSummary, TrainError>,
) -> Result<NetSummary, TrainError> {
    let (comm, interrupt) = (Comm::alone(), Arc::new(AtomicBool::new(false)));
    let mut left = steps;
    let stop = Arc::clone(&interrupt);
    let observer = &mut |event: Event<'_>| {
        if let (Event::Progress { what, .. }, Some(left)) = (event, &mut left)
            && what.starts_with("epoch")
        {
            *left = left.saturating_sub(1);
            stop.store(*left == 0, Ordering::Relaxed);
        }
    };
    let options = RunOptions {
        out,
        resume,
        overwrite: false,
    };
    job(RunContext::new(&comm, &interrupt, observer).in_folder(&options))
}

/// The arrays of a model.
fn model(out: &Path) -> Vec<(String, Vec<f32>)> {
    let bytes = std::fs::read(out.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut arrays: Vec<(String, Vec<f32>)> = file
        .tensors()
        .into_iter()
        .map(|(name, tensor)| (name, bytemuck::pod_collect_to_vec(tensor.data())))
        .collect();
    arrays.sort_by(|a, b| a.0.cmp(&b.0));
    arrays
}

/// Examples, or words, of each epoch.
fn epoch_rows(out: &Path) -> Vec<u64> {
    let metrics = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let lines = metrics
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    lines
        .map(|epoch: serde_json::Value| epoch["rows"].as_u64().unwrap())
        .collect()
}

/// Every epoch ends after its last batch, with or without repeats.
#[test]
fn epochs_have_their_own_examples() {
    for (name, echo, factor) in [
        ("plain", None, 1),
        ("echo", Some("before:2"), 2),
        ("batch", Some("batch:3"), 3),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut config = small_image(folder.path());
        config.fit.validation = None;
        config.pipeline.echo = echo.map(|echo| echo.parse().unwrap());
        config.fit.epochs = 3;
        let out = folder.path().join(name);
        run(out.clone(), false, None, |c| image::run(&config, c)).unwrap();
        assert_eq!(epoch_rows(&out), [factor * IMAGES as u64; 3], "{name}");
    }
}

#[test]
fn an_interrupted_run_on_images_goes_on_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let config = small_image(folder.path());
    let [whole, parts] = ["whole", "parts"].map(|name| folder.path().join(name));
    let expected = run(whole.clone(), false, None, |c| image::run(&config, c)).unwrap();
    // In the middle of each epoch.
    for (resume, steps) in [(false, 2), (true, 4)] {
        let error = run(parts.clone(), resume, Some(steps), |c| {
            image::run(&config, c)
        });
        assert!(error.unwrap_err().is_interruption());
    }
    let resumed = run(parts.clone(), true, None, |c| image::run(&config, c)).unwrap();
    assert_eq!(model(&whole), model(&parts));
    assert_eq!(resumed.test_accuracy, expected.test_accuracy);
    assert_eq!((expected.fresh_examples, expected.steps), (320, 10));
    assert_eq!((resumed.fresh_examples, resumed.steps), (320, 10));
    assert!(whole.join("report.html").exists());
    assert!(expected.best_validation_loss.unwrap().is_finite());
}

/// The next batch is asked for only then.
#[test]
fn a_run_that_is_interrupted_between_epochs_saves_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = small_image(folder.path());
    config.fit.checkpoint_seconds = 1e6;
    let [whole, parts] = ["whole", "parts"].map(|name| folder.path().join(name));
    run(whole.clone(), false, None, |c| image::run(&config, c)).unwrap();
    let (comm, interrupt) = (Comm::alone(), Arc::new(AtomicBool::new(false)));
    let stop = Arc::clone(&interrupt);
    let observer = &mut |event: Event<'_>| {
        if let Event::Note(text) = event
            && text.starts_with("epoch 1")
        {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let options = RunOptions {
        out: parts.clone(),
        resume: false,
        overwrite: false,
    };
    let context = RunContext::new(&comm, &interrupt, observer).in_folder(&options);
    let error = image::run(&config, context).unwrap_err();
    assert!(error.is_interruption());
    assert!(error.to_string().contains("the state is saved"), "{error}");
    run(parts.clone(), true, None, |c| image::run(&config, c)).unwrap();
    assert_eq!(model(&whole), model(&parts));
}

#[test]
fn an_interrupted_run_on_text_goes_on_exactly() {
    for carry in [None, Some(5)] {
        let folder = tempfile::tempdir().unwrap();
        let mut config = small_language(folder.path());
        config.carry = carry;
        config.dropout = 0.3;
        config.tied = true;
        if carry.is_none() {
            config.pipeline.buckets = "auto".parse().ok();
        }
        let [whole, parts] = ["whole", "parts"].map(|name| folder.path().join(name));
        let expected = run(whole.clone(), false, None, |c| language::run(&config, c)).unwrap();
        let stopped = run(parts.clone(), false, Some(3), |c| language::run(&config, c));
        assert!(stopped.unwrap_err().is_interruption());
        let resumed = run(parts.clone(), true, None, |c| language::run(&config, c)).unwrap();
        assert_eq!(model(&whole), model(&parts));
        assert_eq!(resumed.test_perplexity, expected.test_perplexity);
        // Less than the size of the vocabulary: the net learnt something.
        assert!(expected.test_perplexity.unwrap() < 15.0, "{expected:?}");
    }
}

#[test]
fn every_word_is_predicted_once_whatever_the_buckets() {
    let folder = tempfile::tempdir().unwrap();
    let mut losses = Vec::new();
    for buckets in ["none", "auto", "pack:24"] {
        let mut config = small_language(folder.path());
        config.fit.epochs = 1;
        // Nothing changes: all measure the same net.
        config.fit.rate = Some(1e-30);
        config.pipeline.buckets = buckets.parse().ok();
        let out = folder.path().join(buckets.replace(':', "-"));
        let summary = run(out.clone(), false, None, |c| language::run(&config, c)).unwrap();
        assert_eq!(
            (summary.fresh_examples, summary.dropped),
            (120, 0),
            "{buckets}"
        );
        let metrics = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
        let epoch: serde_json::Value = serde_json::from_str(metrics.trim()).unwrap();
        losses.push((
            epoch["rows"].as_u64(),
            epoch["train_loss"].as_f64().unwrap(),
        ));
    }
    // 5 words a sentence on average, and its end.
    let words: u64 = (0..120).map(|i| 2 + i % 7 + 1).sum();
    for (rows, loss) in &losses {
        assert_eq!(*rows, Some(words));
        assert!((loss - losses[0].1).abs() < 1e-6, "{losses:?}");
    }
}

#[test]
fn a_transformer_learns_from_sentences_and_from_packed_rows() {
    for buckets in ["auto", "pack:24"] {
        let folder = tempfile::tempdir().unwrap();
        let mut config = small_language(folder.path());
        config.model = "transformer".parse().unwrap();
        config.heads = 2;
        config.fit.rate = Some(0.3);
        config.fit.epochs = 6;
        config.pipeline.buckets = buckets.parse().ok();
        let out = folder.path().join("run");
        let summary = run(out, false, None, |c| language::run(&config, c)).unwrap();
        assert!(
            summary.test_perplexity.unwrap() < 15.0,
            "{buckets}: {summary:?}"
        );
    }
}

/// Runs a language model on several ranks, interrupted after a number of steps if given.
fn on_ranks(
    ranks: usize,
    out: &Path,
    resume: bool,
    steps: Option<usize>,
    config: &LanguageConfig,
) -> Vec<Result<NetSummary, TrainError>> {
    let options = RunOptions {
        out: out.to_path_buf(),
        resume,
        overwrite: false,
    };
    let ended = run_ranks(ranks, |comm: Comm| {
        let interrupt = Arc::new(AtomicBool::new(false));
        let (mut left, stop) = (steps, Arc::clone(&interrupt));
        let observer = &mut |event: Event<'_>| {
            if let (Event::Progress { what, .. }, Some(left)) = (event, &mut left)
                && what.starts_with("epoch")
            {
                *left = left.saturating_sub(1);
                stop.store(*left == 0, Ordering::Relaxed);
            }
        };
        let context = RunContext::new(&comm, &interrupt, observer).in_folder(&options);
        Ok::<_, TrainError>(language::run(config, context))
    });
    ended.unwrap()
}

/// Two and three ranks take the steps of one, whether they divide batches or layers, except for the order of sums.
#[test]
fn ranks_take_the_same_steps_as_one() {
    let cases = [
        (LanguageNet::Lstm, None, false),
        (LanguageNet::Lstm, Some(5), true),
        (LanguageNet::Transformer, None, true),
    ];
    for (net, carry, tied) in cases {
        let folder = tempfile::tempdir().unwrap();
        let mut config = small_language(folder.path());
        (config.model, config.carry, config.tied) = (net, carry, tied);
        let alone = folder.path().join("alone");
        let expected = run(alone.clone(), false, None, |c| language::run(&config, c)).unwrap();
        let expected_model = model(&alone);
        for (parallel, ranks) in [
            (Parallel::Data, 2),
            (Parallel::Model, 2),
            (Parallel::Model, 3),
        ] {
            config.parallel = parallel;
            let out = folder.path().join(format!("{parallel:?}{ranks}"));
            let summaries = on_ranks(ranks, &out, false, None, &config);
            assert_eq!(epoch_rows(&out), epoch_rows(&alone), "{parallel:?} {ranks}");
            let what = format!("{net} {carry:?} {parallel:?} {ranks}");
            for ((name, a), (_, b)) in expected_model.iter().zip(&model(&out)) {
                assert_eq!(a.len(), b.len());
                for (a, b) in a.iter().zip(b) {
                    assert!((a - b).abs() < 2e-4, "{what} {name}: {a} {b}");
                }
            }
            for summary in summaries {
                let summary = summary.unwrap();
                assert_eq!(summary.fresh_examples, expected.fresh_examples, "{what}");
                let got = summary.test_perplexity.unwrap();
                let ratio = got / expected.test_perplexity.unwrap();
                assert!((ratio - 1.0).abs() < 1e-3, "{what}: {ratio}");
            }
        }
    }
}

#[test]
fn interrupted_ranks_go_on_exactly() {
    for parallel in [Parallel::Data, Parallel::Model] {
        let folder = tempfile::tempdir().unwrap();
        let mut config = small_language(folder.path());
        (config.carry, config.dropout, config.tied) = (Some(5), 0.3, true);
        (config.parallel, config.fit.momentum) = (parallel, 0.5);
        let [whole, parts] = ["whole", "parts"].map(|name| folder.path().join(name));
        on_ranks(2, &whole, false, None, &config);
        for ended in on_ranks(2, &parts, false, Some(3), &config) {
            assert!(ended.unwrap_err().is_interruption());
        }
        for ended in on_ranks(2, &parts, true, None, &config) {
            ended.unwrap();
        }
        assert_eq!(model(&whole), model(&parts), "{parallel:?}");
    }
}

/// Peers' memory changes the source of records and which rank gets them, but not the steps.
#[test]
fn records_from_peers_memory_make_the_same_steps() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = small_language(folder.path());
    let [files, peers] = ["files", "peers"].map(|name| folder.path().join(name));
    on_ranks(2, &files, false, None, &config);
    config.fit.cache = Some(PeerConfig {
        memory_bytes: 0,
        memory_share: Some(1.0),
        mode: PeerMode::Ordered,
        unit_bytes: 1 << 20,
        near: None,
    });
    for ended in on_ranks(2, &peers, false, Some(3), &config) {
        assert!(ended.unwrap_err().is_interruption());
    }
    for ended in on_ranks(2, &peers, true, None, &config) {
        ended.unwrap();
    }
    for ((name, a), (_, b)) in model(&files).iter().zip(&model(&peers)) {
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() < 2e-4, "{name}: {a} {b}");
        }
    }
    config.carry = Some(5);
    for ended in on_ranks(1, &folder.path().join("carry"), false, None, &config) {
        assert!(ended.unwrap_err().to_string().contains("`cache`"));
    }
}

/// Of a file sorted by class, a rank holds records of half the classes. A net with batch norm takes the records that it
/// would take without peers' memory, to the last bit; a net without batch norm takes the records that its rank holds.
#[test]
fn batch_norm_sees_records_of_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let mut sorted: Vec<Vec<u8>> = std::fs::read(cifar(folder.path(), "data_batch_1.bin"))
        .unwrap()
        .chunks(3073)
        .map(<[u8]>::to_vec)
        .collect();
    sorted.sort_by_key(|record| record[0]);
    let mut config = small_image(folder.path());
    std::fs::write(&config.data.paths[0], sorted.concat()).unwrap();
    (config.fit.validation, config.fit.test) = (None, vec![]);
    config.fit.epochs = 1;
    let trained = |config: &ImageConfig, name: &str| -> (Vec<(String, Vec<f32>)>, bool) {
        let options = RunOptions {
            out: folder.path().join(name),
            resume: false,
            overwrite: false,
        };
        let warned = run_ranks(2, |comm: Comm| {
            let (interrupt, mut warned) = (Arc::new(AtomicBool::new(false)), false);
            let observer = &mut |event: Event<'_>| {
                warned |= matches!(event, Event::Note(text) if text.contains("normalises over"));
            };
            let context = RunContext::new(&comm, &interrupt, observer).in_folder(&options);
            image::run(config, context)?;
            Ok::<_, TrainError>(warned)
        });
        (model(&options.out), warned.unwrap()[0])
    };
    for (net, is_normalised) in [("small", true), ("mlp", false)] {
        config.model = net.parse().unwrap();
        config.fit.cache = None;
        let (files, _) = trained(&config, &format!("{net}-files"));
        let mut of_peers = |near: Option<bool>| {
            config.fit.cache = Some(PeerConfig {
                memory_bytes: 0,
                memory_share: Some(1.0),
                mode: PeerMode::Ordered,
                unit_bytes: 1 << 20,
                near,
            });
            trained(&config, &format!("{net}-{near:?}"))
        };
        let (by_default, asked) = (of_peers(None), of_peers(Some(true)));
        assert_ne!(asked.0, files, "{net}");
        assert_eq!(asked.1, is_normalised, "{net}");
        let expected = if is_normalised { &files } else { &asked.0 };
        assert!(by_default.0 == *expected && !by_default.1, "{net}");
    }
}

/// Settings that the saved state depends on cannot change; others can.
#[test]
fn a_run_goes_on_with_its_own_net_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = small_language(folder.path());
    config.model = LanguageNet::Transformer;
    let out = folder.path().join("run");
    let stopped = run(out.clone(), false, Some(3), |c| language::run(&config, c));
    assert!(stopped.unwrap_err().is_interruption());
    let refused = |change: &dyn Fn(&mut LanguageConfig), parts: [&str; 2]| {
        let mut config = config.clone();
        change(&mut config);
        let error = run(out.clone(), true, None, |c| language::run(&config, c)).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("run.toml: the run was started with"),
            "{error}"
        );
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    refused(&|c| c.heads = 2, ["`heads` 4", "with 2;"]);
    refused(&|c| c.hidden = 8, ["`hidden` 16", "with 8;"]);
    refused(&|c| c.fit.seed = 3, ["`seed` 0", "with 3;"]);
    let adamw = pelton_train::Optimizer::Adamw;
    refused(
        &|c| c.fit.optimizer = adamw,
        ["`optimizer` sgd", "with adamw;"],
    );
    config.fit.rate = Some(0.5);
    config.fit.clip = None;
    run(out, true, None, |c| language::run(&config, c)).unwrap();
}

/// A net can only be cut between layers.
#[test]
fn more_ranks_than_layers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = small_language(folder.path());
    config.parallel = Parallel::Model;
    for ended in on_ranks(12, &folder.path().join("run"), false, None, &config) {
        let text = ended.unwrap_err().to_string();
        assert!(text.contains("12 ranks"), "{text}");
    }
}

#[test]
fn what_goes_astray_is_said_with_the_step_and_the_records() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = small_image(folder.path());
    config.fit.rate = Some(1e30);
    let out = folder.path().join("run");
    let error = run(out, false, None, |c| image::run(&config, c)).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("no longer finite") && text.contains("(records "),
        "{text}"
    );
    let mut config = small_image(folder.path());
    config.fit.smoothing = 1.5;
    let refused = run(folder.path().join("other"), false, None, |c| {
        image::run(&config, c)
    });
    assert!(refused.unwrap_err().to_string().contains("`smoothing`"));
}

/// The last step made non-finite parameters: no model is written, and the last good checkpoint stays.
#[test]
fn parameters_that_are_no_numbers_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = small_image(folder.path());
    config.fit.batch = IMAGES as u64;
    (config.fit.validation, config.fit.test) = (None, vec![]);
    config.fit.epochs = 1;
    config.fit.rate = Some(1e30);
    let astray = |text: &str, remedy: &str| {
        assert!(text.contains("no longer finite after step"), "{text}");
        assert!(
            text.contains(remedy) && text.contains("smaller `rate`"),
            "{text}"
        );
    };
    let left = |out: &Path, name: &str| out.join(name).exists();
    let out = folder.path().join("image");
    let error = run(out.clone(), false, None, |c| image::run(&config, c)).unwrap_err();
    astray(&error.to_string(), "no checkpoint to resume from");
    assert!(!left(&out, "model.safetensors") && !left(&out, "checkpoint/manifest.json"));
    // The second epoch goes astray.
    config.fit.rate = Some(0.1);
    config.fit.epochs = 2;
    config.fit.schedule = "step:1,1,1,1,1,1:1e6".parse().unwrap();
    let out = folder.path().join("later");
    let error = run(out.clone(), false, None, |c| image::run(&config, c)).unwrap_err();
    astray(&error.to_string(), "continue from the last checkpoint");
    assert!(!left(&out, "model.safetensors"));
    config.fit.schedule = "constant".parse().unwrap();
    let summary = run(out.clone(), true, None, |c| image::run(&config, c)).unwrap();
    assert_eq!(summary.epochs, 2);
    // A text, on ranks with one layer each.
    let mut config = small_language(folder.path());
    (config.fit.batch, config.fit.epochs, config.fit.rate) = (200, 1, Some(1e30));
    config.fit.test = vec![];
    config.parallel = Parallel::Model;
    let out = folder.path().join("text");
    for ended in on_ranks(2, &out, false, None, &config) {
        astray(
            &ended.unwrap_err().to_string(),
            "no checkpoint to resume from",
        );
    }
    assert!(!left(&out, "model.safetensors"));
}

/// Parameters may be finite but too large for a finite loss.
#[test]
fn a_loss_on_other_data_that_is_no_number_ends_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = small_image(folder.path());
    config.fit.batch = IMAGES as u64;
    config.fit.epochs = 1;
    config.fit.rate = Some(1e17);
    let out = folder.path().join("run");
    let error = run(out.clone(), false, None, |c| image::run(&config, c)).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("the loss on validation data is no longer finite"),
        "{text}"
    );
    assert!(!out.join("checkpoint/manifest.json").exists());
}

#[test]
fn a_damaged_checkpoint_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = small_language(folder.path());
    let out = folder.path().join("run");
    let stopped = run(out.clone(), false, Some(3), |c| language::run(&config, c));
    assert!(stopped.unwrap_err().is_interruption());
    let manifest = Manifest::open(&out, Set::Checkpoint).unwrap().unwrap();
    let file = manifest.path(manifest.named("checkpoint/state", "").unwrap());
    let bytes = std::fs::read(&file).unwrap();
    for at in [3, bytes.len() / 3, bytes.len() - 5] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&file, damaged).unwrap();
        let error = run(out.clone(), true, None, |c| language::run(&config, c)).unwrap_err();
        assert!(error.to_string().contains("checkpoint/state-"), "{error}");
    }
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let error = run(out, true, None, |c| language::run(&config, c)).unwrap_err();
    assert!(error.to_string().contains("checkpoint/state-"), "{error}");
}

#[test]
fn a_run_goes_on_with_its_own_data_only() {
    let folder = tempfile::tempdir().unwrap();
    let config = small_language(folder.path());
    let out = folder.path().join("run");
    let stopped = run(out.clone(), false, Some(3), |c| language::run(&config, c));
    assert!(stopped.unwrap_err().is_interruption());
    let text = std::fs::read(&config.data.paths[0]).unwrap();
    std::fs::write(&config.data.paths[0], "other words\n".repeat(120)).unwrap();
    let error = run(out.clone(), true, None, |c| language::run(&config, c)).unwrap_err();
    assert!(error.to_string().contains("other data"), "{error}");
    // Nothing was lost.
    std::fs::write(&config.data.paths[0], text).unwrap();
    run(out, true, None, |c| language::run(&config, c)).unwrap();
}

/// Images of 8 × 8 in the format of MNIST.
fn small_pictures(folder: &Path) -> String {
    let n = 20u8;
    let images = [0, 0, 8, 3, 0, 0, 0, n, 0, 0, 0, 8, 0, 0, 0, 8];
    let images = [&images[..], &[7; 20 * 64]].concat();
    let labels: Vec<u8> = [0, 0, 8, 1, 0, 0, 0, n]
        .into_iter()
        .chain((0..n).map(|i| i % 10))
        .collect();
    std::fs::write(folder.join("t10k-labels-idx1-ubyte"), labels).unwrap();
    let path = folder.join("t10k-images-idx3-ubyte");
    std::fs::write(&path, images).unwrap();
    path.display().to_string()
}

#[test]
fn images_of_another_size_are_refused_before_the_first_step() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = small_image(folder.path());
    config.fit.test = vec![small_pictures(folder.path())];
    let out = folder.path().join("run");
    let error = run(out.clone(), false, None, |c| image::run(&config, c)).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("t10k-images-idx3-ubyte") && text.contains("32×32×1, the net takes 32×32×3"),
        "{text}"
    );
    assert!(!out.exists());
}
