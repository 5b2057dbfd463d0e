//! The plan of a whole input pipeline: which examples each step uses, how often, and in which batch.
//!
//! ```text
//! records ─► Selection ─► order or mixture ─► echo ─► runs, buckets or packed rows ─► echo of batches ─► ranks
//!            0..kept      0..examples         places   fresh batches                  steps              share_of
//! ```
//!
//! Each stage is arithmetic on the numbers of the one before, so that any (epoch, step) follows from the stream's
//! description: there is no state to store but these two, on any number of ranks.
//!
//! | batches | seeking |
//! |---|---|
//! | runs | a window of the echo |
//! | runs of `page` and `queue` orders | as their plan |
//! | buckets; packed rows | a pass over the examples by number, at the positions that the inverse of the order gives |
//! | the same over `page` and `queue` orders | the appearances before, one after the other; where an echo fills buckets, a count of the examples in order |
//! | packed rows whose look-ahead is shorter than two windows of the echo with their repeats, or of so many lengths that counters would be large | lengths in the order they come |
//!
//! Over 100 million examples that takes less than 3 s of one processor in all cases of
//! `bench/results/stream_seek.csv`, of which `examples/stream_seek.rs` knows more. Slower are shuffle buffers larger
//! than the caches, and packed rows over an echo cut finely, above all of a mixture in which tiny parts come again
//! and again.
//!
//! Rejected: stages that are iterators over one another, as input pipelines mostly are. Each then has a buffer and a
//! generator to store, and a resumed run reads again what it had read.

mod plan;

mod spec;

mod batch;

mod selection;

mod mixture;

mod sequence;

mod runs;

mod queues;

mod slices;

mod rows;

mod row_starts;

mod intervals;

mod neighbours;

mod pack_plan;

mod held;

pub use batch::{Draw, Piece, StreamBatch, share_of};
pub use pack_plan::PackPlan;
pub use plan::StreamPlan;
pub use selection::Selection;
pub use spec::{Part, StreamSpec};
