//! A file of arrays that stays on disk: its header is in memory, and rows are read on demand.
//!
//! The first read of each part with a digest in the [manifest](crate::Manifest) verifies it; if the rows cover the
//! part, this takes no second read. The file is not mapped, so if it shrinks later that is an error and not a signal.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bytemuck::Pod;
use safetensors::tensor::{Dtype, Metadata};

use crate::checkpoint::{TEXT, damaged, unreadable};
use crate::entry::{Entry, PART, digest};
use crate::error::RunError;

/// Largest header that is read.
const MOST_HEADER: u64 = 100_000_000;

/// A file of arrays.
#[derive(Debug)]
pub struct CheckpointFile {
    path: PathBuf,
    file: File,
    /// Offset of the arrays.
    start: u64,
    arrays: Metadata,
    text: String,
    entry: Entry,
    /// Whether each part was verified.
    verified: Vec<AtomicBool>,
}

impl CheckpointFile {
    /// A file that [`write_checkpoint`](crate::write_checkpoint) wrote, with its entry.
    ///
    /// Errors: a file that cannot be read or is damaged.
    pub fn new(file: File, path: &Path, entry: Entry) -> Result<CheckpointFile, RunError> {
        let mut of = CheckpointFile {
            path: path.to_path_buf(),
            file,
            start: 8,
            arrays: Metadata::new(None, vec![]).map_err(|_| damaged(path, "header"))?,
            text: String::new(),
            verified: entry.parts.iter().map(|_| AtomicBool::new(false)).collect(),
            entry,
        };
        let mut bytes = [0; 8];
        of.read_at(&mut bytes, 0)?;
        let header = u64::from_le_bytes(bytes);
        if header > MOST_HEADER.min(of.entry.bytes) {
            return Err(damaged(path, "header"));
        }
        let mut bytes = vec![0; header as usize];
        of.read_at(&mut bytes, 8)?;
        let arrays = serde_json::from_slice(&bytes);
        of.arrays = arrays.map_err(|_| damaged(path, "header"))?;
        of.start += header;
        if of.start + of.arrays.data_len() as u64 != of.entry.bytes {
            return Err(damaged(path, "length"));
        }
        let text = of.arrays.metadata().as_ref().and_then(|all| all.get(TEXT));
        of.text = text.ok_or_else(|| damaged(path, "no progress"))?.clone();
        Ok(of)
    }

    /// Reads bytes, and verifies parts on their first read.
    fn read_at(&self, into: &mut [u8], at: u64) -> Result<(), RunError> {
        let read = |into: &mut [u8], at| {
            let read = self.file.read_exact_at(into, at);
            read.map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => damaged(&self.path, "length"),
                _ => unreadable(&self.path, &error),
            })
        };
        let (mut at, mut rest) = (at, into);
        while !rest.is_empty() {
            let number = at / PART;
            let part = number * PART..((number + 1) * PART).min(self.entry.bytes);
            let take = part.end.saturating_sub(at).min(rest.len() as u64) as usize;
            let verified = self.verified.get(number as usize).filter(|_| take > 0);
            let verified = verified.ok_or_else(|| damaged(&self.path, "length"))?;
            let own;
            (own, rest) = rest.split_at_mut(take);
            if verified.load(Ordering::Relaxed) {
                read(own, at)?;
            } else {
                let mut whole = Vec::new();
                let covers = take as u64 == part.end - part.start;
                let bytes = if covers {
                    &mut *own
                } else {
                    whole.resize((part.end - part.start) as usize, 0);
                    &mut whole
                };
                read(bytes, part.start)?;
                if digest(bytes) != self.entry.parts[number as usize] {
                    return Err(damaged(&self.path, "digest"));
                }
                verified.store(true, Ordering::Relaxed);
                if !covers {
                    own.copy_from_slice(&whole[(at - part.start) as usize..][..take]);
                }
            }
            at += take as u64;
        }
        Ok(())
    }

    /// The caller's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The shape of an array; `None` if absent.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.arrays.info(name).map(|info| &info.shape[..])
    }

    /// The error for a damaged part.
    pub fn damaged(&self, what: &str) -> RunError {
        damaged(&self.path, what)
    }

    /// The error for a mismatch.
    pub fn wrong(&self, problem: &str) -> RunError {
        RunError::Checkpoint {
            path: self.path.clone(),
            problem: problem.to_string(),
        }
    }

    /// The numbers in `range` of an array, counted over all its rows.
    ///
    /// Errors: an array that is absent, of another type, or shorter; a file that cannot be read.
    pub fn numbers<T: Pod>(
        &self,
        name: &str,
        dtype: Dtype,
        range: Range<usize>,
    ) -> Result<Vec<T>, RunError> {
        let mut numbers = bytemuck::zeroed_vec(self.checked::<T>(name, dtype, &range)?);
        self.read(name, dtype, range.start, &mut numbers)?;
        Ok(numbers)
    }

    /// Reads numbers of an array from index `first` on.
    pub fn read<T: Pod>(
        &self,
        name: &str,
        dtype: Dtype,
        first: usize,
        into: &mut [T],
    ) -> Result<(), RunError> {
        self.checked::<T>(name, dtype, &(first..first + into.len()))?;
        let begin = self.arrays.info(name).map_or(0, |info| info.data_offsets.0);
        let at = self.start + (begin + first * size_of::<T>()) as u64;
        self.read_at(bytemuck::cast_slice_mut(into), at)
    }

    /// Checks that the array contains the range; returns its count of numbers.
    fn checked<T>(
        &self,
        name: &str,
        dtype: Dtype,
        range: &Range<usize>,
    ) -> Result<usize, RunError> {
        let info = self.arrays.info(name).filter(|info| info.dtype == dtype);
        let info = info.ok_or_else(|| self.damaged(name))?;
        let numbers = info.shape.iter().product::<usize>();
        let fits = size_of::<T>() * 8 == dtype.bitsize() && range.end <= numbers;
        if fits {
            Ok(range.len())
        } else {
            Err(self.damaged(name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Tensor, write_checkpoint};

    /// A file of three parts, the last one short, and its values.
    fn file(folder: &Path) -> (PathBuf, Entry, Vec<f32>) {
        let values: Vec<f32> = (0..(2 * PART / 4 + 10)).map(|i| i as f32).collect();
        let tensors = vec![
            Tensor::new("a", Dtype::U8, &[7_u8; 3]),
            Tensor::new("w", Dtype::F32, &values).shaped(&[values.len() / 2, 2]),
        ];
        let path = folder.join("state");
        let entry = write_checkpoint(&path, "text", tensors).unwrap();
        assert_eq!(entry.parts.len(), 3);
        assert_eq!(Entry::read(&path).unwrap(), entry);
        (path, entry, values)
    }

    #[test]
    fn parts_of_a_file_are_read_and_verified_once() {
        let folder = tempfile::tempdir().unwrap();
        let (path, entry, values) = file(folder.path());
        let open =
            || CheckpointFile::new(File::open(&path).unwrap(), &path, entry.clone()).unwrap();
        let (middle, last) = ((PART / 4) as usize, values.len());
        for ranges in [
            vec![3..7, 0..last],
            vec![middle - 100..middle + 100, last - 1..last],
        ] {
            let file = open();
            for range in ranges {
                let part: Vec<f32> = file.numbers("w", Dtype::F32, range.clone()).unwrap();
                assert!(part == values[range]);
            }
            assert_eq!(file.numbers::<u8>("a", Dtype::U8, 1..3).unwrap(), [7, 7]);
        }
        for (name, dtype, range) in [
            ("w", Dtype::F32, 3..last + 1),
            ("w", Dtype::U32, 0..1),
            ("v", Dtype::F32, 0..1),
            ("a", Dtype::U8, 0..1),
        ] {
            let found = open().numbers::<f32>(name, dtype, range);
            assert!(found.is_err(), "{name} {dtype:?}");
        }
    }

    #[test]
    fn damage_is_found_in_the_part_that_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (path, entry, values) = file(folder.path());
        let good = std::fs::read(&path).unwrap();
        let open = || CheckpointFile::new(File::open(&path).unwrap(), &path, entry.clone());
        let read = |range: Range<usize>| open()?.numbers::<f32>("w", Dtype::F32, range);
        for at in [0, 9, PART as usize - 1] {
            let mut bad = good.clone();
            bad[at] ^= 4;
            std::fs::write(&path, bad).unwrap();
            assert!(open().unwrap_err().to_string().contains("digest"), "{at}");
        }
        let mut bad = good.clone();
        *bad.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &bad).unwrap();
        assert_eq!(read(0..4).unwrap(), values[..4]);
        let last = values.len() - 2;
        for range in [last..last + 1, 0..values.len()] {
            assert!(
                read(range)
                    .unwrap_err()
                    .to_string()
                    .contains("is damaged (digest)")
            );
        }
        std::fs::write(&path, &good[..good.len() - 9]).unwrap();
        assert!(
            read(last..last + 1)
                .unwrap_err()
                .to_string()
                .contains("is damaged (length)")
        );
    }
}
