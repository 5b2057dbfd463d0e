//! Multinomial regression: one model in memory, streamed and on ranks, its figures and predictions, and refusals.

use crate::command::{Place, number};
use crate::data::random;

/// Rows of three features with very different scales, and one of three labels.
fn rows(count: usize) -> String {
    let mut state = 5;
    let row = |_| {
        let [a, b, c] = [(); 3].map(|()| (1e4 * random(&mut state)).round() / 1e4);
        let scores = [a + b, 2.0 * b - c, c - a];
        let noisy = scores.map(|score| score + 0.5 * random(&mut state));
        let best = (0..3).max_by(|&k, &l| noisy[k].total_cmp(&noisy[l]));
        let name = ["red", "green", "blue"][best.unwrap()];
        format!("{a},{},{},{name}\n", 1000.0 * b, 0.01 * c)
    };
    "a,b,c,colour\n".to_string() + &(0..count).map(row).collect::<String>()
}

#[test]
fn one_model_of_all_classes_in_memory_streamed_and_on_ranks() {
    let place = Place::new();
    place.write("rows.csv", rows(20_000));
    let settings = "--label colour --loss multinomial --intercept free --target 1e-6 --overwrite";
    let mut primal = None;
    for how in ["", "--memory 1MiB", "--ranks 2"] {
        let line = format!("train svm rows.csv {settings} {how} --test rows.csv --out run");
        let found = place.json(&line);
        let first = *primal.get_or_insert(number(&found, "primal"));
        assert!(
            (number(&found, "primal") / first - 1.0).abs() < 2e-6,
            "{how}"
        );
        assert!(number(&found, "relative_gap") <= 1e-6, "{how}: {found}");
        assert!(number(&found, "epochs") < 60.0, "{how}: {found}");
        assert_eq!(found["solver"], "l-bfgs");
        assert!(
            !place.path("run/model.txt").exists(),
            "LIBLINEAR has no such loss"
        );
    }
    let evaluated = place.json("eval run rows.csv --label colour");
    assert!((number(&evaluated, "primal") / primal.unwrap() - 1.0).abs() < 2e-6);
    let tested = &evaluated["test"];
    assert!(
        number(tested, "accuracy") > 0.7 && number(tested, "log_loss") < 0.7,
        "{tested}"
    );
    let predicted = place.ok("predict run rows.csv --label colour --scores --probabilities");
    let mut lines = predicted.stdout.lines();
    let heading = lines.next().unwrap();
    assert!(
        heading.contains("score red") && heading.contains("probability blue"),
        "{heading}"
    );
    for line in lines {
        let cells: Vec<f64> = line
            .split(',')
            .skip(1)
            .map(|cell| cell.parse().unwrap())
            .collect();
        let (scores, shares) = cells.split_at(3);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 3e-6, "{line}");
        let sum: f64 = scores.iter().map(|score| score.exp()).sum();
        for (score, share) in scores.iter().zip(shares) {
            assert!((score.exp() / sum - share).abs() < 1e-6, "{line}");
        }
    }
}

#[test]
fn settings_of_other_solvers_are_refused() {
    let place = Place::new();
    place.write("rows.csv", rows(50));
    place.write("two.csv", "a,y\n1,0\n2,1\n3,0\n");
    for (line, parts) in [
        (
            "rows.csv --label colour --loss multinomial --solver newton",
            ["--solver newton", "leave --solver out"],
        ),
        (
            "rows.csv --label colour --loss multinomial --order page",
            ["L-BFGS", "leave these out"],
        ),
        (
            "rows.csv --label colour --loss multinomial --skip",
            ["L-BFGS", "leave these out"],
        ),
        (
            "rows.csv --label colour --loss hinge --solver l-bfgs",
            ["smooth loss", "leave --solver out"],
        ),
        (
            "two.csv --label y --loss logistic --solver l-bfgs --skip",
            ["every row", "or --solver out"],
        ),
    ] {
        let ended = place.run(&format!("train svm {line}"));
        assert_ne!(ended.code, Some(0), "{line}");
        assert!(
            parts.iter().all(|part| ended.stderr.contains(part)),
            "{line}: {}",
            ended.stderr
        );
    }
    // With two labels it is the logistic loss.
    let of = |loss: &str| {
        place.json(&format!(
            "train svm two.csv --label y --loss {loss} --target 1e-6 --overwrite --out run"
        ))
    };
    assert_eq!(of("multinomial")["primal"], of("logistic")["primal"]);
}
