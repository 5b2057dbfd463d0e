use super::*;
use crate::optimizer::*;
use crate::simd::Simd;

/// Three steps on the weights of `expected.py`, loss scale 8, clipped to norm 1.
fn three_steps(mut step: impl FnMut(&mut [f32], &[f32], f32, u64)) -> Vec<f32> {
    let mut w = numbers(3, 11);
    for i in 0..3 {
        let g = scaled(4 + i, 11, 8.0);
        let norm = gradient_norm(&[&g[..5], &g[5..]], 8.0);
        let scale = gradient_scale(norm, Some(1.0), 8.0);
        step(&mut w, &g, scale, u64::from(i) + 1);
    }
    w
}

#[test]
fn as_in_pytorch() {
    let plain = Sgd {
        lr: 0.1,
        weight_decay: 0.01,
        ..Sgd::default()
    };
    let heavy = Sgd {
        lr: 0.1,
        momentum: 0.9,
        ..Sgd::default()
    };
    let nesterov = Sgd {
        lr: 0.1,
        momentum: 0.9,
        weight_decay: 0.01,
        nesterov: true,
    };
    let adamw = AdamW {
        lr: 0.01,
        betas: (0.9, 0.95),
        eps: 1e-8,
        weight_decay: 0.1,
    };
    for level in Simd::available() {
        for (name, sgd) in [
            ("sgd_plain", plain),
            ("sgd_heavy", heavy),
            ("sgd", nesterov),
        ] {
            let mut v = vec![0.0; 11];
            let w = three_steps(|w, gradient, scale, _| {
                let mut tensors = [Tensor {
                    weights: w,
                    gradient,
                    state: &mut v,
                }];
                sgd.step_at(level, &mut tensors, scale);
            });
            close(name, &w, &expected(name), 1e-6);
        }
        let (mut m, mut s) = (vec![0.0; 11], vec![0.0; 11]);
        let w = three_steps(|weights, gradient, scale, step| {
            let mut tensors = [Tensor {
                weights,
                gradient,
                state: &mut m,
            }];
            adamw.step_at(level, &mut tensors, &mut [&mut s], step, scale);
        });
        close("adamw", &w, &expected("adamw"), 1e-6);
    }
}

/// Several tensors, longer than a block, against the rule written plainly in f64.
#[test]
fn lars_by_its_formula() {
    let lars = Lars {
        lr: 0.5,
        momentum: 0.9,
        weight_decay: 0.01,
        trust: 0.02,
    };
    for level in Simd::available() {
        let sizes = [3, 40_001, 17];
        let mut w: Vec<Vec<f32>> = (0..3).map(|i| numbers(i, sizes[i as usize])).collect();
        w[2].fill(0.0);
        let mut v: Vec<Vec<f32>> = sizes.iter().map(|&n| vec![0.0; n]).collect();
        let mut plain: Vec<(Vec<f64>, Vec<f64>)> =
            w.iter().map(|w| (wide(w), vec![0.0; w.len()])).collect();
        for step in 0..3 {
            let g: Vec<Vec<f32>> = sizes.iter().map(|&n| scaled(9 + step, n, 2.0)).collect();
            let mut tensors: Vec<Tensor<'_>> = w
                .iter_mut()
                .zip(&mut v)
                .zip(&g)
                .map(|((weights, state), gradient)| Tensor {
                    weights,
                    gradient,
                    state,
                })
                .collect();
            lars.step_at(level, &mut tensors, 0.5);
            for ((w, v), g) in plain.iter_mut().zip(&g) {
                let g: Vec<f64> = g.iter().map(|&g| f64::from(g) * 0.5).collect();
                let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
                let (nw, ng) = (norm(w), norm(&g));
                let rate = if nw > 0.0 {
                    0.02 * nw / (ng + 0.01 * nw)
                } else {
                    1.0
                };
                for ((w, v), g) in w.iter_mut().zip(v).zip(g) {
                    *v = 0.9 * *v + 0.5 * rate * (g + 0.01 * *w);
                    *w -= *v;
                }
            }
        }
        for (w, (plain, _)) in w.iter().zip(&plain) {
            close("lars", w, plain, 1e-6);
        }
    }
}

#[test]
fn norms_see_what_is_not_finite_and_hold_the_largest() {
    for level in Simd::available() {
        let mut g = vec![f32::MAX; 70_000];
        let norm = gradient_norm_at(level, &[&g], 1.0);
        assert!((norm / (f64::from(f32::MAX) * 70_000f64.sqrt()) - 1.0).abs() < 1e-12);
        g[69_999] = f32::NAN;
        assert!(gradient_norm_at(level, &[&[1.0], &g], 2.0).is_nan());
        g[69_999] = f32::NEG_INFINITY;
        assert!(gradient_norm_at(level, &[&g], 2.0).is_infinite());
    }
    assert_eq!(gradient_scale(0.5, Some(1.0), 4.0), 0.25);
    assert_eq!(gradient_scale(5.0, None, 4.0), 0.25);
}
