//! The flags of the stages behind reading.

use std::path::PathBuf;

use clap::Args;
use pelton_tools::bench::{DecodeSetting, EchoSetting};
use pelton_tools::{BucketPolicy, Collate, Exif, Pipeline};
use pelton_train::ClassName;

/// What happens to records behind reading; naming any of it takes records through stages.
#[derive(Args, Debug)]
#[command(next_help_heading = "Stages")]
pub struct StagesArguments {
    /// Samples from records: none, jpg (or jpeg), png, webp, image (any of these), words or bytes (numbers of a
    /// vocabulary), member:EXTENSION (of a tar file)
    #[arg(long)]
    pub decode: Option<DecodeSetting>,
    /// Vocabulary for --decode words, such as `pelton vocabulary` writes (default: that of the data, counted once and
    /// kept in the cache folder)
    #[arg(long, requires = "decode", value_name = "FILE")]
    pub vocabulary: Option<PathBuf>,
    /// What is done with the orientation that pictures state in EXIF, as those of phones do: ignore (default, as
    /// torchvision has it), or apply
    #[arg(long)]
    pub exif: Option<Exif>,
    /// Augmentation of pictures, stages with commas between them, such as rrc:224,flip: resize:SHORTER_SIDE or
    /// resize:HEIGHTxWIDTH, crop:SIDE, randomcrop:SIDE[:PADDING], rrc:SIDE[:MIN-MAX] (parts of the area, 0.08-1),
    /// flip[:CHANCE] (0.5), jitter:BRIGHTNESS[:CONTRAST[:SATURATION[:HUE]]], cutout:SIDE, grey,
    /// normalise[:MEANS:DEVIATIONS] (ImageNet's; one for all channels, or three as in 0.5/0.5/0.5)
    #[arg(long)]
    pub augment: Option<Pipeline>,
    /// Repeats: before:FACTOR[:WINDOW] or after:FACTOR[:WINDOW] augmentation, batch:FACTOR[:WINDOW], or auto[:MOST]
    /// (only where the consumer would wait); a factor such as 2 or 1.5, a window of so many examples or batches held
    #[arg(long)]
    pub echo: Option<EchoSetting>,
    /// Batches of about one length: none, static:LENGTH,LENGTH,…, auto, optimal:BUCKETS, tokens:MAX or
    /// pack:ROW_LENGTH[:LOOK_AHEAD] (8192); lengths in tokens with --decode words or bytes, otherwise in bytes
    #[arg(long)]
    pub buckets: Option<BucketPolicy>,
    /// How samples are put together: auto (default: what the stages need), stack (one shape), pad (to the longest) or
    /// ragged (with offsets)
    #[arg(long)]
    pub collate: Option<Collate>,
    /// Leave out a last batch that is not full
    #[arg(long)]
    pub drop_last: bool,
    /// Put pictures out as all of one channel before the next
    #[arg(long)]
    pub planar: bool,
    /// Shares of the files in a mixture, such as 0.7,0.3, in the order of the files
    #[arg(long, value_delimiter = ',', value_name = "SHARE")]
    pub mix: Option<Vec<f64>>,
    /// Keep records of these lengths only, such as 5..60, in the units of --buckets
    #[arg(long, value_parser = parse_lengths, value_name = "FROM..TO")]
    pub keep_lengths: Option<(u32, u32)>,
    /// Keep records of these classes only, such as cat,dog or 3,5: by name where classes have names, otherwise by label
    #[arg(long, value_delimiter = ',', value_name = "CLASS")]
    pub keep_classes: Vec<ClassName>,
    /// Milliseconds that a consumer would spend on each batch
    #[arg(long, value_name = "MS")]
    pub compute_ms: Option<f64>,
    /// Threads that read, beside those of the stages (default: 2)
    #[arg(long)]
    pub read_threads: Option<usize>,
    /// Serve the counters as Prometheus text at this address while it runs, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
    /// File that says where the pipeline stands; if it is there, go on from it
    #[arg(long)]
    pub state: Option<PathBuf>,
    /// File for the ids of all batches that were consumed, 8 bytes each, little-endian; cut to what the state says
    /// when the run goes on
    #[arg(long, requires = "state")]
    pub log: Option<PathBuf>,
}

fn parse_lengths(text: &str) -> Result<(u32, u32), String> {
    let parsed = text.split_once("..").and_then(|(from, to)| {
        let from = if from.is_empty() {
            0
        } else {
            from.parse().ok()?
        };
        let to = if to.is_empty() {
            u32::MAX
        } else {
            to.parse().ok()?
        };
        (from <= to).then_some((from, to))
    });
    parsed.ok_or_else(|| format!("`{text}` is no range of lengths; give FROM..TO, both included"))
}
