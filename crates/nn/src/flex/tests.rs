//! Our operators against the same composed of Burn's: values and gradients, on odd shapes.

use burn_autodiff::Autodiff;
use burn_backend::AutodiffBackend;
use burn_backend::ops::FloatTensorOps;
use burn_flex::Flex;
use pelton_key::KeyedRng;

use crate::composed;
use crate::operands::{
    F, LossOptions, LstmWeights, NO_TARGET, NormMode, Window, dims, numbers, place, reshape,
};
use crate::ops::Ops;

type B = Autodiff<Flex>;
type Taped = F<B>;

/// Numbers from −1 to 1.
fn random(key: u64, shape: &[usize]) -> F<Flex> {
    let mut random = KeyedRng::new(key);
    let len: usize = shape.iter().product();
    let values = (0..len)
        .map(|_| (2.0 * random.next_f64() - 1.0) as f32)
        .collect();
    reshape::<Flex>(place::<Flex, 1>(values, [len], &Default::default()), shape)
}

/// Values of `of` and its gradients with respect to every input, for a random gradient of the result.
fn run(inputs: &[F<Flex>], of: &dyn Fn(Vec<Taped>) -> Taped) -> (Vec<f32>, Vec<Vec<f32>>) {
    let leaves: Vec<Taped> = inputs
        .iter()
        .map(|x| B::float_set_require_grad(B::from_inner(x.clone()), true))
        .collect();
    let y = of(leaves.clone());
    let values = numbers::<B>(y.clone());
    let upstream = B::from_inner(random(99, &dims::<B>(&y)));
    let gradients = B::backward(composed::seed_gradient::<B>(y, upstream));
    let gradients = leaves
        .iter()
        .map(|leaf| numbers::<Flex>(B::grad(leaf, &gradients).expect("a gradient")))
        .collect();
    (values, gradients)
}

/// Sums of `terms` products of numbers about 1 differ by the rounding of each.
fn assert_near(what: &str, ours: &[f32], theirs: &[f32], terms: usize) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let scale = theirs.iter().fold(1.0f32, |most, x| most.max(x.abs()));
    let most = scale * f32::EPSILON * 4.0 * (terms as f32).sqrt().max(8.0);
    for (at, (a, b)) in ours.iter().zip(theirs).enumerate() {
        assert!(
            (a - b).abs() <= most,
            "{what} at {at}: {a} against {b}, at most {most} apart"
        );
    }
}

fn check(
    what: &str,
    shapes: &[&[usize]],
    terms: usize,
    ours: impl Fn(Vec<Taped>) -> Taped,
    theirs: impl Fn(Vec<Taped>) -> Taped,
) {
    let inputs: Vec<F<Flex>> = (0..)
        .zip(shapes)
        .map(|(k, shape)| random(k, shape))
        .collect();
    let (values, gradients) = run(&inputs, &ours);
    let (expected, expected_gradients) = run(&inputs, &theirs);
    assert_near(what, &values, &expected, terms);
    for (k, (ours, theirs)) in gradients.iter().zip(&expected_gradients).enumerate() {
        assert_near(&format!("{what}, gradient {k}"), ours, theirs, terms);
    }
}

#[test]
fn convolutions() {
    for (size, channels, out, kernel, stride, padding) in [
        (7, 3, 5, 3, 1, 1),
        (9, 4, 8, 3, 2, 1),
        (8, 6, 3, 1, 2, 0),
        (11, 1, 2, 5, 3, 2),
    ] {
        let at = Window {
            kernel,
            stride,
            padding,
        };
        for relu in [false, true] {
            let shapes: [&[usize]; 3] = [
                &[3, size, size, channels],
                &[out, kernel, kernel, channels],
                &[out],
            ];
            check(
                &format!("convolution {at:?}"),
                &shapes,
                3 * size * size * kernel * kernel * channels,
                |x| B::nn_conv2d(x[0].clone(), x[1].clone(), Some(x[2].clone()), at, relu),
                |x| composed::conv2d::<B>(x[0].clone(), x[1].clone(), Some(x[2].clone()), at, relu),
            );
            check(
                &format!("convolution without bias {at:?}"),
                &shapes[..2],
                3 * size * size * kernel * kernel * channels,
                |x| B::nn_conv2d(x[0].clone(), x[1].clone(), None, at, relu),
                |x| composed::conv2d::<B>(x[0].clone(), x[1].clone(), None, at, relu),
            );
        }
    }
}

#[test]
fn batch_norms() {
    let shape: &[usize] = &[3, 5, 7, 6];
    let running = || {
        [
            B::from_inner(random(7, &[6])),
            B::from_inner(random(8, &[6])),
        ]
    };
    for relu in [false, true] {
        let mode = NormMode {
            training: true,
            relu,
        };
        for shapes in [&[shape, &[6], &[6]][..], &[shape, &[6], &[6], shape]] {
            let [mut ours, mut theirs] = [running(), running()];
            let apply = |x: Vec<Taped>, running: &mut [Taped; 2], own: bool| {
                let [gamma, beta] = [x[1].clone(), x[2].clone()];
                let (x, residual) = (x[0].clone(), x.get(3).cloned());
                match own {
                    true => B::nn_batch_norm(x, gamma, beta, running, residual, mode),
                    false => composed::batch_norm::<B>(x, gamma, beta, running, residual, mode),
                }
            };
            let cells = [
                std::cell::RefCell::new(&mut ours),
                std::cell::RefCell::new(&mut theirs),
            ];
            check(
                "batch norm",
                shapes,
                3 * 5 * 7 * 16,
                |x| apply(x, &mut cells[0].borrow_mut(), true),
                |x| apply(x, &mut cells[1].borrow_mut(), false),
            );
            for (a, b) in ours.iter().zip(&theirs) {
                assert_near(
                    "statistics",
                    &numbers::<B>(a.clone()),
                    &numbers::<B>(b.clone()),
                    105,
                );
            }
        }
        // Evaluation takes variances as they are: they are not negative.
        let statistics = [random(7, &[6]), Flex::float_abs(random(8, &[6]))];
        let (x, gamma, beta) = (random(1, shape), random(2, &[6]), random(3, &[6]));
        let mode = NormMode {
            training: false,
            relu,
        };
        let of = |own: bool| {
            let (x, gamma, beta) = (x.clone(), gamma.clone(), beta.clone());
            let running = &mut statistics.clone();
            numbers::<Flex>(match own {
                true => Flex::nn_batch_norm(x, gamma, beta, running, None, mode),
                false => composed::batch_norm::<Flex>(x, gamma, beta, running, None, mode),
            })
        };
        assert_near("evaluated batch norm", &of(true), &of(false), 6);
    }
}

#[test]
fn pools_sums_and_functions() {
    let image: &[usize] = &[2, 7, 9, 3];
    for at in [(2, 2, 0), (3, 2, 1), (3, 1, 0)] {
        let at = Window {
            kernel: at.0,
            stride: at.1,
            padding: at.2,
        };
        check(
            "pool",
            &[image],
            9,
            |x| B::nn_max_pool(x[0].clone(), at),
            |x| composed::max_pool::<B>(x[0].clone(), at),
        );
    }
    type Unary = fn(Taped) -> Taped;
    let functions: [(&str, Unary, Unary); 3] = [
        ("average", B::nn_average, composed::average::<B>),
        ("relu", B::nn_relu, composed::relu::<B>),
        // Burn's error function is good to 1.5e-7 in f32.
        ("gelu", B::nn_gelu, composed::gelu::<B>),
    ];
    for (what, ours, theirs) in functions {
        check(
            what,
            &[image],
            63,
            |x| ours(x[0].clone()),
            |x| theirs(x[0].clone()),
        );
    }
    check(
        "sum",
        &[image, image],
        2,
        |x| B::nn_add(x[0].clone(), x[1].clone()),
        |x| composed::add::<B>(x[0].clone(), x[1].clone()),
    );
    check(
        "linear",
        &[&[4, 3, 7], &[5, 7], &[5]],
        64,
        |x| B::nn_linear(x[0].clone(), x[1].clone(), Some(x[2].clone())),
        |x| composed::linear::<B>(x[0].clone(), x[1].clone(), Some(x[2].clone())),
    );
    check(
        "layer norm",
        &[&[4, 3, 7], &[7], &[7]],
        64,
        |x| B::nn_layer_norm(x[0].clone(), x[1].clone(), x[2].clone()),
        |x| composed::layer_norm::<B>(x[0].clone(), x[1].clone(), x[2].clone()),
    );
}

#[test]
fn dropout_takes_the_same_forward_and_backward() {
    let x = random(1, &[40, 50]);
    let (y, gradients) = run(std::slice::from_ref(&x), &|x| {
        B::nn_dropout(x[0].clone(), 0.25, 9)
    });
    let upstream = numbers::<Flex>(random(99, &[40, 50]));
    let x = numbers::<Flex>(x);
    let kept = y.iter().filter(|&&y| y != 0.0).count();
    // 1500 expected, with a deviation of 19.
    assert!((1400..1600).contains(&kept), "{kept}");
    for (i, y) in y.iter().enumerate() {
        let factor = if *y == 0.0 { 0.0 } else { 1.0 / 0.75 };
        assert!((y - x[i] * factor).abs() < 1e-6);
        assert!((gradients[0][i] - upstream[i] * factor).abs() < 1e-6);
    }
}

#[test]
fn sequences() {
    let (steps, batch, width, hidden) = (5, 3, 4, 6);
    let gates = 4 * hidden;
    let shapes: [&[usize]; 5] = [
        &[steps, batch, width],
        &[gates, width],
        &[gates, hidden],
        &[gates],
        &[gates],
    ];
    let state = || [random(20, &[batch, hidden]), random(21, &[batch, hidden])];
    let mut resets = vec![1.0; steps * batch];
    resets[2 * batch + 1] = 0.0;
    for keep in [None, Some(resets.as_slice())] {
        let of = |x: Vec<Taped>, own: bool| {
            let weights = LstmWeights {
                input: x[1].clone(),
                hidden: x[2].clone(),
                input_bias: x[3].clone(),
                hidden_bias: x[4].clone(),
            };
            let state = state().map(B::from_inner);
            match own {
                true => B::nn_lstm(x[0].clone(), weights, state, keep).0,
                false => composed::lstm::<B>(x[0].clone(), weights, state, keep).0,
            }
        };
        check("lstm", &shapes, 256, |x| of(x, true), |x| of(x, false));
    }
    let ids = [3, 0, 3, 6, 1];
    check(
        "embedding",
        &[&[7, 4]],
        4,
        |x| B::nn_embedding(x[0].clone(), &ids),
        |x| composed::embedding::<B>(x[0].clone(), &ids),
    );
    let segments = [1, 1, 2, 2, 2, 1, 1, 1, 2, 0];
    for segments in [None, Some(&segments[..])] {
        check(
            "attention",
            &[&[2, 5, 3, 2, 4]],
            64,
            |x| B::nn_attention(x[0].clone(), segments),
            |x| composed::attention::<B>(x[0].clone(), segments),
        );
    }
}

#[test]
fn losses() {
    let targets = [2, NO_TARGET, 0, 4, 4];
    for smoothing in [0.0, 0.1] {
        let options = LossOptions {
            scale: 0.3,
            smoothing,
        };
        check(
            "cross-entropy",
            &[&[5, 6]],
            30,
            |x| B::nn_cross_entropy(x[0].clone(), &targets, options).0,
            |x| composed::cross_entropy::<B>(x[0].clone(), &targets, options).0,
        );
        let x = || B::from_inner(random(0, &[5, 6]));
        let ours = B::nn_cross_entropy(x(), &targets, options).1;
        let theirs = composed::cross_entropy::<B>(x(), &targets, options).1;
        assert_eq!((ours.rows, ours.correct), (theirs.rows, theirs.correct));
        assert!(
            (ours.loss - theirs.loss).abs() < 1e-5,
            "{ours:?} {theirs:?}"
        );
    }
}

#[test]
fn steps_of_optimisers() {
    use crate::optimiser::{Rule, Slot, Update, by_tensors};
    let rules = [
        Rule::Sgd {
            momentum: 0.0,
            nesterov: false,
        },
        Rule::Sgd {
            momentum: 0.9,
            nesterov: true,
        },
        Rule::AdamW {
            mean_decay: 0.9,
            square_decay: 0.999,
            epsilon: 1e-8,
        },
        Rule::Lars {
            momentum: 0.9,
            trust: 0.001,
        },
    ];
    for rule in rules {
        let slots = || -> Vec<Slot<Flex>> {
            (0..3)
                .map(|k| Slot {
                    weight: random(k, &[4, 5]),
                    gradient: random(k + 10, &[4, 5]),
                    state: (0..rule.states())
                        .map(|_| {
                            reshape::<Flex>(
                                place::<Flex, 1>(vec![0.0; 20], [20], &Default::default()),
                                &[4, 5],
                            )
                        })
                        .collect(),
                    decay: k != 1,
                })
                .collect()
        };
        let (mut ours, mut theirs) = (slots(), slots());
        for step in 1..=3 {
            let update = Update {
                rule,
                rate: 0.1 / step as f32,
                weight_decay: 0.01,
                step,
                scale: 0.5,
            };
            <Flex as Ops>::update(&update, &mut ours);
            by_tensors(&update, &mut theirs);
        }
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let [a, b] = [&ours.weight, &theirs.weight].map(|x| numbers::<Flex>(x.clone()));
            assert_near(&format!("{rule:?}, decay {}", ours.decay), &a, &b, 20);
        }
    }
}
