//! Sums and maxima of rows, and sums over rows, each in an order that no number of threads changes.

use rayon::prelude::*;

/// Numbers summed in parallel: two vectors of the widest level, so two additions are in flight at once.
const LANES: usize = 32;

/// Folds the numbers of `row` side by side and then across.
#[inline(always)]
fn fold(row: &[f32], start: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [start; LANES];
    let (whole, rest) = row.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = f(*lane, x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = f(*lane, x);
    }
    lanes.into_iter().fold(start, f)
}

/// The sum of a row.
#[inline(always)]
pub fn sum(row: &[f32]) -> f32 {
    fold(row, 0.0, |a, b| a + b)
}

/// Σ a_i·b_i of two rows.
#[inline(always)]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for (lane, (&a, &b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += a * b;
        }
    }
    for (lane, (&a, &b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += a * b;
    }
    lanes.iter().sum()
}

/// The largest number of a row, NaN passed over.
#[inline(always)]
pub fn max(row: &[f32]) -> f32 {
    fold(row, f32::NEG_INFINITY, |a, b| if b > a { b } else { a })
}

/// `total` = the sum of the rows of `parts`, each as long as `total`.
pub fn over_rows(parts: &[f32], total: &mut [f32]) {
    let width = total.len();
    total
        .par_chunks_mut(1024)
        .enumerate()
        .for_each(|(i, total)| {
            total.fill(0.0);
            for part in parts.chunks_exact(width.max(1)) {
                for (t, p) in total.iter_mut().zip(&part[i * 1024..]) {
                    *t += p;
                }
            }
        });
}

/// `total` = the sum of the rows of a matrix as wide as `total`.
pub fn of_columns(rows: &[f32], total: &mut [f32]) {
    let width = total.len();
    if width == 0 {
        return;
    }
    let each = rows_each(rows.len() / width);
    let mut parts = vec![0.0; (rows.len() / width).div_ceil(each) * width];
    parts
        .par_chunks_mut(width)
        .zip(rows.par_chunks(each * width))
        .for_each(|(sum, rows)| {
            for row in rows.chunks_exact(width) {
                for (s, r) in sum.iter_mut().zip(row) {
                    *s += r;
                }
            }
        });
    over_rows(&parts, total);
}

/// Rows that one task takes: about 64 tasks, so that many cores find work, and never fewer than 8 rows.
pub fn rows_each(rows: usize) -> usize {
    rows.div_ceil(64).max(8)
}
