//! Horizontal bars: time by stage, and figures for comparison.

use std::fmt::Write as _;

use super::axis::number;
use super::escape::escaped;
use super::figures::{Bars, StageUse};
use super::frame;
use super::lines::COLOURS;

/// Size of the drawing in its own units.
const WIDTH: f64 = 640.0;
const ROW: f64 = 40.0;
const BAR: f64 = 16.0;
/// Longer names are cut; the whole name is in the tooltip.
const LONGEST_NAME: usize = 34;

/// Appends a figure with a bar a stage: working, then waiting, relative to the longest.
pub(super) fn stages(page: &mut String, stages: &[StageUse]) {
    let seconds = |value: f64| {
        if value.is_finite() {
            value.max(0.0)
        } else {
            0.0
        }
    };
    let longest = stages
        .iter()
        .map(|stage| seconds(stage.busy_s) + seconds(stage.wait_s))
        .fold(0.0, f64::max);
    page.push_str(
        "<figure>\n<figcaption>Time of each stage</figcaption>\n<p class=\"legend\">\
         <span><i class=\"c0\"></i>working</span><span><i class=\"waiting\"></i>waiting</span></p>\n",
    );
    open(page, "Time of each stage", stages.len());
    for (row, stage) in stages.iter().enumerate() {
        let (busy, wait) = (seconds(stage.busy_s), seconds(stage.wait_s));
        let share = if busy + wait > 0.0 {
            100.0 * busy / (busy + wait)
        } else {
            0.0
        };
        let text = format!(
            "{} s working, {} s waiting ({share:.0} % occupied)",
            number(busy),
            number(wait)
        );
        head(page, row, &stage.name, &text);
        let end = bar(page, row, "c0", 0.0, width(busy, longest));
        bar(page, row, "waiting", end, width(wait, longest));
    }
    page.push_str("</svg>\n</figure>\n");
}

/// Appends a figure with a bar a value.
pub(super) fn figure(page: &mut String, bars: &Bars) {
    let _ = writeln!(
        page,
        "<figure>\n<figcaption>{}</figcaption>",
        escaped(&bars.title)
    );
    open(page, &bars.title, bars.bars.len());
    draw(page, bars);
    page.push_str("</svg>\n</figure>\n");
}

/// The bars as a separate file.
pub(super) fn svg(bars: &Bars) -> String {
    let mut drawing = String::new();
    draw(&mut drawing, bars);
    let height = ROW * bars.bars.len() as f64 + 4.0;
    frame::file(&bars.title, WIDTH, height, &drawing)
}

fn draw(page: &mut String, bars: &Bars) {
    let shown = |value: f64| {
        if value.is_finite() {
            value.max(0.0)
        } else {
            0.0
        }
    };
    let greatest = bars.bars.iter().map(|bar| shown(bar.1)).fold(0.0, f64::max);
    let full = bars.full.filter(|full| *full > 0.0).unwrap_or(greatest);
    for (row, (name, value)) in bars.bars.iter().enumerate() {
        let space = if bars.unit.is_empty() { "" } else { " " };
        let text = if value.is_finite() {
            format!("{}{space}{}", number(*value), bars.unit)
        } else {
            "not known".to_string()
        };
        head(page, row, name, &text);
        bar(page, row, "track", 0.0, WIDTH);
        let class = format!("c{}", row % COLOURS);
        bar(page, row, &class, 0.0, width(shown(*value), full));
    }
}

fn width(value: f64, full: f64) -> f64 {
    if full > 0.0 {
        (value / full).min(1.0) * WIDTH
    } else {
        0.0
    }
}

fn open(page: &mut String, title: &str, rows: usize) {
    let _ = writeln!(
        page,
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\">",
        ROW * rows as f64 + 4.0,
        escaped(title)
    );
}

/// Name at the left and figures at the right, above the bar.
fn head(page: &mut String, row: usize, name: &str, text: &str) {
    let at = row as f64 * ROW + 14.0;
    let _ = writeln!(
        page,
        "<text class=\"name\" x=\"0\" y=\"{at:.1}\">{}<title>{}</title></text>\
         <text class=\"end\" x=\"{WIDTH}\" y=\"{at:.1}\">{}</text>",
        escaped(&cut(name)),
        escaped(name),
        escaped(text)
    );
}

/// A name, cut to fit.
pub(super) fn cut(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_string(),
    }
}

/// Draws a bar from `start` and returns its end.
fn bar(page: &mut String, row: usize, class: &str, start: f64, width: f64) -> f64 {
    if width > 0.0 {
        let _ = writeln!(
            page,
            "<rect class=\"{class}\" x=\"{start:.1}\" y=\"{:.1}\" width=\"{width:.1}\" \
             height=\"{BAR}\" rx=\"2\"/>",
            row as f64 * ROW + 20.0
        );
    }
    start + width
}
