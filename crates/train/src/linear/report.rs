//! The report of a linear run: convergence, where the time went, what was read, how well shuffled.

use pelton_run::{Bars, EpochRecord, Plot, Report, StageUse};

use crate::config::LinearConfig;
use crate::summary::LinearSummary;

/// The report of a finished run.
pub(super) fn report(
    config: &LinearConfig,
    summary: &LinearSummary,
    epochs: &[EpochRecord],
) -> Report {
    Report {
        title: format!("pelton train linear {}", config.data.paths.join(" ")),
        verdict: summary.verdict.clone(),
        summary: figures(summary),
        series: plots(epochs),
        stages: vec![
            StageUse {
                name: "loading".to_string(),
                busy_s: summary.load_s,
                wait_s: (summary.wall_s - summary.load_s).max(0.0),
            },
            StageUse {
                name: "training".to_string(),
                busy_s: summary.compute_s,
                wait_s: summary.wait_s,
            },
        ],
        bars: bars(summary),
        notes: notes(summary),
        config_toml: toml::to_string(config).unwrap_or_default(),
    }
}

fn figures(summary: &LinearSummary) -> Vec<(String, String, String)> {
    let mut rows = Vec::new();
    if let Some(search) = &summary.search {
        let name = search.figure.replace('_', " ");
        for cost in &search.costs {
            let is_best = if cost.cost == search.best {
                "; best"
            } else {
                ""
            };
            rows.push((
                format!("cost {}", cost.cost),
                format!("{:.6} ± {:.6}", cost.mean, cost.deviation),
                format!("{name}, mean over {} folds{is_best}", search.folds),
            ));
        }
    }
    let mut row = |name: &str, value: String, what: &str| {
        rows.push((name.to_string(), value, what.to_string()));
    };
    let percent = |value: f64| format!("{:.2} %", 100.0 * value);
    if let Some(accuracy) = summary.test_accuracy {
        row(
            "test accuracy",
            percent(accuracy),
            "test examples predicted right",
        );
    }
    if let Some(test) = &summary.test {
        let figures = &test.figures;
        let mut known = |name: &str, value: Option<f64>, what: &str| {
            if let Some(value) = value {
                row(name, format!("{value:.4}"), what);
            }
        };
        known(
            "AUC",
            figures.auc,
            "area under the ROC curve of the test examples",
        );
        known(
            "log loss",
            figures.log_loss,
            "mean of -ln p of the right class, test examples",
        );
        known(
            "mean F1",
            Some(figures.f1),
            "over the classes of the test examples",
        );
    }
    if let Some(test) = &summary.test_targets {
        let known = [
            (
                "test R²",
                test.r2,
                "1 less the squared errors over the variance, test examples",
            ),
            (
                "mean absolute error",
                Some(test.mae),
                "of the test examples",
            ),
            (
                "RMSE",
                Some(test.rmse),
                "root of the mean squared error of the test examples",
            ),
            (
                "mean Poisson deviance",
                test.poisson_deviance,
                "of the test examples",
            ),
        ];
        for (name, value, what) in known {
            if let Some(value) = value {
                row(name, format!("{value:.6}"), what);
            }
        }
    }
    if let Some(accuracy) = summary.train_accuracy {
        row(
            "training accuracy",
            percent(accuracy),
            "training examples predicted right",
        );
    }
    if let (Some(primal), Some(dual), Some(gap)) =
        (summary.primal, summary.dual, summary.relative_gap)
    {
        row(
            "primal value",
            format!("{primal:.6e}"),
            "of the written model, over every record",
        );
        row(
            "dual value",
            format!("{dual:.6e}"),
            "a lower bound of the optimum",
        );
        row(
            "relative gap",
            format!("{gap:.2e}"),
            "largest possible distance from the optimum",
        );
    }
    if let Some(difference) = summary.relative_difference {
        row(
            "relative difference",
            format!("{difference:.2e}"),
            "to the known optimum",
        );
    }
    row(
        "epochs",
        summary.epochs.to_string(),
        "passes through the plan",
    );
    row(
        "passes",
        format!("{:.2}", summary.passes),
        "records used over all records, certificate included",
    );
    row(
        "time",
        format!("{:.2} s", summary.wall_s),
        "from start to certified model",
    );
    row(
        "preparing",
        format!("{:.2} s", summary.prepare_s),
        "indexing records, filling buckets",
    );
    row(
        "loading",
        format!("{:.2} s", summary.load_s),
        "while something was being loaded",
    );
    row(
        "computing",
        format!("{:.2} s", summary.compute_s),
        "while the solver ran",
    );
    row(
        "overlap",
        format!("{:.2} s", summary.overlap_s),
        "while both went on",
    );
    row(
        "peak memory",
        megabytes(summary.peak_rss_bytes),
        "resident memory of the whole process",
    );
    row(
        "budget",
        megabytes(summary.memory_bytes),
        "for look-ahead, blocks and cached rows",
    );
    row(
        "data",
        megabytes(summary.data_bytes),
        "bytes of all records",
    );
    row(
        "read",
        megabytes(summary.read_bytes),
        "from storage, scratch files included",
    );
    row(
        "left out",
        summary.skipped_records.to_string(),
        "records that could not be read or decoded",
    );
    rows
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn plots(epochs: &[EpochRecord]) -> Vec<Plot> {
    let by_pass = |value: &dyn Fn(&EpochRecord) -> Option<f64>| -> Vec<(f64, f64)> {
        epochs
            .iter()
            .filter_map(|record| Some((record.passes, value(record)?)))
            .collect()
    };
    let positive = |value: f64| (value > 0.0 && value.is_finite()).then_some(value);
    let line = |name: &str, points: Vec<(f64, f64)>| (name.to_string(), points);
    let convergence = vec![
        line(
            "relative gap, certified",
            by_pass(&|r| r.certified.then_some(r.relative_gap).and_then(positive)),
        ),
        line(
            "relative gap, estimated",
            by_pass(&|r| (!r.certified).then_some(r.relative_gap).and_then(positive)),
        ),
        line(
            "relative difference",
            by_pass(&|r| r.relative_difference.and_then(positive)),
        ),
    ];
    let objective = vec![
        line("primal", by_pass(&|r| Some(r.primal))),
        line("dual", by_pass(&|r| Some(r.dual))),
    ];
    let rate = |r: &EpochRecord| positive(r.rows as f64 / (r.wait_s + r.compute_s));
    let amplification = |r: &EpochRecord| positive(r.read_bytes as f64 / r.used_bytes as f64);
    let plot = |title: &str, y_label: &str, log_y, lines: Vec<(String, Vec<(f64, f64)>)>| Plot {
        title: title.to_string(),
        x_label: "passes over the data".to_string(),
        y_label: y_label.to_string(),
        log_y,
        lines: lines
            .into_iter()
            .filter(|(_, points)| !points.is_empty())
            .collect(),
    };
    let plots = [
        plot("Convergence", "relative to the optimum", true, convergence),
        plot("Objective", "value", true, objective),
        plot(
            "Throughput",
            "records a second",
            false,
            vec![line("rows", by_pass(&rate))],
        ),
        plot(
            "Read amplification",
            "bytes read over bytes used",
            false,
            vec![line("amplification", by_pass(&amplification))],
        ),
    ];
    plots
        .into_iter()
        .filter(|plot| !plot.lines.is_empty())
        .collect()
}

fn bars(summary: &LinearSummary) -> Vec<Bars> {
    vec![Bars {
        title: "Randomness level".to_string(),
        unit: "%".to_string(),
        full: Some(100.0),
        bars: vec![
            ("published measure".to_string(), 100.0 * summary.rl),
            ("exact".to_string(), 100.0 * summary.rl_exact),
        ],
    }]
}

fn notes(summary: &LinearSummary) -> Vec<String> {
    let mut notes = vec![format!(
        "Order {} by access path {}; {} records of {} features{}; seed {}.",
        summary.order,
        summary.access,
        summary.records,
        summary.features,
        match summary.classes {
            0 => String::new(),
            classes => format!(" in {classes} classes"),
        },
        summary.seed
    )];
    if let Some(seconds) = summary.modelled_device_s {
        notes.push(format!(
            "Reads were held to a modelled device; it was busy for {seconds:.2} s (modelled)."
        ));
    }
    if summary.skipped_records > 0 {
        notes.push(format!(
            "{} records could not be read or decoded and were left out.",
            summary.skipped_records
        ));
    }
    notes
}
