//! Times convolutions; `bench/peers/conv_speed.py` drives it next to PyTorch.
//!
//! Each line of standard input names a shape: batch, height, width, channels in and out, kernel, stride, padding. The
//! answer is the seconds of the forward pass, the input gradient and the weight gradient. The argument is the number
//! of threads.

use std::io::BufRead;
use std::time::Instant;

use pelton_kernels::{Conv, Precision};

fn main() {
    let threads = std::env::args()
        .nth(1)
        .map_or(2, |n| n.parse().expect("a number of threads"));
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .expect("threads");
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let numbers: Vec<usize> = line
            .split_whitespace()
            .map(|n| n.parse().expect("a number"))
            .collect();
        let [batch, high, wide, from, to, kernel, stride, padding] = numbers[..] else {
            panic!("eight numbers a line");
        };
        let conv = Conv {
            precision: Precision::F32,
            batch,
            input: [high, wide],
            in_channels: from,
            out_channels: to,
            kernel: [kernel; 2],
            stride: [stride; 2],
            padding: [padding; 2],
        };
        let waves = |n: usize| -> Vec<f32> { (0..n).map(|i| (i as f32 * 0.7).sin()).collect() };
        let (x, w) = (waves(conv.input_len()), waves(conv.weights_len()));
        let (mut y, dy) = (vec![0.0; conv.output_len()], waves(conv.output_len()));
        let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; w.len()]);
        pool.install(|| {
            let forward = seconds(|| conv.forward(&x, &w, None, false, &mut y));
            let input = seconds(|| conv.input_gradient(&dy, &w, &mut dx));
            let weights = seconds(|| conv.weight_gradient(&x, &dy, &mut dw));
            println!("{forward} {input} {weights}");
        });
    }
}

/// Of the fastest of a few runs.
fn seconds(mut body: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = f64::INFINITY;
    let mut runs = 0;
    while runs < 3 || (runs < 20 && start.elapsed().as_secs_f64() < 0.1) {
        let one = Instant::now();
        body();
        best = best.min(one.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}
