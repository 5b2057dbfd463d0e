//! DeepIO Figures 7 and 8 with the paper's net: AlexNet on a file sorted by class, read by four ranks from each other's
//! memory.
//!
//! Chunk lengths give the printed levels for this many pictures. With memory for a part of the data, ordered mode still
//! uses the full random order and reads missing records from the file; opportunistic mode draws from the loaded
//! records. The file is sorted by class so that neighbours are similar; in a shuffled file chunks do no harm.

use pelton_data::{PeerConfig, PeerMode};
use pelton_plan::{Order, randomness_level};
use pelton_run::{Event, RunContext};
use pelton_train::{FitConfig, NetEpoch, TrainError};
use serde_json::{Value, json};

use super::nets::constant;
use super::pictures::{Pictures, find};
use super::raw_runs::RawRuns;
use crate::experiment::NetSetting;
use crate::table::{ReproduceConfig, Reproduction, Row, difference, median};
use crate::trainings::{Job, Training, Trainings};

const COLUMNS: &str =
    "net,data,pictures,method,order,seed,epoch,train_loss,validation_loss,accuracy_percent,seconds";
/// Pictures for training and for evaluation, at scale 1.
const PICTURES: [f64; 2] = [60_000.0, 10_000.0];
/// Default share of the pictures: 10 000.
const DEFAULT_SHARE: f64 = 1.0 / 6.0;
/// Ranks that train together.
const RANKS: usize = 4;
/// The levels that the paper prints, in percent.
const LEVELS: [f64; 5] = [100.0, 73.0, 49.0, 16.0, 0.0];

/// An order to compare.
struct Compared {
    figure: &'static str,
    name: String,
    order: Order,
    peers: PeerConfig,
    /// Printed level and ours, in percent.
    level: Option<[f64; 2]>,
}

/// Adds the accuracies of nets to the table.
pub(super) fn deepio_nets(
    config: &ReproduceConfig,
    context: &mut RunContext<'_>,
    reproduction: &mut Reproduction,
) -> Result<(), TrainError> {
    let experiment = &config.experiment;
    if experiment.nets.is_empty() {
        return Ok(());
    }
    let shares = [DEFAULT_SHARE * config.scale, config.scale];
    let count = |at: usize| (PICTURES[at] * shares[at].min(1.0)).round().max(20.0) as u64;
    let counts = [count(0), count(1)];
    let pictures = find(config, &experiment.pictures, counts, context)?;
    pictures.check(&experiment.nets)?;
    let mut raw = RawRuns::create(&config.out.join("deepio-order-nets.csv"), COLUMNS)?;
    let mut trainings = Trainings::open(&config.out)?;
    for net in &experiment.nets {
        let (mut found, mut best) = (Vec::new(), Vec::new());
        for compared in compared(config, &pictures) {
            let loads = match compared.peers.mode {
                PeerMode::Opportunistic { .. } => loads(&compared.peers),
                PeerMode::Ordered => 1,
            };
            if loads > 1 && pictures.count / (loads + 1) < 3 * net.batch {
                let left_out = format!("{}: too few pictures, left out", compared.name);
                reproduction.notes.push(left_out);
                continue;
            }
            let curves = curves(
                config,
                net,
                &pictures,
                &compared,
                &mut raw,
                &mut trainings,
                context,
            )?;
            best.push((compared.name.clone(), curves.best.clone()));
            found.extend(rows(net, &pictures, &compared, curves));
        }
        // By figure, then by order.
        found.sort_by(|a: &Row, b: &Row| (&a.table, &a.figure).cmp(&(&b.table, &b.figure)));
        reproduction.rows.extend(found);
        let (of, full) = &best[0];
        reproduction
            .notes
            .extend(best[1..].iter().map(|(name, own)| {
                let points: Vec<f64> = own.iter().zip(full).map(|(a, b)| a - b).collect();
                format!("{}, {name}: {}", net.model, difference(&points, of))
            }));
    }
    reproduction.notes.push(format!(
        "nets: {RANKS} ranks, the data in their memory or a part of it; {} pictures sorted by class, accuracy on others, the middle of {} seeds; memory for all of them stands under Figure 7",
        pictures.count,
        config.seeds
    ));
    reproduction.files.push(raw.path());
    Ok(())
}

/// The chunk length nearest to a level.
fn chunk_of(records: u64, level: f64) -> u64 {
    let off = |chunk: &u64| (percent(randomness_level(records, *chunk)) - level).abs();
    let nearest = (1..=records).min_by(|a, b| off(a).total_cmp(&off(b)));
    nearest.unwrap_or(1)
}

fn percent(share: f64) -> f64 {
    (1e4 * share).round() / 100.0
}

/// Number of loads; memory holds two. If ranks share it unevenly they may need one more.
fn loads(peers: &PeerConfig) -> u64 {
    (2.0 / peers.memory_share.unwrap_or(1.0)).ceil() as u64
}

fn compared(config: &ReproduceConfig, pictures: &Pictures) -> Vec<Compared> {
    let experiment = &config.experiment;
    let file_records = pictures.count.div_ceil(experiment.files.max(1));
    let peers = |mode, share| PeerConfig {
        memory_bytes: 0,
        memory_share: Some(share),
        mode,
        unit_bytes: file_records * pictures.bytes,
        // Each rank takes its run of a batch, as in the paper.
        near: Some(false),
    };
    let mut all = Vec::new();
    for level in LEVELS {
        let chunk = match level {
            0.0 => pictures.count,
            level => chunk_of(pictures.count, level),
        };
        let (order, name) = match chunk {
            1 => (Order::Full, "single pictures".to_string()),
            all if all == pictures.count => (Order::Sequential, "constant order".to_string()),
            chunk => (
                Order::Page {
                    unit_bytes: chunk * pictures.bytes,
                },
                format!("chunks of {chunk}"),
            ),
        };
        let own = match order {
            Order::Sequential => 0.0,
            _ => percent(randomness_level(pictures.count, chunk)),
        };
        all.push(Compared {
            figure: "Figure 7",
            name,
            order,
            peers: peers(PeerMode::Ordered, 1.0),
            level: Some([level, own]),
        });
    }
    for &share in experiment.memory.iter().filter(|share| **share < 1.0) {
        for mode in [PeerMode::Ordered, PeerMode::Opportunistic { loads: None }] {
            all.push(Compared {
                figure: "Figure 8",
                name: format!("memory 1/{}, {mode}", 1.0 / share),
                order: Order::Full,
                peers: peers(mode, share),
                level: None,
            });
        }
    }
    all
}

/// Results of the trainings of an order.
struct Curves {
    /// After each epoch, the median over seeds.
    losses: Vec<f64>,
    /// The same in percent.
    accuracies: Vec<f64>,
    /// The best accuracy of each seed.
    best: Vec<f64>,
}

fn curves(
    config: &ReproduceConfig,
    net: &NetSetting,
    pictures: &Pictures,
    compared: &Compared,
    raw: &mut RawRuns,
    trainings: &mut Trainings,
    context: &mut RunContext<'_>,
) -> Result<Curves, TrainError> {
    let mut losses: Vec<Vec<f64>> = Vec::new();
    let mut accuracies: Vec<Vec<f64>> = Vec::new();
    let mut best = Vec::new();
    for seed in 0..config.seeds {
        let what = format!("{}, {}, seed {seed}", net.model, compared.name);
        (context.observer)(Event::Note(&what));
        let epochs = net.epochs.unwrap_or(config.experiment.epochs);
        let fit = FitConfig {
            order: compared.order,
            cache: Some(compared.peers.clone()),
            ..constant(net.rate, net.batch, epochs, seed)
        };
        let job = pictures.job(net, &pictures.sorted, fit, config)?;
        let training = Training {
            job: Job::Images(Box::new(job)),
            ranks: RANKS,
            link: None,
        };
        let trained = trainings.train(&training, context)?;
        let of_epoch = |epoch: &NetEpoch| 100.0 * epoch.validation_accuracy.unwrap_or(0.0);
        best.push(trained.best_accuracy());
        for (at, epoch) in trained.epochs.iter().enumerate() {
            let loss = epoch.validation_loss.unwrap_or(f64::NAN);
            for (all, value) in [(&mut losses, loss), (&mut accuracies, of_epoch(epoch))] {
                all.resize(all.len().max(at + 1), vec![]);
                all[at].push(value);
            }
        }
        let mut lines: Vec<[String; 5]> = (trained.epochs.iter())
            .map(|epoch| {
                [
                    epoch.epoch.to_string(),
                    format!("{:.6}", epoch.train_loss),
                    format!("{:.6}", epoch.validation_loss.unwrap_or(f64::NAN)),
                    format!("{:.3}", of_epoch(epoch)),
                    format!("{:.3}", epoch.compute_s + epoch.wait_s),
                ]
            })
            .collect();
        if lines.is_empty() {
            let what = format!("{what}: its loss was not a number in the first epoch");
            (context.observer)(Event::Note(&what));
            let guess = format!("{:.3}", trained.best_accuracy());
            let none = "NaN".to_string();
            lines.push(["0".into(), none.clone(), none.clone(), guess, none]);
        }
        for [epoch, train_loss, loss, accuracy, seconds] in &lines {
            raw.line(&[
                &net.model,
                &pictures.name,
                &pictures.count.to_string(),
                &format!("\"{}\"", compared.name),
                &compared.order.to_string(),
                &seed.to_string(),
                epoch,
                train_loss,
                loss,
                accuracy,
                seconds,
            ])?;
        }
    }
    let [losses, accuracies] =
        [losses, accuracies].map(|all| all.into_iter().map(median).collect());
    Ok(Curves {
        losses,
        accuracies,
        best,
    })
}

fn rows(net: &NetSetting, pictures: &Pictures, compared: &Compared, curves: Curves) -> Vec<Row> {
    let row = |figure: &str, published: Value, measured: Value| Row {
        table: compared.figure.to_string(),
        data: format!("{} on {} sorted by class", net.model, pictures.name),
        method: compared.name.clone(),
        figure: figure.to_string(),
        published,
        measured,
        differs: format!(
            "{} pictures of {}², width {}, rate {} and {} a batch; the paper's accuracies are drawn, not printed",
            pictures.count, pictures.side, net.width, net.rate, net.batch
        ),
        ..Row::default()
    };
    let level = compared
        .level
        .map(|[printed, own]| row("randomness level RL in percent", json!(printed), json!(own)));
    let Curves {
        losses, accuracies, ..
    } = curves;
    let best = accuracies.iter().copied().fold(0.0, f64::max);
    level
        .into_iter()
        .chain([
            row("accuracy of the best epoch, %", Value::Null, json!(best)),
            row(
                "accuracy after each epoch, %",
                Value::Null,
                json!(accuracies),
            ),
            row(
                "validation loss after each epoch",
                Value::Null,
                json!(losses),
            ),
        ])
        .collect()
}
