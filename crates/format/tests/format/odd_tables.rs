//! Tables as programs and people write them: other encodings, comments, titles.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{file, options, rows};
use pelton_format::{
    Dataset, FormatError, KeptCells, KnownColumns, LabelColumn, NamedKind, OpenOptions, Row,
};
use tempfile::{TempDir, tempdir};

fn coded(folder: &Path, kinds: &[&str]) -> OpenOptions {
    let kinds = kinds.iter().map(|kind| kind.parse::<NamedKind>().unwrap());
    OpenOptions {
        features_only: true,
        codes_columns: true,
        label: LabelColumn::Name("y".into()),
        column_kinds: kinds.collect(),
        ..options(folder)
    }
}

/// The options that read other data for the model of this data.
fn of_model(trained: &Dataset, folder: &Path) -> OpenOptions {
    let columns = trained.columns().unwrap();
    let text = serde_json::to_string(&**columns).unwrap();
    OpenOptions {
        columns: Some(KnownColumns {
            schema: Arc::new(serde_json::from_str(&text).unwrap()),
            of: "the training data".into(),
        }),
        labels: Some(trained.labels().clone()),
        features: Some(trained.features()),
        any_label: true,
        label: LabelColumn::Last,
        ..coded(folder, &[])
    }
}

fn open(path: &Path, options: &OpenOptions) -> Result<Dataset, FormatError> {
    Dataset::open(&[path.to_path_buf()], options)
}

/// The entries of each record that are not 0.
fn entries(dataset: &Dataset) -> Vec<Vec<(u32, f32)>> {
    let rows = rows(dataset).unwrap();
    let of = |i| match rows.row(i) {
        Row::Sparse { indices, values } => indices
            .iter()
            .copied()
            .zip(values.iter().copied())
            .collect(),
        Row::Dense(values) => {
            let all = (0..).zip(values.iter().copied());
            all.filter(|(_, value)| *value != 0.0).collect()
        }
        other => panic!("{other:?}"),
    };
    (0..rows.len()).map(of).collect()
}

fn made(text: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let folder = tempdir().unwrap();
    let path = file(folder.path(), "t.csv", text);
    (folder, path)
}

fn names_of(text: impl AsRef<[u8]>) -> Vec<String> {
    let (folder, path) = made(text);
    let dataset = open(&path, &coded(folder.path(), &[])).unwrap();
    dataset.columns().unwrap().feature_names()
}

fn refusal(text: impl AsRef<[u8]>) -> String {
    let (folder, path) = made(text);
    let opened = open(&path, &coded(folder.path(), &[]));
    let opened = opened.and_then(|dataset| rows(&dataset).map(drop));
    opened.unwrap_err().to_string()
}

fn latin1(text: &str) -> Vec<u8> {
    text.chars()
        .map(|letter| u8::try_from(u32::from(letter)).unwrap())
        .collect()
}

/// Categories that are not UTF-8 get features too.
#[test]
fn latin1_and_utf8_are_the_same_table() {
    let text: String = (0..400)
        .map(|i| {
            format!(
                "{},{}.5,{}\n",
                ["Tromsø", "Tromså", "Ås", "Oslo"][i % 4],
                i * 7 % 50,
                ["på", "af"][i % 2]
            )
        })
        .collect();
    let text = format!("bý,z,y\n{text}");
    let folder = tempdir().unwrap();
    let utf8 = file(folder.path(), "utf8.csv", &text);
    let other = file(folder.path(), "latin1.csv", latin1(&text));
    let options = coded(folder.path(), &[]);
    let [utf8, other] = [utf8, other].map(|path| open(&path, &options).unwrap());
    assert_eq!(utf8.columns(), other.columns());
    assert_eq!(utf8.labels().names(), ["af", "på"]);
    assert_eq!(utf8.labels().names(), other.labels().names());
    assert_eq!(entries(&utf8), entries(&other));
    assert_eq!(entries(&other)[0].len(), 2);
    let said = "latin1.csv: its text is not UTF-8 and is read as Windows-1252";
    let says = |dataset: &Dataset| {
        dataset
            .notes()
            .iter()
            .filter(|note| note.ends_with(said))
            .count()
    };
    assert_eq!((says(&utf8), says(&other)), (0, 1));
    // From the index, too.
    let again = open(&folder.path().join("latin1.csv"), &options).unwrap();
    assert_eq!(says(&again), 1);
    let predicted = open(
        &folder.path().join("latin1.csv"),
        &of_model(&utf8, folder.path()),
    );
    assert_eq!(entries(&predicted.unwrap()), entries(&utf8));
    let names = ["bý", "y"].map(str::to_string);
    let mut kept = KeptCells::new(&other, &names).unwrap();
    let mut found = Vec::new();
    kept.read(&[0, 1], |_, cells| found.push(cells.join("|")))
        .unwrap();
    assert_eq!(found, ["Tromsø|på", "Tromså|af"]);
}

#[test]
fn other_encodings_are_refused_by_name() {
    let utf16: Vec<u8> = { "\u{feff}a,y\n1,2\n".encode_utf16() }
        .flat_map(u16::to_le_bytes)
        .collect();
    let error = refusal(utf16);
    assert!(
        error.contains("t.csv: is text in UTF-16") && error.contains("iconv"),
        "{error}"
    );
    let error = refusal("a,c,y\r1,u,2\r3,v,4\r");
    assert!(
        error.contains("t.csv: its lines end in CR alone"),
        "{error}"
    );
    assert_eq!(
        names_of("\u{feff}c,a,y\nu,1,2\nv,3,4\n"),
        ["c=u", "c=v", "a"]
    );
}

#[test]
fn lines_before_the_table() {
    let expected = ["c=u", "c=v", "a"];
    let check = |text: &str| assert_eq!(names_of(text), expected, "{text}");
    check("# made by a program\n#\n\nc,a,y\nu,1,2\nv,3,4\n");
    check("sep=;\nc;a;y\nu;1;2\nv;3;4\n");
    check("\"sep=,\"\r\nc,a,y\r\nu,1,2\r\nv,3,4\r\n");
    check("# a, b\nc,a,y\nu,1,2\nv,3,4\n");
    // A header may begin with the sign.
    assert_eq!(names_of("#c,a,y\nu,1,2\nv,3,4\n"), ["#c=u", "#c=v", "a"]);
    let (folder, path) = made("# made by a program\nc,a,y\nu,1,2\nv,3,4\n");
    let notes = open(&path, &coded(folder.path(), &[]))
        .unwrap()
        .notes()
        .join("\n");
    assert!(
        notes.contains(
            "t.csv: a line before the table, the first \"# made by a program\", is passed over"
        ),
        "{notes}"
    );
    let error = refusal("# by me, to you, today\nc,a,y\nu,v,w\n");
    assert!(
        error.contains("line 1 (# by me, to you, today) may be a comment or name the columns"),
        "{error}"
    );
    for title in ["Sales of 2020", "Sales,,", "\"Sales, 2020\",,"] {
        let error = refusal(format!("{title}\nc,a,y\nu,1,2\nv,3,4\n"));
        assert!(
            error.contains("line 1 (") && error.contains("seems to be a title"),
            "{error}"
        );
    }
}

fn lines_of(dataset: &Dataset) -> String {
    let lines = dataset
        .column_uses()
        .iter()
        .map(|column| column.to_string());
    lines.collect::<Vec<_>>().join("\n")
}

/// Columns that count up are left out if named like ids; a year or a rank is a feature.
#[test]
fn columns_that_count_are_left_out_by_their_names() {
    let check = |name: &str, ids: &dyn Fn(usize) -> usize, is_out: bool| {
        let lines: String = (0..50)
            .map(|i| format!("{},{},{}\n", ids(i), ["u", "v"][i % 2], i % 3))
            .collect();
        let (folder, path) = made(format!("{name},c,y\n{lines}"));
        let dataset = open(&path, &coded(folder.path(), &[])).unwrap();
        let said = lines_of(&dataset);
        assert_eq!(
            said.contains("left out: numbers the records"),
            is_out,
            "{name}: {said}"
        );
        let notes = dataset.notes().join("\n");
        let is_noted = notes.contains(&format!(
            "columns are left out: {}: numbers the records",
            if name.is_empty() { "(no name)" } else { name }
        ));
        assert_eq!(is_noted, is_out, "{notes}");
    };
    for name in [
        "",
        "id",
        "Index",
        "row",
        "Unnamed: 0",
        "No.",
        "user_id",
        "PassengerId",
        "order id",
    ] {
        check(name, &|i| i + 1, true);
    }
    for name in ["year", "rank", "day", "paid", "GRID", "note"] {
        check(name, &|i| i + 1900, false);
    }
    check("id", &|i| (i * 7) % 50, true);
    check("id", &|i| i * 2, false);
    // Columns without names count in the order of the records.
    let without = |ids: &dyn Fn(usize) -> usize| {
        let lines: String = (0..50)
            .map(|i| format!("{},{},{}\n", ids(i), ["u", "v"][i % 2], i % 3))
            .collect();
        let (folder, path) = made(lines);
        let options = OpenOptions {
            label: LabelColumn::Last,
            header: pelton_format::Header::No,
            ..coded(folder.path(), &[])
        };
        lines_of(&open(&path, &options).unwrap()).contains("numbers the records")
    };
    assert!(without(&|i| i) && without(&|i| i + 1));
    assert!(!without(&|i| i + 2) && !without(&|i| (i * 7) % 50));
}

#[test]
fn every_column_that_is_left_out_is_noted() {
    let lines: String = (0..30)
        .map(|i| format!("{i}.5,k{i},s,,{}\n", i % 2))
        .collect();
    let (folder, path) = made(format!("a,key,same,none,y\n{lines}"));
    let notes = open(&path, &coded(folder.path(), &["same=ignore"]))
        .unwrap()
        .notes()
        .join("\n");
    assert!(
        notes.contains("t.csv: columns are left out: key: another text in each record, none: no value in any record (30 missing);"),
        "{notes}"
    );
    assert!(!notes.contains("same"), "{notes}");
}

#[test]
fn numbers_of_people_are_numbers_later_in_a_file_too() {
    let plain: String = (0..200).map(|i| format!("{i}.25,{}\n", i % 2)).collect();
    let (folder, path) = made(format!("a,y\n{plain}\"1,234.5\",1\n$5,0\n"));
    let found = entries(&open(&path, &coded(folder.path(), &[])).unwrap());
    assert_eq!(found[200..], [vec![(0, 1234.5)], vec![(0, 5.0)]]);
    let (folder, path) = made("a;b;y\n1.234,50;12,30 €;1\n999,99;7,00 €;0\n");
    let dataset = open(&path, &coded(folder.path(), &[])).unwrap();
    assert_eq!(
        entries(&dataset),
        [vec![(0, 1234.5), (1, 12.3)], vec![(0, 999.99), (1, 7.0)]]
    );
}

/// Times keep seconds: years in 32 bits would leave 31 values for the 3 600 seconds of an hour.
#[test]
fn seconds_survive() {
    let lines: String = (0..3600)
        .map(|i| format!("2024-05-05 10:{:02}:{:02},{}\n", i / 60, i % 60, i % 2))
        .collect();
    let (folder, path) = made(format!("t,y\n{lines}"));
    let found = entries(&open(&path, &coded(folder.path(), &[])).unwrap());
    let years: Vec<f32> = found.iter().map(|entries| entries[0].1).collect();
    assert!(years.is_sorted_by(|a, b| a < b));
    let slope = f64::from(years[3599] - years[0]) * 365.2425 * 86_400.0;
    assert!((slope - 3599.0).abs() < 0.1, "{slope}");
}

#[test]
fn dates_that_may_be_read_either_way_are_names() {
    let (folder, path) = made("t,y\n05/06/2020,1\n07/08/2020,0\n");
    let notes = open(&path, &coded(folder.path(), &[]))
        .unwrap()
        .notes()
        .join("\n");
    assert!(
        notes.contains(
            "column t: its dates, such as \"05/06/2020\", may begin with the day or with the month"
        ),
        "{notes}"
    );
    let (folder, path) = made("t,y\n05/06/2020,1\n07/18/2020,0\n");
    let trained = open(&path, &coded(folder.path(), &[])).unwrap();
    assert!(lines_of(&trained).contains("t: date, month first"));
    let other = file(folder.path(), "other.csv", "t\n18/07/2020\n");
    let error = rows(&open(&other, &of_model(&trained, folder.path())).unwrap());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no date as in 11/26/2026"), "{error}");
}

#[test]
fn categories_of_another_type_match() {
    let check = |training: &str, other: &str, expected: &[u32]| {
        let (folder, path) = made(format!("c,z,y\n{training}"));
        let trained = open(&path, &coded(folder.path(), &["c=category"])).unwrap();
        let other = file(folder.path(), "other.jsonl", other);
        let found = entries(&open(&other, &of_model(&trained, folder.path())).unwrap());
        let first: Vec<u32> = found.iter().map(|entries| entries[0].0).collect();
        assert_eq!(first, expected, "{training}");
    };
    let numbers = "{\"c\": 1, \"z\": 5}\n{\"c\": 2.0, \"z\": 5}\n";
    check("1,3,0\n2,4,1\n", numbers, &[0, 1]);
    check("1.0,3,0\n2.0,4,1\n", numbers, &[0, 1]);
    check("01,3,0\n02,4,1\n", numbers, &[0, 1]);
    check(
        "1,3,0\n2,4,1\n",
        "{\"c\": \"1.0\", \"z\": \"5\"}\n{\"c\": \"02\", \"z\": \"5\"}\n",
        &[0, 2],
    );
    check(
        "true,3,0\nfalse,4,1\n",
        "{\"c\": true, \"z\": \"5.5\"}\n{\"c\": false, \"z\": \"1\"}\n",
        &[1, 0],
    );
}

/// A single row without a city can be predicted, although its key is null in every line.
#[test]
fn a_column_of_nulls_is_missing() {
    let (folder, path) = made("f,city,y\n1,a,0\n2,b,1\n3,,0\n");
    let trained = open(&path, &coded(folder.path(), &[])).unwrap();
    let other = file(folder.path(), "other.jsonl", "{\"f\": 2, \"city\": null}\n");
    let found = entries(&open(&other, &of_model(&trained, folder.path())).unwrap());
    assert_eq!(found, [vec![(0, 2.0), (1, 1.0)]]);
    let lacking = file(folder.path(), "lacking.jsonl", "{\"f\": 2}\n");
    let error = open(&lacking, &of_model(&trained, folder.path()))
        .unwrap_err()
        .to_string();
    assert!(error.contains("lacks the columns city"), "{error}");
}

#[cfg(feature = "columns")]
#[test]
fn a_column_of_type_null_is_missing() {
    use arrow_array::{Float64Array, NullArray, RecordBatch};
    let (folder, path) = made("f,city,y\n1,a,0\n2,b,1\n3,,0\n");
    let trained = open(&path, &coded(folder.path(), &[])).unwrap();
    let columns: [(&str, arrow_array::ArrayRef, bool); 2] = [
        ("city", Arc::new(NullArray::new(2)), true),
        ("f", Arc::new(Float64Array::from(vec![2.0, 3.0])), true),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let (mut arrow, mut parquet) = (Vec::new(), Vec::new());
    let mut writer = arrow_ipc::writer::FileWriter::try_new(&mut arrow, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(&mut parquet, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    for (name, bytes) in [("n.arrow", arrow), ("n.parquet", parquet)] {
        let other = file(folder.path(), name, bytes);
        let found = entries(&open(&other, &of_model(&trained, folder.path())).unwrap());
        assert_eq!(
            found,
            [vec![(0, 2.0), (1, 1.0)], vec![(0, 3.0), (1, 1.0)]],
            "{name}"
        );
    }
}

/// Bytes of Parquet and Arrow that are not UTF-8 are read like those of CSV.
#[cfg(feature = "columns")]
#[test]
fn binary_columns_are_text() {
    use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch};
    let folder = tempdir().unwrap();
    let cities: BinaryArray = [&b"Troms\xf8"[..], b"Oslo"].into_iter().map(Some).collect();
    let labels: ArrayRef = Arc::new(Int64Array::from(vec![0, 1]));
    let batch = RecordBatch::try_from_iter([("city", Arc::new(cities) as ArrayRef), ("y", labels)]);
    let (batch, mut parquet) = (batch.unwrap(), Vec::new());
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(&mut parquet, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let path = file(folder.path(), "b.parquet", parquet);
    let dataset = open(&path, &coded(folder.path(), &[])).unwrap();
    let names = dataset.columns().unwrap().feature_names();
    assert_eq!(names, ["city=Oslo", "city=Tromsø"]);
    assert_eq!(entries(&dataset), [[(1, 1.0)], [(0, 1.0)]]);
}

/// Models of numbers accept files with further columns.
#[test]
fn further_columns_do_no_harm() {
    let (folder, path) = made("a,b,y\n1,2,0\n3,4,1\n");
    let trained = open(&path, &coded(folder.path(), &[])).unwrap();
    let model = of_model(&trained, folder.path());
    let check = |text: &str, expected: &[Vec<(u32, f32)>]| {
        let other = file(folder.path(), "other.csv", text);
        assert_eq!(entries(&open(&other, &model).unwrap()), expected, "{text}");
    };
    let expected = [vec![(0, 5.0), (1, 6.0)], vec![(0, 7.0), (1, 8.0)]];
    check("a,b,note\n5,6,x\n7,8,z\n", &expected);
    check("id,b,note,a\n1,6,x,5\n2,8,z,7\n", &expected);
    check("note,a,y,b\nx,5,0,6\n,7,1,8\n", &expected);
    let tested = OpenOptions {
        any_label: false,
        ..model.clone()
    };
    let other = file(folder.path(), "test.csv", "id,y,b,note,a\n1,1,6,x,5\n");
    let dataset = open(&other, &tested).unwrap();
    assert_eq!(entries(&dataset), [vec![(0, 5.0), (1, 6.0)]]);
    let names = ["id", "note", "b"].map(str::to_string);
    let mut kept = KeptCells::new(&dataset, &names).unwrap();
    kept.read(&[0], |_, cells| assert_eq!(cells, ["1", "x", "6"]))
        .unwrap();
    let lacking = file(folder.path(), "lacking.csv", "id,b\n1,6\n");
    let error = open(&lacking, &model).unwrap_err().to_string();
    assert!(
        error.contains("lacking.csv: lacks \"a\"") && !error.contains("id"),
        "{error}"
    );
    let unlabelled = file(folder.path(), "unlabelled.csv", "id,a,b,note\n1,5,6,x\n");
    let error = open(&unlabelled, &tested).unwrap_err().to_string();
    assert!(error.contains("no label column \"y\""), "{error}");
}
