//! The data side: `index`, `inspect`, `pack` and `probe`.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use pelton_data::{
    self as data, DataConfig, DataError, OpenedData, fetch_bytes, fetch_rows, for_each_batch,
};
use pelton_fetch::FetchOptions;
use pelton_format::{
    Contents, DataFile, Dataset, Field, IndexCoding, PackedShape, PackedSummary, PackedWriter,
    Reach, RecordBytes, Row, members,
};
use pelton_run::{Event, Interrupt, RunContext};
use pelton_storage::{Output, StorageErrorKind, output_file};
use serde::Serialize;

use crate::picture::Picture;

/// The results of `index`.
#[derive(Clone, Debug, Serialize)]
pub struct IndexFigures {
    /// Number of records.
    pub records: u64,
    /// Bytes of all records.
    pub bytes: u64,
    /// Bytes of the location table in memory.
    pub index_bytes: u64,
    /// The same for one record.
    pub bytes_per_record: f64,
    /// Bytes of data located a second.
    pub scan_bytes_per_s: f64,
    /// Seconds of locating the data.
    pub scan_s: f64,
    /// Source of the table: arithmetic, a scan, or a sidecar.
    pub source: String,
    /// Features of a record.
    pub features: u64,
    /// Stored values of all records; bytes, if records are bytes.
    pub nonzeros: u64,
    /// The contents of records.
    pub contents: String,
    /// The columns of tables, as `train linear` would read them; at most 65 536.
    pub columns: Vec<ColumnFigures>,
    /// Number of label values.
    pub classes: u64,
    /// Label values; at most 65 536.
    pub labels: Vec<f64>,
    /// Names of the listed labels, if they have names.
    pub label_names: Vec<String>,
    /// Number of labels not listed.
    pub labels_left_out: u64,
    /// Mean bytes of a record; one random access reads them, rounded up to the device's unit.
    pub mean_record_bytes: f64,
    /// Bytes of the longest record.
    pub longest_record_bytes: u64,
    /// How records of each file are located, and the cost of reading one.
    pub files: Vec<FileFigures>,
}

/// How a column of a table would be read.
#[derive(Clone, Debug, Serialize)]
pub struct ColumnFigures {
    /// Its name; empty if it has none.
    pub name: String,
    /// How it would become features, why it would be dropped, or the type of its values.
    pub read_as: String,
    /// Cells without a value; `None` if not counted.
    pub missing: Option<u64>,
    /// Features; `None` if their count varies.
    pub features: Option<u64>,
}

impl ColumnFigures {
    /// The figures of all columns, or of named number columns.
    fn from_dataset(dataset: &Dataset) -> Vec<ColumnFigures> {
        let found = dataset.column_uses().iter().map(|column| ColumnFigures {
            name: column.name.clone(),
            read_as: column.what.clone(),
            missing: Some(column.missing),
            features: Some(column.features),
        });
        let fields = match dataset.columns() {
            Some(schema) => schema.fields.0.iter(),
            None => dataset.record_fields().specs().0.iter(),
        };
        let is_whole = dataset.contents() == Contents::Features;
        let typed = fields.map(|field| ColumnFigures {
            name: field.name.to_string(),
            read_as: if is_whole {
                "number".to_string()
            } else {
                field.dtype.to_string()
            },
            missing: None,
            features: (field.dims.iter()).try_fold(1, |all, length| Some(all * (*length)? as u64)),
        });
        if found.len() > 0 {
            found.take(MOST_LISTED).collect()
        } else {
            typed.take(MOST_LISTED).collect()
        }
    }
}

/// How the records of one file are located, and the cost of reading one.
#[derive(Clone, Debug, Serialize)]
pub struct FileFigures {
    /// The file or folder.
    pub path: String,
    /// Name of its format.
    pub format: String,
    /// Number of records.
    pub records: u64,
    /// How they are located.
    pub located: String,
    /// Mean bytes of the file that one random access uses.
    pub access_bytes: f64,
    /// Mean number of 4096-byte pages that it touches.
    pub access_pages: f64,
    /// Files that it opens: 1 if each record is a file.
    pub access_opens: u32,
    /// Mean bytes that it decodes if a record is decoded with its neighbours; 0 otherwise.
    pub access_decodes: f64,
}

impl FileFigures {
    fn from_file(dataset: &Dataset, file: &DataFile) -> FileFigures {
        /// Records examined, evenly spread.
        const SAMPLED: u64 = 1000;
        const PAGE: u64 = 4096;
        let is_folder = file.is_folder();
        let (mut bytes, mut pages) = (0, 0);
        let sampled = file.records().min(SAMPLED);
        for i in 0..sampled {
            let record = (u128::from(i) * u128::from(file.records()) / u128::from(sampled)) as u64;
            let place = dataset.locate(file.first_id() + record);
            // A separate file starts at a page.
            let start = if is_folder { 0 } else { place.offset };
            bytes += place.length;
            if place.length > 0 {
                pages += (start + place.length - 1) / PAGE - start / PAGE + 1;
            }
        }
        let mean = |sum: u64| sum as f64 / sampled.max(1) as f64;
        let (access_bytes, access_pages, access_decodes) = match file.reach() {
            Reach::Blocks(blocks) => {
                let pages = (blocks.stored_bytes / PAGE as f64).ceil();
                (blocks.stored_bytes, pages, blocks.bytes)
            }
            // At least one page at each offset.
            Reach::Gathered { places } => {
                let pages = f64::from(places) + mean(bytes) / PAGE as f64;
                (mean(bytes), pages, 0.0)
            }
            _ => (mean(bytes), mean(pages), 0.0),
        };
        FileFigures {
            path: file.path().display().to_string(),
            format: file.kind().to_string(),
            records: file.records(),
            located: file.located_by(),
            access_bytes,
            access_pages,
            access_opens: u32::from(is_folder),
            access_decodes,
        }
    }
}

/// Most labels and columns listed: enough for the classes of any classifier, and some MB of JSON if labels are numbers
/// to predict.
const MOST_LISTED: usize = 1 << 16;

/// Locates the records of files.
pub fn index(config: &DataConfig, mut context: RunContext<'_>) -> Result<IndexFigures, DataError> {
    let opened = open_table(config, &mut context)?;
    let dataset = &opened.dataset;
    let report = dataset.index_report();
    let labels = dataset.labels();
    let listed = 0..labels.len().min(MOST_LISTED) as u32;
    Ok(IndexFigures {
        records: report.records,
        bytes: report.bytes,
        index_bytes: report.index_bytes,
        bytes_per_record: report.bytes_per_record,
        scan_bytes_per_s: report.scan_bytes_per_s,
        scan_s: report.scan_seconds,
        source: format!("{:?}", report.source).to_lowercase(),
        features: dataset.features(),
        nonzeros: dataset.nonzeros(),
        contents: dataset.contents().to_string(),
        columns: ColumnFigures::from_dataset(dataset),
        classes: labels.len() as u64,
        labels: listed.clone().map(|class| labels.value(class)).collect(),
        labels_left_out: labels.len().saturating_sub(MOST_LISTED) as u64,
        label_names: listed
            .filter_map(|class| labels.name(class).map(str::to_owned))
            .collect(),
        mean_record_bytes: report.bytes as f64 / report.records.max(1) as f64,
        longest_record_bytes: match dataset.record_bytes() {
            RecordBytes::Fixed(bytes) => bytes,
            RecordBytes::Variable { max, .. } => max,
        },
        files: dataset
            .files()
            .iter()
            .map(|file| FileFigures::from_file(dataset, file))
            .collect(),
    })
}

/// Opens data as `train linear` does if columns have configured kinds or the data is a table of text and numbers; other
/// data, and tables without usable columns, as bytes.
fn open_table(config: &DataConfig, context: &mut RunContext<'_>) -> Result<OpenedData, DataError> {
    let coded = config.with_codes();
    if !config.columns.is_empty() {
        return data::open(&coded, &config.paths, None, context);
    }
    let opened = data::open(&coded.with_bytes(), &config.paths, None, context);
    opened.or_else(|_| data::open(&config.with_bytes(), &config.paths, None, context))
}

/// One record.
#[derive(Clone, Debug, Serialize)]
pub struct RecordView {
    /// Id of the record.
    pub id: u64,
    /// Its file.
    pub file: String,
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Its label.
    pub label: f64,
    /// Name of its label, if labels have names.
    pub label_name: Option<String>,
    /// Kind of its contents.
    pub contents: String,
    /// Indices (in the file's numbering) and values; of a dense record all.
    pub entries: Vec<(u64, f32)>,
    /// How the file counts its features.
    pub indices: String,
    /// The line in a text file.
    pub text: Option<String>,
    /// The members of a tar sample.
    pub members: Vec<MemberView>,
    /// Width and height of its picture.
    pub picture_size: Option<[u32; 2]>,
    /// Why its picture cannot be shown.
    pub picture_fault: Option<String>,
    /// The picture itself.
    #[serde(skip)]
    pub picture: Option<Picture>,
}

/// One member of a tar sample.
#[derive(Clone, Debug, Serialize)]
pub struct MemberView {
    /// The part of its name after the first dot.
    pub extension: String,
    /// Its length in bytes.
    pub length: u64,
    /// Its beginning, if it is text.
    pub text: Option<String>,
}

/// Most bytes of a member shown as text.
const MOST_MEMBER_TEXT: usize = 200;

/// Text, if bytes are text.
fn text_of(bytes: &[u8], most: usize) -> Option<String> {
    let begin = &bytes[..bytes.len().min(most)];
    let printable = begin
        .iter()
        .all(|byte| *byte >= b' ' || byte.is_ascii_whitespace());
    // A character may be cut in two at the end.
    let whole = match std::str::from_utf8(begin) {
        Ok(_) => printable,
        Err(error) => printable && error.error_len().is_none(),
    };
    whole.then(|| String::from_utf8_lossy(begin).trim_end().to_string())
}

/// The parts of a row of bytes for display.
fn view_bytes(view: &mut RecordView, dataset: &Dataset, row: &[u8]) {
    let contents = dataset.contents();
    let fields = dataset.record_fields().split(row).unwrap_or_default();
    if contents == Contents::Members {
        view.members = members(row)
            .map(|member| MemberView {
                extension: member.extension_text().into_owned(),
                length: member.bytes.len() as u64,
                text: text_of(member.bytes, MOST_MEMBER_TEXT),
            })
            .collect();
    }
    match contents {
        Contents::Text | Contents::Tokens { .. } => {
            view.text = Some(String::from_utf8_lossy(row).into_owned());
        }
        Contents::Bytes { .. } => view.text = text_of(row, row.len()),
        Contents::Fields => {
            let shown = |field: &Field<'_>| match field.dtype {
                Some(dtype) => format!("{}: {dtype} {:?}", field.name, field.dims),
                None => match text_of(field.bytes, MOST_MEMBER_TEXT) {
                    Some(text) => format!("{}: {text:?}", field.name),
                    None => format!("{}: {} bytes", field.name, field.bytes.len()),
                },
            };
            view.text = Some(fields.iter().map(shown).collect::<Vec<_>>().join(", "));
        }
        _ => {}
    }
    match Picture::from_row(contents, row).or_else(|| Picture::of_fields(&fields)) {
        Some(Ok(picture)) => {
            view.picture_size = Some([picture.width, picture.height]);
            view.picture = Some(picture);
        }
        Some(Err(fault)) => view.picture_fault = Some(fault),
        None => {}
    }
}

/// Reads one record by random access.
pub fn inspect(
    config: &DataConfig,
    id: u64,
    mut context: RunContext<'_>,
) -> Result<RecordView, DataError> {
    // Allows inspecting the intact records of a damaged file.
    let config = config.with_bytes().leaving_damage(true);
    let opened = data::open(&config, &config.paths, None, &mut context)?;
    let dataset = &opened.dataset;
    if id >= dataset.records() {
        return Err(DataError::Config(format!(
            "`id` {id}: {} has {} records, with indices from 0",
            config.paths.join(", "),
            dataset.records()
        )));
    }
    let place = dataset.locate(id);
    let bytes = fetch_bytes(dataset, id)?;
    let rows = fetch_rows(dataset, &[id])?;
    let numbering = dataset.files()[place.file as usize].numbering();
    let named = |(index, &value): (u64, &f32)| (numbering.of(index), value);
    let entries = match rows.row(0) {
        Row::Dense(values) => (0..).zip(values).map(named).collect(),
        Row::Sparse { indices, values } => {
            let indices = indices.iter().map(|&index| u64::from(index));
            indices.zip(values).map(named).collect()
        }
        Row::Bytes(_) => Vec::new(),
    };
    let contents = dataset.contents();
    let is_text = contents == Contents::Features && !bytes.contains(&0);
    let file = &dataset.files()[place.file as usize];
    let is_folder = file.is_folder();
    let mut view = RecordView {
        id,
        file: file.record_path(id - file.first_id()).display().to_string(),
        offset: if is_folder { 0 } else { place.offset },
        length: place.length,
        label: dataset.labels().value(rows.label(0)),
        label_name: dataset.labels().name(rows.label(0)).map(str::to_owned),
        contents: contents.to_string(),
        entries,
        indices: numbering.to_string(),
        text: is_text.then(|| String::from_utf8_lossy(&bytes).trim_end().to_string()),
        members: Vec::new(),
        picture_size: None,
        picture_fault: None,
        picture: None,
    };
    if let Row::Bytes(row) = rows.row(0) {
        view_bytes(&mut view, dataset, row);
    }
    Ok(view)
}

/// Writes the picture of a record as a PNG file.
pub fn write_picture(view: &RecordView, mut out: Output) -> Result<(), DataError> {
    let Some(picture) = &view.picture else {
        return Err(DataError::Config(match &view.picture_fault {
            Some(fault) => format!("{}: cannot be decoded: {fault}", view.file),
            None => format!(
                "record {} of {} contains no picture; leave out `out`",
                view.id, view.file
            ),
        }));
    };
    let png = picture.to_png().map_err(|what| {
        DataError::Config(format!(
            "{}: the picture cannot be written as PNG ({what})",
            view.file
        ))
    })?;
    let written = out.write_all(&png).and_then(|()| out.publish());
    let what = "picture";
    written.map_err(|source| DataError::Output { what, source })
}

/// Writes every record of the data as packed rows.
pub fn pack(
    config: &DataConfig,
    out: &Path,
    delta: bool,
    overwrite: bool,
    mut context: RunContext<'_>,
) -> Result<PackedSummary, DataError> {
    const MEMORY_BYTES: u64 = 64 << 20;
    let file = output_file(out, &config.inputs([]), overwrite)?;
    let opened = data::open(config, &config.paths, None, &mut context)?;
    let dataset = &opened.dataset;
    if dataset.labels_are_names() {
        return Err(DataError::Config(format!(
            "{}: its labels are names, which packed rows cannot store; use numbers, or give `positive` NAME for two classes",
            config.paths.join(", ")
        )));
    }
    let shape = PackedShape {
        layout: dataset.layout(),
        features: dataset.features(),
        index_coding: if delta {
            IndexCoding::VarintDelta
        } else {
            IndexCoding::Plain
        },
    };
    let mut writer = PackedWriter::in_file(file, shape)?;
    let labels = dataset.labels().values().to_vec();
    let total = dataset.records();
    let mut done = 0;
    let feed = FetchOptions {
        device: opened.device.speed(),
        interrupt: Arc::clone(context.interrupt),
        ..FetchOptions::with_memory(MEMORY_BYTES)
    };
    for_each_batch::<DataError>(dataset, &feed, |batch| {
        for i in 0..batch.rows.len() {
            let label = labels[batch.rows.label(i) as usize];
            writer.push(label, batch.rows.row(i))?;
        }
        done += batch.rows.len() as u64;
        (context.observer)(Event::Progress {
            what: "packing",
            done,
            total,
        });
        Ok(())
    })?;
    Ok(writer.finish()?)
}

pub use pelton_storage::{DeviceProbe, ProbeOptions, ProbePattern};

/// Measures the device under a folder.
pub fn probe(
    folder: &Path,
    options: ProbeOptions,
    interrupt: &Interrupt,
) -> Result<DeviceProbe, DataError> {
    let seconds = options.seconds_per_point;
    if !(seconds > 0.0 && seconds <= 3600.0) {
        return Err(DataError::Config(format!(
            "`seconds` {seconds} is out of range; give a number above 0 and at most 3600"
        )));
    }
    pelton_storage::probe_dir(folder, options, interrupt).map_err(|error| match error.kind {
        StorageErrorKind::Interrupted => DataError::Stopped {
            job: "measuring the device",
        },
        _ => error.into(),
    })
}
