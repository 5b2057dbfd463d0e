//! Writes IDX files, which appear only when complete.

use std::io::{self, BufWriter, Write};

use pelton_storage::WholeFile;

/// IDX's codes of bytes, and of numbers of 4 bytes, the highest first.
const BYTES: u8 = 0x08;
const INTEGERS: u8 = 0x0c;

/// An IDX file being written. Dropped before [`IdxWriter::finish`], it is deleted.
#[derive(Debug)]
pub struct IdxWriter {
    out: BufWriter<WholeFile>,
    /// Bytes that the header promises and that are still to be written.
    left: u64,
}

impl IdxWriter {
    /// A file of this many pictures of bytes, of these sizes: height, width, and channels if there are several.
    pub fn pictures(file: WholeFile, count: u32, sizes: &[u32]) -> io::Result<IdxWriter> {
        IdxWriter::start(file, BYTES, count, sizes, 1)
    }

    /// A file of this many labels.
    pub fn labels(file: WholeFile, count: u32) -> io::Result<IdxWriter> {
        IdxWriter::start(file, INTEGERS, count, &[], 4)
    }

    fn start(
        file: WholeFile,
        kind: u8,
        count: u32,
        sizes: &[u32],
        bytes: u64,
    ) -> io::Result<IdxWriter> {
        let mut header = vec![0, 0, kind, 1 + sizes.len() as u8];
        let all = std::iter::once(&count).chain(sizes);
        header.extend(all.clone().flat_map(|size| size.to_be_bytes()));
        let data = all.map(|&size| u64::from(size)).product::<u64>() * bytes;
        let mut writer = IdxWriter {
            out: BufWriter::with_capacity(1 << 20, file),
            left: header.len() as u64 + data,
        };
        writer.write(&header)?;
        Ok(writer)
    }

    /// Appends pixels. Panics if they exceed the announced size.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.expect("as many records as announced");
        self.out.write_all(bytes)
    }

    /// Appends a label. Panics if it exceeds the announced count.
    pub fn label(&mut self, label: i32) -> io::Result<()> {
        self.write(&label.to_be_bytes())
    }

    /// Gives the file its name, replacing an existing file. Panics if records are missing.
    pub fn finish(self) -> io::Result<()> {
        assert_eq!(self.left, 0, "bytes of records missing");
        let file = self.out.into_inner().map_err(|error| error.into_error())?;
        file.publish()
    }
}

#[cfg(test)]
mod tests {
    use pelton_format::{Dataset, InPlaceClass, OpenOptions};

    use super::*;

    /// Reads back pictures and labels, and the names of the classes if a file of them is next to the data.
    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let started = |name: &str| WholeFile::create(at(name)).expect("a file");
        let labels = [70_000, 2, 70_000];
        let mut pictures =
            IdxWriter::pictures(started("a-images.idx"), 3, &[2, 2]).expect("a file");
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
                InPlaceClass::Known(class) => class,
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
