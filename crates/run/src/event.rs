//! Events of a running job. Libraries print nothing; the caller decides.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

/// An event of a job.
#[derive(Debug)]
pub enum Event<'a> {
    /// A sentence for the person who started the job.
    Note(&'a str),
    /// Progress of a piece of work.
    Progress {
        /// The work, such as `epoch 3`.
        what: &'a str,
        /// Units done.
        done: u64,
        /// Total units.
        total: u64,
    },
    /// An epoch of training ended.
    Epoch(&'a EpochRecord),
}

/// Set it to end a job early; jobs check it often.
pub type Interrupt = Arc<AtomicBool>;

/// Receiver of a job's events.
pub type Observer<'a> = &'a mut dyn FnMut(Event<'_>);

/// One line of `metrics.jsonl`: the state after an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Epochs finished.
    pub epoch: u64,
    /// Passes over the data so far: rows read and used over rows of the data.
    pub passes: f64,
    /// Primal value: exact if `certified`, else dual plus the sum of the rows' gaps at the moment each was read.
    pub primal: f64,
    /// Dual value.
    pub dual: f64,
    /// (primal − dual) / dual: an upper bound of the relative difference if `certified`. Infinite, in JSON `null`, if
    /// the dual value proves nothing.
    #[serde(deserialize_with = "or_infinite")]
    pub relative_gap: f64,
    /// Whether the primal value is exact and the gap therefore a certificate.
    pub certified: bool,
    /// (primal − optimum) / optimum, if the optimum is known.
    pub relative_difference: Option<f64>,
    /// Rows visited by the solver.
    pub visits: u64,
    /// Rows read.
    pub rows: u64,
    /// Rows not read because they were settled or held in memory.
    pub rows_left_out: u64,
    /// Seconds of training so far, without evaluation on test data.
    pub wall_s: f64,
    /// Seconds the trainer waited for data in this epoch.
    pub wait_s: f64,
    /// Seconds the trainer computed in this epoch.
    pub compute_s: f64,
    /// Bytes read from storage in this epoch.
    pub read_bytes: u64,
    /// Bytes of records used in this epoch.
    pub used_bytes: u64,
}

/// A number, or `null` for an infinite one.
fn or_infinite<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
}
