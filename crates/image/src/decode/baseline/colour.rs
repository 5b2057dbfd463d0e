//! Turns rows of samples into rows of pixels: upsamples chroma, and converts colours.

/// Each sample of a row moved a quarter of the way towards the sample of the next nearest row.
#[inline(always)]
pub(super) fn blend(near: &[u8], far: &[u8], out: &mut [u8]) {
    for ((out, &near), &far) in out.iter_mut().zip(near).zip(far) {
        *out = towards(near, far);
    }
}

/// Twice as many samples, each moved a quarter of the way towards its other neighbour; the outer ones have none.
#[inline(always)]
pub(super) fn spread(row: &[u8], out: &mut [u8]) {
    let (Some(&first), Some(&last)) = (row.first(), row.last()) else {
        return;
    };
    let length = 2 * row.len();
    out[0] = first;
    out[length - 1] = last;
    let between = out[1..length - 1].as_chunks_mut::<2>().0;
    for ((out, &left), &right) in between.iter_mut().zip(row).zip(&row[1..]) {
        *out = [towards(left, right), towards(right, left)];
    }
}

/// Twice as many samples, each twice.
#[inline(always)]
pub(super) fn repeat(row: &[u8], out: &mut [u8]) {
    for (out, &sample) in out.as_chunks_mut::<2>().0.iter_mut().zip(row) {
        *out = [sample; 2];
    }
}

#[inline(always)]
fn towards(near: u8, far: u8) -> u8 {
    ((3 * u16::from(near) + u16::from(far) + 2) >> 2) as u8
}

/// ITU-R 601 over the full range, with 14 fractional bits: red from Cr, blue from Cb, green from both.
const RED: i16 = 22970;
const BLUE: i16 = 29032;
const GREEN: [i16; 2] = [-11700, -5638];

/// Converts luma and both chroma to pixels.
#[inline(always)]
pub(super) fn plain(luma: &[u8], blue: &[u8], red: &[u8], out: &mut [u8]) {
    let samples = luma.iter().zip(blue).zip(red);
    for (out, ((&luma, &blue), &red)) in out.as_chunks_mut::<3>().0.iter_mut().zip(samples) {
        let (blue, red) = (i32::from(blue) - 128, i32::from(red) - 128);
        let mixed = |part: i32| (i32::from(luma) + ((part + 8191) >> 14)).clamp(0, 255) as u8;
        *out = [
            mixed(red * i32::from(RED)),
            mixed(red * i32::from(GREEN[0]) + blue * i32::from(GREEN[1])),
            mixed(blue * i32::from(BLUE)),
        ];
    }
}

/// The same with AVX2.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
pub(super) mod wide {
    use std::arch::x86_64::*;

    use crate::decode::baseline::colour::{BLUE, GREEN, RED, plain};

    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn mix(luma: &[u8], blue: &[u8], red: &[u8], out: &mut [u8]) {
        let count = luma.len().min(blue.len()).min(red.len()).min(out.len() / 3);
        let whole = count / 32;
        let chunks = luma.as_chunks::<32>().0.iter();
        let chunks = chunks
            .zip(blue.as_chunks::<32>().0)
            .zip(red.as_chunks::<32>().0);
        for (out, ((luma, blue), red)) in out.as_chunks_mut::<96>().0.iter_mut().zip(chunks) {
            mix_32(luma, blue, red, out);
        }
        let from = 32 * whole;
        plain(
            &luma[from..count],
            &blue[from..count],
            &red[from..count],
            &mut out[3 * from..],
        );
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn mix_32(luma: &[u8; 32], blue: &[u8; 32], red: &[u8; 32], out: &mut [u8; 96]) {
        let low = mix_16(halves(luma)[0], halves(blue)[0], halves(red)[0]);
        let high = mix_16(halves(luma)[1], halves(blue)[1], halves(red)[1]);
        // Packing takes 8 of each half in turn.
        let packed = |channel: usize| {
            let packed = _mm256_packus_epi16(low[channel], high[channel]);
            _mm256_permute4x64_epi64::<0b11_01_10_00>(packed)
        };
        let (red, green, blue) = (packed(0), packed(1), packed(2));
        // The positions of a channel's bytes among 16 bytes of pixels: the first, second and third 16.
        let turn = |bytes: __m256i, by: [i8; 16]| {
            // SAFETY: 16 bytes are read of 16.
            let by = unsafe { _mm_loadu_si128(by.as_ptr().cast()) };
            _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(by))
        };
        let red = turn(red, [0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15, 10, 5]);
        let green = turn(
            green,
            [5, 0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15, 10],
        );
        let blue = turn(blue, [10, 5, 0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15]);
        const N: i8 = -1;
        let every = |at: [i8; 16]| {
            // SAFETY: 16 bytes are read of 16.
            _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(at.as_ptr().cast()) })
        };
        let second = every([0, N, 0, 0, N, 0, 0, N, 0, 0, N, 0, 0, N, 0, 0]);
        let third = every([0, 0, N, 0, 0, N, 0, 0, N, 0, 0, N, 0, 0, N, 0]);
        let put = |a, b, c| _mm256_blendv_epi8(_mm256_blendv_epi8(a, b, second), c, third);
        let parts = [
            put(red, green, blue),
            put(green, blue, red),
            put(blue, red, green),
        ];
        let wholes = [
            _mm256_permute2x128_si256::<0x20>(parts[0], parts[1]),
            _mm256_permute2x128_si256::<0x30>(parts[2], parts[0]),
            _mm256_permute2x128_si256::<0x31>(parts[1], parts[2]),
        ];
        for (out, whole) in out.as_chunks_mut::<32>().0.iter_mut().zip(wholes) {
            // SAFETY: 32 bytes are written of 32.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), whole) };
        }
    }

    fn halves(samples: &[u8; 32]) -> [&[u8; 16]; 2] {
        let halves = samples.as_chunks::<16>().0;
        [&halves[0], &halves[1]]
    }

    /// Red, green and blue. The rounded upper half of a product with twice the colour equals the result of the plain
    /// loop: the two differ only in how they round halves, and none of these factors gives a half.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn mix_16(luma: &[u8; 16], blue: &[u8; 16], red: &[u8; 16]) -> [__m256i; 3] {
        // SAFETY: 16 bytes are read of 16.
        let load = |bytes: &[u8; 16]| unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
        let grey = _mm256_set1_epi16(128);
        let luma = _mm256_cvtepu8_epi16(load(luma));
        let blue = _mm256_sub_epi16(_mm256_cvtepu8_epi16(load(blue)), grey);
        let red = _mm256_sub_epi16(_mm256_cvtepu8_epi16(load(red)), grey);
        let scaled = |colour, factor| {
            _mm256_mulhrs_epi16(_mm256_add_epi16(colour, colour), _mm256_set1_epi16(factor))
        };
        let factors = i32::from(GREEN[0]) & 0xFFFF | i32::from(GREEN[1]) << 16;
        let both = |pairs| {
            let sum = _mm256_madd_epi16(pairs, _mm256_set1_epi32(factors));
            _mm256_srai_epi32::<14>(_mm256_add_epi32(sum, _mm256_set1_epi32(8191)))
        };
        let green = _mm256_packs_epi32(
            both(_mm256_unpacklo_epi16(red, blue)),
            both(_mm256_unpackhi_epi16(red, blue)),
        );
        [
            _mm256_add_epi16(luma, scaled(red, RED)),
            _mm256_add_epi16(luma, green),
            _mm256_add_epi16(luma, scaled(blue, BLUE)),
        ]
    }
}
