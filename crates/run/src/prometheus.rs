//! Counters in Prometheus' text format, which `bench` and `serve` answer with.

use std::fmt::{Display, Write};

/// What the format is called in HTTP.
pub const PROMETHEUS_TYPE: &str = "text/plain; version=0.0.4";

/// A text to which metrics are appended; each name gets the prefix `pelton_`.
#[derive(Debug, Default)]
pub struct PrometheusText(String);

impl PrometheusText {
    /// Begins a metric; `kind` is counter, gauge or histogram.
    pub fn begin(&mut self, name: &str, kind: &str, help: &str) {
        self.0.push_str(&format!(
            "# HELP pelton_{name} {help}\n# TYPE pelton_{name} {kind}\n"
        ));
    }

    /// A value of the metric.
    pub fn value(&mut self, name: &str, value: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "pelton_{name} {value}");
    }

    /// A value of the metric for one value of a label.
    pub fn labelled(&mut self, name: &str, (label, of): (&str, impl Display), value: impl Display) {
        let _ = writeln!(self.0, "pelton_{name}{{{label}=\"{of}\"}} {value}");
    }

    /// A metric of one value.
    pub fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.begin(name, kind, help);
        self.value(name, value);
    }

    /// The whole text.
    pub fn into_string(self) -> String {
        self.0
    }
}
