//! Training with heads over very many classes, end to end: ranks agree, a run resumes exactly and on other numbers of
//! ranks.

#![cfg(feature = "nets")]

mod class_sizes;
mod finished_models;
mod several_labels;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pelton_comm::{Comm, run_ranks};
use pelton_run::{Event, RunContext, RunOptions};
use pelton_train::classify::HeadChoice;
use pelton_train::evaluate::EvaluateConfig;
use pelton_train::finished;
use pelton_train::{DataConfig, ImageConfig, NetSummary, TrainError, image};

mod steps;

const KINDS: [&str; 5] = [
    "full",
    "knn:5:0.4",
    "sampled:0.5",
    "selective:3:0.5",
    "mach:20:3",
];

fn config(folder: &Path, kind: &str) -> ImageConfig {
    let mut config = ImageConfig::for_classify();
    config.width = 0.125;
    config.data.paths = vec!["demo:classes:120:4:16".to_string()];
    config.data.cache_dir = Some(folder.join("cache"));
    let head = config.head.as_mut().unwrap();
    head.kind = kind.parse().unwrap();
    head.embedding = 12;
    config.fit.epochs = 2;
    config.fit.batch = 40;
    config.fit.rate = Some(0.05);
    config.fit.checkpoint_seconds = 1000.0;
    config
}

/// Runs on ranks, interrupted after a number of steps if given.
fn run(
    config: &ImageConfig,
    out: &Path,
    ranks: usize,
    resume: bool,
    steps: Option<usize>,
) -> Result<NetSummary, TrainError> {
    let interrupt = Arc::new(AtomicBool::new(false));
    let options = RunOptions {
        out: out.to_path_buf(),
        resume,
        overwrite: false,
    };
    let summaries = run_ranks(ranks, |comm| {
        let (mut left, is_first) = (steps, comm.rank() == 0);
        let stop = Arc::clone(&interrupt);
        let observer = &mut |event: Event<'_>| {
            if let (Event::Progress { what, .. }, Some(left)) = (event, &mut left)
                && is_first
                && what.starts_with("epoch")
            {
                *left = left.saturating_sub(1);
                stop.store(*left == 0, Ordering::Relaxed);
            }
        };
        image::run(
            config,
            RunContext::new(&comm, &interrupt, observer).in_folder(&options),
        )
    });
    summaries
        .map(|mut all| all.remove(0))
        .map_err(|failed| failed.source)
}

fn losses(out: &Path) -> Vec<f64> {
    let metrics = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let of_line = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        value["train_loss"].as_f64().unwrap()
    };
    metrics.lines().map(of_line).collect()
}

fn assert_close(what: &str, a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (a, b) in a.iter().zip(b) {
        // Sums in another order, over twenty-four steps.
        assert!((a - b).abs() < 2e-4 * a.abs(), "{what}: {a} {b}");
    }
}

#[test]
fn ranks_and_micro_batches_have_the_same_losses() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, centre) in KINDS
        .into_iter()
        .flat_map(|kind| [(kind, false), (kind, true)])
    {
        let mut config = config(folder.path(), kind);
        config.head.as_mut().unwrap().centre = centre;
        let alone = folder.path().join(format!("{kind}-{centre}"));
        let summary = run(&config, &alone, 1, false, None).unwrap();
        assert_eq!(
            (summary.classes, summary.iterations),
            (Some(120), Some(24)),
            "{kind}"
        );
        let expected = losses(&alone);
        assert!(
            expected[1] < expected[0] - 0.2,
            "{kind} learns: {expected:?}"
        );
        for (ranks, micro, overlap) in [(1, 3, true), (2, 1, true), (3, 2, false), (4, 2, true)] {
            // The mean subtracted from features is that of a micro-batch.
            let micro = if centre { 1 } else { micro };
            let head = config.head.as_mut().unwrap();
            (head.micro_batches, head.overlap) = (micro, overlap);
            let out = folder.path().join(format!("{kind}-{centre}-{ranks}"));
            run(&config, &out, ranks, false, None).unwrap();
            let what = format!("{kind} on {ranks} ranks, {micro} micro-batches");
            assert_close(&what, &expected, &losses(&out));
        }
    }
}

#[test]
fn an_interrupted_run_goes_on_exactly_and_on_other_ranks() {
    let folder = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let config = config(folder.path(), kind);
        let whole = folder.path().join(format!("{kind}-whole"));
        run(&config, &whole, 2, false, None).unwrap();
        for (from, to, steps) in [(2, 2, 5), (4, 3, 15), (1, 2, 12)] {
            let out = folder.path().join(format!("{kind}-{from}-{to}"));
            let stopped = run(&config, &out, from, false, Some(steps));
            assert!(
                matches!(stopped, Err(TrainError::Interrupted { .. })),
                "{kind}"
            );
            run(&config, &out, to, true, None).unwrap();
            let (expected, found) = (losses(&whole), losses(&out));
            if from == to {
                assert_eq!(expected, found, "{kind}")
            } else {
                assert_close(kind, &expected, &found)
            }
        }
    }
}

/// Seconds and classes of a head count the whole run, even if it was interrupted.
#[test]
fn a_resumed_run_tells_of_the_head_from_its_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "knn:5:0.4");
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    let expected = run(&config, &whole, 1, false, None).unwrap();
    run(&config, &parts, 1, false, Some(15)).unwrap_err();
    let found = run(&config, &parts, 1, true, None).unwrap();
    assert_eq!(expected.active_fraction, found.active_fraction);
    // No work is left, and no figures are lost.
    let again = run(&config, &whole, 1, true, None).unwrap();
    let of = |s: &NetSummary| {
        (
            (s.active_fraction, s.iterations, s.head_s, s.features_s),
            (s.communication_s, s.graph_s, s.load_s),
        )
    };
    assert_eq!(of(&expected), of(&again));
    assert!(expected.graph_s > Some(0.0) && expected.head_s > Some(0.0));
}

#[test]
fn what_is_wrong_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |change: &dyn Fn(&mut ImageConfig), parts: &[&str]| {
        let mut config = config(folder.path(), "knn:5:0.4");
        change(&mut config);
        let out = folder.path().join("refused");
        let error = run(&config, &out, 1, false, None).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    refused(&|c| c.fit.smoothing = 0.1, &["smoothing", "leave it at 0"]);
    let file = folder.path().join("weights.csv");
    std::fs::write(&file, "class,weight\n500,1\n").unwrap();
    for (weights, said) in [
        (file.clone(), ["weights.csv: line 2", "no class 500"]),
        (
            folder.path().join("none.csv"),
            ["none.csv", "cannot be read"],
        ),
    ] {
        let weights = weights.to_str().unwrap();
        refused(&|c| c.class_weights = Some(weights.parse().unwrap()), &said);
    }
    refused(
        &|c| {
            c.class_weights = Some("balanced".parse().unwrap());
            (c.head, c.fit.smoothing) = (None, 0.1);
        },
        &[
            "`class_weights`",
            "`smoothing` 0.1",
            "leave one of them out",
        ],
    );
    refused(
        &|c| c.head.as_mut().unwrap().density = 0.0,
        &["density", "above 0 and at most 1"],
    );
    refused(
        &|c| {
            c.fit.optimizer = pelton_train::Optimizer::Adamw;
            c.head.as_mut().unwrap().density = 0.01;
        },
        &["density", "sgd or lars"],
    );
    refused(
        &|c| c.model = "resnet20".parse().unwrap(),
        &["resnet20 takes images", "choose mlp"],
    );
    refused(
        &|c| (c.model, c.head) = ("iresnet18".parse().unwrap(), None),
        &["iresnet18 ends in features", "by train classify"],
    );
    // Another head, of the same shapes.
    let begun = config(folder.path(), "full");
    let out = folder.path().join("begun");
    let stopped = run(&begun, &out, 2, false, Some(5));
    assert!(matches!(stopped, Err(TrainError::Interrupted { .. })));
    for (kind, logits, said) in [
        (
            "sampled:0.5",
            "cosine:16",
            ["`head` full", "with sampled:0.5;"],
        ),
        (
            "full",
            "cosine:32",
            ["`logits` cosine:16", "with cosine:32;"],
        ),
        (
            "full",
            "arcface:16:0.1",
            ["`logits` cosine:16", "arcface:16:0.1;"],
        ),
    ] {
        let mut other = begun.clone();
        let head = other.head.as_mut().unwrap();
        head.kind = kind.parse().unwrap();
        head.logits = logits.parse().unwrap();
        let error = run(&other, &out, 2, true, None).unwrap_err().to_string();
        assert!(said.iter().all(|part| error.contains(part)), "{error}");
    }
    run(&begun, &out, 2, true, None).unwrap();
    // A missing shard of a checkpoint.
    let config = config(folder.path(), "full");
    let out = folder.path().join("shards");
    let stopped = run(&config, &out, 2, false, Some(5));
    assert!(matches!(stopped, Err(TrainError::Interrupted { .. })));
    let shard = out.join("checkpoint/state-1-1-of-2.rows");
    std::fs::remove_file(&shard).unwrap();
    let error = run(&config, &out, 2, true, None).unwrap_err().to_string();
    assert!(error.contains("state-1-1-of-2.rows: is missing"), "{error}");
}

#[test]
fn a_finished_head_measures_and_predicts_as_its_run_did() {
    let folder = tempfile::tempdir().unwrap();
    for kind in ["full", "mach:20:3"] {
        let config = config(folder.path(), kind);
        let out = folder.path().join(kind.replace(':', "-"));
        let summary = run(&config, &out, 2, false, None).unwrap();
        let mut of = EvaluateConfig {
            model: out,
            data: DataConfig::default(),
            memory_bytes: 1 << 26,
        };
        of.data.paths = vec!["demo:classes:120:4:16:test".to_string()];
        of.data.cache_dir = Some(folder.path().join("cache"));
        let (comm, interrupt) = (Comm::alone(), Arc::new(AtomicBool::new(false)));
        let quiet = &mut |_: Event<'_>| ();
        let context = RunContext::new(&comm, &interrupt, quiet);
        let figures = finished::eval(&of, Some(2), context).unwrap();
        assert_eq!(figures.test_accuracy, summary.test_accuracy, "{kind}");
        let mut lines = Vec::new();
        let quiet = &mut |_: Event<'_>| ();
        let context = RunContext::new(&comm, &interrupt, quiet);
        finished::predict_lines(&of, finished::Predicted::Top(2), &mut lines, context).unwrap();
        let text = String::from_utf8(lines).unwrap();
        let mut within = 0;
        let right = text.lines().enumerate().filter(|(record, line)| {
            let cells: Vec<&str> = line.split('\t').collect();
            let scores: Vec<f64> = [1, 3].map(|at| cells[at].parse().unwrap()).to_vec();
            assert!(scores[0] >= scores[1], "{line}");
            let is = |at: usize| cells[at].parse::<f64>().unwrap() as usize == record % 120;
            within += usize::from(is(0) || is(2));
            is(0)
        });
        // Except ties, which count as wrong in one and may be right in the other.
        let share = right.count() as f64 / text.lines().count() as f64;
        assert!(
            (share - summary.test_accuracy.unwrap()).abs() < 0.01,
            "{kind}: {share}"
        );
        let share = within as f64 / text.lines().count() as f64;
        assert_eq!(figures.top_accuracy, Some(share), "{kind}");
    }
}

/// The notes of a run on one rank, interrupted at the first event for which `stops` is true.
fn reported(
    config: &ImageConfig,
    out: &Path,
    resume: bool,
    stops: impl Fn(&str) -> bool,
) -> (Result<NetSummary, TrainError>, Vec<String>) {
    let (comm, interrupt) = (Comm::alone(), Arc::new(AtomicBool::new(false)));
    let mut reported = Vec::new();
    let observer = &mut |event: Event<'_>| {
        let text = match event {
            Event::Note(text) | Event::Progress { what: text, .. } => text,
            Event::Epoch(_) => return,
        };
        interrupt.fetch_or(stops(text), Ordering::Relaxed);
        reported.push(text.to_string());
    };
    let options = RunOptions {
        out: out.to_path_buf(),
        resume,
        overwrite: false,
    };
    let context = RunContext::new(&comm, &interrupt, observer).in_folder(&options);
    (image::run(config, context), reported)
}

/// Before the first step, and only then; it obeys interruptions.
#[test]
fn rows_begin_at_means_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), "knn:5:0.4");
    // A few classes have no example left to train with.
    config.fit.validation = Some("0.5".parse().unwrap());
    let out = folder.path().join("run");
    let looks = |reported: &[String]| {
        reported
            .iter()
            .filter(|text| *text == "class means")
            .count()
    };
    let (stopped, first) = reported(&config, &out, false, |text| text == "class means");
    assert!(matches!(stopped, Err(TrainError::Interrupted { .. })));
    assert_eq!(looks(&first), 1);
    let (stopped, second) = reported(&config, &out, true, |text| text == "epoch 1");
    assert!(matches!(stopped, Err(TrainError::Interrupted { .. })));
    assert!(looks(&second) > 1);
    let missing = second
        .iter()
        .find(|text| text.contains("rows of the head have no example"));
    let missing: u32 = missing.unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((1..20).contains(&missing), "{missing} of about 7");
    let (ended, third) = reported(&config, &out, true, |_| false);
    ended.unwrap();
    assert_eq!(looks(&third), 0);
    let whole = folder.path().join("whole");
    run(&config, &whole, 1, false, None).unwrap();
    assert_eq!(losses(&whole), losses(&out));
    // If the training vectors are the features, few steps suffice.
    config.model = "none".parse().unwrap();
    config.fit.validation = None;
    config.fit.epochs = 1;
    let mut first_loss = |begin: &str| {
        config.head.as_mut().unwrap().begin = begin.parse().unwrap();
        let out = folder.path().join(begin);
        run(&config, &out, 2, false, None).unwrap();
        losses(&out)[0]
    };
    let (means, random) = (first_loss("means"), first_loss("random"));
    assert!(means < 0.7 * random, "{means} {random}");
}

/// Before the first step a run reports what its budget holds.
#[test]
fn a_run_says_what_its_budget_holds() {
    let folder = tempfile::tempdir().unwrap();
    let check = |kind: &str, expected: Option<&str>| {
        let mut config = config(folder.path(), kind);
        (config.fit.batch, config.fit.epochs) = (10, 1);
        let out = folder.path().join(kind);
        let (ended, notes) = reported(&config, &out, false, |_| false);
        ended.unwrap();
        let found = notes.iter().find(|note| note.starts_with("a step takes"));
        assert_eq!(found.map(String::as_str), expected);
    };
    check("full", None);
    check("sampled:0.5", None);
    check(
        "knn:4:0.5:0.5",
        Some(
            "a step takes 60 of 120 classes: 3.1 of the 4 nearest of each class of the batch fit into 30, and 30 are kept for draws",
        ),
    );
    check(
        "knn:10:0.5:0.5",
        Some(
            "a step takes 60 of 120 classes: 3.1 of the 10 nearest of each class of the batch fit into 30, and 30 are kept for draws; most neighbours are left out: give `head` a larger part or fewer neighbours, or a smaller `batch`",
        ),
    );
    check("near:0.5", None);
    // From 64 classes an example and a head of twice the net on; the share is at least a hundredth and at most a quarter.
    check("auto", None);
    let chosen = |classes, cost| HeadChoice::Auto.of(classes, 128, cost).to_string();
    assert_eq!(chosen(8191, 9.0), "full");
    assert_eq!(chosen(8192, 2.0), "near:0.25");
    assert_eq!(chosen(100_000, 1.9), "full");
    assert_eq!(chosen(100_000, 2.1), "near:0.02");
    assert_eq!(chosen(1_000_000, 50.0), "knn:10:0.01:0.5");
    assert_eq!(chosen(10_000_000, 50.0), "sampled:0.01");
    // Hardly anything is left for classes outside the batch.
    for (kind, larger) in [
        ("sampled:0.05", "sampled:0.33"),
        ("knn:4:0.1:0.2", "knn:4:0.33:0.2"),
    ] {
        let mut config = config(folder.path(), kind);
        (config.fit.batch, config.fit.epochs) = (10, 1);
        let refused = run(&config, &folder.path().join(kind), 1, false, None).unwrap_err();
        let text = refused.to_string();
        let parts = [
            "of 120 classes, and its batch has about 10",
            larger,
            "a smaller `batch`",
        ];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

/// Within an epoch, and after an interruption at the moment it was due.
#[test]
fn a_graph_is_made_again_after_so_many_steps() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), "knn:5:0.4");
    let losses_of = |config: &ImageConfig, name: &str, stops: Option<usize>| {
        let out = folder.path().join(name);
        if stops.is_some() {
            run(config, &out, 2, false, stops).unwrap_err();
        }
        run(config, &out, 2, stops.is_some(), None).unwrap();
        losses(&out)
    };
    let once = losses_of(&config, "once", None);
    config.head.as_mut().unwrap().rebuild = Some(5);
    let often = losses_of(&config, "often", None);
    assert_ne!(once, often);
    for steps in [4, 5, 7] {
        assert_eq!(
            often,
            losses_of(&config, &steps.to_string(), Some(steps)),
            "{steps}"
        );
    }
}
