//! The job `train linear`: one linear model from data of any size within a memory budget.
//!
//! `first_pass` is what reads the data once before training: `packing` copies text as packed rows, `scaling` fits the scale of features, `counting`
//! numbers them by their frequency. `setup` divides the memory and makes the plan, `session` runs epochs and writes checkpoints,
//! `certify` proves how good a model is, `outcome` writes what is left behind. [`fit`] hands the model to the caller and
//! leaves nothing behind, and so does [`fit_rows`], from rows that lie in memory already.

mod certify;
mod counting;
mod evaluation;
mod first_pass;
mod newton;
mod outcome;
mod packing;
mod ranks;
mod report;
mod resume;
mod room;
mod rows;
mod scaling;
mod session;
mod setup;
mod source;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pelton_data::{self as data, DataError, OpenedData};
use pelton_fetch::{FetchOptions, OnBadRecord};
use pelton_format::{Dataset, RowLayout};
use pelton_linear::Scaling;
use pelton_run::{Event, Interrupt, Observer, RunContext, RunFolder};
use pelton_storage::memory_limit;

pub(crate) use evaluation::for_each_batch;
pub use evaluation::{Evaluation, evaluate};
pub use outcome::Fitted;
pub(crate) use outcome::MODEL_SAFETENSORS;
pub use pelton_run::RunOptions;
pub use rows::fit_rows;
pub use setup::{Setup, resolve, set_up};

use crate::config::{LinearConfig, Optimum, Solver};
use crate::error::TrainError;
use crate::summary::LinearSummary;
use newton::NewtonSession;
use outcome::{Ended, many_classes};
use ranks::Ranks;
use resume::Before;
use session::Session;
use setup::resolve_within;

/// Memory for reading data once more to say what is wrong with it.
const DIAGNOSIS_BYTES: u64 = 16 << 20;

/// Trains a linear model and leaves its files in the run folder. Of several ranks each has the memory budget for
/// itself; rank 0 alone writes the folder, and its figures are of all of them.
///
/// Errors: bad configuration or input; a failed run; an interruption, whose state is saved; another rank's failure.
pub fn run(config: &LinearConfig, context: RunContext<'_>) -> Result<LinearSummary, TrainError> {
    train(config, context, true, |folder, ended| {
        match folder.is_written() {
            true => outcome::write(folder, ended),
            false => Ok(LinearSummary::default()),
        }
    })
}

/// Trains a linear model as [`run`] does and hands it to the caller. Copies that training needs are nameless files in
/// `scratch_dir`, by default the system's folder for temporary files; nothing is left behind.
///
/// Errors: as of [`run`]; an interrupted run is lost.
pub fn fit(config: &LinearConfig, context: RunContext<'_>) -> Result<Fitted, TrainError> {
    let mut config = config.clone();
    config.scratch_dir.get_or_insert_with(std::env::temp_dir);
    train(&config, context, false, |_, ended| {
        Ok(outcome::fitted(ended))
    })
}

fn train<T>(
    config: &LinearConfig,
    context: RunContext<'_>,
    leaves_files: bool,
    end: impl FnOnce(&mut RunFolder, Ended<'_>) -> Result<T, TrainError>,
) -> Result<T, TrainError> {
    let config = &context.agreed(config)?;
    let RunContext {
        folder: options,
        comm,
        interrupt,
        observer,
    } = context;
    let ranks = Ranks(comm);
    let began = Instant::now();
    check(config)?;
    let paths = &config.data.paths;
    if paths.is_empty() {
        return Err(TrainError::config(
            "no data is named; give files, or demo:higgs to try it on generated data".to_string(),
        ));
    }
    let skips = config.on_bad_record != OnBadRecord::Fail;
    let data_config = config.data.with_rows(RowLayout::DenseWhereFull);
    let data_config = data_config.leaving_damage(skips);
    let data = ranks.open(&data_config, paths, None, interrupt, observer)?;
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
    refuse_untrainable(&config, &data, interrupt)?;
    scaling::refuse_coarse(&data.dataset, config.scale, paths)?;
    let records = data.dataset.records();
    if let Some(blocks) = config.blocks.filter(|&blocks| blocks > records) {
        return Err(TrainError::config(format!(
            "`blocks` {blocks} cannot be cut from {records} records; give 1 to {records}"
        )));
    }
    let earlier = match options.resume {
        true => Some(Before::read(&options.out, ranks)?),
        false => None,
    };
    let before = earlier.as_ref();
    let before = before.and_then(|before| resume::take_over(before, &mut config, ranks.size()));
    let note = resolve_within(&mut config, &data, ranks.size(), memory_limit())?;
    if let Some(note) = note {
        observer(Event::Note(&note));
    }
    let given = LinearConfig {
        skip: config.skip,
        cache_fraction: config.cache_fraction,
        blocks: config.blocks,
        solver: config.solver,
        ..given.clone()
    };
    let share = ranks.share(&data.dataset);
    let asked = room::asked_bytes(&config, &data.dataset);
    let mut setup = setup::set_up_share(&config, data, share.clone())?;
    if asked < setup.memory_bytes {
        observer(Event::Note(&format!(
            "`memory` asks for {asked} bytes, less than reading needs: {} are used",
            setup.memory_bytes
        )));
    }
    setup.interrupt = Arc::clone(interrupt);
    // Setting up anew over other rows of the same data keeps the budget.
    let again = LinearConfig {
        memory_bytes: setup.memory_bytes,
        memory_share: None,
        ..config.clone()
    };
    setup = match before.as_ref().map(|before| before.packed) {
        Some(true) => packing::pack(&again, setup, share.clone(), observer)?,
        None if packing::pays(&config, &setup, ranks) => {
            packing::try_to_pack(&again, setup, share.clone(), observer)?
        }
        _ => setup,
    };
    if config.scale != Scaling::None {
        setup = scaling::scale(config.scale, setup, ranks, observer)?;
    }
    let numbered = before.map(|before| before.numbered);
    if numbered.unwrap_or_else(|| counting::pays(&config, &setup)) {
        setup = counting::renumber(&again, setup, share, ranks, observer)?;
    }
    let setup = setup;
    tracing::info!(
        budget = setup.memory_bytes,
        feed = setup.feed.memory_bytes,
        coded_rows = setup.options.coded_rows,
        evaluation = setup.evaluation_bytes,
        snapshots = setup.options.snapshots,
        in_memory = setup.in_core,
        "memory divided"
    );
    // Opened before training so that a wrong test file is reported before the work.
    let test = if test_paths.is_empty() {
        None
    } else {
        let scale = setup.scale.as_ref();
        let opened = ranks.open(
            &config
                .data
                .with_rows(data::row_layout(scale.map(AsRef::as_ref)))
                .leaving_damage(skips),
            &test_paths,
            Some(&setup.expected()),
            interrupt,
            observer,
        )?;
        // Records that are to be skipped are so one by one.
        if config.on_bad_record == OnBadRecord::Fail && opened.dataset.has_unknown_class() {
            read_all(&config, &opened.dataset, interrupt)?;
        }
        Some(opened.scaled(scale))
    };
    // Everything that can be wrong with the arguments has been found by now, but for a checkpoint of
    // another run: only then is the folder made, cleared, or its configuration replaced.
    let mut session = match config.solver {
        Solver::Newton => AnySession::Newton(NewtonSession::new(&config, &setup, ranks, began)),
        _ => AnySession::Descent(Session::new(&config, &setup, ranks, began)?),
    };
    if let Some(before) = earlier {
        match &mut session {
            AnySession::Newton(session) => session.resume(&before, observer)?,
            AnySession::Descent(session) => session.resume(&before, observer)?,
        }
    }
    comm.agree(&setup.alike())?;
    comm.agree(&match &session {
        AnySession::Newton(session) => session.place(),
        AnySession::Descent(session) => session.place(),
    })?;
    let mut folder = match leaves_files && ranks.rank() == 0 {
        true => RunFolder::open(&options.out, &given, options.resume, options.overwrite)?,
        false => RunFolder::unwritten(&options.out),
    };
    ranks.barrier()?;
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
            let newton = config.solver == Solver::Newton;
            let optimum = certify::optimum(&setup, newton, gap, ranks, interrupt, observer);
            let optimum = optimum.map_err(|error| match error.is_interruption() {
                true => TrainError::stopped("solving for the optimum, before training began"),
                false => error,
            })?;
            match &mut session {
                AnySession::Newton(session) => session.leave_out(solving.elapsed()),
                AnySession::Descent(session) => session.leave_out(solving.elapsed()),
            }
            Some(optimum)
        }
    };
    describe(&setup, &config, ranks.size(), observer);
    // One that was interrupted a moment before may be waited for in vain.
    let waited = |error: &TrainError| {
        matches!(error, TrainError::Data(DataError::Comm(_))) && interrupt.load(Ordering::Relaxed)
    };
    let in_folder = |error: TrainError| match error.is_interruption() || waited(&error) {
        // What was read at that moment is no concern of whoever goes on later.
        true => TrainError::Interrupted {
            folder: options.out.display().to_string(),
        },
        false => error,
    };
    let trained = match session {
        AnySession::Newton(session) => session.train(optimum, &mut folder, interrupt, observer),
        AnySession::Descent(session) => session.train(optimum, &mut folder, interrupt, observer),
    };
    let mut trained = trained.map_err(in_folder)?;
    if let Some(note) = &trained.left_out {
        observer(Event::Note(note));
    }
    if !trained.certificate.primal.is_finite() {
        return Err(TrainError::config(
            "the solution is not finite, and no model is written; make features smaller, such as by `scale` standard, or lower `cost`".to_string(),
        ));
    }
    let weights = std::mem::take(&mut trained.weights);
    let model = outcome::model(&config, &setup, weights);
    if folder.is_written() {
        outcome::write_model(&folder, &setup, &model).map_err(in_folder)?;
    }
    let accuracy = match &test {
        Some(test) => {
            let accuracy = evaluation::accuracy(&setup, test, &model.weights, ranks);
            if accuracy.is_err() && folder.is_written() {
                observer(Event::Note(&format!(
                    "the model is written to {}, and its test failed",
                    folder.path().display()
                )));
            }
            Some(accuracy.map_err(in_folder)?)
        }
        None => None,
    };
    let ended = Ended {
        config: &config,
        setup: &setup,
        trained,
        model,
        test_accuracy: accuracy,
        optimum,
    };
    end(&mut folder, ended).map_err(in_folder)
}

/// A run by either solver.
#[expect(clippy::large_enum_variant)] // there is one
enum AnySession<'a> {
    Newton(NewtonSession<'a>),
    Descent(Session<'a>),
}

fn check(config: &LinearConfig) -> Result<(), TrainError> {
    let wrong = |text: String| Err(TrainError::config(text));
    if config.epochs == 0 {
        return wrong("`epochs` 0 trains nothing; give 1 or more".to_string());
    }
    if config.blocks == Some(0) {
        return wrong("`blocks` 0 cuts an epoch into nothing; give 1 or more".to_string());
    }
    if let (pelton_plan::Order::Block { blocks, .. }, Some(other)) = (config.order, config.blocks)
        && blocks != other
    {
        return wrong(format!(
            "`order` {} and `blocks` {other} ask for different numbers of blocks; give one of them",
            config.order
        ));
    }
    let kept = config.cache_fraction.unwrap_or(0.0);
    if !(0.0..=0.9).contains(&kept) {
        return wrong(format!(
            "`cache_fraction` {kept} is not a share of the block memory between 0 and 0.9",
        ));
    }
    if config
        .target
        .is_some_and(|target| !(target > 0.0 && target < 1.0))
    {
        return wrong(
            "`target` is a relative difference between 0 and 1, such as 1e-3".to_string(),
        );
    }
    let selective = config.skip || kept > 0.0;
    let full = config.order == pelton_plan::Order::Full;
    if selective && !full {
        return wrong(format!(
            "`skip` and `cache_fraction` leave records of an epoch unread, which `order` {} cannot; use `order` full",
            config.order
        ));
    }
    data::check_seconds("checkpoint_every", config.checkpoint_every_s)?;
    if let Some(folder) = &config.scratch_dir {
        data::check_scratch(folder)?;
    }
    Ok(data::check_threads("`threads`", config.threads)?)
}

/// Names what is wrong with data that shows no two classes, or no features: mostly it is something
/// else than it was taken for, and then its first bad record says so better than the count of
/// labels, which passes over labels that cannot be read. Cost: up to one pass, before an error only.
fn refuse_untrainable(
    config: &LinearConfig,
    data: &OpenedData,
    interrupt: &Interrupt,
) -> Result<(), TrainError> {
    let dataset = &data.dataset;
    let labels = dataset.labels();
    if labels.len() >= 2 && dataset.features() > 0 {
        return Ok(());
    }
    read_all(config, dataset, interrupt)?;
    let paths = config.data.paths.join(", ");
    Err(TrainError::config(match labels.values() {
        [] => format!("{paths}: no record can be read; check the file and `format`"),
        _ if dataset.features() == 0 => {
            format!(
                "{paths}: its records have a label and no features; check the file and `format`"
            )
        }
        [only, ..] => format!(
            "{paths}: every record has the label {only}; training needs records of at least two labels"
        ),
    }))
}

/// Reads every record, for the error that says what is wrong with the first that is bad.
fn read_all(
    config: &LinearConfig,
    dataset: &Arc<Dataset>,
    interrupt: &Interrupt,
) -> Result<(), TrainError> {
    let feed = FetchOptions {
        on_bad_record: config.on_bad_record,
        interrupt: Arc::clone(interrupt),
        ..FetchOptions::with_memory(DIAGNOSIS_BYTES.max(64 * dataset.record_bytes().max()))
    };
    for_each_batch(dataset, &feed, |_| Ok(()))?;
    Ok(())
}

fn describe(setup: &Setup, config: &LinearConfig, ranks: usize, observer: Observer<'_>) {
    let dataset = &setup.data.dataset;
    let place = if setup.in_core {
        "all in memory".to_string()
    } else if config.solver == Solver::Newton {
        "read anew in every pass".to_string()
    } else {
        format!(
            "{} blocks of about {} rows an epoch",
            setup.plan.steps(0),
            setup.plan.step_len(0, 0).unwrap_or(0)
        )
    };
    let each = match ranks {
        1 => String::new(),
        _ => format!(" for each of {ranks} ranks"),
    };
    let order = match config.solver {
        Solver::Newton => "Newton's method".to_string(),
        _ => format!("order {}", config.order),
    };
    observer(Event::Note(&format!(
        "{} records, {} features, {} classes, {:.1} MB; budget {:.1} MB{each}: {place}, {order}",
        dataset.records(),
        setup.features(),
        dataset.labels().len(),
        setup.data_bytes as f64 / 1e6,
        setup.memory_bytes as f64 / 1e6,
    )));
    if let Some(note) = many_classes(dataset) {
        observer(Event::Note(&note));
    }
}

#[cfg(test)]
mod tests;
