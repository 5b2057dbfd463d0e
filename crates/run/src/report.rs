//! `report.html`: what a run did, on one page without scripts, fonts or images from elsewhere.
//!
//! The page is a function of a plain [`Report`]; whoever ran the job fills it. Plots are SVG written
//! here: drawing libraries fix colours and fonts when the picture is made, and these follow the
//! reader's light or dark setting. Every text of the report is escaped, because file names and
//! labels come from outside. Cost: about 50 bytes a plotted point.

mod axis;
mod bars;
mod escape;
mod frame;
mod histogram;
mod lines;

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use escape::escaped;

/// What the page shows, in order. Empty parts are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the run.
    pub title: String,
    /// "Was I input-bound, at which stage, and what would fix it?"
    pub verdict: String,
    /// Figures as (name, value with unit, explanation or empty).
    pub summary: Vec<(String, String, String)>,
    /// Plots of figures over the course of the run.
    pub series: Vec<Plot>,
    /// How each stage spent its time.
    pub stages: Vec<StageUse>,
    /// Figures to compare as bars, such as randomness levels.
    pub bars: Vec<Bars>,
    /// Sentences a reader should know.
    pub notes: Vec<String>,
    /// The configuration that repeats the run.
    pub config_toml: String,
}

/// Lines over a common x axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// What is shown.
    pub title: String,
    /// Unit or meaning of x.
    pub x_label: String,
    /// Unit or meaning of y.
    pub y_label: String,
    /// Whether y is logarithmic; values that are not positive are then left out.
    pub log_y: bool,
    /// Lines as (name, points); points with values that are not finite are left out.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// How one stage spent the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageUse {
    /// Name of the stage.
    pub name: String,
    /// Seconds of work.
    pub busy_s: f64,
    /// Seconds of waiting for others.
    pub wait_s: f64,
}

/// Figures of one kind side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bars {
    /// What is shown.
    pub title: String,
    /// Unit behind each value, such as `%`; may be empty.
    pub unit: String,
    /// Value of a full bar; the largest of the values where absent.
    pub full: Option<f64>,
    /// Bars as (name, value).
    pub bars: Vec<(String, f64)>,
}

/// How often values fall into ranges, and places among them that matter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// What is shown.
    pub title: String,
    /// Unit or meaning of the values.
    pub x_label: String,
    /// Unit or meaning of the counts.
    pub y_label: String,
    /// Ranges as (from, to, count), rising.
    pub counts: Vec<(f64, f64, u64)>,
    /// Strips of marks under the bars.
    pub marks: Vec<Marks>,
}

/// Places on the axis of a histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Marks {
    /// What they are.
    pub name: String,
    /// Where they are.
    pub at: Vec<f64>,
}

impl Histogram {
    /// The histogram as an SVG file, which follows its reader's light or dark setting as the page does.
    pub fn to_svg(&self) -> String {
        histogram::svg(self)
    }
}

impl Report {
    /// The page.
    pub fn to_html(&self) -> String {
        let mut page = String::with_capacity(32 << 10);
        let title = escaped(&self.title);
        let style = include_str!("report/style.css");
        let _ = write!(
            page,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n\
             <header>\n<h1>{title}</h1>\n"
        );
        if !self.verdict.is_empty() {
            let verdict = escaped(&self.verdict);
            let _ = writeln!(page, "<p class=\"verdict\">{verdict}</p>");
        }
        page.push_str("</header>\n");
        self.summary(&mut page);
        self.figures(&mut page);
        self.notes(&mut page);
        page.push_str("</main>\n</body>\n</html>\n");
        page
    }

    fn summary(&self, page: &mut String) {
        if self.summary.is_empty() {
            return;
        }
        page.push_str("<dl class=\"summary\">\n");
        for (name, value, explanation) in &self.summary {
            let _ = write!(
                page,
                "<div><dt>{}</dt><dd class=\"value\">{}</dd>",
                escaped(name),
                escaped(value)
            );
            if !explanation.is_empty() {
                let _ = write!(page, "<dd class=\"why\">{}</dd>", escaped(explanation));
            }
            page.push_str("</div>\n");
        }
        page.push_str("</dl>\n");
    }

    fn figures(&self, page: &mut String) {
        page.push_str("<section class=\"figures\">\n");
        for plot in &self.series {
            lines::figure(page, plot);
        }
        if !self.stages.is_empty() {
            bars::stages(page, &self.stages);
        }
        for bars in &self.bars {
            bars::figure(page, bars);
        }
        page.push_str("</section>\n");
    }

    fn notes(&self, page: &mut String) {
        if !self.notes.is_empty() {
            page.push_str("<section>\n<h2>Notes</h2>\n<ul>\n");
            for note in &self.notes {
                let _ = writeln!(page, "<li>{}</li>", escaped(note));
            }
            page.push_str("</ul>\n</section>\n");
        }
        if !self.config_toml.is_empty() {
            let _ = write!(
                page,
                "<section>\n<details>\n<summary>Configuration (run.toml)</summary>\n\
                 <pre>{}</pre>\n</details>\n</section>\n",
                escaped(&self.config_toml)
            );
        }
    }
}

#[cfg(test)]
mod tests;
