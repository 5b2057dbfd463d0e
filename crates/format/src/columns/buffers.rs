//! Assigns the buffers of an Arrow batch to columns.
//!
//! A batch lists the buffers of all its columns in the order of the schema, those of a column before those of its
//! children, without naming them: their count follows from the types.

use arrow_ipc::{BodyCompressionMethod, CompressionType, RecordBatch};
use arrow_schema::{DataType, Fields, UnionMode};

use crate::columns::column::Element;

/// A stretch of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Offsets of the buffers of one column of one batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    /// Validity bits: their range, and how many there are a record. Empty if every record has a value.
    pub(crate) validity: Vec<(Span, usize)>,
    /// Validity bits of the items of lists.
    pub(crate) inner: Option<Span>,
    /// Values of one length; otherwise their offsets, views or keys.
    pub(crate) head: Span,
    /// Values that the head points to.
    pub(crate) data: Vec<Span>,
}

impl Stored {
    pub(crate) fn has_nulls(&self) -> bool {
        !self.validity.is_empty() || self.inner.is_some()
    }
}

/// The items of a column's head.
#[derive(Clone, Copy)]
pub(crate) enum Widths {
    /// This many numbers a record.
    Values {
        element: Element,
        count: usize,
    },
    /// Offsets of 64 bits, or of 32.
    Starts {
        wide: bool,
    },
    Views,
    Keys(Element),
}

impl Widths {
    /// Bits of an item.
    pub(crate) fn bits(self) -> usize {
        match self {
            Widths::Values { element, .. } | Widths::Keys(element) => element.bits(),
            Widths::Starts { wide } => 32 << u32::from(wide),
            Widths::Views => 128,
        }
    }
}

/// The buffers of a batch in their order, and whether each column has nulls.
pub(crate) struct Spans {
    buffers: std::vec::IntoIter<Span>,
    /// Which of the columns have nulls.
    nulls: std::vec::IntoIter<bool>,
    /// How many buffers each column of views has.
    variadic: std::vec::IntoIter<usize>,
    pub(crate) codec: Option<CompressionType>,
    /// Unions have a validity buffer, too.
    marks_unions: bool,
}

impl Spans {
    /// `None` if the batch's description is invalid.
    pub(crate) fn new(batch: &RecordBatch<'_>, body: Span, marks_unions: bool) -> Option<Spans> {
        let span = |buffer: &arrow_ipc::Buffer| {
            let offset = u64::try_from(buffer.offset()).ok()?;
            let length = u64::try_from(buffer.length()).ok()?;
            let end = offset.checked_add(length)?;
            (end <= body.length).then_some(Span {
                offset: body.offset + offset,
                length,
            })
        };
        let buffers = batch.buffers()?.iter().map(span);
        let buffers: Vec<Span> = buffers.collect::<Option<_>>()?;
        let nulls = batch.nodes()?.iter().map(|node| node.null_count() != 0);
        let counts = batch.variadicBufferCounts().into_iter().flatten();
        let counts = counts.map(|count| usize::try_from(count).ok());
        let counts: Vec<usize> = counts.collect::<Option<_>>()?;
        let codec = match batch.compression() {
            Some(found) if found.method() != BodyCompressionMethod::BUFFER => return None,
            found => found.map(|found| found.codec()),
        };
        Some(Spans {
            buffers: buffers.into_iter(),
            nulls: nulls.collect::<Vec<bool>>().into_iter(),
            variadic: counts.into_iter(),
            codec,
            marks_unions,
        })
    }

    /// The validity bits of a column; none if it has no nulls.
    fn validity(&mut self) -> Option<Option<Span>> {
        let has_nulls = self.nulls.next()?;
        let span = self.buffers.next()?;
        Some(has_nulls.then_some(span))
    }
}

/// The buffers of the columns at `paths`, in their order; `None` if the batch does not fit the schema.
pub(crate) fn walk(fields: &Fields, paths: &[&[String]], mut spans: Spans) -> Option<Vec<Stored>> {
    let mut found: Vec<Option<Stored>> = vec![None; paths.len()];
    walk_fields(fields, &mut Vec::new(), &[], paths, &mut spans, &mut found)?;
    found.into_iter().collect()
}

fn walk_fields(
    fields: &Fields,
    path: &mut Vec<String>,
    outer: &[Span],
    paths: &[&[String]],
    spans: &mut Spans,
    found: &mut [Option<Stored>],
) -> Option<()> {
    for field in fields {
        path.push(field.name().clone());
        if let DataType::Struct(inner) = field.data_type() {
            let mut marks = outer.to_vec();
            marks.extend(spans.validity()?);
            walk_fields(inner, path, &marks, paths, spans, found)?;
        } else {
            let mut stored = Stored {
                validity: outer.iter().map(|span| (*span, 1)).collect(),
                ..Stored::default()
            };
            walk_type(field.data_type(), 1, spans, &mut stored)?;
            if let Some(wanted) = paths.iter().position(|wanted| *wanted == &path[..]) {
                found[wanted] = Some(stored);
            }
        }
        path.pop();
    }
    Some(())
}

/// Takes the buffers of a column of this type, which has `each` values a record.
fn walk_type(
    data_type: &DataType,
    each: usize,
    spans: &mut Spans,
    stored: &mut Stored,
) -> Option<()> {
    let mut ignored = Stored::default();
    match data_type {
        DataType::Null => {
            spans.nulls.next()?;
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
            stored
                .validity
                .extend(spans.validity()?.map(|span| (span, each)));
            stored.head = spans.buffers.next()?;
            stored.data.push(spans.buffers.next()?);
        }
        DataType::Utf8View | DataType::BinaryView => {
            stored
                .validity
                .extend(spans.validity()?.map(|span| (span, each)));
            stored.head = spans.buffers.next()?;
            for _ in 0..spans.variadic.next()? {
                stored.data.push(spans.buffers.next()?);
            }
        }
        DataType::List(item) | DataType::LargeList(item) => {
            stored
                .validity
                .extend(spans.validity()?.map(|span| (span, each)));
            stored.head = spans.buffers.next()?;
            let mut items = Stored::default();
            walk_type(item.data_type(), 1, spans, &mut items)?;
            stored.inner = items.validity.first().map(|(span, _)| *span);
            stored.data.push(items.head);
        }
        DataType::FixedSizeList(item, length) => {
            stored
                .validity
                .extend(spans.validity()?.map(|span| (span, each)));
            let each = each.checked_mul(usize::try_from(*length).ok()?)?;
            walk_type(item.data_type(), each, spans, stored)?;
        }
        DataType::ListView(item) | DataType::LargeListView(item) => {
            spans.validity()?;
            spans.buffers.next()?;
            spans.buffers.next()?;
            walk_type(item.data_type(), 1, spans, &mut ignored)?;
        }
        DataType::Map(item, _) => {
            spans.validity()?;
            spans.buffers.next()?;
            walk_type(item.data_type(), 1, spans, &mut ignored)?;
        }
        DataType::Struct(fields) => {
            spans.validity()?;
            for field in fields {
                walk_type(field.data_type(), 1, spans, &mut ignored)?;
            }
        }
        DataType::Union(fields, mode) => {
            spans.nulls.next()?;
            if spans.marks_unions {
                spans.buffers.next()?;
            }
            spans.buffers.next()?;
            if *mode == UnionMode::Dense {
                spans.buffers.next()?;
            }
            for (_, field) in fields.iter() {
                walk_type(field.data_type(), 1, spans, &mut ignored)?;
            }
        }
        DataType::RunEndEncoded(ends, values) => {
            spans.nulls.next()?;
            walk_type(ends.data_type(), 1, spans, &mut ignored)?;
            walk_type(values.data_type(), 1, spans, &mut ignored)?;
        }
        // Validity bits and values; keys of a dictionary are values.
        _ => {
            stored
                .validity
                .extend(spans.validity()?.map(|span| (span, each)));
            stored.head = spans.buffers.next()?;
        }
    }
    Some(())
}
