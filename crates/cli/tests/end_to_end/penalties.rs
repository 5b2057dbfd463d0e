//! Penalties for few weights: one model in memory, streamed and on ranks; saved, resumed and used; and refusals.

use crate::command::{Place, number};
use crate::data::random;

/// Sparse rows of many features; ten are informative.
fn rows(count: usize) -> String {
    let mut state = 9;
    let mut row = |_| {
        let mut features: Vec<usize> = (0..15)
            .map(|_| 1 + ((0.5 + 0.5 * random(&mut state)) * 1499.0) as usize)
            .chain(1..=10)
            .collect();
        features.sort_unstable();
        features.dedup();
        let values: Vec<f64> = features.iter().map(|_| random(&mut state)).collect();
        let pairs = features.iter().zip(&values);
        let u: f64 = pairs
            .clone()
            .filter(|(j, _)| **j <= 10)
            .map(|(_, x)| x)
            .sum();
        let label = if u + 0.2 * random(&mut state) > 0.1 {
            1
        } else {
            -1
        };
        let cells = pairs.map(|(j, x)| format!(" {j}:{x:.4}"));
        format!("{label}{}\n", cells.collect::<String>())
    };
    (0..count).map(&mut row).collect()
}

#[test]
fn few_weights_in_memory_streamed_and_on_ranks() {
    let place = Place::new();
    place.write("rows.svm", rows(4001));
    let settings =
        "--loss logistic --penalty l1 --cost 0.3 --intercept free --target 1e-6 --overwrite";
    let mut primal = None;
    for how in ["", "--memory 1MiB", "--ranks 2"] {
        let line = format!("train svm rows.svm {settings} {how} --out run");
        let found = place.json(&line);
        let first = *primal.get_or_insert(number(&found, "primal"));
        let off = (number(&found, "primal") / first - 1.0).abs();
        assert!(off < 2e-6, "{how}: {off}");
        assert!(number(&found, "relative_gap") <= 1e-6, "{how}: {found}");
        assert_eq!(found["solver"], "working-set");
        let nonzero = found["nonzero_weights"][0].as_u64().unwrap();
        assert!((4..200).contains(&nonzero), "{how}: {nonzero}");
    }
    let evaluated = place.json("eval run rows.svm");
    assert!((number(&evaluated, "primal") / primal.unwrap() - 1.0).abs() < 2e-6);
    let text = std::fs::read_to_string(place.path("run/model.txt")).unwrap();
    assert!(text.starts_with("solver_type L1R_LR\n"), "{text:.40}");
    let predicted = |model: &str| place.ok(&format!("predict {model} rows.svm")).stdout;
    assert_eq!(predicted("run/model.txt"), predicted("run"));
}

#[test]
fn costs_are_chosen_for_few_weights_and_for_one_loss_of_all_classes() {
    let place = Place::new();
    place.write("rows.svm", rows(601));
    let found = place.json(
        "train svm rows.svm --loss logistic --penalty elastic-net:0.7 --cost 0.001,0.3 --folds 3 --out run",
    );
    assert_eq!(number(&found["search"], "best"), 0.3, "{found}");
    let costs = found["search"]["costs"].as_array().unwrap();
    assert!(number(&costs[1], "mean") < number(&costs[0], "mean"));
    let classes: String = (0..300)
        .map(|i| format!("{},{},{}\n", ["a", "b", "c"][i % 3], i % 3 + i % 2, i % 7))
        .collect();
    place.write("three.csv", "class,x,y\n".to_string() + &classes);
    let settings = "three.csv --label class --loss multinomial --intercept free --target 1e-6";
    let found = place.json(&format!(
        "train svm {settings} --cost 0.0001,1 --folds 4 --out searched"
    ));
    assert_eq!(number(&found["search"], "best"), 1.0, "{found}");
    let alone = place.json(&format!("train svm {settings} --cost 1 --out alone"));
    assert_eq!(number(&found, "primal"), number(&alone, "primal"));
}

#[test]
fn what_penalties_do_not_go_with_is_refused() {
    let place = Place::new();
    place.write("rows.svm", rows(201));
    for (flags, parts) in [
        (
            "--penalty l1",
            ["loss hinge does not support penalty l1", "logistic"],
        ),
        (
            "--penalty l1.5 --loss squared-hinge",
            ["not a penalty", "elastic-net:SHARE"],
        ),
        (
            "--penalty l1 --loss squared-hinge --solver newton",
            ["--solver newton", "--penalty l1"],
        ),
        (
            "--loss squared-hinge --solver working-set",
            ["working-set", "leave it out"],
        ),
        (
            "--penalty l1 --loss squared-hinge --order page",
            ["--penalty l1", "--order"],
        ),
    ] {
        place.refuses(
            &format!("train svm rows.svm {flags} --out refused"),
            2,
            &parts,
        );
        assert!(!place.path("refused").exists(), "{flags}");
    }
}
