//! The memory that a run may use: the configured budget, but at most the limit of the machine or of its container minus
//! the program and the tables that grow with records and features.

use std::sync::Arc;

use pelton_data::OpenedData;
use pelton_fetch::{FetchOptions, Share, pane_row_bytes};
use pelton_format::Dataset;
use pelton_linear::{Lbfgs, Newton, Problem, Scratch, WorkingSet};
use pelton_plan::Order;
use pelton_run::{Event, Interrupt, Observer};

use crate::config::{LinearConfig, Solver};
use crate::error::TrainError;

/// The program with its threads and buffers: measured 16 to 28 MB, plus some for the kernel.
const PROGRAM: u64 = 40 << 20;
/// The smallest budget that every access path can work with.
const LEAST: u64 = 4 << 20;

/// Lowers the budget of each of `ranks` ranks to what `limit` leaves, and chooses coordinate descent if the tables of
/// Newton's method leave nothing and `free` allows a change of solver. Returns a note if it lowers the budget.
///
/// Errors: the tables alone need more than the limit.
pub(super) fn fit(
    config: &mut LinearConfig,
    free: bool,
    data: &OpenedData,
    problem: &Problem,
    ranks: usize,
    limit: Option<u64>,
) -> Result<Option<String>, TrainError> {
    let Some(limit) = limit else { return Ok(None) };
    let dataset = &data.dataset;
    let (records, features) = (dataset.records(), dataset.features());
    let own = records.div_ceil(ranks as u64);
    let located = dataset.index_report().index_bytes;
    let tables = |solver| match solver {
        Solver::Newton => located + Newton::bytes(problem),
        Solver::WorkingSet => located + WorkingSet::bytes(problem, records),
        Solver::Lbfgs => located + Lbfgs::bytes(problem),
        // α, and w with its sum in f64.
        Solver::CoordinateDescent | Solver::Auto => {
            located + problem.subproblems() as u64 * (4 * own + 12 * features)
        }
    };
    let left = |solver| limit.saturating_sub(tables(solver) + PROGRAM);
    if free && config.solver == Solver::Newton && left(Solver::Newton) < LEAST {
        config.solver = Solver::CoordinateDescent;
    }
    let (tables, left) = (tables(config.solver), left(config.solver).max(LEAST));
    if tables + LEAST > limit {
        let models = match (config.folds, problem.models()) {
            (Some(folds), 2..) => {
                format!(
                    "the {} costs × {folds} folds of ",
                    config.listed_costs().len()
                )
            }
            _ => String::new(),
        };
        return Err(TrainError::config(format!(
            "training needs {} MB for {models}the {records} records and {features} features of the data, and this process may use {} MB; raise the limit of its container, use a machine with more memory, or train on a part of the data",
            tables / 1_000_000,
            limit / 1_000_000
        )));
    }
    let asked = asked_bytes(config, dataset);
    if asked <= left {
        return Ok(None);
    }
    (config.memory_bytes, config.memory_share) = (left, None);
    Ok(Some(format!(
        "`memory` {} MB is lowered to {} MB: this process may use {} MB, and tables for {records} records and {features} features need {} MB of them",
        asked / 1_000_000,
        left / 1_000_000,
        limit / 1_000_000,
        tables / 1_000_000
    )))
}

/// The memory of a run, before it is divided.
#[derive(Debug)]
pub(super) struct Budget {
    /// All of it, in bytes.
    pub bytes: u64,
    /// Options for a pass over all rows that uses all of it.
    pub feed: FetchOptions,
    /// Whether all rows are in memory at once.
    pub in_core: bool,
}

impl Budget {
    /// The configured memory, for a rank that takes a share of every block.
    pub fn new(
        config: &LinearConfig,
        data: &OpenedData,
        share: Option<Share>,
        interrupt: &Interrupt,
        observer: Observer<'_>,
    ) -> Budget {
        let dataset = &data.dataset;
        let asked = asked_bytes(config, dataset);
        // Demo sets may be tiny.
        let is_demo = config
            .data
            .paths
            .iter()
            .any(|path| path.starts_with("demo:"));
        let bytes = match config.memory_share {
            Some(_) if is_demo => asked.max(least_bytes(config, dataset)),
            _ => asked,
        };
        if asked < bytes {
            observer(Event::Note(&format!(
                "`memory` {asked} bytes is less than reading needs; using {bytes} bytes"
            )));
        }
        let whole = whole_bytes(dataset, share.as_ref());
        let cut = matches!(config.order, Order::Block { .. }) || config.blocks.is_some();
        Budget {
            bytes,
            in_core: !cut && whole + whole / 16 + (4 << 20) <= bytes,
            feed: FetchOptions {
                access: config.access,
                threads: config.threads.max(1),
                on_bad_record: config.on_bad_record,
                end_epoch: Some(config.epochs),
                scratch_dir: config.scratch_dir.clone(),
                interrupt: Arc::clone(interrupt),
                device: data.device.speed(),
                share,
                ..FetchOptions::with_memory(bytes)
            },
        }
    }
}

/// Bytes of all rows of this rank in memory, with the solver's table for them.
pub(super) fn whole_bytes(dataset: &Dataset, share: Option<&Share>) -> u64 {
    let records = dataset.records();
    let row = pane_row_bytes(dataset) + Scratch::bytes_for(1) as u64;
    row * share.map_or(records, |share| share.most_of(records, records))
}

/// Smallest budget for a share of a demo set: twice the smallest read buffers, plus some rows. A share of a tiny set
/// would fit neither.
fn least_bytes(config: &LinearConfig, dataset: &Dataset) -> u64 {
    const LEAST_BUFFER: u64 = 64 << 10;
    const ROWS: u64 = 64;
    let buffer = LEAST_BUFFER.max((dataset.record_bytes().max() + 2 * 4096).next_multiple_of(4096));
    2 * config.threads.max(1) as u64 * buffer + ROWS * pane_row_bytes(dataset)
}

/// The memory budget of a configuration.
pub(super) fn asked_bytes(config: &LinearConfig, dataset: &Dataset) -> u64 {
    match config.memory_share {
        Some(share) => (dataset.bytes() as f64 * share) as u64,
        None => config.memory_bytes,
    }
}
