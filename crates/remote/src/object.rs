//! One file on a server, as a storage.
//!
//! `merge.rs` turns a batch into few requests; all are in flight at once, up to the limit for all files. If an answer
//! breaks off, its request resumes from there. Each names the state of the file (If-Match), and the answer is checked
//! as well, since not every server honours that: bytes of two states are never mixed.

use std::fmt::{self, Debug};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore};
use pelton_key::Digest;
use pelton_storage::{Granularity, RangeRead, Storage, StorageError};
use tokio::time::timeout;

use crate::address::wrong;
use crate::attempts::{Limits, again, jitter};
use crate::failure::Failure;
use crate::merge::{Merging, Request};
use crate::options::{RemoteOptions, SLOWEST};
use crate::runtime::wait_for;

/// A file on a server, in the state in which it was opened.
pub struct RemoteObject {
    store: Arc<dyn ObjectStore>,
    path: Path,
    /// Its name in messages.
    url: String,
    meta: ObjectMeta,
    tag: u64,
    limits: Arc<Limits>,
}

impl Debug for RemoteObject {
    /// Without the store, which has keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteObject").field(&self.url).finish()
    }
}

/// Most bytes of a file: no file system has larger ones, and offsets are computed without overflow.
const LARGEST: u64 = i64::MAX as u64;

/// Longest time to open a file: a wrong name is more likely than a server that is down.
const OPENING: Duration = Duration::from_secs(15);

impl RemoteObject {
    /// Opens a file and fetches its first bytes, at most `head_bytes`.
    pub(crate) fn open(
        store: Arc<dyn ObjectStore>,
        path: Path,
        url: String,
        limits: Arc<Limits>,
        head_bytes: u64,
    ) -> Result<(RemoteObject, Vec<u8>), StorageError> {
        let meta = ObjectMeta {
            location: path.clone(),
            last_modified: SystemTime::UNIX_EPOCH.into(),
            size: 0,
            e_tag: None,
            version: None,
        };
        let mut object = RemoteObject {
            store,
            path,
            url,
            meta,
            tag: 0,
            limits,
        };
        let wanted = 0..head_bytes;
        let deadline = OPENING.min(object.limits.options.deadline);
        let first = object.again(Some(wanted.clone()), deadline, async || {
            object.first_bytes(wanted.clone()).await
        });
        let (meta, head) = wait_for(&object.url, &object.limits.interrupt, first)?;
        if meta.size > LARGEST {
            let what = format!("the server says that it has {} bytes", meta.size);
            return Err(wrong(&object.url, what, "check the server"));
        }
        object.tag = tag_of(&meta);
        object.meta = meta;
        Ok((object, head))
    }

    /// The first bytes, and the server's description of the file.
    async fn first_bytes(&self, range: Range<u64>) -> Result<(ObjectMeta, Vec<u8>), Failure> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            ..GetOptions::default()
        };
        let opened = self.get(options).await;
        // An empty file has no range.
        if opened
            .as_ref()
            .is_err_and(|failure| failure.status == Some(416))
        {
            let head = GetOptions {
                head: true,
                ..GetOptions::default()
            };
            return Ok((self.get(head).await?.meta, Vec::new()));
        }
        let opened = opened?;
        let (meta, range) = (opened.meta.clone(), opened.range.clone());
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        self.each_chunk(opened, |chunk| bytes.extend_from_slice(chunk))
            .await?;
        if bytes.len() as u64 == range.end - range.start {
            Ok((meta, bytes))
        } else {
            Err(too_few(bytes.len() as u64))
        }
    }

    /// Bytes of the file when it was opened.
    pub fn bytes(&self) -> u64 {
        self.meta.size
    }

    /// A number that changes with the content: from the ETag, or the time of last change if there is none. For a
    /// server with neither, a new one at each opening, so that cached bytes are never used for a newer file.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Repeats an attempt as often as that may help.
    async fn again<T>(
        &self,
        bytes: Option<Range<u64>>,
        deadline: Duration,
        attempt: impl AsyncFnMut() -> Result<T, Failure>,
    ) -> Result<T, StorageError> {
        again(&self.limits, &self.url, bytes, deadline, attempt).await
    }

    /// One request; its answer must begin within the allowed silence.
    async fn get(&self, options: GetOptions) -> Result<GetResult, Failure> {
        let asked = async {
            let outcome = self.store.get_opts(&self.path, options).await;
            outcome.map_err(|error| Failure::from_error(&error))
        };
        match timeout(self.limits.options.stall, asked).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.silent()),
        }
    }

    /// Passes the bytes of an answer on as they arrive.
    async fn each_chunk(
        &self,
        answer: GetResult,
        mut put: impl FnMut(&[u8]),
    ) -> Result<(), Failure> {
        let mut chunks = answer.into_stream();
        loop {
            match timeout(self.limits.options.stall, chunks.next()).await {
                Ok(Some(Ok(chunk))) => put(&chunk),
                Ok(Some(Err(error))) => {
                    return Err(Failure::from_error(&error));
                }
                Ok(None) => return Ok(()),
                Err(_) => return Err(self.silent()),
            }
        }
    }

    fn silent(&self) -> Failure {
        let seconds = self.limits.options.stall.as_secs_f64();
        Failure::passing(format!("the server sent nothing for {seconds} s"))
    }

    /// Fetches the bytes of a request, in as many answers as needed.
    async fn fetch(&self, mut request: Request<'_>) -> Result<(), StorageError> {
        let mut at = request.start;
        let wanted = request.start..request.end;
        // A slow answer is not aborted.
        let deadline = self.limits.options.deadline
            + Duration::from_secs((wanted.end - wanted.start) / SLOWEST);
        self.again(Some(wanted), deadline, async || {
            self.go_on(&mut request, &mut at).await
        })
        .await
    }

    /// One attempt to fetch the rest of a request, which begins at `at`.
    async fn go_on(&self, request: &mut Request<'_>, at: &mut u64) -> Result<(), Failure> {
        let begin = *at;
        let options = GetOptions {
            range: Some(GetRange::Bounded(begin..request.end)),
            // A weak ETag never matches.
            if_match: self.meta.e_tag.clone().filter(|tag| !tag.starts_with("W/")),
            ..GetOptions::default()
        };
        let answer = self.get(options).await?;
        self.check(&answer.meta)?;
        let end = request.end;
        self.each_chunk(answer, |chunk| {
            let chunk = &chunk[..chunk.len().min((end - *at) as usize)];
            request.put(*at, chunk);
            *at += chunk.len() as u64;
        })
        .await?;
        if *at == end {
            Ok(())
        } else {
            Err(too_few(*at - begin))
        }
    }

    /// Whether an answer belongs to the opened file.
    fn check(&self, now: &ObjectMeta) -> Result<(), Failure> {
        let then = &self.meta;
        let what = if now.size != then.size {
            format!("its size: {} bytes became {}", then.size, now.size)
        } else if now.e_tag != then.e_tag {
            let shown = |tag: &Option<String>| tag.clone().unwrap_or_else(|| "none".into());
            format!(
                "its ETag or time of last change: {} became {}",
                shown(&then.e_tag),
                shown(&now.e_tag)
            )
        } else {
            return Ok(());
        };
        Err(Failure::changed(what))
    }
}

fn tag_of(meta: &ObjectMeta) -> u64 {
    let digest = Digest::new("remote object");
    let digest = match &meta.e_tag {
        Some(tag) => digest.bytes(tag.as_bytes()).word(meta.size),
        None => digest.words([jitter(), u64::from(std::process::id())]),
    };
    digest.value().max(1)
}

fn too_few(came: u64) -> Failure {
    Failure::passing(format!("the answer ended after {came} bytes"))
}

impl Storage for RemoteObject {
    fn name(&self) -> String {
        self.url.clone()
    }

    fn size(&self) -> Result<u64, StorageError> {
        // With a range, as when it was opened: not every server sends the size for the whole file.
        let first = async || Ok(self.first_bytes(0..1).await?.0.size);
        let deadline = self.limits.options.deadline;
        let asked = self.again(None, deadline, first);
        wait_for(&self.url, &self.limits.interrupt, asked)
    }

    fn granularity(&self) -> Granularity {
        Granularity::BYTE
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        let RemoteOptions {
            request_bytes,
            gap_bytes,
            ..
        } = self.limits.options;
        let merging = Merging {
            most: request_bytes,
            gap: gap_bytes,
        };
        let requests = merging.requests(reads, self.meta.size);
        if requests.is_empty() {
            return Ok(());
        }
        let all = stream::iter(requests.into_iter().map(Ok))
            .try_for_each_concurrent(None, |request| self.fetch(request));
        wait_for(&self.url, &self.limits.interrupt, all)
    }
}
