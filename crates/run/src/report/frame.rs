//! The frame of a plot: the positions of values, its axes and their labels.

use std::fmt::Write as _;

use super::axis::Axis;
use super::escape::escaped;

/// Height of the title of a file.
const HEAD: f64 = 26.0;

/// A drawing as a separate SVG file, under its title; it follows its reader's light or dark setting.
pub(super) fn file(title: &str, width: f64, height: f64, drawing: &str) -> String {
    let title = escaped(title);
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {}\" role=\"img\" \
         aria-label=\"{title}\">\n<style>\n{}svg {{ background: var(--card); font-family: system-ui, \
         sans-serif; }}\n</style>\n<text class=\"name\" x=\"4\" y=\"18\">{title}</text>\n\
         <g transform=\"translate(0 {HEAD})\">\n{drawing}</g>\n</svg>\n",
        HEAD + height,
        include_str!("style.css")
    )
}

/// The positions of the axes, in pixels.
pub(super) struct Frame {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    /// Baseline of the label below.
    pub label: f64,
}

impl Frame {
    pub fn across(&self, axis: &Axis, value: f64) -> f64 {
        self.left + axis.place(value) * (self.right - self.left)
    }

    pub fn up(&self, axis: &Axis, value: f64) -> f64 {
        self.bottom - axis.place(value) * (self.bottom - self.top)
    }

    /// Draws both axes with their ticks and labels.
    pub fn axes(&self, page: &mut String, x: (&Axis, &str), y: (&Axis, &str)) {
        let &Frame {
            left,
            right,
            bottom,
            label,
            ..
        } = self;
        for (value, text) in &y.0.ticks {
            let at = self.up(y.0, *value);
            let _ = writeln!(
                page,
                "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
                left - 8.0,
                at + 4.5
            );
        }
        for (value, text) in &x.0.ticks {
            let at = self.across(x.0, *value);
            let _ = writeln!(
                page,
                "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{bottom}\" y2=\"{:.1}\"/>\
                 <text class=\"middle\" x=\"{at:.1}\" y=\"{:.1}\">{text}</text>",
                bottom + 5.0,
                bottom + 20.0
            );
        }
        let _ = writeln!(
            page,
            "<line class=\"axis\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\
             <text class=\"label\" x=\"4\" y=\"14\">{}</text>\
             <text class=\"label end\" x=\"{right}\" y=\"{label:.1}\">{}</text>",
            escaped(y.1),
            escaped(x.1)
        );
    }
}
