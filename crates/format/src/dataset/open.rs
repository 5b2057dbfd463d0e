//! Opens one file: its format, the offsets of its records, and their contents.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use pelton_storage::on_threads;

use crate::dataset::formats::{detect, named, with_features};
use crate::locate::format::{Format, Match, Opened, Source, scan_threads};
use crate::locate::origin::Origin;
use crate::record::cells::encoding::refuse_utf16;
use crate::record::cells::known_columns::KnownColumns;
use crate::record::cells::label_column::LabelColumn;
use crate::record::contents::Contents;
use crate::record::error::{FormatError, FormatErrorKind};
use crate::record::kind::{FormatKind, Head, codec_by_name, unread, unread_codec};
use crate::record::labels::stored::LabelForm;
use crate::record::options::OpenOptions;
use crate::record::remote::is_remote;
use crate::record::rows::feature_type::FeatureType;
use crate::samples::folder::{self, listed};
use crate::samples::items;

/// Opens files; the first alone, because the others must have its columns. Remarks and errors come in the order of
/// the files.
pub(crate) fn open_files(
    paths: &[PathBuf],
    options: &OpenOptions,
) -> Result<(Vec<Opened>, Vec<String>), FormatError> {
    let is_listed = match &options.format {
        None => listed::are_images(paths),
        Some(kind) => kind.name() == folder::NAME && !paths.iter().any(|path| path.is_dir()),
    };
    if is_listed && !options.features_only {
        return Ok((vec![listed::open_listed(paths, options)?], Vec::new()));
    }
    if options.file_classes.is_some() {
        return Err(FormatError::new(
            "`labels` are for image files that are named one by one, or other files with `format` folder; other data states its labels",
        ));
    }
    let (mut opened, mut notes) = (Vec::new(), Vec::new());
    let (mut others, mut empty) = (paths, Ok(()));
    while let (true, Some((path, rest))) = (opened.is_empty(), others.split_first()) {
        others = rest;
        let (first, first_notes) = open_together(std::slice::from_ref(path), options)?;
        notes.extend(first_notes);
        for file in first {
            match file {
                Ok(file) => opened.push(file),
                Err(error) => empty = empty.and(Err(error)),
            }
        }
    }
    let of_first = opened.first().and_then(|file| {
        let schema = Arc::new(file.shard.columns.clone()?);
        let of = file.path.display().to_string();
        Some(KnownColumns { schema, of })
    });
    let like_it = OpenOptions {
        columns: options.columns.clone().or(of_first),
        ..options.clone()
    };
    let (more, more_notes) = open_together(others, &like_it)?;
    let has_names = |file: &&Opened| file.shard.columns.is_some();
    let named = more.iter().flatten().find(has_names);
    if let (None, Some(file)) = (&like_it.columns, named) {
        notes.push(format!(
            "{}: its columns are taken in the order of {}, which does not name its own",
            file.path.display(),
            opened[0].path.display()
        ));
    }
    opened.extend(more.into_iter().flatten());
    notes.extend(more_notes);
    if opened.is_empty() {
        empty?;
    }
    // Tables of text report it themselves.
    let is_unnamed = |file: &&Opened| {
        let is_text = file.shard.decoder.label_form() == LabelForm::Cells;
        file.shard.contents == Contents::Features && file.shard.columns.is_none() && !is_text
    };
    if let (Some(known), Some(file)) = (&like_it.columns, opened.iter().find(is_unnamed)) {
        notes.push(format!(
            "{}: files of format {} name no columns, so they are taken in the order of {}",
            file.path.display(),
            file.kind.name(),
            known.of
        ));
    }
    Ok((opened, notes))
}

/// A file, or the error that it holds no records.
type NotEmpty = Result<Opened, FormatError>;

/// Opens files, several at a time, since scans of small files or of headers mostly wait for the drive.
fn open_together(
    paths: &[PathBuf],
    options: &OpenOptions,
) -> Result<(Vec<NotEmpty>, Vec<String>), FormatError> {
    /// Most files at a time: deeper queues do not make drives faster if each wait is for one header.
    const MOST_AT_A_TIME: usize = 16;
    /// Remote files at a time: each waits for its server a few times.
    const ELSEWHERE: usize = 8;
    let elsewhere = options.remote.is_some() && paths.iter().any(|path| is_remote(path));
    let wanted = if elsewhere {
        scan_threads(options).max(ELSEWHERE)
    } else {
        scan_threads(options)
    };
    let threads = wanted.min(paths.len()).clamp(1, MOST_AT_A_TIME);
    let of_one = OpenOptions {
        scan_threads: (scan_threads(options) / threads).max(1),
        ..options.clone()
    };
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let work = || {
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = paths.get(number) else { break };
            let mut notes = Vec::new();
            let opened = open_file(path, &of_one, &mut notes);
            let opened = opened.map_err(|error| error.in_file(path));
            let is_empty = matches!(&opened, Err(error) if error.says_empty(path));
            if is_empty {
                notes = vec![format!(
                    "{}: holds no records and is left out",
                    path.display()
                )];
            }
            failed.fetch_or(opened.is_err() && !is_empty, Ordering::Relaxed);
            done.push((number, opened, notes));
        }
        done
    };
    let mut all: Vec<_> = { on_threads(threads, work) }
        .into_iter()
        .flatten()
        .collect();
    all.sort_unstable_by_key(|(number, ..)| *number);
    let mut found = (Vec::with_capacity(paths.len()), Vec::new());
    for (_, opened, notes) in all {
        found.0.push(match opened {
            Err(error) if !matches!(error.kind(), FormatErrorKind::Empty) => return Err(error),
            opened => opened,
        });
        found.1.extend(notes);
    }
    Ok(found)
}

/// The message for a file of unknown format.
fn unknown(path: &Path) -> &'static str {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let extension = extension.unwrap_or_default().to_ascii_lowercase();
    if path.file_name().is_some_and(folder::is_image) {
        return "is a picture, and other files that are named are none; load pictures without other files";
    }
    match extension.as_str() {
        "avif" | "heic" | "jp2" => {
            "is a picture of a kind that is not decoded; convert it to PNG, WebP or JPEG"
        }
        "bin" if path.with_extension("idx").exists() => {
            "is in no known format by itself; with its .idx of Megatron-LM it is `format` documents, or windows:LENGTH"
        }
        "bin" => {
            "is in no known format; token ids are `format` windows:LENGTH, with their type as in windows:1025:1024:u16, and others raw:FIELDS"
        }
        _ => "is in no known format; name one with `format`, or check that it is the right file",
    }
}

/// Opens one file; remarks for the user are added to `notes`. Errors may lack the path.
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
        check_label(&folder::Folder, options)?;
        return folder::open(path, options, notes);
    }
    if let (true, Some((records, digest))) = (options.of_items, items::parse(path)) {
        return items::open(path, records, digest);
    }
    let origin = Origin::find(path, options, notes)?;
    let sample = origin.sample(path)?;
    let Origin {
        source,
        remote,
        stamp,
        head,
    } = origin;
    // Formats with an argument accept any bytes.
    let takes_any = |kind: &FormatKind| kind.argument().is_some();
    if let (Some(codec), false) = (
        unread_codec(&head),
        options.format.as_ref().is_some_and(takes_any),
    ) {
        return Err(unread(codec));
    }
    if !options.format.as_ref().is_some_and(takes_any) {
        refuse_utf16(&head)?;
    }
    let (guessed, format) = match &options.format {
        Some(kind) => (false, named(kind)),
        None => {
            let head = Head::new(path, &head, stamp.size, options.features_only);
            let (by, format) = detect(&head).ok_or_else(|| match codec_by_name(path) {
                Some(codec) => unread(codec),
                None => FormatError::new(unknown(path)),
            })?;
            // Lines of text cannot be wrong; lines of numbers can.
            let guessed = by == Match::Lines && format.has_features();
            if guessed && head.is_forced {
                notes.push(format!(
                    "{}: its lines look like prose, and were taken for {} since features are needed; name the format with `format` if it is another",
                    path.display(),
                    format.name()
                ));
            }
            (guessed, format)
        }
    };
    let kind = options.format.clone();
    let kind = kind.unwrap_or_else(|| FormatKind::new(format.name(), None));
    if source != path && format.in_place_only() {
        return Err(FormatError::new(format!(
            "holds compressed {}, which is read in place only; decompress it first",
            kind.name()
        )));
    }
    let has_features = format.has_features() || format.has_cells() && options.codes_columns;
    if options.features_only && !has_features {
        return Err(FormatError::new(format!(
            "format {} contains bytes and no features; give one of {}",
            kind.name(),
            with_features()
        )));
    }
    check_label(format, options)?;
    if options.label_file.is_some() {
        return Err(FormatError::new(format!(
            "`label_file` does not apply to {} files, only to folders of images; leave it out, and name the label in the data with `label`",
            format.name()
        )));
    }
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
    let shard = format.open(&text, notes);
    let mut shard = shard.map_err(|error| match error.kind() {
        FormatErrorKind::Malformed if guessed => error.after_guess(format.name()),
        _ => error,
    })?;
    if options.features_only {
        shard = shard.with_pixels_as_features();
    }
    if options.feature_type() == FeatureType::F64 && !shard.decoder.is_wide() {
        return Err(FormatError::new(format!(
            "`dtype` f64 does not apply to {} files, only to features of csv, tsv and npy; leave it out",
            format.name()
        )));
    }
    let scan_seconds = began.elapsed().as_secs_f64();
    if shard.records == 0 {
        return Err(FormatError::empty());
    }
    let storage = match shard.storage.take() {
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
        shard,
        guessed,
        scan_seconds,
        remote,
        parts: None,
    })
}

/// Refuses a label that records of this format cannot state.
fn check_label(format: &dyn Format, options: &OpenOptions) -> Result<(), FormatError> {
    let Some(remedy) = format.refuses_label(&options.label) else {
        return Ok(());
    };
    let wanted = match &options.label {
        LabelColumn::Name(name) => name.clone(),
        label => label.describe(),
    };
    Err(FormatError::new(format!(
        "`label` {wanted} does not apply to {} files; {remedy}",
        format.name()
    )))
}
