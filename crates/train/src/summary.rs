//! The figures of a finished run, under the names that `--json` prints.

use pelton_format::ClassMap;
use pelton_linear::{Figures, Loss, Metrics, TargetFigures, Threshold};
use serde::{Deserialize, Serialize};

/// How well a model predicts, with the names of its classes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TestFigures {
    /// The classes, in the order of `by_class` and `confusion`.
    pub classes: Vec<String>,
    /// The figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// Whether areas are absent because the scores of all rows did not fit in memory or were spread over several ranks.
    pub lacks_room: bool,
}

impl TestFigures {
    /// The figures of all rows added.
    pub(crate) fn from_metrics(metrics: &Metrics, classes: &ClassMap) -> TestFigures {
        TestFigures {
            classes: (0..classes.len() as u32)
                .map(|class| classes.describe(class))
                .collect(),
            figures: metrics.figures(),
            lacks_room: metrics.lacks_room(),
        }
    }
}

/// A threshold between two classes other than the sign.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThresholdFigures {
    /// Rows with at least this value get the positive class.
    pub value: f64,
    /// Kind of the value: a probability, for losses that have probabilities, or a decision value.
    pub of: String,
    /// The positive class.
    pub positive: String,
}

impl ThresholdFigures {
    /// The figures of a model's threshold.
    pub(crate) fn from_threshold(
        threshold: &Threshold,
        loss: Loss,
        classes: &ClassMap,
    ) -> ThresholdFigures {
        ThresholdFigures {
            value: threshold.stated(loss),
            of: Threshold::what(loss).to_string(),
            positive: classes.describe(threshold.positive()),
        }
    }
}

impl std::fmt::Display for ThresholdFigures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ThresholdFigures {
            value,
            of,
            positive,
        } = self;
        write!(f, "class {positive} from a {of} of {value:.6} on")
    }
}

/// How well a model predicts data with labels: classes or targets, by its loss.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tested {
    pub classes: Option<TestFigures>,
    pub targets: Option<TargetFigures>,
    /// The threshold chosen on the data.
    pub threshold: Option<Threshold>,
    /// Points of the ROC curve, for two classes with the scores of all rows.
    pub roc: Vec<(f64, f64)>,
}

/// Results of cross-validation over costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchFigures {
    /// The deciding figure: `log_loss`, `accuracy`, `mse` or `poisson_deviance`.
    pub figure: String,
    /// Folds.
    pub folds: u32,
    /// The best cost by the mean over the folds; of equals the smallest.
    pub best: f64,
    /// The costs, as they were given.
    pub costs: Vec<CostFigures>,
    /// (primal − dual) / dual of all models together, each over its cost.
    pub relative_gap: f64,
    /// Passes over the data.
    pub passes: f64,
    /// Seconds.
    pub wall_s: f64,
}

/// Figures of one cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostFigures {
    /// The cost.
    pub cost: f64,
    /// Mean of the deciding figure over the folds.
    pub mean: f64,
    /// Its standard deviation.
    pub deviation: f64,
    /// The figure of each fold.
    pub by_fold: Vec<f64>,
    /// Mean accuracy, of classes.
    pub accuracy: Option<f64>,
    /// Mean R², of targets.
    pub r2: Option<f64>,
    /// Mean area under the ROC curve, if the scores fit in memory of one rank.
    pub auc: Option<f64>,
    /// Mean number of nonzero weights, if the penalty makes some 0.
    pub nonzero_weights: Option<f64>,
}

/// The coefficients of a model without a penalty, and their precision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InferenceFigures {
    /// Name of `statistic`: `t` of least squares, `z` of other losses.
    pub statistic: String,
    /// Of `t`: records less coefficients.
    pub degrees_of_freedom: Option<f64>,
    /// Confidence level of the intervals.
    pub confidence: f64,
    /// The intercept and one per feature; for each class, if there are more than two.
    pub coefficients: Vec<CoefficientFigures>,
}

/// One coefficient, of a feature in the units of the data. Absent values were not found: the feature is a combination
/// of those before it, or its weight grew without end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoefficientFigures {
    /// The class, if each is modelled against the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The feature.
    pub name: String,
    /// The coefficient, of two classes for the positive one.
    pub estimate: f64,
    /// Its standard error.
    pub standard_error: Option<f64>,
    /// The estimate over its standard error.
    pub statistic: Option<f64>,
    /// Probability of a statistic at least as large if the coefficient is 0.
    pub p: Option<f64>,
    /// Lower end of the interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Whether it grew without end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unbounded: bool,
}

/// Figures of `train linear` and `eval`. Absent figures were not measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinearSummary {
    /// Primal value of the written model, exact.
    pub primal: Option<f64>,
    /// Dual value.
    pub dual: Option<f64>,
    /// (primal − dual) / dual.
    pub relative_gap: Option<f64>,
    /// The results of a search among costs.
    pub search: Option<SearchFigures>,
    /// The coefficients, if there is no penalty; the gap is then estimated.
    pub inference: Option<InferenceFigures>,
    /// (primal − optimum) / optimum, if the optimum is known.
    pub relative_difference: Option<f64>,
    /// The optimum that relative differences refer to.
    pub optimum: Option<f64>,
    /// Share of test examples predicted right.
    pub test_accuracy: Option<f64>,
    /// How well the model predicts the test examples.
    pub test: Option<TestFigures>,
    /// How well it predicts their targets, if these are real numbers.
    pub test_targets: Option<TargetFigures>,
    /// The threshold between two classes other than the sign of the decision value.
    pub threshold: Option<ThresholdFigures>,
    /// Share of training examples predicted right by the sign, if evaluated.
    pub train_accuracy: Option<f64>,
    /// Number of nonzero weights of the written model, and of all, intercepts included.
    pub nonzero_weights: Option<[u64; 2]>,
    /// Epochs of training.
    pub epochs: u64,
    /// Passes over the data: rows read and used, certificate included, over rows of the data.
    pub passes: f64,
    /// Seconds from start to end.
    pub wall_s: f64,
    /// Seconds before the first epoch: index, generated data, scratch files.
    pub prepare_s: f64,
    /// Seconds during which data was being loaded.
    pub load_s: f64,
    /// Seconds during which the solver computed.
    pub compute_s: f64,
    /// Seconds during which both happened.
    pub overlap_s: f64,
    /// Seconds the solver waited for data.
    pub wait_s: f64,
    /// Rows visited by the solver.
    pub visits: u64,
    /// Largest resident memory of the process.
    pub peak_rss_bytes: u64,
    /// Memory budget.
    pub memory_bytes: u64,
    /// Bytes of the data set's records.
    pub data_bytes: u64,
    /// Bytes read from storage.
    pub read_bytes: u64,
    /// Bytes of records used.
    pub used_bytes: u64,
    /// Bytes written to scratch files.
    pub written_bytes: u64,
    /// Bytes read over bytes used.
    pub read_amplification: f64,
    /// Seconds a modelled device would have taken for the reads, if there is one.
    pub modelled_device_s: Option<f64>,
    /// Randomness level of the order.
    pub rl: f64,
    /// Exact randomness level: share of log N! that the order's orders reach.
    pub rl_exact: f64,
    /// Examples of the data set.
    pub records: u64,
    /// Features of an example.
    pub features: u64,
    /// Classes.
    pub classes: u64,
    /// Examples left out because they could not be read or decoded.
    pub skipped_records: u64,
    /// Ranks that trained together.
    pub ranks: u64,
    /// Seconds a rank waited for others and for their messages, on average.
    pub communication_s: f64,
    /// Bytes sent between ranks.
    pub communication_bytes: u64,
    /// Access path used.
    pub access: String,
    /// Order used.
    pub order: String,
    /// Solver used; empty if nothing was trained.
    pub solver: String,
    /// Seed used.
    pub seed: u64,
    /// "Was I input-bound, at which stage, and what would fix it?"
    pub verdict: String,
}
