//! Regressions of real targets: from files of every format to figures, models and predictions; and refusals.

use std::fmt::Write;

use crate::command::{Place, number};
use crate::data::{npy, random};

const LOSSES: [&str; 5] = [
    "squared",
    "epsilon-insensitive",
    "squared-epsilon-insensitive",
    "huber",
    "poisson",
];

/// Rows of three features and a target, nearly linear in them and about 40; counts if `counts`.
fn rows(count: usize, counts: bool) -> Vec<[f64; 4]> {
    let mut state = 3;
    (0..count)
        .map(|_| {
            let [a, b, c, noise] = [(); 4].map(|()| (1e4 * random(&mut state)).round() / 1e4);
            let linear = 2.0 * a - b + 0.5 * c + 0.3 * noise;
            let target = if counts {
                (1.0 + 0.5 * linear).exp().round()
            } else {
                (1e4 * (40.0 + linear)).round() / 1e4
            };
            [a, b, c, target]
        })
        .collect()
}

fn csv(rows: &[[f64; 4]]) -> String {
    let lines = rows.iter().map(|[a, b, c, t]| format!("{a},{b},{c},{t}\n"));
    "a,b,c,price\n".to_string() + &lines.collect::<String>()
}

/// R², mean absolute error and root mean squared error.
fn figures(targets: &[f64], predicted: &[f64]) -> [f64; 3] {
    let count = targets.len() as f64;
    let mean = targets.iter().sum::<f64>() / count;
    let pairs = targets.iter().zip(predicted);
    let squares: f64 = pairs.clone().map(|(t, p)| (t - p).powi(2)).sum();
    let spread: f64 = targets.iter().map(|t| (t - mean).powi(2)).sum();
    let absolute: f64 = pairs.map(|(t, p)| (t - p).abs()).sum();
    [
        1.0 - squares / spread,
        absolute / count,
        (squares / count).sqrt(),
    ]
}

fn predictions(text: &str) -> Vec<f64> {
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn every_format_gives_one_model_and_its_figures() {
    let place = Place::new();
    let rows = rows(3000, false);
    place.write("rows.csv", csv(&rows));
    place.write("rows.tsv", csv(&rows).replace(',', "\t"));
    let mut libsvm = String::new();
    for [a, b, c, t] in &rows {
        writeln!(libsvm, "{t} 1:{a} 2:{b} 3:{c}").unwrap();
    }
    place.write("rows.libsvm", libsvm);
    place.write("rows.npy", npy(4, &rows.concat()));
    let settings = "--loss squared --cost 10 --target 1e-7 --seed 1";
    let mut primal = None;
    for data in ["rows.csv", "rows.tsv", "rows.libsvm", "rows.npy"] {
        let line = format!("train svm {data} {settings} --test {data} --overwrite --out run");
        let found = place.json(&line);
        let first = *primal.get_or_insert(number(&found, "primal"));
        assert!(
            (number(&found, "primal") / first - 1.0).abs() < 2e-7,
            "{data}"
        );
        assert_eq!(
            (&found["classes"], &found["test"]),
            (&0.into(), &serde_json::Value::Null)
        );
        assert!(found["test_accuracy"].is_null() && found["train_accuracy"].is_null());
        let tested = &found["test_targets"];
        assert!(
            number(tested, "r2") > 0.95 && tested["poisson_deviance"].is_null(),
            "{tested}"
        );
        let evaluated = place.json(&format!("eval run {data}"));
        assert_eq!(&evaluated["test_targets"], tested);
        assert!((number(&evaluated, "primal") / number(&found, "primal") - 1.0).abs() < 1e-9);
        let predicted = predictions(&place.ok(&format!("predict run {data}")).stdout);
        let targets: Vec<f64> = rows.iter().map(|row| f64::from(row[3] as f32)).collect();
        let expected = figures(&targets, &predicted);
        for (key, expected) in ["r2", "mae", "rmse"].into_iter().zip(expected) {
            assert!(
                (number(tested, key) - expected).abs() < 1e-9,
                "{data} {key}: {tested}"
            );
        }
    }
    let said = place.ok("eval run rows.csv").stdout;
    assert!(
        said.starts_with("R² 0.9") && said.contains(" of 3000 examples, primal "),
        "{said}"
    );
    // Without the column of targets.
    let bare: String = rows
        .iter()
        .map(|[a, b, c, _]| format!("{a},{b},{c}\n"))
        .collect();
    place.write("bare.csv", format!("a,b,c\n{bare}"));
    assert_eq!(
        place.ok("predict run bare.csv").stdout,
        place.ok("predict run rows.csv").stdout
    );
}

#[test]
fn every_loss_in_memory_and_out_of_core() {
    let place = Place::new();
    place.write("rows.csv", csv(&rows(24_000, false)));
    place.write("counts.csv", csv(&rows(24_000, true)));
    for loss in LOSSES {
        let data = if loss == "poisson" {
            "counts.csv"
        } else {
            "rows.csv"
        };
        let line = format!("train svm {data} --loss {loss} --target 1e-4 --overwrite --epochs 100");
        let held = place.json(&format!("{line} --test {data} --out held"));
        let gap = number(&held, "relative_gap");
        assert!(gap <= 1e-4, "{loss}: {gap}");
        for solver in ["newton", "coordinate-descent"] {
            let line = format!("{line} --solver {solver} --memory 500KiB --out streamed");
            let found = place.json(&line);
            let (primal, dual) = (number(&found, "primal"), number(&found, "dual"));
            assert!(
                number(&found, "relative_gap") <= 1e-4,
                "{loss} {solver}: {found}"
            );
            assert!(dual <= number(&held, "primal") && number(&held, "dual") <= primal);
        }
        let tested = &held["test_targets"];
        assert_eq!(tested["poisson_deviance"].is_null(), loss != "poisson");
        let evaluated = place.json(&format!("eval held {data}"));
        assert!((number(&evaluated, "primal") / number(&held, "primal") - 1.0).abs() < 1e-9);
        // LIBLINEAR's format has only its own losses, and neither cost nor ε.
        let is_known = loss.contains("epsilon");
        assert_eq!(place.path("held/model.txt").exists(), is_known, "{loss}");
        if is_known {
            let read = place.json(&format!("eval held/model.txt {data}"));
            assert_eq!(&read["test_targets"], tested);
        }
        assert_eq!(
            place
                .ok(&format!("predict held {data}"))
                .stdout
                .lines()
                .count(),
            24_000
        );
    }
    // The parameter of a loss is part of its name in configurations and models.
    let line = "train svm rows.csv --loss huber --epsilon 0.25 --target 1e-4 --out narrow";
    let narrow = place.json(line);
    let toml = String::from_utf8(place.read("narrow/run.toml")).unwrap();
    assert!(
        toml.contains("loss = \"huber:0.25\"") && toml.contains("free_bias = true"),
        "{toml}"
    );
    let evaluated = place.json("eval narrow/model.safetensors rows.csv");
    assert!((number(&evaluated, "primal") / number(&narrow, "primal") - 1.0).abs() < 1e-9);
    place.refuses(
        "train svm rows.csv --loss huber --epochs 200 --resume --config narrow/run.toml --epsilon 1 --out narrow",
        2,
        &["started with --loss huber:0.25 and cannot continue with"],
    );
}

#[test]
fn the_command_of_the_page_reaches_what_it_is_shown_for() {
    let place = Place::new();
    place.write("houses.csv", csv(&rows(500, false)));
    place.write("new.csv", csv(&rows(600, false)[500..]));
    let page = include_str!("../../../../docs/solvers.md");
    let lines = page.lines().filter(|line| line.contains("houses.csv"));
    let lines: Vec<&str> = lines
        .filter_map(|line| line.strip_prefix("pelton "))
        .collect();
    assert_eq!(lines.len(), 1);
    let found = place.json(lines[0]);
    assert!(number(&found["test_targets"], "r2") > 0.95, "{found}");
}

#[test]
fn what_is_no_regression_is_refused() {
    let place = Place::new();
    let good = csv(&rows(50, false));
    place.write("good.csv", &good);
    for (name, target, parts) in [
        (
            "text.csv",
            "cheap",
            &["target \"cheap\" in column 4 is not a number", "--label"],
        ),
        (
            "none.csv",
            "",
            &["column 4, the label, is empty", "--label"],
        ),
        (
            "nan.csv",
            "nan",
            &["column 4, the label, is empty or holds no value", "--label"],
        ),
        (
            "inf.csv",
            "inf",
            &["\"inf\" in column 4 is not finite", "replace it"],
        ),
        (
            "large.csv",
            "1e39",
            &["is beyond 32-bit", "scale the targets"],
        ),
    ] {
        place.write(name, format!("{good}1,2,3,{target}\n"));
        let parts = [&[name, "line 52"][..], &parts[..]].concat();
        place.refuses(&format!("train svm {name} --loss squared"), 2, &parts);
    }
    let skipped = place.json("train svm text.csv --loss squared --on-bad-record skip --overwrite");
    assert_eq!(skipped["skipped_records"], 1);
    place.write(
        "names.csv",
        good.replace("price", "a.b").replace(",4", ",x4"),
    );
    place.refuses(
        "train svm names.csv --loss huber",
        2,
        &[
            "names.csv",
            "is not a number",
            "--loss hinge, squared-hinge or logistic",
        ],
    );
    place.write("negative.csv", "1,2,3\n2,1,-1\n0,1,4\n");
    place.refuses(
        "train svm negative.csv --loss poisson",
        2,
        &["negative.csv: line 2: has the target -1", "at least 0"],
    );
    for (flags, parts) in [
        ("--class-weight 1=2", ["--class-weight", "is for classes"]),
        (
            "--class-weight balanced",
            ["--class-weight", "is for classes"],
        ),
        ("--positive 1", ["--positive", "is for classes"]),
        (
            "--epsilon 1",
            ["--epsilon", "does not apply to loss squared"],
        ),
    ] {
        let line = format!("train svm good.csv --loss squared {flags}");
        place.refuses(&line, 2, &parts);
    }
    place.refuses(
        "train svm good.csv --loss huber --epsilon 0",
        2,
        &["--epsilon", "out of range for loss huber"],
    );
    place.ok("train svm good.csv --loss squared --target 1e-3 --out run");
    place.refuses(
        "predict run good.csv --probabilities",
        2,
        &["no probabilities"],
    );
    place.refuses(
        "eval run good.csv --positive 1",
        2,
        &["--positive", "predicts real targets"],
    );
    place.refuses("eval run text.csv", 2, &["text.csv", "line 52", "cheap"]);
    // Predictions do not need targets.
    assert_eq!(place.ok("predict run text.csv").stdout.lines().count(), 51);
}
