//! One step of a head: score, reduce, update.
//!
//! With unit vectors x̂ and ŵ, z = scale·x̂·ŵ (the right class's with its margin) and p = softmax of z over the active
//! classes of all ranks, the loss of an example is −log p_y, and its gradient by z is p − \[c = y\]. A class that
//! stands for n counts n times in the sum, which is a logit of z + log n. An example with several classes has the sum of
//! their losses; its products are made once. Scoring takes 4·B·|A|·d operations: products,
//! and the gradient of the features from exponentials that are not yet divided by their sum. Updating takes 2·B·|A|·d
//! more, or 4 if the products do not fit into the scratch memory and must be recomputed.

use std::ops::Range;

use pelton_comm::{Comm, Reduction};
use pelton_kernels::simd::{self, Simd};
use pelton_kernels::{Matrix, PackedMatrix, Precision, gemm, gemm_packed};
use rayon::prelude::*;

use crate::chunk::{self, Project};
use crate::error::HeadError;
use crate::labels::{Labels, OfExample, Own};
use crate::logits::Logits;
use crate::rows::ClassRows;
use crate::table::Table;

/// Classes that a chunk has at most.
pub(crate) const CHUNK: usize = 1024;

/// Classes that take part in a step.
#[derive(Clone, Copy, Debug)]
pub enum Active<'a> {
    /// All.
    All,
    /// These rows of this rank, ascending, and how many classes each stands for in the sums; the rows of all ranks
    /// include the batch's own classes, which stand for themselves.
    Rows(&'a [u32], &'a [f32]),
}

/// The results of a batch, over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Sum of the losses of all examples, margins included.
    pub loss: f64,
    /// Examples of which an own class has a larger logit than all active ones that are not, without margin.
    pub correct: usize,
}

/// Examples that were measured over all classes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Sum of their losses times the factor of each.
    pub loss: f64,
    /// Of each, whether an own class has a larger logit than all that are not.
    pub right: Vec<bool>,
}

impl Measured {
    /// How many are right.
    pub fn correct(&self) -> usize {
        self.right.iter().filter(|&&right| right).count()
    }
}

/// One rank's part of a softmax over the classes of all ranks.
#[derive(Clone, Debug)]
pub struct Head<T = ClassRows> {
    pub(crate) rows: T,
    pub(crate) logits: Logits,
    pub(crate) precision: Precision,
    pub(crate) classes: u64,
    pub(crate) scratch: usize,
}

/// A batch that was scored on this rank.
pub struct Scored {
    pub(crate) batch: usize,
    /// Rows that take part, and how many classes each stands for; `None` if all do.
    pub(crate) active: Option<(Vec<u32>, Vec<f32>)>,
    /// Features of length 1 \[batch, d\], and one over the lengths they had.
    pub(crate) unit: Vec<f32>,
    pub(crate) inverse: Vec<f32>,
    /// How many classes each example has, and the example of each class.
    pub(crate) counts: Vec<usize>,
    pub(crate) owners: Vec<usize>,
    /// Index among the active rows, and index among the classes of all examples, of those on this rank, sorted.
    pub(crate) targets: Vec<(usize, usize)>,
    /// The same targets' logits.
    pub(crate) right: Vec<Right>,
    /// Subtracted from each logit, by example.
    pub(crate) shift: Vec<f32>,
    /// Σ e^(z − shift) over the classes that are not its own, by example.
    pub(crate) total: Vec<f64>,
    /// The largest logit of those, by example.
    pub(crate) best: Vec<f32>,
    /// Whether an own class has a larger one, by example, once reduced.
    pub(crate) hits: Vec<bool>,
    /// Sum of the weights of the losses, by example.
    pub(crate) weight: Vec<f32>,
    /// Of the features \[batch, d\]; once reduced, this rank's part of it. Empty if the batch is only measured.
    pub(crate) gradient: Vec<f32>,
    /// Products of all active classes, \[n, batch\] of each chunk, or empty.
    pub(crate) products: Vec<Vec<f32>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Right {
    /// The logit with margin and without, and the derivative of one by the other.
    pub(crate) with_margin: f32,
    pub(crate) plain: f32,
    pub(crate) slope: f32,
    /// The derivative of the loss by the logit without margin, over the weight of the example; once reduced.
    pub(crate) derivative: f32,
}

/// Memory of one chunk.
pub(crate) struct Scratch {
    /// Rows of length 1 \[n, d\].
    pub(crate) unit: Vec<f32>,
    pub(crate) inverse: Vec<f32>,
    /// How many classes each row stands for.
    pub(crate) counts: Vec<f32>,
    /// \[n, batch\].
    pub(crate) products: Vec<f32>,
    pub(crate) exponentials: Vec<f32>,
    /// \[n, d\].
    pub(crate) gradient: Vec<f32>,
}

impl Head {
    /// A head over `classes` classes, with `rows` on this rank. Products of a step have operands of this precision;
    /// everything else is f32. `scratch` bytes may keep products between scoring and updating; a chunk of 1024 classes
    /// comes on top.
    pub fn new(
        rows: ClassRows,
        logits: Logits,
        precision: Precision,
        classes: u64,
        scratch: usize,
    ) -> Head {
        Head {
            rows,
            logits,
            precision,
            classes,
            scratch,
        }
    }

    /// The weights.
    pub fn rows(&self) -> &ClassRows {
        &self.rows
    }

    /// How features and classes are compared.
    pub(crate) fn logits(&self) -> Logits {
        self.logits
    }

    /// Of the products of a step.
    pub(crate) fn precision(&self) -> Precision {
        self.precision
    }

    /// Takes all weights out.
    pub(crate) fn take_rows(&mut self) -> ClassRows {
        let none = ClassRows::new(self.rows.classes().start, self.rows.d(), Vec::new());
        std::mem::replace(&mut self.rows, none)
    }

    /// Moves the rows of a step by the momentum of the steps that they waited; all rows for `Active::All`. Call it
    /// before scoring.
    pub fn wake(&mut self, active: Active<'_>) {
        match active {
            Active::All => self.rows.settle(),
            Active::Rows(rows, _) => self.rows.wake(rows.iter().map(|&row| row as usize)),
        }
    }

    /// The losses of a batch over all classes in f32, which cannot be learnt from: half of the operations.
    pub(crate) fn measure(
        &self,
        features: &[f32],
        labels: Labels<'_>,
    ) -> Result<Scored, HeadError> {
        self.score_in(Precision::F32, features, labels, Active::All, false)
    }
}

// Of rows that take no steps, or those of others.
impl<T: Table> Head<T> {
    /// Scores a batch: `features` \[batch, d\] and the classes of each, the same on every rank. Rows that take part are
    /// [awake](Head::wake).
    ///
    /// Errors: a label that is not a class, or given twice; features that are not finite.
    pub fn score(
        &self,
        features: &[f32],
        labels: Labels<'_>,
        active: Active<'_>,
    ) -> Result<Scored, HeadError> {
        self.score_in(self.precision, features, labels, active, true)
    }

    pub(crate) fn score_in(
        &self,
        precision: Precision,
        features: &[f32],
        labels: Labels<'_>,
        active: Active<'_>,
        learns: bool,
    ) -> Result<Scored, HeadError> {
        let (d, batch) = (self.rows.d(), labels.examples());
        let owners = labels.owners();
        assert_eq!(features.len(), batch * d, "features and labels");
        assert_eq!(
            owners.len(),
            labels.classes.len(),
            "labels and their counts"
        );
        self.check(features, labels)?;
        let targets = self.targets(labels.classes, &owners, active)?;
        let cosine = self.logits.is_cosine();
        let (mut unit, mut inverse) = (vec![0.0; batch * d], vec![0.0; batch]);
        chunk::unit_rows(|i| &features[i * d..][..d], cosine, &mut unit, &mut inverse);
        let active = match active {
            Active::All => None,
            Active::Rows(rows, counts) => Some((rows.to_vec(), counts.to_vec())),
        };
        let mut scored = Scored {
            batch,
            active,
            unit,
            inverse,
            counts: labels.of_examples().map(|own| own.len()).collect(),
            owners,
            targets,
            right: Vec::new(),
            shift: vec![f32::MIN; batch],
            total: vec![0.0; batch],
            best: vec![f32::NEG_INFINITY; batch],
            hits: Vec::new(),
            weight: vec![1.0; batch],
            gradient: vec![0.0; if learns { batch * d } else { 0 }],
            products: Vec::new(),
        };
        let count = self.count(&scored);
        let columns = Matrix::new(&scored.unit, batch, d).transposed();
        let columns = PackedMatrix::new(precision, columns);
        let mut scratch = Scratch::new();
        for places in chunks(count) {
            self.gather(&scored.rows(places.clone()), &mut scratch);
            scratch.set_counts(&scored, places.clone());
            scratch.multiply(&columns, batch, d);
            self.add(precision, &mut scored, places, &mut scratch);
            if learns && count * batch * 4 <= self.scratch {
                scored.products.push(std::mem::take(&mut scratch.products));
            }
        }
        Ok(scored)
    }

    /// Products of examples and all classes of this rank, of length 1 if the logits are cosines: gives rows and [rows,
    /// batch] to `visit`, chunk by chunk.
    ///
    /// Errors: features that are not finite.
    pub fn products(
        &self,
        features: &[f32],
        visit: &mut dyn FnMut(Range<usize>, &[f32]),
    ) -> Result<(), HeadError> {
        let d = self.rows.d();
        let batch = features.len() / d;
        self.check_features(features)?;
        let cosine = self.logits.is_cosine();
        let (mut unit, mut inverse) = (vec![0.0; batch * d], vec![0.0; batch]);
        chunk::unit_rows(|i| &features[i * d..][..d], cosine, &mut unit, &mut inverse);
        let columns = Matrix::new(&unit, batch, d).transposed();
        let columns = PackedMatrix::new(Precision::F32, columns);
        let mut scratch = Scratch::new();
        for places in chunks(self.rows.len()) {
            let rows: Vec<u32> = (places.start as u32..places.end as u32).collect();
            self.gather(&rows, &mut scratch);
            scratch.multiply(&columns, batch, d);
            visit(places, &scratch.products);
        }
        Ok(())
    }

    /// Errors: labels that are not classes, features that are not finite.
    pub(crate) fn check(&self, features: &[f32], labels: Labels<'_>) -> Result<(), HeadError> {
        let classes = self.classes;
        for (example, own) in labels.of_examples().enumerate() {
            if let Some(&label) = labels.classes[own].iter().find(|&&label| label >= classes) {
                return Err(HeadError::Label {
                    example,
                    label,
                    classes,
                });
            }
        }
        self.check_features(features)
    }

    fn check_features(&self, features: &[f32]) -> Result<(), HeadError> {
        let mut rows = features.chunks_exact(self.rows.d());
        // The square of the length overflows long before the numbers do.
        match rows.position(|x| !x.iter().map(|x| x * x).sum::<f32>().is_finite()) {
            Some(example) => Err(HeadError::NotFinite { example }),
            None => Ok(()),
        }
    }

    /// Row indices of this rank's classes of the batch, with their indices among all.
    fn targets(
        &self,
        labels: &[u64],
        owners: &[usize],
        active: Active<'_>,
    ) -> Result<Vec<(usize, usize)>, HeadError> {
        let mut targets = Vec::new();
        for (index, &label) in labels.iter().enumerate() {
            let Some(row) = self.rows.row_of(label) else {
                continue;
            };
            let place = match active {
                Active::All => Some(row),
                Active::Rows(rows, _) => rows.binary_search(&(row as u32)).ok(),
            };
            let example = owners[index];
            targets.push((place.ok_or(HeadError::Inactive { example, label })?, index));
        }
        targets.sort_unstable();
        let mut pairs = targets.windows(2);
        let twice = |pair: &[(usize, usize)]| {
            pair[0].0 == pair[1].0 && owners[pair[0].1] == owners[pair[1].1]
        };
        match pairs.find(|pair| twice(pair)) {
            None => Ok(targets),
            Some(pair) => Err(HeadError::Twice {
                example: owners[pair[0].1],
                label: labels[pair[0].1],
            }),
        }
    }

    /// Rows that take part.
    fn count(&self, scored: &Scored) -> usize {
        scored.count(self.rows.len())
    }

    /// Rows of length 1.
    pub(crate) fn gather(&self, rows: &[u32], scratch: &mut Scratch) {
        scratch.unit.resize(rows.len() * self.rows.d(), 0.0);
        scratch.inverse.resize(rows.len(), 0.0);
        chunk::unit_rows(
            |i| self.rows.row(rows[i] as usize),
            self.logits.is_cosine(),
            &mut scratch.unit,
            &mut scratch.inverse,
        );
    }

    /// Adds the classes of a chunk to the sums and the gradient; sets the right ones apart.
    fn add(
        &self,
        precision: Precision,
        scored: &mut Scored,
        places: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let (batch, d, scale) = (scored.batch, self.rows.d(), self.logits.scale());
        let from = scored.right.len();
        let targets = scored.targets[from..].iter();
        for &(place, label) in targets.take_while(|(place, _)| *place < places.end) {
            let example = scored.owners[label];
            let z = &mut scratch.products[(place - places.start) * batch + example];
            let (with_margin, slope) = self.logits.of_target(*z);
            scored.right.push(Right {
                with_margin: with_margin * scale,
                plain: *z * scale,
                slope,
                derivative: 0.0,
            });
            // Its exponential is 0.
            *z = f32::NEG_INFINITY;
        }
        chunk::largest(&scratch.products, scale, &mut scored.best);
        scored.shift_to_best();
        scratch.exponentials.resize(scratch.products.len(), 0.0);
        chunk::exponentials(
            &scratch.products,
            &scratch.counts,
            scale,
            &scored.shift,
            &scored.weight,
            &mut scratch.exponentials,
            &mut scored.total,
        );
        if scored.gradient.is_empty() {
            return;
        }
        gemm(
            precision,
            Matrix::new(&scratch.exponentials, places.len(), batch).transposed(),
            Matrix::new(&scratch.unit, places.len(), d),
            &mut scored.gradient,
            d,
            true,
        );
    }

    /// Adds up the sums of all ranks. From here on each loss has the weight `weight` times its factor in `factors`, if
    /// given, and [`Scored::gradient`] is this rank's part of the gradient of their sum by the features. There is a loss,
    /// and a factor, for each class of each example. The returned sum of losses includes the factors but not the weight.
    ///
    /// Errors: a loss that is not a number, the same on all ranks; a lost rank.
    pub fn reduce(
        &self,
        scored: &mut Scored,
        weight: f32,
        factors: Option<&[f32]>,
        comm: &Comm,
    ) -> Result<Sums, HeadError> {
        let (batch, labels) = (scored.batch, scored.owners.len());
        let (d, scale) = (self.rows.d(), self.logits.scale());
        comm.all_reduce(&mut scored.best, Reduction::Max)?;
        scored.shift_to_best();
        let mut sums = scored.total.clone();
        sums.resize(batch + 2 * labels, 0.0);
        for (right, &(_, label)) in scored.right.iter().zip(&scored.targets) {
            sums[batch + label] = f64::from(right.with_margin);
            sums[batch + labels + label] = f64::from(right.plain);
        }
        comm.all_reduce(&mut sums, Reduction::Sum)?;
        let (totals, logits) = sums.split_at(batch);
        let mut each = (0..labels).map(|label| Own {
            with_margin: logits[label],
            plain: logits[labels + label],
            factor: factors.map_or(1.0, |factors| factors[label]),
        });
        let mut found = Sums::default();
        let mut derivatives = Vec::with_capacity(labels);
        for (example, &total) in totals.iter().enumerate() {
            let own: Vec<Own> = each.by_ref().take(scored.counts[example]).collect();
            let shift = f64::from(scored.shift[example]);
            let of = OfExample::new(total, shift, &own);
            if !of.loss.is_finite() {
                return Err(HeadError::NotFinite { example });
            }
            found.loss += of.loss;
            let best = f64::from(scored.best[example]);
            let hit = own.iter().any(|own| own.plain > best);
            scored.hits.push(hit);
            found.correct += usize::from(hit);
            // Makes shares of exponentials.
            let factor = (shift - of.shift).exp() as f32;
            for g in scored.gradient.iter_mut().skip(example * d).take(d) {
                *g *= factor;
            }
            scored.shift[example] = of.shift as f32;
            scored.weight[example] = weight * of.factor;
            derivatives.extend(of.by_own);
        }
        for (right, &(_, label)) in scored.right.iter_mut().zip(&scored.targets) {
            let (with_margin, plain) = derivatives[label];
            right.derivative = (with_margin * f64::from(right.slope) + plain) as f32;
        }
        if scored.gradient.is_empty() {
            return Ok(found);
        }
        self.add_right(scored);
        let level = Simd::current();
        let is_cosine = self.logits.is_cosine();
        let rows = scored.gradient.par_chunks_exact_mut(d);
        rows.zip(scored.unit.par_chunks_exact(d))
            .zip(scored.inverse.par_iter().zip(&scored.weight))
            .for_each(|((gradient, unit), (&inverse, &weight))| {
                for g in gradient.iter_mut() {
                    *g *= scale * weight;
                }
                if is_cosine {
                    let project = Project {
                        gradient,
                        unit,
                        inverse,
                    };
                    simd::run(level, project);
                }
            });
        Ok(found)
    }

    /// The right classes' part of the features' gradient.
    fn add_right(&self, scored: &mut Scored) {
        let d = self.rows.d();
        let is_cosine = self.logits.is_cosine();
        let (mut unit, mut inverse) = (vec![0.0; d], [0.0]);
        for (right, &(place, label)) in scored.right.iter().zip(&scored.targets) {
            let row = scored.row(place);
            chunk::unit_rows(|_| self.rows.row(row), is_cosine, &mut unit, &mut inverse);
            let own = &mut scored.gradient[scored.owners[label] * d..][..d];
            for (g, w) in own.iter_mut().zip(&unit) {
                *g += right.derivative * w;
            }
        }
    }
}

impl Scored {
    /// Of the features, \[batch, d\]: this rank's part; the whole is the sum over ranks. Known once the batch is
    /// reduced.
    pub fn gradient(&self) -> &[f32] {
        &self.gradient
    }

    /// The same, given away: the update does without it.
    pub(crate) fn take_gradient(&mut self) -> Vec<f32> {
        std::mem::take(&mut self.gradient)
    }

    /// Makes its losses count `factor` times as much in the update.
    pub(crate) fn weigh(&mut self, factor: f32) {
        self.weight.iter_mut().for_each(|weight| *weight *= factor);
    }

    /// Forgets the products, which are then computed again.
    pub(crate) fn forget_products(&mut self) {
        self.products = Vec::new();
    }

    /// Rows that take part, of so many.
    pub(crate) fn count(&self, all: usize) -> usize {
        let active = self.active.as_ref();
        active.map_or(all, |(rows, _)| rows.len())
    }

    fn row(&self, place: usize) -> usize {
        match &self.active {
            None => place,
            Some((rows, _)) => rows[place] as usize,
        }
    }

    /// The active rows at these indices.
    pub(crate) fn rows(&self, places: Range<usize>) -> Vec<u32> {
        match &self.active {
            None => (places.start as u32..places.end as u32).collect(),
            Some((rows, _)) => rows[places].to_vec(),
        }
    }

    /// Exponentials relative to the largest logits so far: relative to another number, such as the largest possible
    /// logit, all of them may be 0 in f32.
    fn shift_to_best(&mut self) {
        let d = self.unit.len() / self.batch.max(1);
        for (i, &new) in self.best.iter().enumerate() {
            // Without another class: a finite shift, to subtract −∞ safely.
            let new = new.max(f32::MIN);
            let old = std::mem::replace(&mut self.shift[i], new);
            if old < new {
                let factor = (old - new).exp();
                self.total[i] *= f64::from(factor);
                for g in self.gradient.iter_mut().skip(i * d).take(d) {
                    *g *= factor;
                }
            }
        }
    }
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch {
            unit: Vec::new(),
            inverse: Vec::new(),
            counts: Vec::new(),
            products: Vec::new(),
            exponentials: Vec::new(),
            gradient: Vec::new(),
        }
    }

    /// How many classes the active rows at these indices stand for.
    pub(crate) fn set_counts(&mut self, scored: &Scored, places: Range<usize>) {
        self.counts.clear();
        match &scored.active {
            None => self.counts.resize(places.len(), 1.0),
            Some((_, counts)) => self.counts.extend(&counts[places]),
        }
    }

    /// The products of the gathered rows with the features, given as columns.
    pub(crate) fn multiply(&mut self, columns: &PackedMatrix, batch: usize, d: usize) {
        let n = self.inverse.len();
        self.products.resize(n * batch, 0.0);
        let rows = Matrix::new(&self.unit, n, d);
        gemm_packed(rows, columns, &mut self.products, batch, false);
    }
}

fn chunks(count: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count)
        .step_by(CHUNK)
        .map(move |start| start..(start + CHUNK).min(count))
}
