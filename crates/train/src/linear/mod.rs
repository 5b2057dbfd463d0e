//! The job `train linear`: one linear model from data of any size within a memory budget.
//!
//! `setup` divides the memory and makes the plan, `session` runs epochs and writes checkpoints,
//! `certify` proves how good a model is, `outcome` writes what is left behind.

mod certify;
mod outcome;
mod report;
mod session;
mod setup;
mod source;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

pub(crate) use certify::for_each_batch;
pub use certify::{Evaluation, evaluate};
pub(crate) use outcome::MODEL_SAFETENSORS;
pub use setup::{Setup, plan_of, set_up};
pub(crate) use source::hold_rows;

use crate::config::{LinearConfig, Optimum};
use crate::data;
use crate::error::TrainError;
use crate::event::{Event, Observer};
use crate::run_folder::RunFolder;
use crate::summary::LinearSummary;
use session::Session;

/// Where a run keeps its files.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The run folder.
    pub out: PathBuf,
    /// Whether to go on from its last checkpoint.
    pub resume: bool,
    /// Whether to replace what is there.
    pub overwrite: bool,
}

/// Trains a linear model and leaves its files in the run folder.
///
/// Errors: bad configuration or input; a failed run; an interruption, whose state is saved.
pub fn run(
    config: &LinearConfig,
    options: &RunOptions,
    interrupt: &AtomicBool,
    observer: Observer<'_>,
) -> Result<LinearSummary, TrainError> {
    let began = Instant::now();
    check(config)?;
    let data = data::open(&config.data, &config.data.paths, None, observer)?;
    let given = config;
    let mut config = config.clone();
    config
        .scratch_dir
        .get_or_insert_with(|| options.out.clone());
    let test_paths = if config.test.is_empty() {
        data.test.clone()
    } else {
        config.test.clone()
    };
    let setup = set_up(&config, data)?;
    // Opened before training so that a wrong test file is reported before the work.
    let test = if test_paths.is_empty() {
        None
    } else {
        let expected = setup.expected();
        Some(data::open(
            &config.data,
            &test_paths,
            Some(&expected),
            observer,
        )?)
    };
    // Everything that can be wrong with the arguments has been found by now, but for a checkpoint of
    // another run: only then is the folder made, cleared, or its configuration replaced.
    let mut session = Session::new(&config, &setup, began)?;
    if options.resume {
        session.resume(&options.out, observer)?;
    }
    let mut folder = RunFolder::open(&options.out, given, options.resume, options.overwrite)?;
    let optimum = match config.optimum {
        Optimum::Unknown => None,
        Optimum::Value(value) => Some(value),
        Optimum::Auto => {
            // A hundredth of the target is as exact as the run can tell.
            let gap = config
                .target
                .map_or(1e-6, |target| (0.01 * target).clamp(1e-6, 1e-4));
            observer(Event::Note(&format!(
                "solving for the optimum first, to a relative gap of {gap:.0e}"
            )));
            let solving = Instant::now();
            let optimum = certify::optimum(&setup, gap, interrupt, observer)?;
            session.leave_out(solving.elapsed());
            Some(optimum)
        }
    };
    describe(&setup, &config, observer);
    let trained = session.train(optimum, &mut folder, interrupt, observer)?;
    let accuracy = match &test {
        Some(test) => Some(certify::accuracy(&setup, test, &trained.weights)?),
        None => None,
    };
    outcome::write(&mut folder, &config, &setup, trained, accuracy, optimum)
}

fn check(config: &LinearConfig) -> Result<(), TrainError> {
    let wrong = |text: String| Err(TrainError::Config(text));
    if config.data.paths.is_empty() {
        return wrong(
            "no data is named; give files, or demo:higgs to try it on generated data".to_string(),
        );
    }
    if config.epochs == 0 {
        return wrong("--epochs 0 trains nothing; give 1 or more".to_string());
    }
    if config.blocks == Some(0) {
        return wrong("--blocks 0 cuts an epoch into nothing; give 1 or more".to_string());
    }
    if !(0.0..=0.9).contains(&config.cache_fraction) {
        return wrong(format!(
            "--cache-fraction {} is not a share of the block memory between 0 and 0.9",
            config.cache_fraction
        ));
    }
    if config
        .target
        .is_some_and(|target| !(target > 0.0 && target < 1.0))
    {
        return wrong(
            "--target is a relative difference between 0 and 1, such as 1e-3".to_string(),
        );
    }
    let selective = config.skip || config.cache_fraction > 0.0;
    let full = config.order == pelton_plan::Order::Full;
    if selective && !full {
        return wrong(format!(
            "--skip and --cache-fraction leave records of an epoch unread, which --order {} cannot; use --order full",
            config.order
        ));
    }
    if config.threads == 0 {
        return wrong("--threads 0 loads nothing; give 1 or more".to_string());
    }
    Ok(())
}

fn describe(setup: &Setup, config: &LinearConfig, observer: Observer<'_>) {
    let dataset = &setup.data.dataset;
    let place = if setup.in_core {
        "all in memory".to_string()
    } else {
        format!(
            "{} blocks of about {} rows an epoch",
            setup.plan.steps(),
            setup.plan.step_len(0, 0)
        )
    };
    observer(Event::Note(&format!(
        "{} records, {} features, {} classes, {:.1} MB; budget {:.1} MB: {place}, order {}",
        dataset.records(),
        dataset.features(),
        dataset.labels().len(),
        dataset.bytes() as f64 / 1e6,
        setup.memory_bytes as f64 / 1e6,
        config.order,
    )));
}
