//! The report of a linear run: quality and weights of the model, the data read, convergence, time by stage, and
//! randomness of the order.

use pelton_format::{ColumnUse, Dataset};
use pelton_linear::Model;
use pelton_run::{Bars, EpochRecord, Plot, Report, StageUse, Table};

use super::inference;
use super::largest_weights::largest_weights;
use super::quality::{self, Figure};
use crate::config::LinearConfig;
use crate::summary::{CostFigures, LinearSummary};

/// The inputs of a report.
pub(super) struct Results<'a> {
    pub summary: &'a LinearSummary,
    /// Points of the ROC curve of the test data, if any.
    pub roc: Vec<(f64, f64)>,
    pub model: &'a Model,
    /// The training data.
    pub dataset: &'a Dataset,
}

/// The report of a finished run.
pub(super) fn report(
    config: &LinearConfig,
    results: &Results<'_>,
    epochs: &[EpochRecord],
) -> Report {
    let summary = results.summary;
    Report {
        title: format!("pelton train linear {}", config.data.paths.join(" ")),
        verdict: summary.verdict.clone(),
        summary: figures(summary),
        curves: quality::curves(summary, &results.roc),
        signed: largest_weights(results.model, results.dataset),
        tables: [
            summary.inference.as_ref().map(inference::table),
            costs(summary),
            quality::classes(summary),
            columns(results.dataset),
        ]
        .into_iter()
        .flatten()
        .collect(),
        series: plots(epochs).into_iter().chain(path(summary)).collect(),
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
        notes: notes(summary, results.dataset),
        config_toml: toml::to_string(config).unwrap_or_default(),
    }
}

/// The figures, the most important first: those of the test data, or else of training.
fn figures(summary: &LinearSummary) -> Vec<Figure> {
    let mut rows = quality::figures(summary);
    let row = |name: &str, value: String, what: &str| -> Figure {
        (name.to_string(), value, what.to_string())
    };
    if let Some(accuracy) = summary.train_accuracy {
        rows.push(row(
            "training accuracy",
            quality::percent(accuracy),
            match &summary.threshold {
                Some(_) => "training examples predicted right by the sign, without the threshold",
                None => "training examples predicted right",
            },
        ));
    }
    if let Some(gap) = summary.relative_gap {
        rows.push(row(
            "relative gap",
            format!("{gap:.2e}"),
            match summary.inference {
                Some(_) => "estimated distance from the optimum, by Newton's decrement",
                None => "largest possible distance from the optimum",
            },
        ));
    }
    let seconds = |value: f64| format!("{value:.2} s");
    rows.extend([
        row(
            "time",
            seconds(summary.wall_s),
            "from start to certified model",
        ),
        row(
            "records",
            summary.records.to_string(),
            "examples of the training data",
        ),
        row(
            "left out",
            summary.skipped_records.to_string(),
            "records that could not be read or decoded",
        ),
    ]);
    if let (Some(primal), Some(dual)) = (summary.primal, summary.dual) {
        rows.extend([
            row(
                "primal value",
                format!("{primal:.6e}"),
                "of the written model, over every record",
            ),
            row(
                "dual value",
                format!("{dual:.6e}"),
                match summary.inference {
                    Some(_) => "an estimate of the optimum",
                    None => "a lower bound of the optimum",
                },
            ),
        ]);
    }
    if let Some(difference) = summary.relative_difference {
        rows.push(row(
            "relative difference",
            format!("{difference:.2e}"),
            "to the known optimum",
        ));
    }
    rows.extend([
        row(
            "epochs",
            summary.epochs.to_string(),
            "passes through the plan",
        ),
        row(
            "passes",
            format!("{:.2}", summary.passes),
            "records used over all records, certificate included",
        ),
        row(
            "preparing",
            seconds(summary.prepare_s),
            "indexing records, filling buckets",
        ),
        row(
            "loading",
            seconds(summary.load_s),
            "while something was being loaded",
        ),
        row(
            "computing",
            seconds(summary.compute_s),
            "while the solver ran",
        ),
        row("overlap", seconds(summary.overlap_s), "while both went on"),
        row(
            "peak memory",
            megabytes(summary.peak_rss_bytes),
            "resident memory of the whole process",
        ),
        row(
            "budget",
            megabytes(summary.memory_bytes),
            "for look-ahead, blocks and cached rows",
        ),
        row(
            "data",
            megabytes(summary.data_bytes),
            "bytes of all records",
        ),
        row(
            "read",
            megabytes(summary.read_bytes),
            "from storage, scratch files included",
        ),
    ]);
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

/// The deciding figure over the costs of a search, and the number of weights.
fn path(summary: &LinearSummary) -> Vec<Plot> {
    let Some(search) = summary
        .search
        .as_ref()
        .filter(|search| search.costs.len() > 1)
    else {
        return Vec::new();
    };
    let line = |value: &dyn Fn(&CostFigures) -> Option<f64>| {
        let points = search
            .costs
            .iter()
            .filter_map(|cost| Some((cost.cost.log10(), value(cost)?)));
        let mut points: Vec<(f64, f64)> = points.filter(|(_, value)| value.is_finite()).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let name = search.figure.replace('_', " ");
    let plot = |title: &str, name: &str, points| Plot {
        title: title.to_string(),
        x_label: "log10 of the cost".to_string(),
        y_label: name.to_string(),
        log_y: false,
        lines: vec![(name.to_string(), points)],
    };
    let plots = [
        plot("Validation by cost", &name, line(&|cost| Some(cost.mean))),
        plot(
            "Weights by cost",
            "weights other than 0",
            line(&|cost| cost.nonzero_weights),
        ),
    ];
    plots
        .into_iter()
        .filter(|plot| plot.lines[0].1.len() > 1)
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

/// The results of cross-validation.
fn costs(summary: &LinearSummary) -> Option<Table> {
    let search = summary.search.as_ref()?;
    let rows = search.costs.iter().map(|cost| {
        let mark = if cost.cost == search.best { "best" } else { "" };
        vec![
            cost.cost.to_string(),
            format!("{:.6}", cost.mean),
            format!("{:.6}", cost.deviation),
            cost.nonzero_weights
                .map_or("-".to_string(), |count| format!("{count:.1}")),
            mark.to_string(),
        ]
    });
    let name = search.figure.replace('_', " ");
    Some(Table {
        title: "Costs".to_string(),
        head: [
            "cost",
            name.as_str(),
            "deviation",
            "weights other than 0",
            "",
        ]
        .map(str::to_string)
        .to_vec(),
        rows: rows.collect(),
        note: format!(
            "Of records that the models did not see: mean and standard deviation over {} folds.",
            search.folds
        ),
    })
}

/// The columns of a table as they were read.
fn columns(dataset: &Dataset) -> Option<Table> {
    /// Most columns shown.
    const MOST: usize = 200;
    let all = dataset.column_uses();
    let row = |column: &ColumnUse| {
        let (name, what) = (column.name.clone(), column.what.clone());
        let counts = [column.missing, column.features].map(|count| count.to_string());
        [name, what].into_iter().chain(counts).collect()
    };
    let mut notes = Vec::new();
    if all.iter().filter(|column| column.is_hashed).count() > 1 {
        notes.push("Hashed columns share their features.".to_string());
    }
    if all.len() > MOST {
        notes.push(format!("The first {MOST} of {} are shown.", all.len()));
    }
    (!all.is_empty()).then(|| Table {
        title: "Columns".to_string(),
        head: ["column", "read as", "missing cells", "features"]
            .map(str::to_string)
            .to_vec(),
        rows: all.iter().take(MOST).map(row).collect(),
        note: notes.join(" "),
    })
}

fn notes(summary: &LinearSummary, dataset: &Dataset) -> Vec<String> {
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
    if summary.threshold.is_some() {
        notes.push("The threshold was chosen on the test data, so its figures there are a little too good.".to_string());
    }
    if summary.skipped_records > 0 {
        notes.push(format!(
            "{} records could not be read or decoded and were left out.",
            summary.skipped_records
        ));
    }
    notes.extend(dataset.notes().iter().cloned());
    notes
}
