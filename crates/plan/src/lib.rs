//! The plan of a training run: which records it reads, in which order and in which batch, computed by index
//! arithmetic before a byte is read.
//!
//! ```text
//! plan = order(seed, epoch) × batching × split over ranks
//! ```
//!
//! A [`Plan`] is a pure function of its [`PlanSpec`] and a [`Catalog`] of records: the same arguments give the
//! same global sequence on every machine, for every number of ranks and in every version; golden vectors in
//! `tests/plan/golden` hold it to that. It does no I/O, starts no thread and takes no lock. A [`Walk`] gives one step
//! after another from any [`Place`], so that resuming a run takes one pair of integers, and a look-ahead of any depth
//! costs the ids it lists. A [`Hint`] next to them saves the replay of buckets, packing and their echo.
//!
//! Layers, from the top: a [`Walk`] (`walk.rs`) takes fresh batches from runs (`runs.rs`), buckets (`bucketed.rs`) or
//! packed rows (`packed.rs`); these take appearances from `sequence.rs`, which echoes examples by `echo.rs`; and
//! these take their numbers from an order, a mixture or draws by weight (`ids.rs`). `full` order and everything built
//! on it is a [`Permutation`], computed and not stored; its randomness comes from a [`key()`](pelton_key::key()).
//! Orders with an inverse show it by epoch ([`EpochOrder`]). [`share_of`] gives each rank its share of a global
//! batch, and [`Randomness`] says how well an order shuffles.
//!
//! ```
//! use pelton_plan::{Catalog, Order, Place, Plan, PlanSpec, StepBatch, local_slots};
//!
//! let plan = Plan::new(&PlanSpec::new(Order::Full, 4096, 7), Catalog::new(1_000_000))?;
//! let mut walk = plan.walk(Place { epoch: 3, step: 100 }, None); // without visiting steps 0..100
//! let mut batch = StepBatch::default();
//! walk.next(&mut batch);
//! assert_eq!((batch.step, batch.ids.len()), (100, 4096));
//! assert_eq!(local_slots(4096, 1, 4), 1024..2048); // what the second of four ranks takes
//! # Ok::<(), pelton_plan::PlanError>(())
//! ```

mod spec;

mod plan;

mod plan_parts;

mod walk;

mod hint;

mod step_batch;

mod runs;

mod bucketed;

mod packed;

mod buckets;

mod sequence;

mod echo;

mod epoch_order;

mod ids;

mod mixture;

mod sampler;

mod orders;

mod ordering;

mod batching;

mod units;

mod selection;

mod numbering;

mod permutation;

mod feistel;

mod split;

mod locality;

mod randomness;

mod error;

pub use batching::{Batching, Last};
pub use buckets::{
    Bucket, BucketLayout, BucketPolicy, LengthHistogram, Packing, PairHistogram, PublishedAuto,
};
pub use echo::Echo;
pub use epoch_order::EpochOrder;
pub use error::PlanError;
pub use hint::Hint;
pub use locality::{assign_slots, expected_remote_share};
pub use ordering::Spread;
pub use orders::Order;
pub use permutation::Permutation;
pub use plan::Plan;
pub use randomness::{Randomness, harmonic_log, ln_factorial, randomness_level};
pub use sampler::Sampler;
pub use selection::Selection;
pub use spec::{Catalog, Part, PlanSpec};
pub use split::local_slots;
pub use step_batch::{Draw, Piece, StepBatch, share_of};
pub use units::Units;
pub use walk::{Place, Walk};
