//! Bars to both sides of 0: names at the left, values at the right.

use std::fmt::Write as _;

use super::axis::number;
use super::bars::cut;
use super::escape::{escaped, note};
use super::figures::SignedBars;

/// Size of the drawing in its own units.
const WIDTH: f64 = 640.0;
const ROW: f64 = 22.0;
const BAR: f64 = 13.0;
/// Right end of names, and left and right limits of bars.
const NAMES: f64 = 250.0;
const LEFT: f64 = 262.0;
const RIGHT: f64 = 566.0;

/// Appends a figure with a bar a value, from the line of 0; values that are not finite have no bar.
pub(super) fn figure(page: &mut String, bars: &SignedBars) {
    let title = escaped(&bars.title);
    let _ = writeln!(page, "<figure>\n<figcaption>{title}</figcaption>");
    note(page, &bars.note);
    let height = ROW * bars.bars.len() as f64 + 4.0;
    let _ = writeln!(
        page,
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">"
    );
    let shown = |value: f64| if value.is_finite() { value } else { 0.0 };
    let values = || bars.bars.iter().map(|bar| shown(bar.1));
    let (least, most) = (values().fold(0.0, f64::min), values().fold(0.0, f64::max));
    // Halved, since the difference may overflow.
    let range = 0.5 * most - 0.5 * least;
    let across = |value: f64| {
        let share = if range > 0.0 {
            (0.5 * value - 0.5 * least) / range
        } else {
            0.0
        };
        LEFT + share * (RIGHT - LEFT)
    };
    for (row, (name, value)) in bars.bars.iter().enumerate() {
        let at = ROW * row as f64 + 15.0;
        let text = if value.is_finite() {
            number(*value)
        } else {
            "not known".to_string()
        };
        let _ = writeln!(
            page,
            "<text class=\"name end\" x=\"{NAMES}\" y=\"{at:.1}\">{}<title>{}</title></text>\
             <text class=\"end\" x=\"{WIDTH}\" y=\"{at:.1}\">{}</text>",
            escaped(&cut(name)),
            escaped(name),
            escaped(&text)
        );
        let (zero, end) = (across(0.0), across(shown(*value)));
        if end != zero {
            let class = if end > zero { "c0" } else { "c1" };
            let _ = writeln!(
                page,
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BAR}\" \
                 rx=\"2\"/>",
                zero.min(end),
                at - 11.0,
                (end - zero).abs().max(0.5)
            );
        }
    }
    let zero = across(0.0);
    let _ = writeln!(
        page,
        "<line class=\"axis\" x1=\"{zero:.1}\" x2=\"{zero:.1}\" y1=\"0\" y2=\"{height}\"/>\n</svg>\n</figure>"
    );
}
