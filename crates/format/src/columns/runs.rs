//! Values of an Arrow file read from its buffers: of runs of records, all at once.

use std::io::Read;
use std::ops::Range;

use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_ipc::{CompressionType, RecordBatch};
use arrow_schema::DataType;

use crate::columns::buffers::{Span, Stored, Widths};
use crate::columns::column::{ColumnKind, Element};
use crate::columns::table::{TableFile, Wrong};
use crate::columns::values::{
    Items, Values, View, keys_of, numbers, starts, viewed, views, with_inner,
};

/// Some records of a column of a batch.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) stored: &'a Stored,
    pub(super) codec: Option<CompressionType>,
    pub(super) from: usize,
    pub(super) rows: usize,
    /// The dictionary that its keys refer to.
    pub(super) dictionary: Option<&'a Values>,
}

/// The offsets of a run's values, or the values themselves.
pub(super) enum Head {
    Fixed(Buffer),
    Starts(Vec<usize>),
    Views(Buffer),
    Keys(Vec<Option<usize>>),
}

/// Reads the values of runs of one column, all at once; for values of different lengths, their offsets first.
pub(super) fn read_runs(
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
pub(super) fn nulls_of(
    file: &TableFile,
    runs: &[Run<'_>],
) -> Result<Vec<Option<NullBuffer>>, Wrong> {
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

pub(super) fn heads(
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

/// Refuses a body whose buffers do not have the lengths that they declare, before a library allocates these.
pub(super) fn check_packed(
    body: &[u8],
    batch: &RecordBatch<'_>,
    codec: CompressionType,
) -> Result<(), Wrong> {
    /// Bytes that LZ4 can make of one.
    const MOST: u64 = 255;
    for buffer in batch.buffers().into_iter().flatten() {
        let wrong = || Wrong::Damaged("a buffer of it is outside its batch".into());
        let from = usize::try_from(buffer.offset()).map_err(|_| wrong())?;
        let length = usize::try_from(buffer.length()).map_err(|_| wrong())?;
        let end = from.checked_add(length).ok_or_else(wrong)?;
        let part = body.get(from..end).ok_or_else(wrong)?;
        let declared = part
            .first_chunk()
            .map_or(0, |first| i64::from_le_bytes(*first));
        let is_possible = declared < 0 || declared as u64 <= MOST * length as u64;
        if codec != CompressionType::LZ4_FRAME || !is_possible {
            decompressed(part, codec)?;
        }
    }
    Ok(())
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
