//! Divides the memory budget between read buffers and panes.
//!
//! With `n` sections to a sweep, a pane is loaded over `n` steps: while one pane is consumed, the others hold 1/n,
//! 2/n … of their rows, so n + 3 half panes are in memory, the tables of all n + 1 of them, and a sweep serves `n`
//! panes. Memory for a fraction f of the rows thus gives sweeps that serve T = 2·n/(n + 3)·f of an epoch: 1.68·f at
//! n = 16, against f/2 for disjoint windows behind a second buffer. Read amplification is (1/T)·(1 − e^(−T·r)) for
//! r records a page.

use pelton_format::{Dataset, Layout};
use pelton_plan::Spread;

use crate::demand::Demand;
use crate::error::FetchError;
use crate::kept_bitmap::BYTES_PER_POSITION;
use crate::options::{Access, FetchOptions};
use crate::scatter_budget::{panes_ahead, reserved_bytes};
use crate::share::Share;

/// Most sections to a sweep; beyond it little is gained (n = 32 serves 9 % more than n = 16).
const MOST_SECTIONS: u64 = 16;
/// Slot, id and cell entry of a row in a pane.
const TABLE_BYTES_PER_ROW: u64 = 8 + 8 + 4;
/// Share of the budget kept back for vectors that grow past their estimate.
const MARGIN: f64 = 0.04;
/// Target of one pane if a longer one saves no reads: enough to keep a deep queue busy.
const SHORT_PANE_BYTES: u64 = 16 << 20;

/// How the budget is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes of one thread's read buffer.
    pub task_bytes: u64,
    /// Batches of a pane.
    pub pane_batches: u64,
    /// Most rows of a batch.
    pub batch_rows: u64,
    /// Sections of a sweep.
    pub sections: u64,
    /// Panes requested ahead of the one consumed (1 unless `sections` is 1).
    pub ahead: u64,
}

impl Sizes {
    /// Rows that one sweep gathers.
    pub fn rows_of_sweep(&self) -> u64 {
        self.pane_batches * self.batch_rows * self.sections
    }
}

/// Mean bytes that one decoded row takes in a batch, without its table entry.
pub fn decoded_row_bytes(dataset: &Dataset) -> u64 {
    match dataset.layout() {
        Layout::Dense { width } => 4 * width as u64 + 4,
        Layout::Sparse => {
            let mean = dataset.nonzeros() as f64 / dataset.records().max(1) as f64;
            (8.0 * mean).ceil() as u64 + 8
        }
        // Label, end and the bytes themselves.
        Layout::Bytes => dataset.nonzeros().div_ceil(dataset.records().max(1)) + 12,
    }
}

/// Bytes that one row takes while it waits in a pane.
pub fn pane_row_bytes(dataset: &Dataset) -> u64 {
    decoded_row_bytes(dataset) + TABLE_BYTES_PER_ROW
}

/// Largest batch, in rows, that a budget of `memory_bytes` serves with loading and consuming
/// overlapped.
pub fn largest_batch(dataset: &Dataset, options: &FetchOptions) -> u64 {
    let task_bytes = task_bytes(dataset, options);
    let other_bytes = match options.access {
        Access::Scatter => reserved_bytes(dataset, options),
        _ => 0,
    };
    let available = available_bytes(options, task_bytes, other_bytes);
    available / two_panes_row_bytes(dataset, options, options.access)
}

/// Bytes that each row of a pane's length takes while one pane is consumed and the next is loaded.
/// Scatter may have the pane after them planned (id and slot), and has no cells. With several ranks it has a bit for
/// every record of the global batches.
fn two_panes_row_bytes(dataset: &Dataset, options: &FetchOptions, access: Access) -> u64 {
    let row = pane_row_bytes(dataset);
    match access {
        Access::Scatter => {
            let ahead = panes_ahead(options);
            let ranks = options.share.as_ref().map_or(0, Share::world_size);
            let bits = f64::from(ranks) * BYTES_PER_POSITION * (1 + ahead) as f64;
            2 * (row - 4) + 16 * ahead + bits.ceil() as u64
        }
        _ => 2 * row,
    }
}

/// Bytes that each row of a pane's length takes with `sections` sections: rows are there by halves,
/// but the tables of every open pane are whole from the start.
fn sweep_bytes(decoded_row_bytes: u64, sections: u64) -> u64 {
    decoded_row_bytes * (sections + 3) / 2 + TABLE_BYTES_PER_ROW * (sections + 1)
}

fn task_bytes(dataset: &Dataset, options: &FetchOptions) -> u64 {
    let wanted = (options.memory_bytes / 24 / options.threads as u64).clamp(64 << 10, 2 << 20);
    // A record must fit whole, with the page it begins in and the page it ends in.
    let record = dataset.record_bytes().max() + 2 * 4096;
    let together =
        (options.records_in_flight * record).min(options.memory_bytes / 8 / options.threads as u64);
    wanted.max(together).max(record).next_multiple_of(4096)
}

fn available_bytes(options: &FetchOptions, task_bytes: u64, other: u64) -> u64 {
    let kept = (options.memory_bytes as f64 * MARGIN) as u64;
    options
        .memory_bytes
        .saturating_sub(kept + other + task_bytes * options.threads as u64)
}

/// Divides the budget for an access path other than `Auto`; `other_bytes` of it are already taken.
pub(crate) fn divide(
    dataset: &Dataset,
    demand: &Demand<'_>,
    options: &FetchOptions,
    access: Access,
    other_bytes: u64,
) -> Result<Sizes, FetchError> {
    let task_bytes = task_bytes(dataset, options);
    let row_bytes = pane_row_bytes(dataset);
    let batch_rows = demand.batch_rows;
    let batch_bytes = batch_rows * row_bytes;
    let available = available_bytes(options, task_bytes, other_bytes);
    let two_batches = batch_rows * two_panes_row_bytes(dataset, options, access);
    if available < two_batches {
        let needed = two_batches + other_bytes + task_bytes * options.threads as u64;
        return Err(FetchError::BudgetTooSmall {
            budget: options.memory_bytes,
            needed: (needed as f64 / (1.0 - MARGIN)).ceil() as u64 + 1,
            what: format!(
                "two batches of {batch_rows} rows ({row_bytes} bytes each) and {} read buffers",
                options.threads
            ),
        });
    }
    let most_batches = options
        .look_ahead
        .map_or(u64::MAX, |records| (records / batch_rows).max(2));
    let batches_in_memory = (available / batch_bytes).min(most_batches);
    let sweeps = demand.spread == Spread::Everywhere
        && !options.epoch_barrier
        && options.look_ahead.is_none();
    let short = access == Access::Direct || demand.spread == Spread::InOrder;
    let (sections, ahead, pane_batches) = match access {
        // For a consumer that declines records by its progress, only one batch ahead is planned.
        _ if options.epoch_barrier => (1, 1, 1),
        _ if short => {
            let pane = (SHORT_PANE_BYTES / batch_bytes).clamp(1, batches_in_memory / 2);
            (1, (batches_in_memory / pane - 1).clamp(1, 8), pane)
        }
        Access::Window { .. } if sweeps => {
            let bytes = |sections| sweep_bytes(decoded_row_bytes(dataset), sections) * batch_rows;
            let sections = (1..=MOST_SECTIONS)
                .rev()
                .find(|&sections| bytes(sections) <= available)
                .unwrap_or(1);
            let pane = available / bytes(sections);
            (sections, 1, pane.max(1))
        }
        // A bucket of fixed blocks is one block, so that it is found under any block order.
        Access::Scatter if demand.spread == Spread::Blocks => (1, 1, 1),
        Access::Scatter => (1, 1, (available / two_batches).min(most_batches / 2)),
        _ => (1, 1, batches_in_memory / 2),
    };
    Ok(Sizes {
        task_bytes,
        pane_batches: pane_batches.clamp(1, demand.steps.max(1)),
        batch_rows,
        sections,
        ahead,
    })
}
