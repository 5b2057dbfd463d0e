//! Times training steps of a net on a batch in memory; `bench/peers/step_speed.py` drives it next to PyTorch.
//!
//! Arguments: a net for images, the image's height, width and channels, the batch; or `lstm`, `lstm-tied` or
//! `transformer`, the words, width, layers, batch and steps. Each line of standard input requests a step; the
//! answer is its seconds. `PELTON_THREADS` is the number of threads (2), `PELTON_PRECISION` is f32
//! or bf16 (f32).

use std::io::BufRead;
use std::time::Instant;

use pelton_batch::{Array, Buffer, DType, Shape};
use pelton_comm::Comm;
use pelton_nn::nets::{ImageModel, LanguageModel, lstm, transformer};
use pelton_nn::{
    Carry, Input, LossOptions, Net, Rule, StepOptions, Trainer, Update, Words, trainer,
};

enum Job {
    Images { pixels: Array, labels: Vec<i64> },
    Words(Words),
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let sizes: Vec<usize> = arguments[1..]
        .iter()
        .map(|n| n.parse().expect("a number"))
        .collect();
    let (net, job) = match arguments[0].as_str() {
        name @ ("lstm" | "lstm-tied" | "transformer") => language(name, &sizes),
        name => images(name, &sizes),
    };
    let precision = std::env::var("PELTON_PRECISION").map_or("f32".to_string(), |of| of);
    let net = Net {
        precision: precision.parse().expect("f32 or bf16"),
        ..net
    };
    let threads = std::env::var("PELTON_THREADS").map_or(2, |n| n.parse().expect("a number"));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.expect("threads");
    let mut trainer = trainer(net, 1, Comm::alone());
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        line.expect("a line");
        let start = Instant::now();
        pool.install(|| step(&mut *trainer, &job, number as u64 + 1));
        println!("{}", start.elapsed().as_secs_f64());
    }
}

fn step(trainer: &mut dyn Trainer, job: &Job, number: u64) {
    let (input, rows) = match job {
        Job::Images { pixels, labels } => (Input::Images { pixels, labels }, labels.len()),
        Job::Words(words) => (Input::Words(words), words.ids.len()),
    };
    let loss = LossOptions {
        scale: 1.0 / rows as f32,
        smoothing: 0.0,
        class_weights: None,
    };
    let options = StepOptions { loss, key: number };
    trainer
        .gradients(&[Some(input)], &options)
        .expect("a batch that fits");
    trainer
        .update(&Update {
            rule: Rule::Sgd {
                momentum: 0.9,
                nesterov: false,
            },
            rate: 0.01,
            weight_decay: 0.0,
            step: number,
            scale: 1.0,
        })
        .expect("an update");
}

fn images(name: &str, sizes: &[usize]) -> (Net, Job) {
    let &[height, width, channels, batch] = sizes else {
        panic!("height, width, channels, batch");
    };
    let model: ImageModel = name.parse().expect("a net");
    let classes = if height < 64 { 10 } else { 1000 };
    let net = model
        .net([height, width, channels], classes, 1.0)
        .expect("a net");
    let numbers: Vec<f32> = (0..batch * height * width * channels)
        .map(|i| (i as f32 * 0.7).sin())
        .collect();
    let shape = Shape::stacked(batch, &[height, width, channels]);
    let pixels = Array::new(DType::F32, shape, Buffer::from_slice(&numbers));
    let labels = (0..batch).map(|i| (i * 7 % classes) as i64).collect();
    (net, Job::Images { pixels, labels })
}

fn language(name: &str, sizes: &[usize]) -> (Net, Job) {
    let &[words, width, layers, batch, steps] = sizes else {
        panic!("words, width, layers, batch, steps");
    };
    let model = LanguageModel {
        words,
        embedding: width,
        hidden: width,
        layers,
        heads: 4,
        positions: steps,
        dropout: 0.0,
        tied: name == "lstm-tied",
    };
    let net = match name {
        "transformer" => transformer(&model),
        _ => lstm(&model),
    };
    let id = |i: usize| (i * 7919 % words) as i64;
    let words = Words {
        batch,
        steps,
        ids: (0..batch * steps).map(id).collect(),
        targets: (1..=batch * steps).map(id).collect(),
        segments: Vec::new(),
        carry: Carry::No,
    };
    (net.expect("a net"), Job::Words(words))
}
