//! Whole nets against PyTorch's modules: three steps from the same weights. `pytorch.py` wrote `pytorch.txt`, in f64.

use std::collections::HashMap;

use pelton_batch::{Array, Buffer, DType, Shape};
use pelton_comm::Comm;
use pelton_nn::nets::{ImageModel, LanguageModel, lstm, transformer};
use pelton_nn::{
    Carry, Flow, Input, Layer, LossOptions, NO_TARGET, NamedArray, Net, Rule, StepOptions, Update,
    Window, Words, trainer,
};

/// Numbers in −1..1 that look random.
fn numbers(seed: u32, n: usize) -> Vec<f32> {
    (0..n as u32)
        .map(|i| {
            let x = i
                .wrapping_mul(2_654_435_761)
                .wrapping_add(seed.wrapping_mul(1_013_904_223));
            let x = (x ^ x >> 15).wrapping_mul(2_246_822_519);
            let x = (x ^ x >> 13).wrapping_mul(3_266_489_917);
            ((x ^ x >> 16) >> 8) as f32 / 8_388_608.0 - 1.0
        })
        .collect()
}

fn seed_of(name: &str) -> u32 {
    name.bytes()
        .fold(0, |seed, byte| (seed * 31 + u32::from(byte)) % 65521)
}

/// The initial numbers of a parameter.
fn begin(parameter: &mut NamedArray) {
    let name = &parameter.name;
    let of = numbers(seed_of(name), parameter.values.len());
    let (scale, around) = if parameter.shape.len() > 1 {
        let fan_in: usize = parameter.shape[1..].iter().product();
        ((3.0 / fan_in as f32).sqrt(), 0.0)
    } else {
        let one = name.ends_with("var") || !name.contains("bias") && !name.contains("mean");
        (0.125, if one { 1.0 } else { 0.0 })
    };
    parameter.values = of.into_iter().map(|x| x * scale + around).collect();
}

fn expected() -> HashMap<&'static str, Vec<f64>> {
    let lines = include_str!("pytorch.txt").lines();
    lines
        .map(|line| {
            let (name, values) = line.split_once(' ').expect("a name and values");
            let values = values.split(' ').map(|x| x.parse().expect("a number"));
            (name, values.collect())
        })
        .collect()
}

const SGD: (Rule, f32) = (
    Rule::Sgd {
        momentum: 0.9,
        nesterov: true,
    },
    0.1,
);
const ADAMW: (Rule, f32) = (
    Rule::AdamW {
        mean_decay: 0.9,
        square_decay: 0.999,
        epsilon: 1e-4,
    },
    0.01,
);

/// Trains on the batches of three steps and compares losses and changes. Each step rounds some dozens of layers by
/// 2⁻²⁴, and the steps after it are as much further off as losses are steep: a thousandth is far from both.
fn check(name: &str, net: Net, (rule, rate): (Rule, f32), batch: impl Fn(usize) -> Batch) {
    let expected = expected();
    let mut trainer = trainer(net, 0, Comm::alone());
    let mut before = trainer.parameters().unwrap();
    before.iter_mut().for_each(begin);
    trainer.set_parameters(before.clone()).unwrap();
    for (at, loss) in expected[&*format!("{name}.loss")].iter().enumerate() {
        let batch = batch(at);
        let targets = batch.targets().iter().filter(|&&y| y != NO_TARGET).count();
        let loss_options = LossOptions {
            scale: 1.0 / targets as f32,
            smoothing: 0.0,
            class_weights: None,
        };
        let options = StepOptions {
            loss: loss_options,
            key: 0,
        };
        let counts = trainer.gradients(&[Some(batch.input())], &options).unwrap();
        let ours = counts.loss / targets as f64;
        assert!(
            (ours / loss - 1.0).abs() < 1e-4,
            "{name}, step {at}: {ours}, not {loss}"
        );
        let update = Update {
            rule,
            rate,
            weight_decay: 0.01,
            step: at as u64 + 1,
            scale: 1.0,
        };
        trainer.update(&update).unwrap();
    }
    for (before, after) in before.iter().zip(trainer.parameters().unwrap()) {
        let full = format!("{name}.{}", after.name);
        let &[norm, along] = &expected[&*full][..] else {
            panic!("{full} has two numbers")
        };
        let change: Vec<f64> = (after.values.iter().zip(&before.values))
            .map(|(after, before)| f64::from(after - before))
            .collect();
        let own_norm = change.iter().map(|x| x * x).sum::<f64>().sqrt();
        let random = numbers(seed_of(&after.name) + 1, change.len());
        let own_along: f64 = (change.iter().zip(random))
            .map(|(x, y)| x * f64::from(y))
            .sum();
        // A bias before a batch norm has only a rounding error as its gradient.
        let most = 1e-3 * norm + 1e-5;
        assert!(
            (own_norm - norm).abs() < most && (own_along - along).abs() < most,
            "{full} changed by {own_norm}, along random numbers {own_along}, not {norm} and {along}"
        );
    }
}

enum Batch {
    Rows(Array, Vec<i64>),
    Words(Words),
}

impl Batch {
    fn targets(&self) -> &[i64] {
        match self {
            Batch::Rows(_, labels) => labels,
            Batch::Words(words) => &words.targets,
        }
    }

    fn input(&self) -> Input<'_> {
        match self {
            Batch::Rows(values, labels) if values.shape().dims.len() == 2 => {
                Input::Vectors { values, labels }
            }
            Batch::Rows(pixels, labels) => Input::Images { pixels, labels },
            Batch::Words(words) => Input::Words(words),
        }
    }
}

fn rows(first: usize, shape: &'static [usize]) -> impl Fn(usize) -> Batch {
    move |at| {
        let values = numbers((first + at) as u32, shape.iter().product());
        let shape_of = Shape::stacked(shape[0], &shape[1..]);
        let array = Array::new(DType::F32, shape_of, Buffer::from_slice(&values));
        let labels = (0..shape[0]).map(|i| ((7 * i + at) % 4) as i64).collect();
        Batch::Rows(array, labels)
    }
}

fn words(packed: bool) -> impl Fn(usize) -> Batch {
    move |at| {
        let (batch, steps) = (3, 7);
        let cells = || (0..batch).flat_map(|b| (0..steps).map(move |t| (b, t)));
        let target = |(b, t)| match (b + t) % 5 {
            0 => NO_TARGET,
            _ => ((at + 3 * b + t) % 11) as i64,
        };
        let segments = cells().map(|(b, t)| u32::from(t > 2 + b));
        Batch::Words(Words {
            batch,
            steps,
            ids: cells()
                .map(|(b, t)| ((at + 5 * b + t * t) % 11) as i64)
                .collect(),
            targets: cells().map(target).collect(),
            segments: if packed { segments.collect() } else { vec![] },
            carry: match (packed, at) {
                (true, _) => Carry::No,
                (false, 0) => Carry::Begin,
                (false, _) => Carry::GoOn,
            },
        })
    }
}

fn image(model: ImageModel, input: impl Into<Flow>, width: f64) -> Net {
    model.net(input, 4, width).unwrap()
}

fn model(width: usize, tied: bool) -> LanguageModel {
    LanguageModel {
        words: 11,
        embedding: width,
        hidden: width,
        layers: 2,
        heads: 2,
        positions: 7,
        dropout: 0.0,
        tied,
    }
}

#[test]
fn residual_net() {
    let net = image(ImageModel::ResNet20, [9, 11, 3], 0.25);
    check("resnet20", net, SGD, rows(0, &[5, 9, 11, 3]));
}

/// Insightface's net with ReLU, and a norm of features that learns no scale.
#[test]
fn net_of_embeddings() {
    let net = image(ImageModel::IResNet18, [17, 19, 3], 0.0625);
    check("iresnet18", net, SGD, rows(0, &[6, 17, 19, 3]));
}

#[test]
fn batch_norms_and_pools() {
    let net = image(ImageModel::Vgg16, [35, 33, 3], 0.0625);
    check("vgg16", net, (SGD.0, 0.01), rows(30, &[6, 35, 33, 3]));
}

/// Layers that the named nets have only with dropout: convolutions with an included ReLU, and pools with padding.
#[test]
fn convolutions_without_norms() {
    let window = |kernel, stride, padding| Window {
        kernel,
        stride,
        padding,
    };
    let conv = |name: &str, out, at| Layer::Conv {
        name: name.into(),
        out,
        at,
        bias: true,
    };
    let linear = |name: &str, out| Layer::Linear {
        name: name.into(),
        out,
        bias: true,
        tied: None,
    };
    let layers = vec![
        conv("first", 5, window(5, 2, 2)),
        Layer::Relu,
        Layer::MaxPool(window(3, 2, 1)),
        conv("second", 7, window(1, 2, 0)),
        Layer::Relu,
        Layer::Flatten,
        linear("third", 6),
        Layer::Gelu,
        linear("fourth", 4),
    ];
    let net = Net::new(layers, Flow::Image(13, 15, 3)).unwrap();
    check("plain", net, ADAMW, rows(0, &[5, 13, 15, 3]));
}

#[test]
fn layer_norms() {
    let net = image(ImageModel::Mlp, Flow::Row(7), 8.0 / 256.0);
    check("mlp", net, ADAMW, rows(0, &[5, 7]));
}

#[test]
fn recurrent_nets_that_carry_their_state() {
    check("lstm", lstm(&model(6, false)).unwrap(), SGD, words(false));
    check(
        "lstm-tied",
        lstm(&model(6, true)).unwrap(),
        SGD,
        words(false),
    );
}

#[test]
fn attention_over_packed_rows() {
    let net = transformer(&model(8, false)).unwrap();
    check("transformer", net, ADAMW, words(true));
}
