//! The job `bench`: measures how fast batches arrive, without training.

mod config;
mod progress;
mod prometheus;
mod report;
mod stages;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pelton_comm::Alike;
use pelton_feed::{BadExamples, StageMeters};
use pelton_fetch::{Fetch, FetchOptions, OnBadRecord, RowBatch, Share};
use pelton_format::{FeatureType, Row};
use pelton_plan::Batching;

pub use config::{BenchConfig, StagesConfig};
pub use pelton_data::{PeerConfig, PeerMode};
pub use report::BenchReport;

use pelton_data::{
    self as data, DataError, Filling, OpenedData, Peers, check_limit, check_some_left, left_out,
    met_by_all, plan_of, problem_of,
};
use pelton_run::{Event, Interrupt, Observer, RunContext, cpu_seconds, peak_rss_bytes};
use pelton_storage::check_output;

/// Default number of examples in a batch.
const DEFAULT_BATCH: u64 = 4096;

/// Runs the feed for some epochs and touches every row once. Each of several ranks takes its share of every batch
/// within its own memory budget; the figures are totals over ranks.
pub fn bench(config: &BenchConfig, mut context: RunContext<'_>) -> Result<BenchReport, DataError> {
    let began = Instant::now();
    check(config)?;
    context.agree(&config.shown())?;
    let skips_rows = config.on_bad_record != OnBadRecord::Fail;
    let mut data = config.data.with_bytes();
    data.tolerant = match &config.stages {
        Some(stages) => stages.pipeline.bad_examples != BadExamples::Fail,
        None => skips_rows,
    };
    if data.dtype == FeatureType::Checked {
        // Rounding does not matter here.
        data.dtype = FeatureType::F32;
    }
    let mut opened = data::open(&data, &data.paths, None, &mut context)?;
    if config.cold {
        // The part of the files in the page cache decides how they are read.
        opened.drop_page_cache()?;
        context.comm.barrier()?;
        let silent = &mut |_: Event<'_>| {};
        let again = &mut RunContext::new(context.comm, context.interrupt, silent);
        opened = data::open(&data, &data.paths, None, again)?;
    }
    let memory_bytes = match config.memory_share {
        Some(share) => (opened.dataset.bytes() as f64 * share) as u64,
        None => config.memory_bytes,
    };
    match &config.stages {
        Some(stages) => stages::measure(config, stages, memory_bytes, &opened, began, &mut context),
        None => measure(config, memory_bytes, &opened, began, &mut context),
    }
}

fn check(config: &BenchConfig) -> Result<(), DataError> {
    if config.epochs == 0 {
        let text = "`epochs` 0 measures nothing; give 1 or more";
        return Err(DataError::Config(text.to_string()));
    }
    data::check_threads("`threads`", config.threads)?;
    if let Some(threads) = config.stages.as_ref().and_then(|s| s.pipeline.read_threads) {
        data::check_threads("`read_threads`", threads)?;
    }
    if let Some(stages) = &config.stages {
        let inputs = config.data.inputs(stages.pipeline.files());
        for file in [&stages.state, &stages.log].into_iter().flatten() {
            check_output(file, &inputs)?;
        }
    }
    data::check_scratch(&config.scratch_dir)
}

fn measure(
    config: &BenchConfig,
    memory_bytes: u64,
    opened: &OpenedData,
    began: Instant,
    context: &mut RunContext<'_>,
) -> Result<BenchReport, DataError> {
    let (comm, interrupt) = (context.comm, context.interrupt);
    let observer = &mut *context.observer;
    let (order, batch) = match &config.cache {
        Some(peers) => Peers::order(
            peers,
            config.order,
            config.seed,
            &opened.dataset,
            comm.size(),
        )?,
        None => (config.order, DEFAULT_BATCH),
    };
    let batching = Batching::Examples(config.batch.unwrap_or(batch));
    let plan = Arc::new(plan_of(&opened.dataset, order, batching, config.seed)?);
    comm.agree(&Alike::default().with_digest("a plan with the fingerprint", plan.fingerprint()))?;
    let peers = match &config.cache {
        Some(cache) => {
            let filling = Filling {
                plan: Arc::clone(&plan),
                start: (0, 0),
                end_epoch: Some(config.epochs),
                stragglers: false,
            };
            let dataset = &opened.dataset;
            Some(Peers::load(cache, dataset, filling, comm, interrupt)?)
        }
        None => None,
    };
    let dataset = peers
        .as_ref()
        .map_or_else(|| Arc::clone(&opened.dataset), Peers::dataset);
    let options = FetchOptions {
        access: config.access,
        threads: config.threads.max(1),
        on_bad_record: config.on_bad_record,
        end_epoch: Some(config.epochs),
        share: (comm.size() > 1).then(|| Share::new(comm.rank() as u32, comm.size() as u32)),
        scratch_dir: Some(config.scratch_dir.clone()),
        device: opened.device.speed(),
        interrupt: Arc::clone(interrupt),
        ..FetchOptions::with_memory(memory_bytes)
    };
    let options = match &peers {
        Some(peers) => peers.fetch_options(options),
        None => options,
    };
    let mut feed = Fetch::new(Arc::clone(&dataset), Arc::clone(&plan), &options)?;
    if let Some(choice) = feed.access_choice() {
        observer(Event::Note(&choice.to_string()));
    }
    comm.barrier()?;
    let open_s = began.elapsed().as_secs_f64();
    let mut first_batch_s = None;
    let received = |batch: &RowBatch| {
        first_batch_s.get_or_insert_with(|| began.elapsed().as_secs_f64());
        if let Some(peers) = &peers {
            peers.received_step(batch);
        }
    };
    let touched = touch(
        &mut feed,
        (config.epochs, plan.steps(0)),
        received,
        interrupt,
        observer,
    );
    // Any read may have noticed the interruption.
    let checksum = touched.map_err(|error| {
        if error.is_interruption() {
            DataError::Stopped { job: "measuring" }
        } else {
            error
        }
    })?;
    let wall_s = began.elapsed().as_secs_f64();
    let mut meters = feed.meters();
    check_limit(comm, config.on_bad_record, &dataset, &meters)?;
    // A record skipped by several ranks, in different epochs, counts once.
    let all: Vec<u64> = met_by_all(comm, &meters)?.into_iter().collect();
    meters.skipped_records = if comm.rank() == 0 {
        all.len() as u64
    } else {
        0
    };
    check_some_left(comm, meters.records, &meters.skipped_ids, || {
        let first = meters.skipped_ids.first();
        first.map(|&id| (id, problem_of(&dataset, id)))
    })?;
    if let (0, Some(note)) = (comm.rank(), left_out(&dataset, &all)) {
        observer(Event::Note(&note));
    }
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
        backend_bytes: meters.read_bytes,
        access: feed.access().to_string(),
        order: plan.order().to_string(),
        verdict: meters.verdict().to_string(),
        checksum,
        ..BenchReport::default()
    };
    drop(feed);
    drop(dataset);
    if let Some(peers) = peers {
        report.add_peers(&peers.finish(comm)?);
    }
    report.over_ranks(comm)
}

/// Takes every batch and adds up the first value of every row.
fn touch(
    feed: &mut Fetch,
    (epochs, steps): (u64, u64),
    mut received: impl FnMut(&RowBatch),
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<f64, DataError> {
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
            return Err(DataError::Stopped { job: "measuring" });
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
fn feed_stages(meters: &pelton_fetch::Meters, threads: usize) -> Vec<StageMeters> {
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
