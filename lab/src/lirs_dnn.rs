//! LIRS section 5.3: nets on a shuffle queue (TensorFlow's input pipeline, TFIP) and in full random order.
//!
//! The paper trains AlexNet, OverFeat and VGG-16 on ImageNet, which was shuffled once; here they learn smaller
//! pictures, once from a file in random order and once from one sorted by class, in which a queue shorter than a class
//! cannot mix. Epochs are counted up to the least validation loss of the queue with the paper's share of the data,
//! interpolated between two epochs (Table 6). Total time follows equation 1 on the paper's devices: the queue's file is
//! shuffled first and then read sequentially, LIRS reads each picture separately; both load while they compute, and
//! computing takes the time measured here.

use pelton_plan::Order;
use pelton_run::{Event, RunContext};
use pelton_storage::{DeviceUse, PAGE_BYTES};
use pelton_train::{FitConfig, NetEpoch, TrainError};
use serde_json::{Value, json};

use super::modelled::{Work, devices};
use super::nets::{constant, reached};
use super::pictures::{Pictures, find};
use super::raw_runs::RawRuns;
use crate::experiment::{NetSetting, SetConfig};
use crate::idx::real;
use crate::table::{ReproduceConfig, Reproduction, Row, difference, median};
use crate::trainings::{Job, Training, Trainings};

const COLUMNS: &str = "net,data,file,order,rate,seed,epoch,train_loss,validation_loss,accuracy_percent,compute_s,wait_s,commit";
/// Pictures for training and for evaluation, at scale 1.
const PICTURES: [f64; 2] = [60_000.0, 10_000.0];
/// Seed for comparing rates, different from the measured ones.
const TUNING_SEED: u64 = 1000;
/// The length of the paper's queue over its data.
const PUBLISHED_QUEUE: f64 = 0.0078;
/// Bytes of an entry of LIRS's table of assignments.
const ENTRY_BYTES: f64 = 8.0;
const MB: f64 = (1 << 20) as f64;

/// Epochs of Table 6 and accuracies of Table 7, in percent: TFIP, then LIRS.
fn published(net: &str) -> Option<([f64; 2], [f64; 2])> {
    match net {
        "alexnet" => Some(([17.5, 13.6], [48.29, 48.94])),
        "overfeat" => Some(([11.9, 9.4], [51.09, 51.95])),
        "vgg16" => Some(([2.1, 1.6], [62.39, 63.90])),
        _ => None,
    }
}

/// The order of pictures; a queue has a share of the file waiting.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Queue(f64),
    Lirs,
}

impl Way {
    fn examples(self, count: u64) -> u64 {
        match self {
            Way::Queue(share) => ((count as f64 * share).round() as u64).max(1),
            Way::Lirs => count,
        }
    }

    fn order(self, count: u64) -> Order {
        match self {
            Way::Queue(_) => Order::Queue {
                examples: self.examples(count),
                initial_shuffle: false,
            },
            Way::Lirs => Order::Full,
        }
    }

    fn name(self) -> String {
        match self {
            Way::Queue(0.0) => "queue of 1".to_string(),
            Way::Queue(share) => format!("queue of {:.2} %", 100.0 * share),
            Way::Lirs => "LIRS".to_string(),
        }
    }
}

/// Trainings of one net with one order, over all seeds.
struct Followed {
    /// By epoch, the median over seeds.
    losses: Vec<f64>,
    /// Percent, of the best epoch of each seed.
    accuracies: Vec<f64>,
    /// Compute seconds of an epoch.
    epoch_s: f64,
    /// The learning rate.
    rate: f64,
}

/// A table under construction.
struct Table<'a> {
    config: &'a ReproduceConfig,
    trainings: Trainings,
    raw: RawRuns,
}

pub(super) fn lirs_dnn(
    config: &ReproduceConfig,
    context: &mut RunContext<'_>,
) -> Result<Reproduction, TrainError> {
    let experiment = &config.experiment;
    let counts = PICTURES.map(|whole| (whole * config.scale).round().max(20.0) as u64);
    let is_there = |set: &&SetConfig| real(config, set).is_some();
    let mut sets: Vec<&SetConfig> = experiment.sets.iter().filter(is_there).collect();
    if sets.is_empty() {
        sets.extend(experiment.sets.iter().find(|set| set.rows.is_some()));
    }
    let mut table = Table {
        config,
        trainings: Trainings::open(&config.out)?,
        raw: RawRuns::create(&config.out.join("lirs-dnn-runs.csv"), COLUMNS)?,
    };
    let queues = experiment.queues.iter().map(|&share| Way::Queue(share));
    let ways: Vec<Way> = queues.chain([Way::Lirs]).collect();
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for set in sets {
        let pictures = find(config, std::slice::from_ref(set), counts, context)?;
        pictures.check(&experiment.nets)?;
        rows.extend(memory(&pictures, &ways));
        for net in &experiment.nets {
            // As published first.
            for is_sorted in [false, true] {
                let mut trained = Vec::new();
                for &way in &ways {
                    let followed = table.follow(net, &pictures, is_sorted, way, context)?;
                    trained.push((way, followed));
                }
                let mut found = compared(net, &pictures, is_sorted, &trained);
                // By figure, then by order.
                found.sort_by(|a, b| (&a.table, &a.figure).cmp(&(&b.table, &b.figure)));
                rows.extend(found);
                notes.extend(differences(net, &pictures, is_sorted, &trained));
            }
        }
    }
    notes.push("epochs are counted to the least validation loss of the queue with the paper's share, 0.78 %".to_string());
    notes.push("accuracy is that of the best epoch; losses and accuracies are the middle of the seeds; rates are the best of those tried with another seed, way by way".to_string());
    Ok(Reproduction {
        name: experiment.name.clone(),
        rows,
        notes,
        files: vec![table.raw.path()],
    })
}

fn file(is_sorted: bool) -> &'static str {
    if is_sorted {
        "sorted by class"
    } else {
        "shuffled"
    }
}

fn accuracy(epoch: &NetEpoch) -> f64 {
    100.0 * epoch.validation_accuracy.unwrap_or(0.0)
}

impl Table<'_> {
    /// Trains a net with one order and all seeds, at the best of the rates.
    fn follow(
        &mut self,
        net: &NetSetting,
        pictures: &Pictures,
        is_sorted: bool,
        way: Way,
        context: &mut RunContext<'_>,
    ) -> Result<Followed, TrainError> {
        let what = format!(
            "{} on {} {}, {}",
            net.model,
            pictures.name,
            file(is_sorted),
            way.name()
        );
        let config = self.config;
        let mut rate = net.rate;
        if config.experiment.rates.len() > 1 {
            let mut most = -1.0;
            for factor in &config.experiment.rates {
                let tried = net.rate * factor;
                (context.observer)(Event::Note(&format!("{what}, rate {tried}")));
                let training = self.training(net, pictures, is_sorted, way, tried, TUNING_SEED)?;
                let found = self.trainings.train(&training, context)?.best_accuracy();
                if found > most {
                    (most, rate) = (found, tried);
                }
            }
        }
        let mut losses: Vec<Vec<f64>> = Vec::new();
        let (mut accuracies, mut seconds) = (Vec::new(), Vec::new());
        for seed in 0..config.seeds {
            (context.observer)(Event::Note(&format!("{what}, rate {rate}, seed {seed}")));
            let training = self.training(net, pictures, is_sorted, way, rate, seed)?;
            let trained = self.trainings.train(&training, context)?;
            for (at, epoch) in trained.epochs.iter().enumerate() {
                let loss = epoch.validation_loss.unwrap_or(f64::NAN);
                losses.resize(losses.len().max(at + 1), vec![]);
                losses[at].push(loss);
                seconds.push(epoch.compute_s);
                self.raw.line(&[
                    &net.model,
                    &pictures.name,
                    file(is_sorted),
                    &way.name(),
                    &rate.to_string(),
                    &seed.to_string(),
                    &epoch.epoch.to_string(),
                    &format!("{:.6}", epoch.train_loss),
                    &format!("{loss:.6}"),
                    &format!("{:.3}", accuracy(epoch)),
                    &format!("{:.3}", epoch.compute_s),
                    &format!("{:.3}", epoch.wait_s),
                    &trained.commit,
                ])?;
            }
            accuracies.push(trained.best_accuracy());
        }
        Ok(Followed {
            losses: losses.into_iter().map(median).collect(),
            accuracies,
            epoch_s: median(seconds),
            rate,
        })
    }

    fn training(
        &self,
        net: &NetSetting,
        pictures: &Pictures,
        is_sorted: bool,
        way: Way,
        rate: f64,
        seed: u64,
    ) -> Result<Training, TrainError> {
        let experiment = &self.config.experiment;
        let path = if is_sorted {
            &pictures.sorted
        } else {
            &pictures.shuffled
        };
        let fit = FitConfig {
            order: way.order(pictures.count),
            schedule: experiment.schedule.parse().map_err(TrainError::config)?,
            precision: experiment.precision.parse().map_err(TrainError::config)?,
            checkpoint_seconds: 600.0,
            ..constant(
                rate,
                net.batch,
                net.epochs.unwrap_or(experiment.epochs),
                seed,
            )
        };
        let job = pictures.job(net, path, fit, self.config)?;
        Ok(Training {
            job: Job::Images(Box::new(job)),
            ranks: 1,
            link: None,
        })
    }
}

/// LIRS against every queue, seed by seed.
fn differences(
    net: &NetSetting,
    pictures: &Pictures,
    is_sorted: bool,
    trained: &[(Way, Followed)],
) -> Vec<String> {
    let Some((_, lirs)) = trained.iter().find(|(way, _)| *way == Way::Lirs) else {
        return vec![];
    };
    let queues = trained.iter().filter(|(way, _)| *way != Way::Lirs);
    let note = |(way, queue): &(Way, Followed)| {
        let pairs = lirs.accuracies.iter().zip(&queue.accuracies);
        let points: Vec<f64> = pairs.map(|(lirs, queue)| lirs - queue).collect();
        let data = format!("{} on {} {}", net.model, pictures.name, file(is_sorted));
        format!(
            "{data}: LIRS {}",
            difference(&points, &format!("the {}", way.name()))
        )
    };
    queues.map(note).collect()
}

/// The memory of a queue and of LIRS's table.
fn memory(pictures: &Pictures, ways: &[Way]) -> Vec<Row> {
    let row = |way: &Way| {
        let bytes = match way {
            Way::Queue(_) => (way.examples(pictures.count) * pictures.bytes) as f64,
            Way::Lirs => pictures.count as f64 * ENTRY_BYTES,
        };
        Row {
            table: "section 5.3.3".to_string(),
            data: pictures.name.clone(),
            method: way.name(),
            figure: "memory of the shuffle, MB".to_string(),
            published: match way {
                Way::Queue(PUBLISHED_QUEUE) => json!(7.3 * 1024.0),
                Way::Lirs => json!(9.8),
                Way::Queue(_) => Value::Null,
            },
            measured: json!(bytes / MB),
            differs: format!(
                "computed; {} pictures of {} bytes as stored in the file, the paper's 1 281 167 are decoded",
                pictures.count, pictures.bytes
            ),
            ..Row::default()
        }
    };
    ways.iter().map(row).collect()
}

/// The rows of one net on one file.
fn compared(
    net: &NetSetting,
    pictures: &Pictures,
    is_sorted: bool,
    trained: &[(Way, Followed)],
) -> Vec<Row> {
    let data = format!("{} on {} {}", net.model, pictures.name, file(is_sorted));
    let known = published(&net.model).filter(|_| !is_sorted);
    let of_queue = trained
        .iter()
        .find(|(way, _)| *way == Way::Queue(PUBLISHED_QUEUE));
    let least = |losses: &[f64]| losses.iter().copied().fold(f64::INFINITY, f64::min);
    let goal = of_queue.map(|(_, queue)| least(&queue.losses));
    let mut rows = Vec::new();
    let differs = format!(
        "{} pictures of {}², width {}, {} a batch; the paper has ImageNet, shuffled once",
        pictures.count, pictures.side, net.width, net.batch
    );
    for (way, found) in trained {
        let at = match way {
            Way::Queue(PUBLISHED_QUEUE) => Some(0),
            Way::Lirs => Some(1),
            Way::Queue(_) => None,
        };
        let printed = known.zip(at);
        let mut put = |table: &str, figure: &str, published: Value, measured: Value| {
            rows.push(Row {
                table: table.to_string(),
                data: data.clone(),
                method: way.name(),
                figure: figure.to_string(),
                published,
                measured,
                differs: differs.clone(),
                ..Row::default()
            });
        };
        put(
            "section 5.3",
            "learning rate",
            Value::Null,
            json!(found.rate),
        );
        put(
            "Figure 12",
            "validation loss by epoch",
            Value::Null,
            json!(found.losses),
        );
        let epochs = goal.and_then(|goal| reached(&found.losses, goal));
        let printed_epochs = printed.map(|((epochs, _), at)| epochs[at]);
        put(
            "Table 6",
            "epochs to the loss of the queue of 0.78 %",
            json!(printed_epochs),
            json!(epochs),
        );
        let printed_accuracy = printed.map(|((_, accuracy), at)| accuracy[at]);
        put(
            "Table 7",
            "accuracy, %",
            json!(printed_accuracy),
            json!(median(found.accuracies.clone())),
        );
        let Some(epochs) = epochs else { continue };
        for (device, model) in devices() {
            let work = work(pictures, *way);
            let times = work.times(&model, epochs, epochs * found.epoch_s, true);
            let figure = format!("seconds on {device}: ");
            let parts = [
                ("total", times.total_s),
                ("preparing", times.prepare_s),
                ("loading", times.load_s),
                ("computing", times.compute_s),
            ];
            for (part, seconds) in parts {
                put(
                    "Figure 13",
                    &format!("{figure}{part}"),
                    Value::Null,
                    json!(seconds),
                );
            }
        }
    }
    rows
}

/// The device use of an order.
fn work(pictures: &Pictures, way: Way) -> Work {
    let whole = (pictures.count * pictures.bytes).div_ceil(PAGE_BYTES);
    let each = pictures.bytes.div_ceil(PAGE_BYTES);
    match way {
        Way::Queue(_) => Work {
            prepare: DeviceUse {
                sequential_read_pages: whole,
                random_write_pages: pictures.count,
                sequential_write_pages: pictures.count * (each - 1),
                ..DeviceUse::default()
            },
            epoch: DeviceUse {
                sequential_read_pages: whole,
                ..DeviceUse::default()
            },
        },
        Way::Lirs => Work {
            prepare: DeviceUse::default(),
            epoch: DeviceUse {
                random_read_pages: pictures.count,
                sequential_read_pages: pictures.count * (each - 1),
                ..DeviceUse::default()
            },
        },
    }
}
