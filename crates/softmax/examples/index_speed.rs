//! Speed of building and searching an index of class vectors, and its recall.
//!
//! `cargo run --release -p pelton-softmax --example index_speed [CLASSES] [D] [NOISE] [RANDOM]`
//!
//! Class vectors are a hierarchical mixture as of `demo:classes` (RANDOM 1: without hierarchy, the hardest that can
//! be); queries are class vectors with noise of NOISE hundredths of their length.

use std::time::Instant;

use pelton_key::KeyedRng;
use pelton_softmax::{ClassIndex, Logits, Margin};

fn normal(rng: &mut KeyedRng) -> f32 {
    let (u, v) = (rng.next_f64().max(1e-12), rng.next_f64());
    ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
}

fn add(to: &mut [f32], seed: u64, scale: f32) {
    let mut rng = KeyedRng::new(seed);
    to.iter_mut().for_each(|x| *x += scale * normal(&mut rng));
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = |otherwise: usize| {
        let given = arguments.next();
        given.map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (classes, d, noise, random) = (next(100_000), next(128), next(100), next(0));
    let mut weights = vec![0.0; classes * d];
    for (class, row) in weights.chunks_mut(d).enumerate() {
        let (mut count, mut rest, mut level) = (32, 1.0f32, 1);
        while count < classes && random == 0 {
            let seed = pelton_key::mix(level << 40 | (class % count) as u64);
            add(row, seed, (rest * 0.3).sqrt());
            (count, rest, level) = (count * 32, rest * 0.7, level + 1);
        }
        add(row, pelton_key::mix(99 << 40 | class as u64), rest.sqrt());
    }
    let mut rng = KeyedRng::new(4);
    let mut queries = Vec::new();
    for _ in 0..2000 {
        let class = rng.below(classes as u64) as usize;
        let mut query = weights[class * d..][..d].to_vec();
        add(&mut query, rng.next_u64(), noise as f32 / 100.0);
        queries.extend(query);
    }
    let logits = Logits::Cosine {
        scale: 16.0,
        margin: Margin::NONE,
    };
    let began = Instant::now();
    let index = ClassIndex::build(&weights, d, logits, &[], 1);
    let half = ClassIndex::build(&weights, d, logits, &[], 1).rounded();
    let vector = |class: u32| Ok::<_, ()>(weights[class as usize * d..][..d].to_vec());
    println!(
        "build {:.2} s: {} lists, {} looked at, recall of the sample {:.4}, {:.1} MiB next to the vectors",
        began.elapsed().as_secs_f64(),
        index.lists(),
        index.probes(),
        index.recall(),
        index.extra_bytes() as f64 / f64::from(1 << 20),
    );
    let all = index.search_all(&queries, 10);
    let found = index.search(&queries, 10);
    let same = found
        .iter()
        .zip(&all)
        .filter(|(a, b)| a[0].0 == b[0].0)
        .count();
    println!(
        "recall@1 {:.4} of {} queries",
        same as f64 / all.len() as f64,
        all.len()
    );
    for batch in [1, 8, 64] {
        let each = |name: &str, search: &dyn Fn(&[f32])| {
            let mut times = Vec::new();
            let began = Instant::now();
            for part in queries.chunks_exact(batch * d) {
                let began = Instant::now();
                search(part);
                times.push(began.elapsed().as_secs_f64() * 1e3);
                if times.len() >= 10 && times.iter().sum::<f64>() > 3e3 {
                    break;
                }
            }
            let rate = (times.len() * batch) as f64 / began.elapsed().as_secs_f64();
            times.sort_by(f64::total_cmp);
            let median = times[times.len() / 2];
            println!("{name} batch {batch}: {rate:.0} queries/s, median {median:.3} ms a batch");
        };
        each("lists", &|queries| drop(index.search(queries, 10)));
        each("lists, bf16", &|queries| {
            drop(half.search_exactly(queries, 10, &vector))
        });
        each("all", &|queries| drop(index.search_all(queries, 10)));
    }
}
