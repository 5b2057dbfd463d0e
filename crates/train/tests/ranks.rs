//! Linear training over ranks: the optimum of one rank with a certificate, any number of ranks, and runs that are
//! interrupted or lose a rank and resume.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use pelton_comm::{RankError, run_ranks};
use pelton_data::DataConfig;
use pelton_run::{Event, Interrupt, Manifest, RunContext, Set};
use pelton_train::linear::{self, RunOptions};
use pelton_train::{LinearConfig, LinearSummary, Loss, Optimum, Solver, Target, TrainError};

fn demo(folder: &Path, name: &str) -> LinearConfig {
    LinearConfig {
        data: DataConfig {
            paths: vec![name.to_string()],
            cache_dir: Some(folder.join("cache")),
            ..DataConfig::default()
        },
        target: Target::Gap(1e-3),
        epochs: 60,
        threads: 1,
        ..LinearConfig::default()
    }
}

fn options(folder: &Path, name: &str, resume: bool) -> RunOptions {
    RunOptions {
        out: folder.join(name),
        resume,
        overwrite: !resume,
    }
}

/// Runs on `ranks` ranks; `seen` gets the events of each.
fn train(
    config: &LinearConfig,
    options: &RunOptions,
    ranks: usize,
    interrupt: &Interrupt,
    seen: impl Fn(usize, &Event<'_>) + Sync,
) -> Result<LinearSummary, RankError<TrainError>> {
    let mut results = run_ranks(ranks, |comm| {
        let rank = comm.rank();
        let observer = &mut |event: Event<'_>| seen(rank, &event);
        let context = RunContext::new(&comm, interrupt, observer).in_folder(options);
        linear::run(config, context)
    })?;
    Ok(results.swap_remove(0))
}

fn nothing(_: usize, _: &Event<'_>) {}

/// Over ranks the target is certified, and the optimum is that of one rank.
fn check_optimum(folder: &Path, config: &LinearConfig, ranks: &[usize]) {
    let finer = LinearConfig {
        target: Target::Gap(2e-4),
        ..config.clone()
    };
    let never = Interrupt::default();
    let alone = train(&finer, &options(folder, "alone", false), 1, &never, nothing).unwrap();
    for &ranks in ranks {
        let options = options(folder, "together", false);
        let found = train(config, &options, ranks, &never, nothing).unwrap();
        let case = format!("{:?} on {ranks} ranks: {found:?}", config.data.paths);
        assert_eq!(found.ranks, ranks as u64);
        assert!(found.relative_gap.unwrap() <= 1e-3, "{case}");
        let (lower, primal) = (alone.dual.unwrap(), found.primal.unwrap());
        assert!(primal / lower - 1.0 <= 1e-3, "{lower}, {case}");
        assert!(
            found.dual.unwrap() <= alone.primal.unwrap() * (1.0 + 1e-6),
            "{case}"
        );
        assert!(found.communication_bytes > 0, "{case}");
    }
}

/// Data for a loss: classes, which also serve as targets, and counts for a loss that needs targets of at least 0.
fn data_for(folder: &Path, loss: Loss, rows: usize) -> LinearConfig {
    if loss != Loss::Poisson {
        return LinearConfig {
            loss,
            ..demo(folder, &format!("demo:higgs:{rows}"))
        };
    }
    let row = |i: usize| {
        let features = [7, 11, 13, 17, 19, 23].map(|prime| (i * i % prime) as f64 / prime as f64);
        let cells = features.map(|value| format!("{value:.4},")).concat();
        format!("{cells}{}\n", (6.0 * features[0] * features[3]) as u32)
    };
    let path = folder.join(format!("counts-{rows}.csv"));
    std::fs::write(&path, (0..rows).map(row).collect::<String>()).unwrap();
    LinearConfig {
        loss,
        ..demo(folder, &path.display().to_string())
    }
}

#[test]
fn every_loss_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    for &loss in Loss::ALL {
        let config = LinearConfig {
            bias: Some(0.5),
            ..data_for(folder.path(), loss, 6000)
        };
        check_optimum(folder.path(), &config, &[2, 3, 4]);
    }
}

#[test]
fn every_loss_out_of_core() {
    let folder = tempfile::tempdir().unwrap();
    for &loss in Loss::ALL {
        let class_weights = match loss.has_real_targets() {
            true => Vec::new(),
            false => vec![(1.0.into(), 2.0)],
        };
        let config = LinearConfig {
            memory_bytes: 800_000,
            class_weights,
            ..data_for(folder.path(), loss, 30_000)
        };
        check_optimum(folder.path(), &config, &[2, 4]);
    }
}

#[test]
fn what_newtons_method_cannot_do_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let check = |config: &LinearConfig, parts: [&str; 2]| {
        let options = options(folder.path(), "refused", false);
        let refused = train(config, &options, 3, &Interrupt::default(), nothing).unwrap_err();
        let text = refused.source.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    };
    let features = demo(folder.path(), "demo:kdd:3000");
    check(&features, ["at most 1024 features", "use one rank"]);
    let higgs = demo(folder.path(), "demo:higgs:3000");
    let skips = LinearConfig {
        skip: true,
        ..higgs.clone()
    };
    check(&skips, ["3 ranks need Newton's method", "`skip`"]);
    let descent = LinearConfig {
        solver: Solver::CoordinateDescent,
        ..higgs
    };
    check(&descent, ["runs on one rank", "leave `solver` out"]);
}

fn real_data(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("PELTON_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let path = folder.join(name);
    if !path.exists() {
        eprintln!("SKIPPED: {} is not there; set PELTON_DATA", path.display());
        return None;
    }
    Some(path)
}

#[test]
fn real_data_of_two_and_of_seven_classes() {
    let folder = tempfile::tempdir().unwrap();
    for (name, cost) in [("libsvm/a9a", 1.0), ("libsvm/covtype.20k.csv", 1e-7)] {
        let Some(path) = real_data(name) else {
            continue;
        };
        let config = LinearConfig {
            cost,
            ..demo(folder.path(), path.to_str().unwrap())
        };
        check_optimum(folder.path(), &config, &[2, 4]);
    }
}

/// Raw covtype: its columns differ in size by orders of magnitude.
#[test]
fn ranks_take_newtons_steps_together() {
    let Some(path) = real_data("libsvm/covtype.20k.csv") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut config = demo(folder.path(), path.to_str().unwrap());
    config.data.positive = Some(2.0.into());
    config.epochs = 300;
    check_optimum(folder.path(), &config, &[2, 3]);
    let config = LinearConfig {
        optimum: Optimum::Auto,
        ..config
    };
    let options = options(folder.path(), "against", false);
    let found = train(&config, &options, 2, &Interrupt::default(), nothing).unwrap();
    let difference = found.relative_difference.unwrap();
    assert!((0.0..1e-3).contains(&difference), "{found:?}");
}

#[test]
fn more_ranks_than_rows() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("few.libsvm", "1 1:1 2:0.5\n-1 1:-1\n1 2:2\n"),
        ("few.csv", "1,0.5,1\n-1,0,-1\n0,2,1\n"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let config = demo(folder.path(), path.to_str().unwrap());
        check_optimum(folder.path(), &config, &[2, 5]);
    }
}

/// Out of core, with a checkpoint after each pass.
fn out_of_core(folder: &Path) -> LinearConfig {
    LinearConfig {
        memory_bytes: 600_000,
        target: Target::None,
        epochs: 3,
        checkpoint_every_s: 0.0,
        seed: 4,
        solver: Solver::Newton,
        ..demo(folder, "demo:higgs:30000")
    }
}

/// Runs until `reads` reads of passes are done, then interrupts.
fn interrupted(config: &LinearConfig, options: &RunOptions, ranks: usize, reads: u64) {
    let interrupt = Interrupt::default();
    let done = AtomicU64::new(0);
    let count = |rank: usize, event: &Event<'_>| {
        if rank == 0
            && matches!(event, Event::Progress { what, .. } if what.starts_with("pass"))
            && done.fetch_add(1, Ordering::Relaxed) + 1 == reads
        {
            interrupt.store(true, Ordering::Relaxed);
        }
    };
    let ended = train(config, options, ranks, &interrupt, count).unwrap_err();
    let reported = matches!(ended.source, TrainError::Interrupted { .. });
    assert!(reported, "rank {}: {}", ended.rank, ended.source);
}

fn model(options: &RunOptions) -> Vec<u8> {
    std::fs::read(options.out.join("model.safetensors")).unwrap()
}

/// Bytes that the ranks had sent when the run's checkpoint was written.
fn communication_bytes(options: &RunOptions) -> u64 {
    let manifest = Manifest::open(&options.out, Set::Checkpoint);
    let manifest = manifest.unwrap().unwrap();
    let name = manifest.named("checkpoint/state", "").unwrap();
    let file = manifest.contents(name).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&file).unwrap();
    let text = &header.metadata().as_ref().unwrap()["pelton"];
    let progress: serde_json::Value = serde_json::from_str(text).unwrap();
    progress["totals"]["communication_bytes"].as_u64().unwrap()
}

/// Rows that each epoch of the run trained on.
fn rows(options: &RunOptions) -> Vec<u64> {
    let text = std::fs::read_to_string(options.out.join("metrics.jsonl")).unwrap();
    let row = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        value["rows"].as_u64().unwrap()
    };
    text.lines().map(row).collect()
}

#[test]
fn runs_repeat_and_go_on_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let config = out_of_core(folder.path());
    let never = Interrupt::default();
    let whole = options(folder.path(), "whole", false);
    let again = options(folder.path(), "again", false);
    let summary = train(&config, &whole, 3, &never, nothing).unwrap();
    train(&config, &again, 3, &never, nothing).unwrap();
    assert!(model(&whole) == model(&again), "the run repeats");
    let part = options(folder.path(), "part", true);
    for reads in [1, 2] {
        interrupted(&config, &part, 3, reads);
    }
    let sent_before = communication_bytes(&part);
    assert!(sent_before > 0);
    let resumed = train(&config, &part, 3, &never, nothing).unwrap();
    assert!(model(&whole) == model(&part), "the run goes on");
    assert_eq!(summary.primal, resumed.primal);
    assert!(resumed.communication_bytes > sent_before);
    assert_eq!(rows(&part), [30_000; 3]);
}

#[test]
fn a_run_goes_on_with_other_ranks_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let never = Interrupt::default();
    let config = out_of_core(folder.path());
    let alone = options(folder.path(), "alone", false);
    let whole = train(&config, &alone, 1, &never, nothing).unwrap();
    for (before, after) in [(4, 3), (2, 4), (3, 1), (1, 2)] {
        let name = format!("from-{before}-to-{after}");
        let part = options(folder.path(), &name, true);
        let passes = LinearConfig {
            epochs: 2,
            ..config.clone()
        };
        train(&passes, &part, before, &never, nothing).unwrap();
        let roomy = LinearConfig {
            memory_bytes: 4 * config.memory_bytes,
            ..config.clone()
        };
        let found = train(&roomy, &part, after, &never, nothing).unwrap();
        assert_eq!(rows(&part), [30_000; 3], "{name}");
        assert_eq!(found.epochs, 3);
        // The same passes over the same rows, with sums rounded in another order.
        let ratio = found.primal.unwrap() / whole.primal.unwrap();
        assert!((ratio - 1.0).abs() < 1e-9, "{name}: {found:?}");
    }
}

#[test]
fn a_lost_rank_leaves_a_checkpoint_that_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let config = out_of_core(folder.path());
    let never = Interrupt::default();
    let whole = options(folder.path(), "whole", false);
    train(&config, &whole, 3, &never, nothing).unwrap();
    for (lost, read) in [(1, 1), (2, 2), (0, 3)] {
        let part = options(folder.path(), &format!("lost-{lost}"), true);
        let done = AtomicU64::new(0);
        let fail = |rank: usize, event: &Event<'_>| {
            if rank == lost
                && matches!(event, Event::Progress { what, .. } if what.starts_with("pass"))
                && done.fetch_add(1, Ordering::Relaxed) + 1 == read
            {
                panic!("lost on purpose");
            }
        };
        let ended = train(&config, &part, 3, &never, fail).unwrap_err();
        assert_eq!(ended.rank, lost);
        assert!(ended.to_string().contains("lost on purpose"), "{ended}");
        train(&config, &part, 3, &never, nothing).unwrap();
        assert!(model(&whole) == model(&part), "rank {lost} at read {read}");
    }
}
