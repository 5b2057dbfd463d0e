//! Files that appear only when complete: written under a temporary name in the same folder, synced, then renamed.
//!
//! A reader, even after a crash, finds the old file or the new one and nothing in between. Writing in place was
//! rejected for that reason; so was an unnamed file that is linked when it is complete, because not every filesystem
//! can link over an existing name.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pelton_key::Digest;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tempfile::{NamedTempFile, TempPath};

/// Starts the temporary names.
const TEMPORARY_PREFIX: &str = ".pelton-";
/// Letters and digits after it.
const RANDOM: usize = 6;

/// Whether a file name is that of an unpublished [`WholeFile`], which a killed process leaves behind.
pub fn is_temporary_name(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    let Some(rest) = bytes.strip_prefix(TEMPORARY_PREFIX.as_bytes()) else {
        return false;
    };
    let rest = match rest.split_at_checked(DIGITS) {
        Some((digits, [b'-', rest @ ..])) if digits.iter().all(u8::is_ascii_hexdigit) => rest,
        _ => rest,
    };
    rest.len() == RANDOM && rest.iter().all(u8::is_ascii_alphanumeric)
}

/// Digits of a number that distinguishes the temporary files of one path.
const DIGITS: usize = 8;

/// Begins the temporary names of [`WholeFile::create_alone`].
fn prefix_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let digest = Digest::new("temporary file").bytes(name).value();
    format!("{TEMPORARY_PREFIX}{:08x}-", digest as u32)
}

/// A named temporary file in `folder`, locked while it is open, so that another process sees that it is in use.
pub(crate) fn temporary_in(
    folder: &Path,
    builder: &tempfile::Builder<'_, '_>,
) -> io::Result<NamedTempFile> {
    loop {
        let named = builder.tempfile_in(folder).map_err(without_path)?;
        // A file system without locks has none to respect. Another process may find it before it is locked, and removes
        // it.
        let locked = flock(named.as_file(), FlockOperation::NonBlockingLockExclusive);
        if locked != Err(Errno::WOULDBLOCK) && named.as_file().metadata()?.nlink() > 0 {
            return Ok(named);
        }
    }
}

/// Removes a file that no process has a lock on; not on file systems without locks. It is locked meanwhile, so that one
/// that another process has just made is either not removed, or gone when that locks it.
pub(crate) fn remove_if_abandoned(path: &Path) -> bool {
    let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
    let Some(file) = is_file.then(|| File::open(path).ok()).flatten() else {
        return false;
    };
    let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
    locked.is_ok() && std::fs::remove_file(path).is_ok()
}

/// A file being written, which gets its name when it is complete. Dropped before, it is deleted.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    temporary: TempPath,
    path: PathBuf,
    /// Whether an existing file of that name stays.
    keeps_first: bool,
}

impl WholeFile {
    /// Starts a file at `path`. It has the mode of any new file, reduced by the process's umask.
    ///
    /// Errors: among others, `path` is or links to a device, pipe or socket. Renaming a file over `/dev/null` would
    /// harm every process.
    pub fn create(path: impl AsRef<Path>) -> io::Result<WholeFile> {
        WholeFile::start(path.as_ref(), TEMPORARY_PREFIX, 0o666)
    }

    /// The same for a result. It keeps the mode of a file that it replaces, and the files that killed processes left
    /// of the same path are removed: those being written are locked.
    pub(crate) fn create_alone(path: &Path) -> io::Result<WholeFile> {
        let prefix = prefix_of(path);
        remove_abandoned(folder_of(path), &prefix);
        let mode = std::fs::metadata(path).map_or(0o666, |found| found.permissions().mode());
        WholeFile::start(path, &prefix, mode)
    }

    fn start(path: &Path, prefix: &str, mode: u32) -> io::Result<WholeFile> {
        let path = path.to_path_buf();
        if std::fs::metadata(&path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            let text = "a device, pipe or socket has this name";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let mut builder = tempfile::Builder::new();
        builder
            .prefix(prefix)
            .rand_bytes(RANDOM)
            .permissions(Permissions::from_mode(mode & 0o777));
        let (file, temporary) = temporary_in(folder_of(&path), &builder)?.into_parts();
        Ok(WholeFile {
            file,
            temporary,
            path,
            keeps_first: false,
        })
    }

    /// The same for a file that other processes may be making too, all with the same content: the first one stays,
    /// since another process may already read it.
    pub fn create_shared(path: impl AsRef<Path>) -> io::Result<WholeFile> {
        Ok(WholeFile {
            keeps_first: true,
            ..WholeFile::create(path)?
        })
    }

    /// The name that it gets.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The temporary name, for writers that need a path.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Gives it another name than it was created for, in the same folder.
    pub(crate) fn rename(&mut self, path: &Path) {
        self.path = path.to_path_buf();
    }

    /// Flushes the bytes written so far to the device.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Gives the file its name, replacing an existing file, unless it was created as shared.
    pub fn publish(self) -> io::Result<()> {
        self.file.sync_all()?;
        if self.keeps_first {
            match self.temporary.persist_noclobber(&self.path) {
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
                named => named.map_err(|error| error.error)?,
            }
        } else {
            let named = self.temporary.persist(&self.path);
            named.map_err(|error| error.error)?;
        }
        match File::open(folder_of(&self.path))?.sync_all() {
            // The file system cannot sync folders: the file is whole, and its name is as safe as it gets there.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(()),
            synced => synced,
        }
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for WholeFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Removes temporary files with this prefix that no process has locked.
fn remove_abandoned(folder: &Path, prefix: &str) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_one = name.as_encoded_bytes().starts_with(prefix.as_bytes())
            && is_temporary_name(&name)
            && entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_one {
            remove_if_abandoned(&entry.path());
        }
    }
}

/// The folder of a file.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// The same error without the temporary name, which would not help the user.
pub(crate) fn without_path(error: io::Error) -> io::Error {
    error.kind().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("the folder");
        let name = |entry: io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
        entries
            .map(|entry| name(entry).into_string().expect("a plain name"))
            .collect()
    }

    /// When several ranks generated the same data at once, each rename would change the file under those that had
    /// begun to read.
    #[test]
    fn of_files_made_by_several_the_first_stays() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("file");
        let mut files: Vec<WholeFile> = (0..3)
            .map(|_| WholeFile::create_shared(&path).expect("a new file"))
            .collect();
        for (i, file) in files.iter_mut().enumerate() {
            write!(file, "{i}").expect("written");
        }
        for file in files.into_iter().rev() {
            file.publish().expect("named");
            assert_eq!(std::fs::read_to_string(&path).expect("a file"), "2");
        }
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("file");
        for content in ["first", "second"] {
            let mut file = WholeFile::create(&path).expect("a new file");
            file.write_all(b"______").expect("written");
            assert!(
                names(folder.path())
                    .iter()
                    .any(|name| is_temporary_name(name.as_ref()))
            );
            drop(file);
            let mut file = WholeFile::create(&path).expect("a new file");
            file.write_all(content.as_bytes()).expect("written");
            let other = if content == "first" {
                None
            } else {
                Some("first")
            };
            assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), other);
            file.publish().expect("published");
            assert_eq!(std::fs::read_to_string(&path).expect("there"), content);
            assert_eq!(names(folder.path()), ["file"], "nothing else is left");
        }
    }

    #[test]
    fn a_device_keeps_its_name() {
        use std::os::unix::fs::FileTypeExt;
        let folder = tempfile::tempdir().expect("temporary folder");
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0)
            .expect("a pipe");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&pipe, &link).expect("a link");
        for path in [&pipe, &link] {
            let error = WholeFile::create(path).expect_err("no place for a file");
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        }
        let kept = std::fs::metadata(&link).expect("still there");
        assert!(kept.file_type().is_fifo());
    }

    #[test]
    fn a_file_that_is_refused_says_why_and_no_more() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let absent = folder.path().join("absent/file");
        let error = WholeFile::create(&absent).expect_err("there is no folder");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(!error.to_string().contains("absent"), "{error}");
        std::fs::create_dir(folder.path().join("taken")).expect("a folder");
        let file = WholeFile::create(folder.path().join("taken")).expect("a new file");
        let error = file.publish().expect_err("a folder has the name");
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        assert_eq!(names(folder.path()), ["taken"], "nothing else is left");
    }
}
