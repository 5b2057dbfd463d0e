//! Files of names that lie beside data whose labels are numbers: a line a class.

use std::fs;
use std::path::Path;

/// The lines of a file of at most so many bytes, where it is there and no two are alike; else none.
pub(crate) fn names_beside(file: &Path, most_bytes: u64) -> Vec<String> {
    let is_small =
        fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() <= most_bytes);
    let text = match is_small {
        true => fs::read_to_string(file).unwrap_or_default(),
        false => String::new(),
    };
    let names = text.lines().map(|line| line.trim().to_string());
    let names: Vec<String> = names.filter(|line| !line.is_empty()).collect();
    let mut distinct: Vec<&String> = names.iter().collect();
    distinct.sort_unstable();
    distinct.dedup();
    match distinct.len() == names.len() {
        true => names,
        false => Vec::new(),
    }
}
