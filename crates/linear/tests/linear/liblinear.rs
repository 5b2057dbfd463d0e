//! Objectives and predictions against LIBLINEAR on real data. The reference values are in
//! `liblinear_objectives.txt`, written by `liblinear_objectives.py` (LIBLINEAR 2.50 with its iteration cap raised).

use crate::support;

use std::io::Read;
use std::path::PathBuf;

use pelton_format::{Layout, RowTable, Rows};
use pelton_linear::*;

fn data(name: &str) -> Option<PathBuf> {
    let folder = match std::env::var_os("PELTON_DATA") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!(
        "SKIPPED: {} is absent; set PELTON_DATA to the data folder",
        path.display()
    );
    None
}

/// LIBSVM text with labels ±1; +1 is class 0, the positive one.
fn read_libsvm(text: &str, unit_norm: bool) -> RowTable {
    let mut rows = Rows::new(Layout::Sparse);
    for line in text.lines() {
        let mut parts = line.split_whitespace();
        let label = parts.next().unwrap().parse::<f64>().unwrap();
        let (mut indices, mut values) = (Vec::new(), Vec::new());
        for part in parts {
            let (index, value) = part.split_once(':').unwrap();
            indices.push(index.parse::<u32>().unwrap() - 1);
            values.push(value.parse::<f64>().unwrap());
        }
        let norm = values.iter().map(|value| value * value).sum::<f64>().sqrt();
        let scale = if unit_norm {
            1.0 / norm.max(1e-30)
        } else {
            1.0
        };
        let values: Vec<f32> = values.iter().map(|value| (value * scale) as f32).collect();
        rows.push_sparse(u32::from(label <= 0.0), &indices, &values);
    }
    support::table(rows)
}

/// Covertype, class 2 against the rest, each feature divided by its largest magnitude.
fn read_covtype(text: &str) -> RowTable {
    let parse = |line: &str| -> Vec<f32> { line.split(',').map(|x| x.parse().unwrap()).collect() };
    let lines: Vec<Vec<f32>> = text.lines().map(parse).collect();
    let width = lines[0].len() - 1;
    let largest: Vec<f32> = (0..width)
        .map(|j| lines.iter().map(|line| line[j].abs()).fold(1e-30, f32::max))
        .collect();
    let mut rows = Rows::new(Layout::Dense { width });
    for line in &lines {
        let row: Vec<f32> = line[..width]
            .iter()
            .zip(&largest)
            .map(|(x, l)| x / l)
            .collect();
        rows.push_dense(u32::from(line[width] != 2.0), &row);
    }
    support::table(rows)
}

fn dataset(name: &str) -> Option<(RowTable, usize)> {
    match name {
        "a9a" => {
            let text = std::fs::read_to_string(data("libsvm/a9a")?).unwrap();
            Some((read_libsvm(&text, false), 123))
        }
        "covtype" => {
            let text = std::fs::read_to_string(data("libsvm/covtype.20k.csv")?).unwrap();
            Some((read_covtype(&text), 54))
        }
        "imdb" => {
            let file = std::fs::File::open(data("libsvm/imdb.train.libsvm.gz")?).unwrap();
            let mut text = String::new();
            flate2::read::GzDecoder::new(file)
                .read_to_string(&mut text)
                .unwrap();
            Some((read_libsvm(&text, true), 87_170))
        }
        other => panic!("no data set {other}"),
    }
}

/// Every line of the reference for `name`: our primal value is within 1e-4 of LIBLINEAR's, and our
/// dual value proves that no better solution exists by more than that.
fn check(name: &str, inner: InnerPasses) {
    let Some((table, features)) = dataset(name) else {
        return;
    };
    let mut cases = 0;
    for line in include_str!("liblinear_objectives.txt").lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields[0] != name {
            continue;
        }
        let loss = match fields[1] {
            "hinge" => Loss::Hinge,
            "squared_hinge" => Loss::SquaredHinge,
            _ => Loss::Logistic,
        };
        let cost: f64 = fields[3].parse().unwrap();
        let expected: f64 = fields[4].parse().unwrap();
        let mut problem = Problem::new(loss, cost, features, 2).unwrap();
        if fields[2] == "1" {
            problem = problem.with_bias(1.0).unwrap();
        }
        let mut weights = Weights::zeros(&problem);
        let mut duals = Duals::zeros(&problem, table.len());
        let mut scratch = Scratch::new(Simd::best());
        let report = solve_block(
            &problem,
            &table,
            &mut weights,
            &mut duals,
            inner,
            7,
            &mut scratch,
        );
        let report = report.unwrap();
        let mut sum = LossSum::new(&problem);
        sum.add(&problem, &table, &weights, Simd::best()).unwrap();
        let primal = sum.primal(&problem, &weights);
        let dual = dual_value(&problem, &weights, &duals);
        eprintln!("{line}: primal {primal} dual {dual} {report:?}");
        let difference = (primal - expected).abs() / expected;
        assert!(
            difference <= 1e-4,
            "{line}: primal {primal}, difference {difference}"
        );
        assert!(
            dual <= primal * (1.0 + 1e-5),
            "{line}: dual {dual} above primal {primal}"
        );
        assert!(
            (primal - dual) / primal <= 1e-3,
            "{line}: dual {dual}, primal {primal}"
        );
        cases += 1;
    }
    assert_eq!(
        cases, 6,
        "the reference lists 3 losses with and without bias"
    );
}

const TIGHT: InnerPasses = InnerPasses::Until {
    epsilon: 1e-3,
    at_most: 3000,
};

#[test]
fn a9a_agrees_with_liblinear() {
    check("a9a", TIGHT);
}

#[test]
fn covtype_agrees_with_liblinear() {
    check("covtype", TIGHT);
}

#[test]
fn imdb_agrees_with_liblinear() {
    check("imdb", TIGHT);
}
