//! The folder for files that can be recreated: decompressed copies, generated data, counts, indexes.
//!
//! Its files are used as if they were the data, so the folder must belong to this user, and no one else may write to
//! it. A [`CachedCopy`] is named after the state of its origin and the CRC-32C of its own bytes, and is read whole
//! and compared each time it is opened, at the speed of the disk or, from the page cache, of memory. Trusting size
//! and times was rejected, since times can be set; a checksum for each block, verified when it is read, since records
//! of text have no blocks.
//!
//! The least recently used files are removed above a limit, half of what would be free without them unless
//! [`CACHE_LIMIT`] says otherwise, except those that a process uses: it holds a lock on them. Parts that a killed
//! process left are removed as well.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use rustix::fs::{FlockOperation, flock};

use crate::whole_file::{WholeFile, is_temporary_name, remove_if_abandoned};
use crate::{StorageError, in_parallel, regular_file};

/// The variable that limits the folder, in GB.
pub const CACHE_LIMIT: &str = "PELTON_CACHE_GB";
/// Bytes that one thread reads at a time.
const PIECE: usize = 1 << 20;

/// The cache folder: the given one, else `PELTON_CACHE`, else `pelton` in `XDG_CACHE_HOME`, else `.cache/pelton` in
/// the home folder, else one of this user among the temporary files; the latter also if others can write to the
/// folder, as the note then says.
pub fn cache_folder(given: Option<&Path>) -> (PathBuf, Option<String>) {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let folder = given.map_or_else(|| folder_of(variable), Path::to_path_buf);
    match is_private(&folder) {
        // It is created when it is first needed.
        Ok(true) | Err(_) => (folder, None),
        Ok(false) => {
            let mut own = own_folder();
            if is_private(&own).is_ok_and(|is_private| !is_private) {
                let random = RandomState::new().hash_one(std::process::id());
                own.set_extension(format!("{random:x}"));
            }
            let note = format!(
                "{}: is not used as the cache folder, because it belongs to another user or others can write to it; {} is used instead (chmod go-w closes a folder, and PELTON_CACHE names another)",
                folder.display(),
                own.display()
            );
            (own, Some(note))
        }
    }
}

fn folder_of(variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    let set = |name: &str| variable(name).filter(|path| !path.as_os_str().is_empty());
    set("PELTON_CACHE")
        // The base directory specification requires relative paths to be ignored.
        .or_else(|| {
            set("XDG_CACHE_HOME")
                .filter(|path| path.is_absolute())
                .map(|path| path.join("pelton"))
        })
        .or_else(|| set("HOME").map(|home| home.join(".cache/pelton")))
        .unwrap_or_else(own_folder)
}

/// The folder among the temporary files.
fn own_folder() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    std::env::temp_dir().join(format!("pelton-{user}"))
}

/// Whether a folder belongs to this user and is closed to others' writing.
fn is_private(folder: &Path) -> io::Result<bool> {
    let status = fs::metadata(folder)?;
    Ok(status.uid() == rustix::process::geteuid().as_raw() && status.mode() & 0o022 == 0)
}

/// Creates a cache folder if it is absent, for this user alone.
///
/// Errors: also a folder that others can write to.
pub fn make_cache_folder(folder: &Path) -> io::Result<()> {
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if is_private(folder)? {
        return Ok(());
    }
    let what = "it belongs to another user or others can write to it; name another in PELTON_CACHE";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

/// A copy in a cache folder.
#[derive(Clone, Copy, Debug)]
pub struct CachedCopy<'a> {
    /// The folder.
    pub folder: &'a Path,
    /// Start of its name: that of the origin and a hash of the origin's state.
    pub stem: &'a str,
    /// End of its name.
    pub suffix: &'a str,
    /// Stops the check.
    pub interrupt: &'a AtomicBool,
}

impl CachedCopy<'_> {
    /// The copy, if there is one with the bytes that were written; a changed one is removed. It stays while this
    /// process runs.
    pub fn find(&self) -> Result<Option<PathBuf>, StorageError> {
        let entries = fs::read_dir(self.folder).into_iter().flatten();
        for name in entries.filter_map(|entry| Some(entry.ok()?.file_name())) {
            let Some(stated) = name.to_str().and_then(|name| self.checksum_in(name)) else {
                continue;
            };
            let path = self.folder.join(name);
            let Some(file) = hold(&path) else {
                continue;
            };
            if checksum(&file, &path, self.interrupt)? == stated {
                return Ok(Some(path));
            }
            tracing::warn!(path = %path.display(), "changed since it was written: made again");
            release(&path);
            fs::remove_file(&path).map_err(failed(&path, "remove it"))?;
        }
        Ok(None)
    }

    /// Begins to write it.
    pub fn create(&self) -> Result<WholeFile, StorageError> {
        make_cache_folder(self.folder).map_err(failed(self.folder, "create the folder"))?;
        tidy_cache_folder(self.folder);
        let file = WholeFile::create_shared(self.folder.join(self.stem));
        file.map_err(failed(self.folder, "create a file in it"))
    }

    /// Gives a complete copy its name; a copy that another process made meanwhile stays.
    pub fn publish(&self, mut file: WholeFile) -> Result<PathBuf, StorageError> {
        let written =
            File::open(file.temporary()).map_err(failed(self.folder, "read a file in it"))?;
        let sum = checksum(&written, self.folder, self.interrupt)?;
        let name = format!("{}-{sum:08x}{}", self.stem, self.suffix);
        let path = self.folder.join(name);
        file.rename(&path);
        file.publish().map_err(failed(&path, "write it"))?;
        hold(&path);
        tidy_cache_folder(self.folder);
        Ok(path)
    }

    fn checksum_in(&self, name: &str) -> Option<u32> {
        let rest = name.strip_prefix(self.stem)?.strip_suffix(self.suffix)?;
        let digits = rest.strip_prefix('-').filter(|digits| digits.len() == 8)?;
        u32::from_str_radix(digits, 16).ok()
    }
}

fn failed(path: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> StorageError {
    move |error| StorageError::failed(path.display(), operation, error)
}

/// CRC-32C of a whole file, read on all threads.
fn checksum(file: &File, path: &Path, interrupt: &AtomicBool) -> Result<u32, StorageError> {
    let bytes = file.metadata().map_err(failed(path, "read it"))?.len();
    let of_piece = |buffer: &mut Vec<u8>, piece: u64| {
        if interrupt.load(Ordering::Relaxed) {
            return Err(StorageError::interrupted(path.display()));
        }
        let from = piece * PIECE as u64;
        let buffer = &mut buffer[..PIECE.min((bytes - from) as usize)];
        let read = file.read_exact_at(buffer, from);
        read.map_err(failed(path, "read it"))?;
        Ok((crc32c::crc32c(buffer), buffer.len()))
    };
    let pieces = (0..bytes.div_ceil(PIECE as u64)).into_par_iter();
    let sums = in_parallel(|| {
        pieces
            .map_init(|| vec![0; PIECE], of_piece)
            .collect::<Result<Vec<_>, StorageError>>()
    })??;
    let joined = |sum, (next, bytes)| crc32c::crc32c_combine(sum, next, bytes);
    Ok(sums.into_iter().fold(0, joined))
}

/// The files of cache folders that this process uses, each with a shared lock.
static IN_USE: Mutex<Option<HashMap<PathBuf, File>>> = Mutex::new(None);

/// Keeps a file of a cache folder from being removed while this process runs. `None` if it is gone, or is not a file.
pub fn hold(path: &Path) -> Option<File> {
    regular_file(path).ok()?;
    let file = File::open(path).ok()?;
    // Without locks on this file system, files are not removed either.
    let _ = flock(&file, FlockOperation::NonBlockingLockShared);
    let is_there = file.metadata().ok()?.nlink() > 0;
    let kept = file.try_clone().ok().filter(|_| is_there)?;
    let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    in_use
        .get_or_insert_default()
        .insert(path.to_path_buf(), file);
    Some(kept)
}

fn release(path: &Path) {
    let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    in_use.get_or_insert_default().remove(path);
}

/// Removes parts that no process writes any more, and the least recently used files above the limit.
pub fn tidy_cache_folder(folder: &Path) {
    let given = std::env::var(CACHE_LIMIT).ok();
    let given = given.and_then(|text| text.trim().parse::<f64>().ok());
    evict(folder, given.map(|gigabytes| (gigabytes * 1e9) as u64));
}

fn evict(folder: &Path, limit: Option<u64>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut files = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        let Some(status) = entry.metadata().ok().filter(fs::Metadata::is_file) else {
            continue;
        };
        let path = entry.path();
        if !is_temporary_name(&entry.file_name()) {
            files.push((
                status.atime().max(status.mtime()),
                status.blocks() * 512,
                path,
            ));
        } else {
            remove_if_abandoned(&path);
        }
    }
    let mut used: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    let limit = limit.unwrap_or_else(|| usual_limit(folder, used));
    files.sort_unstable();
    for (_, bytes, path) in files {
        if used <= limit {
            break;
        }
        if remove_if_abandoned(&path) {
            tracing::info!(path = %path.display(), "removed from the cache, which is at its limit");
            used -= bytes;
        }
    }
}

/// Half of what would be free without the `used` bytes of a folder.
fn usual_limit(folder: &Path, used: u64) -> u64 {
    rustix::fs::statvfs(folder).map_or(u64::MAX, |disk| {
        (disk.f_bavail.saturating_mul(disk.f_frsize)).saturating_add(used) / 2
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn variables(set: &[(&str, &str)]) -> PathBuf {
        folder_of(|name| {
            let found = set.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| PathBuf::from(value))
        })
    }

    #[test]
    fn the_cache_folder_follows_the_environment() {
        let home = ("HOME", "/h");
        assert_eq!(variables(&[home]), Path::new("/h/.cache/pelton"));
        let xdg = |path| variables(&[home, ("XDG_CACHE_HOME", path)]);
        assert_eq!(xdg("/x"), Path::new("/x/pelton"));
        assert_eq!(xdg("x"), Path::new("/h/.cache/pelton"));
        let named = |path| variables(&[home, ("PELTON_CACHE", path)]);
        assert_eq!(named("p"), Path::new("p"));
        assert_eq!(named(""), Path::new("/h/.cache/pelton"));
        assert_eq!(variables(&[]), own_folder());
    }

    static NEVER: AtomicBool = AtomicBool::new(false);

    fn copy<'a>(folder: &'a Path, stem: &'a str) -> CachedCopy<'a> {
        CachedCopy {
            folder,
            stem,
            suffix: ".text",
            interrupt: &NEVER,
        }
    }

    fn written(copy: CachedCopy<'_>, bytes: &[u8]) -> PathBuf {
        let mut file = copy.create().expect("a new file");
        file.write_all(bytes).expect("written");
        copy.publish(file).expect("published")
    }

    /// A changed copy can have the size and times of the original; copies used to be accepted by name alone.
    #[test]
    fn changed_copies_are_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("cache");
        let copy = copy(&folder, "a.gz-1234");
        assert_eq!(copy.find().expect("no folder is no error"), None);
        let bytes: Vec<u8> = (0..2 * PIECE + 5).map(|i| (i % 251) as u8).collect();
        let path = written(copy, &bytes);
        assert_eq!(copy.find().expect("readable"), Some(path.clone()));
        let times = fs::metadata(&path)
            .expect("there")
            .modified()
            .expect("a time");
        for at in [0, PIECE, bytes.len() - 1] {
            let file = File::options().write(true).open(&path).expect("open");
            file.write_all_at(&[bytes[at] ^ 1], at as u64)
                .expect("changed");
            file.set_modified(times).expect("the time is set back");
            assert_eq!(copy.find().expect("readable"), None, "byte {at}");
            assert!(!path.exists());
            assert_eq!(written(copy, &bytes), path);
        }
        File::options()
            .write(true)
            .open(&path)
            .expect("open")
            .set_len(9)
            .expect("cut");
        assert_eq!(copy.find().expect("readable"), None);
    }

    #[test]
    fn folders_that_others_can_write_to_are_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let given = folder.path().join("cache");
        assert_eq!(cache_folder(Some(&given)), (given.clone(), None));
        make_cache_folder(&given).expect("made");
        assert_eq!(fs::metadata(&given).expect("there").mode() & 0o777, 0o700);
        assert_eq!(cache_folder(Some(&given)), (given.clone(), None));
        for mode in [0o770, 0o702, 0o777] {
            fs::set_permissions(&given, fs::Permissions::from_mode(mode)).expect("set");
            let (used, note) = cache_folder(Some(&given));
            assert_eq!(used, own_folder());
            assert!(note.is_some_and(|note| note.contains("others can write to it")));
            let error = make_cache_folder(&given).expect_err("it is open");
            assert!(error.to_string().contains("PELTON_CACHE"), "{error}");
        }
    }

    #[test]
    fn the_oldest_go_and_so_do_parts_of_killed_processes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let old = |name: &str, seconds: u64| {
            fs::write(path(name), vec![1; 100_000]).expect("written");
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            let times = fs::FileTimes::new().set_accessed(time).set_modified(time);
            File::options()
                .write(true)
                .open(path(name))
                .expect("open")
                .set_times(times)
                .expect("set");
        };
        old("oldest", 1000);
        old("used", 2000);
        old("old", 3000);
        old(".pelton-a1B2c3", 4000);
        let _used = hold(&path("used")).expect("there");
        let writing = WholeFile::create(path("writing")).expect("a new file");
        evict(folder.path(), Some(250_000));
        let left = ["oldest", "used", "old", ".pelton-a1B2c3"].map(|name| path(name).exists());
        assert_eq!(left, [false, true, true, false]);
        assert!(writing.temporary().exists());
        evict(folder.path(), Some(1));
        assert!(path("used").exists() && !path("old").exists());
    }
}
