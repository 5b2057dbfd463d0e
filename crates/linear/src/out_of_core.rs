//! Training on data that does not fit in memory: block minimization (Yu et al., TKDD 2012) over the blocks of a feed,
//! with all α in memory.
//!
//! The order decides the method: fixed blocks are BMF, new random blocks every epoch are LIRS. *Skip* (see its module)
//! does not read rows that would change nothing.
//!
//! **Certificate.** With w = Σ α_i y_i x_i the duality gap is a sum over rows, P(w) − D(α) = Σ_i [C_i ξ(m_i) +
//! ξ*_i(α_i) + α_i m_i] with every term ≥ 0, and a row at the right bound adds exactly 0. It has two uses:
//! * an *estimate* at no cost: the terms of each row when its block arrives, before it is trained; skipped settled rows
//!   count 0;
//! * a *certificate*: an epoch that reads every row sums the losses of a snapshot of w. The snapshot is the mean of w
//!   over the later half of the blocks of the epoch before: w itself swings from block to block about the optimum, and
//!   P is convex. The epoch also sums Σ α y x from the α after each block ([`DualBound`]), since no α changes again
//!   before the epoch ends. So at its end both values are exact, and the gap between them certifies the snapshot
//!   without extra reading; the sum also corrects w. The snapshot costs three more w; if the budget has no room for it,
//!   an evaluation pass does the same afterwards. If all rows are in memory, they are certified after every epoch.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::RowTable;
use pelton_key::{Stage, key};

use crate::block::Scratch;
use crate::certificate::{Certificate, DualBound, LossSum, dual_value};
use crate::duals::Duals;
use crate::error::LinearError;
use crate::gap::{for_each_gap, gap_of_rows};
use crate::kernels::Simd;
use crate::numbering::FeatureNumbering;
use crate::problem::Problem;
use crate::quantized_cache::QuantizedCache;
use crate::skip::SkipTable;
use crate::solve::{InnerPasses, solve_block};
use crate::weights::Weights;

/// How blocks are trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutOfCoreOptions {
    /// Passes over a block while it is in memory.
    pub inner: InnerPasses,
    /// If given, each epoch solves its blocks to half the tolerance of the one before, and at least to this: if all
    /// rows are one block, only this gets a run nearer to the optimum.
    pub tighten: Option<f32>,
    /// Whether settled rows are skipped for some epochs.
    pub skip: bool,
    /// Rows kept in memory between blocks as one byte a value, 0 for none: see [`QuantizedCache`]. The rows must be
    /// dense, and none may be skipped.
    pub coded_rows: usize,
    /// Whether epochs that read every row, except the first, certify a snapshot of w.
    pub snapshots: bool,
    /// Whether all rows are in memory, so [`OutOfCore::certify`] reads nothing.
    pub held: bool,
    /// Seed of the inner visiting orders.
    pub seed: u64,
}

/// The accuracy to which the problem is solved over the quantised rows between epochs.
const CODED_PASSES: InnerPasses = InnerPasses::Until {
    epsilon: 0.01,
    at_most: 100,
};

/// Stands for the index of a block in the keys of solves between epochs.
const BETWEEN_EPOCHS: u64 = 1 << 63;

/// After a block, one pass over the quantised rows: the next blocks would undo more.
const CODED_BLOCK_PASSES: InnerPasses = InnerPasses::Fixed(1);

/// The results of an epoch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EpochOutcome {
    /// Dual value at the end: a bound if the epoch certifies, else an estimate.
    pub dual: f64,
    /// Estimated primal value: the dual value and the gaps of the rows as their blocks arrived.
    pub primal_estimate: f64,
    /// Exact primal value of the snapshot taken at the beginning, if there was one.
    pub certified_primal: Option<f64>,
    /// Rows visited by the solver.
    pub visits: u64,
    /// Rows read.
    pub rows: u64,
    /// Passes over the blocks, added up.
    pub inner_passes: u64,
}

/// The state of an out-of-core training run.
#[derive(Debug)]
pub struct OutOfCore {
    pub(crate) problem: Arc<Problem>,
    pub(crate) options: OutOfCoreOptions,
    pub(crate) weights: Weights,
    pub(crate) duals: Duals,
    /// The centre of a free bias in each subproblem; else empty.
    pub(crate) centres: Vec<f64>,
    pub(crate) skip: Option<SkipTable>,
    pub(crate) coded: Option<QuantizedCache>,
    pub(crate) epoch: EpochState,
    pub(crate) numbering: Option<Arc<FeatureNumbering>>,
    pub(crate) simd: Simd,
    pub(crate) scratch: Scratch,
}

/// Weights at the start of an epoch, and their losses over the rows since.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The weights.
    pub weights: Weights,
    /// Their losses: over all rows at the end of an epoch that certifies.
    pub losses: LossSum,
}

/// Sum of w over the blocks of the later half of an epoch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WeightMean {
    pub sum: Weights,
    pub blocks: u64,
}

/// The sums of an epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct EpochState {
    pub epoch: u64,
    pub reads_all: bool,
    pub gap: f64,
    pub snapshot: Option<Snapshot>,
    /// If the epoch certifies: of the rows read so far, their α final for this epoch.
    pub bound: Option<DualBound>,
    pub mean: Option<WeightMean>,
    pub visits: u64,
    pub rows: u64,
    pub inner_passes: u64,
}

impl EpochState {
    /// Adds weights to the mean once half of the rows were read.
    fn add_to_mean(&mut self, weights: &Weights, records: usize) {
        if 2 * self.rows < records as u64 {
            return;
        }
        match &mut self.mean {
            Some(mean) => {
                mean.sum.add(weights);
                mean.blocks += 1;
            }
            None => {
                self.mean = Some(WeightMean {
                    sum: weights.clone(),
                    blocks: 1,
                });
            }
        }
    }
}

impl WeightMean {
    fn mean(mut self) -> Weights {
        self.sum.multiply(1.0 / self.blocks as f32);
        self.sum
    }
}

impl OutOfCore {
    /// A run from α = 0 over `records` rows.
    pub fn new(problem: Arc<Problem>, records: u64, options: OutOfCoreOptions) -> OutOfCore {
        let records = usize::try_from(records).expect("α is held in memory");
        OutOfCore {
            weights: Weights::zeros(&problem),
            duals: Duals::zeros(&problem, records),
            centres: match problem.bias_is_free() {
                true => vec![0.0; problem.subproblems()],
                false => Vec::new(),
            },
            skip: options.skip.then(|| SkipTable::new(records)),
            coded: (options.coded_rows > 0)
                .then(|| QuantizedCache::new(&problem, records, options.coded_rows)),
            epoch: EpochState::default(),
            numbering: None,
            simd: Simd::best(),
            scratch: Scratch::new(Simd::best()),
            problem,
            options,
        }
    }

    /// The problem being solved.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// From now on all blocks have the same rows, with features renumbered by `numbering`. Weights use the new
    /// indices, except those of [`OutOfCore::wide_weights`],
    /// [`OutOfCore::into_weights`] and [`OutOfCore::save`].
    pub fn renumber(&mut self, numbering: Arc<FeatureNumbering>) {
        self.problem = Arc::new(self.problem.with_features(numbering.len()));
        self.weights = numbering.narrow(&self.weights);
        if let Some(snapshot) = &mut self.epoch.snapshot {
            snapshot.weights = numbering.narrow(&snapshot.weights);
        }
        if let Some(mean) = &mut self.epoch.mean {
            mean.sum = numbering.narrow(&mean.sum);
        }
        self.numbering = Some(numbering);
    }

    /// Abandons blocks, and solves between epochs, soon after `asked` is set: [`LinearError::Interrupted`] then says
    /// whether the run can resume from the state.
    pub fn end_when(&mut self, asked: Arc<AtomicBool>) {
        self.scratch.end_when(asked);
    }

    /// The current weights.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The current weights by the features' own numbers.
    pub fn wide_weights(&self) -> Cow<'_, Weights> {
        match &self.numbering {
            Some(numbering) => Cow::Owned(numbering.widen(&self.weights)),
            None => Cow::Borrowed(&self.weights),
        }
    }

    /// The weights that an epoch's certificate is about.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.epoch.snapshot.as_ref()
    }

    /// The present epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch.epoch
    }

    /// Makes the best weights at hand the snapshot, without losses yet: those solved over the quantised rows, or the
    /// mean of w over the later half of the last epoch's blocks. Returns `false` if only the last w is available.
    pub fn take_best_as_snapshot(&mut self) -> Result<bool, LinearError> {
        let refined = self.solve_coded(BETWEEN_EPOCHS, CODED_PASSES)?;
        Ok(self.take_found_as_snapshot(refined))
    }

    /// The same after the solve over the quantised rows, if there were any.
    fn take_found_as_snapshot(&mut self, refined: bool) -> bool {
        let weights = if refined {
            self.weights.clone()
        } else if let Some(mean) = self.epoch.mean.take() {
            mean.mean()
        } else {
            return false;
        };
        self.epoch.snapshot = Some(Snapshot {
            weights,
            losses: LossSum::new(&self.problem),
        });
        true
    }

    /// Only the weights: the snapshot's, or the current ones.
    pub fn into_weights(self, snapshot: bool) -> Weights {
        let weights = match self.epoch.snapshot {
            Some(held) if snapshot => held.weights,
            _ => self.weights,
        };
        match &self.numbering {
            Some(numbering) => numbering.widen(&weights),
            None => weights,
        }
    }

    /// The current dual variables.
    pub fn duals(&self) -> &Duals {
        &self.duals
    }

    /// Records with quantised rows, in the order of their slots.
    pub fn coded_ids(&self) -> &[u64] {
        self.coded.as_ref().map_or(&[], QuantizedCache::ids)
    }

    /// Encodes the rows of the slots from `first` on again, after a restored state.
    pub fn encode_again(&mut self, first: usize, rows: &RowTable) {
        if let Some(coded) = &mut self.coded {
            coded.encode_again(&self.problem, first, rows, self.simd);
        }
    }

    /// D(α), as far as w has not drifted from the α: an estimate.
    pub fn dual(&self) -> f64 {
        dual_value(&self.problem, &self.weights, &self.duals)
    }

    /// Begins an epoch. With `reads_all` no row is left unread for being settled, which a
    /// certificate needs.
    pub fn begin_epoch(&mut self, epoch: u64, reads_all: bool) -> Result<(), LinearError> {
        let begun = EpochState {
            epoch,
            reads_all,
            ..EpochState::default()
        };
        let before = std::mem::replace(&mut self.epoch, begun);
        let refined = match epoch {
            0 => Ok(false),
            _ => self.solve_coded(BETWEEN_EPOCHS, CODED_PASSES),
        };
        match refined {
            Ok(refined) => {
                self.take_snapshot(before, refined);
                if epoch > 0 {
                    self.move_centres();
                }
            }
            Err(error) => {
                self.epoch = before;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes the free biases the centres of the next proximal step, keeping their distance from them: it measures the
    /// imbalance of the α.
    fn move_centres(&mut self) {
        for (subproblem, centre) in self.centres.iter_mut().enumerate() {
            if let Some(bias) = self.weights.vector_mut(subproblem).last_mut() {
                let found = f64::from(*bias);
                *bias = (2.0 * found - *centre) as f32;
                *centre = found;
            }
        }
    }

    /// The centres of free biases.
    pub fn centres(&self) -> &[f64] {
        &self.centres
    }

    /// Whether the present epoch ends with a certificate.
    fn certifies(&self) -> bool {
        self.options.snapshots
            && !self.options.held
            && (self.epoch.reads_all || self.skip.is_none())
            && self.epoch.epoch > 0
    }

    /// Takes the snapshot that the present epoch certifies, if it does: w if a solve over the quantised rows has
    /// `refined` it, else the mean of the epoch `before`.
    fn take_snapshot(&mut self, before: EpochState, refined: bool) {
        if !self.certifies() {
            return;
        }
        let weights = match before.mean {
            Some(mean) if !refined => mean.mean(),
            _ => self.weights.clone(),
        };
        self.epoch.bound = Some(DualBound::new(&self.problem));
        self.epoch.snapshot = Some(Snapshot {
            weights,
            losses: LossSum::new(&self.problem),
        });
    }

    /// Solves the problem over the quantised rows; returns whether there were any.
    fn solve_coded(&mut self, step: u64, inner: InnerPasses) -> Result<bool, LinearError> {
        let Some(coded) = &mut self.coded else {
            return Ok(false);
        };
        // After a block it is a part of that block, and one pass.
        let halt = self.scratch.halt.take_if(|_| step != BETWEEN_EPOCHS);
        let solved = coded.solve(
            &self.problem,
            &mut self.weights,
            &mut self.duals,
            inner,
            // The key of a block depends on its index.
            key(self.options.seed, self.epoch.epoch, Stage::Inner(!step)),
            &mut self.scratch,
        );
        self.scratch.halt = self.scratch.halt.take().or(halt);
        let report = solved?;
        self.epoch.visits += report.visits;
        Ok(report.visits > 0)
    }

    /// Whether a block being planned reads this row.
    #[inline]
    pub fn wants(&self, id: u64) -> bool {
        match &self.skip {
            Some(skip) if !self.epoch.reads_all => skip.is_due(id, self.epoch.epoch),
            _ => true,
        }
    }

    /// Trains on one block, the `step`-th of the epoch.
    ///
    /// Errors: rows of another problem; [`LinearError::Interrupted`] as set up by [`OutOfCore::end_when`].
    pub fn train(&mut self, rows: &RowTable, step: u64) -> Result<(), LinearError> {
        self.problem.check_separate()?;
        // An abandoned block has made w exact in its rows, and changed nothing else.
        self.settle(rows);
        let mut losses = LossSum::new(&self.problem);
        let mut gap = 0.0;
        match &self.epoch.snapshot {
            Some(snapshot) => losses.add(&self.problem, rows, &snapshot.weights, self.simd)?,
            None if self.options.held => {}
            // Else the primal value will be exact.
            None => gap = gap_of_rows(&self.problem, rows, &self.weights, &self.duals, self.simd)?,
        }
        let inner = self.inner_passes();
        let report = solve_block(
            &self.problem,
            rows,
            &mut self.weights,
            &mut self.duals,
            inner,
            key(self.options.seed, self.epoch.epoch, Stage::Inner(step)),
            &mut self.scratch,
        )?;
        let epoch = &mut self.epoch;
        epoch.gap += gap;
        epoch.rows += rows.len() as u64;
        epoch.visits += report.visits;
        epoch.inner_passes += u64::from(report.passes);
        if let Some(snapshot) = &mut epoch.snapshot {
            snapshot.losses.rows += losses.rows;
            snapshot.losses.correct += losses.correct;
            for (loss, sum) in snapshot.losses.loss.iter_mut().zip(&losses.loss) {
                *loss += sum;
            }
        }
        if let Some(bound) = &mut epoch.bound {
            bound.add(&self.problem, rows, &self.duals, self.simd);
        }
        if self.options.snapshots && self.coded.is_none() {
            epoch.add_to_mean(&self.weights, self.duals.records());
        }
        let slack = self.scratch.slack();
        if let Some(skip) = &mut self.skip {
            skip.record_rows(rows, self.epoch.epoch, slack);
        }
        if let Some(coded) = &mut self.coded {
            coded.take_in(&self.problem, rows, slack, &self.weights, self.simd);
            // In an epoch that certifies, w must be exact in the rows read when it ends.
            if self.epoch.snapshot.is_none() {
                self.solve_coded(step, CODED_BLOCK_PASSES)?;
            }
        }
        Ok(())
    }

    /// Adds the losses of w over some rows to `losses` and their α to `bound`, as a certifying pass does: those of the
    /// current w, or with `snapshot` those of the snapshot. Quantised rows require `snapshot`, since the pass makes w
    /// exact. Skipped rows that turn out not to be settled are read again from now on.
    pub fn check_rows(
        &mut self,
        rows: &RowTable,
        snapshot: bool,
        losses: &mut LossSum,
        bound: &mut DualBound,
    ) -> Result<(), LinearError> {
        self.problem.check_separate()?;
        self.settle(rows);
        bound.add(&self.problem, rows, &self.duals, self.simd);
        let weights = match &self.epoch.snapshot {
            Some(held) if snapshot => &held.weights,
            _ => &self.weights,
        };
        losses.add(&self.problem, rows, weights, self.simd)?;
        let Some(skip) = self.skip.as_mut().filter(|_| !snapshot) else {
            return Ok(());
        };
        let wake = |row, term| {
            if term > 0.0 {
                skip.wake(rows.id(row));
            }
        };
        for_each_gap(
            &self.problem,
            rows,
            &self.weights,
            &self.duals,
            self.simd,
            wake,
        )
    }

    /// Makes w exact in rows that have arrived, if there are quantised rows.
    fn settle(&mut self, rows: &RowTable) {
        if let Some(coded) = &mut self.coded {
            let (weights, duals) = (&mut self.weights, &self.duals);
            coded.settle(&self.problem, rows, weights, duals, self.simd);
        }
    }

    fn inner_passes(&self) -> InnerPasses {
        match (self.options.inner, self.options.tighten) {
            (InnerPasses::Until { epsilon, at_most }, Some(least)) => {
                let halvings = self.epoch.epoch.min(100) as i32;
                InnerPasses::Until {
                    epsilon: (epsilon * 0.5_f32.powi(halvings)).max(least.min(epsilon)),
                    at_most,
                }
            }
            (inner, _) => inner,
        }
    }

    /// Certifies the present solution over `rows`, all there are, and puts w right by their α. Certifies w, or
    /// the mean of w if blocks of the epoch left one, which becomes the snapshot; returns which.
    pub fn certify(
        &mut self,
        rows: &RowTable,
    ) -> Result<(Certificate, LossSum, bool), LinearError> {
        self.problem.check_separate()?;
        let mut bound = DualBound::new(&self.problem);
        bound.add(&self.problem, rows, &self.duals, self.simd);
        self.put_right(&bound);
        let is_snapshot = self.take_found_as_snapshot(false);
        let weights = match &self.epoch.snapshot {
            Some(snapshot) if is_snapshot => &snapshot.weights,
            _ => &self.weights,
        };
        let mut losses = LossSum::new(&self.problem);
        losses.add(&self.problem, rows, weights, self.simd)?;
        let certificate = Certificate {
            primal: losses.primal(&self.problem, weights),
            dual: bound.value(&self.problem),
        };
        Ok((certificate, losses, is_snapshot))
    }

    /// Sets w to the sum over the α of all rows, as in `bound`.
    pub fn put_right(&mut self, bound: &DualBound) {
        bound.round_into(&self.problem, &self.centres, &mut self.weights);
        self.duals.set_terms(bound.terms(&self.problem));
    }

    /// Ends an epoch: its figures.
    pub fn end_epoch(&mut self) -> EpochOutcome {
        let dual = match self.epoch.bound.take() {
            Some(bound) => {
                self.put_right(&bound);
                bound.value(&self.problem)
            }
            None => self.dual(),
        };
        let certified_primal = self
            .epoch
            .snapshot
            .as_ref()
            .map(|snapshot| snapshot.losses.primal(&self.problem, &snapshot.weights));
        EpochOutcome {
            dual,
            primal_estimate: dual + self.epoch.gap,
            certified_primal,
            visits: self.epoch.visits,
            rows: self.epoch.rows,
            inner_passes: self.epoch.inner_passes,
        }
    }
}
