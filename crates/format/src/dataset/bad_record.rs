//! The position of a record that cannot be decoded, for error messages.

use crate::locate::places::newlines::newlines_in;
use std::io::Read;

use crate::dataset::data_file::DataFile;
use crate::record::error::{Fault, FormatError};

/// Adds the position to a fault; only now are lines counted.
#[cold]
pub(crate) fn bad_record(file: &DataFile, record: u64, fault: Fault) -> FormatError {
    let path = file.record_path(record);
    let (mut offset, _) = file.places.get(record);
    if file.has_lines() {
        let error = line_error(file, record, offset, fault);
        return if file.kind_is_guessed {
            error.after_guess(file.kind.name())
        } else {
            error
        };
    }
    if file.is_folder() {
        offset = 0;
    }
    FormatError::of_record(fault)
        .in_record(record, offset)
        .in_file(&path)
}

#[cold]
fn line_error(file: &DataFile, record: u64, offset: u64, fault: Fault) -> FormatError {
    let error = FormatError::of_record(fault).in_file(&file.path);
    // For a remote file, everything before the record would have to be fetched.
    let newlines = (!file.is_remote()).then(|| {
        pelton_storage::open_file(&file.source).and_then(|text| newlines_in(text.take(offset)))
    });
    match newlines {
        Some(Ok(newlines)) => error.at_line(newlines + 1),
        _ => error.in_record(record, offset),
    }
}
