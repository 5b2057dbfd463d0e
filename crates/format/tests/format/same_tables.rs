//! One table in every format that holds it gives the same features.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use pelton_format::{Dataset, LabelColumn, Missing, NamedKind, OpenOptions, Row};
use serde_json::{Map, Value, json};
use tempfile::tempdir;

use crate::support::{file, options, rows};

/// A column of a table: its cells, `None` if missing.
enum Column {
    Text(Vec<Option<String>>),
    Numbers(Vec<Option<f64>>),
    Whole(Vec<i64>),
    Flags(Vec<Option<bool>>),
    /// Seconds since 1970, in UTC.
    Times(Vec<Option<i64>>),
}

/// Rows of a table.
const ROWS: usize = 40;

/// A column of text that repeats `cells`; `~` marks a missing cell.
fn text(cells: &[&str]) -> Column {
    let cell = |i: usize| Some(cells[i % cells.len()].to_string()).filter(|cell| cell != "~");
    Column::Text((0..ROWS).map(cell).collect())
}

/// A column of text made from the index of each row.
fn each(cell: impl Fn(usize) -> String) -> Column {
    Column::Text((0..ROWS).map(|i| Some(cell(i))).collect())
}

fn numbers(cell: impl Fn(usize) -> Option<f64>) -> Column {
    Column::Numbers((0..ROWS).map(cell).collect())
}

fn time_of(seconds: i64) -> String {
    let (day, rest) = (seconds / 86_400, seconds % 86_400);
    assert!(day < 31);
    let time = [rest / 3600, rest / 60 % 60, rest % 60];
    format!(
        "1970-01-{:02} {:02}:{:02}:{:02}",
        day + 1,
        time[0],
        time[1],
        time[2]
    )
}

impl Column {
    fn cell(&self, row: usize) -> Option<String> {
        match self {
            Column::Text(cells) => cells[row].clone(),
            Column::Numbers(cells) => cells[row].map(|cell| cell.to_string()),
            Column::Whole(cells) => Some(cells[row].to_string()),
            Column::Flags(cells) => cells[row].map(|cell| cell.to_string()),
            Column::Times(cells) => cells[row].map(time_of),
        }
    }

    fn json(&self, row: usize) -> Value {
        match self {
            Column::Text(_) | Column::Times(_) => json!(self.cell(row)),
            Column::Numbers(cells) => json!(cells[row]),
            Column::Whole(cells) => json!(cells[row]),
            Column::Flags(cells) => json!(cells[row]),
        }
    }

    fn array(&self) -> ArrayRef {
        match self {
            Column::Text(cells) => Arc::new(StringArray::from(cells.clone())),
            Column::Numbers(cells) => Arc::new(Float64Array::from(cells.clone())),
            Column::Whole(cells) => Arc::new(Int64Array::from(cells.clone())),
            Column::Flags(cells) => Arc::new(BooleanArray::from(cells.clone())),
            Column::Times(cells) => {
                let micros = cells
                    .iter()
                    .map(|cell| cell.map(|seconds| seconds * 1_000_000));
                let micros: TimestampMicrosecondArray = micros.collect();
                Arc::new(micros.with_timezone("America/New_York"))
            }
        }
    }
}

type Table = Vec<(&'static str, Column)>;

fn delimited(table: &Table, delimiter: &str) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let names: Vec<String> = table.iter().map(|(name, _)| quoted(name)).collect();
    let mut lines = vec![names.join(delimiter)];
    for row in 0..ROWS {
        let cell = |column: &Column| column.cell(row).map_or(String::new(), |cell| quoted(&cell));
        let cells: Vec<String> = table.iter().map(|(_, column)| cell(column)).collect();
        lines.push(cells.join(delimiter));
    }
    lines.join("\n") + "\n"
}

fn json_lines(table: &Table) -> String {
    let object = |row: usize| {
        let members = table
            .iter()
            .map(|(name, column)| (name.to_string(), column.json(row)));
        Value::Object(members.collect::<Map<_, _>>()).to_string() + "\n"
    };
    (0..ROWS).map(object).collect()
}

/// The table as files of all formats.
fn files(table: &Table, folder: &Path) -> Vec<PathBuf> {
    let columns = table
        .iter()
        .map(|(name, column)| (*name, column.array(), true));
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
    vec![
        file(folder, "t.csv", delimited(table, ",")),
        file(folder, "t.tsv", delimited(table, "\t")),
        file(folder, "t.jsonl", json_lines(table)),
        file(folder, "t.arrow", arrow),
        file(folder, "t.parquet", parquet),
    ]
}

/// The named features of each record in order, and the uses of the columns.
fn features(path: &Path, options: &OpenOptions) -> (Vec<Vec<(String, f32)>>, Vec<String>) {
    let dataset = Dataset::open(&[path.to_path_buf()], options).unwrap();
    let names = dataset.columns().unwrap().feature_names();
    let rows = rows(&dataset).unwrap();
    let of = |i| {
        let Row::Sparse { indices, values } = rows.row(i) else {
            panic!("no coded rows")
        };
        let name = |at: &u32| {
            names
                .get(*at as usize)
                .cloned()
                .unwrap_or_else(|| format!("#{at}"))
        };
        let mut named: Vec<_> = indices
            .iter()
            .map(name)
            .zip(values.iter().copied())
            .collect();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        named
    };
    let mut uses: Vec<String> = dataset
        .column_uses()
        .iter()
        .map(|found| found.to_string())
        .collect();
    uses.sort();
    ((0..rows.len()).map(of).collect(), uses)
}

/// Checks that a table with the column `x` is the same in all formats, and that this column is used as `expected`.
fn check(column: Column, kinds: &[&str], expected: &str) {
    let folder = tempdir().unwrap();
    let table: Table = vec![
        ("x", column),
        ("other", text(&["a", "b", "c"])),
        (
            "y",
            Column::Whole((0..ROWS as i64).map(|i| i % 2).collect()),
        ),
    ];
    let kinds = kinds.iter().map(|kind| kind.parse::<NamedKind>().unwrap());
    let options = OpenOptions {
        features_only: true,
        codes_columns: true,
        label: LabelColumn::Name("y".into()),
        column_kinds: kinds.collect(),
        missing: Some(Missing::Flag),
        ..options(folder.path())
    };
    let paths = files(&table, folder.path());
    let first = features(&paths[0], &options);
    assert!(
        first.1.join("\n").contains(expected),
        "{expected}: {:?}",
        first.1
    );
    for path in &paths[1..] {
        let found = features(path, &options);
        assert_eq!(found, first, "{expected}: {}", path.display());
    }
}

#[test]
fn odd_columns_are_the_same_in_all_formats() {
    check(
        text(&["u", "NA", "v", "None", "n/a", "~", "<NA>"]),
        &[],
        "x: category of 3 (",
    );
    check(text(&["u", "?", "v", "-"]), &[], "x: category of 4");
    check(
        text(&["7", "?", "8.5", "-", "."]),
        &[],
        "x: number, 7.75 where missing",
    );
    check(
        text(&["$1,234.50", "$7", "~", "$-12.00"]),
        &[],
        "x: number, 409.83334 where missing",
    );
    check(
        text(&["45%", "7 %", "3.5%"]),
        &[],
        "x: number, written as 45%",
    );
    check(
        text(&["1\u{202f}234", "12\u{a0}345\u{a0}678", "7"]),
        &[],
        "x: number, written as 1\u{202f}234",
    );
    check(
        text(&["(3.1)", "2.5", "4"]),
        &[],
        "x: number, written as (3.1)",
    );
    check(
        text(&["1,234", "12,345", "7"]),
        &[],
        "x: number, written as 1,234",
    );
    check(text(&["$5", "€6", "$7"]), &[], "x: category of 3");
    check(text(&["1,23", "4,5"]), &[], "x: category of 2");
    check(text(&["0x1f", "a3f1", "00a7"]), &[], "x: category of 3");
    check(
        text(&["2020-06-22", "2020-06-23", "~"]),
        &[],
        "x: date: years, day of the week, the mean where missing",
    );
    check(
        text(&["22/06/2020", "5/7/2020"]),
        &[],
        "x: date, day first: years",
    );
    check(
        text(&["06/22/2020 10:15", "05/07/2020 11:00"]),
        &[],
        "x: date, month first: years, day of the week, hour",
    );
    check(text(&["22.06.2020", "5.7.2020"]), &[], "x: date: years");
    check(text(&["05/06/2020", "07/08/2020"]), &[], "x: category of 2");
    check(
        text(&[
            "2020-01-01T10:00:00+02:00",
            "2020-01-01T23:30:00-0500",
            "2020-01-01T08:00:00Z",
        ]),
        &[],
        "hour",
    );
    check(
        Column::Times(
            (0..ROWS as i64)
                .map(|i| (i % 7 != 3).then_some(i * 5_000))
                .collect(),
        ),
        &[],
        "x: date: years",
    );
    check(
        numbers(|i| (i % 5 != 2).then_some(i as f64 / 4.0)),
        &[],
        "and a feature for missing (8 missing)",
    );
    check(
        Column::Flags(
            (0..ROWS)
                .map(|i| (i % 5 != 2).then_some(i % 3 == 0))
                .collect(),
        ),
        &[],
        "x: number",
    );
    check(
        numbers(|i| Some((i % 3) as f64)),
        &["x=category"],
        "x: category of 3",
    );
    check(
        each(|i| format!("k{i}")),
        &[],
        "x: left out: another text in each record",
    );
    check(
        text(&["same"]),
        &[],
        "x: left out: the same in every record",
    );
    check(text(&["~"]), &[], "x: left out: no value in any record");
    check(
        text(&["~", "NA", "?"]),
        &[],
        "x: left out: no value in any record",
    );
    check(
        each(|i| format!("a long text of many words number {i}, or so")),
        &[],
        "x: text: words and pairs of words",
    );
    check(
        text(&["ø, \"quoted\"", "two\nlines", "tab\there"]),
        &["x=hash:8"],
        "hashed to 8 bits",
    );
    let quarters = |i: usize| (i % 5 != 2).then_some(i as f64 / 4.0 - 3.0);
    check(numbers(quarters), &["x=log1p"], "x: number, as ln(1+x), ");
    check(
        numbers(quarters),
        &["x=bins:4"],
        "x: number in 4 bins, and a feature for missing (8 missing)",
    );
    check(
        numbers(|i| Some(i as f64 - 3.0)),
        &["x=offset"],
        "x: offset",
    );
    check(
        numbers(|i| Some(i as f64 / 4.0 + 0.5)),
        &["x=exposure"],
        "x: exposure",
    );
    check(
        numbers(quarters),
        &["x:other=cross:20"],
        "x:other: cross, hashed to 20 bits",
    );
    check(
        text(&["1.0", "01", "~", "u"]),
        &["x:other=cross:20"],
        "x:other: cross, hashed to 20 bits",
    );
    check(
        Column::Whole((1980..1980 + ROWS as i64).collect()),
        &[],
        "x: number",
    );
}
