//! Files that the user names one by one, each of them a record, with or without its class: images, or other files if
//! the user names the format.

use std::path::{Path, PathBuf};

use pelton_storage::FileSet;

use crate::locate::format::Opened;
use crate::locate::places::IndexSource;
use crate::record::contents::Contents;
use crate::record::error::FormatError;
use crate::record::labels::codes::Codes;
use crate::record::options::OpenOptions;
use crate::samples::folder::listing::{Listing, Remarks};
use crate::samples::folder::{Listed, ends_in, is_image, look_at, opened_from};

/// Endings of the names of texts.
const TEXTS: [&str; 3] = ["txt", "text", "md"];

/// Whether all of these are image files by name.
pub(crate) fn are_images(paths: &[PathBuf]) -> bool {
    let is_file = |path: &PathBuf| path.file_name().is_some_and(is_image) && !path.is_dir();
    !paths.is_empty() && paths.iter().all(is_file)
}

/// Opens these files, each of them a record.
pub(crate) fn open_listed(paths: &[PathBuf], options: &OpenOptions) -> Result<Opened, FormatError> {
    let classes = options.file_classes.clone().unwrap_or_default();
    if !classes.codes.is_empty() && classes.codes.len() != paths.len() {
        return Err(FormatError::new(format!(
            "`labels` has {} entries for {} files; give one for each file, in the same order",
            classes.codes.len(),
            paths.len()
        )));
    }
    let count = classes.names.len().max(classes.values.len());
    if classes.codes.iter().any(|&code| code as usize >= count) {
        return Err(FormatError::new(
            "`labels` number a class that has no name or value; check the configuration",
        ));
    }
    let root = common_folder(paths);
    let mut files = Vec::with_capacity(paths.len());
    for (i, path) in paths.iter().enumerate() {
        files.push(Listed {
            name: path.strip_prefix(&root).unwrap_or(path).to_path_buf(),
            class: classes.codes.get(i).copied().unwrap_or(0),
        });
    }
    let codes = Codes::new(files.iter().map(|file| file.class).collect());
    let listing = Listing {
        set: FileSet::new(&root, look_at(&root, files, options)?),
        codes,
        names: classes.names,
        folders: Vec::new(),
        may_be_kept: false,
        remarks: Remarks::default(),
    };
    let mut opened = opened_from(&root, listing, IndexSource::Arithmetic);
    if paths.iter().all(|path| ends_in(path.as_os_str(), &TEXTS)) {
        opened.shard.contents = Contents::Text;
    }
    if !classes.values.is_empty() {
        opened.shard.labels = classes.values.into();
    }
    Ok(opened)
}

/// The deepest folder that all files are below.
fn common_folder(paths: &[PathBuf]) -> PathBuf {
    let mut common = paths[0].parent().unwrap_or(Path::new("")).to_path_buf();
    for path in paths {
        while !path.starts_with(&common) {
            if !common.pop() {
                // Some are absolute and some are not.
                return PathBuf::new();
            }
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_folder_is_above_every_file() {
        let check = |paths: &[&str], expected: &str| {
            let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
            assert_eq!(common_folder(&paths), PathBuf::from(expected), "{paths:?}");
        };
        check(&["/a/b/x.png", "/a/c/y.png"], "/a");
        check(&["/a/b/x.png", "/z/y.png"], "/");
        check(&["a/x.png", "b/y.png"], "");
        check(&["/a/x.png", "y.png"], "");
        check(&["x.png"], "");
    }
}
