//! What a format is: how its files are told from others, and how one is opened.
//!
//! A format is a file of its own that implements [`Format`], and a line of the list in `formats.rs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelton_batch::{FieldSpec, Schema};
use pelton_storage::{FileSet, LocalFile, Storage};

use crate::contents::Contents;
use crate::data_file::{IndexSource, Places, Reach};
use crate::error::FormatError;
use crate::formats::delimited::{DelimitedRules, LabelColumn};
use crate::formats::npy::NpyRules;
use crate::formats::packed::IndexCoding;
use crate::kind::{FormatKind, Head};
use crate::labels::FileLabels;
use crate::labels::codes::Codes;
use crate::options::OpenOptions;
use crate::places::byte_source::FileWindow;
use crate::places::compressed::{cache_dir, cache_name};
use crate::places::input::{Input, input_of};
use crate::places::line_scan::scan_file;
use crate::places::located::Located;
use crate::places::scan_chunk::LineShape;
use crate::places::sidecar::{self, RecordShape, SidecarKey};
use crate::places::stamp::Stamp;
use crate::rows::Layout;
use crate::rows::features::FeatureDecoder;
use crate::rows::fields::{FieldDecoder, overhead};
use crate::rows::sample::{SampleReading, SampleShape};

/// How files of one format are recognised and opened.
pub(crate) trait Format: Sync {
    /// What messages call it; `--format` takes it, with `:` and an argument where it has one.
    fn name(&self) -> &'static str;

    /// What is shown for its argument in the list of names; `None` where it takes none.
    fn argument(&self) -> Option<&'static str> {
        None
    }

    /// What is wrong with an argument.
    fn check(&self, _argument: &str) -> Result<(), String> {
        Ok(())
    }

    /// Whether a file seems to be in this format, and by what.
    fn recognise(&self, _head: &Head<'_>) -> Option<Match> {
        None
    }

    /// Whether its records are rows of features, or pictures of one size, whose pixels can be.
    fn has_features(&self) -> bool {
        false
    }

    /// Whether it is read in place only, so that compressed files are refused.
    fn in_place_only(&self) -> bool {
        false
    }

    /// What to do about a label that records of this format do not state in such a way.
    fn refuses_label(&self, label: &LabelColumn) -> Option<&'static str> {
        matches!(label, LabelColumn::Json(_))
            .then_some("name a column, or leave it out; json:KEY is for samples of tar files")
    }

    /// Finds where records lie and how they are read; what the user may want to know is added to `notes`.
    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Found, FormatError>;
}

/// By what a file seems to be in a format; the strongest counts, of equal ones the first in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Match {
    /// What its first lines look like.
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
    pub(crate) found: Found,
    /// Whether its format was found by what its first lines look like.
    pub(crate) guessed: bool,
    pub(crate) scan_seconds: f64,
    pub(crate) remote: Option<Arc<dyn Storage>>,
    pub(crate) parts: Option<Arc<FileSet>>,
}

impl Opened {
    /// Whether records number their classes, and names of these lie in a file of their own.
    pub(crate) fn names_decorate_numbers(&self) -> bool {
        matches!(self.found.contents, Contents::Pixels { .. })
            || matches!(self.found.reading, Reading::Pixels(_))
    }

    /// Opens its bytes.
    pub(crate) fn input(&self) -> Result<Input, FormatError> {
        let remote = self.remote.as_ref();
        input_of(&self.source, remote, self.stamp.size, &self.path)
    }
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
    Fields {
        codes: Codes,
        decoder: Arc<dyn FieldDecoder>,
    },
    /// Features in a layout of the format's own.
    #[cfg_attr(not(feature = "columns"), expect(dead_code))]
    Features {
        codes: Codes,
        decoder: Arc<dyn FeatureDecoder>,
    },
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
            Reading::Fields { decoder, .. } => [11, decoder.fingerprint()],
            Reading::Features { decoder, .. } => [12, decoder.fingerprint()],
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
    pub(crate) labels: FileLabels,
    /// Names of the labels, where they have names.
    pub(crate) names: Vec<String>,
    pub(crate) reading: Reading,
    pub(crate) index: IndexSource,
    /// The first record that is known to be damaged.
    pub(crate) first_bad: Option<u64>,
    /// What places are places of; the file itself where `None`.
    pub(crate) storage: Option<Arc<dyn Storage>>,
    /// What reading one record costs.
    pub(crate) reach: Reach,
    /// The columns, where the file names them.
    pub(crate) columns: Option<Schema>,
}

impl Found {
    /// Where records are pictures of one size, rows of their pixels as features; else the same.
    pub(crate) fn with_pixels_as_features(mut self) -> Found {
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
            labels: labels.into(),
            names: Vec::new(),
            reading: Reading::Sample(reading),
            index: IndexSource::Arithmetic,
            first_bad: None,
            storage: None,
            reach: Reach::AsItLies,
            columns: None,
        }
    }

    /// Records of named arrays, whose rows are of one length where that of their fields is known; `codes` are the
    /// labels of those that do not state theirs.
    pub(crate) fn fields(
        labels: Vec<f64>,
        records: u64,
        codes: Codes,
        decoder: impl FieldDecoder + 'static,
    ) -> Found {
        let bytes = |field: &FieldSpec| {
            overhead(&field.name, field.dims.len()) + field.bytes().unwrap_or(0) as u64
        };
        let row: u64 = decoder.specs().0.iter().map(bytes).sum();
        let one = SampleReading::one_class(SampleShape::Whole);
        Found {
            reading: Reading::Fields {
                codes,
                decoder: Arc::new(decoder),
            },
            ..Found::samples(Contents::Fields, records * (2 + row), labels, one)
        }
    }
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

/// How many threads scan.
pub(crate) fn scan_threads(options: &OpenOptions) -> usize {
    match options.scan_threads {
        0 => std::thread::available_parallelism().map_or(2, usize::from),
        threads => threads,
    }
}

/// A file about to be looked through.
pub(crate) struct Source<'a> {
    /// As it was given.
    pub(crate) path: &'a Path,
    /// Which format it is opened in.
    pub(crate) kind: &'a FormatKind,
    /// Where its bytes lie, decompressed.
    pub(crate) source: &'a Path,
    /// What reads them, where they do not lie on this machine.
    pub(crate) remote: Option<&'a Arc<dyn Storage>>,
    pub(crate) stamp: Stamp,
    pub(crate) sample: u64,
    pub(crate) head: &'a [u8],
    pub(crate) options: &'a OpenOptions,
}

impl Source<'_> {
    /// What follows the format's name.
    pub(crate) fn argument(&self) -> &str {
        self.kind.argument().unwrap_or_default()
    }

    /// Opens its bytes.
    pub(crate) fn input(&self) -> Result<Input, FormatError> {
        input_of(self.source, self.remote, self.stamp.size, self.path)
    }

    /// What its records are read through, where the format has nothing of its own for it.
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

    /// Past a byte order mark.
    pub(crate) fn start(&self) -> u64 {
        if self.head.starts_with(b"\xef\xbb\xbf") {
            3
        } else {
            0
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
            let (threads, interrupt) = (scan_threads(self.options), &self.options.interrupt);
            let (file, path, size) = (self.input()?, self.path, self.stamp.size);
            scan_file(&file, path, shape, from, size, threads, interrupt)
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
            let kept = sidecar::load(place, &key);
            // A scan says what is wrong and where.
            if let Some(contents) =
                kept.filter(|kept| self.options.tolerant || kept.first_bad.is_none())
            {
                tracing::debug!(index = %place.display(), "index read");
                return Ok((contents, IndexSource::Sidecar));
            }
            if place.exists() {
                tracing::info!(index = %place.display(), "index of other data or damaged: made anew");
            }
        }
        let contents = scan()?;
        // One that lies elsewhere is held to its state by each read.
        if self.remote.is_none() {
            let now = Stamp::of(&regular_file(self.source)?);
            if !now.has_bytes_of(&self.stamp) {
                return Err(changed(self.path, &self.stamp, &now));
            }
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

    /// Beside the data first, then in the cache folder, and there alone for data that lies elsewhere. A folder marked
    /// read-only is left alone even where the user's rights would let a file be put there.
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
        if read_only || self.remote.is_some() {
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
