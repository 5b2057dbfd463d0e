//! Dual coordinate descent on a block of rows (Hsieh et al., ICML 2008, Alg. 3).
//!
//! min over α of ½‖w‖² + Σ (½ D α_i² − α_i), 0 ≤ α_i ≤ U, w = Σ α_i y_i x_i; the α of rows outside the
//! block stay as they are, so each block lowers the objective of the whole problem (block
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
use crate::problem::{Loss, Problem};
use crate::random::derive;
use crate::step::{ClassTerms, HingeStep, LogisticStep, Step};
use crate::visit::{Place, Visit};
use crate::weights::Weights;

/// A gradient above this holds a row at its bound firmly: a tenth of what a row of margin 0 has.
const SETTLED_ABOVE: f32 = 0.1;

/// When a block is done with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InnerPasses {
    /// After this many passes.
    Fixed(u32),
    /// When the largest and the smallest projected gradient differ by at most `epsilon` over all rows
    /// of the block, or after `at_most` passes. (Logistic: when no |gradient| exceeds `epsilon`.)
    Until {
        /// The tolerance; 0.1 is the usual one.
        epsilon: f32,
        /// Most passes; 200 is the usual number.
        at_most: u32,
    },
}

/// What was done on a block, over all subproblems.
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
/// Errors: rows of another problem; [`LinearError::Interrupted`] where [`Scratch::end_when`] says so.
pub fn solve_block(
    problem: &Problem,
    block: &RowTable,
    weights: &mut Weights,
    duals: &mut Duals,
    inner: InnerPasses,
    key: u64,
    scratch: &mut Scratch,
) -> Result<BlockReport, LinearError> {
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
    fn visit_cost(&self, place: Place) -> f64;
}

/// Nanoseconds of a visit beside those of its values.
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

    fn visit_cost(&self, place: Place) -> f64 {
        let a_value = match self.layout {
            Layout::Dense { .. } => 1.0,
            Layout::Sparse | Layout::Bytes => 8.0,
        };
        A_VISIT + a_value * f64::from(place.length)
    }
}

/// Solves over the rows `ids` whose visits are prepared in `scratch`; `rows` gives them for each
/// subproblem, and `weights` are its vectors as those rows meet them.
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
    for subproblem in 0..weights.len() {
        let w = &mut weights[subproblem];
        let (stored, term) = duals.stored_mut(subproblem);
        let before = scratch.take_duals(problem, ids, stored);
        let classes = class_terms(problem, subproblem);
        let mut run = Run {
            rows: rows(subproblem),
            classes: &classes,
            simd: scratch.simd,
            orders: derive(key, subproblem as u64),
            between_looks,
            report: &mut report,
        };
        let solved = match problem.loss() {
            Loss::Hinge | Loss::SquaredHinge => run.hinge(w, inner, scratch),
            Loss::Logistic => run.logistic(w, inner, scratch),
        };
        if solved.is_none() {
            return Err(scratch.before.give_up(ids, weights, duals));
        }
        let last = subproblem + 1 == problem.subproblems();
        scratch.before.keep(ids, stored, *term, last);
        let after = scratch.put_duals(problem, ids, stored);
        *term += after - before;
        scratch.fold_slack(problem, subproblem == 0);
    }
    Ok(report)
}

/// The terms of each class.
fn class_terms(problem: &Problem, subproblem: usize) -> Vec<ClassTerms> {
    (0..problem.classes() as u32)
        .map(|class| ClassTerms {
            sign: problem.sign(subproblem, class),
            upper: problem.upper(class),
            diagonal: problem.diagonal(class),
        })
        .collect()
}

/// One subproblem on one block.
struct Run<'a, R> {
    rows: R,
    classes: &'a [ClassTerms],
    simd: Simd,
    orders: u64,
    /// Visits between two looks at whether the block is to be given up.
    between_looks: usize,
    report: &'a mut BlockReport,
}

/// `None` stands for a block that is given up.
impl<R: VisitRows> Run<'_, R> {
    fn hinge(&mut self, w: &mut [f32], inner: InnerPasses, scratch: &mut Scratch) -> Option<()> {
        let (epsilon, at_most) = limits(inner);
        let count = scratch.visits.len();
        let mut step = HingeStep {
            classes: self.classes,
            settled_above: SETTLED_ABOVE,
            largest: 0.0,
            smallest: 0.0,
        };
        scratch.active.start(count);
        let mut passes = 0;
        while passes < at_most {
            (step.largest, step.smallest) = (0.0, 0.0);
            let visited = self.pass(w, &mut step, passes, scratch)?;
            passes += 1;
            let violation = step.largest - step.smallest;
            if violation > epsilon {
                // Near the end, gradients that hold a row are as small as those that move one.
                step.settled_above = SETTLED_ABOVE.min(violation);
                scratch.active.advance();
            } else if visited == count {
                break;
            } else {
                // Solved among the rows awake: look at all of them.
                scratch.active.wake_all();
            }
        }
        self.finish(passes, step.largest - step.smallest);
        Some(())
    }

    fn logistic(&mut self, w: &mut [f32], inner: InnerPasses, scratch: &mut Scratch) -> Option<()> {
        let (epsilon, at_most) = limits(inner);
        let mut step = LogisticStep {
            classes: self.classes,
            largest: 0.0,
        };
        let mut passes = 0;
        while passes < at_most {
            scratch.active.start(scratch.visits.len());
            step.largest = 0.0;
            self.pass(w, &mut step, passes, scratch)?;
            passes += 1;
            if step.largest <= epsilon {
                break;
            }
        }
        self.finish(passes, step.largest);
        Some(())
    }

    /// One pass over the rows awake; returns their number.
    fn pass(
        &mut self,
        w: &mut [f32],
        step: &mut impl Step,
        number: u32,
        scratch: &mut Scratch,
    ) -> Option<usize> {
        let active = &mut scratch.active;
        active.shuffle(derive(self.orders, u64::from(number)));
        let visits = &mut scratch.visits;
        let (order, settled) = (&active.order, &mut active.settled);
        for some in order.chunks(self.between_looks) {
            if scratch.halt.as_mut().is_some_and(Halt::is_due) {
                return None;
            }
            self.rows.pass(self.simd, w, step, visits, some, settled);
        }
        self.report.visits += order.len() as u64;
        Some(order.len())
    }

    fn finish(&mut self, passes: u32, violation: f32) {
        self.report.passes = self.report.passes.max(passes);
        self.report.violation = self.report.violation.max(violation);
    }
}

/// The tolerance and the most passes; a fixed number of passes never stops early.
fn limits(inner: InnerPasses) -> (f32, u32) {
    match inner {
        InnerPasses::Fixed(passes) => (f32::NEG_INFINITY, passes),
        InnerPasses::Until { epsilon, at_most } => (epsilon, at_most),
    }
}
