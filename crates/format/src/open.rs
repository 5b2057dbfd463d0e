//! Opening one file: its format, where its records lie, and what they hold together.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::delimited::LabelColumn;
use crate::error::FormatError;
use crate::folder;
use crate::format::{Format, Opened, Source};
use crate::formats::{detect, named};
use crate::kind::{FormatKind, Head};
use crate::options::OpenOptions;
use crate::origin::Origin;

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
