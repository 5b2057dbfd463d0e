//! The task of a run, fixed before the first block.

use std::sync::Arc;

use pelton_comm::Alike;
use pelton_fetch::Meters;
use pelton_linear::{OutOfCore, OutOfCoreOptions, Problem, Weights};
use pelton_run::Interrupt;

use super::division::Division;
use super::ranks::Ranks;
use super::rows::Rows;
use super::weighting::Weighting;
use crate::checkpoint::Progress;
use crate::config::LinearConfig;
use crate::error::TrainError;

/// The task of a run.
pub(super) struct Task<'a> {
    /// With nothing left open.
    pub config: LinearConfig,
    /// Whether the choice of solver was left open.
    pub is_open: bool,
    pub ranks: Ranks<'a>,
    pub interrupt: &'a Interrupt,
    pub rows: Rows,
    pub problem: Arc<Problem>,
    /// Weights to begin from.
    pub start: Option<Weights>,
    pub weighting: Weighting,
    pub division: Division,
}

impl Task<'_> {
    /// Derived from the data, the settings and this machine's memory; must be the same on all ranks.
    pub fn alike(&self) -> Alike {
        let Division { plan, options, .. } = &self.division;
        Alike::default()
            .with("the count of blocks", plan.steps(0))
            .with_digest("a plan with the fingerprint", plan.fingerprint())
            .with("rows in memory", self.division.budget.in_core)
            .with("snapshots", options.snapshots)
            .with("the count of rows kept as codes", options.coded_rows)
            .with("rows left unread", options.skip)
            .with("renumbered features", self.rows.numbering.is_some())
            .with_digest(
                "weights of records with the digest",
                self.weighting.digest(),
            )
    }

    /// Whether rows are in memory on one rank, where coordinate descent and Newton's method may alternate.
    pub fn is_held(&self) -> bool {
        self.division.budget.in_core && self.ranks.size() == 1
    }

    /// Logs the division of the memory.
    pub fn tell(&self) {
        let Division {
            budget,
            options,
            feed,
            evaluation_bytes,
            ..
        } = &self.division;
        tracing::info!(
            budget = budget.bytes,
            feed = feed.memory_bytes,
            coded_rows = options.coded_rows,
            evaluation = evaluation_bytes,
            snapshots = options.snapshots,
            in_memory = budget.in_core,
            "memory divided"
        );
    }

    /// The common part of every checkpoint of this run.
    pub fn heading(&self) -> Progress {
        Progress {
            data: self.rows.data.dataset.fingerprint(),
            files: self.rows.data.dataset.files_state(),
            ranks: self.ranks.size() as u64,
            plan: self.division.plan.fingerprint(),
            blocks: self.division.plan.steps(0),
            numbered: self.rows.numbering.is_some(),
            packed: self.rows.packed,
            weights: self.weighting.digest(),
            ..Progress::default()
        }
    }

    /// Coordinate descent at its start.
    pub fn descent(&self, options: OutOfCoreOptions) -> OutOfCore {
        let records = self.rows.data.dataset.records();
        let mut solver = OutOfCore::new(Arc::clone(&self.problem), records, options);
        solver.end_when(Arc::clone(self.interrupt));
        solver
    }

    /// Fails on all ranks if together they met more bad records than allowed.
    pub fn check_bad_records(&self, meters: &Meters) -> Result<(), TrainError> {
        let (feed, dataset) = (&self.division.budget.feed, &self.rows.data.dataset);
        self.ranks.check_bad_records(feed, dataset, meters)
    }
}
