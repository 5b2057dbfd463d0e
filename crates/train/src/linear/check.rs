//! Checks the configuration, and diagnoses data that no model can be trained on.

use std::sync::Arc;

use pelton_data::{self as data, OpenedData};
use pelton_fetch::FetchOptions;
use pelton_format::Dataset;
use pelton_linear::{Penalty, Problem};
use pelton_plan::Order;
use pelton_run::Interrupt;

use super::evaluation::for_each_batch;
use crate::config::LinearConfig;
use crate::error::TrainError;

/// Memory for reading data once more to diagnose it.
const DIAGNOSIS_BYTES: u64 = 16 << 20;

/// Most folds.
const MOST_FOLDS: u32 = 50;

/// Refuses settings that contradict one another or are out of range.
pub(super) fn check(config: &LinearConfig) -> Result<(), TrainError> {
    let wrong = |text: String| Err(TrainError::config(text));
    if config.epochs == 0 {
        return wrong("`epochs` 0 trains nothing; give 1 or more".to_string());
    }
    if config.blocks == Some(0) {
        return wrong("`blocks` 0 leaves nothing to train on; give 1 or more".to_string());
    }
    if let (Order::Block { blocks, .. }, Some(other)) = (config.order, config.blocks)
        && blocks != other
    {
        return wrong(format!(
            "`order` {} and `blocks` {other} ask for different numbers of blocks; give only one of them",
            config.order
        ));
    }
    check_costs(config)?;
    if config.penalty == Penalty::None && (config.cost != 1.0 || !config.costs.is_empty()) {
        return wrong("`cost` weighs losses against the penalty, and `penalty` none has none; leave `cost` out".to_string());
    }
    let kept = config.cache_fraction.unwrap_or(0.0);
    if !(0.0..=0.9).contains(&kept) {
        return wrong(format!(
            "`cache_fraction` {kept} is not a share of the block memory between 0 and 0.9",
        ));
    }
    let of_classes = [
        (
            "class_weight",
            config.balanced || !config.class_weights.is_empty(),
        ),
        ("positive", config.data.positive.is_some()),
        ("classes", config.data.classes.is_some()),
    ];
    if let (true, Some((setting, _))) = (
        config.loss.has_real_targets(),
        of_classes.iter().find(|(_, is_given)| *is_given),
    ) {
        return wrong(format!(
            "`{setting}` is for classes, and loss {} predicts real targets; leave it out",
            config.loss
        ));
    }
    let selective = config.skip || kept > 0.0;
    let full = config.order == Order::Full;
    if selective && !full {
        return wrong(format!(
            "`skip` and `cache_fraction` skip records of an epoch, which `order` {} does not support; use `order` full",
            config.order
        ));
    }
    data::check_seconds("checkpoint_every", config.checkpoint_every_s)?;
    if let Some(folder) = &config.scratch_dir {
        data::check_scratch(folder)?;
    }
    Ok(data::check_threads("`threads`", config.threads)?)
}

/// Refuses costs and folds that do not make a search.
fn check_costs(config: &LinearConfig) -> Result<(), TrainError> {
    let wrong = |text: String| Err(TrainError::config(text));
    let costs = &config.costs;
    for (at, cost) in costs.iter().enumerate() {
        Problem::new(config.loss, *cost, 1, 2)?;
        if costs[..at].contains(cost) {
            return wrong(format!("`cost` lists {cost} twice; leave one out"));
        }
    }
    match config.folds {
        None if !costs.is_empty() => wrong(format!(
            "`cost` lists {} costs, and nothing says how to choose; give `folds` too, such as 5, or one cost",
            costs.len()
        )),
        Some(folds) if !(2..=MOST_FOLDS).contains(&folds) => wrong(format!(
            "`folds` {folds} is out of range; give 2 to {MOST_FOLDS}, such as 5"
        )),
        _ => Ok(()),
    }
}

/// Reports what is wrong with data without features, or without two classes if the loss needs classes. Usually the
/// format was misdetected; then the error of the first bad record is more useful than the count of labels, which skips
/// unreadable labels. Costs up to one pass, only before an error.
pub(super) fn refuse_untrainable(
    config: &LinearConfig,
    data: &OpenedData,
    interrupt: &Interrupt,
) -> Result<(), TrainError> {
    let dataset = &data.dataset;
    let labels = dataset.labels();
    let is_real = config.loss.has_real_targets();
    let suffices = if is_real {
        dataset.records() > 0
    } else {
        labels.len() >= 2
    };
    if suffices && dataset.features() > 0 {
        return Ok(());
    }
    read_all(config, dataset, interrupt)?;
    let paths = config.data.paths.join(", ");
    Err(TrainError::config(match labels.values() {
        _ if dataset.features() == 0 && (is_real || !labels.is_empty()) => {
            format!(
                "{paths}: its records have a label but no features; check the file and `format`"
            )
        }
        [] => format!("{paths}: no record can be read; check the file and `format`"),
        [only, ..] => format!(
            "{paths}: every record has the label {only}; training needs records of at least two labels"
        ),
    }))
}

/// Reads every record, to return the error of the first bad one.
pub(super) fn read_all(
    config: &LinearConfig,
    dataset: &Arc<Dataset>,
    interrupt: &Interrupt,
) -> Result<(), TrainError> {
    let feed = FetchOptions {
        on_bad_record: config.on_bad_record,
        interrupt: Arc::clone(interrupt),
        ..FetchOptions::with_memory(DIAGNOSIS_BYTES.max(64 * dataset.record_bytes().max()))
    };
    for_each_batch(dataset, &feed, |_| Ok(()))?;
    Ok(())
}
