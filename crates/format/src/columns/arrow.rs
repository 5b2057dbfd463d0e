//! Arrow's own files and streams: batches of buffers.
//!
//! Both are a sequence of messages. A stream is walked from its start, a file by the list in its footer; either costs
//! one small read a batch. Unless it is compressed, a batch has the same layout as in memory, so any record can be read
//! in place.

use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;

use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_ipc::{CompressionType, MessageHeader, MetadataVersion, root_as_message};
use arrow_schema::{DataType, Fields, SchemaRef};

use crate::columns::buffers::{Span, Spans, Stored, Widths, walk};
use crate::columns::column::{Column, ColumnKind, Element, Leaf, leaves};
use crate::columns::messages::{Messages, no_message};
use crate::columns::parquet::values_at;
use crate::columns::table::{Table, TableFile, TakeValues, Wrong, group_of, guarded};
use crate::columns::values::{
    Items, Values, View, keys_of, numbers, starts, viewed, views, with_inner,
};

/// An open file or stream.
#[derive(Debug)]
pub(crate) struct ArrowTable {
    file: TableFile,
    columns: Vec<Column>,
    /// The type of each column.
    types: Vec<DataType>,
    /// First record of each batch, and the number of records.
    firsts: Vec<u64>,
    batches: Vec<Batch>,
    /// Values of dictionaries by their id: in a stream a later one may replace another.
    dictionaries: HashMap<i64, Vec<Values>>,
    /// The dictionary of each column.
    ids: Vec<Option<i64>>,
    compressed: bool,
    /// With nested columns, which are made from whole batches.
    nested: Option<SchemaRef>,
}

/// Offsets of the buffers of a batch.
#[derive(Debug)]
struct Batch {
    /// One for each column.
    stored: Vec<Stored>,
    codec: Option<CompressionType>,
    /// Offset of its body, and its length.
    body: Span,
    /// The version of its dictionary that each column uses.
    dictionaries: Vec<usize>,
    /// Its message, where some column is nested.
    description: Vec<u8>,
}

/// A file or stream with its schema read.
#[derive(Clone)]
pub(crate) struct ArrowSchema {
    /// The messages after the schema.
    messages: Messages,
    schema: SchemaRef,
    ids: Vec<(Vec<String>, i64)>,
}

impl ArrowSchema {
    /// Opens a file or stream.
    pub(crate) fn open(file: TableFile) -> Result<ArrowSchema, Wrong> {
        let mut messages = Messages::new(file)?;
        let (schema, ids) = messages.schema()?;
        Ok(ArrowSchema {
            messages,
            schema,
            ids,
        })
    }

    /// The columns there are.
    pub(crate) fn leaves(&self) -> Vec<Leaf> {
        leaves(self.schema.fields())
    }

    /// Reads the batches for these of the columns. It ends early when interrupted.
    pub(crate) fn read(
        self,
        columns: Vec<Column>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<ArrowTable, Wrong> {
        let ArrowSchema {
            messages,
            schema,
            ids,
        } = self;
        guarded(|| ArrowTable::read(messages, &schema, &ids, columns, interrupted))
    }
}

impl ArrowTable {
    fn read(
        mut messages: Messages,
        schema: &SchemaRef,
        ids: &[(Vec<String>, i64)],
        mut columns: Vec<Column>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<ArrowTable, Wrong> {
        let paths: Vec<&[String]> = columns.iter().map(|column| &column.path[..]).collect();
        let id_of = |path: &[String]| ids.iter().find(|(of, _)| of == path).map(|(_, id)| *id);
        let mut table = ArrowTable {
            file: messages.file.clone(),
            types: paths
                .iter()
                .map(|path| type_at(schema.fields(), path).ok_or_else(|| no_message("its schema")))
                .collect::<Result<_, Wrong>>()?,
            ids: paths.iter().map(|path| id_of(path)).collect(),
            firsts: vec![0],
            batches: Vec::new(),
            dictionaries: HashMap::new(),
            compressed: false,
            nested: { columns.iter() }
                .any(|column| column.kind.is_made())
                .then(|| SchemaRef::clone(schema)),
            columns: Vec::new(),
        };
        let mut records = 0u64;
        let mut nulls = vec![false; columns.len()];
        while let Some(message) = messages.next()? {
            if interrupted() {
                break;
            }
            let number = table.batches.len();
            let what = || no_message(&format!("batch {number}"));
            let root = guarded(|| root_as_message(&message.description).map_err(|_| what()))?;
            match root.header_type() {
                MessageHeader::RecordBatch => {
                    let batch = root.header_as_record_batch().ok_or_else(what)?;
                    let rows = u64::try_from(batch.length()).map_err(|_| what())?;
                    let sum = records
                        .checked_add(rows)
                        .filter(|sum| *sum <= i64::MAX as u64);
                    records = sum.ok_or_else(what)?;
                    if rows == 0 {
                        continue;
                    }
                    let spans =
                        Spans::new(&batch, message.body, root.version() < MetadataVersion::V5)
                            .ok_or_else(what)?;
                    let codec = spans.codec;
                    let stored = walk(schema.fields(), &paths, spans).ok_or_else(what)?;
                    for (nulls, stored) in nulls.iter_mut().zip(&stored) {
                        *nulls |= stored.has_nulls();
                    }
                    table.compressed |= codec.is_some();
                    let version = |id: &Option<i64>| {
                        let known = id.and_then(|id| table.dictionaries.get(&id));
                        known.map_or(0, |known| known.len().saturating_sub(1))
                    };
                    let dictionaries = table.ids.iter().map(version).collect();
                    table.batches.push(Batch {
                        stored,
                        codec,
                        body: message.body,
                        dictionaries,
                        description: match table.nested {
                            Some(_) => message.description.clone(),
                            None => Vec::new(),
                        },
                    });
                    table.firsts.push(records);
                }
                MessageHeader::DictionaryBatch => {
                    let batch = root.header_as_dictionary_batch().ok_or_else(what)?;
                    table.add_dictionary(batch, message.body)?;
                }
                // Tensors are not records.
                _ => {}
            }
        }
        for (column, (id, nulls)) in columns.iter_mut().zip(table.ids.iter().zip(nulls)) {
            let of_dictionary = id.and_then(|id| table.dictionaries.get(&id));
            let mut of_dictionary = of_dictionary.into_iter().flatten();
            let inner = of_dictionary.any(|values| values.nulls.is_some());
            column.nullable = nulls || inner;
        }
        table.columns = columns;
        Ok(table)
    }

    /// Reads the values of a dictionary that some column needs.
    fn add_dictionary(
        &mut self,
        message: arrow_ipc::DictionaryBatch<'_>,
        body: Span,
    ) -> Result<(), Wrong> {
        let id = message.id();
        let Some(column) = self.ids.iter().position(|of| *of == Some(id)) else {
            return Ok(());
        };
        let what = || no_message(&format!("dictionary {id}"));
        let batch = message.data().ok_or_else(what)?;
        let rows = usize::try_from(batch.length()).map_err(|_| what())?;
        let DataType::Dictionary(_, value) = &self.types[column] else {
            return Err(what());
        };
        let value = value.as_ref().clone();
        let kind = kind_of(&value).ok_or_else(what)?;
        let fields = Fields::from(vec![arrow_schema::Field::new("value", value.clone(), true)]);
        let spans = Spans::new(&batch, body, false).ok_or_else(what)?;
        let codec = spans.codec;
        let path = ["value".to_owned()];
        let stored = walk(&fields, &[&path], spans).ok_or_else(what)?;
        let run = Run {
            stored: &stored[0],
            codec,
            from: 0,
            rows,
            dictionary: None,
        };
        let values = read_runs(&self.file, &value, &kind, &[run])?.remove(0);
        let known = self.dictionaries.entry(id).or_default();
        match known.pop() {
            // Keys of earlier batches keep their meaning.
            Some(before) if message.isDelta() => {
                known.push(before.followed_by(&values, &kind).ok_or_else(what)?)
            }
            before => {
                known.extend(before);
                known.push(values);
            }
        }
        Ok(())
    }

    /// The runs of one column.
    fn runs(&self, column: usize, rows: &[Range<u64>]) -> Vec<Run<'_>> {
        let run = |rows: &Range<u64>| {
            let group = group_of(&self.firsts, rows.start);
            let batch = &self.batches[group];
            Run {
                stored: &batch.stored[column],
                codec: batch.codec,
                from: (rows.start - self.firsts[group]) as usize,
                rows: (rows.end - rows.start) as usize,
                dictionary: self.ids[column].and_then(|id| {
                    let version = batch.dictionaries[column];
                    self.dictionaries.get(&id)?.get(version)
                }),
            }
        };
        rows.iter().map(run).collect()
    }

    /// The schema, if this column is nested.
    fn nested_in(&self, column: usize) -> Option<&SchemaRef> {
        { self.nested.as_ref() }.filter(|_| self.columns[column].kind.is_made())
    }

    /// The values of a nested column in some records of one batch, which is read whole.
    fn made(&self, schema: &SchemaRef, column: usize, rows: &Range<u64>) -> Result<Values, Wrong> {
        let group = group_of(&self.firsts, rows.start);
        let batch = &self.batches[group];
        let column = &self.columns[column];
        guarded(|| {
            let wrong = || unfit(&column.name);
            let message = root_as_message(&batch.description).map_err(|_| wrong())?;
            let stored = message.header_as_record_batch().ok_or_else(wrong)?;
            let place = schema.index_of(&column.path[0]).map_err(|_| wrong())?;
            let span = (batch.body.offset, batch.body.length);
            let body = Buffer::from_vec(self.file.read(&[span])?.remove(0));
            let read = arrow_ipc::reader::read_record_batch(
                &body,
                stored,
                SchemaRef::clone(schema),
                &HashMap::new(),
                Some(&[place]),
                &message.version(),
            );
            let read = read.map_err(|error| {
                Wrong::Damaged(format!(
                    "column {} does not hold together ({error})",
                    column.name
                ))
            })?;
            let from = (rows.start - self.firsts[group]) as usize;
            let count = (rows.end - rows.start) as usize;
            let part = (from + count <= read.num_rows()).then(|| read.slice(from, count));
            values_at(&part.ok_or_else(wrong)?, column).ok_or_else(wrong)
        })
    }
}

impl Table for ArrowTable {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn groups(&self) -> &[u64] {
        &self.firsts
    }

    fn divides(&self) -> bool {
        self.in_place()
    }

    fn in_place(&self) -> bool {
        !self.compressed && self.nested.is_none()
    }

    fn read(
        &self,
        columns: &[usize],
        rows: Range<u64>,
        take: &mut TakeValues<'_>,
    ) -> Result<(), Wrong> {
        let count = (rows.end - rows.start) as usize;
        let mut gathered = self.gather(columns, &[rows])?;
        Ok(take(&gathered.remove(0), count)?)
    }

    fn lengths(
        &self,
        column: usize,
        rows: Range<u64>,
        take: &mut dyn FnMut(usize),
    ) -> Result<(), Wrong> {
        if let Some(schema) = self.nested_in(column) {
            let values = self.made(schema, column, &rows)?;
            if let Items::Variable(starts, _) = &values.items {
                starts.windows(2).for_each(|run| take(run[1] - run[0]));
            }
            return Ok(());
        }
        let data_type = &self.types[column];
        let run = self.runs(column, &[rows]).remove(0);
        guarded(|| {
            let head = heads(&self.file, data_type, &self.columns[column].kind, &[run])?.remove(0);
            let wrong = || unfit(&self.columns[column].name);
            match head {
                Head::Starts(starts) => {
                    let width = self.columns[column].kind.element_bytes();
                    starts
                        .windows(2)
                        .for_each(|run| take((run[1] - run[0]) * width));
                }
                Head::Views(raw) => {
                    for view in views(&raw) {
                        take(match view.ok_or_else(wrong)? {
                            View::Inline(text) => text.len(),
                            View::Elsewhere { length, .. } => length,
                        });
                    }
                }
                Head::Keys(keys) => {
                    let dictionary = run.dictionary.ok_or_else(wrong)?;
                    let nulls = nulls_of(&self.file, &[run])?.remove(0);
                    for (i, key) in keys.into_iter().enumerate() {
                        // A record without a value still has some key.
                        let has = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(i));
                        let key = key.filter(|_| has);
                        let length = |key| {
                            let value = dictionary.get(key, 0).ok_or_else(wrong)?;
                            Ok::<_, Wrong>(if dictionary.has(key) { value.len() } else { 0 })
                        };
                        take(key.map_or(Ok(0), length)?);
                    }
                }
                Head::Fixed(_) => {}
            }
            Ok(())
        })
    }

    fn gather(&self, columns: &[usize], runs: &[Range<u64>]) -> Result<Vec<Vec<Values>>, Wrong> {
        guarded(|| {
            let mut gathered: Vec<Vec<Values>> = runs.iter().map(|_| Vec::new()).collect();
            for &i in columns {
                if let Some(schema) = self.nested_in(i) {
                    for (values, rows) in gathered.iter_mut().zip(runs) {
                        values.push(self.made(schema, i, rows)?);
                    }
                    continue;
                }
                let (column, runs) = (&self.columns[i], self.runs(i, runs));
                let read = read_runs(&self.file, &self.types[i], &column.kind, &runs);
                let read = read.map_err(|wrong| match wrong {
                    Wrong::Damaged(what) => {
                        Wrong::Damaged(format!("column {}: {what}", column.name))
                    }
                    other => other,
                })?;
                for (values, of_run) in gathered.iter_mut().zip(read) {
                    values.push(of_run);
                }
            }
            Ok(gathered)
        })
    }

    fn group_bytes(&self) -> f64 {
        let bytes = self.batches.iter().map(|batch| batch.body.length as f64);
        bytes.sum::<f64>() / self.batches.len() as f64
    }
}

fn unfit(column: &str) -> Wrong {
    Wrong::Damaged(format!("column {column} does not hold together"))
}

/// The kind of a dictionary's values.
fn kind_of(data_type: &DataType) -> Option<ColumnKind> {
    let field = arrow_schema::Field::new("value", data_type.clone(), true);
    let column = leaves(&Fields::from(vec![field])).pop()?;
    column.ok().map(|column| column.kind)
}

fn type_at(fields: &Fields, path: &[String]) -> Option<DataType> {
    let (name, path) = path.split_first()?;
    let field = fields.iter().find(|field| field.name() == name)?;
    match (field.data_type(), path.is_empty()) {
        (other, true) => Some(other.clone()),
        (DataType::Struct(fields), false) => type_at(fields, path),
        _ => None,
    }
}

/// Some records of a column of a batch.
#[derive(Clone, Copy)]
struct Run<'a> {
    stored: &'a Stored,
    codec: Option<CompressionType>,
    from: usize,
    rows: usize,
    /// The dictionary that its keys refer to.
    dictionary: Option<&'a Values>,
}

/// The offsets of a run's values, or the values themselves.
enum Head {
    Fixed(Buffer),
    Starts(Vec<usize>),
    Views(Buffer),
    Keys(Vec<Option<usize>>),
}

/// Reads the values of runs of one column, all at once; for values of different lengths, their offsets first.
fn read_runs(
    file: &TableFile,
    data_type: &DataType,
    kind: &ColumnKind,
    runs: &[Run<'_>],
) -> Result<Vec<Values>, Wrong> {
    let unfit = || Wrong::Damaged("its buffers do not hold together".into());
    let nulls = nulls_of(file, runs)?;
    let heads = heads(file, data_type, kind, runs)?;
    let mut wanted = Vec::new();
    for (run, head) in runs.iter().zip(&heads) {
        let data = |buffer: usize, from: usize, to: usize| {
            let span = *run.stored.data.get(buffer).ok_or_else(unfit)?;
            Ok::<_, Wrong>(Want::bytes(span, run.codec, from, to))
        };
        match (head, kind) {
            (Head::Starts(starts), ColumnKind::List { element, .. }) => {
                let (from, to) = (starts[0], starts[starts.len() - 1]);
                wanted.push(Want::bits(
                    *run.stored.data.first().ok_or_else(unfit)?,
                    run.codec,
                    from,
                    to,
                    element.bits(),
                ));
                if let Some(span) = run.stored.inner {
                    wanted.push(Want::bits(span, run.codec, from, to, 1));
                }
            }
            (Head::Starts(starts), _) => wanted.push(data(0, starts[0], starts[starts.len() - 1])?),
            (Head::Views(raw), _) => {
                for (buffer, bounds) in bounds_of(raw, run.stored.data.len())
                    .ok_or_else(unfit)?
                    .into_iter()
                    .enumerate()
                {
                    wanted.push(data(buffer, bounds.start, bounds.end)?);
                }
            }
            _ => {}
        }
    }
    let mut fetched = fetch(file, &wanted)?.into_iter();
    let mut next = || fetched.next().ok_or_else(unfit);
    let mut all = Vec::with_capacity(runs.len());
    for ((run, head), nulls) in runs.iter().zip(heads).zip(nulls) {
        let values = match (head, kind) {
            (Head::Fixed(bytes), _) => Some(Values {
                nulls,
                items: Items::Fixed(bytes),
            }),
            (Head::Starts(starts), ColumnKind::List { element, .. }) => {
                let count = starts[starts.len() - 1] - starts[0];
                let skip = starts[0] * element.bits() % 8;
                let bytes = numbers(*element, &next()?, skip, count).ok_or_else(unfit)?;
                let inner = match run.stored.inner {
                    Some(_) => Some(bits(next()?, starts[0] % 8, count).ok_or_else(unfit)?),
                    None => None,
                };
                Values::of_list(starts, bytes, inner, nulls, *element)
            }
            (Head::Starts(mut starts), _) => {
                let begin = starts[0];
                starts.iter_mut().for_each(|start| *start -= begin);
                Some(Values {
                    nulls,
                    items: Items::Variable(starts, next()?),
                })
            }
            (Head::Views(raw), _) => {
                let bounds = bounds_of(&raw, run.stored.data.len()).ok_or_else(unfit)?;
                let buffers = bounds.iter().map(|bounds| Ok((next()?, bounds.start)));
                let buffers = buffers.collect::<Result<Vec<(Buffer, usize)>, Wrong>>()?;
                let buffers: Vec<(&[u8], usize)> = buffers
                    .iter()
                    .map(|(buffer, from)| (buffer.as_slice(), *from))
                    .collect();
                viewed(&raw, &buffers).map(|items| Values { nulls, items })
            }
            (Head::Keys(mut keys), _) => {
                if let Some(nulls) = nulls {
                    let valid = keys.iter_mut().zip(nulls.iter());
                    valid
                        .filter(|(_, has)| !has)
                        .for_each(|(key, _)| *key = None);
                }
                Values::of_keys(run.dictionary.ok_or_else(unfit)?, &keys, kind)
            }
        };
        all.push(values.ok_or_else(unfit)?);
    }
    Ok(all)
}

/// The range of each of `buffers` buffers that views use.
fn bounds_of(raw: &[u8], buffers: usize) -> Option<Vec<Range<usize>>> {
    let mut bounds: Vec<Range<usize>> = vec![0..0; buffers];
    for view in views(raw) {
        if let View::Elsewhere { buffer, at, length } = view? {
            let bounds = bounds.get_mut(buffer)?;
            let end = at.checked_add(length)?;
            *bounds = if bounds.start == bounds.end {
                at..end
            } else {
                bounds.start.min(at)..bounds.end.max(end)
            };
        }
    }
    Some(bounds)
}

/// Marks the records of each run that have a value.
fn nulls_of(file: &TableFile, runs: &[Run<'_>]) -> Result<Vec<Option<NullBuffer>>, Wrong> {
    let mut wanted = Vec::new();
    for run in runs {
        for (span, each) in &run.stored.validity {
            let (from, to) = (run.from * each, (run.from + run.rows) * each);
            wanted.push(Want::bits(*span, run.codec, from, to, 1));
        }
    }
    let mut fetched = fetch(file, &wanted)?.into_iter();
    let unfit = || Wrong::Damaged("its marks of missing values do not hold together".into());
    let mut all = Vec::with_capacity(runs.len());
    for run in runs {
        let mut nulls = None;
        for (_, each) in &run.stored.validity {
            let (from, count) = (run.from * each, run.rows * each);
            let raw = fetched.next().ok_or_else(unfit)?;
            let inner = bits(raw, from % 8, count).ok_or_else(unfit)?;
            nulls = with_inner(nulls, Some(inner), *each, run.rows);
        }
        all.push(nulls);
    }
    Ok(all)
}

/// `count` marks from bit `skip` on.
fn bits(raw: Buffer, skip: usize, count: usize) -> Option<NullBuffer> {
    let fits = (skip + count).div_ceil(8) <= raw.len();
    fits.then(|| NullBuffer::new(BooleanBuffer::new(raw, skip, count)))
}

fn heads(
    file: &TableFile,
    data_type: &DataType,
    kind: &ColumnKind,
    runs: &[Run<'_>],
) -> Result<Vec<Head>, Wrong> {
    let widths = Widths::from_type(data_type, kind);
    let wanted: Vec<Want> = runs
        .iter()
        .map(|run| {
            let (from, to) = match widths {
                Widths::Values { count, .. } => (
                    run.from.saturating_mul(count),
                    (run.from + run.rows).saturating_mul(count),
                ),
                // One more: the end of the last value.
                Widths::Starts { .. } => (run.from, run.from + run.rows + 1),
                Widths::Views | Widths::Keys(_) => (run.from, run.from + run.rows),
            };
            Want::bits(run.stored.head, run.codec, from, to, widths.bits())
        })
        .collect();
    let unfit = || Wrong::Damaged("its values are not as many as its records".into());
    let fetched = fetch(file, &wanted)?.into_iter().zip(runs);
    let head = |(raw, run): (Buffer, &Run<'_>)| match widths {
        Widths::Values { element, count } => {
            let first = run.from * count * element.bits() % 8;
            numbers(element, &raw, first, run.rows * count).map(Head::Fixed)
        }
        Widths::Starts { wide } => starts(&raw, wide, 0, run.rows).map(Head::Starts),
        Widths::Views => Some(Head::Views(raw)),
        Widths::Keys(element) => {
            let keys = numbers(element, &raw, 0, run.rows)?;
            Some(Head::Keys(keys_of(&keys, element, run.rows, None)))
        }
    };
    fetched
        .map(|fetched| head(fetched).ok_or_else(unfit))
        .collect()
}

/// Some bytes of a buffer.
struct Want {
    span: Span,
    codec: Option<CompressionType>,
    from: u64,
    to: u64,
}

impl Want {
    fn bytes(span: Span, codec: Option<CompressionType>, from: usize, to: usize) -> Want {
        Want {
            span,
            codec,
            from: from as u64,
            to: to as u64,
        }
    }

    /// The bytes with items `from` to `to`, which have `bits` bits each.
    fn bits(
        span: Span,
        codec: Option<CompressionType>,
        from: usize,
        to: usize,
        bits: usize,
    ) -> Want {
        let (from, to) = (from as u64, to as u64);
        Want {
            span,
            codec,
            from: from.saturating_mul(bits as u64) / 8,
            to: to.saturating_mul(bits as u64).div_ceil(8),
        }
    }

    /// Whether it is read whole, because it is compressed.
    fn is_whole(&self) -> bool {
        self.codec.is_some()
    }
}

/// Reads parts of buffers as one batch.
fn fetch(file: &TableFile, wanted: &[Want]) -> Result<Vec<Buffer>, Wrong> {
    let mut ranges = Vec::with_capacity(wanted.len());
    for want in wanted {
        let within = want.is_whole() || want.to <= want.span.length || want.to == want.from;
        if !within {
            return Err(Wrong::Damaged(format!(
                "{} bytes of it are needed, and {} are there",
                want.to, want.span.length
            )));
        }
        ranges.push(if want.is_whole() {
            (want.span.offset, want.span.length)
        } else if want.to == want.from {
            (want.span.offset, 0)
        } else {
            (want.span.offset + want.from, want.to - want.from)
        });
    }
    let read = file.read(&ranges)?.into_iter().zip(wanted);
    let part = |(bytes, want): (Vec<u8>, &Want)| {
        let Some(codec) = want.codec else {
            return Ok(Buffer::from_vec(bytes));
        };
        let bytes = Buffer::from_vec(decompressed(&bytes, codec)?);
        if want.to <= bytes.len() as u64 {
            Ok(bytes.slice_with_length(want.from as usize, (want.to - want.from) as usize))
        } else if want.to == want.from {
            Ok(Buffer::from_vec(Vec::<u8>::new()))
        } else {
            Err(Wrong::Damaged("a buffer of it ends early".into()))
        }
    };
    read.map(part).collect()
}

/// A decompressed buffer: its length comes first, -1 if it is not compressed.
fn decompressed(bytes: &[u8], codec: CompressionType) -> Result<Vec<u8>, Wrong> {
    let Some((length, packed)) = bytes.split_first_chunk::<8>() else {
        return Ok(Vec::new());
    };
    let length = i64::from_le_bytes(*length);
    if length == -1 {
        return Ok(packed.to_vec());
    }
    let wrong = |what: &dyn std::fmt::Display| {
        Wrong::Damaged(format!("a buffer of it cannot be decompressed ({what})"))
    };
    let length = u64::try_from(length).map_err(|_| wrong(&"its length is negative"))?;
    let mut whole = Vec::new();
    let read = match codec {
        CompressionType::LZ4_FRAME => {
            let packed = lz4_flex::frame::FrameDecoder::new(packed);
            packed.take(length).read_to_end(&mut whole)
        }
        CompressionType::ZSTD => zstd::stream::read::Decoder::with_buffer(packed)
            .and_then(|packed| packed.take(length).read_to_end(&mut whole)),
        other => return Err(wrong(&format!("its codec is {other:?}"))),
    };
    read.map_err(|error| wrong(&error))?;
    if whole.len() as u64 == length {
        Ok(whole)
    } else {
        Err(wrong(&"it ends early"))
    }
}

impl Widths {
    fn from_type(data_type: &DataType, kind: &ColumnKind) -> Widths {
        match (data_type, kind) {
            (DataType::Dictionary(key, _), _) => {
                Widths::Keys(Element::of_keys(key).unwrap_or(Element::I32))
            }
            (_, ColumnKind::Numbers { element, dims }) => Widths::Values {
                element: *element,
                count: dims.iter().product(),
            },
            (DataType::Utf8View | DataType::BinaryView, _) => Widths::Views,
            (DataType::LargeUtf8 | DataType::LargeBinary | DataType::LargeList(_), _) => {
                Widths::Starts { wide: true }
            }
            _ => Widths::Starts { wide: false },
        }
    }
}
