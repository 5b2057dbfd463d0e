//! What stands for missing cells of tables.
//!
//! Zeros need nothing. Means need a pass over the files before the first record is decoded, each time they
//! are opened: a decoder sees one record, and the same record must always give the same row. A model keeps the
//! means that it was trained with, so that other data is read with those.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::delimited::{DelimitedRules, decode_delimited_line};
use crate::error::FormatError;
use crate::fingerprint::mix;
use crate::format::{Opened, Reading};
use crate::line_scan::Lines;
use crate::options::{Missing, OpenOptions};

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
    let mut row = vec![0.0; width];
    for file in opened {
        let Reading::Delimited(rules) = &file.found.reading else {
            continue;
        };
        let rules = DelimitedRules {
            missing: Some(vec![f32::NAN; width].into()),
            ..rules.clone()
        };
        let read_error = |e| FormatError::io(&file.path, "read it", e);
        let text = file.input()?;
        let (from, _) = file.found.places.get(0);
        let mut lines = Lines::new(&text, from, file.stamp.size);
        while let Some((_, line)) = lines.next().map_err(read_error)? {
            if options.interrupt.load(Ordering::Relaxed) {
                let path = file.path.clone();
                return Err(FormatError::Interrupted { path });
            }
            if decode_delimited_line(line, &rules, &mut row, |_| Ok(())).is_err() {
                continue;
            }
            for ((sum, count), value) in sums.iter_mut().zip(&row) {
                if !value.is_nan() {
                    *sum += f64::from(*value);
                    *count += 1;
                }
            }
        }
    }
    let mean = |(sum, count): (f64, u64)| (sum / count.max(1) as f64) as f32;
    Ok(sums.into_iter().map(mean).collect())
}
