//! What the records of the files of a data set must have in common.

use pelton_batch::FieldSpecs;

use crate::contents::Contents;
use crate::error::FormatError;
use crate::format::{Opened, Reading};
use crate::options::OpenOptions;
use crate::rows::Layout;
use crate::rows::feature_type::FeatureType;

/// Where the fields of files differ, makes them alike as far as their formats can.
pub(crate) fn widen_fields(opened: &mut [Opened]) {
    let mut different: Vec<FieldSpecs> = Vec::new();
    for file in opened.iter() {
        if let (.., Some(specs)) = what_of(file)
            && !different.contains(specs)
        {
            different.push(specs.clone());
        }
    }
    if different.len() < 2 {
        return;
    }
    for file in opened {
        if let Reading::Fields { decoder, .. } = &mut file.found.reading
            && let Some(wider) = decoder.widened(&different)
        {
            *decoder = wider;
        }
    }
}

/// Refuses files whose records do not go together.
pub(crate) fn check_layouts(opened: &[Opened], options: &OpenOptions) -> Result<(), FormatError> {
    let first = &opened[0];
    for file in opened {
        if what_of(file) != what_of(first) || wide_of(file) != wide_of(first) {
            return Err(FormatError::MixedLayouts {
                path: file.path.clone(),
                found: describe(file),
                first: first.path.clone(),
                expected: describe(first),
            });
        }
        if let (Layout::Dense { .. }, Some(expected)) = (file.found.layout, options.features)
            && expected != file.found.features
        {
            let path = file.path.clone();
            return Err(FormatError::FeatureCount {
                path,
                expected,
                found: file.found.features,
            });
        }
    }
    Ok(())
}

/// Features a row, where they are of 64 bits.
fn wide_of(file: &Opened) -> Option<usize> {
    match &file.found.reading {
        Reading::Delimited(rules) if rules.dtype == FeatureType::F64 => Some(rules.features()),
        Reading::Npy(rules) if rules.dtype == FeatureType::F64 => Some(rules.features()),
        _ => None,
    }
}

/// What the files of a data set must have in common.
fn what_of(file: &Opened) -> (Layout, Contents, Option<&FieldSpecs>) {
    let specs = match &file.found.reading {
        Reading::Fields { decoder, .. } => Some(decoder.specs()),
        _ => None,
    };
    (file.found.layout, file.found.contents, specs)
}

fn describe(file: &Opened) -> String {
    if let (.., Some(specs)) = what_of(file) {
        let fields = specs.0.iter();
        let fields: Vec<String> = fields
            .map(|field| format!("{} ({} {:?})", field.name, field.dtype, field.known()))
            .collect();
        return format!("the fields {}", fields.join(", "));
    }
    match file.found.layout {
        _ if let Some(width) = wide_of(file) => {
            format!("dense rows of {width} features of 64 bits")
        }
        Layout::Dense { width } => format!("dense rows of {width} features"),
        Layout::Sparse => "sparse rows".into(),
        Layout::Bytes => file.found.contents.to_string(),
    }
}
