//! Linear support vector machines, logistic and other regression by dual coordinate descent, on blocks of rows: the
//! whole data when they fit in memory, else the part that fits.
//!
//! ```
//! use pelton_format::{Layout, RowTable, Rows};
//! use pelton_linear::{Duals, InnerPasses, Loss, Problem, Scratch, Simd, Weights, predict, solve_block};
//!
//! let mut rows = Rows::new(Layout::Dense { width: 2 });
//! rows.push_dense(0, &[-1.0, 0.5]);
//! rows.push_dense(1, &[1.0, 0.5]);
//! let block = RowTable::from_rows(rows, vec![0, 1]);
//! let problem = Problem::new(Loss::Hinge, 1.0, 2, 2)?;
//! let (mut weights, mut duals) = (Weights::zeros(&problem), Duals::zeros(&problem, 2));
//! let (passes, mut scratch) = (InnerPasses::Fixed(10), Scratch::new(Simd::best()));
//! solve_block(&problem, &block, &mut weights, &mut duals, passes, 1, &mut scratch)?;
//! predict(&weights, &block, |i, row| assert_eq!(row.class, i as u32));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Problem`] defines the objective, with one of the losses in `loss`. [`solve_block`] improves [`Weights`] and
//! [`Duals`] on the rows of one block; its inner loops are `kernels`, plain ones and faster ones chosen at run time.
//! [`LossSum`] and [`dual_value`] give the [`Certificate`]: the largest possible distance of the solution from the
//! optimum. [`predict`] and [`Metrics`] use the weights; [`Model`] saves them, also in LIBLINEAR's format.
//!
//! [`OutOfCore`] drives [`solve_block`] over the blocks that a feed brings, with the α of every row
//! in memory. It asks which rows a block may leave out ([`SkipTable`]), certifies its
//! weights while it trains, and saves its state between any two blocks ([`SavedState`]).
//!
//! With few features, [`Newton`] takes some ten passes over the rows, in memory or streamed, while coordinate descent
//! takes hundreds; [`newton_pays`] decides. [`Lbfgs`] minimises the multinomial loss of more than two classes.
//!
//! Sparse rows of many features are renumbered ([`FeatureNumbering`]), so w has only the features that occur,
//! the frequent ones together.
//!
//! Features of very different sizes are scaled when they are decoded, by [`FeatureSums`]; the problem is then that of
//! the scaled features, and a [`Model`] holds their scale.
//!
//! Several ranks take Newton's steps together: each sums over its own rows, and a closure ([`Peers`]) adds the sums up.
//! Coordinate descent runs on one rank and one thread. Lock-free updates of one w by several threads were rejected:
//! they lose increments, and the certificate relies on w = Σ α_i y_i x_i. Rounds in which each rank moves its own w and
//! the moves are added up were slower than one rank in 9 of 12 measured cases.

mod error;
mod peers;

mod loss;
mod penalty;
mod problem;

mod duals;
mod weights;

mod visit;

mod abandoned;
mod active;
mod block;
mod random;
mod step;

mod fine;
mod kernels;
mod solve;

mod numbering;
mod scaling;

mod certificate;
mod gap;
mod predict;
mod threshold;

mod ranking;

mod metrics;
mod target_metrics;

mod look;
mod passes;

mod inference;
mod lbfgs;
mod newton;
mod side_by_side;
mod unpenalised;
mod working_set;

mod costs;

mod model;

mod quantized_cache;
mod skip;

mod out_of_core;
mod saved_state;

mod spelling;

pub use abandoned::GRACE;
pub use block::Scratch;
pub use certificate::{Certificate, DualBound, LossSum, dual_value};
pub use costs::{lbfgs_cost, modelled_costs, newton_pays};
pub use duals::Duals;
pub use error::LinearError;
pub use fine::FineDescent;
pub use gap::gap_of_rows;
pub use inference::{CONFIDENCE, Coefficient, Inference, Precise};
pub use kernels::Simd;
pub use lbfgs::Lbfgs;
pub use loss::Loss;
pub use metrics::{CalibrationBin, ClassFigures, Figures, Metrics};
pub use model::Model;
pub use newton::{MOST_NEWTON_FEATURES, Newton};
pub use numbering::{FeatureCounts, FeatureNumbering, NewNumbers};
pub use out_of_core::{EpochOutcome, OutOfCore, OutOfCoreOptions, Snapshot};
pub use passes::{PassFigures, PassSolver, Precision};
pub use peers::{Exchange, Peers, alone};
pub use penalty::Penalty;
pub use predict::{Prediction, predict, predict_some, probabilities};
pub use problem::Problem;
pub use quantized_cache::{QuantizedCache, SavedCodes};
pub use ranking::{Ranking, ThresholdGoal};
pub use saved_state::SavedState;
pub use scaling::{FeatureSums, Scaling};
pub use side_by_side::SideBySide;
pub use skip::{SETTLED_SLACK, SkipTable};
pub use solve::{BlockReport, InnerPasses, solve_block};
pub use target_metrics::{TargetFigures, TargetMetrics};
pub use threshold::{Threshold, positive_class};
pub use unpenalised::Unpenalised;
pub use weights::Weights;
pub use working_set::WorkingSet;

/// Entry points over plain bytes, for fuzzing.
#[doc(hidden)]
pub mod raw;
