//! Parquet and Arrow: tables of columns; records are assembled when they are read.
//!
//! `column` says what a column can hold, `values` takes values out of memory as Arrow lays it out, and `record`
//! concatenates those of one record. A [`table::Table`] reads values of any run of records: [`parquet`] decodes them,
//! [`arrow`] (by [`buffers`]) reads them in place or decompresses a batch. `storage` makes the records of a table a
//! storage like any other, so all orders, access paths and caches read them like a file. `opening` chooses columns
//! (`known_order` sorts them), finds labels and lengths, and [`decoder`] makes rows.

mod column;
mod values;

mod record;
mod table;

mod arrow;
mod buffers;
mod messages;
mod parquet;

mod instants;

mod decoder;
mod storage;

mod known_order;
mod opening;
mod parts;
mod read_all;

pub(crate) use opening::{Columns, Kind};
pub(crate) use read_all::read_all;
