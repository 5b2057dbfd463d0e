//! Lines before a table: comments, a line `sep=;` as Excel writes, and titles, which are refused.

use crate::locate::format::Source;
use crate::record::cells::heading::{Header, cells, first_lines, is_word, may_delimit};
use crate::record::cells::quoted::bare;
use crate::record::cells::words::is_number_with_comma;
use crate::record::error::{FormatError, FormatErrorKind, excerpt};

/// The possible delimiters.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// The offset of the table: after a byte order mark, leading lines that begin with `#`, and a line `sep=;`. Skipped
/// lines are reported in `notes`.
///
/// Errors: lines that end in CR alone, a line that may be a comment or the header, and a title.
pub(crate) fn table_start(
    source: &Source<'_>,
    notes: &mut Vec<String>,
) -> Result<u64, FormatError> {
    let start = source.start();
    let text = source.head.get(start as usize..).unwrap_or_default();
    if !text.contains(&b'\n') && text.trim_ascii_end().contains(&b'\r') {
        return Err(refused(
            "its lines end in CR alone, as on old Macs; convert it, as `tr '\\r' '\\n' < OLD > NEW` does".into(),
        ));
    }
    let (mut at, mut lines) = (0, Vec::new());
    loop {
        let rest = &text[at..];
        let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
        let line = rest[..end].trim_ascii();
        if !line.is_empty() && !line.starts_with(b"#") && !is_separator(line) || end == 0 {
            break;
        }
        lines.push((at, line));
        at += end;
    }
    let is_whole = source.head.len() as u64 >= source.stamp.size;
    let table = first_lines(&text[at..], is_whole, may_delimit);
    let Some(first) = table.first() else {
        return Ok(start);
    };
    lines.retain(|(_, line)| !line.is_empty());
    match lines.pop_if(|(_, line)| line.starts_with(b"#") && may_be_names(line, first)) {
        Some((begin, line)) => {
            let has_numbers = |delimiter| {
                let mut cells = cells(first, delimiter, false).into_iter();
                cells.any(|cell| is_number_with_comma(&cell))
            };
            let is_record = DELIMITERS.into_iter().any(has_numbers);
            if !is_record && source.options.header != Header::Yes {
                let what = "may be a comment or name the columns; remove it, or its #";
                return Err(refused(said(text, begin, line, what)));
            }
            at = begin;
        }
        None => refuse_title(text, at, &table)?,
    }
    if let Some((_, line)) = lines.first() {
        notes.push(format!(
            "{}: {} before the table, the first {:?}, {} passed over",
            source.path.display(),
            match lines.len() {
                1 => "a line".to_string(),
                count => format!("{count} lines"),
            },
            excerpt(line),
            if lines.len() == 1 { "is" } else { "are" }
        ));
    }
    Ok(start + at as u64)
}

fn refused(what: String) -> FormatError {
    FormatError::new(what).of_kind(FormatErrorKind::Malformed)
}

fn said(text: &[u8], at: usize, line: &[u8], what: &str) -> String {
    let number = 1 + memchr::memchr_iter(b'\n', &text[..at]).count();
    format!("line {number} ({}) {what}", excerpt(line))
}

/// Whether a line names the delimiter, as `sep=;`; it is skipped, because the lines after it show the delimiter.
fn is_separator(line: &[u8]) -> bool {
    let line = bare(line);
    line.len() == 5 && line[..4].eq_ignore_ascii_case(b"sep=")
}

/// Whether a comment has as many cells as the line after it.
fn may_be_names(comment: &[u8], next: &[u8]) -> bool {
    DELIMITERS.into_iter().any(|delimiter| {
        let count = cells(comment, delimiter, false).len();
        count > 1 && count == cells(next, delimiter, false).len()
    })
}

/// Errors: the first of `lines` is a word, and the lines after it have several cells.
fn refuse_title(text: &[u8], at: usize, lines: &[&[u8]]) -> Result<(), FormatError> {
    let [first, second, third, ..] = lines else {
        return Ok(());
    };
    let filled = |line: &[u8], delimiter| {
        let cells = cells(line, delimiter, false);
        cells.iter().filter(|cell| !cell.is_empty()).count()
    };
    let is_word_alone = |delimiter| {
        let cells = cells(first, delimiter, false);
        is_word(&cells[0]) && cells[1..].iter().all(|cell| cell.is_empty())
    };
    let is_table = |delimiter| {
        let [first, columns, third] =
            [first, second, third].map(|line| cells(line, delimiter, false).len());
        let is_title = first == 1 || columns > 2 && first == columns;
        is_title && columns > 1 && third == columns && filled(second, delimiter) > 1
    };
    if DELIMITERS.into_iter().all(is_word_alone) && DELIMITERS.into_iter().any(is_table) {
        let what = "seems to be a title; remove it, so that the file begins with the names of the columns or with a record";
        return Err(refused(said(text, at, first, what)));
    }
    Ok(())
}
