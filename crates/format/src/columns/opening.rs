//! Opens Parquet and Arrow files: chooses columns and the label, and finds the offsets of records.
//!
//! Cost: the footer of Parquet and the heads of Arrow's batches, and one pass over the label's column. If a column
//! holds strings or lists, the lengths of all its values are read once and kept in a sidecar.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use pelton_storage::Storage;

use crate::columns::arrow::ArrowSchema;
use crate::columns::column::{Column, ColumnKind, Leaf};
use crate::columns::decoder::{ColumnFeatures, ColumnFields, NO_LABEL};
use crate::columns::known_order::{Choice, in_known_order};
use crate::columns::messages;
use crate::columns::parquet::{self, ParquetTable};
use crate::columns::parts::Parts;
use crate::columns::record::{RecordLayout, can_be_label};
use crate::columns::storage::{BlockCache, CACHE_BYTES, DecodedBlocks, InPlace, Records};
use crate::columns::table::{Table, TableFile, Wrong};
use crate::columns::values::Values;
use crate::locate::format::{Format, Match, Shard, Source, scan_threads};
use crate::locate::places::chunks_in_order::scan_in_order;
use crate::locate::places::elias_fano::EliasFanoBuilder;
use crate::locate::places::located::Located;
use crate::locate::places::sidecar::RecordShape;
use crate::locate::places::{IndexSource, Places};
use crate::locate::reach::{Blocks, Reach};
use crate::record::cells::label_column::LabelColumn;
use crate::record::cells::label_column::no_label_column;
use crate::record::error::{Fault, FormatError, FormatErrorKind};
use crate::record::kind::Head;
use crate::record::labels::classes_so_far::ClassesSoFar;
use crate::record::labels::codes::{Codes, NO_CLASS};
use crate::record::labels::{LABEL_LIMIT, LabelCollector, MOST_LABELS, too_many_labels};
use crate::record::mixing::mix;
use crate::record::options::{MEAN_OF_FIELDS, Missing};
use crate::record::rows::Layout;
use crate::record::rows::fields::{
    check_name, column_type, element_value, label_field, no_column, selection,
};

/// How records of different lengths were found, in words.
const LENGTHS: &str = "from the lengths of their values";
/// Most columns of a record.
const MOST_COLUMNS: usize = 1 << 15;

/// Tables of columns; with `selects`, some columns of them.
pub(crate) struct Columns {
    pub(crate) kind: Kind,
    pub(crate) selects: bool,
}

/// The writer of a table.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Parquet,
    /// As a file or a stream.
    Arrow,
}

impl Format for Columns {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Parquet => "parquet",
            Kind::Arrow => "arrow",
        }
    }

    fn argument(&self) -> Option<&'static str> {
        self.selects.then_some("COLUMN,…")
    }

    fn check(&self, argument: &str) -> Result<(), String> {
        selection(argument, "columns").map(drop)
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        if self.selects {
            return None;
        }
        let (begins, endings): (bool, &[&str]) = match self.kind {
            Kind::Parquet => (head.bytes.starts_with(parquet::MAGIC), &["parquet"]),
            Kind::Arrow => (
                head.bytes.starts_with(messages::MAGIC) || messages::begins_stream(head.bytes),
                &["arrow", "arrows", "feather", "ipc"],
            ),
        };
        if begins {
            Some(Match::Magic)
        } else {
            head.ends_in(endings).then_some(Match::Name)
        }
    }

    fn has_features(&self) -> bool {
        true
    }

    fn in_place_only(&self) -> bool {
        true
    }

    fn open(&self, source: &Source<'_>, notes: &mut Vec<String>) -> Result<Shard, FormatError> {
        match self.kind {
            Kind::Parquet => {
                let table = ParquetTable::open(file(source)?).map_err(refused)?;
                if table.groups() == [0] {
                    return Err(FormatError::empty());
                }
                let choice = choose(source, table.leaves(), notes)?;
                let table = table.choose(choice.columns.clone());
                shard_of(source, Arc::new(table), choice, notes)
            }
            Kind::Arrow => {
                let schema = ArrowSchema::open(file(source)?).map_err(refused)?;
                let interrupted = || source.options.interrupt.load(Ordering::Relaxed);
                let choice = choose(source, schema.leaves(), notes);
                let choice = match choice {
                    // Without records types say little: a column may have only nulls.
                    Err(error) => {
                        let rows = schema.read(Vec::new(), &interrupted).map_err(refused)?;
                        return Err(if rows.groups() == [0] {
                            FormatError::empty()
                        } else {
                            error
                        });
                    }
                    Ok(choice) => choice,
                };
                let table = schema.read(choice.columns.clone(), &interrupted);
                let table = table.map_err(refused)?;
                source.options.check_interrupt()?;
                shard_of(source, Arc::new(table), choice, notes)
            }
        }
    }
}

/// The file; everything is read through it.
fn file(source: &Source<'_>) -> Result<TableFile, FormatError> {
    Ok(TableFile::new(source.storage()?)?)
}

fn refused(wrong: Wrong) -> FormatError {
    match wrong {
        Wrong::Storage(error) => error.into(),
        Wrong::Damaged(what) => FormatError::new(format!("{what}; fetch or write it again")),
    }
}

fn choose(
    source: &Source<'_>,
    leaves: Vec<Leaf>,
    notes: &mut Vec<String>,
) -> Result<Choice, FormatError> {
    let (path, options) = (source.path, source.options);
    let name_of = |leaf: &Leaf| match leaf {
        Ok(column) => column.name.clone(),
        Err((name, _)) => name.clone(),
    };
    let names: Vec<String> = leaves.iter().map(name_of).collect();
    // The column of this name, which the user asked for.
    let named = |name: &str| match names.iter().position(|known| known == name) {
        Some(place) => leaves[place]
            .clone()
            .map_err(|(column, found)| column_type(&column, found)),
        None => Err(no_column(name, listed(&names))),
    };
    let selects = !source.argument().is_empty();
    let (mut left_out, mut nulls) = (Vec::new(), Vec::new());
    let mut columns: Vec<Column> = if selects {
        let wanted = selection(source.argument(), "columns").expect("it was checked");
        wanted.into_iter().map(named).collect::<Result<_, _>>()?
    } else {
        let (good, others): (Vec<Leaf>, Vec<Leaf>) =
            leaves.iter().cloned().partition(Result::is_ok);
        // In coded tables every cell of these is missing.
        let is_null = |leaf: &&Leaf| {
            let is_null = matches!(leaf, Err((_, found)) if found == "Null");
            options.features_only && options.codes_columns && is_null
        };
        nulls.extend(others.iter().filter(is_null).map(name_of));
        left_out.extend(others.iter().filter(|leaf| !is_null(leaf)).map(name_of));
        let good = good.into_iter().flatten();
        good.filter(|column| !column.aside).collect()
    };
    let shown: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let meant = match &options.columns {
        Some(known) => known.label(&options.label, &names),
        None => options.label.clone(),
    };
    let mut label = match &meant {
        LabelColumn::Name(name) if options.any_label && !names.contains(name) => None,
        LabelColumn::Name(name) => {
            let column = if names.contains(name) {
                named(name)?
            } else {
                return Err(no_label_column(name, listed(&names)));
            };
            let place = columns.iter().position(|known| *known == column);
            Some(place.unwrap_or_else(|| {
                columns.push(column);
                columns.len() - 1
            }))
        }
        wanted => label_field(&shown, wanted)?,
    };
    if let Some(at) = label
        && !can_be_label(&columns[at].kind)
    {
        let known = "of one number or string a record if they are labels";
        return Err(no_label_column(&columns[at].name, known));
    }
    if options.features_only {
        let is_known = |column: &Column| {
            options.columns.as_ref().is_none_or(|known| {
                let schema = &known.schema;
                !schema.codes.is_empty() || schema.fields.get(&column.name).is_some()
            })
        };
        let is_kept = |i: usize, column: &Column| match column.kind {
            _ if Some(i) == label => true,
            ColumnKind::Numbers { .. } => true,
            ColumnKind::Bytes => options.codes_columns && is_known(column),
            ColumnKind::List { .. } | ColumnKind::Json => false,
        };
        let others = columns
            .iter()
            .enumerate()
            .filter(|(i, column)| !is_kept(*i, column));
        let others: Vec<String> = others.map(|(_, column)| column.name.clone()).collect();
        if let (true, Some(name)) = (selects, others.first()) {
            return Err(column_type(
                name,
                "no numbers of one count, and so no features",
            ));
        }
        let label_name = label.map(|at| columns[at].name.clone());
        columns.retain(|column| !others.contains(&column.name));
        label = columns
            .iter()
            .position(|column| Some(&column.name) == label_name.as_ref());
        left_out.extend(others);
        if options.any_label {
            if let Some(at) = label.take() {
                columns.remove(at);
            }
        } else if label.is_none() {
            let known = options.columns.as_ref();
            let known = known.and_then(|known| known.schema.label.as_deref());
            return Err(no_label_column(known.unwrap_or("label"), listed(&names)));
        }
    }
    if !left_out.is_empty() {
        let what = if options.features_only {
            "no numbers that could be features"
        } else {
            "nothing that a record can hold"
        };
        notes.push(format!(
            "{}: the columns {} hold {what} and are left out; store numbers in their place, or choose columns with `format`, as in {}:NAME,NAME",
            path.display(),
            listed(&left_out),
            source.kind.name()
        ));
    }
    let mut specs: Vec<pelton_batch::FieldSpec> = Vec::new();
    for column in &columns {
        let checked = check_name(&column.name, &specs);
        checked.map_err(|what| refused(Wrong::Damaged(what)))?;
        specs.push(pelton_batch::FieldSpec::new(
            &column.name,
            pelton_batch::DType::U8,
            &[],
        ));
    }
    let features = columns.len() - usize::from(label.is_some());
    if features + nulls.len() == 0 || columns.len() > MOST_COLUMNS {
        return Err(FormatError::new(format!(
            "records need 1 to {MOST_COLUMNS} columns besides the label; its columns are {}; name some of them with `format`",
            listed(&names)
        )));
    }
    let has_more = options.features.is_some();
    let choice = in_known_order(columns, label, options.columns.as_ref(), has_more)?;
    Ok(Choice { nulls, ..choice })
}

/// Names, for a message.
fn listed(names: &[String]) -> String {
    const MOST: usize = 40;
    let more = names.len().saturating_sub(MOST);
    let first = names[..names.len() - more].join(", ");
    match more {
        0 => first,
        _ => format!("{first} and {more} more"),
    }
}

/// The columns that a scan reads.
struct Wanted {
    /// The columns with values of different lengths.
    variable: Vec<usize>,
    label: Option<usize>,
}

/// Its result for a group of records.
#[derive(Default)]
struct Scanned {
    /// Bytes of the variable columns of each record.
    lengths: Vec<u64>,
    labels: Vec<f64>,
    names: Vec<Vec<u8>>,
    codes: Vec<u32>,
    /// A record with a label without a name.
    unnamed: Option<u64>,
}

/// The offsets of the records of a table, and their labels.
struct Found {
    places: Places,
    bytes: u64,
    longest: u64,
    index: IndexSource,
    labels: Vec<f64>,
    names: Vec<String>,
    codes: Codes,
    first_bad: Option<u64>,
}

impl Found {
    /// Records of `each` bytes, with the labels of the scan, if there was one.
    fn of_one_length(records: u64, each: u64, scanned: Option<Located>) -> Option<Found> {
        let size = records.checked_mul(each);
        let bytes = size.filter(|size| *size <= i64::MAX as u64)?;
        let (labels, names, codes, first_bad) = match scanned {
            Some(found) => (found.labels, found.names, found.codes, found.first_bad),
            None => (Vec::new(), Vec::new(), Codes::One, None),
        };
        Some(Found {
            places: Places::Fixed {
                from: 0,
                bytes: each,
            },
            bytes,
            longest: each,
            index: IndexSource::Arithmetic,
            labels,
            names,
            codes,
            first_bad,
        })
    }

    /// Records of different lengths.
    fn listed(located: Located, index: IndexSource) -> Found {
        Found {
            places: Places::listed(located.starts, located.end, LENGTHS),
            bytes: located.end,
            longest: located.longest,
            index,
            labels: located.labels,
            names: located.names,
            codes: located.codes,
            first_bad: located.first_bad,
        }
    }
}

/// Finds the records of a table, by arithmetic unless lengths or labels must be read.
fn find(
    source: &Source<'_>,
    table: &dyn Table,
    layout: &RecordLayout,
    wanted: &Wanted,
    notes: &mut Vec<String>,
) -> Result<Found, FormatError> {
    let records = table.groups().last().copied().unwrap_or(0);
    let scan = || scan(source, table, layout, wanted);
    let mut found = if let Some(each) = layout.record_bytes() {
        let scanned = wanted.label.map(|_| scan()).transpose()?;
        Found::of_one_length(records, each, scanned).ok_or_else(too_long)?
    } else {
        // The version of the sidecar; the types of numbers in records depend on it.
        let seed = format!("2 {:?} {:?}", table.columns(), wanted.label);
        let hash = seed
            .bytes()
            .fold(0, |hash, byte| mix(hash, u64::from(byte)));
        let (located, index) = source.located(RecordShape::Made { hash }, 0, notes, scan)?;
        if located.starts.len() != records {
            let what = "its index is of other records";
            return Err(refused(Wrong::Damaged(what.into())));
        }
        Found::listed(located, index)
    };
    // In ascending order, as in the data set, so that no table translates between the two.
    if found.names.is_empty() {
        found.labels.sort_by(f64::total_cmp);
    }
    Ok(found)
}

fn too_long() -> FormatError {
    refused(Wrong::Damaged("its records are longer than 4 GB".into()))
}

/// A storage that reads the records in place, or decodes them by blocks, and the cost of reading one.
fn storage_of(rows: Records, bytes: u64) -> (Arc<dyn Storage>, Reach) {
    if rows.table.in_place() {
        let places = rows.columns.len() as u32;
        return (Arc::new(InPlace(rows)), Reach::Gathered { places });
    }
    static CACHE: LazyLock<Arc<BlockCache>> =
        LazyLock::new(|| Arc::new(BlockCache::new(CACHE_BYTES)));
    let groups = rows.table.groups().len() - 1;
    let stored_bytes = rows.table.group_bytes() * groups as f64;
    let decoded = DecodedBlocks::new(rows, Arc::clone(&CACHE));
    let count = decoded.blocks();
    let blocks = Blocks {
        count,
        bytes: bytes as f64 / count as f64,
        stored_bytes: stored_bytes / count as f64,
        kept_bytes: CACHE_BYTES,
    };
    (Arc::new(decoded), Reach::Blocks(blocks))
}

/// The shard of named arrays of records of `bytes` bytes in all.
fn fields_of(layout: Arc<RecordLayout>, records: u64, bytes: u64, fields: ColumnFields) -> Shard {
    let shard = Shard::fields(records, fields);
    // Bytes of rows: their values, and the lengths of those that vary.
    let columns = layout.columns().iter();
    let nested = columns.filter(|column| column.kind.is_nested()).count();
    let heads = layout.head_bytes() + 8 * nested;
    let heads = records.saturating_mul(heads as u64);
    Shard {
        nonzeros: shard.nonzeros.saturating_add(bytes.saturating_sub(heads)),
        ..shard
    }
}

/// The shard of a table with the columns chosen.
fn shard_of(
    source: &Source<'_>,
    table: Arc<dyn Table>,
    choice: Choice,
    notes: &mut Vec<String>,
) -> Result<Shard, FormatError> {
    let all = table.columns();
    let records = table.groups().last().copied().unwrap_or(0);
    // A label that is a name is stored as a code outside the record; a number is in the record.
    let by_name = { choice.label }.filter(|at| all[*at].kind == ColumnKind::Bytes);
    let columns: Vec<usize> = (0..all.len()).filter(|i| Some(*i) != by_name).collect();
    let in_record = columns.iter().map(|i| all[*i].clone()).collect();
    let layout = Arc::new(RecordLayout::new(in_record).ok_or_else(too_long)?);
    let label_number = choice.label.filter(|_| by_name.is_none());
    if let (true, Some(at)) = (source.options.targets, by_name) {
        let what = "text, and a regression needs numbers there; name another column with `label`";
        let what = format!("column {} holds {what}", all[at].name);
        return Err(FormatError::new(what).of_kind(FormatErrorKind::LabelColumn));
    }
    if records == 0 {
        return Err(FormatError::empty());
    }
    let has_variable = |i: &usize| all[*i].kind.fixed_bytes().is_none();
    let wanted = Wanted {
        variable: columns.iter().copied().filter(has_variable).collect(),
        // Targets are not classes, so the scan must not list them.
        label: choice.label.filter(|_| !source.options.targets),
    };
    let found = find(source, &*table, &layout, &wanted, notes)?;
    let rows = Records {
        name: source.path.display().to_string(),
        table: Arc::clone(&table),
        layout: Arc::clone(&layout),
        columns,
        places: found.places.clone(),
        count: records,
    };
    let (storage, reach) = storage_of(rows, found.bytes);
    if !source.options.features_only && source.options.missing.is_some_and(Missing::has_means) {
        return Err(FormatError::new(MEAN_OF_FIELDS));
    }
    let shard = if source.options.features_only {
        let decoder = ColumnFeatures::new(layout, label_number, choice.nulls);
        let width = decoder.width();
        let nonzeros = records.saturating_mul(width as u64);
        let layout = Layout::Dense { width };
        Shard::features(layout, width as u64, records, nonzeros, decoder)
    } else {
        let fills = source.options.missing.is_some();
        let fields = ColumnFields::new(Arc::clone(&layout), label_number, fills);
        fields_of(layout, records, found.bytes, fields)
    };
    Ok(Shard {
        places: found.places,
        bytes: found.bytes,
        longest: found.longest,
        labels: found.labels.into(),
        names: found.names,
        codes: found.codes,
        index: found.index,
        first_bad: found.first_bad,
        storage: Some(storage),
        reach,
        columns: Some(choice.schema),
        ..shard
    })
}

/// Reads the variable columns and the label's.
fn scan(
    source: &Source<'_>,
    table: &dyn Table,
    layout: &RecordLayout,
    wanted: &Wanted,
) -> Result<Located, FormatError> {
    let groups = table.groups();
    let records = groups[groups.len() - 1];
    let head = layout.head_bytes() as u64;
    let mut builder = EliasFanoBuilder::new(head.max(1));
    let (mut at, mut longest) = (0u64, 0);
    let (mut numbers, mut classes) = (LabelCollector::default(), ClassesSoFar::default());
    let (mut failed, mut first_bad) = (None, None);
    let stop = AtomicBool::new(false);
    // A group is read in parts, so that its lengths and labels take little memory.
    let parts = Parts::new(groups);
    let worker = || ();
    let look = |_: &mut (), part: u64, _: Scanned| {
        if source.options.interrupt.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed) {
            return Ok(Scanned::default());
        }
        scan_group(table, parts.rows(part), wanted)
    };
    let merge = |_: u64, scanned: &mut Scanned| {
        for length in &scanned.lengths {
            builder.push(at);
            let whole = head + length;
            longest = longest.max(whole);
            at = at.saturating_add(whole);
        }
        if let Some(record) = scanned.unnamed {
            first_bad = first_bad.or(Some(record));
        }
        if let (Some(record), false) = (scanned.unnamed, source.options.tolerant) {
            let column = &table.columns()[wanted.label.unwrap_or(0)].name;
            let fault = Fault::column(column, NO_LABEL);
            failed.get_or_insert(FormatError::of_record(fault).in_record(record, 0));
        }
        let mut goes_on = failed.is_none() && at <= i64::MAX as u64;
        for label in &scanned.labels {
            goes_on &= numbers.add(*label);
        }
        let codes: Vec<u32> = scanned
            .names
            .iter()
            .map(|name| classes.code_of_name(&String::from_utf8_lossy(name)))
            .collect();
        let known = |code: &u32| codes.get(*code as usize).copied().unwrap_or(NO_CLASS);
        classes.push_codes(scanned.codes.iter().map(known));
        goes_on &= classes.len() <= MOST_LABELS;
        stop.fetch_or(!goes_on, Ordering::Relaxed);
        goes_on
    };
    let threads = scan_threads(source.options);
    scan_in_order(parts.count(), threads, worker, look, merge).map_err(refused)?;
    source.options.check_interrupt()?;
    if let Some(failed) = failed {
        return Err(failed);
    }
    if at > i64::MAX as u64 {
        return Err(refused(Wrong::Damaged("its records have no end".into())));
    }
    if stop.load(Ordering::Relaxed) {
        return Err(too_many_labels(numbers.limit()));
    }
    let (mut labels, names, codes) = classes.finish();
    if names.is_empty() {
        labels = match wanted.label {
            Some(_) => numbers.into_values(),
            None => Vec::new(),
        };
    }
    let end = if wanted.variable.is_empty() {
        records.saturating_mul(head)
    } else {
        at
    };
    Ok(Located {
        first_bad,
        starts: builder.finish(end),
        end,
        labels,
        names,
        codes,
        index_end: 0,
        nonzeros: 0,
        longest,
        tallies: Vec::new(),
    })
}

fn scan_group(table: &dyn Table, rows: Range<u64>, wanted: &Wanted) -> Result<Scanned, Wrong> {
    let mut scanned = Scanned::default();
    for &column in &wanted.variable {
        let count = (rows.end - rows.start) as usize;
        let mut i = 0;
        let lengths = &mut scanned.lengths;
        table.lengths(column, rows.clone(), &mut |length| {
            match lengths.get_mut(i) {
                Some(sum) => *sum += length as u64,
                None => lengths.push(length as u64),
            }
            i += 1;
        })?;
        if i != count {
            return Err(Wrong::Damaged(format!(
                "a column has {i} of {count} values"
            )));
        }
    }
    let Some(label) = wanted.label else {
        return Ok(scanned);
    };
    let kind = table.columns()[label].kind.clone();
    let mut known = std::collections::HashMap::new();
    let mut record = rows.start;
    // Only the distinct numbers matter, not how often each occurs.
    let mut numbers = LabelCollector::default();
    table.read(&[label], rows, &mut |values: &[Values], count| {
        for i in 0..count {
            let value = values[0].get(i, kind.fixed_bytes().unwrap_or(0));
            let value = value.filter(|_| values[0].has(i));
            match (&kind, value) {
                (ColumnKind::Numbers { element, .. }, Some(bytes)) => {
                    let value = element_value(element.dtype(), bytes);
                    if value.abs() < LABEL_LIMIT {
                        numbers.add(value);
                    }
                }
                (ColumnKind::Bytes, Some(name)) if !name.is_empty() => {
                    let code = match known.get(name) {
                        Some(code) => *code,
                        None => {
                            let code = scanned.names.len() as u32;
                            known.insert(name.to_vec(), code);
                            scanned.names.push(name.to_vec());
                            code
                        }
                    };
                    scanned.codes.push(code);
                }
                (ColumnKind::Bytes, _) => {
                    scanned.unnamed.get_or_insert(record + i as u64);
                    scanned.codes.push(NO_CLASS);
                }
                _ => {}
            }
        }
        record += count as u64;
        Ok(())
    })?;
    scanned.labels = numbers.into_values();
    Ok(scanned)
}
