//! A trained model and its two file forms.
//!
//! Both appear whole, so a reader never sees half a model.

mod contents;
pub(crate) mod liblinear_text;
pub(crate) mod tensors;

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use pelton_storage::WholeFile;

pub use contents::Model;
use contents::io;

use crate::error::LinearError;
use crate::problem::Problem;

impl Model {
    /// The problem that it solves, at cost 1 if its cost is unknown.
    pub fn problem(&self) -> Result<Problem, LinearError> {
        let features = self.weights.features();
        let cost = self.cost.unwrap_or(1.0);
        let mut problem = Problem::new(self.loss, cost, features, self.classes.len())?
            .with_penalty(self.penalty)?;
        if let Some(bias) = self.weights.bias() {
            problem = problem.with_bias(bias)?;
        }
        if self.bias_is_free {
            problem = problem.with_free_bias();
        }
        let offset = self.columns.as_ref().and_then(|columns| columns.offset());
        if let Some(offset) = offset.filter(|offset| *offset < features) {
            problem = problem.with_offset(offset)?;
        }
        for (class, &weight) in (0..).zip(&self.class_weights) {
            problem = problem.with_class_weight(class, weight)?;
        }
        Ok(problem)
    }

    /// Whether LIBLINEAR's format has its loss and penalty.
    pub fn is_in_liblinear(&self) -> bool {
        !liblinear_text::solvers(self.loss, self.penalty).is_empty()
    }

    /// Writes LIBLINEAR's text format, which its `predict` reads. Labels must be integers, as in LIBLINEAR. The format
    /// has no scale, so the weights written are for unscaled rows; if these need a bias that the model lacks, it is 1.
    /// Stops without a file if `asked` is set meanwhile.
    pub fn write_liblinear(&self, path: &Path, asked: &AtomicBool) -> Result<(), LinearError> {
        let labels = liblinear_text::integer_labels(self, path)?;
        write_whole(path, asked, |out| liblinear_text::write(self, &labels, out))
    }

    /// Reads LIBLINEAR's text format.
    pub fn read_liblinear(path: &Path) -> Result<Model, LinearError> {
        let file = open(path)?;
        liblinear_text::read(std::io::BufReader::new(file), path)
    }

    /// Coefficients for unscaled features, and the intercept: the scale and the value of the bias are
    /// multiplied in, and the centre of targets is added.
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
        (coefficients, intercept + self.target_centre)
    }

    /// Writes safetensors: `weights` [vectors, features + bias], f32, if features are scaled `scale.factors` and
    /// `scale.shifts` \[features\], f64, the rest as metadata. Stops without a file if `asked` is set meanwhile.
    pub fn write_safetensors(&self, path: &Path, asked: &AtomicBool) -> Result<(), LinearError> {
        write_whole(path, asked, |out| tensors::write(self, out))
    }

    /// Reads safetensors.
    pub fn read_safetensors(path: &Path) -> Result<Model, LinearError> {
        let mut bytes = Vec::new();
        open(path)?
            .read_to_end(&mut bytes)
            .map_err(io("read", path))?;
        Model::parse_safetensors(&bytes, path)
    }

    /// The same of the bytes of a file.
    pub fn parse_safetensors(bytes: &[u8], path: &Path) -> Result<Model, LinearError> {
        tensors::read(bytes, path)
    }
}

/// Opens a regular file: opening a pipe would wait for its writer, and a device may never end.
fn open(path: &Path) -> Result<File, LinearError> {
    let status = std::fs::metadata(path).map_err(io("read", path))?;
    if !status.is_file() {
        let error =
            std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is not a regular file");
        return Err(io("read", path)(error));
    }
    pelton_storage::open_file(path).map_err(io("read", path))
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

/// A file that returns an error from writes once `asked` is set. Data is synced piece by piece, since one sync at the
/// end could not be interrupted.
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
