//! Opening one file: its format, where its records lie, and what they hold together.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use pelton_storage::{LocalFile, Storage};

use crate::data_file::Stamp;
use crate::delimited::LabelColumn;
use crate::error::FormatError;
use crate::fingerprint::sample_file;
use crate::folder;
use crate::format::{Format, Opened, Source, decompress, read_head, regular_file};
use crate::formats::{detect, named};
use crate::kind::{Compression, FormatKind, Head};
use crate::options::OpenOptions;

/// Opens one file; what the user may want to know is added to `notes`.
pub(crate) fn open_file(
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
    let status = regular_file(path)?;
    if status.len() == 0 {
        return Err(FormatError::Empty {
            path: path.to_path_buf(),
        });
    }
    let mut source = path.to_path_buf();
    let mut stamp = Stamp::of(&status);
    let mut head = read_head(path)?;
    if let Some(compression) = Compression::of(&head) {
        source = decompress(path, compression, &stamp, options, notes)?;
        stamp = Stamp::of(&regular_file(&source)?);
        head = read_head(&source)?;
    }
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
    let sample =
        sample_file(&source, stamp.size).map_err(|e| FormatError::io(path, "read it", e))?;
    let began = Instant::now();
    let text = Source {
        path,
        kind: &kind,
        source: &source,
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
    let storage: Arc<dyn Storage> = match found.storage.take() {
        Some(storage) => storage,
        None => Arc::new(LocalFile::open(&source, options.storage)?),
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
