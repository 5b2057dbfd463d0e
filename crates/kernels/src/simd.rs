//! Which instructions the loops use.

use std::sync::OnceLock;

/// A level of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Simd {
    /// What every processor of the target has.
    Portable,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, VL, BW and DQ.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Simd {
    /// Every level this processor has, the best last.
    pub fn available() -> Vec<Simd> {
        #[allow(unused_mut)]
        let mut levels = vec![Simd::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if avx2 {
                levels.push(Simd::Avx2);
            }
            if avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
            {
                levels.push(Simd::Avx512);
            }
        }
        levels
    }

    /// The level in use: the best of this processor, or less where the environment variable `PELTON_CPU` says
    /// `avx2` or `portable`.
    pub fn current() -> Simd {
        static CURRENT: OnceLock<Simd> = OnceLock::new();
        *CURRENT.get_or_init(|| {
            let most = match std::env::var("PELTON_CPU").as_deref() {
                Ok("portable") => Simd::Portable,
                #[cfg(target_arch = "x86_64")]
                Ok("avx2") => Simd::Avx2,
                _ => return *Simd::available().last().unwrap_or(&Simd::Portable),
            };
            Simd::available()
                .into_iter()
                .rfind(|&level| level <= most)
                .unwrap_or(Simd::Portable)
        })
    }
}

/// A loop that is compiled for each level; `run` must be `#[inline(always)]`, and so must what it calls.
pub trait Kernel {
    /// What it returns.
    type Output;
    /// The loop.
    fn run(self) -> Self::Output;
}

/// Runs the version of a loop that was compiled for `level`.
///
/// Panics where this processor lacks the level.
pub fn run<K: Kernel>(level: Simd, kernel: K) -> K::Output {
    match level {
        Simd::Portable => kernel.run(),
        #[cfg(target_arch = "x86_64")]
        _ => x86::run(level, kernel),
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![allow(unsafe_code)]

    use super::{Kernel, Simd};

    pub(super) fn run<K: Kernel>(level: Simd, kernel: K) -> K::Output {
        if level == Simd::Avx512 && has_avx512() {
            // SAFETY: the processor has these features.
            unsafe { avx512(kernel) }
        } else if level == Simd::Avx2 && has_avx2() {
            // SAFETY: the processor has these features.
            unsafe { avx2(kernel) }
        } else {
            panic!("this processor does not have {level:?}")
        }
    }

    fn has_avx2() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
    }

    fn has_avx512() -> bool {
        has_avx2()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
    }

    #[target_feature(enable = "avx2,fma")]
    fn avx2<K: Kernel>(kernel: K) -> K::Output {
        kernel.run()
    }

    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    fn avx512<K: Kernel>(kernel: K) -> K::Output {
        kernel.run()
    }
}
