//! How features are scaled before training, and the sums that determine the scale.
//!
//! Sums of each feature are taken about the first value seen of it, so that a mean far from 0 costs no digits:
//! the distance of one value from the mean is at most √n standard deviations. The zeros that sparse rows leave
//! out are a separate group, and so are the rows of each rank; groups are combined about the mean of all.
//!
//! Cost: one pass over the values; 32 bytes a feature meanwhile.

use pelton_format::{Row, RowTable, Scale};

use crate::peers::{Exchange, Peers};

pelton_key::names! {
    /// How features are scaled.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Scaling: "a scaling" {
        /// Not at all.
        #[default]
        None = "none",
        /// `(x − mean) / standard deviation`; of sparse rows, and without an intercept, `x / standard deviation`, zeros
        /// included. A constant feature is unchanged: users add one as a bias; so are the indicators of encoded columns,
        /// which are 0 or 1.
        Standard = "standard",
        /// `x / max |x|`.
        MaxAbs = "max-abs",
        /// `Standard` for files with named columns, else no scaling.
        Auto = "auto",
    }
}

/// Below this part of its mean a standard deviation is rounding: values of f32 that differ at all make more.
const CONSTANT: f64 = 1e-14;

/// Sums over the values of each feature.
#[derive(Debug)]
pub struct FeatureSums {
    /// The weight of all rows, by default 1 each.
    rows: f64,
    /// That of the rows that store the feature.
    counts: Vec<f64>,
    /// First value of each.
    pivots: Vec<f32>,
    /// Sums of distances from it and of their squares.
    sums: Vec<f64>,
    squares: Vec<f64>,
    largest: Vec<f32>,
}

impl FeatureSums {
    /// No rows yet.
    pub fn new(features: usize) -> FeatureSums {
        FeatureSums {
            rows: 0.0,
            counts: vec![0.0; features],
            pivots: vec![0.0; features],
            sums: vec![0.0; features],
            squares: vec![0.0; features],
            largest: vec![0.0; features],
        }
    }

    /// Adds rows in the order of the table, so that the same rows give the same sums to the last bit; each times its
    /// weight, by its id, if there are weights.
    pub fn add(&mut self, rows: &RowTable, weights: Option<&[f32]>) {
        for i in 0..rows.len() {
            let weight = weights.map_or(1.0, |weights| weights[rows.id(i) as usize]);
            self.add_row(rows.row(i), f64::from(weight));
        }
    }

    /// Adds one row of this weight, which may be invalid: later checks report that.
    pub fn add_row(&mut self, row: Row<'_>, weight: f64) {
        let weight = if weight.is_finite() {
            weight.max(0.0)
        } else {
            0.0
        };
        // Such a row is as one that is not there.
        if weight == 0.0 {
            return;
        }
        match row {
            Row::Dense(values) => self.add_dense(values, weight),
            Row::Sparse { indices, values } => self.add_sparse(indices, values, weight),
            Row::Bytes(_) => {}
        }
        self.rows += weight;
    }

    fn add_dense(&mut self, values: &[f32], weight: f64) {
        // All rows store all features, so one count is enough.
        if self.counts.first() == Some(&0.0) {
            let known = values.len().min(self.pivots.len());
            self.pivots[..known].copy_from_slice(&values[..known]);
        }
        let distances = self.sums.iter_mut().zip(&mut self.squares);
        let about = self.pivots.iter().zip(&mut self.largest);
        let features = distances.zip(about).zip(&mut self.counts);
        for (&value, (((sum, square), (pivot, largest)), count)) in values.iter().zip(features) {
            let distance = f64::from(value) - f64::from(*pivot);
            *sum += weight * distance;
            *square += weight * distance * distance;
            *largest = largest.max(value.abs());
            *count += weight;
        }
    }

    fn add_sparse(&mut self, indices: &[u32], values: &[f32], weight: f64) {
        for (&index, &value) in indices.iter().zip(values) {
            let feature = index as usize;
            let Some(count) = self.counts.get_mut(feature) else {
                continue;
            };
            if *count == 0.0 {
                self.pivots[feature] = value;
            }
            *count += weight;
            let distance = f64::from(value) - f64::from(self.pivots[feature]);
            self.sums[feature] += weight * distance;
            self.squares[feature] += weight * distance * distance;
            self.largest[feature] = self.largest[feature].max(value.abs());
        }
    }

    /// The scale computed from the sums, over all ranks; `None` if nothing is scaled. `numbers` says for each feature
    /// whether it is scaled; if empty, all are. With `shifts` to a mean of 0.
    pub fn scale<E>(
        self,
        scaling: Scaling,
        numbers: &[bool],
        shifts: bool,
        peers: &mut Peers<'_, E>,
    ) -> Result<Option<Scale>, E> {
        Ok(match scaling {
            Scaling::None | Scaling::Auto => None,
            Scaling::MaxAbs => {
                let mut largest: Vec<f64> = self.largest.into_iter().map(f64::from).collect();
                peers(Exchange::Largest(&mut largest))?;
                // The largest of an indicator is 1, and an offset is not scaled.
                let factor = |(feature, largest)| match numbers.get(feature) {
                    Some(false) => 1.0,
                    _ => inverse_or_one(largest),
                };
                let factors = largest.into_iter().enumerate().map(factor).collect();
                Scale::new(factors, Vec::new())
            }
            Scaling::Standard => {
                let (means, deviations) = self.moments(peers)?;
                let is_scaled = |feature: usize| {
                    let is_number = match numbers {
                        [] => true,
                        numbers => numbers.get(feature).is_some_and(|is| *is),
                    };
                    is_number && deviations[feature] > CONSTANT * means[feature].abs()
                };
                let of = |value: &dyn Fn(usize) -> f64, usual: f64| -> Vec<f64> {
                    let one = |feature| {
                        if is_scaled(feature) {
                            value(feature)
                        } else {
                            usual
                        }
                    };
                    (0..means.len()).map(one).collect()
                };
                let factors = of(&|feature| inverse_or_one(deviations[feature]), 1.0);
                let shifts = if shifts {
                    of(&|feature| means[feature], 0.0)
                } else {
                    Vec::new()
                };
                Scale::new(factors, shifts)
            }
        })
    }

    /// Mean and standard deviation of each feature over the rows of all ranks.
    fn moments<E>(self, peers: &mut Peers<'_, E>) -> Result<(Vec<f64>, Vec<f64>), E> {
        let mut sum_up = |values: &mut [f64]| peers(Exchange::Sum(values));
        let mut rows = [self.rows];
        sum_up(&mut rows)?;
        let rows = if rows[0] > 0.0 { rows[0] } else { 1.0 };
        let own_mean = |feature: usize| match self.counts[feature] {
            0.0 => 0.0,
            count => f64::from(self.pivots[feature]) + self.sums[feature] / count,
        };
        let features = self.counts.len();
        let mut means: Vec<f64> = (0..features)
            .map(|feature| self.counts[feature] * own_mean(feature))
            .collect();
        sum_up(&mut means)?;
        means.iter_mut().for_each(|mean| *mean /= rows);
        let own_rows = self.rows;
        let mut deviations: Vec<f64> = (0..features)
            .map(|feature| {
                let (count, sum) = (self.counts[feature], self.sums[feature]);
                let mean = if count > 0.0 { sum / count } else { 0.0 };
                let about_own = self.squares[feature] - sum * mean;
                let moved = own_mean(feature) - means[feature];
                let absent = (own_rows - count) * means[feature] * means[feature];
                about_own.max(0.0) + count * moved * moved + absent
            })
            .collect();
        sum_up(&mut deviations)?;
        for deviation in &mut deviations {
            *deviation = (*deviation / rows).sqrt();
        }
        Ok((means, deviations))
    }
}

/// Features that are always zero keep their size.
fn inverse_or_one(size: f64) -> f64 {
    if size > 0.0 { 1.0 / size } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_format::{Layout, Rows};
    use std::convert::Infallible;

    fn table(rows: Rows) -> RowTable {
        let ids = (0..rows.len() as u64).collect();
        RowTable::from_rows(rows, ids)
    }

    fn scale_of(scaling: Scaling, rows: &Rows, features: usize) -> Scale {
        let mut sums = FeatureSums::new(features);
        sums.add(&table(rows.clone()), None);
        let alone = &mut crate::peers::alone::<Infallible>;
        let shifts = rows.layout() != Layout::Sparse;
        let scale = sums.scale(scaling, &[], shifts, alone).unwrap();
        scale.expect("there is a scale")
    }

    fn check(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            let error = (found - expected).abs();
            assert!(
                error <= 1e-9 * expected.abs(),
                "{found} instead of {expected}"
            );
        }
    }

    #[test]
    fn dense_features_are_shifted_by_their_mean() {
        let mut rows = Rows::new(Layout::Dense { width: 4 });
        // Far from 0, constant, all zero, and a first value unlike the others.
        for row in 0..1000_u16 {
            let last = if row == 0 { 1e9 } else { f32::from(row % 2) };
            rows.push_dense(0, &[4e6 + f32::from(row % 2), 0.1, 0.0, last]);
        }
        let scale = scale_of(Scaling::Standard, &rows, 4);
        let last: Vec<f64> = (0..1000)
            .map(|row| if row == 0 { 1e9 } else { f64::from(row % 2) })
            .collect();
        let mean = last.iter().sum::<f64>() / 1000.0;
        let variance = last.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1000.0;
        check(scale.shifts(), &[4e6 + 0.5, 0.0, 0.0, mean]);
        check(scale.factors(), &[2.0, 1.0, 1.0, 1.0 / variance.sqrt()]);
        let scale = scale_of(Scaling::MaxAbs, &rows, 4);
        assert!(!scale.has_shifts());
        let tenth = 1.0 / f64::from(0.1_f32);
        check(scale.factors(), &[1.0 / 4_000_001.0, tenth, 1.0, 1e-9]);
    }

    #[test]
    fn zeros_that_sparse_rows_leave_out_count() {
        let mut rows = Rows::new(Layout::Sparse);
        for row in 0..8 {
            match row % 4 {
                0 => rows.push_sparse(0, &[0, 2], &[3.0, -7.0]),
                _ => rows.push_sparse(0, &[2], &[-7.0]),
            }
        }
        let scale = scale_of(Scaling::Standard, &rows, 3);
        assert!(!scale.has_shifts());
        // Mean 3/4, variance 9/4 − 9/16; no row has the second feature, all have the same third one.
        let deviation = (9.0_f64 / 4.0 - 9.0 / 16.0).sqrt();
        check(scale.factors(), &[1.0 / deviation, 1.0, 1.0]);
        let scale = scale_of(Scaling::MaxAbs, &rows, 3);
        check(scale.factors(), &[1.0 / 3.0, 1.0, 1.0 / 7.0]);
    }

    #[test]
    fn rows_count_as_often_as_their_weights_say() {
        // The row with the largest value has no weight.
        let first = |i: u32| if i == 36 { 99.0 } else { (i * i % 17) as f32 };
        let row = |i: u32| [first(i), 3.0, (i % 2) as f32];
        for scaling in [Scaling::MaxAbs, Scaling::Standard] {
            let mut sums = FeatureSums::new(3);
            (0..40).for_each(|i| sums.add_row(Row::Dense(&row(i)), f64::from(i % 4)));
            let mut repeated = FeatureSums::new(3);
            for i in (0..40).flat_map(|i| (0..i % 4).map(move |_| i)) {
                repeated.add_row(Row::Dense(&row(i)), 1.0);
            }
            let scale = |sums: FeatureSums| {
                let alone = &mut crate::peers::alone::<Infallible>;
                let scale = sums.scale(scaling, &[true, true, false], true, alone);
                scale.unwrap().unwrap()
            };
            let (found, expected) = (scale(sums), scale(repeated));
            check(found.factors(), expected.factors());
            check(found.shifts(), expected.shifts());
            if scaling == Scaling::Standard {
                // An indicator, and a constant.
                assert_eq!((found.factors()[2], found.shifts()[2]), (1.0, 0.0));
                assert_eq!((found.factors()[1], found.shifts()[1]), (1.0, 0.0));
            }
        }
    }

    /// Two ranks that take turns at the one exchange, each in a thread.
    #[test]
    fn ranks_find_the_scale_of_all_rows() {
        use std::sync::{Arc, Barrier, Mutex};
        let row = |i: u32| [1e4 + (i * i % 17) as f32, (i % 5) as f32 - 2.0];
        let mut whole = Rows::new(Layout::Dense { width: 2 });
        (0..90).for_each(|i| whole.push_dense(0, &row(i)));
        let expected = scale_of(Scaling::Standard, &whole, 2);
        let (shared, barrier) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Barrier::new(2)));
        let ranks = (0..2).map(|rank| {
            let (shared, barrier) = (Arc::clone(&shared), Arc::clone(&barrier));
            std::thread::spawn(move || {
                let mut sums = FeatureSums::new(2);
                let mut rows = Rows::new(Layout::Dense { width: 2 });
                let own = |i: &u32| (*i < 30) == (rank == 0);
                (0..90)
                    .filter(own)
                    .for_each(|i| rows.push_dense(0, &row(i)));
                sums.add(&table(rows), None);
                let mut exchange = |what: Exchange<'_>| -> Result<(), Infallible> {
                    let Exchange::Sum(values) = what else {
                        unreachable!("sums alone")
                    };
                    shared.lock().unwrap().push(values.to_vec());
                    barrier.wait();
                    let both = shared.lock().unwrap().clone();
                    for (i, value) in values.iter_mut().enumerate() {
                        *value = both[0][i] + both[1][i];
                    }
                    if barrier.wait().is_leader() {
                        shared.lock().unwrap().clear();
                    }
                    barrier.wait();
                    Ok(())
                };
                sums.scale(Scaling::Standard, &[], true, &mut exchange)
                    .unwrap()
                    .unwrap()
            })
        });
        for rank in ranks.collect::<Vec<_>>() {
            let found = rank.join().unwrap();
            check(found.factors(), expected.factors());
            check(found.shifts(), expected.shifts());
        }
    }
}
