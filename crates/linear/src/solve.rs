//! Dual coordinate descent on a block of rows (Hsieh et al., ICML 2008, Alg. 3).
//!
//! max over α of Σ d(α_i) − ½‖w‖², w = Σ α_i s_i x_i (see [`crate::loss`]); the α of rows outside the block do
//! not change, so each block lowers the objective of the whole problem (block
//! minimization: Yu et al., TKDD 2012). Every α lives in [`Duals`], so w always is their sum.
//!
//! Cost of a pass: one visit of each active row, two touches of its values and of their weights.
//! Deterministic in `key` for one [`Simd`] level.

use pelton_format::{Layout, RowTable};

use crate::abandoned::{Halt, visits_between_looks};
use crate::block::{Scratch, block_rows};
use crate::duals::Duals;
use crate::error::LinearError;
use crate::kernels::{self, BlockRows, Simd};
use crate::loss::{LossFunction, RowTerms, Watch, WithLoss};
use crate::problem::{Problem, Terms};
use crate::random::derive;
use crate::step::{Outcome, Step};
use crate::visit::{RowAddress, Visit};
use crate::weights::Weights;

/// A gradient above this holds a row at its bound firmly: a tenth of the gradient at margin 0.
const SETTLED_ABOVE: f32 = 0.1;

/// When a block is done with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InnerPasses {
    /// After this many passes.
    Fixed(u32),
    /// When the largest and the smallest projected gradient differ by at most `epsilon` over all rows of the block, or
    /// after `at_most` passes. (Logistic: when no |gradient| exceeds `epsilon`. Real targets: when they differ by at
    /// most this share of their difference in the first pass.)
    Until {
        /// The tolerance; 0.1 is the usual one.
        epsilon: f32,
        /// Most passes; usually 200.
        at_most: u32,
    },
}

/// The work on a block, over all subproblems.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BlockReport {
    /// Most passes of any subproblem.
    pub passes: u32,
    /// Visits of a row.
    pub visits: u64,
    /// Largest difference of projected gradients in the last pass of any subproblem.
    pub violation: f32,
}

/// Solves `block` from the present weights and duals. `key` decides the visiting orders: it should be
/// a hash of the run's seed, the epoch and the step.
///
/// Errors: rows of another problem; [`LinearError::Interrupted`] as set up by [`Scratch::end_when`].
pub fn solve_block(
    problem: &Problem,
    block: &RowTable,
    weights: &mut Weights,
    duals: &mut Duals,
    inner: InnerPasses,
    key: u64,
    scratch: &mut Scratch,
) -> Result<BlockReport, LinearError> {
    problem.check_separate()?;
    let records = duals.records();
    if let Some(&record) = block.ids().iter().find(|&&id| id >= records as u64) {
        return Err(LinearError::RecordOutOfRange { record, records });
    }
    scratch.prepare(problem, block)?;
    let rows = block_rows(problem.features(), problem.bias(), block);
    let vectors = weights.vectors_mut();
    let ids = block.ids();
    solve_rows(problem, ids, |_| &rows, vectors, duals, inner, key, scratch)
}

/// Rows that visits can be made of.
pub(crate) trait VisitRows {
    /// One pass over the rows `order`; `settled` learns which of them need no visit soon.
    fn pass<S: Step>(
        &self,
        simd: Simd,
        w: &mut [f32],
        step: &mut S,
        visits: &mut [Visit],
        order: &[u32],
        settled: &mut [bool],
    );

    /// Nanoseconds that a visit takes, roughly.
    fn visit_cost(&self, place: RowAddress) -> f64;
}

/// Nanoseconds of a visit next to those of its values.
pub(crate) const A_VISIT: f64 = 30.0;

impl VisitRows for &BlockRows<'_> {
    fn pass<S: Step>(
        &self,
        simd: Simd,
        w: &mut [f32],
        step: &mut S,
        visits: &mut [Visit],
        order: &[u32],
        settled: &mut [bool],
    ) {
        kernels::pass(simd, self, w, step, visits, order, settled);
    }

    fn visit_cost(&self, place: RowAddress) -> f64 {
        let a_value = match self.layout {
            Layout::Dense { .. } => 1.0,
            Layout::Sparse | Layout::Bytes => 8.0,
        };
        A_VISIT + a_value * f64::from(place.length)
    }
}

/// Solves over the rows `ids` with their visits prepared in `scratch`; `rows` gives them for each subproblem, and
/// `weights` are its vectors in the layout of those rows.
#[expect(clippy::too_many_arguments)]
pub(crate) fn solve_rows<R: VisitRows>(
    problem: &Problem,
    ids: &[u64],
    rows: impl Fn(usize) -> R,
    weights: &mut [Vec<f32>],
    duals: &mut Duals,
    inner: InnerPasses,
    key: u64,
    scratch: &mut Scratch,
) -> Result<BlockReport, LinearError> {
    let mut report = BlockReport::default();
    let mut between_looks = usize::MAX;
    if scratch.halt.is_some() {
        let (any, count) = (rows(0), scratch.visits.len());
        let cost = (scratch.visits.iter())
            .map(|visit| any.visit_cost(visit.place))
            .sum();
        between_looks = visits_between_looks(cost, count);
        scratch.before.begin(weights, count as f64, cost);
    }
    scratch.name_rows(problem);
    for subproblem in 0..weights.len() {
        let own = problem.terms(subproblem);
        let terms = own.table(&scratch.labels, ids);
        scratch.set_diagonal(&terms);
        let run = Run {
            rows: rows(subproblem),
            terms: &terms,
            own: &own,
            ids,
            subproblem,
            last: subproblem + 1 == problem.subproblems(),
            inner,
            orders: derive(key, subproblem as u64),
            between_looks,
            w: &mut weights[subproblem],
            duals,
            scratch,
            report: &mut report,
        };
        if problem.loss().with(run).is_none() {
            return Err(scratch.before.give_up(ids, weights, duals));
        }
    }
    Ok(report)
}

/// One subproblem on one block.
struct Run<'a, R> {
    rows: R,
    terms: &'a [RowTerms],
    own: &'a Terms,
    ids: &'a [u64],
    subproblem: usize,
    last: bool,
    inner: InnerPasses,
    orders: u64,
    /// Visits between two checks whether to abandon the block.
    between_looks: usize,
    w: &'a mut [f32],
    duals: &'a mut Duals,
    scratch: &'a mut Scratch,
    report: &'a mut BlockReport,
}

impl<R: VisitRows> WithLoss for Run<'_, R> {
    /// `None` means an abandoned block.
    type Output = Option<()>;

    fn run<L: LossFunction + Copy>(mut self, loss: L) -> Option<()> {
        let (stored, _) = self.duals.stored_mut(self.subproblem);
        let before = (self.scratch).take_duals(&loss, self.terms, self.ids, stored);
        self.passes(loss)?;
        let (stored, term) = self.duals.stored_mut(self.subproblem);
        self.scratch.before.keep(self.ids, stored, *term, self.last);
        let after = (self.scratch).put_duals(&loss, self.terms, self.ids, stored);
        *term += after - before;
        let is_left_out = |i: usize| self.own.holds_out(self.ids[i]);
        let is_first = self.subproblem == 0;
        (self.scratch).fold_slack(&loss, self.terms, is_first, is_left_out);
        Some(())
    }
}

impl<R: VisitRows> Run<'_, R> {
    fn passes<L: LossFunction + Copy>(&mut self, loss: L) -> Option<()> {
        let (mut epsilon, at_most) = limits(self.inner);
        let (own, ids) = (self.own, self.ids);
        let is_left_out = |i: usize| own.holds_out(ids[i]);
        let count = (self.scratch.active).start(self.scratch.visits.len(), is_left_out);
        let mut descent = Descent {
            loss,
            terms: self.terms,
            watch: Watch {
                settled_above: SETTLED_ABOVE,
                ..Watch::default()
            },
        };
        let (mut passes, mut violation) = (0, 0.0);
        while passes < at_most {
            (descent.watch.largest, descent.watch.smallest) = (0.0, 0.0);
            let visited = self.pass(&mut descent, passes)?;
            passes += 1;
            violation = descent.watch.largest - descent.watch.smallest;
            if passes == 1 && loss.has_real_targets() && epsilon > 0.0 {
                // Margins have the size of 1; targets have any.
                epsilon *= violation;
            }
            if violation > epsilon {
                // Near the end, gradients that hold a row are as small as those that move one.
                descent.watch.settled_above = SETTLED_ABOVE.min(violation);
                self.scratch.active.advance();
            } else if visited == count {
                break;
            } else {
                // Solved among the active rows: check all rows.
                self.scratch.active.wake_all();
            }
        }
        self.report.passes = self.report.passes.max(passes);
        self.report.violation = self.report.violation.max(violation);
        Some(())
    }

    /// One pass over the rows not resting; returns how many.
    fn pass(&mut self, step: &mut impl Step, number: u32) -> Option<usize> {
        let scratch = &mut *self.scratch;
        let active = &mut scratch.active;
        active.shuffle(derive(self.orders, u64::from(number)));
        let (order, settled) = (&active.order, &mut active.settled);
        for some in order.chunks(self.between_looks) {
            if scratch.halt.as_mut().is_some_and(Halt::is_due) {
                return None;
            }
            let visits = &mut scratch.visits;
            self.rows
                .pass(scratch.simd, self.w, step, visits, some, settled);
        }
        self.report.visits += order.len() as u64;
        Some(order.len())
    }
}

/// Coordinate descent for one loss.
struct Descent<'a, L> {
    loss: L,
    terms: &'a [RowTerms],
    watch: Watch,
}

impl<L: LossFunction> Step for Descent<'_, L> {
    #[inline(always)]
    fn step(&mut self, visit: &mut Visit, dot: f32) -> Outcome {
        let row = &self.terms[visit.label as usize];
        self.loss.step(row, visit, dot, &mut self.watch)
    }
}

/// The tolerance and the most passes; a fixed number of passes never stops early.
fn limits(inner: InnerPasses) -> (f32, u32) {
    match inner {
        InnerPasses::Fixed(passes) => (f32::NEG_INFINITY, passes),
        InnerPasses::Until { epsilon, at_most } => (epsilon, at_most),
    }
}
