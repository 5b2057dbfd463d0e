//! A checkpoint that stays on disk: its header is in memory, and rows are read where they are needed.
//!
//! Opening reads the whole file once, to verify the checksum. The file is not mapped, so one that shrinks later is an
//! error and not a signal.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytemuck::Pod;
use safetensors::tensor::{Dtype, Metadata};

use crate::checkpoint::{CHECKSUM, EARLIER_CHECKSUM, Summed, TEXT, damaged, label, unreadable};
use crate::error::RunError;

/// Largest header that is read.
const MOST_HEADER: u64 = 100_000_000;
/// Bytes that are read at once for the checksum.
const PART: usize = 1 << 20;

/// A checkpoint's file, whose checksum fits.
#[derive(Debug)]
pub struct CheckpointFile {
    path: PathBuf,
    file: File,
    /// Where the arrays begin.
    start: u64,
    arrays: Metadata,
    text: String,
    checksum: u32,
}

impl CheckpointFile {
    /// Opens a file that [`write_checkpoint`](crate::write_checkpoint) wrote.
    ///
    /// Errors: a file that cannot be read or is damaged.
    pub fn open(path: &Path) -> Result<CheckpointFile, RunError> {
        let file = pelton_storage::open_file(path).map_err(|error| unreadable(path, &error))?;
        CheckpointFile::of(file, path)
    }

    /// The same of a file that is open.
    pub fn of(file: File, path: &Path) -> Result<CheckpointFile, RunError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged(path, "length"),
            _ => unreadable(path, &error),
        };
        let length = file.metadata().map_err(failed)?.len();
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        let header = u64::from_le_bytes(bytes);
        if header > MOST_HEADER.min(length) {
            return Err(damaged(path, "header"));
        }
        let mut bytes = vec![0; header as usize];
        file.read_exact_at(&mut bytes, 8).map_err(failed)?;
        let arrays = serde_json::from_slice(&bytes);
        let arrays: Metadata = arrays.map_err(|_| damaged(path, "header"))?;
        let start = 8 + header;
        if start + arrays.data_len() as u64 != length {
            return Err(damaged(path, "length"));
        }
        let key = |key| arrays.metadata().as_ref().and_then(|all| all.get(key));
        let text = key(TEXT).ok_or_else(|| damaged(path, "no progress"))?;
        let covers_shapes = key(CHECKSUM).is_some();
        let stated = key(CHECKSUM).or_else(|| key(EARLIER_CHECKSUM));
        let stated = stated.and_then(|stated| u32::from_str_radix(stated, 16).ok());
        let mut sum = Summed::new(text);
        let mut part = vec![0; PART];
        let mut all: Vec<_> = arrays.tensors().into_iter().collect();
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for (name, info) in all {
            let (from, to) = info.data_offsets;
            let label = if covers_shapes {
                label(info.dtype, &info.shape)
            } else {
                String::new()
            };
            sum.begin(&name, &label, to - from);
            for at in (from..to).step_by(PART) {
                let part = &mut part[..PART.min(to - at)];
                let read = file.read_exact_at(part, start + at as u64);
                read.map_err(failed)?;
                sum.add(part);
            }
        }
        if stated != Some(sum.value()) {
            return Err(damaged(path, "checksum"));
        }
        Ok(CheckpointFile {
            path: path.to_path_buf(),
            file,
            start,
            text: text.clone(),
            checksum: sum.value(),
            arrays,
        })
    }

    /// The caller's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its checksum.
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    /// The shape of an array, where there is one.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.arrays.info(name).map(|info| &info.shape[..])
    }

    /// Says that a part of it is damaged.
    pub fn damaged(&self, what: &str) -> RunError {
        damaged(&self.path, what)
    }

    /// Says what does not fit.
    pub fn wrong(&self, problem: &str) -> RunError {
        RunError::Checkpoint {
            path: self.path.clone(),
            problem: problem.to_string(),
        }
    }

    /// Numbers `range` of an array, counted over all its rows.
    ///
    /// Errors: no such array, of another type, or shorter; a file that cannot be read.
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

    /// Reads numbers of an array from number `first` on.
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
        let read = self.file.read_exact_at(bytemuck::cast_slice_mut(into), at);
        read.map_err(|error| unreadable(&self.path, &error))
    }

    /// How many numbers the range has, once the array is known to have them.
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
    use std::io::Write;

    use super::*;
    use crate::checkpoint::{Checkpoint, Tensor, encode_checkpoint};

    const VALUES: [f32; 12] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0];

    fn bytes() -> Vec<u8> {
        let tensors = vec![
            Tensor::new("a", Dtype::U8, &[7_u8; 3]),
            Tensor::new("w", Dtype::F32, &VALUES).shaped(&[4, 3]),
        ];
        let mut bytes = Vec::new();
        encode_checkpoint(&mut bytes, "text", tensors).unwrap();
        bytes
    }

    fn open(bytes: &[u8]) -> Result<CheckpointFile, RunError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        CheckpointFile::of(file, Path::new("state"))
    }

    #[test]
    fn parts_of_a_file_are_read() {
        let bytes = bytes();
        let file = open(&bytes).unwrap();
        let whole = Checkpoint::parse(&bytes, Path::new("state")).unwrap();
        assert_eq!(file.checksum(), whole.checksum());
        assert_eq!(file.shape("w"), Some(&[4, 3][..]));
        let part: Vec<f32> = file.numbers("w", Dtype::F32, 3..7).unwrap();
        assert_eq!(part, VALUES[3..7]);
        assert_eq!(file.numbers::<u8>("a", Dtype::U8, 1..3).unwrap(), [7, 7]);
        for (name, dtype, range) in [
            ("w", Dtype::F32, 3..13),
            ("w", Dtype::U32, 0..1),
            ("v", Dtype::F32, 0..1),
            ("a", Dtype::U8, 0..1),
        ] {
            let found = file.numbers::<f32>(name, dtype, range);
            assert!(found.is_err(), "{name} {dtype:?}");
        }
    }

    #[test]
    fn damage_is_found() {
        let good = bytes();
        let header = 8 + u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
        for bit in 0..8 * good.len() {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // Blanks after the header may become other blanks.
            if let Ok(file) = open(&bad) {
                let found: Vec<f32> = file.numbers("w", Dtype::F32, 0..12).unwrap();
                assert_eq!(
                    (file.text(), &found[..]),
                    ("text", &VALUES[..]),
                    "bit {bit}"
                );
                assert!(bit / 8 < header, "bit {bit}");
            }
        }
        for length in 0..good.len() {
            assert!(open(&good[..length]).is_err(), "{length} bytes");
        }
        let longer = [&good[..], &[0]].concat();
        let error = open(&longer).unwrap_err().to_string();
        assert!(error.contains("is damaged (length)"), "{error}");
        let error = CheckpointFile::open(Path::new("none")).unwrap_err();
        assert!(error.to_string().contains("cannot be read"), "{error}");
    }
}
