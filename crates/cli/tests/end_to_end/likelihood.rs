//! `--penalty none`, its coefficients, `--warm-start` and `--cost auto`.

use std::fmt::Write as _;

use serde_json::Value;

use crate::command::{Place, number};
use crate::data::random;

/// y = 3 + 2 x − z/1000 and noise, in a table with a column without information and one that is a combination.
fn line(rows: usize) -> (String, Vec<[f64; 3]>) {
    let mut state = 5;
    let mut text = "x,z,twice,y\n".to_string();
    let mut all = Vec::new();
    for _ in 0..rows {
        let (x, z) = (
            (8.0 * random(&mut state)).round() / 8.0,
            (1000.0 * random(&mut state)).round(),
        );
        let y = 3.0 + 2.0 * x - z / 1000.0 + (64.0 * random(&mut state)).round() / 64.0;
        writeln!(text, "{x},{z},{},{y}", 2.0 * x).unwrap();
        all.push([x, z, y]);
    }
    (text, all)
}

/// Estimates and standard errors of least squares over two columns and a constant, from sums about the means.
fn least_squares(rows: &[[f64; 3]]) -> [(f64, f64); 3] {
    let n = rows.len() as f64;
    let mean = |of: &dyn Fn(&[f64; 3]) -> f64| rows.iter().map(of).sum::<f64>() / n;
    let [mx, mz, my] = [0, 1, 2].map(|j| mean(&|row| row[j]));
    let sum = |i: usize, j: usize| {
        let means = [mx, mz, my];
        rows.iter()
            .map(|row| (row[i] - means[i]) * (row[j] - means[j]))
            .sum::<f64>()
    };
    let (xx, zz, xz, xy, zy) = (sum(0, 0), sum(1, 1), sum(0, 1), sum(0, 2), sum(1, 2));
    let determinant = xx * zz - xz * xz;
    let (a, b) = (
        (zz * xy - xz * zy) / determinant,
        (xx * zy - xz * xy) / determinant,
    );
    let constant = my - a * mx - b * mz;
    let rest: f64 = rows
        .iter()
        .map(|[x, z, y]| (y - constant - a * x - b * z).powi(2))
        .sum();
    let variance = rest / (n - 3.0);
    let (va, vb, vab) = (
        variance * zz / determinant,
        variance * xx / determinant,
        -variance * xz / determinant,
    );
    let vc = variance / n + mx * mx * va + mz * mz * vb + 2.0 * mx * mz * vab;
    [(constant, vc.sqrt()), (a, va.sqrt()), (b, vb.sqrt())]
}

fn coefficient<'a>(summary: &'a Value, name: &str) -> &'a Value {
    let all = summary["inference"]["coefficients"].as_array().unwrap();
    all.iter().find(|found| found["name"] == name).unwrap()
}

#[test]
fn coefficients_have_standard_errors() {
    let place = Place::new();
    let (text, rows) = line(60_000);
    place.write("line.csv", text);
    // In memory and streamed.
    for (memory, out) in [("1GiB", "held"), ("700KB", "streamed")] {
        let ended = place.ok(&format!(
            "train linear line.csv --label y --loss squared --penalty none --memory {memory} --out {out}"
        ));
        for said in [
            "standard error",
            "intercept",
            "twice: combinations of other features",
        ] {
            assert!(ended.stderr.contains(said), "{said} in\n{}", ended.stderr);
        }
        let summary: Value =
            serde_json::from_slice(&place.read(&format!("{out}/summary.json"))).unwrap();
        for (name, (estimate, error)) in ["intercept", "x", "z"].iter().zip(least_squares(&rows)) {
            let found = coefficient(&summary, name);
            let close = |name: &str, expected: f64| {
                let found = number(found, name);
                assert!(
                    (found - expected).abs() < 1e-6 * error.max(expected.abs()),
                    "{name}: {found} {expected}"
                );
            };
            close("estimate", estimate);
            close("standard_error", error);
            // t with 59 997 degrees of freedom at 0.975.
            close("high", estimate + 1.9600035 * error);
        }
        assert_eq!(summary["inference"]["statistic"], "t");
        assert_eq!(
            number(&summary["inference"], "degrees_of_freedom"),
            59_997.0
        );
        assert_eq!(number(coefficient(&summary, "twice"), "estimate"), 0.0);
        let report = String::from_utf8(place.read(&format!("{out}/report.html"))).unwrap();
        assert!(report.contains("Coefficients") && report.contains("degrees of freedom"));
        // The gap is an estimate, and lines of metrics say so.
        let metrics = String::from_utf8(place.read(&format!("{out}/metrics.jsonl"))).unwrap();
        assert!(metrics.contains("\"certified\":false") && !metrics.contains("\"certified\":true"));
    }
}

#[test]
fn what_has_no_likelihood_or_no_optimum_is_refused() {
    let place = Place::new();
    place.write("apart.csv", "x,y\n1,no\n2,no\n3,yes\n4,yes\n");
    for (flags, said) in [
        ("", "can be separated"),
        ("--cost 2", "leave --cost out"),
        (
            "--loss hinge",
            "does not support penalty none; give logistic, squared or poisson",
        ),
        ("--solver coordinate-descent", "needs Newton's method"),
    ] {
        let line = format!("train linear apart.csv --label y --penalty none --out run {flags}");
        place.refuses(&line, 2, &[said]);
    }
}

fn table(rows: usize, seed: u64, names: &str) -> String {
    let mut state = seed;
    let mut text = format!("{names}\n");
    for _ in 0..rows {
        let x: Vec<f64> = (0..3).map(|_| random(&mut state)).collect();
        let u = x[0] + 0.5 * x[1] + 1.5 * random(&mut state);
        let label = ["low", "middle", "high"][usize::from(u > -0.4) + usize::from(u > 0.4)];
        writeln!(text, "{:.3},{:.3},{:.3},{label}", x[0], x[1], x[2]).unwrap();
    }
    text
}

#[test]
fn training_begins_from_a_model() {
    let place = Place::new();
    place.write("monday.csv", table(3000, 1, "a,b,c,y"));
    // The same with other rows, a column less and one more, and the classes in another order of appearance.
    place.write("tuesday.csv", table(3000, 2, "a,b,new,y"));
    let passes = |line: &str| {
        let figures = place.json(line);
        assert!(number(&figures, "relative_gap") <= 1e-6, "{figures}");
        number(&figures, "epochs")
    };
    let cold = passes("train linear monday.csv --label y --target 1e-6 --out monday");
    let again =
        passes("train linear monday.csv --label y --target 1e-6 --warm-start monday --out again");
    assert!(again <= 2.0 && again < cold, "{again} of {cold}");
    passes(
        "train linear monday.csv --label y --target 1e-6 --warm-start monday --out monday --overwrite",
    );
    let ended = place.ok("train linear tuesday.csv --label y --target 1e-6 --warm-start monday/model.safetensors --out tuesday");
    assert!(
        ended
            .stderr
            .contains("2 features that the model and the data have in common"),
        "{}",
        ended.stderr
    );
    assert!(
        ended
            .stderr
            .contains("1 of the data are new, and 1 of the model"),
        "{}",
        ended.stderr
    );
    for (line, said) in [
        (
            "monday.csv --warm-start nowhere",
            "nowhere: there is no run folder or model file",
        ),
        (
            "apart.csv --warm-start monday",
            "begin from a model of the same classes",
        ),
        (
            "monday.csv --warm-start monday --loss hinge",
            "--warm-start needs a smooth loss",
        ),
    ] {
        place.write("apart.csv", "a,b,c,y\n1,0,0,no\n2,0,1,yes\n1,2,2,no\n");
        place.refuses(
            &format!("train linear {line} --label y --out other"),
            2,
            &[said],
        );
    }
    // Also l1, with each class against the rest.
    let l1 = "train linear monday.csv --label y --penalty l1 --target 1e-6";
    let cold = passes(&format!("{l1} --out l1"));
    let warm = passes(&format!("{l1} --warm-start l1 --out l1-again"));
    assert!(warm <= cold, "{warm} of {cold}");
}

#[test]
fn costs_of_a_path_show_how_many_weights_there_are() {
    let place = Place::new();
    place.write("monday.csv", table(1000, 3, "a,b,c,y"));
    let line = "train linear monday.csv --label y --positive high --penalty l1 --cost auto --folds 3 --out run";
    let ended = place.ok(line);
    assert!(ended.stderr.contains("weights"), "{}", ended.stderr);
    let summary: Value = serde_json::from_slice(&place.read("run/summary.json")).unwrap();
    let costs = summary["search"]["costs"].as_array().unwrap();
    assert_eq!(costs.len(), 10);
    let weights: Vec<f64> = costs
        .iter()
        .map(|cost| number(cost, "nonzero_weights"))
        .collect();
    assert!(weights[0] <= 1.0 && weights[9] >= 3.0, "{weights:?}");
    let report = String::from_utf8(place.read("run/report.html")).unwrap();
    assert!(report.contains("Weights by cost"));
    let ended = place.run("train linear monday.csv --label y --cost 1,much --folds 3 --out other");
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("`much` is not a cost"),
        "{}",
        ended.stderr
    );
}

/// Counts of claims proportional to the years of a policy, and a file with one year for every policy.
#[test]
fn counts_have_an_exposure() {
    let place = Place::new();
    let mut state = 9;
    let (mut unequal, mut yearly) = (
        "age,claims,years,kind\n".to_string(),
        "age,claims,kind\n".to_string(),
    );
    for _ in 0..2000 {
        let age = (40.0 + 30.0 * random(&mut state)).round();
        let kind = ["car", "van"][usize::from(random(&mut state) > 0.0)];
        let years = [1, 2, 4][((random(&mut state) + 1.0) * 1.499) as usize];
        let mut sum = 0;
        for _ in 0..years {
            let claims = usize::from(random(&mut state) > 0.01 * age)
                + usize::from(random(&mut state) > 0.8);
            writeln!(yearly, "{age},{claims},{kind}").unwrap();
            sum += claims;
        }
        writeln!(unequal, "{age},{sum},{years},{kind}").unwrap();
    }
    place.write("unequal.csv", &unequal);
    place.write("yearly.csv", yearly);
    let line = "--label claims --loss poisson --target 1e-8";
    // Sums over the years of a policy have the same likelihood: unscaled, the models are the same.
    for penalty in ["l2", "none"] {
        let flags = format!("{line} --penalty {penalty} --scale none");
        place.json(&format!(
            "train linear yearly.csv {flags} --out yearly-{penalty}"
        ));
        let years = format!(
            "train linear unequal.csv {flags} --column years=exposure --out sums-{penalty}"
        );
        let ended = place.ok(&years);
        assert!(
            ended
                .stderr
                .contains("years: exposure: the offset is its logarithm"),
            "{}",
            ended.stderr
        );
        let predicted = |run: &str, table: &str| -> Vec<f64> {
            place.write("new.csv", table);
            let ended = place.ok(&format!("predict {run} new.csv"));
            ended
                .stdout
                .lines()
                .map(|line| line.parse().unwrap())
                .collect()
        };
        let of_years = predicted(
            &format!("sums-{penalty}"),
            "age,years,kind\n30,1,car\n30,4,car\n55,2,van\n",
        );
        let of_one = predicted(&format!("yearly-{penalty}"), "age,kind\n30,car\n55,van\n");
        for (found, expected) in [
            (of_years[0], of_one[0]),
            (of_years[1], 4.0 * of_one[0]),
            (of_years[2], 2.0 * of_one[1]),
        ] {
            assert!(
                (found / expected - 1.0).abs() < 1e-3,
                "{penalty}: {of_years:?} {of_one:?}"
            );
        }
    }
    // Scaling leaves the exposure unchanged.
    let figures = place.json(&format!(
        "train linear unequal.csv {line} --column years=exposure --scale max-abs --out scaled"
    ));
    assert!(number(&figures, "relative_gap") <= 1e-8, "{figures}");
    let eval = place.json("eval scaled unequal.csv");
    assert!((number(&eval, "primal") / number(&figures, "primal") - 1.0).abs() < 1e-6);
    place.write("none.csv", "age,claims,years\n1,2,1\n2,1,0\n");
    for (flags, said) in [
        ("--column years=exposure", "no exposure above 0"),
        (
            "--column years=exposure --column age=offset",
            "several offsets or exposures",
        ),
        (
            "--column years=offset --penalty l1",
            "an offset needs a smooth loss, penalty l2 or none",
        ),
    ] {
        place.refuses(
            &format!("train linear none.csv --label claims --loss poisson --out refused {flags}"),
            2,
            &[said],
        );
    }
}

#[test]
fn amounts_of_many_sizes_are_logarithms() {
    let place = Place::new();
    let (mut plain, mut logs) = ("amount,y\n".to_string(), "amount,y\n".to_string());
    let mut state = 4;
    for row in 0..300 {
        let amount =
            (10_f64.powf(3.0 + 3.0 * random(&mut state))).round() * f64::from(1 - 2 * (row % 2));
        let log = amount.signum() * amount.abs().ln_1p();
        let y = 0.5 * log + random(&mut state);
        let amount = if row == 7 {
            String::new()
        } else {
            amount.to_string()
        };
        let log = if row == 7 {
            String::new()
        } else {
            log.to_string()
        };
        writeln!(plain, "{amount},{y}").unwrap();
        writeln!(logs, "{log},{y}").unwrap();
    }
    place.write("plain.csv", plain);
    place.write("logs.csv", logs);
    let primal = |table: &str| {
        number(
            &place.json(&format!(
                "train linear {table} --label y --out run --overwrite"
            )),
            "primal",
        )
    };
    let (found, expected) = (
        primal("plain.csv --column amount=log1p"),
        primal("logs.csv"),
    );
    assert!((found / expected - 1.0).abs() < 1e-5, "{found} {expected}");
}
