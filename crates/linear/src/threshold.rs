//! A decision between two classes from another value than 0.

use pelton_format::ClassMap;

use crate::error::LinearError;
use crate::loss::Loss;
use crate::predict::Prediction;

/// The class that two classes are measured by, as in scikit-learn: the greater label, the later name.
pub fn positive_class(classes: &ClassMap) -> u32 {
    let greater = match (classes.names(), classes.values()) {
        ([first, second], _) => second > first,
        (_, [first, second]) => second > first,
        _ => true,
    };
    u32::from(greater)
}

/// Rows of at least this score are given the positive of two classes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    positive: u32,
    score: f64,
}

impl Threshold {
    /// From a score: a decision value with the sign that favours the [`positive_class`] above 0.
    pub fn of_score(classes: &ClassMap, score: f64) -> Threshold {
        let positive = positive_class(classes);
        Threshold { positive, score }
    }

    /// That of a probability, for losses that have probabilities, else of a score.
    ///
    /// Errors: a model without two classes; a probability outside 0 to 1, or a score that is NaN.
    pub fn given(loss: Loss, classes: &ClassMap, given: f64) -> Result<Threshold, LinearError> {
        let wrong = |why: &str| {
            Err(LinearError::Threshold {
                found: given,
                why: why.to_string(),
            })
        };
        if loss.has_real_targets() || classes.len() != 2 {
            return wrong(
                "decides between two classes, which the model does not have; leave it out",
            );
        }
        let score = if loss.has_probabilities() {
            // Probabilities are σ of the score.
            (given / (1.0 - given)).ln()
        } else {
            given
        };
        if score.is_nan() || !given.is_finite() {
            return wrong(if loss.has_probabilities() {
                "is not a probability; give a number from 0 to 1"
            } else {
                "is not a finite number"
            });
        }
        Ok(Threshold::of_score(classes, score))
    }

    /// The index of the positive class.
    pub fn positive(&self) -> u32 {
        self.positive
    }

    /// The least score of the positive class.
    pub fn score(&self) -> f64 {
        self.score
    }

    /// As [`Threshold::given`] takes it.
    pub fn stated(&self, loss: Loss) -> f64 {
        if loss.has_probabilities() {
            1.0 / (1.0 + (-self.score).exp())
        } else {
            self.score
        }
    }

    /// The quantity that is compared, in words.
    pub fn what(loss: Loss) -> &'static str {
        if loss.has_probabilities() {
            "probability"
        } else {
            "decision value"
        }
    }

    /// The prediction of a row with its class by this threshold.
    pub fn decide<'a>(&self, prediction: Prediction<'a>) -> Prediction<'a> {
        Prediction {
            class: self.class(score_of(self.positive, prediction.values)),
            ..prediction
        }
    }

    /// The class of a row by the score of the positive class.
    pub(crate) fn class(&self, score: f64) -> u32 {
        if score >= self.score {
            self.positive
        } else {
            1 - self.positive
        }
    }
}

/// The score of the positive of two classes: values above 0 are for the first class.
pub(crate) fn score_of(positive: u32, values: &[f64]) -> f64 {
    if positive == 0 { values[0] } else { -values[0] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_positive_class_is_given_from_the_threshold_on() {
        for (labels, positive) in [([-1.0, 1.0], 1), ([1.0, -1.0], 0)] {
            let classes = ClassMap::from_values(labels.to_vec(), Vec::new());
            for given in [0.0, 0.2, 0.5, 0.7, 1.0] {
                let threshold = Threshold::given(Loss::Logistic, &classes, given).unwrap();
                assert_eq!(threshold.positive(), positive);
                assert!((threshold.stated(Loss::Logistic) - given).abs() < 1e-12);
                for score in [-3.0, -0.5, 0.1, 2.0] {
                    let value = if positive == 0 { score } else { -score };
                    let prediction = Prediction {
                        class: 0,
                        values: &[value],
                    };
                    let is_positive = threshold.decide(prediction).class == positive;
                    let probability = 1.0 / (1.0 + f64::exp(-score));
                    assert_eq!(is_positive, probability >= given, "{score} {given}");
                }
            }
        }
    }

    #[test]
    fn odd_thresholds_are_refused() {
        let two = ClassMap::from_values(vec![0.0, 1.0], Vec::new());
        let three = ClassMap::from_values(vec![0.0, 1.0, 2.0], Vec::new());
        for given in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(
                Threshold::given(Loss::Logistic, &two, given).is_err(),
                "{given}"
            );
        }
        assert!(Threshold::given(Loss::Logistic, &three, 0.5).is_err());
        assert!(Threshold::given("squared-hinge".parse().unwrap(), &two, 1.1).is_ok());
        for given in [f64::NAN, f64::INFINITY] {
            assert!(Threshold::given("squared-hinge".parse().unwrap(), &two, given).is_err());
        }
        assert!(Threshold::given("squared".parse().unwrap(), &two, 0.5).is_err());
    }
}
