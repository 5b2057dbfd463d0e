//! Cross-entropy, norms of gradients, and steps of optimisers.

use burn_flex::FlexTensor;
use pelton_kernels::optimizer::{AdamW, Lars, Sgd, Tensor, gradient_norm};
use pelton_kernels::{CrossEntropy, Loss, Targets, Upstream};

use super::sizes;
use super::tape::{Taped, record};
use crate::memory::{Block, contiguous, owned, slice};
use crate::operands::{Counts, LossOptions, NO_TARGET};
use crate::optimiser::{Rule, Slot, Update};

fn of(loss: &Loss) -> Counts {
    Counts {
        loss: loss.sum,
        rows: loss.count as u64,
        correct: loss.correct as u64,
    }
}

fn cross_entropy(targets: &[i64], classes: usize, smoothing: f32) -> CrossEntropy<'_> {
    CrossEntropy {
        classes,
        targets: Targets::I64(targets),
        ignore: Some(NO_TARGET),
        smoothing,
        bias: None,
    }
}

pub(super) fn counts(logits: &FlexTensor, targets: &[i64]) -> Counts {
    let logits = contiguous(logits.clone());
    let classes = sizes(&logits)[1];
    of(&cross_entropy(targets, classes, 0.0).loss(slice(&logits), None))
}

/// The gradient is made at once, in the memory of the logits where nothing else holds it.
pub(super) fn taped(mut logits: Taped, targets: &[i64], options: LossOptions) -> (Taped, Counts) {
    let nothing = Block::new(0).tensor(&[0]);
    let mut gradient = owned(std::mem::replace(&mut logits.primitive, nothing));
    let classes = sizes(&gradient)[1];
    let upstream = Upstream::Sum(options.scale);
    let loss = cross_entropy(targets, classes, options.smoothing).gradient(
        gradient.storage_mut(),
        upstream,
        None,
        None,
    );
    let value = (loss.sum * f64::from(options.scale)) as f32;
    let value = Block::of(&[value]).tensor(&[1]);
    let taped = record([&logits], value, move |upstream, _| {
        let factor = slice(&upstream)[0];
        if factor != 1.0 {
            let numbers: &mut [f32] = gradient.storage_mut();
            numbers.iter_mut().for_each(|g| *g *= factor);
        }
        [Some(gradient)]
    });
    (taped, of(&loss))
}

pub(super) fn norm(tensors: &[FlexTensor]) -> f64 {
    let tensors: Vec<FlexTensor> = tensors.iter().cloned().map(contiguous).collect();
    let slices: Vec<&[f32]> = tensors.iter().map(slice).collect();
    gradient_norm(&slices, 1.0)
}

pub(super) fn update(update: &Update, slots: &mut [Slot<burn_flex::Flex>]) {
    for slot in &mut *slots {
        let take = |x: &mut FlexTensor| {
            let empty = Block::new(0).tensor(&[0]);
            *x = owned(std::mem::replace(x, empty));
        };
        take(&mut slot.weight);
        slot.state.iter_mut().for_each(take);
        slot.gradient = contiguous(slot.gradient.clone());
    }
    let (decayed, plain): (Vec<_>, Vec<_>) = slots.iter_mut().partition(|slot| slot.decay);
    for (group, decays) in [(decayed, true), (plain, false)] {
        let weight_decay = if decays { update.weight_decay } else { 0.0 };
        let mut tensors = Vec::new();
        let mut squares: Vec<&mut [f32]> = Vec::new();
        for slot in group {
            let mut states = slot.state.iter_mut().map(FlexTensor::storage_mut);
            tensors.push(Tensor {
                weights: slot.weight.storage_mut(),
                gradient: slice(&slot.gradient),
                state: states.next().unwrap_or_default(),
            });
            squares.extend(states.next());
        }
        let (lr, scale) = (update.rate, update.scale);
        match update.rule {
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
            .step(&mut tensors, &mut squares, update.step, scale),
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
