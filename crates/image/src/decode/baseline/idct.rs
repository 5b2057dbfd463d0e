//! From coefficients to samples: the inverse cosine transform in integers with 12 fractional bits, as in stb_image
//! and zune-jpeg.
//!
//! Coefficients are stored in the order of the vectors: rows in pairs (0 and 4, 2 and 6, 1 and 3, 5 and 7), within a
//! pair the columns 0, 4, 2, 6, 1, 3, 5, 7, within a column the two rows' coefficients side by side. So one instruction
//! multiplies two neighbours and adds, and the second pass has its pairs of columns as the first its pairs of rows.

/// Coefficients or quantisation steps in that layout.
pub(super) type Block = [i16; 64];

/// Positions of coefficients in a block, in the order of the file; those after the end of a block map to
/// the position after it.
pub(super) const PLACES: [u8; 256] = {
    let mut places = [64; 256];
    let (mut row, mut column) = (0usize, 0usize);
    let mut number = 0;
    while number < 64 {
        places[number] = place_of(row, column);
        // Even diagonals go up.
        if (row + column).is_multiple_of(2) {
            if column == 7 {
                row += 1;
            } else if row == 0 {
                column += 1;
            } else {
                row -= 1;
                column += 1;
            }
        } else if row == 7 {
            column += 1;
        } else if column == 0 {
            row += 1;
        } else {
            row += 1;
            column -= 1;
        }
        number += 1;
    }
    places
};

/// The position of a row: which pair, and which of the two.
const ROWS: [(usize, usize); 8] = [
    (0, 0),
    (2, 0),
    (1, 0),
    (2, 1),
    (0, 1),
    (3, 0),
    (1, 1),
    (3, 1),
];
const COLUMNS: [usize; 8] = [0, 4, 2, 5, 1, 6, 3, 7];

const fn place_of(row: usize, column: usize) -> u8 {
    let (pair, side) = ROWS[row];
    (16 * pair + 2 * COLUMNS[column] + side) as u8
}

/// The factors of the odd rows 1, 3, 5 and 7.
const ODD: [[i32; 4]; 4] = [
    [5683, 4816, 3219, 1131],
    [4816, -1129, -5681, -3218],
    [3219, -5681, 1132, 4816],
    [1131, -3218, 4816, -5680],
];

/// Samples of a block with only the first coefficient: they are all the same.
#[inline(always)]
pub(super) fn flat(mean: i16, step: i16, out: &mut [u8], stride: usize) {
    let sample = (i32::from(mean) * i32::from(step) + 4 + 1024) >> 3;
    write(&[[sample.clamp(0, 255) as u8; 8]; 8], out, stride);
}

#[inline(always)]
fn write(rows: &[[u8; 8]; 8], out: &mut [u8], stride: usize) {
    for (row, out) in rows.iter().zip(out.chunks_mut(stride)) {
        out[..8].copy_from_slice(row);
    }
}

/// Samples of a block, in rows that are `stride` apart.
pub(super) fn plain(block: &Block, steps: &Block, out: &mut [u8], stride: usize) {
    let rows = std::array::from_fn(|row| {
        std::array::from_fn(|column| {
            let place = usize::from(place_of(row, column));
            block[place].wrapping_mul(steps[place])
        })
    });
    let columns = transposed(&pass(&rows, 512, 10));
    let narrow = columns.map(|column| column.map(|v| v.clamp(-32768, 32767) as i16));
    let rows = transposed(&pass(&narrow, 512 + 65536 + (128 << 17), 17));
    write(
        &rows.map(|row| row.map(|v| v.clamp(0, 255) as u8)),
        out,
        stride,
    );
}

/// One pass over eight lines side by side; `round` is added before the bits are cut off.
fn pass(lines: &[[i16; 8]; 8], round: i32, bits: u32) -> [[i32; 8]; 8] {
    let mut out = [[0i32; 8]; 8];
    for i in 0..8 {
        let line = |number: usize| i32::from(lines[number][i]);
        let (sum, difference) = (line(0) + line(4), line(0) - line(4));
        let far = line(2) * 5352 + line(6) * 2217;
        let near = line(2) * 2217 - line(6) * 5350;
        let (outer, inner) = ((sum << 12) + round, (difference << 12) + round);
        let even = [
            outer.wrapping_add(far),
            inner.wrapping_add(near),
            inner.wrapping_sub(near),
            outer.wrapping_sub(far),
        ];
        for (number, factors) in ODD.iter().enumerate() {
            let odd = (line(1) * factors[0] + line(3) * factors[1])
                .wrapping_add(line(5) * factors[2] + line(7) * factors[3]);
            out[number][i] = even[number].wrapping_add(odd) >> bits;
            out[7 - number][i] = even[number].wrapping_sub(odd) >> bits;
        }
    }
    out
}

fn transposed<T: Copy + Default>(rows: &[[T; 8]; 8]) -> [[T; 8]; 8] {
    std::array::from_fn(|row| std::array::from_fn(|column| rows[column][row]))
}

/// The same with AVX2.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
pub(super) mod wide {
    use std::arch::x86_64::*;

    use crate::decode::baseline::idct::{Block, ODD};

    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn samples(block: &Block, steps: &Block, out: &mut [u8], stride: usize) {
        let (block, steps) = (block.as_chunks::<16>().0, steps.as_chunks::<16>().0);
        let pairs = [
            _mm256_mullo_epi16(load(&block[0]), load(&steps[0])),
            _mm256_mullo_epi16(load(&block[1]), load(&steps[1])),
            _mm256_mullo_epi16(load(&block[2]), load(&steps[2])),
            _mm256_mullo_epi16(load(&block[3]), load(&steps[3])),
        ];
        let rows = pass::<10>(pairs, 512);
        // Each lane: two rows, of each two pairs of columns; then four rows of one pair.
        let quarter = |a: usize, b: usize, c: usize, d: usize| {
            let (even, odd) = (
                _mm256_packs_epi32(rows[a], rows[c]),
                _mm256_packs_epi32(rows[b], rows[d]),
            );
            let (low, high) = (
                _mm256_unpacklo_epi32(even, odd),
                _mm256_unpackhi_epi32(even, odd),
            );
            (
                _mm256_unpacklo_epi64(low, high),
                _mm256_unpackhi_epi64(low, high),
            )
        };
        let (upper, lower) = (quarter(0, 1, 2, 3), quarter(4, 5, 6, 7));
        let pairs = [
            _mm256_permute2x128_si256::<0x20>(upper.0, lower.0),
            _mm256_permute2x128_si256::<0x20>(upper.1, lower.1),
            _mm256_permute2x128_si256::<0x31>(upper.0, lower.0),
            _mm256_permute2x128_si256::<0x31>(upper.1, lower.1),
        ];
        let columns = pass::<17>(pairs, 512 + 65536 + (128 << 17));
        // Each lane: four columns of four rows; then the same by rows.
        let turn = _mm256_setr_epi8(
            0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6,
            10, 14, 3, 7, 11, 15,
        );
        let half = |from: usize| {
            let first = _mm256_packs_epi32(columns[from], columns[from + 1]);
            let second = _mm256_packs_epi32(columns[from + 2], columns[from + 3]);
            _mm256_shuffle_epi8(_mm256_packus_epi16(first, second), turn)
        };
        let (left, right) = (half(0), half(4));
        let (first, second) = (
            _mm256_unpacklo_epi32(left, right),
            _mm256_unpackhi_epi32(left, right),
        );
        let out = &mut out[..7 * stride + 8];
        let mut put = |row: usize, samples: i64| {
            out[row * stride..row * stride + 8].copy_from_slice(&samples.to_le_bytes());
        };
        put(0, _mm256_extract_epi64::<0>(first));
        put(1, _mm256_extract_epi64::<1>(first));
        put(2, _mm256_extract_epi64::<0>(second));
        put(3, _mm256_extract_epi64::<1>(second));
        put(4, _mm256_extract_epi64::<2>(first));
        put(5, _mm256_extract_epi64::<3>(first));
        put(6, _mm256_extract_epi64::<2>(second));
        put(7, _mm256_extract_epi64::<3>(second));
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn pass<const BITS: i32>([p04, p26, p13, p57]: [__m256i; 4], round: i32) -> [__m256i; 8] {
        let pair = |first: i32, second: i32| _mm256_set1_epi32(first & 0xFFFF | second << 16);
        let round = _mm256_set1_epi32(round);
        let outer = _mm256_add_epi32(_mm256_madd_epi16(p04, pair(4096, 4096)), round);
        let inner = _mm256_add_epi32(_mm256_madd_epi16(p04, pair(4096, -4096)), round);
        let far = _mm256_madd_epi16(p26, pair(5352, 2217));
        let near = _mm256_madd_epi16(p26, pair(2217, -5350));
        let even = [
            _mm256_add_epi32(outer, far),
            _mm256_add_epi32(inner, near),
            _mm256_sub_epi32(inner, near),
            _mm256_sub_epi32(outer, far),
        ];
        let odd = |row: usize| {
            let [one, three, five, seven] = ODD[row];
            _mm256_add_epi32(
                _mm256_madd_epi16(p13, pair(one, three)),
                _mm256_madd_epi16(p57, pair(five, seven)),
            )
        };
        let odd = [odd(0), odd(1), odd(2), odd(3)];
        let upper = |row: usize| _mm256_srai_epi32::<BITS>(_mm256_add_epi32(even[row], odd[row]));
        let lower = |row: usize| _mm256_srai_epi32::<BITS>(_mm256_sub_epi32(even[row], odd[row]));
        [
            upper(0),
            upper(1),
            upper(2),
            upper(3),
            lower(3),
            lower(2),
            lower(1),
            lower(0),
        ]
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(values: &[i16; 16]) -> __m256i {
        // SAFETY: 16 values of 16 bits are as many bytes as are read, at any alignment.
        unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
    }
}
