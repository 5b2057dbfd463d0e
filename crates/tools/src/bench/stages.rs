//! Measuring a pipeline: decode, augment, echo, buckets and batches behind the feed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pelton_comm::Comm;
use pelton_data::{
    DataError, OpenedData, check_limit_on, check_some_left, record_lengths, units_of,
};
use pelton_feed::{
    AugmentImages, DecodeImages, EchoPoint, Exif, LABEL, Loader, LoaderMeters, LoaderOptions,
    Stages, TakeMember, Tokenise,
};
use pelton_fetch::Cursor;
use pelton_format::{Contents, Dataset};
use pelton_image::Layout;
use pelton_plan::{Batching, Catalog, Part, Place, Plan, PlanSpec, Selection, StepBatch};
use pelton_run::{Event, Interrupt, MetricsEndpoint, Observer, cpu_seconds, peak_rss_bytes};
use pelton_text::{Ends, Vocabulary};

use super::config::{BenchConfig, StagesConfig};
use super::kept_classes;
use super::peers::Peers;
use super::progress::Progress;
use super::prometheus::prometheus_text;
use super::report::BenchReport;
use crate::pipeline::{DecodeSetting, EchoSetting, PipelineConfig};
use crate::vocabulary;

/// Examples of a batch where nothing is said.
pub(super) const DEFAULT_BATCH: u64 = 64;
/// Time between two looks at the counters for whoever asks for them.
const SHOW_EVERY: Duration = Duration::from_millis(500);

/// A pipeline ready to run.
pub(super) struct Prepared {
    stream: Arc<Plan>,
    stages: Stages,
    options: LoaderOptions,
    /// Examples that the plan leaves out of an epoch.
    dropped: u64,
}

pub(super) fn prepare(
    config: &BenchConfig,
    stages: &PipelineConfig,
    opened: &OpenedData,
    comm: &Comm,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<Prepared, DataError> {
    let dataset = &opened.dataset;
    if stages.exif == Exif::Apply && !matches!(stages.decode, DecodeSetting::Image(_)) {
        return Err(DataError::Config(format!(
            "`exif` apply does nothing with `decode` {}; give `decode` image, or leave it out",
            stages.decode
        )));
    }
    let vocabulary = match (&stages.decode, stages.vocabulary.as_deref()) {
        (DecodeSetting::Text(tokenizer), file) => Some(Arc::new(vocabulary::of_pipeline(
            dataset,
            &config.data,
            *tokenizer,
            file,
            comm,
            interrupt,
            observer,
        )?)),
        (_, Some(file)) => {
            return Err(DataError::Config(format!(
                "`vocabulary` {} does nothing with `decode` {}; give `decode` words, or leave it out",
                file.display(),
                stages.decode
            )));
        }
        (_, None) => None,
    };
    let ends = Ends {
        begin: false,
        end: true,
    };
    let decoded = Stages::default()
        .planar(stages.planar)
        .collated(stages.collate);
    let decoded = match (&stages.decode, &vocabulary) {
        (DecodeSetting::Text(_), Some(vocabulary)) => {
            decoded.then(Tokenise::by(Arc::clone(vocabulary), ends))
        }
        (DecodeSetting::Image(kind), _) => {
            let decode = DecodeImages::of(kind).expect("it was parsed");
            decoded.then(decode.with_exif(stages.exif))
        }
        (DecodeSetting::Member(extension), _) => decoded.then(TakeMember::of(extension)),
        _ => decoded,
    };
    let stream = stream(
        config,
        stages,
        dataset,
        vocabulary.as_deref(),
        comm,
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
                .map_err(|error| DataError::Config(error.to_string()))?,
        ),
        (augment, _) => augment,
    };
    let stages_of_loader = match augment {
        Some(augment) => decoded.then(AugmentImages::by(augment)),
        None => decoded,
    };
    let options = LoaderOptions {
        threads: config.threads.max(1),
        read_threads: stages.read_threads,
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
        rank: comm.rank() as u32,
        world_size: comm.size() as u32,
        interrupt: Arc::clone(interrupt),
        device: opened.device,
        ..LoaderOptions::with_memory(match config.memory_share {
            Some(share) => (dataset.bytes() as f64 * share) as u64,
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
    stages: &PipelineConfig,
    dataset: &Arc<Dataset>,
    vocabulary: Option<&Vocabulary>,
    comm: &Comm,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<Plan, DataError> {
    let needs_lengths = stages.buckets.is_some() || stages.keep_lengths.is_some();
    let lengths = match (needs_lengths, vocabulary) {
        (true, Some(vocabulary)) => Some(record_lengths(
            dataset,
            &config.data,
            vocabulary.tokenizer(),
            comm,
            interrupt,
            observer,
        )?),
        _ => None,
    };
    // What is not text is as long as its record has bytes, without the end of a line.
    let length_of = |id: u64| match &lengths {
        Some(lengths) => lengths[id as usize],
        None => u32::try_from(dataset.locate(id).length).unwrap_or(u32::MAX),
    };
    let of_classes = match stages.keep_classes.as_slice() {
        [] => None,
        names => Some(kept_classes::records_of(
            dataset,
            names,
            stages.bad_examples,
            comm,
            interrupt,
            observer,
        )?),
    };
    let selection = match stages.keep_lengths {
        Some(range) => Some(kept_lengths(dataset, of_classes, |id| {
            range.contains(length_of(id))
        })?),
        None => of_classes,
    };
    let mixture = match &stages.mix {
        Some(weights) => Some(parts(dataset, weights)?),
        None => None,
    };
    let batch = config.batch.unwrap_or(DEFAULT_BATCH);
    let batching = match stages.drop_last {
        true => Batching::DropLast(batch),
        false => Batching::Examples(batch),
    };
    let spec = PlanSpec {
        echo: EchoSetting::of_examples(stages.echo),
        batch_echo: EchoSetting::of_batches(stages.echo),
        buckets: stages.buckets.clone(),
        mixture,
        ..PlanSpec::new(config.order, batching, config.seed)
    };
    let over = Catalog {
        records: dataset.records(),
        selection,
        units: units_of(dataset, config.order),
        length_of: Some(&length_of),
    };
    Ok(Plan::new(&spec, over)?)
}

/// The records whose length is kept, of those that are kept for their class.
fn kept_lengths(
    dataset: &Dataset,
    of_classes: Option<Selection>,
    keeps: impl Fn(u64) -> bool,
) -> Result<Selection, DataError> {
    let of_classes = of_classes.as_ref();
    let kept = Selection::new(dataset.records(), |id| {
        of_classes.is_none_or(|kept| kept.contains(id)) && keeps(id)
    });
    if kept.is_empty() {
        let of_them = match of_classes {
            Some(_) => " of the classes that `keep_classes` keeps",
            None => "",
        };
        return Err(DataError::Config(format!(
            "no record{of_them} has a length that `keep_lengths` keeps; name other lengths"
        )));
    }
    Ok(kept)
}

/// One part for each file.
fn parts(dataset: &Dataset, weights: &[f64]) -> Result<Vec<Part>, DataError> {
    let files = dataset.files();
    if weights.len() != files.len() {
        return Err(DataError::Config(format!(
            "`mix` names {} shares for {} files; give one for each, in the order of the files",
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
fn left_out_of(stream: &Plan) -> u64 {
    if !matches!(stream.batching(), Batching::DropLast(_)) {
        return 0;
    }
    let Some(last) = stream.steps(0).checked_sub(1) else {
        return stream.appearances();
    };
    let used = stream
        .step_len(0, last)
        .map(|of_last| stream.largest_batch() * last + of_last);
    used.map_or(0, |used| stream.appearances().saturating_sub(used))
}

impl Prepared {
    /// Runs the pipeline to the end.
    pub fn run(
        &self,
        config: &BenchConfig,
        stages: &StagesConfig,
        opened: &OpenedData,
        (comm, began): (&Comm, Instant),
        interrupt: &Interrupt,
        observer: Observer<'_>,
    ) -> Result<BenchReport, DataError> {
        let dataset = &opened.dataset;
        let stream = &self.stream;
        let mut options = self.options.clone();
        let mut progress = match &stages.state {
            Some(path) => Some(Progress::open(path, comm)?),
            None => None,
        };
        if let Some(progress) = &mut progress {
            options = progress.resume(dataset, stream, &self.stages, &options)?;
            // Only a state of this very pipeline may cut a log.
            if let Some(log) = &stages.log {
                progress.log_to(log)?;
            }
        }
        let peers = match &config.cache {
            Some(cache) => {
                let followed = (Arc::clone(stream), drawn_before(stream, &options));
                let peers = Peers::load(config, cache, opened, followed, comm, interrupt)?;
                options = peers.loader_options(options);
                Some(peers)
            }
            None => None,
        };
        let read_through = peers.as_ref().map(Peers::dataset);
        let mut loader = Loader::new(
            read_through.unwrap_or_else(|| Arc::clone(dataset)),
            Arc::clone(stream),
            self.stages.clone(),
            &options,
        )?;
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
            if let Some(peers) = &peers {
                peers.received(batch.epoch, loader.drawn());
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
                // Of a rank that waited for one that was interrupted.
                noted.map_err(|error| match interrupt.load(Ordering::Relaxed) {
                    true => stopped(stages),
                    false => error,
                })?;
            }
            if interrupt.load(Ordering::Relaxed) {
                // Ranks are at different steps now; they go on from where they last saved.
                if let Some(progress) = progress.as_mut().filter(|_| comm.size() == 1) {
                    progress.save(&loader.state())?;
                }
                return Err(stopped(stages));
            }
            observer(Event::Progress {
                what: "bench",
                done: loader.place().epoch * epoch_steps + loader.place().next,
                total,
            });
        }
        if let Some(progress) = &mut progress {
            progress.save(&loader.state())?;
        }
        let wall_s = began.elapsed().as_secs_f64();
        let meters = loader.meters();
        let limit = stages.pipeline.bad_examples.limit();
        let problem = |id| problem_of(&meters, id);
        check_limit_on(comm, limit, &loader.bad_ids(), problem)?;
        // What a run has left to do when it goes on may well be one bad record.
        if !progress.as_ref().is_some_and(Progress::goes_on) {
            check_some_left(comm, meters.fresh_examples, &loader.bad_ids(), || {
                let first = meters.bad_examples.iter().min_by_key(|bad| bad.id);
                first.map(|bad| (bad.id, bad.problem.clone()))
            })?;
        }
        let realised = stream.realised_mixture(0);
        let mut report = report(config, &options, stream, &meters);
        report.exif = stages.pipeline.exif;
        report.checksum = checksum;
        report.open_s = open_s;
        report.first_batch_s = first_batch_s.unwrap_or(0.0);
        report.wall_s = wall_s;
        report.dropped = self.dropped * config.epochs;
        report.mixture = realised;
        drop(loader);
        if let Some(peers) = peers {
            peers.finish(comm, &mut report)?;
        }
        Ok(report)
    }
}

/// The epoch, and the position of its order, from which on a loader that begins with these options draws examples that
/// were not drawn before; some that were may still wait in a bucket.
fn drawn_before(plan: &Plan, options: &LoaderOptions) -> (u64, u64) {
    let Cursor { epoch, next } = options.start;
    if next == 0 {
        return (epoch, 0);
    }
    let mut batch = StepBatch::default();
    let place = Place { epoch, step: next };
    plan.walk(place, options.hint.as_ref()).next(&mut batch);
    let newest = batch.positions.iter().max();
    let drawn = newest.map_or(0, |newest| newest + 1);
    (batch.epoch, drawn.saturating_sub(batch.len() as u64))
}

/// What is known of a bad record.
fn problem_of(meters: &LoaderMeters, id: u64) -> String {
    let known = meters.bad_examples.iter().find(|bad| bad.id == id);
    known.map_or_else(|| format!("record {id}"), |bad| bad.problem.clone())
}

fn stopped(stages: &StagesConfig) -> DataError {
    match &stages.state {
        Some(state) => DataError::PipelineInterrupted {
            state: state.clone(),
        },
        None => DataError::Stopped { job: "measuring" },
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
    stream: &Plan,
    meters: &LoaderMeters,
) -> BenchReport {
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
        order: config.order.to_string(),
        verdict: meters.verdict().to_string(),
        fresh_examples: meters.fresh_examples,
        echoed_examples: meters.echoed_examples,
        batch_bytes: meters.batch_bytes,
        padded_fraction: meters.padded_fraction(),
        stages: meters.stages.clone(),
        ..BenchReport::default()
    }
}
