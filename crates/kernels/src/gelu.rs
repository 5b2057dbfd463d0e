//! GELU: x·Φ(x), Φ the distribution function of the normal distribution.

use rayon::prelude::*;

use crate::math::{erf, exp, tanh};
use crate::simd::{self, Kernel, Simd};

const BLOCK: usize = 16 * 1024;

/// Which GELU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gelu {
    /// With the error function: PyTorch's default.
    Exact,
    /// ½x(1 + tanh(√(2/π)(x + 0.044715x³))): PyTorch's `approximate='tanh'`.
    Tanh,
}

impl Gelu {
    /// y = gelu(x), element by element. Panics if lengths differ; so does `backward`.
    pub fn forward(self, x: &[f32], y: &mut [f32]) {
        self.forward_at(Simd::current(), x, y);
    }

    pub(crate) fn forward_at(self, level: Simd, x: &[f32], y: &mut [f32]) {
        assert_eq!(x.len(), y.len(), "output");
        y.par_chunks_mut(BLOCK)
            .zip(x.par_chunks(BLOCK))
            .for_each(|(y, x)| match self {
                Gelu::Exact => simd::run(level, Forward::<true>(x, y)),
                Gelu::Tanh => simd::run(level, Forward::<false>(x, y)),
            });
    }

    /// dy·gelu′(x), in place in `dy`.
    pub fn backward(self, x: &[f32], dy: &mut [f32]) {
        self.backward_at(Simd::current(), x, dy);
    }

    pub(crate) fn backward_at(self, level: Simd, x: &[f32], dy: &mut [f32]) {
        assert_eq!(x.len(), dy.len(), "gradient");
        dy.par_chunks_mut(BLOCK)
            .zip(x.par_chunks(BLOCK))
            .for_each(|(dy, x)| match self {
                Gelu::Exact => simd::run(level, Backward::<true>(x, dy)),
                Gelu::Tanh => simd::run(level, Backward::<false>(x, dy)),
            });
    }
}

/// √(2/π).
const ROOT: f32 = 0.797_884_6;
const CUBE: f32 = 0.044_715;

struct Forward<'a, const EXACT: bool>(&'a [f32], &'a mut [f32]);

impl<const EXACT: bool> Kernel for Forward<'_, EXACT> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (&x, y) in self.0.iter().zip(self.1) {
            let bend = if EXACT {
                erf(x * std::f32::consts::FRAC_1_SQRT_2)
            } else {
                tanh(ROOT * (x + CUBE * x * x * x))
            };
            *y = 0.5 * x * (1.0 + bend);
        }
    }
}

struct Backward<'a, const EXACT: bool>(&'a [f32], &'a mut [f32]);

impl<const EXACT: bool> Kernel for Backward<'_, EXACT> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (&x, dy) in self.0.iter().zip(self.1) {
            *dy *= if EXACT {
                let density = 0.5 * ROOT * exp(-0.5 * x * x);
                0.5 * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)) + x * density
            } else {
                let t = tanh(ROOT * (x + CUBE * x * x * x));
                let inner = ROOT * (1.0 + 3.0 * CUBE * x * x);
                0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner
            };
        }
    }
}
