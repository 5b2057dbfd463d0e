//! Settings and results of operators: windows, modes, counts.

/// The geometry of the windows of a convolution or pool.
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
    /// Windows along a side of `size`; 0 if the image is smaller than the kernel.
    pub fn over(self, size: usize) -> usize {
        (size + 2 * self.padding)
            .checked_sub(self.kernel)
            .map_or(0, |rest| rest / self.stride + 1)
    }
}

/// The operations of a batch norm after normalising.
#[derive(Clone, Copy, Debug)]
pub struct NormMode {
    /// Whether to use the statistics of the batch and update the running ones.
    pub training: bool,
    /// Whether negative results become 0.
    pub relu: bool,
}

/// ε of batch norms and layer norms.
pub const EPSILON: f32 = 1e-5;
/// How far running statistics move towards those of a batch.
pub const MOMENTUM: f32 = 0.1;

/// Options of the loss of a batch.
#[derive(Clone, Copy, Debug)]
pub struct LossOptions<'a> {
    /// The loss is the sum over the rows times this.
    pub scale: f32,
    /// Part of the target's probability that is spread evenly over all classes.
    pub smoothing: f32,
    /// A factor on the losses of each class; `None` for equal weights. Not with smoothing.
    pub class_weights: Option<&'a [f32]>,
}

impl LossOptions<'_> {
    /// The factors of these targets.
    pub(crate) fn factors<T: Copy + TryInto<usize>>(&self, targets: &[T]) -> Option<Vec<f32>> {
        let weights = self.class_weights?;
        let of = |&target: &T| target.try_into().ok().and_then(|class| weights.get(class));
        // Targets that are not classes have weight 0.
        Some(
            targets
                .iter()
                .map(|y| of(y).copied().unwrap_or(0.0))
                .collect(),
        )
    }
}

/// The figures of a loss, without its scale.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Sum of the losses of the rows, each times the factor of its class; −log p of the targets without smoothing.
    pub loss: f64,
    /// Rows that have a target.
    pub rows: u64,
    /// Rows with the target as the largest logit.
    pub correct: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.loss += other.loss;
        self.rows += other.rows;
        self.correct += other.correct;
    }
}

/// The target of padding, which does not count.
pub const NO_TARGET: i64 = -1;
