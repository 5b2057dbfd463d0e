//! The models of a grid with coupled classes, each with its own L-BFGS, trained on every row that is read.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::RowTable;

use crate::certificate::{Certificate, LossSum};
use crate::error::LinearError;
use crate::kernels::Simd;
use crate::lbfgs::Lbfgs;
use crate::passes::{PassFigures, PassSolver};
use crate::peers::Peers;
use crate::problem::Problem;
use crate::weights::Weights;

/// L-BFGS on each model of a grid, between two passes.
#[derive(Debug)]
pub struct SideBySide {
    problem: Arc<Problem>,
    solvers: Vec<Lbfgs>,
    /// The results of each, once it has looked.
    found: Vec<Option<PassFigures>>,
}

impl SideBySide {
    /// Runs from w = 0 over `records` rows to the relative gap `wanted` of each. Panics if the classes have separate
    /// losses.
    pub fn new(problem: Arc<Problem>, records: usize, wanted: f64, simd: Simd) -> SideBySide {
        assert!(problem.is_coupled());
        let solver = |model| Lbfgs::new(Arc::new(problem.of_model(model)), records, wanted, simd);
        SideBySide {
            solvers: (0..problem.models()).map(solver).collect(),
            found: vec![None; problem.models()],
            problem,
        }
    }

    /// Those that need further passes.
    fn unfinished(&mut self) -> impl Iterator<Item = (&mut Lbfgs, &mut Option<PassFigures>)> {
        let all = self.solvers.iter_mut().zip(&mut self.found);
        all.filter(|(_, found)| !found.is_some_and(|found| found.done))
    }
}

impl PassSolver for SideBySide {
    fn start(&mut self, weights: &Weights) {
        for (model, solver) in self.solvers.iter_mut().enumerate() {
            let each = self.problem.subproblems_of_model();
            let own = (model * each..(model + 1) * each).map(|s| weights.vector(s).to_vec());
            let (features, bias) = (weights.features(), weights.bias());
            solver.start(&Weights::from_vectors(features, bias, own.collect()));
        }
    }

    fn begin_pass(&mut self) {
        self.unfinished()
            .for_each(|(solver, _)| solver.begin_pass());
    }

    fn add(&mut self, rows: &RowTable, interrupt: &AtomicBool) -> Result<bool, LinearError> {
        let mut whole = true;
        for (solver, _) in self.unfinished() {
            whole &= solver.add(rows, interrupt)?;
        }
        Ok(whole)
    }

    fn end_pass(&mut self, peers: &mut Peers<'_, LinearError>) -> Result<PassFigures, LinearError> {
        for (solver, found) in self.unfinished() {
            *found = Some(solver.end_pass(peers)?);
        }
        let mut certificate = Certificate {
            primal: 0.0,
            dual: 0.0,
        };
        let each = self.problem.subproblems_of_model();
        for (model, found) in self.found.iter().flatten().enumerate() {
            let factor = self.problem.factor(model * each);
            certificate.primal += found.certificate.primal / factor;
            certificate.dual += found.certificate.dual / factor;
        }
        Ok(PassFigures {
            certificate,
            is_proved: true,
            done: self.found.iter().flatten().all(|found| found.done),
        })
    }

    fn best(&self) -> (Weights, Option<LossSum>) {
        let best = self.solvers.iter().map(|solver| solver.best().0);
        let vectors = best.flat_map(Weights::into_vectors).collect();
        let (features, bias) = (self.problem.features(), self.problem.bias());
        (Weights::from_vectors(features, bias, vectors), None)
    }

    fn save(&self) -> Vec<Vec<f64>> {
        self.solvers.iter().flat_map(PassSolver::save).collect()
    }

    fn restore(&mut self, saved: &[Vec<f64>]) -> Result<(), LinearError> {
        if saved.len() != self.solvers.len() {
            return Err(LinearError::StateMismatch {
                part: "models side by side",
            });
        }
        let mut pairs = self.solvers.iter_mut().zip(saved.chunks(1));
        pairs.try_for_each(|(solver, saved)| solver.restore(saved))
    }
}
