use super::*;

struct Plain {
    y: Vec<f64>,
    dx: Vec<f64>,
    dgamma: Vec<f64>,
    dbeta: Vec<f64>,
    residual: Vec<f64>,
    mean: Vec<f64>,
    variance: Vec<f64>,
}

/// The definition, in f64, with the chain rule step by step.
fn plain(norm: &BatchNorm<'_>, x: &[f32], residual: Option<&[f32]>, dy: &[f32]) -> Plain {
    let channels = norm.gamma.len();
    let n = x.len() / channels;
    let mut to = Plain {
        y: vec![0.0; x.len()],
        dx: vec![0.0; x.len()],
        dgamma: vec![0.0; channels],
        dbeta: vec![0.0; channels],
        residual: vec![0.0; x.len()],
        mean: vec![0.0; channels],
        variance: vec![0.0; channels],
    };
    for c in 0..channels {
        let at = |p: usize| p * channels + c;
        let x: Vec<f64> = (0..n).map(|p| f64::from(x[at(p)])).collect();
        let mean = x.iter().sum::<f64>() / n as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        let deviation = (variance + f64::from(norm.epsilon)).sqrt();
        let (gamma, beta) = (f64::from(norm.gamma[c]), f64::from(norm.beta[c]));
        (to.mean[c], to.variance[c]) = (mean, variance);
        let hat: Vec<f64> = x.iter().map(|x| (x - mean) / deviation).collect();
        let mut dhat = vec![0.0; n];
        for p in 0..n {
            let mut y = gamma * hat[p] + beta + residual.map_or(0.0, |r| f64::from(r[at(p)]));
            let mut g = f64::from(dy[at(p)]);
            if norm.relu && y <= 0.0 {
                (y, g) = (0.0, 0.0);
            }
            to.y[at(p)] = y;
            to.residual[at(p)] = g;
            to.dbeta[c] += g;
            to.dgamma[c] += g * hat[p];
            dhat[p] = g * gamma;
        }
        let d_deviation: f64 = (0..n)
            .map(|p| -dhat[p] * (x[p] - mean) / deviation.powi(2))
            .sum();
        let d_variance = d_deviation / (2.0 * deviation);
        let d_mean: f64 = dhat.iter().map(|d| -d / deviation).sum();
        for p in 0..n {
            to.dx[at(p)] = dhat[p] / deviation
                + d_variance * 2.0 * (x[p] - mean) / n as f64
                + d_mean / n as f64;
        }
    }
    to
}

fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// `size` is the sum of the summands' magnitudes; the tolerance is a few dozen roundings of 2⁻²⁴ each.
fn near(what: &str, got: &[f32], expected: &[f64], size: f64) {
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(got) - expected).abs();
        assert!(
            error <= 64.0 * 2f64.powi(-24) * size,
            "{what}[{i}]: {got}, not {expected}"
        );
    }
}

fn check(pixels: usize, channels: usize, with_residual: bool, relu: bool, center: f32) {
    let x: Vec<f32> = numbers(pixels * channels, 1)
        .iter()
        .map(|x| x + center)
        .collect();
    let dy = numbers(x.len(), 2);
    let residual = numbers(x.len(), 3);
    let residual = with_residual.then_some(&residual[..]);
    let (gamma, beta) = (numbers(channels, 4), numbers(channels, 5));
    let norm = BatchNorm {
        gamma: &gamma,
        beta: &beta,
        epsilon: 1e-5,
        relu,
    };
    let mut expected = plain(&norm, &x, residual, &dy);
    for level in Simd::available() {
        let what = |part: &str| {
            format!("{part} {pixels}x{channels} {with_residual} {relu} {center} {level:?}")
        };
        let (mut mean, mut inverse) = (vec![0.0; channels], vec![0.0; channels]);
        let (mut running_mean, mut running_variance) = (vec![0.5; channels], vec![2.0; channels]);
        let mut y = vec![f32::NAN; x.len()];
        let running = Running {
            mean: &mut running_mean,
            variance: &mut running_variance,
            momentum: 0.1,
        };
        let saved = Saved {
            mean: &mut mean,
            inverse_deviation: &mut inverse,
        };
        norm.train_at(level, &x, residual, Some(running), saved, &mut y);
        let large = 1.0 + f64::from(center.abs());
        near(&what("mean"), &mean, &expected.mean, large);
        let inverses: Vec<f64> = expected
            .variance
            .iter()
            .map(|v| (v + f64::from(norm.epsilon)).sqrt().recip())
            .collect();
        let steepest = inverses.iter().fold(1.0, |a: f64, &b| a.max(b));
        // x − mean keeps the absolute precision of x; 1/std multiplies it.
        near(&what("y"), &y, &expected.y, large * steepest);
        near(&what("1/std"), &inverse, &inverses, steepest.powi(3));
        let new: Vec<f64> = expected.mean.iter().map(|m| 0.9 * 0.5 + 0.1 * m).collect();
        near(&what("running mean"), &running_mean, &new, large);
        let unbiased = pixels as f64 / (pixels.max(2) - 1) as f64;
        let new: Vec<f64> = expected
            .variance
            .iter()
            .map(|v| 0.9 * 2.0 + 0.1 * v * unbiased)
            .collect();
        near(&what("running variance"), &running_variance, &new, 2.0);

        // The reference uses the mask of this y, which near 0 may differ by a rounding.
        if relu {
            let masked: Vec<f32> = dy
                .iter()
                .zip(&y)
                .map(|(d, y)| if *y > 0.0 { *d } else { 0.0 })
                .collect();
            let linear = BatchNorm {
                relu: false,
                ..norm
            };
            let gradients = plain(&linear, &x, residual, &masked);
            expected = Plain {
                y: expected.y,
                ..gradients
            };
        }
        let mut dx = vec![f32::NAN; x.len()];
        let (mut dgamma, mut dbeta) = (vec![f32::NAN; channels], vec![f32::NAN; channels]);
        let mut dresidual = vec![f32::NAN; x.len()];
        let from = Backward {
            x: &x,
            y: &y,
            dy: &dy,
            mean: &mean,
            inverse_deviation: &inverse,
        };
        let to = Gradients {
            x: &mut dx,
            gamma: &mut dgamma,
            beta: &mut dbeta,
            residual: with_residual.then_some(&mut dresidual[..]),
        };
        norm.backward_at(level, from, to);
        near(&what("dx"), &dx, &expected.dx, large * steepest.powi(2));
        near(
            &what("dgamma"),
            &dgamma,
            &expected.dgamma,
            large * steepest * pixels as f64,
        );
        near(&what("dbeta"), &dbeta, &expected.dbeta, pixels as f64);
        if with_residual {
            near(&what("residual"), &dresidual, &expected.residual, 1.0);
        }
    }
    // Running statistics that equal the batch's give the same result.
    let mean: Vec<f32> = expected.mean.iter().map(|&m| m as f32).collect();
    let variance: Vec<f32> = expected.variance.iter().map(|&v| v as f32).collect();
    let mut y = vec![f32::NAN; x.len()];
    norm.evaluate(&x, residual, &mean, &variance, &mut y);
    let steepest = variance
        .iter()
        .fold(1.0f32, |a, v| a.max((v + 1e-5).sqrt().recip()));
    let large = (1.0 + center.abs()) * steepest;
    near("evaluated", &y, &expected.y, f64::from(large));
}

#[test]
fn equals_the_definition() {
    for (pixels, channels) in [
        (1, 3),
        (2, 1),
        (7, 16),
        (65, 17),
        (1000, 40),
        (131, 300),
        (5000, 5),
    ] {
        for way in 0..4 {
            check(pixels, channels, way & 1 != 0, way & 2 != 0, 0.0);
        }
    }
}

#[test]
fn a_large_mean_costs_no_digits() {
    check(3000, 20, false, false, 100.0);
}
