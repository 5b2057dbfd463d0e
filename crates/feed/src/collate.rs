//! Puts the parts of a batch together: joins them, applies the policy for bad examples, pads.

use std::sync::Arc;

use bytes::BytesMut;

use crate::batch::{Data, Element, SampleBatch, Shape};
use crate::building::{BadExample, Building, HeldExample, Made, Piece, Slots, Source};
use crate::options::BadExamples;
use crate::shared::Shared;
use crate::stages::{Collate, Sample};
use pelton_fetch::FeedError;

/// Which samples of the batch become which of its examples.
struct Kept {
    /// For each example that is put out: the sample it has, and the example whose sample that is.
    from: Vec<usize>,
    /// Samples of each packed row.
    row_samples: Vec<u32>,
    bad: Vec<BadExample>,
}

/// The finished batch; called by the thread that handed in its last part.
pub(crate) fn put_together(shared: &Shared, building: &Building) -> Result<Made, FeedError> {
    let place = building.head.place;
    let _span = tracing::debug_span!("collate", epoch = place.epoch, step = place.next).entered();
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
    let data = match &building.slots {
        Slots::Fixed {
            bytes,
            shape,
            element,
        } => {
            let whole = compact(join(pieces), &kept.from, |i| i * bytes..(i + 1) * bytes);
            let shape = Shape::Stacked {
                sample: shape.clone(),
            };
            Data::new(whole, *element, shape, &shared.pool)
        }
        Slots::Offsets(offsets) => {
            let whole = compact(join(pieces), &kept.from, |i| offsets[i]..offsets[i + 1]);
            let lengths = kept.from.iter().map(|&i| offsets[i + 1] - offsets[i]);
            let shape = Shape::Ragged {
                offsets: sums(lengths),
            };
            Data::new(whole, Element::U8, shape, &shared.pool)
        }
        Slots::Unknown => {
            let samples = samples_of(pieces);
            let samples: Vec<&Sample> = kept
                .from
                .iter()
                .map(|&i| samples[i].as_deref().expect("kept samples were made"))
                .collect();
            let put = PutTogether {
                shared,
                building,
                from: &kept.from,
                row_samples: &kept.row_samples,
            };
            put.collate(&samples)?
        }
    };
    Ok(made(building, kept, data))
}

fn made(building: &Building, kept: Kept, data: Data) -> Made {
    let head = &building.head;
    let of = |i: &usize| &building.examples[*i];
    let held = kept.from.iter().filter_map(|i| match &of(i).source {
        Source::Held(held) => Some(HeldExample {
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
        batch: SampleBatch {
            epoch: head.place.epoch,
            step: head.place.next,
            end: head.end,
            ends_epoch: head.ends_epoch,
            ids: kept.from.iter().map(|i| of(i).id).collect(),
            labels: kept.from.iter().map(|&i| building.label(i)).collect(),
            copies: kept.from.iter().map(|i| of(i).copy).collect(),
            bucket: head.bucket,
            global_examples: head.global_examples,
            data: Arc::new(data),
        },
        bad: kept.bad,
    }
}

/// Decides what takes the places of examples that failed.
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
                Source::Missing(_) | Source::InPlace => problem,
                Source::Row(_) | Source::Held(_) => error.to_string(),
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

/// The parts of one buffer as that buffer; nothing is copied.
fn join(pieces: Vec<Piece>) -> BytesMut {
    let mut whole: Option<BytesMut> = None;
    for piece in pieces {
        let Piece::Bytes(bytes) = piece else {
            unreachable!("samples of known size are written to their places");
        };
        match &mut whole {
            Some(whole) => whole.unsplit(bytes),
            None => whole = Some(bytes),
        }
    }
    whole.unwrap_or_default()
}

fn samples_of(pieces: Vec<Piece>) -> Vec<Option<Arc<Sample>>> {
    let samples = pieces.into_iter().flat_map(|piece| match piece {
        Piece::Samples(samples) => samples,
        Piece::Bytes(_) => unreachable!("samples of unknown size are handed in apart"),
    });
    samples.collect()
}

/// Moves samples together where some were left out or replaced.
fn compact(
    mut whole: BytesMut,
    from: &[usize],
    place: impl Fn(usize) -> std::ops::Range<usize>,
) -> BytesMut {
    if from.iter().enumerate().all(|(to, &i)| to == i) {
        let end = from.last().map_or(0, |&i| place(i).end);
        whole.truncate(end);
        return whole;
    }
    let mut moved = Vec::with_capacity(whole.len());
    for &i in from {
        moved.extend_from_slice(&whole[place(i)]);
    }
    // Replaced samples may be longer than those they stand for.
    whole.resize(moved.len(), 0);
    whole.copy_from_slice(&moved);
    whole
}

fn sums(lengths: impl Iterator<Item = usize>) -> Vec<u64> {
    let mut sum = 0;
    let mut sums = vec![0];
    sums.extend(lengths.map(|length| {
        sum += length as u64;
        sum
    }));
    sums
}

/// Samples of whatever size to one batch.
struct PutTogether<'a> {
    shared: &'a Shared,
    building: &'a Building,
    from: &'a [usize],
    row_samples: &'a [u32],
}

/// A sample as elements and dimensions.
struct View<'a> {
    bytes: &'a [u8],
    element: Element,
    shape: Vec<usize>,
}

fn view(sample: &Sample) -> View<'_> {
    match sample {
        Sample::Bytes(bytes) => View {
            bytes,
            element: Element::U8,
            shape: vec![bytes.len()],
        },
        Sample::Pixels(pixels) => View {
            bytes: pixels.data(),
            element: Element::U8,
            shape: [
                pixels.height() as usize,
                pixels.width() as usize,
                pixels.channels(),
            ]
            .to_vec(),
        },
        Sample::Tokens(tokens) => View {
            bytes: bytemuck::cast_slice(tokens),
            element: Element::U32,
            shape: vec![tokens.len()],
        },
        Sample::Values { shape, values } => View {
            bytes: bytemuck::cast_slice(values),
            element: Element::F32,
            shape: shape.clone(),
        },
    }
}

impl PutTogether<'_> {
    fn collate(&self, samples: &[&Sample]) -> Result<Data, FeedError> {
        let mut views: Vec<View<'_>> = samples.iter().map(|sample| view(sample)).collect();
        for (i, view) in views.iter_mut().enumerate() {
            if let Some(piece) = &self.building.examples[self.from[i]].piece {
                self.cut(i, view, piece)?;
            }
        }
        let Some(first) = views.first() else {
            let shape = Shape::Ragged { offsets: vec![0] };
            return Ok(self.data(BytesMut::new(), Element::U8, shape));
        };
        let element = first.element;
        for (i, view) in views.iter().enumerate() {
            if view.element != element || view.shape.len() != first.shape.len() {
                return Err(self.error(
                    i,
                    &format!(
                        "is {} where the first of the batch is {}",
                        samples[i].kind(),
                        samples[0].kind()
                    ),
                ));
            }
        }
        match self.shared.stages.collate {
            _ if !self.building.head.row_draws.is_empty() => self.pack(&views),
            Collate::Pad => self.pad(&views),
            Collate::Stack => self.stack(&views),
            Collate::Ragged => Ok(self.ragged(&views)),
            Collate::Auto if element == Element::U32 => self.pad(&views),
            Collate::Auto if self.shared.stages.augment.is_some() => self.stack(&views),
            Collate::Auto => Ok(self.ragged(&views)),
        }
    }

    fn stack(&self, views: &[View<'_>]) -> Result<Data, FeedError> {
        let first = &views[0];
        if let Some(i) = views.iter().position(|view| view.shape != first.shape) {
            let shapes = format!(
                "has the shape {:?} where the first of the batch has {:?}; resize or crop them to one shape, or put batches together with `ragged`",
                views[i].shape, first.shape
            );
            return Err(self.error(i, &shapes));
        }
        let shape = Shape::Stacked {
            sample: first.shape.clone(),
        };
        Ok(self.data(self.one_after_another(views), first.element, shape))
    }

    fn ragged(&self, views: &[View<'_>]) -> Data {
        let element = views[0].element;
        let lengths = views.iter().map(|view| view.bytes.len() / element.bytes());
        let shape = Shape::Ragged {
            offsets: sums(lengths),
        };
        self.data(self.one_after_another(views), element, shape)
    }

    fn one_after_another(&self, views: &[View<'_>]) -> BytesMut {
        let bytes = views.iter().map(|view| view.bytes.len()).sum();
        let mut whole = self.shared.pool.take(bytes);
        let mut at = 0;
        for view in views {
            whole[at..at + view.bytes.len()].copy_from_slice(view.bytes);
            at += view.bytes.len();
        }
        whole
    }

    fn pad(&self, views: &[View<'_>]) -> Result<Data, FeedError> {
        let first = &views[0];
        let inner = first.shape[1..].to_vec();
        let longest = views.iter().map(|view| view.shape[0]).max().unwrap_or(0);
        let length = self
            .building
            .head
            .padded_length
            .map_or(longest, |n| n as usize);
        for (i, view) in views.iter().enumerate() {
            if view.shape[1..] != inner {
                let problem = format!(
                    "has the shape {:?} where the first of the batch has {:?}; only the first dimension is padded",
                    view.shape, first.shape
                );
                return Err(self.error(i, &problem));
            }
            self.check_length(i, view.shape[0], length)?;
        }
        let row = length * inner.iter().product::<usize>() * first.element.bytes();
        let mut whole = self.shared.pool.take(row * views.len());
        for (place, view) in whole.chunks_exact_mut(row.max(1)).zip(views) {
            place[..view.bytes.len()].copy_from_slice(view.bytes);
            place[view.bytes.len()..].fill(0);
        }
        let shape = Shape::Padded {
            length,
            sample: inner,
            lengths: views.iter().map(|view| view.shape[0] as u32).collect(),
        };
        Ok(self.data(whole, first.element, shape))
    }

    fn pack(&self, views: &[View<'_>]) -> Result<Data, FeedError> {
        let element = views[0].element;
        let length = self.building.head.padded_length.unwrap_or(0) as usize;
        let row_bytes = length * element.bytes();
        let mut whole = self.shared.pool.take(row_bytes * self.row_samples.len());
        whole.fill(0);
        let mut next = 0;
        for (row, &samples) in self.row_samples.iter().enumerate() {
            let mut at = 0;
            for (i, view) in views.iter().enumerate().skip(next).take(samples as usize) {
                let end = at + view.bytes.len();
                self.check_length(i, end / element.bytes(), length)?;
                whole[row * row_bytes..][at..end].copy_from_slice(view.bytes);
                at = end;
            }
            next += samples as usize;
        }
        let shape = Shape::Packed {
            length,
            row_samples: self.row_samples.to_vec(),
            lengths: views.iter().map(|view| view.shape[0] as u32).collect(),
        };
        Ok(self.data(whole, element, shape))
    }

    /// Cuts a sample to one of the pieces that a sample longer than a packed row is put out in.
    fn cut(
        &self,
        i: usize,
        view: &mut View<'_>,
        piece: &std::ops::Range<usize>,
    ) -> Result<(), FeedError> {
        if view.shape.len() != 1 || piece.end > view.shape[0] {
            let problem = format!(
                "has the shape {:?} where elements {} to {} of it are packed",
                view.shape, piece.start, piece.end
            );
            return Err(self.error(i, &problem));
        }
        let size = view.element.bytes();
        view.bytes = &view.bytes[piece.start * size..piece.end * size];
        view.shape[0] = piece.len();
        Ok(())
    }

    fn check_length(&self, i: usize, length: usize, room: usize) -> Result<(), FeedError> {
        if length <= room {
            return Ok(());
        }
        let problem = format!(
            "needs {length} elements where its bucket has room for {room}: the lengths that the buckets were made of are not those of the samples; count them with the same tokeniser, or leave buckets out"
        );
        Err(self.error(i, &problem))
    }

    /// An error about the `i`-th sample.
    fn error(&self, i: usize, problem: &str) -> FeedError {
        let example = &self.building.examples[self.from[i]];
        self.shared
            .bad_example(example.id, &format!("its sample {problem}"))
    }

    fn data(&self, bytes: BytesMut, element: Element, shape: Shape) -> Data {
        Data::new(bytes, element, shape, &self.shared.pool)
    }
}
