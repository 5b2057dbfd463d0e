//! Models survive writing and reading, and LIBLINEAR reads ours.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pelton_format::{ClassMap, Layout, Scale, Schema};
use pelton_linear::*;
use support::{planted, table};

fn trained(
    loss: Loss,
    classes: usize,
    bias: Option<f32>,
) -> (Problem, pelton_format::RowTable, Model) {
    let rows = table(planted(Layout::Sparse, 400, 12, classes, 3));
    let mut problem = Problem::new(loss, 1.0, 12, classes).unwrap();
    if let Some(bias) = bias {
        problem = problem.with_bias(bias).unwrap();
    }
    let mut weights = Weights::zeros(&problem);
    let mut duals = Duals::zeros(&problem, rows.len());
    let mut scratch = Scratch::new(Simd::best());
    let inner = InnerPasses::Fixed(10);
    solve_block(
        &problem,
        &rows,
        &mut weights,
        &mut duals,
        inner,
        1,
        &mut scratch,
    )
    .unwrap();
    let labels = (0..classes).map(|class| 7.0 - 3.0 * class as f64).collect();
    let model = Model {
        loss,
        cost: Some(1.0),
        class_weights: Vec::new(),
        classes: ClassMap::new(labels),
        means: None,
        penalty: Penalty::L2,
        bias_is_free: false,
        weights,
        scale: None,
        threshold: None,
        target_centre: 0.0,
        columns: None,
    };
    (problem, rows, model)
}

/// Columns of some names.
fn named_columns(count: usize) -> Arc<Schema> {
    let columns = (0..count).map(|i| format!("{{\"name\": \"x{i}\", \"dtype\": \"float32\"}}"));
    let columns: Vec<String> = columns.collect();
    let text = format!("{{\"fields\": [{}], \"label\": \"y\"}}", columns.join(","));
    Arc::new(serde_json::from_str(&text).unwrap())
}

#[test]
fn columns_that_are_not_those_of_the_weights_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let (_, _, model) = trained(Loss::Hinge, 2, None);
    let columns = Some(named_columns(11));
    let model = Model { columns, ..model };
    model
        .write_safetensors(&path, &AtomicBool::new(false))
        .unwrap();
    let error = Model::read_safetensors(&path).unwrap_err().to_string();
    assert!(error.contains("columns that do not match 12"), "{error}");
}

#[test]
fn both_formats_give_back_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    for loss in [Loss::Hinge, Loss::SquaredHinge, Loss::Logistic] {
        for classes in [2, 4] {
            for bias in [None, Some(0.5)] {
                let (_, _, model) = trained(loss, classes, bias);
                let reported = Model {
                    class_weights: (0..classes).map(|label| 0.5 + label as f64).collect(),
                    classes: ClassMap::named(
                        (0..classes).map(|label| format!("Class_{label}")).collect(),
                    ),
                    means: Some((0..12).map(|i| i as f32 / 3.0).collect()),
                    penalty: Penalty::L2,
                    bias_is_free: false,
                    target_centre: 0.0,
                    columns: Some(named_columns(12)),
                    ..model.clone()
                };
                for model in [&model, &reported] {
                    model
                        .write_safetensors(&path, &AtomicBool::new(false))
                        .unwrap();
                    assert_eq!(&Model::read_safetensors(&path).unwrap(), model);
                }
                model
                    .write_liblinear(&path, &AtomicBool::new(false))
                    .unwrap();
                let read = Model::read_liblinear(&path).unwrap();
                assert_eq!(
                    read,
                    Model {
                        cost: None,
                        ..model
                    }
                );
            }
        }
    }
}

/// A model with a scale: safetensors restores it, and LIBLINEAR's text predicts the same for unscaled rows.
#[test]
fn a_scale_is_kept_or_folded_into_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let check = |bias: Option<f32>, shifts: &[f64], expected: &str| {
        let own = [0.25, -1.5].into_iter().chain(bias.map(|_| 3.0)).collect();
        let model = Model {
            loss: Loss::Hinge,
            cost: Some(1.0),
            class_weights: Vec::new(),
            classes: ClassMap::new(vec![1.0, -1.0]),
            means: None,
            penalty: Penalty::L2,
            bias_is_free: false,
            weights: Weights::from_vectors(2, bias, vec![own]),
            scale: pelton_format::Scale::new(vec![2.0, 0.125], shifts.to_vec()),
            threshold: Some(Threshold::of_score(&ClassMap::new(vec![1.0, -1.0]), 0.25)),
            target_centre: 0.0,
            columns: None,
        };
        assert!(model.scale.is_some());
        let never = AtomicBool::new(false);
        model.write_safetensors(&path, &never).unwrap();
        assert_eq!(Model::read_safetensors(&path).unwrap(), model);
        model.write_liblinear(&path, &never).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let (_, found) = text.split_once("nr_feature 2\n").unwrap();
        assert_eq!(found, expected);
        Model::read_liblinear(&path).unwrap();
    };
    let weights = "0.5 \n-0.1875 \n";
    check(None, &[], &format!("bias -1\nw\n{weights}"));
    check(Some(2.0), &[], &format!("bias 2\nw\n{weights}3 \n"));
    // The bias takes up 0.5 · 4 − 0.1875 · 8.
    let shifts = [4.0, 8.0];
    check(None, &shifts, &format!("bias 1\nw\n{weights}-0.5 \n"));
    check(Some(2.0), &shifts, &format!("bias 2\nw\n{weights}2.75 \n"));
}

/// The file that LIBLINEAR 2.50 writes for the same model (`train -s 3 -B 1` on two features).
#[test]
fn the_text_is_liblinears() {
    let weights = Weights::from_vectors(2, Some(1.0), vec![vec![0.25, -1.5, 3.0]]);
    let model = Model {
        loss: Loss::Hinge,
        cost: None,
        class_weights: Vec::new(),
        classes: ClassMap::new(vec![1.0, -1.0]),
        means: None,
        penalty: Penalty::L2,
        bias_is_free: false,
        weights,
        scale: None,
        threshold: None,
        target_centre: 0.0,
        columns: None,
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    model
        .write_liblinear(&path, &AtomicBool::new(false))
        .unwrap();
    let expected = "solver_type L2R_L1LOSS_SVC_DUAL\nnr_class 2\nlabel 1 -1\nnr_feature 2\nbias 1\nw\n\
                    0.25 \n-1.5 \n3 \n";
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
}

/// Of decision values far below 0 every share is smaller than numbers can be; their ratios are not.
#[test]
fn probabilities_of_low_values_are_numbers() {
    let mut found = Vec::new();
    for (values, expected) in [
        (
            &[-2000.0, -1999.0, -3000.0][..],
            &[0.2689414213699951, 0.7310585786300049, 0.0][..],
        ),
        (&[-800.0, -800.0, 800.0], &[0.0, 0.0, 1.0]),
        (&[0.0, 0.0, 0.0, 0.0], &[0.25; 4]),
        (&[-800.0], &[0.0, 1.0]),
        (&[800.0], &[1.0, 0.0]),
        (&[40.0], &[1.0, 4.248354255291589e-18]),
    ] {
        probabilities(Loss::Logistic, values, &mut found).unwrap();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (found - expected).abs() <= 1e-6 * expected,
                "{values:?}: {found} {expected}"
            );
        }
    }
}

#[test]
fn predictions_count_and_rank_as_the_weights_say() {
    for classes in [2, 4] {
        let (_, rows, model) = trained(Loss::Logistic, classes, Some(1.0));
        let mut correct = 0;
        let mut probability = Vec::new();
        predict(&model.weights, &rows, |i, prediction| {
            correct += u64::from(prediction.class == rows.label(i));
            probabilities(model.loss, prediction.values, &mut probability).unwrap();
            assert!((probability.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let largest = probability.iter().copied().fold(0.0, f64::max);
            assert_eq!(probability[prediction.class as usize], largest);
        });
        let mut metrics = Metrics::new(model.loss, classes, 1, 1 << 20);
        predict(&model.weights, &rows, |i, prediction| {
            metrics.add(rows.label(i), prediction);
        });
        let figures = metrics.figures();
        assert_eq!(figures.records, 400);
        assert_eq!(figures.accuracy, correct as f64 / 400.0);
        assert!(figures.accuracy > 0.6 && figures.auc.unwrap() > 0.6);
        assert_eq!(figures.confusion.iter().flatten().sum::<u64>(), 400);
        assert!(probabilities(Loss::Hinge, &[1.0], &mut probability).is_none());
    }
}

/// Four classes that hardly occur: weights of 1e-9 next to a bias weight of -1, below the rounding of f32
/// sums. The classes are those that LIBLINEAR 2.50 predicts from the same model and rows; in f32 all rows
/// went to the first class.
fn degenerate() -> (pelton_format::RowTable, Model, [u32; 24]) {
    let vector = |class: i32| {
        let weight = |j: i32| ((7 * class + 3 * j) % 11 - 5) as f32 * 1e-9;
        (0..6).map(weight).chain([-1.0]).collect()
    };
    let mut rows = pelton_format::Rows::new(Layout::Sparse);
    for i in 0..24 {
        let values: Vec<f32> = (0..6).map(|j| ((i * i + 5 * j) % 7) as f32).collect();
        rows.push_sparse(0, &[0, 1, 2, 3, 4, 5], &values);
    }
    let model = Model {
        loss: Loss::Hinge,
        cost: None,
        class_weights: Vec::new(),
        classes: ClassMap::new(vec![0.0, 1.0, 2.0, 3.0]),
        means: None,
        penalty: Penalty::L2,
        bias_is_free: false,
        weights: Weights::from_vectors(6, Some(1.0), (0..4).map(vector).collect()),
        scale: None,
        threshold: None,
        target_centre: 0.0,
        columns: None,
    };
    let classes = [
        2, 2, 1, 2, 2, 1, 2, 2, 2, 1, 2, 2, 1, 2, 2, 2, 1, 2, 2, 1, 2, 2, 2, 1,
    ];
    (table(rows), model, classes)
}

#[test]
fn ties_up_to_rounding_are_broken_as_liblinear_does() {
    let (rows, model, classes) = degenerate();
    predict(&model.weights, &rows, |i, prediction| {
        assert_eq!(prediction.class, classes[i], "row {i}");
    });
    // 0.1 + 0.2 - 0.3 in f32 is 0 if sums are f32, and -7e-9 if they are f64.
    let weights = Weights::from_vectors(3, None, vec![vec![0.1, 0.2, -0.3]]);
    let mut rows = pelton_format::Rows::new(Layout::Dense { width: 3 });
    rows.push_dense(0, &[1.0, 1.0, 1.0]);
    rows.push_dense(0, &[7.0, 7.0, 7.0]);
    let expected = [-7.450580596923828e-9, -5.21540641784668e-8];
    predict(&weights, &table(rows), |i, prediction| {
        assert_eq!((prediction.class, prediction.values[0]), (1, expected[i]));
    });
}

/// LIBLINEAR's own reader and `predict` on our files. Runs `liblinear_predicts.py` with the Python
/// that PELTON_LIBLINEAR_PYTHON names, which must have `liblinear-official`.
#[test]
fn liblinear_predicts_the_same_from_our_files() {
    let Some(python) = std::env::var_os("PELTON_LIBLINEAR_PYTHON") else {
        eprintln!(
            "SKIPPED: PELTON_LIBLINEAR_PYTHON is not set to a Python with liblinear-official"
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (rows, model, _) = degenerate();
    let mut cases = vec![(rows, model)];
    for loss in [Loss::Hinge, Loss::SquaredHinge, Loss::Logistic] {
        for classes in [2, 4] {
            for bias in [None, Some(0.1)] {
                let (_, rows, model) = trained(loss, classes, bias);
                cases.push((rows, model));
            }
        }
    }
    for (rows, model) in cases {
        let path = folder.path().join("model");
        model
            .write_liblinear(&path, &AtomicBool::new(false))
            .unwrap();
        let mut text = String::new();
        for i in 0..rows.len() {
            let pelton_format::Row::Sparse { indices, values } = rows.row(i) else {
                unreachable!("planted sparse rows");
            };
            text.push('0');
            for (index, value) in indices.iter().zip(values) {
                text.push_str(&format!(" {}:{}", index + 1, f64::from(*value)));
            }
            text.push('\n');
        }
        let data = folder.path().join("data");
        std::fs::write(&data, text).unwrap();
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/linear/liblinear_predicts.py"
        );
        let output = std::process::Command::new(&python)
            .args([script.as_ref(), path.as_os_str(), data.as_os_str()])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let theirs = String::from_utf8(output.stdout).unwrap();
        let theirs: Vec<f64> = theirs.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(theirs.len(), rows.len());
        predict(&model.weights, &rows, |i, prediction| {
            let label = model.classes.value(prediction.class);
            assert_eq!(label, theirs[i], "row {i}");
        });
    }
}

#[test]
fn coefficients_are_for_features_as_they_come() {
    let factors: Vec<f64> = (1..=12).map(|feature| 0.3 * f64::from(feature)).collect();
    let shifts: Vec<f64> = (0..12).map(|feature| 0.1 - f64::from(feature)).collect();
    let scales = [
        None,
        Scale::new(factors.clone(), Vec::new()),
        Scale::new(factors, shifts),
    ];
    for (classes, bias) in [(2, None), (2, Some(0.5)), (4, Some(3.0))] {
        for scale in &scales {
            let (_, _, model) = trained(Loss::Hinge, classes, bias);
            let model = Model {
                scale: scale.clone(),
                threshold: None,
                target_centre: 0.0,
                columns: None,
                ..model
            };
            let given = planted(Layout::Dense { width: 12 }, 50, 12, classes, 4);
            let mut scaled = given.clone();
            if let Some(scale) = scale {
                scaled.scale(scale);
            }
            predict(&model.weights, &table(scaled), |i, prediction| {
                for (subproblem, &value) in prediction.values.iter().enumerate() {
                    let (coefficients, intercept) = model.coefficients(subproblem);
                    let x = support::dense(given.row(i), 12);
                    let products = coefficients.iter().zip(&x).map(|(w, x)| w * x);
                    // Scaled values are rounded to f32.
                    let most: f64 = products.clone().map(f64::abs).sum::<f64>() + intercept.abs();
                    let found = products.sum::<f64>() + intercept;
                    assert!((found - value).abs() <= 1e-6 * most, "{found} {value}");
                }
            });
        }
    }
}

/// A model of real targets has one vector and no classes; LIBLINEAR writes two classes and no labels.
#[test]
fn models_of_real_targets_come_back_from_both_formats() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let never = AtomicBool::new(false);
    for &loss in Loss::ALL.iter().filter(|loss| loss.has_real_targets()) {
        let loss = loss.with_epsilon(0.25).unwrap_or(loss);
        let problem = Problem::new(loss, 2.0, 3, 0).unwrap().with_free_bias();
        let model = Model {
            loss,
            cost: Some(2.0),
            class_weights: Vec::new(),
            classes: ClassMap::default(),
            means: None,
            penalty: Penalty::L2,
            bias_is_free: true,
            weights: Weights::from_vectors(3, Some(1.0), vec![vec![0.5, -1.0, 0.0, 3.0]]),
            scale: None,
            threshold: None,
            target_centre: 0.0,
            columns: None,
        };
        model.write_safetensors(&path, &never).unwrap();
        assert_eq!(Model::read_safetensors(&path).unwrap(), model);
        assert_eq!(model.problem().unwrap(), problem);
        if loss.is_in_liblinear() {
            model.write_liblinear(&path, &never).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(
                text.contains("nr_class 2\nnr_feature 3\nbias 1\nw\n"),
                "{text}"
            );
            let read = Model::read_liblinear(&path).unwrap();
            assert_eq!(
                (read.loss.epsilon(), &read.classes),
                (Some(0.1), &model.classes)
            );
            assert_eq!(read.weights, model.weights);
        } else {
            let refused = model
                .write_liblinear(&path, &never)
                .unwrap_err()
                .to_string();
            assert!(
                refused.contains("LIBLINEAR does not have this loss"),
                "{refused}"
            );
        }
    }
    // As LIBLINEAR 2.50 writes one.
    let head = "solver_type L2R_L2LOSS_SVR\nnr_class 2\n";
    let tail = "nr_feature 2\nbias -1\nw\n0.25 \n-1 \n";
    for (text, expected) in [
        (format!("{head}{tail}"), None),
        (
            format!("{head}label 1 -1\n{tail}"),
            Some("labels of a model of loss"),
        ),
        (
            format!("{head}{tail}").replace("nr_class 2", "nr_class 3"),
            Some("3 classes of a regression"),
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        match (Model::read_liblinear(&path), expected) {
            (Ok(model), None) => {
                assert_eq!(model.loss, Loss::SquaredEpsilonInsensitive(0.1));
                assert_eq!(model.weights.vector(0), [0.25, -1.0]);
            }
            (Err(error), Some(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, _) => panic!("{found:?}"),
        }
    }
}

#[test]
fn the_documentation_lists_every_loss() {
    let page = include_str!("../../../../docs/solvers.md");
    for loss in Loss::ALL {
        let loss = loss.to_string();
        let name = loss.split(':').next().unwrap();
        assert!(page.contains(&format!("{name}`")), "{name}");
    }
}
