//! Deep nets.
//!
//! A net is a list of layers (`layer`, `nets`), from which parameters, shapes and cost follow. `forward` runs it by the
//! operators of `ops`, which any Burn backend has; `flex` has our own for CPUs. `trainer` is a net on a device with its
//! parameters and optimiser, behind a trait without type parameters, so that what is above knows nothing of Burn.
//! `parameters` makes, saves and loads parameters as PyTorch names them.

mod classifier;
mod composed;
mod device;
mod error;
mod features;
mod flex;
mod forward;
mod input;
mod layer;
mod memory;
pub mod nets;
mod on_device;
mod operands;
mod ops;
mod optimiser;
mod parameters;
mod pipelined;
mod schedule;
mod segment;
mod sparse;
mod trainer;

pub use classifier::ClassifierOptions;
pub use device::{Device, classifier, pipelined, trainer};
pub use error::NnError;
pub use input::{Carry, Input, Words};
pub use layer::{Flow, Init, Layer, Parameter, Role, Summary};
pub use memory::give_back_spare;
pub use nets::Net;
pub use operands::{Counts, LossOptions, NO_TARGET, Window};
pub use optimiser::{Rule, Update};
pub use parameters::{NamedArray, PARAMETERS};
pub use schedule::{Course, GrowingBatch, Growth, Schedule};
pub use trainer::{HeadFigures, StepOptions, Trainer};
