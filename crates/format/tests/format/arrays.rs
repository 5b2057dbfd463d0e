//! Records of named arrays: raw records, `.npy` of any rank and `.npz`.

use std::io::Write;

use crate::support::fields::{open, records, refuses, shown, with};
use crate::support::{file, rows};
use pelton_batch::DType;
use pelton_format::{Dataset, IndexSource, LabelColumn, OpenOptions};
use tempfile::tempdir;

#[test]
fn raw_records_of_several_files() {
    let folder = tempdir().unwrap();
    let record = |i: u8| [&[i; 6][..], &u32::from(i).to_le_bytes(), &[3 - i]].concat();
    let first = file(
        folder.path(),
        "a.bin",
        [b"head".to_vec(), record(0), record(1)].concat(),
    );
    let second = file(
        folder.path(),
        "b.bin",
        [b"head".to_vec(), record(2)].concat(),
    );
    let spelling = "raw:header[4],image:u8[2,3],u32,label:u8";
    let dataset = Dataset::open(
        &[first.clone(), second],
        &with(&folder, Some(spelling), None),
    )
    .unwrap();
    let expected = |i: u8| {
        let image = shown("image", Some(DType::U8), &[2, 3], &[i; 6]);
        let number = u32::from(i).to_le_bytes();
        let number = shown("data2", Some(DType::U32), &[], &number);
        (vec![image, number], (3 - i).to_string())
    };
    assert_eq!(records(&dataset), [expected(0), expected(1), expected(2)]);
    assert_eq!(dataset.files()[0].kind().to_string(), spelling);
    assert_eq!(dataset.labels().values(), [1.0, 2.0, 3.0]);
    // Without a label all records are of one class.
    let pad = with(&folder, Some("raw:header[4],u8[6],pad[5]"), None);
    let plain = open(&first, &pad).unwrap();
    assert_eq!(
        records(&plain)[1].0,
        [shown("data", Some(DType::U8), &[6], &[1; 6])]
    );
    assert_ne!(plain.fingerprint(), dataset.fingerprint());
    let other = with(
        &folder,
        Some("raw:header[4],u8[10],class:u8"),
        Some("class"),
    );
    assert_eq!(open(&first, &other).unwrap().labels().values(), [2.0, 3.0]);

    refuses(
        &first,
        &with(&folder, Some("raw:u8[7]"), None),
        "are not records of 7 bytes",
    );
    refuses(
        &first,
        &with(&folder, Some("raw:header[99],u8"), None),
        "its 0 bytes after the header are not records",
    );
    let no_label = with(&folder, Some("raw:header[4],u8[10],class:u8"), Some("x"));
    refuses(&first, &no_label, "its columns are data, class");
    let an_array = with(&folder, Some("raw:header[4],u8,label:u8[10]"), None);
    refuses(&first, &an_array, "one number each");
    let features = OpenOptions {
        features_only: true,
        ..with(&folder, Some(spelling), None)
    };
    refuses(&first, &features, "contains bytes");
    let two = [
        first.clone(),
        file(folder.path(), "c.jsonl", "{\"a\": 1}\n"),
    ];
    let mixed = Dataset::open(&two, &with(&folder, None, None)).unwrap_err();
    let mixed = mixed.to_string();
    assert!(mixed.contains("a.bin: is in no known format"), "{mixed}");
    let bad = [&[0u8; 4][..], &f32::NAN.to_le_bytes()].concat();
    let bad = file(folder.path(), "nan.bin", bad);
    let nan = open(&bad, &with(&folder, Some("raw:u8[4],label:f32"), None)).unwrap();
    assert!(rows(&nan).unwrap_err().to_string().contains("NaN"));
}

#[test]
fn tens_of_millions_of_classes() {
    let folder = tempdir().unwrap();
    let count = (1u32 << 24) + 9;
    let bytes: Vec<u8> = (0..count)
        .rev()
        .flat_map(|class| [class.to_le_bytes(), [7; 4]].concat())
        .collect();
    let path = file(folder.path(), "x.bin", bytes);
    let dataset = open(&path, &with(&folder, Some("raw:label:u32,u8[4]"), None)).unwrap();
    assert_eq!(dataset.labels().len(), count as usize);
    assert!(dataset.labels().is_count());
    let mut rows = pelton_format::Rows::new(dataset.layout());
    for id in [0, 5, dataset.records() - 1] {
        dataset
            .decode(id, &crate::support::record(&dataset, id), &mut rows)
            .unwrap();
    }
    assert_eq!([0, 1, 2].map(|i| rows.label(i)), [count - 1, count - 6, 0]);
}

/// An `.npy` file.
pub fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\0", &length[..], header.as_bytes(), data].concat()
}

#[test]
fn arrays_of_any_rank() {
    let folder = tempdir().unwrap();
    let data: Vec<u8> = (0..24).collect();
    let check = |descr: &str, shape: &str, dtype: DType, dims: &[usize], count: usize| {
        let path = file(folder.path(), "x.npy", npy(descr, shape, &data));
        let dataset = open(&path, &with(&folder, None, None)).unwrap();
        let found = records(&dataset);
        assert_eq!(found.len(), count);
        for (record, row) in found.iter().zip(data.chunks(24 / count)) {
            assert_eq!(record.0, [shown("data", Some(dtype), dims, row)]);
        }
    };
    check("|u1", "(4, 2, 3)", DType::U8, &[2, 3], 4);
    check("|u1", "(8, 3)", DType::U8, &[3], 8);
    check("<f4", "(6,)", DType::F32, &[], 6);
    check("<f2", "(2, 6)", DType::F16, &[6], 2);
    check("|i1", "(3, 8)", DType::I8, &[8], 3);
    check("<i2", "(4, 3)", DType::I16, &[3], 4);
    check("<u2", "(12,)", DType::U16, &[], 12);
    check("<f8", "(3, 1, 1)", DType::F64, &[1, 1], 3);
    let bad = |descr: &str, shape: &str, message: &str| {
        let path = file(folder.path(), "bad.npy", npy(descr, shape, &data));
        refuses(&path, &with(&folder, None, None), message);
    };
    bad("|u1", "()", "a single number does not fill");
    bad(
        "|u1",
        "(5, 5, 1)",
        "an array of 5 × 5 × 1 numbers does not fill",
    );
    bad("<f4", "(5, 5)", "a matrix of 5 × 5 numbers does not fill");
    bad("<c8", "(3,)", "its numbers are \"<c8\"");
    let path = file(folder.path(), "one.npy", npy("|u1", "(4, 2, 3)", &data));
    let features = OpenOptions {
        features_only: true,
        ..with(&folder, None, None)
    };
    refuses(&path, &features, "3 dimensions of uint8");
    // A matrix; without `whole_arrays` its last column would be the label.
    let path = file(folder.path(), "matrix.npy", npy("<f4", "(2, 3)", &data));
    let whole = OpenOptions {
        whole_arrays: true,
        ..with(&folder, None, None)
    };
    let rows = data.chunks(12);
    let expected = rows.map(|row| [shown("data", Some(DType::F32), &[3], row)]);
    let found = records(&open(&path, &whole).unwrap());
    assert!(found.into_iter().map(|record| record.0).eq(expected));
}

/// A zip file of entries that are stored, deflated (method 8), or claim another compression.
pub fn zip(entries: &[(&str, Vec<u8>)], method: u16) -> Vec<u8> {
    let (mut bytes, mut table) = (Vec::new(), Vec::new());
    for (name, data) in entries {
        let start = bytes.len() as u32;
        let packed = match method {
            8 => {
                let level = flate2::Compression::default();
                let mut packed = flate2::write::DeflateEncoder::new(Vec::new(), level);
                packed.write_all(data).unwrap();
                packed.finish().unwrap()
            }
            _ => data.clone(),
        };
        let crc = crc32fast::hash(data).to_le_bytes();
        let sizes = [packed.len(), data.len()].map(|n| (n as u32).to_le_bytes());
        let common = [
            &[20, 0, 0, 0][..],
            &method.to_le_bytes(),
            &[0; 4],
            &crc,
            &sizes.concat(),
        ]
        .concat();
        let name_bytes = (name.len() as u16).to_le_bytes();
        // As NumPy writes them: 20 bytes of an extra field, which the table does not have.
        bytes.extend(b"PK\x03\x04");
        bytes.extend([&common[..], &name_bytes, &[20, 0], name.as_bytes()].concat());
        bytes.extend([&[1, 0, 16, 0][..], &[0; 16]].concat());
        bytes.extend(packed);
        table.extend(b"PK\x01\x02\x14\0");
        table.extend([&common[..], &name_bytes, &[0; 12]].concat());
        table.extend(start.to_le_bytes());
        table.extend(name.as_bytes());
    }
    let (at, length) = (bytes.len() as u32, table.len() as u32);
    bytes.extend(table);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend((entries.len() as u16).to_le_bytes().repeat(2));
    bytes.extend([length.to_le_bytes(), at.to_le_bytes()].concat());
    bytes.extend([0, 0]);
    bytes
}

#[test]
fn arrays_of_a_zip_file() {
    let folder = tempdir().unwrap();
    let image: Vec<u8> = (0..18).collect();
    let weight: Vec<u8> = [0.5f32, 1.5, 2.5]
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect();
    let label: Vec<u8> = [7i64, 8, 7].iter().flat_map(|n| n.to_le_bytes()).collect();
    let entries = [
        ("image.npy", npy("|u1", "(3, 2, 3)", &image)),
        ("label.npy", npy("<i8", "(3,)", &label)),
        ("weight.npy", npy("<f4", "(3,)", &weight)),
    ];
    let whole = zip(&entries, 0);
    let path = file(folder.path(), "x.npz", &whole);
    let dataset = open(&path, &with(&folder, None, None)).unwrap();
    let expected: Vec<_> = (0..3)
        .map(|i| {
            let image = shown("image", Some(DType::U8), &[2, 3], &image[6 * i..][..6]);
            let weight = shown("weight", Some(DType::F32), &[], &weight[4 * i..][..4]);
            (vec![image, weight], ["7", "8", "7"][i].to_owned())
        })
        .collect();
    assert_eq!(records(&dataset), expected);
    let bad = |bytes: Vec<u8>, message: &str| {
        let path = file(folder.path(), "bad.npz", bytes);
        refuses(&path, &with(&folder, None, None), message);
    };
    bad(
        zip(&entries, 12),
        "its entry image.npy is compressed by another method than DEFLATE",
    );
    bad(zip(&[("a.txt", vec![1])], 0), "is not an array");
    bad(zip(&[], 0), "no entries");
    bad(
        zip(&[entries[0].clone(), entries[0].clone()], 0),
        "comes twice",
    );
    let short = ("short.npy", npy("|u1", "(2,)", &[1, 2]));
    bad(
        zip(&[entries[0].clone(), short], 0),
        "different first lengths: image 3, short 2; save arrays of numbers of equal first length with np.savez, or choose such with `format` npz:NAME,NAME",
    );
    let cut = ("cut.npy", npy("|u1", "(3,)", &[1, 2]));
    bad(zip(&[cut], 0), "not as long as its shape");
    bad(
        zip(&[("one.npy", npy("|u1", "()", &[1]))], 0),
        "a single number",
    );
    bad(
        zip(&[("no.npy", vec![1, 2, 3])], 0),
        "no.npy: byte 0: its first bytes",
    );
    bad(whole[..whole.len() - 8].to_vec(), "its end is not");
    let wide = with(&folder, None, Some("image"));
    refuses(&path, &wide, "one number a row");
    for cut in 0..whole.len() {
        let path = file(folder.path(), "cut.npz", &whole[..cut]);
        assert!(open(&path, &with(&folder, None, None)).is_err(), "{cut}");
    }
    // Changed bytes of arrays or headers are never returned.
    for at in (0..whole.len() - 200).step_by(3) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        let path = file(folder.path(), "damaged.npz", &bytes);
        match open(&path, &with(&folder, None, None)) {
            Ok(dataset) => assert_eq!(records(&dataset), expected, "{at}"),
            Err(error) => assert!(error.to_string().contains("damaged.npz"), "{error}"),
        }
    }
    // Any byte of the table may change: no panic, and no more memory than the file has.
    for at in whole.len() - 200..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        let path = file(folder.path(), "damaged.npz", &bytes);
        if let Ok(dataset) = open(&path, &with(&folder, None, None)) {
            assert_eq!(dataset.records(), 3);
        }
    }
}

#[test]
fn arrays_are_held_to_their_checksums() {
    let folder = tempdir().unwrap();
    let x: Vec<u8> = (0..200).collect();
    let entries = [
        ("x.npy", npy("|u1", "(100, 2)", &x)),
        ("y.npy", npy("|u1", "(100,)", &x[..100])),
    ];
    let whole = zip(&entries, 0);
    let path = file(folder.path(), "x.npz", &whole);
    let sound = || open(&path, &with(&folder, None, None)).unwrap();
    let expected = records(&sound());
    // A sidecar remembers that they were compared.
    assert_eq!(sound().index_report().source, IndexSource::Sidecar);
    let packed = zip(&entries, 8);
    let path = file(folder.path(), "packed.npz", &packed);
    for _ in 0..2 {
        let dataset = open(&path, &with(&folder, None, None)).unwrap();
        assert_eq!(records(&dataset), expected);
    }
    for (name, bytes) in [("stored.npz", whole), ("deflated.npz", packed)] {
        let at = 30 + 5 + 20 + 60 + bytes.len() / 10;
        let mut bytes = bytes;
        bytes[at] ^= 4;
        let path = file(folder.path(), name, &bytes);
        let error = open(&path, &with(&folder, None, None)).err().unwrap();
        let error = error.to_string();
        let is_reported = error.contains("its array x.npy does not agree with its checksum")
            || error.contains("cannot be decompressed");
        assert!(is_reported && error.contains(name), "{error}");
    }
}

#[test]
fn some_arrays_of_a_zip_file() {
    let folder = tempdir().unwrap();
    let bytes: Vec<u8> = (0..12).collect();
    let entries = [
        ("classes.npy", npy("|S1", "(12,)", &bytes)),
        ("x.npy", npy("|u1", "(3, 2)", &bytes[..6])),
        ("notes.txt", b"no array".to_vec()),
        ("y.npy", npy("|u1", "(3,)", &bytes[6..9])),
        ("mean.npy", npy("|u1", "(2,)", &bytes[..2])),
    ];
    for method in [0, 8] {
        let path = file(
            folder.path(),
            &format!("{method}.npz"),
            zip(&entries, method),
        );
        let dataset = open(&path, &with(&folder, Some("npz:y,x"), Some("y"))).unwrap();
        let expected: Vec<_> = (0..3)
            .map(|i| {
                let x = shown("x", Some(DType::U8), &[2], &bytes[2 * i..][..2]);
                (vec![x], (6 + i).to_string())
            })
            .collect();
        assert_eq!(records(&dataset), expected);
        let message = "has no array z; its arrays are classes, x, y, mean; name some of them";
        refuses(&path, &with(&folder, Some("npz:x,z"), None), message);
        refuses(
            &path,
            &with(&folder, Some("npz:x,mean"), None),
            "different first lengths: x 3, mean 2",
        );
        refuses(
            &path,
            &with(&folder, None, None),
            "notes.txt is not an array",
        );
    }
}

/// As `np.save(np.asfortranarray(x))` writes them, and `np.save(frame.to_numpy())` of pandas.
#[test]
fn arrays_in_fortran_order() {
    let folder = tempdir().unwrap();
    let fortran = |descr: &str, shape: &str, data: &[u8]| {
        let mut bytes = npy(descr, shape, data);
        let at = bytes.windows(5).position(|five| five == b"False").unwrap();
        bytes.splice(at..at + 5, *b"True ");
        bytes
    };
    let f32s = |values: &[f32]| {
        values
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    // [[1, 10, 0], [2, 20, 1]], column by column.
    let columns = f32s(&[1.0, 2.0, 10.0, 20.0, 0.0, 1.0]);
    let features = OpenOptions {
        features_only: true,
        ..with(&folder, None, None)
    };
    let path = file(folder.path(), "f.npy", fortran("<f4", "(2, 3)", &columns));
    let c = f32s(&[1.0, 10.0, 0.0, 2.0, 20.0, 1.0]);
    let plain = file(folder.path(), "c.npy", npy("<f4", "(2, 3)", &c));
    for label in [LabelColumn::Last, LabelColumn::First] {
        let options = OpenOptions {
            label,
            ..features.clone()
        };
        let opened = [&path, &plain].map(|path| open(path, &options).unwrap());
        let [found, expected] = opened.each_ref().map(|dataset| rows(dataset).unwrap());
        assert_eq!(found, expected);
        let [found, expected] = opened.each_ref().map(|d| d.labels().values().to_vec());
        assert_eq!(found, expected);
    }
    let array: Vec<u8> = [0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11].to_vec();
    let path = file(
        folder.path(),
        "f.npz",
        zip(&[("x.npy", fortran("|u1", "(2, 3, 2)", &array))], 0),
    );
    let found = records(&open(&path, &with(&folder, None, None)).unwrap());
    let expected = [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]];
    let expected = expected.map(|row| vec![shown("x", Some(DType::U8), &[3, 2], &row)]);
    assert!(found.into_iter().map(|record| record.0).eq(expected));
    let wide = fortran("|u1", "(2, 5000)", &[0; 10_000]);
    let path = file(folder.path(), "wide.npy", wide);
    refuses(&path, &with(&folder, None, None), "np.ascontiguousarray");
}
