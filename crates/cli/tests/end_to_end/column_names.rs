//! Columns of tables match by name; ambiguous tables are refused with a question.

use std::fmt::Write;

use crate::command::{Ended, Place, number};
use crate::data::random;

/// Rows of two features and a label, whether the first exceeds the second; `line` writes a row.
fn table(header: &str, rows: usize, line: impl Fn(f64, f64, u8) -> String) -> String {
    let mut state = 5;
    let mut text = format!("{header}\n");
    for _ in 0..rows {
        let (a, b) = (random(&mut state), random(&mut state));
        writeln!(text, "{}", line(a, b, u8::from(a > b))).unwrap();
    }
    text
}

fn files(place: &Place) {
    let rows = 400;
    place.write(
        "abc.csv",
        table("a,b,y", rows, |a, b, y| format!("{a:.4},{b:.4},{y}")),
    );
    place.write(
        "other.csv",
        table("y,b,a", rows, |a, b, y| format!("{y},{b:.4},{a:.4}")),
    );
    place.write(
        "bare.csv",
        table("b,a", rows, |a, b, _| format!("{b:.4},{a:.4}")),
    );
    place.write(
        "lacks.csv",
        table("a,y", rows, |a, _, y| format!("{a:.4},{y}")),
    );
    place.write(
        "extra.csv",
        table("a,b,c,y", rows, |a, b, y| format!("{a:.4},{b:.4},1,{y}")),
    );
    place.write(
        "renamed.csv",
        table("a,x,y", rows, |a, b, y| format!("{a:.4},{b:.4},{y}")),
    );
    let unnamed = table("", rows, |a, b, y| format!("{a:.4},{b:.4},{y}"));
    place.write("unnamed.csv", unnamed.trim_start());
}

fn noted(ended: &Ended, part: &str) {
    assert!(ended.stderr.contains(part), "{part:?} in {}", ended.stderr);
}

#[test]
fn a_model_finds_its_columns_by_name() {
    let place = Place::new();
    files(&place);
    let line = "train svm abc.csv --bias 1 --target 1e-3";
    let figures = place.json(&format!("{line} --test other.csv --out run"));
    let accuracy = number(&figures, "test_accuracy");
    assert!(accuracy > 0.95, "{accuracy}");
    for model in ["run", "run/model.safetensors"] {
        for file in ["abc.csv", "other.csv", "extra.csv"] {
            let evaluated = place.json(&format!("eval {model} {file}"));
            assert_eq!(
                number(&evaluated, "test_accuracy"),
                accuracy,
                "{model} {file}"
            );
        }
        let predicted = place.ok(&format!("predict {model} abc.csv")).stdout;
        for file in ["other.csv", "bare.csv", "extra.csv"] {
            assert_eq!(
                place.ok(&format!("predict {model} {file}")).stdout,
                predicted,
                "{file}"
            );
        }
    }
    let unlike = "unlike the training data";
    for (file, parts) in [
        ("lacks.csv", ["lacks.csv: lacks \"b\"", unlike]),
        ("renamed.csv", ["renamed.csv: lacks \"b\"", unlike]),
    ] {
        place.refuses(&format!("eval run {file}"), 2, &parts);
        place.refuses(&format!("predict run {file}"), 2, &parts);
        place.refuses(&format!("{line} --test {file} --out x"), 2, &parts);
        assert!(!place.path("x").exists());
    }
    place.refuses(
        "eval run bare.csv",
        2,
        &["bare.csv", "no label column \"y\"", "b, a"],
    );
    let ended = place.ok("eval run unnamed.csv");
    noted(&ended, "unnamed.csv: its first line names no columns");
    // A model of data without names takes columns in their order, and says so.
    place.ok("train svm unnamed.csv --bias 1 --out plain");
    noted(
        &place.ok("eval plain abc.csv"),
        "abc.csv: columns are matched by position",
    );
    noted(
        &place.ok("eval run/model.txt abc.csv"),
        "columns are matched by position",
    );
}

#[test]
fn files_of_one_data_set_have_the_same_columns() {
    let place = Place::new();
    files(&place);
    for (i, line) in [
        "abc.csv other.csv",
        "abc.csv other.csv --label y",
        "other.csv abc.csv --label first",
    ]
    .into_iter()
    .enumerate()
    {
        let figures = place.json(&format!("train svm {line} --bias 1 --out run{i}"));
        let accuracy = number(&figures, "train_accuracy");
        assert!(accuracy > 0.95, "{line}: {accuracy}");
    }
    let unlike = "unlike abc.csv";
    place.refuses(
        "bench abc.csv lacks.csv",
        2,
        &["lacks.csv: lacks \"b\"", unlike],
    );
    place.refuses(
        "bench abc.csv extra.csv",
        2,
        &["extra.csv: also has \"c\"", unlike],
    );
    place.refuses(
        "train svm abc.csv renamed.csv --out x",
        2,
        &["\"x\"", unlike],
    );
    noted(
        &place.ok("index abc.csv unnamed.csv"),
        "unnamed.csv: its first line names no columns",
    );
    noted(
        &place.ok("index unnamed.csv abc.csv"),
        "abc.csv: its columns are taken in the order of",
    );
    place.write("a.jsonl", "{\"x\": 1, \"z\": 2}\n");
    place.write("b.jsonl", "{\"x\": 1, \"w\": 2}\n");
    place.refuses(
        "bench a.jsonl b.jsonl",
        2,
        &["b.jsonl: lacks \"z\" and also has \"w\"", "a.jsonl"],
    );
}

#[test]
fn nets_find_their_columns_by_name() {
    let place = Place::new();
    files(&place);
    let line = "train image abc.csv --model mlp --epochs 5 --batch 32 --rate 0.1 --test other.csv --out net";
    let figures = place.json(line);
    let accuracy = number(&figures, "test_accuracy");
    assert!(accuracy > 0.9, "{accuracy}");
    let evaluated = place.json("eval net other.csv");
    assert_eq!(number(&evaluated, "test_accuracy"), accuracy);
    let predicted = place.ok("predict net abc.csv").stdout;
    for file in ["bare.csv", "extra.csv"] {
        assert_eq!(place.ok(&format!("predict net {file}")).stdout, predicted);
    }
    place.refuses(
        "eval net renamed.csv",
        2,
        &["lacks \"b\"", "unlike the training data"],
    );
}

#[test]
fn cells_are_separated_by_what_the_file_has() {
    let place = Place::new();
    let numbers = "7.4;3.51;5\n7.8;3.2;6\n7.1;3.3;5\n";
    place.write("plain.csv", numbers.replace(';', ","));
    place.write("named.csv", format!("a,b,y\n{}", numbers.replace(';', ",")));
    for (name, head, delimiter, reported) in [
        ("wine.csv", "\"a\";\"b\";\"y\"\n", ";", "semicolons"),
        ("bare.csv", "", ";", "semicolons"),
        ("pipes.csv", "a|b|y\n", "|", "vertical bars"),
        ("tabs.csv", "a\tb\ty\n", "\t", "tabs"),
        ("wine.data", "a;b;y\n", ";", "semicolons"),
        ("commas.tsv", "a,b,y\n", ",", "commas"),
    ] {
        place.write(name, format!("{head}{}", numbers.replace(';', delimiter)));
        let line = format!("train svm {name} --overwrite --out run");
        let noted = place.ok(&line).stderr;
        let said = format!("{name}: its cells are separated by {reported}");
        assert!(noted.contains(&said), "{noted}");
        let other = if head.is_empty() {
            "plain.csv"
        } else {
            "named.csv"
        };
        let primal = |file: &str| place.json(&format!("eval run {file}"))["primal"].clone();
        assert_eq!(primal(name), primal(other));
        let alike = place.ok(&format!("predict run {name}")).stdout;
        assert_eq!(place.ok(&format!("predict run {other}")).stdout, alike);
    }
    for (name, text, found) in [(
        "blanks.csv",
        "a b y\n7.4 3.51 5\n7.8 3.2 6\n",
        "separated by blanks",
    )] {
        place.write(name, text);
        for line in ["bench", "index", "train svm --out x"] {
            place.refuses(&format!("{line} {name}"), 2, &[name, found]);
        }
    }
    place.write("one.csv", "text\ngood film\nbad\n");
    place.refuses(
        "bench one.csv",
        2,
        &["one.csv", "one column", "no features"],
    );
    place.write("prose.txt", "Hello, world\n42, said he\n");
    assert_eq!(place.json("index prose.txt")["records"], 2);
    place.write("words.csv", "text,label\ngood film,pos\nbad film,neg\n");
    let said = place.ok("train svm words.csv --out x").stderr;
    assert!(said.contains("text: category of 2"), "{said}");
    place.write("unique.csv", "1,a b\n0,c d\n1,e f\n0,g h\n1,i j\n0,k l\n");
    noted(
        &place.ok("index unique.csv"),
        "another text in each of its 6 records",
    );
}

#[test]
fn a_first_line_that_may_be_names_or_a_record_is_asked_about() {
    let place = Place::new();
    place.write("pandas.csv", "0,1,2\n1.0,2.0,0.0\n3.0,4.0,1.0\n");
    place.write("years.csv", "2019,2020,2021\n1,2,0\n3,4,1\n");
    for name in ["pandas.csv", "years.csv"] {
        for line in ["bench", "train svm --out x"] {
            let parts = [name, "line 1", "--header", "yes or no"];
            place.refuses(&format!("{line} {name}"), 2, &parts);
        }
        assert_eq!(
            place.json(&format!("index {name} --header yes"))["records"],
            2
        );
        assert_eq!(
            place.json(&format!("index {name} --header no"))["records"],
            3
        );
    }
    place.refuses("index years.csv --header maybe", 2, &["auto, yes or no"]);
    place.ok("train svm years.csv --header yes --out run");
    // The names are known by now.
    place.write("moved.csv", "2021,2020,2019\n0,2,1\n1,4,3\n");
    let figures = place.json("eval run/model.safetensors moved.csv");
    assert_eq!(figures["records"], 2);
    assert_eq!(
        figures["test_accuracy"],
        place.json("eval run years.csv")["test_accuracy"]
    );
}
