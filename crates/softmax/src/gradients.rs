//! The step of class weights, from batches that were scored and reduced.

use std::ops::Range;

use pelton_comm::{Comm, Reduction};
use pelton_kernels::optimizer::AdamW;
use pelton_kernels::simd::{self, Simd};
use pelton_kernels::{Matrix, PackedMatrix, gemm_packed};
use rayon::prelude::*;

use crate::chunk::{self, Project, StepOfRow};
use crate::error::HeadError;
use crate::head::{CHUNK, Head, Scored, Scratch};
use crate::rows::{Factors, RowStep, Rule, Update};
use crate::table::Table;

/// Takes rows, and their gradients \[rows, d\].
type Visit<'a, T> = dyn FnMut(&mut Head<T>, &[u32], &[f32]) + 'a;

impl Head {
    /// Takes the step of Σ weight · loss of these batches, which were reduced, in the weights of their active classes.
    /// All ranks call it.
    ///
    /// Errors: a lost rank; before anything has changed.
    pub fn update(
        &mut self,
        scored: &[Scored],
        update: &Update,
        comm: &Comm,
    ) -> Result<(), HeadError> {
        let Update {
            rate, weight_decay, ..
        } = *update;
        let step = match update.rule {
            Rule::Sgd { momentum, nesterov } => RowStep::Velocity(Factors {
                of_gradient: 1.0,
                of_velocity: rate,
                momentum,
                weight_decay,
                nesterov,
            }),
            Rule::Lars { momentum, trust } => {
                let mut squares = [self.gradient_square(scored), self.rows.square()];
                comm.all_reduce(&mut squares, Reduction::Sum)?;
                let [g, w] = squares.map(f64::sqrt);
                let lambda = if w > 0.0 && g > 0.0 {
                    f64::from(trust) * w / (g + f64::from(weight_decay) * w)
                } else {
                    1.0
                };
                RowStep::Velocity(Factors {
                    of_gradient: rate * lambda as f32,
                    of_velocity: 1.0,
                    momentum,
                    weight_decay,
                    nesterov: false,
                })
            }
            Rule::AdamW {
                mean_decay,
                square_decay,
                epsilon,
            } => RowStep::AdamW(AdamW {
                lr: rate,
                betas: (mean_decay, square_decay),
                eps: epsilon,
                weight_decay,
            }),
        };
        self.rows.make_room(&step);
        self.gradients(scored, &mut |head, rows, gradient| {
            head.step(rows, gradient, &step);
        });
        self.rows.next_step(&step);
        Ok(())
    }

    /// The sum of squares of the gradient of this rank's rows. One more pass over those that take part.
    pub(crate) fn gradient_square(&mut self, scored: &[Scored]) -> f64 {
        let mut square = 0.0;
        self.gradients(scored, &mut |_, _, gradient| {
            let squares = gradient.iter().map(|&x| f64::from(x).powi(2));
            square += squares.sum::<f64>();
        });
        square
    }

    /// The steps of these rows.
    fn step(&mut self, rows: &[u32], gradient: &[f32], step: &RowStep) {
        let d = self.rows.d();
        let level = Simd::current();
        let rows = self.rows.moving(rows.iter().map(|&row| row as usize));
        let gradients = gradient.par_chunks_exact(d);
        gradients.zip(rows).for_each(|(gradient, row)| {
            match step {
                RowStep::Velocity(factors) => {
                    let step = StepOfRow {
                        factors: *factors,
                        gradient,
                        weights: row.weights,
                        velocity: row.velocity,
                    };
                    simd::run(level, step);
                }
                RowStep::AdamW(adam) => {
                    let numbers = [&mut *row.weights, &mut *row.velocity, &mut *row.squares];
                    adam.step_row(level, numbers, gradient, row.steps.into(), 1.0);
                }
            }
            row.end();
        });
    }
}

impl<T: Table> Head<T> {
    /// Gives the rows that took part in any of the batches, ascending, and their gradients to `visit`, chunk by chunk.
    pub(crate) fn gradients(&mut self, scored: &[Scored], visit: &mut Visit<'_, T>) {
        let d = self.rows.d();
        let rows = rows_of(scored, self.rows.len());
        let mut parts: Vec<Part<'_>> = scored
            .iter()
            .map(|scored| Part::new(scored, self))
            .collect();
        let (mut chunk, mut piece) = (Scratch::new(), Scratch::new());
        for rows in rows.chunks(CHUNK) {
            self.gather(rows, &mut chunk);
            chunk.gradient.clear();
            chunk.gradient.resize(rows.len() * d, 0.0);
            for part in &mut parts {
                let places = part.places(rows);
                if places.len() == rows.len() {
                    part.add(self, places, &mut chunk);
                } else if !places.is_empty() {
                    let own = part.scored.rows(places.clone());
                    self.gather(&own, &mut piece);
                    piece.gradient.clear();
                    piece.gradient.resize(own.len() * d, 0.0);
                    part.add(self, places, &mut piece);
                    let mut gradients = piece.gradient.chunks_exact(d);
                    let each = rows.iter().zip(chunk.gradient.chunks_exact_mut(d));
                    for (_, sum) in each.filter(|(row, _)| own.binary_search(row).is_ok()) {
                        let gradient = gradients.next().expect("a row of the chunk");
                        sum.iter_mut().zip(gradient).for_each(|(sum, x)| *sum += x);
                    }
                }
            }
            if self.logits.is_cosine() {
                let level = Simd::current();
                let units = chunk.unit.par_chunks_exact(d).zip(&chunk.inverse);
                let gradients = chunk.gradient.par_chunks_exact_mut(d);
                gradients
                    .zip(units)
                    .for_each(|(gradient, (unit, &inverse))| {
                        let project = Project {
                            gradient,
                            unit,
                            inverse,
                        };
                        simd::run(level, project);
                    });
            }
            visit(self, rows, &chunk.gradient);
        }
    }
}

/// The rows that took part in any of the batches, ascending.
fn rows_of(scored: &[Scored], all: usize) -> Vec<u32> {
    let active = scored.iter().map(|scored| scored.active.as_ref());
    let Some(active) = active.collect::<Option<Vec<_>>>() else {
        return (0..all as u32).collect();
    };
    let mut rows: Vec<u32> = Vec::new();
    for (own, _) in active {
        if rows != *own {
            rows.extend(own);
            rows.sort_unstable();
            rows.dedup();
        }
    }
    rows
}

/// What one batch adds to the gradients of rows.
struct Part<'a> {
    scored: &'a Scored,
    features: PackedMatrix,
    /// The features as columns, if the products are to be computed again.
    columns: Option<PackedMatrix>,
    factor: Vec<f32>,
    /// Active rows, and right classes among them, in the chunks so far.
    next: usize,
    right: usize,
}

impl<'a> Part<'a> {
    fn new<T: Table>(scored: &'a Scored, head: &Head<T>) -> Part<'a> {
        let batch = scored.batch;
        assert_eq!(scored.hits.len(), batch, "a batch that was not reduced");
        let features = Matrix::new(&scored.unit, batch, head.rows.d());
        let packed = |features| PackedMatrix::new(head.precision, features);
        let scale = head.logits.scale();
        Part {
            scored,
            features: packed(features),
            columns: (scored.products.is_empty()).then(|| packed(features.transposed())),
            factor: scored.weight.iter().map(|weight| scale * weight).collect(),
            next: 0,
            right: 0,
        }
    }

    /// Its active rows among the next ones.
    fn places(&mut self, rows: &[u32]) -> Range<usize> {
        let start = self.next;
        self.next = match &self.scored.active {
            None => start + rows.len(),
            Some((own, _)) => {
                let last = rows.last().expect("rows of a chunk");
                start + own[start..].partition_point(|row| row <= last)
            }
        };
        start..self.next
    }

    /// Adds its gradients of active rows, which were gathered, to `scratch`: by rows of length 1.
    fn add<T: Table>(&mut self, head: &Head<T>, places: Range<usize>, scratch: &mut Scratch) {
        let (batch, d, scored) = (self.scored.batch, head.rows.d(), self.scored);
        scratch.set_counts(scored, places.clone());
        let products = match &self.columns {
            None => &scored.products[places.start / CHUNK],
            Some(columns) => {
                scratch.multiply(columns, batch, d);
                &scratch.products
            }
        };
        let shares = &mut scratch.exponentials;
        shares.resize(products.len(), 0.0);
        let (counts, shift, factor) = (&scratch.counts, &scored.shift, &self.factor);
        let (scale, mut unused) = (head.logits.scale(), vec![0.0; batch]);
        chunk::exponentials(products, counts, scale, shift, factor, shares, &mut unused);
        let left = scored.right.iter().zip(&scored.targets).skip(self.right);
        for (right, &(place, label)) in left.take_while(|(_, (place, _))| *place < places.end) {
            self.right += 1;
            let example = scored.owners[label];
            shares[(place - places.start) * batch + example] = factor[example] * right.derivative;
        }
        let shares = Matrix::new(shares, places.len(), batch);
        gemm_packed(shares, &self.features, &mut scratch.gradient, d, true);
    }
}
