//! Curves of one share against another.

use std::fmt::Write as _;

use super::axis::{Axis, number};
use super::escape::{escaped, note};
use super::figures::Curve;
use super::frame::Frame;

/// Size of the drawing in its own units; the axes are equally long.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 520.0;

const FRAME: Frame = Frame {
    left: 66.0,
    right: 512.0,
    top: 26.0,
    bottom: 472.0,
    label: HEIGHT - 8.0,
};
/// With up to this many points each point is marked.
const MOST_MARKED: usize = 12;

/// Appends a figure with the curve and the diagonal.
pub(super) fn figure(page: &mut String, curve: &Curve) {
    let title = escaped(&curve.title);
    let _ = writeln!(page, "<figure>\n<figcaption>{title}</figcaption>");
    note(page, &curve.note);
    let _ = writeln!(
        page,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">"
    );
    let axis = Axis::linear([0.0, 1.0].into_iter(), 5);
    FRAME.axes(page, (&axis, &curve.x_label), (&axis, &curve.y_label));
    let Frame {
        left,
        right,
        top,
        bottom,
        ..
    } = FRAME;
    let _ = write!(
        page,
        "<line class=\"axis dashed\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{top}\"/>\n\
         <polyline class=\"line c0\" points=\""
    );
    let points = || {
        let points = curve.points.iter();
        points.filter(|point| (0.0..=1.0).contains(&point.0) && (0.0..=1.0).contains(&point.1))
    };
    for &(x, y) in points() {
        let _ = write!(
            page,
            "{:.1},{:.1} ",
            FRAME.across(&axis, x),
            FRAME.up(&axis, y)
        );
    }
    page.push_str("\"/>\n");
    if points().count() <= MOST_MARKED {
        for &(x, y) in points() {
            let _ = writeln!(
                page,
                "<circle class=\"c0\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{} at {}</title></circle>",
                FRAME.across(&axis, x),
                FRAME.up(&axis, y),
                number(y),
                number(x)
            );
        }
    }
    page.push_str("</svg>\n</figure>\n");
}
