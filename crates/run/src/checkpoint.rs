//! Checkpoints: one safetensors file, written to a temporary name and renamed, so that a run killed at
//! any moment finds a whole one.
//!
//! Tensors hold a state; the metadata holds the caller's text, and a checksum of that text and of the tensors
//! with their names. Memory: nothing beyond the state itself. The file is
//! written here and not by the `safetensors` crate, whose own temporary file has another mode and is
//! not synced; its reader checks what is read.

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use bytemuck::{AnyBitPattern, NoUninit};
use safetensors::tensor::{Dtype, SafeTensors};
use serde_json::{Value, json};

use crate::error::RunError;
use crate::run_folder::write_atomically;

/// Key of the text in the metadata.
pub(crate) const TEXT: &str = "pelton";
/// Key of the checksum in the metadata.
pub(crate) const CHECKSUM: &str = "crc32c_with_shapes";
/// The same of earlier versions, which did not cover types and shapes.
pub(crate) const EARLIER_CHECKSUM: &str = "crc32c";

/// A vector of numbers with its name.
#[derive(Debug)]
pub struct Tensor<'a> {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: &'a [u8],
}

impl<'a> Tensor<'a> {
    /// `values` under a name.
    pub fn new<T: NoUninit>(name: impl Into<String>, dtype: Dtype, values: &'a [T]) -> Tensor<'a> {
        Tensor {
            name: name.into(),
            dtype,
            shape: vec![values.len()],
            bytes: bytemuck::cast_slice(values),
        }
    }

    /// The same numbers as an array of this shape.
    #[must_use]
    pub fn shaped(mut self, shape: &[usize]) -> Tensor<'a> {
        let numbers: usize = self.shape.iter().product();
        assert_eq!(shape.iter().product::<usize>(), numbers, "a shape");
        self.shape = shape.to_vec();
        self
    }
}

/// Writes a checkpoint in place of the one before.
pub fn write_checkpoint(path: &Path, text: &str, tensors: Vec<Tensor<'_>>) -> Result<(), RunError> {
    write_atomically(path, |file| {
        let file = std::fs::OpenOptions::new().write(true).open(file)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        encode_checkpoint(&mut out, text, tensors)
    })
}

/// Writes the bytes of a checkpoint.
pub fn encode_checkpoint(
    out: &mut impl Write,
    text: &str,
    mut tensors: Vec<Tensor<'_>>,
) -> io::Result<()> {
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let parts = tensors.iter().map(|tensor| {
        let label = label(tensor.dtype, &tensor.shape);
        (tensor.name.as_str(), label, tensor.bytes)
    });
    let header = header(text, checksum(text, parts), &tensors);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    for tensor in &tensors {
        out.write_all(tensor.bytes)?;
    }
    out.flush()
}

/// What a checksum covers of a tensor's type and shape.
pub(crate) fn label(dtype: Dtype, shape: &[usize]) -> String {
    format!("{dtype:?}{shape:?}")
}

/// The checksum of the text and of the tensors, with their labels, in the order of their names.
fn checksum<'a>(text: &str, tensors: impl Iterator<Item = (&'a str, String, &'a [u8])>) -> u32 {
    let mut sum = Summed::new(text);
    for (name, label, bytes) in tensors {
        sum.begin(name, &label, bytes.len());
        sum.add(bytes);
    }
    sum.value()
}

/// A checksum on its way.
pub(crate) struct Summed(u32);

impl Summed {
    pub(crate) fn new(text: &str) -> Summed {
        Summed(crc32c::crc32c(text.as_bytes()))
    }

    /// The next tensor, of so many bytes, which follow.
    pub(crate) fn begin(&mut self, name: &str, label: &str, bytes: usize) {
        self.add(name.as_bytes());
        self.add(label.as_bytes());
        self.add(&(bytes as u64).to_le_bytes());
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    pub(crate) fn value(&self) -> u32 {
        self.0
    }
}

/// The header of a safetensors file with tensors in the order given.
fn header(text: &str, checksum: u32, tensors: &[Tensor<'_>]) -> String {
    let mut entries = serde_json::Map::new();
    let metadata = json!({ TEXT: text, CHECKSUM: format!("{checksum:08x}") });
    entries.insert("__metadata__".to_string(), metadata);
    let mut at = 0;
    for tensor in tensors {
        let end = at + tensor.bytes.len();
        let entry = json!({
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": [at, end],
        });
        entries.insert(tensor.name.clone(), entry);
        at = end;
    }
    let mut header = Value::Object(entries).to_string();
    // Readers that map the file want the numbers aligned.
    header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
    header
}

/// The bytes of a checkpoint's file.
pub fn read_checkpoint(path: &Path) -> Result<Vec<u8>, RunError> {
    pelton_storage::read_file(path).map_err(|error| unreadable(path, &error))
}

pub(crate) fn unreadable(path: &Path, error: &io::Error) -> RunError {
    RunError::Checkpoint {
        path: path.to_path_buf(),
        problem: format!("cannot be read: {error}"),
    }
}

/// A checkpoint that was read.
#[derive(Debug)]
pub struct Checkpoint<'a> {
    path: &'a Path,
    text: String,
    /// As the file states it.
    checksum: Option<u32>,
    /// Whether it covers types and shapes.
    covers_shapes: bool,
    file: SafeTensors<'a>,
}

impl<'a> Checkpoint<'a> {
    /// The contents of `bytes`, the file of `path`, without verifying the checksum.
    pub fn parse(bytes: &'a [u8], path: &'a Path) -> Result<Checkpoint<'a>, RunError> {
        let damaged = |what: &str| damaged(path, what);
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|_| damaged("header"))?;
        let metadata = header.metadata().as_ref();
        let key = |key| metadata.and_then(|metadata| metadata.get(key));
        Ok(Checkpoint {
            path,
            text: key(TEXT).ok_or_else(|| damaged("no progress"))?.clone(),
            checksum: key(CHECKSUM)
                .or_else(|| key(EARLIER_CHECKSUM))
                .and_then(|stated| u32::from_str_radix(stated, 16).ok().zip(Some(stated)))
                // Of letters, the case too: a bit that changed is found wherever it is.
                .and_then(|(sum, stated)| (*stated == format!("{sum:08x}")).then_some(sum)),
            covers_shapes: key(CHECKSUM).is_some(),
            file: SafeTensors::deserialize(bytes).map_err(|_| damaged("tensors"))?,
        })
    }

    /// The caller's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The checksum that the file states; 0 where it states none.
    pub fn checksum(&self) -> u32 {
        self.checksum.unwrap_or(0)
    }

    /// Errors: a checksum that does not fit.
    pub fn check(&self) -> Result<(), RunError> {
        let mut parts = self.file.tensors();
        parts.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let parts = parts.iter().map(|(name, tensor)| {
            let label = if self.covers_shapes {
                label(tensor.dtype(), tensor.shape())
            } else {
                String::new()
            };
            (name.as_str(), label, tensor.data())
        });
        if self.checksum == Some(checksum(&self.text, parts)) {
            Ok(())
        } else {
            Err(self.damaged("checksum"))
        }
    }

    /// Says that a part of it is damaged.
    pub fn damaged(&self, what: &str) -> RunError {
        damaged(self.path, what)
    }

    /// Says what does not fit.
    pub fn wrong(&self, problem: &str) -> RunError {
        RunError::Checkpoint {
            path: self.path.to_path_buf(),
            problem: problem.to_string(),
        }
    }

    /// Names and shapes of all arrays, in the order of the names.
    pub fn names(&self) -> Vec<(String, Vec<usize>)> {
        let mut all: Vec<(String, Vec<usize>)> = self
            .file
            .tensors()
            .into_iter()
            .map(|(name, tensor)| (name, tensor.shape().to_vec()))
            .collect();
        all.sort();
        all
    }

    /// The vectors `name.0`, `name.1` and so on.
    pub fn vectors(&self, name: &str) -> Result<Vec<Cow<'static, [f32]>>, RunError> {
        let mut vectors = Vec::new();
        while let Some(vector) = self.values(&format!("{name}.{}", vectors.len()), Dtype::F32)? {
            vectors.push(Cow::Owned(vector));
        }
        Ok(vectors)
    }

    /// The same with 8 bytes a number.
    pub fn wide_vectors(&self, name: &str) -> Result<Vec<Vec<f64>>, RunError> {
        let mut vectors = Vec::new();
        while let Some(vector) = self.values(&format!("{name}.{}", vectors.len()), Dtype::F64)? {
            vectors.push(vector);
        }
        Ok(vectors)
    }

    /// The vector of that name.
    pub fn required<T: AnyBitPattern + NoUninit>(
        &self,
        name: &str,
        dtype: Dtype,
    ) -> Result<Vec<T>, RunError> {
        self.values(name, dtype)?.ok_or_else(|| self.damaged(name))
    }

    /// The same, where there is one.
    pub fn values<T: AnyBitPattern + NoUninit>(
        &self,
        name: &str,
        dtype: Dtype,
    ) -> Result<Option<Vec<T>>, RunError> {
        let Ok(tensor) = self.file.tensor(name) else {
            return Ok(None);
        };
        if tensor.dtype() != dtype || tensor.data().len() % size_of::<T>() != 0 {
            return Err(self.damaged(name));
        }
        Ok(Some(bytemuck::pod_collect_to_vec(tensor.data())))
    }
}

pub(crate) fn damaged(path: &Path, what: &str) -> RunError {
    RunError::Checkpoint {
        path: path.to_path_buf(),
        problem: format!("is damaged ({what})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Found = (String, Vec<(String, Vec<usize>, Vec<u8>)>);

    /// All that a checkpoint says, once its checksum fits.
    fn read(bytes: &[u8]) -> Result<Found, RunError> {
        let file = Checkpoint::parse(bytes, Path::new("state"))?;
        file.check()?;
        let mut arrays = Vec::new();
        for (name, shape) in file.names() {
            let dtype = if name.starts_with("skip") {
                Dtype::U8
            } else {
                Dtype::F32
            };
            let values = match dtype {
                Dtype::U8 => file.required::<u8>(&name, dtype)?,
                _ => bytemuck::cast_slice(&file.required::<f32>(&name, dtype)?).to_vec(),
            };
            arrays.push((name, shape, values));
        }
        Ok((file.text().to_string(), arrays))
    }

    /// A file as earlier versions wrote it.
    #[test]
    fn a_checksum_without_shapes_is_read() {
        let values = [1.0_f32, 2.0];
        let tensors = [Tensor::new("w.0", Dtype::F32, &values).shaped(&[2, 1])];
        let parts = || {
            tensors
                .iter()
                .map(|of| (of.name.as_str(), String::new(), of.bytes))
        };
        let header = header("text", checksum("text", parts()), &tensors);
        let header = header.replace(CHECKSUM, EARLIER_CHECKSUM);
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(tensors[0].bytes);
        assert_eq!(read(&bytes).unwrap().0, "text");
        *bytes.last_mut().unwrap() ^= 1;
        assert!(read(&bytes).is_err());
    }

    #[test]
    fn any_damaged_bit_is_found() {
        let values = [1.0_f32, -2.5, 0.0, 3.0, 4.0, 5.0];
        let tensors = || {
            vec![
                Tensor::new("w.0", Dtype::F32, &values).shaped(&[2, 3]),
                Tensor::new("alpha.0", Dtype::F32, &values[..4]),
                Tensor::new("skip", Dtype::U8, &[0_u8, 1, 2]),
                Tensor::new("state.none", Dtype::F32, &values[..0]).shaped(&[0, 4]),
            ]
        };
        let mut good = Vec::new();
        encode_checkpoint(&mut good, "{\"version\":5}", tensors()).unwrap();
        let expected = read(&good).unwrap();
        for bit in 0..8 * good.len() {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // Blanks after the header may become other blanks.
            if let Ok(found) = read(&bad) {
                assert_eq!(found, expected, "bit {bit}");
            }
        }
    }
}
