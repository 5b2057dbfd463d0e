//! `.gz` and `.zst` text: decompressed once into a cache folder and read from there.
//!
//! Records of a compressed stream cannot be read in random order, so a copy is written; its name contains a hash of
//! path, size and time of the original, so that another original never matches it, and a checksum of the copy. Building
//! an index into the compressed stream was rejected: every random read would decompress many bytes.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use flate2::bufread::GzDecoder;
use pelton_storage::{CachedCopy, StorageError, cache_folder, make_cache_folder};

use crate::locate::places::input::Input;
use crate::locate::places::stamp::Stamp;
use crate::record::error::{FormatError, check_interrupt};
use crate::record::kind::Compression;
use crate::record::mixing::mix;
use crate::record::options::OpenOptions;
use crate::record::remote::without_query;

/// The folder for copies, and for sidecars that cannot be next to their data.
pub(crate) fn cache_dir(options: &OpenOptions) -> PathBuf {
    let given = options.cache_dir.clone();
    given.unwrap_or_else(|| cache_folder(None).0)
}

/// Makes the folder of a file, if that is the cache folder.
pub(crate) fn make_folder_of(file: &Path, options: &OpenOptions) -> io::Result<()> {
    match file.parent() {
        Some(folder) if folder == cache_dir(options) => make_cache_folder(folder),
        _ => Ok(()),
    }
}

/// The members of a gzip file one after another. As in gzip, zeros after a member are ignored: tapes and block
/// devices fill their last block with them.
struct GzipMembers<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let length = member.read(buffer)?;
            if length > 0 || buffer.is_empty() {
                return Ok(length);
            }
            let rest = member.get_mut();
            let is_more = loop {
                let bytes = rest.fill_buf()?;
                let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                let (is_end, is_more) = (bytes.is_empty(), zeros < bytes.len());
                rest.consume(zeros);
                if is_end || is_more {
                    break is_more;
                }
            };
            let rest = self.0.take().map(GzDecoder::into_inner);
            self.0 = rest.filter(|_| is_more).map(GzDecoder::new);
        }
        Ok(0)
    }
}

/// Name in the cache folder for something derived from `path` in the state `stamp`.
pub(crate) fn cache_name(path: &Path, stamp: &Stamp, suffix: &str) -> String {
    hashed_name(path, state_hash(path, stamp), suffix)
}

/// A hash of a file's path and state.
pub(crate) fn state_hash(path: &Path, stamp: &Stamp) -> u64 {
    let path = without_query(path);
    let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let mut state = mix(stamp.size, stamp.modified_ns() as u64);
    if stamp.touched_ns != 0 {
        state = mix(state, stamp.touched_ns as u64);
    }
    if stamp.tag != 0 {
        state = mix(state, stamp.tag);
    }
    let bytes = whole.as_os_str().as_encoded_bytes().iter();
    bytes.fold(state, |hash, byte| mix(hash, u64::from(*byte)))
}

/// The name of `path` and a hash, so that a person can see its origin.
pub(crate) fn hashed_name(path: &Path, hash: u64, suffix: &str) -> String {
    let name = without_query(path).file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    format!("{name}-{hash:016x}{suffix}")
}

/// Compressed bytes are cut off or damaged.
pub(crate) fn not_decompressed(error: &io::Error) -> FormatError {
    FormatError::new(format!(
        "cannot be decompressed ({error}); it is truncated or damaged: fetch or compress it again"
    ))
}

/// The decompressed copy of `path`, written now unless it exists, and whether it was written now; `open` gives the
/// bytes of `path`.
pub(crate) fn decompressed(
    open: impl FnOnce() -> Result<Input, FormatError>,
    path: &Path,
    compression: Compression,
    stamp: &Stamp,
    cache_dir: &Path,
    interrupt: &AtomicBool,
) -> Result<(PathBuf, bool), FormatError> {
    let stem = cache_name(path, stamp, "");
    let copy = CachedCopy {
        folder: cache_dir,
        stem: &stem,
        suffix: ".text",
        interrupt,
    };
    if let Some(found) = copy.find()? {
        return Ok((found, false));
    }
    let broken = |source: io::Error| match source.downcast::<StorageError>() {
        Ok(error) => error.into(),
        Err(error) => not_decompressed(&error).in_file(path),
    };
    let file = BufReader::with_capacity(256 << 10, open()?.into_reader());
    let mut text: Box<dyn Read> = match compression {
        Compression::Gzip => Box::new(GzipMembers(Some(GzDecoder::new(file)))),
        Compression::Zstd => {
            Box::new(zstd::stream::read::Decoder::with_buffer(file).map_err(broken)?)
        }
    };
    let write_error = |e: io::Error| FormatError::io(cache_dir, "write a file in it", e);
    let mut out = copy.create()?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        check_interrupt(interrupt).map_err(|error| error.in_file(path))?;
        let length = match text.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(broken(source)),
        };
        out.write_all(&buffer[..length]).map_err(write_error)?;
    }
    Ok((copy.publish(out)?, true))
}
