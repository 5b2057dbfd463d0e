//! Tables of text, categories and dates, in all formats that hold them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{file, options, rows};
use pelton_format::{
    Dataset, FormatError, KeptCells, KnownColumns, LabelColumn, Missing, NamedKind, OpenOptions,
    Row,
};
use tempfile::tempdir;

const PEOPLE: &str = "\
id,name,sex,age,when,same,y
1,\"Braund, Mr. Owen Harris\",male,22,2026-11-26 20:51,x,0
2,Cumings Mrs. John Bradley Florence,female,38,2026-11-27,x,1
3,Heikkinen Miss. Laina of Helsinki,female,,2026-11-28 07:00,x,1
";

fn coded(folder: &Path, kinds: &[&str], missing: Option<Missing>) -> OpenOptions {
    OpenOptions {
        features_only: true,
        codes_columns: true,
        label: LabelColumn::Name("y".into()),
        column_kinds: kinds
            .iter()
            .map(|kind| kind.parse::<NamedKind>().unwrap())
            .collect(),
        missing,
        ..options(folder)
    }
}

fn open(paths: &[PathBuf], options: &OpenOptions) -> Result<Dataset, FormatError> {
    Dataset::open(paths, options)
}

/// The named features of each record; hashed ones by `#` and their index.
fn records(dataset: &Dataset) -> Vec<Vec<(String, f32)>> {
    let names = dataset.columns().unwrap().feature_names();
    let rows = rows(dataset).unwrap();
    let of = |i| match rows.row(i) {
        Row::Sparse { indices, values } => {
            let named = indices.iter().zip(values).map(|(&at, &value)| {
                let name = names.get(at as usize).cloned();
                (name.unwrap_or_else(|| format!("#{at}")), value)
            });
            named.collect()
        }
        other => panic!("{other:?}"),
    };
    (0..rows.len()).map(of).collect()
}

fn named(found: &[(String, f32)]) -> Vec<(&str, f32)> {
    let plain = found.iter().filter(|(name, _)| !name.starts_with('#'));
    plain.map(|(name, value)| (name.as_str(), *value)).collect()
}

fn lines_of(dataset: &Dataset) -> String {
    let lines = dataset
        .column_uses()
        .iter()
        .map(|column| column.to_string());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn columns_become_what_they_hold() {
    let folder = tempdir().unwrap();
    let path = file(folder.path(), "people.csv", PEOPLE);
    let options = coded(
        folder.path(),
        &["id=ignore", "name=text:words,2,8"],
        Some(Missing::Flag),
    );
    let dataset = open(&[path], &options).unwrap();
    let lines = lines_of(&dataset);
    for said in [
        "id: left out as asked",
        "name: text: words and pairs of words, hashed to 8 bits",
        "sex: category of 2",
        "age: number, 30 where missing, and a feature for missing (1 missing)",
        "when: date: years, day of the week, hour",
        "same: left out: the same in every record",
    ] {
        assert!(lines.contains(said), "{said}: {lines}");
    }
    let records = records(&dataset);
    let day = 20_783.0;
    let days = [75_060.0 / 86_400.0, 1.0, 2.0 + 7.0 / 24.0];
    let mean = (day + days.iter().sum::<f64>() / 3.0) / 365.2425;
    let centre = (mean * 1024.0).round() / 1024.0;
    let years = |days: f64| (days / 365.2425 - centre) as f32;
    assert_eq!(
        named(&records[0]),
        [
            ("sex=male", 1.0),
            ("age", 22.0),
            ("when years", years(day + 75_060.0 / 86_400.0)),
            ("when Thu", 1.0),
            ("when 20 h", 1.0),
        ]
    );
    assert_eq!(
        named(&records[2]),
        [
            ("sex=female", 1.0),
            ("age", 30.0),
            ("age missing", 1.0),
            ("when years", years(day + 2.0 + 7.0 / 24.0)),
            ("when Sat", 1.0),
            ("when 7 h", 1.0),
        ]
    );
    // Four words and three pairs, of length 1 together.
    let words: Vec<f32> = { records[0].iter() }
        .filter(|(name, _)| name.starts_with('#'))
        .map(|(_, value)| *value)
        .collect();
    let squares: f32 = words.iter().map(|value| value * value).sum();
    assert!(words.len() > 3 && (squares - 1.0).abs() < 1e-6, "{words:?}");
    assert_eq!(dataset.features(), 2 + 2 + 1 + 7 + 24 + 256);
}

#[test]
fn missing_numbers_are_faults_unless_they_are_filled() {
    let folder = tempdir().unwrap();
    let path = file(folder.path(), "people.csv", PEOPLE);
    let dataset = open(
        std::slice::from_ref(&path),
        &coded(folder.path(), &[], None),
    )
    .unwrap();
    let error = rows(&dataset).unwrap_err().to_string();
    assert!(
        error.contains("people.csv: line 4: column age is empty") && error.contains("`missing`"),
        "{error}"
    );
}

#[test]
fn a_model_reads_other_tables_by_name() {
    let folder = tempdir().unwrap();
    let first = file(
        folder.path(),
        "first.csv",
        "sex,city,n,y\nm,Rome,1,a\nf,Oslo,2,b\nm,Oslo,3,b\n",
    );
    let trained = open(&[first], &coded(folder.path(), &[], None)).unwrap();
    let columns = Arc::clone(trained.columns().unwrap());
    assert_eq!(
        columns.feature_names(),
        ["sex=f", "sex=m", "city=Oslo", "city=Rome", "n"]
    );
    // As a model keeps them.
    let text = serde_json::to_string(&*columns).unwrap();
    let columns = Arc::new(serde_json::from_str(&text).unwrap());
    let known = OpenOptions {
        columns: Some(KnownColumns {
            schema: columns,
            of: "the training data".into(),
        }),
        labels: Some(trained.labels().clone()),
        features: Some(trained.features()),
        any_label: true,
        label: LabelColumn::Last,
        column_kinds: Vec::new(),
        ..coded(folder.path(), &[], None)
    };
    let other = file(
        folder.path(),
        "other.csv",
        "n,extra,city,sex\n5,q,Oslo,m\n6,,Bern,f\n",
    );
    let dataset = open(&[other], &known).unwrap();
    assert_eq!(dataset.features(), 5);
    let found = records(&dataset);
    assert_eq!(
        named(&found[0]),
        [("sex=m", 1.0), ("city=Oslo", 1.0), ("n", 5.0)]
    );
    // A city that the training data lacks has no feature.
    assert_eq!(named(&found[1]), [("sex=f", 1.0), ("n", 6.0)]);
    let json = "{\"n\": 7, \"city\": \"Rome\", \"sex\": \"f\"}\n{\"city\": \"Rome\", \"n\": 8}\n";
    let json = file(folder.path(), "other.jsonl", json);
    let found = records(&open(&[json], &known).unwrap());
    assert_eq!(
        named(&found[0]),
        [("sex=f", 1.0), ("city=Rome", 1.0), ("n", 7.0)]
    );
    assert_eq!(named(&found[1]), [("city=Rome", 1.0), ("n", 8.0)]);
    let lacking = file(folder.path(), "lacking.csv", "n,city\n5,Oslo\n");
    let error = open(&[lacking], &known).unwrap_err().to_string();
    assert!(
        error.contains("lacking.csv: ") && error.contains("lacks the columns sex"),
        "{error}"
    );
    let odd = file(folder.path(), "odd.csv", "n,city,sex\nfive,Oslo,m\n");
    let error = rows(&open(&[odd], &known).unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("odd.csv: line 2: column n holds \"five\", which is no number"),
        "{error}"
    );
}

#[test]
fn several_files_have_the_categories_of_all() {
    let folder = tempdir().unwrap();
    let first = file(folder.path(), "a.csv", "c,y\nu,0\nv,1\n");
    let second = file(folder.path(), "b.csv", "y,c\n1,w\n0,u\n");
    let dataset = open(&[first, second], &coded(folder.path(), &[], None)).unwrap();
    assert_eq!(
        dataset.columns().unwrap().feature_names(),
        ["c=u", "c=v", "c=w"]
    );
    let found: Vec<Vec<(String, f32)>> = records(&dataset);
    let first: Vec<&str> = found.iter().map(|record| record[0].0.as_str()).collect();
    assert_eq!(first, ["c=u", "c=v", "c=w", "c=u"]);
}

#[test]
fn threads_find_the_same() {
    let folder = tempdir().unwrap();
    let rows: String = (0..40_000)
        .map(|i| format!("v{},{},{}.5,{}\n", i % 7, i * 7919 % 40_000, i % 100, i % 2))
        .collect();
    let path = file(folder.path(), "many.csv", format!("c,many,n,y\n{rows}"));
    let found = [1, 3].map(|threads| {
        let options = OpenOptions {
            scan_threads: threads,
            ..coded(folder.path(), &["many=category"], Some(Missing::Mean))
        };
        let dataset = open(std::slice::from_ref(&path), &options).unwrap();
        let notes = dataset.notes().join("\n");
        assert!(
            notes.contains("column many has more than 10000 values"),
            "{notes}"
        );
        (dataset.columns().cloned(), dataset.fingerprint())
    });
    assert_eq!(found[0], found[1]);
}

/// `all.parquet` holds midnights of the first days of 1970, as microseconds.
#[cfg(feature = "columns")]
#[test]
fn timestamps_of_typed_columns_are_dates() {
    let folder = tempdir().unwrap();
    let options = OpenOptions {
        format: Some(pelton_format::FormatKind::parse("parquet:when,f32,u8").unwrap()),
        label: LabelColumn::Name("u8".into()),
        ..coded(folder.path(), &[], None)
    };
    let dataset = open(&[crate::columns::fixture("all.parquet")], &options).unwrap();
    let lines = lines_of(&dataset);
    assert!(
        lines.contains("when: date: years, day of the week"),
        "{lines}"
    );
    let records = records(&dataset);
    for (day, name) in ["when Thu", "when Fri", "when Sat"].into_iter().enumerate() {
        let found = named(&records[day]);
        assert!(found.contains(&(name, 1.0)), "{found:?}");
        // Of 23 days the 11th is the middle.
        let centre = (11.0 / 365.2425 * 1024.0_f64).round() / 1024.0;
        let years = (day as f64 / 365.2425 - centre) as f32;
        assert!(found.contains(&("when years", years)), "{found:?}");
    }
}

#[test]
fn guesses_that_may_be_wrong_are_said() {
    let folder = tempdir().unwrap();
    let lines: String = (0..30)
        .map(|i| {
            let mixed = if i % 3 == 0 { "7" } else { "w" };
            format!("{i},k{i},{mixed},A{},{i}\n", i % 2)
        })
        .collect();
    let text = format!("row,key,mixed,c,y\n{lines}30,k30,none,A1,1\n");
    let path = file(folder.path(), "odd.csv", &text);
    let dataset = open(
        std::slice::from_ref(&path),
        &coded(folder.path(), &[], None),
    )
    .unwrap();
    let lines = lines_of(&dataset);
    assert!(
        lines.contains("row: left out: numbers the records"),
        "{lines}"
    );
    assert!(
        lines.contains("key: left out: another text in each record"),
        "{lines}"
    );
    let notes = dataset.notes().join("\n");
    assert!(
        notes.contains("column mixed: 10 of 31 cells are numbers and others are not, first \"w\" in record 1, so each value is a name"),
        "{notes}"
    );
    // A few cells that are not numbers are bad.
    let text = "a,c,y\n1,u,0\n2,v,1\nx,v,1\n3,u,0\n";
    let bad = file(folder.path(), "bad.csv", text);
    let error = rows(&open(&[bad], &coded(folder.path(), &[], None)).unwrap());
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("bad.csv: line 4: column a holds \"x\"") && error.contains("a=category"),
        "{error}"
    );
    for (kinds, said) in [
        (&["nowhere=number"][..], "there is no such column"),
        (&["row=weight", "key=weight"], "several columns of weights"),
        (&["*=ignore"], "no column is left for features"),
    ] {
        let error = open(
            std::slice::from_ref(&path),
            &coded(folder.path(), kinds, None),
        );
        let error = error.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    // The first of records without names must not be lost.
    let letters = file(folder.path(), "letters.csv", "p,x,e\nq,x,f\np,z,e\n");
    let options = OpenOptions {
        label: LabelColumn::Last,
        ..coded(folder.path(), &[], None)
    };
    let error = open(&[letters], &options).unwrap_err().to_string();
    assert!(
        error.contains("line 1 (p,x,e) may name the columns or be a record: its words occur again"),
        "{error}"
    );
    let twice = file(folder.path(), "twice.csv", "c,c,y\nu,1,0\nv,2,1\n");
    let error = open(&[twice], &coded(folder.path(), &[], None))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("twice.csv: has several columns named \"c\""),
        "{error}"
    );
    let svm = file(folder.path(), "x.svm", "1 1:2\n0 2:1\n");
    let options = OpenOptions {
        label: LabelColumn::Last,
        ..coded(folder.path(), &["1=number"], None)
    };
    let error = open(&[svm], &options).unwrap_err().to_string();
    assert!(
        error.contains("x.svm: has no columns that can be given kinds"),
        "{error}"
    );
}

#[test]
fn a_column_of_weights_is_no_feature() {
    let folder = tempdir().unwrap();
    let path = file(folder.path(), "w.csv", "w,a,y\n2,1,0\n0.5,3,1\n,4,1\n");
    let dataset = open(&[path], &coded(folder.path(), &["w=weight"], None)).unwrap();
    let weights = dataset.record_weights().unwrap();
    assert_eq!(weights[..2], [2.0, 0.5]);
    assert!(weights[2].is_nan());
    assert_eq!(dataset.columns().unwrap().feature_names(), ["a"]);
}

#[test]
fn kept_cells_are_text_as_it_was_written() {
    let folder = tempdir().unwrap();
    let a = file(
        folder.path(),
        "a.csv",
        "id,c,n,y\n007,u,1.50,p\n008,NA,2,q\n",
    );
    let b = file(folder.path(), "b.csv", "n,y,c,id\n3,p,v,9\n");
    let dataset = open(&[a, b], &coded(folder.path(), &["c=category"], None)).unwrap();
    let names = ["id", "y", "c"].map(str::to_string);
    let mut kept = KeptCells::new(&dataset, &names).unwrap();
    let mut found = Vec::new();
    kept.read(&[0, 1, 2], |id, cells| found.push((id, cells.join("|"))))
        .unwrap();
    let expected = [(0, "007|p|u"), (1, "008|q|NA"), (2, "9|p|v")];
    assert_eq!(found, expected.map(|(id, text)| (id, text.to_string())));
    let error = KeptCells::new(&dataset, &["z".to_string()])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("a.csv: has no column \"z\" to keep"),
        "{error}"
    );
}

/// 12 rows; the third has no number.
fn clicks(folder: &Path, e: f64) -> PathBuf {
    let row = |i: i32| {
        let x = if i == 2 {
            String::new()
        } else {
            (i * 7 % 12 - 3).to_string()
        };
        format!(
            "{x},{x},{},u{},v{},{}\n",
            e + f64::from(i),
            i % 3,
            i % 2,
            i % 2
        )
    };
    let rows: String = (0..12).map(row).collect();
    file(folder, "clicks.csv", format!("x,z,e,p:q,r,y\n{rows}"))
}

#[test]
fn numbers_become_logarithms_bins_and_offsets() {
    let folder = tempdir().unwrap();
    let path = clicks(folder.path(), 0.5);
    let kinds = [
        "x=log1p",
        "z=bins:4",
        "e=exposure",
        "p:q=ignore",
        "r=ignore",
    ];
    let dataset = open(&[path], &coded(folder.path(), &kinds, Some(Missing::Flag))).unwrap();
    let lines = lines_of(&dataset);
    for said in [
        "x: number, as ln(1+x), ",
        "z: number in 4 bins, and a feature for missing (1 missing)",
        "e: exposure: the offset is its logarithm",
    ] {
        assert!(lines.contains(said), "{said}: {lines}");
    }
    let columns = dataset.columns().unwrap();
    let offset = columns.offset().unwrap();
    assert_eq!(columns.feature_names()[offset], "ln e");
    assert!(!columns.numbers()[offset]);
    let text = serde_json::to_string(&**columns).unwrap();
    assert_eq!(
        serde_json::from_str::<pelton_batch::Schema>(&text).unwrap(),
        **columns
    );

    let number = |i: i32| (i != 2).then_some(f64::from(i * 7 % 12 - 3));
    let mut sorted: Vec<f64> = (0..12).filter_map(number).collect();
    sorted.sort_by(f64::total_cmp);
    let edges = [1, 2, 3].map(|k| sorted[k * 11 / 4]);
    let log = |x: f64| {
        if x < 0.0 {
            -(1.0 - x).ln()
        } else {
            (1.0 + x).ln()
        }
    };
    let mean = sorted.iter().map(|x| log(*x)).sum::<f64>() / 11.0;
    for (i, found) in (0..).zip(records(&dataset)) {
        let value = |name: &str| {
            let found = found.iter().find(|(known, _)| known == name);
            found.map_or(0.0, |(_, value)| f64::from(*value))
        };
        let x = number(i);
        assert!((value("x") - x.map_or(mean, log)).abs() < 1e-6, "{found:?}");
        assert!(
            (value("ln e") - (0.5 + f64::from(i)).ln()).abs() < 1e-6,
            "{found:?}"
        );
        let bin = match x {
            None => "z missing".to_string(),
            Some(x) if x < edges[0] => format!("z < {}", edges[0]),
            Some(x) if x >= edges[2] => format!("z >= {}", edges[2]),
            Some(x) if x < edges[1] => format!("z {} to {}", edges[0], edges[1]),
            Some(_) => format!("z {} to {}", edges[1], edges[2]),
        };
        assert_eq!(value(&bin), 1.0, "{bin}: {found:?}");
        assert_eq!(
            found
                .iter()
                .filter(|(name, _)| name.starts_with('z'))
                .count(),
            1
        );
    }
}

#[test]
fn crosses_are_of_pairs_of_values() {
    let folder = tempdir().unwrap();
    let path = clicks(folder.path(), 0.5);
    let kinds = ["*=ignore", "p:q:r=cross:20"];
    let dataset = open(&[path], &coded(folder.path(), &kinds, None)).unwrap();
    let lines = lines_of(&dataset);
    for said in [
        "p:q: used by crosses alone",
        "p:q:r: cross, hashed to 20 bits",
    ] {
        assert!(lines.contains(said), "{said}: {lines}");
    }
    assert_eq!(dataset.features(), 1 << 20);
    // Of 3 and 2 values, in turn.
    let found = records(&dataset);
    for (i, a) in found.iter().enumerate() {
        assert!(a.len() == 1 && a[0].1.abs() == 1.0, "{a:?}");
        for (j, b) in found.iter().enumerate() {
            assert_eq!(a == b, i % 6 == j % 6, "{i} {j}");
        }
    }
}

#[test]
fn wrong_crosses_and_offsets_are_refused() {
    let folder = tempdir().unwrap();
    let path = clicks(folder.path(), 0.0);
    let opened = |kinds: &[&str]| {
        open(
            std::slice::from_ref(&path),
            &coded(folder.path(), kinds, Some(Missing::Flag)),
        )
    };
    for (kinds, said) in [
        (
            &["x:nowhere=cross"][..],
            "a cross is of several different columns",
        ),
        (&["x:x=cross"], "a cross is of several different columns"),
        (&["p:q=cross"], "a cross is of several different columns"),
        (&["e=weight", "x:e=cross"], "column e holds weights"),
        (
            &["x=offset", "e=exposure"],
            "several offsets or exposures, x and e",
        ),
    ] {
        let error = opened(kinds).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    for (kind, said) in [
        (
            "e=exposure",
            "clicks.csv: line 2: column e holds \"0\", which is no exposure above 0",
        ),
        (
            "x=offset",
            "clicks.csv: line 4: column x is empty, and an offset has no value",
        ),
    ] {
        let error = rows(&opened(&[kind]).unwrap()).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let names = file(
        folder.path(),
        "names.csv",
        "a,b:c,a:b,c,y\n1,2,3,4,0\n2,3,4,5,1\n",
    );
    let error = open(&[names], &coded(folder.path(), &["a:b:c=cross"], None));
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("can be read as different columns"),
        "{error}"
    );
}
