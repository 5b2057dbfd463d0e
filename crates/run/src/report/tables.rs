//! Tables of texts.

use std::fmt::Write as _;

use super::escape::{escaped, note};
use super::figures::Table;

/// Appends a section with the table; nothing if it has no rows.
pub(super) fn section(page: &mut String, table: &Table) {
    if table.rows.is_empty() {
        return;
    }
    let _ = writeln!(page, "<section>\n<h2>{}</h2>", escaped(&table.title));
    note(page, &table.note);
    page.push_str("<div class=\"table\">\n<table>\n");
    let width = table.rows.iter().map(Vec::len).max().unwrap_or(0);
    // The first column names the row.
    let is_number = |at| {
        let mut cells = table.rows.iter().filter_map(|row| row.get(at));
        at > 0 && cells.all(|cell: &String| cell.is_empty() || cell.parse::<f64>().is_ok())
    };
    let numbers: Vec<bool> = (0..width).map(is_number).collect();
    if !table.head.is_empty() {
        row(page, "th", &table.head, &numbers);
    }
    for cells in &table.rows {
        row(page, "td", cells, &numbers);
    }
    page.push_str("</table>\n</div>\n</section>\n");
}

fn row(page: &mut String, tag: &str, cells: &[String], numbers: &[bool]) {
    page.push_str("<tr>");
    for (at, cell) in cells.iter().enumerate() {
        let class = match numbers.get(at) {
            Some(true) => " class=\"number\"",
            _ => "",
        };
        let _ = write!(page, "<{tag}{class}>{}</{tag}>", escaped(cell));
    }
    page.push_str("</tr>\n");
}
