//! Sums of products of columns, ZᵀZ, in tiles that stay in registers.

use super::{Kernel, Simd, run};

/// Columns of a tile of the matrix, and rows.
pub(crate) const TILE: usize = 8;
const TILE_ROWS: usize = 4;

/// Width of a row in memory.
pub(crate) fn padded(width: usize) -> usize {
    width.next_multiple_of(TILE)
}

#[inline(always)]
pub(crate) fn fused<const FUSED: bool>(a: f64, b: f64, c: f64) -> f64 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// matrix += ZᵀZ, its lower triangle, of the rows z of Z.
#[inline(always)]
pub(crate) fn add_products<const FUSED: bool>(z: &[f64], width: usize, matrix: &mut [f64]) {
    for j in (0..width).step_by(TILE) {
        for i in (j..width).step_by(TILE_ROWS) {
            let mut tile = [[0.0_f64; TILE]; TILE_ROWS];
            for z in z.chunks_exact(width) {
                let (rows, columns) = (&z[i..i + TILE_ROWS], &z[j..j + TILE]);
                // Not by iterators, which are compiled as separate functions: the calls took a third of the time of a
                // pass.
                for r in 0..TILE_ROWS {
                    for c in 0..TILE {
                        tile[r][c] = fused::<FUSED>(rows[r], columns[c], tile[r][c]);
                    }
                }
            }
            for (r, tile) in tile.iter().enumerate() {
                let sums = &mut matrix[(i + r) * width + j..][..TILE];
                for c in 0..TILE {
                    sums[c] += tile[c];
                }
            }
        }
    }
}

/// The same with the instructions of this level.
pub(crate) fn add_products_by(simd: Simd, z: &[f64], width: usize, matrix: &mut [f64]) {
    let is_fused = simd != Simd::PLAIN;
    run(
        simd,
        Products {
            z,
            width,
            is_fused,
            matrix,
        },
    );
}

struct Products<'a> {
    z: &'a [f64],
    width: usize,
    is_fused: bool,
    matrix: &'a mut [f64],
}

impl Kernel for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        if self.is_fused {
            add_products::<true>(self.z, self.width, self.matrix);
        } else {
            add_products::<false>(self.z, self.width, self.matrix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_of_every_shape_make_the_products() {
        let mut stream = crate::random::Stream::new(8);
        for width in [8, 16, 24, 40, 136] {
            for rows in [0, 1, 5, 33] {
                let z: Vec<f64> = (0..rows * width)
                    .map(|_| (stream.next() >> 40) as f64 / 1e7 - 0.5)
                    .collect();
                for fused in [false, true] {
                    let mut matrix = vec![0.5; width * width];
                    if fused {
                        add_products::<true>(&z, width, &mut matrix)
                    } else {
                        add_products::<false>(&z, width, &mut matrix)
                    }
                    for i in 0..width {
                        for j in 0..=i {
                            let sum: f64 = z.chunks(width).map(|z| z[i] * z[j]).sum();
                            let found = matrix[i * width + j] - 0.5;
                            assert!((found - sum).abs() < 1e-12, "{width} {rows}");
                        }
                    }
                }
            }
        }
    }
}
