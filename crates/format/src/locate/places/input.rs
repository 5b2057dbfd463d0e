//! The bytes of a data file while it is opened and scanned: a local file by system calls, a remote one through its
//! storage, with read-ahead.

use std::borrow::Borrow;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use pelton_storage::{RangeRead, ReadAhead, Storage};

use crate::record::error::FormatError;

/// An opened data file, read at offsets.
#[derive(Debug)]
pub(crate) enum Input {
    File(File),
    Remote { ahead: ReadAhead, size: u64 },
}

impl Input {
    /// Opens a local file; messages call it `path`.
    pub(crate) fn open(source: &Path, path: &Path) -> Result<Input, FormatError> {
        let file =
            pelton_storage::open_file(source).map_err(|e| FormatError::io(path, "open it", e))?;
        Ok(Input::File(file))
    }

    /// Reads up to a buffer's length from `offset`; nothing only at the end.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Input::File(file) => file.read_at(buffer, offset),
            Input::Remote { ahead, .. } => {
                let mut reads = [RangeRead {
                    offset,
                    buffer,
                    filled: 0,
                }];
                // The storage's error is kept whole: it names the file and the remedy.
                ahead.read_batch(&mut reads).map_err(io::Error::other)?;
                Ok(reads[0].filled)
            }
        }
    }

    /// Fills a buffer from `offset`.
    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Input::File(file) => file.read_exact_at(buffer, offset),
            Input::Remote { .. } => match self.read_at(buffer, offset)? {
                filled if filled == buffer.len() => Ok(()),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            },
        }
    }

    /// Reads from `at` on.
    pub(crate) fn from(&self, at: u64) -> InputReader<&Input> {
        InputReader { input: self, at }
    }

    /// Reads from the start on.
    pub(crate) fn into_reader(self) -> InputReader<Input> {
        InputReader { input: self, at: 0 }
    }

    fn size(&self) -> io::Result<u64> {
        match self {
            Input::File(file) => Ok(file.metadata()?.len()),
            Input::Remote { size, .. } => Ok(*size),
        }
    }
}

#[cfg(test)]
impl Input {
    /// A temporary file of these bytes.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Input {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, bytes).unwrap();
        Input::File(file)
    }
}

/// Opens the bytes at `source`, or of a storage; messages call the file `path`.
pub(crate) fn input_of(
    source: &Path,
    remote: Option<&Arc<dyn Storage>>,
    size: u64,
    path: &Path,
) -> Result<Input, FormatError> {
    match remote {
        None => Input::open(source, path),
        Some(storage) => {
            let ahead = ReadAhead::new(Arc::clone(storage), size);
            Ok(Input::Remote { ahead, size })
        }
    }
}

/// An opened data file, read sequentially.
#[derive(Debug)]
pub(crate) struct InputReader<I> {
    input: I,
    at: u64,
}

impl<I: Borrow<Input>> Read for InputReader<I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.borrow().read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl<I: Borrow<Input>> Seek for InputReader<I> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.input.borrow().size()?.checked_add_signed(by),
        };
        self.at = place.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    use pelton_storage::MemoryStorage;

    /// A storage gives the same bytes as a file.
    #[test]
    fn both_read_alike() {
        let bytes: Vec<u8> = (0..100_000u32)
            .map(|i| (i.wrapping_mul(i) >> 7) as u8)
            .collect();
        let inputs = [
            Input::of_bytes(&bytes),
            Input::Remote {
                size: bytes.len() as u64,
                ahead: ReadAhead::new(
                    Arc::new(MemoryStorage::new(bytes.clone())),
                    bytes.len() as u64,
                ),
            },
        ];
        for input in inputs {
            let mut part = [0; 1000];
            input.read_exact_at(&mut part, 99_000).unwrap();
            assert_eq!(part, bytes[99_000..]);
            let error = input.read_exact_at(&mut part, 99_001).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(input.read_at(&mut part, 100_000).unwrap(), 0);
            let mut rest = Vec::new();
            input.from(70_000).read_to_end(&mut rest).unwrap();
            assert!(rest == bytes[70_000..]);
            let mut reader = BufReader::with_capacity(64, input.into_reader());
            let mut line = Vec::new();
            reader.read_until(7, &mut line).unwrap();
            assert!(line == bytes[..line.len()]);
            assert_eq!(reader.seek(SeekFrom::End(-3)).unwrap(), 99_997);
            assert_eq!(reader.seek(SeekFrom::Current(1)).unwrap(), 99_998);
            assert!(reader.seek(SeekFrom::Current(-100_000)).is_err());
            rest.clear();
            reader.read_to_end(&mut rest).unwrap();
            assert_eq!(rest, bytes[99_998..]);
        }
    }
}
