//! The stages before training: data with a configuration that leaves nothing open ([`Given`]), rows as they are trained
//! on ([`Prepared`]), memory and plan ([`Divided`]), the cost of a search ([`Searched`]), and the [`Task`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pelton_data::{DataError, OpenedData};
use pelton_linear::{Problem, Weights};
use pelton_run::{Event, Interrupt, Observer, RunContext, RunFolder, RunOptions};
use pelton_storage::memory_limit;

use super::budget::Budget;
use super::division::Division;
use super::evaluation::check_threshold;
use super::methods::method_for;
use super::opening::{open, open_test};
use super::prepare::prepare;
use super::problem::{Shape, problem, with_folds};
use super::ranks::Ranks;
use super::resume::{Before, take_over};
use super::rows::Rows;
use super::task::Task;
use super::weighting::Weighting;
use super::{choice, grid, scaling};
use crate::checkpoint::Progress;
use crate::config::{LinearConfig, Solver};
use crate::error::TrainError;
use crate::start::Start;
use crate::summary::SearchFigures;
use crate::trained::open_model;

/// What all stages of a run share.
pub(super) struct Job<'a> {
    pub options: &'a RunOptions,
    pub ranks: Ranks<'a>,
    pub interrupt: &'a Interrupt,
    /// Whether the run folder is written.
    pub leaves_files: bool,
}

impl Job<'_> {
    /// Opens the run folder, which rank 0 writes.
    pub fn open_folder(&self, given: &LinearConfig) -> Result<RunFolder, TrainError> {
        let options = self.options;
        let folder = if self.leaves_files && self.ranks.rank() == 0 {
            RunFolder::open(&options.out, given, options.resume, options.overwrite)?
        } else {
            RunFolder::unwritten(&options.out)
        };
        self.ranks.barrier()?;
        Ok(folder.with_settings(given.decisive()))
    }

    /// Whether an error is an interruption. A rank that was interrupted a moment before may never arrive.
    pub fn is_stop(&self, error: &TrainError) -> bool {
        let is_of_ranks = matches!(error, TrainError::Data(DataError::Comm(_)));
        error.is_interruption() || is_of_ranks && self.interrupt.load(Ordering::Relaxed)
    }

    /// An error of training, with the folder if it is an interruption: the file that was being read then does not
    /// matter to a later resume.
    pub fn in_folder(&self, error: TrainError) -> TrainError {
        if self.is_stop(&error) {
            TrainError::interrupted_in(&self.options.out)
        } else {
            error
        }
    }
}

/// The configuration of a run.
pub(super) struct Choices {
    /// As given; what the data decides is filled in.
    given: LinearConfig,
    /// With nothing left open.
    config: LinearConfig,
    /// The same for the search among costs.
    search: Option<LinearConfig>,
    /// The run to resume.
    pub earlier: Option<Before>,
    /// Whether the choice of solver was left open.
    is_open: bool,
}

/// The data is open, and the configuration leaves nothing open.
pub(super) struct Given {
    choices: Choices,
    data: OpenedData,
    target_centre: f64,
    progress: Option<Progress>,
}

impl Given {
    /// Opens the data and decides what `given` leaves open.
    pub fn new(
        mut given: LinearConfig,
        job: &Job<'_>,
        observer: Observer<'_>,
    ) -> Result<Given, TrainError> {
        let ranks = job.ranks;
        let data = open(&mut given, ranks, job.interrupt, observer)?;
        let target_centre = scaling::target_centre(&given, &data.dataset)?;
        let data = data.centred(target_centre);
        let mut config = given.clone();
        let scratch = &mut config.scratch_dir;
        scratch.get_or_insert_with(|| job.options.out.clone());
        let resume = job.options.resume;
        let earlier = resume.then(|| Before::read(&job.options.out, ranks));
        let earlier = earlier.transpose()?;
        let before = earlier.as_ref();
        let progress = before.and_then(|before| take_over(before, &mut config));
        let usual = LinearConfig::default();
        let is_open = config.solver == Solver::Auto
            && config.order == usual.order
            && config.access == usual.access
            && config.inner_passes == usual.inner_passes;
        let (shape, labels) = (Shape::from_data(&data), data.dataset.labels());
        let mut search = grid::configured(&config);
        let mut choose = |config: &mut LinearConfig, problem: &Problem| {
            let note = choice::choose(config, &data, problem, ranks.size(), memory_limit())?;
            note.iter().for_each(|note| observer(Event::Note(note)));
            Ok::<_, TrainError>(())
        };
        let of_one = problem(&config, labels, &shape)?;
        choose(&mut config, &of_one)?;
        if let Some(config) = &mut search {
            let of_folds = with_folds(config, problem(config, labels, &shape)?, &shape)?;
            choose(config, &of_folds)?;
        }
        let choices = Choices {
            given,
            config,
            search,
            earlier,
            is_open,
        };
        Ok(Given {
            choices,
            data,
            target_centre,
            progress,
        })
    }

    /// Makes the passes over the data that come before training.
    pub fn prepare(self, job: &Job<'_>, observer: Observer<'_>) -> Result<Prepared, TrainError> {
        let (config, ranks) = (&self.choices.config, job.ranks);
        let share = ranks.share(&self.data.dataset);
        let budget = Budget::new(config, &self.data, share, job.interrupt, observer);
        let context = RunContext::new(ranks.0, job.interrupt, &mut *observer);
        let weighting = Weighting::from_config(config, &self.data, context)?;
        let data = (self.data, self.target_centre);
        let weights = weighting.of_records();
        let before = self.progress.as_ref();
        let rows = prepare(config, data, &budget, before, weights, ranks, observer)?;
        Ok(Prepared {
            choices: self.choices,
            rows,
            weighting,
            budget,
        })
    }
}

/// Rows are as they are trained on.
pub(super) struct Prepared {
    choices: Choices,
    rows: Rows,
    weighting: Weighting,
    budget: Budget,
}

impl Prepared {
    /// Divides the memory, and opens the test data: a wrong test file is reported before the work.
    pub fn divide(self, job: &Job<'_>, observer: Observer<'_>) -> Result<Divided, TrainError> {
        let Prepared {
            mut choices,
            rows,
            weighting,
            budget,
        } = self;
        let (config, ranks) = (&choices.config, job.ranks);
        // How memory is divided does not depend on the cost.
        let problem = problem_of(config, &rows, &weighting)?;
        let division = Division::new(config, &rows.data, &problem, budget)?;
        let test = open_test(config, &rows, ranks, job.interrupt, observer)?;
        check_threshold(config, &rows.data, test.as_ref(), ranks, &division.budget)?;
        let given = &mut choices.given;
        (given.skip, given.cache_fraction) = (config.skip, config.cache_fraction);
        let is_held = division.budget.in_core && ranks.size() == 1;
        given.solver = if is_held && choices.is_open {
            Solver::Auto
        } else {
            config.solver
        };
        Ok(Divided {
            choices,
            rows,
            weighting,
            division,
            test,
        })
    }
}

fn problem_of(
    config: &LinearConfig,
    rows: &Rows,
    weighting: &Weighting,
) -> Result<Problem, TrainError> {
    let problem = problem(
        config,
        rows.data.dataset.labels(),
        &Shape::from_data(&rows.data),
    )?;
    weighting.apply(problem, &rows.data.dataset)
}

/// Memory is divided, and a plan made.
pub(super) struct Divided {
    choices: Choices,
    rows: Rows,
    weighting: Weighting,
    division: Division,
    test: Option<OpenedData>,
}

impl Divided {
    /// Searches the cost, if there are several, unless the run to resume has done so.
    pub fn search(mut self, job: &Job<'_>, observer: Observer<'_>) -> Result<Searched, TrainError> {
        let none = |divided, found| Searched {
            divided,
            found,
            folder: None,
            took: Duration::ZERO,
        };
        let choices = &self.choices;
        let Some(search) = &choices.search else {
            return Ok(none(self, None));
        };
        if let Some(before) = &choices.earlier {
            let data = (
                self.rows.data.dataset.fingerprint(),
                self.weighting.digest(),
            );
            let found = before.searched(choices.given.decisive(), choices.is_open, data)?;
            if let Some(found) = found {
                observer(Event::Note(&grid::described(&found)));
                self.choices.config.cost = found.best;
                return Ok(none(self, Some(found)));
            }
        }
        let data = (self.rows, self.weighting);
        let task = grid::task(search, choices.is_open, data, (job.ranks, job.interrupt))?;
        job.ranks.0.agree(&task.alike())?;
        let began = Instant::now();
        let folder = job.open_folder(&choices.given)?;
        let found = grid::search(&task, method_for(&task), &folder, observer);
        let found = found.map_err(|error| {
            if job.is_stop(&error) {
                grid::stopped()
            } else {
                error
            }
        })?;
        (self.rows, self.weighting) = (task.rows, task.weighting);
        self.choices.config.cost = found.best;
        Ok(Searched {
            divided: self,
            found: Some(found),
            folder: Some(folder),
            took: began.elapsed(),
        })
    }
}

/// The cost is known.
pub(super) struct Searched {
    divided: Divided,
    found: Option<SearchFigures>,
    /// Opened by the search.
    folder: Option<RunFolder>,
    /// Time of the search.
    took: Duration,
}

/// What [`Searched::task`] leaves for the end of the run.
pub(super) struct Rest {
    pub given: LinearConfig,
    pub earlier: Option<Before>,
    pub test: Option<OpenedData>,
    pub search: Option<SearchFigures>,
    pub folder: Option<RunFolder>,
    pub searched: Duration,
}

impl Searched {
    /// The task, with the weights to begin from.
    pub fn task<'a>(
        self,
        job: &Job<'a>,
        observer: Observer<'_>,
    ) -> Result<(Task<'a>, Rest), TrainError> {
        let Divided {
            choices,
            rows,
            weighting,
            division,
            test,
        } = self.divided;
        let problem = problem_of(&choices.config, &rows, &weighting)?;
        let start = start(&choices.config, &problem, &rows, observer)?;
        let task = Task {
            config: choices.config,
            is_open: choices.is_open,
            ranks: job.ranks,
            interrupt: job.interrupt,
            start,
            problem: Arc::new(problem),
            rows,
            weighting,
            division,
        };
        let rest = Rest {
            given: choices.given,
            earlier: choices.earlier,
            test,
            search: self.found,
            folder: self.folder,
            searched: self.took,
        };
        Ok((task, rest))
    }
}

/// The weights of the model to begin from.
fn start(
    config: &LinearConfig,
    problem: &Problem,
    rows: &Rows,
    observer: Observer<'_>,
) -> Result<Option<Weights>, TrainError> {
    let start = match (&config.given_start, &config.warm_start) {
        (Some(start), _) => Arc::clone(start),
        (None, Some(model)) => Arc::new(Start::from_model(&open_model(model)?.model)),
        (None, None) => return Ok(None),
    };
    let dataset = &rows.data.dataset;
    let names = dataset.columns().map(|columns| columns.feature_names());
    let names = names.unwrap_or_default();
    let scale = (rows.scale.as_deref(), rows.target_centre);
    let (weights, note) = start.weights(problem, dataset.labels(), &names, scale)?;
    if let Some(note) = note {
        observer(Event::Note(&note));
    }
    Ok(Some(weights))
}
