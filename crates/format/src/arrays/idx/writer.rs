//! Writes IDX files, which appear only when complete.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use pelton_storage::WholeFile;

use crate::arrays::idx::INTEGERS;
use crate::record::error::FormatError;

/// An IDX file being written. Dropped before [`IdxWriter::finish`], it is deleted.
#[derive(Debug)]
pub struct IdxWriter {
    path: PathBuf,
    out: BufWriter<WholeFile>,
    /// Bytes that the header promises and that are still to be written.
    left: u64,
}

impl IdxWriter {
    /// A file of this many pictures of bytes, of this height and width.
    pub fn pictures(
        file: WholeFile,
        count: u32,
        [height, width]: [u32; 2],
    ) -> Result<IdxWriter, FormatError> {
        let bytes = u64::from(count) * u64::from(height) * u64::from(width);
        IdxWriter::start(file, 8, &[count, height, width], bytes)
    }

    /// A file of this many labels.
    pub fn labels(file: WholeFile, count: u32) -> Result<IdxWriter, FormatError> {
        IdxWriter::start(file, INTEGERS, &[count], 4 * u64::from(count))
    }

    fn start(
        file: WholeFile,
        kind: u8,
        sizes: &[u32],
        bytes: u64,
    ) -> Result<IdxWriter, FormatError> {
        let mut header = vec![0, 0, kind, sizes.len() as u8];
        header.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
        let mut writer = IdxWriter {
            path: file.path().to_path_buf(),
            out: BufWriter::with_capacity(1 << 20, file),
            left: bytes + header.len() as u64,
        };
        writer.write(&header)?;
        Ok(writer)
    }

    /// Appends pixels. Panics if they exceed the announced size.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.expect("as many records as announced");
        self.out.write_all(bytes).map_err(|e| self.failed(e))
    }

    /// Appends a label. Panics if it exceeds the announced count.
    pub fn label(&mut self, label: i32) -> Result<(), FormatError> {
        self.write(&label.to_be_bytes())
    }

    /// Gives the file its name, replacing an existing file. Panics if records are missing.
    pub fn finish(self) -> Result<(), FormatError> {
        assert_eq!(self.left, 0, "bytes of records missing");
        let failed = |e: io::Error| FormatError::io(&self.path, "write it", e);
        let file = self.out.into_inner().map_err(|e| failed(e.into_error()))?;
        file.publish().map_err(failed)
    }

    fn failed(&self, error: io::Error) -> FormatError {
        FormatError::io(&self.path, "write it", error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dataset, OpenOptions};

    /// Reads back pictures and labels, and the names of the classes if a file of them is next to the data.
    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let started = |name: &str| WholeFile::create(at(name)).expect("a file");
        let labels = [70_000, 2, 70_000];
        let mut pictures = IdxWriter::pictures(started("a-images.idx"), 3, [2, 2]).expect("a file");
        let mut numbers = IdxWriter::labels(started("a-labels.idx"), 3).expect("a file");
        for (i, label) in (0..).zip(labels) {
            pictures.write(&[i; 4]).expect("written");
            numbers.label(label).expect("written");
        }
        assert!(!at("a-images.idx").exists(), "it appears whole");
        pictures.finish().expect("whole");
        numbers.finish().expect("whole");
        let classes = || {
            let opened = Dataset::open(&[at("a-images.idx")], &OpenOptions::default());
            let dataset = opened.expect("an IDX file");
            assert!(dataset.reads_in_place());
            let class = |id| match dataset
                .in_place(id)
                .expect("a class")
                .expect("in place")
                .class
            {
                crate::InPlaceClass::Known(class) => class,
                class => panic!("{class:?}"),
            };
            let classes: Vec<u32> = (0..3).map(class).collect();
            (
                dataset.labels().values().to_vec(),
                dataset.labels().names().to_vec(),
                classes,
            )
        };
        assert_eq!(classes(), (vec![2.0, 70_000.0], vec![], vec![1, 0, 1]));
        // Fewer names than the largest label are ignored.
        std::fs::write(at("a-names.txt"), "a\nb\nc\n").expect("written");
        assert_eq!(classes().1, Vec::<String>::new());
        let names: Vec<String> = (0..=70_000).map(|i| format!("{i:05}")).collect();
        std::fs::write(at("a-names.txt"), names.join("\n")).expect("written");
        let (values, found, of_records) = classes();
        assert_eq!((values.len(), found == names), (70_001, true));
        assert_eq!(of_records, [70_000, 2, 70_000]);
    }
}
