//! Files on object stores and web servers, as storages.
//!
//! [`Stores`] opens `s3://`, `gs://`, `az://` and `http(s)://` addresses and lists what matches a pattern. A file is a
//! [`RemoteObject`], a [`Storage`](pelton_storage::Storage): a batch of ranges becomes few requests, all under way at
//! once, each attempted as often as it may help. Over it a [`DiskCache`] keeps what was fetched in a folder.
//!
//! Reading order: `stores` finds the client of an address, `object` reads a file, `merge` makes requests of ranges,
//! `attempts` makes them again, `failure` says what went wrong, `headers` puts answers right, `disk_cache` keeps blocks.

mod options;

mod address;
mod aws_profile;
mod failure;
mod headers;
mod merge;
mod runtime;

mod attempts;
mod listing;
mod object;

mod stores;

mod cached;
mod disk_cache;
mod segment;

pub use cached::Cached;
pub use disk_cache::DiskCache;
pub use object::RemoteObject;
pub use options::RemoteOptions;
pub use stores::Stores;
