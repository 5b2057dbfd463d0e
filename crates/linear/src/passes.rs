//! The interface of methods that need only passes over all rows, in any order; their sums add up over threads and
//! ranks.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use pelton_format::{Layout, RowTable};
use rayon::prelude::*;

use crate::certificate::{Certificate, LossSum};
use crate::error::LinearError;
use crate::peers::Peers;
use crate::problem::Problem;
use crate::weights::Weights;

/// The results of a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassFigures {
    /// The best primal and the best dual value so far.
    pub certificate: Certificate,
    /// Whether both are exact bounds; else the dual value is an estimate of the optimum.
    pub is_proved: bool,
    /// Whether the target gap is reached, or no progress is possible.
    pub done: bool,
}

/// How precise the weights of one vector are.
#[derive(Clone, Debug)]
pub struct Precision {
    /// The weights, the bias last.
    pub weights: Vec<f64>,
    /// P there.
    pub value: f64,
    /// Which weights were found; the others are combinations of those before them and 0.
    pub kept: Vec<usize>,
    /// H⁻¹ over these, in rows.
    pub inverse: Vec<f64>,
    /// Weights that grew without end.
    pub unbounded: Vec<usize>,
}

/// A method on a problem, between two passes.
pub trait PassSolver: Debug + Send {
    /// Begins at these weights instead of at 0, before the first pass.
    fn start(&mut self, weights: &Weights);

    /// Begins a pass over all rows.
    fn begin_pass(&mut self);

    /// Adds rows of the pass; `false` if `interrupt` was set meanwhile: the pass must then start again.
    ///
    /// Errors: rows that the problem does not fit.
    fn add(&mut self, rows: &RowTable, interrupt: &AtomicBool) -> Result<bool, LinearError>;

    /// Ends a pass in which every row of this rank was added: computes the certificate, and the weights of the next
    /// pass.
    ///
    /// Errors: those of `peers`.
    fn end_pass(&mut self, peers: &mut Peers<'_, LinearError>) -> Result<PassFigures, LinearError>;

    /// The weights of least primal value, and their losses if the last pass looked at exactly these weights.
    fn best(&self) -> (Weights, Option<LossSum>);

    /// The precision of the weights of each subproblem, if they maximise the likelihood.
    fn precision(&self) -> Option<Vec<Precision>> {
        None
    }

    /// The state between two passes as plain numbers, for checkpoints: of each subproblem.
    fn save(&self) -> Vec<Vec<f64>>;

    /// Resumes from a saved state.
    ///
    /// Errors: a state with other shapes than this run's.
    fn restore(&mut self, saved: &[Vec<f64>]) -> Result<(), LinearError>;
}

/// Deals `count` rows to the lanes of a pass, in runs of at most `run` without a look at `interrupt`; `false` if that
/// was set. The rows of a lane do not depend on the number of threads.
pub(crate) fn deal<L: Send>(
    lanes: &mut [L],
    count: usize,
    run: usize,
    interrupt: &AtomicBool,
    add: impl Fn(Range<usize>, &mut L) + Sync,
) -> bool {
    let share = count.div_ceil(lanes.len()).max(1);
    lanes.par_iter_mut().enumerate().for_each(|(number, lane)| {
        let range = (number * share).min(count)..((number + 1) * share).min(count);
        for start in range.clone().step_by(run) {
            if interrupt.load(Ordering::Relaxed) {
                return;
            }
            add(start..range.end.min(start + run), lane);
        }
    });
    !interrupt.load(Ordering::Relaxed)
}

/// Checks that the problem fits rows.
pub(crate) fn check_rows(problem: &Problem, rows: &RowTable) -> Result<(), LinearError> {
    let features = problem.features();
    for segment in rows.segments().iter().filter(|rows| !rows.is_empty()) {
        let record = rows.ids().first().copied().unwrap_or(0);
        match segment.layout() {
            Layout::Dense { width } if width != features => {
                return Err(LinearError::Width {
                    record,
                    found: width,
                    expected: features,
                });
            }
            Layout::Bytes => return Err(LinearError::NoFeatures { record }),
            Layout::Dense { .. } => {}
            Layout::Sparse => {
                if let Some(&index) = segment.indices().iter().find(|&&i| i as usize >= features) {
                    return Err(LinearError::FeatureOutOfRange {
                        record,
                        index: index as usize,
                        features,
                    });
                }
            }
        }
    }
    for i in 0..rows.len() {
        problem.check_label(rows.label(i), rows.id(i))?;
    }
    Ok(())
}
