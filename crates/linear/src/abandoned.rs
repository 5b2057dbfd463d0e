//! Abandoning a block when the run must end: everything is restored to the state before it.
//!
//! A block of many passes takes minutes, but an interrupted run should end within a second. So passes check a
//! flag every few milliseconds. Work of less than [`GRACE`] is finished first. A resumed run trains
//! the abandoned block again, so the model is the same however often a run was interrupted.
//!
//! Cost: a copy of w, and of the α of the block's rows if there are several subproblems. If these are large compared
//! with the work on the block there is no copy, and the state after an abandoned block is unusable: the run resumes
//! from the last state saved before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::duals::Duals;
use crate::error::LinearError;

/// How long work continues after a request to end the run.
pub const GRACE: Duration = Duration::from_millis(300);

/// Nanoseconds of visits between two checks of the flag.
const BETWEEN_LOOKS: f64 = 2e7;
/// Bytes that are always copied, and bytes for each nanosecond of work on the block: at 5 bytes
/// a nanosecond, the copy takes a fortieth of a pass.
const FREE_BYTES: f64 = (1 << 20) as f64;
const BYTES_A_NANOSECOND: f64 = 0.125;

/// A flag that the run must end, and since when this is known here.
#[derive(Debug)]
pub(crate) struct Halt {
    asked: Arc<AtomicBool>,
    since: Option<Instant>,
}

impl Halt {
    pub fn new(asked: Arc<AtomicBool>) -> Halt {
        Halt { asked, since: None }
    }

    /// Whether running work must end now.
    pub fn is_due(&mut self) -> bool {
        self.asked.load(Ordering::Relaxed)
            && self.since.get_or_insert_with(Instant::now).elapsed() >= GRACE
    }
}

/// Visits between two looks, of `count` that take `cost` nanoseconds.
pub(crate) fn visits_between_looks(cost: f64, count: usize) -> usize {
    const MOST: f64 = 65536.0;
    (BETWEEN_LOOKS / (cost / count.max(1) as f64).max(1.0)).clamp(1.0, MOST) as usize
}

/// A copy of what a block changes.
#[derive(Debug, Default)]
pub(crate) struct Before {
    copied: bool,
    weights: Vec<f32>,
    alphas: Vec<f32>,
    terms: Vec<f64>,
}

impl Before {
    pub fn heap_bytes(&self) -> usize {
        4 * (self.weights.capacity() + self.alphas.capacity())
    }

    /// Copies `weights`, unless that is expensive compared with a pass over `rows` rows of `cost` nanoseconds.
    pub fn begin(&mut self, weights: &[Vec<f32>], rows: f64, cost: f64) {
        self.weights.clear();
        self.alphas.clear();
        self.terms.clear();
        let subproblems = weights.len() as f64;
        let values: usize = weights.iter().map(Vec::len).sum();
        let bytes = 4.0 * (values as f64 + rows * (subproblems - 1.0));
        self.copied = bytes <= FREE_BYTES.max(BYTES_A_NANOSECOND * cost * subproblems);
        if self.copied {
            self.weights.extend(weights.iter().flatten());
        }
    }

    /// Copies the α of the rows `ids` that a solved subproblem is about to change, unless it is the last.
    pub fn keep(&mut self, ids: &[u64], stored: &[f32], term: f64, last: bool) {
        if self.copied && !last {
            self.alphas
                .extend(ids.iter().map(|&id| stored[id as usize]));
            self.terms.push(term);
        }
    }

    /// Restores the state from the copy, if there is one.
    pub fn give_up(
        &mut self,
        ids: &[u64],
        weights: &mut [Vec<f32>],
        duals: &mut Duals,
    ) -> LinearError {
        if self.copied {
            let mut values = self.weights.iter();
            for (w, &value) in weights.iter_mut().flatten().zip(&mut values) {
                *w = value;
            }
            let mut alphas = self.alphas.iter();
            for (subproblem, &before) in self.terms.iter().enumerate() {
                let (stored, term) = duals.stored_mut(subproblem);
                for (&id, &alpha) in ids.iter().zip(&mut alphas) {
                    stored[id as usize] = alpha;
                }
                *term = before;
            }
        }
        LinearError::Interrupted {
            undone: self.copied,
        }
    }
}
