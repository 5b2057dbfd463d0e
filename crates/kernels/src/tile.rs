//! The innermost loop of every product: a tile of c, at most [`height`] rows by two vectors, stays in registers
//! while k runs.
//!
//! Written once over [`Vector`]; intrinsics, because LLVM does not keep an array of 14 × 32 sums in registers by
//! itself. Heights and widths are constants, so there is one function for each.

#![allow(unsafe_code)]

use crate::simd::Simd;

/// Longest run of k that a block holds: 256 × 32 numbers of b, 32 KiB, stay in a cache of level 1.
pub(crate) const DEPTH: usize = 256;

/// Distance between the rows of a packed row-major block of `a`: a constant lets one register address all
/// rows, and 17 cache lines avoid conflicts in the cache.
pub(crate) const ROW: usize = DEPTH + 16;

/// Other distances between the rows of `a` that tiles support: channels of a pixel, and half of them.
pub(crate) const STEPS: [usize; 3] = [16, 32, 64];

/// Rows of the highest tile of all levels.
pub(crate) const HIGHEST: usize = 14;

/// The operands of one tile. Its sums run over `lines` lines, each of `depth` numbers.
pub(crate) struct Tile<'a> {
    /// Numbers of a line.
    pub(crate) depth: usize,
    /// Lines.
    pub(crate) lines: usize,
    /// Each number of `a` and `b` is a pair in bf16 from [`Operand`](crate::precision::Operand); only at a level with
    /// bf16.
    pub(crate) pairs: bool,
    /// Element (i, p) of line l is at `i·a_row + p·a_column + l·a_line`.
    pub(crate) a: &'a [f32],
    /// 1, [`ROW`], one of [`STEPS`] or half of one.
    pub(crate) a_row: usize,
    /// See `a`.
    pub(crate) a_column: usize,
    /// See `a`.
    pub(crate) a_line: usize,
    /// Element (p, j) of line l is at `p·b_stride + j + l·b_line`.
    pub(crate) b: &'a [f32],
    /// See `b`.
    pub(crate) b_stride: usize,
    /// See `b`.
    pub(crate) b_line: usize,
    /// One vector wide, not two.
    pub(crate) narrow: bool,
    /// Row i begins at `c + rows[i]`.
    pub(crate) c: *mut f32,
    /// See `c`; as many as the tile is high.
    pub(crate) rows: &'a [usize],
    /// c += a·b, not c = a·b.
    pub(crate) add: bool,
    /// Added to each row; as wide as the tile.
    pub(crate) bias: Option<&'a [f32]>,
    /// Negative results become 0.
    pub(crate) relu: bool,
}

/// Rows of the highest tile.
pub(crate) fn height(level: Simd) -> usize {
    match level {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => 14,
        _ => 6,
    }
}

/// Columns of a wide tile, two vectors. A narrow tile has half of them.
pub(crate) fn width(level: Simd) -> usize {
    match level {
        Simd::Portable => 8,
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => 16,
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => 32,
    }
}

/// The start columns of tiles that cover n columns, a multiple of half their width, and whether they are narrow.
pub(crate) fn columns(level: Simd, n: usize) -> impl Iterator<Item = (usize, bool)> {
    let width = width(level);
    (0..n)
        .step_by(width)
        .map(move |column| (column, n - column < width))
}

macro_rules! dispatch {
    ($tile:expr, $function:ident: $($height:literal)*) => {
        match ($tile.rows.len(), $tile.narrow) {
            $(($height, false) => dispatch!($function $height 2 $tile),
            ($height, true) => dispatch!($function $height 1 $tile),)*
            _ => panic!("a tile is too high"),
        }
    };
    ($function:ident $height:literal $vectors:literal $tile:expr) => {
        match $tile.a_row {
            1 => $function::<$height, $vectors, 1>($tile),
            8 => $function::<$height, $vectors, 8>($tile),
            16 => $function::<$height, $vectors, 16>($tile),
            32 => $function::<$height, $vectors, 32>($tile),
            64 => $function::<$height, $vectors, 64>($tile),
            ROW => $function::<$height, $vectors, ROW>($tile),
            _ => panic!("no tile has rows so far apart"),
        }
    };
}

/// Computes a tile.
///
/// # Safety
/// For every i, the tile's width in numbers at `c + rows[i]` are valid for reads and writes, and no other thread uses
/// them.
pub(crate) unsafe fn multiply(level: Simd, tile: &Tile<'_>) {
    let wide = if tile.narrow {
        width(level) / 2
    } else {
        width(level)
    };
    if tile.depth > 0 && tile.lines > 0 {
        let (last, line) = (tile.depth - 1, tile.lines - 1);
        let row = (tile.rows.len() - 1) * tile.a_row;
        assert!(row + last * tile.a_column + line * tile.a_line < tile.a.len());
        assert!(last * tile.b_stride + line * tile.b_line + wide <= tile.b.len());
    }
    assert!(tile.bias.is_none_or(|bias| bias.len() >= wide));
    assert!(!tile.pairs || level.has_bf16());
    // SAFETY: all reads from a, b and the bias are inside, as just asserted; the caller guarantees c; and the features
    // of a level other than `Portable` exist, since `simd` returns only levels that exist.
    unsafe {
        match level {
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 if tile.pairs => {
                dispatch!(tile, avx512_bf16: 1 2 3 4 5 6 7 8 9 10 11 12 13 14)
            }
            Simd::Portable => dispatch!(tile, portable: 1 2 3 4 5 6),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => dispatch!(tile, avx2: 1 2 3 4 5 6),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 => dispatch!(tile, avx512: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        }
    }
}

unsafe fn portable<const R: usize, const N: usize, const STEP: usize>(tile: &Tile<'_>) {
    // SAFETY: as `multiply` says.
    unsafe { body::<[f32; 4], Single, R, N, STEP>(tile) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<const R: usize, const N: usize, const STEP: usize>(tile: &Tile<'_>) {
    // SAFETY: as `multiply` says.
    unsafe { body::<std::arch::x86_64::__m256, Single, R, N, STEP>(tile) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma")]
unsafe fn avx512<const R: usize, const N: usize, const STEP: usize>(tile: &Tile<'_>) {
    // SAFETY: as `multiply` says.
    unsafe { body::<std::arch::x86_64::__m512, Single, R, N, STEP>(tile) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512bf16,avx512f,avx2,fma")]
unsafe fn avx512_bf16<const R: usize, const N: usize, const STEP: usize>(tile: &Tile<'_>) {
    // SAFETY: as `multiply` says.
    unsafe { body::<std::arch::x86_64::__m512, Pair, R, N, STEP>(tile) }
}

#[inline(always)]
unsafe fn body<V: Vector, M: Multiply<V>, const R: usize, const N: usize, const STEP: usize>(
    tile: &Tile<'_>,
) {
    // SAFETY: as `multiply` says.
    unsafe {
        let mut sums = [[V::splat(0.0); N]; R];
        for line in 0..tile.lines {
            let mut a = tile.a.as_ptr().wrapping_add(line * tile.a_line);
            let mut b = tile.b.as_ptr().wrapping_add(line * tile.b_line);
            for _ in 0..tile.depth {
                let mut row = [V::splat(0.0); N];
                for (n, part) in row.iter_mut().enumerate() {
                    *part = V::load(b.add(n * V::LANES));
                }
                for (i, sum) in sums.iter_mut().enumerate() {
                    let x = V::splat(*a.add(i * STEP));
                    for (part, &y) in sum.iter_mut().zip(&row) {
                        *part = M::multiply_add(x, y, *part);
                    }
                }
                a = a.wrapping_add(tile.a_column);
                b = b.wrapping_add(tile.b_stride);
            }
        }
        // Loops this plain are unrolled, which keeps the sums in registers.
        let rows = &*tile.rows.as_ptr().cast::<[usize; R]>();
        if tile.add {
            for (sum, &row) in sums.iter_mut().zip(rows) {
                for (n, part) in sum.iter_mut().enumerate() {
                    *part = part.plus(V::load(tile.c.add(row + n * V::LANES)));
                }
            }
        }
        if let Some(bias) = tile.bias {
            for sum in &mut sums {
                for (n, part) in sum.iter_mut().enumerate() {
                    *part = part.plus(V::load(bias.as_ptr().add(n * V::LANES)));
                }
            }
        }
        if tile.relu {
            for sum in &mut sums {
                for part in sum {
                    *part = part.at_least(V::splat(0.0));
                }
            }
        }
        for (sum, &row) in sums.iter().zip(rows) {
            for (n, part) in sum.iter().enumerate() {
                part.store(tile.c.add(row + n * V::LANES));
            }
        }
    }
}

/// Multiplication for one form of an operand's numbers.
///
/// # Safety
/// As of [`Vector`].
trait Multiply<V> {
    /// z + x·y.
    unsafe fn multiply_add(x: V, y: V, z: V) -> V;
}

struct Single;

impl<V: Vector> Multiply<V> for Single {
    #[inline(always)]
    unsafe fn multiply_add(x: V, y: V, z: V) -> V {
        // SAFETY: the caller's.
        unsafe { V::multiply_add(x, y, z) }
    }
}

#[cfg(target_arch = "x86_64")]
struct Pair;

#[cfg(target_arch = "x86_64")]
impl Multiply<std::arch::x86_64::__m512> for Pair {
    #[inline(always)]
    unsafe fn multiply_add(
        x: std::arch::x86_64::__m512,
        y: std::arch::x86_64::__m512,
        z: std::arch::x86_64::__m512,
    ) -> std::arch::x86_64::__m512 {
        use std::arch::x86_64::{__m512bh, _mm512_dpbf16_ps};
        // SAFETY: the caller's; any bits are numbers in bf16.
        unsafe {
            let [x, y] = [x, y].map(|pairs| std::mem::transmute::<_, __m512bh>(pairs));
            _mm512_dpbf16_ps(z, x, y)
        }
    }
}

/// A vector register, or an array that the compiler makes one.
///
/// The methods are unsafe because each needs the features of its type, and pointers to `LANES` numbers.
trait Vector: Copy {
    const LANES: usize;
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn multiply_add(x: Self, y: Self, z: Self) -> Self;
    unsafe fn plus(self, other: Self) -> Self;
    unsafe fn at_least(self, other: Self) -> Self;
}

impl Vector for [f32; 4] {
    const LANES: usize = 4;
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        [x; 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's.
        unsafe { from.cast::<[f32; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(self) }
    }
    #[inline(always)]
    unsafe fn multiply_add(x: Self, y: Self, z: Self) -> Self {
        std::array::from_fn(|i| x[i] * y[i] + z[i])
    }
    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        std::array::from_fn(|i| self[i] + other[i])
    }
    #[inline(always)]
    unsafe fn at_least(self, other: Self) -> Self {
        std::array::from_fn(|i| {
            if self[i] < other[i] {
                other[i]
            } else {
                self[i]
            }
        })
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! intel {
    ($type:ident, $lanes:literal: $set:ident $load:ident $store:ident $fma:ident $add:ident $max:ident) => {
        impl Vector for std::arch::x86_64::$type {
            const LANES: usize = $lanes;
            #[inline(always)]
            unsafe fn splat(x: f32) -> Self {
                // SAFETY: the caller's.
                unsafe { std::arch::x86_64::$set(x) }
            }
            #[inline(always)]
            unsafe fn load(from: *const f32) -> Self {
                // SAFETY: the caller's.
                unsafe { std::arch::x86_64::$load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut f32) {
                // SAFETY: the caller's.
                unsafe { std::arch::x86_64::$store(to, self) }
            }
            #[inline(always)]
            unsafe fn multiply_add(x: Self, y: Self, z: Self) -> Self {
                // SAFETY: the caller's.
                unsafe { std::arch::x86_64::$fma(x, y, z) }
            }
            #[inline(always)]
            unsafe fn plus(self, other: Self) -> Self {
                // SAFETY: the caller's.
                unsafe { std::arch::x86_64::$add(self, other) }
            }
            #[inline(always)]
            unsafe fn at_least(self, other: Self) -> Self {
                // The result is the second operand if the first or both are NaN. SAFETY: the caller's.
                unsafe { std::arch::x86_64::$max(other, self) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
intel!(__m256, 8: _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_fmadd_ps _mm256_add_ps _mm256_max_ps);
#[cfg(target_arch = "x86_64")]
intel!(__m512, 16: _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_fmadd_ps _mm512_add_ps _mm512_max_ps);
