//! Where each record lies and what it says.
//!
//! [`Dataset::open`] looks at one or many files, finds their format ([`FormatKind`]) and where every
//! record lies: by arithmetic where records are of one size, otherwise by one parallel scan whose
//! result is an Elias–Fano list, kept next to the data in a sidecar file. The one that reads then asks
//! [`Dataset::locate`] for a range, fetches its bytes through the file's storage in whatever way
//! suits, and hands them to [`Dataset::decode`], which appends a row to [`Rows`]. Decoding touches no
//! file: it sees the bytes of one record.
//!
//! Rows are features to train on, or strings of bytes: pictures (IDX, CIFAR), encoded images (folders),
//! lines or runs of tokens of text, samples of a tar file, named arrays (raw records, JSON Lines, `.npy`, `.npz`). [`Dataset::contents`] says which; [`members`] splits a sample,
//! [`RecordFields`] a row of arrays. A format is a file of `formats/` and a line in its list.

mod dataset;
mod open;
mod origin;
mod remote;

mod data_file;
mod decoder;
mod format;
mod kind;
mod options;

mod formats;
mod labels;
mod places;
mod rows;

mod contents;
mod numbering;

mod bad_record;
mod in_place;
mod packed_copy;
mod packed_writer;

mod error;

pub use contents::Contents;
pub use data_file::{Blocks, DataFile, Reach};
pub use dataset::{Dataset, IndexReport, Location, RecordBytes, Renumber};
pub use error::{Fault, FormatError, FormatErrorKind};
pub use formats::delimited::LabelColumn;
pub use formats::delimited::heading::Header;
pub use formats::delimited::known_columns::KnownColumns;
pub use formats::idx::writer::IdxWriter;
pub use formats::mixture::Mixture;
pub use formats::npy::numbers::npy_numbers;
pub use formats::npy::{NpyHeader, npy_array};
pub use formats::packed::{IndexCoding, PackedShape};
pub use formats::tar::members::{Member, Members, members};
pub use in_place::{InPlace, InPlaceClass};
pub use kind::FormatKind;
pub use labels::ClassMap;
pub use labels::class_name::ClassName;
pub use labels::json::{JsonKey, json_numbers};
pub use numbering::Numbering;
pub use options::{Missing, OpenOptions, RowLayout, StorageChoice};
pub use packed_copy::PackedCopy;
pub use packed_writer::{PackedSummary, PackedWriter};
pub use pelton_batch::Schema;
pub use places::IndexSource;
pub use remote::{OpenRemote, RemoteFile, is_remote};
pub use rows::feature_type::FeatureType;
pub use rows::fields::{Field, RecordFields, element_value};
pub use rows::scale::{COARSE, Scale};
pub use rows::{Layout, Row, RowTable, Rows, Slot};

/// Entry points over plain bytes, for fuzzing and measurements.
#[doc(hidden)]
pub mod raw;
