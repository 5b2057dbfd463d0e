//! Classes and their indices: labels of any kind train nets, models keep the classes and their weights, and mismatches
//! are reported before the work.

use serde_json::Value;

use crate::command::{Place, number};

/// Rows of two features around a separate centre for each label; labels from index `first` on alternate.
fn spread(labels: &[&str], first: usize, count: usize, distance: f64) -> String {
    let row = |i: usize| {
        let class = first + i % (labels.len() - first);
        let (a, b) = [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)][class];
        let noise = (i * 7 % 11) as f64 / 11.0;
        let (a, b) = (distance * a + noise, distance * b - noise);
        format!("{a},{b},{}\n", labels[class])
    };
    (0..count).map(row).collect()
}

fn rows(labels: &[&str], count: usize) -> String {
    spread(labels, 0, count, 4.0)
}

#[cfg(feature = "nets")]
fn predicted(place: &Place, line: &str) -> Vec<String> {
    let lines = place.ok(line).stdout;
    lines
        .lines()
        .map(|line| line.split('\t').next().unwrap().to_owned())
        .collect()
}

/// Nets and heads: labels from 1 on, below 0, with gaps, in any order, and names.
#[cfg(feature = "nets")]
#[test]
fn nets_take_labels_as_they_are() {
    let place = Place::new();
    for (name, labels) in [
        ("ones", ["3", "1", "2"]),
        ("signs", ["1", "-1", "-3"]),
        ("gaps", ["50", "7", "1000"]),
        ("names", [">50K", "no", "a b"]),
        ("floats", ["2.0", "0.0", "1.0"]),
    ] {
        place.write("train.csv", rows(&labels, 120));
        // Another order, and not all classes.
        place.write("test.csv", spread(&labels, 1, 40, 4.0));
        for (job, more) in [("image", "--model mlp"), ("classify", "")] {
            let out = format!("{name}-{job}");
            let figures = place.json(&format!(
                "train {job} train.csv {more} --test test.csv --epochs 20 --batch 16 --rate 0.1 --out {out}"
            ));
            assert_eq!(number(&figures, "test_accuracy"), 1.0, "{out}");
            let again = place.json(&format!("eval {out} test.csv"));
            assert_eq!(again["test_accuracy"], figures["test_accuracy"], "{out}");
            let labels = labels.map(|label| label.trim_end_matches(".0"));
            let expected: Vec<&str> = (0..40).map(|i| labels[1 + i % 2]).collect();
            assert_eq!(
                predicted(&place, &format!("predict {out} test.csv")),
                expected,
                "{out}"
            );
        }
    }
    let line = "predict names-image test.csv";
    place.write("test.csv", rows(&["1", "2"], 4));
    let shown = place.ok(&format!("{line} --probabilities")).stdout;
    let mut lines = shown
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>());
    assert_eq!(lines.next().unwrap(), ["label", ">50K", "a b", "no"]);
    for line in lines {
        let shares: Vec<f64> = line[1..]
            .iter()
            .map(|share| share.parse().unwrap())
            .collect();
        assert_eq!((shares.len(), line[0]), (3, line[0]));
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-5, "{line:?}");
        let best = (0..3)
            .max_by(|&a, &b| shares[a].total_cmp(&shares[b]))
            .unwrap();
        assert_eq!(line[0], [">50K", "a b", "no"][best]);
    }
    let parts = ["names-classify", "no probabilities", "--top"];
    place.refuses("predict names-classify test.csv --probabilities", 2, &parts);
    place.write("scores.csv", rows(&["0.5", "1.25"], 20));
    let parts = ["scores.csv", "label 0.5", "whole numbers or names"];
    place.refuses("train image scores.csv --model mlp --out scores", 2, &parts);
    place.ok("train image scores.csv --model mlp --epochs 1 --classes 0.5,1.25 --out scores");
}

/// Data of other classes is refused before training, naming file, record and class.
#[test]
fn unknown_classes_are_reported_before_the_work() {
    let place = Place::new();
    place.write("train.csv", rows(&[">50K", "<=50K"], 20));
    place.write("test.csv", rows(&[">50K", ">50K."], 4));
    let parts = ["test.csv", "line 2", ">50K."];
    place.refuses("train svm train.csv --test test.csv --out run", 2, &parts);
    assert!(!place.path("run").exists(), "nothing was trained");
    // If bad records are skipped, so are these; too many fail the test but leave the model.
    place.ok("train svm train.csv --test test.csv --on-bad-record skip --out skips");
    let ended = place.run("train svm train.csv --test test.csv --on-bad-record skip:1 --out most");
    assert_ne!(ended.code, Some(0));
    assert!(
        ended.stderr.contains("the model was written to most"),
        "{}",
        ended.stderr
    );
    place.ok("eval most train.csv");
    #[cfg(feature = "nets")]
    for job in ["image --model mlp", "classify"] {
        place.refuses(
            &format!("train {job} train.csv --test test.csv --out net"),
            2,
            &parts,
        );
        let line = format!("train {job} train.csv --validation test.csv --out net");
        place.refuses(&line, 2, &parts);
        assert!(!place.path("net").exists());
    }
}

/// `--classes` sets the order and refuses other classes; it may not contradict a model's.
#[test]
fn classes_can_be_listed() {
    let place = Place::new();
    place.write("train.csv", rows(&["b", "c", "a"], 30));
    place.write("classes.txt", "c\nb\na\n");
    let labels = |run: &str| -> Value {
        let bytes = place.read(&format!("{run}/model.safetensors"));
        let header = String::from_utf8_lossy(&bytes[8..bytes.len().min(2000)]).into_owned();
        let (_, names) = header.split_once("\\\"names\\\":").unwrap();
        serde_json::from_str(&names[..=names.find(']').unwrap()].replace('\\', "")).unwrap()
    };
    place.ok("train svm train.csv --out own");
    assert_eq!(labels("own"), serde_json::json!(["a", "b", "c"]));
    for (classes, out) in [("classes.txt", "file"), ("c,b,a", "list")] {
        place.ok(&format!(
            "train svm train.csv --classes {classes} --out {out}"
        ));
        assert_eq!(labels(out), serde_json::json!(["c", "b", "a"]));
        place.ok(&format!("eval {out} train.csv --classes c,b,a"));
    }
    let parts = [
        "--classes",
        "differs from the classes of the model",
        "c, b, a",
    ];
    place.refuses("eval list train.csv --classes a,b,c", 2, &parts);
    let parts = ["train.csv", "line 3", "class \"a\""];
    place.refuses("train svm train.csv --classes b,c --out less", 2, &parts);
    let parts = ["--positive", "--classes"];
    place.refuses(
        "train svm train.csv --classes c,b,a --positive a",
        2,
        &parts,
    );
    let resumed = "train svm train.csv --out list --resume --classes a,b,c";
    assert_ne!(
        place.run(resumed).code,
        Some(0),
        "a run goes on with its own classes"
    );
}

/// `eval` uses the cost of each class, and the objective is the sum by its definition.
#[test]
fn the_primal_is_the_objective() {
    let place = Place::new();
    place.write("data.csv", spread(&["b", "a", "c"], 0, 60, 0.6));
    for loss in ["hinge", "squared-hinge", "logistic"] {
        for weights in ["", "--class-weight a=5 --class-weight c=0.25"] {
            for scale in ["none", "standard"] {
                let out = format!("{loss}-{}-{scale}", weights.len());
                let trained = place.json(&format!(
                    "train svm data.csv --loss {loss} --cost 0.7 --bias 1 {weights} --scale {scale} --out {out}"
                ));
                let measured = place.json(&format!("eval {out} data.csv"));
                let (trained, measured) = (number(&trained, "primal"), number(&measured, "primal"));
                assert!(
                    (trained - measured).abs() <= 1e-12 * trained,
                    "{out}: {trained} {measured}"
                );
            }
        }
    }
}

/// The columns of probabilities have names.
#[test]
fn probabilities_have_a_heading() {
    let place = Place::new();
    place.write("data.csv", rows(&["b x", "a", "c"], 30));
    place.ok("train svm data.csv --loss logistic --out run");
    let shown = place.ok("predict run data.csv --probabilities").stdout;
    let lines: Vec<Vec<&str>> = shown
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    assert_eq!(lines[0], ["label", "a", "b x", "c"]);
    assert_eq!(lines.len(), 31);
    for (i, line) in lines[1..].iter().enumerate() {
        let class = ["b x", "a", "c"][i % 3];
        let column = lines[0].iter().position(|name| *name == class).unwrap();
        let share: f64 = line[column].parse().unwrap();
        assert!(line[0] == class && share > 0.5, "{line:?}");
    }
    // Also for a row far from all classes.
    place.write("far.csv", "-6000,6000,a\n6000,6000,a\n1e6,-1e6,a\n");
    let shown = place.ok("predict run far.csv --probabilities").stdout;
    assert!(!shown.contains("NaN"), "{shown}");
    let plain = place.ok("predict run data.csv").stdout;
    assert_eq!(plain.lines().next(), Some("b x"));
}
