//! What a run that goes on must share with the one it goes on from.

use std::path::{Path, PathBuf};

use pelton_fetch::Access;
use pelton_plan::Order;
use pelton_run::{Event, Observer};

use super::setup::Setup;
use crate::checkpoint::{self, Progress, State};
use crate::config::{LinearConfig, Solver};
use crate::error::TrainError;

/// Takes over what the run in `folder` decided where the configuration does not say: how large blocks
/// are follows from it, and today's device or target might decide otherwise. A run that goes on with
/// another number of ranks keeps its number of blocks. Returns the progress, where there is a checkpoint.
pub(super) fn take_over(
    folder: &Path,
    config: &mut LinearConfig,
    ranks: usize,
) -> Option<Progress> {
    let fixed = config.blocks.is_some() || matches!(config.order, Order::Block { .. });
    let progress = checkpoint::read(&checkpoint_path(folder)).ok();
    let progress = progress.map(|(progress, _)| progress);
    if !fixed
        && let Some(progress) = &progress
        && progress.ranks != ranks as u64
        && progress.blocks > 1
    {
        config.blocks = Some(progress.blocks);
    }
    if config.solver == Solver::Auto
        && let Some(before) = config_of(folder)
    {
        config.solver = before.solver;
    }
    if config.cache_fraction.is_none()
        && !config.skip
        && let Some(before) = config_of(folder)
    {
        config.skip = before.skip;
        config.cache_fraction = before.cache_fraction;
    }
    // Rows that all lie in memory have no access path.
    if config.access == Access::Auto
        && let Some(progress) = &progress
        && let Ok(access) = progress.access.parse()
    {
        config.access = access;
    }
    progress
}

/// The checkpoint in `folder`; `None` where none was written yet.
///
/// Errors: one that is damaged, of other data, or of another problem.
pub(super) fn read(
    folder: &Path,
    config: &LinearConfig,
    setup: &Setup,
    observer: Observer<'_>,
) -> Result<Option<(Progress, State<'static>)>, TrainError> {
    let path = checkpoint_path(folder);
    if !path.exists() {
        observer(Event::Note("no checkpoint was written yet: starting anew"));
        return Ok(None);
    }
    let (progress, state) = checkpoint::read(&path)?;
    if progress.data != setup.data.dataset.fingerprint() {
        return Err(wrong(
            folder,
            "is of other data, of another `label`, `format`, `classes`, `positive` or `zero_based`, or the data changed",
        ));
    }
    // Kept in the checkpoint too, as its numbers mean nothing without it.
    if progress.scale != config.scale {
        return Err(wrong(folder, "is of a run with another `scale`"));
    }
    if let Some(flag) = other_problem(folder, config) {
        return Err(wrong(folder, &format!("is of a run with another {flag}")));
    }
    Ok(Some((progress, state)))
}

/// Says that a checkpoint is another solver's.
pub(super) fn other_solver(folder: &Path) -> TrainError {
    wrong(folder, "is of a run with another `solver`")
}

fn wrong(folder: &Path, problem: &str) -> TrainError {
    TrainError::checkpoint(&checkpoint_path(folder), problem)
}

/// The configuration of the run in `folder`.
fn config_of(folder: &Path) -> Option<LinearConfig> {
    let text = std::fs::read_to_string(folder.join("run.toml")).ok()?;
    toml::from_str(&text).ok()
}

pub(super) fn checkpoint_path(folder: &Path) -> PathBuf {
    folder.join("checkpoint").join("state.safetensors")
}

/// A setting that decides the result and differs from that of the run in `folder`.
///
/// Order, seed and division into blocks show in the plan's fingerprint; how data is read, how long
/// and to which target a run goes may change.
fn other_problem(folder: &Path, config: &LinearConfig) -> Option<&'static str> {
    let before = config_of(folder)?;
    let same = [
        ("`loss`", before.loss == config.loss),
        ("`cost`", before.cost == config.cost),
        (
            "`class_weight`",
            before.class_weights == config.class_weights,
        ),
        ("`bias`", before.bias == config.bias),
        ("`solver`", before.solver == config.solver),
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

/// What a checkpoint that is whole says of its place in the run and no run of this plan writes.
/// A feed that began there would give out batches of other epochs or none.
pub(super) fn beyond_plan(setup: &Setup, progress: &Progress) -> Option<String> {
    let (end, next) = (setup.plan.steps(0), progress.next);
    let (recorded, epochs) = (progress.epochs.len() as u64, progress.epoch);
    let begun = recorded.checked_sub(u64::from(!progress.in_epoch));
    if begun != Some(epochs) || progress.cursor_epoch != epochs {
        let at = progress.cursor_epoch;
        return Some(format!(
            "epoch {epochs} (from 0) is trained and epoch {at} read after {recorded} epochs"
        ));
    }
    let fits = match progress.in_epoch {
        true => next < end,
        false => next == end,
    };
    (!fits).then(|| format!("{next} of an epoch's {end} blocks are done"))
}
