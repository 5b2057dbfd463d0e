//! The loop: batches from the feed, steps, evaluation after each epoch, checkpoints.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pelton_comm::{Alike, Comm, Reduction};
use pelton_data::DataError;
use pelton_feed::FeedError;
use pelton_key::{Digest, Stage, key};
use pelton_nn::{Counts, HeadFigures, Input, LossOptions, NnError, StepOptions, Trainer, Update};
use pelton_run::{Event, RunContext, RunFolder, Set, peak_rss_bytes};
use pelton_softmax::HeadError;
use rayon::ThreadPool;

use super::batch::{Ready, Targets};
use super::class_means::{ClassMeans, begin_at_means};
use super::config::FitConfig;
use super::progress::{NetEpoch, Progress};
use super::saving;
use super::sharing;
use super::source::{BatchSource, Prepared};
use super::summary::{NetSummary, TestSample};
use super::tested::Tested;
use crate::error::TrainError;

/// The input of the training loop.
pub(crate) struct Fit<'a> {
    pub(crate) config: &'a FitConfig,
    pub(crate) trainer: Box<dyn Trainer>,
    pub(crate) training: Prepared,
    pub(crate) validation: Option<Prepared>,
    pub(crate) test: Option<Prepared>,
    pub(crate) targets: Targets,
    /// Present if class vectors of a head start at means.
    pub(crate) begin: Option<ClassMeans>,
    /// Weight of an example in the loss, by its class.
    pub(crate) class_weights: Option<Vec<f32>>,
    /// Training examples of each class, to report the test by.
    pub(crate) class_sizes: Option<Vec<u64>>,
    /// Whether an example may have several labels.
    pub(crate) several: bool,
    /// Records of the test data if `test` is a random sample of them.
    pub(crate) sampled_of: Option<u64>,
    /// Steps after which a head renews within an epoch too; otherwise only between epochs.
    pub(crate) rebuild: Option<u64>,
    /// The kind of a head over many classes.
    pub(crate) head: Option<String>,
    /// The file of the folder that describes the data: part of each checkpoint and of the model.
    pub(crate) about: &'static str,
    /// Whether to show loss as perplexity, without accuracy.
    pub(crate) language: bool,
    /// When the job began.
    pub(crate) began: Instant,
}

/// From this many classes, finding the nearest ones takes long.
const MANY_CLASSES: u64 = 200_000;

/// Adds the path of the checkpoint to an error.
fn of_checkpoint(folder: &Path, error: TrainError) -> TrainError {
    match error {
        TrainError::Data(DataError::Config(_) | DataError::Feed(FeedError::State(_))) => {
            let file = folder.join(Set::Checkpoint.file());
            TrainError::config(format!("{}: {error}", file.display()))
        }
        other => other,
    }
}

fn weights_digest(weights: &[f32]) -> u64 {
    let words = weights.iter().map(|weight| u64::from(weight.to_bits()));
    Digest::new("deep run").words(words).value()
}

/// Trains to the end, from the folder's checkpoint if it has one. All ranks call it; rank 0 writes.
pub(crate) fn fit(
    mut of: Fit<'_>,
    folder: &mut RunFolder,
    context: &mut RunContext<'_>,
) -> Result<NetSummary, TrainError> {
    let comm = context.comm;
    let prepare_s = of.began.elapsed().as_secs_f64();
    // Only rows of a head are in files of all ranks.
    let is_split = of.head.is_some() && comm.size() > 1;
    let sees = !is_split || sharing::sees(folder, comm)?;
    let progress = if context.folder.resume {
        saving::resume((folder.path(), sees), of.trainer.as_mut(), comm)?
    } else {
        None
    };
    if context.folder.resume && progress.is_none() {
        (context.observer)(Event::Note("no checkpoint exists yet: starting again"));
    }
    let validation = of.validation.as_ref().map(Prepared::fingerprint);
    let class_weights = of.class_weights.as_deref().map(weights_digest);
    let place = |error| of_checkpoint(folder.path(), error);
    let mut progress = match progress {
        Some(progress) => {
            let same = [
                ("validation", progress.validation == validation),
                ("class_weights", progress.class_weights == class_weights),
            ];
            if let Some((name, _)) = same.iter().find(|(_, is_same)| !is_same) {
                return Err(place(TrainError::config(format!(
                    "belongs to a run with other data for `{name}`; restore it, or train again with `overwrite`"
                ))));
            }
            progress
        }
        None => Progress {
            validation,
            class_weights,
            ..Progress::default()
        },
    };
    let pool = thread_pool(of.config.threads, comm)?;
    let went_on = progress.feed.is_some();
    if let Some(state) = &progress.feed {
        of.training.check(state, context).map_err(place)?;
    }
    let mut source = of
        .training
        .source(progress.feed.as_deref(), of.targets, comm)
        .map_err(place)?;
    folder.keep_metrics(progress.epochs.len())?;
    if comm.size() > 1 {
        let own = Alike::default()
            .with("the count of finished epochs", progress.epochs.len())
            .with("the count of steps", progress.steps);
        let digest = saving::digest(of.trainer.as_ref())?;
        comm.agree(&own.with_digest("parameters with the fingerprint", digest))?;
    }
    let mut validation = match &of.validation {
        Some(prepared) => Some((prepared.source(None, of.targets, comm)?, prepared.steps(0))),
        None => None,
    };
    let mut run = Run {
        of: &mut of,
        pool: &pool,
        comm,
        sees,
        began: Instant::now(),
        before: Before {
            wall_s: progress.wall_s,
            load_s: progress.load_s,
            head: progress.head,
        },
        saved: Instant::now(),
    };
    if progress.steps == 0
        && let Some(begin) = run.of.begin.take()
    {
        let trainer = run.of.trainer.as_mut();
        begin_at_means(&begin, trainer, run.of.targets, &pool, comm, context)?;
    }
    let ended_early = loop {
        let epoch = progress.epochs.len() as u64;
        if epoch >= run.of.config.epochs {
            break false;
        }
        run.epoch(&mut source, &mut progress, folder, context)?;
        source.check_epoch(comm)?;
        if let Some((validation, steps)) = &mut validation {
            let counts =
                run.evaluate("validation", validation, *steps, None, &progress, context)?;
            progress.epoch.validation(counts);
        }
        progress.epoch.wall_s = run.wall_s();
        let record = std::mem::take(&mut progress.epoch);
        run.tell(&record, context);
        folder.append_metrics(&record)?;
        progress.epochs.push(record);
        let best = run.note_best(&mut progress);
        run.save(&source, &mut progress, best, folder)?;
        if run.is_patient(&progress) {
            break true;
        }
    };
    let meters = source.meters();
    drop(validation);
    // Tests and keeps the best parameters.
    if progress.best.is_some() {
        saving::load_best((folder.path(), sees), run.of.trainer.as_mut(), comm)?;
    }
    // Written before the test, which may fail. A run that ends at once was resumed within an unfinished epoch.
    pool.install(|| run.of.trainer.end_epoch());
    let trainer = run.of.trainer.as_ref();
    saving::save_model((folder, sees), &progress, trainer, run.of.about, comm)?;
    let class_sizes = run.of.class_sizes.take();
    let mut tested = Tested::new(
        class_sizes.as_deref(),
        run.of.several,
        run.of.training.records(),
    );
    let test = match &run.of.test {
        Some(test) => {
            let steps = test.steps(0);
            let mut source = test.source(None, run.of.targets, comm)?;
            // The test measures the last checkpoint.
            progress.feed = None;
            let tested = Some(&mut tested);
            Some(run.evaluate("test", &mut source, steps, tested, &progress, context)?)
        }
        None => None,
    };
    let wall_s = run.wall_s();
    let dropped = run.of.training.dropped();
    let verdict = meters.verdict();
    let before = run.before.head;
    let head = of.trainer.head().map(|head| head.after(before));
    let summary = NetSummary {
        head: head.and(of.head.clone()),
        classes: head.map(|head| head.classes),
        active_fraction: head.map(|head| head.active_fraction()),
        list_recall: head.and_then(|head| head.list_recall()),
        samples_per_s: head.map(|_| progress.rows_per_s()),
        head_s: head.map(|head| head.head_s),
        features_s: head.map(|head| head.features_s),
        communication_s: head.map(|head| head.communication_s),
        modelled_link_bytes_per_s: comm.modelled_bytes_per_s(),
        graph_s: head.map(|head| head.graph_s),
        iterations: head.map(|_| progress.steps),
        prepare_s,
        load_s: progress.load_s,
        overlap_s: (progress.load_s + progress.step_s - wall_s).max(0.0),
        wall_s,
        peak_rss_bytes: peak_rss_bytes(),
        test_accuracy_by_class_size: test.and_then(|_| tested.by_class_size()),
        test_label_ranks: test.and_then(|_| tested.label_ranks()),
        test_sample: of
            .sampled_of
            .zip(test)
            .map(|(records, test)| TestSample::new(records, test)),
        ended_early,
        dropped,
        padded_fraction: meters.padded_fraction(),
        verdict: verdict.to_string(),
        ..NetSummary::new(&progress, test, of.language)
    };
    if let Some(warning) = &summary.warning {
        (context.observer)(Event::Note(warning));
    }
    source.finish(comm, went_on)?;
    super::outcome::leave(of.language, &summary, &meters, &progress, folder)?;
    drop(of);
    pelton_nn::give_back_spare();
    Ok(summary)
}

/// Compute threads of this rank: this number or, if 0, its share of the processors.
pub fn thread_pool(threads: usize, comm: &Comm) -> Result<ThreadPool, TrainError> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = match threads {
        0 => (processors / comm.size()).max(1),
        threads => threads,
    };
    Ok(pelton_storage::thread_pool(threads)?)
}

/// Losses over one epoch of an evaluation pipeline, calling `evaluate` on each batch. All ranks call it.
pub(crate) fn measure(
    mut evaluate: impl FnMut(Option<Input<'_>>) -> Result<Counts, NnError> + Send,
    pool: &ThreadPool,
    source: &mut BatchSource,
    steps: u64,
    context: &mut RunContext<'_>,
) -> Result<Counts, TrainError> {
    let comm = context.comm;
    let mut counts = Counts::default();
    for step in 0..steps {
        let Some(next) = source.next() else { break };
        let ready = match next {
            Err(error) if error.is_interruption() => {
                return Err(TrainError::interrupted_in(&context.folder.out));
            }
            next => next?.ready,
        };
        let input = (ready.rows() > 0).then(|| ready.input());
        counts += pool.install(|| evaluate(input))?;
        let (what, done, total) = ("evaluating", step + 1, steps);
        (context.observer)(Event::Progress { what, done, total });
        if context.interrupt.load(Ordering::Relaxed) && comm.size() == 1 {
            return Err(TrainError::interrupted_in(&context.folder.out));
        }
    }
    if comm.size() == 1 {
        return Ok(counts);
    }
    let mut sums = [counts.loss, counts.rows as f64, counts.correct as f64];
    let summed = comm.all_reduce(&mut sums, Reduction::Sum);
    summed.map_err(pelton_data::DataError::from)?;
    Ok(Counts {
        loss: sums[0],
        rows: sums[1] as u64,
        correct: sums[2] as u64,
    })
}

struct Run<'r, 'a> {
    of: &'r mut Fit<'a>,
    pool: &'r ThreadPool,
    comm: &'r Comm,
    /// Whether this rank sees the run folder of rank 0.
    sees: bool,
    began: Instant,
    before: Before,
    saved: Instant,
}

/// The resources that a resumed run had used before.
struct Before {
    wall_s: f64,
    load_s: f64,
    head: HeadFigures,
}

impl Run<'_, '_> {
    fn wall_s(&self) -> f64 {
        self.before.wall_s + self.began.elapsed().as_secs_f64()
    }

    /// Steps of an epoch, from the loader's position.
    fn epoch(
        &mut self,
        source: &mut BatchSource,
        progress: &mut Progress,
        folder: &mut RunFolder,
        context: &mut RunContext<'_>,
    ) -> Result<(), TrainError> {
        let number = progress.epochs.len() as u64;
        let batches = self.of.training.steps(number);
        let what = format!("epoch {}", number + 1);
        progress.epoch.epoch = number + 1;
        let schedule = self.of.config.schedule();
        while source.place().epoch == number {
            let every = self.of.rebuild.unwrap_or(u64::MAX);
            if source.place().step == 0 || progress.steps.is_multiple_of(every) {
                self.begin_epoch(number, folder, progress, context)?;
            }
            let at = source.place().step as f64 / batches.max(1) as f64 + number as f64;
            let epochs = self.of.config.epochs as f64;
            let parts = self.of.config.accumulate * schedule.batches(at, epochs);
            let rate = schedule.rate(at, epochs, batches);
            let place = source.place();
            match self.step(source, parts, rate, number, progress) {
                Ok(true) => {}
                Ok(false) => break,
                // While it waited for data. A step whose first batches were taken is repeated from the last checkpoint.
                Err(error) if error.is_interruption() => {
                    if self.comm.size() == 1 && source.place() == place {
                        self.save(source, progress, false, folder)?;
                    }
                    return Err(TrainError::interrupted_in(folder.path()));
                }
                Err(error) => return Err(error),
            }
            progress.epoch.rate = rate;
            progress.epoch.step_examples = parts * self.of.config.batch;
            let (done, total) = (source.place().step, batches);
            (context.observer)(Event::Progress {
                what: &what,
                done: if source.place().epoch == number {
                    done
                } else {
                    total
                },
                total,
            });
            let due = self.saved.elapsed().as_secs_f64() > self.of.config.checkpoint_seconds;
            let interrupted = context.interrupt.load(Ordering::Relaxed);
            let (due, interrupted) = self.agreed(due, interrupted)?;
            if due || interrupted {
                self.save(source, progress, false, folder)?;
            }
            if interrupted {
                return Err(TrainError::interrupted_in(folder.path()));
            }
        }
        self.pool.install(|| self.of.trainer.end_epoch());
        Ok(())
    }

    /// State that is renewed between epochs.
    fn begin_epoch(
        &mut self,
        number: u64,
        folder: &RunFolder,
        progress: &mut Progress,
        context: &mut RunContext<'_>,
    ) -> Result<(), TrainError> {
        let began = Instant::now();
        let finds = |kind: &String| kind.starts_with("knn");
        if let Some(figures) = self.of.trainer.head()
            && figures.classes >= MANY_CLASSES
            && self.of.head.as_ref().is_some_and(finds)
        {
            (context.observer)(Event::Note(&format!(
                "epoch {}: finding the nearest of {} classes first, which may take minutes",
                number + 1,
                figures.classes
            )));
        }
        let stop = || context.interrupt.load(Ordering::Relaxed);
        let trainer = &mut self.of.trainer;
        let renewed = self.pool.install(|| trainer.begin_epoch(number, &stop));
        progress.step_s += began.elapsed().as_secs_f64();
        progress.epoch.compute_s += began.elapsed().as_secs_f64();
        match renewed {
            Err(NnError::Head(HeadError::Interrupted)) => {
                Err(TrainError::interrupted_in(folder.path()))
            }
            Err(NnError::Head(HeadError::Weights { class })) => {
                let what = format!(
                    "the weights of class {class} in the head are no longer finite after step {}, before epoch {}",
                    progress.steps,
                    number + 1
                );
                Err(TrainError::not_a_number(what, progress.feed.is_some()))
            }
            result => Ok(result?),
        }
    }

    /// Whether any rank wants a checkpoint, and whether any wants to end.
    fn agreed(&self, due: bool, interrupted: bool) -> Result<(bool, bool), TrainError> {
        if self.comm.size() == 1 {
            return Ok((due, interrupted));
        }
        let mut both = [u64::from(due), u64::from(interrupted)];
        let agreed = self.comm.all_reduce(&mut both, Reduction::Max);
        agreed.map_err(pelton_data::DataError::from)?;
        Ok((both[0] > 0, both[1] > 0))
    }

    /// One step of the optimiser over up to `parts` batches of this epoch; false if none was left.
    fn step(
        &mut self,
        source: &mut BatchSource,
        parts: u64,
        rate: f64,
        number: u64,
        progress: &mut Progress,
    ) -> Result<bool, TrainError> {
        let began = Instant::now();
        let mut batches = Vec::new();
        let mut ids = Vec::new();
        let (mut fresh, mut echoed) = (0, 0);
        while (batches.len() as u64) < parts && source.place().epoch == number {
            let Some(next) = source.next() else { break };
            let next = next?;
            fresh += next.fresh;
            echoed += next.echoed;
            ids.extend(next.ids);
            batches.push(next.ready);
        }
        let waited = began.elapsed().as_secs_f64();
        if batches.is_empty() {
            return Ok(false);
        }
        // Sums over all ranks.
        let mut sums = [batches.iter().map(Ready::rows).sum(), fresh, echoed];
        if self.comm.size() > 1 {
            let summed = self.comm.all_reduce(&mut sums, Reduction::Sum);
            summed.map_err(pelton_data::DataError::from)?;
        }
        let [rows, fresh, echoed] = sums;
        progress.fresh_examples += fresh;
        progress.echoed_examples += echoed;
        let counted = self.counted(&batches, rows)?;
        let loss = LossOptions {
            scale: 1.0 / counted as f32,
            smoothing: self.of.config.smoothing,
            class_weights: self.of.class_weights.as_deref(),
        };
        let options = StepOptions {
            loss,
            key: key(self.of.config.seed, number, Stage::Dropout) ^ (progress.steps << 8),
        };
        let parts: Vec<Option<Input<'_>>> = batches
            .iter()
            .map(|ready| (ready.rows() > 0).then(|| ready.input()))
            .collect();
        let trainer = &mut self.of.trainer;
        let counts = self.pool.install(|| trainer.gradients(&parts, &options))?;
        progress.steps += 1;
        let config = self.of.config;
        let trainer = &mut self.of.trainer;
        let (steps, rule) = (progress.steps, config.rule());
        let finite = self.pool.install(|| {
            let norm = match config.clip {
                // The norm costs one more pass over the gradients; the loss also shows whether they are finite.
                None => 0.0,
                Some(_) => trainer.gradient_norm()?,
            };
            let scale = match config.clip {
                Some(clip) if norm > clip => (clip / norm) as f32,
                _ => 1.0,
            };
            let finite = norm.is_finite() && counts.loss.is_finite();
            if finite {
                trainer.update(&Update {
                    rule,
                    rate: rate as f32,
                    weight_decay: config.weight_decay,
                    step: steps,
                    scale,
                })?;
            }
            Ok::<bool, NnError>(finite)
        })?;
        let broken = f64::from(u8::from(!finite));
        let mut sums = [broken, counts.loss, counts.correct as f64];
        if self.comm.size() > 1 {
            let summed = self.comm.all_reduce(&mut sums, Reduction::Sum);
            summed.map_err(pelton_data::DataError::from)?;
        }
        let [broken, loss, correct] = sums;
        if broken > 0.0 {
            let what = if loss.is_finite() {
                "the norm of the gradients"
            } else {
                "the loss"
            };
            return Err(not_a_number(what, number, &ids, progress));
        }
        progress.note_loss(loss / counted);
        progress.epoch.training(Counts {
            // Its mean is that of the step.
            loss: loss * (rows as f64 / counted),
            rows,
            correct: correct as u64,
        });
        let spent = began.elapsed().as_secs_f64();
        progress.step_s += spent - waited;
        progress.wait_s += waited;
        progress.epoch.wait_s += waited;
        progress.epoch.compute_s += spent - waited;
        Ok(true)
    }

    /// Total weight of the `rows` examples of a step, over all ranks.
    fn counted(&self, batches: &[Ready], rows: u64) -> Result<f64, TrainError> {
        let Some(weights) = &self.of.class_weights else {
            return Ok(rows.max(1) as f64);
        };
        let labels = batches.iter().flat_map(Ready::labels);
        let mut sum = [labels.map(|&y| f64::from(weights[y as usize])).sum()];
        if self.comm.size() > 1 {
            let summed = self.comm.all_reduce(&mut sum, Reduction::Sum);
            summed.map_err(pelton_data::DataError::from)?;
        }
        // If no example counts, the gradient is 0.
        Ok(if sum[0] > 0.0 { sum[0] } else { 1.0 })
    }

    /// Losses on data of this name, after this much progress; `progress.feed` says whether an earlier checkpoint
    /// exists.
    ///
    /// Errors: those of the source; a loss that is not a number.
    fn evaluate(
        &mut self,
        name: &str,
        source: &mut BatchSource,
        steps: u64,
        mut tested: Option<&mut Tested<'_>>,
        progress: &Progress,
        context: &mut RunContext<'_>,
    ) -> Result<Counts, TrainError> {
        let trainer = self.of.trainer.as_mut();
        let is_lost = |error: &TrainError| {
            matches!(
                error,
                TrainError::Net(NnError::Head(HeadError::NotFinite { .. }))
            )
        };
        let evaluate = |input: Option<Input<'_>>| {
            let best = tested.as_ref().map_or(0, |tested| tested.best());
            let found = trainer.evaluate_each(input, best)?;
            if let (Some(tested), Some(input)) = (&mut tested, input) {
                tested.add(input, &found);
            }
            Ok(found.counts)
        };
        let counts = measure(evaluate, self.pool, source, steps, context);
        if let (Some(tested), true) = (tested, counts.is_ok()) {
            tested.sum(self.comm)?;
        }
        match counts {
            Ok(counts) if counts.loss.is_finite() => Ok(counts),
            Err(error) if !is_lost(&error) => Err(error),
            _ => {
                let what = format!(
                    "the loss on {name} data is no longer finite after step {}",
                    progress.steps
                );
                Err(TrainError::not_a_number(what, progress.feed.is_some()))
            }
        }
    }

    fn tell(&self, record: &NetEpoch, context: &mut RunContext<'_>) {
        let text = record.line(self.of.language);
        (context.observer)(Event::Note(&text));
    }

    /// Whether the last epoch was the best.
    fn note_best(&self, progress: &mut Progress) -> bool {
        let last = progress.epochs.last();
        let Some((loss, epoch)) = last.and_then(|e| Some((e.validation_loss?, e.epoch))) else {
            return false;
        };
        let better = progress.best.is_none_or(|(best, _)| loss < best);
        if better {
            progress.best = Some((loss, epoch));
        }
        better
    }

    /// Whether the patience is used up: enough epochs without a better one.
    fn is_patient(&self, progress: &Progress) -> bool {
        let (Some(patience), Some((_, best))) = (self.of.config.patience, progress.best) else {
            return false;
        };
        progress.epochs.len() as u64 >= best + patience
    }

    fn save(
        &mut self,
        source: &BatchSource,
        progress: &mut Progress,
        best: bool,
        folder: &RunFolder,
    ) -> Result<(), TrainError> {
        self.saved = Instant::now();
        let trainer = self.of.trainer.as_ref();
        progress.feed = Some(source.state(self.comm)?);
        progress.wall_s = self.wall_s();
        progress.load_s = self.before.load_s + source.meters().feed.load_s;
        progress.head = trainer.head().unwrap_or_default().after(self.before.head);
        let about = self.of.about;
        saving::save_checkpoint(
            (folder, self.sees),
            progress,
            trainer,
            best,
            about,
            self.comm,
        )
    }
}

/// The error for a step of epoch `number` with non-finite values, on records with these `ids`.
fn not_a_number(what: &str, number: u64, ids: &[u64], progress: &Progress) -> TrainError {
    let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
    let what = format!(
        "{what} is no longer finite in epoch {}, step {} (records {}, …)",
        number + 1,
        progress.steps,
        ids.join(", ")
    );
    TrainError::not_a_number(what, progress.feed.is_some())
}
