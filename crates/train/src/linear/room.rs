//! What a memory budget may be, where the process may take only so much: the limit of the machine or of its container, less
//! the tables that grow with records and features, and the program itself.

use pelton_data::OpenedData;
use pelton_format::Dataset;
use pelton_linear::{Newton, Problem};

use crate::config::{LinearConfig, Solver};
use crate::error::TrainError;

/// The program with its threads and buffers: 16 to 28 MB were measured, and the kernel wants some.
const PROGRAM: u64 = 40 << 20;
/// A budget that every path can do something with.
const LEAST: u64 = 4 << 20;

/// Lowers the budget of each of `ranks` ranks to what `limit` leaves it, and takes coordinate descent where the tables of
/// Newton's method leave nothing and `free` says that the solver was not asked for. Returns a note on a lowered budget.
///
/// Errors: the tables alone take more than the limit.
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
        // α; w with its sum in f64.
        _ => located + problem.subproblems() as u64 * (4 * own + 12 * features),
    };
    let left = |solver| limit.saturating_sub(tables(solver) + PROGRAM);
    if free && config.solver == Solver::Newton && left(Solver::Newton) < LEAST {
        config.solver = Solver::CoordinateDescent;
    }
    let (tables, left) = (tables(config.solver), left(config.solver).max(LEAST));
    if tables + LEAST > limit {
        return Err(TrainError::config(format!(
            "training keeps {} MB for the {records} records and {features} features of the data, and this process may take {} MB; raise the limit of its container, use a machine with more memory, or train on a part of the data",
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
        "`memory` {} MB is lowered to {} MB: this process may take {} MB, and tables for {records} records and {features} features take {} MB of them",
        asked / 1_000_000,
        left / 1_000_000,
        limit / 1_000_000,
        tables / 1_000_000
    )))
}

/// The memory that a configuration asks for.
pub(super) fn asked_bytes(config: &LinearConfig, dataset: &Dataset) -> u64 {
    match config.memory_share {
        Some(share) => (dataset.bytes() as f64 * share) as u64,
        None => config.memory_bytes,
    }
}
