//! k-means of class vectors, by products of matrices.

use pelton_kernels::simd::{self, Kernel, Simd};
use pelton_kernels::{Matrix, PackedMatrix, Precision, gemm_packed};
use pelton_key::KeyedRng;
use rayon::prelude::*;

/// Vectors a cluster that the means are learnt from, and rounds.
const LEARNT: usize = 48;
const ROUNDS: usize = 6;
/// Vectors, and centres, that are multiplied at once.
const TALL: usize = 256;

/// Centres \[lists, d\] of the rows \[at least `lists`, d\], from a sample of them.
pub(crate) fn centres(rows: &[f32], d: usize, lists: usize, rng: &mut KeyedRng) -> Vec<f32> {
    let mut order: Vec<u32> = (0..(rows.len() / d) as u32).collect();
    rng.shuffle(&mut order);
    order.truncate(lists * LEARNT);
    let mut sample = Vec::with_capacity(order.len() * d);
    for &row in &order {
        sample.extend_from_slice(&rows[row as usize * d..][..d]);
    }
    let mut centres = sample[..lists * d].to_vec();
    for _ in 0..ROUNDS {
        let list_of = assign(&sample, d, &centres);
        let (mut sums, mut counts) = (vec![0.0; lists * d], vec![0u32; lists]);
        for (row, &list) in sample.chunks_exact(d).zip(&list_of) {
            counts[list as usize] += 1;
            let sum = &mut sums[list as usize * d..][..d];
            for (sum, x) in sum.iter_mut().zip(row) {
                *sum += x;
            }
        }
        for ((centre, sum), &count) in centres.chunks_exact_mut(d).zip(sums.chunks(d)).zip(&counts)
        {
            // A list without rows keeps its centre.
            if count > 0 {
                for (centre, sum) in centre.iter_mut().zip(sum) {
                    *centre = sum / count as f32;
                }
            }
        }
    }
    centres
}

/// The nearest centre of each row: that of the largest x·c − ½|c|².
pub(crate) fn assign(rows: &[f32], d: usize, centres: &[f32]) -> Vec<u32> {
    let level = Simd::current();
    let lengths = centres.chunks_exact(d);
    let halves: Vec<f32> = lengths
        .map(|c| 0.5 * c.iter().map(|x| x * x).sum::<f32>())
        .collect();
    let parts = rows.par_chunks(TALL * d).map(|rows| {
        let width = rows.len() / d;
        let packed = PackedMatrix::new(Precision::F32, Matrix::new(rows, width, d).transposed());
        let (mut most, mut number) = (vec![f32::NEG_INFINITY; width], vec![0; width]);
        let mut products = vec![0.0; TALL * width];
        for (part, centres) in centres.chunks(TALL * d).enumerate() {
            let height = centres.len() / d;
            let matrix = Matrix::new(centres, height, d);
            gemm_packed(matrix, &packed, &mut products, width, false);
            let kernel = Nearest {
                products: &products[..height * width],
                halves: &halves[part * TALL..],
                first: (part * TALL) as u32,
                most: &mut most,
                number: &mut number,
            };
            simd::run(level, kernel);
        }
        number
    });
    parts.collect::<Vec<_>>().concat()
}

/// Column by column of products \[centres, rows\], the nearest centre so far.
struct Nearest<'a> {
    products: &'a [f32],
    halves: &'a [f32],
    first: u32,
    most: &'a mut [f32],
    number: &'a mut [u32],
}

impl Kernel for Nearest<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let rows = self.products.chunks_exact(self.most.len());
        for ((centre, row), &half) in (self.first..).zip(rows).zip(self.halves) {
            let so_far = self.most.iter_mut().zip(&mut *self.number);
            for ((most, number), product) in so_far.zip(row) {
                let near = product - half;
                let is_nearer = near > *most;
                *most = if is_nearer { near } else { *most };
                *number = if is_nearer { centre } else { *number };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_goes_to_the_nearest_centre() {
        let mut rng = KeyedRng::new(3);
        let mut numbers =
            |n: usize| -> Vec<f32> { (0..n).map(|_| rng.next_f64() as f32).collect() };
        // More rows and centres than are multiplied at once.
        for (rows, lists, d) in [(1, 1, 3), (300, 7, 5), (600, 290, 16)] {
            let (rows, centres) = (numbers(rows * d), numbers(lists * d));
            let found = assign(&rows, d, &centres);
            assert_eq!(found.len(), rows.len() / d);
            let distance = |row: &[f32], list: usize| -> f64 {
                let pairs = row.iter().zip(&centres[list * d..]);
                pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum()
            };
            for (row, &list) in rows.chunks(d).zip(&found) {
                let least = (0..lists)
                    .map(|list| distance(row, list))
                    .fold(f64::MAX, f64::min);
                // Products up to d in single precision.
                let bound = 8.0 * d as f64 * f64::from(f32::EPSILON);
                assert!(distance(row, list as usize) <= least + bound);
            }
        }
    }

    #[test]
    fn centres_of_points_apart_are_the_points() {
        let points = [[0.0, 0.0f32], [10.0, 0.0], [0.0, 10.0]];
        // As many rows as are used for learning.
        let rows: Vec<f32> = (0..3 * LEARNT)
            .flat_map(|i| points[i % 3].map(|x| x + (i % 2) as f32))
            .collect();
        let found = centres(&rows, 2, 3, &mut KeyedRng::new(1));
        // Rows that begin in the same cluster may leave another empty; with this seed that does not happen.
        let mut found: Vec<[f32; 2]> = found.as_chunks().0.to_vec();
        found.sort_by(|a, b| a.partial_cmp(b).unwrap());
        assert_eq!(found, [[0.5, 0.5], [0.5, 10.5], [10.5, 0.5]]);
    }
}
