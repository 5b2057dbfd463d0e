//! Steps of optimisers, each in one pass over parameters, gradients and state.
//!
//! Clipping by the global norm and the division by the loss scale are one factor, `scale`, applied to each
//! gradient as it is read; the norm itself is one pass of reading before (`gradient_norm`). Work is cut into
//! blocks of fixed size over all tensors together, so small tensors cost no fork each.

use rayon::prelude::*;

use crate::simd::{self, Kernel, Simd};

/// Numbers in a block, the unit of tasks and of sums, so that a norm does not depend on threads.
const BLOCK: usize = 16 * 1024;

/// A parameter with its gradient and one state.
#[derive(Debug)]
pub struct Tensor<'a> {
    /// Changed by the step.
    pub weights: &'a mut [f32],
    /// Only read.
    pub gradient: &'a [f32],
    /// Momentum, or the mean of gradients; zeros before the first step.
    pub state: &'a mut [f32],
}

/// The norm of all gradients together, divided by the loss scale.
///
/// Infinite or NaN exactly if a gradient is: squares are summed in f64, which the largest f32 does not overflow.
pub fn gradient_norm(gradients: &[&[f32]], loss_scale: f32) -> f64 {
    gradient_norm_at(Simd::current(), gradients, loss_scale)
}

pub(crate) fn gradient_norm_at(level: Simd, gradients: &[&[f32]], loss_scale: f32) -> f64 {
    sum_of_squares(level, gradients.iter().copied()).sqrt() / f64::from(loss_scale)
}

/// Factor on each gradient: one over the loss scale, and less if `norm` exceeds `max_norm` (as in
/// `torch.nn.utils.clip_grad_norm_`).
pub fn gradient_scale(norm: f64, max_norm: Option<f64>, loss_scale: f32) -> f32 {
    let clip = max_norm.map_or(1.0, |max| (max / (norm + 1e-6)).min(1.0));
    (clip / f64::from(loss_scale)) as f32
}

/// Stochastic gradient descent as `torch.optim.SGD` has it (dampening 0):
/// g += weight_decay·w; v ← momentum·v + g; w −= lr·(g + momentum·v with Nesterov, else v).
#[derive(Clone, Copy, Debug, Default)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f32,
    /// Share of the velocity kept; at 0 the state is not touched and may be empty.
    pub momentum: f32,
    /// L2 penalty, added to the gradient.
    pub weight_decay: f32,
    /// Look ahead along the velocity.
    pub nesterov: bool,
}

impl Sgd {
    /// One step; `scale` multiplies every gradient.
    pub fn step(&self, tensors: &mut [Tensor<'_>], scale: f32) {
        self.step_at(Simd::current(), tensors, scale);
    }

    pub(crate) fn step_at(&self, level: Simd, tensors: &mut [Tensor<'_>], scale: f32) {
        let Sgd {
            lr,
            momentum,
            weight_decay,
            nesterov,
        } = *self;
        if momentum == 0.0 {
            each_block(tensors, |_, w, g, _| {
                let f = |w: &mut f32, g: f32| *w -= lr * (g * scale + weight_decay * *w);
                simd::run(level, Stateless(w, g, f));
            });
            return;
        }
        each_block(tensors, |_, w, g, v| {
            let f = |w: &mut f32, g: f32, v: &mut f32| {
                let g = g * scale + weight_decay * *w;
                *v = momentum * *v + g;
                *w -= lr * if nesterov { g + momentum * *v } else { *v };
            };
            simd::run(level, OneState(w, g, v, f));
        });
    }
}

/// Layer-wise adaptive rate scaling: λ = η‖w‖ / (‖g‖ + β‖w‖) for each tensor; v ← momentum·v + lr·λ·(g + βw); w −= v. λ
/// is 1 if ‖w‖ or ‖g‖ is 0 (else such a tensor would never move).
#[derive(Clone, Copy, Debug)]
pub struct Lars {
    /// Learning rate, γ.
    pub lr: f32,
    /// Share of the velocity kept.
    pub momentum: f32,
    /// β.
    pub weight_decay: f32,
    /// η, often 0.001; 0 for λ = 1, as biases and scales of normalisations usually have it.
    pub trust: f32,
}

impl Lars {
    /// One step; `scale` multiplies every gradient.
    pub fn step(&self, tensors: &mut [Tensor<'_>], scale: f32) {
        self.step_at(Simd::current(), tensors, scale);
    }

    pub(crate) fn step_at(&self, level: Simd, tensors: &mut [Tensor<'_>], scale: f32) {
        let Lars {
            momentum,
            weight_decay,
            ..
        } = *self;
        let norms: Vec<(f64, f64)> = tensors
            .iter()
            .map(|t| {
                let w = sum_of_squares(level, [&*t.weights]).sqrt();
                let g = sum_of_squares(level, [t.gradient]).sqrt();
                (w, g * f64::from(scale))
            })
            .collect();
        each_block(tensors, |tensor, w, g, v| {
            let rate = self.lr * self.local_rate(norms[tensor].0, norms[tensor].1);
            let f = |w: &mut f32, g: f32, v: &mut f32| {
                *v = momentum * *v + rate * (g * scale + weight_decay * *w);
                *w -= *v;
            };
            simd::run(level, OneState(w, g, v, f));
        });
    }

    /// λ from the norms of a tensor and of its gradient.
    pub fn local_rate(&self, weights: f64, gradient: f64) -> f32 {
        if weights > 0.0 && gradient > 0.0 && self.trust > 0.0 {
            let decay = f64::from(self.weight_decay);
            (f64::from(self.trust) * weights / (gradient + decay * weights)) as f32
        } else {
            1.0
        }
    }
}

/// Adam with decoupled weight decay, as `torch.optim.AdamW` has it.
#[derive(Clone, Copy, Debug)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f32,
    /// Shares of the means of gradients and of their squares kept.
    pub betas: (f32, f32),
    /// Added to the root of the mean square.
    pub eps: f32,
    /// Each step first takes lr·weight_decay of every weight.
    pub weight_decay: f32,
}

impl AdamW {
    /// Step number `step`, counted from 1; `scale` multiplies every gradient. `squares[i]` goes with
    /// `tensors[i]`, zeros before the first step.
    pub fn step(
        &self,
        tensors: &mut [Tensor<'_>],
        squares: &mut [&mut [f32]],
        step: u64,
        scale: f32,
    ) {
        self.step_at(Simd::current(), tensors, squares, step, scale);
    }

    pub(crate) fn step_at(
        &self,
        level: Simd,
        tensors: &mut [Tensor<'_>],
        squares: &mut [&mut [f32]],
        step: u64,
        scale: f32,
    ) {
        assert_eq!(tensors.len(), squares.len(), "tensors and mean squares");
        let blocks: Vec<_> = tensors
            .iter_mut()
            .zip(squares)
            .flat_map(|(t, s)| {
                assert_eq!(t.weights.len(), s.len(), "weights and mean squares");
                blocks_of(t).zip(s.chunks_mut(BLOCK))
            })
            .collect();
        blocks.into_par_iter().for_each(|((w, g, m), s)| {
            self.step_row(level, [w, m, s], g, step, scale);
        });
    }

    /// The same for some numbers, on this thread: weights, and the means of gradients and of their squares.
    pub fn step_row(
        &self,
        level: Simd,
        [w, m, s]: [&mut [f32]; 3],
        gradient: &[f32],
        step: u64,
        scale: f32,
    ) {
        let (b1, b2) = self.betas;
        let power = |beta: f32| f64::from(beta).powf(step as f64);
        let rate = (f64::from(self.lr) / (1.0 - power(b1))) as f32;
        let root = (1.0 / (1.0 - power(b2)).sqrt()) as f32;
        let (keep, eps) = (1.0 - self.lr * self.weight_decay, self.eps);
        let f = |w: &mut f32, g: f32, m: &mut f32, s: &mut f32| {
            let g = g * scale;
            *m += (g - *m) * (1.0 - b1);
            *s = b2 * *s + (1.0 - b2) * (g * g);
            *w = *w * keep - rate * *m / (s.sqrt() * root + eps);
        };
        simd::run(level, TwoStates(w, gradient, m, s, f));
    }
}

type Block<'a> = (&'a mut [f32], &'a [f32], &'a mut [f32]);

fn blocks_of<'a>(t: &'a mut Tensor<'_>) -> impl Iterator<Item = Block<'a>> {
    assert_eq!(t.weights.len(), t.gradient.len(), "weights and gradients");
    assert!(
        t.state.is_empty() || t.weights.len() == t.state.len(),
        "weights and state"
    );
    let states = t
        .state
        .chunks_mut(BLOCK)
        .map(Some)
        .chain(std::iter::repeat_with(|| None));
    t.weights
        .chunks_mut(BLOCK)
        .zip(t.gradient.chunks(BLOCK))
        .zip(states)
        .map(|((w, g), v)| (w, g, v.unwrap_or_default()))
}

/// Calls `f` with the number of each tensor and each of its blocks, on all threads.
fn each_block<F>(tensors: &mut [Tensor<'_>], f: F)
where
    F: Fn(usize, &mut [f32], &[f32], &mut [f32]) + Sync,
{
    let blocks: Vec<(usize, Block<'_>)> = tensors
        .iter_mut()
        .enumerate()
        .flat_map(|(i, t)| blocks_of(t).map(move |block| (i, block)))
        .collect();
    blocks
        .into_par_iter()
        .for_each(|(i, (w, g, v))| f(i, w, g, v));
}

fn sum_of_squares<'a>(level: Simd, slices: impl IntoIterator<Item = &'a [f32]>) -> f64 {
    let blocks: Vec<&[f32]> = slices.into_iter().flat_map(|s| s.chunks(BLOCK)).collect();
    let sums: Vec<f64> = blocks
        .into_par_iter()
        .map(|block| simd::run(level, Squares(block)))
        .collect();
    sums.iter().sum()
}

struct Squares<'a>(&'a [f32]);

impl Kernel for Squares<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut lanes = [0.0; 32];
        let (whole, rest) = self.0.as_chunks::<32>();
        for chunk in whole {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane += f64::from(x) * f64::from(x);
            }
        }
        let rest: f64 = rest.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        lanes.iter().sum::<f64>() + rest
    }
}

struct Stateless<'a, F>(&'a mut [f32], &'a [f32], F);

impl<F: Fn(&mut f32, f32)> Kernel for Stateless<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (w, &g) in self.0.iter_mut().zip(self.1) {
            (self.2)(w, g);
        }
    }
}

struct OneState<'a, F>(&'a mut [f32], &'a [f32], &'a mut [f32], F);

impl<F: Fn(&mut f32, f32, &mut f32)> Kernel for OneState<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for ((w, &g), v) in self.0.iter_mut().zip(self.1).zip(self.2) {
            (self.3)(w, g, v);
        }
    }
}

struct TwoStates<'a, F>(&'a mut [f32], &'a [f32], &'a mut [f32], &'a mut [f32], F);

impl<F: Fn(&mut f32, f32, &mut f32, &mut f32)> Kernel for TwoStates<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (((w, &g), m), s) in self.0.iter_mut().zip(self.1).zip(self.2).zip(self.3) {
            (self.4)(w, g, m, s);
        }
    }
}
