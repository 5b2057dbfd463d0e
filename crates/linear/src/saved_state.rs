//! The state of an out-of-core run as plain tensors, for checkpoints: a run restored from it continues bit for
//! bit.

use std::borrow::Cow;

use crate::certificate::{DualBound, LossSum};
use crate::duals::Duals;
use crate::error::LinearError;
use crate::out_of_core::{EpochState, OutOfCore, Snapshot, WeightMean};
use crate::quantized_cache::{QuantizedCache, SavedCodes};
use crate::skip::SkipTable;
use crate::weights::Weights;

/// The state of a run between two blocks. Vectors are borrowed when saving, so that a checkpoint
/// needs no second copy of α.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedState<'a> {
    /// w of each subproblem.
    pub weights: Vec<Cow<'a, [f32]>>,
    /// The centres of free biases.
    pub centres: Vec<f64>,
    /// Stored α of each subproblem.
    pub alpha: Vec<Cow<'a, [f32]>>,
    /// Dual value of each subproblem without −½‖w‖².
    pub terms: Vec<f64>,
    /// Bytes of the skip table, if rows are skipped.
    pub skip: Option<Cow<'a, [u8]>>,
    /// The quantised rows, if any.
    pub coded: Option<SavedCodes<'a>>,
    /// w that the present epoch certifies.
    pub snapshot: Option<Vec<Cow<'a, [f32]>>>,
    /// Sum of w over the blocks of the later half of the present epoch.
    pub mean: Option<Vec<Cow<'a, [f32]>>>,
    /// Number of those blocks.
    pub mean_blocks: u64,
    /// Losses of the snapshot so far.
    pub snapshot_loss: Vec<f64>,
    /// Rows in the sums of losses, and how many of them are classified correctly.
    pub snapshot_rows: (u64, u64),
    /// The part of the present epoch's lower bound summed so far.
    pub bound: Option<Cow<'a, DualBound>>,
    /// The present epoch.
    pub epoch: u64,
    /// Whether the present epoch reads every row.
    pub reads_all: bool,
    /// Sum of the gaps of the rows as they arrived.
    pub gap: f64,
    /// Visits, rows and passes of the present epoch.
    pub counters: [u64; 3],
}

impl OutOfCore {
    fn vectors<'a>(&self, weights: &'a Weights) -> Vec<Cow<'a, [f32]>> {
        if let Some(numbering) = &self.numbering {
            let wide = numbering.widen(weights).into_vectors();
            return wide.into_iter().map(Cow::Owned).collect();
        }
        (0..weights.subproblems())
            .map(|subproblem| Cow::Borrowed(weights.vector(subproblem)))
            .collect()
    }

    /// Bytes of a state saved now, about.
    pub fn saved_bytes(&self) -> u64 {
        let weights = match &self.numbering {
            Some(numbering) => 4 * self.weights.subproblems() * numbering.features(),
            None => self.weights.heap_bytes(),
        };
        let others = [self.epoch.snapshot.is_some(), self.epoch.mean.is_some()];
        let vectors = 1 + others.iter().filter(|some| **some).count();
        let skip = self.skip.as_ref().map_or(0, |skip| skip.as_bytes().len());
        (self.duals.heap_bytes() + vectors * weights + skip) as u64
    }

    /// The state; vectors are borrowed unless features are renumbered.
    pub fn save(&self) -> SavedState<'_> {
        let epoch = &self.epoch;
        let losses = epoch.snapshot.as_ref().map(|snapshot| &snapshot.losses);
        SavedState {
            weights: self.vectors(&self.weights),
            centres: self.centres.clone(),
            alpha: (0..self.duals.subproblems())
                .map(|subproblem| Cow::Borrowed(self.duals.stored(subproblem)))
                .collect(),
            terms: self.duals.terms().to_vec(),
            skip: self.skip.as_ref().map(|skip| skip.as_bytes().into()),
            coded: self.coded.as_ref().map(QuantizedCache::save),
            snapshot: epoch
                .snapshot
                .as_ref()
                .map(|snapshot| self.vectors(&snapshot.weights)),
            mean: epoch.mean.as_ref().map(|mean| self.vectors(&mean.sum)),
            mean_blocks: epoch.mean.as_ref().map_or(0, |mean| mean.blocks),
            snapshot_loss: losses.map_or(Vec::new(), |losses| losses.loss.clone()),
            snapshot_rows: losses.map_or((0, 0), |losses| (losses.rows, losses.correct)),
            bound: epoch.bound.as_ref().map(Cow::Borrowed),
            epoch: epoch.epoch,
            reads_all: epoch.reads_all,
            gap: epoch.gap,
            counters: [epoch.visits, epoch.rows, epoch.inner_passes],
        }
    }

    /// Resumes from a saved state, before features are renumbered. With quantised rows, [`OutOfCore::encode_again`]
    /// must then receive them all.
    ///
    /// Errors: a state with other shapes than this run's.
    pub fn restore(&mut self, state: SavedState<'_>) -> Result<(), LinearError> {
        self.check_shapes(&state)?;
        let (features, bias) = (self.weights.features(), self.weights.bias());
        let from_vectors = |vectors: Vec<Cow<'_, [f32]>>| {
            let vectors = vectors.into_iter().map(Cow::into_owned).collect();
            Weights::from_vectors(features, bias, vectors)
        };
        let alpha = state.alpha.into_iter().map(Cow::into_owned).collect();
        self.weights = from_vectors(state.weights);
        self.centres = state.centres;
        self.duals = Duals::from_parts(self.duals.records(), alpha, state.terms);
        self.skip = state
            .skip
            .map(|bytes| SkipTable::from_bytes(bytes.into_owned()));
        if let (Some(coded), Some(saved)) = (&mut self.coded, state.coded) {
            coded.restore(saved);
        }
        let losses = LossSum {
            loss: state.snapshot_loss,
            rows: state.snapshot_rows.0,
            correct: state.snapshot_rows.1,
        };
        let [visits, rows, inner_passes] = state.counters;
        self.epoch = EpochState {
            epoch: state.epoch,
            reads_all: state.reads_all,
            gap: state.gap,
            snapshot: state.snapshot.map(|vectors| Snapshot {
                weights: from_vectors(vectors),
                losses,
            }),
            mean: state.mean.map(|vectors| WeightMean {
                sum: from_vectors(vectors),
                blocks: state.mean_blocks,
            }),
            bound: state.bound.map(Cow::into_owned),
            visits,
            rows,
            inner_passes,
        };
        Ok(())
    }

    fn coded_fits(&self, state: &SavedState<'_>) -> bool {
        match (&self.coded, &state.coded) {
            (Some(coded), Some(saved)) => coded.fits(saved),
            (None, None) => true,
            _ => false,
        }
    }

    fn check_shapes(&self, state: &SavedState<'_>) -> Result<(), LinearError> {
        let records = self.duals.records();
        let subproblems = self.weights.subproblems();
        let length = self.weights.vector(0).len();
        let fits = |vectors: &[Cow<'_, [f32]>], length: usize| {
            vectors.len() == subproblems && vectors.iter().all(|vector| vector.len() == length)
        };
        let problem = if !fits(&state.weights, length) || state.centres.len() != self.centres.len()
        {
            "weights"
        } else if !fits(&state.alpha, records) || state.terms.len() != subproblems {
            "dual variables"
        } else if state.skip.as_ref().map(|skip| skip.len()) != self.skip.as_ref().map(|_| records)
        {
            "skip table"
        } else if !self.coded_fits(state) {
            "coded"
        } else if state.snapshot.as_ref().is_some_and(|vectors| {
            !fits(vectors, length) || state.snapshot_loss.len() != subproblems
        }) {
            "snapshot"
        } else if state
            .mean
            .as_ref()
            .is_some_and(|vectors| !fits(vectors, length))
        {
            "mean weights"
        } else if !(state.bound.as_ref()).is_none_or(|bound| bound.fits(&self.problem)) {
            "lower bound"
        } else {
            return Ok(());
        };
        Err(LinearError::StateMismatch { part: problem })
    }
}
