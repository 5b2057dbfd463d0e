//! The data side: `index`, `inspect`, `pack` and `probe`.

use std::io::Read;
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
use pelton_run::{Event, Interrupt, RunContext, write_atomically};
use pelton_storage::StorageErrorKind;
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
    /// Seconds that took.
    pub scan_s: f64,
    /// Where the table came from: arithmetic, a scan, or a sidecar.
    pub source: String,
    /// Features of a record.
    pub features: u64,
    /// Stored values of all records; of records that are bytes their bytes.
    pub nonzeros: u64,
    /// The contents of records.
    pub contents: String,
    /// The columns of tables, as `train linear` would read them; no more than 65 536 of them.
    pub columns: Vec<ColumnFigures>,
    /// Number of label values.
    pub classes: u64,
    /// Label values; no more than 65 536 of them.
    pub labels: Vec<f64>,
    /// Names of as many labels, where they have names.
    pub label_names: Vec<String>,
    /// Labels that are not listed.
    pub labels_left_out: u64,
    /// Mean bytes of a record, which one random access reads, rounded out to the device's unit.
    pub mean_record_bytes: f64,
    /// Bytes of the longest record.
    pub longest_record_bytes: u64,
    /// How records of each file are found, and what reading one costs.
    pub files: Vec<FileFigures>,
}

/// How a column of a table would be read.
#[derive(Clone, Debug, Serialize)]
pub struct ColumnFigures {
    /// Its name; empty where it has none.
    pub name: String,
    /// How it would become features, why it would be left out, or the type of its values.
    pub read_as: String,
    /// Cells without a value; `None` where they were not counted.
    pub missing: Option<u64>,
    /// Features; `None` where their count varies.
    pub features: Option<u64>,
}

impl ColumnFigures {
    /// Those of all columns, or of columns of numbers with names.
    fn of(dataset: &Dataset) -> Vec<ColumnFigures> {
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

/// How the records of one file are found, and what reading one of them costs.
#[derive(Clone, Debug, Serialize)]
pub struct FileFigures {
    /// The file or folder.
    pub path: String,
    /// Name of its format.
    pub format: String,
    /// Number of records.
    pub records: u64,
    /// How they are found.
    pub located: String,
    /// Mean bytes of the file that one random access uses.
    pub access_bytes: f64,
    /// Mean pages of 4096 bytes that it touches.
    pub access_pages: f64,
    /// Files that it opens: 1 where each record is a file.
    pub access_opens: u32,
    /// Mean bytes that it decodes where a record is decoded with its neighbours; 0 elsewhere.
    pub access_decodes: f64,
}

impl FileFigures {
    fn of(dataset: &Dataset, file: &DataFile) -> FileFigures {
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
            // A page at least in each place.
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
        columns: ColumnFigures::of(dataset),
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
            .map(|file| FileFigures::of(dataset, file))
            .collect(),
    })
}

/// Opens data as `train linear` does where columns are given kinds, and tables of text and numbers else; others, and
/// tables of which nothing can be learned, by their bytes.
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
    /// Number of the record.
    pub id: u64,
    /// Its file.
    pub file: String,
    /// Its first byte in the file.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// Its label.
    pub label: f64,
    /// Name of its label, where labels have names.
    pub label_name: Option<String>,
    /// What it holds.
    pub contents: String,
    /// Indices as the file counts and values; of a dense record every one.
    pub entries: Vec<(u64, f32)>,
    /// How the file counts its features.
    pub indices: String,
    /// The line in a text file.
    pub text: Option<String>,
    /// The members of a tar sample.
    pub members: Vec<MemberView>,
    /// Width and height of the picture it holds.
    pub picture_size: Option<[u32; 2]>,
    /// Why the picture it should hold cannot be shown.
    pub picture_fault: Option<String>,
    /// The picture itself.
    #[serde(skip)]
    pub picture: Option<Picture>,
}

/// One member of a tar sample.
#[derive(Clone, Debug, Serialize)]
pub struct MemberView {
    /// What follows the first dot of its name.
    pub extension: String,
    /// Its bytes.
    pub length: u64,
    /// Its beginning, where it is text.
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
    match Picture::of(contents, row).or_else(|| Picture::of_fields(&fields)) {
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
    // In a damaged file the intact records can be inspected.
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

/// Writes the picture that a record holds as a PNG file.
pub fn write_picture(view: &RecordView, path: &Path) -> Result<(), DataError> {
    let Some(picture) = &view.picture else {
        return Err(DataError::Config(match &view.picture_fault {
            Some(fault) => format!("{}: cannot be decoded: {fault}", view.file),
            None => format!(
                "record {} of {} contains no picture; leave out `out`",
                view.id, view.file
            ),
        }));
    };
    let refuse = |what: &str| DataError::Config(format!("{}: {what}", path.display()));
    if is_other_file(path)
        || std::fs::canonicalize(path).ok() == std::fs::canonicalize(&view.file).ok()
            && path.exists()
    {
        return Err(refuse(
            "exists and was not written by this command; name another file with `out`",
        ));
    }
    let png = picture
        .to_png()
        .map_err(|what| refuse(&format!("the picture cannot be written as PNG ({what})")))?;
    Ok(write_atomically(path, |file| std::fs::write(file, &png))?)
}

/// Whether a path has something other than a PNG file: pictures replace only pictures.
fn is_other_file(path: &Path) -> bool {
    let mut head = [0; 8];
    match std::fs::metadata(path) {
        Ok(status) if status.is_file() => {
            let read =
                pelton_storage::open_file(path).and_then(|mut file| file.read_exact(&mut head));
            read.is_err() || head != *b"\x89PNG\r\n\x1a\n"
        }
        Ok(_) => true,
        Err(_) => false,
    }
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
    let same = |path: &String| match (std::fs::canonicalize(path), std::fs::canonicalize(out)) {
        (Ok(path), Ok(out)) => path == out,
        _ => false,
    };
    if config.paths.iter().any(same) {
        return Err(DataError::Config(format!(
            "{}: is the data itself; name another file with `out`",
            out.display()
        )));
    }
    if out.exists() && !out.is_file() {
        return Err(DataError::Config(format!(
            "{}: is not a regular file and is not replaced; name another with `out`",
            out.display()
        )));
    }
    if out.exists() && !overwrite {
        return Err(DataError::Config(format!(
            "{}: exists; give `overwrite` to replace it",
            out.display()
        )));
    }
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
    let mut writer = PackedWriter::create(out, shape)?;
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
