//! The job `bench`: how fast batches arrive, without training.

mod kept_classes;
mod peers;
mod progress;
mod settings;
mod stages;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pelton_comm::{Comm, Reduction};
use pelton_feed::{Access, Batch, Exif, Feed, FeedOptions, OnBadRecord, Share, StageMeters};
use pelton_format::Row;
use pelton_plan::{Batching, Order};
use serde::Serialize;

use peers::Peers;
pub use settings::{DecodeSetting, EchoSetting, StagesConfig};

use crate::bad_records::{check_limit, check_some_left, met_by_all, problem_of};
use crate::config::DataConfig;
use crate::data::{self, OpenedData, SharedData};
use crate::error::TrainError;
use crate::event::{Event, Interrupt, Observer};
use crate::linear::plan_of;
use crate::summary::{cpu_seconds, peak_rss_bytes};

/// Examples of a batch where nothing is said.
const DEFAULT_BATCH: u64 = 4096;

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// The data.
    pub data: DataConfig,
    /// Order of the epochs.
    pub order: Order,
    /// Examples of a batch; where `None`, 4096, or as many as fit three times into a load.
    pub batch: Option<u64>,
    /// The access path.
    pub access: Access,
    /// Memory for look-ahead and batches of each rank, in bytes.
    pub memory_bytes: u64,
    /// The same as a share of the bytes of all records in their files; wins where present.
    pub memory_share: Option<f64>,
    /// Epochs.
    pub epochs: u64,
    /// Seed of the order.
    pub seed: u64,
    /// Loading threads.
    pub threads: usize,
    /// What happens to records that cannot be decoded.
    pub on_bad_record: OnBadRecord,
    /// Folder for scratch files.
    pub scratch_dir: PathBuf,
    /// Whether to drop the files' pages from the page cache first.
    pub cold: bool,
    /// Where present, the data is read through the memory of all ranks.
    pub cache: Option<PeerConfig>,
    /// Where present, records go through stages: decoded, augmented, echoed, put together.
    pub stages: Option<StagesConfig>,
}

/// Peers' memory between the backend and the feeds.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// Memory of all ranks together, in bytes.
    pub memory_bytes: u64,
    /// The same as a share of the data; wins where present.
    pub memory_share: Option<f64>,
    /// What happens where that does not hold the data.
    pub mode: Mode,
    /// Bytes that the opportunistic mode reads at once.
    pub unit_bytes: u64,
    /// Whether slots of a batch go to the ranks that hold their records.
    pub near: bool,
    /// Whether records carry checksums.
    pub checksums: bool,
}

/// In which order records are taken when memory does not hold all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Exactly the order asked for; what is not in memory is read from the backend by itself.
    Ordered,
    /// From what is in memory, load by load.
    Opportunistic {
        /// Loads of an epoch; where absent, as few as fit. More leave memory for a part of the data that is read
        /// once, and shuffle less.
        loads: Option<u64>,
    },
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Ordered => "ordered",
            Mode::Opportunistic { .. } => "opportunistic",
        })
    }
}

impl FromStr for Mode {
    type Err = String;

    /// `ordered`, `opportunistic` or `opportunistic:LOADS`.
    fn from_str(text: &str) -> Result<Mode, String> {
        match text.split_once(':') {
            None if text == "ordered" => Ok(Mode::Ordered),
            None if text == "opportunistic" => Ok(Mode::Opportunistic { loads: None }),
            Some(("opportunistic", loads)) => match loads.parse() {
                Ok(loads) if loads > 0 => Ok(Mode::Opportunistic { loads: Some(loads) }),
                _ => Err(format!("{loads} is no number of loads; give 1 or more")),
            },
            _ => Err("give ordered, opportunistic or opportunistic:LOADS".to_string()),
        }
    }
}

/// What was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BenchReport {
    /// Examples of all batches over the seconds in which they were taken, `wall_s` less `open_s`.
    pub examples_per_s: f64,
    /// Bytes of records used over the same seconds.
    pub bytes_per_s: f64,
    /// Examples handed out.
    pub examples: u64,
    /// Bytes read from storage.
    pub read_bytes: u64,
    /// Bytes of records used.
    pub used_bytes: u64,
    /// Bytes written to scratch files.
    pub written_bytes: u64,
    /// Bytes read over bytes used.
    pub read_amplification: f64,
    /// Seconds of the command to the first batch; 0 where none came.
    pub first_batch_s: f64,
    /// Seconds of the command.
    pub wall_s: f64,
    /// Seconds of the command until batches were asked for: opening, probing, planning, filling of peers' memory.
    pub open_s: f64,
    /// Seconds that threads waited for reads.
    pub read_s: f64,
    /// Seconds that threads decoded.
    pub decode_s: f64,
    /// Reads in flight on average.
    pub mean_queue_depth: f64,
    /// Largest resident memory of the process.
    pub peak_rss_bytes: u64,
    /// CPU seconds of the process.
    pub cpu_s: f64,
    /// Randomness level of the order, where it is known.
    pub rl: Option<f64>,
    /// Exact randomness level, where it is known.
    pub rl_exact: Option<f64>,
    /// Memory budget.
    pub memory_bytes: u64,
    /// Bytes of files that records are copied from as a part of the process's memory.
    pub mapped_bytes: u64,
    /// Examples that came out for the first time in their epoch.
    pub fresh_examples: u64,
    /// Repeats of examples.
    pub echoed_examples: u64,
    /// Appearances that the plan leaves out.
    pub dropped: u64,
    /// Work of each stage.
    pub stages: Vec<StageMeters>,
    /// Elements of batches that are padding, over all.
    pub padded_fraction: f64,
    /// Pictures that state an orientation other than upright, each counted once.
    pub exif_pictures: u64,
    /// What was done with that.
    #[serde(skip)]
    pub exif: Exif,
    /// Bytes of the batches handed out.
    pub batch_bytes: u64,
    /// Examples of each part of a mixture in the first epoch.
    pub mixture: Vec<u64>,
    /// Examples left out because they could not be read or decoded.
    pub skipped_records: u64,
    /// Examples replaced by others of their batch because they could not be read or decoded.
    pub replaced_records: u64,
    /// Ranks that shared the batches.
    pub ranks: u64,
    /// Bytes served from the reading rank's own memory.
    pub local_bytes: u64,
    /// Bytes served from other ranks' memory.
    pub remote_bytes: u64,
    /// Bytes read from the backend, to fill memory or to serve reads.
    pub backend_bytes: u64,
    /// How data larger than the ranks' memory is taken; absent without peers' memory.
    pub mode: Option<String>,
    /// How the ranks' memory was used.
    pub pipeline: Option<String>,
    /// Seconds in which memory was filled, of the rank with most; before the first batch where all data
    /// fits, else beside reading.
    pub load_s: f64,
    /// Access path used.
    pub access: String,
    /// Order used.
    pub order: String,
    /// What bounds the rate.
    pub verdict: String,
    /// Sum of the first value of every row, which proves that rows were touched.
    pub checksum: f64,
}

/// Runs the feed for some epochs and touches every row once.
pub fn bench(
    config: &BenchConfig,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<BenchReport, TrainError> {
    let began = Instant::now();
    check(config)?;
    let data = config.data.with_bytes();
    let opened = data::open(&data, &data.paths, None, interrupt, observer)?;
    if config.cold {
        opened.drop_page_cache()?;
    }
    measure(config, &opened, None, began, interrupt, observer)
}

/// The same on several ranks, each of which takes its share of every batch within a memory budget of
/// its own. All ranks call it, with one `shared` for those of a process; the figures are of all of them
/// together.
pub fn bench_over_ranks(
    config: &BenchConfig,
    comm: &Comm,
    shared: &SharedData,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<BenchReport, TrainError> {
    let began = Instant::now();
    check(config)?;
    let paths = &config.data.paths;
    let data = config.data.with_bytes();
    let opened = shared.open(comm, &data, paths, None, interrupt, observer)?;
    if config.cold {
        opened.drop_page_cache()?;
        comm.barrier()?;
    }
    measure(config, &opened, Some(comm), began, interrupt, observer)
}

fn check(config: &BenchConfig) -> Result<(), TrainError> {
    if config.epochs == 0 {
        let text = "--epochs 0 measures nothing; give 1 or more";
        return Err(TrainError::Config(text.to_string()));
    }
    data::check_threads("--threads", config.threads)?;
    if let Some(stages) = &config.stages {
        data::check_threads("--read-threads", stages.read_threads)?;
    }
    data::check_scratch(&config.scratch_dir)
}

fn measure(
    config: &BenchConfig,
    opened: &OpenedData,
    comm: Option<&Comm>,
    began: Instant,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<BenchReport, TrainError> {
    if let Some(stages) = &config.stages {
        return measure_stages(config, stages, opened, comm, began, interrupt, observer);
    }
    let memory_bytes = match config.memory_share {
        Some(share) => (opened.dataset.bytes() as f64 * share) as u64,
        None => config.memory_bytes,
    };
    let peers = match (&config.cache, comm) {
        (Some(cache), Some(comm)) => Some(Peers::load(config, cache, opened, comm, interrupt)?),
        _ => None,
    };
    let dataset = peers
        .as_ref()
        .map_or_else(|| Arc::clone(&opened.dataset), Peers::dataset);
    let plan = match &peers {
        Some(peers) => Arc::clone(&peers.plan),
        None => {
            let batching = Batching::Examples(config.batch.unwrap_or(DEFAULT_BATCH));
            Arc::new(plan_of(&dataset, config.order, batching, config.seed)?)
        }
    };
    let options = FeedOptions {
        access: config.access,
        threads: config.threads.max(1),
        on_bad_record: config.on_bad_record,
        end_epoch: Some(config.epochs),
        share: comm.map(|comm| Share::of(comm.rank() as u32, comm.size() as u32)),
        scratch_dir: Some(config.scratch_dir.clone()),
        device: opened.device,
        interrupt: Arc::clone(interrupt),
        ..FeedOptions::with_memory(memory_bytes)
    };
    let options = match &peers {
        Some(peers) => peers.feed_options(options),
        None => options,
    };
    let mut feed = Feed::new(Arc::clone(&dataset), Arc::clone(&plan), &options)?;
    if let Some(choice) = feed.access_choice() {
        observer(Event::Note(&choice.to_string()));
    }
    if let Some(comm) = comm {
        comm.barrier()?;
    }
    let open_s = began.elapsed().as_secs_f64();
    let mut first_batch_s = None;
    let received = |batch: &Batch| {
        first_batch_s.get_or_insert_with(|| began.elapsed().as_secs_f64());
        if let Some(peers) = &peers {
            peers.received(batch);
        }
    };
    let touched = touch(&mut feed, config.epochs, received, interrupt, observer);
    // Which read noticed the interruption is no concern of whoever asked for it.
    let checksum = touched.map_err(|error| match error.is_interruption() {
        true => TrainError::Stopped { job: "measuring" },
        false => error,
    })?;
    let wall_s = began.elapsed().as_secs_f64();
    let mut meters = feed.meters();
    if let Some(comm) = comm {
        check_limit(comm, config.on_bad_record, &dataset, &meters)?;
        // A record that several ranks have left out, in different epochs, is one.
        let all = met_by_all(comm, &meters)?.len() as u64;
        meters.skipped_records = if comm.rank() == 0 { all } else { 0 };
    }
    check_some_left(comm, meters.records, &meters.skipped_ids, || {
        let first = meters.skipped_ids.first();
        first.map(|&id| (id, problem_of(&dataset, id)))
    })?;
    let randomness = plan.randomness();
    let mut report = BenchReport {
        examples: meters.records,
        fresh_examples: meters.records,
        stages: feed_stages(&meters, options.threads),
        read_bytes: meters.read_bytes,
        used_bytes: meters.used_bytes,
        written_bytes: meters.written_bytes,
        first_batch_s: first_batch_s.unwrap_or(0.0),
        wall_s,
        open_s,
        read_s: meters.read_s,
        decode_s: meters.decode_s,
        mean_queue_depth: meters.mean_queue_depth,
        peak_rss_bytes: peak_rss_bytes(),
        cpu_s: cpu_seconds(),
        rl: Some(randomness.rl),
        rl_exact: Some(randomness.rl_exact),
        memory_bytes: options.memory_bytes,
        skipped_records: meters.skipped_records,
        ranks: 1,
        backend_bytes: meters.read_bytes,
        access: feed.access().to_string(),
        order: plan.order().to_string(),
        verdict: meters.verdict().to_string(),
        checksum,
        ..BenchReport::default()
    };
    drop(feed);
    drop(dataset);
    match (comm, peers) {
        (Some(comm), Some(peers)) => {
            peers.finish(comm, &mut report)?;
            report.over_ranks(comm)
        }
        (Some(comm), None) => report.over_ranks(comm),
        (None, _) => Ok(report.with_rates()),
    }
}

fn measure_stages(
    config: &BenchConfig,
    stages: &StagesConfig,
    opened: &OpenedData,
    comm: Option<&Comm>,
    began: Instant,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<BenchReport, TrainError> {
    if config.cache.is_some() {
        let text = "--cache peers serves rows as they are stored; leave out it or the stages";
        return Err(TrainError::Config(text.to_string()));
    }
    let prepared = stages::prepare(config, stages, opened, comm, interrupt, observer)?;
    if let Some(comm) = comm {
        comm.barrier()?;
    }
    let report = prepared.run(config, stages, opened, (comm, began), interrupt, observer)?;
    match comm {
        Some(comm) => report.over_ranks(comm),
        None => Ok(report.with_rates()),
    }
}

/// Takes every batch and adds up the first value of every row.
fn touch(
    feed: &mut Feed,
    epochs: u64,
    mut received: impl FnMut(&Batch),
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<f64, TrainError> {
    let steps = feed.plan().steps(0);
    let total = epochs.saturating_mul(steps);
    let mut checksum = 0.0;
    while let Some(batch) = feed.next_batch()? {
        received(batch);
        for i in 0..batch.rows.len() {
            let value = match batch.rows.row(i) {
                Row::Dense(values) => values.first(),
                Row::Sparse { values, .. } => values.first(),
                Row::Bytes(bytes) => {
                    checksum += f64::from(bytes.first().copied().unwrap_or(0));
                    None
                }
            };
            checksum += f64::from(value.copied().unwrap_or(0.0));
        }
        let done = batch.epoch * steps + batch.step + 1;
        if interrupt.load(Ordering::Relaxed) {
            return Err(TrainError::Stopped { job: "measuring" });
        }
        observer(Event::Progress {
            what: "bench",
            done,
            total,
        });
    }
    Ok(checksum)
}

/// Reading and decoding of rows, which the same threads do.
fn feed_stages(meters: &pelton_feed::Meters, threads: usize) -> Vec<StageMeters> {
    let whole = meters.wall_s * threads as f64;
    let stage = |name, busy_s: f64, bytes| StageMeters {
        name,
        threads: threads as u64,
        busy_s,
        wait_s: (whole - busy_s).max(0.0),
        records: meters.records,
        bytes,
    };
    vec![
        stage("read", meters.read_s, meters.read_bytes),
        stage("decode", meters.decode_s, meters.used_bytes),
    ]
}

impl BenchReport {
    /// Seconds in which batches were taken.
    pub fn taking_s(&self) -> f64 {
        (self.wall_s - self.open_s).max(1e-9)
    }

    fn with_rates(mut self) -> BenchReport {
        if self.exif_pictures > 0 {
            let done = match self.exif {
                Exif::Ignore => "is not applied; --exif apply turns them",
                Exif::Apply => "is applied",
            };
            self.verdict += &format!(
                "; {} pictures state an orientation in EXIF, which {done}",
                self.exif_pictures
            );
        }
        self.examples_per_s = self.examples as f64 / self.taking_s();
        self.bytes_per_s = self.used_bytes as f64 / self.taking_s();
        self.read_amplification = self.read_bytes as f64 / self.used_bytes.max(1) as f64;
        self
    }

    /// The figures of all ranks: sums, and the time of the slowest.
    fn over_ranks(mut self, comm: &Comm) -> Result<BenchReport, TrainError> {
        let mut counts = [
            &mut self.examples,
            &mut self.read_bytes,
            &mut self.used_bytes,
            &mut self.written_bytes,
            &mut self.skipped_records,
            &mut self.replaced_records,
            &mut self.fresh_examples,
            &mut self.echoed_examples,
            &mut self.batch_bytes,
            &mut self.local_bytes,
            &mut self.remote_bytes,
            &mut self.backend_bytes,
            &mut self.mapped_bytes,
            &mut self.exif_pictures,
        ];
        sum(comm, &mut counts)?;
        let mut sums = [
            &mut self.checksum,
            &mut self.mean_queue_depth,
            &mut self.read_s,
            &mut self.decode_s,
        ];
        reduce(comm, &mut sums, Reduction::Sum)?;
        let mut longest = [
            &mut self.wall_s,
            &mut self.open_s,
            &mut self.first_batch_s,
            &mut self.load_s,
        ];
        reduce(comm, &mut longest, Reduction::Max)?;
        self.ranks = comm.size() as u64;
        Ok(self.with_rates())
    }
}

fn sum(comm: &Comm, places: &mut [&mut u64]) -> Result<(), TrainError> {
    let mut values: Vec<u64> = places.iter().map(|place| **place).collect();
    comm.all_reduce(&mut values, Reduction::Sum)?;
    for (place, value) in places.iter_mut().zip(values) {
        **place = value;
    }
    Ok(())
}

fn reduce(comm: &Comm, places: &mut [&mut f64], how: Reduction) -> Result<(), TrainError> {
    let mut values: Vec<f64> = places.iter().map(|place| **place).collect();
    comm.all_reduce(&mut values, how)?;
    for (place, value) in places.iter_mut().zip(values) {
        **place = value;
    }
    Ok(())
}
