//! Files that a user names for results.
//!
//! Writing a result must not destroy anything else: it appears under its name when it is complete, and never replaces
//! an input of the command, a file of a run, or, without `overwrite`, an existing file. Everything is checked before
//! the work begins.

use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::stdio::{stderr, stdout};

use crate::error::{StorageError, StorageErrorKind};
use crate::whole_file::{WholeFile, folder_of};

/// A result being written in sequence: a file, which gets its name when it is complete, or a pipe or device.
#[derive(Debug)]
pub struct Output(Sink);

#[derive(Debug)]
enum Sink {
    Whole(BufWriter<WholeFile>),
    Stream(BufWriter<File>),
}

impl Output {
    /// Starts a result at `path` of a command that reads `inputs`, files or folders. Pipes, devices and open files
    /// under `/dev` are written to directly.
    ///
    /// Errors: those of [`output_file`], except for a pipe or device.
    pub fn open(path: &Path, inputs: &[PathBuf], overwrite: bool) -> Result<Output, StorageError> {
        let found = std::fs::metadata(path).ok();
        let is_stream =
            |found: &&Metadata| is_descriptor(path) || !(found.is_file() || found.is_dir());
        let Some(found) = found.as_ref().filter(is_stream) else {
            let file = output_file(path, inputs, overwrite)?;
            return Ok(Output(Sink::Whole(BufWriter::new(file))));
        };
        for standard in [stdout(), stderr()] {
            let Ok(file) = standard.try_clone_to_owned().map(File::from) else {
                continue;
            };
            if is_descriptor(path) && file.metadata().is_ok_and(|of| same(&of, found)) {
                return Output::stream(file, path, inputs);
            }
        }
        let file = File::options().append(true).open(path);
        let file = file.map_err(|error| StorageError::failed(path.display(), "write it", error))?;
        Output::stream(file, path, inputs)
    }

    /// The same for standard output.
    pub fn standard(inputs: &[PathBuf]) -> Result<Output, StorageError> {
        let path = Path::new("standard output");
        let file = stdout().try_clone_to_owned();
        let file = file.map_err(|error| StorageError::failed(path.display(), "write it", error))?;
        Output::stream(File::from(file), path, inputs)
    }

    fn stream(file: File, path: &Path, inputs: &[PathBuf]) -> Result<Output, StorageError> {
        if let Ok(found) = file.metadata()
            && found.is_file()
        {
            refuse_input(path, &found, inputs)?;
        }
        Ok(Output(Sink::Stream(BufWriter::new(file))))
    }

    /// Completes the result and gives a file its name.
    pub fn publish(self) -> io::Result<()> {
        match self.0 {
            Sink::Whole(file) => file
                .into_inner()
                .map_err(|error| error.into_error())?
                .publish(),
            Sink::Stream(mut file) => file.flush(),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Sink::Whole(file) => file.write(bytes),
            Sink::Stream(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Sink::Whole(file) => file.flush(),
            Sink::Stream(file) => file.flush(),
        }
    }
}

/// Starts a file for a result at `path`, with [`check_output`]. A link is followed. Leftovers of the same result from
/// killed processes are removed.
///
/// Errors: those of [`check_output`]; a file that exists without `overwrite`; a folder, pipe or device.
pub fn output_file(
    path: &Path,
    inputs: &[PathBuf],
    overwrite: bool,
) -> Result<WholeFile, StorageError> {
    check_output(path, inputs)?;
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(unusable(path, "is not a regular file; name another"));
    }
    if !overwrite && std::fs::symlink_metadata(path).is_ok() {
        let what = "exists; give `overwrite` to replace it, or name another file";
        return Err(unusable(path, what));
    }
    let target = std::fs::canonicalize(path);
    WholeFile::create_alone(target.as_deref().unwrap_or(path))
        .map_err(|error| StorageError::failed(path.display(), "create it", error))
}

/// Refuses paths that no result may have: an address, a folder, an input of the command, or a file in the folder of a
/// run.
pub fn check_output(path: &Path, inputs: &[PathBuf]) -> Result<(), StorageError> {
    refuse_address(path)?;
    if path.is_dir() || path.file_name().is_none() {
        return Err(unusable(path, "is a folder; name a file in it"));
    }
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if let Ok(found) = std::fs::metadata(&target) {
        refuse_input(path, &found, inputs)?;
        // A folder of data is read as a whole.
        for folder in target.ancestors().skip(1) {
            if let Ok(found) = std::fs::metadata(folder) {
                refuse_input(path, &found, inputs)?;
            }
        }
    }
    let folder = folder_of(&target);
    let Ok(whole) = std::fs::canonicalize(folder) else {
        let what = "its folder does not exist; make it, or name a file in an existing folder";
        return Err(unusable(path, what));
    };
    let run = match whole.file_name() {
        Some(name) if name == "checkpoint" => folder_of(&whole),
        _ => &whole,
    };
    if run.join("run.toml").exists() {
        let what = "is in the folder of a run, which keeps only its own files; name a file in another folder";
        return Err(unusable(path, what));
    }
    Ok(())
}

/// Refuses an address as the name of a local file or folder.
pub fn refuse_address(path: &Path) -> Result<(), StorageError> {
    let text = path.to_string_lossy();
    let scheme = text.split_once(":/").map_or("", |(scheme, _)| scheme);
    let is_scheme = scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if is_scheme {
        // Only the scheme: an address may hold a password.
        let what = "results are written to local files and folders only; name a path";
        return Err(StorageError::new(
            StorageErrorKind::Unusable,
            format!("{scheme}://"),
            what,
        ));
    }
    Ok(())
}

fn refuse_input(path: &Path, found: &Metadata, inputs: &[PathBuf]) -> Result<(), StorageError> {
    let is_same =
        |input: &&PathBuf| std::fs::metadata(input).is_ok_and(|input| same(&input, found));
    match inputs.iter().find(is_same) {
        Some(input) => Err(unusable(
            path,
            format!(
                "would replace what the command reads ({}); name another file",
                input.display()
            ),
        )),
        None => Ok(()),
    }
}

fn unusable(path: &Path, what: impl Into<std::borrow::Cow<'static, str>>) -> StorageError {
    StorageError::new(StorageErrorKind::Unusable, path.display(), what)
}

fn same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Whether a path names an open file of a process, as `/dev/stdout` and `/dev/fd/3` do.
fn is_descriptor(path: &Path) -> bool {
    const MOST_LINKS: usize = 8;
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        let folder = folder_of(&path).to_path_buf();
        if std::fs::canonicalize(&folder).is_ok_and(|folder| folder.starts_with("/proc")) {
            return true;
        }
        match std::fs::read_link(&path) {
            Ok(target) => path = folder.join(target),
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The files of the folder, with contents.
    fn files(folder: &Path) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap());
        let mut files: Vec<_> = entries
            .filter(|entry| entry.path().is_file())
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, std::fs::read_to_string(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    #[track_caller]
    fn check(path: &Path, inputs: &[PathBuf], overwrite: bool, says: &str) {
        let opened = Output::open(path, inputs, overwrite);
        let error = opened.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn a_result_replaces_nothing_that_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("data"), "rows").unwrap();
        std::fs::hard_link(at("data"), at("hard")).unwrap();
        symlink(at("data"), at("soft")).unwrap();
        std::fs::create_dir(at("pictures")).unwrap();
        std::fs::write(at("pictures/a.png"), "a").unwrap();
        symlink(at("pictures"), at("album")).unwrap();
        for name in ["data", "hard", "soft", "./data"] {
            check(
                &at(name),
                &[at("data")],
                true,
                "would replace what the command reads",
            );
        }
        for name in ["pictures/a.png", "album/a.png"] {
            check(&at(name), &[at("pictures")], true, "would replace");
        }
        assert_eq!(std::fs::read_to_string(at("data")).unwrap(), "rows");
    }

    #[test]
    fn a_result_is_a_new_local_file_in_no_run() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("run/checkpoint")).unwrap();
        for name in ["run/run.toml", "run/checkpoint/state", "old"] {
            std::fs::write(at(name), "").unwrap();
        }
        symlink(at("nothing"), at("dangling")).unwrap();
        for name in ["run/run.toml", "run/model.txt", "run/checkpoint/state"] {
            check(&at(name), &[], true, "is in the folder of a run");
        }
        check(&at("old"), &[], false, "exists; give `overwrite`");
        check(&at("dangling"), &[], false, "exists; give `overwrite`");
        check(&at("run"), &[], true, "is a folder");
        check(&at("absent/file"), &[], true, "its folder does not exist");
        for address in ["s3://bucket/key", "https://u:secret@host/x", "gs:/bucket"] {
            check(
                Path::new(address),
                &[],
                true,
                "local files and folders only",
            );
        }
        let error = refuse_address(Path::new("https://u:secret@host/x")).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(refuse_address(Path::new("a:b/c")).is_ok());
    }

    #[test]
    fn a_result_is_whole_or_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let old = vec![("new".to_string(), "first".to_string())];
        for (content, before) in [("first", vec![]), ("second", old)] {
            let mut abandoned = Output::open(&at("new"), &[], true).unwrap();
            abandoned.write_all(b"part").unwrap();
            drop(abandoned);
            assert_eq!(files(folder.path()), before);
            let mut output = Output::open(&at("new"), &[], true).unwrap();
            output.write_all(content.as_bytes()).unwrap();
            output.publish().unwrap();
            assert_eq!(
                files(folder.path()),
                [("new".to_string(), content.to_string())]
            );
        }
        // A link stays a link, and its target keeps its mode.
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(at("new"), PermissionsExt::from_mode(0o600)).unwrap();
        symlink("new", at("link")).unwrap();
        let mut output = Output::open(&at("link"), &[], true).unwrap();
        output.write_all(b"third").unwrap();
        output.publish().unwrap();
        assert!(at("link").is_symlink());
        assert_eq!(std::fs::read_to_string(at("new")).unwrap(), "third");
        assert_eq!(std::fs::metadata(at("new")).unwrap().mode() & 0o777, 0o600);
    }

    /// Those of killed processes go, those being written stay.
    #[test]
    fn what_a_killed_process_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let left = output_file(&at("new"), &[], false).unwrap();
        let name = left.temporary().to_path_buf();
        let kept = folder.path().join("kept");
        std::fs::hard_link(&name, &kept).unwrap();
        drop(left);
        std::fs::rename(&kept, &name).unwrap();
        let other = output_file(&at("other"), &[], false).unwrap();
        assert!(name.exists());
        let running = output_file(&at("new"), &[], false).unwrap();
        assert!(!name.exists());
        let second = output_file(&at("new"), &[], false).unwrap();
        assert!(running.temporary().exists() && other.temporary().exists());
        for file in [running, second, other] {
            file.publish().unwrap();
        }
        assert_eq!(files(folder.path()).len(), 2);
    }

    #[test]
    fn pipes_are_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read_to_string(pipe).unwrap()
        });
        let mut output = Output::open(&pipe, &[], false).unwrap();
        output.write_all(b"through").unwrap();
        output.publish().unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(output_file(&pipe, &[], true).is_err());
        assert!(is_descriptor(Path::new("/dev/stdout")) && !is_descriptor(&pipe));
    }
}
