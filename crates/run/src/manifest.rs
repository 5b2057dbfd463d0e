//! Manifests: sets of files that belong together, with the length and digests of each.
//!
//! A finished model, a checkpoint, and an index over class vectors have one each, in the run folder. It is written
//! last, so a process killed at any moment leaves the old set or the new one, and every reader of a set refuses a file
//! that does not belong to it, by name. Digests are HighwayHash-64, as fast as memory, one for each 64 MiB: rows of a
//! head are verified part by part, when they are first read. They detect mixed and damaged files, but do not protect
//! against forged files with a matching manifest.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::atomically::write_atomically;
use crate::checkpoint::unreadable;
use crate::checkpoint_file::CheckpointFile;
use crate::entry::{Entry, PART, digest};
use crate::error::RunError;
use crate::settings::Settings;

/// The configuration of a run, in its folder.
pub(crate) const CONFIG: &str = "run.toml";
/// Prefix of its first line; the run's name follows, as in its manifests.
const RUN: &str = "# Run ";
/// More sets than any run writes.
const MOST_SETS: u64 = 1 << 48;
/// Name prefix of the files of a state.
const STATE: &str = "checkpoint/state-";

/// The configuration of a run with the run's name.
pub(crate) fn named_config(run: &str, config: &str) -> String {
    format!("{RUN}{run}\n{config}")
}

/// The run named by the configuration in a folder; `None` if it names none.
pub(crate) fn run_of(folder: &Path) -> Option<String> {
    let text = pelton_storage::read_text(folder.join(CONFIG)).ok()?;
    let run = text.lines().next()?.strip_prefix(RUN)?;
    Some(run.to_string())
}

/// The kind of a manifest's set of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Set {
    /// A finished model.
    #[default]
    Model,
    /// The state that a run resumes from.
    Checkpoint,
    /// An index over the class vectors of a model, and that model.
    Index,
}

impl Set {
    /// All kinds.
    pub const ALL: [Set; 3] = [Set::Model, Set::Checkpoint, Set::Index];

    /// The file of its manifest, in the run folder.
    pub fn file(self) -> &'static str {
        match self {
            Set::Model => "manifest.json",
            Set::Checkpoint => "checkpoint/manifest.json",
            Set::Index => "index.json",
        }
    }
}

/// The files of a set, by their names in the run folder.
pub type Entries = BTreeMap<String, Entry>;

/// The files of a set, and the run that wrote them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    #[serde(skip)]
    folder: PathBuf,
    #[serde(skip)]
    set: Set,
    /// Random name of the run, drawn at its start.
    pub(crate) run: String,
    /// Counts the sets of this kind that the run wrote.
    pub(crate) number: u64,
    /// The settings that the files were made with, except those that a run may change.
    settings: Settings,
    pub(crate) files: Entries,
}

impl Manifest {
    pub(crate) fn new(
        folder: &Path,
        set: Set,
        (run, number): (String, u64),
        settings: Settings,
        files: Entries,
    ) -> Manifest {
        let folder = folder.to_path_buf();
        Manifest {
            folder,
            set,
            run,
            number,
            settings,
            files,
        }
    }

    /// Reads the manifest of a set in a run folder and verifies its files; `None` if absent. For arrays of a model and
    /// the state of a checkpoint it checks only lengths now; reading verifies the rest.
    ///
    /// Errors: a damaged manifest, or a file that differs.
    pub fn open(folder: &Path, set: Set) -> Result<Option<Manifest>, RunError> {
        let manifest = Manifest::read(folder, set)?;
        if let Some(manifest) = &manifest {
            manifest.verify()?;
        }
        Ok(manifest)
    }

    /// The same without checking its files.
    ///
    /// Errors: a manifest that is damaged, or of a run other than that of `run.toml`.
    pub fn read(folder: &Path, set: Set) -> Result<Option<Manifest>, RunError> {
        let path = folder.join(set.file());
        let manifest = match pelton_storage::read_file(&path) {
            Ok(bytes) => Manifest::parse(&bytes, folder, set)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(&path, &error)),
        };
        match run_of(folder) {
            Some(run) if run != manifest.run => Err(RunError::Differs {
                path,
                problem: format!("is of another run than {CONFIG}"),
            }),
            _ => Ok(Some(manifest)),
        }
    }

    /// The same from its bytes, which another rank may have read.
    pub fn parse(bytes: &[u8], folder: &Path, set: Set) -> Result<Manifest, RunError> {
        let parsed = serde_json::from_slice(bytes).ok().filter(|of: &Manifest| {
            // Only files in the folder may be read and removed.
            let is_inside = |name: &String| {
                let mut parts = Path::new(name).components();
                !name.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
            };
            of.number < MOST_SETS && of.files.keys().all(is_inside)
        });
        let manifest = parsed.ok_or_else(|| RunError::Differs {
            path: folder.join(set.file()),
            problem: "is damaged".to_string(),
        })?;
        Ok(Manifest {
            folder: folder.to_path_buf(),
            set,
            ..manifest
        })
    }

    /// Whether it is of the same run as `other`, and not older.
    pub fn follows(&self, other: &Manifest) -> bool {
        self.run == other.run && self.number >= other.number
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and text")
    }

    /// Replaces the manifest file.
    pub fn write(&self) -> Result<(), RunError> {
        let path = self.folder.join(self.set.file());
        write_atomically(&path, |file| std::fs::write(file, self.to_bytes()))
    }

    /// The same files and one more, as another set.
    pub fn with(&self, set: Set, name: &str, entry: Entry) -> Manifest {
        let mut with = self.clone();
        with.set = set;
        with.files.insert(name.to_string(), entry);
        with
    }

    /// Whether it lists `name` in addition to exactly the files of `other`.
    pub fn is_with(&self, other: &Manifest, name: &str) -> bool {
        let rest = self.files.iter().filter(|(own, _)| *own != name);
        self.run == other.run && self.files.contains_key(name) && rest.eq(&other.files)
    }

    pub(crate) fn is_checkpoint(&self) -> bool {
        self.set == Set::Checkpoint
    }

    /// The files that belong together.
    pub fn files(&self) -> &Entries {
        &self.files
    }

    /// The path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The name of the file with this prefix and suffix, if any.
    pub fn named(&self, begins: &str, ends: &str) -> Option<&str> {
        let mut names = self.files.keys().map(String::as_str);
        names.find(|name| name.starts_with(begins) && name.ends_with(ends))
    }

    /// The bytes of a file.
    ///
    /// Errors: a file that is not listed, missing, or not the one listed.
    pub fn contents(&self, name: &str) -> Result<Vec<u8>, RunError> {
        let mut bytes = Vec::new();
        let (mut file, entry) = self.opened(name)?;
        let read = file.read_to_end(&mut bytes);
        read.map_err(|error| unreadable(&self.path(name), &error))?;
        let parts = bytes.chunks(PART as usize).map(digest);
        if bytes.len() as u64 == entry.bytes && parts.eq(entry.parts.iter().cloned()) {
            Ok(bytes)
        } else {
            Err(self.differs(name, "differs from the file that was written"))
        }
    }

    /// A file of arrays, verified as it is read.
    pub fn arrays(&self, name: &str) -> Result<CheckpointFile, RunError> {
        let (file, entry) = self.opened(name)?;
        CheckpointFile::new(file, &self.path(name), entry.clone())
    }

    fn verify(&self) -> Result<(), RunError> {
        for name in self.files.keys() {
            let (_, entry) = self.opened(name)?;
            let is_read_later = match self.set {
                Set::Checkpoint => name.starts_with(STATE),
                Set::Model | Set::Index => {
                    name.ends_with(".rows") || name.ends_with(".safetensors")
                }
            };
            let is_same = is_read_later || {
                let read = Entry::read(&self.path(name));
                read.map_err(|error| unreadable(&self.path(name), &error))? == *entry
            };
            if !is_same {
                return Err(self.differs(name, "differs from the file that was written"));
            }
        }
        Ok(())
    }

    /// Opens a file and checks its listed length.
    fn opened(&self, name: &str) -> Result<(std::fs::File, &Entry), RunError> {
        let path = self.path(name);
        let Some(entry) = self.files.get(name) else {
            return Err(self.differs(name, "is not listed there"));
        };
        // Opening a pipe would wait for its writer.
        let file = match std::fs::metadata(&path) {
            Ok(found) if !found.is_file() => return Err(self.differs(name, "is not a file")),
            Ok(found) if found.len() != entry.bytes => {
                let problem = format!("has {} bytes and not {}", found.len(), entry.bytes);
                return Err(self.differs(name, &problem));
            }
            Ok(_) => pelton_storage::open_file(&path),
            Err(error) => Err(error),
        };
        match file {
            Ok(file) => Ok((file, entry)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(self.differs(name, "is missing"))
            }
            Err(error) => Err(unreadable(&path, &error)),
        }
    }

    fn differs(&self, name: &str, problem: &str) -> RunError {
        RunError::Differs {
            path: self.path(name),
            problem: format!("{problem}, by {}", self.set.file()),
        }
    }

    /// A setting that the files were made with.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Compares these settings with those that the files were made with.
    ///
    /// Errors: the first setting that differs.
    pub fn check_settings(&self, now: &Settings) -> Result<(), RunError> {
        let mut names = self.settings.keys().chain(now.keys());
        let Some(name) = names.find(|name| self.settings.get(*name) != now.get(*name)) else {
            return Ok(());
        };
        let value = |of: &Settings| of.get(name).map_or("none", |value| value).to_string();
        Err(RunError::OtherSetting {
            path: self.folder.join(CONFIG),
            name: name.clone(),
            then: value(&self.settings),
            now: value(now),
        })
    }
}
