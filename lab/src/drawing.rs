//! The report page of a reproduced table: curves and times as plots, every figure as text.

use pelton_run::{Bars, Plot, Report};
use serde_json::Value;

use super::buckets::PADDED;
use crate::table::{Reproduction, Row};

/// The page of a reproduction, made only from its rows.
pub(super) fn report(reproduction: &Reproduction) -> Report {
    Report {
        title: format!("pelton-lab reproduce {}", reproduction.name),
        summary: summary(&reproduction.rows),
        series: curves(&reproduction.rows),
        bars: bars(&reproduction.rows),
        notes: reproduction.notes.clone(),
        ..Report::default()
    }
}

/// Every chart of a page as a separate file, named after its title.
pub(super) fn files(report: &Report) -> Vec<(String, String)> {
    let plots = report
        .series
        .iter()
        .map(|plot| (&plot.title, plot.to_svg()));
    let bars = report.bars.iter().map(|bars| (&bars.title, bars.to_svg()));
    let file = |title: &str| {
        let words = title.split(|letter: char| !letter.is_ascii_alphanumeric());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let name = words.join("-").to_ascii_lowercase();
        name.chars().take(100).collect::<String>() + ".svg"
    };
    let all = plots.chain(bars);
    all.map(|(title, drawing)| (file(title), drawing)).collect()
}

/// Every figure with a published counterpart.
fn summary(rows: &[Row]) -> Vec<(String, String, String)> {
    rows.iter()
        .filter(|row| !row.published.is_null())
        .map(|row| {
            let inner = match &row.inner_passes {
                Some(inner) => format!(", inner passes {inner}"),
                None => String::new(),
            };
            (
                format!("{}, {}: {}{inner}", row.table, row.data, row.method),
                format!(
                    "{} (published {})",
                    text(&row.measured),
                    text(&row.published)
                ),
                format!("{}; {}", row.figure, row.differs),
            )
        })
        .collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(value) if value.fract() != 0.0 => format!("{value:.3}"),
            Some(value) => format!("{value:.0}"),
            None => number.to_string(),
        },
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// A plot for each data set, number of inner passes and figure with a value an epoch, with a line a method.
fn curves(rows: &[Row]) -> Vec<Plot> {
    let mut plots: Vec<Plot> = Vec::new();
    for row in rows {
        let Value::Array(differences) = &row.measured else {
            continue;
        };
        let inner = match &row.inner_passes {
            Some(inner) => format!(", inner passes {inner}"),
            None => String::new(),
        };
        let is_difference = row.figure.starts_with("relative difference");
        let what = if is_difference {
            String::new()
        } else {
            format!(", {}", row.figure)
        };
        let title = format!("{}: {}{inner}{what}", row.table, row.data);
        let points = (1..)
            .map(f64::from)
            .zip(differences.iter().filter_map(Value::as_f64));
        let line = (row.method.clone(), points.collect());
        match plots.iter_mut().find(|plot| plot.title == title) {
            Some(plot) => plot.lines.push(line),
            None => plots.push(Plot {
                title,
                x_label: "epochs".to_string(),
                y_label: if is_difference {
                    "relative difference to the optimum".to_string()
                } else {
                    row.figure.clone()
                },
                log_y: is_difference,
                lines: vec![line],
            }),
        }
    }
    plots
}

/// Figure 10: total times, a chart for each data set and device; every other figure in seconds; and
/// padding.
fn bars(rows: &[Row]) -> Vec<Bars> {
    let mut charts: Vec<Bars> = Vec::new();
    for row in rows {
        let (title, name, value) = match &row.measured {
            Value::Object(times) => {
                let (method, device) = row.method.split_once(": ").unwrap_or((&row.method, ""));
                let total = times.get("total_s").and_then(Value::as_f64);
                let title = format!("{}: {}, {device}, total time", row.table, row.data);
                (title, method.to_string(), total)
            }
            Value::Number(value) if row.figure.contains("seconds") => {
                let title = format!("{}: {}, {}", row.table, row.data, row.figure);
                (title, row.method.clone(), value.as_f64())
            }
            Value::Number(value) if row.figure.ends_with("_per_s") => {
                let title = format!("{}: {}, {}", row.table, row.data, row.figure);
                (title, row.method.clone(), value.as_f64())
            }
            Value::Number(value) if row.figure == PADDED => {
                let title = format!("{}, {}", row.data, row.figure);
                (title, row.method.clone(), value.as_f64())
            }
            _ => continue,
        };
        let unit = match row.figure.as_str() {
            PADDED => "%",
            figure if figure.ends_with("_per_s") => "a second",
            _ => "s",
        };
        let bar = (name, value.unwrap_or(f64::NAN));
        match charts.iter_mut().find(|chart| chart.title == title) {
            Some(chart) => chart.bars.push(bar),
            None => charts.push(Bars {
                title,
                unit: unit.to_string(),
                full: None,
                bars: vec![bar],
            }),
        }
    }
    charts
}
