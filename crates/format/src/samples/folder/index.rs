//! The saved listing of a folder of images: names, sizes, times and classes, so that opening it again needs no listing.
//!
//! It is valid while no folder in it has changed: creating, deleting or renaming a file changes the time of its folder,
//! so checking each folder is enough. A change inside a file does not change its folder; reading the file detects it
//! ([`FileSet`] checks size and time) and removes the saved listing, so that the next run lists again. Checking every
//! file instead would cost nine tenths of a listing.
//!
//! Layout, all numbers 64-bit little-endian: first bytes with the version, key, counts, sizes and times of the files,
//! times of the folders, classes, ends of the strings, the strings (folders, classes, remarks, names of the files),
//! and the CRC32C of all that in four bytes. Unless the checksum, every field and the key fit, it is ignored.
//!
//! Cost: 24 bytes and its name a file; 0.2 s for a million files in a thousand folders.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pelton_storage::{FileSet, WholeFile, changed_ns, regular_file};

use crate::locate::checksum::without_checksum;
use crate::locate::fingerprint::sample_file;
use crate::locate::places::compressed::{cache_dir, cache_name, make_folder_of};
use crate::locate::places::stamp::Stamp;
use crate::record::error::FormatError;
use crate::record::labels::MOST_LABELS;
use crate::record::labels::codes::Codes;
use crate::record::mixing::mix;
use crate::record::options::OpenOptions;
use crate::samples::folder::listing::{Listing, Remarks};

/// First bytes; the last one is the version.
pub(crate) const MAGIC: &[u8; 8] = b"pltnfld\x04";
/// Words before the lists: key and counts.
const KEY_WORDS: usize = 6;
const COUNTS: usize = 9;
const HEAD_BYTES: usize = 8 * (1 + KEY_WORDS + COUNTS);
/// Folders must be unchanged for this long before their listing is saved: creating a file in the same tick of the clock
/// as the listing of its folder does not change the folder's time. Some filesystems tick every two seconds.
const SETTLED: Duration = Duration::from_secs(2);

/// The source of the classes: the folders themselves, or a table in a certain state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FolderKey([u64; KEY_WORDS]);

impl FolderKey {
    pub(crate) fn from_options(options: &OpenOptions) -> Result<FolderKey, FormatError> {
        let Some(table) = &options.label_file else {
            return Ok(FolderKey::plain());
        };
        let stamp = Stamp::from_metadata(&regular_file(table)?);
        let sample =
            sample_file(table, stamp.size).map_err(|e| FormatError::io(table, "read it", e))?;
        let columns = format!("{:?} {:?}", options.file_column, options.label);
        let columns = columns
            .bytes()
            .fold(1, |hash, byte| mix(hash, u64::from(byte)));
        let modified = stamp.modified_ns();
        Ok(FolderKey([
            stamp.size,
            modified as u64,
            (modified >> 64) as u64,
            stamp.touched_ns as u64,
            sample,
            columns,
        ]))
    }

    /// For a folder with subfolders as classes.
    pub(crate) fn plain() -> FolderKey {
        FolderKey([0; KEY_WORDS])
    }
}

/// The bytes of a saved listing.
pub(crate) fn encode(key: &FolderKey, listing: &Listing) -> Vec<u8> {
    let Listing {
        set,
        codes,
        names,
        folders,
        remarks,
        ..
    } = listing;
    let (code_width, code_words) = codes.to_words();
    let mut bytes = MAGIC.to_vec();
    let mut put = |word: u64| bytes.extend_from_slice(&word.to_le_bytes());
    key.0.into_iter().for_each(&mut put);
    [
        set.len() as u64,
        folders.len() as u64,
        names.len() as u64,
        remarks.empty_folders.len() as u64,
        remarks.others,
        remarks.without,
        remarks.unused,
        code_width,
        strings(listing).map(|string| string.len() as u64).sum(),
    ]
    .into_iter()
    .for_each(&mut put);
    (0..set.len()).for_each(|i| put(set.range(i).1));
    (0..set.len()).for_each(|i| put(set.changed_ns(i) as u64));
    folders.iter().for_each(|(_, time)| put(*time as u64));
    code_words.into_iter().for_each(&mut put);
    let mut end = 0;
    for string in strings(listing) {
        end += string.len() as u64;
        put(end);
    }
    strings(listing).for_each(|string| bytes.extend_from_slice(string));
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The strings of a listing in the order in which they are saved.
fn strings(listing: &Listing) -> impl Iterator<Item = &[u8]> {
    let remarks = &listing.remarks;
    let folders = listing.folders.iter().map(|(name, _)| path_bytes(name));
    let empty = remarks.empty_folders.iter().map(|name| path_bytes(name));
    folders
        .chain(listing.names.iter().map(String::as_bytes))
        .chain(empty)
        .chain([path_bytes(&remarks.first_without)])
        .chain((0..listing.set.len()).map(|i| path_bytes(listing.set.file_name(i))))
}

fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// The length that a file with the header `head` must have, and its counts; `None` if that is not the header of a saved
/// listing under this key.
fn expected_bytes(head: &[u8], key: &FolderKey) -> Option<(u64, [u64; COUNTS])> {
    let words = head.get(..HEAD_BYTES)?.strip_prefix(MAGIC)?;
    let words = words.as_chunks::<8>().0.iter();
    let words: Vec<u64> = words.map(|word| u64::from_le_bytes(*word)).collect();
    let (stated, counts) = words.split_at_checked(KEY_WORDS)?;
    let counts: [u64; COUNTS] = counts.try_into().ok()?;
    let [
        files,
        folders,
        classes,
        empty,
        _,
        _,
        _,
        code_width,
        string_bytes,
    ] = counts;
    if stated != key.0 || classes > MOST_LABELS as u64 || files == 0 {
        return None;
    }
    let strings = [folders, classes, empty, files]
        .into_iter()
        .try_fold(1u64, u64::checked_add)?;
    let words = [files, files, folders, Codes::word_count(code_width, files)?]
        .into_iter()
        .try_fold(strings, u64::checked_add)?;
    let bytes = words
        .checked_mul(8)?
        .checked_add(string_bytes)?
        .checked_add(HEAD_BYTES as u64 + 4)?;
    Some((bytes, counts))
}

/// The listing of `root` in these bytes, if they are complete and fit the key.
pub(crate) fn decode(bytes: &[u8], key: &FolderKey, root: &Path) -> Option<Listing> {
    let (expected, counts) = expected_bytes(bytes, key)?;
    let [
        files,
        folders,
        classes,
        empty,
        others,
        without,
        unused,
        code_width,
        _,
    ] = counts;
    if bytes.len() as u64 != expected {
        return None;
    }
    let mut rest = &without_checksum(bytes)?[HEAD_BYTES..];
    let mut take = |words: u64| {
        let (taken, after) = rest.split_at_checked((8 * words) as usize)?;
        rest = after;
        Some(taken.as_chunks::<8>().0)
    };
    let sizes = take(files)?;
    let times = take(files)?;
    let folder_times = take(folders)?;
    let codes = take(Codes::word_count(code_width, files)?)?;
    let ends = take(folders + classes + empty + 1 + files)?;
    let codes: Vec<u64> = codes.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let codes = Codes::from_words(code_width, files, (classes as usize).max(1), &codes)?;
    let mut strings = Strings {
        ends: ends.iter(),
        bytes: rest,
        start: 0,
    };
    let folders = folder_times
        .iter()
        .map(|time| Some((strings.path(true)?, i64::from_le_bytes(*time))))
        .collect::<Option<Vec<_>>>()?;
    let names = (0..classes)
        .map(|_| String::from_utf8(strings.next()?.to_vec()).ok())
        .collect::<Option<Vec<_>>>()?;
    let empty_folders = (0..empty)
        .map(|_| strings.path(false))
        .collect::<Option<Vec<_>>>()?;
    let first_without = strings.path(true)?;
    let mut set = FileSet::empty(root);
    let mut total = 0u64;
    for (size, time) in sizes.iter().zip(times) {
        let size = u64::from_le_bytes(*size);
        total = total.checked_add(size)?;
        let name = strings.next().filter(|name| is_inside(name))?;
        set.push(
            Path::new(OsStr::from_bytes(name)),
            size,
            i64::from_le_bytes(*time),
        );
    }
    set.shrink();
    (strings.start == rest.len()).then_some(Listing {
        set,
        codes,
        names,
        folders,
        may_be_kept: true,
        remarks: Remarks {
            others,
            empty_folders,
            without,
            first_without,
            unused,
        },
    })
}

/// Strings one after another.
struct Strings<'a> {
    ends: std::slice::Iter<'a, [u8; 8]>,
    bytes: &'a [u8],
    start: usize,
}

impl<'a> Strings<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let end = usize::try_from(u64::from_le_bytes(*self.ends.next()?)).ok()?;
        let string = self.bytes.get(self.start..end)?;
        self.start = end;
        Some(string)
    }

    fn path(&mut self, may_be_empty: bool) -> Option<PathBuf> {
        let name = self.next()?;
        let sound = is_inside(name) || name.is_empty() && may_be_empty;
        sound.then(|| PathBuf::from(OsStr::from_bytes(name)))
    }
}

/// Whether a name stays below the folder that it is appended to.
fn is_inside(name: &[u8]) -> bool {
    let part = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
    name.split(|byte| *byte == b'/').all(part) && memchr::memchr(0, name).is_none()
}

/// Paths for saving the listing of a folder: next to it, then in the cache folder.
pub(crate) fn places(root: &Path, options: &OpenOptions) -> Vec<PathBuf> {
    // Without a slash at its end, so that the name is next to the folder, not inside.
    let Ok(root) = fs::canonicalize(root) else {
        return Vec::new();
    };
    let (true, Some(name), Some(parent)) = (options.sidecar, root.file_name(), root.parent())
    else {
        return Vec::new();
    };
    let mut adjacent = name.to_owned();
    adjacent.push(".pelton-index");
    let stamp = Stamp {
        size: 0,
        modified: None,
        touched_ns: 0,
        tag: 0,
    };
    let cached = cache_dir(options).join(cache_name(&root, &stamp, ".pelton-index"));
    let read_only = fs::metadata(parent).is_ok_and(|status| status.permissions().readonly());
    if read_only {
        vec![cached]
    } else {
        vec![parent.join(adjacent), cached]
    }
}

/// The listing saved at `path`; `None` unless it exists and is whole and valid.
pub(crate) fn load(path: &Path, key: &FolderKey, root: &Path) -> Option<Listing> {
    let mut file = pelton_storage::open_file(path).ok()?;
    let status = file.metadata().ok()?;
    let mut bytes = vec![0; HEAD_BYTES];
    file.read_exact(&mut bytes).ok()?;
    // Only a file with the length that its header states is read.
    let (expected, _) = expected_bytes(&bytes, key)?;
    if !status.is_file() || status.len() != expected {
        return None;
    }
    bytes.reserve_exact(expected as usize - HEAD_BYTES);
    let left = expected - HEAD_BYTES as u64;
    file.take(left).read_to_end(&mut bytes).ok()?;
    let listing = decode(&bytes, key, root)?;
    let holds = |(folder, time): &(PathBuf, i64)| {
        let status = fs::metadata(root.join(folder));
        status.is_ok_and(|status| status.is_dir() && changed_ns(&status) == *time)
    };
    listing.folders.iter().all(holds).then_some(listing)
}

/// Saves a listing at the first of `places` that can be written, and returns that path; `None` if there are none, or if
/// a later change might not be noticed: the listing of a folder that changed just now may lack files created just
/// after.
pub(crate) fn store(
    places: &[PathBuf],
    key: &FolderKey,
    listing: &Listing,
    began: SystemTime,
    options: &OpenOptions,
) -> Result<Option<PathBuf>, (PathBuf, io::Error)> {
    let settled = began.checked_sub(SETTLED).map_or(i64::MIN, |time| {
        let since = time
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    });
    let moving = listing.folders.iter().any(|(_, time)| *time >= settled);
    if moving || !listing.may_be_kept {
        tracing::info!(
            moving,
            "listing not kept: changes of it would not be noticed"
        );
        return Ok(None);
    }
    let bytes = encode(key, listing);
    let mut failure = Ok(None);
    for place in places {
        let made = make_folder_of(place, options);
        let written = made.and_then(|()| {
            let mut file = WholeFile::create(place)?;
            file.write_all(&bytes)?;
            file.publish()
        });
        match written {
            Ok(()) => return Ok(Some(place.clone())),
            Err(error) => failure = Err((place.clone(), error)),
        }
    }
    failure
}
