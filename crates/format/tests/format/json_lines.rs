//! JSON Lines: objects with keys as fields.

use crate::arrays::npy;
use crate::support::fields::{open, records, records_of, refuses, shown, with};
use crate::support::{file, record, rows};
use pelton_batch::DType;
use pelton_format::{Dataset, FeatureType, IndexSource, LabelColumn, Missing, OpenOptions, Rows};
use tempfile::tempdir;

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
        assert!(notes[0].contains("the key \"o\" is left out: line 3 has a number, but lines before it have an object or a list;"));
        assert!(notes[1].contains("the key \"more\" is left out: line 1 does not have it;"));
        assert_eq!(notes.len(), 2);
    }
    // Missing labels are noted.
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
    // Another label needs another index; the former label is a field then.
    let dataset = open(&path, &with(&folder, None, Some("x"))).unwrap();
    assert_eq!(dataset.labels().values(), [-2.0, 1.0]);
    let names: Vec<String> = records(&dataset)[0].0.iter().map(|f| f.0.clone()).collect();
    assert_eq!(names, ["label", "m", "text", "v"]);
    assert_eq!(dataset.index_report().source, IndexSource::Built);
}

/// A key that is missing in a record, or differs in kind, is noted with the line.
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
        "line 2 has a number, but lines before it have a string",
    );
    check(
        &[r#"{"a": 1, "k": ["x"]}"#, r#"{"a": 1, "k": true}"#],
        "line 2 has a truth value, but lines before it have an object or a list",
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

/// Equal labels are labels too; records without labels have none.
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

/// Features of 64 bits are a field of that type, and keep their full precision.
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
        "t.jsonl: `dtype` f64 does not apply to jsonl files, only to features of csv, tsv and npy",
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
        "bad.jsonl: line 2: [1] is not a JSON object; write one object a line",
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
    // Without `missing`, records with a null are bad, and a key that some records lack is left out.
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
    // Only the named keys are fields.
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
