//! Opens the data and the test data of a run.

use pelton_data::{self as data, OpenedData};
use pelton_fetch::OnBadRecord;
use pelton_format::RowLayout;
use pelton_linear::Scaling;
use pelton_run::{Event, Interrupt, Observer};

use super::check::{read_all, refuse_untrainable};
use super::ranks::Ranks;
use super::rows::Rows;
use super::{choice, scaling};
use crate::config::LinearConfig;
use crate::error::TrainError;

/// Opens the training data, decides what of the configuration depends on it, and refuses such as no model can be
/// trained on.
pub(super) fn open(
    config: &mut LinearConfig,
    ranks: Ranks<'_>,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<OpenedData, TrainError> {
    let paths = &config.data.paths.clone();
    if paths.is_empty() {
        return Err(TrainError::config(
            "no data is given; name files, or demo:higgs to try generated data".to_string(),
        ));
    }
    let skips = config.on_bad_record != OnBadRecord::Fail;
    let data = config.data.with_rows(match config.scale {
        Scaling::None => RowLayout::DenseWhereFull,
        _ => RowLayout::WithZeros,
    });
    let settings = data.leaving_damage(skips).with_codes();
    let settings = settings.with_targets(config.loss.has_real_targets());
    let mut data = ranks.open(&settings, paths, None, interrupt, observer)?;
    if std::mem::take(&mut config.guesses_loss) {
        config.loss = choice::guess_loss(config, data.dataset.labels(), data.dataset.records());
    }
    if config.loss.has_real_targets() && !settings.targets {
        observer(Event::Note(&format!(
            "{}: its {} labels are numbers rather than classes, so a regression is trained (`loss` squared); `loss` multinomial makes each a class",
            paths.join(", "),
            data.dataset.labels().len()
        )));
        let settings = settings.with_targets(true);
        data = ranks.open(&settings, paths, None, interrupt, observer)?;
    }
    if config.scale == Scaling::Auto {
        let is_table = data.dataset.columns().is_some();
        config.scale = if is_table {
            Scaling::Standard
        } else {
            Scaling::None
        };
    }
    let columns = data.dataset.column_uses().iter();
    let lines: String = columns.map(|column| format!("\n  {column}")).collect();
    if !lines.is_empty() {
        observer(Event::Note(&format!(
            "columns as features (`column` NAME=KIND changes them):{lines}"
        )));
    }
    refuse_untrainable(config, &data, interrupt)?;
    scaling::refuse_coarse(&data.dataset, config, paths)?;
    let records = data.dataset.records();
    if let Some(blocks) = config.blocks.filter(|&blocks| blocks > records) {
        return Err(TrainError::config(format!(
            "`blocks` {blocks} is more than the {records} records; give 1 to {records}"
        )));
    }
    if let Some(folds) = config.folds.filter(|&folds| u64::from(folds) > records) {
        return Err(TrainError::config(format!(
            "`folds` {folds} is more than the {records} records; give 2 to {records}"
        )));
    }
    Ok(data)
}

/// Opens the test data, where there is some.
pub(super) fn open_test(
    config: &LinearConfig,
    rows: &Rows,
    ranks: Ranks<'_>,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<Option<OpenedData>, TrainError> {
    let paths = if config.test.is_empty() {
        &rows.data.test
    } else {
        &config.test
    };
    if paths.is_empty() {
        return Ok(None);
    }
    let scale = rows.scale.as_ref();
    let skips = config.on_bad_record != OnBadRecord::Fail;
    let data = config.data.with_rows(data::row_layout(
        scale.map(AsRef::as_ref),
        rows.data.dataset.columns().map(AsRef::as_ref),
    ));
    let data = data.leaving_damage(skips).with_codes();
    let data = data.with_targets(config.loss.has_real_targets());
    let expected = rows.expected();
    let opened = ranks.open(&data, paths, Some(&expected), interrupt, observer)?;
    // Records to skip are skipped one by one.
    if !skips && opened.dataset.has_unknown_class() {
        read_all(config, &opened.dataset, interrupt)?;
    }
    Ok(Some(opened.scaled(scale).centred(rows.target_centre)))
}
