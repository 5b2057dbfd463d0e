//! A trained model and its two file forms.
//!
//! Both appear whole, so a reader never sees half a model.

pub(crate) mod liblinear_text;
pub(crate) mod tensors;

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pelton_format::{ClassMap, Scale, Schema};
use pelton_storage::WholeFile;

use crate::error::LinearError;
use crate::loss::Loss;
use crate::problem::Problem;
use crate::weights::Weights;

/// Weights with what is needed to use them.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The loss it was trained with.
    pub loss: Loss,
    /// The cost it was trained with, where known: LIBLINEAR's format does not say.
    pub cost: Option<f64>,
    /// Factor on the cost of each class; empty where all are 1, and in LIBLINEAR's format, which does not say.
    pub class_weights: Vec<f64>,
    /// The classes; LIBLINEAR's format does not hold their names.
    pub classes: ClassMap,
    /// What stands for a missing value of each feature, where means do; LIBLINEAR's format does not hold
    /// them.
    pub means: Option<Vec<f32>>,
    /// The weights: one vector for two classes, else one a class.
    pub weights: Weights,
    /// The scale of the features that the weights are for; `None` where rows are taken as they are.
    pub scale: Option<Scale>,
    /// The columns that the features come from, where they had names; LIBLINEAR's format does not hold them.
    pub columns: Option<Arc<Schema>>,
}

/// Most features times vectors that a model file may claim: 2^33 weights, 32 GiB.
const MOST_WEIGHTS: u64 = 1 << 33;

impl Model {
    /// The problem that it solves, at cost 1 where its cost is not known.
    pub fn problem(&self) -> Result<Problem, LinearError> {
        let features = self.weights.features();
        let cost = self.cost.unwrap_or(1.0);
        let mut problem = Problem::new(self.loss, cost, features, self.classes.len())?;
        if let Some(bias) = self.weights.bias() {
            problem = problem.with_bias(bias)?;
        }
        for (class, &weight) in (0..).zip(&self.class_weights) {
            problem = problem.with_class_weight(class, weight)?;
        }
        Ok(problem)
    }

    /// Writes LIBLINEAR's text format, which its `predict` reads. Labels must be whole numbers, for
    /// LIBLINEAR writes and reads them as integers. It knows no scale, so the weights written are for rows
    /// as they are; where these need a bias that the model lacks, it is 1. Ends without a file where `asked` is set
    /// meanwhile.
    pub fn write_liblinear(&self, path: &Path, asked: &AtomicBool) -> Result<(), LinearError> {
        let labels = liblinear_text::integer_labels(self, path)?;
        write_whole(path, asked, |out| liblinear_text::write(self, &labels, out))
    }

    /// Reads LIBLINEAR's text format.
    pub fn read_liblinear(path: &Path) -> Result<Model, LinearError> {
        let file = open(path)?;
        liblinear_text::read(std::io::BufReader::new(file), path)
    }

    /// Coefficients of the features as they come, and the intercept: the scale and the value of the bias are
    /// multiplied in.
    pub fn coefficients(&self, subproblem: usize) -> (Vec<f64>, f64) {
        let (weights, bias) = (self.weights.vector(subproblem)).split_at(self.weights.features());
        let mut coefficients: Vec<f64> = weights.iter().map(|&weight| f64::from(weight)).collect();
        let mut intercept = match (bias, self.weights.bias()) {
            ([weight], Some(bias)) => f64::from(*weight) * f64::from(bias),
            _ => 0.0,
        };
        if let Some(scale) = &self.scale {
            for (coefficient, factor) in coefficients.iter_mut().zip(scale.factors()) {
                *coefficient *= factor;
            }
            let shifts = coefficients.iter().zip(scale.shifts());
            intercept -= shifts
                .map(|(coefficient, shift)| coefficient * shift)
                .sum::<f64>();
        }
        (coefficients, intercept)
    }

    /// Writes safetensors: `weights` [vectors, features + bias], f32, `scale.factors` and `scale.shifts`
    /// of as many f64 as there are features, where there are some, the rest as metadata. Ends without a file where `asked` is set meanwhile.
    pub fn write_safetensors(&self, path: &Path, asked: &AtomicBool) -> Result<(), LinearError> {
        write_whole(path, asked, |out| tensors::write(self, out))
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

/// The first label that stands in a list a second time.
fn first_repeated(labels: &[f64]) -> Option<f64> {
    let mut seen = HashSet::new();
    // -0 is 0.
    let mut labels = labels.iter().map(|label| label + 0.0);
    labels.find(|label| !seen.insert(label.to_bits()))
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
    asked: &AtomicBool,
    write: impl FnOnce(&mut BufWriter<Unless<'_>>) -> std::io::Result<()>,
) -> Result<(), LinearError> {
    let file = WholeFile::create(path).map_err(io("write", path))?;
    let file = Unless {
        file,
        asked,
        unsynced: 0,
    };
    let mut out = BufWriter::with_capacity(1 << 16, file);
    let written = write(&mut out);
    let written = written.and_then(|()| out.into_inner().map_err(|error| error.into_error()));
    let published = written.and_then(|out| out.file.publish());
    published.map_err(|error| {
        if asked.load(Ordering::Relaxed) {
            LinearError::Interrupted { undone: true }
        } else {
            io("write", path)(error)
        }
    })
}

/// A file whose writing ends with an error when `asked` is set. What is written is synced piece by piece: at
/// the end nothing could interrupt it.
struct Unless<'a> {
    file: WholeFile,
    asked: &'a AtomicBool,
    unsynced: usize,
}

impl Write for Unless<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        const PIECE: usize = 16 << 20;
        if self.asked.load(Ordering::Relaxed) {
            return Err(std::io::Error::other("interrupted"));
        }
        let written = self.file.write(bytes)?;
        self.unsynced += written;
        if self.unsynced >= PIECE {
            self.file.sync()?;
            self.unsynced = 0;
        }
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}
