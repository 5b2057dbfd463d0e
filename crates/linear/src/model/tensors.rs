//! Safetensors: the tensor `weights` of f32, [vectors, features + bias], a tensor `means` of f32 [features] if there
//! are means; of a model of scaled features also `scale.factors` and, if features are shifted, `scale.shifts` of f64,
//! [features]; and the metadata key `pelton` with JSON text: version, loss, labels (none for a loss of real targets),
//! and if present cost, bias, `scaled`, factors on the cost by class, names of the labels, threshold and names of the
//! columns. One key, because the order of metadata keys in safetensors differs from run to run.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use pelton_format::{ClassMap, Scale, Schema};
use safetensors::{Dtype, SafeTensors, View};
use serde::{Deserialize, Serialize};

use super::contents::{Model, check_shape, first_repeated, malformed};
use crate::error::LinearError;
use crate::loss::Loss;
use crate::penalty::Penalty;
use crate::problem::is_usable_bias;
use crate::threshold::Threshold;
use crate::weights::Weights;

const KEY: &str = "pelton";
const WEIGHTS: &str = "weights";
const MEANS: &str = "means";
const FACTORS: &str = "scale.factors";
const SHIFTS: &str = "scale.shifts";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    version: u32,
    loss: String,
    /// Left out for ½‖w‖².
    #[serde(default, skip_serializing_if = "Option::is_none")]
    penalty: Option<String>,
    cost: Option<f64>,
    bias: Option<f32>,
    /// Whether the bias weight was not regularised; left out if it was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    free_bias: bool,
    /// Whether the weights are for scaled features; left out if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    scaled: bool,
    /// Factors on the cost by class; not written if all are 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    class_weights: Vec<f64>,
    labels: Vec<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
    /// The least score of the positive class; not written if the sign decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    threshold: Option<f64>,
    /// Added to predictions of targets; not written if 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    target_centre: f64,
    /// The columns behind the features; not written if they have no names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    columns: Option<Schema>,
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// A tensor to be written.
struct Numbers {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Numbers {
    /// The weights as one tensor.
    fn stacked(weights: &Weights) -> Numbers {
        let shape = vec![weights.subproblems(), weights.vector(0).len()];
        let mut bytes = Vec::with_capacity(4 * shape[0] * shape[1]);
        for subproblem in 0..shape[0] {
            for value in weights.vector(subproblem) {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
        Numbers {
            dtype: Dtype::F32,
            shape,
            bytes,
        }
    }

    fn narrow(values: &[f32]) -> Numbers {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes());
        Numbers {
            dtype: Dtype::F32,
            shape: vec![values.len()],
            bytes: bytes.collect(),
        }
    }

    fn wide(values: &[f64]) -> Numbers {
        Numbers {
            dtype: Dtype::F64,
            shape: vec![values.len()],
            bytes: values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        }
    }
}

impl View for &Numbers {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

pub(crate) fn write(model: &Model, out: &mut impl Write) -> std::io::Result<()> {
    let weights = &model.weights;
    let mut tensors = vec![(WEIGHTS, Numbers::stacked(weights))];
    if let Some(means) = &model.means {
        tensors.push((MEANS, Numbers::narrow(means)));
    }
    if let Some(scale) = &model.scale {
        tensors.push((FACTORS, Numbers::wide(scale.factors())));
        if scale.has_shifts() {
            tensors.push((SHIFTS, Numbers::wide(scale.shifts())));
        }
    }
    let about = About {
        version: VERSION,
        loss: model.loss.to_string(),
        penalty: (model.penalty != Penalty::L2).then(|| model.penalty.to_string()),
        cost: model.cost,
        bias: weights.bias(),
        free_bias: model.bias_is_free,
        scaled: model.scale.is_some(),
        class_weights: model.class_weights.clone(),
        labels: model.classes.values().to_vec(),
        names: model.classes.names().to_vec(),
        threshold: model.threshold.map(|threshold| threshold.score()),
        target_centre: model.target_centre,
        columns: model.columns.as_deref().cloned(),
    };
    let metadata = HashMap::from([(KEY.to_string(), serde_json::to_string(&about)?)]);
    let tensors = tensors.iter().map(|(name, tensor)| (*name, tensor));
    let bytes = safetensors::serialize(tensors, Some(metadata));
    out.write_all(&bytes.map_err(std::io::Error::other)?)
}

pub(crate) fn read(bytes: &[u8], path: &Path) -> Result<Model, LinearError> {
    let wrong = |found: String| malformed(path, None, found);
    // Checks that the tensors are in the file, in order and without gaps.
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| wrong(error.to_string()))?;
    let (_, metadata) =
        SafeTensors::read_metadata(bytes).map_err(|error| wrong(error.to_string()))?;
    let text = metadata.metadata().as_ref().and_then(|map| map.get(KEY));
    let text = text.ok_or_else(|| wrong(format!("no metadata key `{KEY}`")))?;
    let about: About = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    if about.version != VERSION {
        return Err(wrong(format!(
            "version {} instead of {VERSION}",
            about.version
        )));
    }
    let loss: Result<Loss, _> = about.loss.parse();
    let loss = loss.map_err(|_| wrong(format!("the loss `{}`", about.loss)))?;
    let penalty = about.penalty.as_deref().map_or(Ok(Penalty::L2), str::parse);
    let penalty = penalty.map_err(wrong)?;
    if about.bias.is_some_and(|bias| !is_usable_bias(bias)) {
        return Err(wrong(format!("the bias {:?}", about.bias)));
    }
    if let Some(label) = first_repeated(&about.labels) {
        return Err(wrong(format!("the label {label} twice")));
    }
    check_names(&about).map_err(wrong)?;
    check_weights(&about).map_err(wrong)?;
    let known = |name: &&str| [WEIGHTS, MEANS, FACTORS, SHIFTS].contains(name);
    if let Some(other) = tensors.names().into_iter().find(|name| !known(name)) {
        return Err(wrong(format!("a tensor `{other}` that no model has")));
    }

    let tensor = tensors
        .tensor(WEIGHTS)
        .map_err(|error| wrong(error.to_string()))?;
    let (&[vectors, length], Dtype::F32) = (tensor.shape(), tensor.dtype()) else {
        return Err(wrong(format!(
            "weights of {:?} {:?}",
            tensor.dtype(),
            tensor.shape()
        )));
    };
    let features = length.saturating_sub(usize::from(about.bias.is_some()));
    if let Some(columns) = &about.columns
        && columns.features() != Some(features)
    {
        return Err(wrong(format!(
            "columns that do not match {features} features"
        )));
    }
    if check_shape(path, None, (loss, about.labels.len()), features)? != vectors {
        return Err(wrong(format!(
            "{vectors} vectors for {} labels",
            about.labels.len()
        )));
    }
    let numbers = |bytes: &[u8]| -> Vec<f32> {
        let (values, _) = bytes.as_chunks::<4>();
        values
            .iter()
            .map(|&bytes| f32::from_le_bytes(bytes))
            .collect()
    };
    let vectors: Vec<Vec<f32>> = tensor.data().chunks(4 * length).map(numbers).collect();
    let stored_means = tensors.tensor(MEANS).ok();
    let mut means = None;
    if let Some(stored) = &stored_means {
        if (stored.shape(), stored.dtype()) != (&[features], Dtype::F32) {
            return Err(wrong(format!(
                "means of {:?} {:?}",
                stored.dtype(),
                stored.shape()
            )));
        }
        means = Some(numbers(stored.data()));
    }
    let mut all = vectors.iter().chain(&means).flatten();
    if all.any(|value| !value.is_finite()) {
        return Err(wrong("a weight that is not finite".to_string()));
    }
    let scale = if about.scaled {
        Some(scale(&tensors, features).ok_or_else(|| wrong("no valid scale".to_string()))?)
    } else {
        None
    };
    let classes = ClassMap::from_values(about.labels, about.names);
    let threshold = about
        .threshold
        .map(|score| Threshold::of_score(&classes, score));
    if threshold.is_some() && classes.len() != 2 {
        return Err(wrong("a threshold without two classes".to_string()));
    }
    if !about.target_centre.is_finite() || about.target_centre != 0.0 && !loss.has_real_targets() {
        return Err(wrong("a centre of targets that cannot be".to_string()));
    }
    Ok(Model {
        loss,
        cost: about.cost,
        class_weights: about.class_weights,
        classes,
        means,
        penalty,
        bias_is_free: about.free_bias && about.bias.is_some(),
        weights: Weights::from_vectors(features, about.bias, vectors),
        scale,
        threshold,
        target_centre: about.target_centre,
        columns: about.columns.map(Arc::new),
    })
}

/// Names are of the labels 0, 1, 2 …, one each.
fn check_names(about: &About) -> Result<(), String> {
    let names = &about.names;
    if names.is_empty() {
        return Ok(());
    }
    let numbered = (0..names.len()).map(|label| label as f64);
    if !numbered.eq(about.labels.iter().copied()) {
        return Err("names that do not match the labels 0, 1, 2 …".to_string());
    }
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(*name)) {
        Some(name) => Err(format!("the label {name:?} twice")),
        None => Ok(()),
    }
}

/// There are factors on the cost for all classes, or for none.
fn check_weights(about: &About) -> Result<(), String> {
    let (found, classes) = (about.class_weights.len(), about.labels.len());
    if ![0, classes].contains(&found) {
        return Err(format!("{found} factors on the cost of {classes} classes"));
    }
    let mut weights = about.class_weights.iter();
    match weights.find(|weight| !(**weight > 0.0 && weight.is_finite())) {
        Some(weight) => Err(format!("a factor of {weight} on the cost")),
        None => Ok(()),
    }
}

/// The scale of `features` features; `None` if it is missing or unusable.
fn scale(tensors: &SafeTensors<'_>, features: usize) -> Option<Scale> {
    let numbers = |name| {
        let tensor = tensors.tensor(name).ok()?;
        let fits = tensor.dtype() == Dtype::F64 && tensor.shape() == [features];
        let (values, _) = tensor.data().as_chunks::<8>();
        fits.then(|| {
            values
                .iter()
                .map(|&bytes| f64::from_le_bytes(bytes))
                .collect()
        })
    };
    let shifts = if tensors.names().contains(&SHIFTS) {
        numbers(SHIFTS)?
    } else {
        Vec::new()
    };
    Scale::new(numbers(FACTORS)?, shifts)
}
