//! A net whose rows are features for a head over many classes: forward and backward apart, with the head between.

use burn_backend::AutodiffBackend;

use crate::error::NnError;
use crate::input::Input;
use crate::on_device::{Inner, OnDevice};
use crate::operands::{dims, numbers, place, reshape};
use crate::ops::Ops;
use crate::trainer::Trainer;

/// A net that is asked for features, and later told their gradients.
pub(crate) trait FeatureNet: Trainer {
    /// Features [rows, width] of a batch; a tape is kept until [`backward`](FeatureNet::backward).
    fn forward(&mut self, input: Input<'_>, key: u64) -> Result<Vec<f32>, NnError>;

    /// Takes the gradients of the features of the earliest batch that still has a tape; none on a rank without rows.
    /// The `last` time in a step the gradients of all batches are summed over the ranks.
    fn backward(&mut self, gradient: Option<Vec<f32>>, last: bool) -> Result<(), NnError>;
}

impl<B> FeatureNet for OnDevice<B>
where
    B: AutodiffBackend + Ops,
    Inner<B>: Ops,
{
    fn forward(&mut self, input: Input<'_>, key: u64) -> Result<Vec<f32>, NnError> {
        if self.net.layers.is_empty() {
            return self.logits(input);
        }
        let (tape, _) = self.go_forward(input, key)?;
        let features = numbers::<Inner<B>>(B::inner(tape.end()));
        self.tapes.push_back(tape);
        Ok(features)
    }

    fn backward(&mut self, gradient: Option<Vec<f32>>, last: bool) -> Result<(), NnError> {
        if self.net.layers.is_empty() {
            return Ok(());
        }
        self.with_comm(|net, comm| {
            let sums = last.then_some(comm);
            let Some(gradient) = gradient else {
                return net.take_part(sums);
            };
            let tape = net.tapes.pop_front().expect("a forward pass");
            let end = tape.end();
            let sizes = dims::<B>(&end);
            let upstream = place::<Inner<B>, 1>(gradient, [sizes.iter().product()], &net.device);
            let upstream = B::from_inner(reshape::<Inner<B>>(upstream, &sizes));
            let from = B::seed_gradient(end, upstream);
            net.go_backward(tape, from, sums)
        })
    }
}
