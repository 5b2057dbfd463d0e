//! Fits the scale of the features in a pass before training, and advises if one is missing.
//!
//! A feature with a mean more than [`COARSE`] standard deviations from 0, such as the seconds of a clock, loses too
//! much precision in f32. A few records, read as f64, show that. The standard scale is then fitted to distances from
//! the approximate mean, computed in f64; without that scale such a feature is refused.

use std::collections::HashMap;
use std::sync::Arc;

use pelton_data::fetch_bytes;
use pelton_format::{COARSE, Dataset, Layout, Row, RowTable, Rows as DecodedRows, Scale};
use pelton_linear::{FeatureSums, Loss, Scaling};

use super::first_pass::FirstPass;
use super::rows::Rows;
use crate::config::LinearConfig;
use crate::error::TrainError;

/// Fits the scale of the features; rows are decoded with it from then on.
pub(super) fn scale(
    rows: &mut Rows,
    config: &LinearConfig,
    weights: Option<&[f32]>,
    pass: &mut FirstPass<'_>,
) -> Result<(), TrainError> {
    let (scaling, plain) = (config.scale, Arc::clone(&rows.data.dataset));
    let centre = coarse_centre(&plain).filter(|_| centres(config));
    let about = centre.as_ref().and_then(|centre| {
        let scale = Scale::new(vec![1.0; centre.len()], centre.clone())?;
        Some(Arc::new(plain.scaled(Arc::new(scale))))
    });
    let dataset = about.as_ref().unwrap_or(&plain);
    // Memory that fits the problem fits several such tables.
    let mut sums = FeatureSums::new(dataset.features() as usize);
    let spent = pass.over(dataset, "fitting the scale", |batch| {
        sums.add(&batch.rows, weights);
        Ok(())
    })?;
    let ranks = pass.ranks;
    let numbers = dataset.columns().map(|columns| columns.numbers());
    let numbers = numbers.unwrap_or_default();
    // Without an intercept a shift would change the problem.
    let shifts = config.bias.is_some() && dataset.can_shift();
    let scale = ranks.together(|peers| sums.scale(scaling, &numbers, shifts, peers))?;
    let scale = scale.and_then(|scale| match &centre {
        Some(centre) => moved(&scale, centre),
        None => Some(scale),
    });
    rows.scale = scale.map(Arc::new);
    let scaled = match &rows.scale {
        Some(scale) => Arc::new(plain.scaled(Arc::clone(scale))),
        None => plain,
    };
    rows.replace(scaled, &spent);
    Ok(())
}

/// Whether features are shifted before they are converted to f32.
fn centres(config: &LinearConfig) -> bool {
    config.scale == Scaling::Standard && config.bias.is_some()
}

/// The equivalent scale for features without `centre` subtracted. Constant features are unchanged.
pub(super) fn moved(scale: &Scale, centre: &[f64]) -> Option<Scale> {
    let shifts = scale.shifts().iter().zip(scale.factors()).zip(centre);
    let shifts = shifts.map(|((&shift, &factor), centre)| match (shift, factor) {
        (0.0, 1.0) => 0.0,
        _ => shift + centre,
    });
    Scale::new(scale.factors().to_vec(), shifts.collect())
}

/// Refuses features for which f32 is too coarse, unless they are centred before the conversion.
pub(super) fn refuse_coarse(
    dataset: &Dataset,
    config: &LinearConfig,
    paths: &[String],
) -> Result<(), TrainError> {
    if centres(config) {
        return Ok(());
    }
    let Some((feature, (mean, deviation))) = moments(dataset).and_then(|moments| {
        let mut all = moments.into_iter().enumerate();
        all.find(|(_, (mean, deviation))| *deviation > 0.0 && is_coarse(*mean, *deviation))
    }) else {
        return Ok(());
    };
    let column = dataset.files()[0].numbering().of(feature as u64);
    Err(TrainError::config(format!(
        "{}: column {column} has values about {mean:.9e} that differ by about {deviation:.1e}, too little for the solver's 32-bit floating point; give `scale` standard with an intercept, which centres features in 64 bits, or subtract a constant",
        paths.join(", ")
    )))
}

/// Whether the standard scale must be fitted to the files, not to rows of f32.
pub(super) fn needs_files(dataset: &Dataset, config: &LinearConfig) -> bool {
    centres(config) && coarse_centre(dataset).is_some()
}

/// Approximate mean of each feature for which f32 is too coarse, and 0 for others; `None` without such features.
fn coarse_centre(dataset: &Dataset) -> Option<Vec<f64>> {
    let centre = moments(dataset)?.into_iter().map(|(mean, deviation)| {
        if is_coarse(mean, deviation) {
            mean
        } else {
            0.0
        }
    });
    let centre: Vec<f64> = centre.collect();
    centre.iter().any(|mean| *mean != 0.0).then_some(centre)
}

/// Whether f32 keeps too little of values with this mean and standard deviation.
fn is_coarse(mean: f64, deviation: f64) -> bool {
    /// From here on f32 skips integers, so values that differ elsewhere may be equal among a few records.
    const LEAST: f64 = 16_777_216.0;
    if deviation > 0.0 {
        mean.abs() > COARSE * deviation
    } else {
        mean.abs() >= LEAST
    }
}

/// Mean and standard deviation of each feature over a few records at some positions of the data, read as f64; `None` if
/// files hold only f32, or records cannot be read (training then gives the better error).
fn moments(dataset: &Dataset) -> Option<Vec<(f64, f64)>> {
    let mut row = Vec::new();
    // Relative to the first value, so that a mean far from 0 costs no digits.
    let mut pivots = Vec::new();
    let mut sums: Vec<(f64, f64)> = Vec::new();
    let mut count = 0.0;
    for id in few(dataset.records()) {
        let bytes = fetch_bytes(dataset, id).ok()?;
        if dataset.decode_wide(id, &bytes, &mut row)?.is_err() {
            continue;
        }
        if pivots.is_empty() {
            pivots.clone_from(&row);
            sums.resize(row.len(), (0.0, 0.0));
        }
        for ((sum, square), (value, pivot)) in sums.iter_mut().zip(row.iter().zip(&pivots)) {
            let distance = value - pivot;
            *sum += distance;
            *square += distance * distance;
        }
        count += 1.0;
    }
    let of = |(pivot, (sum, square)): (&f64, &(f64, f64))| {
        let mean = sum / count;
        (pivot + mean, (square / count - mean * mean).max(0.0).sqrt())
    };
    (count > 1.0).then(|| pivots.iter().zip(&sums).map(of).collect())
}

/// Ids of a few of `records` records, at some positions of the data.
fn few(records: u64) -> Vec<u64> {
    /// Number of positions, and of neighbouring records at each: a block of a table is decoded as a whole.
    const PLACES: u64 = 8;
    const TOGETHER: u64 = 16;
    let mut ids: Vec<u64> = (0..PLACES)
        .flat_map(|place| {
            let first = records.saturating_sub(TOGETHER) * place / (PLACES - 1);
            first..records.min(first + TOGETHER)
        })
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The value to subtract from targets in f64, so that f32 keeps their differences: about their mean, if that is far
/// from 0 compared with their deviation. It changes only the intercept of a model with a free intercept; 0 for other
/// models.
///
/// Errors: targets of another model that f32 would round to a few values.
pub(super) fn target_centre(config: &LinearConfig, dataset: &Dataset) -> Result<f64, TrainError> {
    /// From this ratio of a mean to a standard deviation on, f32 rounds by more than a 100 000th of the deviation.
    const FAR: f64 = 256.0;
    if !config.loss.has_real_targets() || config.loss == Loss::Poisson {
        return Ok(0.0);
    }
    let mut rows = DecodedRows::new(dataset.layout());
    for id in few(dataset.records()) {
        if let Ok(bytes) = fetch_bytes(dataset, id) {
            // Training reports unreadable records.
            let _ = dataset.decode(id, &bytes, &mut rows);
        }
    }
    let targets = (0..rows.len()).map(|i| f64::from(f32::from_bits(rows.label(i))));
    let count = rows.len().max(1) as f64;
    let mean = targets.clone().sum::<f64>() / count;
    let variance = targets.map(|target| (target - mean).powi(2)).sum::<f64>() / count;
    let deviation = variance.sqrt();
    if mean.abs() <= FAR * deviation || rows.is_empty() {
        return Ok(0.0);
    }
    if config.free_bias {
        return Ok(mean);
    }
    if is_coarse(mean, deviation) {
        return Err(TrainError::config(format!(
            "{}: targets about {mean:.9e} differ by too little for the solver's 32-bit floating point; give `intercept` free, which centres them in 64 bits, or subtract a constant",
            config.data.paths.join(", ")
        )));
    }
    Ok(0.0)
}

/// Ratio of sizes above which training is slow.
const MOST_RATIO: f64 = 1e3;
/// Number of values examined.
const LOOKED_AT: usize = 1 << 20;

/// The better scale, if the unscaled features of these rows differ much in size: the root mean square of a feature's
/// values (stored values, for sparse rows).
pub(super) fn advice(rows: &RowTable) -> Option<String> {
    let layout = rows.segments().first()?.layout();
    // Evenly spread, since the file may be sorted.
    let stored: usize = rows
        .segments()
        .iter()
        .map(|rows| rows.stored_values())
        .sum();
    let every = stored.div_ceil(LOOKED_AT).max(1);
    let looked_at = (0..rows.len()).step_by(every).map(|i| rows.row(i));
    let ratio = match layout {
        Layout::Dense { width } => {
            let mut squares = vec![0.0; width];
            for row in looked_at {
                let Row::Dense(values) = row else { continue };
                for (sum, &value) in squares.iter_mut().zip(values) {
                    *sum += f64::from(value).powi(2);
                }
            }
            ratio(squares.into_iter())
        }
        _ => {
            let mut squares = HashMap::<u32, (f64, f64)>::new();
            for row in looked_at {
                let Row::Sparse { indices, values } = row else {
                    continue;
                };
                for (&index, &value) in indices.iter().zip(values) {
                    let (sum, count) = squares.entry(index).or_default();
                    *sum += f64::from(value).powi(2);
                    *count += 1.0;
                }
            }
            ratio(squares.into_values().map(|(sum, count)| sum / count))
        }
    };
    let better = match layout {
        Layout::Sparse => Scaling::MaxAbs,
        _ => Scaling::Standard,
    };
    (ratio > MOST_RATIO).then(|| {
        format!(
            "features differ by a factor of {ratio:.0e} in size, which slows training and weighs them unevenly: \
             consider `scale` {better}"
        )
    })
}

/// The largest of some sizes over the smallest, from their squares, zeros excluded.
fn ratio(squares: impl Iterator<Item = f64>) -> f64 {
    let ends =
        squares
            .filter(|square| *square > 0.0)
            .fold(None, |ends: Option<(f64, f64)>, square| {
                let (least, most) = ends.unwrap_or((square, square));
                Some((least.min(square), most.max(square)))
            });
    ends.map_or(1.0, |(least, most)| (most / least).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_format::Rows;

    #[test]
    fn features_of_different_sizes_are_pointed_out() {
        let check = |values: &[f32], expected: [Option<&str>; 2]| {
            let mut dense = Rows::new(Layout::Dense {
                width: values.len(),
            });
            let mut sparse = Rows::new(Layout::Sparse);
            let indices: Vec<u32> = (0..values.len() as u32).collect();
            for sign in [-1.0, 1.0] {
                let row: Vec<f32> = values.iter().map(|value| sign * value).collect();
                dense.push_dense(0, &row);
                sparse.push_sparse(0, &indices, &row);
            }
            for (rows, expected) in [dense, sparse].into_iter().zip(expected) {
                let said = advice(&RowTable::from_rows(rows, vec![0, 1]));
                let found = said.as_deref().and_then(|said| said.split(' ').next_back());
                assert_eq!(found, expected, "{said:?}");
            }
        };
        check(&[1.0, 900.0, 0.0], [None, None]);
        check(&[1.0, 1100.0, 0.0], [Some("standard"), Some("max-abs")]);
        check(&[0.0, 0.0], [None, None]);
    }
}
