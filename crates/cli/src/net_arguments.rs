//! The flags of training jobs on deep nets.

use clap::Args;
use pelton_train::classify::{Begin, HeadChoice, HeadConfig, HeadKind};
use pelton_train::image::ImageModel;
use pelton_train::language::LanguageNet;
use pelton_train::{FitConfig, ImageConfig, LanguageConfig, Optimizer, Stated};

use crate::data_arguments::{DataArguments, name, refuse_idle};
use crate::given::Given;
use crate::peer_arguments::PeerArguments;
use crate::run_arguments::RunArguments;
use crate::stage_arguments::PipelineArguments;

/// How a net is trained.
#[derive(Debug, Args)]
#[command(next_help_heading = "Training")]
pub struct FitArguments {
    #[command(flatten)]
    pub given: Given<FitConfig>,
    #[command(flatten)]
    pub peers: PeerArguments,
}

impl FitArguments {
    fn apply(self, config: &mut FitConfig) -> anyhow::Result<()> {
        let given = &self.given;
        given.apply(config);
        let looks_ahead = given.is_true("nesterov");
        let is_sgd = config.optimizer == Optimizer::Sgd;
        let other = format!("with --optimizer {}", config.optimizer);
        refuse_idle(&[
            (
                given.has("momentum") && config.optimizer == Optimizer::Adamw,
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
                given.has("patience") && config.validation.is_none(),
                "--patience",
                "without --validation".to_string(),
            ),
        ])?;
        if let Some(cache) = self.peers.config()? {
            config.cache = Some(cache);
        }
        Ok(())
    }
}

/// `pelton train image`
#[derive(Debug, Args)]
pub struct ImageArguments {
    /// Files or folders of the training data: IDX, CIFAR, tar, a folder of images, npy, npz, raw, Parquet
    #[arg(value_parser = name())]
    pub data: Vec<String>,
    #[command(flatten)]
    pub net: Given<ImageConfig>,
    #[command(flatten)]
    pub fit: FitArguments,
    #[command(flatten)]
    pub run: RunArguments,
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    #[command(flatten)]
    pub format: DataArguments,
}

/// `pelton train classify`
#[derive(Debug, Args)]
pub struct ClassifyArguments {
    #[command(flatten)]
    pub head: Given<HeadConfig>,
    #[command(flatten)]
    pub image: ImageArguments,
}

impl ClassifyArguments {
    /// Writes the flags that were given over a configuration, and returns those of the run.
    pub fn apply(self, config: &mut ImageConfig, stated: &Stated) -> anyhow::Result<RunArguments> {
        let (given, head) = (self.head, config.head.get_or_insert_default());
        given.apply(head);
        let (kind, micro_batches) = (head.kind, head.micro_batches);
        let draws_none = matches!(
            kind,
            HeadChoice::Kind(HeadKind::Full | HeadKind::Mach { .. })
        );
        let renews = matches!(
            kind,
            HeadChoice::Kind(HeadKind::Knn { .. } | HeadKind::Selective { .. })
        );
        // From random rows features turn to one direction in the first steps.
        let warms_up = head.begin == Begin::Random
            && !self.image.fit.given.has("warmup")
            && !stated.has("fit.warmup");
        let run = self.image.apply(config)?;
        if warms_up {
            config.fit.warmup = 0.5;
        }
        let without_net = config.model == ImageModel::None;
        let (of_none, of_head) = (
            "with --model none".to_string(),
            format!("with --head {kind}"),
        );
        refuse_idle(&[
            (
                given.has("embedding") && without_net,
                "--embedding",
                of_none.clone(),
            ),
            (
                given.is_true("correct") && draws_none,
                "--correct",
                of_head.clone(),
            ),
            (given.has("rebuild") && !renews, "--rebuild", of_head),
            (given.has("density") && without_net, "--density", of_none),
            (
                given.is_true("overlap") && micro_batches == 1,
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
        self.net.apply(config);
        refuse_idle(&[(
            self.net.has("width") && config.model == ImageModel::None,
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
    pub net: Given<LanguageConfig>,
    #[command(flatten)]
    pub fit: FitArguments,
    #[command(flatten)]
    pub run: RunArguments,
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    #[command(flatten)]
    pub format: DataArguments,
}

impl LanguageArguments {
    /// Writes the flags that were given over a configuration, and returns those of the run.
    pub fn apply(self, config: &mut LanguageConfig) -> anyhow::Result<RunArguments> {
        if !self.data.is_empty() {
            config.data.paths = self.data;
        }
        self.format.apply(&mut config.data);
        let (net, pipeline) = (&self.net, &self.pipeline);
        net.apply(config);
        let is_lstm = config.model == LanguageNet::Lstm;
        let of_model = || format!("with --model {}", config.model);
        let of_carry = || "with --carry, which reads the text in one piece".to_string();
        let carries = config.carry.is_some();
        let idle = |setting: &str| carries && pipeline.has(setting);
        refuse_idle(&[
            (net.has("heads") && is_lstm, "--heads", of_model()),
            (net.has("positions") && is_lstm, "--positions", of_model()),
            (net.has("embedding") && !is_lstm, "--embedding", of_model()),
            (
                carries && self.fit.given.has("order"),
                "--order",
                of_carry(),
            ),
            (idle("echo"), "--echo", of_carry()),
            (idle("lengths"), "--lengths", of_carry()),
            (idle("collate"), "--collate", of_carry()),
            (idle("last"), "--last", of_carry()),
            (idle("mix"), "--mix", of_carry()),
            (idle("sample"), "--sample", of_carry()),
            (idle("epoch_examples"), "--epoch-examples", of_carry()),
            (idle("keep_lengths"), "--keep-lengths", of_carry()),
        ])?;
        self.fit.apply(&mut config.fit)?;
        self.pipeline.apply(&mut config.pipeline);
        Ok(self.run)
    }
}
