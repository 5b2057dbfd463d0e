//! Entry points over plain bytes, for fuzzing; no part of the interface.

use std::path::Path;

use crate::error::LinearError;
use crate::model::{Model, liblinear_text, tensors};

/// Reads a model in LIBLINEAR's text format.
pub fn read_liblinear(bytes: &[u8]) -> Result<Model, LinearError> {
    liblinear_text::read(bytes, Path::new("memory"))
}

/// Reads a model in safetensors.
pub fn read_safetensors(bytes: &[u8]) -> Result<Model, LinearError> {
    tensors::read(bytes, Path::new("memory"))
}

/// The model as safetensors.
pub fn write_safetensors(model: &Model) -> Vec<u8> {
    let mut bytes = Vec::new();
    tensors::write(model, &mut bytes).expect("memory takes any bytes");
    bytes
}

/// The model in LIBLINEAR's text format; its labels must be whole numbers.
pub fn write_liblinear(model: &Model) -> Vec<u8> {
    let mut bytes = Vec::new();
    let path = Path::new("memory");
    let labels = liblinear_text::integer_labels(model, path).expect("whole numbers");
    liblinear_text::write(model, &labels, &mut bytes).expect("memory takes any bytes");
    bytes
}
