//! Counters of a running pipeline as Prometheus text.

use pelton_feed::LoaderMeters;
use pelton_run::PrometheusText;

/// The counters in Prometheus' text format.
pub(super) fn prometheus_text(meters: &LoaderMeters) -> String {
    let mut text = PrometheusText::default();
    for (name, help, value) in [
        ("batches_total", "Batches delivered.", meters.batches as f64),
        (
            "fresh_examples_total",
            "Examples delivered for the first time in their epoch.",
            meters.fresh_examples as f64,
        ),
        (
            "echoed_examples_total",
            "Repeats of examples.",
            meters.echoed_examples as f64,
        ),
        (
            "skipped_examples_total",
            "Examples left out as bad.",
            meters.skipped_examples as f64,
        ),
        (
            "replaced_examples_total",
            "Examples replaced because they were bad.",
            meters.replaced_examples as f64,
        ),
        (
            "batch_bytes_total",
            "Bytes of batches.",
            meters.batch_bytes as f64,
        ),
        (
            "read_bytes_total",
            "Bytes read from storage.",
            meters.feed.read_bytes as f64,
        ),
        (
            "wait_seconds_total",
            "Seconds the consumer waited for batches.",
            meters.wait_s,
        ),
        (
            "compute_seconds_total",
            "Seconds the consumer spent between batches.",
            meters.compute_s,
        ),
    ] {
        text.single(name, "counter", help, value);
    }
    let name = "stage_busy_seconds_total";
    text.begin(name, "counter", "Seconds of work of a stage's threads.");
    for stage in &meters.stages {
        text.labelled(name, ("stage", stage.name), stage.busy_s);
    }
    let name = "stage_records_total";
    text.begin(name, "counter", "Examples a stage worked on.");
    for stage in &meters.stages {
        text.labelled(name, ("stage", stage.name), stage.records as f64);
    }
    text.into_string()
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
