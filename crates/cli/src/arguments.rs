//! Every flag of every command. A flag left out keeps the value of `--config`, or the default.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use pelton_tools::buckets::{Column, Unit};
use pelton_tools::{BadExamples, BucketPolicy};
use pelton_train::{Access, ClassName, Configured, LinearConfig, Order};

use crate::bytes::Memory;
use crate::data_arguments::{DataArguments, name, order_help};
use crate::given::Given;
use crate::linear_values::{ClassWeight, Costs, Intercept, class_weight, costs};
#[cfg(feature = "nets")]
use crate::net_arguments::{ClassifyArguments, ImageArguments, LanguageArguments};
use crate::peer_arguments::PeerArguments;
use crate::run_arguments::RunArguments;
use crate::stage_arguments::StagesArguments;

/// Train from files larger than memory, in a new full random order every epoch.
#[derive(Debug, Parser)]
#[command(name = "pelton", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model
    #[command(subcommand)]
    Train(TrainCommand),
    /// Evaluate a trained model on labelled data
    Eval(EvalArguments),
    /// Print the predicted label, or target, of every row of a file
    Predict(PredictArguments),
    /// Classify vectors or pictures over HTTP
    #[cfg(feature = "nets")]
    Serve(ServeArguments),
    /// Add classes to a finished run of `train classify`, or remove some, without training
    #[cfg(feature = "nets")]
    Classes(ClassesArguments),
    /// Generate text with a trained language model
    #[cfg(feature = "nets")]
    Sample(SampleArguments),
    /// Index the records of files and report the cost of a random access
    Index(IndexArguments),
    /// Show one record
    Inspect(InspectArguments),
    /// Write data as packed binary rows
    Pack(PackArguments),
    /// Measure the speed of the device under a folder, next to published devices
    Probe(ProbeArguments),
    /// Measure how fast batches arrive, without training
    Bench(Box<BenchArguments>),
    /// Compare the padding of batching policies for sentences of unequal length
    Buckets(BucketsArguments),
    /// Count the words of texts and write a vocabulary
    Vocabulary(VocabularyArguments),
}

/// Kinds of model.
#[derive(Debug, Subcommand)]
pub enum TrainCommand {
    /// Linear SVM, logistic regression or a regression of real targets, out of core
    Linear(Box<LinearArguments>),
    /// A deep net that classifies images
    #[cfg(feature = "nets")]
    Image(Box<ImageArguments>),
    /// A net with a head over very many classes, divided over the ranks
    #[cfg(feature = "nets")]
    Classify(Box<ClassifyArguments>),
    /// A deep net that predicts the next word of a text
    #[cfg(feature = "nets")]
    Language(Box<LanguageArguments>),
}

/// `pelton train linear`
#[derive(Debug, Args)]
pub struct LinearArguments {
    /// Files of the training data, or demo:higgs, demo:epsilon, demo:webspam, demo:kdd (demo:NAME:ROWS)
    #[arg(value_parser = name())]
    pub data: Vec<String>,
    #[command(flatten)]
    pub given: Given<LinearConfig>,
    #[command(flatten, next_help_heading = LinearConfig::HEADING)]
    pub more: MoreLinearArguments,
    #[command(flatten)]
    pub run: RunArguments,
    #[command(flatten)]
    pub format: DataArguments,
}

/// Flags that stand for several settings, or for another value of one.
#[derive(Debug, Args)]
pub struct MoreLinearArguments {
    /// Cost C of a unit of loss (default: 1); several with commas between, or auto (10 from 1e-4 to 1e4), for --folds to
    /// choose from
    #[arg(long, value_parser = costs)]
    pub cost: Option<Costs>,
    /// Half the width of the tube of the epsilon-insensitive losses (default: 0.1, as in LIBLINEAR), or the error from
    /// which on huber is linear (default: 1.35, as in scikit-learn)
    #[arg(long)]
    pub epsilon: Option<f64>,
    /// Factor on the cost of a label, as LABEL=FACTOR; may be repeated. Or balanced: one over the label's share of the
    /// records
    #[arg(long, value_parser = class_weight)]
    pub class_weight: Vec<ClassWeight>,
    /// Append a constant feature of this value to every row, whose weight is regularised unless --intercept is free
    #[arg(long)]
    pub bias: Option<f32>,
    /// Intercept: free (its weight is not regularised, as in scikit-learn), regularised (as the others, as in
    /// LIBLINEAR: --bias 1) or none (default: free)
    #[arg(long)]
    pub intercept: Option<Intercept>,
    /// Memory for look-ahead, blocks and rows kept between them: 64MiB, 1.5GB, or a share of the bytes of the files
    /// (1/8) (default: 1GiB, or a quarter of what the machine or container has, if that is less)
    #[arg(long)]
    pub memory: Option<Memory>,
}

impl LinearArguments {
    /// Writes the flags that were given over a configuration, and returns those of the run.
    ///
    /// Errors: flags that contradict each other.
    pub fn apply(self, config: &mut LinearConfig) -> anyhow::Result<RunArguments> {
        if !self.data.is_empty() {
            config.data.paths = self.data;
        }
        self.format.apply(&mut config.data);
        self.given.apply(config);
        let more = self.more;
        if let Some(epsilon) = more.epsilon {
            let loss = config.loss.with_epsilon(epsilon);
            config.loss = loss.map_err(anyhow::Error::msg)?;
        }
        match more.cost.map(|costs| costs.0) {
            None => {}
            Some(costs) if costs.len() == 1 => (config.cost, config.costs) = (costs[0], Vec::new()),
            Some(costs) => config.costs = costs,
        }
        if !more.class_weight.is_empty() {
            config.balanced = more.class_weight.contains(&ClassWeight::Balanced);
            let factors = more.class_weight.into_iter();
            let factors = factors.filter_map(|weight| match weight {
                ClassWeight::Balanced => None,
                ClassWeight::Factor(label, factor) => Some((label, factor)),
            });
            config.class_weights = factors.collect();
        }
        if let Some(bias) = more.bias {
            (config.bias, config.free_bias) = (Some(bias), false);
        }
        if let Some(intercept) = more.intercept {
            anyhow::ensure!(
                intercept != Intercept::None || more.bias.is_none(),
                "--intercept none and --bias contradict each other; give one of them"
            );
            config.free_bias = intercept == Intercept::Free;
            config.bias = match intercept {
                Intercept::None => None,
                Intercept::Free | Intercept::Regularised => config.bias.or(Some(1.0)),
            };
        }
        match more.memory {
            Some(Memory::Bytes(bytes)) => {
                (config.memory_bytes, config.memory_share) = (bytes, None);
            }
            Some(Memory::Share(share)) => config.memory_share = Some(share),
            None => {}
        }
        Ok(self.run)
    }
}

/// `pelton eval`
#[derive(Debug, Args)]
pub struct EvalArguments {
    /// Run folder, or a model file; also s3://BUCKET/NAME, gs:// or az://
    pub model: PathBuf,
    /// Files with labels
    #[arg(required = true, value_parser = name())]
    pub data: Vec<String>,
    #[command(flatten)]
    pub format: DataArguments,
    /// For a linear model of two classes: the probability (logistic models) or else decision value from which on a
    /// row is given the positive class, which is the greater label or later name (default: the threshold of the
    /// model, else the sign)
    #[arg(long, allow_negative_numbers = true)]
    pub threshold: Option<f64>,
    /// For a net: also how often the right class is one of the K likeliest
    #[arg(long, value_name = "K", conflicts_with_all = ["recall", "pairs"])]
    pub top: Option<usize>,
    /// For a run of `train classify`: how often one of the K nearest other records has a record's class, which may be
    /// any; several K with commas between
    #[arg(
        long,
        value_name = "K",
        value_delimiter = ',',
        conflicts_with = "pairs"
    )]
    pub recall: Vec<usize>,
    /// File in which --recall looks for the nearest records instead; may be repeated
    #[arg(long, value_name = "FILE", requires = "recall", value_parser = name())]
    pub gallery: Vec<String>,
    /// For a run of `train classify`: verification of the pairs in this text file, each line RECORD RECORD SAME:
    /// numbers of records from 0, and 1 for pairs of one class or 0
    #[arg(long, value_name = "FILE")]
    pub pairs: Option<PathBuf>,
    /// Memory for the data (default: 256MiB, or a quarter of what the machine or container has, if that is less)
    #[arg(long)]
    pub memory: Option<Memory>,
    /// Print the results as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `pelton predict`
#[derive(Debug, Args)]
pub struct PredictArguments {
    /// Run folder, or a model file
    pub model: PathBuf,
    /// Files in the format of the training data; labels are ignored, and CSV, TSV and npy may lack them
    #[arg(required = true, value_parser = name())]
    pub data: Vec<String>,
    #[command(flatten)]
    pub format: DataArguments,
    /// Memory for the data (default: 256MiB, or a quarter of what the machine or container has, if that is less)
    #[arg(long)]
    pub memory: Option<Memory>,
    /// Also print the probability of every class, separated by tabs, after a line that names the columns:
    /// `label`, then each class (logistic models, and nets without a head over many classes)
    #[arg(long)]
    pub probabilities: bool,
    /// For a linear model: write CSV with the decision value of every class (of two that of the positive one)
    #[arg(long)]
    pub scores: bool,
    /// For a linear model: write CSV with these columns of the data, with commas between
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub keep: Vec<String>,
    /// For a linear model of two classes: the probability (logistic models) or else decision value from which on a
    /// row is given the positive class, which is the greater label or later name (default: the threshold of the
    /// model, else the sign)
    #[arg(long, allow_negative_numbers = true)]
    pub threshold: Option<f64>,
    /// For a net: print the K likeliest classes with their probabilities
    #[arg(long, value_name = "K", conflicts_with = "probabilities")]
    pub top: Option<usize>,
    /// For a run of `train classify`: write the features of every record to this .npy file instead, float32
    /// [records, features], as the head compares them; labels may be of any class, or missing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["probabilities", "scores", "keep", "top", "out"])]
    pub embeddings: Option<PathBuf>,
    /// File to write instead of standard output
    #[arg(short, long)]
    pub out: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    pub overwrite: bool,
}

/// `pelton serve`
#[cfg(feature = "nets")]
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Run folder of `pelton train classify` or `pelton train image`; the first start of one of many classes writes an
    /// index of its class vectors there
    pub run: PathBuf,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Name or address to listen on; the default is reachable from this machine only
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Compare with every class instead of the likeliest lists of an index
    #[arg(long)]
    pub exact: bool,
    /// Classes in an answer when the request does not say how many, at most 1000
    #[arg(long, default_value_t = 5, value_name = "K")]
    pub top: usize,
    /// Classification requests handled at once; further ones are refused (503)
    #[arg(long, default_value_t = 64)]
    pub concurrency: usize,
    /// Largest request body; larger ones are refused (413)
    #[arg(long, default_value = "8MiB", value_name = "BYTES")]
    pub max_body: Memory,
    /// Time limit in seconds for a request to arrive (408), and again for its answer (503)
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub timeout: f64,
}

/// `pelton classes`
#[cfg(feature = "nets")]
#[derive(Debug, Args)]
pub struct ClassesArguments {
    /// Run folder of `pelton train classify`, which stays as it is
    pub run: PathBuf,
    /// File of labelled examples, whose classes are new to the run; may be repeated
    #[arg(long, value_name = "FILE", value_parser = name())]
    pub add: Vec<String>,
    #[command(flatten)]
    pub format: DataArguments,
    /// Classes to remove, with commas between
    #[arg(
        long,
        value_name = "LABEL",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    pub remove: Vec<ClassName>,
    /// Folder for the run with the other classes
    #[arg(short, long)]
    pub out: PathBuf,
    /// Replace what is in that folder
    #[arg(long)]
    pub overwrite: bool,
    /// Memory for the data (default: 256MiB, or a quarter of what the machine or container has, if that is less)
    #[arg(long)]
    pub memory: Option<Memory>,
}

/// `pelton sample`
#[cfg(feature = "nets")]
#[derive(Debug, Args)]
pub struct SampleArguments {
    /// Run folder of `pelton train language`
    pub run: PathBuf,
    /// Words to begin with
    #[arg(long, default_value = "")]
    pub prompt: String,
    /// Words to generate (bytes, for a net of bytes)
    #[arg(long, default_value_t = 50)]
    pub words: usize,
    /// Below 1 likely words come more often, above 1 less; 0 always takes the likeliest
    #[arg(long, default_value_t = 1.0)]
    pub temperature: f64,
    /// Draw from this many of the likeliest words; 0 for all
    #[arg(long, default_value_t = 0, value_name = "K")]
    pub top: usize,
    /// Seed of the draws
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// `pelton index`
#[derive(Debug, Args)]
pub struct IndexArguments {
    /// Files
    #[arg(required = true, value_parser = name())]
    pub data: Vec<String>,
    #[command(flatten)]
    pub format: DataArguments,
    /// Print the results as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `pelton inspect`
#[derive(Debug, Args)]
pub struct InspectArguments {
    /// Files
    #[arg(required = true, value_parser = name())]
    pub data: Vec<String>,
    #[command(flatten)]
    pub format: DataArguments,
    /// Index of the record, from 0
    #[arg(long, default_value_t = 0)]
    pub id: u64,
    /// Write the record's picture to this file, as PNG
    #[arg(short, long)]
    pub out: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "out")]
    pub overwrite: bool,
    /// Print the record as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `pelton pack`
#[derive(Debug, Args)]
pub struct PackArguments {
    /// Files
    #[arg(required = true, value_parser = name())]
    pub data: Vec<String>,
    #[command(flatten)]
    pub format: DataArguments,
    /// File to write
    #[arg(short, long)]
    pub out: PathBuf,
    /// Store sparse indices as variable-length differences: smaller, slower to read
    #[arg(long)]
    pub delta: bool,
    /// Replace the file if it exists
    #[arg(long)]
    pub overwrite: bool,
    /// Print the results as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `pelton probe`
#[derive(Debug, Args)]
pub struct ProbeArguments {
    /// Folder on the device
    pub folder: PathBuf,
    /// Size of the file written for the measurement
    #[arg(long, default_value = "1GiB")]
    pub size: Memory,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Print the results as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `pelton bench`
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// Files, or demo:NAME (demo:classes:N for any number of classes), or demo:NAME:test
    #[arg(required = true, value_parser = name())]
    pub data: Vec<String>,
    #[command(flatten)]
    pub format: DataArguments,
    #[arg(long, default_value = "full", help = order_help())]
    pub order: Order,
    /// Examples in a batch (default: 4096, or as many as fit three times into a load of peers' memory)
    #[arg(long)]
    pub batch: Option<u64>,
    /// How records are read: auto, direct, window[:GAP_BYTES] or scatter
    #[arg(long, default_value = "auto")]
    pub access: Access,
    /// Memory for look-ahead and batches (default: 256MiB, or a quarter of what the machine or container has, if that
    /// is less)
    #[arg(long)]
    pub memory: Option<Memory>,
    /// Epochs to run
    #[arg(long, default_value_t = 1)]
    pub epochs: u64,
    /// Seed of the order
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Threads of each rank that load records; with stages, threads that decode and augment (default: 3, or one
    /// for each processor)
    #[arg(long)]
    pub threads: Option<usize>,
    /// Ranks that share every batch: threads of this process (default: 1, or what mpirun started, with MPI)
    #[arg(long)]
    pub ranks: Option<usize>,
    /// What to do with records that cannot be read or decoded: fail, skip or skip:LIMIT; with stages also replace
    /// or replace:LIMIT
    #[arg(long, default_value = "fail")]
    pub on_bad_record: BadExamples,
    /// Folder for shuffled scratch files
    #[arg(long)]
    pub scratch: Option<PathBuf>,
    #[command(flatten)]
    pub stages: StagesArguments,
    #[command(flatten)]
    pub peers: PeerArguments,
    /// Drop the files' pages from the page cache first
    #[arg(long)]
    pub cold: bool,
    /// Print the results as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `pelton buckets`
#[derive(Debug, Args)]
pub struct BucketsArguments {
    /// Text, one sentence a line; with --column, a table or .npy file of lengths
    pub file: PathBuf,
    /// Second file, whose sentence N is paired with sentence N of the first; both are padded
    #[arg(long, value_name = "FILE")]
    pub pair: Option<PathBuf>,
    /// Sentences in a global batch (rows, where sentences are packed)
    #[arg(long, default_value_t = 32)]
    pub batch: u64,
    /// Policy: none, static:LENGTH,LENGTH,…, auto, optimal:BUCKETS, tokens:MAX or
    /// pack:ROW_LENGTH[:LOOK_AHEAD]; of pairs none, static:LENGTHxLENGTH,…, auto or tokens:MAX; may be repeated
    /// (default: all of them)
    #[arg(long)]
    pub policy: Vec<BucketPolicy>,
    /// Unit of length: words or bytes; the end of a sentence counts as one
    #[arg(long, default_value = "words", conflicts_with = "column")]
    pub unit: Unit,
    /// Column of CSV, TSV, plain numbers or .npy that holds the lengths: a name, or a position from 1
    #[arg(long)]
    pub column: Option<Column>,
    /// SVG file for a histogram of the lengths, with the boundaries
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "out")]
    pub overwrite: bool,
    /// Print the results as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `pelton vocabulary`
#[derive(Debug, Args)]
pub struct VocabularyArguments {
    /// Text files, or tar files of samples with .txt members
    #[arg(required = true, value_parser = name())]
    pub data: Vec<String>,
    #[command(flatten)]
    pub format: DataArguments,
    /// File to write
    #[arg(short, long)]
    pub out: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    pub overwrite: bool,
    /// Leave out words that occur less often
    #[arg(long, default_value_t = 1)]
    pub min_count: u64,
    /// Maximum number of tokens, including the four special ones; the most frequent words are kept
    #[arg(long)]
    pub max_size: Option<u32>,
    /// Print the results as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}
