//! The nearest classes of a query, without looking at all of them.
//!
//! An inverted file (Jégou et al., "Product quantization for nearest neighbor search", 2011, section 4, without the
//! quantisation): k-means divides the class vectors into lists, and a query looks at the lists with the highest scores
//! of their centres. Scores are exact products in single precision, so only whole lists can be missed. Building the
//! index chooses how many lists a query looks at: as few as find the best class of [`RECALL`] of sample queries.
//!
//! A graph of neighbours (HNSW) would look at fewer vectors, one after the other and each somewhere else in memory,
//! takes about ten times as long to build, and as a library brings a C++ compiler into the build. Lists are read from
//! end to end, and are built by products of matrices.
//!
//! Cost for N classes of d numbers in L = [`PER_ROOT`]·√N lists: a build takes 2·N·L·d operations and as much again for
//! the sample; next to the vectors it keeps 4·N + 4·L·d bytes. A query takes 2·d·(L + looked at) operations.

use std::ops::Range;

use pelton_kernels::simd::{self, Kernel, Simd};
use pelton_kernels::{Matrix, PackedMatrix, Precision, gemm_packed};
use pelton_key::KeyedRng;
use rayon::prelude::*;

use crate::best::Best;
use crate::chunk;
use crate::clusters::{assign, centres};
use crate::logits::Logits;

/// Share of the best classes that must be found, for the sample queries and for other queries.
const RECALL: f64 = 0.995;
const BAR: f64 = 0.99;
/// A search that would look at more than one list in `MOST_SHARE` looks at all: products of matrices with whole blocks
/// are several times as fast as those of a query with scattered lists.
const MOST_SHARE: usize = 4;
/// Lists over the square root of the classes.
const PER_ROOT: f64 = 2.0;
/// Queries of a sample: half choose the number of lists and half measure it.
const SAMPLE: usize = 2048;
/// Class vectors that one task multiplies.
const TALL: usize = 256;
/// From this many queries on, products of matrices are faster than products of vectors.
const MANY: usize = 4;

/// A number of a class vector.
pub trait Number: Copy + Send + Sync + 'static {
    /// The same in single precision.
    fn wide(self) -> f32;

    /// All of these in single precision; converts into `scratch` if necessary.
    fn all_wide<'a>(numbers: &'a [Self], scratch: &'a mut Vec<f32>) -> &'a [f32];
}

impl Number for f32 {
    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }

    fn all_wide<'a>(numbers: &'a [f32], _: &'a mut Vec<f32>) -> &'a [f32] {
        numbers
    }
}

/// Class vectors that queries are compared with.
pub struct ClassIndex<T = f32> {
    pub(crate) d: usize,
    pub(crate) logits: Logits,
    /// List after list; of length 1 if logits are cosines.
    pub(crate) rows: Vec<T>,
    /// Length of the longest row of a rounded index.
    pub(crate) longest: f32,
    /// Subtracted from each query first; may be empty.
    pub(crate) mean: Vec<f32>,
    /// The class of each row.
    pub(crate) ids: Vec<u32>,
    /// Start of each list, then the end.
    pub(crate) starts: Vec<u64>,
    /// Means of the lists; empty with a single list.
    pub(crate) centres: Vec<f32>,
    pub(crate) probes: usize,
    pub(crate) recall: f64,
}

impl ClassIndex {
    /// Of the class vectors `weights` \[classes, d\], without lists: every search looks at all.
    ///
    /// Panics unless they are whole rows, fewer than 2³².
    pub fn exact(weights: &[f32], d: usize, logits: Logits) -> ClassIndex {
        ClassIndex {
            logits,
            ..ClassIndex::of_rows(unit(weights, d, logits), d)
        }
    }

    /// Of rows \[any, d\] that are compared by products, as they are; every search looks at all.
    ///
    /// Panics unless they are whole rows, fewer than 2³².
    pub fn of_rows(rows: Vec<f32>, d: usize) -> ClassIndex {
        assert!(d > 0 && rows.len().is_multiple_of(d), "whole rows");
        let classes = u32::try_from(rows.len() / d).expect("fewer than 2^32 classes");
        ClassIndex {
            d,
            logits: Logits::Product,
            rows,
            longest: 0.0,
            mean: Vec::new(),
            ids: (0..classes).collect(),
            starts: vec![0, classes.into()],
            centres: Vec::new(),
            probes: 1,
            recall: 1.0,
        }
    }

    /// The same with lists. `queries` \[any, d\] determine how many of them a search looks at; without queries, class
    /// vectors with noise do, at a cosine of 0.55 to 0.9 to their class.
    ///
    /// Deterministic in `seed`.
    pub fn build(
        weights: &[f32],
        d: usize,
        logits: Logits,
        queries: &[f32],
        seed: u64,
    ) -> ClassIndex {
        let mut index = ClassIndex::exact(weights, d, logits);
        let classes = index.len();
        let lists = (PER_ROOT * (classes as f64).sqrt()) as usize;
        if lists < 2 || lists >= classes {
            return index;
        }
        let mut rng = KeyedRng::new(seed);
        index.centres = centres(&index.rows, d, lists, &mut rng);
        index.sort(&assign(&index.rows, d, &index.centres));
        let queries = match queries {
            [] => index.noisy(&mut rng),
            given => unit(&given[..given.len().min(SAMPLE * d)], d, logits),
        };
        index.choose_probes(&queries);
        index
    }

    /// The rows, list after list: as given with a single list.
    pub fn rows(&self) -> &[f32] {
        &self.rows
    }

    /// Puts the rows into the order of their lists.
    fn sort(&mut self, list_of: &[u32]) {
        let lists = self.centres.len() / self.d;
        let mut starts = vec![0; lists + 1];
        for &list in list_of {
            starts[list as usize + 1] += 1;
        }
        for list in 0..lists {
            starts[list + 1] += starts[list];
        }
        let mut next = starts.clone();
        for (row, &list) in list_of.iter().enumerate() {
            self.ids[next[list as usize] as usize] = row as u32;
            next[list as usize] += 1;
        }
        let mut rows = vec![0.0; self.rows.len()];
        let places = rows.par_chunks_exact_mut(self.d).zip(&self.ids);
        places
            .for_each(|(to, &id)| to.copy_from_slice(&self.rows[id as usize * self.d..][..self.d]));
        (self.rows, self.starts) = (rows, starts);
    }

    /// Class vectors with noise.
    fn noisy(&self, rng: &mut KeyedRng) -> Vec<f32> {
        let mut queries = Vec::with_capacity(SAMPLE * self.d);
        for _ in 0..SAMPLE {
            let row = rng.below(self.len() as u64) as usize;
            let row = &self.rows[row * self.d..][..self.d];
            let length = row.iter().map(|w| w * w).sum::<f32>().sqrt();
            // Noise of 0.5 to 1.5 times the vector's length, from numbers of variance 1/12.
            let noise = (0.5 + rng.next_f64() as f32) * length * (12.0 / self.d as f32).sqrt();
            queries.extend(
                row.iter()
                    .map(|w| w + noise * (rng.next_f64() as f32 - 0.5)),
            );
        }
        unit(&queries, self.d, self.logits)
    }

    /// As few lists as find the best class of [`RECALL`] of the queries' first half; the second half measures them.
    fn choose_probes(&mut self, queries: &[f32]) {
        let answers: Vec<u32> = self
            .scan(queries, 1)
            .into_iter()
            .map(|best| best.sorted()[0].0 as u32)
            .collect();
        let mut list_of = vec![0u64; self.len()];
        for list in 0..self.lists() {
            for &id in &self.ids[self.places(list)] {
                list_of[id as usize] = list as u64;
            }
        }
        // Lists that score higher than the one with the answer.
        let before = |(query, &answer): (&[f32], &u32)| {
            let own = list_of[answer as usize];
            let order = best(&self.centres, self.d, query, self.lists(), &u64::from);
            let order = order.into_iter().next().expect("a query").sorted();
            order.iter().position(|&(list, _)| list == own)
        };
        let each = queries.par_chunks_exact(self.d).zip(&answers);
        let mut before: Vec<usize> = each
            .map(|pair| before(pair).unwrap_or(usize::MAX))
            .collect();
        let second = before.split_off(before.len() / 2);
        before.sort_unstable();
        let at = (before.len() as f64 * RECALL) as usize;
        let needed = before.get(at.min(before.len().saturating_sub(1)));
        self.probes = needed.map_or(self.lists(), |&lists| lists.saturating_add(1));
        let found = |probes: usize| {
            let found = second.iter().filter(|&&lists| lists < probes).count();
            found as f64 / second.len().max(1) as f64
        };
        while self.probes <= self.lists() / MOST_SHARE && found(self.probes) < BAR {
            self.probes += self.probes.div_ceil(8);
        }
        if self.probes > self.lists() / MOST_SHARE {
            self.probes = self.lists();
        }
        self.recall = if self.probes < self.lists() {
            found(self.probes)
        } else {
            1.0
        };
    }
}

impl<T: Number> ClassIndex<T> {
    /// Takes a mean off each query before it is compared; see [`feature_mean`](crate::feature_mean).
    pub fn less(mut self, mean: Vec<f32>) -> Self {
        self.mean = mean;
        self
    }

    /// That mean; empty if there is none.
    pub fn mean(&self) -> &[f32] {
        &self.mean
    }

    /// Classes.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are no classes.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Numbers of a query.
    pub fn d(&self) -> usize {
        self.d
    }

    /// How classes are compared.
    pub fn logits(&self) -> Logits {
        self.logits
    }

    /// Lists.
    pub fn lists(&self) -> usize {
        self.starts.len() - 1
    }

    /// Lists that a search looks at.
    pub fn probes(&self) -> usize {
        self.probes
    }

    /// Recall of the best class on sample queries other than those that chose the number of lists, 0 to 1.
    pub fn recall(&self) -> f64 {
        self.recall
    }

    /// Bytes in addition to the class vectors.
    pub fn extra_bytes(&self) -> u64 {
        (4 * self.ids.len() + 8 * self.starts.len() + 4 * self.centres.len()) as u64
    }

    /// The `k` best classes of each of the queries \[any, d\] with their cosines or products, the best first; equally
    /// good ones by their ids. All classes if there are at most `k`.
    pub fn search(&self, queries: &[f32], k: usize) -> Vec<Vec<(u64, f32)>> {
        let queries = compared(queries, self.d, &self.mean, self.logits);
        self.search_lists(&queries, k, self.probes)
    }

    /// The same by looking at all.
    pub fn search_all(&self, queries: &[f32], k: usize) -> Vec<Vec<(u64, f32)>> {
        let queries = compared(queries, self.d, &self.mean, self.logits);
        self.search_lists(&queries, k, self.lists())
    }

    /// Searches prepared queries.
    pub(crate) fn search_lists(
        &self,
        queries: &[f32],
        k: usize,
        probes: usize,
    ) -> Vec<Vec<(u64, f32)>> {
        let k = k.min(self.len());
        let found = if probes < self.lists() {
            let lists = best(&self.centres, self.d, queries, probes, &u64::from);
            let each = queries.par_chunks_exact(self.d).zip(lists);
            each.map(|(query, lists)| self.look_at(query, lists, k))
                .collect()
        } else {
            self.scan(queries, k)
        };
        found.into_iter().map(Best::sorted).collect()
    }

    /// Rows of a list.
    fn places(&self, list: usize) -> Range<usize> {
        self.starts[list] as usize..self.starts[list + 1] as usize
    }

    /// The best of all classes.
    fn scan(&self, queries: &[f32], k: usize) -> Vec<Best> {
        let class = |row: u32| u64::from(self.ids[row as usize]);
        best(&self.rows, self.d, queries, k, &class)
    }

    /// The best of the classes in these lists; of all classes if the lists have too few.
    fn look_at(&self, query: &[f32], lists: Best, k: usize) -> Best {
        let level = Simd::current();
        let search = |mut best: Best, &(list, _): &(u64, f32)| {
            let places = self.places(list as usize);
            let kernel = Scan {
                rows: &self.rows[places.start * self.d..places.end * self.d],
                query,
                class: |row: u32| u64::from(self.ids[places.start + row as usize]),
                best: &mut best,
            };
            simd::run(level, kernel);
            best
        };
        let empty = || Best::new(k);
        let lists = lists.sorted();
        let count = |&(list, _): &(u64, f32)| self.places(list as usize).len();
        let listed: usize = lists.iter().map(count).sum();
        let found = lists
            .par_iter()
            .fold(empty, search)
            .reduce(empty, Best::merged);
        if listed < k {
            self.scan(query, k).remove(0)
        } else {
            found
        }
    }
}

/// Features \[any, d\] in the form that a head compares with its rows: without `mean`, which may be empty, and of
/// length 1 if logits are cosines.
pub fn compared(features: &[f32], d: usize, mean: &[f32], logits: Logits) -> Vec<f32> {
    let mut features = features.to_vec();
    if !mean.is_empty() {
        for row in features.chunks_exact_mut(d) {
            row.iter_mut().zip(mean).for_each(|(x, m)| *x -= m);
        }
    }
    unit(&features, d, logits)
}

/// The length of a vector.
pub(crate) fn length(row: &[f32]) -> f32 {
    product(row, row).sqrt()
}

/// Rows of length 1 if logits are cosines, otherwise unchanged.
pub(crate) fn unit(rows: &[f32], d: usize, logits: Logits) -> Vec<f32> {
    let mut unit = vec![0.0; rows.len()];
    let mut inverse = vec![0.0; rows.len() / d];
    let row = |i: usize| &rows[i * d..][..d];
    chunk::unit_rows(row, logits.is_cosine(), &mut unit, &mut inverse);
    unit
}

/// The `k` best rows of each query, with the ids that `number` gives to rows.
fn best<T: Number>(
    rows: &[T],
    d: usize,
    queries: &[f32],
    k: usize,
    number: &(impl Fn(u32) -> u64 + Sync),
) -> Vec<Best> {
    let count = queries.len() / d;
    let level = Simd::current();
    let packed = (count >= MANY)
        .then(|| PackedMatrix::new(Precision::F32, Matrix::new(queries, count, d).transposed()));
    let empty = || (vec![Best::new(k); count], Vec::new());
    let search = |(mut best, mut wide): (Vec<Best>, Vec<f32>), (part, rows): (usize, &[T])| {
        let number = |row: u32| number((part * TALL) as u32 + row);
        let Some(packed) = &packed else {
            for (query, best) in queries.chunks_exact(d).zip(&mut best) {
                let class = &number;
                simd::run(
                    level,
                    Scan {
                        rows,
                        query,
                        class,
                        best,
                    },
                );
            }
            return (best, wide);
        };
        let height = rows.len() / d;
        let mut products = vec![0.0; height * count];
        gemm_packed(
            Matrix::new(T::all_wide(rows, &mut wide), height, d),
            packed,
            &mut products,
            count,
            false,
        );
        keep(&products, &mut best, number);
        (best, wide)
    };
    let merge = |a: Vec<Best>, b: Vec<Best>| {
        let pairs = a.into_iter().zip(b);
        pairs.map(|(a, b)| a.merged(b)).collect()
    };
    let parts = rows.par_chunks(TALL * d).enumerate();
    let found = parts.fold(empty, search).map(|(best, _)| best);
    found.reduce(|| empty().0, merge)
}

/// Keeps the best of products \[rows, queries\].
fn keep(products: &[f32], best: &mut [Best], number: impl Fn(u32) -> u64) {
    let level = Simd::current();
    let count = best.len();
    for (first, best) in (0..).step_by(LOOK).zip(best.chunks_mut(LOOK)) {
        let mut least: Vec<f32> = best.iter().map(Best::least).collect();
        for (row, products) in (0..).zip(products.chunks_exact(count)) {
            let products = &products[first..first + best.len()];
            if !simd::run(level, Any(products, &least)) {
                continue;
            }
            for ((&z, best), least) in products.iter().zip(&mut *best).zip(&mut least) {
                if z >= *least {
                    best.push(number(row), z);
                    *least = best.least();
                }
            }
        }
    }
}

/// Numbers that are looked at together.
const LOOK: usize = 64;

/// Whether a number reaches its least.
struct Any<'a>(&'a [f32], &'a [f32]);

impl Kernel for Any<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let mut any = 0u32;
        for (z, least) in self.0.iter().zip(self.1) {
            any |= u32::from(z >= least);
        }
        any != 0
    }
}

/// Products of rows with one query.
struct Scan<'a, T, N: Fn(u32) -> u64> {
    rows: &'a [T],
    query: &'a [f32],
    class: N,
    best: &'a mut Best,
}

impl<T: Number, N: Fn(u32) -> u64> Kernel for Scan<'_, T, N> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (place, row) in (0..).zip(self.rows.chunks_exact(self.query.len())) {
            let z = product(row, self.query);
            if z >= self.best.least() {
                self.best.push((self.class)(place), z);
            }
        }
    }
}

/// Numbers multiplied side by side.
const LANES: usize = 32;

/// As `sums::dot`, with the sums halved instead of added one by one: rows are short and many.
#[inline(always)]
pub(crate) fn product<T: Number>(a: &[T], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += a.wide() * b;
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += a.wide() * b;
    }
    let mut width = LANES / 2;
    while width > 0 {
        let (low, high) = lanes.split_at_mut(width);
        for (low, high) in low.iter_mut().zip(high) {
            *low += *high;
        }
        width /= 2;
    }
    lanes[0]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::logits::Margin;

    pub(crate) const COSINE: Logits = Logits::Cosine {
        scale: 16.0,
        margin: Margin::NONE,
    };

    fn normals(n: usize, rng: &mut KeyedRng) -> Vec<f32> {
        let sum = |rng: &mut KeyedRng| (0..12).map(|_| rng.next_f64()).sum::<f64>() - 6.0;
        (0..n).map(|_| sum(rng) as f32).collect()
    }

    /// Clusters of 200 classes, and a view of every seventh class.
    pub(crate) fn clustered(classes: usize, d: usize) -> (Vec<f32>, Vec<f32>) {
        let mut rng = KeyedRng::new(5);
        let means = normals(classes.div_ceil(200) * d, &mut rng);
        let own = normals(classes * d, &mut rng);
        let weights: Vec<f32> = (0..classes * d)
            .map(|i| means[i / d / 200 * d + i % d] + 0.5 * own[i])
            .collect();
        let mut queries = Vec::new();
        for row in weights.chunks(d).step_by(7) {
            let noise = normals(d, &mut rng);
            queries.extend(row.iter().zip(noise).map(|(w, g)| w + 0.8 * g));
        }
        (weights, queries)
    }

    /// In double precision, all of them, sorted.
    pub(crate) fn brute(
        weights: &[f32],
        d: usize,
        logits: Logits,
        query: &[f32],
        k: usize,
    ) -> Vec<(u64, f64)> {
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter()
                .zip(b)
                .map(|(a, b)| f64::from(*a) * f64::from(*b))
                .sum()
        };
        let length = |a: &[f32]| dot(a, a).sqrt().max(1e-12);
        let score = |row: &[f32]| match logits {
            Logits::Product => dot(row, query),
            Logits::Cosine { .. } => dot(row, query) / length(row) / length(query),
        };
        let mut all: Vec<(u64, f64)> = (0..).zip(weights.chunks(d).map(score)).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.truncate(k);
        all
    }

    /// Scores agree; classes too, unless they are equally good.
    pub(crate) fn agree(found: &[(u64, f32)], expected: &[(u64, f64)], bound: f64) {
        assert_eq!(found.len(), expected.len());
        for (&(class, z), &(right, exact)) in found.iter().zip(expected) {
            assert!((f64::from(z) - exact).abs() <= bound, "{z} for {exact}");
            let second = expected.iter().find(|(other, _)| *other == class);
            let close = second.is_some_and(|(_, z)| (z - exact).abs() <= bound);
            let is_last = (exact - expected[expected.len() - 1].1).abs() <= bound;
            assert!(class == right || close || is_last, "{class} for {right}");
        }
    }

    #[test]
    fn looking_at_all_equals_brute_force() {
        let (weights, queries) = clustered(700, 24);
        for logits in [COSINE, Logits::Product] {
            let index = ClassIndex::build(&weights, 24, logits, &[], 1);
            // A sum of d products of numbers up to |x||w| in f32.
            let largest = brute(&weights, 24, logits, &queries[..24], 1)[0]
                .1
                .abs()
                .max(1.0);
            let bound = 4.0 * 24.0 * f64::from(f32::EPSILON) * largest;
            for count in [1, 3, 4, 70] {
                let found = index.search_all(&queries[..count * 24], 10);
                assert_eq!(found.len(), count);
                for (query, found) in queries.chunks(24).zip(&found) {
                    agree(found, &brute(&weights, 24, logits, query, 10), bound);
                }
            }
        }
    }

    #[test]
    fn the_best_class_of_nearly_every_query_is_found() {
        let (weights, queries) = clustered(8000, 64);
        for logits in [COSINE, Logits::Product] {
            let index = ClassIndex::build(&weights, 64, logits, &[], 3);
            let (lists, probes) = (index.lists(), index.probes());
            assert!(lists > 100 && probes < lists / 2, "{probes} of {lists}");
            assert!(index.recall() >= 0.99, "{}", index.recall());
            let (found, all) = (index.search(&queries, 1), index.search_all(&queries, 1));
            let same = found
                .iter()
                .zip(&all)
                .filter(|(a, b)| a[0].0 == b[0].0)
                .count();
            assert!(same * 100 >= all.len() * 99, "{same} of {}", all.len());
            // Alone as among others.
            for (query, found) in queries.chunks(64).zip(&found).take(20) {
                assert_eq!(index.search(query, 1)[0][0].0, found[0].0);
            }
        }
    }

    #[test]
    fn queries_that_are_given_choose_the_lists() {
        let (weights, _) = clustered(5000, 16);
        let mut rng = KeyedRng::new(9);
        let far = normals(600 * 16, &mut rng);
        let near = ClassIndex::build(&weights, 16, COSINE, &weights[..600 * 16], 3);
        let far = ClassIndex::build(&weights, 16, COSINE, &far, 3);
        assert!(
            near.probes() < far.probes(),
            "{} {}",
            near.probes(),
            far.probes()
        );
    }

    #[test]
    fn few_classes_equal_classes_and_zeros() {
        // One class.
        let one = ClassIndex::build(&[1.0, 2.0], 2, COSINE, &[], 0);
        assert_eq!(one.search(&[2.0, 4.0], 5)[0][0].0, 0);
        assert_eq!(one.search(&[2.0, 4.0], 5)[0].len(), 1);
        assert_eq!(one.lists(), 1);
        // No class, no query.
        let none = ClassIndex::build(&[], 2, COSINE, &[], 0);
        assert!(none.is_empty() && none.search(&[1.0, 1.0], 3)[0].is_empty());
        assert!(one.search(&[], 3).is_empty());
        assert!(one.search(&[1.0, 1.0], 0)[0].is_empty());
        // As few classes as lists or fewer.
        for classes in 1..12 {
            let weights: Vec<f32> = (0..classes * 3).map(|i| (i as f32).sin()).collect();
            let index = ClassIndex::build(&weights, 3, COSINE, &[], 0);
            let found = index.search(&weights[..3], 100);
            assert_eq!(found[0].len(), classes);
            assert_eq!(found[0][0].0, 0);
        }
        // All equal: the first of them, and more than a list has.
        let index = ClassIndex::build(&[0.5; 4000], 4, COSINE, &[], 0);
        let found = index.search(&[1.0; 4], 1000);
        assert_eq!(found[0].len(), 1000);
        assert_eq!(found[0][0].0, 0);
        // Zeros have no direction: a cosine of 0.
        let mut weights = vec![0.0; 4000];
        weights[..8].copy_from_slice(&[1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0]);
        let index = ClassIndex::build(&weights, 4, COSINE, &[], 0);
        let found = index.search(&[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 1000);
        assert_eq!(found[0][0], (0, 1.0));
        assert_eq!(found[0][999], (1, -1.0));
        assert!(found[1].iter().all(|&(_, z)| z == 0.0));
        // More than a list has, from lists.
        let (weights, queries) = clustered(5000, 16);
        let index = ClassIndex::build(&weights, 16, COSINE, &weights, 3);
        assert!(index.probes() < index.lists());
        assert_eq!(index.search(&queries[..16], 4999)[0].len(), 4999);
    }

    #[test]
    fn the_same_seed_makes_the_same_index() {
        let (weights, queries) = clustered(3000, 16);
        let build = || ClassIndex::build(&weights, 16, COSINE, &[], 7);
        let (a, b) = (build(), build());
        assert_eq!(a.ids, b.ids);
        assert_eq!(a.probes(), b.probes());
        assert_eq!(a.search(&queries, 5), b.search(&queries, 5));
    }
}
