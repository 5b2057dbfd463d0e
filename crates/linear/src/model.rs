//! A trained model and its two file forms.
//!
//! Both appear whole, so a reader never sees half a model.

pub(crate) mod liblinear_text;
pub(crate) mod tensors;

use std::fs::File;
use std::io::{BufWriter, Read};
use std::path::Path;

use pelton_format::Scale;
use pelton_storage::WholeFile;

use crate::error::LinearError;
use crate::problem::Loss;
use crate::weights::Weights;

/// Weights with what is needed to use them.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The loss it was trained with.
    pub loss: Loss,
    /// The cost it was trained with, where known: LIBLINEAR's format does not say.
    pub cost: Option<f64>,
    /// Label of each class, in class order.
    pub labels: Vec<f64>,
    /// The weights: one vector for two classes, else one a class.
    pub weights: Weights,
    /// The scale of the features that the weights are for; `None` where rows are taken as they are.
    pub scale: Option<Scale>,
}

/// Most features times vectors that a model file may claim: 2^33 weights, 32 GiB.
const MOST_WEIGHTS: u64 = 1 << 33;

impl Model {
    /// Writes LIBLINEAR's text format, which its `predict` reads. Labels must be whole numbers, for
    /// LIBLINEAR writes and reads them as integers. It knows no scale, so the weights written are for rows
    /// as they are; where these need a bias that the model lacks, it is 1.
    pub fn write_liblinear(&self, path: &Path) -> Result<(), LinearError> {
        let labels = liblinear_text::integer_labels(self, path)?;
        write_whole(path, |out| liblinear_text::write(self, &labels, out))
    }

    /// Reads LIBLINEAR's text format.
    pub fn read_liblinear(path: &Path) -> Result<Model, LinearError> {
        let file = open(path)?;
        liblinear_text::read(std::io::BufReader::new(file), path)
    }

    /// Writes safetensors: `weights` [vectors, features + bias], f32, `scale.factors` and `scale.shifts`
    /// [features], f64, where there are some, the rest as metadata.
    pub fn write_safetensors(&self, path: &Path) -> Result<(), LinearError> {
        write_whole(path, |out| tensors::write(self, out))
    }

    /// Reads safetensors.
    pub fn read_safetensors(path: &Path) -> Result<Model, LinearError> {
        let mut bytes = Vec::new();
        open(path)?
            .read_to_end(&mut bytes)
            .map_err(io("read", path))?;
        tensors::read(&bytes, path, true)
    }
}

/// Opens a regular file: to open a pipe is to wait for its writer, and a device need not end.
fn open(path: &Path) -> Result<File, LinearError> {
    let status = std::fs::metadata(path).map_err(io("read", path))?;
    if !status.is_file() {
        let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is no regular file");
        return Err(io("read", path)(error));
    }
    File::open(path).map_err(io("read", path))
}

/// Checks sizes that a file claims before anything is allocated for them.
fn check_shape(
    path: &Path,
    line: Option<u64>,
    classes: usize,
    features: usize,
) -> Result<usize, LinearError> {
    let vectors = if classes == 2 { 1 } else { classes };
    let weights = (vectors as u64).checked_mul(features as u64 + 1);
    if classes < 2 || features == 0 || weights.is_none_or(|weights| weights > MOST_WEIGHTS) {
        return Err(malformed(path, line, "sizes that no model can have"));
    }
    Ok(vectors)
}

fn malformed(path: &Path, line: Option<u64>, found: impl Into<String>) -> LinearError {
    LinearError::MalformedModel {
        path: path.to_path_buf(),
        place: line.map_or_else(
            || "in its header".to_string(),
            |line| format!("at line {line}"),
        ),
        found: found.into(),
    }
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> LinearError {
    let path = path.to_path_buf();
    move |source| LinearError::Io {
        action,
        path,
        source,
    }
}

/// Writes a file whole or not at all.
fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<WholeFile>) -> std::io::Result<()>,
) -> Result<(), LinearError> {
    let file = WholeFile::create(path).map_err(io("write", path))?;
    let mut out = BufWriter::with_capacity(1 << 16, file);
    write(&mut out).map_err(io("write", path))?;
    let file = out.into_inner();
    let published = file.map_err(|error| error.into_error());
    published
        .and_then(WholeFile::publish)
        .map_err(io("write", path))
}
