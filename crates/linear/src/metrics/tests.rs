//! Against their definitions, pair by pair and threshold by threshold.

use super::*;
use crate::predict::probabilities;
use crate::random::derive;

/// Labels and decision values, some of them equal.
fn rows(seed: u64, count: u64, classes: usize) -> Vec<(u32, Vec<f64>)> {
    let values = if classes == 2 { 1 } else { classes };
    let number = |row: u64, at: u64| derive(derive(seed, row), at);
    (0..count)
        .map(|row| {
            let label = (number(row, 99) % classes as u64) as u32;
            let value = |at| (number(row, at as u64) % 17) as f64 / 4.0 - 2.0;
            let mut values: Vec<f64> = (0..values).map(value).collect();
            match classes {
                2 if label == 0 => values[0] += 0.75,
                2 => {}
                _ => values[label as usize] += 0.75,
            }
            (label, values)
        })
        .collect()
}

fn metrics(rows: &[(u32, Vec<f64>)], loss: Loss, classes: usize, room: u64) -> Metrics {
    let mut metrics = Metrics::new(loss, classes, 1, room);
    for (label, values) in rows {
        let best = |best: usize, at: usize| if values[at] > values[best] { at } else { best };
        let class = match &values[..] {
            [value] => u32::from(*value <= 0.0),
            _ => (0..classes).fold(0, best) as u32,
        };
        metrics.add(*label, Prediction { class, values });
    }
    metrics
}

fn near(what: &str, found: f64, expected: f64) {
    assert!(
        (found - expected).abs() <= 1e-12,
        "{what}: {found}, {expected}"
    );
}

/// The score of a class: its probability with several classes, the value of the positive class with two.
fn scores(rows: &[(u32, Vec<f64>)], loss: Loss, class: usize) -> Vec<(f64, bool)> {
    let mut shares = Vec::new();
    let score = |(label, values): &(u32, Vec<f64>)| {
        let score = match &values[..] {
            [value] => -value,
            _ if probabilities(loss, values, &mut shares).is_some() => shares[class],
            _ => values[class],
        };
        (score, *label as usize == class)
    };
    rows.iter().map(score).collect()
}

fn areas_by_definition(ranked: &[(f64, bool)]) -> [f64; 2] {
    let of = |wanted: bool| {
        ranked
            .iter()
            .filter(move |row| row.1 == wanted)
            .map(|row| row.0)
    };
    let mut pairs = 0.0;
    for positive in of(true) {
        for negative in of(false) {
            pairs += if positive > negative {
                1.0
            } else {
                0.5 * f64::from(u8::from(positive == negative))
            };
        }
    }
    let (positives, negatives) = (of(true).count() as f64, of(false).count() as f64);
    let mut thresholds: Vec<f64> = ranked.iter().map(|row| row.0).collect();
    thresholds.sort_by(|a, b| b.total_cmp(a));
    thresholds.dedup();
    let (mut area, mut before) = (0.0, 0.0);
    for threshold in thresholds {
        let right = of(true).filter(|score| *score >= threshold).count() as f64;
        let given = ranked.iter().filter(|row| row.0 >= threshold).count() as f64;
        area += (right / positives - before) * right / given;
        before = right / positives;
    }
    [pairs / (positives * negatives), area]
}

#[test]
fn figures_are_those_of_their_definitions() {
    for seed in 0..40 {
        for classes in [2, 3, 5] {
            for loss in [Loss::Logistic, Loss::Hinge] {
                let rows = rows(seed, 60, classes);
                let found = metrics(&rows, loss, classes, 1 << 20).figures();
                let each = if classes == 2 { 1..2 } else { 0..classes };
                let areas = each.map(|class| areas_by_definition(&scores(&rows, loss, class)));
                let areas: Vec<[f64; 2]> = areas.collect();
                let mean =
                    |at: usize| areas.iter().map(|a| a[at]).sum::<f64>() / areas.len() as f64;
                near("AUC", found.auc.unwrap(), mean(0));
                near(
                    "average precision",
                    found.average_precision.unwrap(),
                    mean(1),
                );
                assert_eq!(found.log_loss.is_some(), loss == Loss::Logistic);
                if let Some(log_loss) = found.log_loss {
                    let mut shares = Vec::new();
                    let mut sums = [0.0; 2];
                    for (label, values) in &rows {
                        probabilities(loss, values, &mut shares).unwrap();
                        sums[0] -= shares[*label as usize].ln();
                        sums[1] += (shares[1] - f64::from(*label)).powi(2);
                    }
                    near("log loss", log_loss, sums[0] / 60.0);
                    assert_eq!(found.brier.is_some(), classes == 2);
                    found
                        .brier
                        .into_iter()
                        .for_each(|brier| near("Brier", brier, sums[1] / 60.0));
                    let binned: u64 = found.calibration.iter().map(|bin| bin.records).sum();
                    assert_eq!(binned, if classes == 2 { 60 } else { 0 });
                }
                let right: u64 = (0..classes)
                    .map(|class| found.confusion[class][class])
                    .sum();
                near("accuracy", found.accuracy, right as f64 / 60.0);
                for (class, figures) in found.by_class.iter().enumerate() {
                    let own: u64 = found.confusion[class].iter().sum();
                    let given: u64 = found.confusion.iter().map(|row| row[class]).sum();
                    let both = found.confusion[class][class] as f64;
                    assert_eq!(own, figures.records);
                    near("recall", figures.recall, both / own.max(1) as f64);
                    near("precision", figures.precision, both / given.max(1) as f64);
                    let sum = figures.recall + figures.precision;
                    let f1 = if sum > 0.0 {
                        2.0 * figures.recall * figures.precision / sum
                    } else {
                        0.0
                    };
                    near("F1", figures.f1, f1);
                }
            }
        }
    }
}

#[test]
fn what_does_not_exist_is_absent() {
    let all = rows(7, 50, 2);
    let of_one = |label: u32| {
        all.iter()
            .filter(|row| row.0 == label)
            .cloned()
            .collect::<Vec<_>>()
    };
    for alike in [of_one(0), of_one(1), Vec::new()] {
        let found = metrics(&alike, Loss::Logistic, 2, 1 << 20).figures();
        assert_eq!((found.auc, found.average_precision), (None, None));
        assert_eq!(found.log_loss.is_some(), !alike.is_empty());
    }
    let whole = metrics(&all, Loss::Logistic, 2, 50 * 28);
    let cramped = metrics(&all, Loss::Logistic, 2, 50 * 28 - 1);
    assert!(!whole.lacks_room() && cramped.lacks_room());
    assert_eq!(cramped.figures().auc, None);
    assert_eq!(cramped.figures().log_loss, whole.figures().log_loss);
    let many = metrics(&rows(1, 300, 101), Loss::Hinge, 101, 1 << 20).figures();
    assert!(many.confusion.is_empty() && many.by_class.len() == 101);
    // Probabilities that round to 0 have a logarithm all the same.
    let sure = vec![(1, vec![800.0]), (0, vec![1.0])];
    let loss = metrics(&sure, Loss::Logistic, 2, 1 << 20)
        .figures()
        .log_loss
        .unwrap();
    assert!((loss - 400.0).abs() < 1.0, "{loss}");
}
