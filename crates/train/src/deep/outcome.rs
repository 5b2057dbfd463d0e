//! The results of a run except the model: figures, report and TensorBoard events.

use pelton_feed::LoaderMeters;
use pelton_run::{EventWriter, Plot, Report, RunError, RunFolder, StageUse};

use super::progress::{NetEpoch, Progress};
use super::summary::NetSummary;
use crate::error::TrainError;
use crate::label_ranks::LabelRanks;

pub(super) fn leave(
    language: bool,
    summary: &NetSummary,
    meters: &LoaderMeters,
    progress: &Progress,
    folder: &mut RunFolder,
) -> Result<(), TrainError> {
    if !folder.is_written() {
        return Ok(());
    }
    events(progress, folder).map_err(|source| RunError::io(folder.path(), "write", source))?;
    let page = report(language, summary, meters, progress, folder).to_html();
    folder.write_text("report.html", &page)?;
    folder.write_summary(summary)?;
    Ok(())
}

fn events(progress: &Progress, folder: &RunFolder) -> std::io::Result<()> {
    let mut events = EventWriter::create(folder.path(), 0)?;
    for epoch in &progress.epochs {
        let mut values = vec![
            ("loss/training", epoch.train_loss),
            ("accuracy/training", epoch.train_accuracy),
            ("learning rate", epoch.rate),
        ];
        values.extend(epoch.validation_loss.map(|x| ("loss/validation", x)));
        values.extend(
            epoch
                .validation_accuracy
                .map(|x| ("accuracy/validation", x)),
        );
        events.scalars(epoch.epoch, &values)?;
    }
    Ok(())
}

fn report(
    language: bool,
    summary: &NetSummary,
    meters: &LoaderMeters,
    progress: &Progress,
    folder: &RunFolder,
) -> Report {
    let epochs = &progress.epochs;
    let line = |name: &str, y: &dyn Fn(&NetEpoch) -> Option<f64>| {
        let points = epochs.iter().filter_map(|e| Some((e.epoch as f64, y(e)?)));
        (name.to_string(), points.collect::<Vec<_>>())
    };
    let plot = |title: &str, y_label: &str, lines: Vec<(String, Vec<(f64, f64)>)>| Plot {
        title: title.to_string(),
        x_label: "epoch".to_string(),
        y_label: y_label.to_string(),
        log_y: false,
        lines: lines
            .into_iter()
            .filter(|(_, points)| !points.is_empty())
            .collect(),
    };
    let quality = if language {
        plot(
            "Perplexity",
            "perplexity",
            vec![
                line("training", &|e| Some(e.train_loss.exp())),
                line("validation", &|e| e.validation_loss.map(f64::exp)),
            ],
        )
    } else {
        plot(
            "Accuracy",
            "%",
            vec![
                line("training", &|e| Some(100.0 * e.train_accuracy)),
                line("validation", &|e| e.validation_accuracy.map(|a| 100.0 * a)),
            ],
        )
    };
    let loss = plot(
        "Loss",
        "mean loss",
        vec![
            line("training", &|e| Some(e.train_loss)),
            line("validation", &|e| e.validation_loss),
        ],
    );
    let mut stages: Vec<StageUse> = meters
        .stages
        .iter()
        .map(|stage| StageUse {
            name: stage.name.to_string(),
            busy_s: stage.busy_s,
            wait_s: stage.wait_s,
        })
        .collect();
    stages.push(StageUse {
        name: "training".to_string(),
        busy_s: summary.compute_s,
        wait_s: progress.wait_s,
    });
    Report {
        title: format!("pelton train {}", folder.path().display()),
        verdict: summary.verdict.clone(),
        summary: figures(summary),
        series: vec![quality, loss],
        stages,
        notes: summary.warning.iter().cloned().collect(),
        config_toml: pelton_storage::read_text(folder.path().join("run.toml")).unwrap_or_default(),
        ..Report::default()
    }
}

fn figures(summary: &NetSummary) -> Vec<(String, String, String)> {
    let row = |name: &str, value: String, what: &str| (name.to_string(), value, what.to_string());
    let percent = |part: f64| format!("{:.2} %", 100.0 * part);
    let mut rows = Vec::new();
    if let Some(accuracy) = summary.test_accuracy {
        rows.push(row(
            "test accuracy",
            percent(accuracy),
            "test examples predicted right",
        ));
    }
    if let Some(sample) = &summary.test_sample {
        rows.push(row(
            "test sample",
            sample.examples.to_string(),
            &sample.what(),
        ));
    }
    for group in summary.test_accuracy_by_class_size.iter().flatten() {
        rows.push(row(
            &format!("classes of {} examples", group.size()),
            group.accuracy.map_or("-".to_string(), percent),
            &format!(
                "test accuracy; {} test examples of {} classes",
                group.examples, group.classes
            ),
        ));
    }
    for (name, parts) in summary.test_label_ranks.iter().flat_map(LabelRanks::lines) {
        rows.push(row(name, parts, "of the best classes of test examples"));
    }
    if let Some(perplexity) = summary.test_perplexity {
        rows.push(row(
            "test perplexity",
            format!("{perplexity:.2}"),
            "of a word of the test data",
        ));
    }
    if let Some(loss) = summary.best_validation_loss {
        rows.push(row(
            "validation loss",
            format!("{loss:.4}"),
            "in the best epoch, whose parameters are kept",
        ));
    }
    let speed = summary
        .examples_per_s
        .or(summary.tokens_per_s)
        .unwrap_or(0.0);
    let unit = if summary.tokens_per_s.is_some() {
        "words"
    } else {
        "images"
    };
    rows.extend([
        row(
            "epochs",
            summary.epochs.to_string(),
            "passes through the plan",
        ),
        row(
            "time",
            format!("{:.1} s", summary.wall_s),
            "from the first step to the end",
        ),
        row(
            "speed",
            format!("{speed:.0} {unit}/s"),
            "of training, including waits",
        ),
        row(
            "step",
            format!("{:.1} ms", 1e3 * summary.step_s),
            "without waits",
        ),
        row(
            "waiting",
            percent(summary.feed_wait_fraction),
            "of the training time, for batches",
        ),
        row(
            "peak memory",
            format!("{:.0} MB", summary.peak_rss_bytes as f64 / 1e6),
            "of the process",
        ),
    ]);
    rows
}
