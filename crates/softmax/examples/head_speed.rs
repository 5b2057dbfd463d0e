//! Times of a step of heads next to the bare products of the full one, in one run.
//!
//! `cargo run --release -p pelton-softmax --example head_speed [CLASSES] [D] [BATCH] [ROUNDS] [PRECISION] [HEAD]…`
//!
//! Class vectors lie in clusters of clusters, and the features of an example near that of its class. A line a head:
//! median of its steps and the first of them in milliseconds, classes that take part, time as a part of the full
//! head's, and of the full head its share of the peak, the rate of f32 products [1024, d]·[d, batch] in caches. The
//! first step of `near` builds its lists, and that of `knn` follows its graph.

use std::time::Instant;

use pelton_comm::Comm;
use pelton_kernels::{Matrix, PackedMatrix, Precision, gemm_packed};
use pelton_key::KeyedRng;
use pelton_softmax::{HeadOptions, Logits, Margin, Rule, Update, class_head};

/// Milliseconds of each run.
fn times(rounds: usize, mut run: impl FnMut(usize)) -> Vec<f64> {
    let time = |round| {
        let begun = Instant::now();
        run(round);
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
    let given: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, otherwise: usize| {
        let given = given.get(at);
        given.map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (classes, d, batch, rounds) = (
        number(0, 100_000),
        number(1, 128),
        number(2, 128),
        number(3, 9),
    );
    let precision = given.get(4).map_or("f32", String::as_str);
    let precision: Precision = precision.parse().expect("a precision");
    let mut heads: Vec<&str> = given.iter().skip(5).map(String::as_str).collect();
    if heads.is_empty() {
        heads = vec!["full", "near", "near:0.02", "knn", "sampled"];
    }

    let mut rng = KeyedRng::new(1);
    let mut near = |around: &[f32], spread: f32| -> Vec<f32> {
        let mut around = around.to_vec();
        around
            .iter_mut()
            .for_each(|x| *x += spread * (2.0 * rng.next_f64() as f32 - 1.0));
        around
    };
    let mut level = |of: &[f32], count: usize, spread: f32| -> Vec<f32> {
        let groups = (of.len() / d).max(1);
        (0..count)
            .flat_map(|i| near(&of[i * groups / count * d..][..d], spread))
            .collect()
    };
    let tops = level(&vec![0.0; d], (classes / 80).max(1), 1.0);
    let groups = level(&tops, (classes / 8).max(1), 0.55);
    let weights = level(&groups, classes, 0.3);
    let steps: Vec<(Vec<f32>, Vec<u64>)> = (0..rounds as u64)
        .map(|step| {
            let label = |i: u64| (step * 31 + i * 7919) % classes as u64;
            let labels: Vec<u64> = (0..batch as u64).map(label).collect();
            let rows = labels.iter().map(|&y| &weights[y as usize * d..][..d]);
            (rows.flat_map(|row| level(row, 1, 0.3)).collect(), labels)
        })
        .collect();

    let columns = Matrix::new(&steps[0].0, batch, d).transposed();
    let columns = PackedMatrix::new(Precision::F32, columns);
    let mut products = vec![0.0; 1024 * batch];
    let bare = times(200, |_| {
        let rows = Matrix::new(&weights[..1024.min(classes) * d], 1024.min(classes), d);
        let products = &mut products[..1024.min(classes) * batch];
        gemm_packed(rows, &columns, products, batch, false);
    });
    let peak = 2.0 * (1024.min(classes) * d * batch) as f64 / median(&bare) / 1e6;
    println!("peak {peak:.0} GFLOP/s; {classes} classes, d = {d}, batch {batch}");
    let update = Update {
        rule: Rule::Sgd {
            momentum: 0.9,
            nesterov: false,
        },
        rate: 0.01,
        weight_decay: 0.0,
        scale: 1.0,
    };
    let mut of_full = None;
    for kind in heads {
        let options = HeadOptions {
            kind: kind.parse().expect("a head"),
            logits: Logits::Cosine {
                scale: 16.0,
                margin: Margin::NONE,
            },
            classes: classes as u64,
            d,
            correct: true,
            centre: false,
            precision,
            seed: 1,
            scratch_bytes: HeadOptions::SCRATCH_BYTES,
        };
        let mut head = class_head(&options, Comm::alone()).expect("a head");
        head.load(&mut |name, rows| {
            let rows = rows.start as usize * d..rows.end as usize * d;
            (name == "weights").then(|| weights[rows].to_vec())
        })
        .expect("its weights");
        head.renew(1, &|| false).expect("finite weights");
        let mut active = 0;
        let each = times(rounds, |step| {
            let (features, labels) = &steps[step];
            head.select(labels, step as u64).expect("labels");
            let scored = head.score(features, labels.into(), 1.0 / batch as f32, None);
            scored.expect("good numbers");
            active = head.active();
            head.update(&update).expect("one rank");
        });
        let took = median(&each[1..]);
        let full = *of_full.get_or_insert(took);
        let operations = 6.0 * (batch * classes * d) as f64;
        println!(
            "{kind:<12} {took:8.2} ms (first {:8.2})  {active} active  {:.2} of the first head's time  {:.2} of the peak",
            each[0],
            took / full,
            operations / took / 1e6 / peak,
        );
    }
}
