//! The loops that carry the time of deep nets and class heads on CPUs, over plain slices of f32.
//!
//! No framework: whoever calls owns the memory. Images are channels last, \[batch, height, width, channels\].
//! Each loop is written once and compiled for several levels of instructions (`simd`); which one runs is
//! chosen at run time. Work is divided among the threads of the rayon pool that the caller is in. The result does
//! not depend on their number, except where an item says so.

pub mod matrix;
pub mod simd;

mod conv;
mod gemm;
pub mod norm;
mod pool;
mod product;
mod relu;
mod source;
mod tile;
mod window;

pub use conv::Conv;
pub use gemm::{PackedMatrix, gemm, gemm_packed};
pub use matrix::Matrix;
pub use pool::Pool;
pub use relu::{relu, relu_backward};
