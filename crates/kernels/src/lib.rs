//! The loops that carry the time of deep nets and class heads on CPUs, over plain slices of f32.
//!
//! ```
//! use pelton_kernels::{Matrix, Precision, gemm};
//!
//! let a = Matrix::new(&[1.0, 2.0, 3.0, 4.0], 2, 2);
//! let b = Matrix::new(&[5.0, 6.0], 2, 1);
//! let mut c = [0.0; 2];
//! gemm(Precision::F32, a, b, &mut c, 1, false);
//! assert_eq!(c, [17.0, 39.0]);
//! ```
//!
//! No framework: the caller owns the memory. Images are channels last, \[batch, height, width, channels\]. Each loop is
//! written once and compiled for several levels of instructions (`simd`), one of them chosen at run time. Work is
//! divided among the threads of the caller's rayon pool. The result does not depend on their number, unless an item
//! says otherwise.

pub mod embedding;
pub mod math;
pub mod matrix;
pub mod norm;
pub mod optimizer;
pub use pelton_cpu as simd;
pub mod sums;

mod attention;
mod block;
mod block_source;
mod conv;
mod cross_entropy;
mod disjoint;
mod dropout;
mod gelu;
mod gemm;
mod layer_norm;
mod linear;
mod lines;
mod lstm;
mod pool;
mod precision;
mod product;
mod relu;
mod team;
mod tile;
mod top_k;
mod window;

pub use attention::Attention;
pub use conv::Conv;
pub use cross_entropy::{CrossEntropy, Loss, Targets, Upstream};
pub use dropout::dropout;
pub use gelu::Gelu;
pub use gemm::{PackedMatrix, gemm, gemm_over_rows, gemm_packed};
pub use layer_norm::LayerNorm;
pub use linear::{Linear, LinearGradients};
pub use lstm::{Lstm, LstmGradients, LstmInput, LstmWeights, Position, positions_of_lengths};
pub use matrix::Matrix;
pub use precision::Precision;

pub use pool::Pool;
pub use relu::{relu, relu_backward};
pub use top_k::{TopK, top_k};

#[cfg(test)]
mod tests;
