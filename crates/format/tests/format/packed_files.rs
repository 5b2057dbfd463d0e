//! Packed files: round trips, and damage is always found.

use std::path::Path;

use crate::support::{file, options, real, rows};
use pelton_format::raw::{decode_packed_file, mend_packed_file};
use pelton_format::{
    ClassMap, Dataset, IndexCoding, Layout, OpenOptions, PackedCopy, PackedShape, PackedWriter,
    RecordBytes, Row, RowLayout, Rows,
};
use pelton_storage::{AlignedBuffer, RangeRead};
use proptest::prelude::*;
use tempfile::tempdir;

const CODINGS: [IndexCoding; 2] = [IndexCoding::Plain, IndexCoding::VarintDelta];

fn shape(layout: Layout, features: u64, index_coding: IndexCoding) -> PackedShape {
    PackedShape {
        layout,
        features,
        index_coding,
    }
}

/// Writes rows and returns the file's bytes.
fn pack(path: &Path, shape: PackedShape, rows: &Rows, labels: &[f64]) -> Vec<u8> {
    let mut writer = PackedWriter::create(path, shape).unwrap();
    for i in 0..rows.len() {
        writer
            .push(labels[rows.label(i) as usize], rows.row(i))
            .unwrap();
    }
    let summary = writer.finish().unwrap();
    assert_eq!(summary.records, rows.len() as u64);
    assert_eq!(summary.nonzeros, rows.stored_values() as u64);
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(summary.file_bytes, bytes.len() as u64);
    bytes
}

fn check_round_trip(shape: PackedShape, written: &Rows, labels: &[f64]) {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.prow");
    let bytes = pack(&path, shape, written, labels);
    let (again, stored) = decode_packed_file(&bytes).expect("what was written reads");
    let options = OpenOptions {
        labels: Some(ClassMap::new(labels.to_vec())),
        ..options(folder.path())
    };
    let dataset = Dataset::open(&[path], &options).unwrap();
    assert_eq!(dataset.records(), written.len() as u64);
    assert_eq!(dataset.features(), shape.features);
    assert_eq!(dataset.nonzeros(), written.stored_values() as u64);
    assert_eq!(&rows(&dataset).unwrap(), written);
    for i in 0..written.len() {
        assert_eq!(again.row(i), written.row(i));
        assert_eq!(
            stored[again.label(i) as usize],
            labels[written.label(i) as usize]
        );
    }
}

fn small_sparse() -> Rows {
    let mut rows = Rows::new(Layout::Sparse);
    rows.push_sparse(0, &[0, 3, 400], &[1.0, -0.5, 2.0]);
    rows.push_sparse(1, &[], &[]);
    rows.push_sparse(0, &[7], &[1e-20]);
    rows
}

fn small_dense() -> Rows {
    let mut rows = Rows::new(Layout::Dense { width: 3 });
    rows.push_dense(0, &[1.0, 0.0, -2.0]);
    rows.push_dense(1, &[0.5, 3.0, f32::MAX]);
    rows
}

#[test]
fn round_trips() {
    check_round_trip(
        shape(small_dense().layout(), 3, IndexCoding::Plain),
        &small_dense(),
        &[1.0, -1.0],
    );
    for coding in CODINGS {
        check_round_trip(
            shape(Layout::Sparse, 401, coding),
            &small_sparse(),
            &[-1.0, 7.5],
        );
    }
    let mut edge = Rows::new(Layout::Sparse);
    edge.push_sparse(0, &[0, 127, 128, 16_511, u32::MAX - 1, u32::MAX], &[1.0; 6]);
    for coding in CODINGS {
        check_round_trip(shape(Layout::Sparse, 1 << 32, coding), &edge, &[3.0]);
    }
}

#[test]
fn a_dense_row_of_28_features_takes_120_bytes() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.prow");
    let mut rows = Rows::new(Layout::Dense { width: 28 });
    (0..10).for_each(|_| rows.push_dense(0, &[0.5; 28]));
    pack(
        &path,
        shape(rows.layout(), 28, IndexCoding::Plain),
        &rows,
        &[1.0],
    );
    let dataset = Dataset::open(&[path], &options(folder.path())).unwrap();
    assert_eq!(dataset.record_bytes(), RecordBytes::Fixed(120));
    assert_eq!(dataset.index_report().index_bytes, 0);
    assert_eq!(dataset.locate(1).offset - dataset.locate(0).offset, 120);
}

#[test]
fn any_flipped_bit_and_any_cut_is_found() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.prow");
    let mut files = vec![pack(
        &path,
        shape(small_dense().layout(), 3, IndexCoding::Plain),
        &small_dense(),
        &[1.0, -1.0],
    )];
    for coding in CODINGS {
        files.push(pack(
            &path,
            shape(Layout::Sparse, 401, coding),
            &small_sparse(),
            &[-1.0, 7.5],
        ));
    }
    for good in files {
        assert!(decode_packed_file(&good).is_some());
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(decode_packed_file(&bad).is_none(), "bit {bit} of byte {at}");
            }
            assert!(decode_packed_file(&good[..at]).is_none(), "cut at {at}");
            let path = file(folder.path(), "cut.prow", &good[..at]);
            assert!(Dataset::open(&[path], &options(folder.path())).is_err());
        }
        let mut longer = good.clone();
        longer.push(0);
        assert!(decode_packed_file(&longer).is_none());
    }
}

/// Every header field set to every kind of wrong value under a valid checksum: no panic, no large allocation.
#[test]
fn headers_that_lie() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.prow");
    for coding in CODINGS {
        let good = pack(
            &path,
            shape(Layout::Sparse, 401, coding),
            &small_sparse(),
            &[-1.0, 7.5],
        );
        for at in (8..80).step_by(4) {
            for value in [0u32, 1, 2, 3, 0x7fff_ffff, u32::MAX, u32::MAX - 7] {
                let mut bad = good.clone();
                if bad[at..at + 4] == value.to_le_bytes() {
                    continue;
                }
                bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
                let checksum = crc32c::crc32c(&bad[..124]).to_le_bytes();
                bad[124..128].copy_from_slice(&checksum);
                let trailer = bad.len() - 12;
                bad[trailer..trailer + 4].copy_from_slice(&checksum);
                decode_packed_file(&bad);
            }
        }
    }
}

/// Changes every byte under valid checksums: accepted files are consistent, and nothing panics.
#[test]
fn sound_checksums_are_not_enough() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.prow");
    for coding in CODINGS {
        let shape = shape(Layout::Sparse, 401, coding);
        let good = pack(&path, shape, &small_sparse(), &[-1.0, 7.5]);
        let mut same = good.clone();
        mend_packed_file(&mut same);
        assert_eq!(same, good);
        let mut accepted = 0;
        for at in 12..good.len() - 12 {
            for value in [0, 1, 0x7f, 0x80, 0xff, good[at] ^ 0x10] {
                let mut bad = good.clone();
                bad[at] = value;
                mend_packed_file(&mut bad);
                let Some((rows, labels)) = decode_packed_file(&bad) else {
                    continue;
                };
                accepted += 1;
                for i in 0..rows.len() {
                    let Row::Sparse { indices, values } = rows.row(i) else {
                        panic!("sparse rows");
                    };
                    assert!(indices.is_sorted_by(|a, b| a < b));
                    assert!(values.iter().all(|value| value.is_finite()));
                    assert!((rows.label(i) as usize) < labels.len());
                }
            }
        }
        // Values and labels may be anything finite, so some changes make another sound file.
        assert!(accepted > 0);
    }
}

#[test]
fn errors_name_file_record_and_remedy() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.prow");
    let mut bytes = pack(
        &path,
        shape(small_dense().layout(), 3, IndexCoding::Plain),
        &small_dense(),
        &[1.0, -1.0],
    );
    bytes[128 + 20 + 9] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    let dataset = Dataset::open(std::slice::from_ref(&path), &options(folder.path())).unwrap();
    let error = rows(&dataset).unwrap_err().to_string();
    assert!(
        error.contains("x.prow: record 1 at byte 148: its checksum is"),
        "{error}"
    );
    let mut newer = bytes.clone();
    newer[8] = 9;
    let checksum = crc32c::crc32c(&newer[..124]).to_le_bytes();
    newer[124..128].copy_from_slice(&checksum);
    std::fs::write(&path, &newer).unwrap();
    let error = Dataset::open(std::slice::from_ref(&path), &options(folder.path())).unwrap_err();
    let what = "x.prow: is packed in version 9, and this program reads version 1";
    assert!(error.to_string().contains(what), "{error}");
    std::fs::write(&path, &bytes[..100]).unwrap();
    let error = Dataset::open(&[path], &options(folder.path())).unwrap_err();
    let what = "x.prow: byte 100: the file is damaged: the file ends inside its header";
    assert!(error.to_string().contains(what), "{error}");
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.prow");
    let mut writer =
        PackedWriter::create(&path, shape(Layout::Sparse, 4, IndexCoding::Plain)).unwrap();
    for (indices, values) in [
        (&[4u32][..], &[1.0f32][..]),
        (&[1, 1], &[1.0, 1.0]),
        (&[2, 1], &[1.0, 1.0]),
        (&[2], &[f32::NAN]),
        (&[2], &[]),
    ] {
        let refused = writer
            .push(1.0, Row::Sparse { indices, values })
            .unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("x.prow: row 0 cannot be packed"),
            "{refused}"
        );
    }
    assert!(writer.push(1.0, Row::Dense(&[1.0; 4])).is_err());
    assert!(
        writer
            .push(
                f64::INFINITY,
                Row::Sparse {
                    indices: &[],
                    values: &[]
                }
            )
            .is_err()
    );
    let empty = writer.finish().unwrap_err().to_string();
    assert!(empty.contains("x.prow: holds no records"), "{empty}");
    // Nothing is left behind, not even a temporary file.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn real_sparse_data_survives_packing() {
    let Some(path) = real("libsvm/a9a") else {
        return;
    };
    let folder = tempdir().unwrap();
    let text = Dataset::open(&[path], &options(folder.path())).unwrap();
    let expected = rows(&text).unwrap();
    for coding in CODINGS {
        let path = folder.path().join("a9a.prow");
        pack(
            &path,
            shape(Layout::Sparse, 123, coding),
            &expected,
            text.labels().values(),
        );
        let packed = Dataset::open(&[path], &options(folder.path())).unwrap();
        assert_eq!(packed.labels(), text.labels());
        assert_eq!((packed.records(), packed.nonzeros()), (32_561, 451_592));
        assert!(packed.index_report().bytes_per_record <= 2.5);
        assert_eq!(rows(&packed).unwrap(), expected);
    }
}

proptest! {
    #[test]
    fn any_sparse_rows(
        table in prop::collection::vec((0u32..3, prop::collection::btree_map(0u32..100_000, -1e9f32..1e9, 0..20)), 1..40),
        varint in any::<bool>(),
    ) {
        let mut rows = Rows::new(Layout::Sparse);
        for (label, entries) in &table {
            let (indices, values): (Vec<u32>, Vec<f32>) = entries.iter().map(|(i, v)| (*i, *v)).unzip();
            rows.push_sparse(*label, &indices, &values);
        }
        check_round_trip(shape(Layout::Sparse, 100_000, CODINGS[usize::from(varint)]), &rows, &[0.0, 1.0, -3.5]);
    }

    #[test]
    fn noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decode_packed_file(&bytes).is_none());
    }
}

/// The bytes of a record, read as batches are.
fn bytes_of(dataset: &Dataset, id: u64) -> Vec<u8> {
    let place = dataset.locate(id);
    let storage = dataset.files()[place.file as usize].storage();
    let unit = storage.granularity().offset_bytes as u64;
    let start = place.offset - place.offset % unit;
    let end = (place.offset + place.length).next_multiple_of(unit);
    let mut buffer = AlignedBuffer::with_capacity(4096, 0);
    buffer.resize((end - start) as usize, 0);
    let mut reads = [RangeRead {
        offset: start,
        buffer: &mut buffer,
        filled: 0,
    }];
    storage.read_batch(&mut reads).unwrap();
    let from = (place.offset - start) as usize;
    buffer[from..from + place.length as usize].to_vec()
}

/// A copy has the ids of its files, also of records that cannot be read.
#[test]
fn a_copy_in_a_scratch_file_is_the_same_data() {
    let check = |texts: [&str; 2], rows_as: RowLayout, bad: &[u64]| {
        let folder = tempdir().unwrap();
        let paths = [("a.svm", texts[0]), ("b.svm", texts[1])]
            .map(|(name, text)| file(folder.path(), name, text));
        let options = OpenOptions {
            rows: rows_as,
            ..options(folder.path())
        };
        let dataset = Dataset::open(&paths, &options).unwrap();
        let decode = |dataset: &Dataset, id| {
            let mut rows = Rows::new(dataset.layout());
            let decoded = dataset.decode(id, &bytes_of(dataset, id), &mut rows);
            decoded.map(|()| rows).ok()
        };
        let mut copy = PackedCopy::create(&dataset, folder.path()).unwrap();
        for id in 0..dataset.records() {
            if let Some(rows) = decode(&dataset, id) {
                copy.push(id, rows.label(0), rows.row(0)).unwrap();
            }
        }
        let copy = copy.finish().unwrap();
        assert_eq!(copy.fingerprint(), dataset.fingerprint());
        assert_eq!(copy.records(), dataset.records());
        assert_eq!(copy.layout(), dataset.layout());
        assert_eq!(Some(copy.bytes()), PackedCopy::bytes_for(&dataset));
        for id in 0..dataset.records() {
            assert_eq!(decode(&copy, id), decode(&dataset, id), "record {id}");
            assert_eq!(decode(&copy, id).is_none(), bad.contains(&id));
        }
        // Nothing is left behind.
        let left = std::fs::read_dir(folder.path()).unwrap();
        let scratch = |name: std::ffi::OsString| name.to_string_lossy().contains("scratch");
        assert!(!left.flatten().any(|entry| scratch(entry.file_name())));
    };
    let (full, holes) = ("3 1:1 2:2\n5 1:0.5 2:4\n", "5 1:9\n3\n5 2:7\n");
    for rows in [RowLayout::Stored, RowLayout::Dense] {
        check([full, holes], rows, &[]);
        check([holes, full], rows, &[]);
    }
    let first = "3 1:x 2:2\n5 1:1 2:2\n";
    check([first, "5 1:1 2:2\n3 1:1 2:z\n"], RowLayout::Dense, &[0, 3]);
}
