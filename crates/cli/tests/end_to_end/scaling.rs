//! Features scaled by `--scale`: the model equals that of a file scaled before.

use std::fmt::Write as _;

use crate::command::{Place, number};
use crate::data::random;

const FEATURES: usize = 4;

/// Rows of features with very different scales, far from 0, with labels; some values are 0 if `sparse`.
fn rows(count: u64, sparse: bool) -> Vec<(bool, [f64; FEATURES])> {
    let mut state = 5;
    let row = |_| {
        let own: [f64; FEATURES] = std::array::from_fn(|_| random(&mut state));
        let positive = own[0] - own[1] + 0.5 * own[2] + 0.3 * random(&mut state) > 0.0;
        let mut row = if sparse {
            [own[0] * 1e4, own[1], own[2] * 1e-2, own[3]]
        } else {
            [
                own[0] * 1e4 + 5e4,
                own[1] - 3.0,
                own[2] * 1e-2 + 0.1,
                own[3],
            ]
        };
        if sparse {
            // Too few values for rows to count as dense.
            row.iter_mut().for_each(|value| {
                *value *= f64::from(u8::from(random(&mut state) > 0.4));
            });
        }
        // At the precision of reading files.
        (positive, row.map(|value| f64::from(value as f32)))
    };
    (0..count).map(row).collect()
}

/// The rows after scaling.
fn scaled(
    rows: &[(bool, [f64; FEATURES])],
    scaling: &str,
    by: &[(bool, [f64; FEATURES])],
    sparse: bool,
) -> Vec<(bool, [f64; FEATURES])> {
    let count = by.len() as f64;
    let ends: [(f64, f64); FEATURES] = std::array::from_fn(|j| {
        let values = || by.iter().map(|(_, row)| row[j]);
        let mean = values().sum::<f64>() / count;
        let variance = values().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        match scaling {
            "standard" if sparse => (0.0, variance.sqrt()),
            "standard" => (mean, variance.sqrt()),
            _ => (0.0, values().map(f64::abs).fold(0.0, f64::max)),
        }
    });
    let scale = |row: &[f64; FEATURES]| std::array::from_fn(|j| (row[j] - ends[j].0) / ends[j].1);
    rows.iter()
        .map(|(positive, row)| (*positive, scale(row)))
        .collect()
}

fn text(rows: &[(bool, [f64; FEATURES])], libsvm: bool) -> String {
    let mut text = String::new();
    for (positive, row) in rows {
        let label = if *positive { 1 } else { -1 };
        if libsvm {
            write!(text, "{label}").unwrap();
            for (index, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
                write!(text, " {}:{value:e}", index + 1).unwrap();
            }
            text.push('\n');
        } else {
            row.iter()
                .for_each(|value| write!(text, "{value:e},").unwrap());
            writeln!(text, "{label}").unwrap();
        }
    }
    text
}

fn check(scaling: &str, sparse: bool, flags: &str) {
    let place = Place::new();
    let all = rows(4000, sparse);
    let (train, test) = all.split_at(3000);
    for (name, rows) in [("train", train), ("test", test)] {
        place.write(name, text(rows, sparse));
        let scaled = scaled(rows, scaling, train, sparse);
        place.write(&format!("scaled-{name}"), text(&scaled, sparse));
    }
    let line = format!(
        "--format {} --cost 0.1 --target 1e-5 --epochs 300 --seed 2 {flags}",
        if sparse { "libsvm" } else { "csv" }
    );
    let ours = place.json(&format!(
        "train svm train --test test --scale {scaling} --out ours {line}"
    ));
    let theirs = place.json(&format!(
        "train svm scaled-train --test scaled-test --out theirs {line}"
    ));
    for key in ["primal", "dual", "test_accuracy", "train_accuracy"] {
        let (ours, theirs) = (number(&ours, key), number(&theirs, key));
        assert!(
            (ours - theirs).abs()
                <= 2e-5 * theirs.abs() + 1.5e-3 * f64::from(u8::from(key.ends_with("accuracy"))),
            "{key}: {ours} and {theirs}"
        );
    }
    let predict = |model: &str, data: &str| {
        let format = if sparse { "libsvm" } else { "csv" };
        let said = place.ok(&format!("predict {model} {data} --format {format}"));
        said.stdout.lines().map(String::from).collect::<Vec<_>>()
    };
    let expected = predict("theirs", "scaled-test");
    for model in ["ours", "ours/model.safetensors", "ours/model.txt"] {
        let found = predict(model, "test");
        assert_eq!(found.len(), expected.len());
        let other = (found.iter().zip(&expected)).filter(|(ours, theirs)| ours != theirs);
        // Rows at the boundary.
        assert!(
            other.count() <= 1,
            "{model} predicts as the model of scaled rows"
        );
    }
    let format = if sparse { "libsvm" } else { "csv" };
    let measured = place.json(&format!("eval ours test --format {format}"));
    assert_eq!(measured["test_accuracy"], ours["test_accuracy"]);
}

#[test]
fn a_scaled_model_is_that_of_a_file_scaled_beforehand() {
    check("standard", false, "--intercept free");
    check("standard", false, "--bias 1 --loss logistic");
    check("standard", false, "--bias 1 --ranks 2");
    check("standard", true, "--bias 1");
    check("max-abs", false, "--bias 1 --loss squared-hinge");
    check("max-abs", true, "--ranks 2");
}

#[test]
fn scaling_works_out_of_core() {
    check("standard", false, "--bias 1 --memory 1MiB --blocks 3");
    check("max-abs", true, "--memory 1MiB --blocks 3");
}

/// A shift gives every feature omitted in a sparse file a value other than 0.
#[test]
fn models_with_shifts_take_sparse_files() {
    let place = Place::new();
    let dense = rows(1000, false);
    let holes: Vec<_> = dense
        .iter()
        .map(|(positive, row)| (*positive, [row[0], 0.0, 0.0, 0.0]))
        .collect();
    place.write("train.csv", text(&dense, false));
    place.write("holes.csv", text(&holes, false));
    place.write("holes.svm", text(&holes, true));
    place.ok("train svm train.csv --scale standard --out run");
    let dense = place.ok("predict run holes.csv").stdout;
    assert_eq!(place.ok("predict run holes.svm").stdout, dense);
    place.ok("pack holes.svm --out holes.prow");
    assert_eq!(place.ok("predict run holes.prow").stdout, dense);
}

#[test]
fn a_run_goes_on_with_its_own_scale_only() {
    let place = Place::new();
    place.write("train.csv", text(&rows(500, false), false));
    place.ok("train svm train.csv --scale standard --epochs 2 --out run");
    let model = place.read("run/model.safetensors");
    let refusal = ["the run was started with --scale standard and cannot continue with"];
    place.refuses("train svm --resume --scale none --out run", 2, &refusal);
    place.refuses("train svm --resume --scale max-abs --out run", 2, &refusal);
    place.ok("train svm --resume --out run");
    assert!(place.read("run/model.safetensors") == model);
    place.refuses(
        "train svm train.csv --scale wide --out other",
        2,
        &["use none, standard, max-abs or auto"],
    );
}

#[test]
fn the_verdict_recommends_a_scale() {
    let place = Place::new();
    place.write("dense.csv", text(&rows(500, false), false));
    place.write("sparse.svm", text(&rows(500, true), true));
    place.libsvm("even.svm", 500);
    let last = |line: &str| {
        let said = place.ok(line).stderr;
        let last = said.lines().last().unwrap_or_default().to_string();
        let advice = last.split_once("consider ").map(|(_, advice)| advice);
        advice.map(String::from)
    };
    let standard = Some("--scale standard".to_string());
    let max_abs = Some("--scale max-abs".to_string());
    assert_eq!(last("train svm dense.csv --out a"), standard);
    assert_eq!(last("train svm sparse.svm --out b"), max_abs);
    assert_eq!(
        last("train svm dense.csv --memory 1MiB --blocks 2 --out c"),
        standard
    );
    assert_eq!(last("train svm dense.csv --scale standard --out d"), None);
    assert_eq!(last("train svm even.svm --out e"), None);
}

/// Dense rows are computed as dense in any file format.
#[test]
fn full_rows_of_libsvm_text_train_like_those_of_a_table() {
    let place = Place::new();
    let mut rows = rows(2000, false);
    // An omitted zero is a zero.
    rows.iter_mut().step_by(3).for_each(|(_, row)| row[3] = 0.0);
    place.write("x.csv", text(&rows, false));
    place.write("x.svm", text(&rows, true));
    for flags in ["", "--memory 1MiB --blocks 4", "--ranks 2"] {
        let line = "--scale standard --epochs 5 --overwrite";
        place.ok(&format!("train svm x.csv {line} {flags} --out csv"));
        place.ok(&format!("train svm x.svm {line} {flags} --out svm"));
        assert!(
            place.read("csv/model.safetensors") == place.read("svm/model.safetensors"),
            "{flags}"
        );
    }
    // The file itself is unchanged.
    let first = place.json("inspect x.svm --id 0");
    assert_eq!(first["entries"].as_array().unwrap().len(), 3);
    let expected = place.ok("predict svm x.csv").stdout;
    assert_eq!(place.ok("predict svm x.svm").stdout, expected);
}
