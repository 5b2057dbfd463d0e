//! Measuring a pipeline: decode, augment, echo, buckets and batches behind the feed.

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pelton_comm::Comm;
use pelton_feed::{
    AutoEcho, BadExamples, Collate, Decode, EchoPoint, FeedError, Loader, LoaderMeters,
    LoaderOptions, LoaderState, SampleBatch, Stages,
};
use pelton_format::{Contents, Dataset};
use pelton_image::{Layout, Pipeline};
use pelton_plan::{BucketPolicy, Echo, Part, Selection, StreamPlan, StreamSpec};
use pelton_text::{Ends, Tokenizer, Vocabulary, VocabularyOptions};

use super::{BenchConfig, BenchReport};
use crate::bench::lengths::{record_lengths, vocabulary_of};
use crate::data::OpenedData;
use crate::error::TrainError;
use crate::event::{Event, Interrupt, Observer};
use crate::linear::units_of;
use crate::run_folder::write_atomically;
use crate::summary::{cpu_seconds, peak_rss_bytes};

/// Examples of a batch where nothing is said.
const DEFAULT_BATCH: u64 = 64;

/// What happens to records behind the feed.
#[derive(Clone, Debug, Default)]
pub struct StagesConfig {
    /// How records become samples.
    pub decode: DecodeSetting,
    /// Augmentation of pictures.
    pub augment: Option<Pipeline>,
    /// Repeats.
    pub echo: Option<EchoSetting>,
    /// How examples are put together by length.
    pub buckets: Option<BucketPolicy>,
    /// How samples are put together.
    pub collate: Collate,
    /// Whether a last batch that is not full is left out.
    pub drop_last: bool,
    /// Whether pictures are put out as all of one channel before the next.
    pub planar: bool,
    /// Shares of the files in a mixture, in the order of the files.
    pub mix: Option<Vec<f64>>,
    /// Lengths of records that are kept, in tokens where text is decoded and otherwise in bytes.
    pub keep_lengths: Option<(u32, u32)>,
    /// What happens to bad examples.
    pub bad_examples: BadExamples,
    /// Time that the consumer spends on each batch.
    pub compute: Duration,
    /// Threads that read.
    pub read_threads: usize,
    /// File that says where the pipeline stands after every batch, and from which it goes on.
    pub state: Option<PathBuf>,
    /// File to which the ids of every batch are appended before its state is saved.
    pub log: Option<PathBuf>,
}

/// How records become samples, as text: `none`, `jpg`, `png`, `webp`, `image`, `words`, `bytes` or `member:EXT`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DecodeSetting {
    /// Bytes as they are.
    #[default]
    None,
    /// Pictures of the named kind, or any.
    Image(String),
    /// Text as numbers of a vocabulary that is counted first.
    Text(Tokenizer),
    /// The bytes of a tar member.
    Member(String),
}

impl FromStr for DecodeSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<DecodeSetting, String> {
        match text {
            "none" => return Ok(DecodeSetting::None),
            "words" => return Ok(DecodeSetting::Text(Tokenizer::Whitespace)),
            "bytes" => return Ok(DecodeSetting::Text(Tokenizer::Bytes)),
            _ => {}
        }
        if let Some(extension) = text.strip_prefix("member:").filter(|e| !e.is_empty()) {
            return Ok(DecodeSetting::Member(extension.to_owned()));
        }
        match Decode::image(text) {
            Some(_) => Ok(DecodeSetting::Image(text.to_owned())),
            None => Err(format!(
                "`{text}` is not a decoder: use none, jpg, png, webp, image, words, bytes or member:EXTENSION"
            )),
        }
    }
}

impl fmt::Display for DecodeSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeSetting::None => f.write_str("none"),
            DecodeSetting::Image(kind) => f.write_str(kind),
            DecodeSetting::Text(Tokenizer::Whitespace) => f.write_str("words"),
            DecodeSetting::Text(_) => f.write_str("bytes"),
            DecodeSetting::Member(extension) => write!(f, "member:{extension}"),
        }
    }
}

/// Repeats, as text: `before:E[:WINDOW]`, `after:E[:WINDOW]`, `batch:E[:WINDOW]` or `auto[:MOST]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EchoSetting {
    /// Of examples.
    Examples(Echo, EchoPoint),
    /// Of batches.
    Batches(Echo),
    /// Where the consumer would wait.
    Auto(AutoEcho),
}

impl FromStr for EchoSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<EchoSetting, String> {
        let bad = || {
            format!(
                "`{text}` is not an echo: use before:FACTOR[:WINDOW], after:FACTOR[:WINDOW], batch:FACTOR[:WINDOW] or auto[:MOST]"
            )
        };
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        let echo = |text: &str| text.parse::<Echo>().map_err(|error| error.to_string());
        match (kind, rest) {
            ("before", Some(rest)) => {
                Ok(EchoSetting::Examples(echo(rest)?, EchoPoint::BeforeAugment))
            }
            ("after", Some(rest)) => {
                Ok(EchoSetting::Examples(echo(rest)?, EchoPoint::AfterAugment))
            }
            // Whole batches are large: a window of a few is held.
            ("batch", Some(rest)) if !rest.contains(':') => {
                Ok(EchoSetting::Batches(echo(&format!("{rest}:4"))?))
            }
            ("batch", Some(rest)) => Ok(EchoSetting::Batches(echo(rest)?)),
            ("auto", None) => Ok(EchoSetting::Auto(AutoEcho::default())),
            ("auto", Some(most)) => match most.parse() {
                Ok(most) if (1.0..=1000.0).contains(&most) => Ok(EchoSetting::Auto(AutoEcho {
                    most,
                    ..AutoEcho::default()
                })),
                _ => Err(bad()),
            },
            _ => Err(bad()),
        }
    }
}

impl EchoSetting {
    fn of_examples(this: Option<EchoSetting>) -> Echo {
        match this {
            Some(EchoSetting::Examples(echo, _)) => echo,
            _ => Echo::NONE,
        }
    }

    fn of_batches(this: Option<EchoSetting>) -> Echo {
        match this {
            Some(EchoSetting::Batches(echo)) => echo,
            _ => Echo::NONE,
        }
    }
}

/// A pipeline ready to run.
pub(super) struct Prepared {
    stream: Arc<StreamPlan>,
    stages: Stages,
    options: LoaderOptions,
    /// Examples that the plan leaves out of an epoch.
    dropped: u64,
}

pub(super) fn prepare(
    config: &BenchConfig,
    stages: &StagesConfig,
    opened: &OpenedData,
    comm: Option<&Comm>,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<Prepared, TrainError> {
    let dataset = &opened.dataset;
    let vocabulary = match stages.decode {
        DecodeSetting::Text(tokenizer) => Some(Arc::new(vocabulary_of(
            dataset, tokenizer, interrupt, observer,
        )?)),
        _ => None,
    };
    let ends = Ends {
        begin: false,
        end: true,
    };
    let decode = match (&stages.decode, &vocabulary) {
        (DecodeSetting::Text(_), Some(vocabulary)) => Decode::Tokens {
            members: match dataset.contents() {
                Contents::Members => vec!["txt".to_owned()],
                _ => Vec::new(),
            },
            vocabulary: Arc::clone(vocabulary),
            ends,
        },
        (DecodeSetting::Image(kind), _) => Decode::image(kind).expect("it was parsed"),
        (DecodeSetting::Member(extension), _) => Decode::Member(vec![extension.clone()]),
        _ => Decode::None,
    };
    let stream = stream(
        config,
        stages,
        dataset,
        vocabulary.as_deref(),
        interrupt,
        observer,
    )?;
    let mut left_out = 0;
    if stages.drop_last {
        left_out = left_out_of(&stream);
    }
    let layout = match stages.planar {
        true => Layout::Chw,
        false => Layout::Hwc,
    };
    let augment = stages
        .augment
        .clone()
        .map(|augment| augment.with_layout(layout));
    let augment = match (augment, dataset.contents()) {
        (Some(augment), Contents::Pixels { channels: 1, .. }) => Some(
            augment
                .with_channels(1)
                .map_err(|error| TrainError::Config(error.to_string()))?,
        ),
        (augment, _) => augment,
    };
    let stages_of_loader = Stages {
        decode,
        augment: augment.map(Arc::new),
        planar: stages.planar,
        collate: stages.collate,
        ..Stages::default()
    };
    let data_bytes = dataset.records() * pelton_feed::pane_row_bytes(dataset);
    let options = LoaderOptions {
        threads: config.threads.max(1),
        read_threads: stages.read_threads.max(1),
        access: config.access,
        bad_examples: stages.bad_examples,
        echo_point: match stages.echo {
            Some(EchoSetting::Examples(_, point)) => point,
            _ => EchoPoint::BeforeAugment,
        },
        auto_echo: match stages.echo {
            Some(EchoSetting::Auto(auto)) => Some(auto),
            _ => None,
        },
        end_epoch: Some(config.epochs),
        rank: comm.map_or(0, |comm| comm.rank() as u32),
        world_size: comm.map_or(1, |comm| comm.size() as u32),
        interrupt: Arc::clone(interrupt),
        device: opened.device,
        ..LoaderOptions::with_memory(match config.memory_share {
            Some(share) => (data_bytes as f64 * share) as u64,
            None => config.memory_bytes,
        })
    };
    Ok(Prepared {
        stream: Arc::new(stream),
        stages: stages_of_loader,
        options,
        dropped: left_out,
    })
}

fn stream(
    config: &BenchConfig,
    stages: &StagesConfig,
    dataset: &Arc<Dataset>,
    vocabulary: Option<&Vocabulary>,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<StreamPlan, TrainError> {
    let needs_lengths = stages.buckets.is_some() || stages.keep_lengths.is_some();
    let lengths = match (needs_lengths, vocabulary) {
        (true, Some(vocabulary)) => Some(record_lengths(dataset, vocabulary, interrupt, observer)?),
        _ => None,
    };
    // What is not text is as long as its record has bytes; the end of a line is none of a text's.
    let length_of = |id: u64| match &lengths {
        Some(lengths) => lengths[id as usize],
        None => u32::try_from(dataset.locate(id).length).unwrap_or(u32::MAX),
    };
    let selection = stages.keep_lengths.map(|(least, most)| {
        Selection::new(dataset.records(), |id| {
            (least..=most).contains(&length_of(id))
        })
    });
    if let Some(selection) = &selection
        && selection.len() == 0
    {
        return Err(TrainError::Config(
            "no record has a length that --keep-lengths keeps; name other lengths".to_owned(),
        ));
    }
    let mixture = match &stages.mix {
        Some(weights) => Some(parts(dataset, weights)?),
        None => None,
    };
    let spec = StreamSpec {
        drop_last: stages.drop_last,
        echo: EchoSetting::of_examples(stages.echo),
        batch_echo: EchoSetting::of_batches(stages.echo),
        buckets: stages.buckets.clone(),
        mixture,
        ..StreamSpec::new(
            config.order,
            config.batch.unwrap_or(DEFAULT_BATCH),
            config.seed,
        )
    };
    let units = units_of(dataset, config.order);
    Ok(StreamPlan::new(
        dataset.records(),
        &spec,
        selection,
        units,
        Some(&length_of),
    )?)
}

/// One part for each file.
fn parts(dataset: &Dataset, weights: &[f64]) -> Result<Vec<Part>, TrainError> {
    let files = dataset.files();
    if weights.len() != files.len() {
        return Err(TrainError::Config(format!(
            "--mix names {} shares for {} files; give one for each, in the order of the files",
            weights.len(),
            files.len()
        )));
    }
    Ok(files
        .iter()
        .zip(weights)
        .map(|(file, &weight)| Part {
            ids: file.first_id()..file.first_id() + file.records(),
            weight,
        })
        .collect())
}

/// Appearances of an epoch that are in none of its batches.
fn left_out_of(stream: &StreamPlan) -> u64 {
    let mut batch = pelton_plan::StreamBatch::default();
    let steps = stream.steps(0);
    let Some(last) = steps.checked_sub(1) else {
        return stream.appearances(0);
    };
    stream.batch(0, last, &mut batch);
    let full = stream.largest_batch();
    stream
        .appearances(0)
        .saturating_sub(full * last + batch.draws.len() as u64)
}

impl Prepared {
    /// Runs the pipeline to the end.
    pub fn run(
        &self,
        config: &BenchConfig,
        stages: &StagesConfig,
        opened: &OpenedData,
        began: Instant,
        interrupt: &Interrupt,
        observer: Observer<'_>,
    ) -> Result<BenchReport, TrainError> {
        let dataset = &opened.dataset;
        let stream = &self.stream;
        let mut options = self.options.clone();
        let mut progress = match &stages.state {
            Some(path) => Some(Progress::open(path, stages.log.as_deref())?),
            None => None,
        };
        if let Some(progress) = &progress
            && let Some(state) = &progress.state
        {
            let resumed = state.resume(dataset, stream, &options);
            options = resumed.map_err(|error| of_file(&progress.path, &error))?;
        }
        let mut loader = Loader::new(
            Arc::clone(dataset),
            Arc::clone(stream),
            self.stages.clone(),
            &options,
        )?;
        let opening_s = began.elapsed().as_secs_f64();
        let total = config.epochs.saturating_mul(stream.steps(0));
        let mut checksum = 0.0;
        loop {
            let next = loader.next_batch();
            let batch = match next {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(_) if interrupt.load(Ordering::Relaxed) => return Err(stopped(stages)),
                Err(error) => return Err(error.into()),
            };
            checksum += batch
                .data
                .bytes()
                .iter()
                .step_by(4096)
                .map(|&b| f64::from(b))
                .sum::<f64>();
            consume(stages.compute, interrupt);
            if let Some(progress) = &mut progress {
                progress.note(&batch, &loader.state())?;
            }
            if interrupt.load(Ordering::Relaxed) {
                if let Some(progress) = &mut progress {
                    progress.save(&loader.state())?;
                }
                return Err(stopped(stages));
            }
            observer(Event::Progress {
                what: "bench",
                done: batch.end.epoch * stream.steps(0) + batch.end.next,
                total,
            });
        }
        if let Some(progress) = &mut progress {
            progress.save(&loader.state())?;
        }
        let meters = loader.meters();
        let realised = stream.realised_mixture(0);
        let mut report = report(config, &options, stream, &meters, opening_s, checksum);
        report.dropped = self.dropped * config.epochs;
        report.mixture = realised;
        Ok(report)
    }
}

fn stopped(stages: &StagesConfig) -> TrainError {
    match &stages.state {
        Some(state) => TrainError::Interrupted {
            folder: state.display().to_string(),
        },
        None => TrainError::Stopped { job: "measuring" },
    }
}

/// Waits as long as a consumer would compute.
fn consume(time: Duration, interrupt: &Interrupt) {
    const STEP: Duration = Duration::from_millis(50);
    let until = Instant::now() + time;
    while !interrupt.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(STEP));
    }
}

fn report(
    config: &BenchConfig,
    options: &LoaderOptions,
    stream: &StreamPlan,
    meters: &LoaderMeters,
    opening_s: f64,
    checksum: f64,
) -> BenchReport {
    let feed = &meters.feed;
    let randomness = stream.randomness();
    BenchReport {
        examples: meters.fresh_examples + meters.echoed_examples,
        read_bytes: feed.read_bytes,
        used_bytes: feed.used_bytes,
        first_batch_s: opening_s + meters.first_batch_s,
        wall_s: meters.wall_s,
        read_s: feed.read_s,
        decode_s: feed.decode_s,
        mean_queue_depth: feed.mean_queue_depth,
        peak_rss_bytes: peak_rss_bytes(),
        cpu_s: cpu_seconds(),
        rl: randomness.as_ref().map_or(0.0, |randomness| randomness.rl),
        rl_exact: stream.rl_exact(0).unwrap_or(0.0),
        memory_bytes: options.memory_bytes,
        skipped_records: meters.skipped_examples,
        replaced_records: meters.replaced_examples,
        ranks: 1,
        backend_bytes: feed.read_bytes,
        access: options.access.to_string(),
        order: config.order.to_string(),
        verdict: meters.verdict().to_string(),
        checksum,
        fresh_examples: meters.fresh_examples,
        echoed_examples: meters.echoed_examples,
        batch_bytes: meters.batch_bytes,
        padded_fraction: meters.padded_fraction(),
        stages: meters.stages.clone(),
        ..BenchReport::default()
    }
}

/// The file that says where a pipeline stands, and the file of ids.
struct Progress {
    path: PathBuf,
    state: Option<LoaderState>,
    log: Option<fs::File>,
    logged: u64,
    saved: Instant,
}

/// Time between two saves.
const SAVE_EVERY: Duration = Duration::from_millis(100);

impl Progress {
    /// Opens both; what the log holds beyond the state is cut off.
    fn open(path: &Path, log: Option<&Path>) -> Result<Progress, TrainError> {
        let failed = |path: &Path, error: &std::io::Error| {
            TrainError::Config(format!("{}: {error}", path.display()))
        };
        let (state, logged) = match fs::read(path) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                let (state, logged) = text.trim_end().rsplit_once('\n').unwrap_or((&text, "0"));
                let logged = logged.parse().map_err(|_| {
                    TrainError::Config(format!(
                        "{}: is no state of a pipeline; remove it to begin anew",
                        path.display()
                    ))
                })?;
                let state = LoaderState::from_json(state);
                (Some(state.map_err(|error| of_file(path, &error))?), logged)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (None, 0),
            Err(error) => return Err(failed(path, &error)),
        };
        let log = match log {
            Some(log) => {
                let file = fs::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(log)
                    .and_then(|file| file.set_len(logged).map(|()| file));
                Some(file.map_err(|error| failed(log, &error))?)
            }
            None => None,
        };
        Ok(Progress {
            path: path.to_owned(),
            state,
            log,
            logged,
            saved: Instant::now(),
        })
    }

    /// Appends the batch's ids, then, from time to time, says that what the log holds was consumed: what a process
    /// that is killed has logged beyond that is cut off again.
    fn note(&mut self, batch: &SampleBatch, state: &LoaderState) -> Result<(), TrainError> {
        if let Some(log) = &mut self.log {
            let bytes: Vec<u8> = batch.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            log.write_all(&bytes).map_err(cannot_save)?;
            self.logged += bytes.len() as u64;
        }
        if self.saved.elapsed() >= SAVE_EVERY {
            self.save(state)?;
        }
        Ok(())
    }

    fn save(&mut self, state: &LoaderState) -> Result<(), TrainError> {
        if let Some(log) = &self.log {
            log.sync_data().map_err(cannot_save)?;
        }
        let text = format!("{}\n{}\n", state.to_json(), self.logged);
        write_atomically(&self.path, |file| fs::write(file, &text))?;
        self.saved = Instant::now();
        Ok(())
    }
}

/// An error about a state, with the file that holds it.
fn of_file(path: &Path, error: &FeedError) -> TrainError {
    TrainError::Config(format!("{}: {error}", path.display()))
}

fn cannot_save(source: std::io::Error) -> TrainError {
    TrainError::Output {
        what: "log of the pipeline",
        source,
    }
}

/// A vocabulary without limits.
pub(super) fn vocabulary_options(tokenizer: Tokenizer) -> VocabularyOptions {
    VocabularyOptions {
        tokenizer,
        ..VocabularyOptions::default()
    }
}
