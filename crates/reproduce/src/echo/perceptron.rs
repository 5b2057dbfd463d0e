//! A small net that learns pictures: one hidden layer, trained by stochastic gradient descent with momentum.
//!
//! ```text
//! h = relu(x·W₁ + b₁)    z = h·W₂ + b₂    loss = mean over the batch of −log softmax(z)[label]
//! v ← μ·v + ∂loss        w ← w − η·v
//! ```
//!
//! | symbol | meaning |
//! |---|---|
//! | `x` | the bytes of a picture over 255, `[inputs]` |
//! | `W₁`, `b₁` | `[inputs, hidden]`, `[hidden]` |
//! | `W₂`, `b₂` | `[hidden, classes]`, `[classes]` |
//!
//! All weights lie in one vector, in that order, and so do gradient and velocity. Black pixels are passed over in
//! both directions, which on clothes is half of the work. Sums are made in the order of the batch, so that the
//! same seed and batches give the same weights.

use pelton_key::{KeyedRng, Stage, key};

/// Generator of the weights at the start.
const WEIGHTS: Stage = Stage::Demo(40);

/// Numbers of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub inputs: usize,
    pub hidden: usize,
    pub classes: usize,
}

impl Sizes {
    fn weights(self) -> usize {
        self.second_bias() + self.classes
    }

    fn first_bias(self) -> usize {
        self.inputs * self.hidden
    }

    fn second(self) -> usize {
        self.first_bias() + self.hidden
    }

    fn second_bias(self) -> usize {
        self.second() + self.hidden * self.classes
    }
}

/// The net with its velocity.
#[derive(Clone, Debug)]
pub(super) struct Perceptron {
    sizes: Sizes,
    weights: Vec<f32>,
    velocity: Vec<f32>,
    /// Sum of the weights after each step since the last [`Perceptron::take_mean`], and their number.
    sum: Vec<f32>,
    summed: u32,
    /// Of the last batch: gradient, hidden units, and what the loss would gain from them and from the logits.
    gradient: Vec<f32>,
    hidden: Vec<f32>,
    towards_hidden: Vec<f32>,
    logits: Vec<f32>,
}

/// How well a net does on pictures it has not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Quality {
    /// Share of the pictures whose class it names.
    pub accuracy: f64,
    /// Mean cross entropy in nats.
    pub loss: f64,
}

impl Perceptron {
    /// Weights from a normal distribution of variance 2/inputs (He et al., ICCV 2015), biases 0.
    pub fn new(sizes: Sizes, seed: u64) -> Perceptron {
        let mut rng = KeyedRng::new(key(seed, 0, WEIGHTS));
        let mut weights = vec![0.0; sizes.weights()];
        let (first, rest) = weights.split_at_mut(sizes.first_bias());
        fill_normal(first, sizes.inputs, &mut rng);
        let second = &mut rest[sizes.hidden..sizes.hidden + sizes.hidden * sizes.classes];
        fill_normal(second, sizes.hidden, &mut rng);
        Perceptron {
            sizes,
            velocity: vec![0.0; weights.len()],
            sum: vec![0.0; weights.len()],
            summed: 0,
            gradient: vec![0.0; weights.len()],
            weights,
            hidden: Vec::new(),
            towards_hidden: Vec::new(),
            logits: Vec::new(),
        }
    }

    /// One step on a batch: `pictures` has `inputs` bytes for each label.
    pub fn step(&mut self, pictures: &[u8], labels: &[u32], rate: f32, momentum: f32) {
        if labels.is_empty() {
            return;
        }
        self.differentiate(pictures, labels);
        let updates = self.weights.iter_mut().zip(&mut self.velocity);
        for ((weight, velocity), gradient) in updates.zip(&self.gradient) {
            *velocity = momentum * *velocity + gradient;
            *weight -= rate * *velocity;
        }
        add_scaled(&mut self.sum, 1.0, &self.weights);
        self.summed += 1;
    }

    /// A net with the mean of the weights since the last call: with a constant rate single weights go up and
    /// down with the last few batches, which their mean does not (Polyak and Juditsky, 1992).
    pub fn take_mean(&mut self) -> Perceptron {
        let mut mean = self.clone();
        if self.summed > 0 {
            mean.weights.fill(0.0);
            add_scaled(&mut mean.weights, 1.0 / self.summed as f32, &self.sum);
        }
        self.sum.fill(0.0);
        self.summed = 0;
        mean
    }

    /// Quality on held-out pictures.
    pub fn quality(&mut self, pictures: &[u8], labels: &[u32]) -> Quality {
        let mut right = 0_usize;
        let mut loss = 0.0;
        let chunk = 256;
        let inputs = self.sizes.inputs;
        for (pictures, labels) in pictures.chunks(chunk * inputs).zip(labels.chunks(chunk)) {
            self.forward(pictures, labels.len());
            for (logits, &label) in self.logits.chunks(self.sizes.classes).zip(labels) {
                let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
                right += usize::from(best == Some(label as usize));
                loss += cross_entropy(logits, label);
            }
        }
        let count = labels.len().max(1) as f64;
        Quality {
            accuracy: right as f64 / count,
            loss: loss / count,
        }
    }

    fn forward(&mut self, pictures: &[u8], batch: usize) {
        let Sizes {
            inputs,
            hidden,
            classes,
        } = self.sizes;
        let (first, rest) = self.weights.split_at(self.sizes.first_bias());
        let (first_bias, rest) = rest.split_at(hidden);
        let (second, second_bias) = rest.split_at(hidden * classes);
        self.hidden.resize(batch * hidden, 0.0);
        self.logits.resize(batch * classes, 0.0);
        let units = self.hidden.chunks_exact_mut(hidden);
        let logits = self.logits.chunks_exact_mut(classes);
        for ((picture, units), logits) in pictures.chunks_exact(inputs).zip(units).zip(logits) {
            units.copy_from_slice(first_bias);
            for (&pixel, weights) in picture.iter().zip(first.chunks_exact(hidden)) {
                if pixel > 0 {
                    add_scaled(units, value(pixel), weights);
                }
            }
            logits.copy_from_slice(second_bias);
            for (unit, weights) in units.iter_mut().zip(second.chunks_exact(classes)) {
                *unit = unit.max(0.0);
                add_scaled(logits, *unit, weights);
            }
        }
    }

    /// Puts the gradient of the mean loss of a batch into `gradient`.
    fn differentiate(&mut self, pictures: &[u8], labels: &[u32]) {
        let Sizes {
            inputs,
            hidden,
            classes,
        } = self.sizes;
        self.forward(pictures, labels.len());
        let scale = 1.0 / labels.len() as f32;
        // From here on `logits` holds what the loss gains from each: (softmax − one-hot)/batch.
        for (logits, &label) in self.logits.chunks_exact_mut(classes).zip(labels) {
            softmax(logits);
            logits[label as usize] -= 1.0;
            logits.iter_mut().for_each(|logit| *logit *= scale);
        }
        self.gradient.fill(0.0);
        self.towards_hidden.clear();
        let second = &self.weights[self.sizes.second()..self.sizes.second_bias()];
        let (first_gradient, rest) = self.gradient.split_at_mut(self.sizes.first_bias());
        let (first_bias, rest) = rest.split_at_mut(hidden);
        let (second_gradient, second_bias) = rest.split_at_mut(hidden * classes);
        let units = self.hidden.chunks_exact(hidden);
        for (units, gains) in units.zip(self.logits.chunks_exact(classes)) {
            add_scaled(second_bias, 1.0, gains);
            let gradients = second_gradient.chunks_exact_mut(classes);
            let rows = units
                .iter()
                .zip(second.chunks_exact(classes))
                .zip(gradients);
            for ((&unit, weights), gradient) in rows {
                let passes = unit > 0.0;
                let products = weights.iter().zip(gains).map(|(w, g)| w * g);
                let gain: f32 = if passes { products.sum() } else { 0.0 };
                self.towards_hidden.push(gain);
                add_scaled(gradient, unit, gains);
            }
        }
        for gains in self.towards_hidden.chunks_exact(hidden) {
            add_scaled(first_bias, 1.0, gains);
        }
        // Pixel by pixel, so that a row of the gradient stays in the cache for the whole batch.
        for (pixel, gradient) in first_gradient.chunks_exact_mut(hidden).enumerate() {
            let column = pictures.iter().skip(pixel).step_by(inputs);
            for (&pixel, gains) in column.zip(self.towards_hidden.chunks_exact(hidden)) {
                if pixel > 0 {
                    add_scaled(gradient, value(pixel), gains);
                }
            }
        }
    }
}

fn value(pixel: u8) -> f32 {
    f32::from(pixel) / 255.0
}

fn add_scaled(to: &mut [f32], scale: f32, from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += scale * from;
    }
}

fn softmax(logits: &mut [f32]) {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for logit in logits.iter_mut() {
        *logit = libm::expf(*logit - largest);
        sum += *logit;
    }
    logits.iter_mut().for_each(|logit| *logit /= sum);
}

fn cross_entropy(logits: &[f32], label: u32) -> f64 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits
        .iter()
        .map(|logit| libm::exp(f64::from(logit - largest)))
        .sum();
    libm::log(sum) - f64::from(logits[label as usize] - largest)
}

/// Normal numbers of variance 2/inputs, by Box and Muller.
fn fill_normal(weights: &mut [f32], inputs: usize, rng: &mut KeyedRng) {
    let deviation = libm::sqrt(2.0 / inputs as f64);
    for weight in weights {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - rng.next_f64()));
        let angle = std::f64::consts::TAU * rng.next_f64();
        *weight = (deviation * radius * libm::cos(angle)) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes {
        inputs: 9,
        hidden: 7,
        classes: 4,
    };

    fn batch(count: usize, sizes: Sizes, seed: u64) -> (Vec<u8>, Vec<u32>) {
        let mut rng = KeyedRng::new(seed);
        let pixel = |rng: &mut KeyedRng| rng.below(512).saturating_sub(256) as u8;
        let pictures = (0..count * sizes.inputs).map(|_| pixel(&mut rng)).collect();
        let labels = (0..count).map(|_| rng.below(sizes.classes as u64) as u32);
        (pictures, labels.collect())
    }

    /// The loss by its definition, in double precision.
    fn loss(sizes: Sizes, weights: &[f64], pictures: &[u8], labels: &[u32]) -> f64 {
        let Sizes {
            inputs,
            hidden,
            classes,
        } = sizes;
        let at = |i: usize| weights[i];
        let mut sum = 0.0;
        for (picture, &label) in pictures.chunks(inputs).zip(labels) {
            let units: Vec<f64> = (0..hidden)
                .map(|h| {
                    let x = |i: usize| f64::from(picture[i]) / 255.0;
                    let dot: f64 = (0..inputs).map(|i| x(i) * at(i * hidden + h)).sum();
                    (dot + at(sizes.first_bias() + h)).max(0.0)
                })
                .collect();
            let logits: Vec<f64> = (0..classes)
                .map(|c| {
                    let weight = |h: usize| at(sizes.second() + h * classes + c);
                    let dot: f64 = (0..hidden).map(|h| units[h] * weight(h)).sum();
                    dot + at(sizes.second_bias() + c)
                })
                .collect();
            let exponentials: f64 = logits.iter().map(|z| z.exp()).sum();
            sum += exponentials.ln() - logits[label as usize];
        }
        sum / labels.len() as f64
    }

    #[test]
    fn the_gradient_is_that_of_the_loss() {
        for seed in 0..5 {
            let mut net = Perceptron::new(SIZES, seed);
            // Biases away from 0, where a black picture would put a unit on the bend of its function.
            for (i, weight) in net.weights.iter_mut().enumerate() {
                *weight += 0.01 * (1 + i % 7) as f32;
            }
            let (pictures, labels) = batch(13, SIZES, seed);
            net.differentiate(&pictures, &labels);
            let weights: Vec<f64> = net.weights.iter().map(|&w| f64::from(w)).collect();
            for i in 0..weights.len() {
                let moved = |by: f64| {
                    let mut moved = weights.clone();
                    moved[i] += by;
                    loss(SIZES, &moved, &pictures, &labels)
                };
                let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
                // Single precision: some 100 roundings of 6e-8 in sums of terms below 1.
                let error = (slope - f64::from(net.gradient[i])).abs();
                assert!(error < 1e-5, "weight {i}: {slope} {}", net.gradient[i]);
            }
            let expected = loss(SIZES, &weights, &pictures, &labels);
            assert!((net.quality(&pictures, &labels).loss - expected).abs() < 1e-5);
        }
    }

    #[test]
    fn momentum_adds_up_as_it_is_defined() {
        let mut net = Perceptron::new(SIZES, 1);
        let (pictures, labels) = batch(5, SIZES, 1);
        let mut expected = net.weights.clone();
        let mut velocity = vec![0.0; expected.len()];
        for _ in 0..3 {
            let mut at = net.clone();
            at.differentiate(&pictures, &labels);
            for i in 0..expected.len() {
                velocity[i] = 0.9 * velocity[i] + at.gradient[i];
                expected[i] -= 0.1 * velocity[i];
            }
            net.step(&pictures, &labels, 0.1, 0.9);
        }
        assert_eq!(net.weights, expected);
    }

    #[test]
    fn the_mean_is_over_the_steps_since_the_last() {
        let mut net = Perceptron::new(SIZES, 2);
        let (pictures, labels) = batch(5, SIZES, 2);
        assert_eq!(net.take_mean().weights, net.weights, "no step yet");
        for steps in [1, 4] {
            let mut sum = vec![0.0_f64; net.weights.len()];
            for _ in 0..steps {
                net.step(&pictures, &labels, 0.1, 0.9);
                let each = sum.iter_mut().zip(&net.weights);
                each.for_each(|(sum, &weight)| *sum += f64::from(weight));
            }
            let before = net.weights.clone();
            let mean = net.take_mean();
            for (mean, sum) in mean.weights.iter().zip(sum) {
                // A few roundings of weights below 2.
                assert!((f64::from(*mean) - sum / f64::from(steps)).abs() < 2e-6);
            }
            assert_eq!(net.weights, before);
        }
    }

    #[test]
    fn it_learns_what_can_be_learnt_and_the_same_each_time() {
        let sizes = Sizes {
            inputs: 16,
            hidden: 12,
            classes: 4,
        };
        // The class is the brightest quarter of the picture.
        let (mut pictures, labels) = batch(400, sizes, 3);
        for (picture, &label) in pictures.chunks_mut(16).zip(&labels) {
            picture[4 * label as usize..][..4].fill(250);
        }
        let train = |seed| {
            let mut net = Perceptron::new(sizes, seed);
            for _ in 0..40 {
                for (pictures, labels) in pictures.chunks(16 * 20).zip(labels.chunks(20)) {
                    net.step(pictures, labels, 0.05, 0.9);
                }
            }
            net
        };
        let mut net = train(5);
        let before = Perceptron::new(sizes, 5).quality(&pictures, &labels);
        let after = net.quality(&pictures, &labels);
        assert!(before.accuracy < 0.6, "{before:?}");
        assert!(after.accuracy > 0.97 && after.loss < 0.2, "{after:?}");
        assert_eq!(net.weights, train(5).weights);
        assert_ne!(net.weights, train(6).weights);
    }
}
