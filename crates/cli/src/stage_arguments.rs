//! The flags of the stages behind reading.

use std::path::PathBuf;

use clap::Args;
use pelton_tools::{
    BucketPolicy, Collation, DecodeSetting, EchoSetting, Exif, Last, LengthRange, LengthSetting,
    Pipeline, PipelineConfig, SampleSetting,
};
use pelton_train::ClassName;

use crate::data_arguments::{set, set_option};

/// How records are processed into batches.
#[derive(Args, Debug)]
#[command(next_help_heading = "Stages")]
pub struct PipelineArguments {
    #[arg(long, help = DecodeSetting::HELP)]
    pub decode: Option<DecodeSetting>,
    /// Vocabulary for --decode words, as written by `pelton vocabulary` (default: the words of the data,
    /// counted once and kept in the cache folder)
    #[arg(long, requires = "decode", value_name = "FILE")]
    pub vocabulary: Option<PathBuf>,
    #[arg(long, help = PipelineConfig::EXIF_HELP)]
    pub exif: Option<Exif>,
    /// Largest picture in megapixels; larger ones are bad records (default: 100)
    #[arg(long, value_name = "MILLIONS")]
    pub max_megapixels: Option<u64>,
    #[arg(long, help = PipelineConfig::augment_help())]
    pub augment: Option<Pipeline>,
    #[arg(long, help = EchoSetting::HELP)]
    pub echo: Option<EchoSetting>,
    #[arg(long, help = PipelineConfig::BUCKETS_HELP)]
    pub buckets: Option<BucketPolicy>,
    #[arg(long, help = LengthSetting::HELP, value_name = "WHERE")]
    pub lengths: Option<LengthSetting>,
    #[arg(long, help = PipelineConfig::COLLATE_HELP)]
    pub collate: Option<Collation>,
    #[arg(long, help = PipelineConfig::LAST_HELP, value_name = "even|short|drop")]
    pub last: Option<Last>,
    /// Output pictures with channels first
    #[arg(long)]
    pub planar: bool,
    /// Shares of the files in a mixture, such as 0.7,0.3, in the order of the files
    #[arg(long, value_delimiter = ',', value_name = "SHARE")]
    pub mix: Option<Vec<f64>>,
    #[arg(long, help = SampleSetting::HELP, value_name = "WHICH")]
    pub sample: Option<SampleSetting>,
    /// Examples of an epoch of --mix, or of --sample balanced or weights (default: as many as there are records)
    #[arg(long, value_name = "N")]
    pub epoch_examples: Option<u64>,
    #[arg(long, help = LengthRange::HELP, value_name = "FROM..TO")]
    pub keep_lengths: Option<LengthRange>,
    /// Keep records of these classes only, such as cat,dog or 3,5: by name where classes have names, otherwise by label
    #[arg(long, value_delimiter = ',', value_name = "CLASS")]
    pub keep_classes: Vec<ClassName>,
    /// Threads that read, in addition to those of the stages (default: 2, or 8 for data on a server)
    #[arg(long)]
    pub read_threads: Option<usize>,
}

impl PipelineArguments {
    /// Whether any flag was given.
    pub fn any(&self) -> bool {
        self.decode.is_some()
            || self.vocabulary.is_some()
            || self.exif.is_some()
            || self.max_megapixels.is_some()
            || self.augment.is_some()
            || self.echo.is_some()
            || self.buckets.is_some()
            || self.lengths.is_some()
            || self.collate.is_some()
            || self.last.is_some()
            || self.planar
            || self.mix.is_some()
            || self.sample.is_some()
            || self.epoch_examples.is_some()
            || self.keep_lengths.is_some()
            || !self.keep_classes.is_empty()
            || self.read_threads.is_some()
    }

    /// Writes the flags that were given over a configuration.
    pub fn apply(self, config: &mut PipelineConfig) {
        set(&mut config.decode, self.decode);
        set_option(&mut config.vocabulary, self.vocabulary);
        set(&mut config.exif, self.exif);
        set_option(&mut config.max_megapixels, self.max_megapixels);
        set_option(&mut config.augment, self.augment);
        set_option(&mut config.echo, self.echo);
        set_option(&mut config.buckets, self.buckets);
        set_option(&mut config.lengths, self.lengths);
        set(&mut config.collate, self.collate);
        set(&mut config.last, self.last);
        config.planar |= self.planar;
        set_option(&mut config.mix, self.mix);
        set_option(&mut config.sample, self.sample);
        set_option(&mut config.epoch_examples, self.epoch_examples);
        set_option(&mut config.keep_lengths, self.keep_lengths);
        if !self.keep_classes.is_empty() {
            config.keep_classes = self.keep_classes;
        }
        set_option(&mut config.read_threads, self.read_threads);
    }
}

/// Stages and how they are measured; naming any of it takes records through stages.
#[derive(Args, Debug)]
pub struct StagesArguments {
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    /// Second text, for --decode pairs: its line N belongs to line N of the data, which must be one text
    #[arg(long, requires = "decode", value_name = "FILE")]
    pub pair: Option<PathBuf>,
    /// Milliseconds that a simulated consumer spends on each batch
    #[arg(long, value_name = "MS")]
    pub compute_ms: Option<f64>,
    /// Serve the counters as Prometheus text at this address during the run, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
    /// File for the state of the pipeline; if it exists, the run resumes from it
    #[arg(long)]
    pub state: Option<PathBuf>,
    /// File for the ids of all examples consumed, 8 bytes each, little-endian; a resumed run cuts it to the
    /// saved state
    #[arg(long, requires = "state")]
    pub log: Option<PathBuf>,
}
