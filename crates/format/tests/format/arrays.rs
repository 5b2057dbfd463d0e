//! Records of named arrays: raw records, JSON Lines, `.npy` of any rank and `.npz`.

use std::io::Write;

use crate::support::fields::{open, records, records_of, refuses, shown, with};
use crate::support::{file, record, rows};
use pelton_batch::DType;
use pelton_format::{
    Dataset, FeatureType, FormatError, IndexSource, LabelColumn, Missing, OpenOptions,
    RecognitionError, Rows,
};
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
        "no whole number of records of 7",
    );
    refuses(
        &first,
        &with(&folder, Some("raw:header[99],u8"), None),
        "no whole number",
    );
    let no_label = with(&folder, Some("raw:header[4],u8[10],class:u8"), Some("x"));
    refuses(&first, &no_label, "its columns are data, class");
    let an_array = with(&folder, Some("raw:header[4],u8,label:u8[10]"), None);
    refuses(&first, &an_array, "one number each");
    let features = OpenOptions {
        features_only: true,
        ..with(&folder, Some(spelling), None)
    };
    refuses(&first, &features, "no features");
    let two = [
        first.clone(),
        file(folder.path(), "c.jsonl", "{\"a\": 1}\n"),
    ];
    let mixed = Dataset::open(&two, &with(&folder, None, None)).unwrap_err();
    assert!(
        matches!(
            mixed,
            FormatError::Recognition(RecognitionError::UnknownFormat { .. })
        ),
        "{mixed}"
    );
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

#[test]
fn objects_a_line() {
    let folder = tempdir().unwrap();
    let text = r#"{"text": "a b", "x": 1, "v": [1, 2.5], "m": [[1, 2], [3, 4]], "label": "dog", "o": {}}

{"label": "cat", "v": [], "m": [[5, 6]], "x": -2, "text": "", "o": 1, "more": true}
"#;
    let path = file(folder.path(), "x.jsonl", text);
    let floats =
        |numbers: &[f64]| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_le_bytes()).collect() };
    let whole =
        |numbers: &[i64]| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_le_bytes()).collect() };
    let expected = [
        (
            vec![
                shown("m", Some(DType::I64), &[2, 2], &whole(&[1, 2, 3, 4])),
                shown("text", None, &[3], b"a b"),
                shown("v", Some(DType::F64), &[2], &floats(&[1.0, 2.5])),
                shown("x", Some(DType::I64), &[], &whole(&[1])),
            ],
            "dog".to_owned(),
        ),
        (
            vec![
                shown("m", Some(DType::I64), &[1, 2], &whole(&[5, 6])),
                shown("text", None, &[0], b""),
                shown("v", Some(DType::F64), &[0], &[]),
                shown("x", Some(DType::I64), &[], &whole(&[-2])),
            ],
            "cat".to_owned(),
        ),
    ];
    for source in [IndexSource::Built, IndexSource::Sidecar] {
        let dataset = open(&path, &with(&folder, None, None)).unwrap();
        assert_eq!(dataset.index_report().source, source);
        assert_eq!(records(&dataset), expected);
        assert_eq!(dataset.labels().names(), ["cat", "dog"]);
        let notes = dataset.notes();
        assert!(notes[0].contains("the key \"o\" is left out: line 3 has a number where lines before it have an object or a list;"));
        assert!(notes[1].contains("the key \"more\" is left out: line 1 does not have it;"));
        assert_eq!(notes.len(), 2);
    }
    // Labels that are missing are told of.
    let some = file(
        folder.path(),
        "some.json",
        "{\"x\": 1, \"label\": 3}\n{\"x\": 2}\n",
    );
    for _ in 0..2 {
        let dataset = open(&some, &with(&folder, None, None)).unwrap();
        assert_eq!(dataset.labels().values(), [0.0, 3.0]);
        let note = dataset.notes().join(" ");
        assert!(
            note.contains("1 of 2 records, the first in line 2, have no \"label\""),
            "{note}"
        );
        assert!(dataset.has_labels());
    }
    // Another label is another index; what was the label is a field then.
    let dataset = open(&path, &with(&folder, None, Some("x"))).unwrap();
    assert_eq!(dataset.labels().values(), [-2.0, 1.0]);
    let names: Vec<String> = records(&dataset)[0].0.iter().map(|f| f.0.clone()).collect();
    assert_eq!(names, ["label", "m", "text", "v"]);
    assert_eq!(dataset.index_report().source, IndexSource::Built);
}

/// A key that is not in every record, or not alike in all, is told of with the line.
#[test]
fn keys_that_are_left_out() {
    let folder = tempdir().unwrap();
    let check = |lines: &[&str], expected: &str| {
        let text = lines.join("\n");
        let path = file(folder.path(), "k.jsonl", &text);
        for source in [IndexSource::Built, IndexSource::Sidecar] {
            let dataset = open(&path, &with(&folder, None, None)).unwrap();
            assert_eq!(dataset.index_report().source, source);
            let note = dataset.notes().join(" ");
            let expected = format!("the key \"k\" is left out: {expected}; write");
            assert!(note.contains(&expected), "{text}: {note}");
        }
        std::fs::remove_file(folder.path().join("k.jsonl.pelton-index")).unwrap();
    };
    let [with_key, without] = [r#"{"a": 1, "k": "x"}"#, r#"{"a": 2}"#];
    check(&[without, "", with_key], "line 1 does not have it");
    check(&[with_key, "", without], "line 3 does not have it");
    check(&[r#"{"a": 2, "k": null}"#], "every line has null");
    check(
        &[with_key, r#"{"a": 2, "k": 1}"#],
        "line 2 has a number where lines before it have a string",
    );
    check(
        &[r#"{"a": 1, "k": ["x"]}"#, r#"{"a": 1, "k": true}"#],
        "line 2 has a truth value where lines before it have an object or a list",
    );
    check(
        &[r#"{"a": 1, "k": [[1], [1, 2]]}"#],
        "line 1 has lists of unequal lengths in a list",
    );
    // Whole numbers that neither i64 nor f64 holds.
    check(
        &[
            r#"{"a": 1, "k": 1}"#,
            r#"{"a": 1, "k": 9223372036854775808}"#,
        ],
        "line 2 mixes fractions with whole numbers beyond 2^53, or has one beyond 2^63, which 64 bits do not hold exactly",
    );
    check(
        &[
            r#"{"a": 1, "k": 9007199254740993}"#,
            r#"{"a": 1, "k": 0.5}"#,
        ],
        "line 2 mixes fractions with whole numbers beyond 2^53, or has one beyond 2^63, which 64 bits do not hold exactly",
    );
    let many: Vec<String> = (0..5000).map(|i| format!("{{\"{i}\": 1}}")).collect();
    let path = file(folder.path(), "many.jsonl", many.join("\n"));
    refuses(
        &path,
        &with(&folder, None, None),
        "line 4097: with \"4096\"",
    );
}

/// Records whose labels are all equal have labels, and those without any have none.
#[test]
fn one_class_is_a_label() {
    let folder = tempdir().unwrap();
    let check = |name: &str, text: &str, expected: Option<f64>| {
        let path = file(folder.path(), name, text);
        for _ in 0..2 {
            let dataset = open(&path, &with(&folder, None, None)).unwrap();
            assert_eq!(dataset.has_labels(), expected.is_some(), "{text}");
            assert_eq!(dataset.labels().values(), [expected.unwrap_or(0.0)]);
        }
    };
    check("a.jsonl", "{\"x\": 1, \"label\": 5}\n", Some(5.0));
    check("b.jsonl", "{\"x\": 1, \"label\": 0}\n", Some(0.0));
    check("c.jsonl", "{\"x\": 1, \"label\": 0.5}\n", Some(0.5));
    check("d.jsonl", "{\"x\": 1}\n", None);
    check("e.csv", "a,y\n1,5\n2,5\n", Some(5.0));
    check("f.txt", "words without a label\n", None);
    let paths = ["a.jsonl", "d.jsonl"].map(|name| folder.path().join(name));
    let dataset = Dataset::open(&paths, &with(&folder, None, None)).unwrap();
    assert!(dataset.has_labels());
    let note = dataset.notes().join(" ");
    assert!(
        note.contains("d.jsonl: its records have no label, where those of"),
        "{note}"
    );
}

/// Features of 64 bits are a field of that type, and keep what 32 bits would round.
#[test]
fn features_of_64_bits() {
    let folder = tempdir().unwrap();
    let options = |label, dtype| OpenOptions {
        dtype,
        label,
        ..with(&folder, None, None)
    };
    let wide =
        |values: &[f64]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
    let a = file(
        folder.path(),
        "a.csv",
        "user,x,y\n16777217,0.1,no\n123456789,2,yes\n",
    );
    let b = file(folder.path(), "b.csv", "user,x,y\n5,6,maybe\n");
    let paths = [a.clone(), b];
    let dataset = Dataset::open(&paths, &options(LabelColumn::Last, FeatureType::F64)).unwrap();
    let spec = &dataset.fields().0[0];
    let dims: &[Option<usize>] = &[Some(2)];
    assert_eq!(
        (&*spec.name, spec.dtype, &spec.dims[..]),
        ("features", DType::F64, dims)
    );
    let row = |values: &[f64], label: &str| {
        let field = shown("features", Some(DType::F64), &[2], &wide(values));
        (vec![field], label.to_owned())
    };
    let expected = [
        row(&[16_777_217.0, 0.1], "no"),
        row(&[123_456_789.0, 2.0], "yes"),
        row(&[5.0, 6.0], "maybe"),
    ];
    assert_eq!(records(&dataset), expected);
    let checked = open(&a, &options(LabelColumn::Last, FeatureType::Checked)).unwrap();
    let fault = rows(&checked).unwrap_err().to_string();
    assert!(
        fault.contains("a.csv: line 2: column 1 holds 16777217, which features of 32 bits round"),
        "{fault}"
    );
    let matrix = npy(
        "<i8",
        "(1, 2)",
        &[7i64.to_le_bytes(), 16_777_217i64.to_le_bytes()].concat(),
    );
    let matrix = file(folder.path(), "m.npy", matrix);
    let dataset = open(&matrix, &options(LabelColumn::First, FeatureType::F64)).unwrap();
    let field = shown("features", Some(DType::F64), &[1], &wide(&[16_777_217.0]));
    assert_eq!(records(&dataset), [(vec![field], "7".to_owned())]);
    let text = file(folder.path(), "t.jsonl", "{\"a\": 1}\n");
    refuses(
        &text,
        &options(LabelColumn::Last, FeatureType::F64),
        "t.jsonl: is jsonl, and `dtype` f64 is for the features of csv, tsv and npy",
    );
    let mixed =
        Dataset::open(&[a, matrix], &options(LabelColumn::Last, FeatureType::F64)).unwrap_err();
    assert!(
        mixed.to_string().contains("rows of 1 features of 64 bits"),
        "{mixed}"
    );
}

#[test]
fn lines_that_are_no_objects() {
    let folder = tempdir().unwrap();
    let check = |text: &str, label: Option<&str>, message: &str| {
        let path = file(folder.path(), "bad.jsonl", text);
        refuses(&path, &with(&folder, None, label), message);
    };
    check(
        "{\"a\": 1}\n[1]\n",
        None,
        "bad.jsonl: line 2: [1] is no JSON object; write one object a line",
    );
    check(
        "{\"a\": 1}\n\n{\"a\": \n",
        None,
        "line 3: column 5: the line ends before its JSON does; write one whole JSON object on each line",
    );
    check(
        "{\"a\": 1}\n{\"a\": }\r\n",
        None,
        "bad.jsonl: line 2: column 7: expected value at \"}\"; write one whole",
    );
    check(
        "plain text\n",
        None,
        "line 1: column 1: expected value at \"plain text\";",
    );
    check(
        "{\"a\": 1} {}\n",
        None,
        "line 1: column 10: trailing characters at \"{}\";",
    );
    check(
        "{\"a\": 1, \"label\": 1}\n{\"a\": 1, \"label\": \"x\"}",
        None,
        "line 2: its label",
    );
    check(
        "{\"a\": 1, \"b\": 1}\n{\"a\": 1}\n",
        Some("b"),
        "is nothing",
    );
    check("{\"a\": 1, \"label\": null}\n", None, "is null");
    check("{\"a\": 1, \"label\": 1e300}\n", None, "2^53");
    check("{\"label\": 1}\n", None, "no key has");
    check("{\"a\": 1}\n{\"b\": 1}\n", None, "no key has");
    check("{\"a\": [[1], [1, 2]]}\n", None, "no key has");
    check("\n\n", None, "holds no records");
    let path = file(folder.path(), "x.jsonl", "{\"a\": 1}\n");
    let other = file(folder.path(), "y.jsonl", "{\"b\": 1}\n");
    let mixed = Dataset::open(&[path, other], &with(&folder, None, None)).unwrap_err();
    let parts = "y.jsonl: lacks \"a\" and also has \"b\", unlike";
    assert!(mixed.to_string().contains(parts), "{mixed}");
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
    // A matrix whose last column would be the label otherwise.
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

/// A zip file of entries that are stored, deflated (method 8), or say that they are compressed in some other way.
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
    bad(zip(&[("a.txt", vec![1])], 0), "is no array");
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
        "no.npy: its first bytes",
    );
    bad(whole[..whole.len() - 8].to_vec(), "its end is not");
    let wide = with(&folder, None, Some("image"));
    refuses(&path, &wide, "one number a row");
    for cut in 0..whole.len() {
        let path = file(folder.path(), "cut.npz", &whole[..cut]);
        assert!(open(&path, &with(&folder, None, None)).is_err(), "{cut}");
    }
    // Bytes of arrays and of their headers that are others are never handed out.
    for at in (0..whole.len() - 200).step_by(3) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        let path = file(folder.path(), "damaged.npz", &bytes);
        match open(&path, &with(&folder, None, None)) {
            Ok(dataset) => assert_eq!(records(&dataset), expected, "{at}"),
            Err(error) => assert!(error.to_string().contains("damaged.npz"), "{error}"),
        }
    }
    // Any byte of the table may be another: no panic, and no more memory than the file has.
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
        let is_told = error.contains("its array x.npy does not agree with its checksum")
            || error.contains("cannot be decompressed");
        assert!(is_told && error.contains(name), "{error}");
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
        refuses(&path, &with(&folder, None, None), "notes.txt is no array");
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

/// Null is a missing value, true and false are 1 and 0, and objects and lists of other things than numbers are their
/// JSON text.
#[test]
fn values_of_every_kind_of_json() {
    let folder = tempdir().unwrap();
    let text = r#"{"b": true, "x": 1, "s": "a", "v": [1, null], "t": ["p", 2], "o": {"k": null}, "label": true}
{"b": null, "x": null, "s": null, "v": null, "t": [], "o": null, "label": false}
{"b": false, "x": 2.5, "s": "b", "v": [], "t": [[1], [2, "q"]], "o": {}, "label": true, "z": 7}
"#;
    let path = file(folder.path(), "x.jsonl", text);
    let filled = OpenOptions {
        missing: Some(Missing::Zero),
        ..with(&folder, None, None)
    };
    let number = |name: &str, value: f64| shown(name, Some(DType::F64), &[], &value.to_le_bytes());
    let whole = |name: &str, value: i64| shown(name, Some(DType::I64), &[], &value.to_le_bytes());
    let text = |name: &str, text: &str| shown(name, None, &[text.len()], text.as_bytes());
    let list = |values: &[i64]| {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        shown("v", Some(DType::I64), &[values.len()], &bytes)
    };
    let expected = [
        (
            1,
            r#"{"k":null}"#,
            "a",
            r#"["p",2]"#,
            vec![1, 0],
            1.0,
            0,
            "1",
        ),
        (0, "null", "", "[]", vec![], 0.0, 0, "0"),
        (0, "{}", "b", r#"[[1],[2,"q"]]"#, vec![], 2.5, 7, "1"),
    ];
    let expected = expected.map(|(b, o, s, t, v, x, z, label)| {
        let fields = vec![
            whole("b", b),
            text("o", o),
            text("s", s),
            text("t", t),
            list(&v),
            number("x", x),
            whole("z", z),
        ];
        (fields, label.to_owned())
    });
    for source in [IndexSource::Built, IndexSource::Sidecar] {
        let dataset = open(&path, &filled).unwrap();
        assert_eq!(dataset.index_report().source, source);
        assert_eq!(records_of(&dataset), expected);
        assert_eq!(dataset.notes(), [] as [&str; 0]);
    }
    // Without anything that stands for them, records with a null are bad ones, and a key that some lack is none.
    let dataset = open(&path, &with(&folder, None, None)).unwrap();
    assert!(dataset.notes()[0].contains(
        "\"z\" is left out: line 1 does not have it; write it in every line, or let `missing` zero"
    ));
    let fault = |id: u64, options: &OpenOptions| {
        let dataset = open(&path, options).unwrap();
        let mut rows = Rows::new(dataset.layout());
        let decoded = dataset.decode(id, &record(&dataset, id), &mut rows);
        decoded
            .err()
            .map_or(String::new(), |error| error.to_string())
    };
    let plain = with(&folder, None, None);
    assert!(
        fault(0, &plain)
            .contains("line 1: \"v\" is [1,null], a missing value; `missing` zero fills")
    );
    assert!(fault(1, &plain).contains("line 2: \"b\" is null, a missing value;"));
    assert_eq!(fault(2, &plain), "");
    // Those that are named alone count.
    let chosen = |keys: &str| with(&folder, Some(&format!("jsonl:{keys}")), None);
    for id in 0..3 {
        assert_eq!(fault(id, &chosen("t,o")), "");
    }
    let fields = open(&path, &chosen("t,o")).unwrap().fields();
    assert_eq!(
        fields
            .0
            .iter()
            .map(|field| &*field.name)
            .collect::<Vec<_>>(),
        ["o", "t"]
    );
    refuses(
        &path,
        &chosen("y"),
        "has no column y; its columns are b, o, s, t, v, x;",
    );
    refuses(
        &path,
        &chosen("z"),
        "column z holds nothing that a record can hold: line 1 does not have it",
    );
    let mean = OpenOptions {
        missing: Some(Missing::Mean),
        ..plain
    };
    refuses(
        &path,
        &mean,
        "`missing` mean is for features; give `missing` zero",
    );
}
