//! Prefetches the records of a plan within a memory budget.
//!
//! ```
//! use std::sync::Arc;
//!
//! use pelton_fetch::{Fetch, FetchOptions};
//! use pelton_format::{Dataset, OpenOptions};
//! use pelton_plan::{Catalog, Order, Plan, PlanSpec};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("lines.txt");
//! # std::fs::write(&path, "a line\n".repeat(100))?;
//! let dataset = Arc::new(Dataset::open(&[path], &OpenOptions::default())?);
//! let spec = PlanSpec::new(Order::Full, 40, 7);
//! let plan = Arc::new(Plan::new(&spec, Catalog::new(dataset.records()))?);
//! let options = FetchOptions {
//!     end_epoch: Some(1),
//!     ..FetchOptions::with_memory(16 << 20)
//! };
//! let mut fetch = Fetch::new(dataset, plan, &options)?;
//! let mut rows = 0;
//! while let Some(batch) = fetch.next_batch()? {
//!     rows += batch.rows.len();
//! }
//! assert_eq!(rows, 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Fetch`] knows from the plan which records come next, loads them ahead of the consumer and
//! yields them batch by batch in exactly the plan's order. It works in *panes*: a pane is a run of
//! consecutive batches with records loaded together. The access path decides how a pane is loaded:
//!
//! * `direct`: every record by its own read, many reads in flight;
//! * `window`: the records of several panes are sorted by location and read in one sweep over the files, so that a
//!   page is read once for all the records that the sweep needs from it;
//! * `scatter`: the records of a pane were appended to its buckets while the epoch before was read.
//!
//! Every path yields the identical sequence; they differ in cost. `auto` takes the cheapest by a
//! cost model fed with the record size, the memory budget and the device's measured speed.
//!
//! A [`RecordReader`] reads records by id, without a plan.
//!
//! Reading order: [`FetchOptions`] is the request, `sizing` divides the budget, `planner` turns the steps into panes,
//! `reader` or `scatter` fills them, [`Fetch`] hands them out, [`Meters`] break down the time.

mod access;
mod demand;
mod error;
mod fetch;
mod kept_bitmap;
mod meters;
mod options;
mod pane;
mod planner;
mod ranges;
mod reader;
mod record_reader;
mod scatter;
mod scatter_budget;
mod share;
mod sizing;
mod steps;

pub use access::{AccessChoice, choose_access};
pub use error::FetchError;
pub use fetch::{Fetch, Recycler, RowBatch, choose_path};
pub use meters::{MeterCounters, Meters, Remedies, Verdict};
pub use options::{Access, Device, DeviceSpeed, FetchOptions, OnBadRecord};
pub use record_reader::RecordReader;
pub use share::{Holder, Owner, Share};
pub use sizing::{decoded_row_bytes, largest_batch, pane_row_bytes};
pub use steps::{Step, Steps};
