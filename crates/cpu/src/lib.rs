//! The processor's instruction sets, and loops compiled for each level.
//!
//! A loop is written once, as a [`Kernel`]; [`run`] calls the version of it that was compiled for a level. Loops of
//! intrinsics ask [`Simd::current`]. Nothing else asks the processor, so that the environment variable `PELTON_CPU`
//! (`portable` or `avx2`) limits every loop; tests of plain paths and comparisons with older processors need that.
//!
//! ```
//! use pelton_cpu::{Kernel, Simd, run};
//!
//! struct Sum<'a>(&'a [u32]);
//!
//! impl Kernel for Sum<'_> {
//!     type Output = u32;
//!
//!     #[inline(always)]
//!     fn run(self) -> u32 {
//!         self.0.iter().sum()
//!     }
//! }
//!
//! assert_eq!(run(Simd::current(), Sum(&[1, 2, 3])), 6);
//! ```

use std::sync::OnceLock;

const VARIABLE: &str = "PELTON_CPU";

/// A level of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Simd {
    /// Instructions that every processor of the target has.
    Portable,
    /// AVX2, FMA, BMI, LZCNT and POPCNT, as processors from 2013 on have them.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, VL, BW and DQ in addition.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

const LEVELS: &[Simd] = &[
    Simd::Portable,
    #[cfg(target_arch = "x86_64")]
    Simd::Avx2,
    #[cfg(target_arch = "x86_64")]
    Simd::Avx512,
];

impl Simd {
    /// Whether this processor has the level, regardless of `PELTON_CPU`.
    #[inline]
    pub fn is_available(self) -> bool {
        match self {
            Simd::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("lzcnt")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 => {
                Simd::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
            }
        }
    }

    /// Whether loops of this level may use the bf16 instructions of AVX-512.
    #[inline]
    pub fn has_bf16(self) -> bool {
        match self {
            Simd::Portable => false,
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => false,
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 => is_x86_feature_detected!("avx512bf16"),
        }
    }

    /// Every level this processor has, the best last.
    pub fn available() -> Vec<Simd> {
        let levels = LEVELS.iter().copied();
        levels.filter(|level| level.is_available()).collect()
    }

    /// The level in use, AVX2 at most: for loops that do not gain from wider registers.
    #[inline]
    pub fn current_to_avx2() -> Simd {
        #[cfg(target_arch = "x86_64")]
        return Simd::current().min(Simd::Avx2);
        #[cfg(not(target_arch = "x86_64"))]
        Simd::current()
    }

    /// The level in use: the best of this processor, or less if `PELTON_CPU` says so.
    #[inline]
    pub fn current() -> Simd {
        static CURRENT: OnceLock<Simd> = OnceLock::new();
        *CURRENT.get_or_init(|| {
            let most = limit().unwrap_or_default();
            let levels = Simd::available().into_iter();
            let within = |level: &Simd| most.is_none_or(|most| *level <= most);
            levels.rev().find(within).unwrap_or(Simd::Portable)
        })
    }
}

/// The limit that `PELTON_CPU` sets.
///
/// Errors: an invalid value, in a sentence.
pub fn limit() -> Result<Option<Simd>, String> {
    let value = std::env::var_os(VARIABLE).unwrap_or_default();
    limit_of(&value.to_string_lossy())
}

fn limit_of(value: &str) -> Result<Option<Simd>, String> {
    match value {
        "" => Ok(None),
        "portable" => Ok(Some(Simd::Portable)),
        #[cfg(target_arch = "x86_64")]
        "avx2" => Ok(Some(Simd::Avx2)),
        _ => Err(format!(
            "{VARIABLE}={value} is unknown: set it to portable or avx2, or leave it out"
        )),
    }
}

/// A loop that is compiled for each level; `run` must be `#[inline(always)]`, and so must what it calls.
pub trait Kernel {
    /// The result.
    type Output;
    /// The loop.
    fn run(self) -> Self::Output;
}

/// Runs the version of a loop that was compiled for `level`.
///
/// Panics if this processor lacks the level.
#[inline]
pub fn run<K: Kernel>(level: Simd, kernel: K) -> K::Output {
    match level {
        Simd::Portable => kernel.run(),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => x86::avx2(kernel),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => x86::avx512(kernel),
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![allow(unsafe_code)]

    use super::{Kernel, Simd};

    #[inline]
    pub(super) fn avx2<K: Kernel>(kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma")]
        fn run<K: Kernel>(kernel: K) -> K::Output {
            kernel.run()
        }
        check(Simd::Avx2);
        // SAFETY: the processor has these features.
        unsafe { run(kernel) }
    }

    #[inline]
    pub(super) fn avx512<K: Kernel>(kernel: K) -> K::Output {
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
        fn run<K: Kernel>(kernel: K) -> K::Output {
            kernel.run()
        }
        check(Simd::Avx512);
        // SAFETY: the processor has these features.
        unsafe { run(kernel) }
    }

    fn check(level: Simd) {
        assert!(
            level.is_available(),
            "this processor does not have {level:?}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_limited_by_name() {
        assert_eq!(limit_of(""), Ok(None));
        assert_eq!(limit_of("portable"), Ok(Some(Simd::Portable)));
        #[cfg(target_arch = "x86_64")]
        assert_eq!(limit_of("avx2"), Ok(Some(Simd::Avx2)));
        let wrong = limit_of("sse").unwrap_err();
        assert!(
            wrong.contains("sse") && wrong.contains("portable"),
            "{wrong}"
        );
        if let Ok(Some(most)) = limit() {
            assert!(Simd::current() <= most);
        }
    }

    #[test]
    fn every_level_runs_the_same_loop() {
        struct Sum<'a>(&'a [f32]);
        impl Kernel for Sum<'_> {
            type Output = f32;

            #[inline(always)]
            fn run(self) -> f32 {
                self.0.iter().sum()
            }
        }
        let values: Vec<f32> = (0..1000).map(|i| i as f32).collect();
        for level in Simd::available() {
            assert_eq!(run(level, Sum(&values)), 499_500.0, "{level:?}");
        }
    }
}
