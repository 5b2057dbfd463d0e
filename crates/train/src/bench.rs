//! The job `bench`: how fast batches arrive, without training.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pelton_feed::{Access, Feed, FeedOptions, OnBadRecord};
use pelton_format::Row;
use pelton_plan::{Batching, Order};
use serde::Serialize;

use crate::config::DataConfig;
use crate::data;
use crate::error::TrainError;
use crate::event::{Event, Interrupt, Observer};
use crate::linear::plan_of;
use crate::summary::{cpu_seconds, peak_rss_bytes};

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// The data.
    pub data: DataConfig,
    /// Order of the epochs.
    pub order: Order,
    /// Examples of a batch.
    pub batch: u64,
    /// The access path.
    pub access: Access,
    /// Memory for look-ahead and batches, in bytes.
    pub memory_bytes: u64,
    /// The same as a share of the data in memory; wins where present.
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
}

/// What was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BenchReport {
    /// Examples of all batches over the seconds from start to end.
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
    /// Seconds to the first batch, opening the data included.
    pub first_batch_s: f64,
    /// Seconds from the start of the feed to the end.
    pub wall_s: f64,
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
    /// Randomness level of the order.
    pub rl: f64,
    /// Exact randomness level.
    pub rl_exact: f64,
    /// Memory budget.
    pub memory_bytes: u64,
    /// Examples left out because they could not be decoded.
    pub skipped_records: u64,
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
    if config.epochs == 0 {
        let text = "--epochs 0 measures nothing; give 1 or more";
        return Err(TrainError::Config(text.to_string()));
    }
    data::check_threads(config.threads)?;
    data::check_scratch(&config.scratch_dir)?;
    let began = Instant::now();
    let opened = data::open(&config.data, &config.data.paths, None, interrupt, observer)?;
    if config.cold {
        opened.drop_page_cache()?;
    }
    let dataset = &opened.dataset;
    let data_bytes = dataset.records() * pelton_feed::pane_row_bytes(dataset);
    let memory_bytes = match config.memory_share {
        Some(share) => (data_bytes as f64 * share) as u64,
        None => config.memory_bytes,
    };
    let plan = plan_of(
        dataset,
        config.order,
        Batching::Examples(config.batch),
        config.seed,
    )?;
    let options = FeedOptions {
        access: config.access,
        threads: config.threads.max(1),
        on_bad_record: config.on_bad_record,
        end_epoch: Some(config.epochs),
        scratch_dir: Some(config.scratch_dir.clone()),
        device: opened.device,
        interrupt: Arc::clone(interrupt),
        ..FeedOptions::with_memory(memory_bytes)
    };
    let randomness = plan.randomness();
    let steps = plan.steps();
    let total = config.epochs.saturating_mul(steps);
    let mut feed = Feed::new(Arc::clone(dataset), Arc::new(plan), &options)?;
    if let Some(choice) = feed.access_choice() {
        observer(Event::Note(&choice.to_string()));
    }
    let opening_s = began.elapsed().as_secs_f64();
    let mut checksum = 0.0;
    while let Some(batch) = feed.next_batch()? {
        for i in 0..batch.rows.len() {
            let value = match batch.rows.row(i) {
                Row::Dense(values) => values.first(),
                Row::Sparse { values, .. } => values.first(),
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
    let meters = feed.meters();
    Ok(BenchReport {
        examples_per_s: meters.records as f64 / meters.wall_s,
        bytes_per_s: meters.used_bytes as f64 / meters.wall_s,
        examples: meters.records,
        read_bytes: meters.read_bytes,
        used_bytes: meters.used_bytes,
        written_bytes: meters.written_bytes,
        read_amplification: meters.read_amplification(),
        first_batch_s: opening_s + meters.first_batch_s,
        wall_s: meters.wall_s,
        read_s: meters.read_s,
        decode_s: meters.decode_s,
        mean_queue_depth: meters.mean_queue_depth,
        peak_rss_bytes: peak_rss_bytes(),
        cpu_s: cpu_seconds(),
        rl: randomness.rl,
        rl_exact: randomness.rl_exact,
        memory_bytes,
        skipped_records: meters.skipped_records,
        access: feed.access().to_string(),
        order: config.order.to_string(),
        verdict: meters.verdict().to_string(),
        checksum,
    })
}
