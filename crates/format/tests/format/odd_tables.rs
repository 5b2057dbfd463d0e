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

/// Categories whose bytes were not UTF-8 had no feature at all.
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
    assert_eq!(entries(&other)[0].len(), 1);
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
