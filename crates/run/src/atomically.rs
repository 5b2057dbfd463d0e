//! Files that appear only when complete.

use std::io;
use std::path::Path;

use pelton_storage::WholeFile;

use crate::error::RunError;

/// Writes a file atomically: `write` fills a temporary file in the same folder,
/// which is then synced and renamed to `path`.
pub fn write_atomically(
    path: &Path,
    write: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), RunError> {
    replace(path, write).map_err(|source| RunError::io(path, "write", source))
}

fn replace(path: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let file = WholeFile::create(path)?;
    write(file.temporary())?;
    file.publish()
}
