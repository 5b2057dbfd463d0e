//! Checkpoints that are whole and say what no run can have written.

use std::path::Path;
use std::sync::Arc;

use pelton_comm::Comm;
use pelton_data::DataConfig;
use pelton_run::{Event, Interrupt, Observer, RunContext};

use super::RunOptions;
use crate::checkpoint::{self, Progress};
use crate::config::LinearConfig;
use crate::error::TrainError;
use crate::summary::LinearSummary;

/// Runs on one rank.
fn run(
    config: &LinearConfig,
    options: &RunOptions,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<LinearSummary, TrainError> {
    let comm = Comm::alone();
    let context = RunContext::new(&comm, interrupt, observer).in_folder(options);
    super::run(config, context)
}

/// Interrupts a run after `blocks` blocks, lets `forge` change its checkpoint and goes on.
fn resume_forged(
    folder: &Path,
    skip: bool,
    blocks: u64,
    forge: impl Fn(&mut Progress),
) -> Result<(), TrainError> {
    let config = LinearConfig {
        data: DataConfig {
            paths: vec!["demo:higgs:3000".to_string()],
            cache_dir: Some(folder.join("cache")),
            ..DataConfig::default()
        },
        epochs: 3,
        blocks: Some(6),
        skip,
        ..LinearConfig::default()
    };
    let options = RunOptions {
        out: folder.join("run"),
        resume: false,
        overwrite: true,
    };
    let interrupt = Interrupt::default();
    let mut done = 0;
    let ended = run(&config, &options, &interrupt, &mut |event| {
        if let Event::Progress { what, .. } = event
            && what.starts_with("epoch")
        {
            done += 1;
            interrupt.store(done == blocks, std::sync::atomic::Ordering::Relaxed);
        }
    });
    assert!(
        matches!(ended, Err(TrainError::Interrupted { .. })),
        "{ended:?}"
    );
    let path = options.out.join("checkpoint").join("state.safetensors");
    let (mut progress, state) = checkpoint::read(&path).unwrap();
    forge(&mut progress);
    checkpoint::write(&path, &progress, &state).unwrap();
    let options = RunOptions {
        resume: true,
        overwrite: false,
        ..options
    };
    run(&config, &options, &Arc::default(), &mut |_| {}).map(|_| ())
}

#[test]
fn a_checkpoint_beyond_the_plan_is_refused() {
    let forgeries: [fn(&mut Progress); 8] = [
        |progress| progress.cursor_epoch = u64::MAX,
        |progress| progress.cursor_epoch += 1,
        |progress| progress.epoch += 1,
        |progress| (progress.epoch, progress.cursor_epoch) = (1 << 40, 1 << 40),
        |progress| progress.next = u64::MAX,
        |progress| progress.next = 100_000,
        |progress| progress.in_epoch = !progress.in_epoch,
        |progress| progress.epochs.clear(),
    ];
    let folder = tempfile::tempdir().unwrap();
    for skip in [false, true] {
        // In the middle of the second epoch, and at its end, but for skipped rows.
        for blocks in [8, 12] {
            resume_forged(folder.path(), skip, blocks, |_| {}).unwrap();
            for (number, forge) in forgeries.iter().enumerate() {
                let ended = resume_forged(folder.path(), skip, blocks, forge);
                let error = ended.expect_err(&format!("skip {skip}, {blocks}, {number}"));
                assert_eq!(error.exit_code(), 2, "{error}");
                let text = error.to_string();
                assert!(text.contains("state.safetensors"), "{text}");
                assert!(text.contains("cannot have reached"), "{text}");
                assert!(text.contains("`overwrite`"), "{text}");
            }
        }
    }
}
