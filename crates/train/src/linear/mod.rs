//! The job `train linear`: one linear model from data of any size within a memory budget.
//!
//! In order: [`pelton_data::open`] locates the data; `choice` decides open settings; `prepare` makes the passes that
//! come before training (`packing`, `scaling`, `counting`) and yields `Rows`; `division` divides the memory and makes
//! the plan; a `Method` trains (`resident`: rows that fit in memory; `passes`: passes over files, or on ranks;
//! `session`: coordinate descent block by block) and writes a `Journal`; `outcome` writes the results. [`fit`] returns
//! the model to the caller and writes no files. [`fit_rows`] starts with rows already in memory, and trains them like
//! rows of files that fit in memory (`in_memory`).

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
mod task;
mod weighting;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pelton_data::{self as data, DataError, OpenedData, SavedContent};
use pelton_fetch::OnBadRecord;
use pelton_format::RowLayout;
use pelton_linear::Scaling;
use pelton_run::{Event, Interrupt, Observer, RunContext, RunFolder};
use pelton_storage::memory_limit;

pub use crate::start::Start;
pub use arrays::fit_rows;
pub(crate) use evaluation::{Scores, decided, evaluate, for_each_batch};
pub use outcome::Fitted;
pub use pelton_run::RunOptions;

use crate::checkpoint::Progress;
use crate::config::{LinearConfig, Optimum, Solver};
use crate::error::TrainError;
use crate::summary::LinearSummary;
use crate::trained::open_model;
use budget::Budget;
use check::{check, read_all, refuse_untrainable};
use division::Division;
use journal::Journal;
use largest_weights::Names;
use method::Method;
use outcome::{Ended, many_classes};
use passes::PassSession;
use prepare::prepare;
use problem::{Shape, problem, with_folds};
use ranks::Ranks;
use resident::{ResidentSession, in_memory};
use resume::Before;
use rows::Rows;
use session::Session;
use task::Task;
use weighting::Weighting;

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
    let mut given = context.agreed(config)?;
    let RunContext {
        folder: options,
        comm,
        interrupt,
        observer,
    } = context;
    let (ranks, began) = (Ranks(comm), Instant::now());
    check(&given)?;
    let mut data = open(&mut given, ranks, interrupt, observer)?;
    let centre = scaling::target_centre(&given, &data.dataset)?;
    data = data.centred(centre);

    let mut config = given.clone();
    let scratch = &mut config.scratch_dir;
    scratch.get_or_insert_with(|| options.out.clone());
    let earlier = if options.resume {
        Some(Before::read(&options.out, ranks)?)
    } else {
        None
    };
    let before = earlier.as_ref();
    let before = before.and_then(|before| resume::take_over(before, &mut config));
    let usual = LinearConfig::default();
    let is_open = config.solver == Solver::Auto
        && config.order == usual.order
        && config.access == usual.access
        && config.inner_passes == usual.inner_passes;
    let (shape, labels) = (Shape::of(&data), data.dataset.labels());
    let mut search = grid::configured(&config);
    let posed = problem(&config, labels, &shape)?;
    let note = choice::choose(&mut config, &data, &posed, ranks.size(), memory_limit())?;
    let mut notes = vec![note];
    if let Some(config) = &mut search {
        let posed = with_folds(config, problem(config, labels, &shape)?, &shape)?;
        let limit = memory_limit();
        notes.push(choice::choose(config, &data, &posed, ranks.size(), limit)?);
    }
    for note in notes.into_iter().flatten() {
        observer(Event::Note(&note));
    }

    let share = ranks.share(&data.dataset);
    let budget = Budget::new(&config, &data, share, interrupt, observer);
    let context = RunContext::new(comm, interrupt, &mut *observer);
    let weighting = Weighting::of(&config, &data, context)?;
    let weights = weighting.of_records();
    let before = before.as_ref();
    let rows = prepare(
        &config,
        (data, centre),
        &budget,
        before,
        weights,
        ranks,
        observer,
    )?;
    let pose = |config: &LinearConfig, rows: &Rows, weighting: &Weighting| {
        let problem = problem(config, rows.data.dataset.labels(), &Shape::of(&rows.data))?;
        weighting.apply(problem, &rows.data.dataset)
    };
    // The division of memory does not depend on the cost.
    let posed = pose(&config, &rows, &weighting)?;
    let division = Division::new(&config, &rows.data, &posed, budget)?;
    let is_held = division.budget.in_core && ranks.size() == 1;
    // Opened before training so that a wrong test file is reported before the work.
    let test = open_test(&config, &rows, ranks, interrupt, observer)?;
    let budget = &division.budget;
    evaluation::check_threshold(&config, &rows.data, test.as_ref(), ranks, budget)?;
    let given = LinearConfig {
        skip: config.skip,
        cache_fraction: config.cache_fraction,
        solver: if is_held && is_open {
            Solver::Auto
        } else {
            config.solver
        },
        ..given
    };
    let settings = given.decisive();
    let open_folder = || -> Result<RunFolder, TrainError> {
        let folder = if leaves_files && ranks.rank() == 0 {
            RunFolder::open(&options.out, &given, options.resume, options.overwrite)?
        } else {
            RunFolder::unwritten(&options.out)
        };
        ranks.barrier()?;
        Ok(folder.with_settings(settings.clone()))
    };
    // A rank interrupted a moment before may never arrive.
    let waited = |error: &TrainError| {
        matches!(error, TrainError::Data(DataError::Comm(_))) && interrupt.load(Ordering::Relaxed)
    };

    let (mut rows, mut weighting, mut folder, mut searched) = (rows, weighting, None, None);
    let mut began = began;
    if let Some(search) = &search {
        if let Some(before) = &earlier {
            let of = (rows.data.dataset.fingerprint(), weighting.digest());
            searched = before.searched(settings.clone(), is_open, of)?;
        }
        if let Some(found) = &searched {
            observer(Event::Note(&grid::described(found)));
        } else {
            let task = grid::task(search, is_open, (rows, weighting), (ranks, interrupt))?;
            comm.agree(&task.alike())?;
            let searching = Instant::now();
            let opened = folder.insert(open_folder()?);
            let found = grid::search(&task, method_for(&task), opened, observer);
            let is_stopped = |error: &TrainError| error.is_interruption() || waited(error);
            let found = found.map_err(|error| match is_stopped(&error) {
                true => grid::stopped(),
                false => error,
            })?;
            searched = Some(found);
            Task {
                rows,
                weighting,
                ..
            } = task;
            began += searching.elapsed();
        }
    }
    if let Some(found) = &searched {
        config.cost = found.best;
    }
    let posed = pose(&config, &rows, &weighting)?;
    let start = match (&config.given_start, &config.warm_start) {
        (Some(start), _) => Some(Arc::clone(start)),
        (None, Some(model)) => Some(Arc::new(Start::of(&open_model(model)?.model))),
        (None, None) => None,
    };
    let start = start.map(|start| {
        let (dataset, scale) = (
            &rows.data.dataset,
            (rows.scale.as_deref(), rows.target_centre),
        );
        let columns = dataset.columns().map(|columns| columns.feature_names());
        start.weights(
            &posed,
            dataset.labels(),
            &columns.unwrap_or_default(),
            scale,
        )
    });
    let (start, note) = start.transpose()?.unzip();
    if let Some(note) = note.flatten() {
        observer(Event::Note(&note));
    }
    let task = &Task {
        config: &config,
        is_open,
        ranks,
        interrupt,
        start,
        problem: Arc::new(posed),
        rows,
        weighting,
        division,
    };
    task.tell();

    // All errors in the arguments have been found by now, except a checkpoint of another run: only now may the folder
    // be created or cleared, or its configuration replaced.
    let mut method = method_for(task);
    let mut resumed = None;
    if let Some(before) = &earlier
        && let Some((progress, state)) = resume::read(before, settings.clone(), task, observer)?
    {
        if !task.is_held() && !task.config.solver.is_by_passes() {
            check_content(task, &progress, observer)?;
        }
        let position = method.restore(before, &progress, state)?;
        observer(Event::Note(&format!("resuming from {position}")));
        resumed = Some(progress);
    }
    comm.agree(&task.alike())?;
    comm.agree(&method.place())?;
    let mut folder = match folder {
        Some(folder) => folder,
        None => open_folder()?,
    };
    if let Some(note) = folder.note() {
        observer(Event::Note(note));
    }
    let solving = Instant::now();
    let optimum = optimum(task, observer)?;
    let began = began + solving.elapsed();
    describe(task, observer);

    let in_folder = |error: TrainError| {
        if error.is_interruption() || waited(&error) {
            // The file being read at that moment does not matter to a later resume.
            TrainError::Interrupted {
                folder: options.out.display().to_string(),
            }
        } else {
            error
        }
    };
    let records = task.rows.data.dataset.records();
    let mut journal = Journal::new(&mut folder, &mut *observer, ranks, records, began);
    journal.optimum = optimum;
    journal.heading = task.heading();
    journal.data = Some(Arc::clone(&task.rows.data.dataset));
    journal.done = task.rows.spent;
    resumed
        .into_iter()
        .for_each(|progress| journal.resume(progress, task.rows.scale.is_some()));
    let trained = method.train(&mut journal);
    let mut trained =
        trained.map_err(|error| in_folder(error).located_in(&task.rows.data.dataset))?;

    let left_out = &trained.found.meters.skipped_ids;
    if let Some(note) = data::left_out(&task.rows.data.dataset, left_out) {
        observer(Event::Note(&note));
    }
    if !trained.found.solved.certificate.primal.is_finite() {
        return Err(TrainError::config(
            "the solution is not finite, and no model is written; scale features down, for instance with `scale` standard, or lower `cost`".to_string(),
        ));
    }
    let mut model = outcome::model(task, std::mem::take(&mut trained.found.solved.weights));
    let inference = trained.found.solved.precision.take().map(|found| {
        let (dataset, problem) = (&task.rows.data.dataset, &task.problem);
        let names = Names::new(model.columns.as_deref(), dataset);
        let records = dataset.records() - left_out.len() as u64;
        inference::inference(problem, &found, records, &model, |at| names.of(at))
    });
    if let Some(found) = &inference {
        observer(Event::Note(&inference::text(found)));
        for warning in inference::warnings(found) {
            observer(Event::Note(&warning));
        }
    }
    if folder.is_written() {
        outcome::write_model(&folder, task, &model).map_err(in_folder)?;
    }
    let tested = test.map(|test| evaluation::test(task, &test, &model.weights, observer));
    if tested.as_ref().is_some_and(Result::is_err) && folder.is_written() {
        observer(Event::Note(&format!(
            "the model was written to {}, but testing it failed",
            folder.path().display()
        )));
    }
    let test = tested.transpose().map_err(in_folder)?.unwrap_or_default();
    if test.threshold.is_some() {
        model.threshold = test.threshold;
        if folder.is_written() {
            outcome::write_model(&folder, task, &model).map_err(in_folder)?;
        }
    }
    let ended = Ended {
        trained,
        model,
        test,
        optimum,
        search: searched,
        inference,
    };
    end(&mut folder, task, ended).map_err(in_folder)
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

/// The method that trains a task.
fn method_for<'a>(task: &'a Task<'a>) -> Box<dyn Method + 'a> {
    match (task.is_held(), task.config.solver) {
        (true, _) => Box::new(ResidentSession::new(task)),
        (_, solver) if solver.is_by_passes() => {
            Box::new(PassSession::new(task, task.config.target))
        }
        _ => Box::new(Session::new(task)),
    }
}

/// Opens the training data, decides the settings that depend on it, and refuses data that no model can be trained on.
fn open(
    config: &mut LinearConfig,
    ranks: Ranks<'_>,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<OpenedData, TrainError> {
    let paths = &config.data.paths.clone();
    if paths.is_empty() {
        return Err(TrainError::config(
            "no data is given; name files, or demo:higgs to try generated data".to_string(),
        ));
    }
    let skips = config.on_bad_record != OnBadRecord::Fail;
    let data = config.data.with_rows(match config.scale {
        Scaling::None => RowLayout::DenseWhereFull,
        _ => RowLayout::WithZeros,
    });
    let settings = data.leaving_damage(skips).with_codes();
    let settings = settings.with_targets(config.loss.has_real_targets());
    let mut data = ranks.open(&settings, paths, None, interrupt, observer)?;
    if std::mem::take(&mut config.guesses_loss) {
        config.loss = choice::guess_loss(config, data.dataset.labels(), data.dataset.records());
    }
    if config.loss.has_real_targets() && !settings.targets {
        observer(Event::Note(&format!(
            "{}: its {} labels are numbers rather than classes, so a regression is trained (`loss` squared); `loss` multinomial makes each a class",
            paths.join(", "),
            data.dataset.labels().len()
        )));
        let settings = settings.with_targets(true);
        data = ranks.open(&settings, paths, None, interrupt, observer)?;
    }
    if config.scale == Scaling::Auto {
        let is_table = data.dataset.columns().is_some();
        config.scale = if is_table {
            Scaling::Standard
        } else {
            Scaling::None
        };
    }
    let columns = data.dataset.column_uses().iter();
    let lines: String = columns.map(|column| format!("\n  {column}")).collect();
    if !lines.is_empty() {
        observer(Event::Note(&format!(
            "columns as features (`column` NAME=KIND changes them):{lines}"
        )));
    }
    refuse_untrainable(config, &data, interrupt)?;
    scaling::refuse_coarse(&data.dataset, config, paths)?;
    let records = data.dataset.records();
    if let Some(blocks) = config.blocks.filter(|&blocks| blocks > records) {
        return Err(TrainError::config(format!(
            "`blocks` {blocks} is more than the {records} records; give 1 to {records}"
        )));
    }
    if let Some(folds) = config.folds.filter(|&folds| u64::from(folds) > records) {
        return Err(TrainError::config(format!(
            "`folds` {folds} is more than the {records} records; give 2 to {records}"
        )));
    }
    Ok(data)
}

/// Opens the test data, if there is any.
fn open_test(
    config: &LinearConfig,
    rows: &Rows,
    ranks: Ranks<'_>,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<Option<OpenedData>, TrainError> {
    let paths = if config.test.is_empty() {
        &rows.data.test
    } else {
        &config.test
    };
    if paths.is_empty() {
        return Ok(None);
    }
    let scale = rows.scale.as_ref();
    let skips = config.on_bad_record != OnBadRecord::Fail;
    let data = config.data.with_rows(data::row_layout(
        scale.map(AsRef::as_ref),
        rows.data.dataset.columns().map(AsRef::as_ref),
    ));
    let data = data.leaving_damage(skips).with_codes();
    let data = data.with_targets(config.loss.has_real_targets());
    let expected = rows.expected();
    let opened = ranks.open(&data, paths, Some(&expected), interrupt, observer)?;
    // Bad records are skipped one by one.
    if !skips && opened.dataset.has_unknown_class() {
        read_all(config, &opened.dataset, interrupt)?;
    }
    Ok(Some(opened.scaled(scale).centred(rows.target_centre)))
}

/// The optimum that relative differences refer to, which may have to be computed first.
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
    let order = if task.is_held() && in_memory(task, task.config).is_raced() {
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
