//! Training an LSTM on a text with its sentences batched by several policies: time, memory, perplexity.
//!
//! Policies take turns, an epoch each, so that a slow moment of the machine affects all equally; a turn resumes from
//! the run folder of the previous one. `none` is trained twice: normally, with padded cells that have no target and
//! that the softmax skips; and with words as padding, each sentence's last one repeated, as in a trainer that ignores
//! padding and computes everything. So the table never claims a speedup only over the second.
//!
//! By default a sixth of the sentences is timed, evenly spread, with the vocabulary of all; trainings with perplexity
//! use all sentences.

use std::path::{Path, PathBuf};

use pelton_data::{DataConfig, Validation};
use pelton_plan::BucketPolicy;
use pelton_run::{Event, RunContext, write_atomically};
use pelton_tools::vocabulary::{VocabularyConfig, vocabulary};
use pelton_train::language::Parallel;
use pelton_train::{FitConfig, LanguageConfig, NetEpoch, TrainError};
use serde_json::{Value, json};

use super::buckets::{known, known_batch};
use super::idx::some_of;
use super::nets::{constant, reached};
use super::raw_runs::RawRuns;
use crate::experiment::{NetSetting, SetConfig};
use crate::table::{ReproduceConfig, Reproduction, Row, median, unwritable};
use crate::trainings::{Job, Training, Trainings};

const COLUMNS: &str = "data,sentences,batch,ranks,parallel,policy,padding_is_words,measured_on,epoch,\
                       compute_s,wait_s,words,padded_fraction,peak_rss_bytes,train_loss,validation_loss,wall_s";
/// Default share of the sentences to time.
const TIMED_SHARE: f64 = 1.0 / 6.0;
/// Timed epochs.
const TIMED: u64 = 2;
/// Epochs of the published minutes.
const PUBLISHED_EPOCHS: f64 = 25.0;
/// Published memory of training on several devices by sentences per batch, in MB; the policy is not stated.
const PUBLISHED_MEMORY: [(u64, f64); 3] = [(32, 367.0), (64, 515.0), (128, 764.0)];

/// A batching policy to train with.
#[derive(Clone)]
struct Way {
    name: String,
    policy: BucketPolicy,
    padding_is_words: bool,
}

/// The division of work among ranks.
#[derive(Clone, Copy, PartialEq)]
struct Division {
    ranks: usize,
    parallel: Parallel,
}

impl Division {
    fn name(self) -> String {
        match (self.ranks, self.parallel) {
            (1, _) => "1 rank".to_string(),
            (ranks, Parallel::Data) => format!("{ranks} ranks"),
            (ranks, Parallel::Model) => format!("{ranks} ranks with layers each"),
        }
    }
}

/// A policy with the time of its epochs.
struct Measured {
    way: Way,
    epochs: Vec<NetEpoch>,
    padded_fraction: f64,
    /// The maximum over all turns; `None` if unknown.
    peak_bytes: Option<u64>,
}

impl Measured {
    fn epoch_s(&self) -> f64 {
        let seconds = self.epochs.iter().map(|e| e.compute_s + e.wait_s);
        median(seconds.collect())
    }
}

/// The training and test texts.
struct Texts {
    name: String,
    /// The sentences to train on.
    sample: PathBuf,
    /// The same, all padded to the longest.
    lengthened: PathBuf,
    sentences: u64,
    /// Mean words of a sentence, including its end.
    mean_words: f64,
    /// Number of sentences in the whole text.
    all_sentences: u64,
    /// Vocabulary of the whole text.
    vocabulary: PathBuf,
    words: u32,
    /// Test sentences.
    test: PathBuf,
}

struct Table<'a> {
    config: &'a ReproduceConfig,
    net: &'a NetSetting,
    texts: Texts,
    raw: RawRuns,
    trainings: Trainings,
}

/// Adds times, memory and perplexity of training to the table.
pub(super) fn bucket_training(
    config: &ReproduceConfig,
    context: &mut RunContext<'_>,
    reproduction: &mut Reproduction,
) -> Result<(), TrainError> {
    let experiment = &config.experiment;
    let Some(net) = experiment.nets.first() else {
        return Ok(());
    };
    let mut ways = Vec::new();
    for name in &experiment.policies {
        let policy: BucketPolicy = name.parse()?;
        let way = |name: &str, padding_is_words| Way {
            name: name.to_string(),
            policy: policy.clone(),
            padding_is_words,
        };
        ways.push(way(name, false));
        if name == NONE {
            ways.push(way("none, padding is words", true));
        }
    }
    let followed: Vec<Way> = ways
        .iter()
        .filter(|way| experiment.followed.contains(&way.name))
        .cloned()
        .collect();
    let data = |&ranks: &usize| Division {
        ranks,
        parallel: Parallel::Data,
    };
    let mut divisions: Vec<Division> = experiment.ranks.iter().map(data).collect();
    divisions.extend(
        experiment
            .ranks
            .iter()
            .max()
            .filter(|&&ranks| ranks > 1)
            .map(|&ranks| Division {
                ranks,
                parallel: Parallel::Model,
            }),
    );
    for set in &experiment.sets {
        let Some(timed) = texts(config, set, TIMED_SHARE, context)? else {
            continue;
        };
        let path = config.out.join(format!("buckets-{}-trained.csv", set.name));
        let mut table = Table {
            config,
            net,
            texts: timed,
            raw: RawRuns::create(&path, COLUMNS)?,
            trainings: Trainings::open(&config.out)?,
        };
        for &batch in &experiment.batches {
            for &division in &divisions {
                let measured = table.turns(&ways, batch, division, None, context)?;
                reproduction
                    .rows
                    .extend(table.rows(batch, division, &measured));
            }
        }
        let alone = Division {
            ranks: 1,
            parallel: Parallel::Data,
        };
        let epochs = Some(experiment.epochs);
        if let Some(all) = texts(config, set, 1.0, context)? {
            table.texts = all;
        }
        let measured = table.turns(&followed, net.batch, alone, epochs, context)?;
        reproduction.rows.extend(table.curves(&measured));
        reproduction.files.push(path);
    }
    reproduction.notes.extend(NOTES.map(str::to_string));
    Ok(())
}

const NONE: &str = "none";

const NOTES: [&str; 4] = [
    "trained: ways take turns, an epoch each; seconds are those of training, waits for batches included and the start aside, the middle of two epochs",
    "none, padding is words: every sentence is repeated to the longest in its last word, and the softmax is computed of all of it; in the other rows padded cells have no target and no softmax, though the layer before it is multiplied out",
    "pack has so many rows in a batch that it holds as many words as the others' sentences do",
    "peak memory is that of the process from the start of a turn to its end, the program and the feed included",
];

impl Table<'_> {
    /// Trains all in turn: the `followed` ones for this many epochs with an evaluation after each, the others for the
    /// timed epochs.
    fn turns(
        &mut self,
        ways: &[Way],
        batch: u64,
        division: Division,
        followed: Option<u64>,
        context: &mut RunContext<'_>,
    ) -> Result<Vec<Measured>, TrainError> {
        let mut all: Vec<Measured> = Vec::new();
        let epochs = followed.unwrap_or(TIMED);
        let what = self.data(batch, division);
        let folders = self.config.out.join("runs");
        let name = what.replace([' ', ','], "-");
        let folder = |at: usize| folders.join(format!("{name}-{epochs}-{at}"));
        for turn in 1..=epochs {
            for (at, way) in ways.iter().enumerate() {
                let total = epochs * ways.len() as u64;
                let done = (turn - 1) * ways.len() as u64 + at as u64;
                let what = &what;
                (context.observer)(Event::Progress { what, done, total });
                let job = self.job(way, batch, division, turn, followed.is_some());
                let training = Training {
                    job: Job::Text(Box::new(job)),
                    ranks: division.ranks,
                    link: None,
                };
                let trained = self.trainings.train_in(&training, &folder(at), context)?;
                let before = all.get(at).and_then(|before| before.peak_bytes);
                let measured = Measured {
                    way: way.clone(),
                    epochs: trained.epochs,
                    padded_fraction: (trained.summary)
                        .and_then(|summary| summary["padded_fraction"].as_f64())
                        .unwrap_or(f64::NAN),
                    peak_bytes: trained.peak_bytes.max(before),
                };
                self.write_raw(&measured, batch, division, followed.is_some())?;
                match all.get_mut(at) {
                    Some(place) => *place = measured,
                    None => all.push(measured),
                }
            }
        }
        for folder in (0..ways.len()).map(folder).filter(|folder| folder.exists()) {
            std::fs::remove_dir_all(&folder).map_err(|error| unwritable(&folder, &error))?;
        }
        Ok(all)
    }

    /// Rows of a batch: the number of sentences, or of packed rows with equally many words.
    fn rows_of(&self, way: &Way, sentences: u64) -> u64 {
        match &way.policy {
            BucketPolicy::Pack(packing) => {
                let words = sentences as f64 * self.texts.mean_words;
                (words / f64::from(packing.row_length())).round().max(1.0) as u64
            }
            _ => sentences,
        }
    }

    fn job(
        &self,
        way: &Way,
        batch: u64,
        division: Division,
        epochs: u64,
        follows: bool,
    ) -> LanguageConfig {
        let plain = LanguageConfig::default();
        let texts = &self.texts;
        let text = |path: &Path| path.display().to_string();
        let path = if way.padding_is_words {
            &texts.lengthened
        } else {
            &texts.sample
        };
        let mut job = LanguageConfig {
            hidden: ((self.net.width * plain.hidden as f64).round() as usize).max(1),
            parallel: division.parallel,
            data: data(self.config, path),
            fit: FitConfig {
                validation: follows.then(|| Validation::Data(text(&texts.test))),
                momentum: plain.fit.momentum,
                nesterov: plain.fit.nesterov,
                weight_decay: plain.fit.weight_decay,
                clip: plain.fit.clip,
                ..constant(self.net.rate, self.rows_of(way, batch), epochs, 0)
            },
            ..plain
        };
        job.pipeline.buckets = Some(way.policy.clone());
        job.pipeline.vocabulary = Some(texts.vocabulary.clone());
        job
    }

    fn write_raw(
        &mut self,
        measured: &Measured,
        batch: u64,
        division: Division,
        follows: bool,
    ) -> Result<(), TrainError> {
        let Some(epoch) = measured.epochs.last() else {
            return Ok(());
        };
        let number = |value: Option<f64>| value.map_or(String::new(), |x| format!("{x:.6}"));
        self.raw.line(&[
            &self.texts.name,
            &self.texts.sentences.to_string(),
            &batch.to_string(),
            &division.ranks.to_string(),
            match division.parallel {
                Parallel::Data => "data",
                Parallel::Model => "model",
            },
            &format!("\"{}\"", measured.way.policy),
            &measured.way.padding_is_words.to_string(),
            if follows { "validation" } else { "" },
            &epoch.epoch.to_string(),
            &format!("{:.4}", epoch.compute_s),
            &format!("{:.4}", epoch.wait_s),
            &epoch.rows.to_string(),
            &format!("{:.6}", measured.padded_fraction),
            &measured.peak_bytes.map_or(String::new(), |x| x.to_string()),
            &format!("{:.6}", epoch.train_loss),
            &number(epoch.validation_loss),
            &format!("{:.3}", epoch.wall_s),
        ])
    }

    fn data(&self, batch: u64, division: Division) -> String {
        format!(
            "{}, batches of {batch}, {}",
            self.texts.name,
            division.name()
        )
    }

    fn row(&self, data: String, measured: &Measured, figure: &str) -> Row {
        Row {
            table: "Trained".to_string(),
            data,
            method: measured.way.name.clone(),
            figure: figure.to_string(),
            differs: format!(
                "{} of {} sentences, {} words, LSTM of {} times the width on a CPU; published: all sentences, GeForce GTX 750 Ti a rank",
                self.texts.sentences, self.texts.all_sentences, self.texts.words, self.net.width
            ),
            ..Row::default()
        }
    }

    /// Times and memory of all policies with batches of one size.
    fn rows(&self, batch: u64, division: Division, all: &[Measured]) -> Vec<Row> {
        let data = self.data(batch, division);
        let minutes = |name: &str| {
            let place = known_batch(batch)?;
            let of_ranks = known(name)?.minutes?;
            let of_ranks = of_ranks.get(division.ranks.checked_sub(1)?);
            let of_data = of_ranks.filter(|_| division.parallel == Parallel::Data)?;
            Some(of_data[place])
        };
        let mut rows = Vec::new();
        let mut put = |measured: &Measured, figure: &str, published: Option<f64>, value: f64| {
            rows.push(Row {
                published: json!(published.map(rounded)),
                measured: json!(rounded(value)),
                ..self.row(data.clone(), measured, figure)
            });
        };
        for measured in all {
            let published = minutes(&measured.way.name).map(|m| 60.0 * m / PUBLISHED_EPOCHS);
            put(
                measured,
                "seconds of an epoch",
                published,
                measured.epoch_s(),
            );
        }
        for measured in all {
            let percent = 100.0 * measured.padded_fraction;
            put(measured, "padded cells in percent", None, percent);
        }
        let is_none = |measured: &&Measured| measured.way.policy == BucketPolicy::None;
        for none in all.iter().filter(is_none) {
            let figure = format!("speed against {}", none.way.name);
            for measured in all {
                let published = minutes(NONE).zip(minutes(&measured.way.name));
                let published = published.map(|(none, own)| none / own);
                let value = none.epoch_s() / measured.epoch_s();
                put(measured, &figure, published, value);
            }
        }
        let plain = all.iter().find(|measured| measured.way.name == NONE);
        for none in all.iter().filter(is_none) {
            let figure = format!("speed against {} over the ratio of cells", none.way.name);
            let Some(plain) = plain else { break };
            let cells = |measured: &Measured| 1.0 / (1.0 - measured.padded_fraction);
            for measured in all.iter().filter(|m| !is_none(m)) {
                let ratio = cells(plain) / cells(measured);
                let value = none.epoch_s() / measured.epoch_s() / ratio;
                put(measured, &figure, None, value);
            }
        }
        for measured in all {
            let Some(bytes) = measured.peak_bytes else {
                continue;
            };
            let mut of_batch = PUBLISHED_MEMORY.iter();
            let published = of_batch.find(|(known, _)| *known == batch);
            let published = published.filter(|_| division.ranks > 1);
            let published = published.filter(|_| division.parallel == Parallel::Data);
            let value = bytes as f64 / 1e6;
            put(measured, "peak memory, MB", published.map(|p| p.1), value);
        }
        rows
    }

    /// Perplexity of the followed policies.
    fn curves(&self, all: &[Measured]) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut put = |figure: &str, value: &dyn Fn(&[NetEpoch]) -> Value| {
            rows.extend(all.iter().map(|measured| Row {
                measured: value(&measured.epochs),
                ..self.row(
                    format!("{}, batches of {}", self.texts.name, self.net.batch),
                    measured,
                    figure,
                )
            }));
        };
        let losses = |epochs: &[NetEpoch]| -> Vec<f64> {
            let losses = epochs.iter().filter_map(|epoch| epoch.validation_loss);
            losses.map(|loss| rounded(loss.exp())).collect()
        };
        put("validation perplexity after each epoch", &|epochs| {
            json!(losses(epochs))
        });
        let best = |epochs: &[NetEpoch]| losses(epochs).into_iter().fold(f64::INFINITY, f64::min);
        put("best validation perplexity", &|epochs| json!(best(epochs)));
        put("seconds of training up to each epoch", &|epochs| {
            let mut sum = 0.0;
            let sums = epochs.iter().map(|epoch| {
                sum += epoch.compute_s + epoch.wait_s;
                rounded(sum)
            });
            json!(sums.collect::<Vec<f64>>())
        });
        let goal = all
            .iter()
            .map(|measured| best(&measured.epochs))
            .fold(0.0, f64::max);
        let figure = format!("seconds of training to a perplexity of {goal:.2}, which all reach");
        put(&figure, &|epochs| {
            let Some(after) = reached(&losses(epochs), goal) else {
                return Value::Null;
            };
            let seconds = |epoch: &NetEpoch| epoch.compute_s + epoch.wait_s;
            let whole = epochs.iter().take(after as usize).map(seconds).sum::<f64>();
            let next = epochs.get(after as usize).map_or(0.0, seconds);
            json!(rounded(whole + after.fract() * next))
        });
        put(
            "seconds by the clock, measuring and saving included",
            &|epochs| json!(epochs.last().map(|epoch| rounded(epoch.wall_s))),
        );
        rows
    }
}

/// Rounded to three decimals.
fn rounded(value: f64) -> f64 {
    (1e3 * value).round() / 1e3
}

fn data(config: &ReproduceConfig, path: &Path) -> DataConfig {
    DataConfig {
        paths: vec![path.display().to_string()],
        cache_dir: Some(config.out.join("data")),
        ..DataConfig::default()
    }
}

/// The texts of a set, written if they cannot be used in place; `None` if its files do not exist.
fn texts(
    config: &ReproduceConfig,
    set: &SetConfig,
    share: f64,
    context: &mut RunContext<'_>,
) -> Result<Option<Texts>, TrainError> {
    let Some(folder) = &config.real_data else {
        return Ok(None);
    };
    let (Some(whole), Some(test)) = (&set.train, &set.test) else {
        return Ok(None);
    };
    let [whole, test] = [whole, test].map(|file| folder.join(file));
    if !whole.exists() || !test.exists() {
        return Ok(None);
    }
    let unreadable = |error: std::io::Error| {
        TrainError::config(format!(
            "{}: cannot be read ({error}); check the path",
            whole.display()
        ))
    };
    let text = std::fs::read_to_string(&whole).map_err(unreadable)?;
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let share = (share * config.scale).min(1.0);
    let count = (lines.len() as f64 * share).round().max(1.0) as u64;
    let used = some_of(lines.len() as u64, count);
    let sample: Vec<&str> = (0..lines.len())
        .filter(|&i| used.contains(i as u64))
        .map(|i| lines[i])
        .collect();
    let words = |line: &str| line.split_whitespace().count();
    let longest = sample.iter().map(|line| words(line)).max().unwrap_or(0);
    let lengthened: Vec<String> = sample
        .iter()
        .map(|line| {
            let last = line.split_whitespace().last().unwrap_or_default();
            line.to_string() + &format!(" {last}").repeat(longest - words(line))
        })
        .collect();
    let file = |name: &str| {
        let file = format!("{}-{count}{name}", set.name);
        config.out.join("data").join(file)
    };
    let made = Texts {
        name: set.name.clone(),
        sample: file("-sample.txt"),
        lengthened: file("-lengthened.txt"),
        sentences: sample.len() as u64,
        mean_words: 1.0
            + sample.iter().map(|line| words(line)).sum::<usize>() as f64
                / sample.len().max(1) as f64,
        all_sentences: lines.len() as u64,
        vocabulary: file("-vocabulary.txt"),
        words: 0,
        test,
    };
    let write = |path: &Path, text: String| {
        write_atomically(path, |path| std::fs::write(path, text + "\n"))
    };
    write(&made.sample, sample.join("\n"))?;
    write(&made.lengthened, lengthened.join("\n"))?;
    let of_all = VocabularyConfig {
        overwrite: true,
        data: data(config, &whole),
        out: made.vocabulary.clone(),
        min_count: 1,
        max_size: None,
    };
    let own = RunContext::new(context.comm, context.interrupt, &mut *context.observer);
    let words = vocabulary(&of_all, own)?.size;
    Ok(Some(Texts { words, ..made }))
}
