//! What stands for missing cells of tables.
//!
//! Zeros need nothing. Means need a pass over the files before the first record is decoded, each time they
//! are opened: a decoder sees one record, and the same record must always give the same row. A model keeps the
//! means that it was trained with, so that other data is read with those.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelton_storage::RangeRead;

use crate::error::FormatError;
use crate::format::{Opened, Reading};
use crate::formats::delimited::{DelimitedRules, decode_delimited_line};
use crate::options::{Missing, OpenOptions};
use crate::places::fingerprint::mix;
use crate::places::line_scan::Lines;
use crate::rows::feature_type::FeatureType;
use crate::rows::features::{Cells, FeatureDecoder};

/// The value that stands for a missing one of each feature.
pub(crate) struct MissingValues {
    values: Arc<[f32]>,
    kind: Missing,
}

impl MissingValues {
    /// As the options say, for the tables among `opened`, which are all of one width; `None` where there are none,
    /// or where nothing shall stand for missing cells.
    pub(crate) fn of(
        opened: &[Opened],
        options: &OpenOptions,
    ) -> Result<Option<MissingValues>, FormatError> {
        let width = opened.iter().find_map(|file| match &file.found.reading {
            Reading::Delimited(rules) => Some(rules.features()),
            Reading::Features { decoder, .. } => Some(decoder.width()),
            _ => None,
        });
        let (Some(width), Some(kind)) = (width, options.missing) else {
            return Ok(None);
        };
        let values = match (kind, &options.means) {
            (Missing::Zero, _) => vec![0.0; width].into(),
            (Missing::Mean, Some(means)) if means.len() == width => Arc::clone(means),
            (Missing::Mean, _) => means_of(opened, width, options)?,
        };
        Ok(Some(MissingValues { values, kind }))
    }

    pub(crate) fn values(&self) -> Arc<[f32]> {
        Arc::clone(&self.values)
    }

    pub(crate) fn into_means(self) -> Option<Arc<[f32]>> {
        (self.kind == Missing::Mean).then_some(self.values)
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        let bits = self.values.iter().map(|value| u64::from(value.to_bits()));
        bits.fold(self.kind as u64, mix)
    }
}

/// The mean of each column of features over all tables. Rows that cannot be read do not count.
fn means_of(
    opened: &[Opened],
    width: usize,
    options: &OpenOptions,
) -> Result<Arc<[f32]>, FormatError> {
    let mut sums = vec![(0.0_f64, 0_u64); width];
    let mut add = |row: &[f32]| {
        for ((sum, count), value) in sums.iter_mut().zip(row) {
            if !value.is_nan() {
                *sum += f64::from(*value);
                *count += 1;
            }
        }
    };
    for file in opened {
        match &file.found.reading {
            Reading::Delimited(rules) => lines_of(file, rules, options, &mut add)?,
            Reading::Features { decoder, .. } => rows_of(file, &**decoder, options, &mut add)?,
            _ => {}
        }
    }
    let mean = |(sum, count): (f64, u64)| (sum / count.max(1) as f64) as f32;
    Ok(sums.into_iter().map(mean).collect())
}

fn check_interrupted(file: &Opened, options: &OpenOptions) -> Result<(), FormatError> {
    match options.interrupt.load(Ordering::Relaxed) {
        true => Err(FormatError::Interrupted {
            path: file.path.clone(),
        }),
        false => Ok(()),
    }
}

/// Calls `add` with the features of every line, NaN where a cell is missing.
fn lines_of(
    file: &Opened,
    rules: &DelimitedRules,
    options: &OpenOptions,
    add: &mut dyn FnMut(&[f32]),
) -> Result<(), FormatError> {
    let mut row = vec![0.0; rules.features()];
    let rules = DelimitedRules {
        missing: Some(vec![f32::NAN; row.len()].into()),
        dtype: FeatureType::F32,
        ..rules.clone()
    };
    let read_error = |e| FormatError::io(&file.path, "read it", e);
    let text = file.input()?;
    let (from, _) = file.found.places.get(0);
    let mut lines = Lines::new(&text, from, file.stamp.size);
    while let Some((_, line)) = lines.next().map_err(read_error)? {
        check_interrupted(file, options)?;
        if decode_delimited_line(line, &rules, &mut row, |_| Ok(())).is_ok() {
            add(&row);
        }
    }
    Ok(())
}

/// Calls `add` with the features of every record, NaN where one is missing.
fn rows_of(
    file: &Opened,
    decoder: &dyn FeatureDecoder,
    options: &OpenOptions,
    add: &mut dyn FnMut(&[f32]),
) -> Result<(), FormatError> {
    const BYTES: u64 = 1 << 20;
    let places = &file.found.places;
    let missing = vec![f32::NAN; decoder.width()];
    let (mut row, mut buffer) = (missing.clone(), Vec::new());
    let mut first = 0;
    while first < file.found.records {
        check_interrupted(file, options)?;
        let from = places.get(first).0;
        let records = (first..file.found.records).map(|record| places.get(record));
        let records = records.take_while(|(at, length)| *at == from || at + length - from <= BYTES);
        let records: Vec<(u64, u64)> = records.collect();
        let end = records.last().map_or(from, |(at, length)| at + length);
        buffer.resize((end - from) as usize, 0);
        file.storage.read_batch(&mut [RangeRead {
            offset: from,
            buffer: &mut buffer,
            filled: 0,
        }])?;
        for (at, length) in &records {
            let begin = (at - from) as usize;
            let bytes = &buffer[begin..begin + *length as usize];
            if decoder
                .decode(bytes, Some(&missing), Cells::Narrow(&mut row))
                .is_ok()
            {
                add(&row);
            }
        }
        first += records.len() as u64;
    }
    Ok(())
}
