//! A data set: one or many files as one sequence of records with ids from 0.

pub(crate) mod bad_record;
pub(crate) mod content;
pub(crate) mod data_file;
pub(crate) mod derived;
pub(crate) mod formats;
pub(crate) mod in_place;
pub(crate) mod kept;
pub(crate) mod listed_class;
pub(crate) mod open;
pub(crate) mod packed_copy;
pub(crate) mod packed_writer;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelton_batch::{DType, FieldSpec, FieldSpecs, Schema};
use pelton_storage::{Storage, allow_open_files, regular_file};

use crate::dataset::bad_record::bad_record;
use crate::dataset::data_file::DataFile;
use crate::dataset::open::open_files;
use crate::locate::common_labels::{
    check_targets, common_names, known_classes, labelled, labels_of, positive_value,
};
use crate::locate::common_layout::{check_layouts, widen_fields};
use crate::locate::format::{Opened, changed};
use crate::locate::in_order::put_in_order;
use crate::locate::missing::MissingValues;
use crate::locate::places::compressed::{hashed_name, state_hash};
use crate::locate::places::elias_fano::Walk;
use crate::locate::places::stamp::Stamp;
use crate::locate::places::{IndexSource, Places};
use crate::record::contents::Contents;
use crate::record::error::{Fault, FormatError};
use crate::record::labels::stored::{LabelForm, StoredLabels};
use crate::record::labels::{ClassMap, Classes};
use crate::record::mixing::mix;
use crate::record::options::{OpenOptions, RowLayout};
use crate::record::rows::fields::{LABEL, RecordFields};
use crate::record::rows::scale::Scale;
use crate::record::rows::{Layout, Row, Rows};
use crate::samples::shard::folder::shards;
use crate::text::tables::{Codes, Coding, ColumnUse, code};

/// One or many files as one sequence of records.
#[derive(Clone, Debug)]
pub struct Dataset {
    files: Vec<DataFile>,
    labels: Arc<ClassMap>,
    labelled: bool,
    /// Whether a file has a class that is not one of them.
    pub(crate) unknown_class: bool,
    layout: Layout,
    contents: Contents,
    features: u64,
    records: u64,
    bytes: u64,
    longest: u64,
    nonzeros: u64,
    fingerprint: u64,
    index: IndexSource,
    scan_seconds: f64,
    notes: Vec<String>,
    scale: Option<Arc<Scale>>,
    numbers: Option<Arc<dyn Renumber>>,
    means: Option<Arc<[f32]>>,
    /// Whether sparse rows store the zeros of the features that a scale shifts.
    keeps_zeros: bool,
    columns: Option<Arc<Schema>>,
    coding: Option<Arc<Coding>>,
    first_bad: Option<u64>,
}

/// Renumbers the features of decoded sparse rows.
pub trait Renumber: fmt::Debug + Send + Sync {
    /// Replaces the indices of one row, and reorders the values with them; indices must stay ascending.
    fn renumber(&self, indices: &mut [u32], values: &mut [f32]);
}

/// The location of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Index of the file in [`Dataset::files`].
    pub file: u32,
    /// First byte of the record.
    pub offset: u64,
    /// Bytes of the record, including its separator from the next.
    pub length: u64,
}

/// How long records are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecordBytes {
    /// All have one length.
    Fixed(u64),
    /// Lengths differ.
    Variable {
        /// Mean length.
        mean: f64,
        /// Length of the longest.
        max: u64,
    },
}

impl RecordBytes {
    /// Length of the longest record.
    pub fn max(self) -> u64 {
        match self {
            RecordBytes::Fixed(bytes) => bytes,
            RecordBytes::Variable { max, .. } => max,
        }
    }

    /// Mean length.
    pub fn mean(self) -> f64 {
        match self {
            RecordBytes::Fixed(bytes) => bytes as f64,
            RecordBytes::Variable { mean, .. } => mean,
        }
    }
}

/// The size and cost of the location index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IndexReport {
    /// Number of records.
    pub records: u64,
    /// Bytes of all records.
    pub bytes: u64,
    /// Bytes the index takes in memory.
    pub index_bytes: u64,
    /// The same for one record.
    pub bytes_per_record: f64,
    /// The source of the index; with several files the most expensive one.
    pub source: IndexSource,
    /// Seconds spent on scanning or loading.
    pub scan_seconds: f64,
    /// Bytes of data over those seconds.
    pub scan_bytes_per_s: f64,
}

/// Begins the fingerprint of data with targets as labels.
const TARGETS: u64 = 0x7461_7267_6574_7321;

/// Open files of a process in addition to its data, and of each data file: one past the page cache, one through it,
/// and one while it is opened.
const OTHER_OPEN_FILES: u64 = 256;
const OPEN_FILES_EACH: u64 = 3;

impl Dataset {
    /// Opens files as one data set, in the order given.
    pub fn open(paths: &[PathBuf], options: &OpenOptions) -> Result<Dataset, FormatError> {
        let mut files: Vec<PathBuf> = Vec::with_capacity(paths.len());
        let mut expected = HashMap::new();
        for path in paths {
            for (path, of_index) in
                shards(path, options)?.unwrap_or_else(|| vec![(path.clone(), None)])
            {
                expected.extend(of_index.map(|of_index| (path.clone(), of_index)));
                files.push(path);
            }
        }
        let options = &OpenOptions {
            expected: Arc::new(expected),
            ..options.clone()
        };
        allow_open_files(OTHER_OPEN_FILES + OPEN_FILES_EACH * files.len() as u64);
        let (mut opened, mut notes) = open_files(&files, options)?;
        if opened.is_empty() {
            return Err(FormatError::new("no data file is given; name at least one"));
        }
        widen_fields(&mut opened);
        let (coding, surveyed) = match code(&mut opened, options, &mut notes)? {
            Codes::Of(coding) => (Some(coding), None),
            Codes::Numbers(means) => (None, means),
        };
        put_in_order(&mut opened)?;
        let (layout, contents) = (opened[0].shard.layout, opened[0].shard.contents);
        check_layouts(&opened, options)?;
        let known = known_classes(&opened, options, &mut notes);
        // With a positive label, two classes are known, independent of those in the files.
        let own = known.as_ref().filter(|_| options.positive.is_none());
        let names = if options.targets {
            check_targets(&opened)?;
            None
        } else {
            common_names(&mut opened, own)?
        };
        let missing = MissingValues::from_options(&opened, options, surveyed)?;
        let positive = match &options.positive {
            // Without a scan for labels, +1 may be either of them.
            Some(_) if options.any_label => None,
            Some(class) => Some(positive_value(&opened, class, names.as_deref(), options)?),
            None => None,
        };
        let labelled = labelled(&opened, &mut notes) || options.targets;
        let given = known.as_ref().map_or(0, ClassMap::fingerprint);
        let given = if options.targets { TARGETS } else { given };
        let labels = if options.targets {
            ClassMap::default()
        } else {
            labels_of(&opened, names, positive, known, options.by_number)?
        };
        let labels = Arc::new(labels);
        let classes = Classes {
            labels: Arc::clone(&labels),
            positive,
            any: options.any_label,
            targets: options.targets,
            centre: 0.0,
        };
        let widest = opened
            .iter()
            .map(|file| file.shard.features)
            .max()
            .unwrap_or(0);
        let features = options.features.unwrap_or(widest);
        let columns = opened[0].shard.columns.clone();
        let columns = columns.filter(|_| contents == Contents::Features);
        let mut dataset = Dataset {
            files: Vec::with_capacity(opened.len()),
            labels,
            labelled,
            unknown_class: false,
            layout,
            contents,
            features,
            records: 0,
            bytes: 0,
            longest: 0,
            nonzeros: 0,
            fingerprint: given,
            index: IndexSource::Arithmetic,
            scan_seconds: 0.0,
            notes,
            scale: None,
            numbers: None,
            means: None,
            first_bad: None,
            columns: columns.map(Arc::new),
            keeps_zeros: coding.is_some() && options.rows == RowLayout::WithZeros,
            coding: coding.map(Arc::new),
        };
        for file in opened {
            dataset.add(file, &classes, missing.as_ref(), options);
        }
        dataset.means = missing.and_then(MissingValues::into_means);
        if labelled && contents == Contents::Fields && dataset.fields().get(LABEL).is_some() {
            dataset.notes.push(format!(
                "the field \"{LABEL}\" is left out, because \"{LABEL}\" is what the label is called, which is another field; rename it to have both"
            ));
        }
        let (records, nonzeros) = (dataset.records, dataset.nonzeros);
        if layout == Layout::Sparse && options.rows.makes_dense(records, features, nonzeros) {
            let width = usize::try_from(features).unwrap_or(usize::MAX);
            dataset.layout = Layout::Dense { width };
            dataset.nonzeros = records.saturating_mul(features);
        }
        Ok(dataset)
    }

    fn add(
        &mut self,
        opened: Opened,
        classes: &Classes,
        missing: Option<&MissingValues>,
        options: &OpenOptions,
    ) {
        let first_id = self.records;
        let Opened {
            shard: file, stamp, ..
        } = opened;
        let first_bad = file.first_bad.map(|record| first_id + record);
        self.first_bad = self.first_bad.or(first_bad);
        self.records += file.records;
        self.bytes += file.bytes;
        self.longest = self.longest.max(file.longest);
        self.nonzeros += file.nonzeros;
        let [reading, label, zero_based] = file.decoder.fingerprint();
        let positive = classes
            .positive
            .map_or(u64::MAX, |label| (label + 0.0).to_bits());
        for value in [
            stamp.size,
            opened.sample,
            file.records,
            file.features,
            reading,
            label,
            zero_based,
            positive,
        ] {
            self.fingerprint = mix(self.fingerprint, value);
        }
        if let Some(digest) = file.codes.digest() {
            self.fingerprint = mix(self.fingerprint, digest);
        }
        let is_unknown = |label| classes.class_of(label).is_none();
        self.unknown_class |= file.labels.iter().any(is_unknown);
        let filled = missing.and_then(|missing| {
            let decoder = file.decoder.filled(missing.values())?;
            self.fingerprint = mix(self.fingerprint, missing.fingerprint());
            Some(decoder)
        });
        self.index = self.index.max(file.index);
        self.scan_seconds += opened.scan_seconds;
        let form = file.decoder.label_form();
        // A model of numbers cannot use names, and a model of names cannot use numbers.
        let named = match &options.labels {
            Some(_) if classes.positive.is_none() => classes.labels.has_names(),
            _ => !file.names.is_empty(),
        };
        self.unknown_class |=
            form == LabelForm::Cells && named && file.names.is_empty() && !options.any_label;
        self.files.push(DataFile {
            path: opened.path,
            source: opened.source,
            kind: opened.kind,
            kind_is_guessed: opened.guessed,
            storage: opened.storage,
            first_id,
            records: file.records,
            places: file.places,
            reach: file.reach,
            decoder: filled.unwrap_or(file.decoder),
            labels: StoredLabels::new(file.labels, file.names, file.codes, (form, named), classes),
            stamp,
            remote: opened.remote,
            parts: opened.parts,
        });
    }

    /// Number of records; ids are below it.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Number of features: the largest index plus one, or that of the model; 0 if rows are bytes.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Layout of every decoded row.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The contents of rows: features, or bytes of one kind.
    pub fn contents(&self) -> Contents {
        self.contents
    }

    /// The fields of every record, without its label; pictures of known size as height, width and channels.
    pub fn fields(&self) -> FieldSpecs {
        let of_bytes = |name| FieldSpec::new(name, DType::U8, &[None]);
        let one = match (self.contents, self.layout, self.files.first()) {
            (Contents::Fields, _, Some(file)) => return file.decoder.fields().specs().clone(),
            (
                Contents::Pixels {
                    height,
                    width,
                    channels,
                    ..
                },
                ..,
            ) => {
                let dims = [height, width, channels].map(|length| Some(length as usize));
                FieldSpec::new("image", DType::U8, &dims)
            }
            (_, Layout::Dense { width }, _) => {
                FieldSpec::new("features", DType::F32, &[Some(width)])
            }
            (_, Layout::Sparse, _) => return Row::sparse_fields(),
            (Contents::Text | Contents::Tokens { .. }, ..) => of_bytes("text"),
            (Contents::Members, ..) => of_bytes("members"),
            _ => of_bytes("bytes"),
        };
        FieldSpecs(vec![one])
    }

    /// The schema of rows of named arrays; no fields for other rows.
    pub fn record_fields(&self) -> &RecordFields {
        let first = self.files.first();
        first.map_or(RecordFields::NONE, |file| file.decoder.fields())
    }

    /// The columns of the features, if the files name them.
    pub fn columns(&self) -> Option<&Arc<Schema>> {
        self.columns.as_ref()
    }

    /// How each column of a table is used; empty if cells are features unchanged.
    pub fn column_uses(&self) -> &[ColumnUse] {
        self.coding.as_ref().map_or(&[], |coding| &coding.columns)
    }

    /// The weight of each record, if a column holds weights; NaN for records without one.
    pub fn record_weights(&self) -> Option<&Arc<[f32]>> {
        self.coding.as_ref()?.weights.as_ref()
    }

    /// The first damaged record that opening found, if [`OpenOptions::tolerant`] accepted it.
    pub fn first_bad(&self) -> Option<u64> {
        self.first_bad
    }

    /// The classes; empty if labels are targets.
    pub fn labels(&self) -> &ClassMap {
        &self.labels
    }

    /// Whether records state labels. Unlabelled records all have the only class.
    pub fn has_labels(&self) -> bool {
        self.labelled
    }

    /// Whether records state their labels by name, so that the numbers of labels were assigned here.
    pub fn labels_are_names(&self) -> bool {
        let is_table = |file: &DataFile| file.decoder.label_form() == LabelForm::Cells;
        self.labels.has_names() && self.files.iter().any(is_table)
    }

    /// Entries of all records; every value of dense rows counts, and every byte of rows of bytes.
    pub fn nonzeros(&self) -> u64 {
        self.nonzeros
    }

    /// Bytes of all records.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How long records are.
    pub fn record_bytes(&self) -> RecordBytes {
        let mut fixed = self.files.iter().map(|file| match file.places {
            Places::Fixed { bytes, .. } | Places::Spaced { bytes, .. } => Some(bytes),
            Places::Cut { .. } | Places::Listed { .. } | Places::Files(_) => None,
        });
        let first = fixed.next().flatten();
        match first {
            Some(bytes) if fixed.all(|other| other == first) => RecordBytes::Fixed(bytes),
            _ => RecordBytes::Variable {
                mean: self.bytes as f64 / self.records as f64,
                max: self.longest,
            },
        }
    }

    /// The files in id order.
    pub fn files(&self) -> &[DataFile] {
        &self.files
    }

    /// Remarks about opening, for the user: copies made, indexes that could not be saved.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Identifies the data by sizes, samples of content, shape and how records are read (format, label column, first
    /// index, positive label), regardless of file names.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Path in `cache_dir` for something derived from all of this data. The name contains a hash of the fingerprint
    /// and of the paths, sizes and times of the files, so that data in another state never matches it.
    pub fn cache_path(&self, cache_dir: &Path, suffix: &str) -> PathBuf {
        let mut hash = self.fingerprint;
        for file in &self.files {
            hash = mix(hash, state_hash(&file.source, &file.stamp));
        }
        let first = self.files.first().map_or(Path::new("data"), DataFile::path);
        cache_dir.join(hashed_name(first, hash, suffix))
    }

    /// The location of record `id`; panics unless `id` is below [`Dataset::records`].
    #[inline]
    pub fn locate(&self, id: u64) -> Location {
        let (number, file) = self.file_of(id);
        let (offset, length) = file.places.get(id - file.first_id);
        Location {
            file: number as u32,
            offset,
            length,
        }
    }

    /// Appends the locations of `ids`; fastest when they ascend. Panics like [`Dataset::locate`].
    pub fn locate_into(&self, ids: &[u64], out: &mut Vec<Location>) {
        out.reserve(ids.len());
        let mut cursor = Cursor {
            file: usize::MAX,
            walk: None,
        };
        out.extend(ids.iter().map(|id| cursor.locate(self, *id)));
    }

    /// Appends the row of record `id`; `bytes` are exactly its located range. On an error `rows` is unchanged.
    #[inline]
    pub fn decode(&self, id: u64, bytes: &[u8], rows: &mut Rows) -> Result<(), FormatError> {
        let (_, file) = self.file_of(id);
        if self.scale.as_ref().is_some_and(|scale| scale.is_coarse())
            && let Some(decoded) = self.decode_scaled(id, bytes, rows)
        {
            return decoded;
        }
        let decoded = file.decode(id - file.first_id, bytes, rows);
        decoded.map_err(|fault| bad_record(file, id - file.first_id, fault))?;
        // Scales are indexed by the features' original numbers.
        if let Some(scale) = &self.scale {
            rows.edit_last_values(|indices, values| scale.apply(indices, values));
        }
        if let Some(numbers) = &self.numbers {
            rows.edit_last(|indices, values| numbers.renumber(indices, values));
        }
        Ok(())
    }

    /// Appends a row that is decoded as f64 and scaled before it becomes f32; `None` if files hold at most f32.
    #[cold]
    fn decode_scaled(
        &self,
        id: u64,
        bytes: &[u8],
        rows: &mut Rows,
    ) -> Option<Result<(), FormatError>> {
        let mut wide = Vec::new();
        let decoded = self.decode_wide(id, bytes, &mut wide)?;
        let scale = self.scale.as_ref()?;
        Some(decoded.and_then(|class| {
            rows.push_dense_with(|row| {
                scale.narrow(&wide, row);
                Ok(class)
            })
        }))
    }

    /// The features of record `id` as f64, unscaled, and its class; `None` if files hold at most f32.
    pub fn decode_wide(
        &self,
        id: u64,
        bytes: &[u8],
        row: &mut Vec<f64>,
    ) -> Option<Result<u32, FormatError>> {
        let (_, file) = self.file_of(id);
        let decoded = file.decode_wide(id - file.first_id, bytes, row)?;
        Some(decoded.map_err(|fault| bad_record(file, id - file.first_id, fault)))
    }

    /// The error for record `id` with the fault `wrong`, with its file and its line or offset.
    pub fn error_in(&self, id: u64, wrong: String) -> FormatError {
        let (_, file) = self.file_of(id);
        bad_record(file, id - file.first_id, Fault::new(wrong))
    }

    /// The replacement for a missing value of each feature, if means replace them.
    pub fn means(&self) -> Option<&Arc<[f32]>> {
        self.means.as_ref()
    }

    /// The same data, decoded unscaled and not renumbered.
    pub(crate) fn as_stored(&self) -> Dataset {
        Dataset {
            scale: None,
            numbers: None,
            ..self.clone()
        }
    }

    /// The same data in copies of the files, with `bytes` bytes together and records of at most `longest`.
    pub(crate) fn copied(&self, files: Vec<DataFile>, bytes: u64, longest: u64) -> Dataset {
        Dataset {
            files,
            bytes,
            longest,
            ..self.clone()
        }
    }

    /// The renumbering of decoded features, if any.
    pub(crate) fn renumbers(&self) -> Option<&Arc<dyn Renumber>> {
        self.numbers.as_ref()
    }

    /// An error if a file changed since it was opened. Files of a folder, and remote files, are checked one by one when
    /// they are read.
    pub fn check_unchanged(&self) -> Result<(), FormatError> {
        (0..self.files.len()).try_for_each(|number| self.check_file_unchanged(number as u32))
    }

    /// The same for the file of this index in [`Dataset::files`].
    pub fn check_file_unchanged(&self, number: u32) -> Result<(), FormatError> {
        let file = &self.files[number as usize];
        if file.parts.is_some() || file.is_remote() || file.is_made() {
            return Ok(());
        }
        let now = Stamp::from_metadata(&regular_file(&file.source)?);
        if !now.has_bytes_of(&file.stamp) {
            return Err(changed(&file.path, &file.stamp, &now));
        }
        Ok(())
    }

    /// The same data, read through decorated storages.
    pub fn with_storage(mut self, wrap: impl Fn(Arc<dyn Storage>) -> Arc<dyn Storage>) -> Dataset {
        for file in &mut self.files {
            file.storage = wrap(Arc::clone(&file.storage));
        }
        self
    }

    /// The size and cost of the location index.
    pub fn index_report(&self) -> IndexReport {
        let index_bytes = self.files.iter().map(DataFile::index_bytes).sum();
        IndexReport {
            records: self.records,
            bytes: self.bytes,
            index_bytes,
            bytes_per_record: index_bytes as f64 / self.records as f64,
            source: self.index,
            scan_seconds: self.scan_seconds,
            scan_bytes_per_s: self.bytes as f64 / self.scan_seconds.max(1e-9),
        }
    }

    #[inline]
    pub(crate) fn file_of(&self, id: u64) -> (usize, &DataFile) {
        assert!(id < self.records, "record {id} of {}", self.records);
        if let [only] = self.files.as_slice() {
            return (0, only);
        }
        let number = self.files.partition_point(|file| file.first_id <= id) - 1;
        (number, &self.files[number])
    }
}

/// Larger distances are located by a new search.
const NEAR: u64 = 16;

/// Locates ids one after another, stepping from the last one if the next is near.
struct Cursor<'a> {
    file: usize,
    walk: Option<Walk<'a>>,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn locate(&mut self, dataset: &'a Dataset, id: u64) -> Location {
        let (number, file) = match dataset.files.get(self.file) {
            Some(file) if id >= file.first_id && id - file.first_id < file.records => {
                (self.file, file)
            }
            _ => {
                self.walk = None;
                dataset.file_of(id)
            }
        };
        self.file = number;
        let i = id - file.first_id;
        let (starts, end) = match &file.places {
            Places::Fixed { .. }
            | Places::Spaced { .. }
            | Places::Cut { .. }
            | Places::Files(_) => {
                let (offset, length) = file.places.get(i);
                return Location {
                    file: number as u32,
                    offset,
                    length,
                };
            }
            Places::Listed { starts, end, .. } => (starts, *end),
        };
        let mut walk = match self.walk.take() {
            Some(mut walk) if walk.index() <= i && i - walk.index() <= NEAR => {
                while walk.index() < i {
                    walk.advance();
                    walk.current();
                }
                walk
            }
            _ => starts.walk(i),
        };
        let offset = walk.next().expect("the record exists");
        let length = walk.current().unwrap_or(end) - offset;
        self.walk = Some(walk);
        Location {
            file: number as u32,
            offset,
            length,
        }
    }
}
