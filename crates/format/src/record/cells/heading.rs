//! The first line of a CSV or TSV file: whether it names the columns, the label's column, and the delimiter.
//!
//! Lines are compared with the next hundred at most, within the first 64 KiB of the file. An ambiguous first line is
//! refused: a header read as a record, or the reverse, would train a model on nonsense.

use std::borrow::Cow;

use pelton_batch::{DType, FieldSpec, FieldSpecs};
use serde::{Deserialize, Serialize};

use crate::record::cells::decimal::{Decimal, cell_text};
use crate::record::cells::encoding::as_utf8;
use crate::record::cells::label_column::LabelColumn;
use crate::record::cells::label_column::no_label_column;
use crate::record::cells::quoted::{Cells, bare, records};
use crate::record::cells::words::{is_missing_number, is_number, is_number_with_comma, truth};
use crate::record::error::{FormatError, FormatErrorKind, excerpt};
use crate::record::numbers::parse::{NotANumber, parse_f64};
use crate::record::numbers::written_number::WrittenNumber;

/// Most lines that the first one is compared with.
const MOST_LINES: usize = 100;

/// The complete, non-blank records at the start of a file, without their ends. Their delimiter may still be unknown.
pub(crate) fn first_lines(
    head: &[u8],
    is_whole_file: bool,
    is_delimiter: impl Fn(u8) -> bool,
) -> Vec<&[u8]> {
    let end = if is_whole_file {
        head.len()
    } else {
        memchr::memrchr(b'\n', head).unwrap_or(head.len())
    };
    let lines = records(&head[..end], is_delimiter).map_while(Result::ok);
    lines.map(|(_, line)| line).take(MOST_LINES + 1).collect()
}

/// Whether a byte may separate cells.
pub(crate) fn may_delimit(byte: u8) -> bool {
    DELIMITERS
        .iter()
        .any(|(delimiter, _)| *delimiter == byte && byte != b' ')
}

/// The cells of a line, with points for the decimal commas of numbers.
pub(crate) fn cells(line: &[u8], delimiter: u8, decimal_comma: bool) -> Vec<Cow<'_, [u8]>> {
    if delimiter == b' ' {
        let cells = line.split(u8::is_ascii_whitespace);
        let cells = cells.filter(|cell| !cell.is_empty());
        return cells.map(Cow::Borrowed).collect();
    }
    let text = |cell| cell_text(cell, decimal_comma, 0).unwrap_or_else(|_| as_utf8(bare(cell)));
    Cells::new(line, delimiter).map(text).collect()
}

pub(crate) fn is_word(cell: &[u8]) -> bool {
    !is_missing_number(cell)
        && truth(cell).is_none()
        && matches!(parse_f64(cell), Err(NotANumber::Malformed))
}

/// A whole number written without a point.
fn whole(cell: &[u8]) -> Option<i64> {
    std::str::from_utf8(cell).ok()?.parse().ok()
}

/// Delimiters, and their names in messages.
const DELIMITERS: [(u8, &str); 5] = [
    (b'\t', "tabs"),
    (b';', "semicolons"),
    (b'|', "vertical bars"),
    (b',', "commas"),
    (b' ', "blanks"),
];

/// The delimiter of `lines`, its name for messages, and whether numbers have decimal commas. It is not `usual` if that
/// separates nothing; the name is empty if it is `usual`.
///
/// Errors: cells separated by blanks, or numbers with commas that may be decimal or separate thousands.
pub(crate) fn delimiter_of(
    lines: &[&[u8]],
    usual: u8,
    decimal: Decimal,
) -> Result<(u8, &'static str, bool), FormatError> {
    let refused =
        |what: &'static str| Err(FormatError::new(what).of_kind(FormatErrorKind::Malformed));
    let (delimiter, name) = match other_delimiter(lines, usual, decimal) {
        None => return Ok((usual, "", decimal == Decimal::Comma)),
        Some((b' ', _)) => {
            return refused(
                "its cells seem to be separated by blanks; write it with commas, as pandas.read_csv(NAME, sep=r\"\\s+\").to_csv(NEW, index=False) does",
            );
        }
        Some(found) => found,
    };
    let all = lines.iter().flat_map(|line| cells(line, delimiter, false));
    let is_grouped =
        |cell: &[u8]| cell.contains(&b',') && WrittenNumber::parse(cell, true).is_some();
    let numbers: Vec<_> = all
        .filter(|cell| is_number_with_comma(cell) || is_grouped(cell))
        .collect();
    let have = |byte: u8| {
        let mut numbers = numbers.iter();
        numbers.any(|number| number.contains(&byte) && (byte == b',' || !is_grouped(number)))
    };
    let decimal_comma = match decimal {
        Decimal::Comma => true,
        Decimal::Point => false,
        Decimal::Auto if delimiter == b',' || !have(b',') => false,
        Decimal::Auto if delimiter == b';' && !have(b'.') => true,
        Decimal::Auto => {
            return refused(
                "its numbers have commas, which may be decimal ones or separate thousands; set `decimal` to comma, or write them with points",
            );
        }
    };
    Ok((delimiter, name, decimal_comma))
}

/// The delimiter of `lines` and its name, if it seems not to be `delimiter`.
fn other_delimiter(lines: &[&[u8]], delimiter: u8, decimal: Decimal) -> Option<(u8, &'static str)> {
    let (first, rest) = lines.split_first()?;
    let others = DELIMITERS.iter().filter(|(other, _)| *other != delimiter);
    let mut others = others.filter(|(other, _)| {
        let count = cells(first, *other, false).len();
        let alike = |line: &[u8]| cells(line, *other, false).len() == count;
        if count < 2 {
            return false;
        }
        if !first.contains(&delimiter) {
            return rest.first().is_none_or(|second| alike(second));
        }
        // Commas occur within numbers, and nowhere else.
        let records = if rest.is_empty() { lines } else { rest };
        let in_numbers = |cell: &[u8]| !cell.contains(&b',') || is_number_with_comma(cell);
        delimiter == b','
            && (*other == b';' || *other != b' ' && decimal == Decimal::Comma)
            && alike(first)
            && (records.iter()).all(|line| {
                alike(line)
                    && cells(line, *other, false)
                        .iter()
                        .all(|cell| in_numbers(cell))
            })
    });
    others.next().copied()
}

/// The first number of a line of whole numbers that ascend by one.
fn counted_from(cells: &[impl AsRef<[u8]>]) -> Option<i64> {
    let numbers: Option<Vec<i64>> = cells.iter().map(|cell| whole(cell.as_ref())).collect();
    let numbers = numbers?;
    let counts = |pair: &[i64]| pair[0].checked_add(1) == Some(pair[1]);
    numbers
        .first()
        .copied()
        .filter(|_| numbers.windows(2).all(counts))
}

pelton_key::names! {
    /// Whether the first line of CSV and TSV names the columns.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Header: "known" {
        /// Decide by its content; an ambiguous line is refused.
        #[default]
        Auto = "auto",
        /// It does.
        Yes = "yes",
        /// It is a record.
        No = "no",
    }
}

/// The cells of a first line.
#[derive(Clone, Debug)]
pub(crate) struct Heading {
    pub(crate) columns: usize,
    cells: Vec<Vec<u8>>,
}

impl Heading {
    pub(crate) fn read(line: &[u8], delimiter: u8, decimal_comma: bool) -> Heading {
        let cells = cells(line, delimiter, decimal_comma).into_iter();
        let cells: Vec<Vec<u8>> = cells.map(Cow::into_owned).collect();
        Heading {
            columns: cells.len(),
            cells,
        }
    }

    /// Whether a column has this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.cells.iter().any(|cell| cell == name.as_bytes())
    }

    /// Whether the line names the columns. `label` is the label's column, `others` are the lines that follow.
    ///
    /// Errors: the line may be names or a record.
    pub(crate) fn names_columns(
        &self,
        header: Header,
        label: Option<usize>,
        others: &[Vec<Cow<'_, [u8]>>],
    ) -> Result<bool, FormatError> {
        match header {
            Header::Yes => return Ok(true),
            Header::No => return Ok(false),
            Header::Auto => {}
        }
        let is_header = self.is_header(label);
        let doubt = if is_header {
            let again = "its words occur again further down";
            self.recurs(label, others).then_some(again)
        } else {
            self.doubt(label, others)
        };
        let Some(why) = doubt else {
            return Ok(is_header);
        };
        let line = self.cells.join(&b","[..]);
        let what = format!(
            "line 1 ({}) may name the columns or be a record: {why}; set `header` to yes or no",
            excerpt(&line)
        );
        Err(FormatError::new(what).of_kind(FormatErrorKind::Malformed))
    }

    /// The cells of the columns of features.
    fn features(&self, label: Option<usize>) -> impl Iterator<Item = &[u8]> {
        let cells = self.cells.iter().enumerate();
        let features = cells.filter(move |(column, _)| Some(*column) != label);
        features.map(|(_, cell)| cell.as_slice())
    }

    /// Whether some column of features holds a word, and no column a number.
    fn is_header(&self, label: Option<usize>) -> bool {
        self.features(label).any(is_word)
            && (self.features(label)).all(|cell| is_word(cell) || is_missing_number(cell))
    }

    /// Whether at least half of the words in columns of features occur again in their column, as those of records do.
    fn recurs(&self, label: Option<usize>, others: &[Vec<Cow<'_, [u8]>>]) -> bool {
        let features =
            (0..self.columns).filter(|at| Some(*at) != label && is_word(&self.cells[*at]));
        let features: Vec<usize> = features.collect();
        let again = |at: &&usize| {
            let mut below = others.iter().filter_map(|row| row.get(**at));
            below.any(|cell| **cell == *self.cells[**at])
        };
        2 * features.iter().filter(again).count() >= features.len()
    }

    /// Why a line with numbers may be names rather than values of a record.
    fn doubt(&self, label: Option<usize>, others: &[Vec<Cow<'_, [u8]>>]) -> Option<&'static str> {
        /// A record hardly counts up over this many columns by chance.
        const MANY: usize = 5;
        /// Years exceed small values by this factor.
        const BEYOND: f64 = 10.0;
        let same_length = others.iter().filter(|row| row.len() == self.columns);
        let others: Vec<&Vec<Cow<'_, [u8]>>> = same_length.collect();
        if others.is_empty() {
            return None;
        }
        let below = |at: usize| others.iter().map(move |row| &*row[at]);
        let is_over_numbers = |at: &usize| {
            is_word(&self.cells[*at])
                && below(*at).any(is_number)
                && below(*at).all(|cell| is_number(cell) || is_missing_number(cell))
        };
        // A record would have a wrong cell or two.
        if 2 * (0..self.columns).filter(is_over_numbers).count() >= self.columns {
            return Some("it has words in columns that hold numbers further down");
        }
        let features: Vec<usize> = (0..self.columns).filter(|at| Some(*at) != label).collect();
        let numbers: Option<Vec<i64>> = features.iter().map(|at| whole(&self.cells[*at])).collect();
        if !numbers.is_some_and(|numbers| numbers.is_sorted_by(|a, b| a < b)) {
            return None;
        }
        let values = |at: usize| below(at).filter_map(|cell| parse_f64(cell).ok());
        let own = |at: usize| parse_f64(&self.cells[at]).unwrap_or(f64::NAN);
        let is_outside = |at: usize| {
            values(at).all(|value| own(at) < value) || values(at).all(|value| own(at) > value)
        };
        let is_beyond = |at: &usize| {
            let most = values(*at).fold(0.0, |most: f64, value| most.max(value.abs()));
            own(*at).abs() > BEYOND * most
        };
        // Programs that write a point into every number of a column write names without one.
        let lacks_point = |at: usize| {
            let has_point = |cell: &[u8]| is_number(cell) && whole(cell).is_none();
            whole(&self.cells[at]).is_some() && below(at).all(has_point)
        };
        let start = counted_from(&self.cells);
        let counts_up = start.is_some() && others.iter().all(|row| counted_from(row).is_none());
        let doubtful = match features.len() {
            0 => false,
            // A single whole number proves little.
            1 => counts_up && (0..self.columns).all(lacks_point),
            _ => {
                counts_up && self.columns >= MANY
                    || counts_up
                        && start == Some(0)
                        && (0..self.columns).any(|at| lacks_point(at) || is_outside(at))
                    || features.iter().all(is_beyond)
                    || others.len() > 1 && features.iter().all(|at| lacks_point(*at))
            }
        };
        doubtful.then_some("its numbers ascend as names do, unlike those further down")
    }

    /// The names.
    pub(crate) fn names(&self) -> Vec<String> {
        let text = |cell: &Vec<u8>| String::from_utf8_lossy(cell).into_owned();
        self.cells.iter().map(text).collect()
    }

    /// The columns of features by name.
    pub(crate) fn fields(&self, label: Option<usize>) -> FieldSpecs {
        let names = self.features(label).map(String::from_utf8_lossy);
        FieldSpecs(
            names
                .map(|name| FieldSpec::new(&name, DType::F32, &[]))
                .collect(),
        )
    }

    /// The label's column, from 0; `named` says whether the line names the columns.
    pub(crate) fn label(&self, wanted: &LabelColumn, named: bool) -> Result<usize, FormatError> {
        let found = match wanted {
            LabelColumn::First => Some(0),
            LabelColumn::Last => Some(self.columns - 1),
            LabelColumn::Position(place) => place.checked_sub(1).filter(|at| *at < self.columns),
            LabelColumn::Name(name) => {
                let is_it = |at: &usize| named && self.cells[*at] == name.as_bytes();
                let mut places = (0..self.columns).filter(is_it);
                let found = places.next();
                if let (Some(first), Some(second)) = (found, places.next()) {
                    let (first, second) = (first + 1, second + 1);
                    let what = format!(
                        "columns {first} and {second} are both named {name:?}; give the label's position, as in `label` {second}"
                    );
                    let error = FormatError::new(what).of_kind(FormatErrorKind::LabelColumn);
                    return Err(error.at_line(1));
                }
                found
            }
            LabelColumn::Json(_) => None,
        };
        found.ok_or_else(|| {
            let columns = if named {
                excerpt_of_names(&self.names())
            } else {
                format!("1 to {}, without names", self.columns)
            };
            no_label_column(wanted.describe(), columns)
        })
    }
}

/// Names, for a message.
pub(crate) fn excerpt_of_names(names: &[String]) -> String {
    const SHOWN: usize = 40;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    match more {
        0 => shown,
        _ => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings() {
        let heading = Heading::read(b"a,\"b c\",label", b',', false);
        assert_eq!(heading.columns, 3);
        let named = |name: &str| LabelColumn::Name(name.into());
        assert_eq!(heading.label(&named("b c"), true).unwrap(), 1);
        assert_eq!(heading.label(&LabelColumn::Last, true).unwrap(), 2);
        assert_eq!(heading.label(&LabelColumn::Position(1), true).unwrap(), 0);
        let error = heading.label(&named("d"), true).unwrap_err().to_string();
        assert!(
            error.contains("no label column \"d\"; its columns are a, b c, label"),
            "{error}"
        );
        assert!(heading.label(&LabelColumn::Position(0), true).is_err());
        let twice = Heading::read(b"y,x,y", b',', false);
        let error = twice.label(&named("y"), true).unwrap_err().to_string();
        assert!(
            error.contains("line 1: columns 1 and 3 are both named \"y\""),
            "{error}"
        );
        assert_eq!(twice.label(&named("x"), true).unwrap(), 1);
        assert_eq!(twice.label(&LabelColumn::Position(3), true).unwrap(), 2);
    }

    /// How the first line of a text is read: "names", "record", or "asked about".
    fn taken(text: &str) -> &'static str {
        let lines = first_lines(text.as_bytes(), true, |byte| byte == b',');
        let heading = Heading::read(lines[0], b',', false);
        let others: Vec<_> = lines[1..]
            .iter()
            .map(|line| cells(line, b',', false))
            .collect();
        let last = Some(heading.columns - 1);
        match heading.names_columns(Header::Auto, last, &others) {
            Ok(true) => "names",
            Ok(false) => "record",
            Err(_) => "asked about",
        }
    }

    #[test]
    fn what_can_be_meant_either_way_is_asked_about() {
        let check = |text: &str, expected: &str| assert_eq!(taken(text), expected, "{text}");
        for line in ["a,b,label", "a,,label", "a,b,1", "f1,f2,f3"] {
            check(&format!("{line}\n1,2,0\n"), "names");
            check(line, "names");
        }
        for honest in [
            "1,2,3\n4,5,6\n7,8,9\n",
            "0,1,2\n",
            "0,1,0\n1,2,1\n2,0,1\n0,0,0\n",
            "1,NA,1\n2,3,4\n",
            "1,2,cat\n3,4,dog\n",
            "0.5,1,2\n1,2,0\n",
            "0,1\n1,0\n3,1\n",
            "0,1\n0.5,1\n0.25,0\n",
            "5,1,2\n0.5,0.25,0\n",
            "100,250,0\n90,260,1\n80,300,1\n",
            "2019,1,0\n2020,2,1\n",
            // Errors in these are reported when records are read.
            "1,2,3\n4,5\n",
            "1,2,3\n4,five,6\n",
            "1,x,1\n2,3,-1\n",
            "1,2,cat\n3,4,1\n3,5,2\n",
        ] {
            check(honest, "record");
        }
        for doubtful in [
            // As pandas writes a frame without names.
            "0,1,2\n1.0,2.0,0.0\n3.0,4.0,1.0\n",
            "0,1\n1.5,0.0\n3.5,1.0\n",
            "0,1,2,3,4\n0,1,0,3,1\n1,0,0,3,0\n",
            "2019,2020,2021\n1,2,0\n3,4,1\n",
            "2000,2010,x\n1,2,0\n3,1,1\n",
            "2000,2010,2\n1,2,0\n3,1,1\n",
            "id,2019,y\n1,2,0\n3,4,1\n",
        ] {
            check(doubtful, "asked about");
        }
    }

    #[test]
    fn decimal_commas_are_told() {
        let check = |text: &str, decimal, expected: Option<bool>| {
            let lines = first_lines(text.as_bytes(), true, may_delimit);
            let found = delimiter_of(&lines, b',', decimal);
            assert_eq!(found.map(|found| found.2).ok(), expected, "{text}");
        };
        let (auto, comma, point) = (Decimal::Auto, Decimal::Comma, Decimal::Point);
        check("a;y\n1,5;2\n3;0\n", auto, Some(true));
        check("1,5;2\n3;0\n", auto, Some(true));
        check("a;y\n1.5;2\n3;0\n", auto, Some(false));
        check("a;y\n1.234,50;2\n999,99;0\n", auto, Some(true));
        check("a;y\n$1,234.50;2\n3;0\n", auto, Some(false));
        check("a;y\n\"b, c\";2\n3;0\n", auto, Some(false));
        // Thousands, perhaps.
        check("a;y\n1,500;2\n3.5;0\n", auto, None);
        check("a|y\n1,5|2\n3|0\n", auto, None);
        check("a|y\n1,5|2\n3|0\n", comma, Some(true));
        check("1,5|2\n3|0\n", comma, Some(true));
        check("a;y\n1,5;2\n3;0\n", point, Some(false));
        check("a,y\n\"1,5\",2\n", auto, Some(false));
        check("a,y\n\"1,5\",2\n", comma, Some(true));
    }

    #[test]
    fn other_delimiters_are_told() {
        let check = |text: &str, delimiter: u8, expected: Option<&str>| {
            let lines = first_lines(text.as_bytes(), true, may_delimit);
            let found = other_delimiter(&lines, delimiter, Decimal::Auto);
            assert_eq!(found.map(|(_, found)| found), expected, "{text}");
        };
        check("\"a\";\"b\"\n1;2\n", b',', Some("semicolons"));
        check("1;2\n", b',', Some("semicolons"));
        check("a|b\n1|2\n", b',', Some("vertical bars"));
        check("a\tb\n1\t2\n", b',', Some("tabs"));
        check("a b\n1  2\n", b',', Some("blanks"));
        check("a,b\n1,2\n", b'\t', Some("commas"));
        check("1,5;2;0\n3,5;4;1\n", b',', Some("semicolons"));
        check("a;b;y\n1,5;2;0\n3;4,25;1\n", b',', Some("semicolons"));
        for good in ["1,2\n", "1,2,a;b\n1,3,c;d\n", "a b,c d\n1,2\n", "5\n6\n"] {
            check(good, b',', None);
        }
        check("a title of the table\na,b\n", b',', None);
    }
}
