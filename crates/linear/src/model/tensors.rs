//! Safetensors: one tensor `weights` of f32, [vectors, features + bias], and the metadata key `pelton`,
//! whose text is JSON: version, loss, labels, and cost and bias where there are some. One key, because
//! safetensors writes its metadata in an order that differs from run to run.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use safetensors::{Dtype, SafeTensors, View};
use serde::{Deserialize, Serialize};

use super::{Model, check_shape, malformed};
use crate::error::LinearError;
use crate::problem::Loss;
use crate::weights::Weights;

const KEY: &str = "pelton";
const TENSOR: &str = "weights";
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
    labels: Vec<f64>,
    /// CRC-32C of this text without it and of the weights' bytes; files that others made need not have
    /// it.
    #[serde(default)]
    crc32c: Option<u32>,
}

impl About {
    /// The checksum of what stands here besides it, and of the weights.
    fn checksum(&self, weights: &[u8]) -> serde_json::Result<u32> {
        let mut value = serde_json::to_value(self)?;
        value[CHECKSUM] = serde_json::Value::Null;
        let text = crc32c::crc32c(value.to_string().as_bytes());
        Ok(crc32c::crc32c_append(text, weights))
    }
}

/// The weights as one tensor.
struct Stacked<'a> {
    weights: &'a Weights,
    shape: [usize; 2],
}

impl View for Stacked<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let mut bytes = Vec::with_capacity(self.data_len());
        for subproblem in 0..self.weights.subproblems() {
            for value in self.weights.vector(subproblem) {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
        bytes.into()
    }

    fn data_len(&self) -> usize {
        4 * self.shape[0] * self.shape[1]
    }
}

pub(crate) fn write(model: &Model, out: &mut impl Write) -> std::io::Result<()> {
    let weights = &model.weights;
    let loss = LOSSES.iter().find(|(loss, _)| *loss == model.loss);
    let stacked = Stacked {
        weights,
        shape: [weights.subproblems(), weights.vector(0).len()],
    };
    let about = About {
        version: VERSION,
        loss: loss.map_or("", |(_, name)| name).to_string(),
        cost: model.cost,
        bias: weights.bias(),
        labels: model.labels.clone(),
        crc32c: None,
    };
    let about = About {
        crc32c: Some(about.checksum(&stacked.data())?),
        ..about
    };
    let metadata = HashMap::from([(KEY.to_string(), serde_json::to_string(&about)?)]);
    let bytes = safetensors::serialize([(TENSOR, stacked)], Some(metadata));
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
        .tensor(TENSOR)
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
    let fits = |stated| {
        about
            .checksum(tensor.data())
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
    })
}
