//! The folder of a run: `run.toml` (the configuration; readable only by its owner if an address in it has a password or
//! a query), `metrics.jsonl` (a line an epoch), `checkpoint/`, the model, `summary.json` and `report.html` at the end.
//!
//! A folder belongs to one run and one process at a time: before each write the lock must still be the one taken at
//! opening, or else the folder was replaced. Important files are written under a temporary name, synced and renamed, so
//! a process killed at any moment leaves whole files; metrics are appended line by line, and a resumed run removes the
//! lines after its checkpoint, so no epoch is listed twice. Rejected: a database, since any program reads text.

use std::borrow::Cow;
use std::fs::{File, Permissions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pelton_storage::{is_temporary_name, open_with, refuse_address, without_secrets};
use serde::Serialize;

use crate::atomically::write_atomically;
use crate::checkpoint::{Tensor, write_checkpoint};
use crate::entry::Entry;
use crate::error::RunError;
use crate::manifest::{CONFIG, Entries, Manifest, Set, named_config, run_of};
use crate::settings::Settings;

const METRICS: &str = "metrics.jsonl";
const CHECKPOINTS: &str = "checkpoint";
const SUMMARY: &str = "summary.json";
const LOCK: &str = ".lock";
/// Name prefix of TensorBoard's files.
const EVENTS: &str = "events.out.tfevents.";

/// Whether a file of a run folder belongs to no set: figures, and files that describe the run.
pub fn is_loose(name: &str) -> bool {
    [CONFIG, METRICS, SUMMARY, "search.json", "report.html"].contains(&name)
        || name.starts_with(EVENTS)
}

/// The folder of a run, locked by this process until dropped.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// Names the run in its manifests.
    run: String,
    settings: Settings,
    /// Absent if nothing is written, or another rank writes.
    files: Option<Files>,
    note: Option<String>,
}

#[derive(Debug)]
struct Files {
    metrics: File,
    /// Locked while open; the system releases it when the process dies.
    lock: File,
    /// The configuration of a run to resume, written once it has resumed.
    config: Option<String>,
}

impl RunFolder {
    /// Creates or opens the folder at `path` and writes the configuration to its `run.toml`; for a resumed run only
    /// with the first [`keep_metrics`](RunFolder::keep_metrics), so that a refused run changes nothing.
    ///
    /// A folder with a run is refused unless `resume` continues it or `overwrite` removes it (`resume` wins); with
    /// `resume` a folder without a run begins one. A folder with other files is always refused, and so is a run that
    /// has gone further than its checkpoint. `overwrite` removes only this program's files.
    pub fn open(
        path: &Path,
        config: &impl Serialize,
        resume: bool,
        overwrite: bool,
    ) -> Result<RunFolder, RunError> {
        let unusable = |source| RunError::Unusable {
            path: path.to_path_buf(),
            source,
        };
        refuse_address(path).map_err(RunError::Remote)?;
        let text = toml::to_string(config).map_err(|source| RunError::Config {
            path: path.join(CONFIG),
            source,
        })?;
        std::fs::create_dir_all(path).map_err(unusable)?;
        let holds_run = [CONFIG, Set::Checkpoint.file()];
        let holds_run = holds_run.iter().any(|name| path.join(name).exists());
        if !holds_run && let Some(found) = foreign_file(path).map_err(unusable)? {
            let path = path.to_path_buf();
            return Err(RunError::Foreign { path, found });
        }
        let (lock, note) = lock(path)?;
        if holds_run && !resume {
            if !overwrite {
                return Err(RunError::Exists {
                    path: path.to_path_buf(),
                    finished: path.join(SUMMARY).exists(),
                });
            }
            clear(path)?;
        }
        let sets = listed(path)?;
        let is_resumed = holds_run && resume;
        if is_resumed && !sets.iter().any(Manifest::is_checkpoint) && has_gone_further(path, &sets)
        {
            return Err(RunError::Differs {
                path: path.join(Set::Checkpoint.file()),
                problem: "is missing, so the run cannot be resumed".to_string(),
            });
        }
        let checkpoints = path.join(CHECKPOINTS);
        std::fs::create_dir_all(&checkpoints).map_err(unusable)?;
        for folder in [path, &checkpoints] {
            remove_unfinished(folder).map_err(unusable)?;
        }
        let drawn = || format!("{:016x}", RandomState::new().hash_one(std::process::id()));
        let run = sets.first().map(|set| set.run.clone());
        let run = run.or_else(|| run_of(path)).unwrap_or_else(drawn);
        let mut config = Some(named_config(&run, &text));
        if !is_resumed {
            // First, since without a configuration files do not belong to a run.
            write_config(path, config.take())?;
        }
        let metrics = path.join(METRICS);
        let metrics =
            open_metrics(&metrics).map_err(|source| RunError::io(&metrics, "open", source))?;
        Ok(RunFolder {
            path: path.to_path_buf(),
            run,
            settings: Settings::new(),
            files: Some(Files {
                metrics,
                lock,
                config,
            }),
            note,
        })
    }

    /// Writes the changes that opening for a resume deferred.
    fn settle(&mut self) -> Result<(), RunError> {
        self.file(CONFIG)?;
        let config = self.files.as_mut().and_then(|files| files.config.take());
        write_config(&self.path, config)
    }

    /// With the settings, from [`decisive`](crate::decisive), that its files depend on.
    #[must_use]
    pub fn with_settings(self, settings: Settings) -> RunFolder {
        RunFolder { settings, ..self }
    }

    /// A folder that discards all writes: for ranks that leave writing to another, and jobs that return their result to
    /// the caller.
    pub fn unwritten(path: &Path) -> RunFolder {
        RunFolder {
            path: path.to_path_buf(),
            run: String::new(),
            settings: Settings::new(),
            files: None,
            note: None,
        }
    }

    /// Whether this process writes the folder.
    pub fn is_written(&self) -> bool {
        self.files.is_some()
    }

    /// A note for the user about this folder.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file to write.
    ///
    /// Errors: a folder that was replaced after it was opened.
    pub fn file(&self, name: &str) -> Result<PathBuf, RunError> {
        let file = |found: std::fs::Metadata| (found.dev(), found.ino());
        if let Some(files) = &self.files {
            let own = files.lock.metadata().map(file).ok();
            let found = std::fs::metadata(self.path.join(LOCK)).map(file).ok();
            if own.is_none() || own != found {
                return Err(RunError::Lost {
                    path: self.path.clone(),
                });
            }
        }
        Ok(self.path.join(name))
    }

    /// Writes a file of arrays as [`write_checkpoint`](crate::write_checkpoint) does, and returns its entry.
    ///
    /// Errors: as of [`RunFolder::file`], also if the folder is replaced while this writes; a failed write.
    pub fn write_checkpoint(
        &self,
        name: &str,
        text: &str,
        tensors: Vec<Tensor<'_>>,
    ) -> Result<Entry, RunError> {
        let written = write_checkpoint(&self.file(name)?, text, tensors);
        written.map_err(|error| self.file(name).err().unwrap_or(error))
    }

    /// Begins to replace a set of files; returns its number, which the names of files in `checkpoint` and of rows must
    /// contain, and the files of the previous set. Other files of a model keep their names, so this removes its
    /// manifest: there is no model until all are written.
    pub fn begin(&self, set: Set) -> Result<(u64, Entries), RunError> {
        if self.files.is_none() {
            return Ok((0, Entries::new()));
        }
        let manifest = self.file(set.file())?;
        let before = Manifest::read(&self.path, set)?;
        if set == Set::Model && before.is_some() {
            let removed = std::fs::remove_file(&manifest);
            removed.map_err(|source| RunError::io(&manifest, "remove", source))?;
        }
        let number = before.as_ref().map_or(0, |before| before.number) + 1;
        Ok((
            number,
            before.map_or_else(Entries::new, |before| before.files),
        ))
    }

    /// Ends that: writes the manifest of `files`, and removes leftover files of other sets of this kind.
    pub fn commit(&self, set: Set, number: u64, files: Entries) -> Result<(), RunError> {
        if self.files.is_none() {
            return Ok(());
        }
        self.file(set.file())?;
        let of = (self.run.clone(), number);
        let manifest = Manifest::new(&self.path, set, of, self.settings.clone(), files);
        manifest.write()?;
        remove_unlisted(&self.path, &listed(&self.path)?);
        Ok(())
    }

    /// The entry of a small file of the folder.
    pub fn entry(&self, name: &str) -> Result<(String, Entry), RunError> {
        let path = self.path.join(name);
        let entry = Entry::read(&path).map_err(|source| RunError::io(&path, "read", source))?;
        Ok((name.to_string(), entry))
    }

    /// Appends one line to `metrics.jsonl`.
    pub fn append_metrics(&mut self, record: &impl Serialize) -> Result<(), RunError> {
        self.settle()?;
        let file = self.file(METRICS)?;
        let Some(files) = &mut self.files else {
            return Ok(());
        };
        let wrong = |source| RunError::io(&file, "write", source);
        let mut line = serde_json::to_vec(record).map_err(|error| wrong(error.into()))?;
        line.push(b'\n');
        // One write a line, so at most the last line is torn.
        files.metrics.write_all(&line).map_err(wrong)
    }

    /// Keeps the first `lines` lines of `metrics.jsonl`: those before a checkpoint, which fits the configuration.
    pub fn keep_metrics(&mut self, lines: usize) -> Result<(), RunError> {
        self.settle()?;
        let file = self.file(METRICS)?;
        let Some(files) = &mut self.files else {
            return Ok(());
        };
        keep_lines(&mut files.metrics, lines).map_err(|source| RunError::io(&file, "cut", source))
    }

    /// Writes a file of the folder as JSON.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), RunError> {
        let path = self.file(name)?;
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| RunError::io(&path, "write", error.into()))?;
        let text = without_secrets(&text).into_owned() + "\n";
        write_atomically(&path, |temporary| std::fs::write(temporary, text))
    }

    /// Writes a text file of the folder.
    pub fn write_text(&self, name: &str, text: &str) -> Result<(), RunError> {
        write_atomically(&self.file(name)?, |temporary| {
            std::fs::write(temporary, &*without_secrets(text))
        })
    }

    /// Writes `summary.json`, which marks the run as finished: the last file of a run.
    pub fn write_summary(&self, summary: &impl Serialize) -> Result<(), RunError> {
        self.write_json(SUMMARY, summary)
    }
}

/// Writes the configuration, if given, and removes files that no set lists.
fn write_config(path: &Path, config: Option<String>) -> Result<(), RunError> {
    let Some(text) = config else { return Ok(()) };
    remove_unlisted(path, &listed(path)?);
    let has_secrets = matches!(without_secrets(&text), Cow::Owned(_));
    write_atomically(&path.join(CONFIG), |temporary| {
        if has_secrets {
            std::fs::set_permissions(temporary, Permissions::from_mode(0o600))?;
        }
        std::fs::write(temporary, &text)
    })
}

/// A file of the folder that no run would have left there before its `run.toml`.
fn foreign_file(path: &Path) -> io::Result<Option<String>> {
    for entry in std::fs::read_dir(path)? {
        let name = entry?.file_name();
        let is_empty = || {
            path.join(CHECKPOINTS)
                .read_dir()
                .is_ok_and(|mut of| of.next().is_none())
        };
        let is_own = name == LOCK || is_temporary_name(&name) || name == CHECKPOINTS && is_empty();
        if !is_own {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

/// Removes partial files of killed processes; this process must hold the folder's lock.
fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if is_temporary_name(&entry.file_name()) && entry.file_type()?.is_file() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The lock of a folder, and a note if its file system lacks locks (NFS, Lustre): the run continues without.
fn lock(path: &Path) -> Result<(File, Option<String>), RunError> {
    use rustix::io::Errno;
    const WITHOUT: [Errno; 3] = [Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP];
    let unusable = |source| RunError::Unusable {
        path: path.join(LOCK),
        source,
    };
    let file = open_with(
        File::options().create(true).truncate(false).write(true),
        path.join(LOCK),
    )
    .map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => Ok((file, None)),
        Err(TryLockError::WouldBlock) => Err(RunError::InUse {
            path: path.to_path_buf(),
        }),
        Err(TryLockError::Error(source))
            if Errno::from_io_error(&source).is_some_and(|error| WITHOUT.contains(&error)) =>
        {
            let note = format!(
                "{}: its file system cannot lock files ({source}); start no second run in this folder",
                path.display()
            );
            Ok((file, Some(note)))
        }
        Err(TryLockError::Error(source)) => Err(unusable(source)),
    }
}

/// The manifests of a folder.
///
/// Errors: a damaged manifest; manifests of several runs.
fn listed(path: &Path) -> Result<Vec<Manifest>, RunError> {
    let mut sets = Vec::new();
    for set in [Set::Model, Set::Checkpoint] {
        sets.extend(Manifest::read(path, set)?);
    }
    match &sets[..] {
        [model, checkpoint] if model.run != checkpoint.run => Err(RunError::Differs {
            path: path.join(Set::Checkpoint.file()),
            problem: format!("is of another run than {}", Set::Model.file()),
        }),
        _ => Ok(sets),
    }
}

/// Whether a run without a checkpoint has a model, or the second of its states or one after it.
fn has_gone_further(path: &Path, sets: &[Manifest]) -> bool {
    let files = path
        .join(CHECKPOINTS)
        .read_dir()
        .into_iter()
        .flatten()
        .flatten();
    let mut numbers = files.filter_map(|entry| {
        let name = entry.file_name();
        let name = name.to_str().filter(|name| is_numbered(name))?;
        let number = name.split(['-', '.']).nth(1)?;
        number.parse::<u64>().ok()
    });
    !sets.is_empty() || numbers.any(|number| number > 1)
}

/// Removes files of rows and states that no set lists: those of replaced or incomplete sets. Ignores failures.
fn remove_unlisted(path: &Path, sets: &[Manifest]) {
    for part in ["", CHECKPOINTS] {
        let entries = path.join(part).read_dir().into_iter().flatten().flatten();
        for name in entries.map(|entry| entry.file_name()) {
            let name = name.to_string_lossy();
            let listed = Path::new(part).join(&*name).display().to_string();
            if is_numbered(&name) && !sets.iter().any(|set| set.files().contains_key(&listed)) {
                drop(std::fs::remove_file(path.join(listed)));
            }
        }
    }
}

/// Whether a file of rows or of a state has this name: `STEM-NUMBER.safetensors` or `STEM-NUMBER-RANK-of-RANKS.rows`.
fn is_numbered(name: &str) -> bool {
    let Some((name, end)) = name.rsplit_once('.') else {
        return false;
    };
    let name = name.replace("-of-", "-");
    let mut parts = name.split('-');
    let stem = parts.next().unwrap_or_default();
    let numbers: Result<Vec<u64>, _> = parts.map(str::parse).collect();
    matches!(
        (stem, numbers.map_or(0, |numbers| numbers.len()), end),
        ("state" | "best", 1, "safetensors") | ("state" | "best" | "model", 3, "rows")
    )
}

/// Removes the files of a run, its configuration last: a folder cleared halfway is still a run's.
fn clear(path: &Path) -> Result<(), RunError> {
    let remove = |name: &str| {
        let path = path.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(RunError::io(&path, "remove", error))
            }
            _ => Ok(()),
        }
    };
    for set in Set::ALL {
        // A damaged manifest lists no files.
        let manifest = Manifest::read(path, set).ok().flatten();
        for name in manifest.iter().flat_map(|manifest| manifest.files().keys()) {
            remove(name)?;
        }
        remove(set.file())?;
    }
    remove_unlisted(path, &[]);
    let entries = std::fs::read_dir(path)
        .and_then(|entries| entries.collect::<io::Result<Vec<_>>>())
        .map_err(|source| RunError::io(path, "list", source))?;
    for entry in entries {
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(EVENTS.as_bytes()) {
            remove(&name.to_string_lossy())?;
        }
    }
    let of_runs = [
        SUMMARY,
        "search.json",
        "report.html",
        "model.txt",
        "model.safetensors",
        "index.safetensors",
        "classes.json",
        "vocabulary.txt",
        METRICS,
        CONFIG,
    ];
    of_runs.into_iter().try_for_each(remove)
}

fn open_metrics(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true);
    let mut file = open_with(&options, path)?;
    keep_lines(&mut file, usize::MAX)?;
    Ok(file)
}

/// Truncates a file after `lines` whole lines and seeks to its end; also removes a torn last line.
fn keep_lines(file: &mut File, lines: usize) -> io::Result<()> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    let kept: usize = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .take(lines)
        .filter(|line| line.ends_with(b"\n"))
        .map(<[u8]>::len)
        .sum();
    file.set_len(kept as u64)?;
    file.seek(SeekFrom::Start(kept as u64))?;
    Ok(())
}

#[cfg(test)]
mod tests;
