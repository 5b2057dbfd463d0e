//! Nets and their data: a net for pictures, or one for sentences.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pelton_comm::Comm;
use pelton_data::{DataConfig, Expected, OpenedData, PipelineTerms, PreparedPipeline, open};
use pelton_feed::{EchoSetting, Loader, LoaderOptions, PipelineConfig};
use pelton_fetch::Access;
use pelton_format::Dataset;
use pelton_key::{Stage, key, mix};
use pelton_nn::{Counts, LossOptions, Net, StepOptions, Trainer, Update, trainer};
use pelton_plan::Order;
use pelton_run::{Interrupt, RunContext};
use pelton_text::Special;
use pelton_train::image::{ImageModel, input_of};
use pelton_train::{FitConfig, LanguageConfig, Optimizer, Ready, Targets, TrainError, thread_pool};
use rayon::ThreadPool;

use super::source::{Clock, Slow};
use crate::experiment::NetSetting;
use crate::idx::real;
use crate::pictures;
use crate::table::{ReproduceConfig, median, unwritable};

/// Examples to train on and to test with, at scale 1: pictures, then sentences; and fewest at any scale.
const PICTURES: [u64; 2] = [10_000, 1_000];
const SENTENCES: [u64; 2] = [4_000, 500];
const LEAST: u64 = 200;
/// Memory of a loader.
const LOADER_BYTES: u64 = 64 << 20;
/// Fresh examples from which repeats are drawn; smaller if an epoch would have fewer than ten such windows.
const WINDOW: u64 = 512;
/// Evaluations on the held-out data up to the target, if examples are used once.
const LOOKS: u64 = 40;
/// Width of a language model's layers, before scaling.
const HIDDEN: f64 = 200.0;
/// Steps for the median time of a step, and warm-up steps before them.
const TIMED_STEPS: usize = 30;
const UNTIMED_STEPS: usize = 5;

/// A net with its data.
pub(super) struct Workload {
    /// Name in the table.
    pub name: String,
    /// Note in the table.
    pub note: String,
    /// Whether it is a net for pictures: its quality is accuracy, and its trainings can run in real time. The quality
    /// of a language model is the mean log-probability of a word.
    pub of_pictures: bool,
    /// Examples of a batch, and of all epochs without echo.
    pub batch: u64,
    pub budget: u64,
    /// Fresh examples from which repeats are drawn.
    pub window: u32,
    /// Steps between evaluations on the held-out data.
    pub look_every: u64,
    /// Seconds of a step, and t_up/t_down.
    pub step_s: f64,
    pub ratio: f64,
    net: Net,
    fit: FitConfig,
    targets: Targets,
    opened: OpenedData,
    pipeline: PipelineConfig,
    test: Vec<Ready>,
    interrupt: Interrupt,
}

impl Workload {
    /// The workload of a net of the experiment.
    pub fn new(
        config: &ReproduceConfig,
        setting: &NetSetting,
        context: &mut RunContext<'_>,
    ) -> Result<Workload, TrainError> {
        let image: Option<ImageModel> = setting.model.parse().ok();
        let counts = if image.is_some() { PICTURES } else { SENTENCES };
        let counts = counts.map(|count| ((count as f64 * config.scale) as u64).max(LEAST));
        let mut language = LanguageConfig {
            hidden: (HIDDEN * setting.width).round() as usize,
            dropout: 0.0,
            ..LanguageConfig::default()
        };
        let (data, paths, pipeline, what) = match image {
            Some(_) => {
                let found = pictures::find(config, &config.experiment.sets, counts, context)?;
                let [mean, deviation] = found.moments;
                let augment = format!(
                    "randomcrop:{}:2,flip,normalise:{mean:.4}:{deviation:.4}",
                    found.side
                );
                let what = format!("pictures, augmented by {augment}");
                let pipeline = PipelineConfig {
                    augment: augment.parse().ok(),
                    ..PipelineConfig::default()
                };
                let paths = [found.shuffled, found.test].map(|path| path.display().to_string());
                (found.name, paths, pipeline, what)
            }
            None => {
                language.model = setting.model.parse().map_err(TrainError::config)?;
                let (name, paths) = sentences(config, counts)?;
                (
                    name,
                    paths,
                    language.pipeline.clone(),
                    "sentences".to_string(),
                )
            }
        };
        let files = DataConfig {
            cache_dir: Some(config.out.join("data")),
            ..DataConfig::default()
        }
        .with_bytes();
        let opened = open(&files, &paths[..1], None, context)?;
        let expected = Expected {
            labels: Some(opened.dataset.labels().clone()),
            any_label: false,
            features: opened.dataset.features(),
            means: None,
            columns: None,
        };
        let held_out = open(&files, &paths[1..], Some(&expected), context)?;
        let prepared = prepared(&pipeline, &opened, (setting.batch, 0), context)?;
        let (net, fit, targets) = match image {
            Some(model) => {
                let classes = opened.dataset.labels().len();
                let size = input_of(&prepared)?;
                let net = model.net(size, classes, setting.width)?;
                (net, FitConfig::default(), Targets::Classes(classes))
            }
            None => {
                let words = prepared.vocabulary().map_or(0, |words| words.size());
                let start = Special::End.id().into();
                let fit = FitConfig {
                    optimizer: Optimizer::Adamw,
                    ..language.fit.clone()
                };
                (language.net(words as usize)?, fit, Targets::Words { start })
            }
        };
        let records = opened.dataset.records();
        let budget = config.experiment.epochs * records;
        let batch = setting.batch;
        let mut workload = Workload {
            name: format!("{} on {data}", setting.model),
            note: format!(
                "{records} {what}; tested on {} others; batches of {batch}; width {}, {} parameters, {} at a constant rate",
                held_out.dataset.records(),
                setting.width,
                net.trained(),
                match fit.optimizer {
                    Optimizer::Adamw => "AdamW",
                    _ => "stochastic gradient descent with momentum 0.9",
                },
            ),
            of_pictures: image.is_some(),
            batch,
            budget,
            window: (records / 10).clamp(batch, WINDOW.max(batch)) as u32,
            look_every: (budget / batch / LOOKS).max(1),
            step_s: 0.0,
            ratio: config.experiment.ratio,
            test: held_out_batches(
                &prepared.evaluation(&held_out, None, context)?,
                targets,
                context,
            )?,
            net,
            fit,
            targets,
            opened,
            pipeline,
            interrupt: Arc::clone(context.interrupt),
        };
        workload.step_s = workload.timed_step()?;
        Ok(workload)
    }

    /// Batches with this echo; on the slow source if there is a clock.
    pub fn loader(
        &self,
        echo: Option<EchoSetting>,
        seed: u64,
        clock: Option<&Arc<Clock>>,
    ) -> Result<Loader, TrainError> {
        let config = PipelineConfig {
            echo,
            ..self.pipeline.clone()
        };
        let (comm, quiet) = (Comm::alone(), &mut |_: pelton_run::Event<'_>| {});
        let mut context = RunContext::new(&comm, &self.interrupt, quiet);
        let pipeline = prepared(&config, &self.opened, (self.batch, seed), &mut context)?;
        let mut dataset = Arc::clone(&self.opened.dataset);
        if let Some(clock) = clock {
            let range_s = self.ratio * self.step_s / self.batch as f64;
            let slow = |inner| {
                Arc::new(Slow {
                    inner,
                    clock: Arc::clone(clock),
                    range: Duration::from_secs_f64(range_s),
                    free_at: Mutex::default(),
                }) as Arc<_>
            };
            dataset = Arc::new(Dataset::clone(&dataset).with_storage(slow));
        }
        let options = LoaderOptions {
            // A batch at a time, like a remote stream.
            look_ahead: Some(2 * self.batch),
            ..pipeline.options().clone()
        };
        let (plan, stages) = (Arc::clone(pipeline.plan()), pipeline.stages().clone());
        Ok(Loader::new(dataset, plan, stages, &options)?)
    }

    /// Median of some steps.
    fn timed_step(&self) -> Result<f64, TrainError> {
        let mut learner = Learner::new(self, 0.0, 0)?;
        let mut seconds = Vec::new();
        for batch in self
            .loader(None, 0, None)?
            .take(UNTIMED_STEPS + TIMED_STEPS)
        {
            let ready = learner.ready(batch?)?;
            let began = Instant::now();
            learner.step(&ready)?;
            seconds.push(began.elapsed().as_secs_f64());
        }
        Ok(median(
            seconds.split_off(UNTIMED_STEPS.min(seconds.len() - 1)),
        ))
    }

    /// 99 % of an accuracy, or the equivalent of 101 % of a perplexity.
    pub fn nearly(&self, quality: f64) -> f64 {
        if self.of_pictures {
            0.99 * quality
        } else {
            quality - libm::log(1.01)
        }
    }

    /// A quality for display: accuracy in percent, or perplexity.
    pub fn shown(&self, quality: f64) -> f64 {
        if self.of_pictures {
            100.0 * quality
        } else {
            (-quality).exp()
        }
    }
}

/// A net that learns at a constant rate, on one thread: the other processors are the loader's.
pub(super) struct Learner<'a> {
    workload: &'a Workload,
    trainer: Box<dyn Trainer>,
    pool: ThreadPool,
    rate: f64,
    seed: u64,
    steps: u64,
}

impl Learner<'_> {
    pub fn new(workload: &Workload, rate: f64, seed: u64) -> Result<Learner<'_>, TrainError> {
        Ok(Learner {
            workload,
            trainer: trainer(workload.net.clone(), seed, Comm::alone()),
            pool: thread_pool(1, &Comm::alone())?,
            rate,
            seed,
            steps: 0,
        })
    }

    /// A batch in the form that the net takes.
    pub fn ready(&self, batch: pelton_batch::Batch) -> Result<Ready, TrainError> {
        Ready::new(batch, self.workload.targets)
    }

    /// One step; false if the loss is no longer finite.
    pub fn step(&mut self, ready: &Ready) -> Result<bool, TrainError> {
        let Learner { trainer, pool, .. } = self;
        let fit = &self.workload.fit;
        let options = StepOptions {
            loss: LossOptions {
                scale: 1.0 / ready.rows().max(1) as f32,
                smoothing: 0.0,
                class_weights: None,
            },
            key: mix(key(self.seed, 0, Stage::Dropout) ^ self.steps),
        };
        self.steps += 1;
        let mut update = Update {
            rule: fit.rule(),
            rate: self.rate as f32,
            weight_decay: fit.weight_decay,
            step: self.steps,
            scale: 1.0,
        };
        pool.install(|| {
            let loss = trainer.gradients(&[Some(ready.input())], &options)?.loss;
            if let Some(clip) = fit.clip {
                update.scale = (clip / trainer.gradient_norm()?).min(1.0) as f32;
            }
            trainer.update(&update)?;
            Ok(loss.is_finite() && update.scale.is_finite())
        })
    }

    /// Quality on the held-out data; higher is better.
    pub fn quality(&mut self) -> Result<f64, TrainError> {
        let Learner { trainer, pool, .. } = self;
        let test = &self.workload.test;
        let counts = pool.install(|| {
            let mut counts = Counts::default();
            for ready in test {
                counts += trainer.evaluate(Some(ready.input()))?;
            }
            Ok::<Counts, TrainError>(counts)
        })?;
        let sum = if self.workload.of_pictures {
            counts.correct as f64
        } else {
            -counts.loss
        };
        Ok(sum / counts.rows.max(1) as f64)
    }
}

/// The pipeline with batches of this many examples, and this seed.
fn prepared(
    config: &PipelineConfig,
    opened: &OpenedData,
    (batch, seed): (u64, u64),
    context: &mut RunContext<'_>,
) -> Result<PreparedPipeline, TrainError> {
    let terms = PipelineTerms {
        order: Order::Full,
        among: None,
        sampler: None,
        lengths: None,
        batch: Some(batch),
        seed,
        epochs: None,
        memory_bytes: LOADER_BYTES,
        threads: 1,
        access: Access::Direct,
        cache: None,
        ranks: None,
        by_class: false,
        vocabulary: None,
    };
    Ok(PreparedPipeline::new(config, &terms, opened, context)?)
}

/// All batches of the held-out data.
fn held_out_batches(
    pipeline: &PreparedPipeline,
    targets: Targets,
    context: &RunContext<'_>,
) -> Result<Vec<Ready>, TrainError> {
    let steps = pipeline.plan().steps(0) as usize;
    let loader = pipeline.loader(None, context.comm)?;
    loader
        .take(steps)
        .map(|batch| Ready::new(batch?, targets))
        .collect()
}

/// Name and files of the first existing text of the experiment, with this many sentences to train on, and to test with.
fn sentences(
    config: &ReproduceConfig,
    counts: [u64; 2],
) -> Result<(String, [String; 2]), TrainError> {
    for set in &config.experiment.texts {
        if set.rows.is_some() {
            let paths = ["", ":test"].map(|part| format!("{}:{}{part}", set.name, counts[0]));
            return Ok((set.name.clone(), paths));
        }
        if let Some(files) = real(config, set) {
            let mut paths = [const { String::new() }; 2];
            for (at, part) in ["train", "test"].into_iter().enumerate() {
                let to = config
                    .out
                    .join("data")
                    .join(format!("{}-{part}.txt", set.name));
                begin_of(&files[at], &to, counts[at])?;
                paths[at] = to.display().to_string();
            }
            return Ok((set.name.clone(), paths));
        }
    }
    Err(TrainError::config(
        "the experiment has no text that is there; add a `text` with `rows`, which is generated"
            .to_string(),
    ))
}

/// Writes the first lines of a file to another.
fn begin_of(from: &Path, to: &Path, lines: u64) -> Result<(), TrainError> {
    let unreadable = |error| {
        TrainError::config(format!(
            "{}: cannot be read ({error}); check the file",
            from.display()
        ))
    };
    let text = std::fs::read_to_string(from).map_err(unreadable)?;
    let end = text.match_indices('\n').nth(lines as usize - 1);
    let end = end.map_or(text.len(), |(at, _)| at + 1);
    std::fs::write(to, &text[..end]).map_err(|error| unwritable(to, &error))
}
