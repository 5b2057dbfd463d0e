//! Folders of shards with an `index.json` that lists them, as MosaicML Streaming and LitData write them: the folder, or
//! its index, stands for its shards in that order.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::record::error::{FormatError, FormatErrorKind};
use crate::record::expected::Expected;
use crate::record::options::OpenOptions;

/// The file that lists shards.
pub(crate) const INDEX: &str = "index.json";
/// Longest index.
const MOST_INDEX_BYTES: u64 = 1 << 30;

/// The contents of an index.
#[derive(Deserialize)]
pub(crate) struct Index {
    /// Of MosaicML Streaming.
    shards: Option<Vec<Shard>>,
    /// Of LitData.
    chunks: Option<Vec<Chunk>>,
    pub(crate) config: Option<Config>,
}

/// The settings of all chunks in LitData's index.
#[derive(Deserialize)]
pub(crate) struct Config {
    pub(crate) compression: Option<String>,
    pub(crate) compression_level: Option<String>,
    pub(crate) data_format: Option<Vec<String>>,
    pub(crate) data_spec: Option<String>,
    pub(crate) encryption: Option<Value>,
    pub(crate) item_loader: Option<String>,
}

#[derive(Deserialize)]
struct Shard {
    raw_data: Named,
    zip_data: Option<Named>,
}

#[derive(Deserialize)]
struct Named {
    basename: String,
    bytes: Option<u64>,
    #[serde(default)]
    hashes: HashMap<String, String>,
}

#[derive(Deserialize)]
struct Chunk {
    filename: String,
}

/// Reads an index.
pub(crate) fn read_index(path: &Path) -> Result<Index, FormatError> {
    let failed = |e| FormatError::io(path, "read it", e);
    let mut text = Vec::new();
    let file = pelton_storage::open_file(path).map_err(failed)?;
    file.take(MOST_INDEX_BYTES)
        .read_to_end(&mut text)
        .map_err(failed)?;
    serde_json::from_slice(&text).map_err(|error| malformed(path, error))
}

/// Whether a folder has files that are named like shards.
fn has_shards(folder: &Path) -> bool {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.any(|name| name.ends_with(".mds") || name.contains(".mds.") || name.starts_with("chunk-"))
}

fn malformed(index: &Path, what: impl Display) -> FormatError {
    let what = format!(
        "it is not an index of shards ({what}); fetch the folder again, or name its shards"
    );
    FormatError::malformed(0, what).in_file(index)
}

/// A file, with its size and checksum if an index states them.
type Stated = (PathBuf, Option<Expected>);

/// The shards that a path stands for, with the sizes and checksums in its index; `None` if it is a data file itself.
pub(crate) fn shards(
    path: &Path,
    options: &OpenOptions,
) -> Result<Option<Vec<Stated>>, FormatError> {
    let folder = match path.file_name() {
        Some(name) if name == INDEX => path.parent().unwrap_or(Path::new("")),
        _ => path,
    };
    let index = folder.join(INDEX);
    let kind = options.format.as_ref().map(|kind| kind.name());
    if !matches!(kind, None | Some("mds" | "litdata")) || !index.is_file() {
        return Ok(None);
    }
    let Index { shards, chunks, .. } = match read_index(&index) {
        // A folder may have another file of this name.
        Err(error)
            if kind.is_none()
                && path != index
                && matches!(error.kind(), FormatErrorKind::Malformed)
                && !has_shards(folder) =>
        {
            return Ok(None);
        }
        read => read?,
    };
    let in_folder = |name: &str| {
        let path = Path::new(name);
        let is_below = path
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        is_below
            .then(|| folder.join(path))
            .ok_or_else(|| malformed(&index, format!("{name:?} does not name a file in it")))
    };
    let found = match (shards, chunks) {
        (Some(shards), _) => {
            let of = |shard: &Shard| {
                let raw = in_folder(&shard.raw_data.basename)?;
                let path = match &shard.zip_data {
                    Some(zip) if !raw.is_file() => in_folder(&zip.basename)?,
                    _ => raw,
                };
                let Named { bytes, hashes, .. } = &shard.raw_data;
                Ok((path, Some(Expected::new(*bytes, hashes))))
            };
            shards
                .iter()
                .map(of)
                .collect::<Result<Vec<_>, FormatError>>()?
        }
        (None, Some(chunks)) => {
            let of = |chunk: &Chunk| Ok((in_folder(&chunk.filename)?, None));
            chunks
                .iter()
                .map(of)
                .collect::<Result<Vec<_>, FormatError>>()?
        }
        (None, None) if kind.is_none() && path != index => return Ok(None),
        (None, None) => return Err(malformed(&index, "it has neither shards nor chunks")),
    };
    if found.is_empty() {
        Err(FormatError::empty().in_file(&index))
    } else {
        Ok(Some(found))
    }
}
