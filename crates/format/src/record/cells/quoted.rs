//! Cells of a record, and the double quotes around them, as in RFC 4180 and Python's `csv`.
//!
//! A quote opens a quoted cell only at the start of a cell, after blanks at most; anywhere else it is text, as in
//! `5" pipe`. Within a quoted cell delimiters and newlines are text, and `""` is one quote. Text between the closing
//! quote and the next delimiter belongs to the cell.
//!
//! Rejected: the crate `csv-core`, which has no blanks before a quote and copies every cell.

use std::borrow::Cow;
use std::iter;
use std::ops::Range;

use crate::record::error::{FormatError, FormatErrorKind};

/// The quote that closes the quoted cell that the bytes before `at` have opened.
pub(crate) fn closing_quote(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let quote = at + memchr::memchr(b'"', text.get(at..)?)?;
        if text.get(quote + 1) != Some(&b'"') {
            return Some(quote);
        }
        at = quote + 2;
    }
}

/// The first quote of `range` that opens a cell; the range starts outside of quotes. `text` starts at the start of a
/// cell.
pub(crate) fn opening_quote(
    text: &[u8],
    range: Range<usize>,
    is_delimiter: impl Fn(u8) -> bool,
) -> Option<usize> {
    let from = range.start;
    let mut quotes = memchr::memchr_iter(b'"', &text[range]).map(|at| from + at);
    let is_end = |byte: u8| byte == b'\n' || is_delimiter(byte);
    quotes.find(|quote| {
        let before = text[..*quote].iter().rev();
        let mut before = before.skip_while(|byte| byte.is_ascii_whitespace() && !is_end(**byte));
        before.next().is_none_or(|byte| is_end(*byte))
    })
}

/// The end of the record at the start of `text`: a newline outside of quotes, or the end of the text.
///
/// Errors: the quote that opens a cell and never closes it.
pub(crate) fn record_end(text: &[u8], is_delimiter: impl Fn(u8) -> bool) -> Result<usize, usize> {
    let mut from = 0;
    loop {
        let rest = &text[from..];
        let end = from + memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        match opening_quote(text, from..end, &is_delimiter) {
            None => return Ok(end),
            Some(quote) => from = closing_quote(text, quote + 1).ok_or(quote)? + 1,
        }
    }
}

/// The records of a text that are not blank, without blanks at their ends, each with its line, from 1.
///
/// Errors: the line of a quote that never closes, as the last item.
pub(crate) fn records(
    text: &[u8],
    is_delimiter: impl Fn(u8) -> bool,
) -> impl Iterator<Item = Result<(u64, &[u8]), u64>> {
    let (mut rest, mut next_line) = (text, 1);
    let newlines = |text: &[u8]| memchr::memchr_iter(b'\n', text).count() as u64;
    let next = move || {
        if rest.is_empty() {
            return None;
        }
        let line = next_line;
        let found = record_end(rest, &is_delimiter);
        let end = found.unwrap_or(rest.len());
        let record = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        next_line += newlines(record) + 1;
        Some(match found {
            Ok(_) => Ok((line, record.trim_ascii_end())),
            Err(quote) => Err(line + newlines(&record[..quote])),
        })
    };
    let is_record = |found: &Result<(u64, &[u8]), u64>| !matches!(found, Ok((_, b"")));
    iter::from_fn(next).filter(is_record)
}

/// A cell opens with a quote on this line, and nothing closes it.
#[cold]
pub(crate) fn never_closes(line: u64) -> FormatError {
    let what = "a quote opens a cell that does not end; close it, or write a quote that is text as two of them in a quoted cell";
    let error = FormatError::new(what).of_kind(FormatErrorKind::Malformed);
    error.at_line(line)
}

/// A cell without the blanks and quotes around it.
#[inline]
pub(crate) fn bare(cell: &[u8]) -> Cow<'_, [u8]> {
    let cell = cell.trim_ascii();
    let [b'"', inner @ ..] = cell else {
        return Cow::Borrowed(cell);
    };
    match memchr::memchr(b'"', inner) {
        Some(quote) if quote + 1 == inner.len() => Cow::Borrowed(inner[..quote].trim_ascii()),
        _ => Cow::Owned(unescaped(inner).trim_ascii().to_vec()),
    }
}

/// A cell as it was written, without the quotes around it and the end of the line.
pub(crate) fn unquoted(cell: &[u8]) -> Cow<'_, [u8]> {
    match cell.trim_ascii() {
        [b'"', inner @ ..] => Cow::Owned(unescaped(inner)),
        _ => {
            let cell = cell.strip_suffix(b"\n").unwrap_or(cell);
            Cow::Borrowed(cell.strip_suffix(b"\r").unwrap_or(cell))
        }
    }
}

/// The text after an opening quote, without the closing one.
#[cold]
fn unescaped(mut inner: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(inner.len());
    while let Some(quote) = memchr::memchr(b'"', inner) {
        text.extend_from_slice(&inner[..quote]);
        inner = &inner[quote + 1..];
        let Some(rest) = inner.strip_prefix(b"\"") else {
            break;
        };
        text.push(b'"');
        inner = rest;
    }
    text.extend_from_slice(inner);
    text
}

/// The cells of the record at the start of some bytes, as written.
#[derive(Clone, Debug)]
pub(crate) struct Cells<'b> {
    bytes: &'b [u8],
    delimiter: u8,
    /// The next cell starts here; beyond `end` after the last one.
    pub(crate) at: usize,
    /// The end of the record, as far as its quotes are known: a newline in quotes moves it.
    pub(crate) end: usize,
}

impl<'b> Cells<'b> {
    #[inline]
    pub(crate) fn new(bytes: &'b [u8], delimiter: u8) -> Cells<'b> {
        Cells {
            bytes,
            delimiter,
            at: 0,
            end: line_end(bytes, 0),
        }
    }

    /// The record without its line end, once all cells have been taken.
    #[inline]
    pub(crate) fn record(&self) -> &'b [u8] {
        &self.bytes[..self.end]
    }

    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.at > self.end
    }

    /// The range of the next cell.
    pub(crate) fn next_range(&mut self) -> Option<Range<usize>> {
        if self.is_done() {
            return None;
        }
        let start = self.at;
        let is_blank = |byte: &&u8| byte.is_ascii_whitespace() && **byte != self.delimiter;
        let blanks = self.record()[start..].iter().take_while(is_blank).count();
        let mut from = start + blanks;
        if self.bytes.get(from) == Some(&b'"') {
            // The scan has refused a file with a cell that never closes.
            let closing = closing_quote(self.bytes, from + 1);
            from = closing.map_or(self.bytes.len(), |quote| quote + 1);
            if from > self.end {
                self.end = line_end(self.bytes, from);
            }
        }
        let length = memchr::memchr(self.delimiter, &self.bytes[from..self.end]);
        let end = length.map_or(self.end, |length| from + length);
        self.at = end + 1;
        Some(start..end)
    }
}

impl<'b> Iterator for Cells<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        self.next_range().map(|range| &self.bytes[range])
    }
}

/// The end of the line at `from`, before `\n` or `\r\n`.
#[inline]
fn line_end(bytes: &[u8], from: usize) -> usize {
    let rest = &bytes[from..];
    let line = &rest[..memchr::memchr(b'\n', rest).unwrap_or(rest.len())];
    from + line.strip_suffix(b"\r").unwrap_or(line).len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Table = Vec<Vec<String>>;

    /// The bare cells of all records, or the line of a quote that never closes.
    fn table(text: &str) -> Result<Table, u64> {
        let text_of = |cell| String::from_utf8(bare(cell).into_owned()).unwrap();
        let cells = |record| Cells::new(record, b',').map(text_of).collect();
        records(text.as_bytes(), |byte| byte == b',')
            .map(|record| record.map(|(_, record)| cells(record)))
            .collect()
    }

    fn check(text: &str, expected: &[&[&str]]) {
        let expected: Table = { expected.iter() }
            .map(|cells| cells.iter().map(|cell| cell.to_string()).collect())
            .collect();
        assert_eq!(table(text).unwrap(), expected, "{text}");
        let naive = naive(text).unwrap();
        assert_eq!(naive, expected, "{text}");
    }

    /// The results of Python for these: `[row for row in csv.reader(io.StringIO(text, newline="")) if row]`.
    #[test]
    fn cells_as_python_reads_them() {
        check("\"a,b\",c\n", &[&["a,b", "c"]]);
        check(
            "\"two\nlines\",x\r\n\"a\r\nb\",\"c,\"\"d\"\"\"\r\n",
            &[&["two\nlines", "x"], &["a\r\nb", "c,\"d\""]],
        );
        check(
            "5\" pipe,1\n6\"\",2\n",
            &[&["5\" pipe", "1"], &["6\"\"", "2"]],
        );
        check("\"\",\"\"\"\"\n", &[&["", "\""]]);
        check("\"abc\"def,\"g\"h\"i\",j\n", &[&["abcdef", "gh\"i\"", "j"]]);
        check(
            "\"a\",\"b\n\n\nc\"\n\n\"d\",\"e\"",
            &[&["a", "b\n\n\nc"], &["d", "e"]],
        );
        check("\"\"\"a\"\"\",\"\"\"\"\"\"\n", &[&["\"a\"", "\"\""]]);
        check(
            "\"Cumings, Mrs. John Bradley (Florence \"\"Briggs\"\" Thayer)\",female,38\n",
            &[&[
                "Cumings, Mrs. John Bradley (Florence \"Briggs\" Thayer)",
                "female",
                "38",
            ]],
        );
    }

    #[test]
    fn blanks_around_quotes() {
        check(
            " \"a, b\" ,\t\"say \"\"no\"\"\" ,",
            &[&["a, b", "say \"no\"", ""]],
        );
        check("\" a \"\" \", \"\n\" \n", &[&["a \"", ""]]);
        check(
            "5'7\" tall,x \"y\",\"z\" \"\n",
            &[&["5'7\" tall", "x \"y\"", "z \""]],
        );
    }

    #[test]
    fn lines_of_records() {
        let text = b"a\n\n\"b\n\n\"\r\n \nc\n\"d\",\"e\n\n";
        let found: Vec<_> = records(text, |byte| byte == b',').collect();
        assert_eq!(
            found,
            [
                Ok((1, &b"a"[..])),
                Ok((3, b"\"b\n\n\"")),
                Ok((7, b"c")),
                Err(8)
            ]
        );
        let error = never_closes(8).to_string();
        assert!(error.starts_with("line 8: a quote opens a cell that does not end"));
    }

    /// Reads byte by byte, as Python's `csv` does, except for blanks around cells. `None` if a quote never closes.
    fn naive(text: &str) -> Option<Table> {
        #[derive(PartialEq)]
        enum State {
            Start,
            Text,
            Quoted,
            Quote,
        }
        let (mut table, mut row, mut cell) = (Table::new(), Vec::new(), String::new());
        let (mut state, mut is_blank) = (State::Start, true);
        for letter in text.chars().chain(['\n']) {
            is_blank &= letter.is_ascii_whitespace();
            let is_end = matches!(letter, ',' | '\n');
            match state {
                State::Quoted if letter == '"' => state = State::Quote,
                State::Quote if letter == '"' => {
                    cell.push('"');
                    state = State::Quoted;
                }
                State::Start if letter == '"' => {
                    cell.clear();
                    state = State::Quoted;
                }
                State::Start | State::Text | State::Quote if is_end => {
                    row.push(cell.trim_ascii().to_owned());
                    cell.clear();
                    state = State::Start;
                    if letter == '\n' {
                        let row = std::mem::take(&mut row);
                        table.extend((!is_blank).then_some(row));
                        is_blank = true;
                    }
                }
                State::Start if letter.is_ascii_whitespace() => cell.push(letter),
                State::Start | State::Text | State::Quote => {
                    cell.push(letter);
                    state = State::Text;
                }
                State::Quoted => cell.push(letter),
            }
        }
        (state == State::Start).then_some(table)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn agrees_with_the_naive_reader(text in "[\",x\n\r ]{0,40}") {
            prop_assert_eq!(table(&text).ok(), naive(&text));
        }
    }
}
