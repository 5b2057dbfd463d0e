//! The plan of a whole input pipeline: which examples each step uses, how often, and in which batch.
mod batch;
mod mixture;
mod plan;
mod selection;
mod sequence;
mod spec;
pub use batch::{Draw, Piece, StreamBatch, share_of};
pub use plan::StreamPlan;
pub use selection::Selection;
pub use spec::{Part, StreamSpec};
