//! The losses, one file each, and their list.
//!
//! A loss is one implementation of [`LossFunction`]; solvers, certificates, models and commands use only that.
//! To add one: its file, with its `mod` line, and a line in the list below.

mod function;
mod hinge;
mod logistic;
mod quadratic;
#[cfg(test)]
mod squared;
mod squared_hinge;

use std::fmt;
use std::str::FromStr;

pub(crate) use function::{Bend, LossFunction, NewtonTerms, RowTerms, Smoothing, Watch};

/// Something that is compiled for each loss.
pub(crate) trait WithLoss {
    type Output;
    fn run<L: LossFunction + Copy>(self, loss: L) -> Self::Output;
}

macro_rules! losses {
    ($($(#[doc = $doc:literal])+ $(#[cfg($when:meta)])? $loss:ident = $function:path,)+) => {
        /// The loss of a row.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Loss {
            $($(#[doc = $doc])+ $(#[cfg($when)])? $loss,)+
        }

        impl Loss {
            /// Every loss.
            pub const ALL: &'static [Loss] = &[$($(#[cfg($when)])? Loss::$loss,)+];

            pub(crate) fn function(self) -> &'static dyn LossFunction {
                match self {
                    $($(#[cfg($when)])? Loss::$loss => &$function,)+
                }
            }

            /// Runs the version of `what` that was compiled for this loss.
            pub(crate) fn with<W: WithLoss>(self, what: W) -> W::Output {
                match self {
                    $($(#[cfg($when)])? Loss::$loss => what.run($function),)+
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
    /// ½ (t − w·x)²: least squares.
    #[cfg(test)]
    Squared = squared::Squared,
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

    /// The logarithm of the probability of a class by its value, where decision values are log-odds.
    pub(crate) fn log_share(self) -> Option<fn(f64) -> f64> {
        self.function().log_probability()
    }

    /// Whether the optimum needs steps in 64 bits, which [`crate::FineDescent`] makes.
    pub fn needs_fine_steps(self) -> bool {
        self.function().needs_fine_steps()
    }

    /// All losses, for a help text.
    pub fn help() -> String {
        format!("Loss: {}", listed(|loss| loss.function().about()))
    }
}

/// All losses, with `or` before the last.
fn listed(of: impl Fn(&Loss) -> &'static str) -> String {
    let mut names: Vec<&str> = Loss::ALL.iter().map(of).collect();
    let last = names.pop().unwrap_or_default();
    format!("{} or {last}", names.join(", "))
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function().name())
    }
}

impl FromStr for Loss {
    type Err = String;

    fn from_str(text: &str) -> Result<Loss, String> {
        let mut losses = Loss::ALL.iter().copied();
        losses
            .find(|loss| loss.function().name() == text)
            .ok_or_else(|| {
                let names = listed(|loss| loss.function().name());
                format!("`{text}` is not a loss: use {names}")
            })
    }
}

#[cfg(test)]
mod tests;
