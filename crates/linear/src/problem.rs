//! The problem to minimise: the loss, its cost, and how labels become signs and targets.
//!
//! For each subproblem, over rows x_i with signs s_i, targets t_i and costs C_i, C times the weights of the row's class
//! and of the row itself:
//!
//! P(w) = R(w) + Σ C_i ξ(s_i w·x_i; t_i), for the losses ξ of [`crate::loss`] and the penalties R of
//! [`crate::Penalty`], by default ½‖w‖².
//!
//! The label of a row is its class, with s_i = ±1 by the subproblem and t_i = 1; for a loss of real targets it is
//! the bits of the target as an f32, with s_i = 1.
//!
//! A bias is one more feature of constant value B, with the weight b: regularised as the others (as LIBLINEAR's `-B`),
//! or free, so that P(w) lacks ½b². The dual of a free one has the constraint Σ s_i α_i = 0, along which coordinate
//! descent over single variables cannot move. So it solves problems with ½(b − c)² instead, and moves the centre c to
//! the last b before each epoch. This is the proximal point method, or the method of multipliers on the dual
//! (Rockafellar, Mathematics of Operations Research 1976); its solutions converge to that of the free problem.
//!
//! A *grid* is several models of one problem, trained side by side on each row that is read: one for each factor on the
//! cost, and for each fold that a model does not see. Each has all the subproblems of one model.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::LinearError;
use crate::loss::{Loss, LossFunction, RowTerms};
use crate::penalty::Penalty;

/// A training problem. With two classes there is one subproblem, class 0 being positive (LIBLINEAR's convention:
/// the first label); with more, one per class against the rest. A loss of real targets has one subproblem, and all
/// rows are of one class.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    loss: Loss,
    penalty: Penalty,
    features: usize,
    bias: Option<f32>,
    bias_is_free: bool,
    costs: Vec<f64>,
    /// Factors on the cost by class.
    weights: Vec<f64>,
    /// Factors on the cost by record, and the largest of them.
    samples: Option<Arc<[f32]>>,
    heaviest: f64,
    grid: Option<Arc<Grid>>,
    /// The feature with the fixed weight 1.
    offset: Option<usize>,
}

/// Several models of one problem.
#[derive(Debug, PartialEq)]
struct Grid {
    /// Factor on the cost of each model.
    factors: Vec<f64>,
    /// The fold of each record; model m does not see fold m modulo their number. `None` if every model sees all
    /// records.
    folds: Option<(Arc<[u8]>, u8)>,
    /// The index of the first model here.
    first: usize,
}

impl Problem {
    /// A problem over rows of `features` features in `classes` classes, or with real targets, with cost `cost` each.
    pub fn new(
        loss: Loss,
        cost: f64,
        features: usize,
        classes: usize,
    ) -> Result<Problem, LinearError> {
        if classes < 2 && !loss.has_real_targets() {
            return Err(LinearError::TooFewClasses { found: classes });
        }
        if features == 0 || u32::try_from(features).is_err() {
            return Err(LinearError::Features { found: features });
        }
        let cost = usable(cost)?;
        let classes = if loss.has_real_targets() { 1 } else { classes };
        Ok(Problem {
            loss,
            penalty: Penalty::L2,
            features,
            bias: None,
            bias_is_free: false,
            costs: vec![cost; classes],
            weights: vec![1.0; classes],
            samples: None,
            heaviest: 1.0,
            grid: None,
            offset: None,
        })
    }

    /// Makes a feature an offset: its weight is fixed at 1 and not penalised.
    ///
    /// Errors: a loss of all classes or with kinks, or a penalty of ‖w‖₁. Panics if the feature does not exist.
    pub fn with_offset(mut self, feature: usize) -> Result<Problem, LinearError> {
        assert!(feature < self.features);
        let is_smooth = self.loss.is_smooth() && self.penalty.l1_share() == 0.0;
        if !is_smooth || self.is_coupled() {
            return Err(LinearError::Offset);
        }
        self.offset = Some(feature);
        Ok(self)
    }

    /// Appends a constant feature of this value, with a regularised weight.
    pub fn with_bias(mut self, bias: f32) -> Result<Problem, LinearError> {
        if !is_usable_bias(bias) {
            return Err(LinearError::Bias { found: bias });
        }
        self.bias = Some(bias);
        Ok(self)
    }

    /// Leaves the weight of the constant feature out of ‖w‖²; adds a constant feature of 1 if there is none yet.
    pub fn with_free_bias(mut self) -> Problem {
        self.bias = self.bias.or(Some(1.0));
        self.bias_is_free = true;
        self
    }

    /// Replaces the penalty.
    ///
    /// Errors: a loss with kinks and a penalty other than ½‖w‖²; a loss that is not a likelihood without a penalty.
    pub fn with_penalty(mut self, penalty: Penalty) -> Result<Problem, LinearError> {
        let is_usable = |loss: Loss| match penalty {
            Penalty::L2 => true,
            Penalty::None => loss.is_likelihood(),
            Penalty::L1 | Penalty::ElasticNet(_) => loss.is_smooth(),
        };
        if !is_usable(self.loss) || (penalty != Penalty::L2 && self.is_coupled()) {
            return Err(LinearError::Penalty {
                penalty: penalty.to_string(),
                loss: self.loss.to_string(),
                others: Loss::names(|loss| is_usable(loss) && !loss.is_of_all_classes()),
            });
        }
        self.penalty = penalty;
        Ok(self)
    }

    /// Multiplies the cost of the rows of class `class` by `weight`, in every subproblem: the same
    /// as listing each of those rows `weight` times.
    // Differs from LIBLINEAR, which weights a class only in the subproblem with that class positive: there a weight of
    // 2 is not the same as doubling the rows.
    pub fn with_class_weight(mut self, class: u32, weight: f64) -> Result<Problem, LinearError> {
        let classes = self.costs.len();
        let Some(cost) = self.costs.get_mut(class as usize) else {
            return Err(LinearError::UnknownClass { class, classes });
        };
        *cost = usable(*cost * weight)?;
        self.weights[class as usize] *= weight;
        self.check_costs()?;
        Ok(self)
    }

    /// Multiplies the cost of each record by its weight: the same as listing it that many times, a record of weight 0
    /// not at all. Memory: 4 bytes a record.
    pub fn with_sample_weights(mut self, weights: Arc<[f32]>) -> Result<Problem, LinearError> {
        let is_usable = |weight: f32| weight >= 0.0 && weight.is_finite();
        if let Some(record) = weights.iter().position(|&weight| !is_usable(weight)) {
            return Err(LinearError::SampleWeight {
                record: record as u64,
                found: weights[record],
            });
        }
        self.heaviest = f64::from(weights.iter().copied().fold(0.0, f32::max));
        if self.heaviest == 0.0 {
            return Err(LinearError::NoSampleWeight);
        }
        self.check_costs()?;
        self.samples = Some(weights);
        Ok(self)
    }

    /// A model for each of these factors on the cost, equally weighted: figures summed over models are divided by the
    /// factor of each. With folds (the fold of each record and the number of folds), each factor gets one model per
    /// fold, trained on the other folds only; the models of one factor are consecutive.
    ///
    /// Memory: 1 byte a record with folds.
    pub fn with_grid(
        mut self,
        factors: &[f64],
        folds: Option<(Arc<[u8]>, u8)>,
    ) -> Result<Problem, LinearError> {
        let each = folds.as_ref().map_or(1, |(_, count)| usize::from(*count));
        let factors = factors.iter().flat_map(|factor| vec![*factor; each]);
        self.grid = Some(Arc::new(Grid {
            factors: factors.collect(),
            folds,
            first: 0,
        }));
        self.check_costs()?;
        Ok(self)
    }

    /// Refuses costs that no solver can use, with the factors of models and the largest weight of a record.
    fn check_costs(&self) -> Result<(), LinearError> {
        let factors = self.grid.as_ref().map_or(&[1.0][..], |grid| &grid.factors);
        for factor in factors {
            for cost in &self.costs {
                usable(factor * cost)?;
                usable(factor * cost * self.heaviest)?;
            }
        }
        Ok(())
    }

    /// The same problem over other records, which have no weights and no folds.
    pub fn without_sample_weights(&self) -> Problem {
        Problem {
            samples: None,
            heaviest: 1.0,
            grid: None,
            ..self.clone()
        }
    }

    /// The loss.
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// The penalty.
    pub fn penalty(&self) -> Penalty {
        self.penalty
    }

    /// Features a row, without the bias.
    pub fn features(&self) -> usize {
        self.features
    }

    /// Value of the constant feature.
    pub fn bias(&self) -> Option<f32> {
        self.bias
    }

    /// Whether the weight of the constant feature is not regularised.
    pub fn bias_is_free(&self) -> bool {
        self.bias_is_free
    }

    /// Entries of a weight vector.
    pub(crate) fn length(&self) -> usize {
        self.features + usize::from(self.bias.is_some())
    }

    /// The entry of a weight vector that is a free bias.
    pub(crate) fn free_bias(&self) -> Option<usize> {
        self.bias_is_free.then_some(self.features)
    }

    /// The number of leading entries of a weight vector that count in ‖w‖² (except an offset among them).
    pub(crate) fn regularised(&self) -> usize {
        self.length() - usize::from(self.bias_is_free)
    }

    /// The feature with the fixed weight 1, if there is one.
    pub fn offset(&self) -> Option<usize> {
        self.offset
    }

    /// The factor on the cost in a subproblem of a row without weights.
    pub(crate) fn unit_cost(&self, subproblem: usize) -> f64 {
        self.factor(subproblem) * self.costs[0] / self.weights[0]
    }

    /// Less than the logistic loss of any row on the wrong side.
    pub(crate) fn least_loss_of_a_wrong_row(&self, subproblem: usize) -> f64 {
        let samples = self.samples.iter().flat_map(|samples| samples.iter());
        let lightest = samples
            .filter(|weight| **weight > 0.0)
            .fold(f32::INFINITY, |a, b| a.min(*b));
        let lightest = if lightest.is_finite() {
            f64::from(lightest)
        } else {
            1.0
        };
        let least = self.costs.iter().copied().fold(f64::INFINITY, f64::min);
        0.999 * std::f64::consts::LN_2 * self.factor(subproblem) * least * lightest
    }

    /// The total weight of `records` rows.
    pub fn weight_of_records(&self, records: u64) -> f64 {
        match &self.samples {
            Some(samples) => samples.iter().map(|weight| f64::from(*weight)).sum(),
            None => records as f64,
        }
    }

    /// The same problem over rows of another number of features.
    pub(crate) fn with_features(&self, features: usize) -> Problem {
        Problem {
            features,
            ..self.clone()
        }
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.costs.len()
    }

    /// Whether one loss couples the vectors of the classes, for [`crate::Lbfgs`]; other problems are solved vector by
    /// vector.
    pub fn is_coupled(&self) -> bool {
        self.loss.is_of_all_classes() && self.classes() > 2
    }

    /// Refuses a problem that is not one of single vectors.
    pub(crate) fn check_separate(&self) -> Result<(), LinearError> {
        if self.is_coupled() {
            let loss = self.loss.to_string();
            return Err(LinearError::Coupled { loss });
        }
        Ok(())
    }

    /// Number of models: 1 without a grid.
    pub fn models(&self) -> usize {
        self.grid.as_ref().map_or(1, |grid| grid.factors.len())
    }

    /// Number of subproblems of one model: 1 for two classes or a real target, else one a class.
    pub fn subproblems_of_model(&self) -> usize {
        if self.classes() <= 2 {
            1
        } else {
            self.classes()
        }
    }

    /// Number of subproblems, those of each model in a row.
    pub fn subproblems(&self) -> usize {
        self.models() * self.subproblems_of_model()
    }

    /// The factor on the cost of a subproblem. Sums over all subproblems divide each value by it, so that the largest
    /// cost does not dominate: any such sum of bounds bounds the sum of optima.
    pub(crate) fn factor(&self, subproblem: usize) -> f64 {
        let model = subproblem / self.subproblems_of_model();
        self.grid.as_ref().map_or(1.0, |grid| grid.factors[model])
    }

    /// Whether a model does not see a record: it is of the fold that the model leaves out.
    pub fn holds_out(&self, model: usize, record: u64) -> bool {
        let folds = self.grid.as_ref().and_then(|grid| grid.folds.as_ref());
        folds.is_some_and(|(of_record, count)| {
            usize::from(of_record[record as usize])
                == (self.first_model() + model) % usize::from(*count)
        })
    }

    /// The problem of one model of a grid alone.
    pub(crate) fn of_model(&self, model: usize) -> Problem {
        let of = |grid: &Arc<Grid>| {
            Arc::new(Grid {
                factors: vec![grid.factors[model]],
                folds: grid.folds.clone(),
                first: grid.first + model,
            })
        };
        Problem {
            grid: self.grid.as_ref().map(of),
            ..self.clone()
        }
    }

    fn first_model(&self) -> usize {
        self.grid.as_ref().map_or(0, |grid| grid.first)
    }

    /// Whether costs differ between subproblems.
    pub(crate) fn has_grid(&self) -> bool {
        self.grid.is_some()
    }

    /// The factors on the cost by class; empty if all are 1.
    pub fn class_weights(&self) -> &[f64] {
        let all_one = self.weights.iter().all(|weight| *weight == 1.0);
        if all_one { &[] } else { &self.weights }
    }

    /// The largest cost of a row in a subproblem.
    pub(crate) fn largest_cost(&self, subproblem: usize) -> f64 {
        let largest = self.costs.iter().copied().fold(0.0, f64::max);
        self.factor(subproblem) * (self.heaviest * largest)
    }

    /// Cost of the rows of a class that have no weight of their own, at factor 1.
    pub fn cost(&self, class: u32) -> f64 {
        self.costs[class as usize]
    }

    /// Cost C_i of a record of a class, at factor 1.
    pub fn cost_of(&self, class: u32, record: u64) -> f64 {
        let weights = self.samples.as_ref();
        weights.map_or(self.cost(class), |weights| {
            weighted(self.cost(class), weights[record as usize])
        })
    }

    /// Sign of the rows of `class` in `subproblem`.
    #[inline]
    pub fn sign(&self, subproblem: usize, class: u32) -> f32 {
        if class as usize == subproblem % self.subproblems_of_model() {
            1.0
        } else {
            -1.0
        }
    }

    /// Whether rows have a real target instead of a class.
    pub(crate) fn has_real_targets(&self) -> bool {
        self.loss.has_real_targets()
    }

    /// Whether a record may have this label.
    pub(crate) fn check_label(&self, label: u32, record: u64) -> Result<(), LinearError> {
        let classes = self.classes();
        if self.has_real_targets() {
            let (found, loss) = (f32::from_bits(label), self.loss);
            if !found.is_finite() {
                return Err(LinearError::Target { record, found });
            }
            if !loss.function().accepts(found) {
                let loss = loss.to_string();
                return Err(LinearError::NegativeTarget {
                    record,
                    found,
                    loss,
                });
            }
            return Ok(());
        }
        if label as usize >= classes {
            let class = label;
            return Err(LinearError::UnknownClass { class, classes });
        }
        Ok(())
    }

    /// Targets and costs of the rows of one subproblem.
    pub(crate) fn terms(&self, subproblem: usize) -> Terms {
        let (function, is_real) = (self.loss.function(), self.has_real_targets());
        let factor = self.factor(subproblem);
        let of_class = |class: u32| {
            let cost = f64::from((factor * self.cost(class)) as f32);
            RowTerms {
                sign: if is_real {
                    1.0
                } else {
                    self.sign(subproblem, class)
                },
                target: 1.0,
                cost,
                dual: function.dual(cost),
            }
        };
        let model = subproblem / self.subproblems_of_model();
        let folds = self.grid.as_ref().and_then(|grid| grid.folds.as_ref());
        Terms {
            is_real,
            of_classes: (0..self.classes() as u32).map(of_class).collect(),
            samples: self.samples.clone(),
            held_out: folds.map(|(of_record, count)| {
                let fold = ((self.first_model() + model) % usize::from(*count)) as u8;
                (Arc::clone(of_record), fold)
            }),
            function,
        }
    }

    /// Whether rows of one label that a model sees differ in target or cost.
    pub(crate) fn rows_differ(&self) -> bool {
        self.has_real_targets() || self.samples.is_some()
    }
}

/// Targets and costs of the rows of one subproblem.
pub(crate) struct Terms {
    is_real: bool,
    of_classes: Vec<RowTerms>,
    samples: Option<Arc<[f32]>>,
    /// The fold of each record, and the one that the model does not see.
    held_out: Option<(Arc<[u8]>, u8)>,
    function: Box<dyn LossFunction>,
}

impl Terms {
    /// The terms of a row; its label must have passed [`Problem::check_label`].
    #[inline(always)]
    pub(crate) fn of(&self, label: u32, record: u64) -> RowTerms {
        let mut row = if self.is_real {
            RowTerms {
                target: f32::from_bits(label),
                ..self.of_classes[0]
            }
        } else {
            self.of_classes[label as usize]
        };
        if let Some(weights) = &self.samples {
            row.cost = weighted(row.cost, weights[record as usize]);
            row.dual = self.function.dual(row.cost);
        }
        if self.holds_out(record) {
            row.cost = weighted(row.cost, 0.0);
            row.dual = self.function.dual(row.cost);
        }
        row
    }

    /// Whether the model does not see a record: its α stays 0.
    #[inline(always)]
    pub(crate) fn holds_out(&self, record: u64) -> bool {
        let held_out = self.held_out.as_ref();
        held_out.is_some_and(|(folds, fold)| folds[record as usize] == *fold)
    }

    /// The terms of all classes, or of these rows if terms differ within a class.
    pub(crate) fn table<'a>(&'a self, labels: &[u32], records: &[u64]) -> Cow<'a, [RowTerms]> {
        if labels.is_empty() {
            return Cow::Borrowed(&self.of_classes);
        }
        let rows = labels.iter().zip(records);
        Cow::Owned(
            rows.map(|(&label, &record)| self.of(label, record))
                .collect(),
        )
    }
}

/// The cost of a row with a weight. A row of weight 0 has the least possible cost: too small to change any f64 sum, and
/// it needs no special case.
fn weighted(cost: f64, weight: f32) -> f64 {
    f64::from((cost * f64::from(weight)).max(LEAST_COST) as f32)
}

/// Whether a row of this cost moves anything.
pub(crate) fn counts(cost: f64) -> bool {
    cost > 2.0 * LEAST_COST
}

/// The least and the largest cost.
const LEAST_COST: f64 = 1e-30;
const LARGEST_COST: f64 = 1e30;

/// Whether a bias is above 0 and its square, which rows have on the diagonal of Q, an f32.
pub(crate) fn is_usable_bias(bias: f32) -> bool {
    bias > 0.0 && (bias * bias).is_finite()
}

/// The cost as the solver uses it: rounded to f32, so that α ≤ U means α ≤ C to the last bit.
fn usable(cost: f64) -> Result<f64, LinearError> {
    // A cost outside the normal range of f32 would turn into 0 or infinity.
    if (LEAST_COST..=LARGEST_COST).contains(&cost) {
        Ok(f64::from(cost as f32))
    } else {
        Err(LinearError::Cost { found: cost })
    }
}
