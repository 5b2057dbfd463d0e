//! The fully resolved configuration of a linear training run: what `run.toml` holds. A run made
//! from it again repeats the run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelton_data::{DataConfig, as_text};
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
                        "`{text}` is no target: use a relative difference between 0 and 1, such as 1e-3, auto or none"
                    )
                }),
        }
    }
}

/// How a linear problem is solved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Solver {
    /// The faster of the others, by a cost model, unless a setting needs one of them.
    #[default]
    Auto,
    /// Newton's method: about ten passes, for rows of few features.
    Newton,
    /// L-BFGS: passes for the multinomial loss of more than two classes, which no other solver minimises.
    Lbfgs,
    /// Dual coordinate descent, block by block.
    CoordinateDescent,
    /// Working sets of features, for penalties with ‖w‖₁.
    WorkingSet,
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

impl std::fmt::Display for Solver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Solver::Auto => "auto",
            Solver::Newton => "newton",
            Solver::Lbfgs => "l-bfgs",
            Solver::CoordinateDescent => "coordinate-descent",
            Solver::WorkingSet => "working-set",
        })
    }
}

impl std::str::FromStr for Solver {
    type Err = String;

    fn from_str(text: &str) -> Result<Solver, String> {
        use Solver::{Auto, CoordinateDescent, Lbfgs, Newton, WorkingSet};
        [Auto, Newton, Lbfgs, CoordinateDescent, WorkingSet]
            .into_iter()
            .find(|solver| solver.to_string() == text)
            .ok_or_else(|| {
                format!("`{text}` is not a solver: use auto, newton, l-bfgs, coordinate-descent or working-set")
            })
    }
}

/// The configuration of `pelton train linear`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinearConfig {
    /// Training data.
    pub data: DataConfig,
    /// Test data, read as the training data is; empty for none.
    pub test: Vec<String>,
    /// The loss of a row.
    #[serde(with = "as_text")]
    pub loss: Loss,
    /// Whether the loss becomes squared if labels are numbers rather than classes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub guesses_loss: bool,
    /// The penalty on the weights: l2, l1, elastic-net:SHARE or none.
    #[serde(with = "as_text", skip_serializing_if = "is_usual")]
    pub penalty: Penalty,
    /// Run folder or model file with the initial weights.
    #[serde(with = "path_text", skip_serializing_if = "Option::is_none")]
    pub warm_start: Option<PathBuf>,
    /// The same in memory; overrides the file.
    #[serde(skip)]
    pub given_start: Option<Arc<Start>>,
    /// Cost C of a unit of loss; if there are `costs`, the best of them once known.
    pub cost: f64,
    /// Candidate costs for cross-validation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<f64>,
    /// Number of folds; each is predicted by models trained on the others, for every cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folds: Option<u32>,
    /// Factors on the cost by label.
    pub class_weights: Vec<(ClassName, f64)>,
    /// Whether the cost of a class is also divided by its share of the records, so that all classes have equal weight.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub balanced: bool,
    /// File of factors on the cost by record: an npy array, or a text with one a line.
    #[serde(with = "path_text", skip_serializing_if = "Option::is_none")]
    pub sample_weights: Option<PathBuf>,
    /// The same in memory; overrides the file.
    #[serde(skip)]
    pub given_weights: Option<Arc<[f32]>>,
    /// Goal by which the threshold between two classes is chosen on the test data; if absent, the sign decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<ThresholdGoal>,
    /// Value of a constant feature appended to every row.
    pub bias: Option<f32>,
    /// Whether its weight is not regularised; without a value it is then 1.
    pub free_bias: bool,
    /// How the problem is solved.
    #[serde(with = "as_text")]
    pub solver: Solver,
    /// How features are scaled before training: none, standard or max-abs.
    #[serde(with = "as_text")]
    pub scale: Scaling,
    /// Order in which an epoch visits the examples.
    #[serde(with = "as_text")]
    pub order: Order,
    /// Blocks per epoch; if absent, chosen by memory.
    pub blocks: Option<u64>,
    /// How records are brought into memory.
    #[serde(with = "as_text")]
    pub access: Access,
    /// Total bytes for look-ahead, blocks, and rows kept between blocks.
    pub memory_bytes: u64,
    /// The same as a share of the bytes of all records in their files; overrides `memory_bytes`.
    pub memory_share: Option<f64>,
    /// Passes over a block while it is in memory.
    #[serde(with = "as_text")]
    pub inner_passes: InnerPasses,
    /// Most epochs.
    pub epochs: u64,
    /// Random seed.
    pub seed: u64,
    /// Whether rows settled at a bound are skipped for some epochs.
    pub skip: bool,
    /// Share of the memory that keeps undecided long dense rows between blocks; by default, without `skip`,
    /// what saves most passes in full order.
    pub cache_fraction: Option<f64>,
    /// How near the optimum the model must be: auto, none or a relative difference.
    pub target: Target,
    /// The optimum that relative differences refer to.
    #[serde(with = "as_text")]
    pub optimum: Optimum,
    /// Loading threads.
    pub threads: usize,
    /// What to do with records that cannot be decoded.
    #[serde(with = "as_text")]
    pub on_bad_record: OnBadRecord,
    /// Folder for shuffled scratch files; next to the run folder if absent.
    #[serde(with = "path_text")]
    pub scratch_dir: Option<PathBuf>,
    /// Seconds between checkpoints within an epoch; each epoch ends with one as well.
    pub checkpoint_every_s: f64,
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

impl Default for LinearConfig {
    fn default() -> LinearConfig {
        LinearConfig {
            data: DataConfig::default(),
            test: Vec::new(),
            loss: Loss::Hinge,
            guesses_loss: false,
            penalty: Penalty::L2,
            warm_start: None,
            given_start: None,
            cost: 1.0,
            costs: Vec::new(),
            folds: None,
            class_weights: Vec::new(),
            balanced: false,
            sample_weights: None,
            given_weights: None,
            threshold: None,
            bias: None,
            free_bias: false,
            solver: Solver::Auto,
            scale: Scaling::None,
            order: Order::Full,
            blocks: None,
            access: Access::Auto,
            memory_bytes: memory_budget(LinearConfig::USUAL_MEMORY, 1),
            memory_share: None,
            inner_passes: InnerPasses::Until {
                epsilon: 0.1,
                at_most: 200,
            },
            epochs: 30,
            seed: 0,
            skip: false,
            cache_fraction: None,
            target: Target::Auto,
            optimum: Optimum::Unknown,
            threads: 3,
            on_bad_record: OnBadRecord::Fail,
            scratch_dir: None,
            checkpoint_every_s: 60.0,
        }
    }
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
