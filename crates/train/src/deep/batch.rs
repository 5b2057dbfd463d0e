//! Converts a batch of the feed to a net's input.

use pelton_batch::{Array, Batch, Buffer, DType, Layout};
use pelton_format::{LABELS_FIELD, Row, element_value};
use pelton_nn::{Bags, Carry, Input, NO_TARGET, Words};

use crate::error::TrainError;

/// The labels or words that a job reads from a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Classes of images, with their count.
    Classes(usize),
    /// The next word; `start` is the word before a sequence.
    Words {
        /// The id of that word.
        start: i64,
    },
}

/// A batch in the form that a net takes.
pub enum Ready {
    /// Images and their classes.
    Images {
        /// The images.
        pixels: Array,
        /// A class each.
        labels: Vec<i64>,
    },
    /// Vectors and their classes.
    Vectors {
        /// The vectors.
        values: Array,
        /// A class each.
        labels: Vec<i64>,
    },
    /// Sparse rows and their classes.
    Bags(Bags),
    /// Words.
    Words(Words),
}

impl Ready {
    /// From a batch of the feed.
    ///
    /// Errors: data without the fields that the job reads; a class that the net does not have.
    pub fn new(mut batch: Batch, targets: Targets) -> Result<Ready, TrainError> {
        if batch.is_empty() {
            // In a step with fewer examples than ranks, some ranks have none and pass nothing to the net.
            return Ok(Ready::Words(Words::default()));
        }
        match targets {
            Targets::Classes(classes) => labelled(&mut batch, classes),
            Targets::Words { start } => words(&batch, start).map(Ready::Words),
        }
    }

    /// The images or vectors of a batch, with 0 for every label.
    pub(crate) fn unlabelled(batch: &mut Batch) -> Result<Ready, TrainError> {
        if let Some(bags) = bags(batch) {
            return Ok(Ready::Bags(bags));
        }
        let labels = vec![0; batch.len()];
        Ok(match vectors(batch)? {
            Some(values) => Ready::Vectors { values, labels },
            None => Ready::Images {
                pixels: pixels(batch)?,
                labels,
            },
        })
    }

    /// As input.
    pub fn input(&self) -> Input<'_> {
        match self {
            Ready::Images { pixels, labels } => Input::Images { pixels, labels },
            Ready::Vectors { values, labels } => Input::Vectors { values, labels },
            Ready::Bags(bags) => Input::Bags(bags),
            Ready::Words(words) => Input::Words(words),
        }
    }

    /// Classes of images, vectors or sparse rows.
    pub(crate) fn labels(&self) -> &[i64] {
        match self {
            Ready::Images { labels, .. } | Ready::Vectors { labels, .. } => labels,
            Ready::Bags(bags) => &bags.labels,
            Ready::Words(_) => &[],
        }
    }

    /// Examples, or words, that count.
    pub fn rows(&self) -> u64 {
        match self {
            Ready::Images { labels, .. } | Ready::Vectors { labels, .. } => labels.len() as u64,
            Ready::Bags(bags) => bags.features.len() as u64,
            Ready::Words(words) => words.targets.iter().filter(|&&y| y != NO_TARGET).count() as u64,
        }
    }
}

fn missing(batch: &Batch, what: &str, remedy: &str) -> TrainError {
    let names: Vec<&str> = batch.fields.iter().map(|(name, _)| name).collect();
    TrainError::config(format!(
        "the data has no {what} (its batches have {}); {remedy}",
        names.join(", ")
    ))
}

/// The images of a batch.
fn pixels(batch: &mut Batch) -> Result<Array, TrainError> {
    let pixels = batch.fields.remove("image");
    let pixels = pixels.ok_or_else(|| {
        missing(
            batch,
            "images",
            "give images, or `decode` image if they are encoded",
        )
    })?;
    if pixels.shape().layout != Layout::Stacked || pixels.shape().dims.len() != 4 {
        return Err(TrainError::config(
            "the images have different sizes; give `augment` a resize or a crop, such as rrc:224 or resize:32x32"
                .to_string(),
        ));
    }
    Ok(pixels)
}

/// The vectors of a batch; `None` if it has images or no vectors.
fn vectors(batch: &mut Batch) -> Result<Option<Array>, TrainError> {
    if batch.get("image").is_some() {
        return Ok(None);
    }
    let Some(values) = batch.fields.remove("features") else {
        return Ok(None);
    };
    let shape = values.shape();
    let stacked = shape.layout == Layout::Stacked && shape.dims.len() == 2;
    if !stacked {
        return Err(TrainError::config(
            "the features are not vectors of equal length; give dense data, such as npy, csv or parquet"
                .to_string(),
        ));
    }
    narrowed(values).map(Some)
}

/// The sparse rows of a batch, without classes.
fn bags(batch: &Batch) -> Option<Bags> {
    let [indices, values] = Row::SPARSE_FIELDS.map(|name| batch.get(name));
    let (indices, values) = (indices?, values?);
    let (ids, numbers) = (indices.values::<i64>()?, values.values::<f32>()?);
    let mut bags = Bags::default();
    // Indices of features are below 2³².
    for (of_ids, of_values) in indices
        .shape()
        .ranges()
        .into_iter()
        .zip(values.shape().ranges())
    {
        bags.features.push(of_ids.len());
        bags.ids.extend(ids[of_ids].iter().map(|&id| id as u32));
        bags.values.extend(&numbers[of_values]);
    }
    Some(bags)
}

/// Numbers of any type as f32: exact from half precision, rounded from double.
fn narrowed(values: Array) -> Result<Array, TrainError> {
    let dtype = values.dtype();
    if dtype == DType::F32 {
        return Ok(values);
    }
    let is_whole = !matches!(dtype, DType::F16 | DType::BF16 | DType::F64);
    let narrow = values.bytes().chunks_exact(dtype.bytes()).map(|number| {
        let wide = element_value(dtype, number);
        let value = wide as f32;
        let is_lost = value.is_infinite() && wide.is_finite();
        if is_lost || is_whole && f64::from(value) != wide {
            return Err(TrainError::config(format!(
                "the features are {dtype}, and 32-bit floats cannot represent {wide}; scale them, and save them as f32"
            )));
        }
        Ok(value)
    });
    let narrow: Vec<f32> = narrow.collect::<Result<_, _>>()?;
    let shape = values.shape().clone();
    Ok(Array::new(DType::F32, shape, Buffer::from_slice(&narrow)))
}

/// Images or vectors with their classes.
fn labelled(batch: &mut Batch, classes: usize) -> Result<Ready, TrainError> {
    let mut ready = Ready::unlabelled(batch)?;
    let lists = batch
        .get(LABELS_FIELD)
        .filter(|_| matches!(ready, Ready::Bags(_)));
    let ranges = lists.map(|lists| lists.shape().ranges());
    let all = lists.and_then(|lists| lists.values::<i64>());
    let joined: Option<Vec<i64>> = ranges.as_ref().zip(all).map(|(ranges, all)| {
        let each = ranges.iter().flat_map(|own| &all[own.clone()]);
        each.copied().collect()
    });
    let labels = joined.as_deref().or_else(|| batch.values::<i64>("label"));
    let labels = labels.ok_or_else(|| {
        missing(
            batch,
            "classes",
            "give data with labels, in a field called label",
        )
    })?;
    if let Some(at) = labels.iter().position(|&y| y < 0 || y as usize >= classes) {
        let of_record = match &ranges {
            // Of several labels the first records have those before.
            Some(ranges) => {
                let mut labels = 0;
                ranges
                    .iter()
                    .take_while(|own| {
                        labels += own.len();
                        labels <= at
                    })
                    .count()
            }
            None => at,
        };
        return Err(TrainError::config(format!(
            "record {} has class {}, but the net has {classes} classes",
            batch.ids[of_record], labels[at]
        )));
    }
    if let Ready::Bags(bags) = &mut ready {
        bags.counts = match &ranges {
            Some(ranges) => ranges.iter().map(|own| own.len()).collect(),
            None => vec![1; labels.len()],
        };
        bags.labels = labels.to_vec();
    }
    if let Ready::Images { labels: own, .. } | Ready::Vectors { labels: own, .. } = &mut ready {
        own.copy_from_slice(labels);
    }
    Ok(ready)
}

/// The words of padded or packed rows: each is predicted from those before it, the first from `start`.
fn words(batch: &Batch, start: i64) -> Result<Words, TrainError> {
    let lacks = || missing(batch, "words", "give `decode` words or bytes");
    let tokens = batch.get("tokens").ok_or_else(lacks)?;
    let ids: Vec<i64> = match tokens.dtype() {
        DType::U32 => tokens
            .values::<u32>()
            .ok_or_else(lacks)?
            .iter()
            .map(|&x| x.into())
            .collect(),
        DType::I64 => tokens.values::<i64>().ok_or_else(lacks)?.to_vec(),
        _ => return Err(lacks()),
    };
    let shape = tokens.shape();
    let [rows, steps] = shape.dims[..] else {
        return Err(lacks());
    };
    let mut words = Words {
        batch: rows,
        steps,
        ids: vec![0; ids.len()],
        targets: vec![NO_TARGET; ids.len()],
        segments: Vec::new(),
        carry: Carry::No,
    };
    let mut place = |at: usize, len: usize| {
        words.targets[at..at + len].copy_from_slice(&ids[at..at + len]);
        if len > 0 {
            words.ids[at] = start;
            words.ids[at + 1..at + len].copy_from_slice(&ids[at..at + len - 1]);
        }
    };
    if matches!(shape.layout, Layout::Ragged { .. }) {
        return Err(TrainError::config(
            "the sequences of a batch must be padded or packed; leave `collate` at auto"
                .to_string(),
        ));
    }
    let ranges = shape.ranges();
    for range in &ranges {
        place(range.start, range.len());
    }
    if matches!(shape.layout, Layout::Packed { .. }) {
        let mut segments = vec![0; ids.len()];
        for (number, range) in ranges.into_iter().enumerate() {
            segments[range].fill(number as u32 + 1);
        }
        words.segments = segments;
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use pelton_batch::Shape;

    use super::*;

    #[test]
    fn numbers_of_any_type_become_f32() {
        let check = |dtype: DType, bytes: &[u8], expected: Option<&[f32]>| {
            let shape = Shape::stacked(1, &[bytes.len() / dtype.bytes()]);
            let narrow = narrowed(Array::new(dtype, shape.clone(), Buffer::from_slice(bytes)));
            match (narrow, expected) {
                (Ok(narrow), Some(expected)) => {
                    assert_eq!(narrow.values::<f32>(), Some(expected));
                    assert_eq!(narrow.shape().dims, shape.dims);
                }
                (Err(error), None) => {
                    let error = error.to_string();
                    assert!(error.contains("32-bit floats cannot represent"), "{error}");
                }
                (narrow, _) => panic!("{dtype}: {:?}", narrow.map(|array| array.bytes().to_vec())),
            }
        };
        check(DType::F16, &[0, 0x3e, 0, 0xc0], Some(&[1.5, -2.0]));
        check(DType::F32, &0.1f32.to_le_bytes(), Some(&[0.1]));
        check(DType::F64, &0.1f64.to_le_bytes(), Some(&[0.1]));
        check(DType::F64, &1e300f64.to_le_bytes(), None);
        check(DType::I8, &[0xff], Some(&[-1.0]));
        check(
            DType::I64,
            &(1i64 << 24).to_le_bytes(),
            Some(&[16_777_216.0]),
        );
        check(DType::I64, &((1i64 << 24) + 1).to_le_bytes(), None);
    }
}
