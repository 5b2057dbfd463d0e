//! Finds the records of data files and decodes them.
//!
//! ```
//! use pelton_format::{Dataset, OpenOptions, Row, Rows};
//! use pelton_storage::{LocalMode, LocalOptions, conformance::read_ranges};
//!
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("flowers.csv");
//! std::fs::write(&path, "height,width,kind\n5.5,3.5,iris\n4.5,3.0,rose\n")?;
//! let storage = LocalOptions { mode: LocalMode::Buffered, ..LocalOptions::default() };
//! let data = Dataset::open(&[path], &OpenOptions { storage, ..OpenOptions::default() })?;
//! assert_eq!((data.records(), data.features()), (2, 2));
//!
//! // Any record is one range of a file.
//! let place = data.locate(1);
//! let storage = data.files()[place.file as usize].storage();
//! let bytes = read_ranges(storage, &[(place.offset, place.length as usize)])?;
//! let mut rows = Rows::new(data.layout());
//! data.decode(1, &bytes[0], &mut rows)?;
//! assert_eq!(rows.row(0), Row::Dense(&[4.5, 3.0]));
//! assert_eq!(data.labels().describe(rows.label(0)), "rose");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Dataset::open`] opens one or many files, recognises their format ([`FormatKind`]) and finds every record: by
//! arithmetic where records have one size, otherwise by one parallel scan. The scan's result is an Elias–Fano list, kept
//! next to the data in a sidecar file. A reader asks [`Dataset::locate`] for the range of a record, reads its bytes through
//! the file's storage, and hands them to [`Dataset::decode`], which appends a row to [`Rows`]. Decoding accesses no file: it
//! sees the bytes of one record.
//!
//! Rows are features to train on, or strings of bytes: pictures (IDX, CIFAR), encoded images (folders), lines or runs of
//! tokens of text, samples of a tar file, named arrays (raw records, JSON Lines, `.npy`, `.npz`). [`Dataset::contents`] says
//! which; [`members`] splits a sample, [`RecordFields`] a row of arrays. A format is a file of `formats/` and a line in its
//! list.

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
mod tables;

mod content;
mod contents;
mod numbering;

mod bad_record;
mod in_place;
mod packed_copy;
mod packed_writer;

mod error;

pub use content::ContentSum;
pub use contents::Contents;
pub use data_file::{Blocks, DataFile, Reach};
pub use dataset::{Dataset, IndexReport, Location, RecordBytes, Renumber};
pub use error::{Fault, FormatError, FormatErrorKind};
pub use formats::delimited::LabelColumn;
pub use formats::delimited::decimal::Decimal;
pub use formats::delimited::heading::Header;
pub use formats::delimited::known_columns::KnownColumns;
pub use formats::folder::EXTENSIONS as PICTURE_EXTENSIONS;
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
pub use labels::file_classes::FileClasses;
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
pub use tables::ColumnUse;
pub use tables::kept::KeptCells;
pub use tables::kind::{ColumnKind, NamedKind};

/// Entry points over plain bytes, for fuzzing and measurements.
#[doc(hidden)]
pub mod raw;
