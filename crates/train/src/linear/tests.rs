//! Intact checkpoints that no run can have written; models without a run folder.

use std::path::Path;
use std::sync::Arc;

use pelton_comm::Comm;
use pelton_data::{DataConfig, hold_rows, open};
use pelton_fetch::FetchOptions;
use pelton_format::{RowLayout, Rows};
use pelton_linear::{Loss, Model, Scaling};
use pelton_run::{Event, Interrupt, Manifest, Observer, RunContext, Set, write_checkpoint};

use super::RunOptions;
use crate::checkpoint::{self, Progress};
use crate::config::{LinearConfig, Solver, Target};
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

/// Interrupts a run after `blocks` blocks, lets `forge` change its checkpoint and resumes.
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
    let manifest = Manifest::read(&options.out, Set::Checkpoint);
    let manifest = manifest.unwrap().unwrap();
    let name = manifest.named("checkpoint/state", "").unwrap();
    let path = manifest.path(name);
    let (mut progress, state) =
        checkpoint::decode(&manifest.contents(name).unwrap(), &path).unwrap();
    forge(&mut progress);
    let (text, tensors) = checkpoint::parts(&progress, &state);
    let entry = write_checkpoint(&path, &text, tensors).unwrap();
    manifest.with(Set::Checkpoint, name, entry).write().unwrap();
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
                assert!(text.contains("checkpoint/state-"), "{text}");
                assert!(text.contains("cannot have reached"), "{text}");
                assert!(text.contains("`overwrite`"), "{text}");
            }
        }
    }
}

#[test]
fn a_model_is_the_same_without_a_run_folder_and_from_rows_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (comm, interrupt) = (Comm::alone(), Interrupt::default());
    let scales = [Scaling::None, Scaling::Standard];
    for (solver, scale) in [Solver::Newton, Solver::CoordinateDescent]
        .into_iter()
        .flat_map(|solver| scales.map(|scale| (solver, scale)))
    {
        let config = LinearConfig {
            data: DataConfig {
                paths: vec!["demo:higgs:3000".to_string()],
                cache_dir: Some(folder.path().join("cache")),
                ..DataConfig::default()
            },
            loss: Loss::SquaredHinge,
            bias: Some(2.0),
            target: Target::Gap(1e-3),
            solver,
            scale,
            ..LinearConfig::default()
        };
        let options = RunOptions {
            out: folder.path().join("run"),
            overwrite: true,
            ..RunOptions::default()
        };
        let summary = run(&config, &options, &interrupt, &mut |_| {}).unwrap();
        let written = Model::read_safetensors(&options.out.join(crate::trained::MODEL_SAFETENSORS));
        let written = written.unwrap();

        let observer = &mut |_: Event<'_>| {};
        let mut context = RunContext::new(&comm, &interrupt, observer);
        let data = config.data.with_rows(RowLayout::DenseWhereFull);
        let dataset = open(&data, &data.paths, None, &mut context)
            .unwrap()
            .dataset;
        let fitted = super::fit(&config, context).unwrap();
        assert_eq!(fitted.model, written, "{solver} {scale}");
        assert_eq!(Some(fitted.certificate.primal), summary.primal);
        assert_eq!(Some(fitted.certificate.dual), summary.dual);
        assert_eq!(fitted.epochs, summary.epochs);

        let (held, _) = hold_rows(&dataset, &FetchOptions::with_memory(16 << 20)).unwrap();
        let mut rows = [Rows::new(dataset.layout()), Rows::new(dataset.layout())];
        for i in 0..held.len() {
            rows[usize::from(i >= 1000)].push(held.label(i), held.row(i));
        }
        let labels = dataset.labels().clone();
        let features = dataset.features() as usize;
        let found = super::fit_rows(
            &config,
            rows.into(),
            labels,
            features,
            (None, 0.0),
            &interrupt,
        )
        .unwrap();
        assert_eq!(found.model, written, "{solver} {scale}");
        assert_eq!(found.certificate, fitted.certificate);
        assert_eq!(found.epochs, fitted.epochs);
    }
}
