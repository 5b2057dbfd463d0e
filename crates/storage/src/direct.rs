//! Opens a file past the page cache (O_DIRECT) and finds the units that it requires.
//!
//! Linux 6.1 reports the units through statx (STATX_DIOALIGN). Elsewhere they are determined by trial: a read of 512
//! bytes, then of 4096, the two sector sizes that exist. A filesystem may accept the flag at open and refuse every
//! read, so the trial is also the proof that it works.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::Granularity;

/// Opens `path` for reading (and with `write` for writing) past the page cache; `None` if the filesystem refuses.
#[cfg(target_os = "linux")]
pub(crate) fn open(path: &Path, write: bool) -> io::Result<Option<(File, Granularity)>> {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt;

    let file = File::options()
        .read(true)
        .write(write)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(path);
    let file = match file {
        Ok(file) => file,
        Err(error) if refuses_direct(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let units = match reported_units(&file) {
        Some(reported) => reported,
        None => tried_units(&file)?,
    };
    Ok(units.map(|units| (file, units)))
}

/// Other systems have no O_DIRECT with these semantics.
#[cfg(not(target_os = "linux"))]
pub(crate) fn open(_path: &Path, _write: bool) -> io::Result<Option<(File, Granularity)>> {
    Ok(None)
}

#[cfg(target_os = "linux")]
fn refuses_direct(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(Errno::INVAL | Errno::OPNOTSUPP)
    )
}

/// The answer of statx: `None` if it does not know, `Some(None)` if direct access is impossible.
#[cfg(target_os = "linux")]
fn reported_units(file: &File) -> Option<Option<Granularity>> {
    use rustix::fs::{AtFlags, StatxFlags, statx};

    let status = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    if status.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return None;
    }
    let units = Granularity {
        offset_bytes: status.stx_dio_offset_align,
        memory_bytes: status.stx_dio_mem_align,
    };
    let sensible = units.offset_bytes.is_power_of_two() && units.memory_bytes.is_power_of_two();
    Some(sensible.then_some(units))
}

#[cfg(target_os = "linux")]
fn tried_units(file: &File) -> io::Result<Option<Granularity>> {
    use std::os::unix::fs::FileExt;

    let mut buffer = crate::AlignedBuffer::from_iter(4096, std::iter::repeat_n(0, 4096));
    for unit in [512u32, 4096] {
        match file.read_at(&mut buffer[..unit as usize], 0) {
            Ok(_) => {
                return Ok(Some(Granularity {
                    offset_bytes: unit,
                    memory_bytes: unit,
                }));
            }
            Err(error) if refuses_direct(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn trying_agrees_with_the_reported_units() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("data");
        std::fs::write(&path, vec![7u8; 10_000]).expect("write");
        let Some((file, units)) = open(&path, false).expect("open") else {
            eprintln!("SKIPPED: the temporary folder's filesystem has no direct reads");
            return;
        };
        let tried = tried_units(&file).expect("read").expect("direct reads");
        assert!(tried.offset_bytes >= units.offset_bytes);
        assert!(tried.memory_bytes >= units.memory_bytes);
    }
}
