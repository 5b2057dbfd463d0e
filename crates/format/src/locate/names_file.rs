//! Files of class names next to data with integer labels: a line a class.

use std::io::Read;
use std::path::Path;

use crate::locate::origin::Origin;
use crate::record::options::OpenOptions;

/// The non-blank lines of a file, if it exists with at most `most_bytes` bytes and all of them differ; else empty.
pub(crate) fn names_next_to(file: &Path, most_bytes: u64, options: &OpenOptions) -> Vec<String> {
    let mut text = String::new();
    // A file that cannot be read, or is not text, has no names.
    let found = Origin::find(file, options, &mut Vec::new()).ok();
    if let Some(found) = found.filter(|found| found.stamp.size <= most_bytes)
        && let Ok(input) = found.input(file)
        && input.into_reader().read_to_string(&mut text).is_err()
    {
        text.clear();
    }
    let names = text.lines().map(|line| line.trim().to_string());
    let names: Vec<String> = names.filter(|line| !line.is_empty()).collect();
    let mut distinct: Vec<&String> = names.iter().collect();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() == names.len() {
        names
    } else {
        Vec::new()
    }
}
