//! Measuring a pipeline: decode, augment, echo, buckets and batches after the feed.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pelton_data::{DataError, OpenedData, PipelineTerms, PreparedPipeline};
use pelton_feed::{DecodeImages, FeedError, LABEL, LoaderMeters};
use pelton_run::{Event, Interrupt, MetricsEndpoint, RunContext, cpu_seconds, peak_rss_bytes};

use super::config::{BenchConfig, StagesConfig};
use super::progress::{self, Progress};
use super::prometheus::prometheus_text;
use super::report::BenchReport;

/// Time between two updates of the served counters.
const SHOW_EVERY: Duration = Duration::from_millis(500);

/// Runs the pipeline to the end.
pub(super) fn measure(
    config: &BenchConfig,
    stages: &StagesConfig,
    memory_bytes: u64,
    opened: &OpenedData,
    began: Instant,
    context: &mut RunContext<'_>,
) -> Result<BenchReport, DataError> {
    let terms = PipelineTerms {
        among: None,
        sampler: None,
        lengths: None,
        order: config.order,
        batch: config.batch,
        seed: config.seed,
        epochs: Some(config.epochs),
        memory_bytes,
        threads: config.threads,
        access: config.access,
        cache: config.cache.clone(),
        ranks: None,
        by_class: false,
        vocabulary: None,
    };
    let pipeline = PreparedPipeline::new(&stages.pipeline, &terms, opened, context)?;
    pipeline.check_has_batches()?;
    let (comm, interrupt) = (context.comm, context.interrupt);
    let observer = &mut *context.observer;
    let stream = pipeline.plan();
    let mut progress = match &stages.state {
        Some(path) => Some(Progress::open(path, comm)?),
        None => None,
    };
    let state = progress.as_ref().and_then(Progress::state);
    let begun = pipeline.loader(state, comm);
    let mut loader = begun.map_err(|error| match (&stages.state, error) {
        (Some(path), DataError::Feed(error @ FeedError::State(_))) => {
            progress::of_file(path, &error)
        }
        (_, error) => error,
    })?;
    // Only a state of this pipeline may cut a log.
    if let (Some(progress), Some(log)) = (&mut progress, &stages.log) {
        progress.log_to(log, &loader.state())?;
    }
    comm.barrier()?;
    let open_s = began.elapsed().as_secs_f64();
    let mut first_batch_s = None;
    let epoch_steps = stream.steps(0);
    let total = config.epochs.saturating_mul(epoch_steps);
    let endpoint = match &stages.metrics {
        Some(address) => Some(MetricsEndpoint::start(address)?),
        None => None,
    };
    if let Some(endpoint) = &endpoint {
        let address = endpoint.address();
        observer(Event::Note(&format!(
            "counters at http://{address}/metrics"
        )));
    }
    let mut shown = None;
    let mut checksum = 0.0;
    loop {
        let batch = match loader.next() {
            Some(Ok(batch)) => batch,
            None => break,
            Some(Err(_)) if interrupt.load(Ordering::Relaxed) => return Err(stopped(stages)),
            Some(Err(error)) => return Err(error.into()),
        };
        first_batch_s.get_or_insert_with(|| began.elapsed().as_secs_f64());
        for (_, array) in batch.fields.iter().filter(|(name, _)| *name != LABEL) {
            let pages = array.bytes().iter().step_by(4096);
            checksum += pages.map(|&byte| f64::from(byte)).sum::<f64>();
        }
        consume(stages.compute, interrupt);
        if let Some(endpoint) = &endpoint
            && shown.is_none_or(|shown: Instant| shown.elapsed() >= SHOW_EVERY)
        {
            endpoint.update(prometheus_text(&loader.meters()));
            shown = Some(Instant::now());
        }
        if let Some(progress) = &mut progress {
            let noted = progress.note(&batch, loader.place(), &loader.state());
            // This rank waited for an interrupted one.
            noted.map_err(|error| {
                if interrupt.load(Ordering::Relaxed) {
                    stopped(stages)
                } else {
                    error
                }
            })?;
        }
        if interrupt.load(Ordering::Relaxed) {
            // Ranks are at different steps now; they resume from the last save.
            if let Some(progress) = progress.as_mut().filter(|_| comm.size() == 1) {
                progress.save(&loader.state())?;
            }
            return Err(stopped(stages));
        }
        observer(Event::Progress {
            what: "bench",
            done: loader.place().epoch * epoch_steps + loader.place().step,
            total,
        });
    }
    if let Some(progress) = &mut progress {
        progress.save(&loader.state())?;
    }
    let wall_s = began.elapsed().as_secs_f64();
    let meters = loader.meters();
    let went_on = progress
        .as_ref()
        .is_some_and(|progress| progress.state().is_some());
    loader.check_bad(comm, went_on)?;
    if let Some(bad) = meters.bad_examples.first() {
        observer(Event::Note(&format!(
            "the first bad record: {}",
            bad.problem
        )));
    }
    let sampled = stages.pipeline.sample.is_some();
    let mut report = report(&pipeline, &meters);
    report.exif = stages.pipeline.exif;
    report.checksum = checksum;
    report.open_s = open_s;
    report.first_batch_s = first_batch_s.unwrap_or(0.0);
    report.wall_s = wall_s;
    report.dropped = (0..config.epochs).map(|epoch| stream.left_out(epoch)).sum();
    report.mixture = stream.realised_mixture(0);
    report.distinct_records = sampled.then(|| stream.distinct_records(0));
    if let Some(figures) = loader.finish(comm)? {
        report.add_peers(&figures);
    }
    report.over_ranks(comm)
}

fn stopped(stages: &StagesConfig) -> DataError {
    match &stages.state {
        Some(state) => DataError::PipelineInterrupted {
            state: state.clone(),
        },
        None => DataError::Stopped { job: "measuring" },
    }
}

/// Waits for the simulated compute time.
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

fn report(pipeline: &PreparedPipeline, meters: &LoaderMeters) -> BenchReport {
    let (stream, options) = (pipeline.plan(), pipeline.options());
    let feed = &meters.feed;
    let randomness = stream.randomness();
    BenchReport {
        examples: meters.fresh_examples + meters.echoed_examples,
        read_bytes: feed.read_bytes,
        used_bytes: feed.used_bytes,
        read_s: feed.read_s,
        decode_s: feed.decode_s,
        mean_queue_depth: feed.mean_queue_depth,
        peak_rss_bytes: peak_rss_bytes(),
        cpu_s: cpu_seconds(),
        rl: Some(randomness.rl),
        rl_exact: stream.rl_exact(0),
        memory_bytes: options.memory_bytes,
        resident_bytes: meters.resident_bytes,
        exif_pictures: meters.counted(DecodeImages::EXIF_PICTURES),
        skipped_records: meters.skipped_examples,
        replaced_records: meters.replaced_examples,
        backend_bytes: feed.read_bytes,
        access: options.access.to_string(),
        order: stream.order().to_string(),
        verdict: meters.verdict().to_string(),
        fresh_examples: meters.fresh_examples,
        echoed_examples: meters.echoed_examples,
        batch_bytes: meters.batch_bytes,
        padded_fraction: meters.padded_fraction(),
        stages: meters.stages.clone(),
        ..BenchReport::default()
    }
}
