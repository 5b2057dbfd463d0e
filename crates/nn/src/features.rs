//! A net that outputs features for a head over many classes: separate forward and backward passes, with the head
//! between them.

use crate::data_parallel::DataParallel;
use crate::error::NnError;
use crate::input::Input;
use crate::tensor::Tensor;
use crate::trainer::Trainer;

/// A net that computes features, and later receives their gradients.
pub(crate) trait FeatureNet: Trainer {
    /// Features [rows, width] of a batch; a tape is kept until [`backward`](FeatureNet::backward).
    fn forward(&mut self, input: Input<'_>, key: u64) -> Result<Vec<f32>, NnError>;

    /// Takes the gradients of the features of the earliest batch that still has a tape; `None` on a rank without rows.
    /// The `last` time in a step the gradients of all batches are summed over the ranks.
    fn backward(&mut self, gradient: Option<Vec<f32>>, last: bool) -> Result<(), NnError>;
}

impl FeatureNet for DataParallel {
    fn forward(&mut self, input: Input<'_>, key: u64) -> Result<Vec<f32>, NnError> {
        if self.net.layers.is_empty() {
            return self.logits(input);
        }
        let passed = self.go_forward(input, key, None)?;
        self.pending.push_back(passed.segments);
        Ok(passed.end.to_vec())
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
            let segments = net.pending.pop_front().expect("a forward pass");
            let width = net.net.classes;
            let gradient = Tensor::from_slice(&gradient, &[gradient.len() / width, width]);
            net.go_backward(segments, gradient, sums)
        })
    }
}
