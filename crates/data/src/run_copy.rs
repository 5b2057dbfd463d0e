//! Run folders in object stores.
//!
//! A job writes a folder on this machine, and a thread sends its finished files to the store while the job goes on:
//! first those of a set, then its manifest, then it removes the files of the set before. So the store has a whole
//! checkpoint at any moment, and a process that is killed loses the last seconds at most. A file there names the process
//! that writes; one that finds another name stops. Once all files are sent, the folder on this machine is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use pelton_key::Digest;
use pelton_remote::{RemoteFolder, RemoteOptions, Stores};
use pelton_run::{Entries, Interrupt, Manifest, RunError, RunOptions, Set, is_loose};
use pelton_storage::{StorageError, WholeFile, cache_folder, make_cache_folder, without_secrets};

use crate::error::DataError;

const CONFIG: &str = "run.toml";
const SUMMARY: &str = "summary.json";
/// Names the process that writes the run.
const WRITER: &str = ".writer";
/// How often finished files are looked for.
const LOOK: Duration = Duration::from_millis(500);
/// Pause after sending, for which stores charge.
const PAUSE: Duration = Duration::from_secs(5);
/// Longest manifest or configuration.
const MOST: u64 = 64 << 20;

/// A run whose files go to an object store.
#[derive(Debug)]
pub struct RunCopy {
    options: RunOptions,
    note: Arc<Mutex<Option<String>>>,
    ends: Sender<()>,
    thread: JoinHandle<Result<(), DataError>>,
    /// Held while this process writes.
    _lock: File,
}

impl RunCopy {
    /// Begins or resumes the run at the address `options.out`: fetches its files if it is resumed.
    ///
    /// Errors: those of [`RunFolder::open`](pelton_run::RunFolder::open), of the address; a store that refuses to be
    /// read or written.
    pub fn begin(options: &RunOptions, interrupt: &Interrupt) -> Result<RunCopy, DataError> {
        let (store, local) = (folder(&options.out, interrupt)?, local(&options.out, "")?);
        let lock = lock(&local.with_extension("lock"), &options.out)?;
        let names = names(&store)?;
        let (resume, path) = (options.resume, options.out.clone());
        if !names.contains(CONFIG) {
            if let Some(found) = names.iter().find(|name| *name != WRITER) {
                let found = found.clone();
                return Err(RunError::Foreign { path, found }.into());
            }
        } else if !resume && !options.overwrite {
            let finished = names.contains(SUMMARY);
            return Err(RunError::Exists { path, finished }.into());
        }
        // A run of which nothing could be sent.
        if !resume && !options.overwrite && local.join(CONFIG).exists() {
            let finished = local.join(SUMMARY).exists();
            let path = local;
            return Err(RunError::Exists { path, finished }.into());
        }
        // Never interrupted: a checkpoint that was written is worth sending.
        let store_to = folder(&options.out, &Interrupt::default())?;
        let writer = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
        store_to.put(WRITER, writer.clone().into_bytes())?;
        let mut sent = Sent::new(store_to, local.clone(), writer);
        if resume && names.contains(CONFIG) {
            sent.fetch(&store, &names)?;
        } else {
            if !resume {
                remove_all(&local)?;
            }
            sent.before = names.into_iter().filter(|name| name != WRITER).collect();
            // A folder without a configuration would belong to no run, and files without a manifest to none.
            sent.before.sort_by_key(|name| {
                (
                    name != CONFIG,
                    Set::ALL.iter().any(|set| set.file() == name),
                )
            });
        }
        let note = Arc::<Mutex<Option<String>>>::default();
        let (ends, end) = channel();
        let (noted, interrupt) = (Arc::clone(&note), Arc::clone(interrupt));
        let thread = std::thread::Builder::new().name("run copy".to_string());
        let thread = thread.spawn(move || {
            let mut next = Instant::now();
            loop {
                match end.recv_timeout(LOOK) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return sent.send(true),
                }
                if Instant::now() < next || !sent.has_news() {
                    continue;
                }
                match sent.send(false) {
                    Ok(()) => {}
                    Err(lost @ DataError::Run(_)) => {
                        interrupt.store(true, Ordering::Relaxed);
                        return Err(lost);
                    }
                    // It is tried again, and in the end must succeed.
                    Err(failed) => {
                        let note =
                            format!("{failed}; the run continues, and its files are sent later");
                        *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(note);
                    }
                }
                next = Instant::now() + PAUSE;
            }
        });
        let thread = thread
            .map_err(|error| StorageError::failed(local.display(), "start a thread for", error))?;
        Ok(RunCopy {
            options: RunOptions {
                out: local,
                ..options.clone()
            },
            note,
            ends,
            thread,
            _lock: lock,
        })
    }

    /// The options with the folder on this machine.
    pub fn options(&self) -> RunOptions {
        self.options.clone()
    }

    /// Takes the last failure to send files that is to be noted.
    pub fn note(&self) -> impl Fn() -> Option<String> + use<> {
        let note = Arc::clone(&self.note);
        move || note.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Sends what is left, once the job has ended, and removes the folder on this machine.
    ///
    /// Errors: a store that refuses, and [`RunError::Lost`] if another process has begun to write the run.
    pub fn end(self) -> Result<(), DataError> {
        drop(self.ends);
        let local = self.options.out;
        match self.thread.join() {
            Ok(Ok(())) => remove_all(&local),
            Ok(Err(DataError::Storage(source))) => Err(DataError::NotSent { local, source }),
            Ok(Err(error)) => Err(error),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// What the store has of a run.
struct Sent {
    store: RemoteFolder,
    local: PathBuf,
    writer: String,
    /// Files of another run, to be removed from the last on once this one begins.
    before: Vec<String>,
    manifests: BTreeMap<&'static str, Vec<u8>>,
    files: Entries,
    loose: BTreeMap<String, (SystemTime, u64)>,
}

impl Sent {
    fn new(store: RemoteFolder, local: PathBuf, writer: String) -> Sent {
        Sent {
            store,
            local,
            writer,
            before: Vec::new(),
            manifests: BTreeMap::new(),
            files: Entries::new(),
            loose: BTreeMap::new(),
        }
    }

    /// Fetches the run, unless this machine has a later state of it.
    fn fetch(&mut self, store: &RemoteFolder, names: &BTreeSet<String>) -> Result<(), DataError> {
        let mut is_later = false;
        for set in Set::ALL {
            let Some(bytes) = store.read(set.file(), MOST)? else {
                continue;
            };
            let there = Manifest::parse(&bytes, Path::new(store.name()), set)?;
            // A folder that cannot be read is fetched again.
            let here = Manifest::read(&self.local, set).ok().flatten();
            is_later |= set == Set::Checkpoint && here.is_some_and(|here| here.follows(&there));
            self.files.extend(there.files().clone());
            self.manifests.insert(set.file(), bytes);
        }
        if is_later {
            return Ok(());
        }
        remove_all(&self.local)?;
        for name in names.iter().filter(|name| is_loose(name)) {
            download(store, name, &self.local.join(name))?;
            self.loose
                .insert(name.clone(), state(&self.local.join(name))?);
        }
        for name in self.files.keys() {
            download(store, name, &self.local.join(name))?;
        }
        for (file, bytes) in &self.manifests {
            let path = self.local.join(file);
            let written = fs::write(&path, bytes);
            written.map_err(|error| StorageError::failed(path.display(), "write it", error))?;
        }
        Ok(())
    }

    /// Whether there are manifests that were not sent yet.
    fn has_news(&self) -> bool {
        Set::ALL.into_iter().any(|set| {
            let now = fs::read(self.local.join(set.file())).ok();
            now.as_ref() != self.manifests.get(set.file())
        })
    }

    /// Sends what has changed; in the end also the summary.
    fn send(&mut self, is_last: bool) -> Result<(), DataError> {
        if !self.local.join(CONFIG).exists() {
            return match is_last {
                true => Ok(self.store.remove(WRITER)?),
                false => Ok(()),
            };
        }
        let own = self.store.read(WRITER, MOST)?;
        if own.as_deref() != Some(self.writer.as_bytes()) {
            let path = PathBuf::from(self.store.name());
            return Err(RunError::Lost { path }.into());
        }
        while let Some(name) = self.before.last() {
            self.store.remove(name)?;
            self.before.pop();
        }
        self.send_loose(&|name| name != SUMMARY)?;
        for set in Set::ALL {
            self.send_set(set)?;
        }
        if is_last {
            self.send_loose(&|_| true)?;
            self.store.remove(WRITER)?;
        }
        Ok(())
    }

    fn send_loose(&mut self, wanted: &dyn Fn(&str) -> bool) -> Result<(), DataError> {
        let unlisted = |error| StorageError::failed(self.local.display(), "list it", error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.local).map_err(unlisted)? {
            let name = entry.map_err(unlisted)?.file_name();
            names.extend(
                name.into_string()
                    .ok()
                    .filter(|name| is_loose(name) && wanted(name)),
            );
        }
        // The configuration first: files without one belong to no run.
        names.sort_by_key(|name| name != CONFIG);
        for name in names {
            let path = self.local.join(&name);
            let now = state(&path)?;
            if self.loose.get(&name) == Some(&now) {
                continue;
            }
            match &*name {
                CONFIG => {
                    let text = pelton_storage::read_text(&path);
                    let text = text
                        .map_err(|error| StorageError::failed(path.display(), "read it", error))?;
                    // Others may read what is in the store.
                    self.store
                        .put(&name, without_secrets(&text).as_bytes().to_vec())?;
                }
                _ => self.store.upload(&name, &mut opened(&path)?)?,
            }
            self.loose.insert(name, now);
        }
        Ok(())
    }

    fn send_set(&mut self, set: Set) -> Result<(), DataError> {
        let read = || match pelton_storage::read_file(self.local.join(set.file())) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StorageError::failed(set.file(), "read it", error)),
        };
        let bytes = read()?;
        if self.manifests.get(set.file()) == bytes.as_ref() {
            return Ok(());
        }
        // Files of a model keep their names, so until all are new there is none.
        let keeps_names = set != Set::Checkpoint;
        if (keeps_names || bytes.is_none()) && self.manifests.remove(set.file()).is_some() {
            self.store.remove(set.file())?;
        }
        let Some(bytes) = bytes else { return Ok(()) };
        let listed = Manifest::parse(&bytes, &self.local, set)?;
        for (name, entry) in listed.files() {
            if self.files.get(name) == Some(entry) {
                continue;
            }
            let mut file = match opened(&self.local.join(name)) {
                Ok(file) => file,
                // The job has replaced the set.
                Err(_) if read()?.as_ref() != Some(&bytes) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            self.files.remove(name);
            self.store.upload(name, &mut file)?;
            self.files.insert(name.clone(), entry.clone());
        }
        if read()?.as_ref() != Some(&bytes) {
            if keeps_names {
                // They may be those of the next set.
                listed
                    .files()
                    .keys()
                    .for_each(|name| drop(self.files.remove(name)));
            }
            return Ok(());
        }
        if set == Set::Checkpoint {
            // Metrics that a state has counted are there before it.
            self.send_loose(&|name| name != SUMMARY)?;
        }
        self.store.put(set.file(), bytes.clone())?;
        self.manifests.insert(set.file(), bytes);
        let mut kept = BTreeSet::new();
        for (file, bytes) in &self.manifests {
            let of = Set::ALL
                .into_iter()
                .find(|set| set.file() == *file)
                .unwrap_or(set);
            kept.extend(
                Manifest::parse(bytes, &self.local, of)?
                    .files()
                    .keys()
                    .cloned(),
            );
        }
        let dropped = self.files.keys().filter(|name| !kept.contains(*name));
        for name in dropped.cloned().collect::<Vec<_>>() {
            self.store.remove(&name)?;
            self.files.remove(&name);
        }
        Ok(())
    }
}

/// The configuration of the run at an address, as a file on this machine; `None` if there is no run.
///
/// Errors: a store that refuses.
pub fn config_of(run: &Path, interrupt: &Interrupt) -> Result<Option<PathBuf>, DataError> {
    let path = local(run, "-config.toml")?;
    let found = download(&folder(run, interrupt)?, CONFIG, &path)?;
    Ok(found.then_some(path))
}

/// A copy of the finished model at an address: a run folder, or a file by itself. It is fetched once.
///
/// Errors: no finished model there; a store that refuses.
pub fn fetched_model(run: &Path, interrupt: &Interrupt) -> Result<PathBuf, DataError> {
    let store = folder(run, interrupt)?;
    let Some(bytes) = store.read(Set::Model.file(), MOST)? else {
        let (local, name) = (local(run, "-file")?, store.name().rsplit('/').next());
        let file = local.join(name.unwrap_or_default());
        let is_file = names(&store)?.is_empty() && download(&store, "", &file)?;
        return is_file.then_some(file).ok_or_else(|| no_model(run));
    };
    let version = Digest::new("model in a store").bytes(&bytes).value();
    let local_folder = local(run, &format!("-{version:016x}"))?;
    if local_folder.exists() {
        return Ok(local_folder);
    }
    let unwritable = |error| {
        DataError::from(StorageError::failed(
            local_folder.display(),
            "write it",
            error,
        ))
    };
    let partial = local(run, &format!("-part-{}", std::process::id()))?;
    remove_all(&partial)?;
    let listed = Manifest::parse(&bytes, Path::new(store.name()), Set::Model)?;
    download(&store, CONFIG, &partial.join(CONFIG))?;
    for name in listed.files().keys() {
        if interrupt.load(Ordering::Relaxed) {
            return Err(DataError::Stopped {
                job: "fetching the model",
            });
        }
        download(&store, name, &partial.join(name))?;
    }
    fs::write(partial.join(Set::Model.file()), &bytes).map_err(unwritable)?;
    match fs::rename(&partial, &local_folder) {
        // Another process was faster.
        Err(_) if local_folder.exists() => remove_all(&partial)?,
        renamed => renamed.map_err(unwritable)?,
    }
    Ok(local_folder)
}

fn no_model(run: &Path) -> DataError {
    DataError::Config(format!(
        "{}: contains no finished model; check the address, or finish the run with `resume` first",
        run.display()
    ))
}

fn folder(run: &Path, interrupt: &Interrupt) -> Result<RemoteFolder, DataError> {
    let stores = Stores::new(RemoteOptions::default(), Arc::clone(interrupt));
    Ok(stores.folder(&run.to_string_lossy())?)
}

/// The folder on this machine for the files at an address.
fn local(run: &Path, suffix: &str) -> Result<PathBuf, DataError> {
    let (cache, _) = cache_folder(None);
    let runs = cache.join("runs");
    let made = make_cache_folder(&cache).and_then(|()| fs::create_dir_all(&runs));
    made.map_err(|error| StorageError::failed(runs.display(), "create it", error))?;
    let address = run.to_string_lossy();
    let digest = Digest::new("run in a store").bytes(address.trim_end_matches('/').as_bytes());
    Ok(runs.join(format!("{:016x}{suffix}", digest.value())))
}

fn lock(path: &Path, run: &Path) -> Result<File, DataError> {
    let unusable = |error| StorageError::failed(path.display(), "lock it", error);
    let file = File::create(path).map_err(unusable)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(RunError::InUse {
            path: run.to_path_buf(),
        }
        .into()),
        // File systems without locks: the store names the writer.
        _ => Ok(file),
    }
}

fn names(store: &RemoteFolder) -> Result<BTreeSet<String>, DataError> {
    Ok(store.names()?.into_iter().map(|(name, _)| name).collect())
}

/// Copies a file of a run to `path`; false if absent.
fn download(store: &RemoteFolder, name: &str, path: &Path) -> Result<bool, DataError> {
    let unwritable =
        |error| DataError::from(StorageError::failed(path.display(), "write it", error));
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(unwritable)?;
    let whole = WholeFile::create(path).map_err(unwritable)?;
    let mut out = File::options()
        .write(true)
        .open(whole.temporary())
        .map_err(unwritable)?;
    if !store.download(name, &mut out)? {
        return Ok(false);
    }
    whole.publish().map_err(unwritable)?;
    Ok(true)
}

fn opened(path: &Path) -> Result<File, StorageError> {
    pelton_storage::open_file(path)
        .map_err(|error| StorageError::failed(path.display(), "read it", error))
}

fn state(path: &Path) -> Result<(SystemTime, u64), StorageError> {
    let found = fs::metadata(path).and_then(|found| Ok((found.modified()?, found.len())));
    found.map_err(|error| StorageError::failed(path.display(), "read it", error))
}

fn remove_all(folder: &Path) -> Result<(), DataError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StorageError::failed(folder.display(), "remove it", error).into())
        }
        _ => Ok(()),
    }
}
