//! The part of a report on how well the model predicts the test data.

use pelton_run::{Curve, Table};

use crate::summary::LinearSummary;

/// Name, value and explanation.
pub(super) type Figure = (String, String, String);

/// Most classes shown.
const MOST_CLASSES: usize = 50;

pub(super) fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// The figures of the test data, the most important first.
pub(super) fn figures(summary: &LinearSummary) -> Vec<Figure> {
    let known = |name: &str, value: Option<String>, what: &str| {
        value.map(|value| (name.to_string(), value, what.to_string()))
    };
    if let Some(test) = &summary.test_targets {
        let rounded = |value: f64| format!("{value:.6}");
        let rows = [
            known(
                "R²",
                test.r2.map(rounded),
                "1 less the squared errors over the variance, test examples",
            ),
            known(
                "RMSE",
                Some(rounded(test.rmse)),
                "root of the mean squared error, test examples",
            ),
            known(
                "mean absolute error",
                Some(rounded(test.mae)),
                "of the test examples",
            ),
            known(
                "mean Poisson deviance",
                test.poisson_deviance.map(rounded),
                "of the test examples",
            ),
            known(
                "test records",
                Some(test.records.to_string()),
                "examples of the test data",
            ),
        ];
        return rows.into_iter().flatten().collect();
    }
    let Some(test) = &summary.test else {
        return Vec::new();
    };
    let figures = &test.figures;
    let rounded = |value: f64| format!("{value:.4}");
    let positive = figures.positive.map(|class| &test.classes[class as usize]);
    let ranked = match positive {
        Some(_) => "area under the ROC curve, test examples",
        None => "area under the ROC curve, mean over the classes, test examples",
    };
    let auc = known("AUC", figures.auc.map(rounded), ranked);
    let log_loss = known(
        "log loss",
        figures.log_loss.map(rounded),
        "mean of -ln p of the right class, test examples",
    );
    let accuracy = known(
        "accuracy",
        Some(percent(figures.accuracy)),
        "test examples predicted right",
    );
    let f1 = known(
        "mean F1",
        Some(rounded(figures.f1)),
        "over the classes of the test examples",
    );
    let first = match positive {
        Some(_) => [auc, log_loss, accuracy, f1],
        None => [accuracy, f1, log_loss, auc],
    };
    let of = positive.map_or(String::new(), |class| format!(", class {class}"));
    let rest = [
        known(
            "threshold",
            (summary.threshold.as_ref()).map(|threshold| format!("{:.6}", threshold.value)),
            &match &summary.threshold {
                Some(threshold) => format!("{threshold}; chosen on the test data"),
                None => String::new(),
            },
        ),
        known(
            "balanced accuracy",
            Some(percent(figures.balanced_accuracy)),
            "mean of the recalls of the classes, test examples",
        ),
        known(
            "average precision",
            figures.average_precision.map(rounded),
            &format!("area under the steps of precision by recall{of}"),
        ),
        known(
            "Brier score",
            figures.brier.map(rounded),
            &format!("mean squared error of the probability{of}"),
        ),
        known(
            "test records",
            Some(figures.records.to_string()),
            "examples of the test data",
        ),
    ];
    first.into_iter().chain(rest).flatten().collect()
}

/// The ROC curve and the calibration of two classes, if known.
pub(super) fn curves(summary: &LinearSummary, roc: &[(f64, f64)]) -> Vec<Curve> {
    let Some(test) = &summary.test else {
        return Vec::new();
    };
    let Some(positive) = test.figures.positive else {
        return Vec::new();
    };
    let class = &test.classes[positive as usize];
    let mut curves = Vec::new();
    if let (Some(auc), [_, ..]) = (test.figures.auc, roc) {
        curves.push(Curve {
            title: "ROC curve".to_string(),
            x_label: "share of the other class taken for it".to_string(),
            y_label: format!("share of class {class} found"),
            points: roc.to_vec(),
            note: format!("The area under it is {auc:.4}."),
        });
    }
    let bins = &test.figures.calibration;
    let records = || bins.iter().map(|bin| bin.records);
    if let (Some(least), Some(most)) = (records().min(), records().max()) {
        let points = bins.iter().map(|bin| (bin.probability, bin.share));
        curves.push(Curve {
            title: "Calibration".to_string(),
            x_label: "mean predicted probability".to_string(),
            y_label: format!("share of class {class}"),
            points: points.collect(),
            note: format!(
                "Ranges of the probability with {least} to {most} test examples each; a calibrated model is on the diagonal."
            ),
        });
    }
    curves
}

/// The figures of each class.
pub(super) fn classes(summary: &LinearSummary) -> Option<Table> {
    let test = summary.test.as_ref()?;
    let classes = test.classes.iter().zip(&test.figures.by_class);
    let rows = classes.take(MOST_CLASSES).map(|(name, class)| {
        let [precision, recall, f1] =
            [class.precision, class.recall, class.f1].map(|share| format!("{share:.4}"));
        vec![
            name.clone(),
            class.records.to_string(),
            precision,
            recall,
            f1,
        ]
    });
    Some(Table {
        title: "Classes of the test data".to_string(),
        head: ["class", "examples", "precision", "recall", "F1"]
            .map(str::to_string)
            .to_vec(),
        rows: rows.collect(),
        note: match test.classes.len() {
            all if all > MOST_CLASSES => format!("The first {MOST_CLASSES} of {all}."),
            _ => String::new(),
        },
    })
}
