use super::*;
use crate::simd::Simd;
use crate::{CrossEntropy, Targets, Upstream};

/// Loss of each row, in f64.
fn plain(of: &CrossEntropy<'_>, targets: &[i64], logits: &[f64]) -> Vec<f64> {
    logits
        .chunks(of.classes)
        .zip(targets)
        .map(|(x, &t)| {
            if of.ignore == Some(t) {
                return 0.0;
            }
            let x: Vec<f64> = match of.bias {
                Some(b) => x.iter().zip(b).map(|(x, &b)| x + f64::from(b)).collect(),
                None => x.to_vec(),
            };
            let lse = x.iter().map(|x| x.exp()).sum::<f64>().ln();
            let mean = x.iter().sum::<f64>() / x.len() as f64;
            let s = f64::from(of.smoothing);
            (1.0 - s) * (lse - x[t as usize]) + s * (lse - mean)
        })
        .collect()
}

#[test]
fn losses_and_gradients_at_odd_shapes() {
    for (case, &(n, classes)) in [(1, 1), (1, 2), (3, 33), (33, 100), (70, 517)]
        .iter()
        .enumerate()
    {
        let seed = case as u32 * 10;
        let logits = scaled(seed, n * classes, 5.0);
        let bias = numbers(seed + 1, classes);
        let upstream = numbers(seed + 2, n);
        let ignored = -7;
        let targets: Vec<i64> = (0..n as i64)
            .map(|i| {
                if i % 5 == 2 {
                    ignored
                } else {
                    i * 31 % classes as i64
                }
            })
            .collect();
        for smoothing in [0.0, 0.1] {
            let of = CrossEntropy {
                classes,
                targets: Targets::I64(&targets),
                ignore: Some(ignored),
                smoothing,
                bias: (case % 2 == 0).then_some(&bias),
            };
            let losses = plain(&of, &targets, &wide(&logits));
            let sample = spread(n * classes, 40);
            let slopes = slopes(&wide(&logits), &sample, |x| {
                let losses = plain(&of, &targets, x);
                losses
                    .iter()
                    .zip(&upstream)
                    .map(|(l, &u)| l * f64::from(u))
                    .sum()
            });
            for level in Simd::available() {
                let mut rows = vec![9.0; n];
                let loss = of.loss_at(level, &logits, Some(&mut rows));
                close("losses", &rows, &losses, 1e-6);
                assert!((loss.sum - losses.iter().sum::<f64>()).abs() < 1e-5 * n as f64);
                assert_eq!(
                    loss.count,
                    targets.iter().filter(|&&t| t != ignored).count()
                );

                let mut x = logits.clone();
                let (mut again, mut db) = (vec![9.0; n], vec![1.0; classes]);
                let (db_of, rows_of) = (Some(&mut db[..]), Some(&mut again[..]));
                let both = of.gradient_at(level, &mut x, Upstream::Rows(&upstream), db_of, rows_of);
                assert_eq!(both, loss);
                assert_eq!(again, rows);
                close("gradient", &pick(&x, &sample), &slopes, 1e-6);
                let sums: Vec<f64> = (0..classes)
                    .map(|j| (0..n).map(|i| f64::from(x[i * classes + j])).sum::<f64>())
                    .collect();
                close("bias gradient", &db, &sums, 1e-6);

                // One factor for all rows, and no bias gradient.
                let mut half = logits.clone();
                of.gradient_at(level, &mut half, Upstream::Sum(0.5), None, None);
                let mut mean = logits.clone();
                of.gradient_at(
                    level,
                    &mut mean,
                    Upstream::Mean(0.5 * loss.count as f32),
                    None,
                    None,
                );
                close("mean", &mean, &wide(&half), 1e-6);
            }
        }
    }
}

#[test]
fn as_in_pytorch() {
    let bias = numbers(2, 7);
    let targets = [0, 6, -100, 3, 3];
    let of = CrossEntropy {
        classes: 7,
        targets: Targets::I64(&targets),
        ignore: Some(-100),
        smoothing: 0.1,
        bias: Some(&bias),
    };
    for level in Simd::available() {
        let mut x = scaled(1, 35, 4.0);
        let mut db = vec![0.0; 7];
        let loss = of.gradient_at(level, &mut x, Upstream::Mean(3.0), Some(&mut db), None);
        close(
            "loss",
            &[loss.mean() as f32],
            &expected("cross_entropy.loss"),
            1e-6,
        );
        close("dx", &x, &expected("cross_entropy.dx"), 1e-6);
        close("db", &db, &expected("cross_entropy.db"), 1e-6);
    }
}

#[test]
fn counts_the_first_of_equal_logits() {
    let of = |targets| CrossEntropy {
        classes: 3,
        targets: Targets::U32(targets),
        ignore: None,
        smoothing: 0.0,
        bias: None,
    };
    let logits = [1.0, 5.0, 5.0, 2.0, f32::NEG_INFINITY, 0.0];
    let loss = of(&[1, 0]).loss(&logits, None);
    assert_eq!((loss.correct, loss.count), (2, 2));
    assert_eq!(of(&[2, 2]).loss(&logits, None).correct, 0);
    // A logit of −∞ has probability 0, and its gradient is 0.
    let mut x = logits;
    of(&[1, 0]).gradient(&mut x, Upstream::Sum(1.0), None, None);
    assert_eq!(x[4], 0.0);
    assert!(of(&[0, 1]).loss(&[f32::NAN; 6], None).sum.is_nan());
}

#[test]
#[should_panic(expected = "target 3 of row 0 is not one of 3 classes")]
fn a_target_beyond_the_classes() {
    let targets = Targets::U32(&[3]);
    let of = CrossEntropy {
        classes: 3,
        targets,
        ignore: None,
        smoothing: 0.0,
        bias: None,
    };
    of.loss(&[0.0; 3], None);
}
