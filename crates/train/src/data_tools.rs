//! The data side: `index`, `inspect`, `pack` and `probe`.

use std::path::Path;
use std::sync::Arc;

use pelton_feed::FeedOptions;
use pelton_format::{IndexCoding, PackedShape, PackedSummary, PackedWriter, RecordBytes, Row};
use serde::Serialize;

use crate::config::DataConfig;
use crate::data::{self, fetch_bytes, fetch_rows};
use crate::error::TrainError;
use crate::event::{Event, Interrupt, Observer};
use crate::linear::for_each_batch;

/// What `index` reports.
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
    /// Stored values of all records.
    pub nonzeros: u64,
    /// Label values.
    pub labels: Vec<f64>,
    /// Mean bytes of a record, which one random access reads, rounded out to the device's unit.
    pub mean_record_bytes: f64,
    /// Bytes of the longest record.
    pub longest_record_bytes: u64,
}

/// Most labels listed.
const MOST_LABELS: usize = 100;

/// Locates the records of files.
pub fn index(
    config: &DataConfig,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<IndexFigures, TrainError> {
    let opened = data::open(config, &config.paths, None, interrupt, observer)?;
    let dataset = &opened.dataset;
    let report = dataset.index_report();
    let labels = dataset.labels().values();
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
        labels: labels[..labels.len().min(MOST_LABELS)].to_vec(),
        mean_record_bytes: report.bytes as f64 / report.records.max(1) as f64,
        longest_record_bytes: match dataset.record_bytes() {
            RecordBytes::Fixed(bytes) => bytes,
            RecordBytes::Variable { max, .. } => max,
        },
    })
}

/// One record.
#[derive(Clone, Debug, Serialize)]
pub struct RecordView {
    /// Number of the record.
    pub id: u64,
    /// The file it lies in.
    pub file: String,
    /// Its first byte in the file.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// Its label.
    pub label: f64,
    /// Indices as the file counts and values; of a dense record every one.
    pub entries: Vec<(u64, f32)>,
    /// How the file counts its features.
    pub indices: String,
    /// The line as it stands in a text file.
    pub text: Option<String>,
}

/// Reads one record by random access.
pub fn inspect(
    config: &DataConfig,
    id: u64,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<RecordView, TrainError> {
    let opened = data::open(config, &config.paths, None, interrupt, observer)?;
    let dataset = &opened.dataset;
    if id >= dataset.records() {
        return Err(TrainError::Config(format!(
            "--id {id}: {} holds {} records, numbered from 0",
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
    };
    let is_text = !bytes.contains(&0);
    Ok(RecordView {
        id,
        file: dataset.files()[place.file as usize]
            .path()
            .display()
            .to_string(),
        offset: place.offset,
        length: place.length,
        label: dataset.labels().values()[rows.label(0) as usize],
        entries,
        indices: numbering.to_string(),
        text: is_text.then(|| String::from_utf8_lossy(&bytes).trim_end().to_string()),
    })
}

/// Writes every record of the data as packed rows.
pub fn pack(
    config: &DataConfig,
    out: &Path,
    delta: bool,
    overwrite: bool,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<PackedSummary, TrainError> {
    const MEMORY_BYTES: u64 = 64 << 20;
    let same = |path: &String| match (std::fs::canonicalize(path), std::fs::canonicalize(out)) {
        (Ok(path), Ok(out)) => path == out,
        _ => false,
    };
    if config.paths.iter().any(same) {
        return Err(TrainError::Config(format!(
            "{}: is the data itself; name another file with --out",
            out.display()
        )));
    }
    if out.exists() && !out.is_file() {
        return Err(TrainError::Config(format!(
            "{}: is no regular file and is not replaced; name another with --out",
            out.display()
        )));
    }
    if out.exists() && !overwrite {
        return Err(TrainError::Config(format!(
            "{}: exists; give --overwrite to replace it",
            out.display()
        )));
    }
    let opened = data::open(config, &config.paths, None, interrupt, observer)?;
    let dataset = &opened.dataset;
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
    let feed = FeedOptions {
        device: opened.device,
        interrupt: Arc::clone(interrupt),
        ..FeedOptions::with_memory(MEMORY_BYTES)
    };
    for_each_batch(dataset, &feed, |batch| {
        for i in 0..batch.rows.len() {
            let label = labels[batch.rows.label(i) as usize];
            writer.push(label, batch.rows.row(i))?;
        }
        done += batch.rows.len() as u64;
        observer(Event::Progress {
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
pub fn probe(folder: &Path, options: ProbeOptions) -> Result<DeviceProbe, TrainError> {
    let seconds = options.seconds_per_point;
    if !(seconds > 0.0 && seconds <= 3600.0) {
        return Err(TrainError::Config(format!(
            "--seconds {seconds} is no time to measure; give a number above 0 and at most 3600"
        )));
    }
    Ok(pelton_storage::probe_dir(folder, options)?)
}
