//! Names such as `s3://bucket/file`: resolving, opening and caching them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelton_format::{OpenRemote, RemoteFile, is_remote};
use pelton_remote::{DiskCache, RemoteOptions, Stores};
use pelton_run::Interrupt;
use pelton_storage::{Storage, make_cache_folder};

use crate::error::DataError;

/// Bytes for detecting a format.
const HEAD_BYTES: u64 = 64 << 10;

/// Opens files of servers.
pub(crate) struct Remote {
    stores: Arc<Stores>,
    cache: Option<Arc<DiskCache>>,
}

impl Remote {
    /// For `names`, if any is an address; caches up to `cache_bytes` in a folder of `cache_dir`.
    pub(crate) fn for_names(
        names: &[String],
        cache_dir: &Path,
        cache_bytes: Option<u64>,
        interrupt: &Interrupt,
    ) -> Result<Option<Remote>, DataError> {
        if !names.iter().any(|name| is_remote(Path::new(name))) {
            return Ok(None);
        }
        let stores = Stores::new(RemoteOptions::default(), Arc::clone(interrupt));
        let cache = cache_bytes.map(|bytes| {
            // Creating the folder in it reports a failure.
            let _ = make_cache_folder(cache_dir);
            DiskCache::new(cache_dir.join("remote"), bytes)
        });
        Ok(Some(Remote {
            stores: Arc::new(stores),
            cache,
        }))
    }

    /// The files of an address: itself, or the matches of its pattern.
    pub(crate) fn names(&self, address: &str) -> Result<Vec<PathBuf>, DataError> {
        // In a web address `?` starts the query, which is not part of the name.
        let is_web = address
            .get(..4)
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"));
        let wildcards: &[char] = if is_web { &['*'] } else { &['*', '?', '['] };
        if !address.contains(wildcards) || self.stores.is_there(address) {
            return Ok(vec![address.into()]);
        }
        let mut names = self.stores.matching(address)?;
        names.retain(|name| !name.ends_with(".pelton-index"));
        Ok(names.into_iter().map(PathBuf::from).collect())
    }

    /// Whether there is a file with exactly this name.
    pub(crate) fn is_there(&self, address: &str) -> bool {
        self.stores.is_there(address)
    }

    /// The name of a file without secrets; the opener knows them.
    pub(crate) fn named(&self, file: PathBuf) -> PathBuf {
        match file.to_str().filter(|_| is_remote(&file)) {
            Some(address) => self.stores.name(address).into(),
            None => file,
        }
    }

    /// The opener of files.
    pub(crate) fn opener(&self) -> OpenRemote {
        let (stores, cache) = (Arc::clone(&self.stores), self.cache.clone());
        OpenRemote::new(move |name| {
            let (object, head) = stores.open(&name.to_string_lossy(), HEAD_BYTES)?;
            let (size, tag) = (object.bytes(), object.tag());
            let name = object.name();
            let object: Arc<dyn Storage> = Arc::new(object);
            let storage = match &cache {
                Some(cache) => Arc::new(cache.over(object, &name, tag, size)),
                None => object,
            };
            Ok(RemoteFile {
                storage,
                head,
                size,
                tag,
            })
        })
    }

    /// Notes for the user about reading `files` like this.
    pub(crate) fn note(&self, files: &[PathBuf]) -> Option<String> {
        let first = files.iter().find(|file| is_remote(file))?;
        match &self.cache {
            Some(cache) => cache.trouble(),
            None => Some(format!(
                "{}: later epochs download the data again; `remote_cache`, such as `remote_cache` 50GB, keeps it on disk",
                first.display()
            )),
        }
    }
}
