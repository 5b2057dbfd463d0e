//! What a linear run needs before its first block: the data, the division of the memory budget, the
//! plan and the problem.

use std::sync::Arc;

use pelton_comm::Alike;
use pelton_data::{Expected, OpenedData, plan_of};
use pelton_fetch::{Access, FetchOptions, Share, choose_path, largest_batch, pane_row_bytes};
use pelton_format::{ClassMap, Dataset, Layout, Scale};
use pelton_linear::{
    CodedCache, FeatureNumbering, MOST_NEWTON_FEATURES, Newton, OutOfCoreOptions, Problem, Scratch,
    Tightening, newton_pays,
};
use pelton_plan::{Batching, Order, Place, Plan};
use pelton_run::Interrupt;

use super::room::{self, asked_bytes};
use crate::checkpoint::Totals;
use crate::config::{LinearConfig, Solver};
use crate::error::TrainError;

/// Share of the budget that a snapshot of w may take for free certificates.
const SNAPSHOT_SHARE: f64 = 0.125;
/// Share of the budget kept for evaluation passes where there is no snapshot.
const EVALUATION_SHARE: f64 = 0.0625;

/// Mean length from which a row that is left unread is a page that is left unread.
const PAGE_BYTES: u64 = 4096;
/// Share of the budget for rows kept as codes where nothing is said: more leaves blocks that are read
/// in small pieces.
const CODED_SHARE: f64 = 0.6;
/// Rows of a block below which fewer rows are kept as codes.
const LEAST_BLOCK_BESIDE_CODES: u64 = 64;
/// Features from which rows are kept as codes: with fewer, their overhead is too large a part of them,
/// and a pass or two leave nothing to gain.
const LEAST_CODED_FEATURES: usize = 128;

/// Tolerance of a block that is all rows, with a target and without one, after some epochs.
pub(super) const FINEST_TOLERANCE: f32 = 1e-6;
const FINE_TOLERANCE: f32 = 1e-3;
/// Epochs over ranks, beside the first, after which the tolerance of blocks tightens: together they hold few
/// blocks, and undo little of one another by then.
const LOOSE_EPOCHS: u64 = 4;

/// Everything that is fixed before the first block.
#[derive(Debug)]
pub struct Setup {
    /// The training data.
    pub data: OpenedData,
    /// The memory budget in bytes.
    pub memory_bytes: u64,
    /// The problem.
    pub problem: Arc<Problem>,
    /// The plan.
    pub plan: Arc<Plan>,
    /// How blocks are trained.
    pub options: OutOfCoreOptions,
    /// How the feed runs; its start is set by the caller.
    pub feed: FetchOptions,
    /// Whether all rows are held in memory at once.
    pub in_core: bool,
    /// Bytes for evaluation passes beside the training feed.
    pub evaluation_bytes: u64,
    /// Ends passes early that leave nothing to save.
    pub interrupt: Interrupt,
    /// Bytes of the records in their own files.
    pub data_bytes: u64,
    /// Whether rows are read from a packed copy.
    pub packed: bool,
    /// The scale that rows of the training data come with, and those of others need.
    pub scale: Option<Arc<Scale>>,
    /// The numbers that rows of the training data come with for their features, where these are not their
    /// own.
    pub numbering: Option<Arc<FeatureNumbering>>,
    /// What passes before training took, over all ranks.
    pub before: Totals,
}

/// Divides the budget and makes the plan.
pub fn set_up(config: &LinearConfig, data: OpenedData) -> Result<Setup, TrainError> {
    set_up_share(config, data, None)
}

/// The same for a rank that takes a share of every block, within a budget of its own: blocks are as large
/// as all ranks together can hold. The plan is the same for every rank.
pub(super) fn set_up_share(
    config: &LinearConfig,
    data: OpenedData,
    share: Option<Share>,
) -> Result<Setup, TrainError> {
    let dataset = &data.dataset;
    let problem = Arc::new(problem(config, dataset.labels(), &Shape::of(&data))?);
    let row_bytes = pane_row_bytes(dataset) + Scratch::bytes_for(1) as u64;
    let records = dataset.records();
    let whole = row_bytes * rows_of(share.as_ref(), records, records);
    // Demo sets are as tiny as anybody wants them.
    let demo = |path: &String| path.starts_with("demo:");
    let least = match config
        .memory_share
        .filter(|_| config.data.paths.iter().any(demo))
    {
        Some(_) => least_bytes(config, dataset),
        None => 0,
    };
    let memory_bytes = asked_bytes(config, dataset).max(least);
    let mut feed = FetchOptions {
        access: config.access,
        threads: config.threads.max(1),
        on_bad_record: config.on_bad_record,
        end_epoch: Some(config.epochs),
        scratch_dir: config.scratch_dir.clone(),
        device: data.device.speed(),
        start: Place::default(),
        share,
        ..FetchOptions::with_memory(memory_bytes)
    };
    let chosen = matches!(config.order, Order::Block { .. }) || config.blocks.is_some();
    let in_core = !chosen && whole + whole / 16 + (4 << 20) <= memory_bytes;
    let mut options = options(config, in_core, feed.share.is_some());
    let mut evaluation_bytes = memory_bytes;
    // The snapshot, the mean that becomes the next one, and the sum of rows in f64.
    let snapshot_bytes = 4 * 4 * problem.subproblems() as u64 * dataset.features();
    let plan = if in_core {
        // The w of several ranks is best taken as the mean of its last rounds.
        options.snapshots = feed.share.is_some() && whole + snapshot_bytes <= memory_bytes;
        plan(config, &data, Batching::Batches(1))?
    } else {
        options.snapshots = snapshot_bytes as f64 <= memory_bytes as f64 * SNAPSHOT_SHARE;
        let beside = if options.snapshots {
            snapshot_bytes
        } else {
            evaluation_bytes = (memory_bytes as f64 * EVALUATION_SHARE) as u64;
            evaluation_bytes
        };
        let left = memory_bytes - beside.min(memory_bytes);
        let mut kept = config.cache_fraction.unwrap_or(0.0);
        loop {
            let room = (kept * memory_bytes as f64) as u64;
            if options.snapshots {
                options.coded_rows = coded_rows(dataset, &problem, room);
            }
            let coded_bytes = (options.coded_rows * CodedCache::row_bytes(&problem)) as u64;
            feed.memory_bytes = left - coded_bytes.min(left);
            // Rows kept as codes are read every epoch, so that w stays exact.
            let whole = options.coded_rows == 0;
            options.skip = config.skip && whole;
            feed.epoch_barrier = options.skip;
            feed.access = config.access;
            let divided = divide(config, &data, &mut feed);
            let small = match &divided {
                Ok(plan) => longest_step(plan) < LEAST_BLOCK_BESIDE_CODES,
                Err(_) => true,
            };
            if whole || !small {
                break divided?;
            }
            // Small blocks cost more reads than the rows kept save.
            kept *= if kept > 0.1 { 0.5 } else { 0.0 };
        }
    };
    Ok(Setup {
        memory_bytes,
        problem,
        plan: Arc::new(plan),
        options,
        feed,
        in_core,
        evaluation_bytes,
        interrupt: Interrupt::default(),
        data_bytes: data.dataset.bytes(),
        packed: false,
        scale: None,
        numbering: None,
        before: Totals::default(),
        data,
    })
}

/// How blocks are trained, as far as that does not depend on the memory.
pub(super) fn options(config: &LinearConfig, in_core: bool, over_ranks: bool) -> OutOfCoreOptions {
    OutOfCoreOptions {
        inner: config.inner_passes,
        tighten: (in_core || over_ranks).then_some(Tightening {
            after: if in_core { 0 } else { LOOSE_EPOCHS },
            to: if config.target.is_some() {
                FINEST_TOLERANCE
            } else {
                FINE_TOLERANCE
            },
        }),
        skip: false,
        coded_rows: 0,
        snapshots: false,
        held: in_core,
        seed: config.seed,
    }
}

/// The least that a share of a demo set comes to: twice the smallest read buffers, with some rows beside
/// them. Of a tiny one a share would hold neither.
fn least_bytes(config: &LinearConfig, dataset: &Dataset) -> u64 {
    const LEAST_BUFFER: u64 = 64 << 10;
    const ROWS: u64 = 64;
    let buffer = LEAST_BUFFER.max((dataset.record_bytes().max() + 2 * 4096).next_multiple_of(4096));
    2 * config.threads.max(1) as u64 * buffer + ROWS * pane_row_bytes(dataset)
}

/// Decides which rows are left unread or kept in memory where the configuration does not say: what
/// saves most reading in full order. That is rows kept as codes; and, to a target, skip for
/// long sparse rows. Narrow dense rows are solved in two passes as it is, and short sparse ones share
/// their pages with others, so that leaving them unread saves no reading and costs visits.
///
/// Errors: rows to be kept that cannot be.
pub fn resolve(config: &mut LinearConfig, data: &OpenedData) -> Result<(), TrainError> {
    resolve_within(config, data, 1, None).map(drop)
}

/// The same for one of `ranks` ranks where a process may take `limit` bytes; a note where that lowers the budget.
pub(super) fn resolve_within(
    config: &mut LinearConfig,
    data: &OpenedData,
    ranks: usize,
    limit: Option<u64>,
) -> Result<Option<String>, TrainError> {
    let (shape, free) = (Shape::of(data), config.solver == Solver::Auto);
    let problem = problem(config, data.dataset.labels(), &shape)?;
    let memory = asked_bytes(config, &data.dataset);
    resolve_solver(config, &problem, &shape, memory)?;
    let note = room::fit(config, free, data, &problem, ranks, limit)?;
    resolve_kept(config, &data.dataset)?;
    Ok(note)
}

/// Chooses the solver where the configuration does not. What one alone does decides: orders, blocks, inner passes and
/// access paths are coordinate descent's.
pub(super) fn resolve_solver(
    config: &mut LinearConfig,
    problem: &Problem,
    shape: &Shape,
    memory: u64,
) -> Result<(), TrainError> {
    let defaults = LinearConfig::default();
    let free = config.order == defaults.order
        && config.access == defaults.access
        && config.inner_passes == defaults.inner_passes
        && config.cache_fraction.is_none()
        && config.blocks.is_none()
        && !config.skip;
    let width = problem.features() + usize::from(problem.bias().is_some());
    if config.solver == Solver::Newton && width > MOST_NEWTON_FEATURES {
        return Err(TrainError::config(format!(
            "`solver` newton is for {MOST_NEWTON_FEATURES} features at most, and the data has {width} with the bias; leave `solver` out"
        )));
    }
    if config.solver == Solver::Newton && !free {
        return Err(TrainError::config(
            "`solver` newton reads every row in each pass, in the order of the files: it takes no `order`, `access`, `blocks`, `inner_passes`, `skip` or `cache_fraction`; leave them or `solver` out".to_string(),
        ));
    }
    if config.solver == Solver::Auto {
        let pays = newton_pays(problem, shape.records, shape.values_of_a_row());
        config.solver = match free && pays && Newton::fits(problem, memory) {
            true => Solver::Newton,
            false => Solver::CoordinateDescent,
        };
    }
    Ok(())
}

/// Decides which rows are left unread or kept in memory where the configuration does not say.
fn resolve_kept(config: &mut LinearConfig, dataset: &Dataset) -> Result<(), TrainError> {
    if config.solver == Solver::Newton {
        return Ok(());
    }
    let long = matches!(dataset.layout(), Layout::Dense { width } if width >= LEAST_CODED_FEATURES);
    if let Some(kept) = config.cache_fraction {
        if kept > 0.0 && !long {
            return Err(TrainError::config(format!(
                "`cache_fraction` {kept} keeps rows of {LEAST_CODED_FEATURES} dense features or more, and these are shorter or sparse; leave it out"
            )));
        }
        return Ok(());
    }
    let free = matches!(config.order, Order::Full) && config.blocks.is_none() && !config.skip;
    let share = match dataset.layout() {
        Layout::Dense { .. } if free && long => CODED_SHARE,
        Layout::Sparse
            if free
                && config.target.is_some()
                && config.access == Access::Auto
                && dataset.bytes() >= PAGE_BYTES * dataset.records() =>
        {
            config.skip = true;
            0.0
        }
        _ => 0.0,
    };
    config.cache_fraction = Some(share);
    Ok(())
}

/// Rows that are kept as codes in `room` bytes; 0 where rows are sparse, too short to gain by it, or too many.
fn coded_rows(dataset: &Dataset, problem: &Problem, room: u64) -> usize {
    let takes = matches!(dataset.layout(), Layout::Dense { .. })
        && problem.features() >= LEAST_CODED_FEATURES
        && dataset.records() < u64::from(u32::MAX);
    if !takes {
        return 0;
    }
    let rows = room / CodedCache::row_bytes(problem) as u64;
    rows.min(dataset.records()) as usize
}

/// Chooses the block size: the largest that the budget serves, unless the configuration says.
fn divide(
    config: &LinearConfig,
    data: &OpenedData,
    feed: &mut FetchOptions,
) -> Result<Plan, TrainError> {
    let budget = feed.memory_bytes;
    let plan = block_plan(config, data, feed, budget)?;
    if feed.access != Access::Auto {
        // Refused here where it cannot be taken, before anything is written.
        choose_path(&data.dataset, &plan, feed)?;
        return Ok(plan);
    }
    // The path decides how much of the budget its own buffers take.
    let (access, _) = choose_path(&data.dataset, &plan, feed)?;
    if access != Access::Scatter {
        return Ok(plan);
    }
    feed.access = access;
    block_plan(config, data, feed, budget).or_else(|_| {
        // Blocks that are given may fit the budget, but not beside the buffers of buckets.
        (feed.access, feed.scratch_dir) = (Access::Auto, None);
        block_plan(config, data, feed, budget)
    })
}

fn block_plan(
    config: &LinearConfig,
    data: &OpenedData,
    feed: &mut FetchOptions,
    budget: u64,
) -> Result<Plan, TrainError> {
    let dataset = &data.dataset;
    let pane_row = pane_row_bytes(dataset) as f64;
    let scratch_row = Scratch::bytes_for(1) as f64;
    // As many rows as a block has are being loaded beside it; the solver needs its table for the block.
    let share_of_feed = 2.0 * pane_row / (2.0 * pane_row + scratch_row);
    feed.memory_bytes = (budget as f64 * share_of_feed) as u64;
    let new_rows = largest_batch(dataset, feed);
    if new_rows == 0 {
        return Err(TrainError::config(format!(
            "a memory budget of {budget} bytes holds no block of rows ({pane_row} bytes each) beside the read buffers; raise `memory`"
        )));
    }
    let records = dataset.records();
    let share = feed.share.as_ref();
    let longest_of =
        |rows: u64| share.map_or(rows, |share| share.longest_batch(rows, records).max(1));
    let batching = if let Some(blocks) = config.blocks {
        Batching::Batches(blocks)
    } else {
        Batching::Batches(records.div_ceil(longest_of(new_rows)))
    };
    let mut plan = plan(config, data, batching)?;
    let fixed = config.blocks.is_some() || matches!(config.order, Order::Block { .. });
    let mut rows = new_rows;
    // Units of a page order are not cut, so that a block may come out longer than asked for.
    loop {
        let longest = rows_of(share, longest_step(&plan), records);
        if longest <= new_rows {
            return Ok(plan);
        }
        rows -= (rows / 16).max(1);
        if fixed || rows == 0 {
            return Err(TrainError::config(format!(
                "blocks of {longest} rows do not fit a memory budget of {budget} bytes, which holds two of {new_rows} rows ({pane_row} bytes each); raise `memory` or cut smaller blocks"
            )));
        }
        let blocks = Batching::Batches(records.div_ceil(longest_of(rows)));
        plan = plan_of(dataset, config.order, blocks, config.seed)?;
    }
}

/// Most rows that a rank takes of a block of `block` of `records` records.
fn rows_of(share: Option<&Share>, block: u64, records: u64) -> u64 {
    share.map_or(block, |share| share.most_of(block, records))
}

/// The longest of the first steps, by which the feed divides its memory.
fn longest_step(plan: &Plan) -> u64 {
    let steps = 0..plan.steps(0).min(2);
    let longest = steps.filter_map(|step| plan.step_len(0, step)).max();
    longest.unwrap_or(0)
}

fn plan(config: &LinearConfig, data: &OpenedData, batching: Batching) -> Result<Plan, TrainError> {
    Ok(plan_of(&data.dataset, config.order, batching, config.seed)?)
}

/// What a problem over some rows is as large as.
pub(super) struct Shape {
    /// What messages call the rows.
    pub name: String,
    pub layout: Layout,
    pub records: u64,
    pub features: u64,
    /// Stored values of sparse rows.
    pub stored: u64,
}

impl Shape {
    fn of(data: &OpenedData) -> Shape {
        let dataset = &data.dataset;
        let first = data.paths.first().map(|path| path.display().to_string());
        Shape {
            name: first.unwrap_or_default(),
            layout: dataset.layout(),
            records: dataset.records(),
            features: dataset.features(),
            stored: dataset.nonzeros(),
        }
    }

    /// Mean number of values of a row.
    pub fn values_of_a_row(&self) -> f64 {
        match self.layout {
            Layout::Dense { width } => width as f64,
            _ => self.stored as f64 / self.records.max(1) as f64,
        }
    }
}

pub(super) fn problem(
    config: &LinearConfig,
    labels: &ClassMap,
    shape: &Shape,
) -> Result<Problem, TrainError> {
    let features = usize::try_from(shape.features).unwrap_or(usize::MAX);
    let mut problem = Problem::new(config.loss, config.cost, features, labels.len())?;
    check_tables(&problem, shape)?;
    if let Some(bias) = config.bias {
        problem = problem.with_bias(bias)?;
    }
    let mut weighted = Vec::new();
    for (label, weight) in &config.class_weights {
        let class = labels.class_called(label).ok_or_else(|| {
            let known = match labels.names() {
                [] => format!("{:?}", labels.values()),
                names => names.join(", "),
            };
            TrainError::config(format!(
                "`class_weight` {label}={weight}: no record has the label {label}; the labels are {known}"
            ))
        })?;
        if weighted.contains(&class) {
            return Err(TrainError::config(format!(
                "`class_weight` gives label {label} two factors; give one"
            )));
        }
        weighted.push(class);
        problem = problem.with_class_weight(class, *weight)?;
    }
    Ok(problem)
}

/// Features up to which a table of all of them is made in a moment.
const FEW_FEATURES: u64 = 1 << 25;
/// Features for each stored value above which nearly all features are holes in the numbering.
const MOST_HOLES: u64 = 64;

/// Refuses features of which hardly any occurs, since tables, checkpoint and model hold all of them; and a problem
/// whose α and w alone, with the two copies of w that writing a model makes, are
/// larger than the machine's memory: one against the rest over labels that are no classes would be.
fn check_tables(problem: &Problem, shape: &Shape) -> Result<(), TrainError> {
    let (name, features, stored) = (&shape.name, shape.features, shape.stored);
    if features > FEW_FEATURES && features / MOST_HOLES > stored {
        return Err(TrainError::config(format!(
            "{name}: has {features} features by its largest index and {stored} values in all, so that a model would be {} bytes of zeros; check the index, or renumber the features without holes",
            4 * features
        )));
    }
    let values = u128::from(shape.records) + 3 * u128::from(features);
    let bytes = 4 * values * problem.subproblems() as u128;
    let system = rustix::system::sysinfo();
    let memory = u128::from(system.totalram) * u128::from(system.mem_unit.max(1));
    if bytes <= memory {
        return Ok(());
    }
    let (what, remedy) = match problem.subproblems() {
        1 => (
            format!("{features} features"),
            "renumber the features without holes, or use a larger machine",
        ),
        models => (
            format!("{models} distinct labels, a model for each"),
            "check that the label column holds classes, or pass `positive` LABEL",
        ),
    };
    Err(TrainError::config(format!(
        "{name}: has {what}, which needs {bytes} bytes for dual variables and weights where this machine has {memory}; {remedy}"
    )))
}

impl Setup {
    /// What follows from the data, the settings and this machine's memory, and all ranks must have alike.
    pub(super) fn alike(&self) -> Alike {
        let options = &self.options;
        Alike::default()
            .with("the count of blocks", self.plan.steps(0))
            .with_digest("a plan with the fingerprint", self.plan.fingerprint())
            .with("rows in memory", self.in_core)
            .with("snapshots", options.snapshots)
            .with("the count of rows kept as codes", options.coded_rows)
            .with("rows left unread", options.skip)
            .with("renumbered features", self.numbering.is_some())
    }

    /// Why a run that held all rows in memory cannot go on so.
    pub(super) fn whole_does_not_fit(&self, ranks: usize) -> String {
        let dataset = &self.data.dataset;
        let row = pane_row_bytes(dataset) + Scratch::bytes_for(1) as u64;
        let records = dataset.records();
        let whole = row * rows_of(self.feed.share.as_ref(), records, records);
        format!(
            "is of a run that held all rows in memory, which takes {} bytes of each of {ranks} ranks; raise `memory` or `ranks`, or",
            whole + whole / 16 + (4 << 20)
        )
    }

    /// Number of features of the data.
    pub fn features(&self) -> u64 {
        match &self.numbering {
            Some(numbering) => numbering.features() as u64,
            None => self.data.dataset.features(),
        }
    }

    /// What test data must agree with.
    pub fn expected(&self) -> Expected {
        Expected {
            labels: self.data.dataset.labels().clone(),
            any_label: false,
            features: self.features(),
            means: self.data.dataset.means().cloned(),
            columns: self.data.dataset.columns().cloned(),
        }
    }

    /// How evaluation passes beside a training feed run.
    pub fn evaluation_feed(&self) -> FetchOptions {
        FetchOptions {
            memory_bytes: self.evaluation_bytes,
            ..self.feed.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_data as data;
    use pelton_data::DataConfig;
    use pelton_fetch::{DeviceSpeed, Fetch};

    const RECORDS: u64 = 30_000;

    /// A run with memory for an eighth of some small dense rows.
    fn config(folder: &tempfile::TempDir) -> LinearConfig {
        LinearConfig {
            data: DataConfig {
                paths: vec![format!("demo:higgs:{RECORDS}")],
                cache_dir: Some(folder.path().join("cache")),
                ..DataConfig::default()
            },
            memory_bytes: 1 << 20,
            threads: 1,
            scratch_dir: Some(folder.path().to_path_buf()),
            ..LinearConfig::default()
        }
    }

    fn opened(config: &LinearConfig) -> OpenedData {
        let (data, interrupt) = (&config.data, Interrupt::default());
        let opened = data::open(
            data,
            &data.paths,
            None,
            &mut pelton_run::RunContext::new(&pelton_comm::Comm::alone(), &interrupt, &mut |_| {}),
        );
        OpenedData {
            device: DeviceSpeed::default().into(),
            ..opened.unwrap()
        }
    }

    /// Tables grow with records, whatever the budget is; budgets beyond the limit of a container were killed.
    #[test]
    fn a_budget_has_room_beside_the_tables() {
        let folder = tempfile::tempdir().unwrap();
        let given = LinearConfig {
            memory_bytes: 64 << 20,
            ..config(&folder)
        };
        let data = opened(&given);
        let problem = problem(&given, data.dataset.labels(), &Shape::of(&data)).unwrap();
        let fit = |solver, free, limit| {
            let mut config = LinearConfig {
                solver,
                ..given.clone()
            };
            let note = room::fit(&mut config, free, &data, &problem, 1, limit);
            note.map(|note| (config.memory_bytes, config.solver, note.is_some()))
        };
        let (descent, newton) = (Solver::CoordinateDescent, Solver::Newton);
        for limit in [None, Some(1 << 30)] {
            assert_eq!(
                fit(descent, true, limit).unwrap(),
                (64 << 20, descent, false)
            );
        }
        let tables = 4 * RECORDS + 12 * 28;
        let lowered = (64 << 20) - tables;
        assert_eq!(
            fit(descent, true, Some(104 << 20)).unwrap(),
            (lowered, descent, true)
        );
        // Too little for the tables of Newton's method, of 8 bytes a record.
        let tight = Some((44 << 20) + tables);
        assert_eq!(fit(newton, true, tight).unwrap(), (4 << 20, descent, true));
        assert_eq!(fit(newton, false, tight).unwrap(), (4 << 20, newton, true));
        let said = fit(descent, true, Some(1 << 20)).unwrap_err().to_string();
        assert!(
            said.contains("30000 records") && said.contains("a part of the data"),
            "{said}"
        );
    }

    fn feed_of(setup: &Setup) -> Fetch {
        let dataset = Arc::clone(&setup.data.dataset);
        Fetch::new(dataset, Arc::clone(&setup.plan), &setup.feed).unwrap()
    }

    /// Of 8 stripes ranks 0 and 1 own 3 and rank 2 owns 2.
    #[test]
    fn ranks_make_the_same_blocks_whoever_owns_most() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(&folder);
        let data = opened(&config);
        let alone = set_up(&config, data.clone()).unwrap();
        let blocks_of = |rank| {
            let owner = |id| (id / (RECORDS / 8) % 3) as u32;
            let share = Share::of(rank, 3).owned(Arc::new(owner));
            let setup = set_up_share(&config, data.clone(), Some(share)).unwrap();
            assert_eq!(feed_of(&setup).access(), Access::Scatter);
            setup.plan.steps(0)
        };
        let blocks = blocks_of(0);
        assert_eq!((blocks_of(1), blocks_of(2)), (blocks, blocks));
        // 3/8 of a block take no more memory than a whole one alone, deviations of a tenth aside.
        let least = alone.plan.steps(0) as f64 * 3.0 / 8.0;
        let steps = blocks as f64;
        assert!(
            steps >= least && steps <= least * 1.25 + 1.0,
            "{steps} of {least}"
        );
    }

    #[test]
    fn blocks_that_are_too_large_beside_buckets_are_read_in_another_way() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(&folder);
        let data = opened(&config);
        let mut blocks_by = |access| {
            config.access = access;
            set_up(&config, data.clone()).unwrap().plan.steps(0)
        };
        let fewest = blocks_by(Access::Window { gap_bytes: None });
        assert!(blocks_by(Access::Auto) > fewest);
        config.blocks = Some(fewest);
        let setup = set_up(&config, data.clone()).unwrap();
        assert_eq!(setup.plan.steps(0), fewest);
        assert_ne!(feed_of(&setup).access(), Access::Scatter);
        config.access = Access::Scatter;
        let refused = set_up(&config, data).unwrap_err().to_string();
        assert!(refused.contains("raise `memory`"), "{refused}");
    }
}
