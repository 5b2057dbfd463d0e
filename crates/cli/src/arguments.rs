//! Every flag of every command. A flag left out keeps the value of `--config`, or the default.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use pelton_tools::buckets::{Column, Unit};
use pelton_tools::{BadExamples, BucketPolicy};
use pelton_train::{
    Access, ClassName, InnerPasses, LinearConfig, Loss, OnBadRecord, Optimum, Order, Scaling,
    Solver,
};

use crate::bytes::Memory;
use crate::data_arguments::{DataArguments, name, order_help, set, set_option};
#[cfg(feature = "nets")]
use crate::net_arguments::{ClassifyArguments, ImageArguments, LanguageArguments};
use crate::peer_arguments::PeerArguments;
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
    /// Measure a trained model on data with labels
    Eval(EvalArguments),
    /// Print the predicted label of every row of a file
    Predict(PredictArguments),
    /// Answer over HTTP which classes vectors or pictures belong to
    #[cfg(feature = "nets")]
    Serve(ServeArguments),
    /// Make up text with a trained net of language
    #[cfg(feature = "nets")]
    Sample(SampleArguments),
    /// Locate the records of files and say what one random access costs
    Index(IndexArguments),
    /// Show one record
    Inspect(InspectArguments),
    /// Write data as packed binary rows
    Pack(PackArguments),
    /// Measure the device under a folder: this machine's row of LIRS Table 2
    Probe(ProbeArguments),
    /// Measure how fast batches arrive, without training
    Bench(Box<BenchArguments>),
    /// Compare ways of putting sentences of unequal length into batches
    Buckets(BucketsArguments),
    /// Count the words of text and write those to number as a vocabulary
    Vocabulary(VocabularyArguments),
    /// Make data
    #[command(subcommand)]
    Generate(GenerateCommand),
}

/// Kinds of model.
#[derive(Debug, Subcommand)]
pub enum TrainCommand {
    /// Linear SVM or logistic regression, out of core
    Linear(Box<LinearArguments>),
    /// A deep net that tells the classes of images
    #[cfg(feature = "nets")]
    Image(Box<ImageArguments>),
    /// A net with a head over very many classes, whose weights are divided over the ranks
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
    pub format: DataArguments,
    /// Start from the configuration in this file (a run.toml); flags given here win
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Test data
    #[arg(long, value_parser = name())]
    pub test: Vec<String>,
    #[arg(long, help = Loss::help())]
    pub loss: Option<Loss>,
    /// Cost C of a unit of loss
    #[arg(long)]
    pub cost: Option<f64>,
    /// Factor on the cost of a label, as LABEL=FACTOR; may be repeated
    #[arg(long, value_parser = class_weight)]
    pub class_weight: Vec<(ClassName, f64)>,
    /// Append a constant feature of this value to every row
    #[arg(long)]
    pub bias: Option<f32>,
    /// Scale features before training, in the model too: standard (zero mean and unit deviation; of sparse rows unit
    /// deviation alone), max-abs (within -1 and 1) or none
    #[arg(long)]
    pub scale: Option<Scaling>,
    /// How: newton, coordinate-descent, or auto: the one that is expected to be faster, which of up to 16 MB of rows
    /// in memory certificates tell on the way
    #[arg(long)]
    pub solver: Option<Solver>,
    #[arg(long, help = order_help())]
    pub order: Option<Order>,
    /// Refused: it is part of --order
    #[arg(long, hide = true)]
    pub permute_blocks: bool,
    /// Refused: it is part of --order
    #[arg(long, hide = true)]
    pub unit_bytes: Option<String>,
    /// Blocks an epoch is cut into (default: as large as memory allows)
    #[arg(long)]
    pub blocks: Option<u64>,
    /// How records are read: auto, direct, window[:GAP_BYTES] or scatter
    #[arg(long)]
    pub access: Option<Access>,
    /// Memory for look-ahead, blocks and rows kept between them: 64MiB, 1.5GB, or a share of the bytes of the files
    /// (1/8) (default: 1GiB, or a quarter of what the machine or container has, if that is less)
    #[arg(long)]
    pub memory: Option<Memory>,
    /// Passes over a block in memory: a number, or until:EPSILON[:MOST]
    #[arg(long)]
    pub inner_passes: Option<InnerPasses>,
    /// Most epochs (default: 30; over rows in memory 1000 visits of a row, or 300 passes)
    #[arg(long)]
    pub epochs: Option<u64>,
    /// Seed of everything random
    #[arg(long)]
    pub seed: Option<u64>,
    /// Leave rows that are settled at a bound unread for 1, 2, 4, 8 epochs
    #[arg(long)]
    pub skip: bool,
    /// Share of the memory that keeps undecided rows of 128 dense features or more between blocks, as one
    /// byte a value (default: what saves most passes in full order; 0 for none)
    #[arg(long)]
    pub cache_fraction: Option<f64>,
    /// End at this relative difference to the optimum, certified by the duality gap
    #[arg(long)]
    pub target: Option<f64>,
    /// What relative differences refer to: auto (solve for it first), unknown, or a number
    #[arg(long)]
    pub optimum: Option<Optimum>,
    /// Ranks that train together, each with the memory for itself: threads of this process (default: 1,
    /// or what mpirun started)
    #[arg(long)]
    pub ranks: Option<usize>,
    /// Loading threads of each rank
    #[arg(long)]
    pub threads: Option<usize>,
    /// Records that cannot be read: fail, skip or skip:LIMIT
    #[arg(long)]
    pub on_bad_record: Option<OnBadRecord>,
    /// Folder for shuffled scratch files
    #[arg(long)]
    pub scratch: Option<PathBuf>,
    /// Seconds between checkpoints, next to those at the ends of epochs
    #[arg(long)]
    pub checkpoint_every: Option<f64>,
    /// Run folder (default: runs/NAME-OF-DATA)
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Go on from the run folder's last checkpoint
    #[arg(long)]
    pub resume: bool,
    /// Replace what is in the run folder
    #[arg(long, conflicts_with = "resume")]
    pub overwrite: bool,
    /// Print the figures as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

impl LinearArguments {
    /// Writes the flags that were given over a configuration.
    ///
    /// Errors: a flag that has become a part of another one.
    pub fn apply(&mut self, config: &mut LinearConfig) -> anyhow::Result<()> {
        if !self.data.is_empty() {
            config.data.paths = std::mem::take(&mut self.data);
        }
        std::mem::take(&mut self.format).apply(&mut config.data);
        if !self.test.is_empty() {
            config.test = std::mem::take(&mut self.test);
        }
        set(&mut config.loss, self.loss);
        set(&mut config.cost, self.cost);
        if !self.class_weight.is_empty() {
            config.class_weights = std::mem::take(&mut self.class_weight);
        }
        set_option(&mut config.bias, self.bias);
        set(&mut config.scale, self.scale);
        set(&mut config.order, self.order);
        anyhow::ensure!(
            !self.permute_blocks,
            "--permute-blocks is part of the order; give --order block:BLOCKS:permute"
        );
        anyhow::ensure!(
            self.unit_bytes.is_none(),
            "--unit-bytes is part of the order; give --order page:BYTES or opportunistic:LOADS:BYTES"
        );
        set_option(&mut config.blocks, self.blocks);
        set(&mut config.solver, self.solver);
        set(&mut config.access, self.access);
        set(&mut config.inner_passes, self.inner_passes);
        set(&mut config.epochs, self.epochs);
        set(&mut config.seed, self.seed);
        config.skip |= self.skip;
        set_option(&mut config.cache_fraction, self.cache_fraction);
        set_option(&mut config.target, self.target);
        set(&mut config.optimum, self.optimum);
        set(&mut config.threads, self.threads);
        set(&mut config.on_bad_record, self.on_bad_record);
        set_option(&mut config.scratch_dir, self.scratch.take());
        set(&mut config.checkpoint_every_s, self.checkpoint_every);
        match self.memory {
            Some(Memory::Bytes(bytes)) => {
                config.memory_bytes = bytes;
                config.memory_share = None;
            }
            Some(Memory::Share(share)) => config.memory_share = Some(share),
            None => {}
        }
        Ok(())
    }
}

fn class_weight(text: &str) -> Result<(ClassName, f64), String> {
    let wrong = || format!("`{text}` is not LABEL=FACTOR, for example 1=2.5 or -1=0.5");
    let (label, factor) = text.rsplit_once('=').ok_or_else(wrong)?;
    match (label.parse(), factor.parse()) {
        (Ok(label), Ok(factor)) => Ok((label, factor)),
        _ => Err(wrong()),
    }
}

/// `pelton eval`
#[derive(Debug, Args)]
pub struct EvalArguments {
    /// Run folder, or a model file
    pub model: PathBuf,
    /// Files with labels
    #[arg(required = true, value_parser = name())]
    pub data: Vec<String>,
    #[command(flatten)]
    pub format: DataArguments,
    /// Memory for the data (default: 256MiB, or a quarter of what the machine or container has, if that is less)
    #[arg(long)]
    pub memory: Option<Memory>,
    /// Print the figures as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `pelton predict`
#[derive(Debug, Args)]
pub struct PredictArguments {
    /// Run folder, or a model file
    pub model: PathBuf,
    /// Files in the format of the training data; labels in them are not used, and CSV, TSV and npy may have none
    #[arg(required = true, value_parser = name())]
    pub data: Vec<String>,
    #[command(flatten)]
    pub format: DataArguments,
    /// Memory for the data (default: 256MiB, or a quarter of what the machine or container has, if that is less)
    #[arg(long)]
    pub memory: Option<Memory>,
    /// Print the probability of every class as well (logistic models, and nets without a head over many classes): a
    /// first line names the columns, `label` and then each class, with tabs between
    #[arg(long)]
    pub probabilities: bool,
    /// Of a net: print so many of the likeliest classes with their probabilities
    #[arg(long, value_name = "K", conflicts_with = "probabilities")]
    pub top: Option<usize>,
    /// File to write instead of standard output
    #[arg(short, long)]
    pub out: Option<PathBuf>,
}

/// `pelton serve`
#[cfg(feature = "nets")]
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Run folder of `pelton train classify` or `pelton train image`
    pub run: PathBuf,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Name or address to listen on; the default is reached from this machine alone
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Look at every class instead of the likeliest lists of an index
    #[arg(long)]
    pub exact: bool,
    /// Classes of an answer where a request does not say how many, at most 1000
    #[arg(long, default_value_t = 5, value_name = "K")]
    pub top: usize,
    /// Requests to classify that may be under way at once; more are told to come again (503)
    #[arg(long, default_value_t = 64)]
    pub concurrency: usize,
    /// Largest body of a request; more is refused (413)
    #[arg(long, default_value = "8MiB", value_name = "BYTES")]
    pub max_body: Memory,
    /// Seconds in which a request must arrive (408), and again in which it must be answered (503)
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub timeout: f64,
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
    /// Words (of a net of bytes, bytes) to make up
    #[arg(long, default_value_t = 50)]
    pub words: usize,
    /// Below 1 likely words come more often, above 1 less; 0 always takes the likeliest
    #[arg(long, default_value_t = 1.0)]
    pub temperature: f64,
    /// Draw from so many of the likeliest words; from all where 0
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
    /// Print the figures as one JSON object on standard output
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
    /// Number of the record, from 0
    #[arg(long, default_value_t = 0)]
    pub id: u64,
    /// Write the record's picture to this file, as PNG
    #[arg(short, long)]
    pub out: Option<PathBuf>,
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
    /// Print the figures as one JSON object on standard output
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
    /// Seconds for each point
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Print the figures as one JSON object on standard output
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
    /// Examples of a batch (default: 4096, or as many as fit three times into a load of peers' memory)
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
    /// Threads of each rank that load, or with stages decode and augment (default: 3, or one for each processor)
    #[arg(long)]
    pub threads: Option<usize>,
    /// Ranks that share every batch: threads of this process (default: 1, or what mpirun started)
    #[arg(long)]
    pub ranks: Option<usize>,
    /// Records that cannot be read or decoded: fail, skip or skip:LIMIT; with stages also replace or replace:LIMIT
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
    /// Print the figures as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `pelton buckets`
#[derive(Debug, Args)]
pub struct BucketsArguments {
    /// Text, one sentence a line; with --column, a table or .npy file of lengths
    pub file: PathBuf,
    /// A second file, of which sentence N forms a pair with sentence N of the first: both are padded
    #[arg(long, value_name = "FILE")]
    pub pair: Option<PathBuf>,
    /// Sentences of a global batch; of packed rows, rows
    #[arg(long, default_value_t = 32)]
    pub batch: u64,
    /// Policy: none, static:LENGTH,LENGTH,…, auto, optimal:BUCKETS, tokens:MAX or
    /// pack:ROW_LENGTH[:LOOK_AHEAD]; of pairs none, static:LENGTHxLENGTH,…, auto or tokens:MAX; may be repeated
    /// (default: all of them)
    #[arg(long)]
    pub policy: Vec<BucketPolicy>,
    /// What a sentence is counted in: words or bytes; its end counts as one
    #[arg(long, default_value = "words", conflicts_with = "column")]
    pub unit: Unit,
    /// Column of CSV, TSV, plain numbers or .npy that holds the lengths: a name, or a position from 1
    #[arg(long)]
    pub column: Option<Column>,
    /// File to draw the histogram with the boundaries to, as SVG
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Print the figures as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `pelton vocabulary`
#[derive(Debug, Args)]
pub struct VocabularyArguments {
    /// Files of text; of tar samples the members .txt
    #[arg(required = true, value_parser = name())]
    pub data: Vec<String>,
    #[command(flatten)]
    pub format: DataArguments,
    /// File to write; only a vocabulary is replaced
    #[arg(short, long)]
    pub out: PathBuf,
    /// Leave out words that come less often
    #[arg(long, default_value_t = 1)]
    pub min_count: u64,
    /// Most tokens, the four special ones among them; the most frequent words are kept
    #[arg(long)]
    pub max_size: Option<u32>,
    /// Print the figures as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Kinds of data that are made.
#[derive(Debug, Subcommand)]
pub enum GenerateCommand {
    /// Pictures of all characters of fonts, a class a character, with families of fonts held out for the test
    Glyphs(GlyphsArguments),
}

/// `pelton generate glyphs`
#[derive(Debug, Args)]
pub struct GlyphsArguments {
    /// Folders with fonts in and below them (.ttf, .otf, .ttc, .otc)
    #[arg(long, required = true, num_args = 1.., value_name = "DIR")]
    pub fonts: Vec<PathBuf>,
    /// What the names of the files begin with: FILE-train-images.idx, FILE-test-images.idx, and labels and names of
    /// classes next to them
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
    /// Height and width of a picture
    #[arg(long, default_value_t = 32)]
    pub size: u32,
    /// Leave out characters with fewer different pictures for training
    #[arg(long, default_value_t = 8)]
    pub min_fonts: u32,
    /// Only so many classes, those with the most pictures for training (default: all)
    #[arg(long, value_name = "N")]
    pub classes: Option<u32>,
    /// Share of the pictures, at most, whose families of fonts are held out for the test
    #[arg(long, default_value_t = 0.2)]
    pub test_share: f64,
    /// Seed of the choice of these families
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Replace the files if they exist
    #[arg(long)]
    pub overwrite: bool,
    /// Print the figures as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}
