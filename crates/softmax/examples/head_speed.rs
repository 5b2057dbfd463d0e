//! Times of a head next to the bare products that it consists of, in one run.
//!
//! `cargo run --release -p pelton-softmax --example head_speed [CLASSES] [D] [BATCH] [K] [ROUNDS] [PRECISION]`
//!
//! A line a figure: name, median and all runs in milliseconds, and its share of the peak: the rate of f32 products
//! [1024, d]·[d, batch] in caches.

use std::time::Instant;

use pelton_comm::Comm;
use pelton_kernels::{Matrix, PackedMatrix, Precision, gemm_packed};
use pelton_key::KeyedRng;
use pelton_softmax::{
    Active, Budget, ClassRows, Draws, Graph, Head, Logits, Margin, Neighbours, Rule, Selection,
    Update,
};

fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut rng = KeyedRng::new(seed);
    (0..n).map(|_| 2.0 * rng.next_f64() as f32 - 1.0).collect()
}

/// Milliseconds of each run.
fn times(rounds: usize, mut run: impl FnMut()) -> Vec<f64> {
    let time = |_| {
        let begun = Instant::now();
        run();
        begun.elapsed().as_secs_f64() * 1e3
    };
    (0..rounds).map(time).collect()
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = |otherwise: usize| {
        let given = arguments.next();
        given.map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (classes, d, batch, k, rounds) = (next(100_000), next(128), next(256), next(40), next(5));
    let precision = std::env::args().nth(6);
    let precision: Precision = precision
        .map_or(Ok(Precision::F32), |text| text.parse())
        .expect("a precision");
    let features = numbers(batch * d, 1);
    let labels: Vec<u64> = (0..batch as u64)
        .map(|i| i * 7919 % classes as u64)
        .collect();
    let tile = numbers(1024 * d, 2);
    let columns = Matrix::new(&features, batch, d).transposed();
    let columns = PackedMatrix::new(Precision::F32, columns);
    let mut products = vec![0.0; 1024 * batch];
    let bare = times(200, || {
        let rows = Matrix::new(&tile, 1024, d);
        gemm_packed(rows, &columns, &mut products, batch, false);
    });
    let peak = 2.0 * (1024 * d * batch) as f64 / median(&bare) / 1e6;
    println!("peak {peak:.0} GFLOP/s; {classes} classes, d = {d}, batch {batch}");
    let report = |name: &str, times: &[f64], operations: f64| {
        let rate = operations / median(times) / 1e6;
        let each: Vec<String> = times.iter().map(|ms| format!("{ms:.1}")).collect();
        println!(
            "{name:<12} {:9.1} ms  {:.2} of the peak  [{}]",
            median(times),
            rate / peak,
            each.join(" ")
        );
    };
    let logits = Logits::Cosine {
        scale: 16.0,
        margin: Margin::NONE,
    };
    let update = Update {
        rule: Rule::Sgd {
            momentum: 0.9,
            nesterov: false,
        },
        rate: 0.1,
        weight_decay: 0.0,
        scale: 1.0,
    };
    let rows = ClassRows::new(0, d, numbers(classes * d, 3));
    let comm = Comm::alone();
    let mut neighbours = None;
    let built = times(1, || {
        neighbours = Neighbours::find(&rows, k, precision, &comm).ok()
    });
    report("graph", &built, (classes * classes * d) as f64);
    let graph = neighbours.map(|neighbours| Graph::divide(&neighbours, &comm));
    let graph = graph.and_then(Result::ok).expect("one rank");
    let mut head = Head::new(rows, logits, precision, classes as u64, 64 << 20);
    let mut step = |active: Active<'_>| {
        let mut scored = head
            .score(&features, &labels, active)
            .expect("good numbers");
        head.reduce(&mut scored, 1.0, None, &comm)
            .expect("one rank");
        head.update(std::slice::from_ref(&scored), &update, &comm)
            .expect("one rank");
    };
    let once = (2 * batch * d) as f64;
    let full = times(rounds, || step(Active::All));
    report("full", &full, 3.0 * once * classes as f64);
    let mut selection = Selection::default();
    let budget = Budget {
        near: classes as u64 / 20,
        all: classes as u64 / 10,
        corrected: true,
    };
    let mut draws = Draws::new(1);
    let (mut rows, mut counts) = (Vec::new(), Vec::new());
    let selected = times(rounds, || {
        let found = graph.select(&labels, budget, 1, &mut draws, &mut selection, &comm);
        let found = found.expect("one rank");
        (rows, counts) = (found.rows.to_vec(), found.counts.to_vec());
    });
    report("selection", &selected, 0.0);
    let knn = times(rounds, || step(Active::Rows(&rows, &counts)));
    report("knn", &knn, 3.0 * once * rows.len() as f64);
    println!(
        "knn {:.2} times as fast as full",
        median(&full) / (median(&knn) + median(&selected))
    );
}
