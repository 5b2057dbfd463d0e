//! The trait of a format: recognising and opening its files.
//!
//! A format is a file that implements [`Format`], and a line of the list in `dataset/formats.rs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelton_batch::Schema;
use pelton_storage::{FileSet, LocalFile, Storage, StorageError, StorageErrorKind, regular_file};

use crate::locate::decoder::Decoder;
use crate::locate::places::byte_source::FileWindow;
use crate::locate::places::compressed::{cache_dir, cache_name, make_folder_of};
use crate::locate::places::input::{Input, input_of};
use crate::locate::places::line_scan::scan_file;
use crate::locate::places::located::Located;
use crate::locate::places::scan_chunk::LineShape;
use crate::locate::places::sidecar::{self, RecordShape, SidecarKey};
use crate::locate::places::stamp::Stamp;
use crate::locate::places::{IndexSource, Places};
use crate::locate::reach::Reach;
use crate::locate::sample::{SampleDecoder, SampleShape};
use crate::record::cells::label_column::LabelColumn;
use crate::record::contents::Contents;
use crate::record::error::FormatError;
use crate::record::kind::{FormatKind, Head};
use crate::record::labels::FileLabels;
use crate::record::labels::codes::Codes;
use crate::record::options::OpenOptions;
use crate::record::rows::Layout;

/// Recognises and opens files of one format.
pub(crate) trait Format: Sync {
    /// Its name in messages; `--format` takes it, with `:` and an argument if it has one.
    fn name(&self) -> &'static str;

    /// The placeholder for its argument in the list of names; `None` if it takes none.
    fn argument(&self) -> Option<&'static str> {
        None
    }

    /// Checks an argument; the error describes its fault.
    fn check(&self, _argument: &str) -> Result<(), String> {
        Ok(())
    }

    /// Whether a file seems to be in this format, and by which evidence.
    fn recognise(&self, _head: &Head<'_>) -> Option<Match> {
        None
    }

    /// Whether its records are rows of features, or pictures of one size with pixels as features.
    fn has_features(&self) -> bool {
        false
    }

    /// Whether its records are rows of cells, which become features if columns are coded.
    fn has_cells(&self) -> bool {
        false
    }

    /// Whether it is read only in place, so that compressed files are refused.
    fn in_place_only(&self) -> bool {
        false
    }

    /// The remedy for a label that records of this format cannot state; `None` if they can.
    fn refuses_label(&self, label: &LabelColumn) -> Option<&'static str> {
        matches!(label, LabelColumn::Json(_))
            .then_some("name a column, or leave it out; json:KEY is for samples of tar files")
    }

    /// Finds the offsets of records and makes the decoder; adds remarks for the user to `notes`. Errors may lack the
    /// path.
    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError>;
}

/// The evidence for a format; the strongest wins, and among equals the first format in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Match {
    /// The look of its first lines.
    Lines,
    /// Part of its name, or first bytes that others may have.
    Hint,
    /// The end of its name.
    Name,
    /// First bytes that no other format has.
    Magic,
}

/// One file or folder, before it is made part of a data set.
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) source: PathBuf,
    pub(crate) kind: FormatKind,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) stamp: Stamp,
    pub(crate) sample: u64,
    pub(crate) shard: Shard,
    /// Whether its format was guessed from its first lines.
    pub(crate) guessed: bool,
    pub(crate) scan_seconds: f64,
    pub(crate) remote: Option<Arc<dyn Storage>>,
    pub(crate) parts: Option<Arc<FileSet>>,
}

/// An opened file: the offsets of its records, what they contain, and how they are decoded.
pub(crate) struct Shard {
    pub(crate) places: Places,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) longest: u64,
    pub(crate) nonzeros: u64,
    pub(crate) layout: Layout,
    pub(crate) contents: Contents,
    pub(crate) features: u64,
    pub(crate) labels: FileLabels,
    /// Names of the labels, if they have names.
    pub(crate) names: Vec<String>,
    /// Whether records state class numbers in spite of the names.
    pub(crate) names_decorate_numbers: bool,
    /// The labels of records that do not state theirs.
    pub(crate) codes: Codes,
    pub(crate) decoder: Arc<dyn Decoder>,
    pub(crate) index: IndexSource,
    /// The first record that is known to be damaged.
    pub(crate) first_bad: Option<u64>,
    /// The storage that offsets refer to; the file itself if `None`.
    pub(crate) storage: Option<Arc<dyn Storage>>,
    /// The cost of reading one record.
    pub(crate) reach: Reach,
    /// The columns, if the file names them.
    pub(crate) columns: Option<Schema>,
}

impl Shard {
    /// Records of this kind, without labels; the format fills in their count and offsets.
    pub(crate) fn new(
        contents: Contents,
        layout: Layout,
        decoder: impl Decoder + 'static,
    ) -> Shard {
        Shard {
            places: Places::Fixed { from: 0, bytes: 0 },
            records: 0,
            bytes: 0,
            longest: 0,
            nonzeros: 0,
            layout,
            contents,
            features: 0,
            labels: FileLabels::None,
            names: Vec::new(),
            names_decorate_numbers: matches!(contents, Contents::Pixels { .. }),
            codes: Codes::One,
            decoder: Arc::new(decoder),
            index: IndexSource::Arithmetic,
            first_bad: None,
            storage: None,
            reach: Reach::InPlace,
            columns: None,
        }
    }

    /// Rows of `features` features; features of 64 bits become rows of a field.
    pub(crate) fn features(
        layout: Layout,
        features: u64,
        records: u64,
        nonzeros: u64,
        decoder: impl Decoder + 'static,
    ) -> Shard {
        if decoder.is_wide() {
            return Shard::fields(records, decoder);
        }
        Shard {
            records,
            nonzeros,
            features,
            ..Shard::new(Contents::Features, layout, decoder)
        }
    }

    /// Strings of bytes, `payload` bytes of rows together.
    pub(crate) fn samples(
        contents: Contents,
        payload: u64,
        labels: Vec<f64>,
        shape: SampleShape,
    ) -> Shard {
        Shard {
            nonzeros: payload,
            labels: labels.into(),
            ..Shard::new(contents, Layout::Bytes, SampleDecoder::new(shape))
        }
    }

    /// Records of named arrays; rows have one length if the lengths of their fields are known.
    pub(crate) fn fields(records: u64, decoder: impl Decoder + 'static) -> Shard {
        let row = decoder.fields().row_bytes();
        Shard {
            records,
            nonzeros: records.saturating_mul(row),
            ..Shard::new(Contents::Fields, Layout::Bytes, decoder)
        }
    }

    /// Adds the records that a scan or a sidecar found; `how` describes how in words.
    pub(crate) fn at(self, located: Located, index: IndexSource, how: &'static str) -> Shard {
        let (records, end) = (located.starts.len(), located.end);
        let first = located.starts.walk(0).next().unwrap_or(end);
        Shard {
            records,
            bytes: end - first,
            longest: located.longest,
            nonzeros: located.nonzeros,
            labels: located.labels.into(),
            names: located.names,
            codes: located.codes,
            first_bad: located.first_bad,
            index,
            places: Places::listed(located.starts, end, how),
            ..self
        }
    }

    /// For pictures of one size, rows of their pixels as features; otherwise unchanged.
    pub(crate) fn with_pixels_as_features(self) -> Shard {
        let decoder = match self.contents {
            Contents::Pixels { .. } => self.decoder.pixels_as_features(),
            _ => None,
        };
        let Some(decoder) = decoder else { return self };
        let features = self.nonzeros / self.records.max(1);
        Shard {
            features,
            contents: Contents::Features,
            layout: Layout::Dense {
                width: features as usize,
            },
            decoder,
            ..self
        }
    }
}

/// How many threads scan.
pub(crate) fn scan_threads(options: &OpenOptions) -> usize {
    match options.scan_threads {
        0 => std::thread::available_parallelism().map_or(2, usize::from),
        threads => threads,
    }
}

/// A file that is being opened.
pub(crate) struct Source<'a> {
    /// The path as given.
    pub(crate) path: &'a Path,
    /// The format it is opened in.
    pub(crate) kind: &'a FormatKind,
    /// Path of its bytes, decompressed.
    pub(crate) source: &'a Path,
    /// The reader of the bytes, for remote files.
    pub(crate) remote: Option<&'a Arc<dyn Storage>>,
    pub(crate) stamp: Stamp,
    pub(crate) sample: u64,
    pub(crate) head: &'a [u8],
    pub(crate) options: &'a OpenOptions,
}

impl Source<'_> {
    /// The format's argument.
    pub(crate) fn argument(&self) -> &str {
        self.kind.argument().unwrap_or_default()
    }

    /// Opens its bytes.
    pub(crate) fn input(&self) -> Result<Input, FormatError> {
        input_of(self.source, self.remote, self.stamp.size, self.path)
    }

    /// The storage of its records, unless the format brings its own.
    pub(crate) fn storage(&self) -> Result<Arc<dyn Storage>, FormatError> {
        Ok(match self.remote {
            Some(storage) => Arc::clone(storage),
            None => Arc::new(LocalFile::open(self.source, self.options.storage)?),
        })
    }

    /// Its bytes, for a walk over headers.
    pub(crate) fn window(&self) -> Result<FileWindow, FormatError> {
        Ok(FileWindow::new(self.input()?, self.stamp.size))
    }

    /// The start of the content, after a byte order mark.
    pub(crate) fn start(&self) -> u64 {
        if self.head.starts_with(b"\xef\xbb\xbf") {
            3
        } else {
            0
        }
    }

    /// The offsets of the lines from `from` on.
    pub(crate) fn lines(
        &self,
        shape: LineShape,
        from: u64,
        notes: &mut Vec<String>,
    ) -> Result<(Located, IndexSource), FormatError> {
        self.located(RecordShape::Lines(shape), from, notes, || {
            let (threads, interrupt) = (scan_threads(self.options), &self.options.interrupt);
            let (file, size) = (self.input()?, self.stamp.size);
            scan_file(&file, shape, from, size, threads, interrupt)
        })
    }

    /// The records from a valid sidecar, otherwise from a scan that writes one.
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
            let kept = sidecar::load(place, &key);
            // If records are bad, scan again to report the fault and its position.
            if let Some(contents) =
                kept.filter(|kept| self.options.tolerant || kept.first_bad.is_none())
            {
                tracing::debug!(index = %place.display(), "index read");
                return Ok((contents, IndexSource::Sidecar));
            }
            if place.exists() {
                tracing::info!(index = %place.display(), "index of other data or damaged: made again");
            }
        }
        let contents = scan()?;
        // For a remote file, each read verifies its state.
        if self.remote.is_none() {
            let now = Stamp::from_metadata(&regular_file(self.source)?);
            if !now.has_bytes_of(&self.stamp) {
                return Err(changed(self.path, &self.stamp, &now));
            }
        }
        let mut failure = None;
        for place in &places {
            let made = make_folder_of(place, self.options);
            match made.and_then(|()| sidecar::store(place, &key, &contents)) {
                Ok(()) => {
                    tracing::info!(index = %place.display(), "index written");
                    return Ok((contents, IndexSource::Built));
                }
                Err(error) => failure = Some((place, error)),
            }
        }
        if let Some((place, error)) = failure {
            notes.push(format!(
                "{}: its index cannot be kept at {} ({error}), so it is scanned again each time",
                self.path.display(),
                place.display()
            ));
        }
        Ok((contents, IndexSource::Built))
    }

    /// Paths for the sidecar: next to the data, then in the cache folder; only the latter for remote data. Never writes
    /// to a folder marked read-only, even if the user (as root) could.
    fn sidecar_places(&self) -> Vec<PathBuf> {
        if !self.options.sidecar {
            return Vec::new();
        }
        let mut adjacent = self.source.as_os_str().to_owned();
        adjacent.push(".pelton-index");
        let adjacent = PathBuf::from(adjacent);
        let folder = match adjacent.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let read_only = fs::metadata(folder).is_ok_and(|status| status.permissions().readonly());
        let name = cache_name(self.source, &self.stamp, ".pelton-index");
        let cached = cache_dir(self.options).join(name);
        if read_only || self.remote.is_some() {
            vec![cached]
        } else {
            vec![adjacent, cached]
        }
    }
}

pub(crate) fn changed(path: &Path, expected: &Stamp, found: &Stamp) -> FormatError {
    let difference = if expected.size != found.size {
        format!("its size: {} bytes became {}", expected.size, found.size)
    } else {
        let (then, now) = (expected.modified_ns(), found.modified_ns());
        format!("its time of last change, in ns: {then} became {now}")
    };
    let what = format!(
        "changed while it was read ({difference}); leave data alone during a run and start again"
    );
    StorageError::new(StorageErrorKind::Changed, path.display(), what).into()
}
