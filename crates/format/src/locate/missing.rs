//! Replacements for missing cells of tables.
//!
//! Zeros need nothing. Means need a pass over the files before the first record is decoded, each time they are
//! opened: a decoder sees one record, and the same record must always give the same row. A model keeps the means of
//! its training data, so that other data is read with them.

use std::sync::Arc;

use pelton_storage::AlignedBuffer;

use crate::locate::decoder::Decoder;
use crate::locate::format::Opened;
use crate::locate::span::read_span;
use crate::record::error::FormatError;
use crate::record::mixing::mix;
use crate::record::options::{Missing, OpenOptions};

/// The replacement for a missing value of each feature.
pub(crate) struct MissingValues {
    values: Arc<[f32]>,
    kind: Missing,
}

impl MissingValues {
    /// Follows the options, for the tables among `opened`, which all have one width; `None` without tables, or if
    /// nothing replaces missing cells. `surveyed` are the means from a pass over the tables.
    pub(crate) fn from_options(
        opened: &[Opened],
        options: &OpenOptions,
        surveyed: Option<Arc<[f32]>>,
    ) -> Result<Option<MissingValues>, FormatError> {
        let width = opened.iter().find_map(|file| file.shard.decoder.may_miss());
        let (Some(width), Some(kind)) = (width, options.missing) else {
            return Ok(None);
        };
        let kind = match kind {
            Missing::Auto if surveyed.is_some() || options.means.is_some() => Missing::Mean,
            Missing::Auto | Missing::Error => return Ok(None),
            kind => kind,
        };
        if kind == Missing::Flag {
            return Err(FormatError::new(
                "`missing` flag is for tables that a linear model is trained on; give zero or mean",
            ));
        }
        let values = match (kind, &options.means) {
            (Missing::Zero, _) => vec![0.0; width].into(),
            (_, Some(means)) if means.len() == width => Arc::clone(means),
            _ => match surveyed.filter(|means| means.len() == width) {
                Some(means) => means,
                None => means_of(opened, width, options)?,
            },
        };
        Ok(Some(MissingValues { values, kind }))
    }

    pub(crate) fn values(&self) -> Arc<[f32]> {
        Arc::clone(&self.values)
    }

    pub(crate) fn into_means(self) -> Option<Arc<[f32]>> {
        (self.kind != Missing::Zero).then_some(self.values)
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
    // As f32, because rows hold f32.
    let mut add = |row: &[f64]| {
        if row.iter().any(|value| (*value as f32).is_infinite()) {
            return;
        }
        for ((sum, count), value) in sums.iter_mut().zip(row) {
            if !value.is_nan() {
                *sum += f64::from(*value as f32);
                *count += 1;
            }
        }
    };
    let nan: Arc<[f32]> = vec![f32::NAN; width].into();
    for file in opened {
        if let Some(decoder) = file.shard.decoder.filled(Arc::clone(&nan)) {
            rows_of(file, &*decoder, options, &mut add)?;
        }
    }
    let mean = |(sum, count): (f64, u64)| (sum / count.max(1) as f64) as f32;
    Ok(sums.into_iter().map(mean).collect())
}

/// Calls `add` with the features of every record, NaN for missing ones.
fn rows_of(
    file: &Opened,
    decoder: &dyn Decoder,
    options: &OpenOptions,
    add: &mut dyn FnMut(&[f64]),
) -> Result<(), FormatError> {
    const BYTES: u64 = 1 << 20;
    let places = &file.shard.places;
    let (mut row, mut buffer) = (Vec::new(), AlignedBuffer::with_capacity(4096, 0));
    let mut first = 0;
    while first < file.shard.records {
        options
            .check_interrupt()
            .map_err(|error| error.in_file(&file.path))?;
        let from = places.get(first).0;
        let records = (first..file.shard.records).map(|record| places.get(record));
        let records = records.take_while(|(at, length)| *at == from || at + length - from <= BYTES);
        let records: Vec<(u64, u64)> = records.collect();
        let end = records.last().map_or(from, |(at, length)| at + length);
        let span = read_span(&*file.storage, from, end - from, &mut buffer)?;
        for (at, length) in &records {
            let begin = span.start + (at - from) as usize;
            let bytes = &buffer[begin..begin + *length as usize];
            if let Some(Ok(_)) = decoder.decode_wide(bytes, &mut row) {
                add(&row);
            }
        }
        first += records.len() as u64;
    }
    Ok(())
}
