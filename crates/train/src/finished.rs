//! Finished nets: what `eval`, `predict` and `sample` do with the run folder of a net.

use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use pelton_comm::Comm;
use pelton_data::{
    DataConfig, DataError, Expected, OpenedData, PipelineTerms, PreparedPipeline, check_range, open,
};
use pelton_feed::PipelineConfig;
use pelton_format::ClassMap;
use pelton_image::Pipeline;
use pelton_key::{KeyedRng, Stage, key};
use pelton_nn::{Carry, Flow, Input, NO_TARGET, Trainer, Words, trainer};
use pelton_plan::Order;
use pelton_run::{Manifest, RunContext, Set, peak_rss_bytes};
use pelton_text::{Ends, Special, Tokenizer, Vocabulary};
use rayon::ThreadPool;
use serde::Serialize;

use crate::deep::{
    FitConfig, MODEL, Prepared, Ready, Shards, Targets, load_parameters, measure, thread_pool,
};
use crate::error::TrainError;
use crate::evaluate::{EvaluateConfig, heading, unwritten};
use crate::image::{CLASSES, Classes, ImageConfig, PLAIN, check_lists, fits, resolved};
use crate::label_ranks::{LabelRanks, MOST_CUT, RankSums};
use crate::language::{LanguageConfig, LanguageNet, MEASURED_ROWS, VOCABULARY};
pub use crate::ranked::{Ranked, best_classes};
use crate::ranked::{likeliest, softmax};
use crate::trained::{finished_model, unreadable};

/// Figures of a finished net on data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NetFigures {
    /// Images classified correctly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_accuracy: Option<f64>,
    /// How many classes count as right for `top_accuracy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<usize>,
    /// Share of images with their class among the `top` likeliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_accuracy: Option<f64>,
    /// How the labels of examples that may have several are ranked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_label_ranks: Option<LabelRanks>,
    /// Mean loss of an image or a word.
    pub test_loss: f64,
    /// exp of the mean loss of a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_perplexity: Option<f64>,
    /// Images, or sentences.
    pub records: u64,
    /// Words that were predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<u64>,
    /// Seconds.
    pub wall_s: f64,
    /// Most memory of the process.
    pub peak_rss_bytes: u64,
}

/// How text is generated.
#[derive(Clone, Debug)]
pub struct SampleConfig {
    /// The first words.
    pub prompt: String,
    /// Words, or bytes, to generate.
    pub words: usize,
    /// Divisor of logits; 0 takes the likeliest word.
    pub temperature: f64,
    /// Number of likeliest words to draw from; 0 for all.
    pub top: usize,
    /// The seed.
    pub seed: u64,
}

/// The kind of a run folder.
pub(crate) enum Job {
    Images(Box<ImageConfig>, Classes),
    Text(Box<LanguageConfig>, Vocabulary),
}

struct Finished {
    job: Job,
    trainer: Box<dyn Trainer>,
    pool: ThreadPool,
}

/// Whether a path is the run folder of a net, finished or not.
///
/// Errors: a configuration that cannot be read.
pub fn is_net(run: &Path) -> Result<bool, TrainError> {
    let config = run.join("run.toml");
    // Other folders are identified later.
    if !config.exists() && !run.join(Set::Model.file()).exists() {
        return Ok(false);
    }
    let config: toml::Table = crate::config::read(&config)?;
    Ok(config.contains_key("fit"))
}

/// The contents of a finished net's run folder, and the files of its model.
pub(crate) fn open_run(run: &Path) -> Result<(Job, Manifest), TrainError> {
    std::fs::metadata(run).map_err(|error| unreadable(run, &error))?;
    if !is_net(run)? {
        return Err(TrainError::config(format!(
            "{}: is not the run folder of a net; train one first",
            run.display()
        )));
    }
    let manifest = finished_model(run)?;
    let config = run.join("run.toml");
    let toml: toml::Table = crate::config::read(&config)?;
    let (job, settings) = if toml.contains_key("hidden") {
        let config = LanguageConfig::read(&config)?;
        let vocabulary = Vocabulary::load(&run.join(VOCABULARY)).map_err(DataError::from)?;
        let settings = config.decisive();
        (Job::Text(Box::new(config), vocabulary), settings)
    } else {
        let config = ImageConfig::read(&config)?;
        let file = run.join(CLASSES);
        let classes = Classes::read(&file).ok_or_else(|| {
            TrainError::config(format!(
                "{}: is damaged; train the net again with `overwrite`",
                file.display()
            ))
        })?;
        let settings = config.decisive();
        (Job::Images(Box::new(config), classes), settings)
    };
    manifest.check_settings(&settings)?;
    Ok((job, manifest))
}

/// The run folder of a finished net that predicts classes.
pub struct Classifier {
    /// The configuration of the run.
    pub config: Box<ImageConfig>,
    /// The input of the net.
    pub input: Flow,
    /// Its outputs.
    pub labels: ClassMap,
    pub(crate) run: PathBuf,
    pub(crate) rows: Shards,
}

impl Classifier {
    /// Reads all of a run folder but the parameters.
    ///
    /// Errors: a run that is not finished, damaged, or of language.
    pub fn open(run: &Path) -> Result<Classifier, TrainError> {
        let (Job::Images(config, classes), manifest) = open_run(run)? else {
            return Err(tells_no_classes(run));
        };
        Ok(Classifier {
            rows: Shards::new(&manifest, MODEL),
            config,
            input: classes.input(),
            labels: classes.map,
            run: run.to_path_buf(),
        })
    }

    /// The mean that the head subtracts from features before it compares them; empty if it subtracts none.
    pub fn feature_mean(&self) -> Result<Vec<f32>, TrainError> {
        let mean = self.rows.taken(pelton_softmax::feature_mean)?;
        Ok(mean.unwrap_or_default())
    }

    /// Loads the parameters into a trainer of this net.
    pub fn load(&self, trainer: &mut dyn Trainer) -> Result<(), TrainError> {
        load_parameters(self.rows.manifest(), trainer)
    }

    /// Rows of a block of the parameters; `None` if the block does not exist.
    pub fn rows(&self, name: &str, rows: Range<u64>) -> Result<Option<Vec<f32>>, TrainError> {
        self.rows.read(name, rows)
    }

    /// The run's processing of pictures for evaluation.
    pub fn pictures(&self) -> Result<Pipeline, TrainError> {
        let of_run = |error| TrainError::config(format!("{}: {error}", self.run.display()));
        let pipeline = match self.config.pipeline.evaluation().augment {
            Some(pipeline) => pipeline,
            None => PLAIN.parse().map_err(of_run)?,
        };
        match self.input {
            Flow::Image(_, _, channels @ (1 | 3)) => {
                pipeline.with_channels(channels).map_err(of_run)
            }
            _ => Ok(pipeline),
        }
    }
}

pub(crate) fn tells_no_classes(run: &Path) -> TrainError {
    TrainError::config(format!(
        "{}: a language model does not predict classes; generate text with `pelton sample`, or evaluate it with `pelton eval`",
        run.display()
    ))
}

fn load(run: &Path) -> Result<Finished, TrainError> {
    let (job, manifest) = open_run(run)?;
    let net = match &job {
        Job::Images(config, classes) => config.net(classes.input(), classes.map.len())?,
        Job::Text(config, vocabulary) => config.net(vocabulary.size() as usize)?,
    };
    let mut trainer = match &job {
        Job::Images(config, classes) => config.trainer(net, classes.map.len(), Comm::alone())?,
        Job::Text(..) => trainer(net, 0, Comm::alone()),
    };
    load_parameters(&manifest, trainer.as_mut())?;
    let threads = match &job {
        Job::Images(config, _) => config.fit.threads,
        Job::Text(config, _) => config.fit.threads,
    };
    Ok(Finished {
        job,
        trainer,
        pool: thread_pool(threads, &Comm::alone())?,
    })
}

/// Settings left at their default follow the run.
fn data_config(given: &DataConfig, run: &DataConfig) -> DataConfig {
    let (default, mut config) = (DataConfig::default(), given.for_nets());
    config.format = config.format.or_else(|| run.format.clone());
    if config.label == default.label {
        config.label.clone_from(&run.label);
    }
    if config.header == default.header {
        config.header = run.header;
    }
    if config.decimal == default.decimal {
        config.decimal = run.decimal;
    }
    if config.file_column == default.file_column {
        config.file_column.clone_from(&run.file_column);
    }
    // It contains the classes of a folder's images.
    if given.paths.iter().all(|path| Path::new(path).is_dir()) {
        config.label_file = config.label_file.or_else(|| run.label_file.clone());
    }
    config.positive = config.positive.or_else(|| run.positive.clone());
    config.missing = config.missing.or(run.missing);
    config.cache_dir = config.cache_dir.or_else(|| run.cache_dir.clone());
    config
}

/// The data as the run measured its own: in the order of the files, without augmentation.
fn prepare(
    pipeline: &PipelineConfig,
    fit: &FitConfig,
    memory_bytes: u64,
    data: &OpenedData,
    context: &mut RunContext<'_>,
) -> Result<PreparedPipeline, TrainError> {
    let terms = PipelineTerms {
        order: Order::Sequential,
        batch: Some(fit.batch),
        seed: fit.seed,
        epochs: Some(1),
        memory_bytes,
        threads: fit.feed_threads,
        access: fit.access,
        cache: None,
        ranks: None,
        among: None,
        sampler: None,
        lengths: None,
        by_class: true,
        vocabulary: None,
    };
    Ok(PreparedPipeline::new(
        &pipeline.evaluation(),
        &terms,
        data,
        context,
    )?)
}

/// The labels that data for a finished net may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Labels {
    /// The run's labels.
    OfRun,
    /// Any, or none.
    Unused,
    /// The data's own labels, as its classes.
    OfData,
}

/// Images or vectors for a net, opened and prepared.
pub(crate) fn images(
    of: &EvaluateConfig,
    config: &ImageConfig,
    classes: &Classes,
    labels: Labels,
    context: &mut RunContext<'_>,
) -> Result<(OpenedData, PreparedPipeline), TrainError> {
    let expected = Expected {
        labels: (labels != Labels::OfData).then(|| classes.map.clone()),
        any_label: labels == Labels::Unused,
        features: classes.features,
        means: None,
        columns: classes.columns.clone().map(Arc::new),
    };
    expected.check(&of.data)?;
    let data = data_config(&of.data, &config.data);
    let data = open(&data, &data.paths, Some(&expected), context)?;
    let measures = labels == Labels::OfRun;
    check_lists(&data, config, measures.then_some(&classes.map))?;
    let pipeline = resolved(&config.pipeline, &data)?;
    let prepared = prepare(&pipeline, &config.fit, of.memory_bytes, &data, context)?;
    fits(&prepared, classes.input(), &of.data.paths)?;
    Ok((data, prepared))
}

/// Accuracy or perplexity, and mean loss, of a finished net on data.
///
/// With `top`, also how often a class is one of the `top` likeliest, which costs a second pass through the net.
///
/// Errors: a run that is not finished or damaged; data of other sizes or classes; `top` of a net of language, or not
/// from 1 to the number of classes.
pub fn eval(
    of: &EvaluateConfig,
    top: Option<usize>,
    mut context: RunContext<'_>,
) -> Result<NetFigures, TrainError> {
    let began = Instant::now();
    let context = &mut context;
    let mut net = load(&of.model)?;
    let (data, prepared, targets, language) = match &net.job {
        Job::Images(config, classes) => {
            check_range("top", top.unwrap_or(1), 1..=classes.map.len())?;
            let (data, prepared) = images(of, config, classes, Labels::OfRun, context)?;
            let targets = Targets::Classes(classes.map.len());
            (data, Prepared::Pipeline(Box::new(prepared)), targets, false)
        }
        Job::Text(..) if top.is_some() => {
            return Err(TrainError::config(format!(
                "{}: `top` counts classes, and a language model has a perplexity only; leave it out",
                of.model.display()
            )));
        }
        Job::Text(config, _) => {
            let data = data_config(&of.data, &config.data);
            let data = open(&data, &data.paths, None, context)?;
            let mut pipeline = config.pipeline.clone();
            pipeline.vocabulary = Some(of.model.join(VOCABULARY));
            let prepared = prepare(&pipeline, &config.fit, of.memory_bytes, &data, context)?;
            let prepared = config.prepared(prepared, MEASURED_ROWS, context.comm)?;
            let start = Special::End.id().into();
            (data, prepared, Targets::Words { start }, true)
        }
    };
    let mut source = prepared.source(None, targets, context.comm)?;
    let steps = prepared.steps(0);
    let mut within = 0;
    let mut ranks = data.dataset.label_lists().map(|_| RankSums::new(None));
    let evaluate = |input: Option<Input<'_>>| {
        let best = ranks.as_ref().map_or(0, |_| MOST_CUT);
        let found = net.trainer.evaluate_each(input, best)?;
        if let (Some(ranks), Some(input)) = (&mut ranks, input) {
            ranks.add_each(input, &found.best);
        }
        if let (Some(top), Some(input)) = (top, input) {
            let best = best_classes(net.trainer.as_mut(), input, top)?;
            for (own, best) in input.label_lists().zip(best) {
                let is_own = |&(class, _): &(u64, f32)| own.contains(&(class as i64));
                within += u64::from(best.iter().any(is_own));
            }
        }
        Ok(found.counts)
    };
    let counts = measure(evaluate, &net.pool, &mut source, steps, context)?;
    source.finish(context.comm, false)?;
    let rows = counts.rows.max(1) as f64;
    let loss = counts.loss / rows;
    if !loss.is_finite() {
        return Err(TrainError::config(format!(
            "{}: the loss on {} is not a number; check that the data is like the training data, or train again with a smaller `rate`",
            of.model.display(),
            of.data.paths.join(", ")
        )));
    }
    Ok(NetFigures {
        test_accuracy: (!language).then_some(counts.correct as f64 / rows),
        top,
        top_accuracy: top.map(|_| within as f64 / rows),
        test_label_ranks: ranks.map(|ranks| ranks.figures(&ranks.numbers())),
        test_loss: loss,
        test_perplexity: language.then_some(loss.exp()),
        records: data.dataset.records(),
        words: language.then_some(counts.rows),
        wall_s: began.elapsed().as_secs_f64(),
        peak_rss_bytes: peak_rss_bytes(),
    })
}

/// The output for a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predicted {
    /// The `top` likeliest classes, each with its probability or, for a head over many classes, its score.
    Top(usize),
    /// The likeliest class, then the probability of every class in the order that a first line states.
    Probabilities,
}

/// Writes the prediction for every image, a line each, in the order of the records, with tabs between.
///
/// Errors: those of [`eval`]; a net of language; probabilities of a head over many classes, which has scores.
pub fn predict_lines(
    of: &EvaluateConfig,
    wanted: Predicted,
    out: &mut dyn Write,
    mut context: RunContext<'_>,
) -> Result<(), TrainError> {
    let context = &mut context;
    let mut net = load(&of.model)?;
    let Job::Images(config, classes) = &net.job else {
        return Err(tells_no_classes(&of.model));
    };
    let labels = &classes.map;
    let top = match wanted {
        Predicted::Top(top) => {
            check_range("top", top, 1..=usize::MAX)?;
            top.min(labels.len())
        }
        Predicted::Probabilities if config.head.is_some() => {
            return Err(TrainError::config(format!(
                "{}: a head over many classes has scores and no probabilities; ask for the `top` classes",
                of.model.display()
            )));
        }
        Predicted::Probabilities => labels.len(),
    };
    let (data, prepared) = images(of, config, classes, Labels::Unused, context)?;
    if wanted == Predicted::Probabilities {
        writeln!(out, "{}", heading(labels)).map_err(unwritten)?;
    }
    let mut loader = prepared.loader(None, context.comm)?;
    for _ in 0..prepared.plan().steps(0) {
        let Some(batch) = loader.next() else { break };
        let mut batch = batch?;
        let ids = std::mem::take(&mut batch.ids);
        let ready = Ready::unlabelled(&mut batch)?;
        let input = ready.input();
        if net.trainer.head().is_some() {
            for row in net.pool.install(|| net.trainer.top(input, top))? {
                let line: Vec<String> = row
                    .into_iter()
                    .map(|(class, score)| format!("{}\t{score:.6}", labels.describe(class as u32)))
                    .collect();
                writeln!(out, "{}", line.join("\t")).map_err(unwritten)?;
            }
        } else {
            let logits = net.pool.install(|| net.trainer.logits(input))?;
            for (row, id) in logits.chunks(labels.len()).zip(&ids) {
                if !row.iter().all(|x| x.is_finite()) {
                    return Err(TrainError::config(format!(
                        "{}: the net's outputs for record {id} are not finite; give data like that it was trained on",
                        of.data.paths.join(", ")
                    )));
                }
                let shares = softmax(row, 1.0);
                let best = likeliest(row, top);
                let described = |class: usize| labels.describe(class as u32);
                let line: Vec<String> = match wanted {
                    Predicted::Top(_) => best
                        .into_iter()
                        .map(|class| format!("{}\t{:.6}", described(class), shares[class]))
                        .collect(),
                    Predicted::Probabilities => std::iter::once(described(best[0]))
                        .chain(shares.iter().map(|share| format!("{share:.6}")))
                        .collect(),
                };
                writeln!(out, "{}", line.join("\t")).map_err(unwritten)?;
            }
        }
        if context.interrupt.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(TrainError::stopped("predict"));
        }
    }
    drop(data);
    out.flush().map_err(unwritten)
}

/// Writes text that a language model generates after a prompt. The same seed makes the same text.
///
/// Errors: a run that is not finished, damaged, or of images; a word of the prompt outside the vocabulary.
pub fn sample(
    run: &Path,
    of: &SampleConfig,
    out: &mut dyn Write,
    context: &RunContext<'_>,
) -> Result<(), TrainError> {
    check_range("temperature", of.temperature, 0.0..=1e6)?;
    let net = load(run)?;
    let Job::Text(config, vocabulary) = &net.job else {
        return Err(TrainError::config(format!(
            "{}: a net for images cannot generate text; use `pelton predict`",
            run.display()
        )));
    };
    let mut words = vec![Special::End.id()];
    encode(&of.prompt, vocabulary, &mut words)?;
    let mut reader = Reader {
        trainer: net.trainer,
        positions: (config.model == LanguageNet::Transformer).then_some(config.positions),
        read: 0,
    };
    let mut text = Text::default();
    for &word in &words[1..] {
        text.write(word, vocabulary, out)?;
    }
    for position in 0..of.words as u64 {
        let logits = net.pool.install(|| reader.next(&words))?;
        let mut random = KeyedRng::at(key(of.seed, 0, Stage::Words), position);
        let word = draw(&logits, of, random.next_f64());
        words.push(word);
        text.write(word, vocabulary, out)?;
        if context.interrupt.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(TrainError::stopped("sample"));
        }
    }
    out.write_all(b"\n")
        .and_then(|()| out.flush())
        .map_err(unwritten)
}

fn encode(prompt: &str, vocabulary: &Vocabulary, words: &mut Vec<u32>) -> Result<(), TrainError> {
    let unknown = Special::Unknown.id();
    // The net never learnt an id that did not occur in the text.
    if vocabulary.tokenizer() == Tokenizer::Whitespace && vocabulary.count(unknown) == Some(0) {
        let word = prompt
            .split_whitespace()
            .find(|word| vocabulary.id(word.as_bytes()) == unknown);
        if let Some(word) = word {
            return Err(TrainError::config(format!(
                "`prompt`: the word {word:?} is not in the vocabulary, and the net was trained without <unk>; use words of its training text"
            )));
        }
    }
    vocabulary.encode(prompt.as_bytes(), Ends::default(), words);
    Ok(())
}

/// A word drawn by its logits, with `at` from 0 to below 1. Special tokens are left out.
fn draw(logits: &[f32], of: &SampleConfig, at: f64) -> u32 {
    let mut logits = logits.to_vec();
    for special in [Special::Pad, Special::Begin] {
        logits[special.id() as usize] = f32::NEG_INFINITY;
    }
    let top = match (of.temperature, of.top) {
        (0.0, _) => 1,
        (_, 0) => logits.len(),
        (_, top) => top,
    };
    let order = likeliest(&logits, top);
    let kept: Vec<f32> = order.iter().map(|&word| logits[word]).collect();
    let mut rest = at;
    for (&word, share) in order.iter().zip(softmax(&kept, of.temperature.max(1e-9))) {
        rest -= share;
        if rest < 0.0 {
            return word as u32;
        }
    }
    order[0] as u32
}

/// A language model with the state of the words read so far.
struct Reader {
    trainer: Box<dyn Trainer>,
    /// Most words at once, of a net that keeps no state.
    positions: Option<usize>,
    /// Words that are in the state.
    read: usize,
}

impl Reader {
    /// The logits of the next word after `words`, reading no more of them than needed.
    fn next(&mut self, words: &[u32]) -> Result<Vec<f32>, TrainError> {
        let (from, carry) = match (self.positions, self.read) {
            (Some(most), _) => (words.len().saturating_sub(most), Carry::No),
            (None, 0) => (0, Carry::Begin),
            (None, read) => (read, Carry::GoOn),
        };
        let ids: Vec<i64> = words[from..].iter().map(|&word| word.into()).collect();
        self.read = words.len();
        let given = Words {
            batch: 1,
            steps: ids.len(),
            targets: vec![NO_TARGET; ids.len()],
            ids,
            segments: vec![],
            carry,
        };
        let mut logits = self.trainer.logits(Input::Words(&given))?;
        let classes = self.trainer.net().classes;
        Ok(logits.split_off(logits.len() - classes))
    }
}

/// Formats text: words separated by blanks, one sentence a line; bytes as UTF-8, a character at a time.
#[derive(Default)]
struct Text {
    within_line: bool,
    bytes: Vec<u8>,
}

impl Text {
    fn write(
        &mut self,
        word: u32,
        vocabulary: &Vocabulary,
        out: &mut dyn Write,
    ) -> Result<(), TrainError> {
        let token = vocabulary.token(word).unwrap_or_default();
        let mut bytes = Vec::new();
        if word == Special::End.id() {
            bytes.push(b'\n');
        } else if vocabulary.tokenizer() == Tokenizer::Whitespace {
            bytes.extend(self.within_line.then_some(b' '));
            bytes.extend_from_slice(token);
        } else {
            bytes.extend_from_slice(token);
        }
        self.within_line = word != Special::End.id();
        self.bytes.extend(bytes);
        // An incomplete character waits for its last byte.
        let unfinished = std::str::from_utf8(&self.bytes).is_err_and(|e| e.error_len().is_none());
        if unfinished {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&self.bytes).into_owned();
        self.bytes.clear();
        out.write_all(text.as_bytes()).map_err(unwritten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_word_by_word_gives_the_logits_of_the_whole() {
        for model in [LanguageNet::Lstm, LanguageNet::Transformer] {
            let config = LanguageConfig {
                model,
                hidden: 8,
                heads: 2,
                positions: 16,
                ..LanguageConfig::default()
            };
            let reader = || Reader {
                trainer: trainer(config.net(12).unwrap(), 5, Comm::alone()),
                positions: (model == LanguageNet::Transformer).then_some(16),
                read: 0,
            };
            let words = [3, 7, 5, 11, 4, 9];
            let (mut whole, mut parts) = (reader(), reader());
            let expected = whole.next(&words).unwrap();
            let mut last = Vec::new();
            for length in 1..=words.len() {
                last = parts.next(&words[..length]).unwrap();
            }
            // Sums of 8 products, possibly in another order.
            for (a, b) in last.iter().zip(&expected) {
                assert!((a - b).abs() < 1e-6, "{last:?} {expected:?}");
            }
            assert_ne!(expected, reader().next(&words[..5]).unwrap());
        }
    }

    #[test]
    fn words_are_drawn_by_their_shares() {
        let mut of = SampleConfig {
            prompt: String::new(),
            words: 1,
            temperature: 1.0,
            top: 2,
            seed: 0,
        };
        // Words 4 and 5 with shares 2/3 and 1/3 of the two likeliest; words that no text has are never drawn.
        let logits = [9.0, 0.0, 9.0, -9.0, 2f32.ln() + 1.0, 1.0];
        assert_eq!(
            [0.0, 0.66, 0.67, 0.99].map(|at| draw(&logits, &of, at)),
            [4, 4, 5, 5]
        );
        of.temperature = 0.0;
        assert_eq!(draw(&logits, &of, 0.99), 4);
    }
}
