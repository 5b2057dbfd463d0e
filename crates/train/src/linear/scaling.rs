//! Fits the scale of the features in a pass of its own before training, and says where one is missing.

use std::collections::HashMap;
use std::sync::Arc;

use pelton_data::OpenedData;
use pelton_format::{Layout, Row, RowTable};
use pelton_linear::{FeatureSums, Scaling};
use pelton_run::Observer;

use super::first_pass::first_pass;
use super::ranks::Ranks;
use super::setup::Setup;
use crate::error::TrainError;

/// Sets up the run over the same data with scaled features.
pub(super) fn scale(
    scaling: Scaling,
    setup: Setup,
    ranks: Ranks<'_>,
    observer: Observer<'_>,
) -> Result<Setup, TrainError> {
    let dataset = &setup.data.dataset;
    // The problem was set up, so there is memory for several such tables.
    let mut sums = FeatureSums::new(dataset.features() as usize);
    let fitting = first_pass(&setup, "fitting the scale", ranks, observer, |batch| {
        sums.add(&batch.rows);
        Ok(())
    })?;
    let layout = dataset.layout();
    let scale = ranks.together(|peers| sums.scale(scaling, layout, peers))?;
    let Some(scale) = scale.map(Arc::new) else {
        return Ok(setup);
    };
    let data = OpenedData {
        dataset: Arc::new(dataset.scaled(Arc::clone(&scale))),
        ..setup.data
    };
    Ok(Setup {
        data,
        scale: Some(scale),
        before: setup.before.plus(&fitting),
        ..setup
    })
}

/// Sizes that differ by more than this slow training down.
const MOST_RATIO: f64 = 1e3;
/// Values that are looked at to tell.
const LOOKED_AT: usize = 1 << 20;

/// What would help, where the features of these rows, which are not scaled, differ much in size: the root mean
/// square of a feature's values, of sparse rows of those that are stored.
pub(super) fn advice(rows: &RowTable) -> Option<String> {
    let layout = rows.segments().first()?.layout();
    // Evenly spread, for rows in the order of a file may be sorted.
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

/// The largest of some sizes over the smallest, from their squares, those of 0 aside.
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
