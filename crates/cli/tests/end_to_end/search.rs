//! The search for the best cost by cross-validation: its table, its choice, the resulting model, and refusals.

use std::fmt::Write;

use crate::command::{Place, number};
use crate::data::random;

/// Rows of four features in this many classes, a tenth of them at random.
fn libsvm(count: usize, classes: usize) -> String {
    let mut state = 11;
    let mut text = String::new();
    for _ in 0..count {
        let row = [(); 4].map(|()| random(&mut state));
        let place = 0.5 * (row[0] - row[1] + 0.3 * row[2]) + 0.5;
        let class = (place.clamp(0.0, 0.999) * classes as f64) as usize;
        let class = match 0.5 + 0.5 * random(&mut state) {
            noise if noise < 0.1 => (noise * 10.0 * classes as f64) as usize,
            _ => class,
        };
        let [a, b, c, d] = row;
        writeln!(text, "{} 1:{a:.5} 2:{b:.5} 3:{c:.5} 4:{d:.5}", class + 1).unwrap();
    }
    text
}

#[test]
fn the_model_is_that_of_the_cost_picked_byte_for_byte() {
    let place = Place::new();
    for (loss, classes, memory, figure) in [
        ("logistic", 2, "1GiB", "log_loss"),
        (
            "hinge",
            2,
            "120KiB --solver coordinate-descent --threads 1",
            "accuracy",
        ),
        ("squared-hinge", 3, "1GiB", "accuracy"),
        ("logistic", 3, "120KiB --threads 1", "log_loss"),
    ] {
        place.write("rows.libsvm", libsvm(6000, classes));
        let line = format!(
            "train svm rows.libsvm --loss {loss} --memory {memory} --target 1e-3 --epochs 200 --overwrite"
        );
        let searches = format!("{line} --cost 1e-5,0.01,1 --folds 3 --json --out searched");
        let ended = place.run(&searches).succeeded(&searches);
        let found = ended.json();
        let search = &found["search"];
        assert_eq!(search["figure"], figure, "{search}");
        let costs = search["costs"].as_array().unwrap();
        assert_eq!(costs.len(), 3);
        for cost in costs {
            let by_fold: Vec<f64> = cost["by_fold"]
                .as_array()
                .unwrap()
                .iter()
                .map(|value| value.as_f64().unwrap())
                .collect();
            assert_eq!(by_fold.len(), 3);
            let mean = by_fold.iter().sum::<f64>() / 3.0;
            assert!((mean - number(cost, "mean")).abs() < 1e-12, "{cost}");
            assert!(number(cost, "accuracy") > 0.3, "{cost}");
        }
        let best = number(search, "best");
        // A tiny cost leaves w at 0.
        assert!(best > 1e-4, "{search}");
        assert!(number(search, "relative_gap") <= 3e-3, "{search}");
        let said = &ended.stderr;
        assert!(said.contains("cross-validation over 3 folds"), "{said}");
        assert!(said.contains(" best"), "{said}");
        place.ok(&format!("{line} --cost {best} --out direct"));
        for file in ["model.safetensors", "model.txt"] {
            assert!(
                place.read(&format!("searched/{file}")) == place.read(&format!("direct/{file}")),
                "{loss} {file}"
            );
        }
        // A finished search is not repeated.
        let resumed = place.ok("train svm --resume --out searched");
        let said = &resumed.stderr;
        assert!(!said.contains("side by side"), "{said}");
        assert!(said.contains("cross-validation over 3 folds"), "{said}");
        assert!(
            place.read("searched/model.txt") == place.read("direct/model.txt"),
            "{loss}"
        );
    }
}

#[test]
fn real_targets_and_one_cost_are_validated_too() {
    let place = Place::new();
    place.write("rows.libsvm", libsvm(400, 9));
    for (loss, figure) in [("squared", "mse"), ("poisson", "poisson_deviance")] {
        let line =
            format!("train svm rows.libsvm --loss {loss} --cost 2 --folds 4 --overwrite --out run");
        let search = &place.json(&line)["search"];
        assert_eq!(search["figure"], figure);
        let cost = &search["costs"][0];
        assert!(number(cost, "r2") > 0.4, "{cost}");
        assert_eq!(number(search, "best"), 2.0);
    }
}

#[test]
fn costs_and_folds_that_make_no_search_are_refused() {
    let place = Place::new();
    place.write("rows.libsvm", libsvm(40, 2));
    for (flags, parts) in [
        ("--folds 1", &["--folds 1", "2 to 50"][..]),
        ("--folds 51", &["--folds 51", "2 to 50"]),
        ("--folds 41", &["--folds 41", "40 records"]),
        ("--cost 1,x --folds 3", &["--cost", "x"]),
        ("--cost 1,,2 --folds 3", &["--cost"]),
        ("--cost 1,0 --folds 3", &["cost"]),
        ("--cost 1,2,1 --folds 3", &["--cost lists 1 twice"]),
        ("--cost 1,2", &["--cost lists 2 costs", "--folds"]),
    ] {
        place.refuses(
            &format!("train svm rows.libsvm {flags} --out run"),
            2,
            parts,
        );
        assert!(!place.path("run").exists(), "{flags}");
    }
    place.ok("train svm rows.libsvm --cost 1,2 --folds 3 --out run");
    for flags in ["--folds 4", "--cost 1,3", "--cost 1", "--seed 3"] {
        place.refuses(
            &format!("train svm --resume --out run {flags}"),
            2,
            &["run/run.toml: the run was started with", "cannot continue"],
        );
    }
    place.ok("train svm rows.libsvm --out plain");
    place.refuses(
        "train svm --resume --out plain --folds 4",
        2,
        &["search among costs"],
    );
}

#[test]
fn a_class_with_fewer_records_than_folds_is_named() {
    let place = Place::new();
    let rare = "7 1:0.5 2:0.1\n7 1:0.4 3:0.2\n";
    place.write("rows.libsvm", libsvm(60, 2) + rare);
    let said = place.ok("train svm rows.libsvm --loss logistic --folds 3 --out run");
    let said = &said.stderr;
    assert!(said.contains("class 7 has 2 records for 3 folds"), "{said}");
    assert!(!said.contains("class 1 has"), "{said}");
}
