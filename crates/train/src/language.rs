//! The job `train language`: a net that predicts the next word of a text.

use std::sync::Arc;
use std::time::Instant;

use pelton_comm::Comm;
use pelton_data::{
    DataConfig, DataError, OpenedData, PipelineTerms, PreparedPipeline, Validation, as_text,
    check_range, open,
};
use pelton_feed::settings::{on, some, value};
use pelton_feed::{DecodeSetting, PipelineConfig, settings};
use pelton_nn::nets::{self, LanguageModel};
use pelton_nn::{pipelined, trainer};
use pelton_run::{Event, RunContext, Settings, decisive};
use pelton_text::{Special, Tokenizer, Vocabulary};
use serde::{Deserialize, Serialize};

use crate::deep::{
    Fit, FitConfig, MOST_WIDTH, NetSummary, Optimizer, Prepared, Targets, TextStream, check_memory,
    fit,
};
use crate::error::TrainError;
use crate::image::{check_resumed, open_folder, same_data};

pelton_key::names! {
    /// Kinds of net.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum LanguageNet: "a net for text" {
        /// Layers of long short-term memory.
        #[default]
        Lstm = "lstm",
        /// A decoder Transformer.
        Transformer = "transformer",
    }
}

pelton_key::names! {
    /// The unit that ranks divide.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Parallel: "a division among ranks" {
        /// Every batch.
        #[default]
        Data = "data",
        /// The layers of the net.
        Model = "model",
    }
}

settings! {
    /// The configuration of `pelton train language`: what `run.toml` holds.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct LanguageConfig: "Net" {
        #[serde(with = "as_text")]
        model: LanguageNet = LanguageNet::Lstm, flag(One, value, help format!("Net: {}", LanguageNet::names())), "Net.";
        hidden: usize = 200, flag(One, value), "Width of its layers";
        #[serde(skip_serializing_if = "Option::is_none")]
        embedding: Option<usize> = None, flag(One, some), "Width of an embedding (default: that of the layers)";
        layers: usize = 2, flag(One, value), "Layers";
        heads: usize = 4, flag(One, value), "Attention heads of a Transformer";
        positions: usize = 512, flag(One, value), "Longest sequence of a Transformer";
        dropout: f32 = 0.2, flag(One, value), "Dropout probability";
        tied: bool = false, flag(Switch, on), "Share the weights of the embedding with the last layer";
        #[serde(skip_serializing_if = "Option::is_none")]
        carry: Option<usize> = None, flag(One, some, of "WORDS"),
            "Read the text in one piece, in rows that continue from batch to batch, this many words at a time";
        parallel: Parallel = Parallel::Data, flag(One, value),
            "What ranks divide: data (every batch), or model (the layers, each with its parameters on one rank)";
        data: DataConfig = DataConfig::default(), "Training data: a sentence a line.";
        pipeline: PipelineConfig = PipelineConfig {
            decode: DecodeSetting::Text(Tokenizer::Whitespace),
            ..PipelineConfig::default()
        }, "How sentences are processed into batches.";
        fit: FitConfig = FitConfig {
            batch: 32,
            epochs: 25,
            optimizer: Optimizer::Sgd,
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
            clip: Some(0.25),
            ..FitConfig::default()
        }, "How the net is trained.";
    }
}

impl LanguageConfig {
    /// Reads a configuration: the `run.toml` of a run, or a file like it.
    pub fn read(path: &std::path::Path) -> Result<LanguageConfig, TrainError> {
        crate::config::read(path)
    }

    /// The net for this many words.
    ///
    /// Errors: sizes that do not go together.
    pub fn net(&self, words: usize) -> Result<nets::Net, TrainError> {
        let model = LanguageModel {
            words,
            embedding: self.embedding.unwrap_or(self.hidden),
            hidden: self.hidden,
            layers: self.layers,
            heads: self.heads,
            positions: self.positions,
            dropout: self.dropout,
            tied: self.tied,
        };
        let net = match self.model {
            LanguageNet::Lstm => nets::lstm(&model)?,
            LanguageNet::Transformer => nets::transformer(&model)?,
        };
        Ok(nets::Net {
            precision: self.fit.precision,
            ..net
        })
    }

    /// Batches of a pipeline for evaluation: sentence by sentence, or in this many rows.
    pub(crate) fn prepared(
        &self,
        pipeline: PreparedPipeline,
        rows: usize,
        comm: &Comm,
    ) -> Result<Prepared, TrainError> {
        Ok(match self.carry {
            None => Prepared::Pipeline(Box::new(pipeline)),
            Some(window) => {
                let words = all_words(&pipeline, &Comm::alone())?;
                let start = Special::End.id();
                Prepared::Text(Arc::new(TextStream::new(words, start, rows, window, comm)?))
            }
        })
    }

    /// Settings that saved parameters and state depend on.
    pub(crate) fn decisive(&self) -> Settings {
        decisive(self, &FitConfig::CHANGING)
    }

    fn check(&self) -> Result<(), TrainError> {
        self.fit.check()?;
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(TrainError::config(format!(
                "`dropout` {} is not a probability; give a number from 0 to below 1",
                self.dropout
            )));
        }
        for (setting, size) in [
            ("hidden", self.hidden),
            ("embedding", self.embedding.unwrap_or(self.hidden)),
            ("heads", self.heads),
            ("positions", self.positions),
            ("carry", self.carry.unwrap_or(1)),
        ] {
            check_range(setting, size, 1..=MOST_WIDTH)?;
        }
        check_range("layers", self.layers, 1..=MOST_LAYERS)?;
        if !matches!(self.pipeline.decode, DecodeSetting::Text(_)) {
            return Err(TrainError::config(format!(
                "`decode` {} does not produce words; give `decode` words or bytes",
                self.pipeline.decode
            )));
        }
        if self.carry.is_some() && matches!(self.fit.validation, Some(Validation::Share(_))) {
            return Err(TrainError::config(
                "`carry` reads the text in one piece, so no share of it can be held out; name a file as `validation`".to_string(),
            ));
        }
        if self.carry.is_some() && self.fit.cache.is_some() {
            return Err(TrainError::config(
                "`carry` keeps the text in memory and does not use `cache`; give only one of them"
                    .to_string(),
            ));
        }
        if self.carry.is_some() && self.pipeline.buckets.is_some() {
            return Err(TrainError::config(
                "`carry` reads the text in one piece and does not use `buckets`; give only one of them".to_string(),
            ));
        }
        Ok(())
    }
}

/// Most layers; they run one after the other, so more only wait.
const MOST_LAYERS: usize = 1000;

/// Rows of a continuous text in evaluation.
pub(crate) const MEASURED_ROWS: usize = 10;
/// File of the vocabulary in the run folder.
pub(crate) const VOCABULARY: &str = "vocabulary.txt";

/// Trains a language model and leaves its files in the run folder. All ranks call it; rank 0 writes the folder.
///
/// Errors: bad configuration or input; a failed run; an interruption, after saving the state.
pub fn run(config: &LanguageConfig, mut context: RunContext<'_>) -> Result<NetSummary, TrainError> {
    let began = Instant::now();
    let mut config = context.agreed(config)?;
    let rate = match config.fit.optimizer {
        // With plain SGD and clipped gradients, a net for text learns slowly at smaller rates.
        Optimizer::Sgd => config.fit.rate.unwrap_or(20.0),
        Optimizer::Adamw | Optimizer::Lars => config.fit.rate(),
    };
    config.fit.rate = Some(rate);
    let config = &config;
    config.check()?;
    config.fit.check_ranks(&config.pipeline, context.comm)?;
    let context = &mut context;
    let data = open(&config.data.for_nets(), &config.data.paths, None, context)?;
    let held = config.fit.held_out(&data)?;
    let terms = PipelineTerms {
        order: config.fit.order,
        batch: Some(config.fit.batch),
        seed: config.fit.seed,
        epochs: Some(config.fit.epochs),
        memory_bytes: config.fit.memory_bytes,
        threads: config.fit.feed_threads,
        access: config.fit.access,
        cache: config.fit.cache.clone(),
        ranks: None,
        among: held.as_ref().map(|held| held.training.clone()),
        sampler: None,
        lengths: None,
        by_class: false,
        vocabulary: None,
    };
    let pipeline = PreparedPipeline::new(&config.pipeline, &terms, &data, context)?;
    pipeline.check_has_batches()?;
    let vocabulary = pipeline.vocabulary().cloned();
    let vocabulary = vocabulary.ok_or_else(|| {
        TrainError::config("the data has no words; give `decode` words or bytes".to_string())
    })?;
    let test_paths = if config.fit.test.is_empty() {
        &data.test
    } else {
        &config.fit.test
    };
    // Opens both before reading anything.
    let mut held_out = Vec::new();
    for paths in [&config.fit.validation_paths(), test_paths] {
        held_out.push(if paths.is_empty() {
            None
        } else {
            Some(open(&config.data.for_nets(), paths, None, context)?)
        });
    }
    // Every rank reads the whole of a continuous text, then takes its rows.
    let alone = Comm::alone();
    let comm = context.comm;
    let mut measuring = RunContext {
        comm: if config.carry.is_some() { &alone } else { comm },
        folder: context.folder.clone(),
        interrupt: context.interrupt,
        observer: &mut *context.observer,
    };
    let mut prepare = |opened: &OpenedData, rows: usize| -> Result<Prepared, TrainError> {
        let pipeline = pipeline.evaluation(opened, None, &mut measuring)?;
        config.prepared(pipeline, rows, comm)
    };
    let whole = match config.carry {
        Some(_) => Some(prepare(&data, config.fit.batch as usize)?),
        None => None,
    };
    let mut sets = Vec::new();
    for opened in &held_out {
        let prepared = opened.as_ref().map(|opened| prepare(opened, MEASURED_ROWS));
        sets.push(prepared.transpose()?);
    }
    let (test, mut validation) = (sets.pop().flatten(), sets.pop().flatten());
    if let Some(held) = &held {
        let measured = pipeline.validation(&held.validation, &mut measuring)?;
        validation = Some(Prepared::Pipeline(Box::new(measured)));
    }
    let training = whole.unwrap_or(Prepared::Pipeline(Box::new(pipeline)));
    let net = config.net(vocabulary.size() as usize)?;
    check_memory(match config.parallel {
        Parallel::Data => net.trained(),
        Parallel::Model => net.trained() / comm.size(),
    })?;
    let note = format!(
        "{} over {} words: {} parameters; {} sentences",
        config.model,
        vocabulary.size(),
        net.trained(),
        data.dataset.records()
    );
    (context.observer)(Event::Note(&note));
    config.fit.note_precision(context);
    let settings = config.decisive();
    check_resumed(context, &settings)?;
    same_data(context, VOCABULARY, |file| {
        Vocabulary::load(file).is_ok_and(|old| old.fingerprint() == vocabulary.fingerprint())
    })?;
    let mut folder = open_folder(config, settings, context)?;
    if folder.is_written() {
        let file = folder.file(VOCABULARY)?;
        vocabulary.save(&file).map_err(DataError::from)?;
    }
    let seed = config.fit.seed;
    let own = comm.duplicate().map_err(DataError::from)?;
    let of = Fit {
        config: &config.fit,
        trainer: match config.parallel {
            Parallel::Data => trainer(net, seed, own),
            Parallel::Model => pipelined(net, seed, own)?,
        },
        training,
        validation,
        test,
        targets: Targets::Words {
            start: Special::End.id().into(),
        },
        begin: None,
        class_weights: None,
        class_sizes: None,
        several: false,
        sampled_of: None,
        rebuild: None,
        head: None,
        about: VOCABULARY,
        language: true,
        began,
    };
    fit(of, &mut folder, context)
}

/// All words of a text, in the order of the file.
fn all_words(pipeline: &PreparedPipeline, alone: &Comm) -> Result<Vec<u32>, TrainError> {
    let mut loader = pipeline.loader(None, alone)?;
    let mut words = Vec::new();
    for _ in 0..pipeline.plan().steps(0) {
        let Some(batch) = loader.next() else { break };
        let batch = batch?;
        let tokens = batch.get("tokens");
        let (Some(tokens), Some(ids)) = (tokens, batch.values::<u32>("tokens")) else {
            return Err(TrainError::config(
                "the data has no words; give `decode` words or bytes".to_string(),
            ));
        };
        for range in tokens.shape().ranges() {
            words.extend_from_slice(&ids[range]);
        }
    }
    Ok(words)
}
