//! The operators of nets: `kernels` on a tape. Each computes its result, and gives the tape a closure for the
//! gradients.
//!
//! Images are [batch, height, width, channels]; weights of convolutions [out, kernel height, kernel width, in];
//! sequences [steps, batch, width].

mod attention;
mod bag;
mod convolution;
mod loss;
mod norms;
mod pools;
mod rows;
mod sequence;
#[cfg(test)]
mod tests;

pub(crate) use attention::attention;
pub(crate) use bag::bag;
pub(crate) use convolution::conv2d;
pub(crate) use loss::{counts, loss_gradient};
pub(crate) use norms::{batch_norm, layer_norm};
pub(crate) use pools::{average, max_pool};
pub(crate) use rows::{LOGITS, dropout, gelu, linear, linear_loss, relu, sum};
pub(crate) use sequence::{embedding, lstm};
