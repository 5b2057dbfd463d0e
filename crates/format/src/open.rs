//! Opening one file: its format, where its records lie, and what they hold together.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::delimited::LabelColumn;
use crate::error::FormatError;
use crate::folder;
use crate::format::{Format, Opened, Source};
use crate::formats::{detect, named};
use crate::kind::{FormatKind, Head};
use crate::options::OpenOptions;
use crate::origin::Origin;
use crate::remote::is_remote;

/// Files that lie elsewhere and are opened at once: each waits for its server a few times.
const AT_ONCE: usize = 8;

/// Opens files; what the user may want to know is added to `notes`, in the order of the files.
pub(crate) fn open_files(
    paths: &[PathBuf],
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<Vec<Opened>, FormatError> {
    let is_elsewhere = options.remote.is_some() && paths.iter().any(|path| is_remote(path));
    if !is_elsewhere || paths.len() == 1 {
        let opened = paths.iter().map(|path| open_file(path, options, notes));
        return opened.collect();
    }
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut opened = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = paths.get(number) else { break };
            let mut notes = Vec::new();
            let outcome = open_file(path, options, &mut notes);
            stop.fetch_or(outcome.is_err(), Ordering::Relaxed);
            opened.push((number, outcome.map(|opened| (opened, notes))));
        }
        opened
    };
    let mut opened: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE.min(paths.len()))
            .map(|_| scope.spawn(work))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .flat_map(|found| found.expect("opening does not panic"))
            .collect()
    });
    opened.sort_unstable_by_key(|(number, _)| *number);
    let in_order = opened.into_iter().map(|(_, outcome)| {
        let (file, of_file) = outcome?;
        notes.extend(of_file);
        Ok(file)
    });
    in_order.collect()
}

/// Opens one file; what the user may want to know is added to `notes`.
fn open_file(
    path: &Path,
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<Opened, FormatError> {
    if fs::metadata(path).is_ok_and(|status| status.is_dir())
        && options
            .format
            .as_ref()
            .is_none_or(|kind| kind.name() == folder::NAME)
        && !options.features_only
    {
        check_label(path, &folder::Folder, options)?;
        return folder::open(path, options, notes);
    }
    let origin = Origin::find(path, options, notes)?;
    let sample = origin.sample(path)?;
    let Origin {
        source,
        remote,
        stamp,
        head,
    } = origin;
    let format =
        match &options.format {
            Some(kind) => named(kind.name()),
            None => detect(&Head::new(path, &head, stamp.size, options.features_only)).ok_or_else(
                || FormatError::UnknownFormat {
                    path: path.to_path_buf(),
                },
            )?,
        };
    let kind = options.format.clone();
    let kind = kind.unwrap_or_else(|| FormatKind::new(format.name(), None));
    if source != path && format.in_place_only() {
        return Err(FormatError::CompressedBinary {
            path: path.to_path_buf(),
            kind: kind.name(),
        });
    }
    if options.features_only && !format.has_features() {
        return Err(FormatError::NoFeatures {
            path: path.to_path_buf(),
            kind: kind.name(),
        });
    }
    check_label(path, format, options)?;
    let began = Instant::now();
    let text = Source {
        path,
        kind: &kind,
        source: &source,
        remote: remote.as_ref(),
        stamp,
        sample,
        head: &head,
        options,
    };
    let found = format.open(&text, notes)?;
    let mut found = match options.features_only {
        true => found.with_pixels_as_features(),
        false => found,
    };
    let scan_seconds = began.elapsed().as_secs_f64();
    if found.records == 0 {
        return Err(FormatError::Empty {
            path: path.to_path_buf(),
        });
    }
    let storage = match found.storage.take() {
        Some(storage) => storage,
        None => text.storage()?,
    };
    Ok(Opened {
        path: path.to_path_buf(),
        source,
        kind,
        storage,
        stamp,
        sample,
        found,
        scan_seconds,
        remote,
        parts: None,
    })
}

/// Refuses a label that records of this format do not state in such a way.
fn check_label(path: &Path, format: &dyn Format, options: &OpenOptions) -> Result<(), FormatError> {
    let Some(remedy) = format.refuses_label(&options.label) else {
        return Ok(());
    };
    Err(FormatError::LabelElsewhere {
        path: path.to_path_buf(),
        kind: format.name(),
        wanted: match &options.label {
            LabelColumn::Name(name) => name.clone(),
            label => label.describe(),
        },
        remedy,
    })
}
