//! Files appear whole: written under a temporary name in the same folder, then renamed.

use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

/// A temporary file beside `path`; dropped without [`complete`] it disappears.
pub(crate) fn begin(path: &Path) -> io::Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".pelton-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Like any new file; the process's mask takes from it.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

/// Gives the file its name.
pub(crate) fn complete(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.as_file().sync_data()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
