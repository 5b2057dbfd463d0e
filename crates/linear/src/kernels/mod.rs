//! The inner loops: a *pass* visits the active rows of a block in a given order and changes w at
//! once; a *sweep* computes w·x of each row.
//!
//! A loop is written once, generic over [`Vectors`] (how w·x and w += c·x are done) and over the
//! [`Step`](crate::step::Step); the versions for newer processors instantiate it inside a function
//! that has the processor feature enabled, so nothing is dispatched per row. The plain versions are
//! the reference for the tests and the fallback.
//!
//! Measured with `examples/against_liblinear.rs` (AVX-512, one thread of a shared machine, everything
//! included): 45–65 ns a visit of 28 dense features, 260–320 ns of 29 non-zeros among 30 M features. The
//! floor of the first is about 24 ns, the latency of w·x, step and update, which depend on one another;
//! the rest is cache and translation misses of the rows. The second is bound by cache misses on w: a
//! sweep that only reads w in row order takes as long.

pub(crate) mod gram;
mod pass_loop;
mod plain;
mod sums;
#[cfg(target_arch = "x86_64")]
mod x86;

use pelton_cpu::Simd as Level;

use crate::step::Step;
use crate::visit::Visit;

pub(crate) use pass_loop::{BlockRows, Dots, Kernel, Vectors, pass_loop, prefetch_slice};
pub(crate) use sums::{add_rows, norms, sweep};

/// Which instructions the inner loops use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simd(Level);

impl Simd {
    /// Plain code without any processor feature.
    pub const PLAIN: Simd = Simd(Level::Portable);

    /// Every level this processor has, the best last.
    pub fn available() -> Vec<Simd> {
        Level::available().into_iter().map(Simd).collect()
    }

    /// The best level of this processor, or a lower one set by `PELTON_CPU`.
    pub fn best() -> Simd {
        Simd(Level::current())
    }
}

/// Runs the version of a loop that was compiled for the level.
pub(crate) fn run<K: Kernel>(simd: Simd, kernel: K) -> K::Output {
    match simd.0 {
        Level::Portable => kernel.run(),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => x86::run_avx2(kernel),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => x86::run_avx512(kernel),
    }
}

/// The kernels for `length` weights: those for sparse rows gather by signed 32-bit indices, so that
/// beyond 2^31 weights the plain ones take over.
fn level(simd: Simd, length: usize) -> Level {
    if length > i32::MAX as usize {
        Level::Portable
    } else {
        simd.0
    }
}

/// One pass over the rows `order` of a block; `settled` learns which of them need no visit soon.
pub(crate) fn pass<S: Step>(
    simd: Simd,
    rows: &BlockRows<'_>,
    w: &mut [f32],
    step: &mut S,
    visits: &mut [Visit],
    order: &[u32],
    settled: &mut [bool],
) {
    match level(simd, w.len()) {
        Level::Portable => plain::pass(rows, w, step, visits, order, settled),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => x86::pass_avx2(rows, w, step, visits, order, settled),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => x86::pass_avx512(rows, w, step, visits, order, settled),
    }
}

#[cfg(test)]
mod tests;
