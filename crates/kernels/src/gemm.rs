//! Products of matrices.

use crate::matrix::Matrix;

/// c = a·b, or c += a·b with `add`. `c` lies row by row, `stride` numbers from one row to the next.
///
/// Shapes: `a` \[m, k\], `b` \[k, n\], `c` \[m, n\]. Panics where they do not fit.
pub fn gemm(a: Matrix<'_>, b: Matrix<'_>, c: &mut [f32], stride: usize, add: bool) {
    assert_eq!(a.cols(), b.rows(), "inner sizes of a product");
    for i in 0..a.rows() {
        for j in 0..b.cols() {
            let sum: f32 = (0..a.cols()).map(|p| a.at(i, p) * b.at(p, j)).sum();
            let at = &mut c[i * stride + j];
            *at = if add { *at + sum } else { sum };
        }
    }
}
