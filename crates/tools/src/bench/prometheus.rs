//! Counters of a running pipeline as Prometheus text.

use std::fmt::Write as _;

use pelton_feed::LoaderMeters;

/// The counters in Prometheus' text format.
pub(super) fn prometheus_text(meters: &LoaderMeters) -> String {
    let mut out = String::new();
    let mut counter = |name: &str, help: &str, value: f64| {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "# HELP pelton_{name} {help}\n# TYPE pelton_{name} counter\npelton_{name} {value}"
        );
    };
    counter("batches_total", "Batches delivered.", meters.batches as f64);
    counter(
        "fresh_examples_total",
        "Examples delivered for the first time in their epoch.",
        meters.fresh_examples as f64,
    );
    counter(
        "echoed_examples_total",
        "Repeats of examples.",
        meters.echoed_examples as f64,
    );
    counter(
        "skipped_examples_total",
        "Examples left out as bad.",
        meters.skipped_examples as f64,
    );
    counter(
        "replaced_examples_total",
        "Examples replaced because they were bad.",
        meters.replaced_examples as f64,
    );
    counter(
        "batch_bytes_total",
        "Bytes of batches.",
        meters.batch_bytes as f64,
    );
    counter(
        "read_bytes_total",
        "Bytes read from storage.",
        meters.feed.read_bytes as f64,
    );
    counter(
        "wait_seconds_total",
        "Seconds the consumer waited for batches.",
        meters.wait_s,
    );
    counter(
        "compute_seconds_total",
        "Seconds the consumer spent between batches.",
        meters.compute_s,
    );
    let stages = [
        (
            "busy_seconds_total",
            "Seconds of work of a stage's threads.",
        ),
        ("records_total", "Examples a stage worked on."),
    ];
    for (name, help) in stages {
        let _ = writeln!(
            out,
            "# HELP pelton_stage_{name} {help}\n# TYPE pelton_stage_{name} counter"
        );
        for stage in &meters.stages {
            let value = match name {
                "records_total" => stage.records as f64,
                _ => stage.busy_s,
            };
            let _ = writeln!(
                out,
                "pelton_stage_{name}{{stage=\"{}\"}} {value}",
                stage.name
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use pelton_feed::StageMeters;

    use super::*;

    #[test]
    fn every_line_is_a_comment_or_a_name_and_a_number() {
        let meters = LoaderMeters {
            fresh_examples: 640,
            stages: vec![StageMeters {
                name: "decode",
                busy_s: 1.5,
                ..StageMeters::default()
            }],
            ..LoaderMeters::default()
        };
        let text = prometheus_text(&meters);
        assert!(
            text.contains("\npelton_fresh_examples_total 640\n"),
            "{text}"
        );
        assert!(text.contains("\npelton_stage_busy_seconds_total{stage=\"decode\"} 1.5\n"));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').unwrap();
            value.parse::<f64>().unwrap();
        }
    }
}
