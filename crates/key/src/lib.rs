//! The source of all randomness, and digests that identify contents.
//!
//! Every random decision has a [`key()`] made of seed, epoch and [`Stage`]; a [`KeyedRng`] draws numbers under it by
//! counter. A [`Digest`] folds words to one number that identifies plans, selections and data. All of it is based on
//! one 64-bit mix. Golden vectors depend on every line here.
//!
//! ```
//! use pelton_key::{KeyedRng, Stage, key};
//!
//! let mut items = [0, 1, 2, 3];
//! KeyedRng::new(key(7, 3, Stage::Sample(0))).shuffle(&mut items);
//! items.sort_unstable();
//! assert_eq!(items, [0, 1, 2, 3]);
//! ```

mod key;

mod rng;

mod digest;

mod mix;

mod names;

pub use digest::Digest;
pub use key::{Stage, key};
pub use mix::{GOLDEN_GAMMA, mix, splitmix64};
pub use names::listed;
pub use rng::KeyedRng;
