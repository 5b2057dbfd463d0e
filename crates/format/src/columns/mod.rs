//! Parquet and Arrow: tables of columns; records are assembled when they are read.
//!
//! `column` defines the types of columns, `values` takes values out of memory in Arrow's layout, and `record`
//! concatenates those of one record. A [`table::Table`] reads values of any run of records: [`parquet`] decodes them,
//! [`arrow`] (by [`buffers`]) reads them in place or decompresses a batch. `storage` makes the records of a table a
//! storage like any other, so all orders, access paths and caches read them like a file. `opening` chooses columns
//! (`known_order` sorts them), finds labels and lengths, and [`decoder`] makes rows.

pub(crate) mod arrow;
pub(crate) mod buffers;
pub(crate) mod column;
pub(crate) mod decoder;
pub(crate) mod instants;
pub(crate) mod known_order;
pub(crate) mod messages;
pub(crate) mod nested;
pub(crate) mod opening;
pub(crate) mod parquet;
pub(crate) mod parts;
pub(crate) mod read_all;
pub(crate) mod record;
pub(crate) mod runs;
pub(crate) mod storage;
pub(crate) mod table;
pub(crate) mod values;

pub(crate) use crate::columns::opening::{Columns, Kind};
pub(crate) use crate::columns::read_all::read_all;
