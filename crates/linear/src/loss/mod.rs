//! The losses, one file each, and their list.
//!
//! A loss is one implementation of [`LossFunction`]; solvers, certificates, models and commands use only that. To add
//! one: its file, with its `mod` line, and a line in the list below. A loss may have one number, ε, which is part of
//! its name in configurations and models, as in `huber:1.35`.

mod epsilon_insensitive;
mod function;
mod hinge;
mod huber;
mod logistic;
mod multinomial;
mod poisson;
mod quadratic;
mod squared;
mod squared_epsilon_insensitive;
mod squared_hinge;
mod tube;

use std::fmt;
use std::str::FromStr;

use pelton_key::listed;

pub(crate) use function::{Bend, LossFunction, NewtonTerms, RowTerms, Watch};
pub(crate) use logistic::exp_of_negative;

/// Something that is compiled for each loss.
pub(crate) trait WithLoss {
    type Output;
    fn run<L: LossFunction + Copy>(self, loss: L) -> Self::Output;
}

macro_rules! losses {
    ($($(#[doc = $doc:literal])+ $loss:ident $(($parameter:ident: $number:ty = $usual:literal))? = $function:expr,)+) => {
        /// The loss of a row.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Loss {
            $($(#[doc = $doc])+ $loss $(($number))?,)+
        }

        impl Loss {
            /// Every loss, with its usual ε.
            pub const ALL: &'static [Loss] = &[$(Loss::$loss $(($usual))?,)+];

            pub(crate) fn function(self) -> Box<dyn LossFunction> {
                match self {
                    $(Loss::$loss $(($parameter))? => Box::new($function),)+
                }
            }

            /// Runs `what`, compiled for this loss.
            pub(crate) fn with<W: WithLoss>(self, what: W) -> W::Output {
                match self {
                    $(Loss::$loss $(($parameter))? => what.run($function),)+
                }
            }

            /// The ε of a loss that has one.
            pub fn epsilon(self) -> Option<f64> {
                match self {
                    $($(Loss::$loss($parameter) => Some($parameter),)?)+
                    _ => None,
                }
            }

            /// The same loss with another ε; `None` if it has none.
            fn with_number(self, number: f64) -> Option<Loss> {
                match self {
                    $($(Loss::$loss(_) => {
                        let $parameter: $number = number;
                        Some(Loss::$loss($parameter))
                    })?)+
                    _ => None,
                }
            }
        }
    };
}

losses! {
    /// max(0, 1 − m), m = y w·x: the L1 loss of a support vector machine.
    Hinge = hinge::Hinge,
    /// max(0, 1 − m)²: its L2 loss.
    SquaredHinge = squared_hinge::SquaredHinge,
    /// log(1 + e^(−m)): logistic regression.
    Logistic = logistic::Logistic,
    /// log Σ_k e^(w_k·x) − w_y·x: multinomial logistic regression. Of two classes it is [`Loss::Logistic`].
    Multinomial = multinomial::Multinomial,
    /// ½ r², r = t − w·x: least squares.
    Squared = squared::Squared,
    /// max(0, |r| − ε), r = t − w·x: support vector regression.
    EpsilonInsensitive(epsilon: f64 = 0.1) = epsilon_insensitive::EpsilonInsensitive { epsilon },
    /// max(0, |r| − ε)², r = t − w·x: its L2 loss.
    SquaredEpsilonInsensitive(epsilon: f64 = 0.1) =
        squared_epsilon_insensitive::SquaredEpsilonInsensitive { epsilon },
    /// ½ r² up to |r| = ε and ε |r| − ½ ε² beyond, r = t − w·x: Huber's.
    Huber(epsilon: f64 = 1.35) = huber::Huber { epsilon },
    /// Half the Poisson deviance of t from e^(w·x).
    Poisson = poisson::Poisson,
}

impl Loss {
    /// The loss of a row of a class at margin `m` = y w·x.
    #[inline]
    pub fn at(self, m: f64) -> f64 {
        self.function().value(m, 1.0)
    }

    /// Whether decision values are log-odds, so that class probabilities exist.
    pub fn has_probabilities(self) -> bool {
        self.log_share().is_some()
    }

    /// The logarithm of the probability of a class by its value, if decision values are log-odds.
    pub(crate) fn log_share(self) -> Option<fn(f64) -> f64> {
        self.function().log_probability()
    }

    /// Whether the optimum needs steps in 64 bits, which [`crate::FineDescent`] makes.
    pub fn needs_fine_steps(self) -> bool {
        self.function().needs_fine_steps()
    }

    /// Whether rows have real targets, not classes.
    pub fn has_real_targets(self) -> bool {
        self.function().has_real_targets()
    }

    /// Whether it is minus the logarithm of a likelihood up to a constant (for the multinomial loss, with two classes).
    pub(crate) fn is_likelihood(self) -> bool {
        use Loss::{Logistic, Multinomial, Poisson, Squared};
        matches!(self, Logistic | Multinomial | Squared | Poisson)
    }

    /// Whether it has a slope everywhere.
    pub fn is_smooth(self) -> bool {
        !self.function().has_kink()
    }

    /// Whether it is a square of w·x less the target.
    pub(crate) fn is_quadratic(self) -> bool {
        self == Loss::Squared
    }

    /// Whether one loss couples all of more than two classes, so that their values are logarithms of probabilities up
    /// to a constant, not log-odds.
    pub fn is_of_all_classes(self) -> bool {
        self == Loss::Multinomial
    }

    /// Whether LIBLINEAR has it, so that its format can hold the model.
    pub fn is_in_liblinear(self) -> bool {
        !self.function().liblinear().is_empty()
    }

    /// The prediction of a model if w·x is `u`: u, or with a logarithmic link e^u.
    pub fn prediction(self, u: f64) -> f64 {
        self.function().prediction(u)
    }

    /// The same loss with this ε.
    ///
    /// Errors: a loss without an ε; an invalid ε.
    pub fn with_epsilon(self, epsilon: f64) -> Result<Loss, String> {
        let name = self.function().name();
        let loss = self
            .with_number(epsilon)
            .ok_or_else(|| format!("`epsilon` does not apply to loss {name}; leave it out"))?;
        if loss.function().epsilon_is_usable() {
            Ok(loss)
        } else {
            Err(format!(
                "an `epsilon` of {epsilon} is out of range for loss {name}; give a finite number above 0, or 0 for the epsilon-insensitive losses"
            ))
        }
    }

    /// All losses, for a help text.
    pub fn help() -> String {
        let all: Vec<&str> = { Loss::ALL.iter() }
            .map(|loss| loss.function().about())
            .collect();
        format!("Loss: {}", listed(&all))
    }

    /// The names of some losses, for messages.
    pub(crate) fn names(some: impl Fn(Loss) -> bool) -> String {
        let losses = Loss::ALL.iter().filter(|loss| some(**loss));
        let names: Vec<&str> = losses.map(|loss| loss.function().name()).collect();
        listed(&names)
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function().name())?;
        match self.epsilon() {
            Some(epsilon) => write!(f, ":{epsilon}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Loss {
    type Err = String;

    /// A name, and for a loss with an ε other than the usual `NAME:EPSILON`.
    fn from_str(text: &str) -> Result<Loss, String> {
        let wrong = || {
            let names = Loss::names(|_| true);
            format!("`{text}` is not a loss: use {names}")
        };
        let (name, epsilon) = match text.split_once(':') {
            Some((name, epsilon)) => (name, Some(epsilon.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let mut losses = Loss::ALL.iter().copied();
        let loss = losses.find(|loss| loss.function().name() == name);
        let loss = loss.ok_or_else(wrong)?;
        epsilon.map_or(Ok(loss), |epsilon| loss.with_epsilon(epsilon))
    }
}

#[cfg(test)]
mod tests;
