//! Formats with files or messages as records: folders, tar, TFRecord, ArrayRecord, shards of MDS and LitData, items of
//! a program.

pub(crate) mod array_record;
pub(crate) mod folder;
pub(crate) mod framed;
pub(crate) mod items;
pub(crate) mod shard;
pub(crate) mod tar;
pub(crate) mod tfrecord;
