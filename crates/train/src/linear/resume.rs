//! Checks that a resumed run fits its checkpoint.

use std::path::{Path, PathBuf};

use bytemuck::NoUninit;
use pelton_fetch::Access;
use pelton_key::Digest;
use pelton_run::{Event, Observer};
use serde::{Deserialize, Serialize};

use super::ranks::Ranks;
use super::task::Task;
use crate::checkpoint::{self, Progress, State};
use crate::config::{LinearConfig, Solver};
use crate::error::TrainError;
use crate::summary::SearchFigures;

/// Name of what a search found, in the run folder.
pub(super) const KEPT: &str = "search.json";

/// What a search among costs found, and of which data.
#[derive(Serialize, Deserialize)]
pub(super) struct Kept {
    /// Fingerprint of the data set, and digest of the weights of its records.
    pub data: u64,
    pub weights: u64,
    pub found: SearchFigures,
}

/// What the run folder of rank 0 holds of an earlier run; known to all ranks.
pub(super) struct Before {
    folder: PathBuf,
    config: Option<LinearConfig>,
    /// The bytes of its checkpoint.
    checkpoint: Option<Vec<u8>>,
    /// What its search among costs found.
    search: Option<Kept>,
}

impl Before {
    /// Reads it. All ranks call it.
    pub fn read(folder: &Path, ranks: Ranks<'_>) -> Result<Before, TrainError> {
        let config = ranks.0.from_first(|| {
            // Another kind of file there is as good as none.
            Ok::<_, TrainError>(pelton_storage::read_file(folder.join("run.toml")).ok())
        })?;
        let config = config.and_then(|text| String::from_utf8(text).ok());
        let path = checkpoint_path(folder);
        let checkpoint = ranks.0.from_first(|| match path.exists() {
            true => Ok::<_, TrainError>(Some(pelton_run::read_checkpoint(&path)?)),
            false => Ok(None),
        })?;
        let search = ranks.0.from_first(|| {
            // One that is lost or damaged is made again.
            Ok::<_, TrainError>(pelton_storage::read_file(folder.join(KEPT)).ok())
        })?;
        Ok(Before {
            search: search.and_then(|text| serde_json::from_slice(&text).ok()),
            folder: folder.to_path_buf(),
            config: config.and_then(|text| toml::from_str(&text).ok()),
            checkpoint,
        })
    }

    /// An error about its checkpoint.
    pub fn wrong(&self, problem: &str) -> TrainError {
        TrainError::checkpoint(&checkpoint_path(&self.folder), problem)
    }

    /// What its search among costs found, if it was of this problem over this data.
    ///
    /// Errors: a checkpoint of a run without such a search.
    pub fn searched(
        &self,
        config: &LinearConfig,
        is_open: bool,
        (data, weights): (u64, u64),
    ) -> Result<Option<SearchFigures>, TrainError> {
        let is_same = |kept: &&Kept| {
            let scale = self.config.as_ref().map(|before| before.scale);
            let other = other_problem(self, config, is_open);
            (kept.data, kept.weights) == (data, weights)
                && scale == Some(config.scale)
                && other.is_none()
        };
        match self.search.as_ref().filter(is_same) {
            Some(kept) => Ok(Some(kept.found.clone())),
            None if self.checkpoint.is_some() => {
                Err(self.wrong("belongs to a run with another search among costs, or without one"))
            }
            None => Ok(None),
        }
    }

    fn decoded(&self) -> Result<Option<(Progress, State<'static>)>, TrainError> {
        let path = checkpoint_path(&self.folder);
        let bytes = self.checkpoint.as_ref();
        bytes
            .map(|bytes| checkpoint::decode(bytes, &path, true))
            .transpose()
    }
}

/// Takes over what the run before decided where the configuration does not say: how large blocks
/// are follows from it, and today's device or target might decide otherwise. Returns the progress, where there is a
/// checkpoint.
pub(super) fn take_over(before: &Before, config: &mut LinearConfig) -> Option<Progress> {
    let progress = before.decoded().ok().flatten();
    let progress = progress.map(|(progress, _)| progress);
    if config.solver == Solver::Auto
        && let Some(before) = &before.config
    {
        config.solver = before.solver;
    }
    if config.cache_fraction.is_none()
        && !config.skip
        && let Some(before) = &before.config
    {
        config.skip = before.skip;
        config.cache_fraction = before.cache_fraction;
    }
    // Rows in memory have no access path.
    if config.access == Access::Auto
        && let Some(progress) = &progress
        && let Ok(access) = progress.access.parse()
    {
        config.access = access;
    }
    progress
}

/// The checkpoint of the run before; `None` where none was written yet.
///
/// Errors: one that is damaged, of other data, or of another problem.
pub(super) fn read(
    before: &Before,
    task: &Task<'_>,
    observer: Observer<'_>,
) -> Result<Option<(Progress, State<'static>)>, TrainError> {
    let Some((progress, state)) = before.decoded()? else {
        observer(Event::Note("no checkpoint exists yet: starting again"));
        return Ok(None);
    };
    if progress.data != task.rows.data.dataset.fingerprint() {
        return Err(before.wrong(
            "belongs to other data, to another `label`, `format`, `classes`, `positive` or `zero_based`, or the data changed",
        ));
    }
    // Kept in the checkpoint too, as its numbers mean nothing without it.
    if progress.scale != task.config.scale {
        return Err(before.wrong("belongs to a run with another `scale`"));
    }
    if progress.weights != task.weighting.digest() {
        return Err(before.wrong("belongs to a run with another `sample_weights`"));
    }
    if let Some(flag) = other_problem(before, task.config, task.is_open) {
        return Err(before.wrong(&format!("belongs to a run with another {flag}")));
    }
    Ok(Some((progress, state)))
}

/// Says that a checkpoint is another solver's.
pub(super) fn other_solver(before: &Before) -> TrainError {
    before.wrong("belongs to a run with another `solver`")
}

/// A digest of vectors that all ranks have alike.
pub(super) fn digest_of<'a, T: NoUninit>(vectors: impl Iterator<Item = &'a [T]>) -> u64 {
    let words = vectors.map(|vector| u64::from(crc32c::crc32c(bytemuck::cast_slice(vector))));
    Digest::new(24).words(words).value()
}

/// The path of a run's checkpoint.
pub(super) fn checkpoint_path(folder: &Path) -> PathBuf {
    folder.join("checkpoint").join("state.safetensors")
}

/// A setting that decides the result and differs from that of the run before.
///
/// Order, seed and division into blocks show in the plan's fingerprint; how data is read, how long
/// and to which target a run goes may change.
fn other_problem(before: &Before, config: &LinearConfig, is_open: bool) -> Option<&'static str> {
    let before = before.config.as_ref()?;
    let open = before.solver == Solver::Auto && is_open;
    let same = [
        ("`loss`", before.loss == config.loss),
        ("`cost`", before.listed_costs() == config.listed_costs()),
        ("`folds`", before.folds == config.folds),
        (
            "`class_weight`",
            before.class_weights == config.class_weights && before.balanced == config.balanced,
        ),
        ("`bias`", before.bias == config.bias),
        ("`intercept`", before.free_bias == config.free_bias),
        ("`solver`", open || before.solver == config.solver),
        ("`inner_passes`", before.inner_passes == config.inner_passes),
        ("`skip`", before.skip == config.skip),
        (
            "`cache_fraction`",
            before.cache_fraction == config.cache_fraction,
        ),
        ("`seed`", before.seed == config.seed),
    ];
    same.iter().find(|(_, same)| !same).map(|(flag, _)| *flag)
}

/// Refuses the progress of a run by another plan, and such as no run of this plan can have made.
pub(super) fn check_plan(
    before: &Before,
    task: &Task<'_>,
    progress: &Progress,
) -> Result<(), TrainError> {
    let plan = &task.division.plan;
    if progress.plan != plan.fingerprint() {
        return Err(
            before.wrong("belongs to another order, seed, memory budget or number of blocks")
        );
    }
    match beyond_plan(plan.steps(0), progress) {
        Some(part) => Err(before.wrong(&format!(
            "says that {part}, which this run cannot have reached"
        ))),
        None => Ok(()),
    }
}

/// A position in an intact checkpoint that no run with `end` blocks an epoch writes, if it has one.
/// A feed that began there would give out batches of other epochs or none.
fn beyond_plan(end: u64, progress: &Progress) -> Option<String> {
    let next = progress.next;
    let (recorded, epochs) = (progress.epochs.len() as u64, progress.epoch);
    let begun = recorded.checked_sub(u64::from(!progress.in_epoch));
    if begun != Some(epochs) || progress.cursor_epoch != epochs {
        let at = progress.cursor_epoch;
        return Some(format!(
            "epoch {epochs} (from 0) is being trained and epoch {at} read after {recorded} epochs"
        ));
    }
    let fits = if progress.in_epoch {
        next < end
    } else {
        next == end
    };
    (!fits).then(|| format!("{next} of an epoch's {end} blocks are done"))
}
