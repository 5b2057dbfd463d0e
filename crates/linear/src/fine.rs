//! Coordinate descent in f64 over rows in memory, for losses with a kink or real targets, from the point that f32
//! reaches.
//!
//! The hinge is not smooth, so P(w) − P(w*) falls with the distance of w to w*, and D(α) with its square: steps in f32
//! give nine right digits of the dual value, but four or fewer of the primal value. Here w, α and the gradients are
//! f64, and w is rounded once, for the model.
//!
//! Memory: 8 bytes a weight, 8 a row and subproblem, and 12 a row.

use std::sync::atomic::{AtomicBool, Ordering};

use pelton_format::{Row, RowTable};

use crate::certificate::{Certificate, DualBound, LossSum};
use crate::duals::Duals;
use crate::error::LinearError;
use crate::kernels::{Kernel, Simd, run};
use crate::loss::{LossFunction, WithLoss};
use crate::problem::{Problem, Terms};
use crate::random::{Stream, derive};
use crate::weights::Weights;

/// Passes over the rows that are not settled, after one over all.
const PASSES: u64 = 9;
/// Visits between two checks whether to end.
const RUN: usize = 1024;

/// A run over the rows of a table.
pub struct FineDescent<'a> {
    problem: &'a Problem,
    rows: &'a RowTable,
    w: Vec<Vec<f64>>,
    /// The centre of a free bias in each subproblem; else empty.
    centres: Vec<f64>,
    alpha: Vec<Vec<f64>>,
    /// ‖x‖² of each row, the bias included.
    squares: Vec<f64>,
    simd: Simd,
}

impl FineDescent<'_> {
    /// Resumes from `duals`, indexed by the ids of the rows, and the centres of free biases; `None` for a loss that
    /// does not need it.
    pub fn new<'a>(
        problem: &'a Problem,
        rows: &'a RowTable,
        duals: &Duals,
        centres: &[f64],
        simd: Simd,
    ) -> Option<FineDescent<'a>> {
        if !problem.loss().needs_fine_steps() {
            return None;
        }
        let bias = f64::from(problem.bias().unwrap_or(0.0));
        let width = problem.length();
        let stored = |subproblem: usize| {
            let of = |i: usize| f64::from(duals.stored(subproblem)[rows.id(i) as usize]);
            (0..rows.len()).map(of).collect()
        };
        let alpha: Vec<Vec<f64>> = (0..problem.subproblems()).map(stored).collect();
        let w = alpha.iter().enumerate().map(|(subproblem, alpha)| {
            let mut w = vec![0.0; width];
            let terms = problem.terms(subproblem);
            for (i, alpha) in alpha.iter().enumerate() {
                let sign = f64::from(terms.of(rows.label(i), rows.id(i)).sign);
                add(&mut w, bias, rows.row(i), sign * alpha);
            }
            if let (Some(centre), Some(bias)) = (centres.get(subproblem), w.last_mut()) {
                *bias += centre;
            }
            w
        });
        let square = |i| square(rows.row(i)) + bias * bias;
        Some(FineDescent {
            w: w.collect(),
            squares: (0..rows.len()).map(square).collect(),
            centres: centres.to_vec(),
            problem,
            rows,
            alpha,
            simd,
        })
    }

    /// One pass over all rows and some over those that are not settled, in an order that `key` decides; returns the
    /// visits. An interruption ends it between two visits.
    pub fn round(&mut self, key: u64, interrupt: &AtomicBool) -> u64 {
        let (mut visits, loss) = (0, self.problem.loss());
        // As `OutOfCore` does before an epoch.
        for (centre, w) in self.centres.iter_mut().zip(&mut self.w) {
            if let Some(bias) = w.last_mut() {
                (*bias, *centre) = (2.0 * *bias - *centre, *bias);
            }
        }
        for subproblem in 0..self.w.len() {
            let terms = self.problem.terms(subproblem);
            let mut order: Vec<u32> = (0..self.rows.len() as u32).collect();
            for pass in 0..=PASSES {
                let key = derive(derive(key, subproblem as u64), pass);
                Stream::new(key).shuffle(&mut order);
                for part in order.chunks_mut(RUN) {
                    if interrupt.load(Ordering::Relaxed) {
                        return visits;
                    }
                    visits += part.len() as u64;
                    let part = Part {
                        subproblem,
                        terms: &terms,
                        order: part,
                        run: self,
                    };
                    loss.with(part);
                }
                if pass == 0 {
                    order.retain(|row| *row & SETTLED == 0);
                }
                order.iter_mut().for_each(|row| *row &= !SETTLED);
            }
        }
        visits
    }

    /// State for [`FineDescent::restore`]: w and α of each subproblem, and the centres of free biases.
    pub fn save(&self) -> Vec<Vec<f64>> {
        let vectors = self.w.iter().chain(&self.alpha);
        let centres = (!self.centres.is_empty()).then_some(&self.centres);
        vectors.chain(centres).cloned().collect()
    }

    /// Restores the saved state of a run over the same rows.
    ///
    /// Errors: vectors of other lengths.
    pub fn restore(&mut self, saved: &[Vec<f64>]) -> Result<(), LinearError> {
        let vectors = self.w.iter_mut().chain(&mut self.alpha);
        let centres = Some(&mut self.centres).filter(|centres| !centres.is_empty());
        let own: Vec<&mut Vec<f64>> = vectors.chain(centres).collect();
        let fits = |(own, saved): (&&mut Vec<f64>, &Vec<f64>)| own.len() == saved.len();
        if own.len() != saved.len() || !own.iter().zip(saved).all(fits) {
            return Err(LinearError::StateMismatch {
                part: "coordinate descent in f64",
            });
        }
        for (own, saved) in own.into_iter().zip(saved) {
            own.clone_from(saved);
        }
        Ok(())
    }

    /// The weights rounded to f32, and their certificate.
    pub fn certify(&self) -> Result<(Weights, Certificate), LinearError> {
        let (problem, rows) = (self.problem, self.rows);
        let records = rows.ids().iter().max().map_or(0, |most| *most as usize + 1);
        let mut alpha = vec![vec![0.0_f32; records]; self.alpha.len()];
        for (rounded, alpha) in alpha.iter_mut().zip(&self.alpha) {
            for (i, alpha) in alpha.iter().enumerate() {
                // At its bound still, since that is an f32.
                rounded[rows.id(i) as usize] = *alpha as f32;
            }
        }
        let terms = vec![0.0; alpha.len()];
        let duals = Duals::from_parts(records, alpha, terms);
        let mut bound = DualBound::new(problem);
        bound.add(problem, rows, &duals, self.simd);
        let vectors = self.w.iter();
        let vectors = vectors.map(|w| w.iter().map(|w| *w as f32).collect());
        let weights = Weights::from_vectors(problem.features(), problem.bias(), vectors.collect());
        let mut losses = LossSum::new(problem);
        losses.add(problem, rows, &weights, self.simd)?;
        let certificate = Certificate {
            primal: losses.primal(problem, &weights),
            dual: bound.value(problem),
        };
        Ok((weights, certificate))
    }
}

/// Marks a row in an order as fixed at its bound or kink.
const SETTLED: u32 = 1 << 31;

/// Some visits.
struct Part<'a, 'b> {
    run: &'a mut FineDescent<'b>,
    subproblem: usize,
    terms: &'a Terms,
    order: &'a mut [u32],
}

impl WithLoss for Part<'_, '_> {
    type Output = ();

    fn run<L: LossFunction + Copy>(self, loss: L) {
        run(self.run.simd, PartOf { part: self, loss });
    }
}

/// The same for one loss.
struct PartOf<'a, 'b, L> {
    part: Part<'a, 'b>,
    loss: L,
}

impl<L: LossFunction> Kernel for PartOf<'_, '_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Part {
            run,
            subproblem,
            terms,
            order,
        } = self.part;
        let FineDescent {
            problem,
            rows,
            w,
            alpha,
            squares,
            ..
        } = run;
        let (w, alpha) = (&mut w[subproblem], &mut alpha[subproblem]);
        let bias = f64::from(problem.bias().unwrap_or(0.0));
        for row in order {
            let i = *row as usize;
            let (x, terms) = (rows.row(i), terms.of(rows.label(i), rows.id(i)));
            let sign = f64::from(terms.sign);
            let before = alpha[i];
            let u = sign * dot(w, bias, x);
            let after = self.loss.fine_step(&terms, before, u, squares[i]);
            if after != before {
                alpha[i] = after;
                add(w, bias, x, sign * (after - before));
            } else if !self.loss.is_free(&terms, after as f32) {
                *row |= SETTLED;
            }
        }
    }
}

#[inline(always)]
fn dot(w: &[f64], bias: f64, x: Row<'_>) -> f64 {
    let last = if bias == 0.0 {
        0.0
    } else {
        bias * w[w.len() - 1]
    };
    match x {
        Row::Dense(x) => {
            let mut sums = [0.0_f64; 16];
            let ((x, x_rest), (w, w_rest)) = (x.as_chunks::<16>(), w[..x.len()].as_chunks::<16>());
            for (x, w) in x.iter().zip(w) {
                for ((sum, &x), &w) in sums.iter_mut().zip(x).zip(w) {
                    *sum += f64::from(x) * w;
                }
            }
            let mut rest = last;
            for (&x, &w) in x_rest.iter().zip(w_rest) {
                rest += f64::from(x) * w;
            }
            for sum in sums {
                rest += sum;
            }
            rest
        }
        Row::Sparse { indices, values } => {
            let mut sum = last;
            for (&index, &value) in indices.iter().zip(values) {
                sum += f64::from(value) * w[index as usize];
            }
            sum
        }
        Row::Bytes(_) => last,
    }
}

/// w += scale·x.
#[inline(always)]
fn add(w: &mut [f64], bias: f64, x: Row<'_>, scale: f64) {
    match x {
        Row::Dense(x) => {
            for (w, &x) in w.iter_mut().zip(x) {
                *w += scale * f64::from(x);
            }
        }
        Row::Sparse { indices, values } => {
            for (&index, &value) in indices.iter().zip(values) {
                w[index as usize] += scale * f64::from(value);
            }
        }
        Row::Bytes(_) => {}
    }
    if bias != 0.0
        && let Some(last) = w.last_mut()
    {
        *last += scale * bias;
    }
}

fn square(x: Row<'_>) -> f64 {
    let values = match x {
        Row::Dense(values) | Row::Sparse { values, .. } => values,
        Row::Bytes(_) => &[],
    };
    values.iter().map(|&v| f64::from(v) * f64::from(v)).sum()
}
