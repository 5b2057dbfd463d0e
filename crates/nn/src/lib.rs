//! Deep nets, on the CPU.
//!
//! A net is a list of layers (`layer`, `nets`), from which parameters, shapes and cost follow. `forward` runs it by the
//! operators of `operators`, which are those of the crate `kernels` on a `tape`. `trainer` is the trait that
//! trains a net; in its implementations ranks divide batches (`data_parallel`), layers (`pipelined`), or the
//! classes of a head after the net (`classifier`).
//! `parameters` makes, saves and loads parameters as PyTorch names them.

mod classifier;
mod data_parallel;
mod error;
mod features;
mod forward;
mod input;
mod layer;
mod memory;
pub mod nets;
mod operands;
mod operators;
mod optimiser;
mod parameters;
mod pipelined;
mod schedule;
mod segment;
mod sparse;
mod tape;
mod tensor;
mod trainer;

pub use classifier::{ClassifierOptions, classifier};
pub use data_parallel::trainer;
pub use error::NnError;
pub use input::{Carry, Input, Words};
pub use layer::{Flow, Init, Layer, Parameter, Role, Summary};
pub use memory::give_back_spare;
pub use nets::Net;
pub use operands::{Counts, LossOptions, NO_TARGET, Window};
pub use optimiser::{Rule, Update};
pub use parameters::{NamedArray, PARAMETERS};
pub use pipelined::pipelined;
pub use schedule::{Course, GrowingBatch, Growth, Schedule};
pub use trainer::{HeadFigures, StepOptions, Trainer};
