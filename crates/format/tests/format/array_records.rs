//! ArrayRecord files: those that the library wrote, and those written by hand with every fault.

use std::io::Read;
use std::path::{Path, PathBuf};

use pelton_batch::DType;
use pelton_format::{Dataset, IndexSource, Rows};
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use crate::support::array_record::{Written, number, simple};
use crate::support::fields::{open, records, refuses, shown, with};
use crate::support::tfrecord::{Values, example, field, integer};
use crate::support::{self, file};

/// A fixture, which is kept compressed because half of it is 64 KiB of zeros.
fn fixture(folder: &TempDir, name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let packed = std::fs::File::open(fixtures.join(format!("{name}.array_record.gz"))).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed)
        .read_to_end(&mut bytes)
        .unwrap();
    file(folder.path(), &format!("{name}.array_record"), bytes)
}

fn fault(dataset: &Dataset, id: u64) -> String {
    let mut rows = Rows::new(dataset.layout());
    let decoded = dataset.decode(id, &support::record(dataset, id), &mut rows);
    decoded.unwrap_err().to_string()
}

/// The fixtures are written by array_record 0.8.6:
///
/// ```python
/// import gzip
/// from array_record.python.array_record_module import ArrayRecordWriter
///
/// def record(i):
///     return bytes((i * 7 + j // 50) % 251 for j in range([0, 1, 1000, 100_000, 200_000][i % 5]))
///
/// for name, options in [
///     ("default", ""),
///     ("plain", "group_size:1,uncompressed"),
///     ("grouped", "group_size:4"),
///     ("brotli", "group_size:1,brotli"),
///     ("snappy", "group_size:1,snappy"),
///     ("transposed", "group_size:1,transpose"),
/// ]:
///     path = name + ".array_record"
///     writer = ArrayRecordWriter(path, options)
///     for i in range(10):
///         writer.write(record(i))
///     writer.close()
///     with open(path, "rb") as file, gzip.GzipFile(path + ".gz", "wb", mtime=0) as packed:
///         packed.write(file.read())
/// ```
#[test]
fn files_that_the_library_wrote() {
    let folder = tempdir().unwrap();
    for name in ["default", "plain"] {
        let path = fixture(&folder, name);
        let dataset = open(&path, &with(&folder, None, None)).unwrap();
        assert_eq!(dataset.index_report().source, IndexSource::Arithmetic);
        assert_eq!(dataset.files()[0].kind().to_string(), "array_record");
        let expected: Vec<_> = (0..10)
            .map(|i| {
                let length = [0, 1, 1000, 100_000, 200_000][i % 5];
                let bytes: Vec<u8> = (0..length)
                    .map(|j| ((i * 7 + j / 50) % 251) as u8)
                    .collect();
                (
                    vec![shown("bytes", None, &[length], &bytes)],
                    "0".to_owned(),
                )
            })
            .collect();
        assert_eq!(records(&dataset), expected);
    }
    let check = |name: &str, message: &str| {
        let path = fixture(&folder, name);
        refuses(&path, &with(&folder, None, None), message);
    };
    check(
        "grouped",
        "byte 64: 4 records are one group there; write the file with group_size:1",
    );
    check(
        "brotli",
        "its footer: its records are compressed by Brotli, which is not read; write the file with zstd or uncompressed",
    );
    check("snappy", "compressed by Snappy");
    check(
        "transposed",
        "byte 64: its records are transposed, which is not read; write the file without transpose",
    );
}

#[test]
fn examples() {
    let folder = tempdir().unwrap();
    for zstd in [false, true] {
        let mut written = Written::new();
        for i in 0..100i64 {
            let features = [
                ("label", integer(i % 3)),
                ("x", Values::Integers((0..i % 5).collect())),
            ];
            written.records(&[example(&features)], zstd);
        }
        let path = file(folder.path(), "data", written.finish(zstd));
        for source in [IndexSource::Built, IndexSource::Sidecar] {
            let dataset = open(&path, &with(&folder, None, None)).unwrap();
            assert_eq!(dataset.index_report().source, source);
            let found = records(&dataset);
            for (i, (fields, label)) in found.iter().enumerate() {
                let x: Vec<u8> = (0..i as i64 % 5).flat_map(|n| n.to_le_bytes()).collect();
                assert_eq!(fields, &[shown("x", Some(DType::I64), &[i % 5], &x)]);
                assert_eq!(*label, (i % 3).to_string());
            }
        }
        let bytes = open(&path, &with(&folder, Some("array_record:bytes"), None)).unwrap();
        assert_eq!(records(&bytes)[1].0[0].0, "bytes");
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn damage() {
    let folder = tempdir().unwrap();
    let all = [b"one".to_vec(), vec![7; 300], b"three".to_vec()];
    let write = |zstd: bool| {
        let mut written = Written::new();
        all.iter()
            .for_each(|record| written.records(std::slice::from_ref(record), zstd));
        written
    };
    let refuses = |bytes: &[u8], message: &str| {
        let path = file(folder.path(), "bad.array_record", bytes);
        refuses(&path, &with(&folder, None, None), message);
    };
    for zstd in [false, true] {
        let written = write(zstd);
        let at = written.entries[1][0] as usize;
        let whole = written.finish(zstd);
        let damaged = |at: usize| {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x11;
            file(folder.path(), "damaged.array_record", bytes)
        };
        for (byte, what) in [
            (at + 9, "header does not fit"),
            (at + 45, "its chunk does not fit"),
        ] {
            let dataset = open(&damaged(byte), &with(&folder, None, None)).unwrap();
            let found = fault(&dataset, 1);
            let place = format!("damaged.array_record: record 1 at byte {at}: the checksum of ");
            assert!(found.contains(&place) && found.contains(what), "{found}");
            assert!(found.ends_with("fetch it again"), "{found}");
            let mut rows = Rows::new(dataset.layout());
            for id in [0, 2] {
                dataset
                    .decode(id, &support::record(&dataset, id), &mut rows)
                    .unwrap();
            }
        }
        // The first record may be damaged, but not all.
        open(&damaged(64 + 45), &with(&folder, None, None)).unwrap();
        // Any byte may change, and the file may end anywhere.
        for byte in (0..600).chain(whole.len() - 65536..whole.len() - 65536 + 150) {
            if let Ok(dataset) = open(&damaged(byte), &with(&folder, None, None)) {
                assert_eq!(dataset.records(), 3);
            }
        }
        for cut in [
            1,
            100,
            65535,
            65536,
            65537,
            whole.len() - 65536,
            whole.len() - 1,
        ] {
            let path = file(folder.path(), "cut.array_record", &whole[..cut]);
            assert!(open(&path, &with(&folder, None, None)).is_err(), "{cut}");
        }
    }
    let whole = write(false).finish(false);
    refuses(&whole[..1000], "it has not the 64 KiB of any ArrayRecord");
    refuses(
        &whole[..whole.len() - 1],
        "byte 65535: it does not end in a postscript; the file is damaged or not written to its end",
    );
    refuses(&Written::new().finish(true), "holds no records");
    // Inconsistent footers.
    let footer = |change: &dyn Fn(&mut Written), message: &str| {
        let mut written = write(false);
        change(&mut written);
        refuses(&written.finish(true), message);
    };
    footer(
        &|file| file.entries.swap(0, 1),
        "chunks do not lie one after another",
    );
    footer(
        &|file| file.entries[2][0] = 1 << 40,
        "chunks do not lie one after another",
    );
    footer(
        &|file| file.entries[1][1] = u64::MAX,
        "its chunks are too long",
    );
    footer(&|file| file.entries[1][2] = 0, "0 records are one group");
    let metadata =
        |version: u64, count: u64| field(1, &[number(1, version), number(2, count)].concat());
    let with_metadata = |metadata: Vec<u8>, message: &str| {
        refuses(&write(false).finish_with(metadata, false), message);
    };
    with_metadata(
        metadata(2, 3),
        "its footer: it is of another version; update this program",
    );
    with_metadata(metadata(1, 4), "it has not as many entries as it says");
    with_metadata(b"none".to_vec(), "its metadata are none");
    // Chunks of records with false headers.
    let chunk = |kind: u8, count: u64, bytes: u64, data: &[u8], message: &str| {
        let mut file = Written::new();
        let at = file.chunk(kind, count, bytes, data);
        file.entries.push([at, 0, 1]);
        refuses(&file.finish(true), message);
    };
    let one = |zstd| simple(&[b"abc".to_vec()], zstd);
    chunk(b'x', 1, 3, &one(false), "its chunk holds no records");
    chunk(b'r', 2, 3, &one(false), "its chunk has not one record");
    chunk(
        b'r',
        1,
        4,
        &one(false),
        "its records have not the length that its chunk states",
    );
    chunk(
        b'r',
        1,
        2,
        &one(true),
        "its records are longer than its chunk states, or than 1 GiB",
    );
    chunk(
        b'r',
        1,
        1 << 60,
        &one(false),
        "its records have not the length",
    );
    chunk(b'r', 1, 3, &[b'q', 1, 3], "compressed in no known way");
    chunk(b'r', 1, 3, &[], "its chunk is cut off");
    chunk(b'r', 1, 3, &[0, 9, 1], "its chunk is cut off");
    let mut packed = one(true);
    *packed.last_mut().unwrap() ^= 0xff;
    packed.truncate(packed.len() - 2);
    chunk(b'r', 1, 3, &packed, "its compressed records are damaged");
    let huge = [&[b'z', 1, 0][..], &[0xff, 0xff, 0xff, 0xff, 3], &packed].concat();
    chunk(
        b'r',
        1,
        1 << 30,
        &huge,
        "its compressed records are damaged",
    );
    let beyond = [
        &[b'z', 1, 0][..],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 3],
        &packed,
    ]
    .concat();
    chunk(
        b'r',
        1,
        1 << 60,
        &beyond,
        "longer than its chunk states, or than 1 GiB",
    );
    // A footer of more entries than there can be chunks.
    let mut file = Written::new();
    let at = file.chunk(b'r', 1 << 50, 3, &one(false));
    file.entries.push([at, 3, 1]);
    refuses(&file.finish(false), "its chunk has not one record");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Chunks that begin and end anywhere between block headers.
    #[test]
    fn what_is_written_is_read(
        lengths in prop::collection::vec(prop_oneof![0usize..300, 60_000usize..70_000, 130_000usize..135_000], 1..12),
        seed in any::<u64>(), zstd in any::<bool>(),
    ) {
        let folder = tempdir().unwrap();
        let mut state = seed;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let all: Vec<Vec<u8>> = lengths.iter().map(|length| (0..*length).map(|_| byte()).collect()).collect();
        let mut written = Written::new();
        all.iter().for_each(|record| written.records(std::slice::from_ref(record), zstd));
        let path = file(folder.path(), "x.array_record", written.finish(zstd));
        let dataset = open(&path, &with(&folder, None, None)).unwrap();
        for ((fields, _), record) in records(&dataset).iter().zip(&all) {
            prop_assert_eq!(fields, &[shown("bytes", None, &[record.len()], record)]);
        }
    }
}
