//! Determines which bytes of a chunk of a table are within quoted cells.
//!
//! The meaning of a quote depends on all bytes before it, yet a chunk is scanned by itself. So a margin before the
//! chunk is read twice, once as if it began outside of quotes and once as if it began within: from the first byte that
//! both readings have outside they agree, and most margins have one, because a quote after text closes a cell or means
//! nothing. If they never agree, the first reading is assumed; it is right if the chunk before ends as this one begins,
//! since readings that never agreed differ there.
//!
//! Rejected: readings of whole chunks from either state, to be chosen from when they are merged, as in Ge et al.
//! (Speculative Distributed CSV Data Parsing, SIGMOD 2019): twice the work, for the rare margin that is one cell.

use std::ops::Range;

use crate::record::cells::quoted::{closing_quote, opening_quote};

/// The quoted cells of a chunk and its margins.
#[derive(Debug, Default)]
pub(crate) struct ChunkQuotes {
    /// From the opening quote to after the closing one, or `usize::MAX` if that is beyond the margin; ascending.
    pub(crate) cells: Vec<Range<usize>>,
    /// From here on the readings agree.
    pub(crate) known_from: usize,
    pub(crate) begins_in_quotes: bool,
    pub(crate) ends_in_quotes: bool,
}

impl ChunkQuotes {
    /// For the bytes `chunk` of a window, which starts with a record if `from_start`. `None` if a margin holds hardly
    /// anything but quotes.
    pub(crate) fn new(
        window: &[u8],
        chunk: Range<usize>,
        from_start: bool,
        reaches_end: bool,
        delimiter: u8,
    ) -> Option<ChunkQuotes> {
        // A quote that ends one chunk and another that begins the next may be one escaped quote.
        let edge = |at: usize| {
            let rest = window[at..].iter();
            let edge = at + rest.take_while(|byte| **byte == b'"').count();
            (edge < window.len() || reaches_end).then_some(edge)
        };
        let (begin, end) = (edge(chunk.start)?, edge(chunk.end)?);
        let quoted = |from| Quoted {
            window,
            from,
            delimiter,
        };
        let (first, agreed) = if from_start {
            (0, 0)
        } else {
            // The meaning of quotes before any text is unknown.
            let is_text = |byte: &u8| *byte != b'"' && !byte.is_ascii_whitespace();
            let first = window[..chunk.start].iter().position(is_text)?;
            let closing = closing_quote(window, first);
            let closed = closing.map_or(usize::MAX, |quote| quote + 1);
            (first, agreement([quoted(first), quoted(closed)], closed))
        };
        let cells: Vec<Range<usize>> = quoted(first).collect();
        let known_from = if agreed <= begin { agreed } else { first };
        let mut quotes = ChunkQuotes {
            cells,
            known_from,
            ..ChunkQuotes::default()
        };
        quotes.begins_in_quotes = chunk.start > 0 && quotes.cell_around(begin).is_some();
        quotes.ends_in_quotes = quotes.cell_around(end).is_some();
        Some(quotes)
    }

    /// The quoted cell that has the byte at `at` after its opening quote.
    #[inline]
    pub(crate) fn cell_around(&self, at: usize) -> Option<&Range<usize>> {
        let before = self.cells.partition_point(|cell| cell.start < at);
        let cell = &self.cells[..before].last()?;
        (at < cell.end).then_some(*cell)
    }

    /// Removes the newlines, counted from `base`, that are within quotes.
    pub(crate) fn remove_quoted(&self, newlines: &mut Vec<u32>, base: usize) {
        let mut cells = self.cells.iter().peekable();
        newlines.retain(|newline| {
            let at = base + *newline as usize;
            while cells.next_if(|cell| cell.end <= at).is_some() {}
            cells.peek().is_none_or(|cell| at < cell.start)
        });
    }
}

/// The first byte that is outside of quotes in both readings; one of them is within quotes until `closed`.
fn agreement(readings: [Quoted<'_>; 2], closed: usize) -> usize {
    let mut readings = readings.map(Iterator::peekable);
    let mut at = closed;
    let mut next = |at: usize| {
        let mut readings = readings.iter_mut();
        readings.find_map(|reading| reading.next_if(|cell| cell.start < at))
    };
    while let Some(cell) = next(at) {
        at = at.max(cell.end);
    }
    at
}

/// The quoted cells of a window from a byte that is outside of quotes.
struct Quoted<'w> {
    window: &'w [u8],
    from: usize,
    delimiter: u8,
}

impl Iterator for Quoted<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let rest = self.from..self.window.len();
        if rest.is_empty() {
            return None;
        }
        let quote = opening_quote(self.window, rest, |byte| byte == self.delimiter)?;
        let closing = closing_quote(self.window, quote + 1);
        self.from = closing.map_or(usize::MAX, |closing| closing + 1);
        Some(quote..self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The quotes of any part of a text are those of the whole text, if the part begins as it assumes.
        #[test]
        fn a_part_agrees_with_the_whole(
            text in "[\",x\n ]{1,60}", from in 0usize..60, lengths in prop::array::uniform3(0usize..20),
        ) {
            let text = text.as_bytes();
            let from = from.min(text.len());
            let mut at = from;
            let [start, end, window_end] = lengths.map(|length| {
                at = (at + length).min(text.len());
                at
            });
            let whole = Quoted { window: text, from: 0, delimiter: b',' };
            let whole = ChunkQuotes { cells: whole.collect(), ..ChunkQuotes::default() };
            let part = ChunkQuotes::new(
                &text[from..window_end],
                start - from..end - from,
                from == 0,
                window_end == text.len(),
                b',',
            );
            prop_assume!(part.is_some());
            let part = part.unwrap();
            let quotes_at = |at: usize| text[at..].iter().take_while(|byte| **byte == b'"').count();
            let begins = start > 0 && whole.cell_around(start + quotes_at(start)).is_some();
            if part.begins_in_quotes != begins {
                // The bytes before the chunk left it open, so nothing in it is used.
                prop_assert!(from > 0);
                return Ok(());
            }
            let ends = whole.cell_around(end + quotes_at(end)).is_some();
            prop_assert_eq!(part.ends_in_quotes, ends);
            for at in part.known_from.max(1)..end - from {
                prop_assert_eq!(part.cell_around(at).is_some(), whole.cell_around(from + at).is_some(), "{}", at);
            }
            let newlines = (0..text.len() as u32).filter(|at| text[*at as usize] == b'\n');
            let mut newlines: Vec<u32> = newlines.collect();
            let every = newlines.clone();
            whole.remove_quoted(&mut newlines, 0);
            let expected = every.into_iter().filter(|at| whole.cell_around(*at as usize).is_none());
            prop_assert!(expected.eq(newlines));
        }
    }

    #[test]
    fn margins_that_tell_and_that_do_not() {
        let check = |window: &[u8], start: usize, expected: (bool, bool)| {
            let quotes =
                ChunkQuotes::new(window, start..window.len() - 1, false, false, b',').unwrap();
            let found = (quotes.known_from > 0, quotes.begins_in_quotes);
            assert_eq!(found, expected, "{:?}", String::from_utf8_lossy(window));
        };
        check(b"x,\"a\nb\",y\nz,1\n\"c", 10, (true, false));
        check(b"x\",y\nz,\"1\n,c\",2", 9, (true, true));
        check(b"x,\"\",\"\",\"\",y", 11, (false, false));
        check(b"x,y\nz,1\n", 4, (false, false));
    }
}
