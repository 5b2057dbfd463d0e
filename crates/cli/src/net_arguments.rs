//! The flags of training jobs on deep nets.

use std::path::PathBuf;

use clap::Args;
use clap::builder::TypedValueParser;
use pelton_train::class_weights::ClassWeights;
use pelton_train::classify::{Begin, HeadKind, Logits, Precision};
use pelton_train::image::ImageModel;
use pelton_train::language::{LanguageNet, Parallel};
use pelton_train::{
    Access, CourseSetting, FitConfig, GrowingBatch, ImageConfig, LanguageConfig, Optimizer, Order,
    Stated, Validation, growing_batch,
};

use crate::bytes::Memory;
use crate::data_arguments::{DataArguments, name, order_help, refuse_idle, set, set_option};
use crate::peer_arguments::PeerArguments;
use crate::stage_arguments::PipelineArguments;

/// How a net is trained.
#[derive(Debug, Args)]
#[command(next_help_heading = "Training")]
pub struct FitArguments {
    /// Validation data, or a share of the training records such as 0.1; the parameters of the epoch with the
    /// lowest validation loss are kept
    #[arg(long, value_name = "DATA|SHARE", value_parser = name().try_map(|name| name.parse::<Validation>()))]
    pub validation: Option<Validation>,
    /// Test data
    #[arg(long, value_parser = name())]
    pub test: Vec<String>,
    /// Epochs
    #[arg(long)]
    pub epochs: Option<u64>,
    /// Examples in a batch, over all ranks
    #[arg(long)]
    pub batch: Option<u64>,
    /// Batches whose gradients are accumulated for one step
    #[arg(long)]
    pub accumulate: Option<u64>,
    /// Let a step grow to MOST batches, starting at the part FROM of the run, at every step or at the start of
    /// each epoch: cosine:MOST[:FROM[:epoch]] or inverse:MOST[:FROM[:epoch]]
    #[arg(long, value_parser = growing_batch)]
    pub grow: Option<GrowingBatch>,
    #[arg(long, help = order_help())]
    pub order: Option<Order>,
    /// How records are read: auto, direct, window[:GAP_BYTES] or scatter
    #[arg(long)]
    pub access: Option<Access>,
    /// Optimizer: sgd, adamw or lars
    #[arg(long)]
    pub optimizer: Option<Optimizer>,
    /// Learning rate (default: 0.1 with sgd, 20 for text; 0.001 with adamw; 3 with lars)
    #[arg(long)]
    pub rate: Option<f64>,
    /// Momentum of sgd and lars
    #[arg(long)]
    pub momentum: Option<f32>,
    /// Nesterov momentum for sgd: true or false (default: true for images, false for text)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub nesterov: Option<bool>,
    /// Weight decay, not applied to biases and norms
    #[arg(long)]
    pub weight_decay: Option<f32>,
    #[arg(long, help = CourseSetting::HELP)]
    pub schedule: Option<CourseSetting>,
    /// Epochs over which the learning rate rises from near 0 (default: 0, or 0.5 with --begin random)
    #[arg(long)]
    pub warmup: Option<f64>,
    /// Label smoothing: share of the target probability that is spread over all classes
    #[arg(long)]
    pub smoothing: Option<f32>,
    /// Clip gradients to this norm
    #[arg(long)]
    pub clip: Option<f64>,
    /// Stop after this many epochs without a lower validation loss
    #[arg(long)]
    pub patience: Option<u64>,
    /// Numbers that training multiplies: f32, or bf16, faster on processors with AVX-512 BF16; weights, sums and
    /// recurrent layers stay f32 (default: f32)
    #[arg(long)]
    pub precision: Option<Precision>,
    /// Random seed
    #[arg(long)]
    pub seed: Option<u64>,
    /// Compute threads of each rank (default: all processors)
    #[arg(long)]
    pub threads: Option<usize>,
    /// Decoding threads of each rank
    #[arg(long)]
    pub feed_threads: Option<usize>,
    /// Memory of the feed (default: 256MiB, or a quarter of what the machine or container has, if that is less)
    #[arg(long)]
    pub memory: Option<Memory>,
    /// Seconds between checkpoints within an epoch
    #[arg(long)]
    pub checkpoint_every: Option<f64>,
    #[command(flatten)]
    pub peers: PeerArguments,
}

impl FitArguments {
    fn apply(self, config: &mut FitConfig) -> anyhow::Result<()> {
        set_option(&mut config.validation, self.validation);
        if !self.test.is_empty() {
            config.test = self.test;
        }
        set(&mut config.epochs, self.epochs);
        set(&mut config.batch, self.batch);
        set(&mut config.accumulate, self.accumulate);
        set_option(&mut config.grow, self.grow);
        set(&mut config.order, self.order);
        set(&mut config.access, self.access);
        set(&mut config.optimizer, self.optimizer);
        set_option(&mut config.rate, self.rate);
        set(&mut config.momentum, self.momentum);
        set(&mut config.nesterov, self.nesterov);
        let looks_ahead = self.nesterov == Some(true);
        let is_sgd = config.optimizer == Optimizer::Sgd;
        let other = format!("with --optimizer {}", config.optimizer);
        refuse_idle(&[
            (
                self.momentum.is_some() && config.optimizer == Optimizer::Adamw,
                "--momentum",
                other.clone(),
            ),
            (looks_ahead && !is_sgd, "--nesterov", other),
            (
                looks_ahead && config.momentum == 0.0,
                "--nesterov",
                "with a momentum of 0".to_string(),
            ),
            (
                self.patience.is_some() && config.validation.is_none(),
                "--patience",
                "without --validation".to_string(),
            ),
        ])?;
        set(&mut config.weight_decay, self.weight_decay);
        set(&mut config.schedule, self.schedule);
        set(&mut config.warmup, self.warmup);
        set(&mut config.smoothing, self.smoothing);
        set_option(&mut config.clip, self.clip);
        set_option(&mut config.patience, self.patience);
        set(&mut config.precision, self.precision);
        set(&mut config.seed, self.seed);
        set(&mut config.threads, self.threads);
        set(&mut config.feed_threads, self.feed_threads);
        set(
            &mut config.memory_bytes,
            self.memory
                .map(|memory| memory.bytes("--memory"))
                .transpose()?,
        );
        set(&mut config.checkpoint_seconds, self.checkpoint_every);
        set_option(&mut config.cache, self.peers.config()?);
        Ok(())
    }
}

/// The output of a run, and how it is reported.
#[derive(Debug, Args)]
#[command(next_help_heading = "Run")]
pub struct RunArguments {
    /// Start from the configuration in this file (a run.toml); flags given here win
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Ranks that train together, each on its part of every batch: threads of this process (default: 1, or what mpirun
    /// started, in a build with MPI)
    #[arg(long)]
    pub ranks: Option<usize>,
    /// Speed of a modelled network between these threads, in bytes a second into and out of each (3.125GB for
    /// 25 Gbit/s); messages are delayed accordingly
    #[arg(long, value_name = "RATE")]
    pub link: Option<Memory>,
    /// Run folder (default: runs/NAME-OF-DATA)
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Resume from the run folder's last checkpoint
    #[arg(long)]
    pub resume: bool,
    /// Replace what is in the run folder
    #[arg(long, conflicts_with = "resume")]
    pub overwrite: bool,
    /// Print the results as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `pelton train image`
#[derive(Debug, Args)]
pub struct ImageArguments {
    /// Files or folders of the training data: IDX, CIFAR, tar, a folder of images, npy, npz, raw, Parquet
    #[arg(value_parser = name())]
    pub data: Vec<String>,
    #[command(flatten)]
    pub format: DataArguments,
    /// Net: alexnet, overfeat, vgg16, resnet20, resnet32, resnet50, iresnet18 (embeds small images for train
    /// classify), small, mlp (vectors too) or none (vectors as they are)
    #[arg(long)]
    pub model: Option<ImageModel>,
    /// Width of its layers, as a multiple of the published one
    #[arg(long)]
    pub width: Option<f64>,
    #[arg(long, value_name = "FILE", help = ClassWeights::HELP)]
    pub class_weights: Option<ClassWeights>,
    #[command(flatten)]
    pub fit: FitArguments,
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    #[command(flatten)]
    pub run: RunArguments,
}

/// `pelton train classify`
#[derive(Debug, Args)]
pub struct ClassifyArguments {
    #[command(flatten)]
    pub image: ImageArguments,
    #[command(flatten)]
    pub head: HeadArguments,
}

/// A head over very many classes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Head")]
pub struct HeadArguments {
    #[arg(long, help = HeadKind::HELP)]
    pub head: Option<HeadKind>,
    /// Initial class vectors: means (the mean features of a few examples of each class) or random (default:
    /// means)
    #[arg(long)]
    pub begin: Option<Begin>,
    /// Subtract the mean from the features: true or false (default: true)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub centre: Option<bool>,
    /// Weight random classes so that they represent all that do not take part: true or false (default: true)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub correct: Option<bool>,
    /// Make the graph of knn, or the trees of selective, again after so many steps too, not only in each epoch
    #[arg(long, value_name = "STEPS")]
    pub rebuild: Option<u64>,
    /// Number of features that the net computes for an example
    #[arg(long)]
    pub embedding: Option<usize>,
    #[arg(long, help = Logits::HELP)]
    pub logits: Option<Logits>,
    /// Learning rate of the head as a multiple of that of the net
    #[arg(long)]
    pub head_rate: Option<f32>,
    /// Number of micro-batches in a rank's part of a batch
    #[arg(long)]
    pub micro_batches: Option<usize>,
    /// Compute one micro-batch while others are communicated: true or false
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub overlap: Option<bool>,
    /// Share of the gradients of the net's large parameters that ranks exchange, the largest ones; 0.25,
    /// 0.0625 … in the first epochs (default: 1, all)
    #[arg(long, value_name = "PART")]
    pub density: Option<f64>,
}

impl ClassifyArguments {
    /// Writes the flags that were given over a configuration, and returns those of the run.
    pub fn apply(self, config: &mut ImageConfig, stated: &Stated) -> anyhow::Result<RunArguments> {
        let head = config.head.get_or_insert_default();
        set(&mut head.kind, self.head.head);
        set(&mut head.begin, self.head.begin);
        set(&mut head.centre, self.head.centre);
        set(&mut head.correct, self.head.correct);
        set_option(&mut head.rebuild, self.head.rebuild);
        set(&mut head.embedding, self.head.embedding);
        set(&mut head.logits, self.head.logits);
        set(&mut head.rate, self.head.head_rate);
        set(&mut head.micro_batches, self.head.micro_batches);
        set(&mut head.overlap, self.head.overlap);
        set(&mut head.density, self.head.density);
        let (embedding, overlap) = (self.head.embedding, self.head.overlap);
        let (micro_batches, density) = (head.micro_batches, self.head.density);
        let (kind, correct) = (head.kind, self.head.correct == Some(true));
        let draws_none = matches!(kind, HeadKind::Full | HeadKind::Mach { .. });
        let renews_none = draws_none || matches!(kind, HeadKind::Sampled { .. });
        let rebuild = self.head.rebuild;
        // From random rows features turn to one direction in the first steps.
        let warms_up = head.begin == Begin::Random
            && self.image.fit.warmup.is_none()
            && !stated.has("fit.warmup");
        let run = self.image.apply(config)?;
        if warms_up {
            config.fit.warmup = 0.5;
        }
        let without_net = config.model == ImageModel::None;
        let of_none = || "with --model none".to_string();
        refuse_idle(&[
            (embedding.is_some() && without_net, "--embedding", of_none()),
            (
                correct && draws_none,
                "--correct",
                format!("with --head {kind}"),
            ),
            (
                rebuild.is_some() && renews_none,
                "--rebuild",
                format!("with --head {kind}"),
            ),
            (density.is_some() && without_net, "--density", of_none()),
            (
                overlap == Some(true) && micro_batches == 1,
                "--overlap",
                "without --micro-batches".to_string(),
            ),
        ])?;
        Ok(run)
    }
}

impl ImageArguments {
    /// Writes the flags that were given over a configuration, and returns those of the run.
    pub fn apply(self, config: &mut ImageConfig) -> anyhow::Result<RunArguments> {
        if !self.data.is_empty() {
            config.data.paths = self.data;
        }
        self.format.apply(&mut config.data);
        set(&mut config.model, self.model);
        set(&mut config.width, self.width);
        set_option(&mut config.class_weights, self.class_weights);
        refuse_idle(&[(
            self.width.is_some() && config.model == ImageModel::None,
            "--width",
            "with --model none".to_string(),
        )])?;
        self.fit.apply(&mut config.fit)?;
        self.pipeline.apply(&mut config.pipeline);
        Ok(self.run)
    }
}

/// `pelton train language`
#[derive(Debug, Args)]
pub struct LanguageArguments {
    /// Files of the training text, one sentence a line
    #[arg(value_parser = name())]
    pub data: Vec<String>,
    #[command(flatten)]
    pub format: DataArguments,
    /// Net: lstm or transformer
    #[arg(long)]
    pub model: Option<LanguageNet>,
    /// Width of its layers
    #[arg(long)]
    pub hidden: Option<usize>,
    /// Width of an embedding (default: that of the layers)
    #[arg(long)]
    pub embedding: Option<usize>,
    /// Layers
    #[arg(long)]
    pub layers: Option<usize>,
    /// Attention heads of a Transformer
    #[arg(long)]
    pub heads: Option<usize>,
    /// Longest sequence of a Transformer
    #[arg(long)]
    pub positions: Option<usize>,
    /// Dropout probability
    #[arg(long)]
    pub dropout: Option<f32>,
    /// Share the weights of the embedding with the last layer
    #[arg(long)]
    pub tied: bool,
    /// Read the text in one piece, in rows that continue from batch to batch, this many words at a time
    #[arg(long, value_name = "WORDS")]
    pub carry: Option<usize>,
    /// What ranks divide: data (every batch), or model (the layers, each with its parameters on one rank)
    #[arg(long)]
    pub parallel: Option<Parallel>,
    #[command(flatten)]
    pub fit: FitArguments,
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    #[command(flatten)]
    pub run: RunArguments,
}

impl LanguageArguments {
    /// Writes the flags that were given over a configuration, and returns those of the run.
    pub fn apply(self, config: &mut LanguageConfig) -> anyhow::Result<RunArguments> {
        if !self.data.is_empty() {
            config.data.paths = self.data;
        }
        self.format.apply(&mut config.data);
        set(&mut config.model, self.model);
        set(&mut config.hidden, self.hidden);
        set_option(&mut config.embedding, self.embedding);
        set(&mut config.layers, self.layers);
        set(&mut config.heads, self.heads);
        set(&mut config.positions, self.positions);
        set(&mut config.dropout, self.dropout);
        config.tied |= self.tied;
        set_option(&mut config.carry, self.carry);
        set(&mut config.parallel, self.parallel);
        let is_lstm = config.model == LanguageNet::Lstm;
        let of_model = || format!("with --model {}", config.model);
        let of_carry = || "with --carry, which reads the text in one piece".to_string();
        let (carries, pipeline) = (config.carry.is_some(), &self.pipeline);
        refuse_idle(&[
            (self.heads.is_some() && is_lstm, "--heads", of_model()),
            (
                self.positions.is_some() && is_lstm,
                "--positions",
                of_model(),
            ),
            (
                self.embedding.is_some() && !is_lstm,
                "--embedding",
                of_model(),
            ),
            (self.fit.order.is_some() && carries, "--order", of_carry()),
            (pipeline.echo.is_some() && carries, "--echo", of_carry()),
            (
                pipeline.lengths.is_some() && carries,
                "--lengths",
                of_carry(),
            ),
            (
                pipeline.collate.is_some() && carries,
                "--collate",
                of_carry(),
            ),
            (pipeline.last.is_some() && carries, "--last", of_carry()),
            (pipeline.mix.is_some() && carries, "--mix", of_carry()),
            (pipeline.sample.is_some() && carries, "--sample", of_carry()),
            (
                pipeline.epoch_examples.is_some() && carries,
                "--epoch-examples",
                of_carry(),
            ),
            (
                pipeline.keep_lengths.is_some() && carries,
                "--keep-lengths",
                of_carry(),
            ),
        ])?;
        self.fit.apply(&mut config.fit)?;
        self.pipeline.apply(&mut config.pipeline);
        Ok(self.run)
    }
}
