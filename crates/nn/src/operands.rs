//! What operators take and give: tensors whose shape is known at run time, windows, modes, counts.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_tensor::{Tensor, TensorData, TensorPrimitive};

/// A tensor of f32 with its shape at run time.
pub type F<B> = FloatTensor<B>;

/// Where a window of a convolution or a pool stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Height and width.
    pub kernel: usize,
    /// Rows and columns from one to the next.
    pub stride: usize,
    /// Rows and columns of zeros around the image.
    pub padding: usize,
}

impl Window {
    /// Windows along a side of `size`; 0 where the image is smaller than the kernel.
    pub fn over(self, size: usize) -> usize {
        (size + 2 * self.padding)
            .checked_sub(self.kernel)
            .map_or(0, |rest| rest / self.stride + 1)
    }
}

/// What a batch norm does beside normalising.
#[derive(Clone, Copy, Debug)]
pub struct NormMode {
    /// Whether the statistics are those of the batch, and the running ones follow them.
    pub training: bool,
    /// Whether negative results become 0.
    pub relu: bool,
}

/// ε of batch norms and layer norms.
pub const EPSILON: f32 = 1e-5;
/// How far running statistics move towards those of a batch.
pub const MOMENTUM: f32 = 0.1;

/// The weights of one LSTM layer: PyTorch's, gates in the order i, f, g, o.
#[derive(Clone, Debug)]
pub struct LstmWeights<B: Backend> {
    /// [4·hidden, width of the input].
    pub input: F<B>,
    /// [4·hidden, hidden].
    pub hidden: F<B>,
    /// [4·hidden].
    pub input_bias: F<B>,
    /// [4·hidden].
    pub hidden_bias: F<B>,
}

impl<B: Backend> LstmWeights<B> {
    /// In the order of the fields.
    pub(crate) fn all(self) -> [F<B>; 4] {
        [self.input, self.hidden, self.input_bias, self.hidden_bias]
    }
}

/// How the loss of a batch is counted.
#[derive(Clone, Copy, Debug)]
pub struct LossOptions {
    /// The loss is the sum over the rows times this.
    pub scale: f32,
    /// Part of the probability that the target shares with all classes alike.
    pub smoothing: f32,
}

/// What a loss counted, without its scale.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Sum of the losses of the rows; −log p of the targets where nothing is smoothed.
    pub loss: f64,
    /// Rows that have a target.
    pub rows: u64,
    /// Rows whose largest logit is that of the target.
    pub correct: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.loss += other.loss;
        self.rows += other.rows;
        self.correct += other.correct;
    }
}

/// A target that is none: padding.
pub const NO_TARGET: i64 = -1;

/// Places numbers on a device.
pub(crate) fn place<B: Backend, const D: usize>(
    values: Vec<f32>,
    shape: [usize; D],
    device: &B::Device,
) -> F<B> {
    let data = TensorData::new(values, shape);
    B::float_from_data(data, device)
}

/// The numbers of a tensor.
pub(crate) fn numbers<B: Backend>(x: F<B>) -> Vec<f32> {
    let all = dims::<B>(&x).iter().product();
    let x = Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(reshape::<B>(x, &[all])));
    let data = x.into_data().convert::<f32>();
    data.to_vec().expect("just converted to f32")
}

/// The sizes of a tensor.
pub(crate) fn dims<B: Backend>(x: &F<B>) -> Vec<usize> {
    x.shape().to_vec()
}

/// The same numbers under another shape.
pub(crate) fn reshape<B: Backend>(x: F<B>, shape: &[usize]) -> F<B> {
    B::float_reshape(x, burn_std::Shape::from(shape.to_vec()))
}
