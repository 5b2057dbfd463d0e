//! Checks that all files of a data set have records of the same layout.

use pelton_batch::FieldSpecs;

use crate::locate::common_labels::not_alike;
use crate::locate::format::Opened;
use crate::record::contents::Contents;
use crate::record::error::FormatError;
use crate::record::options::OpenOptions;
use crate::record::rows::Layout;
use crate::record::rows::fields::RecordFields;

/// If the fields of files differ, widens them as far as their formats can.
pub(crate) fn widen_fields(opened: &mut [Opened]) {
    let mut different: Vec<FieldSpecs> = Vec::new();
    for file in opened.iter() {
        let specs = file.shard.decoder.fields().specs();
        if !different.contains(specs) {
            different.push(specs.clone());
        }
    }
    if different.len() < 2 {
        return;
    }
    for file in opened {
        if let Some(wider) = file.shard.decoder.widened(&different) {
            file.shard.decoder = wider;
        }
    }
}

/// Refuses files with incompatible records.
pub(crate) fn check_layouts(opened: &[Opened], options: &OpenOptions) -> Result<(), FormatError> {
    let first = &opened[0];
    for file in opened {
        if what_of(file) != what_of(first) {
            return Err(not_alike(file, describe(file), first, describe(first)));
        }
        if let (Layout::Dense { .. }, Some(expected)) = (file.shard.layout, options.features)
            && expected != file.shard.features
        {
            let what = format!(
                "has {} features, but the model has {expected}; use data with the columns the model was trained on",
                file.shard.features
            );
            return Err(FormatError::new(what).in_file(&file.path));
        }
    }
    Ok(())
}

/// The properties that all files of a data set must share.
fn what_of(file: &Opened) -> (Layout, Contents, &RecordFields) {
    let shard = &file.shard;
    (shard.layout, shard.contents, shard.decoder.fields())
}

fn describe(file: &Opened) -> String {
    let (layout, contents, fields) = what_of(file);
    let specs = &fields.specs().0;
    match layout {
        _ if file.shard.decoder.is_wide() => {
            let width = specs[0].bytes().unwrap_or(0) / specs[0].dtype.bytes();
            format!("dense rows of {width} features of 64 bits")
        }
        Layout::Dense { width } => format!("dense rows of {width} features"),
        Layout::Sparse => "sparse rows".into(),
        Layout::Bytes if contents == Contents::Fields => {
            let described = specs.iter().enumerate().map(|(at, field)| {
                let kind = if fields.is_string(at) {
                    "string of "
                } else {
                    ""
                };
                let length =
                    |length: &Option<usize>| length.map_or("any".into(), |n| n.to_string());
                let dims: Vec<String> = field.dims.iter().map(length).collect();
                format!(
                    "{} ({kind}{} [{}])",
                    field.name,
                    field.dtype,
                    dims.join(", ")
                )
            });
            let described: Vec<String> = described.collect();
            format!("the fields {}", described.join(", "))
        }
        Layout::Bytes => contents.to_string(),
    }
}
