//! The loss of a batch over rows that belong to the caller, and its gradients, without a step.

use pelton_comm::Comm;
use pelton_kernels::Precision;

use crate::error::HeadError;
use crate::head::{Active, Head};
use crate::labels::Labels;
use crate::logits::Logits;
use crate::table::Table;

/// Products of this many bytes are kept for the gradients of the rows.
const SCRATCH_BYTES: usize = 64 << 20;

/// The weights of all classes, and how they are compared with features.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// \[classes, d\].
    pub weights: &'a [f32],
    /// Numbers in a row.
    pub d: usize,
    /// How features and rows are compared.
    pub logits: Logits,
    /// Of the operands of products.
    pub precision: Precision,
}

/// Gradients of Σ factor · loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassGradients {
    /// By the features, \[batch, d\].
    pub features: Vec<f32>,
    /// By the rows that took part, in their order, \[rows, d\].
    pub rows: Vec<f32>,
}

impl Table for Pass<'_> {
    fn d(&self) -> usize {
        self.d
    }

    fn len(&self) -> usize {
        self.weights.len() / self.d
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.weights[row * self.d..][..self.d]
    }

    fn row_of(&self, class: u64) -> Option<usize> {
        (class < self.len() as u64).then_some(class as usize)
    }
}

impl Pass<'_> {
    /// Σ factor · loss of `features` \[batch, d\] over the active classes, with a factor for each of the `labels`, and the
    /// gradients of that unless `gradients` is none.
    ///
    /// The cost is 6·batch·rows·d operations, or 8 where the products take more than 64 MiB; without gradients 2.
    ///
    /// Errors: a label that is no class, does not take part or is given twice; numbers that are not finite.
    pub fn losses(
        &self,
        features: &[f32],
        labels: Labels<'_>,
        factors: &[f32],
        active: Active<'_>,
        gradients: Option<&mut PassGradients>,
    ) -> Result<f64, HeadError> {
        assert!(
            self.d > 0 && self.weights.len().is_multiple_of(self.d),
            "rows of weights"
        );
        let classes = self.len() as u64;
        let mut head = Head {
            rows: *self,
            logits: self.logits,
            precision: self.precision,
            classes,
            scratch: SCRATCH_BYTES,
        };
        let learns = gradients.is_some();
        let mut scored = head.score_in(self.precision, features, labels, active, learns)?;
        let sums = head.reduce(&mut scored, 1.0, Some(factors), &Comm::alone())?;
        if let Some(gradients) = gradients {
            gradients.features = scored.take_gradient();
            gradients.rows.clear();
            gradients
                .rows
                .reserve_exact(scored.count(self.len()) * self.d);
            head.gradients(&[scored], &mut |_, _, of_rows| {
                gradients.rows.extend_from_slice(of_rows);
            });
        }
        Ok(sums.loss)
    }
}
