//! The images of a folder.

use std::path::PathBuf;

use pelton_storage::FileSet;

use crate::record::labels::codes::Codes;

/// The result of listing a folder.
pub(crate) struct Listing {
    pub(crate) set: FileSet,
    pub(crate) codes: Codes,
    /// Names of the classes; empty if all images are of one class without a name.
    pub(crate) names: Vec<String>,
    /// The folders that were listed, below the root, with their times of last change.
    pub(crate) folders: Vec<(PathBuf, i64)>,
    /// Whether the times of the folders will show every change of the listing.
    pub(crate) may_be_kept: bool,
    pub(crate) remarks: Remarks,
}

/// Remarks about a listing, for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remarks {
    /// Files without the extension of an image.
    pub(crate) others: u64,
    /// Folders that would be classes but have no images.
    pub(crate) empty_folders: Vec<PathBuf>,
    /// Images without a row in the table, and the first of them.
    pub(crate) without: u64,
    pub(crate) first_without: PathBuf,
    /// Rows of the table without an image.
    pub(crate) unused: u64,
}
