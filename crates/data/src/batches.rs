//! All records of a data set once, in the order of the files, within a memory budget.

use std::sync::Arc;

use pelton_fetch::{Access, Fetch, FetchOptions, Meters, RowBatch, largest_batch};
use pelton_format::{Dataset, RowTable, Slot};
use pelton_plan::{Catalog, Order, Plan, PlanSpec};

use crate::error::DataError;

/// Bytes of a stripe, and the least number of stripes of each rank.
const STRIPE_BYTES: u64 = 1 << 20;
const LEAST_STRIPES: u64 = 16;

/// Calls `each` with every batch of the data set in file order. Each batch is its own pane, so its segments can be
/// moved out.
pub fn for_each_batch<E: From<DataError>>(
    dataset: &Arc<Dataset>,
    feed: &FetchOptions,
    mut each: impl FnMut(&mut RowBatch) -> Result<(), E>,
) -> Result<Meters, E> {
    let options = FetchOptions {
        access: Access::Window { gap_bytes: None },
        start: Default::default(),
        end_epoch: Some(1),
        // Several batches a pane would share their segments.
        epoch_barrier: true,
        refill: false,
        ..feed.clone()
    };
    let mut rows = largest_batch(dataset, &options).clamp(1, 1 << 16);
    if let Some(share) = &options.share {
        // A stripe for each rank, so that no rank gets adjacent rows only, which may be of one class.
        let ranks = share.world_size();
        rows = u64::from(ranks) * rows.min(stripe_records(dataset, ranks));
    }
    let plan = Plan::new(
        &PlanSpec::new(Order::Sequential, rows, 0),
        Catalog::new(dataset.records()),
    )
    .map_err(DataError::from)?;
    let feed = Fetch::new(Arc::clone(dataset), Arc::new(plan), &options);
    let mut feed = feed.map_err(DataError::from)?;
    while let Some(batch) = feed.next_batch().map_err(DataError::from)? {
        each(batch)?;
    }
    let mut meters = feed.meters();
    // Every record is read once, in file order: more memory or another access path would not help.
    meters.remedies.memory = false;
    Ok(meters)
}

/// Every row of a data set in memory, or every one of this rank's share, in file order, and the meters of reading them.
pub fn hold_rows(
    dataset: &Arc<Dataset>,
    feed: &FetchOptions,
) -> Result<(RowTable, Meters), DataError> {
    let mut segments = Vec::new();
    let mut slots = Vec::with_capacity(dataset.records() as usize);
    let mut ids = Vec::with_capacity(dataset.records() as usize);
    let meters = for_each_batch::<DataError>(dataset, feed, |batch| {
        let base = segments.len() as u32;
        let rows = std::mem::take(&mut batch.rows);
        ids.extend_from_slice(rows.ids());
        slots.extend(rows.slots().iter().map(|slot| Slot {
            segment: slot.segment + base,
            row: slot.row,
        }));
        let owned = rows.into_segments();
        segments.extend(owned.expect("the batch of a pane of one batch owns its segments"));
        Ok(())
    })?;
    Ok((RowTable::from_parts(segments, slots, ids), meters))
}

/// Records of a stripe of the files.
pub fn stripe_records(dataset: &Dataset, ranks: u32) -> u64 {
    let records = dataset.records().max(1);
    let stripe = STRIPE_BYTES * records / dataset.bytes().max(1);
    let most = records / u64::from(ranks) / LEAST_STRIPES;
    stripe.min(most).max(1)
}
