//! Where each record lies and what it says.
//!
//! [`Dataset::open`] looks at one or many files, finds their format ([`FormatKind`]) and where every
//! record lies: by arithmetic where records are of one size, otherwise by one parallel scan whose
//! result is an Elias–Fano list, kept beside the data in a sidecar file. Whoever reads then asks
//! [`Dataset::locate`] for a range, fetches its bytes through the file's storage in whatever way
//! suits, and hands them to [`Dataset::decode`], which appends a row to [`Rows`]. Decoding touches no
//! file: it sees the bytes of one record.
//!
//! Rows are features to train on, or strings of bytes: pictures (IDX, CIFAR), encoded images (folders),
//! lines or runs of tokens of text, samples of a tar file, named arrays (raw records, JSON Lines, `.npy`, `.npz`). [`Dataset::contents`] says which; [`members`] splits a sample,
//! [`fields()`] such a row of arrays.

mod class_name;
mod contents;
mod error;
mod fields;
mod format;
mod formats;
mod kind;
mod labels;
mod recognition_error;
mod rows;
mod scale;
mod stamp;
mod system_error;
mod table_error;

mod bad_number;
mod bad_record;
mod common_labels;
mod common_layout;
mod data_file;
mod dataset;
mod open;
mod options;
mod origin;
mod tables;

mod delimited;
mod heading;
mod known_columns;
mod libsvm;
mod missing;
mod npy;
mod npy_numbers;
mod number;
mod numbering;
mod packed;
mod packed_copy;
mod packed_reader;
mod packed_writer;
mod table_columns;

mod feature_type;
mod features;
mod fields_in_order;
mod gaussian_mixture;
mod mixture;

mod array_record;
#[cfg(feature = "columns")]
mod columns;
mod example;
mod example_fields;
mod example_scan;
mod framed;
mod json_kinds;
mod json_lines;
mod npz;
mod raw_records;
mod remote;
mod riegeli;
mod tfrecord;

mod litdata;
mod litdata_json;
mod mds;
mod shard;
mod shard_cells;
mod shard_folder;

mod cifar;
mod classes_so_far;
mod codes;
mod folder;
mod folder_index;
mod idx;
mod idx_writer;
mod in_place;
mod label_table;
mod listed_class;
mod sample;
mod stream;
mod text;

mod json_label;
mod members;
mod tar_classes;
mod tar_file;
mod tar_header;
mod tar_walk;

mod byte_source;
mod chunks_in_order;
mod compressed;
mod elias_fano;
mod fingerprint;
mod gathered;
mod input;
mod line_scan;
mod located;
mod names_beside;
mod newlines;
mod scan_chunk;
mod sidecar;
mod token_scan;

pub use class_name::ClassName;
pub use contents::Contents;
pub use data_file::{Blocks, DataFile, IndexSource, Reach};
pub use dataset::{Dataset, IndexReport, Location, RecordBytes, Renumber};
pub use delimited::LabelColumn;
pub use error::{Fault, FormatError};
pub use feature_type::FeatureType;
pub use fields::{Field, element_value, fields};
pub use heading::Header;
pub use idx_writer::IdxWriter;
pub use in_place::{InPlace, InPlaceClass};
pub use json_label::{JsonFault, JsonKey, json_numbers};
pub use kind::FormatKind;
pub use known_columns::KnownColumns;
pub use labels::ClassMap;
pub use members::{Member, Members, members};
pub use mixture::Mixture;
pub use npy::{NpyHeader, npy_array};
pub use npy_numbers::npy_numbers;
pub use numbering::Numbering;
pub use options::{Missing, OpenOptions, RowLayout, StorageChoice};
pub use packed::{IndexCoding, PackedShape};
pub use packed_copy::PackedCopy;
pub use packed_writer::{PackedSummary, PackedWriter};
pub use pelton_batch::Schema;
pub use recognition_error::RecognitionError;
pub use remote::{OpenRemote, RemoteFile, is_remote};
pub use rows::{Layout, Row, RowTable, Rows, Slot};
pub use scale::{COARSE, Scale};
pub use table_error::TableError;

/// Entry points over plain bytes, for fuzzing and measurements.
#[doc(hidden)]
pub mod raw;
