//! The dual variables of all records, in memory whatever the size of the data: 4 bytes a record and
//! subproblem.
//!
//! For the logistic loss α lies strictly inside (0, C), often within rounding of either end, and both
//! log α and log(C − α) matter. So it is stored *centred*: α itself up to C/2, else α − C, a negative
//! number; f32 is then as precise at one end as at the other. 0 stands for a row never visited: it
//! adds nothing to w or to the dual value. (LIBLINEAR keeps α and C − α in two f64 and must add every
//! row to w before the first pass, which out of core would be one more pass over the data.)

use crate::problem::{Loss, Problem};

/// α of every record for every subproblem, with the sum of their terms in the dual value.
#[derive(Clone, Debug, PartialEq)]
pub struct Duals {
    records: usize,
    alpha: Vec<Vec<f32>>,
    terms: Vec<f64>,
}

impl Duals {
    /// All variables 0, for records 0..`records`.
    pub fn zeros(problem: &Problem, records: usize) -> Duals {
        let subproblems = problem.subproblems();
        Duals {
            records,
            alpha: vec![vec![0.0; records]; subproblems],
            terms: vec![0.0; subproblems],
        }
    }

    /// Duals as they were saved: what [`Duals::stored`] and [`Duals::terms`] gave. Panics when the
    /// shapes disagree.
    pub fn from_parts(records: usize, alpha: Vec<Vec<f32>>, terms: Vec<f64>) -> Duals {
        assert_eq!(alpha.len(), terms.len());
        assert!(alpha.iter().all(|alpha| alpha.len() == records));
        Duals {
            records,
            alpha,
            terms,
        }
    }

    /// Number of records.
    pub fn records(&self) -> usize {
        self.records
    }

    /// Number of subproblems.
    pub fn subproblems(&self) -> usize {
        self.alpha.len()
    }

    /// The stored variables of a subproblem by record id; centred for the logistic loss.
    pub fn stored(&self, subproblem: usize) -> &[f32] {
        &self.alpha[subproblem]
    }

    /// For each subproblem, the dual value without −½‖w‖²: Σ (α − ½Dα²), or the entropy of the
    /// logistic loss; kept in f64.
    pub fn terms(&self) -> &[f64] {
        &self.terms
    }

    /// α of a record of class `class`.
    pub fn alpha(&self, problem: &Problem, subproblem: usize, record: u64, class: u32) -> f64 {
        decode(problem, class, self.alpha[subproblem][record as usize])
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.alpha.len() * (4 * self.records + 8)
    }

    /// Puts right the sums of terms, which have been updated many times.
    pub(crate) fn set_terms(&mut self, terms: impl Iterator<Item = f64>) {
        self.terms
            .iter_mut()
            .zip(terms)
            .for_each(|(own, term)| *own = term);
    }

    pub(crate) fn stored_mut(&mut self, subproblem: usize) -> (&mut [f32], &mut f64) {
        (&mut self.alpha[subproblem], &mut self.terms[subproblem])
    }
}

/// α from its stored form.
pub(crate) fn decode(problem: &Problem, class: u32, stored: f32) -> f64 {
    if problem.loss() == Loss::Logistic && stored < 0.0 {
        f64::from(problem.upper(class)) + f64::from(stored)
    } else {
        f64::from(stored)
    }
}
