//! Deep nets, on the CPU.
//!
//! ```
//! use pelton_batch::{Array, Buffer, DType, Shape};
//! use pelton_comm::Comm;
//! use pelton_nn::{Flow, Input, LossOptions, Net, Rule, StepOptions, Update, nets, trainer};
//!
//! let net = Net::new(nets::mlp(Flow::Row(2), 2, 0.1), Flow::Row(2))?;
//! let mut trainer = trainer(net, 1, Comm::alone());
//! let points = Buffer::from_slice(&[0.0_f32, 1.0, 1.0, 0.0]);
//! let values = &Array::new(DType::F32, Shape::stacked(2, &[2]), points);
//! let labels = &[0, 1];
//! let loss = LossOptions { scale: 0.5, smoothing: 0.0, class_weights: None };
//! for step in 1..=50 {
//!     let parts = [Some(Input::Vectors { values, labels })];
//!     trainer.gradients(&parts, &StepOptions { loss, key: step })?;
//!     trainer.update(&Update {
//!         rule: Rule::Sgd { momentum: 0.9, nesterov: false },
//!         rate: 0.1,
//!         weight_decay: 0.0,
//!         step,
//!         scale: 1.0,
//!     })?;
//! }
//! assert_eq!(trainer.evaluate(Some(Input::Vectors { values, labels }))?.correct, 2);
//! # Ok::<(), pelton_nn::NnError>(())
//! ```
//!
//! A net is a list of layers (`layer`, `nets`); parameters, shapes and cost follow from it. `forward` runs it by the
//! operators of `operators`, which put those of the crate `kernels` on a `tape`. `trainer` is the trait that trains a
//! net; in its implementations ranks divide batches (`data_parallel`), layers (`pipelined`), or the classes of a head
//! after the net (`classifier`). `parameters` makes, saves and loads parameters under PyTorch's names.

mod bags;
mod classifier;
mod data_parallel;
mod error;
mod features;
mod forward;
mod input;
mod label_lists;
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
mod views;

pub use bags::Bags;
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
pub use trainer::{Evaluated, HeadFigures, StepOptions, Trainer};
pub use views::Views;
