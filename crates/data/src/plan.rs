//! The plan of an order over a data set.

use pelton_format::{Dataset, RecordBytes};
use pelton_plan::{Batching, Catalog, Order, Plan, PlanSpec, Units};

use crate::error::DataError;

/// The plan of an order over a data set; an order of units gets those of the data's records.
pub fn plan_of(
    dataset: &Dataset,
    order: Order,
    batching: Batching,
    seed: u64,
) -> Result<Plan, DataError> {
    let over = Catalog {
        units: units_of(dataset, order),
        ..Catalog::new(dataset.records())
    };
    Ok(Plan::new(&PlanSpec::new(order, batching, seed), over)?)
}

/// The units of an order of units; `None` for other orders.
pub fn units_of(dataset: &Dataset, order: Order) -> Option<Units> {
    let unit_bytes = order.unit_bytes()?;
    Some(match dataset.record_bytes() {
        RecordBytes::Fixed(bytes) => Units::fixed(dataset.records(), bytes, unit_bytes),
        _ => Units::from_lengths(
            (0..dataset.records()).map(|id| dataset.locate(id).length),
            unit_bytes,
        ),
    })
}
