//! The job `train linear`: one linear model from data of any size within a memory budget.
//!
//! It goes down the list (`stages`): the data is located ([`pelton_data::open`]); `choice` decides what the
//! configuration leaves open; `prepare` makes the passes that come before training (`packing`, `scaling`, `counting`) and yields
//! `Rows`; `division` divides the memory and makes the plan; a `Method` trains (`resident`: rows that fit in memory;
//! `passes`: passes over files, or on ranks; `session`: coordinate descent block by block) and writes a `Journal`;
//! `outcome` writes the results. [`fit`] returns the model to the caller and writes no files. [`fit_rows`] starts
//! with rows already in memory, and trains them like rows of files that fit in memory (`in_memory`).

mod arrays;
mod budget;
mod check;
mod choice;
mod counting;
mod division;
mod evaluation;
mod first_pass;
mod grid;
mod in_memory;
mod inference;
mod journal;
mod largest_weights;
mod method;
mod methods;
mod opening;
mod optimum;
mod outcome;
mod packing;
mod passes;
mod prepare;
mod problem;
mod quality;
mod ranks;
mod reading;
mod report;
mod resident;
mod resume;
mod rows;
mod scaling;
mod session;
mod stages;
mod task;
mod weighting;

use std::sync::Arc;
use std::time::Instant;

use pelton_data::{self as data, OpenedData, SavedContent};
use pelton_linear::{Model, Scaling};
use pelton_run::{Event, Observer, RunContext, RunFolder, Settings};

pub use crate::start::Start;
pub use arrays::fit_rows;
pub(crate) use evaluation::{Scores, decided, evaluate, for_each_batch};
pub use outcome::Fitted;
pub use pelton_run::RunOptions;

use crate::checkpoint::Progress;
use crate::config::{LinearConfig, Optimum};
use crate::error::TrainError;
use crate::summary::{InferenceFigures, LinearSummary, Tested};
use check::check;
use journal::{Journal, Trained};
use largest_weights::Names;
use method::Method;
use methods::method_for;
use outcome::{Ended, many_classes};
use ranks::Ranks;
use resident::in_memory;
use resume::Before;
use stages::{Given, Job};
use task::Task;

/// Trains a linear model and leaves its files in the run folder. Each rank has its own memory budget; only
/// rank 0 writes the folder, and its figures cover all ranks.
///
/// Errors: bad configuration or input; a failed run; an interruption, after saving the state; another rank's failure.
pub fn run(config: &LinearConfig, context: RunContext<'_>) -> Result<LinearSummary, TrainError> {
    train(config, context, true, |folder, task, ended| {
        if !folder.is_written() {
            return Ok(LinearSummary::default());
        }
        outcome::write(folder, task, ended)
    })
}

/// Trains a linear model as [`run`] does and hands it to the caller. Scratch copies are unnamed files in `scratch_dir`,
/// by default the system's folder for temporary files; nothing remains.
///
/// Errors: those of [`run`]; an interrupted run is lost.
pub fn fit(config: &LinearConfig, context: RunContext<'_>) -> Result<Fitted, TrainError> {
    let mut config = config.clone();
    config.scratch_dir.get_or_insert_with(std::env::temp_dir);
    train(&config, context, false, |_, task, ended| {
        Ok(outcome::fitted(task, ended))
    })
}

fn train<T>(
    config: &LinearConfig,
    context: RunContext<'_>,
    leaves_files: bool,
    end: impl FnOnce(&mut RunFolder, &Task<'_>, Ended) -> Result<T, TrainError>,
) -> Result<T, TrainError> {
    let (agreed, began) = (context.agreed(config)?, Instant::now());
    let RunContext {
        folder: options,
        comm,
        interrupt,
        observer,
    } = context;
    let job = &Job {
        options: &options,
        ranks: Ranks(comm),
        interrupt,
        leaves_files,
    };
    check(&agreed)?;
    let given = Given::new(agreed, job, observer)?;
    let prepared = given.prepare(job, observer)?;
    let divided = prepared.divide(job, observer)?;
    let searched = divided.search(job, observer)?;
    let (task, rest) = searched.task(job, observer)?;
    let task = &task;
    task.tell();

    // All errors in the arguments have been found by now, except a checkpoint of another run: only now may the folder
    // be created or cleared, or its configuration replaced.
    let mut method = method_for(task);
    let resumed = match &rest.earlier {
        Some(before) => resume(&mut *method, before, rest.given.decisive(), task, observer)?,
        None => None,
    };
    comm.agree(&task.alike())?;
    comm.agree(&method.place())?;
    let mut folder = match rest.folder {
        Some(folder) => folder,
        None => job.open_folder(&rest.given)?,
    };
    if let Some(note) = folder.note() {
        observer(Event::Note(note));
    }
    let solving = Instant::now();
    let optimum = optimum(task, observer)?;
    let began = began + rest.searched + solving.elapsed();
    describe(task, observer);

    let records = task.rows.data.dataset.records();
    let mut journal = Journal::new(&mut folder, &mut *observer, job.ranks, records, began);
    journal.optimum = optimum;
    journal.heading = task.heading();
    journal.data = Some(Arc::clone(&task.rows.data.dataset));
    journal.done = task.rows.spent;
    if let Some(progress) = resumed {
        journal.resume(progress, task.rows.scale.is_some());
    }
    let trained = method.train(&mut journal);
    let trained =
        trained.map_err(|error| job.in_folder(error).located_in(&task.rows.data.dataset))?;
    let (trained, model, inference) = finished(task, trained, observer)?;
    let (model, test) = {
        let tested = write_and_test(task, model, rest.test, &folder, observer);
        tested.map_err(|error| job.in_folder(error))?
    };
    let ended = Ended {
        trained,
        model,
        test,
        optimum,
        search: rest.search,
        inference,
    };
    end(&mut folder, task, ended).map_err(|error| job.in_folder(error))
}

/// Restores the state of the run before; `None` without a checkpoint.
fn resume(
    method: &mut dyn Method,
    before: &Before,
    settings: Settings,
    task: &Task<'_>,
    observer: Observer<'_>,
) -> Result<Option<Progress>, TrainError> {
    let Some((progress, state)) = resume::read(before, settings, task, observer)? else {
        return Ok(None);
    };
    if !task.is_held() && !task.config.solver.is_by_passes() {
        check_content(task, &progress, observer)?;
    }
    let position = method.restore(before, &progress, state)?;
    observer(Event::Note(&format!("resuming from {position}")));
    Ok(Some(progress))
}

/// The model of what was trained, and its inference, with what there is to say about both.
fn finished(
    task: &Task<'_>,
    mut trained: Trained,
    observer: Observer<'_>,
) -> Result<(Trained, Model, Option<InferenceFigures>), TrainError> {
    let dataset = &task.rows.data.dataset;
    let left_out = &trained.found.meters.skipped_ids;
    if let Some(note) = data::left_out(dataset, left_out) {
        observer(Event::Note(&note));
    }
    let records = dataset.records() - left_out.len() as u64;
    let solved = &mut trained.found.solved;
    if !solved.certificate.primal.is_finite() {
        return Err(TrainError::config(
            "the solution is not finite, and no model is written; scale features down, for instance with `scale` standard, or lower `cost`".to_string(),
        ));
    }
    let model = outcome::model(task, std::mem::take(&mut solved.weights));
    let inference = solved.precision.take().map(|found| {
        let names = Names::new(model.columns.as_deref(), dataset);
        inference::inference(&task.problem, &found, records, &model, |at| names.of(at))
    });
    if let Some(found) = &inference {
        observer(Event::Note(&inference::text(found)));
        for warning in inference::warnings(found) {
            observer(Event::Note(&warning));
        }
    }
    Ok((trained, model, inference))
}

/// Writes the model, tests it, and writes the threshold that the test chose.
fn write_and_test(
    task: &Task<'_>,
    mut model: Model,
    test: Option<OpenedData>,
    folder: &RunFolder,
    observer: Observer<'_>,
) -> Result<(Model, Tested), TrainError> {
    if folder.is_written() {
        outcome::write_model(folder, task, &model)?;
    }
    let tested = test.map(|test| evaluation::test(task, &test, &model.weights, observer));
    if tested.as_ref().is_some_and(Result::is_err) && folder.is_written() {
        observer(Event::Note(&format!(
            "the model was written to {}, but testing it failed",
            folder.path().display()
        )));
    }
    let tested = tested.transpose()?.unwrap_or_default();
    if tested.threshold.is_some() {
        model.threshold = tested.threshold;
        if folder.is_written() {
            outcome::write_model(folder, task, &model)?;
        }
    }
    Ok((model, tested))
}

/// Reads the data, if its files have other times than when the checkpoint was written, before coordinate descent
/// resumes.
fn check_content(
    task: &Task<'_>,
    progress: &Progress,
    observer: Observer<'_>,
) -> Result<(), TrainError> {
    let saved = SavedContent {
        files: progress.files,
        first: progress.first,
        so_far: progress.so_far,
        place: progress.cursor(),
    };
    let (dataset, plan) = (&task.rows.data.dataset, &task.division.plan);
    Ok(data::check_content(
        dataset,
        plan,
        saved,
        task.interrupt,
        observer,
    )?)
}

/// The optimum that relative differences are to, which may have to be solved for first.
fn optimum(task: &Task<'_>, observer: Observer<'_>) -> Result<Option<f64>, TrainError> {
    let gap = match task.config.optimum {
        Optimum::Unknown => return Ok(None),
        Optimum::Value(value) => return Ok(Some(value)),
        // The run cannot measure more precisely than a hundredth of the target.
        Optimum::Auto => {
            let target = task.config.target.gap();
            target.map_or(1e-6, |target| (0.01 * target).clamp(1e-6, 1e-4))
        }
    };
    observer(Event::Note(&format!(
        "solving for the optimum first, to a relative gap of {gap:.0e}"
    )));
    let found = optimum::optimum(task, gap, observer);
    let found = found.map_err(|error| {
        if error.is_interruption() {
            optimum::stopped()
        } else {
            error
        }
    })?;
    Ok(Some(found))
}

fn describe(task: &Task<'_>, observer: Observer<'_>) {
    let (dataset, division) = (&task.rows.data.dataset, &task.division);
    let by_passes = task.config.solver.is_by_passes();
    let place = if division.budget.in_core {
        "all in memory".to_string()
    } else if by_passes {
        "read again in every pass".to_string()
    } else {
        format!(
            "{} blocks of about {} rows an epoch",
            division.plan.steps(0),
            division.plan.step_len(0, 0).unwrap_or(0)
        )
    };
    let each = match task.ranks.size() {
        1 => String::new(),
        ranks => format!(" for each of {ranks} ranks"),
    };
    let order = if task.is_held() && in_memory(task, &task.config).is_raced() {
        "coordinate descent, or Newton's method if that is faster".to_string()
    } else if by_passes {
        task.config.solver.method().to_string()
    } else {
        format!("order {}", task.config.order)
    };
    let labels = if task.config.loss.has_real_targets() {
        "real targets".to_string()
    } else {
        format!("{} classes", dataset.labels().len())
    };
    let scaled = match task.config.scale {
        Scaling::None => String::new(),
        scale => format!(", numbers scaled ({scale})"),
    };
    observer(Event::Note(&format!(
        "{} records, {} features, {labels}, loss {}{scaled}, {:.1} MB; budget {:.1} MB{each}: {place}, {order}",
        dataset.records(),
        task.rows.features(),
        task.config.loss,
        task.rows.data_bytes as f64 / 1e6,
        division.budget.bytes as f64 / 1e6,
    )));
    if let Some(note) = many_classes(dataset, task.config.loss) {
        observer(Event::Note(&note));
    }
}

#[cfg(test)]
mod tests;
