//! GFLOP/s of dense products: `cargo run --release -p pelton-kernels --example gemm_speed [THREADS]`.
//!
//! `bench/peers/gemm_speed.py` times the same shapes with PyTorch.

use std::time::Instant;

use pelton_kernels::{Matrix, PackedMatrix, gemm, gemm_packed};

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
            let packed = PackedMatrix::new(b);
            let flop = 2.0 * (m * k * n) as f64;
            let plain = best(|| gemm(a, b, &mut c, n, false));
            let turned = best(|| gemm(a, from_rows, &mut c, n, false));
            let before = best(|| gemm_packed(a, &packed, &mut c, n, false));
            println!(
                "{m}x{k}x{n}: {:.1} GFLOP/s, b transposed {:.1}, packed before {:.1}",
                flop / plain,
                flop / turned,
                flop / before
            );
        }
    });
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
