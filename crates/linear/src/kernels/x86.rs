//! The loops for AVX2 + FMA and AVX-512.
//!
//! Rows of at most 32 features (the bias counted) keep w in registers for a whole pass. Longer dense
//! rows run at the speed of memory. Sparse rows are bound by the cache misses on w, so they need
//! little arithmetic: AVX2 runs the plain loops compiled for it.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use pelton_format::Layout;

use super::pass_loop::{BlockRows, Dots, Kernel, Vectors, pass_loop, prefetch_slice};
use super::plain::{Dense, Sparse};
use crate::step::Step;
use crate::visit::{RowAddress, Segment, Visit};

/// Rows this short, bias counted, keep w in registers.
const NARROW: usize = 32;

/// Sixteen lanes of AVX-512 twice, or eight lanes of AVX2 four times.
trait Registers: Copy {
    /// # Safety
    /// The processor must have the features of the implementation (as for all methods here).
    unsafe fn load(values: &[f32; NARROW]) -> Self;
    unsafe fn store(self) -> [f32; NARROW];
    /// The first `x.len()` lanes from `x`, the others from `rest`.
    unsafe fn load_row(x: &[f32], masks: Self, rest: Self) -> Self;
    unsafe fn masks(lanes: usize) -> Self;
    unsafe fn dot(self, other: Self) -> f32;
    unsafe fn add_scaled(self, scale: f32, x: Self) -> Self;
}

#[derive(Clone, Copy)]
struct Avx512Registers([__m512; 2]);

impl Registers for Avx512Registers {
    #[inline(always)]
    unsafe fn load(values: &[f32; NARROW]) -> Self {
        // SAFETY: the array holds 32 values; the caller vouches for the features.
        unsafe {
            let start = values.as_ptr();
            Avx512Registers([_mm512_loadu_ps(start), _mm512_loadu_ps(start.add(16))])
        }
    }

    #[inline(always)]
    unsafe fn store(self) -> [f32; NARROW] {
        let mut values = [0.0; NARROW];
        // SAFETY: the array holds 32 values; the caller vouches for the features.
        unsafe {
            let start: *mut f32 = values.as_mut_ptr();
            _mm512_storeu_ps(start, self.0[0]);
            _mm512_storeu_ps(start.add(16), self.0[1]);
        }
        values
    }

    #[inline(always)]
    unsafe fn masks(_: usize) -> Self {
        // SAFETY: the caller vouches for the features.
        unsafe { Avx512Registers([_mm512_setzero_ps(); 2]) }
    }

    #[inline(always)]
    unsafe fn load_row(x: &[f32], _: Self, rest: Self) -> Self {
        let bits = (1_u64 << x.len().min(NARROW)) - 1;
        let start = x.as_ptr();
        // SAFETY: the masks let through only the lanes below the length of `x`; the caller vouches
        // for the features.
        unsafe {
            Avx512Registers([
                _mm512_mask_loadu_ps(rest.0[0], bits as u16, start),
                _mm512_mask_loadu_ps(rest.0[1], (bits >> 16) as u16, start.wrapping_add(16)),
            ])
        }
    }

    #[inline(always)]
    unsafe fn dot(self, other: Self) -> f32 {
        // SAFETY: the caller vouches for the features.
        unsafe {
            let first = _mm512_mul_ps(self.0[0], other.0[0]);
            _mm512_reduce_add_ps(_mm512_fmadd_ps(self.0[1], other.0[1], first))
        }
    }

    #[inline(always)]
    unsafe fn add_scaled(self, scale: f32, x: Self) -> Self {
        // SAFETY: the caller vouches for the features.
        unsafe {
            let scale = _mm512_set1_ps(scale);
            Avx512Registers([
                _mm512_fmadd_ps(scale, x.0[0], self.0[0]),
                _mm512_fmadd_ps(scale, x.0[1], self.0[1]),
            ])
        }
    }
}

#[derive(Clone, Copy)]
struct Avx2Registers([__m256; 4]);

impl Registers for Avx2Registers {
    #[inline(always)]
    unsafe fn load(values: &[f32; NARROW]) -> Self {
        // SAFETY: the array holds 32 values; the caller vouches for the features.
        unsafe { Avx2Registers([0, 8, 16, 24].map(|i| _mm256_loadu_ps(values.as_ptr().add(i)))) }
    }

    #[inline(always)]
    unsafe fn store(self) -> [f32; NARROW] {
        let mut values: [f32; NARROW] = [0.0; NARROW];
        for (part, register) in values.as_chunks_mut::<8>().0.iter_mut().zip(self.0) {
            // SAFETY: each part holds 8 values; the caller vouches for the features.
            unsafe { _mm256_storeu_ps(part.as_mut_ptr(), register) };
        }
        values
    }

    #[inline(always)]
    unsafe fn masks(lanes: usize) -> Self {
        let all_ones = f32::from_bits(u32::MAX);
        let values: [f32; NARROW] = std::array::from_fn(|i| if i < lanes { all_ones } else { 0.0 });
        // SAFETY: the caller vouches for the features.
        unsafe { Self::load(&values) }
    }

    #[inline(always)]
    unsafe fn load_row(x: &[f32], masks: Self, rest: Self) -> Self {
        let mut registers = rest.0;
        for (i, register) in registers.iter_mut().enumerate() {
            // SAFETY: the masks let through only the lanes below the length of `x`, and lanes beyond
            // it are zero in the load and come from `rest`; the caller vouches for the features.
            unsafe {
                let mask = _mm256_castps_si256(masks.0[i]);
                let part = _mm256_maskload_ps(x.as_ptr().wrapping_add(8 * i), mask);
                *register = _mm256_or_ps(part, *register);
            }
        }
        Avx2Registers(registers)
    }

    #[inline(always)]
    unsafe fn dot(self, other: Self) -> f32 {
        // SAFETY: the caller vouches for the features.
        unsafe {
            let low = _mm256_fmadd_ps(self.0[1], other.0[1], _mm256_mul_ps(self.0[0], other.0[0]));
            let high = _mm256_fmadd_ps(self.0[3], other.0[3], _mm256_mul_ps(self.0[2], other.0[2]));
            sum_avx2(_mm256_add_ps(low, high))
        }
    }

    #[inline(always)]
    unsafe fn add_scaled(self, scale: f32, x: Self) -> Self {
        let mut registers = self.0;
        for (register, x) in registers.iter_mut().zip(x.0) {
            // SAFETY: the caller vouches for the features.
            unsafe { *register = _mm256_fmadd_ps(_mm256_set1_ps(scale), x, *register) };
        }
        Avx2Registers(registers)
    }
}

/// Sum of eight lanes.
#[inline(always)]
unsafe fn sum_avx2(x: __m256) -> f32 {
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    }
}

/// Dense rows of at most 32 features with w in registers. Lane `used` holds the bias, the lanes after
/// it 0.
struct Narrow<'a, R> {
    segments: &'a [Segment<'a>],
    width: usize,
    used: usize,
    masks: R,
    rest: R,
    w: R,
}

impl<'a, R: Registers> Narrow<'a, R> {
    /// # Safety
    /// The processor must have the features of `R` for as long as the value is used.
    #[inline(always)]
    unsafe fn new(rows: &'a BlockRows<'a>, width: usize, w: &[f32]) -> Self {
        let (width, used) = rows.dense_widths(width);
        let mut lanes = [0.0; NARROW];
        lanes[..used].copy_from_slice(&w[..used]);
        let mut rest = [0.0; NARROW];
        if rows.bias != 0.0 {
            lanes[used] = w[w.len() - 1];
            rest[used] = rows.bias;
        }
        // SAFETY: the caller vouches for the features.
        let (masks, rest, w) = unsafe { (R::masks(used), R::load(&rest), R::load(&lanes)) };
        Narrow {
            segments: &rows.segments,
            width,
            used,
            masks,
            rest,
            w,
        }
    }

    #[inline(always)]
    fn row(&self, place: RowAddress) -> &'a [f32] {
        let start = place.start as usize * self.width;
        &self.segments[place.segment as usize].values[start..start + self.used]
    }

    #[inline(always)]
    fn load_row(&self, place: RowAddress) -> R {
        // SAFETY: the caller of `new` guarantees the processor features.
        unsafe { R::load_row(self.row(place), self.masks, self.rest) }
    }

    /// Writes the weights back.
    #[inline(always)]
    fn finish(self, w: &mut [f32]) {
        // SAFETY: the caller of `new` guarantees the processor features.
        let lanes = unsafe { self.w.store() };
        w[..self.used].copy_from_slice(&lanes[..self.used]);
        if w.len() > self.used
            && let Some(last) = w.last_mut()
        {
            *last = lanes[self.used];
        }
    }
}

impl<R: Registers> Dots for Narrow<'_, R> {
    #[inline(always)]
    fn dot(&self, place: RowAddress) -> f32 {
        // SAFETY: the caller of `new` guarantees the processor features.
        unsafe { self.w.dot(self.load_row(place)) }
    }

    #[inline(always)]
    fn prefetch_row(&self, place: RowAddress) {
        prefetch_slice(self.row(place));
    }

    #[inline(always)]
    fn prefetch_weights(&self, _: RowAddress) {}
}

impl<R: Registers> Vectors for Narrow<'_, R> {
    const ADD_IS_CHEAP: bool = true;

    #[inline(always)]
    fn add(&mut self, place: RowAddress, scale: f32) {
        // SAFETY: the caller of `new` guarantees the processor features.
        self.w = unsafe { self.w.add_scaled(scale, self.load_row(place)) };
    }
}

/// Whether the rows are narrow enough for registers; the weights must not have a feature that the rows lack,
/// or the store after a pass would be wrong.
fn is_narrow(rows: &BlockRows<'_>, width: usize) -> bool {
    width.min(rows.features) + usize::from(rows.bias != 0.0) <= NARROW
}

macro_rules! instantiate {
    ($features:literal, $pass:ident, $pass_inside:ident, $registers:ty, $dense:ident, $sparse:ident) => {
        pub(super) fn $pass<S: Step>(
            rows: &BlockRows<'_>,
            w: &mut [f32],
            step: &mut S,
            visits: &mut [Visit],
            order: &[u32],
            settled: &mut [bool],
        ) {
            // SAFETY: the level was detected before a `Simd` of it was made.
            unsafe { $pass_inside(rows, w, step, visits, order, settled) }
        }

        #[target_feature(enable = $features)]
        fn $pass_inside<S: Step>(
            rows: &BlockRows<'_>,
            w: &mut [f32],
            step: &mut S,
            visits: &mut [Visit],
            order: &[u32],
            settled: &mut [bool],
        ) {
            let (segments, bias) = (&rows.segments[..], rows.bias);
            match rows.layout {
                Layout::Dense { width } if is_narrow(rows, width) => {
                    // SAFETY: this function has the features.
                    let mut vectors = unsafe { Narrow::<$registers>::new(rows, width, w) };
                    pass_loop(&mut vectors, step, visits, order, settled);
                    vectors.finish(w);
                }
                Layout::Dense { width } => {
                    let (width, used) = rows.dense_widths(width);
                    let plain = Dense {
                        segments,
                        width,
                        used,
                        bias,
                        w,
                    };
                    pass_loop(&mut $dense(plain), step, visits, order, settled)
                }
                Layout::Sparse | Layout::Bytes => {
                    let plain = Sparse { segments, bias, w };
                    pass_loop(&mut $sparse(plain), step, visits, order, settled)
                }
            }
        }
    };
}

instantiate!(
    "avx2,fma",
    pass_avx2,
    pass_avx2_inside,
    Avx2Registers,
    Avx2Dense,
    Avx2Sparse
);
instantiate!(
    "avx512f,avx512vl,avx2,fma",
    pass_avx512,
    pass_avx512_inside,
    Avx512Registers,
    Avx512Dense,
    Avx512Sparse
);

pub(super) fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the level was detected before a `Simd` of it was made.
    unsafe { run_avx2_inside(kernel) }
}

#[target_feature(enable = "avx2,fma")]
fn run_avx2_inside<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

pub(super) fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the level was detected before a `Simd` of it was made.
    unsafe { run_avx512_inside(kernel) }
}

#[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
fn run_avx512_inside<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

/// Long dense rows with AVX2.
struct Avx2Dense<'a, W>(Dense<'a, W>);

/// Long dense rows with AVX-512.
struct Avx512Dense<'a, W>(Dense<'a, W>);

/// Sparse rows with AVX2.
struct Avx2Sparse<'a, W>(Sparse<'a, W>);

/// Sparse rows with AVX-512.
struct Avx512Sparse<'a, W>(Sparse<'a, W>);

macro_rules! prefetch_as_plain {
    () => {
        #[inline(always)]
        fn prefetch_row(&self, place: RowAddress) {
            self.0.prefetch_row(place);
        }

        #[inline(always)]
        fn prefetch_weights(&self, place: RowAddress) {
            self.0.prefetch_weights(place);
        }
    };
}

impl<W: AsRef<[f32]>> Dots for Avx2Dense<'_, W> {
    #[inline(always)]
    fn dot(&self, place: RowAddress) -> f32 {
        let w = self.0.w.as_ref();
        // SAFETY: only instantiated inside functions with AVX2 and FMA; the chunks hold 8 values.
        let dot = unsafe {
            let mut sums = [_mm256_setzero_ps(); 4];
            let (x, x_rest) = self.0.row(place).as_chunks::<8>();
            let (w, w_rest) = w[..self.0.used].as_chunks::<8>();
            for (x, w) in x.chunks(4).zip(w.chunks(4)) {
                for ((sum, x), w) in sums.iter_mut().zip(x).zip(w) {
                    let (x, w) = (_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(w.as_ptr()));
                    *sum = _mm256_fmadd_ps(x, w, *sum);
                }
            }
            let rest: f32 = x_rest.iter().zip(w_rest).map(|(x, w)| x * w).sum();
            let sums = _mm256_add_ps(
                _mm256_add_ps(sums[0], sums[1]),
                _mm256_add_ps(sums[2], sums[3]),
            );
            sum_avx2(sums) + rest
        };
        dot + bias_part(self.0.bias, w)
    }

    prefetch_as_plain!();
}

impl Vectors for Avx2Dense<'_, &mut [f32]> {
    #[inline(always)]
    fn add(&mut self, place: RowAddress, scale: f32) {
        // The compiler vectorises the plain loop; it differs only in being compiled for AVX2.
        self.0.add(place, scale);
    }
}

impl<W: AsRef<[f32]>> Dots for Avx512Dense<'_, W> {
    #[inline(always)]
    fn dot(&self, place: RowAddress) -> f32 {
        let w = self.0.w.as_ref();
        // SAFETY: only instantiated inside functions with AVX-512; the chunks hold 16 values.
        let dot = unsafe {
            let mut sums = [_mm512_setzero_ps(); 4];
            let (x, x_rest) = self.0.row(place).as_chunks::<16>();
            let (w, w_rest) = w[..self.0.used].as_chunks::<16>();
            for (x, w) in x.chunks(4).zip(w.chunks(4)) {
                for ((sum, x), w) in sums.iter_mut().zip(x).zip(w) {
                    let (x, w) = (_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(w.as_ptr()));
                    *sum = _mm512_fmadd_ps(x, w, *sum);
                }
            }
            let rest: f32 = x_rest.iter().zip(w_rest).map(|(x, w)| x * w).sum();
            let sums = _mm512_add_ps(
                _mm512_add_ps(sums[0], sums[1]),
                _mm512_add_ps(sums[2], sums[3]),
            );
            _mm512_reduce_add_ps(sums) + rest
        };
        dot + bias_part(self.0.bias, w)
    }

    prefetch_as_plain!();
}

impl Vectors for Avx512Dense<'_, &mut [f32]> {
    #[inline(always)]
    fn add(&mut self, place: RowAddress, scale: f32) {
        let used = self.0.used;
        let start = place.start as usize * self.0.width;
        let x = &self.0.segments[place.segment as usize].values[start..start + used];
        let (x, x_rest) = x.as_chunks::<16>();
        let (w, w_rest) = self.0.w[..used].as_chunks_mut::<16>();
        for (x, w) in x.iter().zip(w) {
            // SAFETY: only instantiated inside functions with AVX-512; the chunks hold 16 values.
            unsafe {
                let sum = _mm512_fmadd_ps(
                    _mm512_set1_ps(scale),
                    _mm512_loadu_ps(x.as_ptr()),
                    _mm512_loadu_ps(w.as_ptr()),
                );
                _mm512_storeu_ps(w.as_mut_ptr(), sum);
            }
        }
        for (x, w) in x_rest.iter().zip(w_rest) {
            *w += scale * x;
        }
        add_bias(self.0.bias, self.0.w, scale);
    }
}

impl<W: AsRef<[f32]>> Dots for Avx2Sparse<'_, W> {
    #[inline(always)]
    fn dot(&self, place: RowAddress) -> f32 {
        self.0.dot(place)
    }

    prefetch_as_plain!();
}

impl Vectors for Avx2Sparse<'_, &mut [f32]> {
    #[inline(always)]
    fn add(&mut self, place: RowAddress, scale: f32) {
        self.0.add(place, scale);
    }
}

impl<W: AsRef<[f32]>> Dots for Avx512Sparse<'_, W> {
    #[inline(always)]
    fn dot(&self, place: RowAddress) -> f32 {
        let w = self.0.w.as_ref();
        // A gather counts in signed 32 bits: indices from 2^31 would turn negative.
        assert!(w.len() <= i32::MAX as usize);
        let (indices, values) = self.0.row(place);
        // SAFETY: only instantiated inside functions with AVX-512. Lanes beyond the row are masked out of the loads,
        // and lanes with an index not below the length of w out of the gather.
        let dot = unsafe {
            let length = _mm512_set1_epi32(w.len() as i32);
            let mut sum = _mm512_setzero_ps();
            let mut start = 0;
            while start < indices.len() {
                let left = (indices.len() - start).min(16);
                let lanes = ((1_u32 << left) - 1) as u16;
                let index = _mm512_maskz_loadu_epi32(lanes, indices.as_ptr().add(start).cast());
                let value = _mm512_maskz_loadu_ps(lanes, values.as_ptr().add(start));
                let inside = _mm512_mask_cmplt_epu32_mask(lanes, index, length);
                let zero = _mm512_setzero_ps();
                let weight = _mm512_mask_i32gather_ps::<4>(zero, inside, index, w.as_ptr());
                sum = _mm512_fmadd_ps(value, weight, sum);
                start += 16;
            }
            _mm512_reduce_add_ps(sum)
        };
        dot + bias_part(self.0.bias, w)
    }

    prefetch_as_plain!();
}

impl Vectors for Avx512Sparse<'_, &mut [f32]> {
    #[inline(always)]
    fn add(&mut self, place: RowAddress, scale: f32) {
        self.0.add(place, scale);
    }
}

#[inline(always)]
fn bias_part(bias: f32, w: &[f32]) -> f32 {
    if bias == 0.0 {
        0.0
    } else {
        bias * w[w.len() - 1]
    }
}

#[inline(always)]
fn add_bias(bias: f32, w: &mut [f32], scale: f32) {
    if bias != 0.0
        && let Some(last) = w.last_mut()
    {
        *last += scale * bias;
    }
}
