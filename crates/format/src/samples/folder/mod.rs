//! Folders of image files. Each image is a record; its class is its subfolder, or comes from a table
//! ([`crate::record::labels::table`]). If the folders within the folder are called train, val and the like, they are
//! parts of a data set, and the classes are the folders within these.
//!
//! Files are found by the endings of their names ([`EXTENSIONS`]) at any depth and listed class after class, by name
//! within each, so ids do not depend on the order in which the filesystem lists them. A file is checked against the
//! size and time in this listing when it is opened ([`FileSet`]). The listing is kept in a sidecar
//! ([`crate::samples::folder::index`]).
//!
//! Cost: one listing of all folders and one `stat` of each file, in several threads: 2 to 2.6 µs a file if the
//! filesystem's own entries are in memory. With the sidecar one `stat` of each folder.

pub(crate) mod index;
pub(crate) mod listed;
pub(crate) mod listing;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime};

use pelton_storage::{FileSet, SetFile, Storage, changed_ns, on_threads, path_text, regular_file};

use crate::locate::format::{Format, Opened, Shard, Source};
use crate::locate::places::stamp::Stamp;
use crate::locate::places::{IndexSource, Places};
use crate::locate::sample::SampleShape;
use crate::record::contents::Contents;
use crate::record::error::FormatError;
use crate::record::kind::FormatKind;
use crate::record::labels::LABEL_LIMIT;
use crate::record::labels::codes::Codes;
use crate::record::labels::table::LabelTable;
use crate::record::mixing::mix;
use crate::record::options::OpenOptions;
use crate::samples::folder::index::FolderKey;
use crate::samples::folder::listing::{Listing, Remarks};

/// Endings of the names of images.
pub const EXTENSIONS: [&str; 11] = [
    "jpg", "jpeg", "png", "webp", "bmp", "gif", "pbm", "pgm", "ppm", "tif", "tiff",
];
/// Ending of the names of sidecars, which are among the data.
const INDEX_SUFFIX: &[u8] = b".pelton-index";
/// Deepest nesting of folders; beyond it something is wrong.
const MOST_DEPTH: usize = 64;
/// Files that a thread examines before it takes more.
const FILES_AT_ONCE: usize = 256;
/// Most files to sample for the fingerprint, and the bytes at the start of each.
const SAMPLED_FILES: usize = 64;
const SAMPLED_BYTES: u64 = 4096;

/// One image, before its file was examined.
struct Listed {
    name: PathBuf,
    class: u32,
}

/// Images with their classes, before their files were examined.
struct Walked {
    files: Vec<Listed>,
    names: Vec<String>,
    remarks: Remarks,
}

/// The format's name.
pub(crate) const NAME: &str = "folder";

/// A folder of image files.
pub(crate) struct Folder;

impl Format for Folder {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Folders are opened before formats are tried, so this is a file.
    fn open(&self, _: &Source<'_>, _: &mut Vec<String>) -> Result<Shard, FormatError> {
        let what =
            "is a file among folders; name folders of images, or files that are a record each";
        Err(FormatError::new(what))
    }
}

/// Opens a folder of images.
pub(crate) fn open(
    root: &Path,
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<Opened, FormatError> {
    let began = Instant::now();
    let (listing, index) = listing(root, options, notes)?;
    say(root, options, &listing, notes);
    let mut opened = opened_from(root, listing, index);
    if options.label_file.is_some()
        && let Some(numbers) = numbers(&opened.shard.names)
    {
        opened.shard.labels = numbers.into();
        opened.shard.names.clear();
    }
    Ok(Opened {
        scan_seconds: began.elapsed().as_secs_f64(),
        ..opened
    })
}

/// The names as numbers, if all of them are, spelled as numbers are and not as `007`.
fn numbers(names: &[String]) -> Option<Vec<f64>> {
    let number = |name: &String| {
        let value: f64 = name.parse().ok()?;
        let digits = name.trim_start_matches('-');
        let is_code = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
        (value.abs() < LABEL_LIMIT && !is_code).then_some(value)
    };
    let values: Vec<f64> = names.iter().map(number).collect::<Option<_>>()?;
    let mut distinct: Vec<f64> = values.clone();
    distinct.sort_by(f64::total_cmp);
    // 1 and 1.0 are two classes only by their names.
    let differ = distinct.windows(2).all(|pair| pair[0] < pair[1]);
    differ.then_some(values)
}

/// The files of a listing as a data set.
fn opened_from(root: &Path, listing: Listing, index: IndexSource) -> Opened {
    let Listing {
        set, codes, names, ..
    } = listing;
    let set = Arc::new(set);
    let records = set.len() as u64;
    let bytes = set.bytes();
    let longest = (0..set.len()).map(|i| set.range(i).1).max().unwrap_or(0);
    let storage: Arc<dyn Storage> = Arc::clone(&set) as _;
    let labels = (0..names.len()).map(|class| class as f64).collect();
    Opened {
        path: root.to_path_buf(),
        source: root.to_path_buf(),
        kind: FormatKind::new(NAME, None),
        guessed: false,
        storage,
        remote: None,
        stamp: Stamp {
            size: bytes,
            modified: None,
            touched_ns: 0,
            tag: 0,
        },
        sample: fingerprint(&set),
        shard: Shard {
            places: Places::Files(Arc::clone(&set)),
            records,
            bytes,
            longest,
            names,
            index,
            codes,
            ..Shard::samples(Contents::Image, bytes, labels, SampleShape::Whole)
        },
        scan_seconds: 0.0,
        parts: Some(set),
    }
}

/// The listing from a valid sidecar, otherwise from a walk that writes one.
fn listing(
    root: &Path,
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<(Listing, IndexSource), FormatError> {
    let key = FolderKey::from_options(options)?;
    let places = index::places(root, options);
    for place in &places {
        if let Some(mut listing) = index::load(place, &key, root) {
            tracing::debug!(index = %place.display(), "listing read");
            listing.set = listing.set.kept_at(place.clone());
            return Ok((listing, IndexSource::Sidecar));
        }
        if place.exists() {
            tracing::info!(index = %place.display(), "listing out of date or damaged: made again");
        }
    }
    let now = SystemTime::now();
    let mut listing = walk(root, options)?;
    match index::store(&places, &key, &listing, now, options) {
        Ok(Some(place)) => {
            tracing::info!(index = %place.display(), "listing written");
            listing.set = listing.set.kept_at(place);
        }
        Ok(None) => {}
        Err((place, error)) => notes.push(format!(
            "{}: its listing cannot be kept at {} ({error}), so it is listed again each time",
            root.display(),
            place.display()
        )),
    }
    Ok((listing, IndexSource::Built))
}

/// Lists the folders and examines every image.
fn walk(root: &Path, options: &OpenOptions) -> Result<Listing, FormatError> {
    let mut walk = Walk {
        root,
        options,
        folders: Vec::new(),
        others: 0,
        leads_nowhere: false,
    };
    let Walked {
        files,
        names,
        remarks,
    } = match &options.label_file {
        Some(table) => walk.by_table(table)?,
        None => walk.by_folder()?,
    };
    if files.is_empty() {
        return Err(FormatError::new(format!(
            "is a folder that holds no images (.{}); name a folder of images, or files by a pattern such as {}/*.tar",
            EXTENSIONS.join(", ."),
            root.display()
        )));
    }
    let codes = Codes::new(files.iter().map(|file| file.class).collect());
    Ok(Listing {
        set: FileSet::new(root, look_at(root, files, options)?),
        codes,
        names,
        folders: walk.folders,
        may_be_kept: !walk.leads_nowhere,
        remarks: Remarks {
            others: walk.others,
            ..remarks
        },
    })
}

/// Adds the remarks about a listing to the notes.
fn say(root: &Path, options: &OpenOptions, listing: &Listing, notes: &mut Vec<String>) {
    let remarks = &listing.remarks;
    for folder in &remarks.empty_folders {
        notes.push(format!(
            "{}: holds no images and is not a class",
            root.join(folder).display()
        ));
    }
    match &options.label_file {
        None if !listing.names.is_empty() => notes.extend(doubt(root, listing)),
        None => notes.push(format!(
            "{}: has no folders for classes, so images have no label; a table names their classes with `label_file`",
            root.display()
        )),
        Some(table) if remarks.without > 0 => notes.push(format!(
            "{}: has no row for {} images, among them {}, which are left out",
            table.display(),
            remarks.without,
            root.join(&remarks.first_without).display()
        )),
        _ => {}
    }
    if let Some(table) = &options.label_file
        && remarks.unused > 0
    {
        notes.push(format!(
            "{}: {} rows name no image in {} and are left out",
            table.display(),
            remarks.unused,
            root.display()
        ));
    }
    if remarks.others > 0 {
        notes.push(format!(
            "{}: {} files are not images by name ({}) and are left out",
            root.display(),
            remarks.others,
            EXTENSIONS.join(", ")
        ));
    }
}

/// Remarks on how folders became classes.
fn doubt(root: &Path, listing: &Listing) -> Option<String> {
    let is_whole = |folder: &&Path| {
        let empty = listing.remarks.empty_folders.iter();
        folder.iter().count() == 1 && !empty.into_iter().any(|empty| empty == folder)
    };
    let folders = listing.folders.iter().map(|(folder, _)| folder.as_path());
    let mut folders: Vec<&Path> = folders.filter(is_whole).collect();
    folders.sort_unstable();
    let all_parts = folders.iter().all(|folder| is_part(folder));
    let in_folders = || (0..listing.set.len()).all(|i| listing.set.file_name(i).iter().count() > 2);
    let said = |folders: &[&Path]| {
        let all = folders
            .iter()
            .take(3)
            .map(|folder| folder.display().to_string());
        all.collect::<Vec<_>>().join(", ")
    };
    let (root, names) = (root.display(), said(&folders));
    let first = folders.first()?.display();
    match (all_parts, in_folders()) {
        (true, true) if folders.len() == 1 => None,
        (true, true) => Some(format!(
            "{root}: {names} are read together as one data set; name one of them, such as {root}/{first}, to read it alone"
        )),
        (true, false) => Some(format!(
            "{root}: its classes are the folders {names}, which are called like parts of a data set; name one of them, or give a table of classes with `label_file`"
        )),
        (false, true) => Some(format!(
            "{root}: its classes are the folders {names}{}, though all images lie in folders below them; if those are the classes, name {root}/{first} and the like instead",
            if folders.len() > 3 { " …" } else { "" },
        )),
        (false, false) => None,
    }
}

/// Whether a folder has the name of a part of a data set, which is not a class.
fn is_part(folder: &Path) -> bool {
    const PARTS: [&str; 9] = [
        "train",
        "training",
        "val",
        "valid",
        "validation",
        "dev",
        "eval",
        "test",
        "testing",
    ];
    let name = folder.to_str().unwrap_or_default();
    PARTS.iter().any(|part| name.eq_ignore_ascii_case(part))
}

/// A walk over folders.
struct Walk<'a> {
    root: &'a Path,
    options: &'a OpenOptions,
    /// The folders listed so far, each with its time of last change before the listing.
    folders: Vec<(PathBuf, i64)>,
    others: u64,
    /// Whether a link among them is dangling.
    leads_nowhere: bool,
}

impl Walk<'_> {
    /// Every folder in the root is a class, or a part of a data set that has classes in it.
    fn by_folder(&mut self) -> Result<Walked, FormatError> {
        let (mut loose, mut folders) = (Vec::new(), Vec::new());
        self.list(Path::new(""), &mut loose, &mut folders)?;
        folders.sort_unstable();
        let mut within = Vec::new();
        let mut remarks = Remarks::default();
        for folder in folders {
            let mut images = Vec::new();
            self.list_all(&folder, &mut images)?;
            if images.is_empty() {
                remarks.empty_folders.push(folder)
            } else {
                within.push((folder, images))
            }
        }
        if within.iter().all(|(folder, _)| is_part(folder)) {
            within = self.classes_of_parts(within)?;
        }
        let mut files = Vec::new();
        let mut names = Vec::new();
        for (class, (folder, mut images)) in (0..).zip(within) {
            images.sort_unstable();
            names.push(path_text(&folder));
            files.extend(images.into_iter().map(|name| Listed { name, class }));
        }
        loose.sort_unstable();
        if let (Some(image), false) = (loose.first(), names.is_empty()) {
            return Err(self.without_class(image));
        }
        files.extend(loose.into_iter().map(|name| Listed { name, class: 0 }));
        Ok(Walked {
            files,
            names,
            remarks,
        })
    }

    /// The images of parts of a data set by the folders within the parts; by part if none has folders.
    fn classes_of_parts(
        &self,
        parts: Vec<(PathBuf, Vec<PathBuf>)>,
    ) -> Result<Vec<(PathBuf, Vec<PathBuf>)>, FormatError> {
        let is_direct = |image: &&PathBuf| image.iter().count() == 2;
        let all = || parts.iter().flat_map(|(_, images)| images);
        if all().all(|image| is_direct(&image)) {
            return Ok(parts);
        }
        if let Some(direct) = all().filter(is_direct).min() {
            return Err(self.without_class(direct));
        }
        let mut classes: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
        for image in parts.into_iter().flat_map(|(_, images)| images) {
            let class = image.iter().nth(1).unwrap_or_default().into();
            classes.entry(class).or_default().push(image);
        }
        Ok(classes.into_iter().collect())
    }

    /// An image outside the folders that are classes.
    fn without_class(&self, image: &Path) -> FormatError {
        let what = "is next to the class folders and has no class; move it into one, or give a table with `label_file`";
        FormatError::new(what).in_file(&self.root.join(image))
    }

    /// Reads a table of the images that are records, with their classes.
    fn by_table(&mut self, path: &Path) -> Result<Walked, FormatError> {
        let mut table = LabelTable::read(path, &self.options.file_column, &self.options.label)?;
        let mut images = Vec::new();
        self.list_all(Path::new(""), &mut images)?;
        images.sort_unstable();
        let mut files = Vec::with_capacity(images.len());
        let mut without = Vec::new();
        for name in images {
            match table.class_of(name.as_os_str().as_bytes()) {
                Some(class) => files.push(Listed { name, class }),
                None => without.push(name),
            }
        }
        let first_without = without.first().cloned().unwrap_or_default();
        if files.is_empty() && !without.is_empty() {
            let what = format!(
                "has no row in {}, nor has any other image of the folder; check the table and its `file_column`",
                path.display()
            );
            return Err(FormatError::new(what).in_file(&self.root.join(first_without)));
        }
        let remarks = Remarks {
            without: without.len() as u64,
            first_without,
            unused: table.unused() as u64,
            ..Remarks::default()
        };
        Ok(without_empty_classes(files, table.names, remarks))
    }

    /// Adds the images in and below `folder`.
    fn list_all(&mut self, folder: &Path, images: &mut Vec<PathBuf>) -> Result<(), FormatError> {
        let mut waiting = vec![(folder.to_path_buf(), 0)];
        let mut folders = Vec::new();
        while let Some((folder, depth)) = waiting.pop() {
            if depth > MOST_DEPTH {
                let what = format!(
                    "is more than {MOST_DEPTH} folders deep; look for a link that leads back"
                );
                return Err(FormatError::new(what).in_file(&self.root.join(folder)));
            }
            self.list(&folder, images, &mut folders)?;
            waiting.extend(folders.drain(..).map(|folder| (folder, depth + 1)));
        }
        Ok(())
    }

    /// Adds the images and folders in `folder`; names that start with a dot are skipped.
    fn list(
        &mut self,
        folder: &Path,
        images: &mut Vec<PathBuf>,
        folders: &mut Vec<PathBuf>,
    ) -> Result<(), FormatError> {
        let whole = self.root.join(folder);
        let failed = |e| FormatError::io(&whole, "list the folder", e);
        self.options.check_interrupt()?;
        // Before its entries: a later change shows in the time.
        let time = changed_ns(&fs::metadata(&whole).map_err(failed)?);
        self.folders.push((folder.to_path_buf(), time));
        for entry in fs::read_dir(&whole).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if name.as_bytes().starts_with(b".") {
                continue;
            }
            let mut kind = entry.file_type().map_err(failed)?;
            if kind.is_symlink() {
                // A dangling link to an image counts as a file; reading it reports the error.
                match fs::metadata(entry.path()) {
                    Ok(status) => kind = status.file_type(),
                    Err(_) if !is_image(&name) => {
                        // Its target may be created later, and this folder's time will not show it.
                        self.leads_nowhere = true;
                        continue;
                    }
                    Err(_) => {}
                }
            }
            if kind.is_dir() {
                folders.push(folder.join(name));
            } else if is_image(&name) {
                images.push(folder.join(name));
            } else if !name.as_bytes().ends_with(INDEX_SUFFIX) {
                self.others += 1;
            }
        }
        Ok(())
    }
}

pub(crate) fn is_image(name: &std::ffi::OsStr) -> bool {
    ends_in(name, &EXTENSIONS)
}

/// Whether a name has one of these endings.
fn ends_in(name: &std::ffi::OsStr, endings: &[&str]) -> bool {
    let extension = Path::new(name)
        .extension()
        .and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| {
        endings
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    })
}

/// Drops classes of the table without an image here.
fn without_empty_classes(mut files: Vec<Listed>, names: Vec<String>, remarks: Remarks) -> Walked {
    let mut numbers = vec![None; names.len()];
    for file in &files {
        numbers[file.class as usize] = Some(0);
    }
    let mut kept = Vec::new();
    for (number, name) in numbers.iter_mut().zip(names) {
        if number.is_some() {
            *number = Some(kept.len() as u32);
            kept.push(name);
        }
    }
    for file in &mut files {
        file.class = numbers[file.class as usize].unwrap_or(0);
    }
    Walked {
        files,
        names: kept,
        remarks,
    }
}

/// Size and time of every file, looked up by several threads.
fn look_at(
    root: &Path,
    files: Vec<Listed>,
    options: &OpenOptions,
) -> Result<Vec<SetFile>, FormatError> {
    let threads = match options.scan_threads {
        0 => std::thread::available_parallelism().map_or(2, usize::from),
        threads => threads,
    };
    let chunks: Vec<&[Listed]> = files.chunks(FILES_AT_ONCE).collect();
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, Vec<SetFile>)>, FormatError> {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(chunk) = chunks.get(number) else {
                return Ok(done);
            };
            options.check_interrupt()?;
            let looked = chunk.iter().map(|file| look_at_one(root, &file.name));
            done.push((number, looked.collect::<Result<_, _>>()?));
        }
    };
    let threads = threads.clamp(1, 16).min(chunks.len().max(1));
    let mut parts = Vec::new();
    for outcome in on_threads(threads, work) {
        parts.extend(outcome?);
    }
    parts.sort_unstable_by_key(|(number, _)| *number);
    Ok(parts.into_iter().flat_map(|(_, files)| files).collect())
}

fn look_at_one(root: &Path, name: &Path) -> Result<SetFile, FormatError> {
    let path = root.join(name);
    let status = regular_file(&path)?;
    Ok(SetFile {
        name: name.to_path_buf(),
        size: status.len(),
        changed_ns: changed_ns(&status),
    })
}

/// A hash of names, sizes and the beginnings of some files, independent of the folder's path.
fn fingerprint(set: &FileSet) -> u64 {
    let mut hash = mix(0, set.len() as u64);
    for i in 0..set.len() {
        let name = set.file_name(i).as_os_str().as_bytes();
        let name = u64::from(crc32c::crc32c(name));
        hash = mix(hash, name << 32 | set.range(i).1 & 0xffff_ffff);
    }
    let mut bytes = Vec::new();
    for sampled in 0..SAMPLED_FILES.min(set.len()) {
        let i = sampled * (set.len() - 1) / (SAMPLED_FILES.min(set.len()) - 1).max(1);
        bytes.clear();
        // A file that cannot be read now is reported when it is read as a record.
        if let Ok(file) = pelton_storage::open_file(set.path(i)) {
            let _ = file.take(SAMPLED_BYTES).read_to_end(&mut bytes);
        }
        hash = mix(hash, u64::from(crc32c::crc32c(&bytes)));
    }
    hash
}
