//! Products of matrices.

use crate::matrix::Matrix;
use crate::product::{self, Left, Output, Packed, Right};
use crate::simd::Simd;

/// c = a·b, or c += a·b with `add`. `c` is row-major, with `stride` numbers from one row to the next.
///
/// Shapes: `a` \[m, k\], `b` \[k, n\], `c` \[m, n\]. Panics where they do not fit.
pub fn gemm(a: Matrix<'_>, b: Matrix<'_>, c: &mut [f32], stride: usize, add: bool) {
    at_level(Simd::current(), a, b, c, stride, add);
}

fn at_level(level: Simd, a: Matrix<'_>, b: Matrix<'_>, c: &mut [f32], stride: usize, add: bool) {
    assert_eq!(a.cols(), b.rows(), "inner sizes of a product");
    let depth = product::even_depth(b.rows());
    multiply(level, a, Right::Source(&b), depth, b.cols(), c, stride, add);
}

/// c = aᵀ·b without gaps, for operands of many rows: the gradient of weights from a batch.
///
/// Shapes: `a` \[k, m\], `b` \[k, n\], `c` \[m, n\]. Neither operand is packed as a whole, and k is divided too where
/// m·n is small. Panics where shapes do not fit.
pub fn gemm_over_rows(a: Matrix<'_>, b: Matrix<'_>, c: &mut [f32]) {
    assert_eq!(a.rows(), b.rows(), "inner sizes of a product");
    assert_eq!(c.len(), a.cols() * b.cols(), "numbers of a product");
    let depth = product::even_depth(b.rows());
    product::multiply_long(Simd::current(), &a, &b, depth, c);
}

/// A right operand that is used several times, in the order in which the loops read it.
pub struct PackedMatrix {
    level: Simd,
    packed: Packed,
}

impl PackedMatrix {
    /// Copies `b` \[k, n\].
    pub fn new(b: Matrix<'_>) -> PackedMatrix {
        PackedMatrix::at_level(Simd::current(), b)
    }

    fn at_level(level: Simd, b: Matrix<'_>) -> PackedMatrix {
        PackedMatrix {
            level,
            packed: Packed::new(level, &b, product::even_depth(b.rows())),
        }
    }
}

/// As [`gemm`], with the right operand packed before.
pub fn gemm_packed(a: Matrix<'_>, b: &PackedMatrix, c: &mut [f32], stride: usize, add: bool) {
    let (k, n) = (b.packed.k(), b.packed.n());
    assert_eq!(a.cols(), k, "inner sizes of a product");
    multiply(b.level, a, Right::Packed(&b.packed), 1, n, c, stride, add);
}

#[allow(clippy::too_many_arguments)]
fn multiply(
    level: Simd,
    a: Matrix<'_>,
    b: Right<'_>,
    depth: usize,
    n: usize,
    c: &mut [f32],
    stride: usize,
    add: bool,
) {
    assert!(stride >= n, "rows of a product overlap");
    let transposed = a.transposed();
    // Contiguous rows or columns are copied without transposing.
    let left = if a.col_stride() != 1 && a.row_stride() == 1 {
        Left::Columns(&transposed)
    } else {
        Left::Rows(&a)
    };
    let output = Output {
        c,
        row: &|i| i * stride,
        add,
        bias: None,
        relu: false,
    };
    product::multiply(level, left, b, depth, output);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that are exact in few bits, so that every order of summation gives the same result.
    fn numbers(n: usize, seed: usize) -> Vec<f32> {
        (0..n)
            .map(|i| ((((i + seed) * 2_654_435_761) >> 7) % 17) as f32 - 8.0)
            .collect()
    }

    /// Against the plain sums, exactly; every level, every way of lying, packed and not.
    fn check(m: usize, k: usize, n: usize) {
        let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
        let stride = n + 3;
        let before = numbers(m * stride, 3);
        for level in Simd::available() {
            for way in 0..4 {
                let left = if way & 1 == 0 {
                    Matrix::new(&a, m, k)
                } else {
                    Matrix::new(&a, k, m).transposed()
                };
                let right = if way & 2 == 0 {
                    Matrix::new(&b, k, n)
                } else {
                    Matrix::new(&b, n, k).transposed()
                };
                for add in [false, true] {
                    let mut expected = before.clone();
                    for i in 0..m {
                        for j in 0..n {
                            let sum: f32 = (0..k).map(|p| left.at(i, p) * right.at(p, j)).sum();
                            let old = if add { before[i * stride + j] } else { 0.0 };
                            expected[i * stride + j] = old + sum;
                        }
                    }
                    let mut c = before.clone();
                    at_level(level, left, right, &mut c, stride, add);
                    assert_eq!(c, expected, "{level:?} {m}x{k}x{n} way {way}");
                    let mut c = before.clone();
                    let packed = PackedMatrix::at_level(level, right);
                    gemm_packed(left, &packed, &mut c, stride, add);
                    assert_eq!(c, expected, "{level:?} {m}x{k}x{n} way {way}, packed");
                }
            }
        }
    }

    #[test]
    fn equals_the_plain_sums() {
        for (m, k, n) in [
            (1, 1, 1),
            (3, 0, 5),
            (0, 3, 5),
            (5, 3, 0),
            (1, 300, 70),
            (2, 17, 33),
            (14, 16, 32),
            (15, 257, 49),
            (32, 200, 80),
            (113, 530, 65),
            (7, 5, 1100),
        ] {
            check(m, k, n);
        }
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let (m, k, n) = (150, 600, 140);
        let a: Vec<f32> = (0..m * k).map(|i| (i as f32).sin()).collect();
        let b: Vec<f32> = (0..k * n).map(|i| (i as f32).cos()).collect();
        let product = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let mut c = vec![0.0; m * n];
            pool.install(|| {
                gemm(
                    Matrix::new(&a, m, k),
                    Matrix::new(&b, k, n),
                    &mut c,
                    n,
                    false,
                )
            });
            c
        };
        let one = product(1);
        assert_eq!(one, product(2));
        assert_eq!(one, product(5));
    }
}
