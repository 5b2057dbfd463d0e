//! The passes over the data before training, each if requested or useful: pack, scale and renumber rows.

use pelton_data::OpenedData;
use pelton_linear::Scaling;
use pelton_run::Observer;

use super::budget::Budget;
use super::first_pass::FirstPass;
use super::ranks::Ranks;
use super::rows::Rows;
use super::{counting, packing, scaling};
use crate::checkpoint::Progress;
use crate::config::LinearConfig;
use crate::error::TrainError;

/// Makes the passes that are configured, that pay, or that the run before made.
pub(super) fn prepare(
    config: &LinearConfig,
    (data, target_centre): (OpenedData, f64),
    budget: &Budget,
    before: Option<&Progress>,
    weights: Option<&[f32]>,
    ranks: Ranks<'_>,
    observer: Observer<'_>,
) -> Result<Rows, TrainError> {
    let mut rows = Rows::located(data, target_centre);
    let mut pass = FirstPass {
        feed: &budget.feed,
        ranks,
        observer,
    };
    match before.map(|before| before.packed) {
        Some(true) => packing::pack(&mut rows, config, &mut pass)?,
        None if !budget.in_core && packing::pays(config, &rows.data, ranks) => {
            packing::try_to_pack(&mut rows, config, &mut pass)?;
        }
        _ => {}
    }
    if config.scale != Scaling::None {
        scaling::scale(&mut rows, config, weights, &mut pass)?;
    }
    let numbered = before.map(|before| before.numbered);
    let pays = || !budget.in_core && counting::pays(config, &rows.data.dataset);
    if numbered.unwrap_or_else(pays) {
        counting::renumber(&mut rows, &mut pass)?;
    }
    Ok(rows)
}
