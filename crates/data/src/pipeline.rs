//! From a configuration and data to loaders: the plan, the stages and the options that all jobs on batches share.
//!
//! A job prepares its pipeline once, takes a loader from the beginning or from a saved state, and evaluates with the
//! same pipeline over other data ([`PreparedPipeline::evaluation`]). Each rank takes its share of every batch; all
//! ranks call everything here.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use pelton_batch::Batch;
use pelton_comm::{Alike, Comm};
use pelton_feed::{
    AugmentImages, BadExamples, DecodeFields, DecodeImages, DecodeSetting, Exif, FeedError,
    FieldKind, LengthSetting, LengthsOf, Loader, LoaderOptions, LoaderState, PipelineConfig,
    Samples, Stage, Stages, TakeMember, Tokenise,
};
use pelton_fetch::Access;
use pelton_format::{ContentSum, Contents, DataFile, Dataset, Field, Row};
use pelton_image::{Format, Layout};
use pelton_plan::{Batching, Last, Order, Place, Plan, PlanSpec, Sampler, Selection, StepBatch};
use pelton_run::{Event, Interrupt, Observer, RunContext};
use pelton_storage::memory_limit;
use pelton_text::{Ends, Vocabulary};

use crate::bad_records::{check_limit_on, check_some_left};
use crate::content::{SavedContent, check_content, summed};
use crate::error::DataError;
use crate::open::{OpenedData, check_threads, fetch_rows};
use crate::peers::{Filling, PeerConfig, PeerFigures, Peers};
use crate::pipeline_plan::pipeline_plan;
use crate::record_classes::check_classes;
use crate::texts::text_field;
use crate::vocabulary_cache::{of_tokens, pipeline_vocabulary};

/// Default number of examples in a batch.
const DEFAULT_BATCH: u64 = 64;

/// Settings of a job's pipeline other than the processing of records.
#[derive(Clone, Debug)]
pub struct PipelineTerms {
    /// Order of the epochs; opportunistic loads of peers' memory replace it.
    pub order: Order,
    /// The records in use, from a [`HeldOut`](crate::HeldOut); all if absent.
    pub among: Option<Selection>,
    /// The program's choice of records for an epoch; if absent, `sample` of the configuration decides.
    pub sampler: Option<Sampler>,
    /// The program's length of each record, for buckets; if absent, `lengths` of the configuration decides.
    pub lengths: Option<Arc<[u32]>>,
    /// Examples in a batch, over all ranks; by default 64, or fewer such that three batches fit in a load of peers'
    /// memory.
    pub batch: Option<u64>,
    /// Whether the label of an example is the index of its class, as nets need.
    pub by_class: bool,
    /// The program's vocabulary; if absent, that of the configuration.
    pub vocabulary: Option<Arc<Vocabulary>>,
    /// The seed.
    pub seed: u64,
    /// Epochs; `None` never ends.
    pub epochs: Option<u64>,
    /// Bytes that each rank's loader may hold.
    pub memory_bytes: u64,
    /// Threads that decode and augment.
    pub threads: usize,
    /// How records are read.
    pub access: Access,
    /// If present, the data is read through the memory of all ranks.
    pub cache: Option<PeerConfig>,
    /// How many ranks its loaders will have, if not those that prepare it.
    pub ranks: Option<usize>,
}

/// A pipeline over data; it creates loaders. Clones share the plan and the data.
#[derive(Clone)]
pub struct PreparedPipeline {
    config: PipelineConfig,
    terms: PipelineTerms,
    opened: OpenedData,
    vocabulary: Option<Arc<Vocabulary>>,
    plan: Arc<Plan>,
    stages: Stages,
    options: LoaderOptions,
}

impl PreparedPipeline {
    /// The pipeline that `config` describes over the data; counts words and lengths first if it needs them.
    ///
    /// Errors: settings that contradict one another or the data; an invalid vocabulary, order or policy; an
    /// interruption.
    pub fn new(
        config: &PipelineConfig,
        terms: &PipelineTerms,
        opened: &OpenedData,
        context: &mut RunContext<'_>,
    ) -> Result<PreparedPipeline, DataError> {
        check_threads("`threads`", terms.threads)?;
        if let Some(threads) = config.read_threads {
            check_threads("`read_threads`", threads)?;
        }
        let decode = &config.decode;
        if config.exif == Exif::Apply && !decode.makes_pictures() {
            return Err(DataError::Config(format!(
                "`exif` apply does nothing with `decode` {decode}; give `decode` image, or leave it out",
            )));
        }
        if let Some(most) = config.max_megapixels {
            if !decode.makes_pictures() {
                return Err(DataError::Config(format!(
                    "`max_megapixels` does nothing with `decode` {decode}; give `decode` image, or leave it out",
                )));
            }
            if most == 0 {
                return Err(DataError::Config(
                    "`max_megapixels` 0 leaves no picture; give 1 or more".into(),
                ));
            }
        }
        if config.planar && matches!(decode, DecodeSetting::Text(_) | DecodeSetting::Pairs(_)) {
            return Err(DataError::Config(format!(
                "`planar` applies to pictures and does nothing with `decode` {decode}; leave it out",
            )));
        }
        if opened.of_pairs && !matches!(decode, DecodeSetting::Pairs(_)) {
            return Err(DataError::Config(format!(
                "`pair` makes pairs of sentences, which `decode` {decode} does not decode; give `decode` pairs",
            )));
        }
        let vocabulary = match (decode, config.vocabulary.as_deref()) {
            (DecodeSetting::Text(tokenizer) | DecodeSetting::Pairs(tokenizer), file) => {
                Some(match &terms.vocabulary {
                    Some(given) => {
                        of_tokens(Arc::clone(given), *tokenizer, "the given vocabulary")?
                    }
                    None => pipeline_vocabulary(opened, *tokenizer, file, context)?.into(),
                })
            }
            (_, None) if terms.vocabulary.is_some() => {
                return Err(DataError::Config(format!(
                    "a vocabulary does nothing with `decode` {decode}; give `decode` words, or leave it out",
                )));
            }
            (_, Some(file)) => {
                return Err(DataError::Config(format!(
                    "`vocabulary` {} does nothing with `decode` {decode}; give `decode` words, or leave it out",
                    file.display(),
                )));
            }
            (_, None) => None,
        };
        PreparedPipeline::with_vocabulary(config, terms, opened, vocabulary, context)
    }

    fn with_vocabulary(
        config: &PipelineConfig,
        terms: &PipelineTerms,
        opened: &OpenedData,
        vocabulary: Option<Arc<Vocabulary>>,
        context: &mut RunContext<'_>,
    ) -> Result<PreparedPipeline, DataError> {
        if let (BadExamples::Fail, Some(damaged)) =
            (config.bad_examples, opened.dataset.first_bad())
        {
            fetch_rows(&opened.dataset, &[damaged])?;
        }
        // With `keep_classes`, records of other classes are skipped one by one.
        if config.bad_examples == BadExamples::Fail && config.keep_classes.is_empty() {
            check_classes(&opened.dataset, context)?;
        }
        let stages = stages_of(config, opened, vocabulary.as_ref())?;
        let stages = stages.with_lengths_of(match (&config.lengths, &terms.lengths) {
            (Some(LengthSetting::Field(name)), _) => LengthsOf::Field(name.as_str().into()),
            (None, None) => LengthsOf::Samples,
            _ => LengthsOf::Other,
        });
        let mut terms = terms.clone();
        let mut batch = DEFAULT_BATCH;
        if let Some(peers) = &terms.cache {
            let (order, seed) = (terms.order, terms.seed);
            let ranks = terms.ranks.unwrap_or(context.comm.size());
            let (order, most) = Peers::order(peers, order, seed, &opened.dataset, ranks)?;
            terms.order = order;
            batch = most.min(DEFAULT_BATCH);
        }
        let tokenizer = vocabulary.as_ref().map(|vocabulary| vocabulary.tokenizer());
        let spec = PlanSpec {
            sampler: terms.sampler.clone(),
            ..PlanSpec::new(terms.order, terms.batch.unwrap_or(batch), terms.seed)
        };
        let among = terms.among.as_ref();
        let lengths = terms.lengths.as_ref();
        let plan = pipeline_plan(config, spec, among, opened, tokenizer, lengths, context)?;
        let mut own = Alike::default();
        if let Some(vocabulary) = &vocabulary {
            own = own.with_digest(
                "a vocabulary with the fingerprint",
                vocabulary.fingerprint(),
            );
        }
        // It also covers lengths that each machine counted.
        let own = own.with_digest("a plan with the fingerprint", plan.fingerprint());
        context.comm.agree(&own)?;
        if let Some(limit) = memory_limit().filter(|&limit| terms.memory_bytes > limit) {
            (context.observer)(Event::Note(&format!(
                "`memory` {} MB is more than the {} MB that this process may use before the system kills it; give less",
                terms.memory_bytes / 1_000_000,
                limit / 1_000_000
            )));
        }
        let options = LoaderOptions {
            threads: terms.threads.max(1),
            read_threads: config
                .read_threads
                .unwrap_or_else(|| read_threads(&opened.dataset)),
            access: terms.access,
            bad_examples: config.bad_examples,
            by_class: terms.by_class,
            echo_point: config.echo.map(|echo| echo.point()).unwrap_or_default(),
            auto_echo: config.echo.and_then(|echo| echo.auto()),
            end_epoch: terms.epochs,
            rank: context.comm.rank() as u32,
            world_size: context.comm.size() as u32,
            interrupt: Arc::clone(context.interrupt),
            device: opened.device.clone(),
            ..LoaderOptions::with_memory(terms.memory_bytes)
        };
        Ok(PreparedPipeline {
            config: config.clone(),
            terms,
            opened: opened.clone(),
            vocabulary,
            plan: Arc::new(plan),
            stages,
            options,
        })
    }

    /// The same decoding over other data, or some of its records, for evaluation: every one once, in the order of the files, in
    /// batches of one shape or padded to their longest; with the same vocabulary, without repeats or random
    /// augmentation ([`pelton_image::Pipeline::evaluation`]), and read in place.
    ///
    /// Each epoch is one evaluation; epochs never end, so that one loader serves all evaluations.
    pub fn evaluation(
        &self,
        opened: &OpenedData,
        among: Option<Selection>,
        context: &mut RunContext<'_>,
    ) -> Result<PreparedPipeline, DataError> {
        self.measuring(opened, among, context)
    }

    /// The same over the held-out records of this pipeline's data.
    pub fn validation(
        &self,
        held_out: &Selection,
        context: &mut RunContext<'_>,
    ) -> Result<PreparedPipeline, DataError> {
        self.measuring(&self.opened, Some(held_out.clone()), context)
    }

    /// The same over the records of this pipeline itself.
    pub fn without_chance(
        &self,
        context: &mut RunContext<'_>,
    ) -> Result<PreparedPipeline, DataError> {
        self.measuring(&self.opened, self.terms.among.clone(), context)
    }

    fn measuring(
        &self,
        opened: &OpenedData,
        among: Option<Selection>,
        context: &mut RunContext<'_>,
    ) -> Result<PreparedPipeline, DataError> {
        let config = self.config.evaluation();
        let terms = PipelineTerms {
            order: Order::Sequential,
            among,
            sampler: None,
            lengths: None,
            epochs: None,
            cache: None,
            ..self.terms.clone()
        };
        let vocabulary = self.vocabulary.clone();
        PreparedPipeline::with_vocabulary(&config, &terms, opened, vocabulary, context)
    }

    /// With another budget for each loader, for jobs that divide theirs among several.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> PreparedPipeline {
        self.terms.memory_bytes = bytes;
        self.options.memory_bytes = bytes;
        self
    }

    /// Makes the ranks' shares of a batch independent of which rank holds the records in memory, unless the
    /// configuration sets `near`; returns whether shares follow the holders. A rank may hold records of few classes.
    pub fn deal_anywhere(&mut self) -> bool {
        let near = self.terms.cache.as_mut().map(|cache| &mut cache.near);
        near.is_some_and(|near| *near.get_or_insert(false))
    }

    /// The same, read without peers' memory.
    #[must_use]
    pub fn without_peers(mut self) -> PreparedPipeline {
        self.terms.cache = None;
        self
    }

    /// With another flag that ends its loaders, and the filling of peers' memory.
    #[must_use]
    pub fn with_interrupt(mut self, interrupt: &Interrupt) -> PreparedPipeline {
        self.options.interrupt = Arc::clone(interrupt);
        self
    }

    /// With its stages changed, as by [`Stages::inserted`] and [`Stages::kept`].
    #[must_use]
    pub fn with_stages(mut self, change: impl FnOnce(Stages) -> Stages) -> PreparedPipeline {
        self.stages = change(self.stages);
        self
    }

    /// With the share of rank `rank` of `world_size` in every batch, for ranks without communication.
    #[must_use]
    pub fn with_share(mut self, rank: u32, world_size: u32) -> PreparedPipeline {
        self.options.rank = rank;
        self.options.world_size = world_size;
        self
    }

    /// With one worker's part of this rank's steps ([`LoaderOptions::part`]), up to an epoch.
    #[must_use]
    pub fn with_part(mut self, part: (u32, u32), end_epoch: u64) -> PreparedPipeline {
        self.options.part = part;
        self.options.end_epoch = Some(end_epoch);
        self
    }

    /// The records.
    pub fn dataset(&self) -> &Dataset {
        &self.opened.dataset
    }

    /// The plan: which examples every step uses.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Identifies the data.
    pub fn fingerprint(&self) -> u64 {
        self.opened.dataset.fingerprint()
    }

    /// Refuses epochs without a batch, which a job cannot use.
    pub fn check_has_batches(&self) -> Result<(), DataError> {
        let (Batching::Examples(batch), Last::Drop) = (self.plan.batching(), self.plan.last())
        else {
            return Ok(());
        };
        match self.plan.steps(0) {
            0 => Err(DataError::Config(format!(
                "`last` drop would drop everything: {} examples do not fill a batch of {batch}; give a smaller `batch`, or `last` even",
                self.plan.appearances()
            ))),
            _ => Ok(()),
        }
    }

    /// The stages that process records.
    pub fn stages(&self) -> &Stages {
        &self.stages
    }

    /// Names of batch fields with decoded pictures, in addition to those named image… or mask….
    pub fn pictures(&self) -> Vec<String> {
        let DecodeSetting::Fields(fields) = &self.config.decode else {
            return Vec::new();
        };
        let pictures = fields
            .iter()
            .filter(|field| field.kind == FieldKind::Picture);
        pictures.map(|field| field.name.clone()).collect()
    }

    /// How loaders run.
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// The vocabulary that text is decoded with.
    pub fn vocabulary(&self) -> Option<&Arc<Vocabulary>> {
        self.vocabulary.as_ref()
    }

    /// Samples by index, as loaders make them, read without peers' memory.
    pub fn samples(&self) -> Result<Samples, DataError> {
        let dataset = Arc::clone(&self.opened.dataset);
        let (plan, stages) = (Arc::clone(&self.plan), self.stages.clone());
        Ok(Samples::new(dataset, plan, stages, &self.options)?)
    }

    /// The first batch of this rank, read without peers' memory; `None` if there are no records.
    pub fn first_batch(&self) -> Result<Option<Batch>, DataError> {
        let dataset = Arc::clone(&self.opened.dataset);
        let (plan, stages) = (Arc::clone(&self.plan), self.stages.clone());
        let mut loader = Loader::new(dataset, plan, stages, &self.options)?;
        Ok(loader.next().transpose()?)
    }

    /// A loader from the beginning, or from a state that one of this pipeline saved. All ranks call it.
    ///
    /// Errors: a state of other data or another pipeline; a budget that is too small.
    pub fn loader(
        &self,
        from: Option<&LoaderState>,
        comm: &Comm,
    ) -> Result<PipelineLoader, DataError> {
        let options = match from {
            Some(state) => self.resumed(state)?,
            None => self.options.clone(),
        };
        self.loader_with(options, comm)
    }

    /// Refuses a state of other data or of another pipeline; reads the data if files have other times.
    pub fn check_state(
        &self,
        state: &LoaderState,
        interrupt: &Interrupt,
        observer: Observer<'_>,
    ) -> Result<(), DataError> {
        let place = self.resumed(state)?.start;
        let (files, first, so_far) = state.seen();
        let saved = SavedContent {
            files,
            first,
            so_far,
            place,
        };
        check_content(&self.opened.dataset, &self.plan, saved, interrupt, observer)
    }

    /// The state before an epoch.
    pub fn state_before(&self, epoch: u64) -> LoaderState {
        let dataset = &self.opened.dataset;
        let state = LoaderState::beginning(dataset, &self.plan, &self.stages, epoch);
        state.having_seen(dataset.files_state(), self.options.seen.first(), None)
    }

    fn resumed(&self, state: &LoaderState) -> Result<LoaderOptions, DataError> {
        let dataset = &self.opened.dataset;
        let mut options = state.resume(dataset, &self.plan, &self.stages, &self.options)?;
        let (_, first, so_far) = state.seen();
        let seen = &mut options.seen;
        first.map_or(Ok(()), |first| seen.check(first, dataset))?;
        // The sum is over all ranks: rank 0 keeps it, and the others add to it.
        seen.so_far = so_far.map(|so_far| match options.rank {
            0 => so_far,
            _ => ContentSum::default(),
        });
        Ok(options)
    }

    /// A loader from the beginning of an epoch. All ranks call it.
    ///
    /// Errors: a budget that is too small.
    pub fn loader_at(&self, epoch: u64, comm: &Comm) -> Result<PipelineLoader, DataError> {
        let start = Place { epoch, step: 0 };
        let options = LoaderOptions {
            start,
            ..self.options.clone()
        };
        self.loader_with(options, comm)
    }

    fn loader_with(
        &self,
        mut options: LoaderOptions,
        comm: &Comm,
    ) -> Result<PipelineLoader, DataError> {
        let Place { epoch, step } = options.start;
        let own = Alike::default().with("the next epoch", epoch);
        comm.agree(&own.with("the next step", step))?;
        let mut dataset = Arc::clone(&self.opened.dataset);
        let mut peers = None;
        if let Some(cache) = &self.terms.cache {
            let filling = Filling {
                plan: Arc::clone(&self.plan),
                start: drawn_before(&self.plan, &options),
                end_epoch: options.end_epoch,
                stragglers: true,
            };
            let loaded = Peers::load(cache, &dataset, filling, comm, &self.options.interrupt)?;
            options = loaded.loader_options(options);
            dataset = loaded.dataset();
            peers = Some(loaded);
        }
        let (plan, stages) = (Arc::clone(&self.plan), self.stages.clone());
        Ok(PipelineLoader {
            loader: Loader::new(dataset, plan, stages, &options)?,
            peers,
            limit: options.bad_examples.limit(),
        })
    }
}

/// A [`Loader`], with the memory of peers that it reads through.
pub struct PipelineLoader {
    loader: Loader,
    peers: Option<Peers>,
    /// Most records that may be bad.
    limit: Option<u64>,
}

impl PipelineLoader {
    /// Refuses more bad records over all ranks than the policy allows, and data with only bad records; `went_on` says
    /// that the loader started from a state, when all remaining records may be bad. All ranks call it.
    pub fn check_bad(&self, comm: &Comm, went_on: bool) -> Result<(), DataError> {
        let loader = &self.loader;
        let (meters, bad) = (loader.meters(), loader.bad_ids());
        let problem = |id: u64| {
            let known = meters.bad_examples.iter().find(|bad| bad.id == id);
            known.map_or_else(|| format!("record {id}"), |bad| bad.problem.clone())
        };
        check_limit_on(comm, self.limit, &bad, problem)?;
        if went_on {
            return Ok(());
        }
        check_some_left(comm, meters.fresh_examples, &bad, || {
            let first = meters.bad_examples.iter().min_by_key(|bad| bad.id);
            first.map(|bad| (bad.id, bad.problem.clone()))
        })
    }

    /// Compares the content sum of the epoch that just ended, over all ranks, with that of the first epoch. All ranks
    /// call it.
    ///
    /// Errors: different contents of the same records.
    pub fn check_epoch(&mut self, comm: &Comm) -> Result<(), DataError> {
        let whole = self.loader.take_whole();
        match summed(whole, comm)? {
            Some(whole) if comm.size() > 1 => {
                let loader = &self.loader;
                Ok(loader.seen().check(whole, loader.dataset())?)
            }
            _ => Ok(()),
        }
    }

    /// The state, with the content sums of all ranks. All ranks call it.
    pub fn state_of_all(&self, comm: &Comm) -> Result<LoaderState, DataError> {
        let state = self.loader.state();
        let (files, first, _) = state.seen();
        let so_far = summed(self.loader.content(), comm)?;
        Ok(state.having_seen(files, first, so_far))
    }

    /// Ends the loader and frees peers' memory; returns the figures of that memory, if there was any. All ranks
    /// call it.
    pub fn finish(self, comm: &Comm) -> Result<Option<PeerFigures>, DataError> {
        drop(self.loader);
        self.peers.map(|peers| peers.finish(comm)).transpose()
    }
}

impl std::ops::Deref for PipelineLoader {
    type Target = Loader;

    fn deref(&self) -> &Loader {
        &self.loader
    }
}

impl PipelineLoader {
    /// The next batch, if it is there within `patience`.
    pub fn poll_next(&mut self, patience: Duration) -> Poll<Option<Result<Batch, FeedError>>> {
        self.loader.poll_next(patience).map(|next| self.seen(next))
    }

    fn seen(&self, next: Option<Result<Batch, FeedError>>) -> Option<Result<Batch, FeedError>> {
        if let (Some(Ok(batch)), Some(peers)) = (&next, &self.peers) {
            peers.received(batch.epoch, self.loader.drawn());
        }
        next
    }
}

impl Iterator for PipelineLoader {
    type Item = Result<Batch, FeedError>;

    fn next(&mut self) -> Option<Result<Batch, FeedError>> {
        let next = self.loader.next();
        self.seen(next)
    }
}

/// The stages from a record to a sample of a batch.
fn stages_of(
    config: &PipelineConfig,
    opened: &OpenedData,
    vocabulary: Option<&Arc<Vocabulary>>,
) -> Result<Stages, DataError> {
    let decode = &config.decode;
    let ends = Ends {
        begin: false,
        end: true,
    };
    let stages = { opened.first_stages.clone() }
        .planar(config.planar)
        .collated(config.collate.clone());
    let tokenise = |vocabulary: &Arc<Vocabulary>| {
        let tokenise = Tokenise::by(Arc::clone(vocabulary), ends);
        match text_field(&opened.dataset) {
            Some(field) => tokenise.in_field(&field),
            None => tokenise,
        }
    };
    let stages = match (decode, vocabulary) {
        (DecodeSetting::Text(_), Some(vocabulary)) => stages.then(tokenise(vocabulary)),
        (DecodeSetting::Pairs(_), Some(vocabulary)) => stages.then(tokenise(vocabulary).pairs()),
        (DecodeSetting::Image(kind), _) => {
            let decode = DecodeImages::from_kind(kind).ok_or_else(|| {
                DataError::Config(format!("`decode` {kind}: is not a kind of picture"))
            })?;
            let decode = match picture_field(&opened.dataset, &decode) {
                Some(field) if !kind.contains(':') => decode.in_field(&field),
                _ => decode,
            };
            let decode = decode.with_most_pixels(config.most_pixels());
            stages.then(decode.with_exif(config.exif))
        }
        (DecodeSetting::Member(extension), _) => stages.then(TakeMember::from_extension(extension)),
        (DecodeSetting::Fields(fields), _) => {
            let decode = DecodeFields::new(fields).with_most_pixels(config.most_pixels());
            stages.then(decode.with_exif(config.exif))
        }
        _ => stages,
    };
    let Some(augment) = config.augment.clone() else {
        return Ok(stages);
    };
    let augment = augment.with_layout(if config.planar {
        Layout::Chw
    } else {
        Layout::Hwc
    });
    let wrong = |error: pelton_image::ImageError| DataError::Config(error.to_string());
    // Planar pictures of this kind need their axes swapped.
    if let Contents::Pixels { channels: 1, .. } = opened.dataset.contents() {
        let augment = augment.with_channels(1).map_err(wrong)?;
        return Ok(stages.then(AugmentImages::by(augment)));
    }
    let fields = stages.spec(&opened.dataset).map_err(FeedError::Stages)?;
    let augment = AugmentImages::suited(augment, &fields).map_err(wrong)?;
    Ok(stages.then(augment))
}

/// Default number of reading threads: threads reading from a server wait for its answers, not for each other.
fn read_threads(dataset: &Dataset) -> usize {
    if dataset.files().iter().any(DataFile::is_remote) {
        8
    } else {
        2
    }
}

/// The one field of the first record that looks like a picture, if nothing else decides.
fn picture_field(dataset: &Dataset, decode: &DecodeImages) -> Option<String> {
    if dataset.contents() != Contents::Fields || decode.spec(dataset.fields()).is_ok() {
        return None;
    }
    let rows = fetch_rows(dataset, &[0]).ok()?;
    let Row::Bytes(row) = rows.row(0) else {
        return None;
    };
    let all = dataset.record_fields().split(row).ok()?;
    let is_picture =
        |field: &&Field<'_>| field.dtype.is_none() && Format::detect(field.bytes).is_some();
    let mut pictures = all.iter().filter(is_picture);
    let first = pictures.next()?;
    pictures.next().is_none().then(|| first.name.to_owned())
}

/// The epoch, and the position in its order, from which a loader with these options draws new examples; earlier ones
/// may still wait in a bucket.
fn drawn_before(plan: &Plan, options: &LoaderOptions) -> (u64, u64) {
    if options.start.step == 0 {
        return (options.start.epoch, 0);
    }
    let mut batch = StepBatch::default();
    plan.walk(options.start, options.hint.as_ref())
        .next(&mut batch);
    let newest = batch.positions.iter().max();
    let drawn = newest.map_or(0, |newest| newest + 1);
    (batch.epoch, drawn.saturating_sub(batch.len() as u64))
}

#[cfg(test)]
mod tests;
