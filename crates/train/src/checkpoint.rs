//! The checkpoint of a linear run: tensors hold the solver's state; the text holds the position of the feed,
//! fingerprints of data and plan, and the figures so far.

use std::borrow::Cow;
use std::path::Path;

use pelton_data::as_text;
use pelton_format::ContentSum;
use pelton_linear::{DualBound, SavedCodes, SavedState};
use pelton_plan::Place;
use pelton_run::{Checkpoint, EpochRecord, RunError, Tensor};
use safetensors::tensor::Dtype;
use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// The state of a solver.
#[derive(Clone, Debug, PartialEq)]
pub enum State<'a> {
    /// State of coordinate descent in f32.
    Descent(Box<SavedState<'a>>),
    /// State of coordinate descent in f64.
    Fine(Vec<Vec<f64>>),
    /// State of a pass method.
    Newton(Vec<Vec<f64>>),
}

/// Everything of a checkpoint that is not a tensor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
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
    /// Whether rows are read from a packed copy, in which records have other lengths.
    pub packed: bool,
    /// Identifies the state of the data's files.
    pub files: u64,
    /// Content sum over the records of all ranks in the first whole epoch.
    #[serde(with = "as_text::option")]
    pub first: Option<ContentSum>,
    /// The same for the current epoch so far.
    #[serde(with = "as_text::option")]
    pub so_far: Option<ContentSum>,
    /// Digest of the weights of records; 0 without any.
    pub weights: u64,
    /// Epoch of the next batch.
    pub cursor_epoch: u64,
    /// The next batch of that epoch, which is also the count of batches done.
    pub next: u64,
    /// The solver's current epoch.
    pub epoch: u64,
    /// Whether the current epoch has begun.
    pub in_epoch: bool,
    /// Whether the current epoch reads every row.
    pub reads_all: bool,
    /// Sum of gaps of the current epoch.
    pub gap: f64,
    /// Visits, rows and passes of the current epoch.
    pub counters: [u64; 3],
    /// Number of blocks with w added to the mean of the current epoch.
    pub mean_blocks: u64,
    /// Number of rows with snapshot losses added, and how many of them are predicted right.
    pub snapshot_rows: (u64, u64),
    /// Rows added to the lower bound of the current epoch.
    pub bound_additions: u64,
    /// Epochs of coordinate descent before Newton's method took over.
    pub epochs_before: u64,
    /// Estimated gap below which the next certificate is tried.
    pub attempt_below: f64,
    /// Seconds of training so far.
    pub wall_s: f64,
    /// Totals so far.
    pub totals: Totals,
    /// Records of the epochs so far.
    pub epochs: Vec<EpochRecord>,
    /// The access path; the block size depends on it.
    pub access: String,
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
    /// Rows trained on or evaluated; rows loaded but unused do not count.
    pub rows: u64,
    /// Records that could not be read or decoded. Every pass meets the same ones, so `plus` takes the larger count, not
    /// the sum.
    pub skipped_records: u64,
    /// Bytes sent between ranks.
    pub communication_bytes: u64,
    /// Seconds that a rank waited for others, on average.
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
    /// The progress of coordinate descent, for the text next to its tensors.
    pub fn of_descent(state: &SavedState<'_>, in_epoch: bool) -> Progress {
        Progress {
            epoch: state.epoch,
            in_epoch,
            reads_all: state.reads_all,
            gap: state.gap,
            counters: state.counters,
            mean_blocks: state.mean_blocks,
            snapshot_rows: state.snapshot_rows,
            bound_additions: state.bound.as_ref().map_or(0, |bound| bound.additions),
            ..Progress::default()
        }
    }

    /// Position at which the feed resumes.
    pub fn cursor(&self) -> Place {
        Place {
            epoch: self.cursor_epoch,
            step: self.next,
        }
    }
}

/// The text and the tensors of a checkpoint.
pub(crate) fn parts<'a>(progress: &Progress, state: &'a State<'_>) -> (String, Vec<Tensor<'a>>) {
    let text = serde_json::to_string(progress).expect("plain figures are representable");
    let tensors = match state {
        State::Descent(state) => tensors(state),
        State::Fine(state) => wide_tensors("fine", state),
        State::Newton(state) => wide_tensors("newton", state),
    };
    (text, tensors)
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
            tensors.push(Tensor::new(format!("{name}.{number}"), Dtype::F32, vector));
        }
    }
    if let Some(coded) = &state.coded {
        tensors.push(Tensor::new("coded.quantizer", Dtype::F32, &coded.quantizer));
        tensors.push(Tensor::new("coded.ids", Dtype::U64, &coded.ids));
        tensors.push(Tensor::new("coded.slack", Dtype::F32, &coded.slack));
        tensors.push(Tensor::new("coded.residuals", Dtype::F32, &coded.residuals));
        for (number, before) in coded.before.iter().enumerate() {
            tensors.push(Tensor::new(
                format!("coded.before.{number}"),
                Dtype::F32,
                before,
            ));
        }
    }
    if let Some(bound) = &state.bound {
        for (number, sum) in bound.sums.iter().enumerate() {
            tensors.push(Tensor::new(format!("bound.{number}"), Dtype::F64, sum));
        }
        let figures = bound.figures.as_flattened();
        tensors.push(Tensor::new("bound_figures", Dtype::F64, figures));
    }
    if !state.centres.is_empty() {
        tensors.push(Tensor::new("centres", Dtype::F64, &state.centres));
    }
    tensors.push(Tensor::new("terms", Dtype::F64, &state.terms));
    tensors.push(Tensor::new(
        "snapshot_loss",
        Dtype::F64,
        &state.snapshot_loss,
    ));
    if let Some(skip) = &state.skip {
        tensors.push(Tensor::new("skip", Dtype::U8, skip));
    }
    tensors
}

fn wide_tensors<'a>(name: &str, vectors: &'a [Vec<f64>]) -> Vec<Tensor<'a>> {
    let vectors = vectors.iter().enumerate();
    vectors
        .map(|(k, vector)| Tensor::new(format!("{name}.{k}"), Dtype::F64, vector))
        .collect()
}

/// The checkpoint that `bytes` hold.
pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<(Progress, State<'static>), TrainError> {
    let file = Checkpoint::parse(bytes, path)?;
    let progress = serde_json::from_str(file.text());
    let progress: Progress = progress.map_err(|_| file.damaged("progress"))?;
    let state = state_of(&file, &progress)?;
    Ok((progress, state))
}

fn state_of(file: &Checkpoint<'_>, progress: &Progress) -> Result<State<'static>, RunError> {
    let fine = file.wide_vectors("fine")?;
    if !fine.is_empty() {
        return Ok(State::Fine(fine));
    }
    let points = file.wide_vectors("newton")?;
    if !points.is_empty() {
        return Ok(State::Newton(points));
    }
    let snapshot = file.vectors("snapshot")?;
    let mean = file.vectors("mean")?;
    Ok(State::Descent(Box::new(SavedState {
        weights: file.vectors("w")?,
        centres: file.values("centres", Dtype::F64)?.unwrap_or_default(),
        alpha: file.vectors("alpha")?,
        terms: file.required("terms", Dtype::F64)?,
        skip: file.values("skip", Dtype::U8)?.map(Cow::Owned),
        coded: coded(file)?,
        snapshot: (!snapshot.is_empty()).then_some(snapshot),
        mean: (!mean.is_empty()).then_some(mean),
        mean_blocks: progress.mean_blocks,
        snapshot_loss: file.required("snapshot_loss", Dtype::F64)?,
        snapshot_rows: progress.snapshot_rows,
        bound: bound(file, progress.bound_additions)?,
        epoch: progress.epoch,
        reads_all: progress.reads_all,
        gap: progress.gap,
        counters: progress.counters,
    })))
}

fn bound(
    file: &Checkpoint<'_>,
    additions: u64,
) -> Result<Option<Cow<'static, DualBound>>, RunError> {
    let Some(figures) = file.values::<f64>("bound_figures", Dtype::F64)? else {
        return Ok(None);
    };
    let sums = file.wide_vectors("bound")?;
    let (figures, rest) = figures.as_chunks();
    if !rest.is_empty() {
        return Err(file.damaged("bound_figures"));
    }
    Ok(Some(Cow::Owned(DualBound {
        sums,
        figures: figures.to_vec(),
        additions,
    })))
}

fn coded(file: &Checkpoint<'_>) -> Result<Option<SavedCodes<'static>>, RunError> {
    let Some(ids) = file.values("coded.ids", Dtype::U64)? else {
        return Ok(None);
    };
    Ok(Some(SavedCodes {
        quantizer: file.required("coded.quantizer", Dtype::F32)?.into(),
        ids: ids.into(),
        slack: file.required("coded.slack", Dtype::F32)?.into(),
        residuals: file.required("coded.residuals", Dtype::F32)?.into(),
        before: file.vectors("coded.before")?,
    }))
}
