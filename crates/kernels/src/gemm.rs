//! Products of matrices.

use crate::matrix::Matrix;
use crate::precision::{Operand, Precision};
use crate::product::{self, Left, Output, Packed, Right};
use crate::simd::Simd;

/// c = a·b, or c += a·b with `add`. `c` is row-major, with `stride` numbers from one row to the next.
///
/// Shapes: `a` \[m, k\], `b` \[k, n\], `c` \[m, n\]. Panics if they do not fit.
pub fn gemm(
    precision: Precision,
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: &mut [f32],
    stride: usize,
    add: bool,
) {
    at_level(Simd::current(), precision, a, b, c, stride, add);
}

fn at_level(
    level: Simd,
    precision: Precision,
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: &mut [f32],
    stride: usize,
    add: bool,
) {
    assert_eq!(a.cols(), b.rows(), "inner sizes of a product");
    assert!(stride >= b.cols(), "rows of a product overlap");
    multiply(level, precision, a, Right::Source(&b), c, stride, add);
}

/// c = aᵀ·b without gaps, for operands of many rows: the gradient of weights from a batch.
///
/// Shapes: `a` \[k, m\], `b` \[k, n\], `c` \[m, n\]. Neither operand is packed as a whole, and k is divided too if m·n
/// is small. Panics if shapes do not fit.
pub fn gemm_over_rows(precision: Precision, a: Matrix<'_>, b: Matrix<'_>, c: &mut [f32]) {
    assert_eq!(a.rows(), b.rows(), "inner sizes of a product");
    assert_eq!(c.len(), a.cols() * b.cols(), "numbers of a product");
    let level = Simd::current();
    let depth = depth(level, precision, b.rows());
    product::multiply_long(level, precision, &a, &b, depth, c);
}

/// A right operand that is used several times, in the order in which the loops read it.
pub struct PackedMatrix {
    level: Simd,
    precision: Precision,
    k: usize,
    packed: Packed,
}

impl PackedMatrix {
    /// Copies `b` \[k, n\].
    pub fn new(precision: Precision, b: Matrix<'_>) -> PackedMatrix {
        PackedMatrix::at_level(Simd::current(), precision, b)
    }

    fn at_level(level: Simd, precision: Precision, b: Matrix<'_>) -> PackedMatrix {
        let operand = Operand::by_rows(level, precision, &b);
        PackedMatrix {
            level,
            precision,
            k: b.rows(),
            packed: Packed::new(level, &operand, depth(level, precision, b.rows())),
        }
    }
}

/// As [`gemm`], with the right operand packed before.
pub fn gemm_packed(a: Matrix<'_>, b: &PackedMatrix, c: &mut [f32], stride: usize, add: bool) {
    assert_eq!(a.cols(), b.k, "inner sizes of a product");
    assert!(stride >= b.packed.n(), "rows of a product overlap");
    let packed = Right::Packed(&b.packed);
    multiply(b.level, b.precision, a, packed, c, stride, add);
}

/// Blocks of k, in numbers or pairs.
fn depth(level: Simd, precision: Precision, k: usize) -> usize {
    let each = if precision.pairs(level) { 2 } else { 1 };
    product::even_depth(k.div_ceil(each))
}

fn multiply(
    level: Simd,
    precision: Precision,
    a: Matrix<'_>,
    b: Right<'_>,
    c: &mut [f32],
    stride: usize,
    add: bool,
) {
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
    let depth = depth(level, precision, a.cols());
    product::multiply(level, precision, left, b, depth, output);
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

    const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::Bf16];

    /// Both operands, each in both storage orders.
    fn operands<'a>(a: &'a [f32], b: &'a [f32], shape: [usize; 3]) -> Vec<[Matrix<'a>; 2]> {
        let [m, k, n] = shape;
        let lefts = [Matrix::new(a, m, k), Matrix::new(a, k, m).transposed()];
        let rights = [Matrix::new(b, k, n), Matrix::new(b, n, k).transposed()];
        let all = lefts.into_iter();
        all.flat_map(|left| rights.map(|right| [left, right]))
            .collect()
    }

    /// Against the plain sums, exactly; every level, precision and storage order, packed and not.
    fn check(m: usize, k: usize, n: usize) {
        let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
        let stride = n + 3;
        let before = numbers(m * stride, 3);
        for (way, [left, right]) in operands(&a, &b, [m, k, n]).into_iter().enumerate() {
            for add in [false, true] {
                let mut expected = before.clone();
                for i in 0..m {
                    for j in 0..n {
                        let sum: f32 = (0..k).map(|p| left.at(i, p) * right.at(p, j)).sum();
                        let old = if add { before[i * stride + j] } else { 0.0 };
                        expected[i * stride + j] = old + sum;
                    }
                }
                for level in Simd::available() {
                    for precision in PRECISIONS {
                        let what = format!("{level:?} {precision} {m}x{k}x{n} way {way}");
                        let mut c = before.clone();
                        at_level(level, precision, left, right, &mut c, stride, add);
                        assert_eq!(c, expected, "{what}");
                        let mut c = before.clone();
                        let packed = PackedMatrix::at_level(level, precision, right);
                        gemm_packed(left, &packed, &mut c, stride, add);
                        assert_eq!(c, expected, "{what}, packed");
                    }
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

    /// Sums in f64 of the rounded operands. A product of a pair is added in at most three roundings to 24 bits.
    #[test]
    fn bf16_is_the_product_of_the_rounded_operands() {
        let numbers = |n: usize, seed: u32| crate::tests::scaled(seed, n, 3.0);
        for [m, k, n] in [
            [1, 1, 1],
            [3, 7, 5],
            [33, 257, 70],
            [15, 1030, 31],
            [200, 600, 130],
        ] {
            let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
            for [left, right] in operands(&a, &b, [m, k, n]) {
                let rounded = |x: f32| f64::from(half::bf16::from_f32(x));
                for level in Simd::available() {
                    let mut c = vec![0.0; m * n];
                    at_level(level, Precision::Bf16, left, right, &mut c, n, false);
                    for (at, &c) in c.iter().enumerate() {
                        let (mut sum, mut size) = (0.0, 0.0);
                        for p in 0..k {
                            let x = rounded(left.at(at / n, p)) * rounded(right.at(p, at % n));
                            (sum, size) = (sum + x, size + x.abs());
                        }
                        let bound = size * (1.5 * k as f64 + 4.0) / f64::from(1 << 23);
                        let off = (f64::from(c) - sum).abs();
                        assert!(off <= bound, "{level:?} {m}x{k}x{n}: {c}, not {sum}");
                    }
                }
            }
        }
    }

    #[test]
    fn bf16_keeps_what_is_not_finite() {
        for (x, expected) in [
            (f32::INFINITY, f32::INFINITY),
            (3.4e38, f32::INFINITY),
            (f32::from_bits(0x7fff_ffff), f32::NAN),
            (f32::from_bits(0x7f80_0001), f32::NAN),
            (3.39e38, 3.389_531_4e38),
        ] {
            for level in Simd::available() {
                for [a, b] in operands(&[x, 0.0], &[1.0, 1.0], [1, 2, 1]) {
                    let mut c = [0.0];
                    at_level(level, Precision::Bf16, a, b, &mut c, 1, false);
                    let same = c[0] == expected || c[0].is_nan() && expected.is_nan();
                    assert!(same, "{level:?}: {x} is {}, not {expected}", c[0]);
                }
            }
        }
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let (m, k, n) = (150, 600, 140);
        let a: Vec<f32> = (0..m * k).map(|i| (i as f32).sin()).collect();
        let b: Vec<f32> = (0..k * n).map(|i| (i as f32).cos()).collect();
        let product = |precision, threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let mut c = vec![0.0; m * n];
            pool.install(|| {
                gemm(
                    precision,
                    Matrix::new(&a, m, k),
                    Matrix::new(&b, k, n),
                    &mut c,
                    n,
                    false,
                )
            });
            c
        };
        for precision in PRECISIONS {
            let one = product(precision, 1);
            assert_eq!(one, product(precision, 2));
            assert_eq!(one, product(precision, 5));
        }
    }
}
