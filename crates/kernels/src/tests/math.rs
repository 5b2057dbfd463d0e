use crate::math::*;
use crate::simd::{self, Kernel, Simd};

struct Map<'a, F>(&'a mut [f32], F);

impl<F: Fn(f32) -> f32> Kernel for Map<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for x in self.0 {
            *x = (self.1)(*x);
        }
    }
}

/// The largest `error(x, got)` over about a million numbers of all sizes, at every level.
fn worst(f: impl Fn(f32) -> f32 + Copy, error: impl Fn(f32, f32) -> f64) -> f64 {
    let mut worst: f64 = 0.0;
    // A stride through all bit patterns, odd so that low bits vary too.
    let xs: Vec<f32> = (0..u32::MAX)
        .step_by(4093)
        .map(f32::from_bits)
        .filter(|x| !x.is_nan())
        .chain((0..100_000).map(|i| (i as f32 - 50_000.0) * 0.0018))
        .collect();
    for level in Simd::available() {
        let mut ys = xs.clone();
        simd::run(level, Map(&mut ys, f));
        for (&x, &y) in xs.iter().zip(&ys) {
            let e = error(x, y);
            assert!(!e.is_nan(), "{level:?}: of {x} comes {y}");
            worst = worst.max(e);
        }
        let mut nan = [f32::NAN];
        simd::run(level, Map(&mut nan, f));
        assert!(nan[0].is_nan());
    }
    worst
}

fn relative(expected: f64, got: f32) -> f64 {
    (f64::from(got) - expected).abs() / expected.abs().max(f64::from(f32::MIN_POSITIVE))
}

#[test]
fn exp_is_as_near_as_it_says() {
    let e = worst(exp, |x, y| match x {
        _ if x < -86.9 => f64::from(y.abs()),
        _ if x > 88.73 => f64::from(u8::from(y != f32::INFINITY)),
        _ if f64::from(x).exp() > f64::from(f32::MAX) => 0.0,
        _ => relative(f64::from(x).exp(), y),
    });
    assert!(e < 1.2e-7);
}

#[test]
fn sigmoid_is_as_near_as_it_says() {
    let e = worst(sigmoid, |x, y| match x {
        _ if x < -86.9 => f64::from(y.abs()) * 1e30,
        _ => relative(1.0 / (1.0 + (-f64::from(x)).exp()), y),
    });
    assert!(e < 1.8e-7);
}

#[test]
fn tanh_is_as_near_as_it_says() {
    let e = worst(tanh, |x, y| relative(f64::from(x).tanh(), y));
    assert!(e < 6e-7);
}

#[test]
fn erf_is_as_near_as_it_says() {
    let e = worst(erf, |x, y| (f64::from(y) - super::erf(f64::from(x))).abs());
    assert!(e < 5e-7);
}
