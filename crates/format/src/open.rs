//! Opening one file: its format, where its records lie, and what they hold together.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use pelton_storage::{FileSet, LocalFile, Storage};

use crate::compressed::{cache_name, decompressed, default_cache_dir};
use crate::contents::Contents;
use crate::data_file::{IndexSource, Places, Stamp};
use crate::delimited::{DelimitedRules, Heading, LabelColumn};
use crate::error::FormatError;
use crate::fingerprint::sample_file;
use crate::kind::{Compression, FormatKind, detect};
use crate::line_scan::{first_line_from, scan_file};
use crate::located::Located;
use crate::npy::{self, NpyRules};
use crate::options::OpenOptions;
use crate::packed::IndexCoding;
use crate::packed_reader;
use crate::rows::Layout;
use crate::sample::SampleReading;
use crate::scan_chunk::LineShape;
use crate::sidecar::{self, RecordShape, SidecarKey};
use crate::{cifar, folder, idx, stream, tar_file, text};

/// One file or folder, before it is made part of a data set.
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) source: PathBuf,
    pub(crate) kind: FormatKind,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) stamp: Stamp,
    pub(crate) sample: u64,
    pub(crate) places: Places,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) longest: u64,
    pub(crate) nonzeros: u64,
    pub(crate) layout: Layout,
    pub(crate) contents: Contents,
    pub(crate) features: u64,
    pub(crate) labels: Vec<f64>,
    /// Names of the labels, where they have names.
    pub(crate) names: Vec<String>,
    pub(crate) reading: Reading,
    pub(crate) index: IndexSource,
    pub(crate) scan_seconds: f64,
    pub(crate) parts: Option<Arc<FileSet>>,
}

/// What a decoder needs besides classes.
pub(crate) enum Reading {
    Libsvm,
    Delimited(DelimitedRules),
    Npy(NpyRules),
    PackedDense,
    PackedSparse {
        coding: IndexCoding,
        features: u64,
    },
    Sample(SampleReading),
    /// Bytes of a sample as features.
    Pixels(SampleReading),
}

impl Reading {
    /// Which of these it is and the label's column, for fingerprints.
    pub(crate) fn words(&self) -> [u64; 2] {
        let column = |label: Option<usize>| label.map_or(u64::MAX, |label| label as u64);
        match self {
            Reading::Libsvm => [1, 0],
            Reading::Delimited(rules) => [1 << 8 | u64::from(rules.delimiter), column(rules.label)],
            Reading::Npy(rules) => [2, column(rules.label)],
            Reading::PackedDense => [3, 0],
            Reading::PackedSparse { .. } => [4, 0],
            Reading::Sample(sample) => sample.shape.words(),
            Reading::Pixels(sample) => {
                let [shape, label] = sample.shape.words();
                [2 << 8 | shape, label]
            }
        }
    }
}

/// What the format of a file says of its records.
pub(crate) struct Found {
    pub(crate) places: Places,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) longest: u64,
    pub(crate) nonzeros: u64,
    pub(crate) layout: Layout,
    pub(crate) contents: Contents,
    pub(crate) features: u64,
    pub(crate) labels: Vec<f64>,
    pub(crate) names: Vec<String>,
    pub(crate) reading: Reading,
    pub(crate) index: IndexSource,
}

impl Found {
    /// Where records are pictures of one size, rows of their pixels as features; else the same.
    fn with_pixels_as_features(mut self) -> Found {
        let is_picture = matches!(self.contents, Contents::Pixels { .. });
        self.reading = match self.reading {
            Reading::Sample(sample) if is_picture => {
                self.features = self.nonzeros / self.records.max(1);
                self.contents = Contents::Features;
                self.layout = Layout::Dense {
                    width: self.features as usize,
                };
                Reading::Pixels(sample)
            }
            reading => reading,
        };
        self
    }

    /// Records that are strings of bytes, `payload` bytes of rows together; where they lie is filled in
    /// by whoever knows.
    pub(crate) fn samples(
        contents: Contents,
        payload: u64,
        labels: Vec<f64>,
        reading: SampleReading,
    ) -> Found {
        Found {
            places: Places::Fixed { from: 0, bytes: 0 },
            records: 0,
            bytes: 0,
            longest: 0,
            nonzeros: payload,
            layout: Layout::Bytes,
            contents,
            features: 0,
            labels,
            names: Vec::new(),
            reading: Reading::Sample(reading),
            index: IndexSource::Arithmetic,
        }
    }
}

/// Opens one file; what the user may want to know is added to `notes`.
pub(crate) fn open_file(
    path: &Path,
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<Opened, FormatError> {
    if fs::metadata(path).is_ok_and(|status| status.is_dir())
        && matches!(options.format, None | Some(FormatKind::Folder))
        && !options.features_only
    {
        check_label(path, FormatKind::Folder, options)?;
        return folder::open(path, options, notes);
    }
    let status = regular_file(path)?;
    if status.len() == 0 {
        return Err(FormatError::Empty {
            path: path.to_path_buf(),
        });
    }
    let mut source = path.to_path_buf();
    let mut stamp = Stamp::of(&status);
    let mut head = read_head(path)?;
    if let Some(compression) = Compression::of(&head) {
        source = decompress(path, compression, &stamp, options, notes)?;
        stamp = Stamp::of(&regular_file(&source)?);
        head = read_head(&source)?;
    }
    let kind = options
        .format
        .or_else(|| detect(path, &head, stamp.size, options.features_only));
    let kind = kind.ok_or_else(|| FormatError::UnknownFormat {
        path: path.to_path_buf(),
    })?;
    if source != path && matches!(kind, FormatKind::Npy | FormatKind::Packed) {
        return Err(FormatError::CompressedBinary {
            path: path.to_path_buf(),
            kind: kind.name(),
        });
    }
    if options.features_only && !kind.has_features() {
        return Err(FormatError::NoFeatures {
            path: path.to_path_buf(),
            kind: kind.name(),
        });
    }
    check_label(path, kind, options)?;
    let sample =
        sample_file(&source, stamp.size).map_err(|e| FormatError::io(path, "read it", e))?;
    let began = Instant::now();
    let text = Source {
        path,
        source: &source,
        stamp,
        sample,
        head: &head,
        options,
    };
    let found = match kind {
        FormatKind::Libsvm => text.libsvm(notes)?,
        FormatKind::Csv => text.delimited(b',', notes)?,
        FormatKind::Tsv => text.delimited(b'\t', notes)?,
        FormatKind::Npy => npy_file(path, stamp.size, options)?,
        FormatKind::Packed => packed_file(path)?,
        FormatKind::Text => text::open(&text, notes)?,
        FormatKind::Idx => idx::open(&text, notes)?,
        FormatKind::Cifar10 | FormatKind::Cifar100 => cifar::open(&text, kind)?,
        FormatKind::Tar => tar_file::open(&text, notes)?,
        FormatKind::Tokens(length) => stream::open_tokens(&text, length, notes)?,
        FormatKind::Bytes(length) => stream::open_bytes(&text, length),
        FormatKind::Folder => {
            return Err(FormatError::NotAFolder {
                path: path.to_path_buf(),
            });
        }
    };
    let found = match options.features_only {
        true => found.with_pixels_as_features(),
        false => found,
    };
    let scan_seconds = began.elapsed().as_secs_f64();
    if found.records == 0 {
        return Err(FormatError::Empty {
            path: path.to_path_buf(),
        });
    }
    let storage: Arc<dyn Storage> = Arc::new(LocalFile::open(&source, options.storage)?);
    Ok(Opened {
        path: path.to_path_buf(),
        source,
        kind,
        storage,
        stamp,
        sample,
        places: found.places,
        records: found.records,
        bytes: found.bytes,
        longest: found.longest,
        nonzeros: found.nonzeros,
        layout: found.layout,
        contents: found.contents,
        features: found.features,
        labels: found.labels,
        names: found.names,
        reading: found.reading,
        index: found.index,
        scan_seconds,
        parts: None,
    })
}

/// Refuses a label that records of this format do not state in such a way.
fn check_label(path: &Path, kind: FormatKind, options: &OpenOptions) -> Result<(), FormatError> {
    let remedy = match (&options.label, kind) {
        (LabelColumn::Name(_), FormatKind::Tar) => {
            "give `label` json:KEY, a key of the members .json, or leave it out for the members .cls"
        }
        (LabelColumn::Json(_), kind) if kind != FormatKind::Tar => {
            "name a column, or leave it out; json:KEY is for samples of tar files"
        }
        _ => return Ok(()),
    };
    Err(FormatError::LabelElsewhere {
        path: path.to_path_buf(),
        kind: kind.name(),
        wanted: match &options.label {
            LabelColumn::Name(name) => name.clone(),
            label => label.describe(),
        },
        remedy,
    })
}

/// Status of a regular file: opening a pipe would hang.
pub(crate) fn regular_file(path: &Path) -> Result<fs::Metadata, FormatError> {
    let status = fs::metadata(path).map_err(|e| FormatError::io(path, "examine it", e))?;
    if status.is_file() {
        return Ok(status);
    }
    let found = if status.is_dir() {
        "a folder"
    } else {
        "a device, pipe or socket"
    };
    Err(FormatError::NotAFile {
        path: path.to_path_buf(),
        found,
    })
}

pub(crate) fn read_head(path: &Path) -> Result<Vec<u8>, FormatError> {
    let mut head = Vec::new();
    File::open(path)
        .map_err(|e| FormatError::io(path, "open it", e))?
        .take(64 << 10)
        .read_to_end(&mut head)
        .map_err(|e| FormatError::io(path, "read it", e))?;
    Ok(head)
}

fn cache_dir(options: &OpenOptions) -> PathBuf {
    options.cache_dir.clone().unwrap_or_else(default_cache_dir)
}

/// The decompressed copy of a file, and a note that says where it lies.
pub(crate) fn decompress(
    path: &Path,
    compression: Compression,
    stamp: &Stamp,
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<PathBuf, FormatError> {
    let (copy, fresh) = decompressed(
        path,
        compression,
        stamp,
        &cache_dir(options),
        &options.interrupt,
    )?;
    let done = if fresh {
        "decompressed to"
    } else {
        "read from its decompressed copy"
    };
    notes.push(format!("{}: {done} {}", path.display(), copy.display()));
    if regular_file(&copy)?.len() == 0 {
        return Err(FormatError::Empty {
            path: path.to_path_buf(),
        });
    }
    Ok(copy)
}

/// A file about to be looked through.
pub(crate) struct Source<'a> {
    /// As it was given.
    pub(crate) path: &'a Path,
    /// Where its bytes lie, decompressed.
    pub(crate) source: &'a Path,
    pub(crate) stamp: Stamp,
    pub(crate) sample: u64,
    pub(crate) head: &'a [u8],
    pub(crate) options: &'a OpenOptions,
}

impl Source<'_> {
    /// Past a byte order mark.
    pub(crate) fn start(&self) -> u64 {
        if self.head.starts_with(b"\xef\xbb\xbf") {
            3
        } else {
            0
        }
    }

    /// How many threads scan.
    pub(crate) fn scan_threads(&self) -> usize {
        match self.options.scan_threads {
            0 => std::thread::available_parallelism().map_or(2, usize::from),
            threads => threads,
        }
    }

    fn libsvm(&self, notes: &mut Vec<String>) -> Result<Found, FormatError> {
        let (contents, index) = self.lines(LineShape::Libsvm, self.start(), notes)?;
        let features = contents
            .index_end
            .saturating_sub(u64::from(!self.options.zero_based));
        if let [queries, comments] = contents.tallies[..] {
            let counts = [(queries, "query numbers (qid)"), (comments, "comments")];
            let skipped = counts.iter().filter(|(count, _)| *count > 0);
            let skipped: Vec<String> = skipped
                .map(|(count, what)| format!("{count} {what}"))
                .collect();
            if !skipped.is_empty() {
                let path = self.path.display();
                notes.push(format!("{path}: skipped {}", skipped.join(" and ")));
            }
        }
        Ok(self.found(contents, index, Layout::Sparse, features, Reading::Libsvm))
    }

    fn delimited(&self, delimiter: u8, notes: &mut Vec<String>) -> Result<Found, FormatError> {
        let file = File::open(self.source).map_err(|e| FormatError::io(self.path, "open it", e))?;
        let first = first_line_from(&file, self.start(), self.stamp.size)
            .map_err(|e| FormatError::io(self.path, "read it", e))?;
        let Some((start, line)) = first else {
            return Err(FormatError::Empty {
                path: self.path.to_path_buf(),
            });
        };
        let heading = Heading::read(line.trim_ascii_end(), delimiter);
        let columns = heading.columns;
        let wanted = &self.options.label;
        let is_named = matches!(wanted, LabelColumn::Name(name) if heading.names(name));
        let label = match has_no_label(columns, self.options) && !is_named {
            true => None,
            false => Some(heading.label(self.path, wanted)?),
        };
        let from = if heading.is_header(label, wanted) {
            start + line.len() as u64
        } else {
            start
        };
        let shape = LineShape::Delimited {
            delimiter,
            label,
            columns,
        };
        let (contents, index) = self.lines(shape, from, notes)?;
        let rules = DelimitedRules {
            delimiter,
            columns,
            label,
            missing: None,
        };
        let width = rules.features();
        let (layout, reading) = (Layout::Dense { width }, Reading::Delimited(rules));
        Ok(self.found(contents, index, layout, width as u64, reading))
    }

    fn found(
        &self,
        contents: Located,
        index: IndexSource,
        layout: Layout,
        features: u64,
        reading: Reading,
    ) -> Found {
        let end = self.stamp.size;
        let first = contents.starts.walk(0).next().unwrap_or(end);
        Found {
            records: contents.starts.len(),
            bytes: end - first,
            longest: contents.longest,
            nonzeros: contents.nonzeros,
            layout,
            contents: Contents::Features,
            features,
            labels: contents.labels,
            names: contents.names,
            reading,
            index,
            places: Places::listed(contents.starts, end),
        }
    }

    /// Where the lines from `from` on lie.
    pub(crate) fn lines(
        &self,
        shape: LineShape,
        from: u64,
        notes: &mut Vec<String>,
    ) -> Result<(Located, IndexSource), FormatError> {
        self.located(RecordShape::Lines(shape), from, notes, || {
            let (threads, interrupt) = (self.scan_threads(), &self.options.interrupt);
            scan_file(
                self.source,
                shape,
                from,
                self.stamp.size,
                threads,
                interrupt,
            )
        })
    }

    /// From the sidecar where there is a good one, otherwise by a scan that leaves one.
    pub(crate) fn located(
        &self,
        shape: RecordShape,
        from: u64,
        notes: &mut Vec<String>,
        scan: impl FnOnce() -> Result<Located, FormatError>,
    ) -> Result<(Located, IndexSource), FormatError> {
        let key = SidecarKey {
            shape,
            from,
            stamp: self.stamp,
            sample: self.sample,
        };
        let places = self.sidecar_places();
        for place in &places {
            if let Some(contents) = sidecar::load(place, &key) {
                tracing::debug!(index = %place.display(), "index read");
                return Ok((contents, IndexSource::Sidecar));
            }
            if place.exists() {
                tracing::info!(index = %place.display(), "index of other data or damaged: made anew");
            }
        }
        let contents = scan()?;
        let now = Stamp::of(&regular_file(self.source)?);
        if now != self.stamp {
            return Err(changed(self.path, &self.stamp, &now));
        }
        let mut failure = None;
        for place in &places {
            if let Some(folder) = place.parent() {
                // A failure shows when the file is written.
                let _ = fs::create_dir_all(folder);
            }
            match sidecar::store(place, &key, &contents) {
                Ok(()) => {
                    tracing::info!(index = %place.display(), "index written");
                    return Ok((contents, IndexSource::Built));
                }
                Err(error) => failure = Some((place, error)),
            }
        }
        if let Some((place, error)) = failure {
            notes.push(format!(
                "{}: its index cannot be kept at {} ({error}), so it is scanned anew each time",
                self.path.display(),
                place.display()
            ));
        }
        Ok((contents, IndexSource::Built))
    }

    /// Beside the data first, then in the cache folder. A folder marked read-only is left alone even
    /// where the user's rights would let a file be put there.
    fn sidecar_places(&self) -> Vec<PathBuf> {
        if !self.options.sidecar {
            return Vec::new();
        }
        let mut beside = self.source.as_os_str().to_owned();
        beside.push(".pelton-index");
        let beside = PathBuf::from(beside);
        let folder = match beside.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let read_only = fs::metadata(folder).is_ok_and(|status| status.permissions().readonly());
        let name = cache_name(self.source, &self.stamp, ".pelton-index");
        let cached = cache_dir(self.options).join(name);
        if read_only {
            vec![cached]
        } else {
            vec![beside, cached]
        }
    }
}

pub(crate) fn changed(path: &Path, expected: &Stamp, found: &Stamp) -> FormatError {
    let path = path.to_path_buf();
    if expected.size != found.size {
        return FormatError::Changed {
            path,
            what: "its size",
            expected: format!("{} bytes", expected.size),
            found: format!("{} bytes", found.size),
        };
    }
    FormatError::Changed {
        path,
        what: "its time of last change, in ns",
        expected: expected.modified_ns().to_string(),
        found: found.modified_ns().to_string(),
    }
}

/// Whether rows of so many columns are the features of a model alone, labels being of no use.
fn has_no_label(columns: usize, options: &OpenOptions) -> bool {
    options.any_label && options.features == Some(columns as u64)
}

fn npy_file(path: &Path, size: u64, options: &OpenOptions) -> Result<Found, FormatError> {
    let header = npy::read_header(path, size)?;
    let columns = header.columns as usize;
    let (mut label, mut labels) = (None, Vec::new());
    if !has_no_label(columns, options) {
        let column = npy::label_column(path, &header, &options.label)?;
        labels = npy::scan_labels(path, &header, column, &options.interrupt)?;
        label = Some(column);
    }
    let rules = NpyRules {
        number: header.number,
        columns,
        label,
    };
    let row_bytes = header.columns * header.number.bytes() as u64;
    let features = rules.features() as u64;
    Ok(Found {
        places: Places::Fixed {
            from: header.data_offset,
            bytes: row_bytes,
        },
        records: header.rows,
        bytes: header.rows * row_bytes,
        longest: row_bytes,
        nonzeros: header.rows.saturating_mul(features),
        layout: Layout::Dense {
            width: rules.features(),
        },
        contents: Contents::Features,
        features,
        labels,
        names: Vec::new(),
        reading: Reading::Npy(rules),
        index: IndexSource::Arithmetic,
    })
}

fn packed_file(path: &Path) -> Result<Found, FormatError> {
    let tables = packed_reader::read_tables(path)?;
    let header = tables.header;
    let features = header.shape.features;
    let from = crate::packed::HEADER_BYTES;
    let row_bytes = header.record_bytes().unwrap_or(0);
    Ok(Found {
        places: match tables.offsets {
            Some(starts) => Places::Listed {
                starts: Arc::new(starts),
                end: header.records_end,
            },
            None => Places::Fixed {
                from,
                bytes: row_bytes,
            },
        },
        records: header.records,
        bytes: header.records_end - from,
        longest: header.longest,
        nonzeros: header.nonzeros,
        layout: header.shape.layout,
        contents: Contents::Features,
        features,
        labels: tables.labels,
        names: Vec::new(),
        reading: match header.shape.layout {
            Layout::Dense { .. } => Reading::PackedDense,
            Layout::Sparse | Layout::Bytes => Reading::PackedSparse {
                coding: header.shape.index_coding,
                features,
            },
        },
        index: IndexSource::Arithmetic,
    })
}
