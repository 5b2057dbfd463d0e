//! Cholesky factors of symmetric positive definite matrices, lower triangle row by row.

/// Turns the lower triangle of `matrix` into its factor L, `matrix` = L Lᵀ; `false` if it is not positive definite to
/// the precision of f64.
///
/// Cost: width³/6 multiplications.
pub(crate) fn factor(matrix: &mut [f64], width: usize) -> bool {
    for j in 0..width {
        for k in 0..=j {
            let (before, at) = matrix.split_at_mut(j * width);
            let row = &mut at[..width];
            let other = if k < j {
                &before[k * width..k * width + k]
            } else {
                &row[..k]
            };
            let value = row[k] - dot(&row[..k], other);
            if k < j {
                row[k] = value / before[k * width + k];
            } else if value > 0.0 && value.is_finite() {
                row[j] = value.sqrt();
            } else {
                return false;
            }
        }
    }
    true
}

/// Solves L Lᵀ v = `vector` in place.
pub(crate) fn solve(factor: &[f64], vector: &mut [f64]) {
    let width = vector.len();
    for j in 0..width {
        let row = &factor[j * width..j * width + j + 1];
        vector[j] = (vector[j] - dot(&row[..j], &vector[..j])) / row[j];
    }
    for j in (0..width).rev() {
        let row = &factor[j * width..j * width + j + 1];
        vector[j] /= row[j];
        let value = vector[j];
        for (v, l) in vector[..j].iter_mut().zip(row) {
            *v -= value * l;
        }
    }
}

/// a·b, in sums that the compiler can keep in registers.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_of_every_size_are_solved() {
        let mut stream = crate::random::Stream::new(4);
        let mut number = || (stream.next() >> 11) as f64 / (1_u64 << 53) as f64 - 0.5;
        for width in (1..=20).chain([33, 64]) {
            let rows: Vec<Vec<f64>> = (0..2 * width)
                .map(|_| (0..width).map(|_| number()).collect())
                .collect();
            let entry = |i: usize, j: usize| {
                let sum: f64 = rows.iter().map(|row| row[i] * row[j]).sum();
                sum + f64::from(u8::from(i == j))
            };
            let solution: Vec<f64> = (0..width).map(|_| number()).collect();
            let mut vector: Vec<f64> = (0..width)
                .map(|i| (0..width).map(|j| entry(i, j) * solution[j]).sum())
                .collect();
            let mut matrix: Vec<f64> = (0..width * width)
                .map(|at| entry(at / width, at % width))
                .collect();
            assert!(factor(&mut matrix, width));
            solve(&matrix, &mut vector);
            for (found, expected) in vector.iter().zip(&solution) {
                assert!(
                    (found - expected).abs() < 1e-11,
                    "{width}: {found} {expected}"
                );
            }
        }
        assert!(!factor(&mut [1.0, 0.0, 2.0, 1.0], 2), "it is indefinite");
    }
}
