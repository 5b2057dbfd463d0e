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

pub(crate) mod arrays;
#[cfg(feature = "columns")]
pub(crate) mod columns;
pub(crate) mod dataset;
pub(crate) mod locate;
/// Entry points over plain bytes, for fuzzing and measurements.
#[doc(hidden)]
pub mod raw;
pub(crate) mod record;
pub(crate) mod samples;
pub(crate) mod text;

pub use crate::arrays::idx::writer::IdxWriter;
pub use crate::arrays::mixture::Mixture;
pub use crate::arrays::npy::numbers::npy_numbers;
pub use crate::arrays::npy::{NpyHeader, npy_array};
pub use crate::arrays::packed::{IndexCoding, PackedShape};
pub use crate::dataset::content::ContentSum;
pub use crate::dataset::data_file::DataFile;
pub use crate::dataset::in_place::{InPlace, InPlaceClass};
pub use crate::dataset::kept::KeptCells;
pub use crate::dataset::packed_copy::PackedCopy;
pub use crate::dataset::packed_writer::{PackedSummary, PackedWriter};
pub use crate::dataset::{Dataset, IndexReport, Location, RecordBytes, Renumber};
pub use crate::locate::places::IndexSource;
pub use crate::locate::reach::{Blocks, Reach};
pub use crate::record::cells::column_kind::{ColumnKind, NamedKind};
pub use crate::record::cells::decimal::Decimal;
pub use crate::record::cells::heading::Header;
pub use crate::record::cells::known_columns::KnownColumns;
pub use crate::record::cells::label_column::LabelColumn;
pub use crate::record::contents::Contents;
pub use crate::record::error::{Fault, FormatError, FormatErrorKind};
pub use crate::record::json::{JsonKey, json_numbers};
pub use crate::record::kind::FormatKind;
pub use crate::record::labels::ClassMap;
pub use crate::record::labels::class_name::ClassName;
pub use crate::record::labels::file_classes::FileClasses;
pub use crate::record::numbering::Numbering;
pub use crate::record::options::{Missing, OpenOptions, RowLayout, StorageChoice};
pub use crate::record::remote::{OpenRemote, RemoteFile, is_remote};
pub use crate::record::rows::feature_type::FeatureType;
pub use crate::record::rows::fields::{Field, RecordFields, element_value};
pub use crate::record::rows::scale::{COARSE, Scale};
pub use crate::record::rows::{Layout, Row, RowTable, Rows, Slot};
pub use crate::samples::folder::EXTENSIONS as PICTURE_EXTENSIONS;
pub use crate::samples::tar::members::{Member, Members, members};
pub use crate::text::tables::ColumnUse;
pub use pelton_batch::Schema;
