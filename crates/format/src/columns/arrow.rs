//! Arrow's own files and streams: batches of buffers.
//!
//! Both are a sequence of messages. A stream is walked from its start, a file by the list in its footer; either costs
//! one small read a batch. Unless it is compressed, a batch has the same layout as in memory, so any record can be read
//! in place.

use std::collections::HashMap;
use std::ops::Range;

use arrow_buffer::Buffer;
use arrow_ipc::{CompressionType, MessageHeader, MetadataVersion, root_as_message};
use arrow_schema::{DataType, Fields, SchemaRef};

use crate::columns::buffers::{Span, Spans, Stored, walk};
use crate::columns::column::{Column, ColumnKind, Leaf, leaves};
use crate::columns::messages::{Messages, no_message};
use crate::columns::parquet::values_at;
use crate::columns::runs::{Head, Run, check_packed, heads, nulls_of, read_runs};
use crate::columns::table::{Table, TableFile, TakeValues, Wrong, group_of, guarded};
use crate::columns::values::{Items, Values, View, views};

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
            let body = self.file.read(&[span])?.remove(0);
            if let Some(codec) = batch.codec {
                check_packed(&body, &stored, codec)?;
            }
            let body = Buffer::from_vec(body);
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
