//! Checkpoints of a net: parameters under PyTorch's names, and what else the next step depends on.
//!
//! Rows of a head over many classes are next to the file of the net, one file a rank, `STEM-STEPS-RANK-of-RANKS.rows`.
//! They are whole before the file of the net names their step, and older ones are removed only then; any number of
//! ranks can read them.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use pelton_comm::{Comm, Reduction};
use pelton_data::DataError;
use pelton_key::Digest;
use pelton_nn::{NamedArray, NnError, Trainer};
use pelton_run::{
    Checkpoint, CheckpointFile, Dtype, RunError, Tensor, read_checkpoint, write_atomically,
    write_checkpoint,
};
use pelton_softmax::{ReadRows, RowBlock};
use serde::{Deserialize, Serialize};

use super::progress::Progress;
use crate::error::TrainError;

/// Prefix of names that are not parameters.
const STATE: &str = "state.";
/// What the files of rows end in.
const ROWS: &str = "rows";

/// The text of a checkpoint.
#[derive(Serialize, Deserialize)]
struct Saved {
    #[serde(flatten)]
    progress: Progress,
    /// Files that hold rows; a rank each.
    #[serde(default)]
    shards: usize,
}

/// Where the rows of a file of rows belong.
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

/// Writes parameters and, with `state`, everything else needed to resume. All ranks call it; rank 0 writes the
/// file of the net, each its own rows.
///
/// Errors: on all ranks if numbers of one are not finite; the file is not changed.
pub(super) fn save(
    path: &Path,
    progress: &Progress,
    trainer: &dyn Trainer,
    state: bool,
    comm: &Comm,
) -> Result<(), TrainError> {
    let parameters = trainer.parameters()?;
    let blocks = trainer.row_blocks(state);
    let state = if state { trainer.state()? } else { vec![] };
    let arrays = parameters.iter().map(|array| &array.values[..]);
    let is_sound = arrays
        .chain(blocks.iter().map(|block| &block.values[..]))
        .all(is_usable)
        && state
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
        return Err(TrainError::not_a_number(what, path.exists()));
    }
    let shards = if blocks.is_empty() { 0 } else { comm.size() };
    if shards > 0 {
        let file = shard(path, progress.steps, comm.rank(), shards);
        write_rows(&file, &blocks)?;
        comm.barrier().map_err(DataError::from)?;
    }
    if comm.rank() == 0 {
        let mut all = tensors("", &parameters);
        all.extend(tensors(STATE, &state));
        let saved = Saved {
            progress: progress.clone(),
            shards,
        };
        write_checkpoint(path, &json(&saved), all)?;
        if shards > 0 {
            remove_others(path, progress.steps, shards);
        }
    }
    Ok(())
}

/// Writes one rank's file of rows.
fn write_rows(file: &Path, blocks: &[RowBlock<'_>]) -> Result<(), RunError> {
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
    write_checkpoint(file, &json(&rows), all.collect())
}

/// Writes the model file `from` to another place, with these rows in place of its own.
pub(crate) fn write_model(
    from: &Path,
    to: &Path,
    blocks: Vec<RowBlock<'_>>,
) -> Result<(), TrainError> {
    let bytes = read_checkpoint(from)?;
    let checkpoint = Checkpoint::parse(&bytes, from)?;
    checkpoint.check()?;
    let saved: Result<Saved, _> = serde_json::from_str(checkpoint.text());
    let mut saved = saved.map_err(|_| checkpoint.damaged("progress"))?;
    let (parameters, _) = arrays(&checkpoint)?;
    saved.shards = 1;
    write_rows(&shard(to, saved.progress.steps, 0, 1), &blocks)?;
    write_checkpoint(to, &json(&saved), tensors("", &parameters))?;
    Ok(())
}

/// Whether numbers and their squares are finite, as layers need.
fn is_usable(values: &[f32]) -> bool {
    values.iter().all(|x| (x * x).is_finite())
}

/// The file of a rank's rows.
fn shard(path: &Path, steps: u64, rank: usize, ranks: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{steps}-{rank}-of-{ranks}.{ROWS}"))
}

/// Removes the rows of earlier checkpoints; failures do no harm.
fn remove_others(path: &Path, steps: u64, shards: usize) {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let kept: Vec<PathBuf> = (0..shards).map(|r| shard(path, steps, r, shards)).collect();
    let Some(folder) = path.parent().and_then(|folder| folder.read_dir().ok()) else {
        return;
    };
    for file in folder.flatten().map(|entry| entry.path()) {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let of_this = name
            .strip_prefix(&*stem)
            .is_some_and(|rest| rest.starts_with('-'));
        if of_this && file.extension().is_some_and(|e| e == ROWS) && !kept.contains(&file) {
            drop(std::fs::remove_file(file));
        }
    }
}

/// Files of rows, one a rank, which stay on disk and are opened when they are first needed.
pub(crate) struct Shards {
    path: PathBuf,
    steps: u64,
    count: usize,
    files: OnceLock<Vec<(CheckpointFile, Vec<Rows>)>>,
}

impl Shards {
    /// Those of a checkpoint with this text.
    fn new(path: &Path, saved: &Saved) -> Shards {
        Shards {
            path: path.to_path_buf(),
            steps: saved.progress.steps,
            count: saved.shards,
            files: OnceLock::new(),
        }
    }

    /// Those of a model file.
    pub(crate) fn of_model(path: &Path) -> Result<Shards, TrainError> {
        let file = CheckpointFile::open(path)?;
        let saved = serde_json::from_str(file.text()).map_err(|_| file.damaged("progress"))?;
        Ok(Shards::new(path, &saved))
    }

    fn files(&self) -> Result<&[(CheckpointFile, Vec<Rows>)], TrainError> {
        if let Some(files) = self.files.get() {
            return Ok(files);
        }
        let file = |rank: usize| {
            let file = CheckpointFile::open(&shard(&self.path, self.steps, rank, self.count))?;
            let rows = serde_json::from_str(file.text()).map_err(|_| file.damaged("rows"))?;
            Ok((file, rows))
        };
        let files: Result<Vec<_>, TrainError> = (0..self.count).map(file).collect();
        let files = files?;
        Ok(self.files.get_or_init(|| files))
    }

    /// A digest of all rows.
    pub(crate) fn digest(&self) -> Result<u64, TrainError> {
        let sums = self.files()?.iter();
        let sums = sums.map(|(file, _)| u64::from(file.checksum()));
        Ok(Digest::new(24).words(sums).value())
    }

    /// What `take` makes of the rows that it reads.
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

    /// Rows of a block, put together from all files; `None` where none has the block, or it ends before them.
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
                path: self.path.clone(),
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

/// Goes on from rank 0's checkpoint; `None` where it has none. All ranks call it.
pub(super) fn resume(
    path: &Path,
    trainer: &mut dyn Trainer,
    comm: &Comm,
) -> Result<Option<Progress>, TrainError> {
    let bytes = comm.from_first(|| match path.exists() {
        true => Ok::<_, TrainError>(Some(read_checkpoint(path)?)),
        false => Ok(None),
    })?;
    bytes
        .map(|bytes| load(&bytes, path, trainer, true))
        .transpose()
}

/// Takes the parameters of rank 0's checkpoint, or of a model file. All ranks call it.
pub(crate) fn load_parameters(
    path: &Path,
    trainer: &mut dyn Trainer,
    comm: &Comm,
) -> Result<(), TrainError> {
    let bytes = comm.from_first(|| Ok::<_, TrainError>(Some(read_checkpoint(path)?)))?;
    load(&bytes.unwrap_or_default(), path, trainer, false)?;
    Ok(())
}

/// A digest of the parameters, which all ranks have alike. All ranks call it.
pub(super) fn digest(trainer: &dyn Trainer) -> Result<u64, TrainError> {
    let parameters = trainer.parameters()?;
    let words = parameters.iter().map(|parameter| {
        let bytes: &[u8] = bytemuck::cast_slice(&parameter.values);
        bytes.len() as u64 ^ u64::from(crc32c::crc32c(bytes)) << 32
    });
    Ok(Digest::new(23).words(words).value())
}

/// Refuses a folder of checkpoints that only some ranks can see, where each rank keeps its rows of a head in it.
/// All ranks call it.
///
/// Rank 0 leaves a file there for a moment, which the others look for.
pub(super) fn check_shared(checkpoint: &Path, comm: &Comm) -> Result<(), TrainError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut name = [
        now.unwrap_or_default().as_nanos() as u64,
        std::process::id().into(),
    ];
    comm.broadcast(&mut name, 0)?;
    let token = checkpoint.with_file_name(format!("shared-{:x}-{:x}", name[0], name[1]));
    if comm.rank() == 0 {
        write_atomically(&token, |_| Ok(()))?;
    }
    comm.barrier()?;
    let seen = token.exists();
    comm.barrier()?;
    if comm.rank() == 0 {
        drop(std::fs::remove_file(&token));
    }
    if seen {
        Ok(())
    } else {
        Err(TrainError::config(format!(
            "{}: rank {} does not see files that rank 0 writes, but each rank saves its rows of the head there; give `out` a folder that all ranks share",
            checkpoint.parent().unwrap_or(checkpoint).display(),
            comm.rank()
        )))
    }
}

fn load(
    bytes: &[u8],
    path: &Path,
    trainer: &mut dyn Trainer,
    with_state: bool,
) -> Result<Progress, TrainError> {
    let checkpoint = Checkpoint::parse(bytes, path)?;
    checkpoint.check()?;
    let saved: Saved =
        serde_json::from_str(checkpoint.text()).map_err(|_| checkpoint.damaged("progress"))?;
    let (parameters, state) = arrays(&checkpoint)?;
    let misfit = |error| misfit(&checkpoint, &error);
    trainer.set_parameters(parameters).map_err(misfit)?;
    if with_state {
        trainer.set_state(state).map_err(misfit)?;
    }
    if saved.shards > 0 {
        let files = Shards::new(path, &saved);
        let taken = files.taken(|read| trainer.set_row_blocks(read))?;
        taken.map_err(misfit)?;
    }
    Ok(saved.progress)
}

const ASTRAY: &str =
    "has parameters that are not finite: training diverged; train again with a smaller `rate`";

fn misfit(checkpoint: &Checkpoint<'_>, error: &NnError) -> RunError {
    checkpoint.wrong(&format!("does not fit: {error}"))
}
