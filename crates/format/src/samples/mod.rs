//! TODO

pub(crate) mod array_record;
pub(crate) mod folder;
pub(crate) mod framed;
pub(crate) mod items;
pub(crate) mod shard;
pub(crate) mod tar;
pub(crate) mod tfrecord;
