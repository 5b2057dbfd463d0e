//! Opens regular files only, and raises the limit of open files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::{StorageError, StorageErrorKind};

/// Lets this process have `files` open at once, as far as the system allows: it gives a process a low limit, often
/// 1024, which the process itself may raise up to another. If that is too low, opening a file beyond it says so.
pub fn allow_open_files(files: u64) {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let (Some(now), most) = (limit.current, limit.maximum.unwrap_or(u64::MAX)) else {
            return;
        };
        if now < files && now < most {
            let raised = Rlimit {
                current: Some(files.min(most)),
                ..limit
            };
            let done = setrlimit(Resource::Nofile, raised);
            tracing::debug!(now, files, most, ?done, "limit of open files");
        }
    }
    #[cfg(not(unix))]
    let _ = files;
}

/// Opens a regular file for reading. Anything else is an error; it does not wait for the writer of a pipe.
pub fn open_file(path: impl AsRef<Path>) -> io::Result<File> {
    open_with(File::options().read(true), path)
}

/// The same with other options.
pub fn open_with(options: &OpenOptions, path: impl AsRef<Path>) -> io::Result<File> {
    let refused = |kind, found| io::Error::new(kind, format!("it is {found}, not a regular file"));
    const PIPE: &str = "a device, pipe or socket";
    let mut options = options.clone();
    options.custom_flags(OFlags::NONBLOCK.bits() as i32);
    let file = options.open(path).map_err(|error| {
        // A pipe opened for writing without a reader, or a socket.
        match Errno::from_io_error(&error) {
            Some(Errno::NXIO) => refused(io::ErrorKind::InvalidInput, PIPE),
            _ => error,
        }
    })?;
    let status = file.metadata()?;
    if status.is_dir() {
        return Err(refused(io::ErrorKind::IsADirectory, "a folder"));
    }
    if !status.is_file() {
        return Err(refused(io::ErrorKind::InvalidInput, PIPE));
    }
    // io_uring fails if a read of such a file would wait for the device.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// The content of a regular file.
pub fn read_file(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The same as text.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::new();
    open_file(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Status of a regular file; anything else is refused by name.
pub fn regular_file(path: &Path) -> Result<fs::Metadata, StorageError> {
    let failed = |e| StorageError::failed(path.display(), "open it", e);
    let status = fs::metadata(path).map_err(failed)?;
    if status.is_file() {
        return Ok(status);
    }
    let found = if status.is_dir() {
        "a folder"
    } else {
        "a device, pipe or socket"
    };
    let what = format!("is {found}; name a regular file");
    Err(StorageError::new(
        StorageErrorKind::Unusable,
        path.display(),
        what,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (pipe, file) = (folder.path().join("pipe"), folder.path().join("file"));
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0)
            .expect("a pipe");
        fs::write(&file, "text").expect("written");
        for path in [&pipe, Path::new("/dev/null"), folder.path()] {
            for options in [File::options().read(true), File::options().append(true)] {
                let error = open_with(options, path).expect_err("refused").to_string();
                let is_right = error.contains("not a regular file") || error.contains("directory");
                assert!(is_right, "{}: {error}", path.display());
            }
        }
        assert_eq!(read_text(&file).expect("read"), "text");
        let flags = fcntl_getfl(open_file(&file).expect("opened")).expect("flags");
        assert!(!flags.contains(OFlags::NONBLOCK));
    }
}
