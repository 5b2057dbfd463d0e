//! The contents of a model, and the checks shared by its file formats.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use pelton_format::{ClassMap, Scale, Schema};

use crate::error::LinearError;
use crate::loss::Loss;
use crate::penalty::Penalty;
use crate::threshold::Threshold;
use crate::weights::Weights;

/// Weights, and everything needed to use them.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The loss it was trained with.
    pub loss: Loss,
    /// The penalty it was trained with.
    pub penalty: Penalty,
    /// The cost of training, if known: LIBLINEAR's format does not hold it.
    pub cost: Option<f64>,
    /// Factor on the cost of each class; empty if all are 1, and from LIBLINEAR's format, which does not hold them.
    pub class_weights: Vec<f64>,
    /// The classes, empty for a loss of real targets; LIBLINEAR's format does not hold their names.
    pub classes: ClassMap,
    /// The replacement for a missing value of each feature, if it is the mean; LIBLINEAR's format does not hold
    /// them.
    pub means: Option<Vec<f32>>,
    /// Whether the bias weight was not regularised.
    pub bias_is_free: bool,
    /// The weights: one vector for two classes or real targets, else one a class.
    pub weights: Weights,
    /// The scale of the features; `None` if they are not scaled.
    pub scale: Option<Scale>,
    /// The threshold between two classes, if not the sign; LIBLINEAR's format does not hold it.
    pub threshold: Option<Threshold>,
    /// Subtracted from targets in training and added to predictions; 0 for classes.
    pub target_centre: f64,
    /// The columns behind the features, if they had names; LIBLINEAR's format does not hold them.
    pub columns: Option<Arc<Schema>>,
}

/// Most features times vectors that a model file may claim: 2^33 weights, 32 GiB.
const MOST_WEIGHTS: u64 = 1 << 33;

/// Checks sizes that a file claims before anything is allocated for them; returns the number of vectors.
pub(super) fn check_shape(
    path: &Path,
    line: Option<u64>,
    (loss, classes): (Loss, usize),
    features: usize,
) -> Result<usize, LinearError> {
    if loss.has_real_targets() && classes > 0 {
        return Err(malformed(
            path,
            line,
            format!("labels of a model of loss {loss}, which has none"),
        ));
    }
    // A target is as one of two classes.
    let classes = if loss.has_real_targets() { 2 } else { classes };
    let vectors = if classes == 2 { 1 } else { classes };
    let weights = (vectors as u64).checked_mul(features as u64 + 1);
    if classes < 2 || features == 0 || weights.is_none_or(|weights| weights > MOST_WEIGHTS) {
        return Err(malformed(path, line, "sizes that no model can have"));
    }
    Ok(vectors)
}

/// The first label that occurs twice in a list.
pub(super) fn first_repeated(labels: &[f64]) -> Option<f64> {
    let mut seen = HashSet::new();
    // -0 is 0.
    let mut labels = labels.iter().map(|label| label + 0.0);
    labels.find(|label| !seen.insert(label.to_bits()))
}

pub(super) fn malformed(path: &Path, line: Option<u64>, found: impl Into<String>) -> LinearError {
    LinearError::MalformedModel {
        path: path.to_path_buf(),
        place: line.map_or_else(
            || "in its header".to_string(),
            |line| format!("at line {line}"),
        ),
        found: found.into(),
    }
}

pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> LinearError {
    let path = path.to_path_buf();
    move |source| LinearError::Io {
        action,
        path,
        source,
    }
}
