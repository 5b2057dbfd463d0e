//! Features numbered anew for rows that stay in memory: only those that some row has, the frequent ones
//! first.
//!
//! Sparse rows mention a small part of the features, spread over all of them. A w of those alone is as much
//! smaller, and what most visits touch lies together at its beginning, in the caches: with 200 000 rows of
//! 30 M features of which 1.6 M occur, a visit takes a third of the time, and so does whatever passes over
//! w. Over ranks the features that several of them have are a run at the beginning, exchanged without
//! looking each of them up.
//!
//! Features fall in *tiers* by how many rows have them and stay ascending within each, so that a row is
//! renumbered in one pass, without sorting.
//!
//! Cost, once: two passes over the indices, two over a table of 4 bytes a feature, which is gone
//! afterwards; 4 bytes stay for every present feature. Over ranks one exchange of 8 bytes for each.

use pelton_format::{Layout, RowTable, Rows};
use pelton_storage::{huge_vec, huge_zeros};

use crate::ranks::{Exchange, Peers};
use crate::weights::Weights;

/// Least features for which it is worth while: below, w lies in the caches as it is.
const LEAST_FEATURES: usize = 1 << 16;

/// Tiers: the first of features in 2^15 rows or more, then down by halves to those in one row.
const TIERS: usize = 16;

/// The last tiers, of features in fewer than 128 rows. Ranks exchange these once a pass: measured on a million
/// rows of 29 non-zeros, the same visits as with an exchange every few thousand visits, at half the cost.
const RARE_TIERS: usize = 7;

/// New numbers for features.
#[derive(Clone, Debug)]
pub struct FeatureNumbering {
    features: usize,
    /// The features present, by their new numbers.
    present: Vec<u32>,
    /// How many of them are in two rows or more, and in many: the first ones.
    repeated: usize,
    common: usize,
}

impl FeatureNumbering {
    /// Gives the features of `rows` new numbers, over ranks the same on all of them; `None` where that
    /// would not pay: few features, or rows that are not sparse. So does a feature not below
    /// `features`, which the solver reports.
    ///
    /// Panics where another table shares the segments of `rows`.
    pub fn renumber<E>(
        rows: &mut RowTable,
        features: usize,
        mut peers: Option<&mut Peers<'_, E>>,
    ) -> Result<Option<FeatureNumbering>, E> {
        if features < LEAST_FEATURES {
            return Ok(None);
        }
        let segments = rows.segments_mut().expect("segments are not shared");
        // Counts, exact up to 2^24 in f32, and afterwards new numbers, as bits.
        let mut table = huge_zeros(features);
        let mut known = count(segments, &mut table);
        if let Some(peers) = &mut peers {
            let mut unknown = [f64::from(u8::from(!known))];
            (peers.exchange)(Exchange::Largest(&mut unknown))?;
            known = unknown[0] == 0.0;
        }
        if !known {
            return Ok(None);
        }
        if let Some(peers) = &mut peers {
            add_others(&mut table, peers)?;
        }
        let (numbering, tiers) = FeatureNumbering::by_counts(&mut table);
        for segment in segments {
            renumber_rows(segment, &table, &tiers);
        }
        Ok(Some(numbering))
    }

    /// Replaces counts by new numbers, and says where tiers begin.
    fn by_counts(table: &mut [f32]) -> (FeatureNumbering, [u32; TIERS]) {
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
            }
        }
        let numbering = FeatureNumbering {
            features: table.len(),
            present,
            repeated: starts[TIERS - 1] as usize,
            common: starts[TIERS - RARE_TIERS] as usize,
        };
        (numbering, std::array::from_fn(|tier| starts[tier]))
    }

    /// Number of features present.
    pub fn len(&self) -> usize {
        self.present.len()
    }

    /// Whether no feature is present.
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// How many features are in two rows or more, and how many of them are common: the first
    /// ones.
    pub(crate) fn frequent(&self) -> [usize; 2] {
        [self.repeated, self.common]
    }

    /// The weights of the present features alone, in their new order.
    pub(crate) fn narrow(&self, weights: &Weights) -> Weights {
        let vectors = (0..weights.subproblems()).map(|subproblem| {
            let wide = weights.vector(subproblem);
            let mut narrow: Vec<f32> = huge_vec(self.present.len() + 1);
            narrow.extend(self.present.iter().map(|&feature| wide[feature as usize]));
            narrow.extend(&wide[self.features..]);
            narrow
        });
        Weights::from_vectors(self.present.len(), weights.bias(), vectors.collect())
    }

    /// Undoes [`FeatureNumbering::narrow`]; the weights of absent features are 0.
    pub(crate) fn widen(&self, weights: &Weights) -> Weights {
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

/// Counts in how many rows each feature is; `false` where a row is not sparse or has a feature too many.
fn count(segments: &[Rows], counts: &mut [f32]) -> bool {
    let mut known = true;
    for segment in segments {
        known &= segment.layout() == Layout::Sparse;
        for &feature in segment.indices() {
            match counts.get_mut(feature as usize) {
                Some(count) => *count += 1.0,
                None => known = false,
            }
        }
    }
    known
}

/// Adds the counts of the other ranks.
fn add_others<E>(counts: &mut [f32], peers: &mut Peers<'_, E>) -> Result<(), E> {
    let present = counts.iter().enumerate().filter(|(_, count)| **count > 0.0);
    let own: Vec<u64> = present
        .map(|(feature, &count)| (feature as u64) << 32 | count as u64)
        .collect();
    let mut all = Vec::new();
    (peers.exchange)(Exchange::GatherWords(&own, &mut all))?;
    all.swap_remove(peers.rank);
    for word in all.into_iter().flatten() {
        counts[(word >> 32) as usize] += word as u32 as f32;
    }
    Ok(())
}

/// Gives the features of a segment the numbers of `table`, tier by tier in ascending order.
fn renumber_rows(segment: &mut Rows, table: &[f32], tiers: &[u32; TIERS]) {
    let mut row: Vec<(u32, f32)> = Vec::new();
    let mut tier_of: Vec<u8> = Vec::new();
    segment.edit_sparse(|indices, values| {
        row.clear();
        row.extend(
            indices
                .iter()
                .zip(values.iter())
                .map(|(&index, &value)| (table[index as usize].to_bits(), value)),
        );
        // The first tier starts at 0.
        tier_of.clear();
        tier_of.extend(row.iter().map(|&(number, _)| {
            let starts = tiers.iter().map(|&start| u8::from(start <= number));
            starts.sum::<u8>() - 1
        }));
        let mut places = [0_u32; TIERS];
        for &tier in &tier_of {
            places[tier as usize] += 1;
        }
        let mut start = 0;
        for place in &mut places {
            (start, *place) = (start + *place, start);
        }
        for (&(number, value), &tier) in row.iter().zip(&tier_of) {
            let place = &mut places[tier as usize];
            (indices[*place as usize], values[*place as usize]) = (number, value);
            *place += 1;
        }
    });
}
