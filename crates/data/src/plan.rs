//! The plan of an order over a data set.

use pelton_format::{Dataset, RecordBytes};
use pelton_plan::{Batching, Order, Plan, Units};

use crate::error::DataError;

/// The plan of an order over a data set; an order that reads in units gets those that its records
/// make.
pub fn plan_of(
    dataset: &Dataset,
    order: Order,
    batching: Batching,
    seed: u64,
) -> Result<Plan, DataError> {
    match units_of(dataset, order) {
        Some(units) => Ok(Plan::over_units(units, order, batching, seed)?),
        None => Ok(Plan::new(dataset.records(), order, batching, seed)?),
    }
}

/// The units of an order of units.
pub fn units_of(dataset: &Dataset, order: Order) -> Option<Units> {
    let (Order::Page { unit_bytes } | Order::Opportunistic { unit_bytes, .. }) = order else {
        return None;
    };
    Some(match dataset.record_bytes() {
        RecordBytes::Fixed(bytes) => Units::fixed(dataset.records(), bytes, unit_bytes),
        _ => Units::from_lengths(
            (0..dataset.records()).map(|id| dataset.locate(id).length),
            unit_bytes,
        ),
    })
}
