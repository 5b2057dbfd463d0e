//! Line plots.

use std::fmt::Write as _;

use super::axis::{Axis, number};
use super::escape::escaped;
use super::figures::Plot;
use super::frame::{self, Frame};

/// Size of the drawing in its own units; it is scaled to the width of its column.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 48.0;

const FRAME: Frame = Frame {
    left: LEFT,
    right: WIDTH - RIGHT,
    top: TOP,
    bottom: HEIGHT - BOTTOM,
    label: HEIGHT - 8.0,
};
/// Number of colours; further lines reuse them, dashed.
pub(super) const COLOURS: usize = 6;
/// With up to this many points each point is marked.
const MOST_MARKED: usize = 40;
/// Most points drawn; more would overlap at this width.
const MOST_POINTS: usize = 1000;

/// Height of a name in the legend of a file.
const NAME: f64 = 20.0;

/// A line's name and the points to draw.
type Line<'a> = (&'a str, Vec<(f64, f64)>);

/// Appends a figure with the plot, or with a sentence if there is nothing to plot.
pub(super) fn figure(page: &mut String, plot: &Plot) {
    let lines = lines_of(plot);
    let title = escaped(&plot.title);
    let _ = writeln!(page, "<figure>\n<figcaption>{title}</figcaption>");
    if lines.iter().all(|(_, points)| points.is_empty()) {
        page.push_str("<p class=\"none\">No values were recorded.</p>\n</figure>\n");
        return;
    }
    legend(page, &lines);
    let _ = writeln!(
        page,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">"
    );
    draw(page, plot, &lines);
    page.push_str("</svg>\n</figure>\n");
}

/// The plot as a separate file, with its legend below.
pub(super) fn svg(plot: &Plot) -> String {
    let lines = lines_of(plot);
    let mut drawing = String::new();
    draw(&mut drawing, plot, &lines);
    for (place, (name, points)) in lines.iter().enumerate() {
        let colour = place % COLOURS;
        let at = HEIGHT + NAME * place as f64;
        let last = points
            .last()
            .map_or(String::new(), |(_, last)| number(*last));
        let dashed = if place >= COLOURS { ", dashed" } else { "" };
        let _ = writeln!(
            drawing,
            "<rect class=\"c{colour}\" x=\"{LEFT}\" y=\"{:.1}\" width=\"14\" height=\"4\"/>\
             <text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{}{dashed}: {last}</text>",
            at + 3.0,
            LEFT + 22.0,
            at + 9.0,
            escaped(name)
        );
    }
    let height = HEIGHT + NAME * lines.len() as f64;
    frame::file(&plot.title, WIDTH, height, &drawing)
}

fn lines_of(plot: &Plot) -> Vec<Line<'_>> {
    plot.lines
        .iter()
        .map(|(name, points)| (name.as_str(), shown(points, plot.log_y)))
        .collect()
}

/// The axes and the lines; nothing without points.
fn draw(page: &mut String, plot: &Plot, lines: &[Line<'_>]) {
    let all = || lines.iter().flat_map(|(_, points)| points);
    if all().next().is_none() {
        return;
    }
    let x = Axis::spanning(all().map(|point| point.0), 8);
    let y = if plot.log_y {
        Axis::logarithmic(all().map(|point| point.1))
    } else {
        Axis::linear(all().map(|point| point.1), 5)
    };
    FRAME.axes(page, (&x, &plot.x_label), (&y, &plot.y_label));
    for (number, (name, points)) in lines.iter().enumerate() {
        line(page, number, name, points, &x, &y);
    }
}

fn shown(points: &[(f64, f64)], log_y: bool) -> Vec<(f64, f64)> {
    let points: Vec<(f64, f64)> = points
        .iter()
        .copied()
        .filter(|(x, y)| plottable(*x) && plottable(*y) && (!log_y || *y > 0.0))
        .collect();
    let every = points.len().div_ceil(MOST_POINTS).max(1);
    let last = points.len().saturating_sub(1);
    let kept = points.iter().enumerate();
    kept.filter(|(place, _)| place % every == 0 || *place == last)
        .map(|(_, point)| *point)
        .collect()
}

/// Whether a value leaves room for an axis within f64.
fn plottable(value: f64) -> bool {
    value == 0.0 || (1e-290..1e290).contains(&value.abs())
}

/// Names of the lines with their last values.
fn legend(page: &mut String, lines: &[Line<'_>]) {
    page.push_str("<p class=\"legend\">");
    for (place, (name, points)) in lines.iter().enumerate() {
        let colour = place % COLOURS;
        let dashed = if place >= COLOURS { " dashed" } else { "" };
        let _ = write!(
            page,
            "<span><i class=\"c{colour}{dashed}\"></i>{}",
            escaped(name)
        );
        if let Some((_, last)) = points.last() {
            let _ = write!(page, " <b>{}</b>", number(*last));
        }
        page.push_str("</span>");
    }
    page.push_str("</p>\n");
}

fn line(page: &mut String, place: usize, name: &str, points: &[(f64, f64)], x: &Axis, y: &Axis) {
    let colour = place % COLOURS;
    let dashed = if place >= COLOURS { " dashed" } else { "" };
    let _ = write!(page, "<polyline class=\"line c{colour}{dashed}\" points=\"");
    for point in points {
        let _ = write!(
            page,
            "{:.1},{:.1} ",
            FRAME.across(x, point.0),
            FRAME.up(y, point.1)
        );
    }
    page.push_str("\"/>\n");
    if points.len() > MOST_MARKED {
        return;
    }
    for point in points {
        let _ = writeln!(
            page,
            "<circle class=\"c{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\">\
             <title>{}: {} at {}</title></circle>",
            FRAME.across(x, point.0),
            FRAME.up(y, point.1),
            escaped(name),
            number(point.1),
            number(point.0)
        );
    }
}
