//! Caches bytes fetched from servers in a folder of limited size.
//!
//! ```text
//! FOLDER/NAME-KEY/SEGMENT     KEY from address, state and size of the file; a segment is 16 MiB of it
//! ```
//!
//! The least recently used segments are removed first; their times of change say when they were used. The limit holds
//! for all processes together to within a sixteenth for each: every process counts its writes and scans the folder
//! after that many bytes. Some of the disk always stays free. If nothing can be written, reading continues without
//! the cache.
//!
//! Rejected: a file and a bitmap for each remote file, which needs an order of writes (data, sync, bitmap) that a
//! checksum in front of each block avoids; and whole files, since one may be larger than the disk.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::segment::Segment;

/// Open segments at most.
const MOST_OPEN: usize = 256;
/// Bytes of the disk that stay free.
const RESERVE: u64 = 1 << 30;
/// A smaller cache would evict all the time.
const LEAST: u64 = 64 << 20;
/// Fraction of the limit that is freed at once, and after which the folder is scanned again.
const SHARE: u64 = 16;

/// A folder of blocks.
#[derive(Debug)]
pub struct DiskCache {
    folder: PathBuf,
    limit: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<(u64, u64), Arc<Segment>>,
    /// Bytes in the folder at the last scan; `None` before that.
    found: Option<u64>,
    /// Bytes written since.
    written: u64,
    /// Why writing has stopped.
    off: Option<String>,
}

impl DiskCache {
    /// Keeps up to `limit` bytes in `folder`, at least 64 MiB.
    pub fn new(folder: PathBuf, limit: u64) -> Arc<DiskCache> {
        let cache = DiskCache {
            folder,
            limit: limit.max(LEAST),
            state: Mutex::default(),
        };
        let made =
            fs::create_dir_all(&cache.folder).and_then(|()| cache.make_room(&mut cache.state()));
        if let Err(error) = made {
            cache.turn_off(&mut cache.state(), &error);
        }
        Arc::new(cache)
    }

    /// Why writing has stopped, if it has.
    pub fn trouble(&self) -> Option<String> {
        self.state().off.clone()
    }

    /// Current bytes of the folder on its disk.
    pub fn used(&self) -> io::Result<u64> {
        Ok(self.segments()?.iter().map(|found| found.bytes).sum())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, key: u64, segment: u64) -> PathBuf {
        self.folder.join(format!("{key:016x}/{segment:08x}"))
    }

    /// A segment for reading; `None` if there is none.
    pub(crate) fn segment(&self, key: u64, segment: u64) -> Option<Arc<Segment>> {
        self.kept(&mut self.state(), key, segment, |path| {
            File::options().read(true).write(true).open(path)
        })
        .ok()
    }

    /// A segment for writing `bytes` more; `None` if writing has stopped.
    pub(crate) fn segment_for(&self, key: u64, segment: u64, bytes: u64) -> Option<Arc<Segment>> {
        let mut state = self.state();
        if state.off.is_some() {
            return None;
        }
        state.written += bytes;
        let is_full = state.found.unwrap_or(0) + state.written > self.limit - self.limit / SHARE;
        let outcome = if is_full || state.written > self.limit / SHARE {
            self.make_room(&mut state)
        } else {
            Ok(())
        };
        let opened = outcome.and_then(|()| {
            self.kept(&mut state, key, segment, |path| {
                fs::create_dir_all(path.parent().expect("a segment is in a folder"))?;
                File::options()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(path)
            })
        });
        opened
            .map_err(|error| self.turn_off(&mut state, &error))
            .ok()
    }

    fn kept(
        &self,
        state: &mut State,
        key: u64,
        segment: u64,
        open: impl FnOnce(&Path) -> io::Result<File>,
    ) -> io::Result<Arc<Segment>> {
        if let Some(open) = state.open.get(&(key, segment)) {
            return Ok(Arc::clone(open));
        }
        let opened = Arc::new(Segment::new(open(&self.path(key, segment))?, key));
        if state.open.len() >= MOST_OPEN {
            state.open.clear();
        }
        state.open.insert((key, segment), Arc::clone(&opened));
        Ok(opened)
    }

    /// Stops writing: a disk that is too full for this is too full for everything else.
    pub(crate) fn fail(&self, error: &io::Error) {
        self.turn_off(&mut self.state(), error);
    }

    fn turn_off(&self, state: &mut State, error: &io::Error) {
        let folder = self.folder.display();
        let why = format!(
            "{folder}: nothing more is kept there ({error}); what is not there is fetched each time"
        );
        tracing::warn!("{why}");
        state.off.get_or_insert(why);
    }

    /// Scans the folder, and removes the least recently used segments if it exceeds the limit.
    fn make_room(&self, state: &mut State) -> io::Result<()> {
        let mut segments = self.segments()?;
        let mut found: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let disk = rustix::fs::statvfs(&self.folder)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let allowed = self.limit.min((found + free).saturating_sub(RESERVE));
        if allowed < LEAST {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if found > allowed - allowed / SHARE {
            segments.sort_unstable_by_key(|segment| segment.used);
            for segment in segments {
                if found <= allowed - 2 * (allowed / SHARE) {
                    break;
                }
                // Another process may have removed it, or may keep it from being removed.
                if fs::remove_file(&segment.path).is_ok() {
                    found -= segment.bytes;
                    // Fails while others are in it.
                    let _ = fs::remove_dir(segment.path.parent().expect("it is in a folder"));
                }
            }
        }
        // Open segments may have been removed, by this process or another.
        state.open.clear();
        state.found = Some(found);
        state.written = 0;
        Ok(())
    }

    fn segments(&self) -> io::Result<Vec<Found>> {
        let mut segments = Vec::new();
        for folder in fs::read_dir(&self.folder)? {
            // Files that vanish in between do not matter.
            let Ok(files) = fs::read_dir(folder?.path()) else {
                continue;
            };
            for file in files.filter_map(Result::ok) {
                if let Ok(status) = file.metadata() {
                    segments.push(Found {
                        path: file.path(),
                        bytes: status.blocks() * 512,
                        used: status.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                    });
                }
            }
        }
        Ok(segments)
    }
}

/// A segment on disk.
struct Found {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}
