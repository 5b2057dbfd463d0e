//! GFLOP/s of dense products: `cargo run --release -p pelton-kernels --example gemm_speed [THREADS]`.
//!
//! `bench/peers/gemm_speed.py` times the same shapes with PyTorch.

use std::time::Instant;

use pelton_kernels::{Matrix, PackedMatrix, Precision, gemm, gemm_packed};

fn main() {
    let threads = std::env::args()
        .nth(1)
        .map_or(2, |n| n.parse().expect("a number of threads"));
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .expect("threads");
    pool.install(|| {
        for (m, k, n) in [
            (1024, 1024, 1024),
            (2048, 2048, 2048),
            (32, 200, 800),
            (8, 200, 800),
            (1, 1024, 4096),
            (128, 4096, 4096),
            (1120, 200, 10000),
        ] {
            let a: Vec<f32> = (0..m * k).map(|i| (i as f32).sin()).collect();
            let b: Vec<f32> = (0..k * n).map(|i| (i as f32).cos()).collect();
            let mut c = vec![0.0f32; m * n];
            let (a, b) = (Matrix::new(&a, m, k), Matrix::new(&b, k, n));
            let transposed: Vec<f32> = (0..n * k).map(|i| b.at(i % k, i / k)).collect();
            let from_rows = Matrix::new(&transposed, n, k).transposed();
            let packed = PackedMatrix::new(Precision::F32, b);
            let flop = 2.0 * (m * k * n) as f64;
            let plain = best(|| gemm(Precision::F32, a, b, &mut c, n, false));
            let turned = best(|| gemm(Precision::F32, a, from_rows, &mut c, n, false));
            let before = best(|| gemm_packed(a, &packed, &mut c, n, false));
            println!(
                "{m}x{k}x{n}: {:.1} GFLOP/s, b transposed {:.1}, packed before {:.1}",
                flop / plain,
                flop / turned,
                flop / before
            );
        }
        for d in [64, 128, 256, 512] {
            head(d);
        }
    });
}

/// The products of a step of a class head with `d` features, a chunk of classes after the other: logits, gradient of
/// the features, gradient of the rows; in f32, in bf16, and how many times as fast that is.
fn head(d: usize) {
    let (batch, classes, chunk) = (256, 20_480, 1024);
    let numbers = |n: usize| -> Vec<f32> { (0..n).map(|i| (i as f32).sin()).collect() };
    let (features, rows) = (numbers(batch * d), numbers(classes * d));
    let mut products = numbers(chunk * batch);
    let (mut of_features, mut of_rows) = (vec![0.0; batch * d], vec![0.0; chunk * d]);
    let chunks = || (0..classes).step_by(chunk);
    let times = [Precision::F32, Precision::Bf16].map(|precision| {
        let features = Matrix::new(&features, batch, d);
        let row = |at: usize| Matrix::new(&rows[at * d..], chunk, d);
        let logits = best(|| {
            let columns = PackedMatrix::new(precision, features.transposed());
            for at in chunks() {
                gemm_packed(row(at), &columns, &mut products, batch, false);
            }
        });
        let products = Matrix::new(&products, chunk, batch);
        let by_features = best(|| {
            for at in chunks() {
                gemm(
                    precision,
                    products.transposed(),
                    row(at),
                    &mut of_features,
                    d,
                    true,
                );
            }
        });
        let by_rows = best(|| {
            let columns = PackedMatrix::new(precision, features);
            for _ in chunks() {
                gemm_packed(products, &columns, &mut of_rows, d, false);
            }
        });
        [logits, by_features, by_rows, logits + by_features + by_rows]
    });
    print!("head {batch}x{classes}x{d}:");
    for (part, product) in ["logits", "by features", "by rows", "all"]
        .iter()
        .enumerate()
    {
        let [f32, bf16] = times.map(|times| times[part]);
        let flop = 2.0 * (batch * classes * d) as f64 * if part == 3 { 3.0 } else { 1.0 };
        print!(
            " {product} {:.0} and {:.0} GFLOP/s, {:.2};",
            flop / f32,
            flop / bf16,
            f32 / bf16
        );
    }
    println!();
}

/// Nanoseconds of the fastest of several runs.
fn best(mut body: impl FnMut()) -> f64 {
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    while start.elapsed().as_secs_f64() < 0.5 {
        let one = Instant::now();
        body();
        best = best.min(one.elapsed().as_nanos() as f64);
    }
    best
}
