//! Generated sets as files in a cache folder: packed rows of features, pictures in CIFAR-10's format, sentences one a
//! line. They are generated once and streamed out, never held in memory.
//!
//! Threads generate chunks of rows and deliver them in order; the writer packs them while the next ones are generated.
//! Memory: a few chunks a thread, [`CHUNK_BYTES`] each, whatever the size of the set. A file gets its name when it is
//! complete, and the name states generator version, rows and seed, and a checksum if records have none, so a file with
//! the right name has the right content.

use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use pelton_format::{FormatError, IndexCoding, Layout, PackedShape, PackedWriter, Row, Rows};
use pelton_storage::{CachedCopy, WholeFile, make_cache_folder};

use super::{DemoSet, DemoSpec, Generator};

/// Changes whenever a generator's rows change, so older files are not reused.
const VERSION: u32 = 1;
/// Bytes of rows in a chunk.
const CHUNK_BYTES: u64 = 1 << 20;
/// Chunks a thread may be ahead of the writer.
const CHUNKS_AHEAD: usize = 2;

/// Why data could not be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// No generator of that name.
    #[error(
        "`{text}` is not built-in data: use demo:higgs, demo:epsilon, demo:webspam, demo:kdd, demo:images or demo:text, \
         with a number of rows as in demo:higgs:500000 if wanted, or demo:classes:N"
    )]
    Unknown {
        /// The argument.
        text: String,
    },
    /// The number of rows cannot be used.
    #[error("`{text}`: the number of rows must be from 1 to {most}")]
    Rows {
        /// The argument.
        text: String,
        /// Most rows.
        most: u64,
    },
    /// Invalid classes.
    #[error(
        "`{text}`: {what}; write demo:classes:N, or demo:classes:N:VIEWS:LENGTH:NOISE, as in demo:classes:100000:8:64:1.1"
    )]
    Classes {
        /// The argument.
        text: String,
        /// The problem.
        what: String,
    },
    /// The cache folder cannot be created.
    #[error(
        "{}: the cache folder for built-in data cannot be created; name another with PELTON_CACHE",
        path.display()
    )]
    CacheFolder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file of pictures or text cannot be written.
    #[error("{}: cannot be written; check the path, its permissions and the disk", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] FormatError),
}

impl DemoSpec {
    /// The training and test files of `seed` in `cache_dir`, generated unless they exist; calls `progress` with the
    /// rows generated so far and their total, for both sets.
    ///
    /// Cost: 1 to 3 µs of CPU time a kilobyte, over all cores.
    pub fn ensure(
        &self,
        cache_dir: &Path,
        seed: u64,
        interrupt: &AtomicBool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(PathBuf, PathBuf), DemoError> {
        make_cache_folder(cache_dir).map_err(|source| DemoError::CacheFolder {
            path: cache_dir.to_path_buf(),
            source,
        })?;
        // Names that determine the formats.
        let (name, kind) = match self.set {
            DemoSet::Images => ("data_batch_demo", ".bin"),
            DemoSet::Text => ("text", ".txt"),
            set => (set.name(), ".prow"),
        };
        let end = self.rows + self.test_rows();
        let mut file = |part: &str, range| {
            let rows = self.rows;
            let copy = CachedCopy {
                folder: cache_dir,
                stem: &format!("{name}-v{VERSION}-{rows}-seed{seed}{part}"),
                suffix: kind,
                interrupt,
            };
            // Packed records have their own checksums.
            let packed = cache_dir.join(format!("{}{kind}", copy.stem));
            let found = match self.layout() {
                Layout::Bytes => copy.find().map_err(FormatError::from)?,
                _ => packed.exists().then(|| packed.clone()),
            };
            match found {
                Some(path) => Ok(path),
                None => self.write((copy, packed), seed, range, |done| progress(done, end)),
            }
        };
        Ok((file("", 0..self.rows)?, file("-test", self.rows..end)?))
    }

    /// Writes a copy of bytes, or a packed file.
    fn write(
        &self,
        (copy, packed): (CachedCopy<'_>, PathBuf),
        seed: u64,
        range: Range<u64>,
        mut progress: impl FnMut(u64),
    ) -> Result<PathBuf, DemoError> {
        let interrupt = copy.interrupt;
        let path = packed.clone();
        let mut file = DemoFile::create(copy, packed, self)?;
        let mut done = range.start;
        in_chunks(self, seed, range, |rows| {
            if interrupt.load(Ordering::Relaxed) {
                return Err(FormatError::interrupted().in_file(&path).into());
            }
            for row in 0..rows.len() {
                file.push(rows.label(row), rows.row(row))?;
            }
            done += rows.len() as u64;
            progress(done);
            Ok::<(), DemoError>(())
        })?;
        file.finish()
    }
}

/// A file under construction.
struct DemoFile<'a> {
    copy: CachedCopy<'a>,
    path: PathBuf,
    set: DemoSet,
    to: Writer,
}

enum Writer {
    Packed(Box<PackedWriter>),
    Plain(io::BufWriter<WholeFile>),
}

impl DemoFile<'_> {
    fn create<'a>(
        copy: CachedCopy<'a>,
        path: PathBuf,
        spec: &DemoSpec,
    ) -> Result<DemoFile<'a>, DemoError> {
        let to = match spec.layout() {
            Layout::Bytes => {
                let file = copy.create().map_err(FormatError::from)?;
                Writer::Plain(io::BufWriter::with_capacity(CHUNK_BYTES as usize, file))
            }
            layout => {
                let shape = PackedShape {
                    layout,
                    features: spec.features(),
                    index_coding: IndexCoding::Plain,
                };
                Writer::Packed(Box::new(PackedWriter::create_shared(&path, shape)?))
            }
        };
        let set = spec.set;
        Ok(DemoFile {
            copy,
            path,
            set,
            to,
        })
    }

    fn push(&mut self, class: u32, row: Row<'_>) -> Result<(), DemoError> {
        match (&mut self.to, row) {
            (Writer::Packed(writer), row) => writer.push(self.set.label_value(class), row)?,
            (Writer::Plain(file), Row::Bytes(bytes)) => {
                let written = match self.set {
                    DemoSet::Images => file
                        .write_all(&[class as u8])
                        .and_then(|()| file.write_all(bytes)),
                    _ => file.write_all(bytes).and_then(|()| file.write_all(b"\n")),
                };
                written.map_err(|error| io_error(&self.path, error))?;
            }
            (Writer::Plain(_), _) => unreachable!("rows have the layout of their set"),
        }
        Ok(())
    }

    fn finish(self) -> Result<PathBuf, DemoError> {
        match self.to {
            Writer::Packed(writer) => {
                writer.finish()?;
                Ok(self.path)
            }
            Writer::Plain(file) => {
                let file = file.into_inner().map_err(io::IntoInnerError::into_error);
                let file = file.map_err(|error| io_error(&self.path, error))?;
                Ok(self.copy.publish(file).map_err(FormatError::from)?)
            }
        }
    }
}

pub(super) fn io_error(path: &Path, source: io::Error) -> DemoError {
    DemoError::File {
        path: path.to_path_buf(),
        source,
    }
}

/// Calls `take` with the rows of `range` in order, chunk by chunk, while threads generate the next ones.
fn in_chunks<E>(
    spec: &DemoSpec,
    seed: u64,
    range: Range<u64>,
    mut take: impl FnMut(&Rows) -> Result<(), E>,
) -> Result<(), E> {
    let chunk_rows = (CHUNK_BYTES / spec.row_bytes()).max(1);
    let chunks = (range.end - range.start).div_ceil(chunk_rows);
    let threads = std::thread::available_parallelism()
        .map_or(1, |cores| cores.get() as u64)
        .min(chunks);
    let (set, layout) = (spec.set, spec.layout());
    let end = range.end;
    std::thread::scope(|scope| {
        let lanes: Option<Vec<_>> = (0..threads)
            .map(|thread| {
                let (send, receive) = mpsc::sync_channel(CHUNKS_AHEAD);
                let first = range.start + thread * chunk_rows;
                let step = (threads * chunk_rows) as usize;
                let made = move || {
                    let mut generator = Generator::new(set, seed);
                    for start in (first..end).step_by(step) {
                        let rows =
                            chunk(&mut generator, layout, start..end.min(start + chunk_rows));
                        // `take` has failed and the receiver is gone.
                        if send.send(rows).is_err() {
                            return;
                        }
                    }
                };
                let started = std::thread::Builder::new().spawn_scoped(scope, made);
                started.is_ok().then_some(receive)
            })
            .collect();
        let Some(lanes) = lanes else {
            // The system starts no more threads; existing ones end when their lanes are dropped.
            let mut generator = Generator::new(set, seed);
            for start in range.step_by(chunk_rows as usize) {
                let rows = chunk(&mut generator, layout, start..end.min(start + chunk_rows));
                take(&rows)?;
            }
            return Ok(());
        };
        for chunk in 0..chunks {
            let Ok(rows) = lanes[(chunk % threads) as usize].recv() else {
                // The thread has panicked; the scope propagates the panic.
                return Ok(());
            };
            take(&rows)?;
        }
        Ok(())
    })
}

fn chunk(generator: &mut Generator, layout: Layout, range: Range<u64>) -> Rows {
    let mut rows = Rows::new(layout);
    for row in range {
        generator.append(row, &mut rows);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_format::{Dataset, OpenOptions};

    #[test]
    fn files_hold_the_generated_rows_in_order_and_are_reused() {
        let folder = tempfile::tempdir().unwrap();
        let never = AtomicBool::new(false);
        for text in [
            "demo:higgs:30000",
            "demo:epsilon:300",
            "demo:webspam:61",
            "demo:kdd:7000",
            "demo:images:700",
            "demo:text:9000",
        ] {
            let spec = DemoSpec::parse(text).unwrap();
            let mut last = (0, 0);
            let files = spec
                .ensure(folder.path(), 5, &never, &mut |done, total| {
                    last = (done, total)
                })
                .unwrap();
            let all = spec.rows() + spec.test_rows();
            assert_eq!(last, (all, all));
            check_file(&files.0, spec, 0..spec.rows());
            check_file(&files.1, spec, spec.rows()..all);
            let again = spec.ensure(folder.path(), 5, &never, &mut |_, _| {
                panic!("nothing is left to do")
            });
            assert_eq!(again.unwrap(), files);
        }
    }

    fn check_file(path: &Path, spec: DemoSpec, range: Range<u64>) {
        let options = OpenOptions::default();
        let dataset = Dataset::open(&[path.to_path_buf()], &options).unwrap();
        assert_eq!(dataset.records(), range.end - range.start);
        assert_eq!(dataset.layout(), spec.layout());
        if spec.layout() != Layout::Bytes {
            assert_eq!(dataset.features(), spec.features());
        }
        let bytes = std::fs::read(path).unwrap();
        let mut found = Rows::new(spec.layout());
        for id in 0..dataset.records() {
            let place = dataset.locate(id);
            let start = place.offset as usize;
            let record = &bytes[start..start + place.length as usize];
            dataset.decode(id, record, &mut found).unwrap();
        }
        let mut number = 0;
        let is_text = spec.set == DemoSet::Text;
        let compared: Result<(), ()> = spec.generate(5, range, |label, row| {
            assert_eq!(found.row(number), row);
            let class = found.label(number) as usize;
            assert!(is_text || dataset.labels().values()[class] == label);
            number += 1;
            Ok(())
        });
        compared.unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let spec = DemoSpec::parse("demo:higgs:10").unwrap();
        let error = spec
            .ensure(
                &file.join("cache"),
                0,
                &AtomicBool::new(false),
                &mut |_, _| {},
            )
            .unwrap_err();
        assert!(matches!(error, DemoError::CacheFolder { .. }));
        assert!(error.to_string().contains("PELTON_CACHE"));
    }
}
