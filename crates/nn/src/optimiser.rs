//! Optimisers: one step over all parameters, given gradients that are summed already.

use burn_backend::Backend;
use burn_tensor::{Tensor, TensorPrimitive};
use serde::{Deserialize, Serialize};

use crate::operands::F;

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
    /// Numbers kept beside each parameter.
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
    /// What gradients are multiplied by first: clipping, and the inverse of a loss scale.
    pub scale: f32,
}

/// A parameter and what changes with it.
#[derive(Debug)]
pub struct Slot<B: Backend> {
    /// The parameter, alone in holding its memory.
    pub weight: F<B>,
    /// Its gradient.
    pub gradient: F<B>,
    /// As many tensors of its shape as [`Rule::states`] says.
    pub state: Vec<F<B>>,
    /// Whether weight decay applies.
    pub decay: bool,
}

/// The step, composed of Burn's operators.
pub(crate) fn by_tensors<B: Backend>(update: &Update, slots: &mut [Slot<B>]) {
    let t = |x: &F<B>| {
        let all = crate::operands::dims::<B>(x).iter().product();
        let flat = crate::operands::reshape::<B>(x.clone(), &[all]);
        Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(flat))
    };
    for slot in slots {
        let shape = crate::operands::dims::<B>(&slot.weight);
        let put =
            |x: Tensor<B, 1>| crate::operands::reshape::<B>(x.into_primitive().tensor(), &shape);
        let (w, g) = (t(&slot.weight), t(&slot.gradient) * update.scale);
        let beta = if slot.decay { update.weight_decay } else { 0.0 };
        slot.weight = match update.rule {
            Rule::Sgd { momentum, nesterov } => {
                let g = g + w.clone() * beta;
                let mut step = g.clone();
                if let Some(v) = slot.state.first_mut() {
                    // PyTorch begins with v = g, which is what zeros give.
                    let next = t(v) * momentum + g.clone();
                    *v = put(next.clone());
                    step = if nesterov { g + next * momentum } else { next };
                }
                put(w - step * update.rate)
            }
            Rule::AdamW {
                mean_decay,
                square_decay,
                epsilon,
            } => {
                let mean = t(&slot.state[0]) * mean_decay + g.clone() * (1.0 - mean_decay);
                let square =
                    t(&slot.state[1]) * square_decay + g.powi_scalar(2) * (1.0 - square_decay);
                slot.state = vec![put(mean.clone()), put(square.clone())];
                let power = |decay: f32| (1.0 - f64::from(decay).powf(update.step as f64)) as f32;
                let root = (square / power(square_decay)).sqrt() + epsilon;
                let w = w * (1.0 - update.rate * beta);
                put(w - mean / power(mean_decay) / root * update.rate)
            }
            Rule::Lars { momentum, trust } => {
                let norm = |x: &Tensor<B, 1>| {
                    B::float_sum(x.clone().powi_scalar(2).into_primitive().tensor())
                };
                let norm = |x: &Tensor<B, 1>| crate::operands::numbers::<B>(norm(x))[0].sqrt();
                let lambda = match (norm(&w), norm(&g)) {
                    (w, g) if slot.decay && w > 0.0 && g > 0.0 => trust * w / (g + beta * w),
                    _ => 1.0,
                };
                let v =
                    t(&slot.state[0]) * momentum + (g + w.clone() * beta) * (update.rate * lambda);
                slot.state[0] = put(v.clone());
                put(w - v)
            }
        };
    }
}
