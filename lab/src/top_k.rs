//! Table 6 of Song et al., KDD 2020: the time of selecting the largest gradients of ResNet-50, layer by layer.
//!
//! Gradients are random, since only their number and spread matter: normal numbers with a different scale in each
//! layer. Methods take turns. `exact` says whether a method selected the same elements as a full sort.

use std::time::Instant;

use pelton_kernels::{TopK, top_k};
use pelton_key::{KeyedRng, Stage, key};
use pelton_run::{Event, RunContext};
use pelton_storage::in_parallel;
use pelton_train::TrainError;
use serde_json::{Value, json};

use super::raw_runs::RawRuns;
use crate::table::{ReproduceConfig, Reproduction, Row, interrupted, median};

/// Share of the gradients to send.
const DENSITY: f64 = 0.001;
/// Runs of each method at scale 1.
const TURNS: usize = 9;

const PUBLISHED: [(&str, f64); 4] = [
    ("loop", 204.58),
    ("sampled", 83.27),
    ("divide and conquer", 36.08),
    ("grouped", 11.81),
];

/// Lengths of the parameters of ResNet-50 with 1000 classes: convolutions, norms and the last layer (He et al., 2016).
fn resnet50() -> Vec<usize> {
    let mut all = vec![64 * 3 * 49, 64, 64];
    let mut from = 64;
    for (middle, blocks) in [(64, 3), (128, 4), (256, 6), (512, 3)] {
        for block in 0..blocks {
            let out = 4 * middle;
            all.extend([
                from * middle,
                middle,
                middle,
                9 * middle * middle,
                middle,
                middle,
            ]);
            all.extend([middle * out, out, out]);
            if block == 0 {
                all.extend([from * out, out, out]);
            }
            from = out;
        }
    }
    all.extend([2048 * 1000, 1000]);
    all
}

/// Sums of four uniform numbers, with a different scale in each layer.
fn gradients(scale: f64, seed: u64) -> Vec<Vec<f32>> {
    let lengths = resnet50().into_iter().enumerate();
    lengths
        .map(|(at, length)| {
            let mut rng = KeyedRng::new(key(seed, at as u64, Stage::Sample(0)));
            let size = (at as f32 * 0.37).sin().exp();
            let n = (length as f64 * scale).ceil() as usize;
            let mut next = || {
                let bits = rng.next_u64();
                let parts = [0, 16, 32, 48].map(|at| (bits >> at & 0xffff) as f32 / 65_536.0 - 0.5);
                size * parts.iter().sum::<f32>()
            };
            (0..n).map(|_| next()).collect()
        })
        .collect()
}

/// The selection by a full sort.
fn sorted(layer: &[f32], k: usize) -> Vec<u32> {
    let mut all: Vec<u32> = (0..layer.len() as u32).collect();
    all.sort_by(|&a, &b| {
        let magnitude = |i: u32| layer[i as usize].abs();
        magnitude(b).total_cmp(&magnitude(a)).then(a.cmp(&b))
    });
    all.truncate(k);
    all.sort_unstable();
    all
}

/// Selects with every method and shows the times.
pub(super) fn top_k_table(
    config: &ReproduceConfig,
    context: &mut RunContext<'_>,
) -> Result<Reproduction, TrainError> {
    let all = gradients(config.scale.min(1.0), 0);
    let layers: Vec<(&[f32], usize)> = all
        .iter()
        .map(|layer| (&layer[..], (layer.len() as f64 * DENSITY).ceil() as usize))
        .collect();
    let numbers: usize = all.iter().map(Vec::len).sum();
    (context.observer)(Event::Note(&format!(
        "{} layers, {numbers} gradients",
        all.len()
    )));
    let expected: Vec<Vec<u32>> = layers.iter().map(|&(x, k)| sorted(x, k)).collect();
    let mut raw = RawRuns::create(&config.out.join("topk.csv"), "method,turn,ms,exact")?;
    let mut ms = vec![Vec::new(); TopK::ALL.len() + 1];
    let mut exact = [true; TopK::ALL.len()];
    for turn in 0..TURNS {
        for (at, (name, method)) in TopK::ALL.into_iter().enumerate() {
            if context.interrupt.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(interrupted());
            }
            let began = Instant::now();
            let found = in_parallel(|| top_k(&layers, method))?;
            ms[at].push(1e3 * began.elapsed().as_secs_f64());
            exact[at] &= found == expected;
            let (spent, right) = (ms[at][turn].to_string(), exact[at].to_string());
            raw.line(&[name, &turn.to_string(), &spent, &right])?;
        }
        let spent = in_parallel(|| read_twice(&all))?;
        ms[TopK::ALL.len()].push(spent);
        raw.line(&[FLOOR, &turn.to_string(), &spent.to_string(), ""])?;
    }
    let row = |name: &str, at: usize, exact: Option<bool>| {
        let published = PUBLISHED.iter().find(|(method, _)| *method == name);
        let ms = median(ms[at].clone());
        Row {
            table: "Table 6".to_string(),
            data: format!("{} layers of ResNet-50, {numbers} gradients, the largest 0.1 %", all.len()),
            method: name.to_string(),
            figure: "milliseconds".to_string(),
            published: published.map_or(Value::Null, |(_, ms)| json!(ms)),
            measured: json!(ms),
            differs: "processors of this machine; the paper's are of a V100, and its sampled one is not exact"
                .to_string(),
            ms: Some(ms),
            exact,
            ..Row::default()
        }
    };
    let mut rows: Vec<Row> = TopK::ALL
        .iter()
        .enumerate()
        .map(|(at, (name, _))| row(name, at, Some(exact[at])))
        .collect();
    rows.push(row(FLOOR, TopK::ALL.len(), None));
    Ok(Reproduction {
        name: config.experiment.name.clone(),
        rows,
        notes: vec![format!(
            "the middle of {TURNS} turns on {} threads; exact: the same as sorting every layer",
            in_parallel(rayon::current_num_threads)?
        )],
        files: vec![raw.path()],
    })
}

const FLOOR: &str = "reading the gradients twice";

/// Milliseconds of reading all numbers twice, on all threads.
fn read_twice(all: &[Vec<f32>]) -> f64 {
    use rayon::prelude::*;
    let began = Instant::now();
    for _ in 0..2 {
        let sum: u64 = all
            .par_iter()
            .flat_map(|layer| layer.par_chunks(1 << 16))
            .map(|part| {
                let bits = part.iter().map(|x| x.to_bits());
                u64::from(bits.fold(0, u32::wrapping_add))
            })
            .sum();
        std::hint::black_box(sum);
    }
    1e3 * began.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::resnet50;

    #[test]
    fn layers_are_those_of_resnet50() {
        let all = resnet50();
        // torchvision's: 161 tensors, 25 557 032 numbers.
        assert_eq!((all.len(), all.iter().sum::<usize>()), (161, 25_557_032));
    }
}
