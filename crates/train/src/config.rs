//! The fully resolved configuration of a linear training run: what `run.toml` holds. A run made
//! from it again repeats the run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelton_data::{DataConfig, as_text};
use pelton_feed::settings;
use pelton_feed::settings::{list, on, path, some, value};
use pelton_fetch::{Access, OnBadRecord};
use pelton_format::{ClassName, Missing};
use pelton_linear::{InnerPasses, Loss, Penalty, Scaling, ThresholdGoal};
use pelton_plan::Order;
use pelton_run::{Settings, decisive};
use pelton_storage::{memory_budget, path_text};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::TrainError;
use crate::start::Start;

/// The optimum that relative differences refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Optimum {
    /// Not known: the duality gap bounds the relative difference.
    #[default]
    Unknown,
    /// Solved for first, to a relative gap of a hundredth of the target, 1e-6 without one.
    Auto,
    /// Given.
    Value(f64),
}

impl std::fmt::Display for Optimum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Optimum::Unknown => f.write_str("unknown"),
            Optimum::Auto => f.write_str("auto"),
            Optimum::Value(value) => write!(f, "{value:e}"),
        }
    }
}

impl std::str::FromStr for Optimum {
    type Err = String;

    fn from_str(text: &str) -> Result<Optimum, String> {
        match text {
            "unknown" => Ok(Optimum::Unknown),
            "auto" => Ok(Optimum::Auto),
            _ => text
                .parse()
                .ok()
                .filter(|value: &f64| *value > 0.0 && *value <= 1e300)
                .map(Optimum::Value)
                .ok_or_else(|| {
                    format!("`{text}` is not an optimum: use auto, unknown or a positive number")
                }),
        }
    }
}

/// How near the optimum a run must come, as a relative difference that the duality gap certifies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Target {
    /// As near as training gets at moderate cost, at least [`Target::USUAL`].
    #[default]
    Auto,
    /// None: the number of epochs decides.
    None,
    /// Training ends at this gap.
    Gap(f64),
}

impl Target {
    /// The gap that a run must reach by default.
    pub const USUAL: f64 = 1e-3;

    /// The gap at which training ends.
    pub fn gap(self) -> Option<f64> {
        match self {
            Target::Gap(gap) => Some(gap),
            Target::Auto | Target::None => None,
        }
    }

    /// The gap above which a run has failed.
    pub fn most(self) -> Option<f64> {
        match self {
            Target::Auto => Some(Target::USUAL),
            target => target.gap(),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Auto => f.write_str("auto"),
            Target::None => f.write_str("none"),
            Target::Gap(gap) => write!(f, "{gap:e}"),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.gap() {
            Some(gap) => to.serialize_f64(gap),
            None => to.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Target, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Stated {
            Number(f64),
            Text(String),
        }
        let text = match Stated::deserialize(from)? {
            Stated::Number(gap) => gap.to_string(),
            Stated::Text(text) => text,
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        match text {
            "auto" => Ok(Target::Auto),
            "none" => Ok(Target::None),
            _ => text
                .parse()
                .ok()
                .filter(|gap: &f64| *gap > 0.0 && *gap < 1.0)
                .map(Target::Gap)
                .ok_or_else(|| {
                    format!(
                        "`{text}` is not a target: use a relative difference between 0 and 1, such as 1e-3, auto or none"
                    )
                }),
        }
    }
}

pelton_key::names! {
    /// How a linear problem is solved.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Solver: "a solver" {
        /// The faster of the others, by a cost model, unless a setting needs one of them.
        #[default]
        Auto = "auto",
        /// Newton's method: about ten passes, for rows of few features.
        Newton = "newton",
        /// L-BFGS: passes for the multinomial loss of more than two classes, which no other solver minimises.
        Lbfgs = "l-bfgs",
        /// Dual coordinate descent, block by block.
        CoordinateDescent = "coordinate-descent",
        /// Working sets of features, for penalties with ‖w‖₁.
        WorkingSet = "working-set",
    }
}

impl Solver {
    /// Whether it needs only passes over all rows, in any order.
    pub fn is_by_passes(self) -> bool {
        matches!(self, Solver::Newton | Solver::Lbfgs | Solver::WorkingSet)
    }

    /// The pass method to use: itself, or Newton's if the solver hands over to one.
    pub(crate) fn by_passes(self) -> Solver {
        if self.is_by_passes() {
            self
        } else {
            Solver::Newton
        }
    }

    /// Its name in messages.
    pub fn method(self) -> &'static str {
        match self {
            Solver::Auto => "the fastest method",
            Solver::Newton => "Newton's method",
            Solver::Lbfgs => "L-BFGS",
            Solver::CoordinateDescent => "coordinate descent",
            Solver::WorkingSet => "working sets of features",
        }
    }
}

settings! {
    /// The configuration of `pelton train linear`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct LinearConfig: "Model and training" {
        data: DataConfig = DataConfig::default(), "Training data.";
        #[serde(with = "as_text")]
        loss: Loss = Loss::Hinge, flag(One, value, help Loss::help() + " (default: logistic, or multinomial for more than two classes; squared if labels are numbers rather than classes)"),
            "The loss of a row.";
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        guesses_loss: bool = false, "Whether the loss becomes squared if labels are numbers rather than classes.";
        #[serde(with = "as_text", skip_serializing_if = "is_usual")]
        penalty: Penalty = Penalty::L2, flag(One, value),
            "Penalty on the weights: l2, l1, elastic-net:SHARE with this share of l1, or none (default: l2). l1 leaves most weights 0; none gives standard errors, p values and intervals of the coefficients";
        cost: f64 = 1.0, "Cost C of a unit of loss; if there are `costs`, the best of them once that is known.";
        #[serde(skip_serializing_if = "Vec::is_empty")]
        costs: Vec<f64> = Vec::new(), "Costs from which cross-validation chooses.";
        #[serde(skip_serializing_if = "Option::is_none")]
        folds: Option<u32> = None, flag(One, some),
            "Cross-validation, 2 to 50: models of all costs and of all records but one of this many parts are trained side by side, and the cost that predicts the left-out parts best is trained on all records";
        class_weights: Vec<(ClassName, f64)> = Vec::new(), "Factors on the cost by label.";
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        balanced: bool = false, "Whether the cost of a class is also divided by its share of the records, so that all classes count alike.";
        #[serde(with = "path_text", skip_serializing_if = "Option::is_none")]
        sample_weights: Option<PathBuf> = None, flag(One, path, of "FILE"),
            "Factors on the cost of the records: an npy file, or a text with one a line";
        #[serde(skip)]
        given_weights: Option<Arc<[f32]>> = None, "The same in memory; wins over the file.";
        bias: Option<f32> = None, "Value of a constant feature appended to every row.";
        free_bias: bool = false, "Whether its weight is not regularised; without a value it is then 1.";
        #[serde(with = "as_text")]
        scale: Scaling = Scaling::None, flag(One, value),
            "Scale features before training; the model contains the scale: standard (zero mean and unit deviation; unit deviation only for sparse rows or without an intercept; not the features of categories), max-abs (within -1 and 1), none, or auto: standard for files with names of columns, none for others (default: auto)";
        #[serde(skip_serializing_if = "Option::is_none")]
        threshold: Option<ThresholdGoal> = None, flag(One, some, of "GOAL"),
            "Choose the threshold between two classes on the test data, for eval and predict to use: f1 (the largest F1 of the positive class: the greater label, or later name), balanced (the largest mean recall), precision:SHARE (the largest recall with at least this precision) or recall:SHARE (the largest precision with at least this recall)";
        #[serde(with = "path_text", skip_serializing_if = "Option::is_none")]
        warm_start: Option<PathBuf> = None, flag(One, path, of "MODEL"),
            "Begin from the weights of this run folder or model file: features by name, classes by label";
        #[serde(skip)]
        given_start: Option<Arc<Start>> = None, "The same in memory; wins over the file.";
        #[serde(with = "as_text")]
        solver: Solver = Solver::Auto, flag(One, value),
            "Solver: newton, coordinate-descent, or auto: the one expected to be faster (for up to 16 MB of rows in memory, certificates decide during training); l-bfgs for loss multinomial of more than two classes";
        target: Target = Target::Auto, flag(One, value),
            "Stop at this relative difference to the optimum, certified by the duality gap; a run that ends above it has exit code 3. auto: go on while that costs little, and end above 1e-3 with exit code 3; none: end after `epochs`, wherever that is (default: auto; none with `epochs`, `blocks` or `inner_passes`)";
        epochs: u64 = 30, flag(One, value),
            "Maximum number of epochs (default: 30; with rows in memory, 1000 visits of each row or 300 passes of Newton's method; 300 passes of L-BFGS)";
        #[serde(with = "as_text")]
        optimum: Optimum = Optimum::Unknown, flag(One, value),
            "Optimum for relative differences: auto (solve for it first), unknown, or a number";
        test: Vec<String> = Vec::new(), flag(Each, list), "Test data";
        seed: u64 = 0, flag(One, value), "Random seed";
        #[serde(with = "as_text")]
        order: Order = Order::Full, flag(One, value, help format!("Order: {}", Order::forms())), "Order in which an epoch visits the examples.";
        blocks: Option<u64> = None, flag(One, some), "Number of blocks in an epoch (default: blocks as large as memory allows)";
        #[serde(with = "as_text")]
        access: Access = Access::Auto, flag(One, value), "How records are read: auto, direct, window[:GAP_BYTES] or scatter";
        memory_bytes: u64 = memory_budget(LinearConfig::USUAL_MEMORY, 1),
            "Bytes for look-ahead, blocks and rows kept between them together.";
        memory_share: Option<f64> = None, "The same as a share of the bytes of all records in their files; wins over `memory_bytes`.";
        #[serde(with = "as_text")]
        inner_passes: InnerPasses = InnerPasses::Until { epsilon: 0.1, at_most: 200 }, flag(One, value),
            "Passes over a block in memory: a number, or until:EPSILON[:MOST]";
        skip: bool = false, flag(Switch, on), "Skip rows that are settled at a bound, for 1, 2, 4, then 8 epochs";
        cache_fraction: Option<f64> = None, flag(One, some),
            "Share of the memory that keeps undecided rows between blocks, quantised to one byte a value, for dense rows of 128 features or more (default: the share that saves most passes in full order; 0 for none)";
        threads: usize = 3, flag(One, value), "Loading threads of each rank";
        #[serde(with = "as_text")]
        on_bad_record: OnBadRecord = OnBadRecord::Fail, flag(One, value),
            "What to do with records that cannot be read: fail, skip or skip:LIMIT";
        #[serde(with = "path_text")]
        scratch_dir: Option<PathBuf> = None, flag(One, path, as "scratch"), "Folder for shuffled scratch files";
        checkpoint_every_s: f64 = 60.0, flag(One, value, as "checkpoint_every"),
            "Seconds between checkpoints within an epoch; each epoch ends with one as well";
    }
}

fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl LinearConfig {
    /// Default memory budget in bytes, if the machine has it.
    pub const USUAL_MEMORY: u64 = 1 << 30;

    /// The command's defaults: a model with probabilities, or a regression if labels are numbers; a free intercept; for
    /// tables, standardised numbers and a feature for missing ones.
    pub fn bare() -> LinearConfig {
        LinearConfig {
            data: DataConfig {
                missing: Some(Missing::Auto),
                ..DataConfig::default()
            },
            loss: Loss::Multinomial,
            guesses_loss: true,
            bias: Some(1.0),
            free_bias: true,
            scale: Scaling::Auto,
            ..LinearConfig::default()
        }
    }

    /// Reads a configuration: the `run.toml` of a run, or a file like it.
    pub fn read(path: &Path) -> Result<LinearConfig, TrainError> {
        read(path)
    }

    /// Settings that may change when a run is resumed: stopping criteria and metrics; how data is read (the checkpoint
    /// compares its contents and classes); and the order (the plan shows it).
    const CHANGING: [&str; 12] = [
        "access",
        "blocks",
        "data.device_model",
        "data.format",
        "data.positive",
        "epochs",
        "on_bad_record",
        "optimum",
        "order",
        "target",
        "test",
        "threshold",
    ];

    /// Settings that the weights depend on, by the names that messages use.
    pub(crate) fn decisive(&self) -> Settings {
        let mut all = decisive(self, &LinearConfig::CHANGING);
        for (name, setting) in [
            ("free_bias", "intercept"),
            ("class_weights", "class_weight"),
        ] {
            let value = all.remove(name);
            all.extend(value.map(|value| (setting.to_string(), value)));
        }
        // One cost is a list of one.
        all.remove("costs");
        let costs: Vec<String> = self.listed_costs().iter().map(f64::to_string).collect();
        all.insert("cost".to_string(), costs.join(","));
        all
    }

    /// Whether training begins from the weights of a model.
    pub(crate) fn is_warm(&self) -> bool {
        self.warm_start.is_some() || self.given_start.is_some()
    }

    /// The costs for which models are trained on folds.
    pub(crate) fn listed_costs(&self) -> &[f64] {
        match &self.costs[..] {
            [] => std::slice::from_ref(&self.cost),
            costs => costs,
        }
    }
}

/// The settings that a configuration file states; empty without a file.
#[derive(Clone, Debug, Default)]
pub struct Stated(toml::Table);

impl Stated {
    /// Whether it states a setting, such as `epochs` or `fit.epochs`.
    pub fn has(&self, setting: &str) -> bool {
        let mut at = &self.0;
        let mut parts = setting.split('.').peekable();
        while let Some(part) = parts.next() {
            match at.get(part) {
                Some(toml::Value::Table(table)) => at = table,
                found => return found.is_some() && parts.peek().is_none(),
            }
        }
        true
    }
}

/// Reads the configuration of a job over `default`: settings missing from the file keep their default.
pub fn read_over<T: Serialize + DeserializeOwned>(
    path: &Path,
    default: &T,
) -> Result<(T, Stated), TrainError> {
    // So that errors of the file name their lines.
    read::<T>(path)?;
    let stated: toml::Table = read(path)?;
    let wrong = |error: String| TrainError::config(format!("{}: {error}", path.display()));
    let mut whole = toml::Table::try_from(default).map_err(|error| wrong(error.to_string()))?;
    lay_over(&mut whole, &stated);
    let config = whole.try_into();
    let config = config.map_err(|error: toml::de::Error| wrong(error.message().to_string()))?;
    Ok((config, Stated(stated)))
}

fn lay_over(below: &mut toml::Table, above: &toml::Table) {
    for (key, value) in above {
        match (below.get_mut(key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => lay_over(below, above),
            _ => drop(below.insert(key.clone(), value.clone())),
        }
    }
}

/// Reads the configuration of a job: the `run.toml` of a run, or a file like it.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, TrainError> {
    let text = pelton_storage::read_text(path).map_err(|error| {
        TrainError::config(format!(
            "{}: the configuration cannot be read ({error}); check the path, which must name a text file",
            path.display()
        ))
    })?;
    toml::from_str(&text).map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = 1 + before.unwrap_or("").matches('\n').count();
        TrainError::config(format!(
            "{}: line {line}: {}; compare it with the run.toml of a run",
            path.display(),
            error.message().replace('\n', ", ").replace('`', "'")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each setting stated alone with its default, and no setting at all.
    fn check<T>(default: &T)
    where
        T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
    {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file.toml");
        let whole = toml::Table::try_from(default).unwrap();
        let mut alone = vec![toml::Table::new()];
        for (key, value) in &whole {
            let under =
                |value: &toml::Value| toml::Table::from_iter([(key.clone(), value.clone())]);
            match value {
                toml::Value::Table(inner) => alone.extend(inner.iter().map(|(name, value)| {
                    let inner = toml::Table::from_iter([(name.clone(), value.clone())]);
                    under(&inner.into())
                })),
                value => alone.push(under(value)),
            }
        }
        assert!(alone.len() > 20);
        for table in alone {
            std::fs::write(&file, table.to_string()).unwrap();
            let (read, stated) = read_over(&file, default).unwrap();
            assert_eq!(&read, default, "{table}");
            assert_eq!(stated.0, table);
        }
    }

    #[test]
    fn a_file_states_settings_one_by_one() {
        check(&LinearConfig::default());
        #[cfg(feature = "nets")]
        {
            check(&crate::ImageConfig::default());
            check(&crate::ImageConfig::for_classify());
            check(&crate::LanguageConfig::default());
        }
    }

    #[test]
    fn what_is_stated_is_known_by_name() {
        let stated = Stated("a = 1\n[b]\nc = 2".parse().unwrap());
        let has = ["a", "b", "b.c", "b.d", "a.c", "d"].map(|setting| stated.has(setting));
        assert_eq!(has, [true, true, true, false, false, false]);
    }
}
