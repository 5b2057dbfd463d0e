//! Checkpoints and models of a net: parameters under PyTorch's names, and other state that the next step depends on.
//!
//! Rows of a head over many classes are next to the file of the net, one file a rank, `STEM-NUMBER-RANK-of-RANKS.rows`.
//! The manifest that rank 0 writes last lists all; any number of ranks can read them.

use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use pelton_comm::{Comm, Reduction};
use pelton_data::DataError;
use pelton_key::Digest;
use pelton_nn::{NamedArray, NnError, PARAMETERS, Trainer};
use pelton_run::{
    Checkpoint, CheckpointFile, Dtype, Entries, Entry, Manifest, RunError, RunFolder, Set, Tensor,
    write_checkpoint,
};
use pelton_softmax::{ReadRows, RowBlock};
use serde::{Deserialize, Serialize};

use super::progress::Progress;
use super::sharing;
use crate::error::TrainError;

/// Prefix of names that are not parameters.
const STATE: &str = "state.";
/// Name prefixes for the files of the last state, of the best parameters, and of a model's rows.
const LAST: &str = "checkpoint/state";
const BEST: &str = "checkpoint/best";
pub(crate) const MODEL: &str = "model";

/// Block and row range of the rows in a file.
#[derive(Serialize, Deserialize)]
struct Rows {
    name: String,
    first: u64,
    total: u64,
    width: usize,
}

fn tensors<'a>(prefix: &str, arrays: &'a [NamedArray]) -> Vec<Tensor<'a>> {
    let tensor = |array: &'a NamedArray| {
        let name = format!("{prefix}{}", array.name);
        Tensor::new(name, Dtype::F32, &array.values).shaped(&array.shape)
    };
    arrays.iter().map(tensor).collect()
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("numbers and text")
}

/// The parts of a net that are written.
struct Saved<'a> {
    parameters: Vec<NamedArray>,
    state: Vec<NamedArray>,
    blocks: Vec<RowBlock<'a>>,
}

impl<'a> Saved<'a> {
    /// Parameters and, with `state`, everything else needed to resume.
    ///
    /// Errors: non-finite numbers on any rank, reported on all.
    fn new(
        trainer: &'a dyn Trainer,
        state: bool,
        (folder, progress): (&RunFolder, &Progress),
        comm: &Comm,
    ) -> Result<Saved<'a>, TrainError> {
        let saved = Saved {
            parameters: trainer.parameters()?,
            blocks: trainer.row_blocks(state),
            state: if state { trainer.state()? } else { vec![] },
        };
        let arrays = saved.parameters.iter().map(|array| &array.values[..]);
        let is_sound = arrays
            .chain(saved.blocks.iter().map(|block| &block.values[..]))
            .all(is_usable)
            && saved
                .state
                .iter()
                .flat_map(|array| &array.values)
                .all(|x| x.is_finite());
        let mut broken = [u64::from(!is_sound)];
        comm.all_reduce(&mut broken, Reduction::Max)
            .map_err(DataError::from)?;
        if broken[0] > 0 {
            let what = format!(
                "the parameters are no longer finite after step {}",
                progress.steps
            );
            let is_saved = folder.path().join(Set::Checkpoint.file()).exists();
            return Err(TrainError::not_a_number(what, is_saved));
        }
        Ok(saved)
    }

    /// Writes each rank's rows, and on rank 0 the file `name` of the net. All ranks call it; `sees` says whether this
    /// one sees the folder of rank 0.
    fn write(
        &self,
        (folder, sees): (&RunFolder, bool),
        (stem, number): (&str, u64),
        name: &str,
        text: &str,
        comm: &Comm,
    ) -> Result<Entries, TrainError> {
        let mut files = Entries::new();
        if !self.blocks.is_empty() {
            let name = |rank| rows_name(stem, number, rank, comm.size());
            let (text, arrays) = rows_of(&self.blocks);
            let mut own = None;
            if sees {
                let (file, arrays) = (folder.file(&name(comm.rank()))?, arrays.clone());
                own = Some((name(comm.rank()), write_checkpoint(&file, &text, arrays)?));
            }
            let all = comm.all_gather_ragged(json(&own).as_bytes());
            for own in all.map_err(DataError::from)? {
                let own: Option<(String, Entry)> =
                    serde_json::from_slice(&own).expect("sent above");
                files.extend(own);
            }
            files.extend(sharing::gather(folder, sees, name, (&text, arrays), comm)?);
        }
        if folder.is_written() {
            let mut all = tensors("", &self.parameters);
            all.extend(tensors(STATE, &self.state));
            let entry = folder.write_checkpoint(name, text, all)?;
            files.insert(name.to_string(), entry);
        }
        Ok(files)
    }
}

/// Begins a set of files on rank 0; all ranks receive its number.
fn begin(folder: &RunFolder, set: Set, comm: &Comm) -> Result<(u64, Entries), TrainError> {
    let (number, before) = folder.begin(set)?;
    let mut number = [number];
    comm.broadcast(&mut number, 0).map_err(DataError::from)?;
    Ok((number[0], before))
}

/// Replaces the checkpoint, with the parameters as the best if they are, and the file `about` the data. All ranks call
/// it.
///
/// Errors: non-finite numbers on any rank, reported on all; the checkpoint is then unchanged.
pub(super) fn save_checkpoint(
    (folder, sees): (&RunFolder, bool),
    progress: &Progress,
    trainer: &dyn Trainer,
    best: bool,
    about: &str,
    comm: &Comm,
) -> Result<(), TrainError> {
    let saved = Saved::new(trainer, true, (folder, progress), comm)?;
    let (number, before) = begin(folder, Set::Checkpoint, comm)?;
    let name = |stem: &str| format!("{stem}-{number}.safetensors");
    let of = (LAST, number);
    let mut files = saved.write((folder, sees), of, &name(LAST), &json(progress), comm)?;
    drop(saved);
    if best {
        let saved = Saved::new(trainer, false, (folder, progress), comm)?;
        files.extend(saved.write((folder, sees), (BEST, number), &name(BEST), "", comm)?);
    } else {
        files.extend(
            before
                .into_iter()
                .filter(|(name, _)| name.starts_with(BEST)),
        );
    }
    commit(folder, Set::Checkpoint, number, files, about)
}

/// Replaces the model. All ranks call it.
///
/// Errors: those of [`save_checkpoint`].
pub(super) fn save_model(
    (folder, sees): (&RunFolder, bool),
    progress: &Progress,
    trainer: &dyn Trainer,
    about: &str,
    comm: &Comm,
) -> Result<(), TrainError> {
    let saved = Saved::new(trainer, false, (folder, progress), comm)?;
    let (number, _) = begin(folder, Set::Model, comm)?;
    let files = saved.write((folder, sees), (MODEL, number), PARAMETERS, "", comm)?;
    commit(folder, Set::Model, number, files, about)
}

fn commit(
    folder: &RunFolder,
    set: Set,
    number: u64,
    mut files: Entries,
    about: &str,
) -> Result<(), TrainError> {
    if folder.is_written() {
        files.extend([folder.entry(about)?]);
    }
    Ok(folder.commit(set, number, files)?)
}

/// Text and arrays of one rank's file of rows.
fn rows_of<'a>(blocks: &'a [RowBlock<'_>]) -> (String, Vec<Tensor<'a>>) {
    let rows: Vec<Rows> = blocks
        .iter()
        .map(|block| Rows {
            name: block.name.clone(),
            first: block.first,
            total: block.total,
            width: block.width,
        })
        .collect();
    let all = blocks.iter().map(|block| {
        Tensor::new(block.name.clone(), Dtype::F32, &block.values)
            .shaped(&[block.values.len() / block.width.max(1), block.width])
    });
    (json(&rows), all.collect())
}

/// Writes the net of a model to another folder, with these rows instead of its own.
pub(crate) fn write_model(
    of: &Manifest,
    folder: &RunFolder,
    blocks: Vec<RowBlock<'_>>,
    about: &str,
) -> Result<(), TrainError> {
    let (bytes, path) = (of.contents(PARAMETERS)?, of.path(PARAMETERS));
    let (parameters, state) = arrays(&Checkpoint::parse(&bytes, &path)?)?;
    let saved = Saved {
        parameters,
        state,
        blocks,
    };
    let (number, _) = folder.begin(Set::Model)?;
    let (of, alone) = ((MODEL, number), Comm::alone());
    let files = saved.write((folder, true), of, PARAMETERS, "", &alone)?;
    commit(folder, Set::Model, number, files, about)
}

/// Whether numbers and their squares are finite, as layers require.
fn is_usable(values: &[f32]) -> bool {
    values.iter().all(|x| (x * x).is_finite())
}

/// The file of a rank's rows.
fn rows_name(stem: &str, number: u64, rank: usize, ranks: usize) -> String {
    format!("{stem}-{number}-{rank}-of-{ranks}.rows")
}

/// Files of rows, one a rank, which stay on disk and are opened on first use.
pub(crate) struct Shards {
    manifest: Manifest,
    stem: &'static str,
    files: OnceLock<Vec<(CheckpointFile, Vec<Rows>)>>,
}

impl Shards {
    /// Those of a manifest with names that begin with `stem`.
    pub(crate) fn new(manifest: &Manifest, stem: &'static str) -> Shards {
        Shards {
            manifest: manifest.clone(),
            stem,
            files: OnceLock::new(),
        }
    }

    /// The manifest that lists them.
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn files(&self) -> Result<&[(CheckpointFile, Vec<Rows>)], TrainError> {
        if let Some(files) = self.files.get() {
            return Ok(files);
        }
        let file = |name: &String| {
            let file = self.manifest.arrays(name)?;
            let rows = serde_json::from_str(file.text()).map_err(|_| file.damaged("rows"))?;
            Ok((file, rows))
        };
        let is_own = |name: &&String| name.starts_with(self.stem) && name.ends_with(".rows");
        let mut names: Vec<_> = self.manifest.files().keys().filter(is_own).collect();
        // By ranks.
        names.sort_by_key(|name| name.len());
        let files: Result<Vec<_>, TrainError> = names.into_iter().map(file).collect();
        let files = files?;
        Ok(self.files.get_or_init(|| files))
    }

    /// Calls `take` with a reader of the rows.
    pub(crate) fn taken<T>(
        &self,
        take: impl FnOnce(&mut ReadRows<'_>) -> T,
    ) -> Result<T, TrainError> {
        let mut failed = None;
        let taken = take(&mut |name, rows| {
            self.read(name, rows).unwrap_or_else(|error| {
                failed.get_or_insert(error);
                None
            })
        });
        failed.map_or(Ok(taken), Err)
    }

    /// Rows of a block, put together from all files; `None` if no file has the block, or it ends before them.
    pub(crate) fn read(
        &self,
        name: &str,
        rows: Range<u64>,
    ) -> Result<Option<Vec<f32>>, TrainError> {
        let mut all = Vec::new();
        let mut ends = 0;
        let mut next = rows.start;
        for (file, blocks) in self.files()? {
            let Some(block) = blocks.iter().find(|block| block.name == name) else {
                continue;
            };
            let shape = file.shape(name).ok_or_else(|| file.damaged(name))?;
            let width = block.width.max(1);
            let end = block.first + (shape.iter().product::<usize>() / width) as u64;
            ends = end.max(ends);
            let (from, to) = (rows.start.max(block.first), rows.end.min(end));
            if from < to {
                if from != next {
                    return Err(file.damaged("rows").into());
                }
                next = to;
                let at = |row: u64| (row - block.first) as usize * width;
                let values = file.numbers(name, Dtype::F32, at(from)..at(to))?;
                if !is_usable(&values) {
                    return Err(file.wrong(ASTRAY).into());
                }
                if all.is_empty() {
                    all = values;
                } else {
                    all.extend(values);
                }
            }
        }
        let found = rows.start < ends;
        if found && next != rows.end {
            return Err(RunError::Checkpoint {
                path: self.manifest.path(self.stem),
                problem: format!(
                    "has only {next} of {} rows of {name:?}: it belongs to a run with fewer classes",
                    rows.end
                ),
            }
            .into());
        }
        Ok(found.then_some(all))
    }
}

fn arrays(checkpoint: &Checkpoint<'_>) -> Result<(Vec<NamedArray>, Vec<NamedArray>), TrainError> {
    let (mut parameters, mut state) = (Vec::new(), Vec::new());
    for (name, shape) in checkpoint.names() {
        let values = checkpoint.required(&name, Dtype::F32)?;
        match name.strip_prefix(STATE) {
            Some(rest) => state.push(NamedArray {
                name: rest.to_string(),
                shape,
                values,
            }),
            None if !is_usable(&values) => return Err(checkpoint.wrong(ASTRAY).into()),
            None => parameters.push(NamedArray {
                name,
                shape,
                values,
            }),
        }
    }
    Ok((parameters, state))
}

/// Resumes from rank 0's checkpoint; `None` if it has none. All ranks call it.
pub(super) fn resume(
    (folder, sees): (&Path, bool),
    trainer: &mut dyn Trainer,
    comm: &Comm,
) -> Result<Option<Progress>, TrainError> {
    let Some(manifest) = checkpoint(folder, sees, comm)? else {
        return Ok(None);
    };
    let text = load((&manifest, sees), LAST, trainer, true, comm)?;
    let progress = serde_json::from_str(&text);
    let damaged = |_| TrainError::checkpoint(&manifest.path(LAST), "is damaged (progress)");
    progress.map(Some).map_err(damaged)
}

/// The manifest of rank 0's checkpoint. All ranks call it.
fn checkpoint(folder: &Path, sees: bool, comm: &Comm) -> Result<Option<Manifest>, TrainError> {
    let set = Set::Checkpoint;
    let bytes = comm.from_first(|| {
        let manifest = Manifest::open(folder, set)?;
        Ok::<_, TrainError>(manifest.map(|manifest| manifest.to_bytes()))
    })?;
    let scratch = sharing::scratch(folder, comm);
    let folder = if sees { folder } else { &scratch };
    let parsed = bytes.map(|bytes| Manifest::parse(&bytes, folder, set));
    Ok(parsed.transpose()?)
}

/// Takes the best parameters of rank 0's checkpoint. All ranks call it.
pub(super) fn load_best(
    (folder, sees): (&Path, bool),
    trainer: &mut dyn Trainer,
    comm: &Comm,
) -> Result<(), TrainError> {
    if let Some(manifest) = checkpoint(folder, sees, comm)? {
        load((&manifest, sees), BEST, trainer, false, comm)?;
    }
    Ok(())
}

/// Takes the parameters of a model.
pub(crate) fn load_parameters(
    manifest: &Manifest,
    trainer: &mut dyn Trainer,
) -> Result<(), TrainError> {
    load((manifest, true), MODEL, trainer, false, &Comm::alone())?;
    Ok(())
}

/// A digest of the parameters that all ranks share. All ranks call it.
pub(super) fn digest(trainer: &dyn Trainer) -> Result<u64, TrainError> {
    let parameters = trainer.parameters()?;
    let words = parameters.iter().map(|parameter| {
        let bytes: &[u8] = bytemuck::cast_slice(&parameter.values);
        bytes.len() as u64 ^ u64::from(crc32c::crc32c(bytes)) << 32
    });
    Ok(Digest::new("parameters").words(words).value())
}

/// Loads the files of a stem; returns the text. All ranks call it.
fn load(
    (manifest, sees): (&Manifest, bool),
    stem: &'static str,
    trainer: &mut dyn Trainer,
    with_state: bool,
    comm: &Comm,
) -> Result<String, TrainError> {
    let name = manifest.named(stem, ".safetensors").unwrap_or(stem);
    let bytes = comm.from_first(|| Ok::<_, TrainError>(Some(manifest.contents(name)?)))?;
    let (bytes, path) = (bytes.unwrap_or_default(), manifest.path(name));
    let checkpoint = Checkpoint::parse(&bytes, &path)?;
    let (parameters, state) = arrays(&checkpoint)?;
    let misfit = |error| misfit(&checkpoint, &error);
    trainer.set_parameters(parameters).map_err(misfit)?;
    if with_state {
        trainer.set_state(state).map_err(misfit)?;
    }
    let is_rows = |name: &str| name.starts_with(stem) && name.ends_with(".rows");
    let _copied = sharing::copy(manifest, sees, is_rows, comm)?;
    let rows = Shards::new(manifest, stem);
    if !rows.files()?.is_empty() {
        let taken = rows.taken(|read| trainer.set_row_blocks(read))?;
        taken.map_err(misfit)?;
    }
    Ok(checkpoint.text().to_string())
}

const ASTRAY: &str =
    "has parameters that are not finite: training diverged; train again with a smaller `rate`";

fn misfit(checkpoint: &Checkpoint<'_>, error: &NnError) -> RunError {
    checkpoint.wrong(&format!("does not fit: {error}"))
}
