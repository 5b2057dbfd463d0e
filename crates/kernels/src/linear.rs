//! A fully connected layer: y = x·Wᵀ + b.

use crate::gemm::{gemm, gemm_over_rows};
use crate::matrix::Matrix;
use crate::precision::Precision;
use crate::product::{self, Left, Output, Right};
use crate::simd::Simd;
use crate::sums;

/// Weights in PyTorch's layout.
#[derive(Clone, Copy, Debug)]
pub struct Linear<'a> {
    /// \[outputs, inputs\].
    pub weights: &'a [f32],
    /// \[outputs\].
    pub bias: Option<&'a [f32]>,
    /// Numbers in a row of the input.
    pub inputs: usize,
    /// Numbers in a row of the output.
    pub outputs: usize,
    /// Of the numbers that are multiplied; sums are f32.
    pub precision: Precision,
}

/// The outputs of `Linear::backward`.
#[derive(Debug)]
pub struct LinearGradients<'a> {
    /// \[n, inputs\]; `None` if the input needs no gradient.
    pub dx: Option<&'a mut [f32]>,
    /// \[outputs, inputs\].
    pub dweights: &'a mut [f32],
    /// \[outputs\].
    pub dbias: Option<&'a mut [f32]>,
}

impl Linear<'_> {
    /// `x` \[n, inputs\] → `y` \[n, outputs\]; added to `y` with `add`, for a residual connection. Panics if sizes do
    /// not fit; so does `backward`.
    pub fn forward(&self, x: &[f32], y: &mut [f32], add: bool) {
        self.forward_at(Simd::current(), x, y, add);
    }

    pub(crate) fn forward_at(&self, level: Simd, x: &[f32], y: &mut [f32], add: bool) {
        let n = self.rows(x.len());
        assert_eq!(y.len(), n * self.outputs, "output");
        assert!(self.bias.is_none_or(|b| b.len() == self.outputs), "bias");
        let x = Matrix::new(x, n, self.inputs);
        let weights = Matrix::new(self.weights, self.outputs, self.inputs).transposed();
        let output = Output {
            c: y,
            row: &|i| i * self.outputs,
            add,
            bias: self.bias,
            relu: false,
        };
        let depth = product::even_depth(self.inputs);
        product::multiply(
            level,
            self.precision,
            Left::Rows(&x),
            Right::Source(&weights),
            depth,
            output,
        );
    }

    /// Gradients from that of `y`.
    pub fn backward(&self, x: &[f32], dy: &[f32], gradients: LinearGradients<'_>) {
        let n = self.rows(x.len());
        assert_eq!(dy.len(), n * self.outputs, "gradient of the output");
        let d = Matrix::new(dy, n, self.outputs);
        if let Some(dx) = gradients.dx {
            let weights = Matrix::new(self.weights, self.outputs, self.inputs);
            gemm(self.precision, d, weights, dx, self.inputs, false);
        }
        let x = Matrix::new(x, n, self.inputs);
        gemm_over_rows(self.precision, d, x, gradients.dweights);
        if let Some(dbias) = gradients.dbias {
            assert_eq!(dbias.len(), self.outputs, "gradient of the bias");
            sums::of_columns(dy, dbias);
        }
    }

    fn rows(&self, x: usize) -> usize {
        assert_eq!(self.weights.len(), self.outputs * self.inputs, "weights");
        assert!(x.is_multiple_of(self.inputs.max(1)), "whole rows");
        x / self.inputs.max(1)
    }
}
