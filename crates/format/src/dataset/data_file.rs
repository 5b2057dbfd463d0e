//! One file of a data set: the offsets of its records and how to decode them.

use crate::locate::reach::{Blocks, Reach};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelton_storage::{FileSet, Storage};

use crate::locate::decoder::Decoder;
use crate::locate::places::stamp::Stamp;
use crate::locate::places::{IN_FILE, LINE_ENDS, Places};
use crate::record::error::Fault;
use crate::record::kind::{FormatKind, ITEMS};
use crate::record::labels::stored::StoredLabels;
use crate::record::numbering::Numbering;
use crate::record::rows::Rows;

/// One file of a data set.
#[derive(Clone, Debug)]
pub struct DataFile {
    pub(crate) path: PathBuf,
    /// The file with the bytes: the path, or the decompressed copy.
    pub(crate) source: PathBuf,
    pub(crate) kind: FormatKind,
    pub(crate) kind_is_guessed: bool,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) first_id: u64,
    pub(crate) records: u64,
    pub(crate) places: Places,
    pub(crate) decoder: Arc<dyn Decoder>,
    /// Maps the labels of its records to classes.
    pub(crate) labels: StoredLabels,
    pub(crate) stamp: Stamp,
    /// The reader of the bytes, for remote files.
    pub(crate) remote: Option<Arc<dyn Storage>>,
    /// The files of a folder; each is a record.
    pub(crate) parts: Option<Arc<FileSet>>,
    pub(crate) reach: Reach,
}

impl DataFile {
    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file with the record `record` of this file: a file of the folder, or the path itself. Panics unless `record`
    /// is below [`DataFile::records`].
    pub fn record_path(&self, record: u64) -> PathBuf {
        assert!(record < self.records);
        let of_folder = self.parts.as_ref().map(|parts| parts.path(record as usize));
        of_folder.unwrap_or_else(|| self.path.clone())
    }

    /// The format.
    pub fn kind(&self) -> &FormatKind {
        &self.kind
    }

    /// Whether it is a folder with files as records.
    pub fn is_folder(&self) -> bool {
        self.parts.is_some()
    }

    /// Whether a program makes its records.
    pub fn is_made(&self) -> bool {
        self.kind.name() == ITEMS
    }

    /// Whether it is a remote file.
    pub fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// Whether it is text, so that its numbers are parsed on every read.
    pub fn is_text_of_numbers(&self) -> bool {
        self.decoder.parses_text()
    }

    /// Appends the row in `bytes`, the file's record `record`; on a fault `rows` is unchanged.
    #[inline]
    pub(crate) fn decode(&self, record: u64, bytes: &[u8], rows: &mut Rows) -> Result<(), Fault> {
        rows.push_with(|row| {
            let label = self.decoder.decode(record, bytes, row)?;
            self.labels.class(record, label)
        })
    }

    /// The features of record `record` as f64, unscaled, and its class; `None` if files hold at most f32.
    pub(crate) fn decode_wide(
        &self,
        record: u64,
        bytes: &[u8],
        row: &mut Vec<f64>,
    ) -> Option<Result<u32, Fault>> {
        let label = self.decoder.decode_wide(bytes, row)?;
        Some(label.and_then(|label| self.labels.class(record, label)))
    }

    /// Whether people find a record by its line number.
    pub(crate) fn has_lines(&self) -> bool {
        matches!(
            self.places,
            Places::Listed {
                from: LINE_ENDS,
                ..
            }
        )
    }

    /// The cost of reading one record.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Bytes of the smallest read: the device's unit, or a block if records are decoded by blocks.
    pub fn unit_bytes(&self) -> f64 {
        match self.reach {
            Reach::Blocks(blocks) => blocks.bytes,
            _ => f64::from(self.storage.granularity().offset_bytes),
        }
    }

    /// The storage of the records.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Id of the file's first record.
    pub fn first_id(&self) -> u64 {
        self.first_id
    }

    /// How its records were found, in words.
    pub fn located_by(&self) -> String {
        let found = self.places_in_words();
        match self.reach {
            Reach::InPlace | Reach::Computed => found,
            Reach::Gathered { places } => {
                format!("{found}; its values lie in {places} places of the file")
            }
            Reach::Blocks(Blocks {
                count,
                bytes,
                kept_bytes,
                ..
            }) => format!(
                "{found}, in {count} blocks of {:.1} MB that are decoded whole; up to {} MB of blocks stay in memory, next to the budget",
                bytes / 1e6,
                kept_bytes / 1_000_000
            ),
        }
    }

    fn places_in_words(&self) -> String {
        match &self.places {
            Places::Fixed { from, bytes } => {
                format!("by arithmetic: {bytes} bytes each from byte {from} on")
            }
            Places::Spaced {
                from,
                stride,
                bytes,
            } => {
                format!(
                    "by arithmetic: {bytes} bytes each, one every {stride} bytes from byte {from} on"
                )
            }
            Places::Cut { bytes, .. } => {
                format!("by arithmetic: {bytes} bytes each, and the last one shorter")
            }
            Places::Files(_) => "by its place in the listing: each is a file".into(),
            Places::Listed { from: IN_FILE, .. } => "by the list of starts in the file".into(),
            Places::Listed { from, .. } => format!("by a list of starts, {from}"),
        }
    }

    /// Memory of the offsets and classes of its records, in bytes.
    pub(crate) fn index_bytes(&self) -> u64 {
        let codes = self.labels.codes.heap_bytes();
        let names = self.parts.as_ref().map_or(0, |parts| parts.heap_bytes());
        self.places.heap_bytes() + codes + names
    }

    /// Number of records in the file.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// How the file numbers its features.
    pub fn numbering(&self) -> Numbering {
        self.decoder.numbering()
    }

    /// The decompressed copy with the bytes of the records, if they are not at the path.
    pub fn decompressed(&self) -> Option<&Path> {
        (self.source != self.path).then_some(&self.source)
    }
}
