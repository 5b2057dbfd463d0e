//! A histogram with strips of marks under it, as a separate SVG file.

use std::fmt::Write as _;

use super::axis::{Axis, number};
use super::escape::escaped;
use super::figures::{Histogram, Marks};
use super::frame::{self, Frame};
use super::lines::COLOURS;

/// Size of the drawing in its own units.
const WIDTH: f64 = 720.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 30.0;
const BARS: f64 = 230.0;
/// Height of the ticks and their numbers under the bars.
const SCALE: f64 = 44.0;
/// Height of a strip of marks.
const STRIP: f64 = 36.0;
const MARK: f64 = 12.0;

const FRAME: Frame = Frame {
    left: LEFT,
    right: WIDTH - RIGHT,
    top: TOP,
    bottom: TOP + BARS,
    label: TOP + BARS + 38.0,
};

/// The file.
pub(super) fn svg(histogram: &Histogram) -> String {
    let height = TOP + BARS + SCALE + STRIP * histogram.marks.len() as f64;
    let mut drawing = String::new();
    let ends = histogram.counts.iter().flat_map(|bar| [bar.0, bar.1]);
    let x = Axis::spanning(ends, 8);
    let tallest = histogram.counts.iter().map(|bar| bar.2).max().unwrap_or(0);
    let y = Axis::linear([0.0, tallest as f64].into_iter(), 5);
    FRAME.axes(
        &mut drawing,
        (&x, &histogram.x_label),
        (&y, &histogram.y_label),
    );
    bars(&mut drawing, histogram, &x, &y);
    for (place, marks) in histogram.marks.iter().enumerate() {
        strip(&mut drawing, place, marks, &x);
    }
    frame::file(&histogram.title, WIDTH, height, &drawing)
}

fn bars(page: &mut String, histogram: &Histogram, x: &Axis, y: &Axis) {
    for &(from, to, count) in histogram.counts.iter().filter(|bar| bar.2 > 0) {
        let (left, top) = (FRAME.across(x, from), FRAME.up(y, count as f64));
        let _ = writeln!(
            page,
            "<rect class=\"c0\" x=\"{left:.2}\" y=\"{top:.2}\" width=\"{:.2}\" height=\"{:.2}\">\
             <title>{}: {}</title></rect>",
            (FRAME.across(x, to) - left - 0.6).max(0.4),
            TOP + BARS - top,
            number(from),
            number(count as f64)
        );
    }
}

/// A line with a stroke at each mark, under its name.
fn strip(page: &mut String, place: usize, marks: &Marks, x: &Axis) {
    let middle = TOP + BARS + SCALE + STRIP * place as f64 + STRIP - MARK / 2.0 - 2.0;
    let colour = (place + 1) % COLOURS;
    let _ = writeln!(
        page,
        "<text class=\"name\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>\
         <line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>",
        middle - MARK / 2.0 - 4.0,
        escaped(&marks.name),
        WIDTH - RIGHT
    );
    for &at in &marks.at {
        let _ = writeln!(
            page,
            "<rect class=\"c{colour}\" x=\"{:.2}\" y=\"{:.1}\" width=\"2\" height=\"{MARK}\">\
             <title>{}</title></rect>",
            FRAME.across(x, at) - 1.0,
            middle - MARK / 2.0,
            number(at)
        );
    }
}
