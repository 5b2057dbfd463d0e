//! Writes ArrayRecord files by hand, so that tests have every fault. Block headers are zeros, because readers skip
//! them.

use highway::{HighwayHash, HighwayHasher, Key};

use super::tfrecord::{field, varint};

const BLOCK: usize = 64 << 10;

fn hash(bytes: &[u8]) -> [u8; 8] {
    let halves = [b"Riegeli/", b"records\n"].map(|text| u64::from_le_bytes(*text));
    let key = Key([halves[0], halves[1], halves[0], halves[1]]);
    HighwayHasher::new(key).hash64(bytes).to_le_bytes()
}

/// A field of a message that is a number.
pub fn number(field: u8, value: u64) -> Vec<u8> {
    [&[field << 3][..], &varint(value)].concat()
}

/// The data of a chunk of records.
pub fn simple(records: &[Vec<u8>], zstd: bool) -> Vec<u8> {
    let packed = |bytes: Vec<u8>| {
        if zstd {
            let packed = zstd::bulk::compress(&bytes, 3).unwrap();
            [varint(bytes.len() as u64), packed].concat()
        } else {
            bytes
        }
    };
    let sizes = records
        .iter()
        .flat_map(|record| varint(record.len() as u64));
    let sizes = packed(sizes.collect());
    let compression = if zstd { b'z' } else { 0 };
    let head = [&[compression][..], &varint(sizes.len() as u64), &sizes].concat();
    [head, packed(records.concat())].concat()
}

/// A file as it is written.
#[derive(Default)]
pub struct Written {
    pub bytes: Vec<u8>,
    /// Entries of the footer: offset of a chunk, bytes and count of its records.
    pub entries: Vec<[u64; 3]>,
}

impl Written {
    /// A file that begins with the signature.
    pub fn new() -> Written {
        let mut file = Written::default();
        file.chunk(b's', 0, 0, &[]);
        file
    }

    fn put(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.bytes.len().is_multiple_of(BLOCK) {
                self.bytes.extend([0; 24]);
            }
            self.bytes.push(*byte);
        }
    }

    /// Appends a chunk; returns its offset.
    pub fn chunk(&mut self, kind: u8, records: u64, record_bytes: u64, data: &[u8]) -> u64 {
        let at = self.bytes.len() as u64;
        let words = [
            (data.len() as u64).to_le_bytes(),
            hash(data),
            (records << 8 | u64::from(kind)).to_le_bytes(),
            record_bytes.to_le_bytes(),
        ];
        let header = words.concat();
        self.put(&hash(&header));
        self.put(&header);
        self.put(data);
        at
    }

    /// Appends a chunk of records, and its entry.
    pub fn records(&mut self, records: &[Vec<u8>], zstd: bool) {
        let bytes = records.iter().map(|record| record.len() as u64).sum();
        let count = records.len() as u64;
        let at = self.chunk(b'r', count, bytes, &simple(records, zstd));
        self.entries.push([at, bytes, count]);
    }

    /// With the footer and the postscript.
    pub fn finish(self, zstd: bool) -> Vec<u8> {
        let count = self.entries.len() as u64;
        let metadata = [number(1, 1), number(2, count), number(3, count)].concat();
        let metadata = field(1, &[metadata, field(4, b"options")].concat());
        self.finish_with(metadata, zstd)
    }

    /// The same, with other metadata.
    pub fn finish_with(mut self, metadata: Vec<u8>, zstd: bool) -> Vec<u8> {
        let entry = |[at, bytes, records]: &[u64; 3]| {
            [number(1, *at), number(2, *bytes), number(3, *records)].concat()
        };
        let all: Vec<Vec<u8>> = [metadata]
            .into_iter()
            .chain(self.entries.iter().map(entry))
            .collect();
        let bytes = all.iter().map(|record| record.len() as u64).sum();
        let footer = self.chunk(b'r', all.len() as u64, bytes, &simple(&all, zstd));
        self.bytes
            .resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        let postscript = [number(1, footer), number(2, 0x7193_0e70_4fda_e05e)].concat();
        let bytes = 3 * postscript.len() as u64;
        self.chunk(
            b'r',
            3,
            bytes,
            &simple(&[postscript.clone(), postscript.clone(), postscript], false),
        );
        self.bytes
            .resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        self.bytes
    }
}
