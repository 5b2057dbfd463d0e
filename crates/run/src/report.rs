//! `report.html`: a run on one page without external scripts, fonts or images.
//!
//! The page is a function of a plain [`Report`], filled by the job. Plots are SVG written here: drawing libraries fix
//! colours and fonts in the picture, but these plots follow the reader's light or dark setting. Every text of the
//! report is escaped, because file names and labels come from outside. Cost: about 50 bytes a plotted point.

mod axis;
mod bars;
mod curves;
mod escape;
mod figures;
mod frame;
mod histogram;
mod lines;
mod signed_bars;
mod tables;

use std::fmt::Write as _;

use escape::escaped;

pub use figures::{Bars, Curve, Histogram, Marks, Plot, Report, SignedBars, StageUse, Table};

impl Histogram {
    /// The histogram as an SVG file, which follows its reader's light or dark setting like the page.
    pub fn to_svg(&self) -> String {
        histogram::svg(self)
    }
}

impl Plot {
    /// The plot as an SVG file, its legend below.
    pub fn to_svg(&self) -> String {
        lines::svg(self)
    }
}

impl Bars {
    /// The bars as an SVG file.
    pub fn to_svg(&self) -> String {
        bars::svg(self)
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
        let (tiles, others) = self.summary.split_at(self.summary.len().min(TILES));
        show_tiles(&mut page, tiles);
        self.results(&mut page);
        self.figures(&mut page);
        let others = others.iter().map(|(name, value, explanation)| {
            [name, value, explanation].map(String::clone).to_vec()
        });
        let others = Table {
            title: "Further figures".to_string(),
            rows: others.collect(),
            ..Table::default()
        };
        tables::section(&mut page, &others);
        self.notes(&mut page);
        page.push_str("</main>\n</body>\n</html>\n");
        page
    }

    fn results(&self, page: &mut String) {
        if !self.curves.is_empty() || !self.signed.is_empty() {
            page.push_str("<section class=\"figures\">\n");
            for curve in &self.curves {
                curves::figure(page, curve);
            }
            for bars in &self.signed {
                signed_bars::figure(page, bars);
            }
            page.push_str("</section>\n");
        }
        for table in &self.tables {
            tables::section(page, table);
        }
    }

    fn figures(&self, page: &mut String) {
        if self.series.is_empty() && self.stages.is_empty() && self.bars.is_empty() {
            return;
        }
        page.push_str("<section>\n<h2>Course of the run</h2>\n<div class=\"figures\">\n");
        for plot in &self.series {
            lines::figure(page, plot);
        }
        if !self.stages.is_empty() {
            bars::stages(page, &self.stages);
        }
        for bars in &self.bars {
            bars::figure(page, bars);
        }
        page.push_str("</div>\n</section>\n");
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

/// Number of figures shown large.
const TILES: usize = 4;

fn show_tiles(page: &mut String, tiles: &[(String, String, String)]) {
    if tiles.is_empty() {
        return;
    }
    page.push_str("<dl class=\"summary\">\n");
    for (name, value, explanation) in tiles {
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

#[cfg(test)]
mod tests;
