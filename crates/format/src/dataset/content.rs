//! Sums for comparing the records of two epochs, independent of order.
//!
//! A fingerprint of samples does not see a record that changed between them, and a hash of whole files would take a
//! separate pass. These sums are of rows that are decoded anyway: CRC-32C, which finds any change of up to 32 bits in a
//! row with certainty, mixed with id and class. Two epochs that used the same records, as the sum of their ids says,
//! must agree in the other sum.

use std::fmt;
use std::ops::AddAssign;
use std::str::FromStr;

use pelton_key::{Digest, splitmix64};
use pelton_storage::{StorageError, StorageErrorKind};

use crate::dataset::Dataset;
use crate::record::error::FormatError;
use crate::record::rows::{Row, RowTable};

/// Sums over records in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContentSum {
    /// Of hashed ids.
    pub ids: u64,
    /// Of hashed ids, classes and rows.
    pub rows: u64,
}

impl ContentSum {
    /// Adds record `id`.
    #[inline]
    pub fn add(&mut self, id: u64, class: u32, row: Row<'_>) {
        let (sum, bytes) = match row {
            Row::Bytes(bytes) => (crc32c::crc32c(bytes), bytes.len()),
            Row::Dense(values) => (crc32c::crc32c(bytemuck::cast_slice(values)), values.len()),
            Row::Sparse { indices, values } => {
                let sum = crc32c::crc32c(bytemuck::cast_slice(indices));
                let sum = crc32c::crc32c_append(sum, bytemuck::cast_slice(values));
                (sum, values.len())
            }
        };
        let id = splitmix64(id);
        let said = u64::from(class) << 32 | u64::from(sum);
        self.ids = self.ids.wrapping_add(id);
        let hashed = splitmix64(splitmix64(id ^ said) ^ bytes as u64);
        self.rows = self.rows.wrapping_add(hashed);
    }

    /// The sums of all rows of a table.
    pub fn new(table: &RowTable) -> ContentSum {
        let mut sum = ContentSum::default();
        for i in 0..table.len() {
            sum.add(table.id(i), table.label(i), table.row(i));
        }
        sum
    }

    /// Whether both are of the same records, but not of the same content.
    pub fn contradicts(self, other: ContentSum) -> bool {
        self.ids == other.ids && self.rows != other.rows
    }
}

impl AddAssign for ContentSum {
    fn add_assign(&mut self, other: ContentSum) {
        self.ids = self.ids.wrapping_add(other.ids);
        self.rows = self.rows.wrapping_add(other.rows);
    }
}

impl fmt::Display for ContentSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.ids, self.rows)
    }
}

impl FromStr for ContentSum {
    type Err = String;

    fn from_str(text: &str) -> Result<ContentSum, String> {
        let both = u128::from_str_radix(text, 16);
        let both = both.map_err(|_| format!("`{text}` is not a sum of records"))?;
        Ok(ContentSum {
            ids: (both >> 64) as u64,
            rows: both as u64,
        })
    }
}

impl Dataset {
    /// Identifies the state of its files by size and times, which change with any byte. Files of a folder and records
    /// of a program do not count.
    pub fn files_state(&self) -> u64 {
        let files = self.files().iter().filter(|file| !file.is_made());
        let words = files.flat_map(|file| {
            let stamp = &file.stamp;
            let modified = stamp.modified_ns() as u64;
            [stamp.size, modified, stamp.touched_ns as u64, stamp.tag]
        });
        Digest::new("file states").words(words).value()
    }

    /// The error for records that changed since a run or a loader used them.
    pub fn other_content(&self) -> FormatError {
        let mut files = self.files().iter();
        let first = files.next().map(|file| file.path().display().to_string());
        let mut path = first.unwrap_or_default();
        if files.len() > 0 {
            path += &format!(" or one of {} more files", files.len());
        }
        let what = "contains other records than those that were used before; resume with the data as it was, or start again";
        StorageError::new(StorageErrorKind::Changed, path, what).into()
    }
}
