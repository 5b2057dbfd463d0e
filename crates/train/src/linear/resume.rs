//! Checks that a resumed run fits its checkpoint.

use std::path::Path;

use bytemuck::NoUninit;
use pelton_fetch::Access;
use pelton_key::Digest;
use pelton_run::{Event, Manifest, Observer, Set, Settings};
use serde::{Deserialize, Serialize};

use super::ranks::Ranks;
use super::task::Task;
use crate::checkpoint::{self, Progress, State};
use crate::config::{LinearConfig, Solver};
use crate::error::TrainError;
use crate::summary::SearchFigures;

/// Name prefix of the state in the run folder.
pub(super) const STATE: &str = "checkpoint/state";
/// Name of a search's results in the run folder.
pub(super) const KEPT: &str = "search.json";

/// This setting may change when a run is resumed, but not between a model and its reader.
const LABEL: &str = "label";

/// The results of a search among costs, and the data they are from.
#[derive(Serialize, Deserialize)]
pub(super) struct Kept {
    /// Fingerprint of the data set, and digest of the weights of its records.
    pub data: u64,
    pub weights: u64,
    pub found: SearchFigures,
}

/// The earlier run in rank 0's run folder, known to all ranks.
#[derive(Default)]
pub(super) struct Before {
    manifest: Option<Manifest>,
    /// The bytes of its state.
    state: Option<Vec<u8>>,
    /// The results of its search among costs.
    search: Option<Kept>,
}

impl Before {
    /// Reads it. All ranks call it.
    pub fn read(folder: &Path, ranks: Ranks<'_>) -> Result<Before, TrainError> {
        let set = Set::Checkpoint;
        let bytes = ranks.0.from_first(|| {
            let manifest = Manifest::open(folder, set)?;
            Ok::<_, TrainError>(manifest.map(|manifest| manifest.to_bytes()))
        })?;
        let Some(bytes) = bytes else {
            return Ok(Before::default());
        };
        let manifest = Manifest::parse(&bytes, folder, set)?;
        let file = |name: Option<&str>| {
            ranks.0.from_first(|| {
                let bytes = name.map(|name| manifest.contents(name));
                Ok::<_, TrainError>(bytes.transpose()?)
            })
        };
        let state = file(manifest.named(STATE, ".safetensors"))?;
        let search = file(manifest.named(KEPT, ""))?;
        Ok(Before {
            state,
            search: search.and_then(|text| serde_json::from_slice(&text).ok()),
            manifest: Some(manifest),
        })
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.manifest.as_ref()?.setting(name)
    }

    /// An error about its checkpoint.
    pub fn wrong(&self, problem: &str) -> TrainError {
        let path = self.manifest.as_ref().map(|manifest| {
            let name = manifest.named(STATE, "");
            manifest.path(name.unwrap_or(STATE))
        });
        TrainError::checkpoint(&path.unwrap_or_default(), problem)
    }

    /// Refuses settings other than its own, except a solver that both leave open.
    fn check_settings(&self, mut now: Settings, is_open: bool) -> Result<(), TrainError> {
        let Some(manifest) = &self.manifest else {
            return Ok(());
        };
        let solver = Solver::Auto.to_string();
        if is_open && manifest.setting("solver") == Some(solver.as_str()) {
            now.insert("solver".to_string(), solver);
        }
        // A column can have several names; the contents are compared when they are read.
        match manifest.setting(LABEL) {
            Some(label) => now.insert(LABEL.to_string(), label.to_string()),
            None => now.remove(LABEL),
        };
        Ok(manifest.check_settings(&now)?)
    }

    /// The results of its search among costs, if that was over this data.
    ///
    /// Errors: a checkpoint of another problem, or of a run without such a search.
    pub fn searched(
        &self,
        settings: Settings,
        is_open: bool,
        (data, weights): (u64, u64),
    ) -> Result<Option<SearchFigures>, TrainError> {
        let is_same = |kept: &&Kept| (kept.data, kept.weights) == (data, weights);
        match self.search.as_ref().filter(is_same) {
            Some(kept) => match self.check_settings(settings, is_open) {
                Ok(()) => Ok(Some(kept.found.clone())),
                // Nothing was trained yet: search again.
                Err(_) if self.state.is_none() => Ok(None),
                Err(other) => Err(other),
            },
            None if self.state.is_some() => {
                Err(self.wrong("belongs to a run with another search among costs, or without one"))
            }
            None => Ok(None),
        }
    }

    fn decoded(&self) -> Result<Option<(Progress, State<'static>)>, TrainError> {
        let (Some(bytes), Some(manifest)) = (&self.state, &self.manifest) else {
            return Ok(None);
        };
        let path = manifest.path(manifest.named(STATE, "").unwrap_or(STATE));
        checkpoint::decode(bytes, &path).map(Some)
    }
}

/// Takes over the earlier run's choices for open settings: the block size follows from them, and another device or
/// target might lead to others. Returns the progress, if there is a checkpoint.
pub(super) fn take_over(before: &Before, config: &mut LinearConfig) -> Option<Progress> {
    let progress = before.decoded().ok().flatten();
    let progress = progress.map(|(progress, _)| progress);
    let setting = |name| before.setting(name);
    if config.solver == Solver::Auto
        && let Some(solver) = setting("solver").and_then(|solver| solver.parse().ok())
    {
        config.solver = solver;
    }
    if config.cache_fraction.is_none() && !config.skip {
        config.skip = setting("skip") == Some("true");
        config.cache_fraction = setting("cache_fraction").and_then(|share| share.parse().ok());
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

/// The checkpoint of the run before; `None` if none was written yet.
///
/// Errors: a checkpoint that is damaged, of other data, or of another problem.
pub(super) fn read(
    before: &Before,
    settings: Settings,
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
    if progress.weights != task.weighting.digest() {
        return Err(before.wrong("belongs to a run with another `sample_weights`"));
    }
    before.check_settings(settings, task.is_open)?;
    Ok(Some((progress, state)))
}

/// The error for a checkpoint of another solver.
pub(super) fn other_solver(before: &Before) -> TrainError {
    before.wrong("belongs to a run with another `solver`")
}

/// A digest of vectors that are equal on all ranks.
pub(super) fn digest_of<'a, T: NoUninit>(vectors: impl Iterator<Item = &'a [T]>) -> u64 {
    let words = vectors.map(|vector| u64::from(crc32c::crc32c(bytemuck::cast_slice(vector))));
    Digest::new("linear run").words(words).value()
}

/// Refuses progress of another plan, and progress that no run of this plan can have made.
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

/// A position in an intact checkpoint that no run with `end` blocks an epoch writes, if it has one. A feed starting
/// there would yield batches of other epochs or none.
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
