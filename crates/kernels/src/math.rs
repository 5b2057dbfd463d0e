//! exp, tanh, sigmoid and erf of f32, written so that the compiler turns a loop over them into vector code:
//! no branch, no table, no call. The library's own would be called once a number.
//!
//! Multiplication and addition stay separate (no fused form), so that every level of instructions gives the same
//! numbers.

// Coefficients are given as published, with more digits than f32 keeps.
#![allow(clippy::excessive_precision)]

/// e^x. Relative error below 1.2e-7; 0 below −86.9 (exact: under 1.9e-38); infinite from 88.73; NaN of NaN.
///
/// x = n·ln 2 + r with |r| ≤ ½ ln 2, and a polynomial in r (Cephes, `expf`).
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding 1.5·2^23 rounds to an integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // ln 2 in two parts; the product of the first with any n is exact.
    let r = (x - n * 0.693_359_375) - n * -2.121_944_40e-4;
    let p = 1.987_569_150_0e-4;
    let p = p * r + 1.398_199_950_7e-3;
    let p = p * r + 8.333_451_907_3e-3;
    let p = p * r + 4.166_579_589_4e-2;
    let p = p * r + 1.666_666_545_9e-1;
    let p = p * r + 5.000_000_120_1e-1;
    let p = (p * (r * r) + r) + 1.0;
    // 2^(n − 1), so that n = 128 is still a number; times 2 at the end.
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(126 << 23));
    let y = p * power * 2.0;
    let y = if x < -86.9 { 0.0 } else { y };
    if x > 88.73 { f32::INFINITY } else { y }
}

/// 1 / (1 + e^−x). Relative error below 1.8e-7; 0 below −88.7.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// tanh x. Relative error below 6e-7; NaN of NaN.
///
/// An odd polynomial over an even one, as in Eigen; ±1 beyond 7.905, the nearest f32 there.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    const END: f32 = 7.905_311_107_635_498;
    // Here tanh x is x in f32; the fraction would lose digits to tiny products.
    let small = x.abs() < 4e-4;
    let same = x;
    let x = if x > END { END } else { x };
    let x = if x < -END { -END } else { x };
    let s = x * x;
    let p = -2.760_768_477_423_55e-16;
    let p = p * s + 2.000_187_904_824_77e-13;
    let p = p * s + -8.604_671_522_137_35e-11;
    let p = p * s + 5.122_297_090_371_14e-8;
    let p = p * s + 1.485_722_357_179_79e-5;
    let p = p * s + 6.372_619_288_754_36e-4;
    let p = p * s + 4.893_524_558_917_86e-3;
    let q = 1.198_258_394_667_02e-6;
    let q = q * s + 1.185_347_056_866_54e-4;
    let q = q * s + 2.268_434_632_439_00e-3;
    let q = q * s + 4.893_525_185_543_85e-3;
    if small { same } else { x * p / q }
}

/// The error function. Absolute error below 5e-7; NaN of NaN.
///
/// An odd polynomial over an even one, as in Eigen; ±1 beyond 4.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let x = if x > 4.0 { 4.0 } else { x };
    let x = if x < -4.0 { -4.0 } else { x };
    let s = x * x;
    let p = -2.726_142_258_013_06e-10;
    let p = p * s + 2.770_681_424_959_02e-8;
    let p = p * s + -2.101_024_020_825_08e-6;
    let p = p * s + -5.692_506_394_623_46e-5;
    let p = p * s + -7.349_906_303_268_55e-4;
    let p = p * s + -2.954_599_808_540_25e-3;
    let p = p * s + -1.609_603_326_224_15e-2;
    let q = -1.456_607_184_649_96e-5;
    let q = q * s + -2.133_740_552_789_05e-4;
    let q = q * s + -1.682_826_974_382_03e-3;
    let q = q * s + -7.373_329_167_204_68e-3;
    let q = q * s + -1.426_473_905_141_89e-2;
    x * p / q
}

/// 0 for numbers so small that products of them would be subnormal, which are 100 times as slow. A
/// model that is sure of its words makes many: a step of a Transformer took three times as long.
#[inline(always)]
pub fn normal(x: f32) -> f32 {
    if x.abs() < 1e-30 { 0.0 } else { x }
}
