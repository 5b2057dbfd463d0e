//! Counters of a server, for Prometheus.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pelton_run::PrometheusText;

/// Ends of the latency classes, in seconds.
const SECONDS: [f64; 13] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
];

/// Counters of one server.
#[derive(Default)]
pub(crate) struct Metrics {
    /// Responses by status, of all paths.
    responses: Mutex<BTreeMap<u16, u64>>,
    /// Rows that were classified, and the requests they came in.
    queries: AtomicU64,
    in_flight: AtomicU64,
    /// Times of answered requests, by the first of [`SECONDS`] that is not less; the last of all longer ones.
    latencies: [AtomicU64; SECONDS.len() + 1],
    microseconds: AtomicU64,
}

/// Counts a request as in progress until it is dropped.
pub(crate) struct InFlight<'a>(&'a Metrics);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

impl Metrics {
    pub(crate) fn begin(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Relaxed);
        InFlight(self)
    }

    pub(crate) fn responded(&self, status: u16) {
        let mut responses = self
            .responses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *responses.entry(status).or_default() += 1;
    }

    pub(crate) fn classified(&self, queries: u64, took: Duration) {
        let class = SECONDS.partition_point(|&end| end < took.as_secs_f64());
        self.latencies[class].fetch_add(1, Relaxed);
        self.microseconds
            .fetch_add(took.as_micros() as u64, Relaxed);
        self.queries.fetch_add(queries, Relaxed);
    }

    /// Rows that were classified.
    pub(crate) fn queries(&self) -> u64 {
        self.queries.load(Relaxed)
    }

    /// Prometheus' text format.
    pub(crate) fn text(&self) -> String {
        let mut text = PrometheusText::default();
        text.begin("responses_total", "counter", "Responses by status.");
        let responses = self
            .responses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (status, count) in responses.iter() {
            text.labelled("responses_total", ("status", status), count);
        }
        drop(responses);
        let help = "Vectors or images classified.";
        text.single("queries_total", "counter", help, self.queries());
        let help = "Classification requests being handled.";
        text.single("in_flight", "gauge", help, self.in_flight.load(Relaxed));
        let help =
            "Time of answered classification requests, from the request's head to the answer.";
        text.begin("latency_seconds", "histogram", help);
        let mut total = 0;
        let ends = SECONDS
            .iter()
            .map(f64::to_string)
            .chain(["+Inf".to_string()]);
        for (end, count) in ends.zip(&self.latencies) {
            total += count.load(Relaxed);
            text.labelled("latency_seconds_bucket", ("le", end), total);
        }
        let sum = self.microseconds.load(Relaxed) as f64 / 1e6;
        text.value("latency_seconds_sum", sum);
        text.value("latency_seconds_count", total);
        text.into_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_lie_in_the_first_class_that_holds_them() {
        let metrics = Metrics::default();
        for (queries, milliseconds) in [(1, 1), (2, 3), (1, 60_000)] {
            metrics.classified(queries, Duration::from_millis(milliseconds));
        }
        metrics.responded(200);
        metrics.responded(503);
        metrics.responded(200);
        let under_way = metrics.begin();
        let text = metrics.text();
        for line in [
            "pelton_responses_total{status=\"200\"} 2",
            "pelton_responses_total{status=\"503\"} 1",
            "pelton_queries_total 4",
            "pelton_in_flight 1",
            "pelton_latency_seconds_bucket{le=\"0.0005\"} 0",
            "pelton_latency_seconds_bucket{le=\"0.001\"} 1",
            "pelton_latency_seconds_bucket{le=\"0.005\"} 2",
            "pelton_latency_seconds_bucket{le=\"5\"} 2",
            "pelton_latency_seconds_bucket{le=\"+Inf\"} 3",
            "pelton_latency_seconds_sum 60.004",
            "pelton_latency_seconds_count 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        drop(under_way);
        assert!(metrics.text().contains("pelton_in_flight 0"));
    }
}
