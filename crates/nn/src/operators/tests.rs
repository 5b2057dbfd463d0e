//! Every operator on a tape against a plain version in f64, on odd shapes: its values, and its gradients against
//! central differences of the plain version.

use pelton_kernels::Precision;
use pelton_key::KeyedRng;

use super::*;
use crate::operands::{EPSILON, LossOptions, MOMENTUM, NO_TARGET, NormMode, Window};
use crate::tape::{Tape, Taped};
use crate::tensor::Tensor;

/// Numbers from −1 to 1.
fn random(key: u64, shape: &[usize]) -> Tensor {
    let mut random = KeyedRng::new(key);
    let len = shape.iter().product();
    let numbers: Vec<f32> = (0..len)
        .map(|_| (2.0 * random.next_f64() - 1.0) as f32)
        .collect();
    Tensor::from_slice(&numbers, shape)
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

/// Sums of `terms` products of numbers about 1 differ by the rounding of each.
fn assert_near(what: &str, ours: &[f32], plain: &[f64], terms: usize) {
    assert_eq!(ours.len(), plain.len(), "{what}");
    let scale = plain.iter().fold(1.0f64, |most, x| most.max(x.abs()));
    let most = scale * f64::from(f32::EPSILON) * 4.0 * (terms as f64).sqrt().max(8.0);
    for (at, (&a, b)) in ours.iter().zip(plain).enumerate() {
        assert!(
            (f64::from(a) - b).abs() <= most,
            "{what} at {at}: {a} against {b}, at most {most} apart"
        );
    }
}

/// The derivatives of `f` by each number of each input, by central differences.
fn slopes(inputs: &[Vec<f64>], f: impl Fn(&[Vec<f64>]) -> f64) -> Vec<Vec<f64>> {
    let step = 1e-5;
    let mut x = inputs.to_vec();
    let mut all = Vec::new();
    for (k, input) in inputs.iter().enumerate() {
        let mut slope_at = |at: usize| {
            let mut shifted = |by: f64| {
                x[k][at] = input[at] + by;
                f(&x)
            };
            let slope = (shifted(step) - shifted(-step)) / (2.0 * step);
            x[k][at] = input[at];
            slope
        };
        all.push((0..input.len()).map(&mut slope_at).collect());
    }
    all
}

/// Compares an operator on random inputs with its plain version; every number is a sum of about `terms`.
fn check(
    what: &str,
    shapes: &[&[usize]],
    terms: usize,
    ours: impl Fn(&mut Tape, &[Taped]) -> Taped,
    plain: impl Fn(&[Vec<f64>]) -> Vec<f64>,
) {
    let mut tape = Tape::new(shapes.len(), Precision::F32);
    let inputs: Vec<Taped> = (shapes.iter().enumerate())
        .map(|(k, shape)| tape.leaf(k, random(k as u64, shape)))
        .collect();
    let y = ours(&mut tape, &inputs);
    let plain_inputs: Vec<Vec<f64>> = inputs.iter().map(|x| wide(x)).collect();
    assert_near(what, &y, &plain(&plain_inputs), terms);
    let upstream = random(99, y.shape());
    let along = wide(&upstream);
    let expected = slopes(&plain_inputs, |x| {
        plain(x).iter().zip(&along).map(|(y, g)| y * g).sum()
    });
    let gradients = tape.backward(y.node, upstream, &|| ());
    for (k, (gradient, expected)) in gradients.iter().zip(&expected).enumerate() {
        let gradient = gradient.as_ref().expect("a gradient");
        assert_eq!(gradient.shape(), shapes[k], "{what}, gradient {k}");
        assert_near(&format!("{what}, gradient {k}"), gradient, expected, terms);
    }
}

/// The taps of a window inside an image of `size`: their positions in the kernel and in the image.
fn taps(
    at: Window,
    size: [usize; 2],
    [y, x]: [usize; 2],
) -> impl Iterator<Item = (usize, [usize; 2])> {
    let inside = move |tap: usize, from: usize, size: usize| {
        (from * at.stride + tap)
            .checked_sub(at.padding)
            .filter(|&at| at < size)
    };
    (0..at.kernel * at.kernel).filter_map(move |tap| {
        let down = inside(tap / at.kernel, y, size[0])?;
        Some((tap, [down, inside(tap % at.kernel, x, size[1])?]))
    })
}

/// Every window of a batch of images: its image and position.
fn windows(at: Window, batch: usize, [h, w]: [usize; 2]) -> Vec<(usize, [usize; 2])> {
    let (high, across) = (at.over(h), at.over(w));
    let position = |i: usize| (i / (high * across), [i / across % high, i % across]);
    (0..batch * high * across).map(position).collect()
}

fn plain_conv(
    x: &[Vec<f64>],
    [n, h, w, channels]: [usize; 4],
    out: usize,
    at: Window,
    relu: bool,
) -> Vec<f64> {
    let mut y = Vec::new();
    for (image, position) in windows(at, n, [h, w]) {
        for o in 0..out {
            let mut sum = x.get(2).map_or(0.0, |bias| bias[o]);
            for (tap, [down, right]) in taps(at, [h, w], position) {
                let from = ((image * h + down) * w + right) * channels;
                let weights = (o * at.kernel * at.kernel + tap) * channels;
                sum += dot(&x[0][from..][..channels], &x[1][weights..][..channels]);
            }
            y.push(if relu { sum.max(0.0) } else { sum });
        }
    }
    y
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn window(kernel: usize, stride: usize, padding: usize) -> Window {
    Window {
        kernel,
        stride,
        padding,
    }
}

#[test]
fn convolutions() {
    for (size, channels, out, at) in [
        ([7, 6], 3, 5, window(3, 1, 1)),
        ([9, 7], 4, 8, window(3, 2, 1)),
        ([8, 5], 6, 3, window(1, 2, 0)),
        ([11, 9], 1, 2, window(5, 3, 2)),
    ] {
        let image = [3, size[0], size[1], channels];
        let kernel = [out, at.kernel, at.kernel, channels];
        let shapes: [&[usize]; 3] = [&image, &kernel, &[out]];
        for (relu, inputs) in [(false, 3), (true, 3), (false, 2), (true, 2)] {
            check(
                &format!("convolution {at:?} of {inputs} inputs"),
                &shapes[..inputs],
                image.iter().product::<usize>() * at.kernel * at.kernel,
                |tape, x| conv2d(tape, &x[0], &x[1], x.get(2), at, relu),
                |x| plain_conv(x, image, out, at, relu),
            );
        }
    }
}

/// Each row of `x` less its mean, over its deviation, times gamma, plus beta.
fn plain_norm(
    x: &[f64],
    gamma: &[f64],
    beta: &[f64],
    moments: impl Fn(usize) -> [f64; 2],
) -> Vec<f64> {
    let width = gamma.len();
    (x.iter().enumerate())
        .map(|(i, x)| {
            let [mean, variance] = moments(i);
            (x - mean) / (variance + f64::from(EPSILON)).sqrt() * gamma[i % width] + beta[i % width]
        })
        .collect()
}

/// Mean and variance.
fn moments(x: impl Iterator<Item = f64> + Clone) -> [f64; 2] {
    let n = x.clone().count() as f64;
    let mean = x.clone().sum::<f64>() / n;
    [mean, x.map(|x| (x - mean).powi(2)).sum::<f64>() / n]
}

fn plain_batch_norm(x: &[Vec<f64>], relu: bool, of: impl Fn(usize) -> [f64; 2]) -> Vec<f64> {
    let width = x[1].len();
    let all: Vec<[f64; 2]> = (0..width).map(of).collect();
    let mut y = plain_norm(&x[0], &x[1], &x[2], |i| all[i % width]);
    for (i, y) in y.iter_mut().enumerate() {
        *y += x.get(3).map_or(0.0, |residual| residual[i]);
        *y = if relu { y.max(0.0) } else { *y };
    }
    y
}

#[test]
fn batch_norms() {
    let (shape, width): (&[usize], usize) = (&[3, 5, 7, 6], 6);
    let of_batch = |x: &[f64], c: usize| moments(x.iter().skip(c).step_by(width).copied());
    let shapes: [&[usize]; 4] = [shape, &[width], &[width], shape];
    let begin = [random(7, &[width]), random(8, &[width])];
    for (relu, inputs) in [(false, 3), (true, 3), (false, 4), (true, 4)] {
        let shapes = &shapes[..inputs];
        let mode = |training| NormMode { training, relu };
        check(
            &format!("batch norm of {inputs} inputs"),
            shapes,
            3 * 5 * 7 * 16,
            |tape, x| {
                let [mut mean, mut variance] = begin.clone();
                let running = [&mut mean, &mut variance];
                let y = batch_norm(tape, &x[0], [&x[1], &x[2]], running, x.get(3), mode(true));
                let image = wide(&x[0]);
                let rows = (image.len() / width) as f64;
                for c in 0..width {
                    let [own_mean, own_variance] = of_batch(&image, c);
                    let follow = |old: f32, new: f64| {
                        f64::from(old) + f64::from(MOMENTUM) * (new - f64::from(old))
                    };
                    let unbiased = own_variance * rows / (rows - 1.0);
                    let expected = [follow(begin[0][c], own_mean), follow(begin[1][c], unbiased)];
                    assert_near(
                        "running statistics",
                        &[mean[c], variance[c]],
                        &expected,
                        105,
                    );
                }
                y
            },
            |x| plain_batch_norm(x, relu, |c| of_batch(&x[0], c)),
        );
        let x: Vec<Tensor> = (0..)
            .zip(shapes)
            .map(|(k, shape)| random(k, shape))
            .collect();
        let x: Vec<Taped> = x.into_iter().map(Taped::from).collect();
        let (mut mean, mut variance) = (random(7, &[width]), random(8, &[width]));
        variance.numbers_mut().iter_mut().for_each(|x| *x = x.abs());
        let saved = [wide(&mean), wide(&variance)];
        let running = [&mut mean, &mut variance];
        let tape = &mut Tape::off();
        let y = batch_norm(tape, &x[0], [&x[1], &x[2]], running, x.get(3), mode(false));
        assert_eq!([wide(&mean), wide(&variance)], saved);
        let x: Vec<Vec<f64>> = x.iter().map(|x| wide(x)).collect();
        let plain = plain_batch_norm(&x, relu, |c| [saved[0][c], saved[1][c]]);
        assert_near("evaluated batch norm", &y, &plain, 6);
    }
}

#[test]
fn layer_norms() {
    check(
        "layer norm",
        &[&[4, 3, 7], &[7], &[7]],
        64,
        |tape, x| layer_norm(tape, &x[0], &x[1], &x[2]),
        |x| {
            let row = |i: usize| moments(x[0][i / 7 * 7..][..7].iter().copied());
            plain_norm(&x[0], &x[1], &x[2], row)
        },
    );
}

#[test]
fn pools() {
    let [n, h, w, channels] = [2, 7, 9, 3];
    let image: &[usize] = &[n, h, w, channels];
    for at in [window(2, 2, 0), window(3, 2, 1), window(3, 1, 0)] {
        check(
            &format!("pool {at:?}"),
            &[image],
            9,
            |tape, x| max_pool(tape, &x[0], at),
            |x| {
                let each = windows(at, n, [h, w]).into_iter();
                each.flat_map(|(image, position)| {
                    (0..channels).map(move |c| {
                        taps(at, [h, w], position)
                            .map(|(_, [y, right])| {
                                x[0][((image * h + y) * w + right) * channels + c]
                            })
                            .fold(f64::NEG_INFINITY, f64::max)
                    })
                })
                .collect()
            },
        );
    }
    check(
        "average",
        &[image],
        63,
        |tape, x| average(tape, &x[0]),
        |x| {
            let pixel =
                |i: usize, p: usize| x[0][(i / channels * h * w + p) * channels + i % channels];
            let mean = |i: usize| (0..h * w).map(|p| pixel(i, p)).sum::<f64>() / (h * w) as f64;
            (0..n * channels).map(mean).collect()
        },
    );
}

fn plain_linear(x: &[f64], weight: &[f64], bias: Option<&[f64]>, width: usize) -> Vec<f64> {
    let rows = x.chunks(width);
    rows.flat_map(|row| {
        let outputs = weight.chunks(width).enumerate();
        outputs.map(move |(o, weight)| dot(row, weight) + bias.map_or(0.0, |bias| bias[o]))
    })
    .collect()
}

#[test]
fn linear_layers_and_functions() {
    let image: &[usize] = &[2, 7, 9, 3];
    let shapes: [&[usize]; 3] = [&[4, 3, 7], &[5, 7], &[5]];
    for inputs in [2, 3] {
        check(
            "linear",
            &shapes[..inputs],
            64,
            |tape, x| linear(tape, &x[0], &x[1], x.get(2)),
            |x| plain_linear(&x[0], &x[1], x.get(2).map(|bias| &bias[..]), 7),
        );
    }
    check(
        "relu",
        &[image],
        1,
        |tape, x| relu(tape, &x[0]),
        |x| x[0].iter().map(|x| x.max(0.0)).collect(),
    );
    check(
        "gelu",
        &[image],
        1,
        |tape, x| gelu(tape, &x[0]),
        |x| {
            let phi = |x: f64| (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)) / 2.0;
            x[0].iter().map(|&x| x * phi(x)).collect()
        },
    );
    check(
        "sum",
        &[image, image],
        2,
        |tape, x| sum(tape, x[0].clone(), &x[1]),
        |x| x[0].iter().zip(&x[1]).map(|(x, y)| x + y).collect(),
    );
}

#[test]
fn dropout_takes_the_same_forward_and_backward() {
    let shape: &[usize] = &[40, 50];
    let factors = {
        let ones = Tensor::from_slice(&[1.0; 2000], shape);
        wide(&dropout(&mut Tape::off(), ones.into(), 0.25, 9))
    };
    let kept = factors.iter().filter(|&&factor| factor != 0.0).count();
    // 1500 expected, with a deviation of 19.
    assert!((1400..1600).contains(&kept), "{kept}");
    assert!(
        factors
            .iter()
            .all(|x| *x == 0.0 || (x - 4.0 / 3.0).abs() < 1e-6)
    );
    check(
        "dropout",
        &[shape],
        1,
        |tape, x| dropout(tape, x[0].clone(), 0.25, 9),
        |x| {
            x[0].iter()
                .zip(&factors)
                .map(|(x, factor)| x * factor)
                .collect()
        },
    );
}

#[test]
fn lstm_layers() {
    let [steps, batch, width, hidden] = [5, 3, 4, 6];
    let gates = 4 * hidden;
    let shapes: [&[usize]; 5] = [
        &[steps, batch, width],
        &[gates, width],
        &[gates, hidden],
        &[gates],
        &[gates],
    ];
    let begin = [random(20, &[batch, hidden]), random(21, &[batch, hidden])];
    let mut resets = vec![1.0; steps * batch];
    resets[2 * batch + 1] = 0.0;
    for keep in [None, Some(&resets[..])] {
        let plain = |x: &[Vec<f64>]| -> [Vec<f64>; 3] {
            let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
            let [mut h, mut c] = begin.each_ref().map(|state| wide(state));
            let mut y = Vec::new();
            for step in 0..steps {
                for row in 0..batch {
                    let state = row * hidden..(row + 1) * hidden;
                    let keep = keep.map_or(1.0, |keep| f64::from(keep[step * batch + row]));
                    h[state.clone()].iter_mut().for_each(|h| *h *= keep);
                    let from = (step * batch + row) * width;
                    let input = plain_linear(&x[0][from..][..width], &x[1], Some(&x[3]), width);
                    let own = plain_linear(&h[state.clone()], &x[2], Some(&x[4]), hidden);
                    let gate = |k: usize, j: usize| input[k * hidden + j] + own[k * hidden + j];
                    for (j, at) in state.enumerate() {
                        c[at] = sigmoid(gate(1, j)) * c[at] * keep
                            + sigmoid(gate(0, j)) * gate(2, j).tanh();
                        h[at] = sigmoid(gate(3, j)) * c[at].tanh();
                    }
                }
                y.extend_from_slice(&h);
            }
            [y, h, c]
        };
        check(
            "lstm",
            &shapes,
            256,
            |tape, x| {
                let weights = x[1..].to_vec().try_into().ok().expect("four weights");
                let (y, state) = lstm(tape, &x[0], &weights, begin.clone(), keep);
                let inputs: Vec<Vec<f64>> = x.iter().map(|x| wide(x)).collect();
                let [_, h, c] = plain(&inputs);
                assert_near("last h", &state[0], &h, 256);
                assert_near("last c", &state[1], &c, 256);
                y
            },
            |x| plain(x)[0].clone(),
        );
    }
}

#[test]
fn embeddings() {
    let ids = [3, 0, 3, 6, 1];
    check(
        "embedding",
        &[&[7, 4]],
        4,
        |tape, x| embedding(tape, &x[0], &ids),
        |x| {
            let row = |id: i64| &x[0][id as usize * 4..][..4];
            ids.iter().flat_map(|&id| row(id).to_vec()).collect()
        },
    );
}

#[test]
fn bags() {
    let bags = crate::bags::Bags {
        features: vec![3, 0, 1, 2],
        ids: vec![3, 0, 6, 3, 1, 4],
        values: vec![0.5, -2.0, 1.0, -4.0, 0.0, 0.25],
        ..Default::default()
    };
    check(
        "bags",
        &[&[7, 4], &[4]],
        4,
        |tape, x| bag(tape, &x[0], &x[1], &bags),
        |x| {
            let mut at = 0;
            let row = |&count: &usize| {
                let own = at..at + count;
                at += count;
                let values = bags.values[own.clone()].iter().map(|&x| f64::from(x));
                let length = values.clone().map(|x| x * x).sum::<f64>().sqrt().max(1e-9);
                let pairs: Vec<(u32, f64)> = bags.ids[own].iter().copied().zip(values).collect();
                let sum = move |j: usize| {
                    let parts = pairs
                        .iter()
                        .map(|&(id, value)| value / length * x[0][id as usize * 4 + j]);
                    x[1][j] + parts.sum::<f64>()
                };
                (0..4).map(sum).collect::<Vec<f64>>()
            };
            bags.features.iter().flat_map(row).collect()
        },
    );
}

#[test]
fn attention_sees_its_segment_up_to_itself() {
    let [batch, steps, heads, width] = [2, 5, 3, 4];
    let of_rows = [1, 1, 2, 2, 2, 1, 1, 1, 2, 0];
    for segments in [None, Some(&of_rows[..])] {
        let plain = |x: &[Vec<f64>]| {
            // Part 0, 1 or 2 of a head: query, key or value.
            let part = |row: usize, step: usize, part: usize, head: usize| {
                &x[0][(((row * steps + step) * 3 + part) * heads + head) * width..][..width]
            };
            let segment = |row: usize, step: usize| segments.map_or(0, |s| s[row * steps + step]);
            let mut y = Vec::new();
            for cell in 0..batch * steps * heads {
                let (row, step, head) = (cell / heads / steps, cell / heads % steps, cell % heads);
                let seen = (0..=step).filter(|&key| segment(row, key) == segment(row, step));
                let score = |key: usize| {
                    let product = dot(part(row, step, 0, head), part(row, key, 1, head));
                    (product / (width as f64).sqrt()).exp()
                };
                let total: f64 = seen.clone().map(score).sum();
                let value = |at: usize| {
                    let weighted = |key: usize| score(key) / total * part(row, key, 2, head)[at];
                    seen.clone().map(weighted).sum::<f64>()
                };
                y.extend((0..width).map(value));
            }
            y
        };
        let shape = [batch, steps, 3, heads, width];
        check(
            "attention",
            &[&shape],
            64,
            |tape, x| attention(tape, &x[0], segments),
            plain,
        );
    }
}

#[test]
fn losses() {
    let (targets, classes) = ([2, NO_TARGET, 0, 4, 4], 6);
    for smoothing in [0.0, 0.1] {
        let plain = |x: &[Vec<f64>]| {
            let rows = x[0].chunks(classes).zip(&targets);
            let losses = rows.filter(|(_, target)| **target != NO_TARGET);
            losses
                .map(|(row, &target)| {
                    let log_sum = row.iter().map(|x| x.exp()).sum::<f64>().ln();
                    let all = row.iter().map(|x| log_sum - x).sum::<f64>() / classes as f64;
                    let own = log_sum - row[target as usize];
                    own * (1.0 - smoothing) + all * smoothing
                })
                .sum::<f64>()
        };
        let logits = random(0, &[5, classes]);
        let inputs = [wide(&logits)];
        let options = LossOptions {
            scale: 0.3,
            smoothing: smoothing as f32,
            class_weights: None,
        };
        let (gradient, counted) = loss_gradient(logits.clone(), &targets, options);
        let expected = slopes(&inputs, |x| 0.3 * plain(x));
        assert_near("gradient of the loss", &gradient, &expected[0], 30);
        assert!((counted.loss - plain(&inputs)).abs() < 1e-5, "{counted:?}");
        let best =
            |row: &[f32]| (0..classes).fold(0, |best, k| if row[k] > row[best] { k } else { best });
        let rows = logits.chunks(classes).zip(&targets);
        let correct = rows
            .filter(|(row, target)| best(row) as i64 == **target)
            .count();
        assert_eq!((counted.rows, counted.correct), (4, correct as u64));
        if smoothing == 0.0 {
            // Factors of classes scale the loss and the gradient of each row.
            let weights: Vec<f32> = (0..classes).map(|class| class as f32).collect();
            let class_weights = Some(&*weights);
            let weighted = LossOptions {
                class_weights,
                ..options
            };
            let (gradient, weighed) = loss_gradient(logits.clone(), &targets, weighted);
            let of_row = |at: usize| targets[at].max(0) as f64;
            let plain_of = |x: &[Vec<f64>], at: usize| {
                let row = &x[0][at * classes..][..classes];
                let log_sum = row.iter().map(|x| x.exp()).sum::<f64>().ln();
                targets
                    .get(at)
                    .filter(|y| **y >= 0)
                    .map_or(0.0, |&y| log_sum - row[y as usize])
            };
            let plain = |x: &[Vec<f64>]| (0..5).map(|at| of_row(at) * plain_of(x, at)).sum::<f64>();
            let expected = slopes(&inputs, |x| 0.3 * plain(x));
            assert_near("gradient of the weighted loss", &gradient, &expected[0], 30);
            assert!((weighed.loss - plain(&inputs)).abs() < 1e-5, "{weighed:?}");
            let evaluated = counts(&logits, &targets);
            assert!((evaluated.loss - counted.loss).abs() < 1e-6);
            assert_eq!((evaluated.rows, evaluated.correct), (4, correct as u64));
        }
    }
}

/// With parts of the rows, what the layer and its loss give for all at once; with a weight for each class, without a bias, and
/// for rows without a target.
#[test]
fn a_loss_by_parts_is_that_of_all_logits() {
    let (rows, width, classes) = (23, 5, 12);
    let targets: Vec<i64> = (0..rows as i64)
        .map(|i| {
            if i % 7 == 3 {
                NO_TARGET
            } else {
                i * 5 % classes as i64
            }
        })
        .collect();
    let weights: Vec<f32> = (0..classes).map(|class| class as f32 / 4.0).collect();
    for (has_bias, class_weights) in [(true, None), (false, None), (true, Some(&weights[..]))] {
        let options = LossOptions {
            scale: 0.3,
            smoothing: if class_weights.is_none() { 0.1 } else { 0.0 },
            class_weights,
        };
        let gradients = |most: Option<usize>| {
            let mut tape = Tape::new(3, Precision::F32);
            let x = tape.leaf(0, random(1, &[rows, width]));
            let weight = tape.leaf(1, random(2, &[classes, width]));
            let bias = has_bias.then(|| tape.leaf(2, random(3, &[classes])));
            let (end, gradient, counted) = match most {
                Some(most) => {
                    let targets = (&targets[..], most);
                    let (end, counted) =
                        linear_loss(&mut tape, &x, &weight, bias.as_ref(), targets, options);
                    (end.node, end.value, counted)
                }
                None => {
                    let logits = linear(&mut tape, &x, &weight, bias.as_ref());
                    let (gradient, counted) = loss_gradient(logits.value, &targets, options);
                    (logits.node, gradient, counted)
                }
            };
            (tape.backward(end, gradient, &|| ()), counted)
        };
        let (expected, counted) = gradients(None);
        for most in [1, 4 * classes, 7 * classes + 3, 1000] {
            let (found, of) = gradients(Some(most));
            assert_eq!((of.rows, of.correct), (counted.rows, counted.correct));
            assert!((of.loss - counted.loss).abs() < 1e-6 * counted.loss.abs());
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found.is_some(), expected.is_some());
                if let (Some(found), Some(expected)) = (found, expected) {
                    assert_eq!(found.shape(), expected.shape());
                    assert_near("gradients by parts", found, &wide(expected), rows);
                }
            }
        }
    }
}

#[test]
fn a_loss_of_no_rows_has_gradients_of_zero() {
    // What memory held before must not be taken for a gradient.
    drop(random(9, &[7, 5]));
    let mut tape = Tape::new(1, Precision::F32);
    let weight = tape.leaf(0, random(2, &[7, 5]));
    let x: Taped = Tensor::zeros(&[0, 5]).into();
    let options = LossOptions {
        scale: 1.0,
        smoothing: 0.0,
        class_weights: None,
    };
    let (end, counted) = linear_loss(&mut tape, &x, &weight, None, (&[], 100), options);
    assert_eq!(counted, crate::operands::Counts::default());
    let gradients = tape.backward(end.node, end.value, &|| ());
    assert!(gradients[0].as_ref().unwrap().iter().all(|&x| x == 0.0));
}
