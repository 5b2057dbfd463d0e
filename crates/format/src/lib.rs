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
//! arithmetic if records have one size, otherwise by one parallel scan. The scan's result is an Elias–Fano list, kept
//! next to the data in a sidecar file. A reader asks [`Dataset::locate`] for the range of a record, reads its bytes
//! through the file's storage, and hands them to [`Dataset::decode`], which appends a row to [`Rows`]. Decoding
//! accesses no file: it sees the bytes of one record.
//!
//! Rows are features to train on, or strings of bytes: pictures (IDX, CIFAR), encoded images (folders), lines or runs
//! of tokens of text, samples of a tar file, named arrays (raw records, JSON Lines, `.npy`, `.npz`).
//! [`Dataset::contents`] says which; [`members`] splits a sample, [`RecordFields`] a row of arrays.
//!
//! Seven folders; each imports only earlier ones, and `text` to `arrays` do not import each other:
//!
//! - `record`: errors, numbers, cells, labels, rows, options, the kinds of formats;
//! - `locate`: the traits of a format and its decoder, offsets of records, scans, sidecars;
//! - `text`, `columns`, `samples`, `arrays`: the formats;
//! - `dataset`: the list of formats, opening, and the data set.

mod arrays;
#[cfg(feature = "columns")]
mod columns;
mod dataset;
mod locate;
mod record;
mod samples;
mod text;

pub use arrays::mixture::Mixture;
pub use arrays::npy::numbers::npy_numbers;
pub use arrays::npy::{NpyHeader, npy_array};
pub use arrays::packed::{IndexCoding, PackedShape};
pub use dataset::content::ContentSum;
pub use dataset::data_file::DataFile;
pub use dataset::in_place::{InPlace, InPlaceClass};
pub use dataset::kept::KeptCells;
pub use dataset::packed_copy::PackedCopy;
pub use dataset::packed_writer::{PackedSummary, PackedWriter};
pub use dataset::{Dataset, IndexReport, Location, RecordBytes, Renumber};
pub use locate::places::IndexSource;
pub use locate::reach::{Blocks, Reach};
pub use pelton_batch::Schema;
pub use record::cells::column_kind::{ColumnKind, NamedKind};
pub use record::cells::decimal::Decimal;
pub use record::cells::heading::Header;
pub use record::cells::known_columns::KnownColumns;
pub use record::cells::label_column::LabelColumn;
pub use record::contents::Contents;
pub use record::error::{Fault, FormatError, FormatErrorKind};
pub use record::json::{JsonKey, json_numbers};
pub use record::kind::FormatKind;
pub use record::labels::ClassMap;
pub use record::labels::class_name::ClassName;
pub use record::labels::file_classes::FileClasses;
pub use record::numbering::Numbering;
pub use record::options::{Missing, OpenOptions, RowLayout, StorageChoice};
pub use record::remote::{OpenRemote, RemoteFile, is_remote};
pub use record::rows::feature_type::FeatureType;
pub use record::rows::fields::{Field, RecordFields, element_value};
pub use record::rows::scale::{COARSE, Scale};
pub use record::rows::{LABELS_FIELD, Layout, Row, RowTable, Rows, Slot};
pub use samples::folder::EXTENSIONS as PICTURE_EXTENSIONS;
pub use samples::tar::members::{Member, Members, members};
pub use text::tables::ColumnUse;

/// Entry points over plain bytes, for fuzzing and measurements.
#[doc(hidden)]
pub mod raw;
