//! Milliseconds of a training step of sequence models, using only this crate's operators:
//! `cargo run --release -p pelton-kernels --example sequence_speed MODEL [SECONDS [parts]]`, MODEL one of lstm-20,
//! lstm-35, lstm-20-tied, lstm-35-tied, transformer. Prints the median and the fastest; with `parts`, also the
//! median of each part.
//!
//! `bench/peers/sequence_speed.py` times the same models in PyTorch, in turns with this program.

use std::time::Instant;

use pelton_kernels::optimizer::{AdamW, Sgd, Tensor};
use pelton_kernels::*;

/// Classes.
const WORDS: usize = 10_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let model = args.first().map_or("lstm-35", String::as_str);
    let seconds = args.get(1).map_or(5.0, |s| s.parse().expect("seconds"));
    let mut step: Box<dyn FnMut(&mut Clock) + Send> = match model {
        "lstm-20" => language_model(20, false),
        "lstm-35" => language_model(35, false),
        "lstm-20-tied" => language_model(20, true),
        "lstm-35-tied" => language_model(35, true),
        "transformer" => transformer(),
        _ => panic!("no model {model}"),
    };
    let mut clocks = Vec::new();
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < seconds || clocks.len() < 5 {
        let mut clock = Clock {
            last: Instant::now(),
            parts: Vec::new(),
        };
        step(&mut clock);
        clocks.push(clock.parts);
    }
    clocks.remove(0);
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2] * 1e3
    };
    if args.len() > 2 {
        for part in 0..clocks[0].len() {
            let times = clocks.iter().map(|parts| parts[part].1).collect();
            println!("{:>24} {:.2}", clocks[0][part].0, median(times));
        }
    }
    let sums = clocks
        .iter()
        .map(|parts| parts.iter().map(|part| part.1).sum());
    let sums: Vec<f64> = sums.collect();
    let fastest = sums.iter().fold(f64::INFINITY, |a, &b| a.min(b)) * 1e3;
    println!("{:.2} {fastest:.2}", median(sums));
}

/// Times the parts of a step.
struct Clock {
    last: Instant,
    parts: Vec<(&'static str, f64)>,
}

impl Clock {
    fn part(&mut self, name: &'static str) {
        let now = Instant::now();
        let time = (now - self.last).as_secs_f64();
        match self.parts.iter_mut().find(|part| part.0 == name) {
            Some(part) => part.1 += time,
            None => self.parts.push((name, time)),
        }
        self.last = now;
    }
}

/// A parameter with its gradient and states.
struct Parameter {
    w: Vec<f32>,
    g: Vec<f32>,
    m: Vec<f32>,
    s: Vec<f32>,
}

impl Parameter {
    fn new(n: usize, scale: f32) -> Parameter {
        let random = |i: usize| ((i.wrapping_mul(2_654_435_761) >> 8) % 2001) as f32 / 1000.0 - 1.0;
        Parameter {
            w: (0..n).map(|i| random(i) * scale).collect(),
            g: vec![0.0; n],
            m: vec![0.0; n],
            s: vec![0.0; n],
        }
    }
}

fn tensors<'a>(
    parameters: impl Iterator<Item = &'a mut Parameter>,
) -> (Vec<Tensor<'a>>, Vec<&'a mut [f32]>) {
    parameters
        .map(|p| {
            (
                Tensor {
                    weights: &mut p.w,
                    gradient: &p.g,
                    state: &mut p.m,
                },
                &mut p.s[..],
            )
        })
        .unzip()
}

fn words(n: usize) -> Vec<u32> {
    (0..n)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as u32 % WORDS as u32)
        .collect()
}

/// Embedding, two layers of LSTM with 200 units, projection, cross-entropy; 32 rows of `steps` words; SGD.
fn language_model(steps: usize, tied: bool) -> Box<dyn FnMut(&mut Clock) + Send> {
    const HIDDEN: usize = 200;
    let (batch, layers) = (32, 2);
    let n = steps * batch;
    let (ids, targets) = (words(n), words(n + 1)[1..].to_vec());
    let mut embedding = Parameter::new(WORDS * HIDDEN, 0.1);
    let mut projection = (!tied).then(|| Parameter::new(WORDS * HIDDEN, 0.07));
    let mut bias = Parameter::new(WORDS, 0.0);
    let mut lstms: Vec<[Parameter; 4]> = (0..layers)
        .map(|_| {
            [
                4 * HIDDEN * HIDDEN,
                4 * HIDDEN * HIDDEN,
                4 * HIDDEN,
                4 * HIDDEN,
            ]
            .map(|n| Parameter::new(n, 0.07))
        })
        .collect();
    let sizes = Lstm {
        steps,
        batch,
        input: HIDDEN,
        hidden: HIDDEN,
    };
    let zeros = vec![0.0; batch * HIDDEN];
    let mut outputs: Vec<Vec<f32>> = (0..=layers).map(|_| vec![0.0; n * HIDDEN]).collect();
    let mut cells = vec![vec![0.0; n * HIDDEN]; layers];
    let mut gates = vec![vec![0.0; n * 4 * HIDDEN]; layers];
    let mut logits = vec![0.0; n * WORDS];
    let (mut dy, mut dx) = (vec![0.0; n * HIDDEN], vec![0.0; n * HIDDEN]);
    Box::new(move |clock| {
        embedding::gather(&embedding.w, HIDDEN, &ids, &mut outputs[0]);
        clock.part("embedding");
        for layer in 0..layers {
            let (before, after) = outputs.split_at_mut(layer + 1);
            let input = LstmInput {
                x: &before[layer],
                h0: &zeros,
                c0: &zeros,
                positions: None,
            };
            sizes.forward(
                input,
                weights(&lstms[layer]),
                &mut after[0],
                &mut cells[layer],
                &mut gates[layer],
            );
        }
        clock.part("lstm forward");
        let top = Matrix::new(&outputs[layers], n, HIDDEN);
        let table = &projection.as_ref().unwrap_or(&embedding).w;
        let table = Matrix::new(table, WORDS, HIDDEN);
        gemm(
            Precision::F32,
            top,
            table.transposed(),
            &mut logits,
            WORDS,
            false,
        );
        clock.part("logits");
        let loss = CrossEntropy {
            classes: WORDS,
            targets: Targets::U32(&targets),
            ignore: None,
            smoothing: 0.0,
            bias: Some(&bias.w),
        };
        loss.gradient(&mut logits, Upstream::Mean(1.0), Some(&mut bias.g), None);
        clock.part("cross-entropy");
        let d = Matrix::new(&logits, n, WORDS);
        gemm(Precision::F32, d, table, &mut dy, HIDDEN, false);
        clock.part("logits to output");
        let gradient = &mut projection.as_mut().unwrap_or(&mut embedding).g;
        gemm_over_rows(Precision::F32, d, top, gradient);
        clock.part("projection's gradient");
        for layer in (0..layers).rev() {
            let [w_ih, w_hh, b_ih, b_hh] = &mut lstms[layer];
            let (mut dh0, mut dc0) = (zeros.clone(), zeros.clone());
            let input = LstmInput {
                x: &outputs[layer],
                h0: &zeros,
                c0: &zeros,
                positions: None,
            };
            let gradients = LstmGradients {
                dx: Some(&mut dx),
                dh0: &mut dh0,
                dc0: &mut dc0,
                dw_ih: &mut w_ih.g,
                dw_hh: &mut w_hh.g,
                db: &mut b_ih.g,
            };
            let weights = LstmWeights {
                w_ih: &w_ih.w,
                w_hh: &w_hh.w,
                b_ih: &b_ih.w,
                b_hh: &b_hh.w,
            };
            let saved = (
                &outputs[layer + 1][..],
                &cells[layer][..],
                &mut gates[layer][..],
            );
            sizes.backward(input, weights, saved, &dy, gradients);
            b_hh.g.copy_from_slice(&b_ih.g);
            std::mem::swap(&mut dx, &mut dy);
        }
        clock.part("lstm backward");
        if !tied {
            embedding.g.fill(0.0);
        }
        embedding::scatter_add(&dy, HIDDEN, &ids, &mut embedding.g);
        clock.part("embedding");
        let all = [&mut embedding, &mut bias]
            .into_iter()
            .chain(projection.as_mut());
        let (mut tensors, _) = tensors(all.chain(lstms.iter_mut().flatten()));
        Sgd {
            lr: 0.1,
            ..Sgd::default()
        }
        .step(&mut tensors, 1.0);
        clock.part("SGD");
    })
}

fn weights(of: &[Parameter; 4]) -> LstmWeights<'_> {
    let [w_ih, w_hh, b_ih, b_hh] = of;
    LstmWeights {
        w_ih: &w_ih.w,
        w_hh: &w_hh.w,
        b_ih: &b_ih.w,
        b_hh: &b_hh.w,
    }
}

const WIDTH: usize = 256;
const BATCH: usize = 8;
const STEPS: usize = 256;
const HEADS: usize = 4;

/// The parameters of a layer and the saved results of its forward pass.
struct Layer {
    norms: [(Parameter, Parameter); 2],
    /// Queries, keys and values; output of the attention; two layers of the perceptron.
    linears: [(Parameter, Parameter); 4],
    x: [Vec<f32>; 2],
    normal: [Vec<f32>; 2],
    statistics: [Vec<f32>; 2],
    qkv: Vec<f32>,
    attended: Vec<f32>,
    log_sums: Vec<f32>,
    wide: Vec<f32>,
    bent: Vec<f32>,
}

/// Inputs and outputs of the linears of a layer.
const SHAPES: [(usize, usize); 4] = [
    (WIDTH, 3 * WIDTH),
    (WIDTH, WIDTH),
    (WIDTH, 4 * WIDTH),
    (4 * WIDTH, WIDTH),
];

impl Layer {
    fn new() -> Layer {
        let n = BATCH * STEPS;
        let norm = || {
            (
                Parameter {
                    w: vec![1.0; WIDTH],
                    ..Parameter::new(WIDTH, 0.0)
                },
                Parameter::new(WIDTH, 0.0),
            )
        };
        let linear = |(i, o)| (Parameter::new(i * o, 0.04), Parameter::new(o, 0.0));
        let rows = |width: usize| vec![0.0; n * width];
        Layer {
            norms: [norm(), norm()],
            linears: SHAPES.map(linear),
            x: [rows(WIDTH), rows(WIDTH)],
            normal: [rows(WIDTH), rows(WIDTH)],
            statistics: [rows(2), rows(2)],
            qkv: rows(3 * WIDTH),
            attended: rows(WIDTH),
            log_sums: rows(HEADS),
            wide: rows(4 * WIDTH),
            bent: rows(4 * WIDTH),
        }
    }
}

fn linear(i: usize, (w, b): &(Parameter, Parameter)) -> Linear<'_> {
    Linear {
        precision: Precision::F32,
        weights: &w.w,
        bias: Some(&b.w),
        inputs: SHAPES[i].0,
        outputs: SHAPES[i].1,
    }
}

fn linear_backward(
    i: usize,
    p: &mut (Parameter, Parameter),
    x: &[f32],
    dy: &[f32],
    dx: &mut [f32],
) {
    let (w, b) = p;
    let of = Linear {
        precision: Precision::F32,
        weights: &w.w,
        bias: None,
        inputs: SHAPES[i].0,
        outputs: SHAPES[i].1,
    };
    of.backward(
        x,
        dy,
        LinearGradients {
            dx: Some(dx),
            dweights: &mut w.g,
            dbias: Some(&mut b.g),
        },
    );
}

fn norm((gamma, beta): &(Parameter, Parameter)) -> LayerNorm<'_> {
    LayerNorm {
        gamma: &gamma.w,
        beta: &beta.w,
        eps: 1e-5,
    }
}

fn norm_backward(
    p: &mut (Parameter, Parameter),
    x: &[f32],
    statistics: &[f32],
    dy: &[f32],
    dx: &mut [f32],
) {
    let (gamma, beta) = p;
    let of = LayerNorm {
        gamma: &gamma.w,
        beta: &beta.w,
        eps: 1e-5,
    };
    of.backward(x, statistics, dy, dx, &mut gamma.g, &mut beta.g);
}

fn plus(to: &mut [f32], from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, x)| *to += x);
}

/// Six layers, pre-normalised, GELU (tanh), tied projection to the words; AdamW.
fn transformer() -> Box<dyn FnMut(&mut Clock) + Send> {
    let n = BATCH * STEPS;
    let (ids, targets) = (words(n), words(n + 1)[1..].to_vec());
    let mut embedding = Parameter::new(WORDS * WIDTH, 0.02);
    let mut places = Parameter::new(STEPS * WIDTH, 0.02);
    let mut last = (
        Parameter {
            w: vec![1.0; WIDTH],
            ..Parameter::new(WIDTH, 0.0)
        },
        Parameter::new(WIDTH, 0.0),
    );
    let mut layers: Vec<Layer> = (0..6).map(|_| Layer::new()).collect();
    let attention = Attention {
        batch: BATCH,
        steps: STEPS,
        heads: HEADS,
        width: WIDTH / HEADS,
        segments: None,
    };
    let rows = |width: usize| vec![0.0; n * width];
    let (mut x, mut normal, mut statistics) = (rows(WIDTH), rows(WIDTH), rows(2));
    let mut logits = rows(WORDS);
    let (mut d, mut narrow, mut d_qkv, mut d_wide) =
        (rows(WIDTH), rows(WIDTH), rows(3 * WIDTH), rows(4 * WIDTH));
    let mut step = 0;
    Box::new(move |clock| {
        embedding::gather(&embedding.w, WIDTH, &ids, &mut x);
        x.chunks_mut(STEPS * WIDTH).for_each(|x| plus(x, &places.w));
        clock.part("embedding");
        for l in &mut layers {
            l.x[0].copy_from_slice(&x);
            norm(&l.norms[0]).forward(&x, &mut l.normal[0], &mut l.statistics[0]);
            clock.part("layer norm");
            linear(0, &l.linears[0]).forward(&l.normal[0], &mut l.qkv, false);
            clock.part("linear");
            attention.forward(&l.qkv, &mut l.attended, &mut l.log_sums);
            clock.part("attention");
            linear(1, &l.linears[1]).forward(&l.attended, &mut x, true);
            clock.part("linear");
            l.x[1].copy_from_slice(&x);
            norm(&l.norms[1]).forward(&x, &mut l.normal[1], &mut l.statistics[1]);
            clock.part("layer norm");
            linear(2, &l.linears[2]).forward(&l.normal[1], &mut l.wide, false);
            clock.part("linear");
            Gelu::Tanh.forward(&l.wide, &mut l.bent);
            clock.part("GELU");
            linear(3, &l.linears[3]).forward(&l.bent, &mut x, true);
            clock.part("linear");
        }
        norm(&last).forward(&x, &mut normal, &mut statistics);
        let table = Matrix::new(&embedding.w, WORDS, WIDTH);
        gemm(
            Precision::F32,
            Matrix::new(&normal, n, WIDTH),
            table.transposed(),
            &mut logits,
            WORDS,
            false,
        );
        clock.part("logits");
        let targets = Targets::U32(&targets);
        let loss = CrossEntropy {
            classes: WORDS,
            targets,
            ignore: None,
            smoothing: 0.0,
            bias: None,
        };
        loss.gradient(&mut logits, Upstream::Mean(1.0), None, None);
        clock.part("cross-entropy");
        let dlogits = Matrix::new(&logits, n, WORDS);
        gemm(Precision::F32, dlogits, table, &mut narrow, WIDTH, false);
        gemm_over_rows(
            Precision::F32,
            dlogits,
            Matrix::new(&normal, n, WIDTH),
            &mut embedding.g,
        );
        clock.part("logits backward");
        norm_backward(&mut last, &x, &statistics, &narrow, &mut d);
        clock.part("layer norm backward");
        for l in layers.iter_mut().rev() {
            linear_backward(3, &mut l.linears[3], &l.bent, &d, &mut d_wide);
            clock.part("linear backward");
            Gelu::Tanh.backward(&l.wide, &mut d_wide);
            clock.part("GELU");
            linear_backward(2, &mut l.linears[2], &l.normal[1], &d_wide, &mut narrow);
            clock.part("linear backward");
            norm_backward(
                &mut l.norms[1],
                &l.x[1],
                &l.statistics[1],
                &narrow,
                &mut normal,
            );
            plus(&mut d, &normal);
            clock.part("layer norm backward");
            linear_backward(1, &mut l.linears[1], &l.attended, &d, &mut narrow);
            clock.part("linear backward");
            attention.backward(&l.qkv, &l.attended, &l.log_sums, &narrow, &mut d_qkv);
            clock.part("attention backward");
            linear_backward(0, &mut l.linears[0], &l.normal[0], &d_qkv, &mut narrow);
            clock.part("linear backward");
            norm_backward(
                &mut l.norms[0],
                &l.x[0],
                &l.statistics[0],
                &narrow,
                &mut normal,
            );
            plus(&mut d, &normal);
            clock.part("layer norm backward");
        }
        embedding::scatter_add(&d, WIDTH, &ids, &mut embedding.g);
        places.g.fill(0.0);
        d.chunks(STEPS * WIDTH).for_each(|d| plus(&mut places.g, d));
        clock.part("embedding");
        step += 1;
        let pairs = layers
            .iter_mut()
            .flat_map(|l| l.norms.iter_mut().chain(&mut l.linears));
        let all = pairs.chain([&mut last]).flat_map(|(a, b)| [a, b]);
        let (mut tensors, mut squares) = tensors(all.chain([&mut embedding, &mut places]));
        let adamw = AdamW {
            lr: 1e-3,
            betas: (0.9, 0.95),
            eps: 1e-8,
            weight_decay: 0.1,
        };
        adamw.step(&mut tensors, &mut squares, step, 1.0);
        clock.part("AdamW");
    })
}
