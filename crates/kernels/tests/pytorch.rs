//! The operators against PyTorch. `pytorch.py` wrote `pytorch.txt`, in f64, from the same formula of inputs.

use std::collections::HashMap;

use pelton_kernels::norm::{Backward, BatchNorm, Gradients, Running, Saved};
use pelton_kernels::{Conv, Pool, Precision};

fn numbers(n: usize, seed: usize) -> Vec<f32> {
    (0..n)
        .map(|i| ((i * 7919 + seed * 104_729) % 1021) as f32 / 1024.0 * 2.0 - 1.0)
        .collect()
}

fn expected() -> HashMap<&'static str, Vec<f32>> {
    let lines = include_str!("pytorch.txt").lines();
    let parse = |line: &'static str| {
        let (name, values) = line.split_once(' ').expect("a name and values");
        (
            name,
            values
                .split(' ')
                .map(|x| x.parse().expect("a number"))
                .collect(),
        )
    };
    lines.map(parse).collect()
}

/// Sums of some dozens of numbers of about 1, which round by at most 2⁻²⁴ each.
fn near(expected: &HashMap<&str, Vec<f32>>, name: &str, got: &[f32]) {
    let expected = &expected[name];
    assert_eq!(got.len(), expected.len(), "{name}");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let tolerance = 128.0 * 2f32.powi(-24) * expected.abs().max(1.0);
        assert!(
            (got - expected).abs() <= tolerance,
            "{name}[{i}]: {got}, not {expected}"
        );
    }
}

#[test]
fn convolution() {
    let expected = expected();
    for (name, kernel, stride, padding) in [
        ("conv", [3, 3], [2, 2], [1, 1]),
        ("wide", [2, 4], [1, 3], [0, 2]),
    ] {
        let conv = Conv {
            precision: Precision::F32,
            batch: 2,
            input: [6, 7],
            in_channels: 3,
            out_channels: 5,
            kernel,
            stride,
            padding,
        };
        let (x, w, bias) = (
            numbers(conv.input_len(), 1),
            numbers(conv.weights_len(), 2),
            numbers(5, 3),
        );
        let dy = numbers(conv.output_len(), 4);
        let (mut y, mut dx) = (vec![f32::NAN; dy.len()], vec![f32::NAN; x.len()]);
        let (mut dw, mut db) = (vec![f32::NAN; w.len()], vec![f32::NAN; 5]);
        conv.forward(&x, &w, Some(&bias), false, &mut y);
        conv.input_gradient(&dy, &w, &mut dx);
        conv.weight_gradient(&x, &dy, &mut dw);
        conv.bias_gradient(&dy, &mut db);
        for (part, got) in [("y", &y), ("dx", &dx), ("dw", &dw), ("db", &db)] {
            near(&expected, &format!("{name}.{part}"), got);
        }
    }
}

#[test]
fn batch_norm_with_residual_and_relu() {
    let expected = expected();
    let (x, residual, dy) = (numbers(90, 5), numbers(90, 6), numbers(90, 11));
    let (gamma, beta) = (numbers(5, 7), numbers(5, 8));
    let norm = BatchNorm {
        gamma: &gamma,
        beta: &beta,
        epsilon: 1e-5,
        relu: true,
    };
    let running_mean = numbers(5, 9);
    let running_variance: Vec<f32> = numbers(5, 10).iter().map(|x| x + 2.0).collect();
    let (mut new_mean, mut new_variance) = (running_mean.clone(), running_variance.clone());
    let (mut mean, mut inverse_deviation) = (vec![f32::NAN; 5], vec![f32::NAN; 5]);
    let mut y = vec![f32::NAN; 90];
    let running = Running {
        mean: &mut new_mean,
        variance: &mut new_variance,
        momentum: 0.1,
    };
    let saved = Saved {
        mean: &mut mean,
        inverse_deviation: &mut inverse_deviation,
    };
    norm.train(&x, Some(&residual), Some(running), saved, &mut y);
    let (mut dx, mut dresidual) = (vec![f32::NAN; 90], vec![f32::NAN; 90]);
    let (mut dgamma, mut dbeta) = (vec![f32::NAN; 5], vec![f32::NAN; 5]);
    let from = Backward {
        x: &x,
        y: &y,
        dy: &dy,
        mean: &mean,
        inverse_deviation: &inverse_deviation,
    };
    let to = Gradients {
        x: &mut dx,
        gamma: &mut dgamma,
        beta: &mut dbeta,
        residual: Some(&mut dresidual),
    };
    norm.backward(from, to);
    let mut evaluated = vec![f32::NAN; 90];
    let plain = BatchNorm {
        relu: false,
        ..norm
    };
    plain.evaluate(&x, None, &running_mean, &running_variance, &mut evaluated);
    for (part, got) in [
        ("y", &y),
        ("dx", &dx),
        ("dgamma", &dgamma),
        ("dbeta", &dbeta),
        ("dresidual", &dresidual),
        ("mean", &new_mean),
        ("variance", &new_variance),
        ("evaluated", &evaluated),
    ] {
        near(&expected, &format!("norm.{part}"), got);
    }
}

#[test]
fn pooling() {
    let expected = expected();
    let pool = Pool {
        batch: 2,
        input: [7, 6],
        channels: 3,
        kernel: [3, 3],
        stride: [2, 2],
        padding: [1, 1],
    };
    let (x, dy) = (
        numbers(pool.input_len(), 12),
        numbers(pool.output_len(), 13),
    );
    let (mut y, mut dx) = (vec![f32::NAN; dy.len()], vec![f32::NAN; x.len()]);
    let mut places = vec![0; dy.len()];
    pool.max(&x, &mut y, &mut places);
    near(&expected, "max.y", &y);
    pool.max_backward(&dy, &places, &mut dx);
    near(&expected, "max.dx", &dx);
    pool.mean(&x, &mut y);
    near(&expected, "mean.y", &y);
    pool.mean_backward(&dy, &mut dx);
    near(&expected, "mean.dx", &dx);
}
