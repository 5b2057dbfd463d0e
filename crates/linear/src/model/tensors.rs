//! Safetensors: the tensor `weights` of f32, [vectors, features + bias]; of a model of scaled features also
//! `scale.factors` and, where features are shifted, `scale.shifts` of f64, [features]; and the metadata key `pelton`,
//! whose text is JSON: version, loss, labels, and cost, bias and `scaled` where there are some. One key, because
//! safetensors writes its metadata in an order that differs from run to run.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use pelton_format::Scale;
use safetensors::{Dtype, SafeTensors, View};
use serde::{Deserialize, Serialize};

use super::{Model, check_shape, malformed};
use crate::error::LinearError;
use crate::problem::Loss;
use crate::weights::Weights;

const KEY: &str = "pelton";
const WEIGHTS: &str = "weights";
const FACTORS: &str = "scale.factors";
const SHIFTS: &str = "scale.shifts";
const VERSION: u32 = 1;
const CHECKSUM: &str = "crc32c";
const LOSSES: [(Loss, &str); 3] = [
    (Loss::Hinge, "l1"),
    (Loss::SquaredHinge, "l2"),
    (Loss::Logistic, "logistic"),
];

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    version: u32,
    loss: String,
    cost: Option<f64>,
    bias: Option<f32>,
    /// Whether the weights are for scaled features; not written where they are not, as before there were scales.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    scaled: bool,
    labels: Vec<f64>,
    /// CRC-32C of this text without it and of the tensors' bytes; files that others made need not have
    /// it.
    #[serde(default)]
    crc32c: Option<u32>,
}

impl About {
    /// The checksum of what stands here besides it, and of the tensors in order.
    fn checksum<'a>(&self, tensors: impl Iterator<Item = &'a [u8]>) -> serde_json::Result<u32> {
        let mut value = serde_json::to_value(self)?;
        value[CHECKSUM] = serde_json::Value::Null;
        let text = crc32c::crc32c(value.to_string().as_bytes());
        Ok(tensors.fold(text, crc32c::crc32c_append))
    }
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
    let loss = LOSSES.iter().find(|(loss, _)| *loss == model.loss);
    let mut tensors = vec![(WEIGHTS, Numbers::stacked(weights))];
    if let Some(scale) = &model.scale {
        tensors.push((FACTORS, Numbers::wide(scale.factors())));
        if scale.has_shifts() {
            tensors.push((SHIFTS, Numbers::wide(scale.shifts())));
        }
    }
    let about = About {
        version: VERSION,
        loss: loss.map_or("", |(_, name)| name).to_string(),
        cost: model.cost,
        bias: weights.bias(),
        scaled: model.scale.is_some(),
        labels: model.labels.clone(),
        crc32c: None,
    };
    let bytes = tensors.iter().map(|(_, tensor)| tensor.bytes.as_slice());
    let about = About {
        crc32c: Some(about.checksum(bytes)?),
        ..about
    };
    let metadata = HashMap::from([(KEY.to_string(), serde_json::to_string(&about)?)]);
    let tensors = tensors.iter().map(|(name, tensor)| (*name, tensor));
    let bytes = safetensors::serialize(tensors, Some(metadata));
    out.write_all(&bytes.map_err(std::io::Error::other)?)
}

pub(crate) fn read(bytes: &[u8], path: &Path, checked: bool) -> Result<Model, LinearError> {
    let wrong = |found: String| malformed(path, None, found);
    // Checks that the tensors lie in the file, in order and without gaps.
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
    let loss = LOSSES.iter().find(|(_, name)| *name == about.loss);
    let loss = loss
        .ok_or_else(|| wrong(format!("the loss `{}`", about.loss)))?
        .0;
    if about
        .bias
        .is_some_and(|bias| !bias.is_finite() || bias <= 0.0)
    {
        return Err(wrong(format!("the bias {:?}", about.bias)));
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
    if check_shape(path, None, about.labels.len(), features)? != vectors {
        return Err(wrong(format!(
            "{vectors} vectors for {} labels",
            about.labels.len()
        )));
    }
    let (values, _) = tensor.data().as_chunks::<4>();
    let values = values.chunks(length).map(|vector| {
        let numbers = vector.iter().map(|&bytes| f32::from_le_bytes(bytes));
        numbers.collect::<Vec<f32>>()
    });
    let vectors: Vec<Vec<f32>> = values.collect();
    if vectors.iter().flatten().any(|value| !value.is_finite()) {
        return Err(wrong("a weight that is no finite number".to_string()));
    }
    let scale = match about.scaled {
        true => Some(scale(&tensors, features).ok_or_else(|| wrong("no sound scale".to_string()))?),
        false => None,
    };
    let parts = [WEIGHTS, FACTORS, SHIFTS].map(|name| tensors.tensor(name).ok());
    let fits = |stated| {
        about
            .checksum(parts.iter().flatten().map(|part| part.data()))
            .is_ok_and(|found| found == stated)
    };
    if checked && !about.crc32c.is_none_or(fits) {
        return Err(wrong("weights that do not have its checksum".to_string()));
    }
    Ok(Model {
        loss,
        cost: about.cost,
        labels: about.labels,
        weights: Weights::from_vectors(features, about.bias, vectors),
        scale,
    })
}

/// The scale of `features` features; `None` where it is not there or unusable.
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
    let shifts = match tensors.names().contains(&SHIFTS) {
        true => numbers(SHIFTS)?,
        false => Vec::new(),
    };
    Scale::new(numbers(FACTORS)?, shifts)
}
