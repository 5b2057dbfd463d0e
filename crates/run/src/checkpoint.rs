//! Checkpoints: safetensors files, written to a temporary name and renamed.
//!
//! Tensors hold a state, the metadata the caller's text. A [manifest](crate::Manifest) has the digest of the file.
//! Memory: nothing beyond the state itself. This module writes the file: the writer of the `safetensors` crate uses a
//! temporary file with another mode and does not sync it. Its reader checks files when they are read.

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use bytemuck::{AnyBitPattern, NoUninit};
use safetensors::tensor::{Dtype, SafeTensors};
use serde_json::{Value, json};

use crate::atomically::write_atomically;
use crate::entry::{Digesting, Entry};
use crate::error::RunError;

/// Key of the text in the metadata.
pub(crate) const TEXT: &str = "pelton";

/// A vector of numbers with its name.
#[derive(Clone, Debug)]
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

/// Replaces the checkpoint; returns its entry in a manifest.
pub fn write_checkpoint(
    path: &Path,
    text: &str,
    tensors: Vec<Tensor<'_>>,
) -> Result<Entry, RunError> {
    let mut entry = Entry::default();
    write_atomically(path, |file| {
        let file = std::fs::OpenOptions::new().write(true).open(file)?;
        let mut out = Digesting::new(BufWriter::with_capacity(1 << 20, file));
        encode_checkpoint(&mut out, text, tensors)?;
        entry = out.finish().1;
        Ok(())
    })?;
    Ok(entry)
}

/// Writes the bytes of a checkpoint.
pub fn encode_checkpoint(
    out: &mut impl Write,
    text: &str,
    mut tensors: Vec<Tensor<'_>>,
) -> io::Result<()> {
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let header = header(text, &tensors);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    for tensor in &tensors {
        out.write_all(tensor.bytes)?;
    }
    out.flush()
}

/// The header of a safetensors file with tensors in the order given.
fn header(text: &str, tensors: &[Tensor<'_>]) -> String {
    let mut entries = serde_json::Map::new();
    entries.insert("__metadata__".to_string(), json!({ TEXT: text }));
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
    // Readers that map the file need aligned numbers.
    header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
    header
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
    file: SafeTensors<'a>,
}

impl<'a> Checkpoint<'a> {
    /// Parses `bytes`, the contents of the file at `path`.
    pub fn parse(bytes: &'a [u8], path: &'a Path) -> Result<Checkpoint<'a>, RunError> {
        let damaged = |what: &str| damaged(path, what);
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|_| damaged("header"))?;
        let metadata = header.metadata().as_ref();
        let text = metadata.and_then(|metadata| metadata.get(TEXT));
        Ok(Checkpoint {
            path,
            text: text.ok_or_else(|| damaged("no progress"))?.clone(),
            file: SafeTensors::deserialize(bytes).map_err(|_| damaged("tensors"))?,
        })
    }

    /// The caller's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The error for a damaged part.
    pub fn damaged(&self, what: &str) -> RunError {
        damaged(self.path, what)
    }

    /// The error for a mismatch.
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

    /// The vector with that name.
    pub fn required<T: AnyBitPattern + NoUninit>(
        &self,
        name: &str,
        dtype: Dtype,
    ) -> Result<Vec<T>, RunError> {
        self.values(name, dtype)?.ok_or_else(|| self.damaged(name))
    }

    /// The same; `None` if absent.
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
