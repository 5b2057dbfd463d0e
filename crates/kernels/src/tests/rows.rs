//! Fully connected layer, layer norm, GELU, embedding and dropout.

use super::*;
use crate::Precision;
use crate::dropout::dropout_at;
use crate::simd::Simd;
use crate::{Gelu, LayerNorm, Linear, LinearGradients, embedding};

fn plain_norm(norm: &LayerNorm<'_>, x: &[f64]) -> Vec<f64> {
    let d = norm.gamma.len();
    x.chunks(d)
        .flat_map(|x| {
            let mean = x.iter().sum::<f64>() / d as f64;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / d as f64;
            let rstd = 1.0 / (variance + f64::from(norm.eps)).sqrt();
            let scales = norm.gamma.iter().zip(norm.beta);
            let row = x.iter().zip(scales);
            let row = row.map(move |(x, (&g, &b))| (x - mean) * rstd * f64::from(g) + f64::from(b));
            row.collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn layer_norm_at_odd_shapes() {
    for (n, d) in [(1, 2), (3, 33), (33, 7), (70, 100)] {
        let (gamma, beta) = (numbers(1, d), numbers(2, d));
        let norm = LayerNorm {
            gamma: &gamma,
            beta: &beta,
            eps: 1e-5,
        };
        // Far from zero: a variance from sums of squares would lose its digits.
        let x: Vec<f32> = numbers(3, n * d).iter().map(|x| x * 3.0 + 20.0).collect();
        let dy = numbers(4, n * d);
        let y = plain_norm(&norm, &wide(&x));
        let weigh = |y: &[f64]| {
            y.iter()
                .zip(&dy)
                .map(|(y, &d)| y * f64::from(d))
                .sum::<f64>()
        };
        let sample = spread(n * d, 40);
        let slopes = slopes(&wide(&x), &sample, |x| weigh(&plain_norm(&norm, x)));
        // y is linear in gamma and beta.
        let without = |gamma: &[f32], beta: &[f32]| {
            weigh(&plain_norm(
                &LayerNorm {
                    gamma,
                    beta,
                    eps: 1e-5,
                },
                &wide(&x),
            ))
        };
        let unit = |j: usize| {
            (0..d)
                .map(|i| f32::from(u8::from(i == j)))
                .collect::<Vec<_>>()
        };
        let zeros = vec![0.0; d];
        let by_gamma: Vec<f64> = (0..d).map(|j| without(&unit(j), &zeros)).collect();
        let by_beta: Vec<f64> = (0..d).map(|j| without(&zeros, &unit(j))).collect();
        for level in Simd::available() {
            let (mut got, mut statistics) = (vec![9.0; n * d], vec![9.0; 2 * n]);
            norm.forward_at(level, &x, &mut got, &mut statistics);
            // An error of 20·2⁻²⁴ in the mean, over a deviation of about 1.7 (less if d is 2).
            close("y", &got, &y, 1e-5);
            let (mut dx, mut dgamma, mut dbeta) = (vec![9.0; n * d], vec![1.0; d], vec![1.0; d]);
            norm.backward_at(
                level,
                &x,
                &statistics,
                &dy,
                &mut dx,
                &mut dgamma,
                &mut dbeta,
            );
            close("dx", &pick(&dx, &sample), &slopes, 2e-5);
            close("dgamma", &dgamma, &by_gamma, 1e-5);
            close("dbeta", &dbeta, &by_beta, 1e-6);
        }
    }
}

#[test]
fn layer_norm_as_in_pytorch() {
    let (gamma, beta) = (numbers(31, 7), numbers(32, 7));
    let norm = LayerNorm {
        gamma: &gamma,
        beta: &beta,
        eps: 1e-5,
    };
    let x = scaled(30, 21, 3.0);
    for level in Simd::available() {
        let (mut y, mut statistics) = (vec![0.0; 21], vec![0.0; 6]);
        norm.forward_at(level, &x, &mut y, &mut statistics);
        close("y", &y, &expected("layer_norm.y"), 1e-6);
        let (mut dx, mut dgamma, mut dbeta) = (vec![0.0; 21], vec![0.0; 7], vec![0.0; 7]);
        let dy = numbers(33, 21);
        norm.backward_at(
            level,
            &x,
            &statistics,
            &dy,
            &mut dx,
            &mut dgamma,
            &mut dbeta,
        );
        close("dx", &dx, &expected("layer_norm.dx"), 1e-6);
        close("dgamma", &dgamma, &expected("layer_norm.dgamma"), 1e-6);
        close("dbeta", &dbeta, &expected("layer_norm.dbeta"), 1e-6);
    }
}

#[test]
fn gelu_near_its_formula_and_pytorch() {
    for (gelu, name) in [(Gelu::Exact, "gelu.none"), (Gelu::Tanh, "gelu.tanh")] {
        let plain = |x: f64| match gelu {
            Gelu::Exact => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
            Gelu::Tanh => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                0.5 * x * (1.0 + inner.tanh())
            }
        };
        let x = scaled(5, 40_001, 8.0);
        let y: Vec<f64> = wide(&x).into_iter().map(plain).collect();
        let sample = spread(x.len(), 2_000);
        let slopes: Vec<f64> = sample
            .iter()
            .map(|&i| {
                let x = f64::from(x[i]);
                1.5 * (plain(x + 1e-5) - plain(x - 1e-5)) / 2e-5
            })
            .collect();
        for level in Simd::available() {
            let mut got = vec![9.0; x.len()];
            gelu.forward_at(level, &x, &mut got);
            close("y", &got, &y, 1e-6);
            let mut d = vec![1.5; x.len()];
            gelu.backward_at(level, &x, &mut d);
            // 1 − tanh² near 1 has steps of 1.2e-7, and up to 12 of them stand before it (x/2 times the inner slope).
            close("dx", &pick(&d, &sample), &slopes, 4e-6);
            let x = scaled(40, 9, 4.0);
            let (mut y, mut d) = (vec![0.0; 9], vec![1.0; 9]);
            gelu.forward_at(level, &x, &mut y);
            gelu.backward_at(level, &x, &mut d);
            close(name, &y, &expected(&format!("{name}.y")), 1e-6);
            close(name, &d, &expected(&format!("{name}.dx")), 2e-6);
        }
    }
}

#[test]
fn embedding_both_ways() {
    let (v, d) = (130, 5);
    let table = numbers(1, v * d);
    let ids: Vec<u32> = (0..300)
        .map(|i| [129, 0, 7, i * 31 % 130][i as usize % 4])
        .collect();
    let mut out = vec![9.0; 300 * d];
    embedding::gather(&table, d, &ids, &mut out);
    let mut sums = vec![1.0; v * d];
    for (i, &id) in ids.iter().enumerate() {
        let row = &table[id as usize * d..][..d];
        assert_eq!(&out[i * d..][..d], row);
        for j in 0..d {
            sums[id as usize * d + j] += out[i * d + j];
        }
    }
    let mut got = vec![1.0; v * d];
    embedding::scatter_add(&out, d, &ids, &mut got);
    // The same order of addition, so the same numbers.
    assert_eq!(got, sums);
}

#[test]
#[should_panic(expected = "row 3 of a table of 3")]
fn an_id_beyond_the_table() {
    embedding::scatter_add(&[0.0; 2], 1, &[0, 3], &mut [0.0; 3]);
}

#[test]
fn dropout_drops_its_share_and_the_same_again() {
    let n = 200_000;
    let mask = |level, key| {
        let mut x = vec![1.0; n];
        dropout_at(level, &mut x, 0.3, key);
        x
    };
    let first = mask(Simd::Portable, 1);
    for level in Simd::available() {
        assert_eq!(mask(level, 1), first);
    }
    let kept = (1.0f32 / 0.7).to_bits();
    assert!(first.iter().all(|x| *x == 0.0 || x.to_bits() == kept));
    let same = |a: &[f32], b: &[f32]| {
        a.iter()
            .zip(b)
            .filter(|(a, b)| **a == 0.0 && **b == 0.0)
            .count() as f64
    };
    // Five standard deviations of a binomial count: of dropped elements, and of elements that two keys, neighbours or
    // blocks have in common as often as by chance.
    let within =
        |count: f64, n: f64, p: f64| (count - n * p).abs() < 5.0 * (n * p * (1.0 - p)).sqrt();
    let n = n as f64;
    assert!(within(same(&first, &first), n, 0.3));
    for key in [2, 3, 1 << 32, 1 << 63 | 1] {
        assert!(within(same(&first, &mask(Simd::current(), key)), n, 0.09));
    }
    for lag in [1, 2, 16, 256, 16 * 1024] {
        assert!(
            within(same(&first, &first[lag..]), n - lag as f64, 0.09),
            "lag {lag}"
        );
    }
    let mut x = vec![2.0; 10];
    crate::dropout(&mut x, 0.0, 1);
    assert_eq!(x, [2.0; 10]);
}

#[test]
fn linear_both_ways() {
    for (n, inputs, outputs) in [(1, 1, 1), (3, 33, 7), (70, 20, 50)] {
        let sizes = [n * inputs, outputs * inputs, outputs];
        let all: Vec<f32> = numbers(1, sizes.iter().sum());
        let (x, rest) = all.split_at(sizes[0]);
        let (weights, bias) = rest.split_at(sizes[1]);
        let linear = Linear {
            precision: Precision::F32,
            weights,
            bias: Some(bias),
            inputs,
            outputs,
        };
        let plain = |all: &[f64]| -> Vec<f64> {
            let (x, rest) = all.split_at(sizes[0]);
            let (w, b) = rest.split_at(sizes[1]);
            let rows = x
                .chunks(inputs)
                .flat_map(|x| w.chunks(inputs).zip(b).map(move |(w, b)| (x, w, b)));
            rows.map(|(x, w, b)| x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>() + b)
                .collect()
        };
        let y = plain(&wide(&all));
        let dy = numbers(2, n * outputs);
        let sample = spread(all.len(), 40);
        let slopes = slopes(&wide(&all), &sample, |all| {
            plain(all)
                .iter()
                .zip(&dy)
                .map(|(y, &d)| y * f64::from(d))
                .sum()
        });
        for level in Simd::available() {
            let mut got = vec![9.0; n * outputs];
            linear.forward_at(level, x, &mut got, false);
            close("y", &got, &y, 1e-6);
            linear.forward_at(level, x, &mut got, true);
            let twice: Vec<f64> = y.iter().map(|y| 2.0 * y).collect();
            close("y twice", &got, &twice, 1e-6);
        }
        let [mut dx, mut dweights, mut dbias] = sizes.map(|n| vec![0.0; n]);
        let gradients = LinearGradients {
            dx: Some(&mut dx),
            dweights: &mut dweights,
            dbias: Some(&mut dbias),
        };
        linear.backward(x, &dy, gradients);
        close(
            "gradients",
            &pick(&[dx, dweights, dbias].concat(), &sample),
            &slopes,
            1e-6,
        );
    }
}
