//! What is minimised: the loss, its cost, and how classes become signs.
//!
//! For each binary subproblem, over rows x_i with signs y_i = ±1 and costs C_i:
//!
//! P(w) = ½‖w‖² + Σ C_i ξ(y_i w·x_i), ξ(m) = max(0, 1 − m), its square, or log(1 + e^(−m)).
//!
//! A bias is one more feature of constant value, so it is regularised (as LIBLINEAR's `-B`).
//! An unregularised bias was rejected: its dual has an equality constraint, and coordinate descent
//! over single variables cannot move along it.

use crate::error::LinearError;

/// The loss of a row as a function of its margin m = y w·x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// max(0, 1 − m): the L1 loss of a support vector machine.
    Hinge,
    /// max(0, 1 − m)²: its L2 loss.
    SquaredHinge,
    /// log(1 + e^(−m)): logistic regression.
    Logistic,
}

impl Loss {
    /// The loss at margin `m`.
    #[inline]
    pub fn at(self, m: f64) -> f64 {
        match self {
            Loss::Hinge => (1.0 - m).max(0.0),
            Loss::SquaredHinge => (1.0 - m).max(0.0).powi(2),
            Loss::Logistic => (-m.abs()).exp().ln_1p() + (-m).max(0.0),
        }
    }
}

/// A training problem. With two classes there is one subproblem, class 0 being positive (LIBLINEAR's
/// convention: the first label); with more, one per class against the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    loss: Loss,
    features: usize,
    bias: Option<f32>,
    costs: Vec<f64>,
    /// Factors on the cost by class.
    weights: Vec<f64>,
}

impl Problem {
    /// A problem over rows of `features` features in `classes` classes with cost `cost` each.
    pub fn new(
        loss: Loss,
        cost: f64,
        features: usize,
        classes: usize,
    ) -> Result<Problem, LinearError> {
        if classes < 2 {
            return Err(LinearError::TooFewClasses { found: classes });
        }
        if features == 0 || u32::try_from(features).is_err() {
            return Err(LinearError::Features { found: features });
        }
        let cost = usable(cost)?;
        Ok(Problem {
            loss,
            features,
            bias: None,
            costs: vec![cost; classes],
            weights: vec![1.0; classes],
        })
    }

    /// Appends a constant feature of this value, with a regularised weight.
    pub fn with_bias(mut self, bias: f32) -> Result<Problem, LinearError> {
        if !is_usable_bias(bias) {
            return Err(LinearError::Bias { found: bias });
        }
        self.bias = Some(bias);
        Ok(self)
    }

    /// Multiplies the cost of the rows of class `class` by `weight`, in every subproblem: the same
    /// as listing each of those rows `weight` times.
    // Differs from LIBLINEAR, which weights a class only where it is the positive one: there a weight
    // of 2 is not the same as doubling the rows.
    pub fn with_class_weight(mut self, class: u32, weight: f64) -> Result<Problem, LinearError> {
        let classes = self.costs.len();
        let Some(cost) = self.costs.get_mut(class as usize) else {
            return Err(LinearError::UnknownClass { class, classes });
        };
        *cost = usable(*cost * weight)?;
        self.weights[class as usize] *= weight;
        Ok(self)
    }

    /// The loss.
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// Features a row, without the bias.
    pub fn features(&self) -> usize {
        self.features
    }

    /// Value of the constant feature.
    pub fn bias(&self) -> Option<f32> {
        self.bias
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

    /// Number of binary subproblems: 1 for two classes, else one a class.
    pub fn subproblems(&self) -> usize {
        if self.classes() == 2 {
            1
        } else {
            self.classes()
        }
    }

    /// The factors on the cost that classes were given; none where all are 1.
    pub fn class_weights(&self) -> &[f64] {
        let all_one = self.weights.iter().all(|weight| *weight == 1.0);
        if all_one { &[] } else { &self.weights }
    }

    /// Cost C_i of the rows of a class.
    pub fn cost(&self, class: u32) -> f64 {
        self.costs[class as usize]
    }

    /// Sign of the rows of `class` in `subproblem`.
    #[inline]
    pub fn sign(&self, subproblem: usize, class: u32) -> f32 {
        if class as usize == subproblem {
            1.0
        } else {
            -1.0
        }
    }

    /// Upper bound U_i of α_i.
    pub(crate) fn upper(&self, class: u32) -> f32 {
        match self.loss {
            Loss::Hinge | Loss::Logistic => self.cost(class) as f32,
            Loss::SquaredHinge => f32::INFINITY,
        }
    }

    /// D_i, what the loss adds to the diagonal of the dual's matrix.
    pub(crate) fn diagonal(&self, class: u32) -> f32 {
        match self.loss {
            Loss::Hinge | Loss::Logistic => 0.0,
            Loss::SquaredHinge => (0.5 / self.cost(class)) as f32,
        }
    }

    /// How far [`Problem::dual_term`] can be from the term of the α that [`crate::duals::decode`] gives, beside
    /// rounding in proportion to the term: decoding rounds α by ε C at most, and the entropy's slope |ln(α / (C − α))|
    /// stays below 256 for numbers that f32 can hold.
    pub(crate) fn term_error(&self, class: u32) -> f64 {
        match self.loss {
            Loss::Hinge | Loss::SquaredHinge => 0.0,
            Loss::Logistic => 256.0 * f64::EPSILON * self.cost(class),
        }
    }

    /// What a row with (decoded) dual variable `alpha` adds to the dual value, beside −½‖w‖².
    ///
    /// For the logistic loss `alpha` is centred, as [`crate::Duals`] stores it.
    pub(crate) fn dual_term(&self, class: u32, alpha: f32) -> f64 {
        let alpha = f64::from(alpha);
        match self.loss {
            Loss::Hinge => alpha,
            // D as P has it, not as the solver rounds it.
            Loss::SquaredHinge => alpha - 0.25 / self.cost(class) * alpha * alpha,
            Loss::Logistic => {
                // −[a ln a + (C − a) ln(C − a) − C ln C], the same for a and C − a.
                let upper = f64::from(self.upper(class));
                let small = alpha.abs();
                if small == 0.0 {
                    return 0.0;
                }
                let share = small / upper;
                -(small * share.ln() + (upper - small) * (-share).ln_1p())
            }
        }
    }
}

/// Whether a bias is above 0 and its square, which rows have on the diagonal of Q, an f32.
pub(crate) fn is_usable_bias(bias: f32) -> bool {
    bias > 0.0 && (bias * bias).is_finite()
}

/// The cost as the solver uses it: rounded to f32, so that α ≤ U means α ≤ C to the last bit.
fn usable(cost: f64) -> Result<f64, LinearError> {
    // A cost outside the normal range of f32 would turn into 0 or infinity.
    if cost.is_finite() && (1e-30..=1e30).contains(&cost) {
        Ok(f64::from(cost as f32))
    } else {
        Err(LinearError::Cost { found: cost })
    }
}
