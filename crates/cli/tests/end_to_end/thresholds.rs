//! Thresholds between two classes, a model and its columns in a report, and bad weights and targets by line.

use std::fmt::Write;

use serde_json::Value;

use crate::command::{Place, number};
use crate::data::random;

/// Customers of two cities who leave more often when old and in Rome.
fn customers(rows: usize, seed: u64) -> String {
    let mut state = seed;
    let mut text = "id,city,age,since,left\n".to_string();
    for i in 0..rows {
        let city = ["Rome", "Oslo, NO"][i % 2];
        let age = 20 + i * 7 % 60;
        let odds =
            age as f64 / 30.0 + if i % 2 == 0 { 0.5 } else { -2.0 } + 2.0 * random(&mut state);
        let left = if odds > 1.5 { "yes" } else { "no" };
        writeln!(
            text,
            "{i},\"{city}\",{age},2026-11-{:02},{left}",
            1 + i % 28
        )
        .unwrap();
    }
    text
}

fn place() -> Place {
    let place = Place::new();
    place.write("train.csv", customers(400, 5));
    place.write("test.csv", customers(301, 11));
    place
}

const TRAIN: &str = "train svm train.csv --loss logistic --intercept free --scale standard";

/// Recall and precision of class yes.
fn recall_and_precision(figures: &Value) -> (f64, f64) {
    let yes = &figures["test"]["by_class"][1];
    (number(yes, "recall"), number(yes, "precision"))
}

#[test]
fn a_threshold_moves_the_decision() {
    let place = place();
    place.ok(&format!("{TRAIN} --out run"));
    let plain = recall_and_precision(&place.json("eval run test.csv"));
    let half = recall_and_precision(&place.json("eval run test.csv --threshold 0.5"));
    assert_eq!(plain, half);
    let low = recall_and_precision(&place.json("eval run test.csv --threshold 0.1"));
    let high = recall_and_precision(&place.json("eval run test.csv --threshold 0.9"));
    assert!(low.0 > plain.0 && low.1 < plain.1, "{low:?} {plain:?}");
    assert!(high.0 < plain.0 && high.1 >= plain.1, "{high:?} {plain:?}");
    let said = place.ok("eval run test.csv --threshold 0.1").stdout;
    assert!(
        said.contains("threshold: class yes from a probability of 0.100000 on"),
        "{said}"
    );
    // By the printed probabilities.
    let out = place
        .ok("predict run test.csv --probabilities --threshold 0.3")
        .stdout;
    for line in out.lines().skip(1) {
        let cells: Vec<&str> = line.split('\t').collect();
        let is_yes = cells[2].parse::<f64>().unwrap() >= 0.3;
        assert_eq!(cells[0] == "yes", is_yes, "{line}");
    }
    let table = place
        .ok("predict run test.csv --keep id --threshold 0.3")
        .stdout;
    let labels = table
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(1).unwrap());
    let others = out
        .lines()
        .skip(1)
        .map(|line| line.split('\t').next().unwrap());
    assert!(labels.eq(others));
    for (threshold, part) in [
        ("1.5", "from 0 to 1"),
        ("-0.1", "from 0 to 1"),
        ("NaN", "from 0 to 1"),
    ] {
        let line = format!("eval run test.csv --threshold {threshold}");
        place.refuses(&line, 2, &["--threshold", part]);
    }
    place.ok("train svm train.csv --loss squared-hinge --out margin");
    place.ok("eval margin test.csv --threshold 1.5");
    place.ok("eval margin test.csv --threshold -1.5");
    place.write("three.csv", "1,a\n2,b\n3,c\n1,a\n2,b\n3,c\n");
    place.ok("train svm three.csv --out three");
    place.refuses(
        "eval three three.csv --threshold 0.1",
        2,
        &["--threshold", "two classes"],
    );
}

#[test]
fn a_threshold_is_chosen_on_test_data_and_kept_in_the_model() {
    let place = place();
    let line = format!("{TRAIN} --test test.csv --out run --overwrite");
    let plain = place.json(&line);
    assert!(plain["threshold"].is_null());
    for goal in ["f1", "balanced", "precision:0.9", "recall:0.9"] {
        let figures = place.json(&format!("{line} --threshold {goal}"));
        let threshold = &figures["threshold"];
        assert_eq!(
            (&threshold["positive"], &threshold["of"]),
            (&"yes".into(), &"probability".into())
        );
        let (recall, precision) = recall_and_precision(&figures);
        match goal {
            "f1" => {
                let f1 = |figures: &Value| number(&figures["test"]["by_class"][1], "f1");
                assert!(f1(&figures) >= f1(&plain));
            }
            "balanced" => {
                let of = |figures: &Value| number(&figures["test"], "balanced_accuracy");
                assert!(of(&figures) >= of(&plain));
            }
            "precision:0.9" => assert!(precision >= 0.9, "{precision}"),
            _ => assert!(recall >= 0.9, "{recall}"),
        }
        // Without the run's configuration too.
        for model in ["run", "run/model.safetensors"] {
            let evaluated = place.json(&format!("eval {model} test.csv"));
            assert_eq!(evaluated["test"], figures["test"], "{goal}");
            assert_eq!(evaluated["threshold"], figures["threshold"], "{goal}");
        }
        let given = place.json("eval run test.csv --threshold 0.5");
        assert_eq!(given["test"], plain["test"]);
        let report = String::from_utf8(place.read("run/report.html")).unwrap();
        assert!(report.contains("<td>threshold</td>"), "{goal}");
    }
    let said = place.ok("predict run test.csv").stderr;
    assert!(
        said.contains("threshold: class yes from a probability of"),
        "{said}"
    );
    for (line, part) in [
        (format!("{TRAIN} --threshold f1 --out x"), "--test"),
        (
            format!("{TRAIN} --threshold f1 --test test.csv --ranks 2 --out x"),
            "one rank",
        ),
        (
            format!("{TRAIN} --threshold f3 --test test.csv --out x"),
            "balanced",
        ),
        (
            "train svm train.csv --label age --loss squared --threshold f1 --test test.csv --out x"
                .to_string(),
            "two classes",
        ),
    ] {
        place.refuses(&line, 2, &["--threshold", part]);
    }
}

#[test]
fn a_report_shows_the_test_figures_the_weights_and_the_columns() {
    let place = place();
    place.ok(&format!("{TRAIN} --test test.csv --out run"));
    let report = String::from_utf8(place.read("run/report.html")).unwrap();
    let tiles: Vec<&str> = report
        .split("<dt>")
        .skip(1)
        .map(|tile| &tile[..tile.find('<').unwrap()])
        .collect();
    assert_eq!(tiles, ["AUC", "log loss", "accuracy", "mean F1"]);
    for shown in [
        "ROC curve",
        "share of class yes found",
        "Calibration",
        "To the right: for class yes; to the left: for no. They are for scaled features.",
        "city=Oslo, NO",
        "<td>id</td><td>left out: numbers the records</td>",
        "<td>city</td><td>category of 2</td>",
    ] {
        assert!(report.contains(shown), "{shown}");
    }
    // Weights have the sign for the positive class.
    let rome = report
        .split("city=Rome")
        .next()
        .unwrap()
        .rfind("<rect")
        .unwrap_or(0);
    assert!(rome > 0);
    place.ok("train svm train.csv --out bare");
    let report = String::from_utf8(place.read("bare/report.html")).unwrap();
    let first = report.split("<dt>").nth(1).unwrap();
    assert!(first.starts_with("training accuracy"));
    assert!(!report.contains("ROC curve"));
}

#[test]
fn index_lists_the_columns() {
    let place = place();
    let said = place
        .ok("index train.csv --column age=category --column since=ignore")
        .stdout;
    for shown in [
        "left out: numbers the records",
        "2 features       category of 2",
        "60 features      category of 60",
        "left out as asked",
    ] {
        assert!(said.contains(shown), "{shown}: {said}");
    }
    let columns = &place.json("index train.csv")["columns"];
    assert_eq!(
        (
            &columns[2]["name"],
            &columns[2]["read_as"],
            &columns[2]["features"]
        ),
        (&"age".into(), &"number".into(), &1.into())
    );
    place.write("holes.csv", "a,b,y\n1,u,0\n,v,1\n3,u,0\n");
    let said = place.ok("index holes.csv --missing flag").stdout;
    assert!(
        said.contains(
            "2 features       number, 2 where missing, and a feature for missing (1 missing)"
        ),
        "{said}"
    );
    place.refuses(
        "index train.csv --column q=number",
        2,
        &["--column", "no such column"],
    );
    // Tables of numbers, and data without columns.
    place.write("numbers.csv", "a,b,y\n1,2,0\n3,4,1\n");
    let said = place.ok("index numbers.csv").stdout;
    assert!(said.contains("b  1 feature        number"), "{said}");
    place.libsvm("train", 20);
    assert!(!place.ok("index train").stdout.contains("columns"));
}

#[test]
fn bad_weights_and_targets_name_their_line() {
    let place = Place::new();
    place.write("train.csv", "a,w,y\n1,1,0\n2,2,1\n3,-1,0\n4,1,1\n");
    let column = ["train.csv: line 4", "weight -1", "at least 0"];
    place.refuses("train svm train.csv --column w=weight --out x", 2, &column);
    place.write("weights.txt", "1\n1\n1\n-2\n");
    let file = ["weights.txt: line 4", "weight -2", "at least 0"];
    place.refuses(
        "train svm train.csv --sample-weights weights.txt --out x",
        2,
        &file,
    );
    place.write("counts.csv", "a,b,y\n1,2,3\n2,1,0\n3,2,-4\n4,7,1\n");
    place.write("good.csv", "a,b,y\n1,2,3\n2,1,0\n3,2,4\n4,7,1\n");
    let target = ["counts.csv: line 4", "target -4", "at least 0"];
    place.refuses("train svm counts.csv --loss poisson --out x", 2, &target);
    place.ok("train svm good.csv --loss poisson --out run");
    place.refuses("eval run counts.csv", 2, &target);
}
