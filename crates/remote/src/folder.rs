//! A folder of an object store that is read and written whole files at a time.
//!
//! A file appears with all its bytes or not at all. Large files are sent in parts, several at once. Requests that fail
//! are repeated by the store's client.

use std::fmt::{self, Debug};
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutPayload};
use pelton_storage::StorageError;

use crate::address::wrong;
use crate::answer::LAST;
use crate::attempts::{Limits, error};
use crate::failure::{ACCESS, Failure};
use crate::runtime::wait_for;

/// Bytes of a part of a large file.
const PART: u64 = if cfg!(test) { 1 << 10 } else { 16 << 20 };
/// Most parts that stores accept.
const MOST_PARTS: u64 = 10_000;
/// Parts sent at once.
const AT_ONCE: usize = 4;

/// A folder of an object store.
pub struct RemoteFolder {
    store: Arc<dyn ObjectStore>,
    path: Path,
    shown: String,
    limits: Arc<Limits>,
}

impl Debug for RemoteFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteFolder").field(&self.shown).finish()
    }
}

impl RemoteFolder {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        path: &str,
        shown: String,
        limits: Arc<Limits>,
    ) -> Result<RemoteFolder, StorageError> {
        let path = Path::parse(path).map_err(|error| {
            let what = format!("its path cannot be asked for ({error})");
            wrong(&shown, what, "check the name")
        })?;
        Ok(RemoteFolder {
            store,
            path,
            shown,
            limits,
        })
    }

    /// Its address, without secrets.
    pub fn name(&self) -> &str {
        &self.shown
    }

    /// The path of a file; of the folder, which may be a file itself, for an empty name.
    fn file(&self, name: &str) -> Path {
        if name.is_empty() {
            return self.path.clone();
        }
        let name = format!("{}/{name}", self.path);
        Path::parse(&name).unwrap_or_else(|_| Path::from(name))
    }

    /// Waits for one operation on a file; `None` if the store has no such file.
    fn asked<T>(
        &self,
        name: &str,
        writes: bool,
        operation: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Option<T>, StorageError> {
        let url = match name {
            "" => self.shown.clone(),
            _ => format!("{}/{name}", self.shown),
        };
        let work = LAST.scope(Default::default(), async {
            match operation.await {
                Ok(done) => Ok(Some(done)),
                Err(StoreError::NotFound { .. }) if !writes => Ok(None),
                Err(failed) => {
                    let mut failure = Failure::from_error(&failed);
                    if writes && failure.remedy == ACCESS {
                        failure.remedy = "check the credentials in the environment, and that they may write there";
                    }
                    Err(error(failure, &url, None, 1, Duration::ZERO))
                }
            }
        });
        wait_for(&url, &self.limits.interrupt, work)
    }

    /// The names of all files below, with their lengths.
    ///
    /// Errors: the store refuses.
    pub fn names(&self) -> Result<Vec<(String, u64)>, StorageError> {
        let listed = self.store.list(Some(&self.path)).try_collect::<Vec<_>>();
        let listed = self.asked("", false, listed)?.unwrap_or_default();
        let of = |path: &Path| {
            let parts = path.prefix_match(&self.path)?;
            let parts: Vec<_> = parts.map(|part| part.as_ref().to_owned()).collect();
            Some(parts.join("/")).filter(|name| !name.is_empty())
        };
        let named = listed
            .iter()
            .filter_map(|file| Some((of(&file.location)?, file.size)));
        Ok(named.collect())
    }

    /// The bytes of a small file, at most `most` of them; `None` if absent.
    ///
    /// Errors: the store refuses.
    pub fn read(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, StorageError> {
        let mut bytes = Vec::new();
        let found = self.copy(name, &mut (&mut bytes as &mut dyn Write), most)?;
        Ok(found.then_some(bytes))
    }

    /// Writes the bytes of a file to `out`, or those of the address itself for an empty name; false if absent.
    ///
    /// Errors: the store refuses; a failed write.
    pub fn download(&self, name: &str, out: &mut dyn Write) -> Result<bool, StorageError> {
        self.copy(name, out, u64::MAX)
    }

    fn copy(&self, name: &str, out: &mut dyn Write, most: u64) -> Result<bool, StorageError> {
        let path = self.file(name);
        let mut failed: Option<io::Error> = None;
        let copied = self.asked(name, false, async {
            let mut chunks = self.store.get(&path).await?.into_stream();
            let mut left = most;
            while let Some(chunk) = chunks.next().await {
                let chunk = chunk?;
                let taken = &chunk[..chunk.len().min(left as usize)];
                left -= taken.len() as u64;
                if let Err(error) = out.write_all(taken) {
                    failed = Some(error);
                    break;
                }
            }
            Ok(())
        })?;
        match failed {
            Some(error) => Err(StorageError::failed(
                format!("{}/{name}", self.shown),
                "write its copy",
                error,
            )),
            None => Ok(copied.is_some()),
        }
    }

    /// Puts the bytes of `file` there under a name, or replaces those there.
    ///
    /// Errors: the store refuses; a file that cannot be read.
    pub fn upload(&self, name: &str, file: &mut File) -> Result<(), StorageError> {
        let unreadable = |error| StorageError::failed(name, "read it", error);
        let bytes = file.metadata().map_err(unreadable)?.len();
        let part = PART.max(bytes.div_ceil(MOST_PARTS));
        let mut next = || {
            let mut taken = Vec::new();
            file.take(part).read_to_end(&mut taken).map(|_| taken)
        };
        let first = next().map_err(unreadable)?;
        if bytes <= part {
            return self.put(name, first);
        }
        let (path, mut failed) = (self.file(name), None);
        self.asked(name, true, async {
            let mut upload = self.store.put_multipart(&path).await?;
            let sent = async {
                let (mut pending, mut taken) = (FuturesUnordered::new(), first);
                while !taken.is_empty() {
                    if pending.len() == AT_ONCE {
                        pending.next().await.transpose()?;
                    }
                    pending.push(upload.put_part(taken.into()));
                    taken = match next() {
                        Ok(taken) => taken,
                        Err(error) => {
                            failed = Some(error);
                            break;
                        }
                    };
                }
                pending.try_collect::<()>().await
            };
            let sent = sent.await;
            if sent.is_ok() && failed.is_none() {
                return upload.complete().await.map(drop);
            }
            // Otherwise the store would keep the parts.
            let _ = upload.abort().await;
            sent
        })?;
        failed.map_or(Ok(()), |error| Err(unreadable(error)))
    }

    /// Puts a small file there.
    ///
    /// Errors: the store refuses.
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), StorageError> {
        let (path, payload) = (self.file(name), PutPayload::from(bytes));
        let put = async { self.store.put(&path, payload).await };
        self.asked(name, true, put).map(drop)
    }

    /// Removes a file, if it is there.
    ///
    /// Errors: the store refuses.
    pub fn remove(&self, name: &str) -> Result<(), StorageError> {
        let path = self.file(name);
        let removed = async {
            match self.store.delete(&path).await {
                Err(StoreError::NotFound { .. }) => Ok(()),
                removed => removed,
            }
        };
        self.asked(name, true, removed).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use object_store::memory::InMemory;

    use super::*;
    use crate::{RemoteOptions, Stores};

    #[test]
    fn files_are_written_and_read_whole() {
        let limits = Stores::new(RemoteOptions::default(), Arc::default()).limits();
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let folder = |path: &str| {
            let shown = format!("s3://bucket/{path}");
            RemoteFolder::new(Arc::clone(&store), path, shown, Arc::clone(&limits)).unwrap()
        };
        let run = folder("a/run");
        // No neighbour counts.
        folder("a/run2").put("x", vec![1]).unwrap();
        assert_eq!(run.names().unwrap(), []);
        assert_eq!(run.read("run.toml", 10).unwrap(), None);
        let mut file = tempfile::tempfile().unwrap();
        for bytes in [0, 1, PART, PART + 1, 7 * PART + 3] {
            let content: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
            file.set_len(0).unwrap();
            file.rewind().unwrap();
            file.write_all(&content).unwrap();
            file.rewind().unwrap();
            run.upload("checkpoint/state é", &mut file).unwrap();
            let mut copy = Vec::new();
            assert!(run.download("checkpoint/state é", &mut copy).unwrap());
            assert_eq!(copy, content);
            let listed = [("checkpoint/state é".to_string(), bytes)];
            assert_eq!(run.names().unwrap(), listed);
            let start = run.read("checkpoint/state é", 5).unwrap().unwrap();
            assert_eq!(start, content[..content.len().min(5)]);
        }
        for _ in 0..2 {
            run.remove("checkpoint/state é").unwrap();
            assert_eq!(run.names().unwrap(), []);
        }
    }
}
