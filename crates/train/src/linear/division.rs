//! Divides the memory of a run: blocks, their look-ahead, quantised rows, a snapshot of w, and buffers of evaluation
//! passes. The plan follows from the largest possible block.

use std::sync::Arc;

use pelton_data::{OpenedData, plan_of};
use pelton_fetch::{Access, FetchOptions, Share, choose_path, largest_batch, pane_row_bytes};
use pelton_format::{Dataset, Layout};
use pelton_linear::{OutOfCoreOptions, Problem, QuantizedCache, Scratch};
use pelton_plan::{Batching, Order, Plan};

use super::budget::Budget;
use crate::config::{LinearConfig, Target};
use crate::error::TrainError;

/// Share of the budget that a snapshot of w may take for free certificates.
const SNAPSHOT_SHARE: f64 = 0.125;
/// Share of the budget for evaluation passes without a snapshot.
const EVALUATION_SHARE: f64 = 0.0625;
/// If a block has fewer rows than this, fewer rows are kept quantised.
const LEAST_BLOCK_NEXT_TO_CODES: u64 = 64;
/// Features from which rows are kept quantised: with fewer, the overhead is too large a share of a row, and a pass or
/// two suffice anyway.
pub(super) const LEAST_CODED_FEATURES: usize = 128;

/// Tolerance after some epochs, with or without a target, if a block is all rows.
pub(super) const FINEST_TOLERANCE: f32 = 1e-6;
const FINE_TOLERANCE: f32 = 1e-3;

/// The memory of a run, divided, and the plan that follows from it.
#[derive(Debug)]
pub(super) struct Division {
    /// The memory to divide.
    pub budget: Budget,
    /// The plan; the same for every rank.
    pub plan: Arc<Plan>,
    /// How blocks are trained.
    pub options: OutOfCoreOptions,
    /// How blocks are read; the caller sets the start.
    pub feed: FetchOptions,
    /// Bytes for evaluation passes that run next to that feed.
    pub evaluation_bytes: u64,
}

impl Division {
    /// Divides the budget of a rank that takes a share of every block: blocks are as large as all ranks together
    /// can hold.
    ///
    /// Errors: a budget too small for a block, or for the configured blocks; an access path that cannot be used.
    pub fn new(
        config: &LinearConfig,
        data: &OpenedData,
        problem: &Problem,
        budget: Budget,
    ) -> Result<Division, TrainError> {
        let dataset = &data.dataset;
        let mut feed = budget.feed.clone();
        let mut options = options(config, budget.in_core);
        // The snapshot, the mean that becomes the next one, and the sum of rows in f64.
        let snapshot_bytes = 4 * 4 * problem.subproblems() as u64 * dataset.features();
        if budget.in_core {
            return Ok(Division {
                plan: Arc::new(plan(config, data, Batching::Batches(1))?),
                options,
                feed,
                evaluation_bytes: budget.bytes,
                budget,
            });
        }
        let share_of = |share: f64| (budget.bytes as f64 * share) as u64;
        options.snapshots = snapshot_bytes <= share_of(SNAPSHOT_SHARE);
        let (evaluation_bytes, adjacent) = if options.snapshots {
            (budget.bytes, snapshot_bytes)
        } else {
            (share_of(EVALUATION_SHARE), share_of(EVALUATION_SHARE))
        };
        let left = budget.bytes - adjacent.min(budget.bytes);
        let mut kept = config.cache_fraction.unwrap_or(0.0);
        let plan = loop {
            if options.snapshots {
                options.coded_rows = coded_rows(dataset, problem, share_of(kept));
            }
            let coded_bytes = (options.coded_rows * QuantizedCache::row_bytes(problem)) as u64;
            feed.memory_bytes = left - coded_bytes.min(left);
            // Reads quantised rows every epoch, so that w stays exact.
            let whole = options.coded_rows == 0;
            options.skip = config.skip && whole;
            feed.epoch_barrier = options.skip;
            feed.access = config.access;
            let divided = divide(config, data, &mut feed);
            let small = match &divided {
                Ok(plan) => longest_step(plan) < LEAST_BLOCK_NEXT_TO_CODES,
                Err(_) => true,
            };
            if whole || !small {
                break divided?;
            }
            // Small blocks cost more reads than the kept rows save.
            kept *= if kept > 0.1 { 0.5 } else { 0.0 };
        };
        Ok(Division {
            plan: Arc::new(plan),
            options,
            feed,
            evaluation_bytes,
            budget,
        })
    }
}

/// How blocks are trained, as far as that does not depend on the memory.
pub(super) fn options(config: &LinearConfig, in_core: bool) -> OutOfCoreOptions {
    OutOfCoreOptions {
        inner: config.inner_passes,
        tighten: in_core.then_some(match config.target {
            Target::None => FINE_TOLERANCE,
            Target::Auto | Target::Gap(_) => FINEST_TOLERANCE,
        }),
        skip: false,
        coded_rows: 0,
        snapshots: false,
        held: in_core,
        seed: config.seed,
    }
}

/// Number of rows to keep quantised in `room` bytes; 0 if rows are sparse, too short to gain, or too many.
fn coded_rows(dataset: &Dataset, problem: &Problem, room: u64) -> usize {
    let takes = matches!(dataset.layout(), Layout::Dense { .. })
        && problem.features() >= LEAST_CODED_FEATURES
        && dataset.records() < u64::from(u32::MAX);
    if !takes {
        return 0;
    }
    let rows = room / QuantizedCache::row_bytes(problem) as u64;
    rows.min(dataset.records()) as usize
}

/// Chooses the block size: the largest that fits the budget, unless configured.
fn divide(
    config: &LinearConfig,
    data: &OpenedData,
    feed: &mut FetchOptions,
) -> Result<Plan, TrainError> {
    let budget = feed.memory_bytes;
    let plan = block_plan(config, data, feed, budget)?;
    if feed.access != Access::Auto {
        // Refuses a path that cannot be used before anything is written.
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
        // Configured blocks may fit the budget, but not together with the buffers of buckets.
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
    // The next block is loading meanwhile, with as many rows; the solver needs a table for the current block.
    let share_of_feed = 2.0 * pane_row / (2.0 * pane_row + scratch_row);
    feed.memory_bytes = (budget as f64 * share_of_feed) as u64;
    let new_rows = largest_batch(dataset, feed);
    if new_rows == 0 {
        return Err(TrainError::config(format!(
            "a memory budget of {budget} bytes has no room for a block of rows ({pane_row} bytes each) in addition to the read buffers; raise `memory`"
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
    // Units of a page order are not cut, so a block may be longer than configured.
    loop {
        let longest = rows_of(share, longest_step(&plan), records);
        if longest <= new_rows {
            return Ok(plan);
        }
        rows -= (rows / 16).max(1);
        if fixed || rows == 0 {
            return Err(TrainError::config(format!(
                "blocks of {longest} rows do not fit a memory budget of {budget} bytes, which has room for two of {new_rows} rows ({pane_row} bytes each); raise `memory` or make smaller blocks"
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

#[cfg(test)]
mod tests {
    use super::super::budget;
    use super::super::problem::{Shape, problem};
    use super::*;
    use crate::config::Solver;
    use pelton_data as data;
    use pelton_data::DataConfig;
    use pelton_fetch::{DeviceSpeed, Fetch};
    use pelton_run::Interrupt;

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

    /// Tables grow with records, whatever the budget; a run beyond the limit of its container is killed.
    #[test]
    fn a_budget_has_room_beside_the_tables() {
        let folder = tempfile::tempdir().unwrap();
        let given = LinearConfig {
            memory_bytes: 64 << 20,
            ..config(&folder)
        };
        let data = opened(&given);
        let problem = problem(&given, data.dataset.labels(), &Shape::from_data(&data)).unwrap();
        let fit = |solver, free, limit| {
            let mut config = LinearConfig {
                solver,
                ..given.clone()
            };
            let note = budget::fit(&mut config, free, &data, &problem, 1, limit);
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

    /// The division of the memory of a rank with a share.
    fn divided(
        config: &LinearConfig,
        data: &OpenedData,
        share: Option<Share>,
    ) -> Result<Division, TrainError> {
        let never = Interrupt::default();
        let problem = problem(config, data.dataset.labels(), &Shape::from_data(data)).unwrap();
        let budget = Budget::new(config, data, share, &never, &mut |_| {});
        Division::new(config, data, &problem, budget)
    }

    fn access(data: &OpenedData, division: &Division) -> Access {
        let dataset = Arc::clone(&data.dataset);
        let feed = Fetch::new(dataset, Arc::clone(&division.plan), &division.feed);
        feed.unwrap().access()
    }

    /// With 8 stripes, ranks 0 and 1 own 3 and rank 2 owns 2.
    #[test]
    fn ranks_make_the_same_blocks_whoever_owns_most() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(&folder);
        let data = opened(&config);
        let alone = divided(&config, &data, None).unwrap();
        let blocks_of = |rank| {
            let owner = |id| (id / (RECORDS / 8) % 3) as u32;
            let share = Share::new(rank, 3).owned(Arc::new(owner));
            let division = divided(&config, &data, Some(share)).unwrap();
            assert_eq!(access(&data, &division), Access::Scatter);
            division.plan.steps(0)
        };
        let blocks = blocks_of(0);
        assert_eq!((blocks_of(1), blocks_of(2)), (blocks, blocks));
        // 3/8 of a block take no more memory than one whole block, except for deviations of a tenth.
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
            divided(&config, &data, None).unwrap().plan.steps(0)
        };
        let fewest = blocks_by(Access::Window { gap_bytes: None });
        assert!(blocks_by(Access::Auto) > fewest);
        config.blocks = Some(fewest);
        let division = divided(&config, &data, None).unwrap();
        assert_eq!(division.plan.steps(0), fewest);
        assert_ne!(access(&data, &division), Access::Scatter);
        config.access = Access::Scatter;
        let refused = divided(&config, &data, None).unwrap_err().to_string();
        assert!(refused.contains("raise `memory`"), "{refused}");
    }
}
