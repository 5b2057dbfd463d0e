//! Parquet and Arrow: tables of columns, whose records are put together when they are read.
//!
//! `column` says what a column can hold, `values` takes values out of memory as Arrow lays it out, and `record` puts those of
//! one record side by side. A [`table::Table`] reads values of any run of records: [`parquet`] decodes them, [`arrow`] (by
//! [`buffers`]) reads them where they lie or decompresses a batch. `storage` makes records of a table a storage like any
//! other, so that all orders, access paths and caches read them as they read a file. `opening` chooses columns (`known_order` puts
//! them in a known order), finds labels and lengths, and [`decoder`] makes rows.

mod column;
mod values;

mod record;
mod table;

mod arrow;
mod buffers;
mod messages;
mod parquet;

mod decoder;
mod storage;

mod known_order;
mod opening;
mod parts;
mod read_all;

pub(crate) use opening::{Columns, Kind};
pub(crate) use read_all::read_all;
