//! What a training run reads, in which order and in which batch, decided by index arithmetic before
//! a byte is read.
//!
//! ```text
//! plan = order(seed, epoch) × batching × split over ranks
//! ```
//!
//! A [`Plan`] is a pure function of (records, order, batching, seed): the same arguments give the
//! same global sequence on every machine, for every number of ranks, for ever; golden vectors in
//! `tests/golden` hold it to that. It does no I/O and starts no thread. It can be asked for any step
//! of any epoch directly, so resuming a run is one pair of integers, and a look-ahead of any depth
//! costs the ids it lists.
//!
//! The way down: [`Plan`] asks its [`Order`] for record ids; `full` order and everything built on it
//! is a [`Permutation`], computed and not stored; its randomness comes from a [`key()`](pelton_key::key) made of
//! seed, epoch and [`Stage`](pelton_key::Stage). [`local_slots`] gives each rank its share of a global batch, [`assign_slots`]
//! gives it one of the same size from what it holds already, a [`BucketPlan`] or [`PackPlan`] regroups the
//! ids of a plan by the lengths of what they name, and [`Randomness`] says how well an order
//! shuffles. A [`StreamPlan`] is the plan of a whole input pipeline: a [`Selection`] of records or a mixture, an
//! order, echo, buckets and batches in one, sought as a plan is.
//!
//! ```
//! use pelton_plan::{Batching, Order, Plan, local_slots};
//!
//! let plan = Plan::new(1_000_000, Order::Full, Batching::Examples(4096), 7)?;
//! let mut ids = Vec::new();
//! plan.batch_ids(3, 100, &mut ids); // epoch 3, step 100, without visiting steps 0..100
//! assert_eq!(ids.len(), 4096);
//! let mine = local_slots(plan.step_len(3, 100), 1, 4); // the second of four ranks
//! assert_eq!(mine, 1024..2048);
//! # Ok::<(), pelton_plan::PlanError>(())
//! ```

mod plan;

mod order;

mod batching;

mod units;

mod queue;

mod blocks;

mod opportunistic;

mod buckets;

mod echo;

mod stream;

mod permutation;

mod feistel;

mod split;

mod division;

mod groups;

mod locality;

mod randomness;

mod error;

pub use batching::Batching;
pub use buckets::{
    Bucket, BucketLayout, BucketPlan, BucketPolicy, LengthHistogram, PackedRow, Packing,
    PublishedAuto, Segment,
};
pub use echo::{Echo, EchoPlan, Echoed};
pub use error::PlanError;
pub use locality::{assign_slots, expected_remote_share};
pub use order::Order;
pub use permutation::Permutation;
pub use plan::Plan;
pub use randomness::{
    Randomness, exact_level_of_loads, harmonic_log, ln_factorial, randomness_level,
    randomness_level_of_loads,
};
pub use split::local_slots;
pub use stream::{
    Draw, PackPlan, Part, Piece, Selection, StreamBatch, StreamPlan, StreamSpec, share_of,
};
pub use units::Units;
