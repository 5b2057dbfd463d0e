//! Softmax over very many classes: class weights divided over ranks, logits never stored for the whole of batch ×
//! classes (Song et al., KDD 2020, section 3; Algorithm 1).
//!
//! [`ClassRows`] are the weights of one rank's classes with the state of their updates. A [`Head`] scores a batch
//! against all of them or against an active set ([`Head::score`]), ranks add up their sums ([`Head::reduce`]), and the
//! weights take their step ([`Head::update`]). The gradient of the features is known before the weights change, so that
//! it can be sent meanwhile.
//!
//! A trainer uses a [`ClassHead`]: it chooses the classes of a step ([`HeadKind`]) and does all of the above.
//!
//! A [`Pass`] is the loss of a batch over weights that belong to the caller, with its gradients.
//!
//! [`Neighbours`] are the exact nearest classes of each class, [`Graph`] is a rank's part of them, and selects active
//! classes (KNN softmax).
//!
//! A [`ClassIndex`] finds the nearest classes of a query afterwards.
//!
//! No framework and no file: slices of f32 in, slices of f32 out.

mod error;
mod labels;
mod logits;
mod rows;
mod table;

mod chunk;
mod gradients;
mod head;
mod pass;

mod best;
mod clusters;
mod draws;
mod forest;
mod graph;
mod near;
mod neighbours;

mod centre;
mod means;

mod chosen;
mod class_head;
mod create;
mod mach;

mod index;
mod rounded_index;

pub use chosen::{class_vectors, feature_mean};
pub use class_head::{ClassHead, HeadKind, HeadOptions, Observed, ReadRows, RowBlock};
pub use create::class_head;
pub use draws::Draws;
pub use error::HeadError;
pub use graph::{Budget, Chosen, Graph, Selection};
pub use head::{Active, Head, Measured, Scored, Sums};
pub use index::{ClassIndex, Number, compared};
pub use labels::Labels;
pub use logits::{Logits, Margin};
pub use means::Means;
pub use neighbours::Neighbours;
pub use pass::{Pass, PassGradients};
pub use pelton_kernels::Precision;
pub use rounded_index::{IndexArrays, IndexShape};
pub use rows::{ClassRows, Rule, Update};

#[cfg(test)]
mod tests;
