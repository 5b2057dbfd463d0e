//! A class index with its vectors in bf16, half of the bytes.
//!
//! Its scores are off by up to 2⁻⁸·|x||w|, so [`ClassIndex::search_exactly`] takes some more candidates and ranks them
//! by the exact vectors, which may be on disk. It sees by the scores whether another class could be among the best, and
//! then takes more. Finding the candidates by the exact vectors of whole lists would take as much memory as they have.

use std::borrow::Cow;

use rayon::prelude::*;

use crate::index::{ClassIndex, Number, compared, length, product, unit};
use crate::logits::Logits;

/// Candidates of a search in bf16: a multiple of `k`, plus a constant.
const CANDIDATES: (usize, usize) = (2, 16);
/// Factor on the candidates if those may not contain the best, and most rounds; after these, classes nearer to each
/// other than the precision of bf16 may be missed.
const MORE: usize = 8;
const ROUNDS: usize = 3;
/// The largest error of bf16, which has 8 binary digits, relative to a number.
const ROUNDING: f32 = 1.0 / 256.0;

/// The bits of a bf16: the upper half of those of an f32.
impl Number for u16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self) << 16)
    }

    fn all_wide<'a>(numbers: &'a [u16], scratch: &'a mut Vec<f32>) -> &'a [f32] {
        scratch.clear();
        scratch.extend(numbers.iter().map(|x| x.wide()));
        scratch
    }
}

/// The nearest bf16; of two that are equally near the even one.
fn rounded(x: f32) -> u16 {
    let bits = x.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The description of an index in its file, without the vectors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IndexShape {
    /// Numbers of a vector.
    pub d: usize,
    /// How vectors are compared.
    pub logits: Logits,
    /// Lists that a search looks at.
    pub probes: usize,
    /// Share of sample queries with the best class found, 0 to 1.
    pub recall: f64,
    /// Length of the longest vector.
    pub longest: f32,
}

/// The arrays of an index.
#[derive(Clone, Debug)]
pub struct IndexArrays<'a, T: Clone = u16> {
    /// The class of each row.
    pub ids: Cow<'a, [u32]>,
    /// Start of each list, then the end.
    pub starts: Cow<'a, [u64]>,
    /// Means of the lists \[lists, d\]; empty with a single list.
    pub centres: Cow<'a, [f32]>,
    /// Vectors, list after list; in bf16 of a rounded index.
    pub rows: Cow<'a, [T]>,
}

impl ClassIndex {
    /// The same with rows in bf16.
    pub fn rounded(self) -> ClassIndex<u16> {
        let rows = self.rows.par_chunks_exact(self.d);
        let longest = rows.map(length).reduce(|| 0.0, f32::max);
        ClassIndex {
            d: self.d,
            logits: self.logits,
            rows: self.rows.par_iter().map(|&x| rounded(x)).collect(),
            longest,
            mean: self.mean,
            ids: self.ids,
            starts: self.starts,
            centres: self.centres,
            probes: self.probes,
            recall: self.recall,
        }
    }
}

impl<T: Number> ClassIndex<T> {
    /// The parts saved in a file, all but the mean.
    pub fn parts(&self) -> (IndexShape, IndexArrays<'_, T>) {
        let shape = IndexShape {
            d: self.d,
            logits: self.logits,
            probes: self.probes,
            recall: self.recall,
            longest: self.longest,
        };
        let arrays = IndexArrays {
            ids: self.ids[..].into(),
            starts: self.starts[..].into(),
            centres: self.centres[..].into(),
            rows: self.rows[..].into(),
        };
        (shape, arrays)
    }

    /// An index from the parts in a file.
    ///
    /// Errors: a description of the mismatch.
    pub fn of_parts(shape: IndexShape, arrays: IndexArrays<'_, T>) -> Result<Self, &'static str> {
        let IndexArrays {
            ids,
            starts,
            centres,
            rows,
        } = arrays;
        let (d, classes) = (shape.d, ids.len());
        let lists = starts.len().saturating_sub(1);
        if d == 0 || Some(rows.len()) != classes.checked_mul(d) {
            return Err("the vectors do not match the classes");
        }
        let ascends = starts.is_sorted() && starts.first() == Some(&0);
        if !ascends || starts.last() != Some(&(classes as u64)) {
            return Err("the lists do not divide the classes");
        }
        if lists == 0 || centres.len() != if lists > 1 { lists * d } else { 0 } {
            return Err("the centres do not match the lists");
        }
        if !(1..=lists).contains(&shape.probes) || !(0.0..=1.0).contains(&shape.recall) {
            return Err("the figures are out of range");
        }
        let mut seen = vec![false; classes];
        let is_new = |&id: &u32| {
            let seen = seen.get_mut(id as usize);
            seen.is_some_and(|seen| !std::mem::replace(seen, true))
        };
        if !ids.iter().all(is_new) {
            return Err("a class is missing or occurs twice");
        }
        let are_finite = rows.par_iter().all(|x| x.wide().is_finite());
        if !are_finite || !centres.iter().all(|x| x.is_finite()) || !shape.longest.is_finite() {
            return Err("a vector is not finite");
        }
        Ok(ClassIndex {
            d,
            logits: shape.logits,
            rows: rows.into_owned(),
            longest: shape.longest,
            mean: Vec::new(),
            ids: ids.into_owned(),
            starts: starts.into_owned(),
            centres: centres.into_owned(),
            probes: shape.probes,
            recall: shape.recall,
        })
    }
}

impl ClassIndex<u16> {
    /// The same with searches that look at all lists.
    pub fn without_lists(mut self) -> Self {
        (self.probes, self.recall) = (self.lists(), 1.0);
        self
    }

    /// As [`search`](ClassIndex::search), with classes ranked by `exact`, which gives the vector of a class.
    ///
    /// Errors: those of `exact`.
    pub fn search_exactly<E: Send>(
        &self,
        queries: &[f32],
        k: usize,
        exact: &(impl Fn(u32) -> Result<Vec<f32>, E> + Sync),
    ) -> Result<Vec<Vec<(u64, f32)>>, E> {
        let queries = compared(queries, self.d, &self.mean, self.logits);
        let (times, more) = CANDIDATES;
        let first = (times * k + more).min(self.len());
        let found = self.search_lists(&queries, first, self.probes);
        let each = queries.par_chunks_exact(self.d).zip(found);
        each.map(|(query, mut found)| {
            // The largest error of a product in bf16.
            let error = ROUNDING * self.longest * length(query);
            let beat = |best: &[(u64, f32)], rounded: f32| {
                best.len() == k && best.last().is_none_or(|last| last.1 > rounded + error)
            };
            for round in 1.. {
                let mut best: Vec<(u64, f32)> = Vec::with_capacity(k.min(self.len()) + 1);
                for &(class, rounded) in &found {
                    if beat(&best, rounded) {
                        break;
                    }
                    let vector = unit(&exact(class as u32)?, self.d, self.logits);
                    let z = product(&vector, query);
                    let at = best.partition_point(|&(other, y)| y > z || y == z && other < class);
                    best.insert(at, (class, z));
                    best.truncate(k);
                }
                let is_sure = found.last().is_none_or(|last| beat(&best, last.1));
                if is_sure || found.len() == self.len() || round == ROUNDS {
                    return Ok(best);
                }
                let more = (MORE * found.len()).min(self.len());
                found = self.search_lists(query, more, self.probes).remove(0);
            }
            Ok(Vec::new())
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::tests::{COSINE, agree, brute, clustered};

    #[test]
    fn numbers_are_rounded_to_the_nearest() {
        let all = [
            0.0,
            1.0,
            -1.0,
            1.0 + 1.0 / 256.0,
            1.0 + 3.0 / 256.0,
            0.1,
            3e38,
        ];
        let back = all.map(|x| rounded(x).wide());
        assert_eq!(back[..3], all[..3]);
        // Halfway between two: the even one.
        assert_eq!(back[3..5], [1.0, 1.0 + 4.0 / 256.0]);
        for (x, y) in all.into_iter().zip(back) {
            assert!((x - y).abs() <= ROUNDING * x.abs(), "{x} {y}");
        }
        assert_eq!(rounded(-0.0), 0x8000);
    }

    /// With the exact vectors, a rounded index finds the same as the index in single precision.
    #[test]
    fn a_rounded_index_answers_exactly() {
        let (weights, queries) = clustered(8000, 64);
        let vector = |class: u32| Ok::<_, ()>(weights[class as usize * 64..][..64].to_vec());
        for logits in [COSINE, Logits::Product] {
            let single = ClassIndex::build(&weights, 64, logits, &[], 3).less(vec![0.1; 64]);
            let (first, all) = (single.search(&queries, 7), single.search_all(&queries, 7));
            let half = single.rounded();
            assert!(half.probes() < half.lists());
            let found = half.search_exactly(&queries, 7, &vector).unwrap();
            let half = half.without_lists();
            let exactly = half.search_exactly(&queries, 7, &vector).unwrap();
            for (found, expected) in [(found, first), (exactly, all)] {
                for (found, expected) in found.iter().zip(expected) {
                    let exact: Vec<_> = expected.iter().map(|&(c, z)| (c, f64::from(z))).collect();
                    // Sums of 64 products in another order.
                    let bound = 4.0 * 64.0 * f64::from(f32::EPSILON) * exact[0].1.abs().max(1.0);
                    agree(found, &exact, bound);
                }
            }
        }
    }

    /// Classes that bf16 does not tell apart, more than there are candidates at first.
    #[test]
    fn classes_close_to_each_other_are_told_apart() {
        let mut weights: Vec<f32> = (0..2000 * 4).map(|i| (i as f32).sin()).collect();
        for (at, row) in weights.chunks_exact_mut(4).take(500).enumerate() {
            row.copy_from_slice(&[1.0, at as f32 * 1e-6, 0.0, 0.0]);
        }
        let vector = |class: u32| Ok::<_, ()>(weights[class as usize * 4..][..4].to_vec());
        let half = ClassIndex::exact(&weights, 4, COSINE).rounded();
        let query = [1.0, 0.01, 0.0, 0.0];
        let found = half.search_exactly(&query, 2, &vector).unwrap();
        let expected = brute(&weights, 4, COSINE, &query, 2);
        agree(&found[0], &expected, 1e-6);
        assert!((498..500).contains(&found[0][0].0), "{found:?}");
        let failing = |class: u32| {
            if class == 3 {
                Err("gone")
            } else {
                vector(class).map_err(|()| "")
            }
        };
        assert_eq!(half.search_exactly(&query, 500, &failing), Err("gone"));
        assert!(half.search_exactly(&query, 0, &vector).unwrap()[0].is_empty());
        assert_eq!(
            half.search_exactly(&query, 9999, &vector).unwrap()[0].len(),
            2000
        );
    }

    #[test]
    fn parts_make_the_same_index_or_say_what_does_not_fit() {
        let (weights, queries) = clustered(3000, 16);
        let index = ClassIndex::build(&weights, 16, COSINE, &[], 7).rounded();
        let (shape, arrays) = index.parts();
        let again = ClassIndex::of_parts(shape, arrays.clone()).unwrap();
        assert_eq!(index.search(&queries, 5), again.search(&queries, 5));
        assert_eq!(index.recall(), again.recall());
        type Change = fn(&mut IndexShape, &mut IndexArrays<'_>);
        let changes: [(Change, &str); 14] = [
            (|shape, _| shape.d = 0, "vectors do not match"),
            (|shape, _| shape.d = usize::MAX, "vectors do not match"),
            (
                |_, arrays| arrays.rows = vec![0; 16].into(),
                "vectors do not match",
            ),
            (|_, arrays| arrays.starts = vec![].into(), "do not divide"),
            (|_, arrays| arrays.starts.to_mut()[0] = 1, "do not divide"),
            (
                |_, arrays| arrays.starts.to_mut()[1] = 9999,
                "do not divide",
            ),
            (
                |_, arrays| arrays.starts = vec![0, 2999].into(),
                "do not divide",
            ),
            (
                |_, arrays| arrays.starts = vec![0, 3000].into(),
                "centres do not match",
            ),
            (|shape, _| shape.probes = 0, "out of range"),
            (|shape, _| shape.recall = f64::NAN, "out of range"),
            (
                |_, arrays| arrays.ids.to_mut()[0] = 3000,
                "missing or occurs twice",
            ),
            (
                |_, arrays| arrays.ids.to_mut()[0] = arrays.ids[1],
                "missing or occurs twice",
            ),
            (|_, arrays| arrays.rows.to_mut()[5] = 0x7f80, "not finite"),
            (
                |_, arrays| arrays.centres.to_mut()[5] = f32::NAN,
                "not finite",
            ),
        ];
        for (at, (change, part)) in changes.into_iter().enumerate() {
            let (mut shape, mut arrays) = (shape, arrays.clone());
            change(&mut shape, &mut arrays);
            let error = ClassIndex::of_parts(shape, arrays).err().unwrap_or("none");
            assert!(error.contains(part), "{at}: {error}");
        }
    }
}
