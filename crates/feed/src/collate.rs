//! Puts the parts of a batch together: joins them, applies the policy for bad examples, pads.

use std::ops::Range;
use std::sync::Arc;

use crate::error::FeedError;
use bytes::BytesMut;
use pelton_batch::{Array, Batch, Buffer, DType, Fields, Layout, Shape};

use crate::building::{BadExample, Building, HeldExample, Made, Piece, Places, SampleSource};
use crate::collation::Collate;
use crate::options::BadExamples;
use crate::sample::{Sample, Value};
use crate::shared::Shared;
use crate::stages::{LengthsOf, TARGET_TOKENS, is_box, is_picture};

/// Maps the samples of a batch to its examples.
struct Kept {
    /// For each example of the batch: its sample, and the example that the sample belongs to.
    from: Vec<usize>,
    /// Samples of each packed row.
    row_samples: Vec<u32>,
    bad: Vec<BadExample>,
}

/// The finished batch; called by the thread that handed in its last part.
pub(crate) fn put_together(shared: &Shared, building: &Building) -> Result<Made, FeedError> {
    let place = building.head.place;
    let _span = tracing::debug_span!("collate", epoch = place.epoch, step = place.step).entered();
    let (pieces, failures) = building.take_parts();
    let rows = building.rows.write().expect("no reader panics").take();
    let kept = keep(shared, building, failures);
    if let Some(rows) = rows {
        shared.recycle(rows);
    }
    if let Some(fatal) = building.take_fatal() {
        return Err(fatal);
    }
    let kept = kept?;
    let mut fields = Fields::default();
    let mut samples = Vec::new();
    let mut wholes: Vec<Option<BytesMut>> = (0..building.places.len()).map(|_| None).collect();
    for piece in pieces {
        let Piece {
            places,
            samples: of_piece,
        } = piece;
        for (whole, part) in wholes.iter_mut().zip(places) {
            // Parts of one buffer: nothing is copied.
            match whole {
                Some(whole) => whole.unsplit(part),
                None => *whole = Some(part),
            }
        }
        samples.extend(of_piece);
    }
    for (field, whole) in wholes.into_iter().enumerate() {
        let place = |i: usize| building.places.range(field, &(i..i + 1));
        let whole = compact(whole.unwrap_or_default(), &kept.from, place);
        let (name, dtype, shape) = match &building.places {
            Places::Fixed { fields, .. } => {
                let field = &fields[field];
                let shape = Shape::stacked(kept.from.len(), &field.dims);
                (&field.name, field.dtype, shape)
            }
            Places::Offsets { name, offsets } => {
                let lengths = kept.from.iter().map(|&i| offsets[i + 1] - offsets[i]);
                (name, DType::U8, Shape::ragged(lengths))
            }
        };
        let buffer = Buffer::new(whole, Some(&shared.pool));
        fields.insert(Arc::clone(name), Array::new(dtype, shape, buffer));
    }
    if building.places.others() {
        let samples: Vec<&Sample<'_>> = kept
            .from
            .iter()
            .map(|&i| samples[i].as_ref().expect("kept samples were made"))
            .collect();
        let put = PutTogether {
            shared,
            building,
            kept: &kept,
        };
        put.collate(&samples, &mut fields)?;
    }
    shared.put_labels(kept.from.iter().map(|&i| building.label(i)), &mut fields);
    Ok(made(building, kept, fields))
}

fn made(building: &Building, kept: Kept, fields: Fields) -> Made {
    let head = &building.head;
    let of = |i: &usize| &building.examples[*i];
    let held = kept.from.iter().filter_map(|i| match &of(i).source {
        SampleSource::Held(held) => Some(HeldExample {
            id: of(i).id,
            position: of(i).position,
            epoch: head.place.epoch,
            held: Arc::clone(held),
        }),
        _ => None,
    });
    Made {
        held: held.collect(),
        fresh: kept.from.iter().filter(|i| of(i).is_fresh()).count() as u64,
        batch: Batch {
            epoch: head.place.epoch,
            step: head.place.step,
            ends_epoch: head.ends_epoch,
            ids: kept.from.iter().map(|i| of(i).id).collect(),
            copies: kept.from.iter().map(|i| of(i).copy).collect(),
            bucket: head.bucket,
            global_examples: head.global_examples,
            fields,
        },
        bad: kept.bad,
    }
}

/// Decides how to fill the slots of examples that failed.
fn keep(
    shared: &Shared,
    building: &Building,
    failures: Vec<(usize, String)>,
) -> Result<Kept, FeedError> {
    let count = building.examples.len();
    let row_draws = &building.head.row_draws;
    if failures.is_empty() {
        return Ok(Kept {
            from: (0..count).collect(),
            row_samples: row_draws.clone(),
            bad: Vec::new(),
        });
    }
    let mut is_bad = vec![false; count];
    let mut bad = Vec::with_capacity(failures.len());
    for (i, problem) in failures {
        let example = &building.examples[i];
        let error = shared.bad_example(example.id, &problem);
        if shared.options.bad_examples == BadExamples::Fail {
            return Err(error);
        }
        is_bad[i] = true;
        bad.push(BadExample {
            id: example.id,
            problem: match example.source {
                SampleSource::Missing(_) | SampleSource::InPlace => problem,
                SampleSource::Row(_) | SampleSource::Held(_) => error.to_string(),
            },
        });
    }
    let replace = matches!(shared.options.bad_examples, BadExamples::Replace { .. });
    let next_good = |i: usize| (0..count).map(|k| (i + k) % count).find(|&k| !is_bad[k]);
    let taken = |i: usize| match (is_bad[i], replace) {
        (false, _) => Some(i),
        (true, true) => next_good(i),
        (true, false) => None,
    };
    let mut from = Vec::with_capacity(count);
    let mut row_samples = Vec::with_capacity(row_draws.len());
    let mut next = 0;
    for &draws in row_draws {
        let before = from.len();
        // A longer sample would not fit the row of a packed one.
        let row = next..next + draws as usize;
        from.extend(row.filter(|&i| !is_bad[i]));
        row_samples.push((from.len() - before) as u32);
        next += draws as usize;
    }
    from.extend((next..count).filter_map(taken));
    Ok(Kept {
        from,
        row_samples,
        bad,
    })
}

/// Moves samples together if some were left out or replaced.
fn compact(mut whole: BytesMut, from: &[usize], place: impl Fn(usize) -> Range<usize>) -> BytesMut {
    if from.iter().enumerate().all(|(to, &i)| to == i) {
        let end = from.last().map_or(0, |&i| place(i).end);
        whole.truncate(end);
        return whole;
    }
    let mut moved = Vec::with_capacity(whole.len());
    for &i in from {
        moved.extend_from_slice(&whole[place(i)]);
    }
    // Replacement samples may be longer than the originals.
    whole.resize(moved.len(), 0);
    whole.copy_from_slice(&moved);
    whole
}

/// One field's samples, for collation.
struct View<'a> {
    value: &'a Value<'a>,
    /// Its elements that are put into the batch.
    piece: Range<usize>,
    dims: Vec<usize>,
}

impl View<'_> {
    /// Writes its elements to their slot.
    fn write(&self, planar: bool, place: &mut [u8]) {
        let written = match self.value {
            Value::Pixels(_) => self.value.write(planar, place),
            value => {
                let size = value.dtype().bytes();
                place.copy_from_slice(
                    &value.bytes()[self.piece.start * size..self.piece.end * size],
                );
                Ok(())
            }
        };
        written.expect("the place has the size of the sample");
    }
}

fn is_numbers(value: &Value<'_>) -> bool {
    matches!(value, Value::Numbers(..) | Value::Floats(..))
}

/// Whether it is an array without elements.
fn is_empty(value: &Value<'_>) -> bool {
    is_numbers(value) && value.bytes().is_empty()
}

/// Fills padding with an element; with zeros if `element` is empty.
fn pad_with(element: &[u8], padding: &mut [u8]) {
    match element {
        [] => padding.fill(0),
        element => { padding.chunks_exact_mut(element.len()) }
            .for_each(|place| place.copy_from_slice(element)),
    }
}

/// Collates samples of any size.
struct PutTogether<'a> {
    shared: &'a Shared,
    building: &'a Building,
    kept: &'a Kept,
}

impl PutTogether<'_> {
    fn collate(&self, samples: &[&Sample<'_>], fields: &mut Fields) -> Result<(), FeedError> {
        let Some(first) = samples.first() else {
            for (name, dtype) in &self.shared.others {
                let array = self.array(BytesMut::new(), *dtype, Shape::ragged(std::iter::empty()));
                fields.insert(Arc::clone(name), array);
            }
            return Ok(());
        };
        for (i, sample) in samples.iter().enumerate() {
            let mut names = sample.iter().map(|(name, _)| name);
            if let Some(more) = names.find(|name| first.get(name).is_none()) {
                let problem = format!("has `{more}`, which the first of the batch lacks");
                return Err(self.error(i, &problem));
            }
        }
        let names = first.iter().map(|(name, _)| &**name);
        let names: Vec<&str> = names
            .chain(self.shared.fixed.iter().map(|field| &*field.name))
            .collect();
        self.shared.stages.collation.check(&names)?;
        // The lengths of packed fields; the first one determines them.
        let mut lengths: Option<(&str, Vec<usize>)> = None;
        for (name, of_first) in first.iter() {
            // Arrays without elements take the type of others.
            let values = || samples.iter().filter_map(|sample| sample.get(name));
            let filled = values().find(|value| !is_empty(value));
            let widest = || values().max_by_key(|value| value.dims().len());
            let of_first = filled.or_else(widest).unwrap_or(of_first);
            let packed = self.is_packed(name, of_first, first);
            if packed {
                let length = |value: &Value<'_>| value.dims().first().copied().unwrap_or(0);
                let of_field = samples
                    .iter()
                    .map(|sample| sample.get(name).map_or(0, length));
                let of_field: Vec<usize> = of_field.collect();
                let (other, known) = lengths.get_or_insert_with(|| (&**name, of_field.clone()));
                if let Some(i) = (0..of_field.len()).find(|&i| of_field[i] != known[i]) {
                    let problem = format!(
                        "has {} elements as `{name}` and {} as `{other}`, and packed fields have the same lengths; collate `{name}` with ragged, and each row keeps the array of each of its samples",
                        of_field[i], known[i]
                    );
                    return Err(self.error(i, &problem));
                }
            }
            let mut views = Vec::with_capacity(samples.len());
            for (i, sample) in samples.iter().enumerate() {
                let Some(value) = sample.get(name) else {
                    return Err(self.error(i, &format!("lacks `{name}`")));
                };
                if is_empty(value) && is_numbers(of_first) && !of_first.dims().is_empty() {
                    let dims = if is_empty(of_first) && is_box(name) {
                        vec![0, 4]
                    } else {
                        [&[0], &of_first.dims()[1..]].concat()
                    };
                    views.push(View {
                        value,
                        piece: 0..0,
                        dims,
                    });
                    continue;
                }
                if value.dtype() != of_first.dtype() || value.dims().len() != of_first.dims().len()
                {
                    let [found, first] = [value, of_first].map(Value::described);
                    let problem = format!(
                        "has {found} as `{name}`, but the first of the batch has {first}; make all of one type and number of dimensions in a function"
                    );
                    return Err(self.error(i, &problem));
                }
                views.push(self.view(i, value, packed)?);
            }
            if packed {
                fields.insert(Arc::clone(name), self.pack(name, &views, of_first.dtype())?);
                continue;
            }
            let head = &self.building.head;
            let length = match &self.shared.stages.lengths_of {
                LengthsOf::Samples if **name == *TARGET_TOKENS => head.second_length,
                LengthsOf::Samples => head.padded_length,
                LengthsOf::Field(field) if field == name => head.padded_length,
                LengthsOf::Field(_) | LengthsOf::Other => None,
            };
            fields.insert(
                Arc::clone(name),
                self.field(name, &views, of_first.dtype(), length)?,
            );
        }
        Ok(())
    }

    /// Whether rows are packed with the samples of a field. Others are carried, one value a sample.
    fn is_packed(&self, name: &str, value: &Value<'_>, sample: &Sample<'_>) -> bool {
        let stages = &self.shared.stages;
        let how = stages.collation.of(name).how;
        let packs = !self.building.head.row_draws.is_empty() && value.dims().len() == 1;
        if !packs || matches!(how, Collate::Stack | Collate::Ragged) {
            return false;
        }
        let is_tokens = |value: &Value<'_>| matches!(value, Value::Tokens(_));
        let is_bytes = matches!(value, Value::Bytes(_));
        match &stages.lengths_of {
            LengthsOf::Samples if sample.iter().any(|(_, value)| is_tokens(value)) => {
                is_tokens(value) || (how == Collate::Pad && !is_bytes)
            }
            LengthsOf::Samples => true,
            LengthsOf::Field(field) => !is_bytes || **field == *name,
            LengthsOf::Other => !is_bytes,
        }
    }

    fn view<'v>(
        &self,
        i: usize,
        value: &'v Value<'v>,
        packed: bool,
    ) -> Result<View<'v>, FeedError> {
        let mut dims = value.dims();
        if matches!(value, Value::Pixels(_)) && self.shared.stages.planar {
            dims.rotate_right(1);
        }
        let elements = dims.iter().product();
        let piece = &self.building.examples[self.kept.from[i]].piece;
        let Some(piece) = piece.as_ref().filter(|_| packed) else {
            let piece = 0..elements;
            return Ok(View { value, piece, dims });
        };
        // One of the pieces of a sample longer than a packed row.
        if piece.end > elements {
            let problem = format!(
                "has the shape {dims:?}, but elements {} to {} of it are to be packed",
                piece.start, piece.end
            );
            return Err(self.error(i, &problem));
        }
        Ok(View {
            value,
            dims: vec![piece.len()],
            piece: piece.clone(),
        })
    }

    /// A field with samples padded to `length`, if there are buckets.
    fn field(
        &self,
        name: &str,
        views: &[View<'_>],
        dtype: DType,
        length: Option<u32>,
    ) -> Result<Array, FeedError> {
        let stages = &self.shared.stages;
        let rule = stages.collation.of(name);
        match rule.how {
            Collate::Pad => self.pad(name, views, dtype, length),
            Collate::Stack => self.stack(views, dtype),
            Collate::Ragged => Ok(self.ragged(views, dtype)),
            Collate::Auto if dtype == DType::U32 => self.pad(name, views, dtype, length),
            Collate::Auto
                if self.shared.one_shape && is_picture(name) && views[0].dims.len() > 1 =>
            {
                self.stack(views, dtype)
            }
            // A number a sample, and what a function has made.
            Collate::Auto if views.iter().all(|view| view.dims.is_empty()) => {
                self.stack(views, dtype)
            }
            Collate::Auto
                if self.shared.is_added(name) && !matches!(views[0].value, Value::Bytes(_)) =>
            {
                self.stack(views, dtype)
            }
            Collate::Auto => Ok(self.ragged(views, dtype)),
        }
    }

    fn stack(&self, views: &[View<'_>], dtype: DType) -> Result<Array, FeedError> {
        let dims = &views[0].dims;
        if let Some(i) = views.iter().position(|view| view.dims != *dims) {
            let shapes = format!(
                "has the shape {:?}, but the first of the batch has {dims:?}; bring them to one shape by `augment` resize:HEIGHTxWIDTH or a crop, or put batches together with `ragged`",
                views[i].dims
            );
            return Err(self.error(i, &shapes));
        }
        let shape = Shape::stacked(views.len(), dims);
        Ok(self.array(self.one_after_another(views, dtype), dtype, shape))
    }

    fn ragged(&self, views: &[View<'_>], dtype: DType) -> Array {
        let mut shape = Shape::ragged(views.iter().map(|view| view.piece.len()));
        if let Layout::Ragged { dims, .. } = &mut shape.layout
            && views.iter().any(|view| view.dims.len() != 1)
        {
            *dims = views.iter().map(|view| view.dims.clone()).collect();
        }
        self.array(self.one_after_another(views, dtype), dtype, shape)
    }

    fn one_after_another(&self, views: &[View<'_>], dtype: DType) -> BytesMut {
        let elements: usize = views.iter().map(|view| view.piece.len()).sum();
        let mut whole = self.shared.pool.take(elements * dtype.bytes());
        let mut rest = &mut whole[..];
        for view in views {
            let (place, others) = rest.split_at_mut(view.piece.len() * dtype.bytes());
            view.write(self.shared.stages.planar, place);
            rest = others;
        }
        whole
    }

    fn pad(
        &self,
        name: &str,
        views: &[View<'_>],
        dtype: DType,
        length: Option<u32>,
    ) -> Result<Array, FeedError> {
        let first = &views[0];
        if first.dims.is_empty() {
            // A number a sample.
            return self.stack(views, dtype);
        }
        let inner = first.dims[1..].to_vec();
        let longest = views.iter().map(|view| view.dims[0]).max().unwrap_or(0);
        let collation = &self.shared.stages.collation;
        let length = collation.padded(length.map_or(longest, |length| length as usize));
        for (i, view) in views.iter().enumerate() {
            if view.dims[1..] != inner {
                let problem = format!(
                    "has the shape {:?}, but the first of the batch has {:?}; only the first dimension is padded",
                    view.dims, first.dims
                );
                return Err(self.error(i, &problem));
            }
            self.check_length(i, view.dims[0], length)?;
        }
        let fill = collation.fill(name, dtype)?;
        let row = length * inner.iter().product::<usize>() * dtype.bytes();
        let mut whole = self.shared.pool.take(row * views.len());
        for (place, view) in whole.chunks_exact_mut(row.max(1)).zip(views) {
            let (own, padding) = place.split_at_mut(view.piece.len() * dtype.bytes());
            view.write(self.shared.stages.planar, own);
            pad_with(&fill, padding);
        }
        let shape = Shape {
            dims: [&[views.len(), length], &inner[..]].concat(),
            layout: Layout::Padded {
                lengths: views.iter().map(|view| view.dims[0] as u32).collect(),
            },
        };
        Ok(self.array(whole, dtype, shape))
    }

    fn pack(&self, name: &str, views: &[View<'_>], dtype: DType) -> Result<Array, FeedError> {
        let length = self.building.head.padded_length.unwrap_or(0) as usize;
        let collation = &self.shared.stages.collation;
        if collation.padded(length) != length {
            return Err(FeedError::Stages(format!(
                "rows of {length} packed elements are not padded to another length; give `buckets` pack a length that is the multiple, or leave it out"
            )));
        }
        let row_bytes = length * dtype.bytes();
        let row_samples = &self.kept.row_samples;
        let mut whole = self.shared.pool.take(row_bytes * row_samples.len());
        pad_with(&collation.fill(name, dtype)?, &mut whole);
        let mut next = 0;
        for (row, &samples) in row_samples.iter().enumerate() {
            let mut at = 0;
            for (i, view) in views.iter().enumerate().skip(next).take(samples as usize) {
                let end = at + view.piece.len() * dtype.bytes();
                self.check_length(i, end / dtype.bytes(), length)?;
                view.write(
                    self.shared.stages.planar,
                    &mut whole[row * row_bytes..][at..end],
                );
                at = end;
            }
            next += samples as usize;
        }
        let shape = Shape {
            dims: vec![row_samples.len(), length],
            layout: Layout::Packed {
                row_samples: row_samples.clone(),
                lengths: views.iter().map(|view| view.dims[0] as u32).collect(),
            },
        };
        Ok(self.array(whole, dtype, shape))
    }

    fn check_length(&self, i: usize, length: usize, room: usize) -> Result<(), FeedError> {
        if length <= room {
            return Ok(());
        }
        let problem = format!(
            "has {length} elements, and its bucket has room for {room}: the buckets were made from other lengths; count lengths with the same tokeniser, or leave buckets out"
        );
        Err(self.error(i, &problem))
    }

    /// An error about the `i`-th sample.
    fn error(&self, i: usize, problem: &str) -> FeedError {
        let example = &self.building.examples[self.kept.from[i]];
        self.shared
            .bad_example(example.id, &format!("its sample {problem}"))
    }

    fn array(&self, bytes: BytesMut, dtype: DType, shape: Shape) -> Array {
        Array::new(dtype, shape, Buffer::new(bytes, Some(&self.shared.pool)))
    }
}
