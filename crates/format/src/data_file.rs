//! One file of a data set: where its records lie and how to decode them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelton_batch::{DType, FieldSpec, FieldSpecs};
use pelton_storage::{FileSet, Storage};

use crate::error::{Fault, excerpt};
use crate::formats::delimited::{
    DelimitedRules, decode_cells, decode_delimited_line, is_missing, numeric_label,
};
use crate::formats::libsvm::{LibsvmRules, decode_libsvm_line};
use crate::formats::npy::{NpyRules, decode_npy_row, decode_numbers};
use crate::formats::packed::{IndexCoding, decode_packed_dense, decode_packed_sparse};
use crate::kind::FormatKind;
use crate::labels::codes::{Codes, NO_CLASS};
use crate::labels::{Classes, FileLabels};
use crate::numbering::Numbering;
use crate::places::elias_fano::EliasFano;
use crate::places::stamp::Stamp;
use crate::rows::feature_type::FeatureType;
use crate::rows::features::{Cells, FeatureDecoder};
use crate::rows::fields::{FieldDecoder, RowWriter};
use crate::rows::sample::SampleShape;
use crate::rows::{Layout, Rows};

/// One file of a data set.
#[derive(Clone, Debug)]
pub struct DataFile {
    pub(crate) path: PathBuf,
    /// Where the bytes lie: the path, or the decompressed copy.
    pub(crate) source: PathBuf,
    pub(crate) kind: FormatKind,
    pub(crate) kind_is_guessed: bool,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) first_id: u64,
    pub(crate) records: u64,
    pub(crate) places: Places,
    pub(crate) decoder: Decoder,
    pub(crate) stamp: Stamp,
    /// What reads the bytes, where they do not lie on this machine.
    pub(crate) remote: Option<Arc<dyn Storage>>,
    /// The files of a folder, each of which is a record.
    pub(crate) parts: Option<Arc<FileSet>>,
    pub(crate) reach: Reach,
}

impl DataFile {
    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that holds record `record` of this one: a file of the folder, or the path itself. Panics
    /// unless `record` is below [`DataFile::records`].
    pub fn record_path(&self, record: u64) -> PathBuf {
        assert!(record < self.records);
        let of_folder = self.parts.as_ref().map(|parts| parts.path(record as usize));
        of_folder.unwrap_or_else(|| self.path.clone())
    }

    /// The format.
    pub fn kind(&self) -> &FormatKind {
        &self.kind
    }

    /// Whether it is a folder, each of whose files is a record.
    pub fn is_folder(&self) -> bool {
        self.parts.is_some()
    }

    /// Whether its bytes lie elsewhere than on this machine.
    pub fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// Whether it is text whose numbers are parsed each time it is read.
    pub fn is_text_of_numbers(&self) -> bool {
        matches!(
            self.decoder,
            Decoder::Libsvm { .. } | Decoder::Delimited { .. }
        )
    }

    /// What fields its records have; none unless they are of fields.
    pub(crate) fn field_specs(&self) -> FieldSpecs {
        match &self.decoder {
            Decoder::Fields { decoder, .. } => decoder.specs().clone(),
            Decoder::Delimited { rules, .. } => wide_features(rules.features()),
            Decoder::Npy { rules, .. } => wide_features(rules.features()),
            _ => FieldSpecs::default(),
        }
    }

    /// Whether people find a record by the number of its line.
    pub(crate) fn has_lines(&self) -> bool {
        matches!(
            self.places,
            Places::Listed {
                from: LINE_ENDS,
                ..
            }
        )
    }

    /// What reading one record costs.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Bytes of the smallest read: the device's unit, or a block where records are decoded by blocks.
    pub fn unit_bytes(&self) -> f64 {
        match self.reach {
            Reach::Blocks(blocks) => blocks.bytes,
            _ => f64::from(self.storage.granularity().offset_bytes),
        }
    }

    /// What record reads go through.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Id of the file's first record.
    pub fn first_id(&self) -> u64 {
        self.first_id
    }

    /// How its records are found, in words.
    pub fn located_by(&self) -> String {
        let found = self.places_in_words();
        match self.reach {
            Reach::AsItLies | Reach::Computed => found,
            Reach::Gathered { places } => {
                format!("{found}; its values lie in {places} places of the file")
            }
            Reach::Blocks(Blocks {
                count,
                bytes,
                kept_bytes,
                ..
            }) => format!(
                "{found}, in {count} blocks of {:.1} MB that are decoded whole; up to {} MB of blocks stay in memory, beside the budget",
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
            Places::Cut { bytes, .. } => {
                format!("by arithmetic: {bytes} bytes each, and the last one shorter")
            }
            Places::Files(_) => "by its place in the listing: each is a file".into(),
            Places::Listed { from: IN_FILE, .. } => "by the list of starts in the file".into(),
            Places::Listed { from, .. } => format!("by a list of starts, {from}"),
        }
    }

    /// Bytes that the places and classes of its records take in memory.
    pub(crate) fn index_bytes(&self) -> u64 {
        let codes = match &self.decoder {
            Decoder::Sample { codes, .. }
            | Decoder::Pixels { codes, .. }
            | Decoder::Fields { codes, .. }
            | Decoder::Features { codes, .. } => codes.heap_bytes(),
            _ => 0,
        };
        let names = self.parts.as_ref().map_or(0, |parts| parts.heap_bytes());
        self.places.heap_bytes() + codes + names
    }

    /// Number of records in the file.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// How the file numbers its features.
    pub fn numbering(&self) -> Numbering {
        let columns = |label: Option<usize>| Numbering::Columns {
            label: label.map(|label| label as u64 + 1),
        };
        match &self.decoder {
            Decoder::Libsvm { rules, .. } if rules.zero_based => Numbering::FromZero,
            Decoder::Libsvm { .. } => Numbering::FromOne,
            Decoder::Delimited { rules, .. } if rules.order.is_some() => Numbering::FromZero,
            Decoder::Delimited { rules, .. } => columns(rules.label),
            Decoder::Npy { rules, .. } => columns(rules.label),
            Decoder::Features { decoder, .. } => match decoder.label_column() {
                Some(label) => columns(Some(label)),
                None => Numbering::FromZero,
            },
            Decoder::PackedDense { .. }
            | Decoder::PackedSparse { .. }
            | Decoder::Sample { .. }
            | Decoder::Pixels { .. }
            | Decoder::Fields { .. } => Numbering::FromZero,
        }
    }

    /// Where the bytes of the records lie, when not at the path: the decompressed copy.
    pub fn decompressed(&self) -> Option<&Path> {
        (self.source != self.path).then_some(&self.source)
    }
}

/// Features of 64 bits as the field of records.
fn wide_features(width: usize) -> FieldSpecs {
    FieldSpecs(vec![FieldSpec::new(FEATURES, DType::F64, &[Some(width)])])
}

/// What reading one record costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Reach {
    /// One read of its bytes.
    #[default]
    AsItLies,
    /// As many reads as there are columns.
    Gathered {
        /// Places of the file that a record's values lie in.
        places: u32,
    },
    /// Computing it, which takes no longer alone than among others.
    Computed,
    /// Reading and decoding all of its block.
    Blocks(Blocks),
}

/// Blocks of records that are decoded whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blocks {
    /// How many there are.
    pub count: u64,
    /// Mean bytes of one, decoded.
    pub bytes: f64,
    /// Mean bytes of one in the file.
    pub stored_bytes: f64,
    /// Bytes of decoded blocks that stay in memory for all files together.
    pub kept_bytes: u64,
}

/// Starts of records that a search for line ends found.
pub(crate) const LINE_ENDS: &str = "from a search for line ends";
/// Starts of records that the file lists.
pub(crate) const IN_FILE: &str = "in the file";

/// Where the records of a file lie.
#[derive(Clone, Debug)]
pub(crate) enum Places {
    /// Each `bytes` long, from `from` on.
    Fixed { from: u64, bytes: u64 },
    /// Each `bytes` long, from the start of the file on, but for the last, which ends with it at `end`.
    Cut { bytes: u64, end: u64 },
    /// From each start to the next, the last to `end`.
    Listed {
        starts: Arc<EliasFano>,
        end: u64,
        /// How the starts were found, in words.
        from: &'static str,
    },
    /// Each a file of a set.
    Files(Arc<FileSet>),
}

impl Places {
    pub(crate) fn listed(starts: EliasFano, end: u64, from: &'static str) -> Places {
        Places::Listed {
            starts: Arc::new(starts),
            end,
            from,
        }
    }

    /// Offset and length of record `i` of the file.
    #[inline]
    pub(crate) fn get(&self, i: u64) -> (u64, u64) {
        match self {
            Places::Fixed { from, bytes } => (from + i * bytes, *bytes),
            Places::Cut { bytes, end } => {
                let start = i * bytes;
                (start, (*bytes).min(end - start))
            }
            Places::Listed { starts, end, .. } => {
                let mut walk = starts.walk(i);
                let start = walk.next().expect("the record exists");
                (start, walk.next().unwrap_or(*end) - start)
            }
            Places::Files(files) => files.range(i as usize),
        }
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        match self {
            // The set's own bytes are counted with the file it stands for.
            Places::Fixed { .. } | Places::Cut { .. } | Places::Files(_) => 0,
            Places::Listed { starts, .. } => starts.heap_bytes(),
        }
    }
}

/// How the places of records came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IndexSource {
    /// By arithmetic, or from tables in the file itself.
    Arithmetic,
    /// From a sidecar file.
    Sidecar,
    /// By a scan just now.
    Built,
}

/// The pixel that is the feature 1: pixels are features from 0 to 1, as such data is usually scaled.
const BRIGHTEST: f32 = 255.0;

/// How records of a file become rows.
#[derive(Clone, Debug)]
pub(crate) enum Decoder {
    Libsvm {
        rules: LibsvmRules,
        classes: Classes,
    },
    Delimited {
        rules: DelimitedRules,
        labels: CellLabels,
    },
    Npy {
        rules: NpyRules,
        classes: Classes,
    },
    PackedDense {
        classes: StoredClasses,
    },
    PackedSparse {
        coding: IndexCoding,
        features: u64,
        keep: u64,
        classes: StoredClasses,
    },
    Sample {
        shape: SampleShape,
        codes: Codes,
        classes: StoredClasses,
    },
    /// Pixels as features.
    Pixels {
        shape: SampleShape,
        codes: Codes,
        classes: StoredClasses,
    },
    Fields {
        decoder: Arc<dyn FieldDecoder>,
        codes: Codes,
        /// Of those that do not state their label themselves.
        listed: StoredClasses,
        classes: Classes,
    },
    /// Features in a layout of the format's own; otherwise as fields are.
    Features {
        decoder: Arc<dyn FeatureDecoder>,
        codes: Codes,
        listed: StoredClasses,
        classes: Classes,
        /// What stands for features that a record lacks.
        missing: Option<Arc<[f32]>>,
    },
}

/// What the class numbers of a packed file mean in the data set.
#[derive(Clone, Debug)]
pub(crate) enum StoredClasses {
    /// The same as in the data set: so many.
    Same(usize),
    Listed {
        labels: Arc<[f64]>,
        names: Arc<[String]>,
        classes: Arc<[Option<u32>]>,
    },
}

impl StoredClasses {
    pub(crate) fn new(labels: FileLabels, names: Vec<String>, classes: &Classes) -> StoredClasses {
        let known = classes.labels.len();
        let labels = match labels {
            FileLabels::Count(count) if classes.are_counted() && count <= known => {
                return StoredClasses::Same(count);
            }
            labels => labels,
        };
        let mut found = (0..).zip(labels.iter());
        if found.all(|(class, label)| classes.class_of(label) == Some(class)) {
            return StoredClasses::Same(labels.iter().count());
        }
        StoredClasses::Listed {
            names: names.into(),
            classes: labels.iter().map(|label| classes.class_of(label)).collect(),
            labels: labels.iter().collect(),
        }
    }

    #[inline]
    pub(crate) fn class(&self, stored: u32) -> Result<u32, Fault> {
        let unlisted = Fault::Malformed {
            what: "its label is not in the file's list",
        };
        match self {
            _ if stored == NO_CLASS => Err(Fault::NoClass),
            StoredClasses::Same(count) if (stored as usize) < *count => Ok(stored),
            StoredClasses::Same(_) => Err(unlisted),
            StoredClasses::Listed {
                labels,
                names,
                classes,
            } => match classes.get(stored as usize) {
                Some(Some(class)) => Ok(*class),
                Some(None) => Err(match names.get(stored as usize) {
                    Some(name) => Fault::UnknownClass {
                        found: name.clone(),
                    },
                    None => Fault::UnknownLabel {
                        found: labels[stored as usize],
                    },
                }),
                None => Err(unlisted),
            },
        }
    }
}

/// What the label cells of a table mean in the data set.
#[derive(Clone, Debug)]
pub(crate) enum CellLabels {
    Numbers(Classes),
    /// The number that each name has in the file's list.
    Names {
        numbers: Arc<HashMap<String, u32>>,
        classes: StoredClasses,
    },
    /// Nothing: whatever they hold counts as the first class.
    Unread,
}

impl CellLabels {
    pub(crate) fn named(labels: FileLabels, names: Vec<String>, classes: &Classes) -> CellLabels {
        let numbers = (0..)
            .zip(&names)
            .map(|(number, name)| (name.clone(), number));
        CellLabels::Names {
            numbers: Arc::new(numbers.collect()),
            classes: StoredClasses::new(labels, names, classes),
        }
    }

    /// The class of a cell in column `column` (from 0).
    #[inline]
    fn class(&self, cell: &[u8], column: usize) -> Result<u32, Fault> {
        match self {
            CellLabels::Numbers(classes) => known(classes, numeric_label(cell, column)?),
            CellLabels::Names { numbers, classes } => {
                let name = std::str::from_utf8(cell).ok();
                match name.and_then(|name| numbers.get(name)) {
                    Some(number) => classes.class(*number),
                    None if is_missing(cell) => Err(Fault::MissingLabel {
                        column: column as u64 + 1,
                    }),
                    None => Err(Fault::UnknownClass {
                        found: excerpt(cell),
                    }),
                }
            }
            CellLabels::Unread => Ok(0),
        }
    }
}

#[inline]
fn known(classes: &Classes, label: f64) -> Result<u32, Fault> {
    classes
        .class_of(label)
        .ok_or(Fault::UnknownLabel { found: label })
}

/// The field that features are.
pub(crate) const FEATURES: &str = "features";

thread_local! {
    static WIDE: RefCell<Vec<f64>> = RefCell::default();
    static ENTRIES: RefCell<(Vec<u32>, Vec<f32>)> = RefCell::default();
    static ROW: RefCell<Vec<u8>> = RefCell::default();
}

/// Appends a row of the entries that `write` pushes, whose indices ascend: sparse, or where rows are dense with
/// zeros between them.
#[inline]
fn push_entries(
    rows: &mut Rows,
    write: impl FnOnce(&mut Vec<u32>, &mut Vec<f32>) -> Result<u32, Fault>,
) -> Result<(), Fault> {
    if rows.layout() == Layout::Sparse {
        return rows.push_sparse_with(write);
    }
    ENTRIES.with_borrow_mut(|(indices, values)| {
        indices.clear();
        values.clear();
        let class = write(indices, values)?;
        rows.push_dense_with(|row| {
            let features = row.len() as u64;
            for (&index, &value) in indices.iter().zip(values.iter()) {
                match row.get_mut(index as usize) {
                    Some(cell) => *cell = value,
                    None => return Err(Fault::NewFeature { index, features }),
                }
            }
            Ok(class)
        })
    })
}

impl Decoder {
    /// Whether features are a field of f64.
    fn is_wide(&self) -> bool {
        let dtype = match self {
            Decoder::Delimited { rules, .. } => rules.dtype,
            Decoder::Npy { rules, .. } => rules.dtype,
            _ => return false,
        };
        dtype == FeatureType::F64
    }

    /// The features of record `record` as f64, without a scale, and its class; `None` where files hold no more than f32.
    pub(crate) fn decode_wide(
        &self,
        record: u64,
        bytes: &[u8],
        row: &mut Vec<f64>,
    ) -> Option<Result<u32, Fault>> {
        row.clear();
        Some(match self {
            Decoder::Delimited { rules, labels } => {
                row.resize(rules.features(), 0.0);
                let class = |cell: &[u8]| labels.class(cell, rules.label.unwrap_or(0));
                decode_cells(bytes, rules, row, class).map(|class| class.unwrap_or(0))
            }
            Decoder::Npy { rules, classes } => {
                row.resize(rules.features(), 0.0);
                let label = decode_numbers(bytes, *rules, row);
                label.and_then(|label| label.map_or(Ok(0), |label| known(classes, label)))
            }
            Decoder::Features {
                decoder,
                codes,
                listed,
                classes,
                missing,
            } => {
                row.resize(decoder.width(), 0.0);
                let label = decoder.decode(bytes, missing.as_deref(), Cells::Wide(row));
                label.and_then(|label| match label {
                    Some(label) => known(classes, label),
                    None => listed.class(codes.get(record)),
                })
            }
            _ => return None,
        })
    }

    /// Appends the row that `bytes` hold, which are record `record` of the file; on a fault `rows` is as
    /// before.
    #[inline]
    pub(crate) fn decode(&self, record: u64, bytes: &[u8], rows: &mut Rows) -> Result<(), Fault> {
        match self {
            Decoder::Sample {
                shape,
                codes,
                classes,
            } => {
                let (code, row) = shape.row(bytes, || codes.get(record))?;
                rows.push_bytes(classes.class(code)?, row);
                Ok(())
            }
            Decoder::Pixels {
                shape,
                codes,
                classes,
            } => rows.push_dense_with(|row| {
                let (code, pixels) = shape.row(bytes, || codes.get(record))?;
                if pixels.len() != row.len() {
                    return Err(Fault::NoRecord);
                }
                for (feature, pixel) in row.iter_mut().zip(pixels) {
                    *feature = f32::from(*pixel) / BRIGHTEST;
                }
                classes.class(code)
            }),
            Decoder::Fields {
                decoder,
                codes,
                listed,
                classes,
            } => ROW.with_borrow_mut(|row| {
                let class = match decoder.decode(record, bytes, &mut RowWriter::new(row))? {
                    Some(label) => known(classes, label)?,
                    None => listed.class(codes.get(record))?,
                };
                rows.push_bytes(class, row);
                Ok(())
            }),
            Decoder::Features {
                decoder,
                codes,
                listed,
                classes,
                missing,
            } => rows.push_dense_with(|row| {
                match decoder.decode(bytes, missing.as_deref(), Cells::Narrow(row))? {
                    Some(label) => known(classes, label),
                    None => listed.class(codes.get(record)),
                }
            }),
            Decoder::Libsvm { rules, classes } => push_entries(rows, |indices, values| {
                known(classes, decode_libsvm_line(bytes, *rules, indices, values)?)
            }),
            Decoder::Delimited { .. } | Decoder::Npy { .. } if self.is_wide() => WIDE
                .with_borrow_mut(|wide| {
                    let class = self.decode_wide(record, bytes, wide).unwrap_or(Ok(0))?;
                    ROW.with_borrow_mut(|row| {
                        RowWriter::new(row).put(FEATURES, Some(DType::F64), &[wide.len()], &[]);
                        row.extend(wide.iter().flat_map(|value| value.to_le_bytes()));
                        rows.push_bytes(class, row);
                    });
                    Ok(())
                }),
            Decoder::Delimited { rules, labels } => rows.push_dense_with(|row| {
                let class = |cell: &[u8]| labels.class(cell, rules.label.unwrap_or(0));
                let class = decode_delimited_line(bytes, rules, row, class)?;
                Ok(class.unwrap_or(0))
            }),
            Decoder::Npy { rules, classes } => {
                rows.push_dense_with(|row| match decode_npy_row(bytes, *rules, row)? {
                    Some(label) => known(classes, label),
                    None => Ok(0),
                })
            }
            Decoder::PackedDense { classes } => {
                rows.push_dense_with(|row| classes.class(decode_packed_dense(bytes, row)?))
            }
            Decoder::PackedSparse {
                coding,
                features,
                keep,
                classes,
            } => push_entries(rows, |indices, values| {
                let first = indices.len();
                let class = decode_packed_sparse(bytes, *coding, *features, indices, values)?;
                if keep < features {
                    let kept = indices[first..].partition_point(|index| u64::from(*index) < *keep);
                    indices.truncate(first + kept);
                    values.truncate(first + kept);
                }
                classes.class(class)
            }),
        }
    }
}
