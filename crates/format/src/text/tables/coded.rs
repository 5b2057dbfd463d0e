//! The features of the cells of a record.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use pelton_batch::{ColumnCode, Cross, Schema, Slashes};

use crate::locate::decoder::{Decoded, Decoder};
use crate::locate::table::{Cell, Cells};
use crate::record::cells::heading::excerpt_of_names;
use crate::record::cells::words::truth;
use crate::record::error::{Fault, FormatError};
use crate::record::labels::stored::LabelForm;
use crate::record::mixing::mix;
use crate::record::options::{Missing, OpenOptions, RowLayout};
use crate::record::rows::NewRow;
use crate::text::tables::column_found::log1p;
use crate::text::tables::dates::Moment;
use crate::text::tables::hashing::{hash_bytes, place};
use crate::text::tables::words::each_word;

/// The codes of the columns of a table, ready for use.
#[derive(Debug)]
pub(crate) struct Coder {
    columns: Vec<CodedColumn>,
    crosses: Vec<CodedCross>,
    /// Which features are numbers.
    numbers: Vec<bool>,
    /// The first feature of hashed columns, and the count of all features.
    own: u32,
    features: usize,
    fingerprint: u64,
}

#[derive(Debug)]
struct CodedColumn {
    name: String,
    code: ColumnCode,
    /// Its first feature.
    at: u32,
    /// The feature of each value of a category.
    values: HashMap<Box<[u8]>, u32>,
    /// The start of its hashes.
    seed: u64,
    is_crossed: bool,
}

#[derive(Debug)]
struct CodedCross {
    columns: Vec<usize>,
    bits: u32,
    /// The hash of the names of its columns.
    seed: u64,
}

impl Coder {
    /// For a schema with a code for each field.
    pub(crate) fn new(schema: &Schema) -> Coder {
        let mut at = 0_u32;
        let mut columns = Vec::with_capacity(schema.codes.len());
        for (i, (field, code)) in schema.fields.0.iter().zip(&schema.codes).enumerate() {
            let values: &[String] = match code {
                ColumnCode::Category { values } => values,
                _ => &[],
            };
            columns.push(CodedColumn {
                name: field.name.to_string(),
                code: code.clone(),
                at,
                values: features_of(values, at),
                seed: hash_bytes(0, field.name.as_bytes()),
                is_crossed: (schema.crosses.iter()).any(|cross| cross.columns.contains(&i)),
            });
            at += code.width() as u32;
        }
        let cross = |cross: &Cross| {
            let seeds = cross.columns.iter().map(|at| columns[*at].seed);
            CodedCross {
                columns: cross.columns.clone(),
                bits: cross.bits,
                seed: seeds.fold(0, mix),
            }
        };
        // Crosses of a damaged schema may refer to columns that do not exist.
        let features = schema.features();
        let crosses = schema.crosses.iter().filter(|_| features.is_some());
        let crosses = crosses.map(cross).collect();
        let text = serde_json::to_string(schema).unwrap_or_default();
        Coder {
            crosses,
            columns,
            numbers: schema.numbers(),
            own: at,
            features: features.unwrap_or(0),
            fingerprint: hash_bytes(0, text.as_bytes()),
        }
    }

    pub(crate) fn features(&self) -> usize {
        self.features
    }

    /// Whether a feature is a number rather than an indicator.
    fn is_number(&self, feature: u32) -> bool {
        self.numbers.get(feature as usize).is_some_and(|is| *is)
    }

    /// An estimate of the entries of a row of `bytes` bytes; all of them may be text.
    pub(crate) fn entries(&self, bytes: u64) -> u64 {
        const WORD_BYTES: u64 = 6;
        let entries = |column: &CodedColumn| match &column.code {
            ColumnCode::Text { pairs, .. } => bytes / WORD_BYTES * (1 + u64::from(*pairs)),
            ColumnCode::Date { hours, .. } => 2 + u64::from(*hours),
            _ => 1,
        };
        self.columns.iter().map(entries).sum::<u64>() + self.crosses.len() as u64
    }
}

/// The features of the values of a category, counted from `at`. Keys are the texts of the values and also the numbers
/// that they spell, unless another value has that text: another file may store 1 for this one's "01", "1.0" or "true".
fn features_of(values: &[String], at: u32) -> HashMap<Box<[u8]>, u32> {
    let spelled = (at..)
        .zip(values)
        .map(|(i, value)| (value.as_bytes().into(), i));
    let mut features: HashMap<Box<[u8]>, u32> = spelled.collect();
    for (i, value) in (at..).zip(values) {
        if let Some(number) = Cell::Text(value.as_bytes().into()).plain_number() {
            let text = number.to_string().into_bytes();
            features.entry(text.into()).or_insert(i);
        }
    }
    features
}

/// The text of the number that a cell is or spells; digits that begin with 0 are a code, not a number.
fn number_text(cell: &Cell<'_>) -> Option<String> {
    let number = match cell {
        Cell::Spelled(text) | Cell::Text(text) => {
            let written = cell.written().filter(|written| written.is_plain);
            written
                .map(|written| written.value)
                .or_else(|| truth(text))?
        }
        _ => cell.plain_number()?,
    };
    Some(number.to_string())
}

/// The hash of a cell in crosses: of its number, if it has one, which files of other formats may write differently, or
/// else of its text.
fn crossed_hash(seed: u64, cell: &Cell<'_>) -> u64 {
    let number = match cell {
        Cell::Date(..) => None,
        _ => number_text(cell),
    };
    match number {
        Some(number) => hash_bytes(seed, number.as_bytes()),
        None => hash_bytes(seed, &cell.text()),
    }
}

/// The entries of the row being built.
#[derive(Default)]
struct Entries {
    all: Vec<(u32, f32)>,
    /// The hashes of a cell of text.
    words: Vec<(u32, f32)>,
    /// By column the hash of its cell, if a cross needs it.
    crossed: Vec<u64>,
}

thread_local! {
    static ENTRIES: RefCell<Entries> = RefCell::default();
}

impl CodedColumn {
    /// Adds the features of a cell; a missing number becomes `filled`, if given, unless the code has its own value.
    fn code(
        &self,
        cell: &Cell<'_>,
        own: u32,
        filled: Option<f32>,
        entries: &mut Entries,
    ) -> Result<(), Fault> {
        let all = &mut entries.all;
        match &self.code {
            ColumnCode::Number {
                missing,
                flag,
                log1p: is_log,
            } => {
                if cell.is_missing_number() {
                    if *flag {
                        all.push((self.at + 1, 1.0));
                    }
                    let value = missing.or(filled).ok_or_else(|| self.nothing())?;
                    all.push((self.at, value));
                } else {
                    let convert: fn(f64) -> f64 = if *is_log { log1p } else { |value| value };
                    all.push((self.at, self.number(cell, convert)? as f32));
                }
            }
            ColumnCode::Bins { edges, missing } => {
                if !cell.is_missing_number() {
                    let value = self.number(cell, |value| value)?;
                    let bin = edges.partition_point(|edge| *edge <= value);
                    all.push((self.at + bin as u32, 1.0));
                } else if *missing {
                    all.push((self.at + 1 + edges.len() as u32, 1.0));
                }
            }
            ColumnCode::Offset { exposure } => {
                if cell.is_missing_number() {
                    return Err(Fault::column(
                        &self.name,
                        "is empty, and an offset has no value to fill in; correct it, or leave such records out with `on_bad_record` skip",
                    ));
                }
                let value = self.number(cell, |value| value)?;
                if *exposure && value <= 0.0 {
                    return Err(self.odd(cell, "no exposure above 0", "offset"));
                }
                let value = if *exposure { libm::log(value) } else { value };
                all.push((self.at, value as f32));
            }
            ColumnCode::Crossed => {}
            ColumnCode::Category { .. } => {
                let of_number = || self.values.get(number_text(cell)?.as_bytes());
                if let Some(at) = self.values.get(&*cell.text()).or_else(of_number) {
                    all.push((*at, 1.0));
                }
            }
            ColumnCode::Hash { bits } => {
                let (at, sign) = place(hash_bytes(self.seed, &cell.text()), *bits);
                all.push((own + at, sign));
            }
            ColumnCode::Text { pairs, bits } => {
                let words = &mut entries.words;
                words.clear();
                let mut before = None;
                each_word(&cell.text(), |word| {
                    let hash = hash_bytes(self.seed, word.as_bytes());
                    words.push(place(hash, *bits));
                    if let (true, Some(before)) = (*pairs, before) {
                        words.push(place(mix(before, hash), *bits));
                    }
                    before = Some(hash);
                });
                merge(words);
                let squares: f32 = words.iter().map(|(_, count)| count * count).sum();
                if squares > 0.0 {
                    let factor = squares.sqrt().recip();
                    all.extend(words.iter().map(|(at, count)| (own + at, count * factor)));
                }
            }
            ColumnCode::Date {
                centre,
                missing,
                hours,
                slashes,
            } => {
                if cell.is_missing_number() {
                    let is_filled = *missing || filled.is_some();
                    return is_filled.then_some(()).ok_or_else(|| self.nothing());
                }
                let text = cell.text();
                let moment = Moment::parse(&text, *slashes).ok_or_else(|| {
                    let what = match slashes {
                        Slashes::Refused => "no date as in 2026-11-26 or 2026-11-26 20:51",
                        Slashes::DayFirst => "no date as in 26/11/2026 or 2026-11-26",
                        Slashes::MonthFirst => "no date as in 11/26/2026 or 2026-11-26",
                    };
                    self.odd(cell, what, "category")
                })?;
                all.push((self.at, (moment.years() - centre) as f32));
                all.push((self.at + 1 + moment.day() as u32, 1.0));
                if let (true, Some(hour)) = (*hours, moment.hour()) {
                    all.push((self.at + 8 + hour as u32, 1.0));
                }
            }
        }
        Ok(())
    }

    fn number(&self, cell: &Cell<'_>, convert: impl Fn(f64) -> f64) -> Result<f64, Fault> {
        let value = cell.number().map(convert);
        let value = value.filter(|value| (*value as f32).is_finite());
        value.ok_or_else(|| self.odd(cell, "no number of 32 bits", "category"))
    }

    #[cold]
    fn odd(&self, cell: &Cell<'_>, what: &str, kind: &str) -> Fault {
        let found = match cell {
            Cell::Number(value) => value.to_string(),
            _ => crate::record::error::excerpt(&cell.text()),
        };
        Fault::column(
            &self.name,
            &format!(
                "holds {found:?}, which is {what}; correct it, leave such records out with `on_bad_record` skip, or train with `column` {}={kind}",
                self.name
            ),
        )
    }

    #[cold]
    fn nothing(&self) -> Fault {
        Fault::column(
            &self.name,
            "is empty or holds no value; `missing` zero, mean or flag fills such cells in",
        )
    }
}

/// Sorts entries, and adds up those of one feature.
fn merge(entries: &mut Vec<(u32, f32)>) {
    entries.sort_unstable_by_key(|(at, _)| *at);
    entries.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 += later.1;
        }
        same
    });
}

/// The decoder of a table with coded columns.
#[derive(Debug)]
pub(crate) struct Coded {
    cells: Arc<dyn Decoder>,
    coder: Arc<Coder>,
    /// The index of the coded column for each column of the file.
    places: Vec<Option<usize>>,
    /// The value of missing numbers if their code has none.
    filled: Option<f32>,
    /// Whether rows store the zeros of numbers.
    keeps_zeros: bool,
}

/// The position of each of `names` in `wanted`, the columns of `of`; `None` for those that are not wanted.
///
/// Errors: some of `wanted` are missing.
pub(crate) fn places_of<'a>(
    names: &[String],
    wanted: impl Iterator<Item = &'a str>,
    of: &Path,
) -> Result<Vec<Option<usize>>, FormatError> {
    let mut places = vec![None; names.len()];
    let known: HashMap<&str, usize> = (names.iter().map(String::as_str)).zip(0..).collect();
    let mut lacking = Vec::new();
    for (place, name) in wanted.enumerate() {
        match known.get(name) {
            Some(at) => places[*at] = Some(place),
            None => lacking.push(name.to_string()),
        }
    }
    if lacking.is_empty() {
        return Ok(places);
    }
    Err(FormatError::new(format!(
        "lacks the columns {} of {}; its columns are {}; give it the columns that the model was trained on, in any order",
        excerpt_of_names(&lacking),
        of.display(),
        excerpt_of_names(names)
    )))
}

impl Coded {
    pub(crate) fn new(
        decoder: Arc<dyn Decoder>,
        cells: &dyn Cells,
        coder: &Arc<Coder>,
        options: &OpenOptions,
    ) -> Result<Coded, FormatError> {
        let wanted = coder.columns.iter().map(|column| column.name.as_str());
        let of = options
            .columns
            .as_ref()
            .map_or("the first file", |known| &known.of);
        let places = places_of(cells.names(), wanted, Path::new(of))?;
        Ok(Coded {
            places,
            coder: Arc::clone(coder),
            filled: (options.missing == Some(Missing::Zero)).then_some(0.0),
            keeps_zeros: options.rows == RowLayout::WithZeros,
            cells: decoder,
        })
    }
}

impl Decoder for Coded {
    fn decode<'b>(&self, record: u64, bytes: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        ENTRIES.with_borrow_mut(|entries| {
            entries.all.clear();
            let coder = &*self.coder;
            let cells = self.cells.cells().ok_or(Fault::NO_RECORD)?;
            let mut seen = 0;
            entries.crossed.clear();
            let seeds = coder.columns.iter().map(|column| column.seed);
            if !coder.crosses.is_empty() {
                (entries.crossed).extend(seeds.map(|seed| crossed_hash(seed, &Cell::Missing)));
            }
            let label = cells.read(record, bytes, &mut |column, cell| {
                let Some(place) = self.places[column] else {
                    return Ok(());
                };
                seen += 1;
                let column = &coder.columns[place];
                if column.is_crossed {
                    entries.crossed[place] = crossed_hash(column.seed, &cell);
                }
                column.code(&cell, coder.own, self.filled, entries)
            })?;
            if seen < coder.columns.len() {
                self.fill(record, bytes, cells, entries)?;
            }
            for cross in &coder.crosses {
                let hashes = cross.columns.iter().map(|at| entries.crossed[*at]);
                let (at, sign) = place(hashes.fold(cross.seed, mix), cross.bits);
                entries.all.push((coder.own + at, sign));
            }
            merge(&mut entries.all);
            row.entries(|indices, values| {
                for &(at, value) in &entries.all {
                    if value != 0.0 || self.keeps_zeros && coder.is_number(at) {
                        indices.push(at);
                        values.push(value);
                    }
                }
                Ok(())
            })?;
            Ok(label)
        })
    }

    fn fingerprint(&self) -> [u64; 3] {
        let [reading, label, zero_based] = self.cells.fingerprint();
        [mix(reading, self.coder.fingerprint), label, zero_based]
    }

    fn parses_text(&self) -> bool {
        true
    }

    fn cells(&self) -> Option<&dyn Cells> {
        self.cells.cells()
    }

    fn label_form(&self) -> LabelForm {
        self.cells.label_form()
    }

    fn lists_classes(&self) -> bool {
        self.cells.lists_classes()
    }
}

impl Coded {
    /// Adds the features of columns without a cell in the record.
    #[cold]
    fn fill(
        &self,
        record: u64,
        bytes: &[u8],
        cells: &dyn Cells,
        entries: &mut Entries,
    ) -> Result<(), Fault> {
        let coder = &*self.coder;
        let mut seen = vec![false; coder.columns.len()];
        cells.read(record, bytes, &mut |column, _| {
            if let Some(place) = self.places[column] {
                seen[place] = true;
            }
            Ok(())
        })?;
        for (column, _) in coder.columns.iter().zip(seen).filter(|(_, seen)| !seen) {
            column.code(&Cell::Missing, coder.own, self.filled, entries)?;
        }
        Ok(())
    }
}
