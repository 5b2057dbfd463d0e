//! Optimisers: one step over all parameters, given gradients that are summed already.

use pelton_kernels::optimizer::{self, AdamW, Lars, Sgd};
use serde::{Deserialize, Serialize};

use crate::tensor::Tensor;

/// How a gradient changes its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// g ← g + βw; v ← m·v + g; w ← w − γ·v, or w − γ·(g + m·v) with Nesterov's look ahead. PyTorch's.
    Sgd {
        /// m.
        momentum: f32,
        /// Whether the step looks ahead.
        nesterov: bool,
    },
    /// Adam with weight decay apart from the gradient (Loshchilov and Hutter, 2019). PyTorch's.
    AdamW {
        /// β₁.
        mean_decay: f32,
        /// β₂.
        square_decay: f32,
        /// ε.
        epsilon: f32,
    },
    /// λ = η‖w‖ / (‖g‖ + β‖w‖); v ← m·v + γλ(g + βw); w ← w − v (You et al., 2017). Parameters without decay take
    /// λ = 1.
    Lars {
        /// m.
        momentum: f32,
        /// η.
        trust: f32,
    },
}

impl Rule {
    /// Numbers kept for each number of a parameter.
    pub fn states(self) -> usize {
        match self {
            Rule::Sgd { momentum, .. } => usize::from(momentum != 0.0),
            Rule::AdamW { .. } => 2,
            Rule::Lars { .. } => 1,
        }
    }
}

/// One step of an optimiser.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    /// The rule.
    pub rule: Rule,
    /// Learning rate γ.
    pub rate: f32,
    /// Weight decay β.
    pub weight_decay: f32,
    /// Steps taken, this one included.
    pub step: u64,
    /// Factor on gradients: clipping, and the inverse of a loss scale.
    pub scale: f32,
}

/// A parameter with its gradient and state.
pub(crate) struct Slot<'a> {
    pub(crate) weight: &'a mut Tensor,
    pub(crate) gradient: Tensor,
    /// [`Rule::states`] tensors of its shape.
    pub(crate) state: &'a mut [Tensor],
    /// Whether weight decay applies.
    pub(crate) decay: bool,
}

impl Update {
    /// Changes parameters in place.
    pub(crate) fn step(&self, slots: Vec<Slot<'_>>) {
        let (decayed, plain): (Vec<_>, Vec<_>) = slots.into_iter().partition(|slot| slot.decay);
        for (mut group, decays) in [(decayed, true), (plain, false)] {
            let weight_decay = if decays { self.weight_decay } else { 0.0 };
            let mut tensors = Vec::new();
            let mut squares: Vec<&mut [f32]> = Vec::new();
            for slot in &mut group {
                let mut states = slot.state.iter_mut().map(Tensor::numbers_mut);
                tensors.push(optimizer::Tensor {
                    weights: slot.weight.numbers_mut(),
                    gradient: &slot.gradient,
                    state: states.next().unwrap_or_default(),
                });
                squares.extend(states.next());
            }
            let (lr, scale) = (self.rate, self.scale);
            match self.rule {
                Rule::Sgd { momentum, nesterov } => Sgd {
                    lr,
                    momentum,
                    weight_decay,
                    nesterov,
                }
                .step(&mut tensors, scale),
                Rule::AdamW {
                    mean_decay,
                    square_decay,
                    epsilon,
                } => AdamW {
                    lr,
                    betas: (mean_decay, square_decay),
                    eps: epsilon,
                    weight_decay,
                }
                .step(&mut tensors, &mut squares, self.step, scale),
                Rule::Lars { momentum, trust } => Lars {
                    lr,
                    momentum,
                    weight_decay,
                    trust: if decays { trust } else { 0.0 },
                }
                .step(&mut tensors, scale),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pelton_key::KeyedRng;

    use super::*;

    /// One step on plain numbers in f64.
    fn plain(of: &Update, decay: bool, w: &mut [f64], g: &[f64], state: &mut [Vec<f64>]) {
        let (rate, scale) = (f64::from(of.rate), f64::from(of.scale));
        let beta = if decay {
            f64::from(of.weight_decay)
        } else {
            0.0
        };
        let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let lambda = match of.rule {
            Rule::Lars { trust, .. } if decay => {
                f64::from(trust) * norm(w) / (scale * norm(g) + beta * norm(w))
            }
            _ => 1.0,
        };
        for (i, (w, g)) in w.iter_mut().zip(g).enumerate() {
            let g = g * scale;
            match of.rule {
                Rule::Sgd { momentum, nesterov } => {
                    let (m, g) = (f64::from(momentum), g + beta * *w);
                    let v = state.first_mut().map_or(g, |state| {
                        state[i] = m * state[i] + g;
                        state[i]
                    });
                    *w -= rate * if nesterov { g + m * v } else { v };
                }
                Rule::AdamW {
                    mean_decay,
                    square_decay,
                    epsilon,
                } => {
                    let [mean, square] = [f64::from(mean_decay), f64::from(square_decay)];
                    state[0][i] = mean * state[0][i] + (1.0 - mean) * g;
                    state[1][i] = square * state[1][i] + (1.0 - square) * g * g;
                    let unbiased = |x: f64, decay: f64| x / (1.0 - decay.powf(of.step as f64));
                    let root = unbiased(state[1][i], square).sqrt() + f64::from(epsilon);
                    *w -= rate * (beta * *w + unbiased(state[0][i], mean) / root);
                }
                Rule::Lars { momentum, .. } => {
                    let v = &mut state[0][i];
                    *v = f64::from(momentum) * *v + rate * lambda * (g + beta * *w);
                    *w -= *v;
                }
            }
        }
    }

    #[test]
    fn parameters_with_and_without_decay_take_the_steps_of_their_rule() {
        let sgd = |momentum, nesterov| Rule::Sgd { momentum, nesterov };
        let rules = [
            sgd(0.0, false),
            sgd(0.9, false),
            sgd(0.9, true),
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
        let random = |key: u64| -> Vec<f32> {
            let mut random = KeyedRng::new(key);
            (0..20).map(|_| random.next_f64() as f32 - 0.5).collect()
        };
        let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|&x| f64::from(x)).collect() };
        for rule in rules {
            let zeros = || vec![Tensor::zeros(&[4, 5]); rule.states()];
            let mut weights: Vec<Tensor> = (0..3)
                .map(|k| Tensor::from_slice(&random(k), &[4, 5]))
                .collect();
            let mut states = [zeros(), zeros(), zeros()];
            let mut expected: Vec<Vec<f64>> = weights.iter().map(|w| wide(w)).collect();
            let mut expected_states = vec![vec![vec![0.0; 20]; rule.states()]; 3];
            for step in 1..=3 {
                let update = Update {
                    rule,
                    rate: 0.1 / step as f32,
                    weight_decay: 0.01,
                    step,
                    scale: 0.5,
                };
                let gradients = [0, 1, 2].map(|k| random(10 * step + k));
                let all = weights.iter_mut().zip(&mut states).zip(&gradients);
                let slots = all
                    .enumerate()
                    .map(|(k, ((weight, state), gradient))| Slot {
                        weight,
                        gradient: Tensor::from_slice(gradient, &[4, 5]),
                        state,
                        decay: k != 1,
                    });
                update.step(slots.collect());
                for k in 0..3 {
                    let gradient = wide(&gradients[k]);
                    let state = &mut expected_states[k];
                    plain(&update, k != 1, &mut expected[k], &gradient, state);
                }
            }
            for (ours, plain) in weights.iter().zip(&expected) {
                for (a, b) in ours.iter().zip(plain) {
                    assert!((f64::from(*a) - b).abs() < 1e-6, "{rule:?}: {a}, not {b}");
                }
            }
        }
    }
}
