//! Jobs from inside the process: data that fits in memory is read once, batch by batch, into segments that stay; runs
//! are interrupted at chosen moments and resume.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelton_comm::Comm;
use pelton_data::DataConfig;
use pelton_run::{Event, Interrupt, Observer, RunContext};
use pelton_train::linear::{self, RunOptions};
use pelton_train::{LinearConfig, LinearSummary, Solver, Target, TrainError};

/// Runs on one rank.
fn run(
    config: &LinearConfig,
    options: &RunOptions,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<LinearSummary, TrainError> {
    let comm = Comm::alone();
    let context = RunContext::new(&comm, interrupt, observer).in_folder(options);
    linear::run(config, context)
}

/// More rows than two batches of a sequential pass hold: the batches once shared a pane, so its segments could not be
/// taken over, and the run panicked.
#[test]
fn many_small_rows_are_loaded_whole() {
    const ROWS: u64 = 140_000;
    let folder = tempfile::tempdir().unwrap();
    let config = LinearConfig {
        data: DataConfig {
            paths: vec![format!("demo:higgs:{ROWS}")],
            cache_dir: Some(folder.path().join("cache")),
            ..DataConfig::default()
        },
        epochs: 2,
        solver: Solver::CoordinateDescent,
        ..LinearConfig::default()
    };
    let options = RunOptions {
        out: folder.path().join("run"),
        resume: false,
        overwrite: false,
    };
    let summary = run(&config, &options, &Arc::default(), &mut |_| {}).unwrap();
    assert_eq!(summary.access, "memory");
    assert_eq!(summary.records, ROWS);
    // Two epochs: rows in memory are certified without a pass of reading.
    assert_eq!(summary.passes, 2.0);
    assert!(summary.relative_gap.unwrap() < 0.1, "{summary:?}");
}

#[test]
fn interrupted_after_every_epoch_the_run_reaches_the_same_model() {
    const EPOCHS: u64 = 3;
    let folder = tempfile::tempdir().unwrap();
    let config = LinearConfig {
        data: DataConfig {
            paths: vec!["demo:higgs:3000".to_string()],
            cache_dir: Some(folder.path().join("cache")),
            ..DataConfig::default()
        },
        epochs: EPOCHS,
        solver: Solver::CoordinateDescent,
        ..LinearConfig::default()
    };
    let options = |name: &str| RunOptions {
        out: folder.path().join(name),
        resume: true,
        overwrite: false,
    };
    run(&config, &options("whole"), &Arc::default(), &mut |_| {}).unwrap();
    for epoch in 0..EPOCHS {
        let interrupt = Interrupt::default();
        let mut trained = Vec::new();
        let ended = run(&config, &options("run"), &interrupt, &mut |event| {
            if let Event::Progress { what, done, total } = event
                && what.starts_with("epoch")
            {
                trained.push((what.to_string(), done, total));
                interrupt.store(true, Ordering::Relaxed);
            }
        });
        assert!(
            matches!(ended, Err(TrainError::Interrupted { .. })),
            "{ended:?}"
        );
        assert_eq!(trained, [(format!("epoch {}", epoch + 1), 1, 1)]);
    }
    // Training is done; only certifying and writing the model remain.
    run(&config, &options("run"), &Arc::default(), &mut |_| {}).unwrap();
    let model = |name: &str| std::fs::read(folder.path().join(name).join("model.safetensors"));
    assert_eq!(model("run").unwrap(), model("whole").unwrap());
}

/// Rows in memory go from 32 bits to 64 and to Newton's method; each stage has its own state.
#[test]
fn interrupted_between_any_two_epochs_in_memory_the_run_reaches_the_same_model() {
    let folder = tempfile::tempdir().unwrap();
    let mut said = String::new();
    for (number, solver) in [Solver::CoordinateDescent, Solver::Auto]
        .into_iter()
        .enumerate()
    {
        let config = LinearConfig {
            data: DataConfig {
                paths: vec!["demo:higgs:3000".to_string()],
                cache_dir: Some(folder.path().join("cache")),
                ..DataConfig::default()
            },
            target: Target::Gap(1e-6),
            solver,
            ..LinearConfig::default()
        };
        let options = |name: &str| RunOptions {
            out: folder.path().join(format!("{name}-{number}")),
            resume: true,
            overwrite: false,
        };
        let whole = run(&config, &options("whole"), &Arc::default(), &mut |event| {
            if let Event::Note(note) = event {
                said.push_str(note);
            }
        });
        let whole = whole.unwrap();
        let found = loop {
            let interrupt = Interrupt::default();
            let ended = run(&config, &options("run"), &interrupt, &mut |event| {
                let ends = matches!(event, Event::Epoch(_));
                interrupt.fetch_or(ends, Ordering::Relaxed);
            });
            match ended {
                Ok(found) => break found,
                Err(error) => assert_eq!(error.exit_code(), 130, "{error}"),
            }
        };
        let figures = |summary: &LinearSummary| {
            let of_model = (summary.primal, summary.dual, summary.epochs);
            (of_model, summary.passes, summary.solver.clone())
        };
        assert_eq!(figures(&found), figures(&whole), "{solver}");
        let model = |name: &str| std::fs::read(options(name).out.join("model.safetensors"));
        assert_eq!(model("run").unwrap(), model("whole").unwrap(), "{solver}");
    }
    for part in ["64 bits", "Newton's method takes over"] {
        assert!(said.contains(part), "{said}");
    }
}

/// Out of core: reported progress continues from the checkpoint.
#[test]
fn a_resumed_run_counts_from_where_it_goes_on() {
    const BLOCKS: u64 = 8;
    let folder = tempfile::tempdir().unwrap();
    let config = LinearConfig {
        data: DataConfig {
            paths: vec!["demo:higgs:4000".to_string()],
            cache_dir: Some(folder.path().join("cache")),
            ..DataConfig::default()
        },
        epochs: 2,
        blocks: Some(BLOCKS),
        ..LinearConfig::default()
    };
    let options = RunOptions {
        out: folder.path().join("run"),
        resume: true,
        overwrite: false,
    };
    let mut next = (0, 1);
    // Three blocks a session, so that sessions end within epochs and at their ends.
    for session in 0..20 {
        let interrupt = Interrupt::default();
        let mut blocks = 0;
        let ended = run(&config, &options, &interrupt, &mut |event| match event {
            Event::Progress { what, done, total } if what.starts_with("epoch") => {
                assert_eq!(
                    (what, done),
                    (format!("epoch {}", next.0 + 1).as_str(), next.1)
                );
                assert_eq!(total, BLOCKS);
                next = if done == BLOCKS {
                    (next.0 + 1, 1)
                } else {
                    (next.0, done + 1)
                };
                blocks += 1;
                if blocks == 3 {
                    interrupt.store(true, Ordering::Relaxed);
                }
            }
            Event::Note(note) if note.starts_with("resuming") => {
                let place = format!("resuming from epoch {}, block {}", next.0 + 1, next.1);
                // Between epochs, the last block and the start of the next are the same position.
                assert!(note == place || next.1 == 1, "{note}: {place}");
            }
            Event::Epoch(record) => assert_eq!(record.epoch, next.0),
            _ => {}
        });
        match ended {
            Ok(summary) => {
                assert!(session >= 5, "{session} sessions");
                assert_eq!(summary.epochs, 2);
                // Two epochs, and the pass that certifies.
                assert!(summary.passes <= 3.0, "{summary:?}");
                return;
            }
            Err(error) => assert_eq!(error.exit_code(), 130, "{error}"),
        }
    }
    panic!("the run does not come to its end");
}

#[test]
fn an_interruption_before_training_is_soon_over() {
    let folder = tempfile::tempdir().unwrap();
    let config = LinearConfig {
        data: DataConfig {
            paths: vec!["demo:higgs:3000".to_string()],
            cache_dir: Some(folder.path().join("cache")),
            ..DataConfig::default()
        },
        ..LinearConfig::default()
    };
    let options = RunOptions {
        out: folder.path().join("run"),
        resume: false,
        overwrite: false,
    };
    let interrupt = Interrupt::default();
    interrupt.store(true, Ordering::Relaxed);
    let error = run(&config, &options, &interrupt, &mut |_| {}).unwrap_err();
    assert_eq!(error.exit_code(), 130, "{error}");
    assert!(!options.out.exists());
    let left = std::fs::read_dir(folder.path().join("cache")).unwrap();
    assert_eq!(left.count(), 0, "nothing half-made is left");
}

/// Rows over too many features for a snapshot of w next to the blocks, so that a certificate takes its own pass.
fn wide_rows(rows: u64) -> String {
    let row = |row: u64| {
        let bits = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let (label, first) = if bits.is_multiple_of(2) {
            ("+1", 1)
        } else {
            ("-1", 3)
        };
        let (a, b) = (first + bits / 2 % 4, 10 + bits / 8 % 300);
        format!("{label} {a}:1 {b}:1 {}:0.5\n", 400 + row * 20)
    };
    (0..rows).map(row).collect()
}

#[test]
fn interrupted_while_an_epoch_is_certified_the_run_reaches_the_same_model() {
    for skip in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("wide");
        std::fs::write(&data, wide_rows(6000)).unwrap();
        let config = LinearConfig {
            data: DataConfig {
                paths: vec![data.display().to_string()],
                ..DataConfig::default()
            },
            epochs: 40,
            blocks: Some(8),
            memory_bytes: 4 << 20,
            target: Target::Gap(1e-2),
            skip,
            ..LinearConfig::default()
        };
        let options = |name: &str| RunOptions {
            out: folder.path().join(name),
            resume: true,
            overwrite: false,
        };
        let mut last_blocks = BTreeMap::new();
        let whole = run(&config, &options("whole"), &Arc::default(), &mut |event| {
            if let Event::Progress { what, done, .. } = event {
                last_blocks.insert(what.to_string(), done);
            }
        });
        let whole = whole.unwrap();
        assert!(whole.relative_gap.unwrap() <= 1e-2, "{whole:?}");
        let mut within_passes = 0;
        let summary = loop {
            // Training last checks the flag at the last block of an epoch.
            let interrupt = Interrupt::default();
            let mut recorded = false;
            let ended = run(
                &config,
                &options("run"),
                &interrupt,
                &mut |event| match event {
                    Event::Progress { what, done, .. } => {
                        recorded = false;
                        interrupt.store(last_blocks[what] == done, Ordering::Relaxed);
                    }
                    Event::Epoch(_) => recorded = true,
                    _ => {}
                },
            );
            match ended {
                Ok(summary) => break summary,
                Err(TrainError::Interrupted { .. }) => within_passes += u64::from(!recorded),
                Err(error) => panic!("{error}"),
            }
        };
        assert!(within_passes >= 1, "skip {skip}: a pass is interrupted");
        let figures = |summary: &LinearSummary| {
            let of_model = (summary.primal, summary.dual, summary.relative_gap);
            (of_model, summary.epochs, summary.passes)
        };
        assert_eq!(figures(&summary), figures(&whole), "skip {skip}");
        let model = |name: &str| std::fs::read(folder.path().join(name).join("model.safetensors"));
        assert_eq!(
            model("run").unwrap(),
            model("whole").unwrap(),
            "skip {skip}"
        );
        let lines = |name: &str| {
            let text = std::fs::read_to_string(folder.path().join(name).join("metrics.jsonl"));
            text.unwrap().lines().count()
        };
        assert_eq!(lines("run"), lines("whole"));
    }
}
