//! Every operator at every level of instructions: against a plain version in f64, against finite differences
//! of that version, and against numbers that PyTorch computed (`expected.py` wrote `expected.txt`).

mod attention;
mod cross_entropy;
mod lstm;
mod math;
mod optimizer;
mod rows;

/// Numbers in −1..1 that look random; `expected.py` makes the same.
fn numbers(seed: u32, n: usize) -> Vec<f32> {
    (0..n as u32)
        .map(|i| {
            let x = i
                .wrapping_mul(2_654_435_761)
                .wrapping_add(seed.wrapping_mul(1_013_904_223));
            let x = (x ^ x >> 15).wrapping_mul(2_246_822_519);
            let x = (x ^ x >> 13).wrapping_mul(3_266_489_917);
            ((x ^ x >> 16) >> 8) as f32 / 8_388_608.0 - 1.0
        })
        .collect()
}

/// `numbers` times `by`.
pub(crate) fn scaled(seed: u32, n: usize, by: f32) -> Vec<f32> {
    numbers(seed, n).into_iter().map(|x| x * by).collect()
}

/// PyTorch's results.
fn expected(name: &str) -> Vec<f64> {
    let line = include_str!("expected.txt")
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let numbers = line.expect("a line of expected.txt").split(' ');
    numbers.map(|x| x.parse().expect("a number")).collect()
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

/// Fails if a number of `got` is further than `tolerance` from the expected one, relative to the largest expected (or
/// to 0.1).
#[track_caller]
fn close(what: &str, got: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0.1, |m: f64, x| m.max(x.abs()));
    for (i, (&g, e)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(g) - e).abs() / largest;
        assert!(
            error <= tolerance,
            "{what}[{i}] is {g}, not {e} (off by {error:e})"
        );
    }
}

/// The derivative of `f` by each of the numbers `at` that `sample` names, by central differences.
fn slopes(at: &[f64], sample: &[usize], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let step = 1e-5;
    let mut x = at.to_vec();
    sample
        .iter()
        .map(|&i| {
            let middle = x[i];
            x[i] = middle + step;
            let above = f(&x);
            x[i] = middle - step;
            let below = f(&x);
            x[i] = middle;
            (above - below) / (2.0 * step)
        })
        .collect()
}

/// Up to `most` positions spread over `n`.
fn spread(n: usize, most: usize) -> Vec<usize> {
    (0..n).step_by(n.div_ceil(most).max(1)).collect()
}

/// Those of `x` that `sample` names.
fn pick(x: &[f32], sample: &[usize]) -> Vec<f32> {
    sample.iter().map(|&i| x[i]).collect()
}

/// The error function: its series near 0, a continued fraction for 1 − erf further out.
fn erf(x: f64) -> f64 {
    if x.abs() > 2.5 {
        let a = x.abs();
        let fraction = (1..100).rev().fold(a, |f, n| a + f64::from(n) / 2.0 / f);
        let rest = (-a * a).exp() / std::f64::consts::PI.sqrt() / fraction;
        return x.signum() * (1.0 - rest);
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..100 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}
