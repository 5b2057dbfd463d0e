//! The fully resolved configuration of a linear training run: what `run.toml` holds. A run made
//! from it again repeats the run.

use std::path::{Path, PathBuf};

use pelton_feed::{Access, OnBadRecord};
use pelton_format::{ClassName, Missing, RowLayout};
use pelton_linear::{InnerPasses, Loss, Scaling};
use pelton_plan::Order;
use pelton_storage::LocalMode;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::TrainError;

/// A value that is written and read as the text its command line flag takes.
pub(crate) mod as_text {
    use super::*;
    use std::fmt::Display;
    use std::str::FromStr;

    pub fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr,
        T::Err: Display,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// Where the data lies and how it is read as rows with labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataConfig {
    /// Files of the data set in order, or one `demo:NAME[:ROWS]`.
    pub paths: Vec<String>,
    /// Format of every file, such as csv or tar; by name and content where absent.
    pub format: Option<String>,
    /// Whether feature indices in LIBSVM text start at 0.
    pub zero_based: bool,
    /// Label column of CSV, TSV and npy: `first`, `last`, a position from 1, or a name; of tar samples `json:KEY`.
    pub label: String,
    /// Table of the classes of a folder's images, which `label` is a column of.
    pub label_file: Option<PathBuf>,
    /// Column of that table that names the image: `first`, `last`, a position from 1, or a name.
    pub file_column: String,
    /// Label that is taken for +1 against all others.
    pub positive: Option<ClassName>,
    /// What stands for missing cells of CSV and TSV: zero or mean; they are bad records where absent.
    pub missing: Option<Missing>,
    /// How files are opened.
    #[serde(with = "as_text")]
    pub io: IoMode,
    /// Folder for indexes of read-only folders, decompressed text and demo data.
    pub cache_dir: Option<PathBuf>,
    /// Device whose speed is imposed on reads: hdd, ssd or optane.
    pub device_model: Option<String>,
    /// Whether rows of bytes are accepted, as jobs that only read data do.
    #[serde(skip)]
    pub bytes_too: bool,
    /// Whether sparse rows become dense, as jobs that compute with them want it.
    #[serde(skip)]
    pub rows: RowLayout,
}

impl Default for DataConfig {
    fn default() -> DataConfig {
        DataConfig {
            paths: Vec::new(),
            format: None,
            zero_based: false,
            label: "last".to_string(),
            label_file: None,
            file_column: "first".to_string(),
            positive: None,
            missing: None,
            io: IoMode(LocalMode::Auto),
            cache_dir: None,
            device_model: None,
            bytes_too: false,
            rows: RowLayout::Stored,
        }
    }
}

impl DataConfig {
    /// The same, with sparse rows decoded as `rows` says.
    pub(crate) fn with_rows(&self, rows: RowLayout) -> DataConfig {
        DataConfig {
            rows,
            ..self.clone()
        }
    }

    /// The same, with rows of bytes accepted.
    pub(crate) fn with_bytes(&self) -> DataConfig {
        DataConfig {
            bytes_too: true,
            ..self.clone()
        }
    }
}

/// [`LocalMode`] as text: auto, direct, buffered or pread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoMode(pub LocalMode);

impl std::fmt::Display for IoMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            LocalMode::Direct => "direct",
            LocalMode::Buffered => "buffered",
            LocalMode::Pread => "pread",
            _ => "auto",
        })
    }
}

impl std::str::FromStr for IoMode {
    type Err = String;

    fn from_str(text: &str) -> Result<IoMode, String> {
        Ok(IoMode(match text {
            "auto" => LocalMode::Auto,
            "direct" => LocalMode::Direct,
            "buffered" => LocalMode::Buffered,
            "pread" => LocalMode::Pread,
            _ => {
                return Err(format!(
                    "`{text}` is not a way to open files: use auto, direct, buffered or pread"
                ));
            }
        }))
    }
}

/// What relative differences refer to.
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
                .filter(|value: &f64| value.is_finite() && *value > 0.0)
                .map(Optimum::Value)
                .ok_or_else(|| {
                    format!("`{text}` is not an optimum: use auto, unknown or a positive number")
                }),
        }
    }
}

/// How a linear problem is solved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Solver {
    /// The faster of the others, by a model of their cost, unless something is asked for that one of them alone does.
    #[default]
    Auto,
    /// Newton's method: some ten passes over rows of few features.
    Newton,
    /// Dual coordinate descent, block by block.
    CoordinateDescent,
}

impl std::fmt::Display for Solver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Solver::Auto => "auto",
            Solver::Newton => "newton",
            Solver::CoordinateDescent => "coordinate-descent",
        })
    }
}

impl std::str::FromStr for Solver {
    type Err = String;

    fn from_str(text: &str) -> Result<Solver, String> {
        [Solver::Auto, Solver::Newton, Solver::CoordinateDescent]
            .into_iter()
            .find(|solver| solver.to_string() == text)
            .ok_or_else(|| {
                format!("`{text}` is not a solver: use auto, newton or coordinate-descent")
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
    /// Loss: l1 (hinge), l2 (squared hinge) or logistic.
    #[serde(with = "as_text")]
    pub loss: Loss,
    /// Cost C of a unit of loss.
    pub cost: f64,
    /// Factors on the cost by label.
    pub class_weights: Vec<(ClassName, f64)>,
    /// Value of a constant feature appended to every row.
    pub bias: Option<f32>,
    /// How the problem is solved.
    #[serde(with = "as_text")]
    pub solver: Solver,
    /// How features are scaled before training: none, standard or max-abs.
    #[serde(with = "as_text")]
    pub scale: Scaling,
    /// Order in which an epoch visits the examples.
    #[serde(with = "as_text")]
    pub order: Order,
    /// Blocks an epoch is cut into; by memory where absent.
    pub blocks: Option<u64>,
    /// How records are brought into memory.
    #[serde(with = "as_text")]
    pub access: Access,
    /// Bytes for look-ahead, blocks and rows kept between them together.
    pub memory_bytes: u64,
    /// The same as a share of the bytes of all records in their files; wins over `memory_bytes` where present.
    pub memory_share: Option<f64>,
    /// Passes over a block while it is in memory.
    #[serde(with = "as_text")]
    pub inner_passes: InnerPasses,
    /// Most epochs.
    pub epochs: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether rows settled at a bound are left unread for some epochs.
    pub skip: bool,
    /// Share of the memory that keeps undecided long dense rows between blocks; where absent, and nothing is
    /// to be skipped, what saves most passes in full order.
    pub cache_fraction: Option<f64>,
    /// Relative difference at which training ends, certified by the duality gap.
    pub target: Option<f64>,
    /// What relative differences refer to.
    #[serde(with = "as_text")]
    pub optimum: Optimum,
    /// Loading threads.
    pub threads: usize,
    /// What happens to records that cannot be decoded.
    #[serde(with = "as_text")]
    pub on_bad_record: OnBadRecord,
    /// Folder for shuffled scratch files; beside the run folder where absent.
    pub scratch_dir: Option<PathBuf>,
    /// Seconds between checkpoints, beside those at the ends of epochs.
    pub checkpoint_every_s: f64,
}

impl LinearConfig {
    /// Reads a configuration: the `run.toml` of a run, or a file like it.
    pub fn read(path: &Path) -> Result<LinearConfig, TrainError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            TrainError::Config(format!(
                "{}: the configuration cannot be read ({error}); check the path and that it is text",
                path.display()
            ))
        })?;
        toml::from_str(&text).map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = 1 + before.unwrap_or("").matches('\n').count();
            TrainError::Config(format!(
                "{}: line {line}: {}; compare it with the run.toml of a run",
                path.display(),
                error.message().replace('\n', ", ")
            ))
        })
    }
}

impl Default for LinearConfig {
    fn default() -> LinearConfig {
        LinearConfig {
            data: DataConfig::default(),
            test: Vec::new(),
            loss: Loss::Hinge,
            cost: 1.0,
            class_weights: Vec::new(),
            bias: None,
            solver: Solver::Auto,
            scale: Scaling::None,
            order: Order::Full,
            blocks: None,
            access: Access::Auto,
            memory_bytes: 1 << 30,
            memory_share: None,
            inner_passes: InnerPasses::Until {
                epsilon: 0.1,
                at_most: 200,
            },
            epochs: 30,
            seed: 0,
            skip: false,
            cache_fraction: None,
            target: None,
            optimum: Optimum::Unknown,
            threads: 3,
            on_bad_record: OnBadRecord::Fail,
            scratch_dir: None,
            checkpoint_every_s: 60.0,
        }
    }
}
