//! Features numbered again: only those that some row has, the frequent ones first.
//!
//! Sparse rows use a small part of the features, spread over all of them. A w of only those is smaller, and the weights
//! that most visits touch are together at its start, in the caches: with 200 000 rows of 30 M features, 1.6 M of them
//! used, a visit takes a third of the time, and so does every pass over w.
//!
//! Features fall in *tiers* by how many rows have them and stay ascending within each, so that a row is
//! renumbered in one pass, without sorting.
//!
//! Rows in memory are counted and renumbered in place. Others are counted in a separate pass before training,
//! which costs less than it saves in an epoch, and renumbered when they are decoded.
//!
//! Cost: two passes over the indices, two over a table of 4 bytes a feature, which is freed afterwards if rows
//! are in memory; 4 bytes stay for every present feature.

use std::cell::RefCell;

use pelton_format::{Layout, Renumber, RowTable, Rows};
use pelton_storage::{huge_vec, huge_zeros};

use crate::weights::Weights;

/// Fewest features for which it pays: below, w fits in the caches anyway.
const LEAST_FEATURES: usize = 1 << 16;

/// Tiers: the first of features in 2^15 rows or more, then down by halves to those in one row.
const TIERS: usize = 16;

/// New numbers for features.
#[derive(Clone, Debug)]
pub struct FeatureNumbering {
    features: usize,
    /// The features present, by their new numbers.
    present: Vec<u32>,
}

/// In how many rows each feature is.
#[derive(Debug)]
pub struct FeatureCounts {
    /// Exact up to 2^24.
    counts: Vec<f32>,
    /// Whether all rows were sparse, with valid features.
    known: bool,
}

impl FeatureCounts {
    /// No rows yet; `None` if renumbering so few features would not pay.
    pub fn new(features: usize) -> Option<FeatureCounts> {
        (features >= LEAST_FEATURES).then(|| FeatureCounts {
            counts: huge_zeros(features),
            known: true,
        })
    }

    /// Adds every row of some segments.
    pub fn add(&mut self, segments: &[Rows]) {
        for segment in segments {
            self.known &= segment.layout() == Layout::Sparse;
            for &feature in segment.indices() {
                match self.counts.get_mut(feature as usize) {
                    Some(count) => *count += 1.0,
                    None => self.known = false,
                }
            }
        }
    }

    /// Numbers by the counts; `None` if a row was not sparse or has a feature out of range, which the solver reports.
    pub fn number(self) -> Option<(FeatureNumbering, NewNumbers)> {
        self.known.then(|| FeatureNumbering::by_counts(self.counts))
    }
}

impl FeatureNumbering {
    /// Gives the features of rows in memory new numbers; `None` as in [`FeatureCounts`].
    ///
    /// Panics if another table shares the segments of `rows`.
    pub fn renumber(rows: &mut RowTable, features: usize) -> Option<FeatureNumbering> {
        let mut counts = FeatureCounts::new(features)?;
        counts.add(rows.segments());
        let (numbering, numbers) = counts.number()?;
        let segments = rows.segments_mut().expect("segments are not shared");
        for segment in segments {
            segment.edit_sparse(|indices, values| numbers.renumber(indices, values));
        }
        Some(numbering)
    }

    fn by_counts(mut table: Vec<f32>) -> (FeatureNumbering, NewNumbers) {
        let tier = |count: f32| {
            let exponent = (count.to_bits() >> 23) as usize - 127;
            TIERS - 1 - exponent.min(TIERS - 1)
        };
        let mut starts = [0_u32; TIERS + 1];
        for &count in table.iter().filter(|&&count| count > 0.0) {
            starts[tier(count) + 1] += 1;
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts;
        let mut present = vec![0; starts[TIERS] as usize];
        for (feature, entry) in table.iter_mut().enumerate() {
            if *entry > 0.0 {
                let number = &mut next[tier(*entry)];
                present[*number as usize] = feature as u32;
                *entry = f32::from_bits(*number);
                *number += 1;
            } else {
                *entry = f32::from_bits(ABSENT);
            }
        }
        let numbering = FeatureNumbering {
            features: table.len(),
            present,
        };
        let tiers = std::array::from_fn(|tier| starts[tier]);
        (numbering, NewNumbers { table, tiers })
    }

    /// Number of features there are, present or not.
    pub fn features(&self) -> usize {
        self.features
    }

    /// Number of features present.
    pub fn len(&self) -> usize {
        self.present.len()
    }

    /// Whether no feature is present.
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// The weights of the present features, in their new order.
    pub fn narrow(&self, weights: &Weights) -> Weights {
        let vectors = (0..weights.subproblems()).map(|subproblem| {
            let wide = weights.vector(subproblem);
            let mut narrow: Vec<f32> = huge_vec(self.present.len() + 1);
            narrow.extend(self.present.iter().map(|&feature| wide[feature as usize]));
            narrow.extend(&wide[self.features..]);
            narrow
        });
        Weights::from_vectors(self.present.len(), weights.bias(), vectors.collect())
    }

    /// Weights by the features' own numbers from those by the new ones; the weights of absent features are 0.
    pub fn widen(&self, weights: &Weights) -> Weights {
        let vectors = (0..weights.subproblems()).map(|subproblem| {
            let narrow = weights.vector(subproblem);
            let bias = &narrow[self.present.len()..];
            let mut wide = huge_zeros(self.features + bias.len());
            for (&feature, &weight) in self.present.iter().zip(narrow) {
                wide[feature as usize] = weight;
            }
            wide[self.features..].copy_from_slice(bias);
            wide
        });
        Weights::from_vectors(self.features, weights.bias(), vectors.collect())
    }
}

/// The new number of each feature. (A bit for each that occurs, and numbers for those alone, take an eighth of
/// the memory; but their two dependent look-ups take 25 ns more, and a run of short rows half as long again.)
#[derive(Debug)]
pub struct NewNumbers {
    /// As bits; [`ABSENT`] for a feature that was in no row.
    table: Vec<f32>,
    /// First number of each tier.
    tiers: [u32; TIERS],
}

/// Marks a feature without a number.
const ABSENT: u32 = u32::MAX;

thread_local! {
    static ROW: RefCell<Row> = RefCell::default();
}

/// A row that is being renumbered.
#[derive(Default)]
struct Row {
    entries: Vec<(u32, f32)>,
    /// The tier of each.
    tiers: Vec<u8>,
}

impl Renumber for NewNumbers {
    fn renumber(&self, indices: &mut [u32], values: &mut [f32]) {
        ROW.with_borrow_mut(|row| {
            let (row, tier_of) = (&mut row.entries, &mut row.tiers);
            row.clear();
            let number = |&index: &u32| {
                self.table
                    .get(index as usize)
                    .map_or(ABSENT, |n| n.to_bits())
            };
            row.extend(indices.iter().map(number).zip(values.iter().copied()));
            // The first tier starts at 0.
            tier_of.clear();
            tier_of.extend(row.iter().map(|&(number, _)| {
                let starts = self.tiers.iter().map(|&start| u8::from(start <= number));
                starts.sum::<u8>() - 1
            }));
            let mut places = [0_u32; TIERS];
            for &tier in tier_of.iter() {
                places[tier as usize] += 1;
            }
            let mut start = 0;
            for place in &mut places {
                (start, *place) = (start + *place, start);
            }
            for (&(number, value), &tier) in row.iter().zip(tier_of.iter()) {
                let place = &mut places[tier as usize];
                (indices[*place as usize], values[*place as usize]) = (number, value);
                *place += 1;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::Loss;
    use crate::problem::Problem;
    use crate::random::Stream;

    /// Rows of a few frequent and many rare features.
    fn rows(count: u64, features: u64) -> RowTable {
        let mut stream = Stream::new(count);
        let mut rows = Rows::new(Layout::Sparse);
        for row in 0..count {
            let mut indices: Vec<u32> = (0..row % 40)
                .map(|i| (stream.next() % if i % 2 == 0 { 300 } else { features }) as u32)
                .collect();
            indices.sort_unstable();
            indices.dedup();
            let values: Vec<f32> = indices.iter().map(|i| *i as f32 + 0.5).collect();
            rows.push_sparse((row % 2) as u32, &indices, &values);
        }
        RowTable::from_rows(rows, (0..count).collect())
    }

    fn entries(table: &RowTable, row: usize) -> Vec<(u32, f32)> {
        match table.row(row) {
            pelton_format::Row::Sparse { indices, values } => indices
                .iter()
                .copied()
                .zip(values.iter().copied())
                .collect(),
            _ => unreachable!("sparse rows"),
        }
    }

    #[test]
    fn rows_keep_their_entries_under_other_numbers() {
        let features = 100_000;
        let (before, mut after) = (rows(2_000, features), rows(2_000, features));
        let numbering = FeatureNumbering::renumber(&mut after, features as usize).unwrap();
        let mut counts = vec![0; numbering.len()];
        for row in 0..before.len() {
            let renumbered = entries(&after, row);
            assert!(renumbered.is_sorted_by_key(|(number, _)| *number));
            renumbered
                .iter()
                .for_each(|(number, _)| counts[*number as usize] += 1);
            let own = |(number, value): &(u32, f32)| (numbering.present[*number as usize], *value);
            let mut own: Vec<(u32, f32)> = renumbered.iter().map(own).collect();
            own.sort_unstable_by_key(|(feature, _)| *feature);
            assert_eq!(own, entries(&before, row));
        }
        // Every feature there is, the frequent ones first, by powers of two.
        assert!(counts.is_sorted_by_key(|count: &u32| std::cmp::Reverse(count.ilog2())));
    }

    #[test]
    fn weights_go_there_and_back() {
        let mut table = rows(500, 70_000);
        let numbering = FeatureNumbering::renumber(&mut table, 70_000).unwrap();
        for bias in [None, Some(1.0)] {
            let problem = Problem::new(Loss::Hinge, 1.0, 70_000, 3).unwrap();
            let problem = match bias {
                Some(bias) => problem.with_bias(bias).unwrap(),
                None => problem,
            };
            let mut wide = Weights::zeros(&problem);
            for subproblem in 0..3 {
                let vector = wide.vector_mut(subproblem);
                let present = numbering.present.iter().map(|&feature| feature as usize);
                let bias = 70_000..vector.len();
                for feature in present.chain(bias) {
                    vector[feature] = (feature + subproblem) as f32;
                }
            }
            let narrow = numbering.narrow(&wide);
            assert_eq!(narrow.features(), numbering.len());
            assert_eq!(numbering.widen(&narrow), wide);
        }
    }

    #[test]
    fn what_would_not_pay_or_is_wrong_keeps_its_numbers() {
        let number =
            |mut table: RowTable, features| FeatureNumbering::renumber(&mut table, features);
        assert!(number(rows(100, 1_000), 1_000).is_none());
        assert!(number(rows(100, 100_000), 90_000).is_none());
        let dense = Rows::new(Layout::Dense { width: 100_000 });
        assert!(number(RowTable::from_rows(dense, Vec::new()), 100_000).is_none());
    }
}
