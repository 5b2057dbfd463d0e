//! CSV with quoted cells that hold delimiters, quotes and newlines.

use std::fs;
use std::io::Write;

use pelton_format::{Dataset, Decimal, Header, IndexSource, LabelColumn, OpenOptions, Row};
use tempfile::tempdir;

use crate::support::{file, options, rows};

/// As spreadsheets and pandas write it: the header and the classes have commas, quotes and newlines.
const TABLE: &str = "\"age\",\"fare, in\npounds\",\"class\"\r\n\
    22, \"7.25\" ,\"third, or\nlower\"\r\n\
    \"38\",71.2833,\"\"\"first\"\"\"\r\n\
    \r\n\
    26,\" 7.925\",\"third, or\nlower\"";

#[test]
fn tables_with_every_kind_of_quote() {
    let folder = tempdir().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
    gzip.write_all(TABLE.as_bytes()).unwrap();
    for (name, bytes) in [
        ("x.csv", TABLE.into()),
        ("bom.csv", [b"\xef\xbb\xbf", TABLE.as_bytes()].concat()),
        ("x.csv.gz", gzip.finish().unwrap()),
        ("x.csv.zst", zstd::encode_all(TABLE.as_bytes(), 3).unwrap()),
    ] {
        let paths = [file(folder.path(), name, bytes)];
        for index in [IndexSource::Built, IndexSource::Sidecar] {
            let dataset = Dataset::open(&paths, &options(folder.path())).unwrap();
            assert_eq!(dataset.index_report().source, index, "{name}");
            let columns = dataset.columns().unwrap();
            assert_eq!(columns.fields.names(), "age, fare, in\npounds");
            assert_eq!(columns.label.as_deref(), Some("class"));
            assert_eq!(dataset.labels().names(), ["\"first\"", "third, or\nlower"]);
            let rows = rows(&dataset).unwrap();
            let expected = [(1, [22.0, 7.25]), (0, [38.0, 71.2833]), (1, [26.0, 7.925])];
            assert_eq!(rows.len(), 3);
            for (i, (class, features)) in expected.iter().enumerate() {
                assert_eq!(rows.row(i), Row::Dense(features));
                assert_eq!(rows.label(i), *class);
            }
        }
    }
}

#[test]
fn faults_name_the_line_where_a_record_starts() {
    let folder = tempdir().unwrap();
    let check = |text: &str, expected: &str| {
        let path = file(folder.path(), "x.csv", text);
        let options = OpenOptions {
            header: Header::No,
            label: LabelColumn::Last,
            ..options(folder.path())
        };
        let found = Dataset::open(&[path], &options).and_then(|dataset| rows(&dataset).map(drop));
        let error = found.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(
        "1,2,\"a\n\nb\"\n1,2,c\n1,x,c\n",
        "x.csv: line 5: column 2 holds \"x\"",
    );
    check(
        "1,2,\"a\n\nb\"\n1,\"2\n\",c\n1,2,c,d\n",
        "x.csv: line 6: 4 columns, but the first row has 3; make",
    );
    // A stray quote includes all text up to the next quote.
    check(
        "1,2,a\n1,\"2,b\n3,4,c\n5,6,\"d\"\n",
        "x.csv: line 2: 2 columns, but the first row has 3 and the quotes of a cell span 3 lines",
    );
    check(
        "1,2,a\n1,2,\"b\n3,4,c\n",
        "x.csv: line 2: a quote opens a cell that does not end",
    );
    check(
        "\"1,2,a\n1,2,b\n",
        "x.csv: line 1: a quote opens a cell that does not end",
    );
}

#[test]
fn decimal_commas() {
    let folder = tempdir().unwrap();
    let open = |text: &str, decimal| {
        let path = file(folder.path(), "x.csv", text);
        let options = OpenOptions {
            decimal,
            ..options(folder.path())
        };
        Dataset::open(&[path], &options)
    };
    let table = "a;b;y\n1,5;2;0,5\n-3;0,25;1,5\n";
    for (text, decimal) in [
        (table, Decimal::Auto),
        (table, Decimal::Comma),
        (&table[6..], Decimal::Auto),
        (
            "a,b,y\n\"1,5\",2,\"0,5\"\n-3,\"0,25\",\"1,5\"\n",
            Decimal::Comma,
        ),
    ] {
        let dataset = open(text, decimal).unwrap();
        assert_eq!(dataset.labels().values(), [0.5, 1.5], "{text}");
        let rows = rows(&dataset).unwrap();
        assert_eq!((rows.row(0), rows.label(0)), (Row::Dense(&[1.5, 2.0]), 0));
        assert_eq!((rows.row(1), rows.label(1)), (Row::Dense(&[-3.0, 0.25]), 1));
    }
    let dataset = open(table, Decimal::Auto).unwrap();
    let note = "x.csv: its cells are separated by semicolons, and its numbers have decimal commas";
    assert!(dataset.notes()[0].ends_with(note), "{:?}", dataset.notes());
    let refuses = |text: &str, decimal, expected: &str| {
        let found = open(text, decimal).and_then(|dataset| rows(&dataset).map(drop));
        let error = found.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    refuses(
        "a;y\n1,5;0\n2.5;1\n",
        Decimal::Auto,
        "x.csv: its numbers have commas, which may be decimal ones or separate thousands; set `decimal` to comma",
    );
    refuses(
        "a;y\n1,5;0\n1.23,5;1\n",
        Decimal::Auto,
        "x.csv: line 3: column 1 holds 1.23,5, with a point that may separate thousands",
    );
    refuses(
        "a;y\n1,5;0\n1;2.5\n",
        Decimal::Comma,
        "x.csv: line 3: column 2 holds 2.5, with a point that may",
    );
    refuses(
        table,
        Decimal::Point,
        "x.csv: line 2: column 1 holds \"1,5\", which is not a number; if the comma is a decimal one",
    );
}

/// An index of a scan that took newlines in quotes for line ends has another key.
#[test]
fn indexes_of_earlier_scans_are_not_used() {
    let folder = tempdir().unwrap();
    let paths = [file(folder.path(), "x.csv", "1,2,\"a\nb\"\n1,2,c\n")];
    let records = || {
        Dataset::open(&paths, &options(folder.path()))
            .unwrap()
            .records()
    };
    assert_eq!(records(), 2);
    let index = folder.path().join("x.csv.pelton-index");
    let mut bytes = fs::read(&index).unwrap();
    assert_eq!(bytes[8..16], 20_u64.to_le_bytes());
    bytes[8] = 2;
    let body = bytes.len() - 4;
    let checksum = crc32c::crc32c(&bytes[..body]);
    bytes[body..].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&index, &bytes).unwrap();
    assert_eq!(records(), 2);
    assert_ne!(fs::read(&index).unwrap(), bytes);
}
