//! One layer of LSTM over a whole sequence, forward and backward.
//!
//! Symbols, PyTorch's: gates i, f, g, o in this order; x_t input, h_t output, c_t cell; for each step
//! i, f, o = σ(·), g = tanh(·) of W_ih x_t + b_ih + W_hh h_(t−1) + b_hh; c_t = f c_(t−1) + i g; h_t = o tanh c_t.
//!
//! The input's part is one product for all steps, and so are the gradients of weights and input. Only W_hh h must be
//! computed step by step; its weights are copied once into the order of the loops; gates are computed from the sums in
//! the first-level cache. Rows of the batch do not wait for one another: each group of rows runs the whole sequence on
//! a thread. With more threads than useful groups, hidden units are divided too, and the threads of a group meet at
//! each step (`team`).

mod backward;
mod forward;
mod layer;
mod steps;

pub use backward::LstmGradients;
pub use layer::{Lstm, LstmInput, LstmWeights, Position, positions_of_lengths};
