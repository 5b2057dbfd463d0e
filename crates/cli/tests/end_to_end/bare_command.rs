//! `pelton train linear TABLE --label L` alone: the model is as good as a hand-tuned one, or the exit code says that it
//! is not.

use std::fmt::Write as _;

use crate::command::{Place, number};
use crate::data::random;

/// Columns of sizes from 1 to 1000, text, missing cells, and a rare class.
fn ordinary(rows: usize, seed: u64) -> String {
    let mut state = seed;
    let mut text = "plan,months,minutes,charge,messages,left\n".to_string();
    for _ in 0..rows {
        let plan = ["basic", "family", "pro"][((random(&mut state) + 1.0) * 1.499) as usize];
        let months = 120.0 + 100.0 * random(&mut state);
        let minutes = 900.0 + 270.0 * (random(&mut state) + random(&mut state));
        let charge = minutes * 0.17 + 3.0 * random(&mut state);
        let rate = -4.0
            + 0.012 * (minutes - 900.0)
            + 1.5 * f64::from(u8::from(plan == "pro"))
            + 2.0 * (random(&mut state) + random(&mut state));
        let left = if rate > 0.0 { "yes" } else { "no" };
        let messages = match random(&mut state) {
            value if value < -0.8 => "NA".to_string(),
            value => (10.0 * value.abs()).round().to_string(),
        };
        writeln!(
            text,
            "{plan},{months:.0},{minutes:.1},{charge:.2},{messages},{left}"
        )
        .unwrap();
    }
    text
}

#[test]
fn an_ordinary_table_gives_a_good_model() {
    let place = Place::new();
    place.write("train.csv", ordinary(2000, 3));
    place.write("test.csv", ordinary(2000, 4));
    let figures = place.json("train linear train.csv --label left --test test.csv --out run");
    assert!(number(&figures["test"], "auc") > 0.9, "{figures}");
    assert!(number(&figures, "relative_gap") <= 1e-3, "{figures}");
    let config = place.configuration("run");
    for chosen in [
        "loss = \"logistic\"",
        "scale = \"standard\"",
        "target = \"auto\"",
    ] {
        assert!(config.contains(chosen), "{chosen} in\n{config}");
    }
    // Another scale and offset of a column changes nothing.
    let scaled = number(&figures, "primal");
    let larger =
        ordinary(2000, 3)
            .lines()
            .enumerate()
            .fold(String::new(), |mut all, (at, line)| {
                let mut cells: Vec<String> = line.split(',').map(str::to_string).collect();
                if at > 0 {
                    cells[1] = format!("{:e}", 1e4 * cells[1].parse::<f64>().unwrap() + 1e6);
                }
                writeln!(all, "{}", cells.join(",")).unwrap();
                all
            });
    place.write("larger.csv", larger);
    let figures = place.json("train linear larger.csv --label left --out larger");
    let other = number(&figures, "primal");
    assert!((other / scaled - 1.0).abs() < 1e-3, "{other} {scaled}");
}

#[test]
fn labels_that_are_numbers_make_a_regression() {
    let place = Place::new();
    let mut state = 7;
    let mut text = "rooms,area,city,price\n".to_string();
    for row in 0..1500 {
        let (rooms, area) = (
            3.0 + 2.0 * random(&mut state),
            80.0 + 40.0 * random(&mut state),
        );
        let city = ["a", "b"][row % 2];
        let price =
            1e5 + 3e4 * rooms + 900.0 * area + 2e4 * (row % 2) as f64 + 5e3 * random(&mut state);
        writeln!(text, "{rooms:.0},{area:.1},{city},{price:.2}").unwrap();
    }
    place.write("houses.csv", text);
    let ended =
        place.ok("train linear houses.csv --label price --test houses.csv --json --out run");
    assert!(
        ended.stderr.contains("a regression is trained"),
        "{}",
        ended.stderr
    );
    let r2 = number(&ended.json()["test_targets"], "r2");
    assert!(r2 > 0.95, "{r2}");
    let three = "x,y\n".to_string() + &"1,0\n2,1\n3,2\n1.1,0\n2.1,1\n3.2,2\n".repeat(30);
    place.write("three.csv", three);
    let config = |run: &str| place.configuration(run);
    place.ok("train linear three.csv --label y --out three");
    assert!(config("three").contains("loss = \"multinomial\""));
    place.ok("train linear three.csv --label y --penalty l1 --out few");
    assert!(config("few").contains("loss = \"logistic\""));
}

/// Targets far from 0 compared with their spread lose nothing in training, evaluation and prediction.
#[test]
fn far_targets_are_centred() {
    let place = Place::new();
    let mut state = 1;
    let mut text = "a,b,when\n".to_string();
    let mut expected = Vec::new();
    for _ in 0..800 {
        let (a, b) = (random(&mut state), random(&mut state));
        let when = 1.7e9 + 10.0 * a + 5.0 * b + 0.1 * random(&mut state);
        expected.push(when);
        writeln!(text, "{a:.6},{b:.6},{when:.4}").unwrap();
    }
    place.write("far.csv", text);
    for flags in ["", "--scale none", "--loss huber", "--penalty l1"] {
        let line = format!(
            "train linear far.csv --label when --test far.csv --overwrite --out run {flags}"
        );
        let figures = place.json(&line);
        let error = number(&figures["test_targets"], "mae");
        assert!(error < 0.4, "{flags}: {figures}");
        let predicted = place.ok("predict run far.csv").stdout;
        let off = predicted
            .lines()
            .zip(&expected)
            .map(|(line, expected)| (line.parse::<f64>().unwrap() - expected).abs());
        assert!(off.fold(0.0, f64::max) < 2.0, "{flags}");
        let again = place.json("eval run far.csv");
        assert!(number(&again["test_targets"], "r2") > 0.99, "{again}");
    }
    place.refuses(
        "train linear far.csv --label when --loss squared --intercept none --out none",
        2,
        &["targets about", "--intercept free"],
    );
}

/// A run reports the gap it reached, and fails if the model is not reliable.
#[test]
fn a_run_that_ends_far_from_the_optimum_fails() {
    let place = Place::new();
    place.libsvm("train", 30_000);
    let far = "train linear train --cost 1e6 --solver coordinate-descent --memory 1MB --threads 1";
    let ended = place.run(&format!("{far} --epochs 2 --out asked"));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    place.refuses(
        &format!("{far} --epochs 2 --target auto --out run"),
        3,
        &["1e-3", "--target none"],
    );
    assert!(place.path("run/model.safetensors").exists());
    place.refuses("train linear --resume --out run --epochs 3", 3, &["1e-3"]);
    place.ok("train linear --resume --out run --epochs 4 --target none");
}

#[test]
fn missing_numbers_are_filled_in_training_and_prediction() {
    let place = Place::new();
    let mut state = 5;
    let (mut whole, mut lacking) = ("a,b,y\n".to_string(), "a,b,y\n".to_string());
    for row in 0..400 {
        let (a, b) = (random(&mut state), random(&mut state));
        let y = u8::from(a + b > 0.0);
        writeln!(whole, "{a:.4},{b:.4},{y}").unwrap();
        match row % 9 {
            0 => writeln!(lacking, "{a:.4},,{y}").unwrap(),
            _ => writeln!(lacking, "{a:.4},{b:.4},{y}").unwrap(),
        }
    }
    place.write("whole.csv", whole);
    place.write("lacking.csv", lacking);
    let said = place
        .ok("train linear lacking.csv --label y --out lacking")
        .stderr;
    assert!(
        said.contains("b: number") && said.contains("feature for missing"),
        "{said}"
    );
    // A model trained on complete rows uses the mean.
    place.ok("train linear whole.csv --label y --out whole");
    for run in ["lacking", "whole"] {
        for data in ["lacking.csv", "whole.csv"] {
            let accuracy = number(&place.json(&format!("eval {run} {data}")), "test_accuracy");
            assert!(accuracy > 0.9, "{run} {data}: {accuracy}");
        }
    }
    place.refuses(
        "train linear lacking.csv --label y --missing error --out refused",
        2,
        &["--missing"],
    );
}

/// More features than Newton's method supports; coordinate descent alone does not solve some cases, and a run that ends
/// far from the optimum says so.
#[test]
fn wide_rows_of_features_of_any_size_are_solved_or_said_not_to_be() {
    let place = Place::new();
    let mut state = 9;
    for sizes in [1, 3, 5] {
        let mut text = String::new();
        for _ in 0..600 {
            let mut row = String::new();
            let mut sum = 2.0 * random(&mut state);
            for feature in 0..1500 {
                let value = random(&mut state);
                if value.abs() > 0.1 {
                    continue;
                }
                sum += 3.0 * value * f64::from(feature % 7 - 3);
                let size = 10_f64.powi(feature % sizes);
                write!(row, " {}:{:e}", feature + 1, size * (value + 0.3)).unwrap();
            }
            let label = if sum > 0.0 { 1 } else { -1 };
            writeln!(text, "{label}{row}").unwrap();
        }
        place.write("wide.svm", text);
        let ended = place.run("train linear wide.svm --json --overwrite --out run");
        let gap = number(&ended.json(), "relative_gap");
        let expected = if gap <= 1e-3 { 0 } else { 3 };
        assert_eq!(ended.code, Some(expected), "{sizes}: {gap}");
        assert!(sizes > 1 || gap <= 1e-3, "{gap}");
    }
}
