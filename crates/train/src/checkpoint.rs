//! Checkpoints of a linear run: one safetensors file, written to a temporary name and renamed, so
//! that a run killed at any moment finds a whole one.
//!
//! Tensors hold the solver's state; the metadata holds, as one JSON text, where the feed stands,
//! which data and plan the state belongs to and the figures so far, and beside it a checksum of that
//! text and of the tensors with their names. Memory: nothing beyond the state itself. The file is
//! written here and not by the `safetensors` crate, whose own temporary file has another mode and is
//! not synced; its reader checks what is read.

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use pelton_data::as_text;
use pelton_feed::Cursor;
use pelton_linear::{DualBound, SavedCodes, SavedNewton, SavedState, Scaling};
use pelton_run::{EpochRecord, write_atomically};
use safetensors::tensor::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::TrainError;

const VERSION: u32 = 5;

/// Key of the progress in the metadata.
const PROGRESS: &str = "pelton";
/// Key of the checksum in the metadata.
const CHECKSUM: &str = "crc32c";

/// The state of a solver.
#[derive(Clone, Debug, PartialEq)]
pub enum State<'a> {
    /// Of coordinate descent.
    Descent(Box<SavedState<'a>>),
    /// Of Newton's method.
    Newton(SavedNewton<'a>),
}

/// Everything of a checkpoint that is not a tensor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Version of the layout.
    pub version: u32,
    /// Fingerprint of the data set.
    pub data: u64,
    /// Fingerprint of the plan.
    pub plan: u64,
    /// Ranks of the run.
    pub ranks: u64,
    /// Blocks of its epochs.
    pub blocks: u64,
    /// Whether weights go by features numbered by frequency.
    pub numbered: bool,
    /// How features are scaled.
    #[serde(with = "as_text")]
    pub scale: Scaling,
    /// Whether rows are read from a packed copy, whose records have other lengths.
    pub packed: bool,
    /// Epoch of the next batch.
    pub cursor_epoch: u64,
    /// The next batch of that epoch: as many are done.
    pub next: u64,
    /// The solver's present epoch.
    pub epoch: u64,
    /// Whether the present epoch has begun.
    pub in_epoch: bool,
    /// Whether the present epoch reads every row.
    pub reads_all: bool,
    /// Sum of gaps of the present epoch.
    pub gap: f64,
    /// Visits, rows and passes of the present epoch.
    pub counters: [u64; 3],
    /// Blocks whose w was added to the mean of the present epoch.
    pub mean_blocks: u64,
    /// Rows whose snapshot losses were added, and how many are predicted right.
    pub snapshot_rows: (u64, u64),
    /// Rows added to the lower bound of the present epoch.
    pub bound_additions: u64,
    /// Estimated gap below which the next certificate is tried.
    pub attempt_below: f64,
    /// Seconds of training so far.
    pub wall_s: f64,
    /// Totals so far.
    pub totals: Totals,
    /// Records of the epochs so far.
    pub epochs: Vec<EpochRecord>,
    /// The access path: it has a part in how large blocks are.
    pub access: String,
    /// Checksum of the whole checkpoint, which stands beside this text: found when it is read,
    /// computed when it is written.
    #[serde(skip)]
    pub checksum: u32,
}

/// Figures that add up over the sessions of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Seconds during which data was loaded.
    pub load_s: f64,
    /// Seconds of computing.
    pub compute_s: f64,
    /// Seconds of both at once.
    pub overlap_s: f64,
    /// Seconds the solver waited.
    pub wait_s: f64,
    /// Seconds spent preparing.
    pub prepare_s: f64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes used.
    pub used_bytes: u64,
    /// Bytes written to scratch files.
    pub written_bytes: u64,
    /// Visits of the solver.
    pub visits: u64,
    /// Rows trained on or evaluated; loaded ones that were not used do not count.
    pub rows: u64,
    /// Records that could not be read or decoded. Every pass meets the same ones, so the larger count is
    /// taken, not the sum.
    pub skipped_records: u64,
    /// Bytes that ranks sent to one another.
    pub communication_bytes: u64,
    /// Seconds that each waited for others.
    pub communication_s: f64,
}

impl Totals {
    /// Both added up.
    pub fn plus(&self, other: &Totals) -> Totals {
        Totals {
            load_s: self.load_s + other.load_s,
            compute_s: self.compute_s + other.compute_s,
            overlap_s: self.overlap_s + other.overlap_s,
            wait_s: self.wait_s + other.wait_s,
            prepare_s: self.prepare_s + other.prepare_s,
            read_bytes: self.read_bytes + other.read_bytes,
            used_bytes: self.used_bytes + other.used_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
            visits: self.visits + other.visits,
            rows: self.rows + other.rows,
            skipped_records: self.skipped_records.max(other.skipped_records),
            communication_bytes: self.communication_bytes + other.communication_bytes,
            communication_s: self.communication_s + other.communication_s,
        }
    }
}

impl Progress {
    /// Where the feed goes on.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            epoch: self.cursor_epoch,
            next: self.next,
        }
    }
}

/// A vector of numbers with its name.
struct Tensor<'a> {
    name: String,
    dtype: Dtype,
    length: usize,
    bytes: &'a [u8],
}

fn tensor<T: bytemuck::NoUninit>(
    name: impl Into<String>,
    dtype: Dtype,
    values: &[T],
) -> Tensor<'_> {
    Tensor {
        name: name.into(),
        dtype,
        length: values.len(),
        bytes: bytemuck::cast_slice(values),
    }
}

/// Writes a checkpoint in place of the one before.
pub fn write(path: &Path, progress: &Progress, state: &State<'_>) -> Result<(), TrainError> {
    write_atomically(path, |file| {
        let file = std::fs::OpenOptions::new().write(true).open(file)?;
        encode(
            &mut BufWriter::with_capacity(1 << 20, file),
            progress,
            state,
        )
    })?;
    Ok(())
}

/// Writes the bytes of a checkpoint.
pub(crate) fn encode(
    out: &mut impl Write,
    progress: &Progress,
    state: &State<'_>,
) -> io::Result<()> {
    let progress = Progress {
        version: VERSION,
        ..progress.clone()
    };
    let text = serde_json::to_string(&progress).expect("plain figures are representable");
    let mut tensors = match state {
        State::Descent(state) => tensors(state),
        State::Newton(state) => newton_tensors(state),
    };
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let parts = tensors
        .iter()
        .map(|tensor| (tensor.name.as_str(), tensor.bytes));
    let header = header(&text, checksum(&text, parts), &tensors);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    for tensor in &tensors {
        out.write_all(tensor.bytes)?;
    }
    out.flush()
}

/// The checksum of the progress and of the tensors, which come in the order of their names.
fn checksum<'a>(text: &str, tensors: impl Iterator<Item = (&'a str, &'a [u8])>) -> u32 {
    tensors.fold(crc32c::crc32c(text.as_bytes()), |crc, (name, bytes)| {
        let length = (bytes.len() as u64).to_le_bytes();
        [name.as_bytes(), &length, bytes]
            .into_iter()
            .fold(crc, crc32c::crc32c_append)
    })
}

/// The header of a safetensors file whose tensors follow one another in the order given.
fn header(text: &str, checksum: u32, tensors: &[Tensor<'_>]) -> String {
    let mut entries = serde_json::Map::new();
    let metadata = json!({ PROGRESS: text, CHECKSUM: format!("{checksum:08x}") });
    entries.insert("__metadata__".to_string(), metadata);
    let mut at = 0;
    for tensor in tensors {
        let end = at + tensor.bytes.len();
        let entry = json!({
            "dtype": tensor.dtype,
            "shape": [tensor.length],
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

fn tensors<'a>(state: &'a SavedState<'_>) -> Vec<Tensor<'a>> {
    let mut tensors = Vec::new();
    let vectors = [
        ("w", Some(&state.weights)),
        ("alpha", Some(&state.alpha)),
        ("snapshot", state.snapshot.as_ref()),
        ("mean", state.mean.as_ref()),
    ];
    for (name, vectors) in vectors {
        for (number, vector) in vectors.into_iter().flatten().enumerate() {
            tensors.push(tensor(format!("{name}.{number}"), Dtype::F32, vector));
        }
    }
    if let Some(coded) = &state.coded {
        tensors.push(tensor("coded.quantizer", Dtype::F32, &coded.quantizer));
        tensors.push(tensor("coded.ids", Dtype::U64, &coded.ids));
        tensors.push(tensor("coded.slack", Dtype::F32, &coded.slack));
        tensors.push(tensor("coded.residuals", Dtype::F32, &coded.residuals));
        for (number, before) in coded.before.iter().enumerate() {
            tensors.push(tensor(format!("coded.before.{number}"), Dtype::F32, before));
        }
    }
    if let Some(bound) = &state.bound {
        for (number, sum) in bound.sums.iter().enumerate() {
            tensors.push(tensor(format!("bound.{number}"), Dtype::F64, sum));
        }
        let figures = bound.figures.as_flattened();
        tensors.push(tensor("bound_figures", Dtype::F64, figures));
    }
    tensors.push(tensor("terms", Dtype::F64, &state.terms));
    tensors.push(tensor("snapshot_loss", Dtype::F64, &state.snapshot_loss));
    if let Some(skip) = &state.skip {
        tensors.push(tensor("skip", Dtype::U8, skip));
    }
    tensors
}

fn newton_tensors<'a>(state: &'a SavedNewton<'_>) -> Vec<Tensor<'a>> {
    let points = state.points.iter().enumerate();
    let points = points.map(|(k, point)| tensor(format!("newton.{k}"), Dtype::F64, point));
    let centres = state.centres.iter().enumerate();
    let centres = centres.map(|(k, centre)| tensor(format!("centre.{k}"), Dtype::F32, centre));
    points.chain(centres).collect()
}

/// Reads a checkpoint.
pub fn read(path: &Path) -> Result<(Progress, State<'static>), TrainError> {
    let bytes = std::fs::read(path).map_err(|error| TrainError::Checkpoint {
        path: path.display().to_string(),
        problem: format!("cannot be read: {error}"),
    })?;
    decode(&bytes, path, true)
}

/// The checkpoint that `bytes` hold; whether the checksum must fit is the caller's, for tests.
pub(crate) fn decode(
    bytes: &[u8],
    path: &Path,
    checked: bool,
) -> Result<(Progress, State<'static>), TrainError> {
    let wrong = |problem: String| TrainError::Checkpoint {
        path: path.display().to_string(),
        problem,
    };
    let damaged = |what: &str| wrong(format!("is damaged ({what})"));
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|_| damaged("header"))?;
    let metadata = header.metadata().as_ref();
    let text = metadata
        .and_then(|metadata| metadata.get(PROGRESS))
        .ok_or_else(|| damaged("no progress"))?;
    let Version { version } = serde_json::from_str(text).map_err(|_| damaged("progress"))?;
    if version != VERSION {
        return Err(wrong(format!(
            "has layout version {version} and this program reads version {VERSION}"
        )));
    }
    let file = SafeTensors::deserialize(bytes).map_err(|_| damaged("tensors"))?;
    let mut parts = file.tensors();
    parts.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let parts = parts
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor.data()));
    let stated = metadata
        .and_then(|metadata| metadata.get(CHECKSUM))
        .and_then(|stated| u32::from_str_radix(stated, 16).ok());
    if checked && stated != Some(checksum(text, parts)) {
        return Err(damaged("checksum"));
    }
    let progress: Progress = serde_json::from_str(text).map_err(|_| damaged("progress"))?;
    let progress = Progress {
        checksum: stated.unwrap_or(0),
        ..progress
    };
    let state = Tensors {
        file,
        damaged: &damaged,
    }
    .state(&progress)?;
    Ok((progress, state))
}

/// What every version of the progress has.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

struct Tensors<'a> {
    file: SafeTensors<'a>,
    damaged: &'a dyn Fn(&str) -> TrainError,
}

impl Tensors<'_> {
    fn state(&self, progress: &Progress) -> Result<State<'static>, TrainError> {
        let points = self.wide_vectors("newton")?;
        if !points.is_empty() {
            return Ok(State::Newton(SavedNewton {
                points,
                centres: self.vectors("centre")?,
            }));
        }
        let snapshot = self.vectors("snapshot")?;
        let mean = self.vectors("mean")?;
        Ok(State::Descent(Box::new(SavedState {
            weights: self.vectors("w")?,
            alpha: self.vectors("alpha")?,
            terms: self.required("terms", Dtype::F64)?,
            skip: self.values("skip", Dtype::U8)?.map(Cow::Owned),
            coded: self.coded()?,
            snapshot: (!snapshot.is_empty()).then_some(snapshot),
            mean: (!mean.is_empty()).then_some(mean),
            mean_blocks: progress.mean_blocks,
            snapshot_loss: self.required("snapshot_loss", Dtype::F64)?,
            snapshot_rows: progress.snapshot_rows,
            bound: self.bound(progress.bound_additions)?,
            epoch: progress.epoch,
            reads_all: progress.reads_all,
            gap: progress.gap,
            counters: progress.counters,
        })))
    }

    fn bound(&self, additions: u64) -> Result<Option<Cow<'static, DualBound>>, TrainError> {
        let Some(figures) = self.values::<f64>("bound_figures", Dtype::F64)? else {
            return Ok(None);
        };
        let sums = self.wide_vectors("bound")?;
        let (figures, rest) = figures.as_chunks();
        if !rest.is_empty() {
            return Err((self.damaged)("bound_figures"));
        }
        Ok(Some(Cow::Owned(DualBound {
            sums,
            figures: figures.to_vec(),
            additions,
        })))
    }

    fn coded(&self) -> Result<Option<SavedCodes<'static>>, TrainError> {
        let Some(ids) = self.values("coded.ids", Dtype::U64)? else {
            return Ok(None);
        };
        Ok(Some(SavedCodes {
            quantizer: self.required("coded.quantizer", Dtype::F32)?.into(),
            ids: ids.into(),
            slack: self.required("coded.slack", Dtype::F32)?.into(),
            residuals: self.required("coded.residuals", Dtype::F32)?.into(),
            before: self.vectors("coded.before")?,
        }))
    }

    fn vectors(&self, name: &str) -> Result<Vec<Cow<'static, [f32]>>, TrainError> {
        let mut vectors = Vec::new();
        while let Some(vector) = self.values(&format!("{name}.{}", vectors.len()), Dtype::F32)? {
            vectors.push(Cow::Owned(vector));
        }
        Ok(vectors)
    }

    fn wide_vectors(&self, name: &str) -> Result<Vec<Vec<f64>>, TrainError> {
        let mut vectors = Vec::new();
        while let Some(vector) = self.values(&format!("{name}.{}", vectors.len()), Dtype::F64)? {
            vectors.push(vector);
        }
        Ok(vectors)
    }

    fn required<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(
        &self,
        name: &str,
        dtype: Dtype,
    ) -> Result<Vec<T>, TrainError> {
        self.values(name, dtype)?
            .ok_or_else(|| (self.damaged)(name))
    }

    fn values<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(
        &self,
        name: &str,
        dtype: Dtype,
    ) -> Result<Option<Vec<T>>, TrainError> {
        let Ok(tensor) = self.file.tensor(name) else {
            return Ok(None);
        };
        if tensor.dtype() != dtype || tensor.data().len() % size_of::<T>() != 0 {
            return Err((self.damaged)(name));
        }
        Ok(Some(bytemuck::pod_collect_to_vec(tensor.data())))
    }
}
