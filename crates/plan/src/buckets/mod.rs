//! Batches of sentences of similar lengths: buckets and packed rows, by index arithmetic.
//!
//! A batch of sentences is as long as its longest; the others are padded, and computing on padding is wasted.
//! Sentences are therefore put into buckets by length, and a batch is drawn from one bucket; or several sentences
//! share a row.
//!
//! ```text
//! lengths ─► LengthHistogram ─► BucketLayout       boundaries, batch sizes, padding, RL*
//! Plan × BucketLayout        =  bucketed.rs        step ─► bucket and ids
//! Plan × Packing             =  packed.rs          step ─► rows of pieces
//! ```
//!
//! A sentence may be a pair with a length a side (`pairs.rs`); a batch is then padded on both.
//!
//! The properties of the plan below are kept: every sentence is used once an epoch, in an order that follows the
//! plan's; the result is the same for every number of ranks; and a walk can start at any (epoch, step). The ids of an
//! epoch stream into one queue a bucket, a full queue is a batch, and the rest of the queues at the end of the epoch
//! is emitted as smaller batches. The published scheme ([`PublishedAuto`]) instead drops sentences that do not fill a
//! batch and repeats one order for ever.
//!
//! *Ranks.* A step is one global batch from one bucket; [`local_slots`](crate::local_slots) cuts it,
//! so that all ranks compute on sentences of one bucket at every step, and on equally many if the batch is a multiple
//! of the ranks.
//!
//! Source: Lin, "Bucketing in MXNet" (project report, 2016), for `static` and `auto`; the rest is
//! derived here.

mod policy;

mod histogram;

mod layout;

mod optimal;

mod pairs;

mod table;

mod packing;

mod pieces;

mod published;

pub(crate) use pieces::{NextPieces, PieceCounter, Segment};
pub(crate) use table::Table;

pub use histogram::LengthHistogram;
pub use layout::{Bucket, BucketLayout};
pub use packing::Packing;
pub use pairs::PairHistogram;
pub use policy::BucketPolicy;
pub use published::PublishedAuto;
