//! Times batch norm with residual and ReLU; `bench/peers/norm_speed.py` drives it next to PyTorch.
//!
//! Each line of standard input names pixels and channels. The answer is the seconds of forward and backward. The
//! argument is the number of threads.

use std::io::BufRead;
use std::time::Instant;

use pelton_kernels::norm::{Backward, BatchNorm, Gradients, Running, Saved};

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
        let [pixels, channels] = numbers[..] else {
            panic!("two numbers a line");
        };
        let waves =
            |n: usize, step: f32| -> Vec<f32> { (0..n).map(|i| (i as f32 * step).sin()).collect() };
        let n = pixels * channels;
        let (x, residual, dy) = (waves(n, 0.7), waves(n, 0.3), waves(n, 0.9));
        let (mut y, mut dx, mut dresidual) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
        let (gamma, beta) = (waves(channels, 1.0), waves(channels, 2.0));
        let [
            mut mean,
            mut inverse_deviation,
            mut dgamma,
            mut dbeta,
            mut running_mean,
            mut running_variance,
        ] = [const { Vec::new() }; 6].map(|_: Vec<f32>| vec![0.0f32; channels]);
        let norm = BatchNorm {
            gamma: &gamma,
            beta: &beta,
            epsilon: 1e-5,
            relu: true,
        };
        pool.install(|| {
            let forward = seconds(|| {
                let running = Running {
                    mean: &mut running_mean,
                    variance: &mut running_variance,
                    momentum: 0.1,
                };
                let saved = Saved {
                    mean: &mut mean,
                    inverse_deviation: &mut inverse_deviation,
                };
                norm.train(&x, Some(&residual), Some(running), saved, &mut y);
            });
            let backward = seconds(|| {
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
            });
            println!("{forward} {backward}");
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
