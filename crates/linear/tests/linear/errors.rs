//! Each error names the problem, its location and a remedy.

use crate::support;

use std::sync::atomic::AtomicBool;

use pelton_format::{ClassMap, Layout, RowTable, Rows};
use pelton_linear::*;

fn check(result: Result<impl std::fmt::Debug, LinearError>, expected: &str) {
    let message = result.unwrap_err().to_string();
    assert!(message.contains(expected), "{message:?} lacks {expected:?}");
}

fn problem() -> Problem {
    Problem::new(Loss::Hinge, 1.0, 3, 2).unwrap()
}

fn solve(rows: Rows, records: usize) -> Result<BlockReport, LinearError> {
    let problem = problem();
    let table = support::table(rows);
    let mut weights = Weights::zeros(&problem);
    let mut duals = Duals::zeros(&problem, records);
    let inner = InnerPasses::Fixed(1);
    let mut scratch = Scratch::new(Simd::best());
    solve_block(
        &problem,
        &table,
        &mut weights,
        &mut duals,
        inner,
        1,
        &mut scratch,
    )
}

fn sparse_row(label: u32, index: u32) -> Rows {
    let mut rows = Rows::new(Layout::Sparse);
    rows.push_sparse(label, &[index], &[1.0]);
    rows
}

#[test]
fn problems_that_cannot_be_trained() {
    check(Problem::new(Loss::Hinge, 1.0, 3, 1), "at least two");
    check(Problem::new(Loss::Hinge, 1.0, 0, 2), "0 features");
    for cost in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-40] {
        check(Problem::new(Loss::Hinge, cost, 3, 2), "cost of");
    }
    check(problem().with_class_weight(0, 0.0), "cost of 0");
    check(
        problem().with_class_weight(2, 1.0),
        "class 2 does not exist",
    );
    for bias in [0.0, -1.0, f32::NAN] {
        check(problem().with_bias(bias), "bias of");
    }
}

#[test]
fn rows_of_bytes_have_no_features() {
    let mut rows = Rows::new(Layout::Bytes);
    rows.push_bytes(0, b"a line");
    check(solve(rows, 1), "record 0 contains bytes, not features");
}

#[test]
fn rows_that_do_not_fit_the_problem() {
    check(
        solve(sparse_row(0, 3), 1),
        "record 0 has feature 3 (from 0), but the model has 3",
    );
    check(
        solve(sparse_row(2, 0), 1),
        "class 2 does not exist: there are 2",
    );
    check(
        solve(sparse_row(0, 0), 0),
        "record 0 is out of range: 0 records",
    );
    let mut wide = Rows::new(Layout::Dense { width: 4 });
    wide.push_dense(0, &[0.0; 4]);
    check(solve(wide, 1), "record 0 has 4 features, the model 3");
}

#[test]
fn labels_unknown_to_a_certificate_or_count() {
    let table: RowTable = support::table(sparse_row(5, 0));
    let weights = Weights::zeros(&problem());
    let mut sum = LossSum::new(&problem());
    check(
        sum.add(&problem(), &table, &weights, Simd::best()),
        "class 5 does not exist",
    );
}

fn model(labels: Vec<f64>) -> Model {
    let weights = Weights::from_vectors(2, Some(1.0), vec![vec![1.0, -0.5, 0.1]]);
    Model {
        loss: Loss::Hinge,
        cost: Some(2.0),
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
    }
}

#[test]
fn model_files_that_cannot_be_read_or_written() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent");
    check(Model::read_liblinear(&absent), "cannot read model file");
    check(Model::read_safetensors(&absent), "cannot read model file");
    let nowhere = folder.path().join("no/folder");
    check(
        model(vec![1.0, -1.0]).write_liblinear(&nowhere, &AtomicBool::new(false)),
        "cannot write model file",
    );
    let path = folder.path().join("model");
    check(
        model(vec![1.0, 0.5]).write_liblinear(&path, &AtomicBool::new(false)),
        "label 0.5 cannot be written",
    );
    assert!(!path.exists());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn damaged_text_models() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    model(vec![1.0, -1.0])
        .write_liblinear(&path, &AtomicBool::new(false))
        .unwrap();
    let good = std::fs::read_to_string(&path).unwrap();
    let damaged = |from: &str, to: &str| {
        assert!(good.contains(from));
        std::fs::write(&path, good.replacen(from, to, 1)).unwrap();
        Model::read_liblinear(&path)
    };
    check(
        damaged("L2R_L1LOSS_SVC_DUAL", "MCSVM_CS"),
        "at line 1: `solver_type MCSVM_CS`",
    );
    check(damaged("nr_class 2", "nr_class two"), "at line 2");
    check(
        damaged("nr_class 2", "nr_class 3"),
        "2 labels for 3 classes",
    );
    check(
        damaged("nr_class 2", "nr_class 1"),
        "sizes that no model can have",
    );
    check(
        damaged("nr_feature 2", "nr_feature 99999999999"),
        "sizes that no model can have",
    );
    check(
        damaged("nr_feature 2", "nr_feature 3"),
        "the end of the file",
    );
    check(
        damaged("nr_feature 2\n", ""),
        "no solver_type, nr_class or nr_feature",
    );
    check(damaged("-0.5", "x"), "at line 8: not 1 finite number(s)");
    check(damaged("-0.5", "NaN"), "not 1 finite number(s)");
    check(damaged("-0.5", "1 1"), "not 1 finite number(s)");
    check(damaged("bias 1", "bias inf"), "at line 5");
    check(damaged("bias 1", "bias 1e38"), "the bias 1e38");
    check(damaged("label 1 -1", "label 1 1"), "the label 1 twice");
    check(
        damaged("-0.5 \n", "-0.5 \n3 \n"),
        "at line 10: more than the 3 lines of weights",
    );
    for cut in 0..good.len() {
        std::fs::write(&path, &good[..cut]).unwrap();
        Model::read_liblinear(&path).unwrap_err();
    }
}

#[test]
fn tensor_models_that_contradict_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let refused = |model: Model, said: &str| {
        model
            .write_safetensors(&path, &std::sync::atomic::AtomicBool::new(false))
            .unwrap();
        check(Model::read_safetensors(&path), said);
    };
    refused(model(vec![0.0, -0.0]), "the label 0 twice");
    let named = |names: [&str; 2]| Model {
        classes: ClassMap::named(names.map(String::from).to_vec()),
        ..model(vec![])
    };
    refused(named(["a", "a"]), "the label \"a\" twice");
    let weighted = |class_weights| Model {
        class_weights,
        ..model(vec![1.0, -1.0])
    };
    refused(weighted(vec![2.0]), "1 factors on the cost of 2 classes");
    refused(weighted(vec![2.0, 0.0]), "a factor of 0 on the cost");
    named(["a", "b"])
        .write_safetensors(&path, &AtomicBool::new(false))
        .unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let (from, to) = (b"[0.0,1.0]", b"[1.0,0.0]");
    let at = bytes
        .windows(from.len())
        .position(|window| window == from)
        .unwrap();
    std::fs::write(&path, [&bytes[..at], to, &bytes[at + to.len()..]].concat()).unwrap();
    check(Model::read_safetensors(&path), "names that do not match");
    let means = Some(vec![0.5; 3]);
    refused(
        Model {
            means,
            ..model(vec![1.0, -1.0])
        },
        "means of F32 [3]",
    );
    let weights = Weights::from_vectors(2, Some(1e38), vec![vec![1.0, -0.5, 0.1]]);
    refused(
        Model {
            weights,
            ..model(vec![1.0, -1.0])
        },
        "the bias",
    );
}

#[test]
fn damaged_tensor_models() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    model(vec![1.0, -1.0])
        .write_safetensors(&path, &AtomicBool::new(false))
        .unwrap();
    let good = std::fs::read(&path).unwrap();
    for cut in 0..good.len() {
        std::fs::write(&path, &good[..cut]).unwrap();
        check(
            Model::read_safetensors(&path),
            "is damaged or of another kind",
        );
    }
    let damaged = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let at = good
            .windows(from.len())
            .position(|window| window == from.as_bytes())
            .unwrap();
        let mut bytes = good.clone();
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        std::fs::write(&path, bytes).unwrap();
        Model::read_safetensors(&path)
    };
    check(damaged("\"pelton\"", "\"peltan\""), "no metadata key");
    check(
        damaged("version\\\":1", "version\\\":2"),
        "version 2 instead of 1",
    );
    check(
        damaged("\\\"hinge\\\"", "\\\"binge\\\""),
        "the loss `binge`",
    );
    check(damaged("F32", "I32"), "weights of I32");
    check(
        damaged("[1.0,-1.0]", "[1.0,-1,2]"),
        "1 vectors for 3 labels",
    );
    check(damaged("[1,3]", "[3,1]"), "sizes that no model can have");
    let mut bytes = good.clone();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    check(Model::read_safetensors(&path), "not finite");
}
