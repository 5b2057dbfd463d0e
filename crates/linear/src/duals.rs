//! The dual variables of all records, always in memory: 4 bytes for each record and subproblem, in the form
//! that the loss stores.

use crate::problem::Problem;

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

    /// Duals from saved values of [`Duals::stored`] and [`Duals::terms`]. Panics if the shapes disagree.
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

    /// The stored variables of a subproblem by record id, in the form of the loss.
    pub fn stored(&self, subproblem: usize) -> &[f32] {
        &self.alpha[subproblem]
    }

    /// For each subproblem, the dual value without −½‖w‖²; kept in f64.
    pub fn terms(&self) -> &[f64] {
        &self.terms
    }

    /// α of a record of label `class`.
    pub fn alpha(&self, problem: &Problem, subproblem: usize, record: u64, class: u32) -> f64 {
        let stored = self.alpha[subproblem][record as usize];
        let row = problem.terms(subproblem).of(class, record);
        problem.loss().function().decode(&row, stored)
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
