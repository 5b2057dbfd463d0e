//! DeepIO Figures 7 and 8: the effect of an order's randomness on training.
//!
//! The paper trains AlexNet and draws validation accuracy against the randomness level (RL) of shuffling 1, 4, 16 and
//! 256 images as one element, and against the share R of the data in memory for one round of random reads; the text
//! prints the levels but no accuracies. Here the linear job trains on the number of records behind the printed levels,
//! with the same orders, and shows the exact entropy RL* next to RL.
//!
//! Memory for a share of the data contains two loads, one to draw from and one being read, so an epoch takes 2/share
//! loads; the paper's R is one load, half of the share. Memory for all of the data needs no second load and gives full
//! order.
//!
//! Every set is trained in its file order, which is already random, and sorted by label, so that an order that keeps
//! neighbours together must hurt. Cost: minutes; rows are in memory, and nearly all of it is solving the blocks.

use std::collections::HashMap;

use pelton_format::RowTable;
use pelton_linear::InnerPasses;
use pelton_plan::{Batching, Order, Randomness, randomness_level};
use pelton_run::{Event, RunContext};
use pelton_train::TrainError;
use serde_json::{Value, json};

use super::convergence::{self, Run, Training, median_epochs};
use super::data_in_memory::{self, DataInMemory};
use super::raw_runs::RawRuns;
use crate::table::{ReproduceConfig, Reproduction, Row, median};

const COLUMNS: &str = "data,rows,blocks,order,unit_records,rl,rl_exact,inner_passes,seed,epoch,\
                       relative_difference,accuracy_percent";

/// Records of the paper's element list, derived from its printed levels: H(N/c)/H(N) is 73, 49 and 16 % for c = 4, 16
/// and 256 at N near 11 500.
const PUBLISHED_RECORDS: u64 = 11_500;

/// Relative difference to the optimum that counts as converged.
const TARGET: f64 = 1e-3;

/// The paper's level in percent for shuffling chunks of this many records; a constant order has 0.
fn published_level(chunk: u64) -> Option<f64> {
    match chunk {
        1 => Some(100.0),
        4 => Some(73.0),
        16 => Some(49.0),
        256 => Some(16.0),
        _ => None,
    }
}

/// An order to compare.
#[derive(Clone, Debug)]
struct Compared {
    figure: &'static str,
    name: String,
    order: Order,
    /// Records of a unit.
    unit_records: Option<u64>,
    /// Printed level in percent.
    published: Option<f64>,
}

impl Compared {
    /// Whether two entries share a training: the first order of both figures is the same.
    fn same_as(&self, other: &Compared) -> bool {
        (self.order, self.unit_records) == (other.order, other.unit_records)
    }
}

/// An order with its runs, one list for each number of inner passes.
struct Trained {
    compared: Compared,
    randomness: Randomness,
    runs: Vec<Vec<Run>>,
}

pub(super) fn deepio_order(
    config: &ReproduceConfig,
    context: &mut RunContext<'_>,
) -> Result<Reproduction, TrainError> {
    let mut raw = RawRuns::create(&config.out.join("deepio-order-runs.csv"), COLUMNS)?;
    let mut rows = levels_by_formula(&config.experiment.chunks);
    let mut notes = notes(config);
    for set in &config.experiment.sets {
        let Some(mut held) = data_in_memory::hold(config, set, context)? else {
            notes.push(format!("{}: left out, its files are not there", set.name));
            continue;
        };
        if held.test.is_none() {
            notes.push(format!(
                "{}: accuracy is that of the training rows",
                held.name
            ));
        }
        let optimum = convergence::optimum(&held, context.interrupt)?.primal;
        for sorted in [false, true] {
            if sorted {
                held.arrangement = Some(by_label(&held.rows));
                held.name += ", sorted by label";
            }
            let trained = train(config, &held, optimum, context)?;
            for order in &trained {
                write_raw(&mut raw, &held, config, order)?;
            }
            rows.extend(figures(config, &held, &trained));
        }
    }
    Ok(Reproduction {
        name: config.experiment.name.clone(),
        rows,
        notes,
        files: vec![raw.path()],
    })
}

fn notes(config: &ReproduceConfig) -> Vec<String> {
    let experiment = &config.experiment;
    vec![
        format!(
            "linear SVM, {} epochs, {} seeds, medians after each epoch (lists of text show the last); the optimum is solved to a relative duality gap of 1e-6",
            experiment.epochs, config.seeds
        ),
        "published: Figure 7 draws AlexNet's validation accuracy at RL 100, 73, 49 and 16 %, Figure 8 at shares of the data in memory such as R = 0.25, to show that drawing from what is loaded does not affect it; the text at hand prints the levels but no accuracy, so that none stands here".to_string(),
        format!(
            "memory 1/k holds two loads of 1/(2k) of the data, one used while the other is read; the published R is one load: R = 0.25 is memory 1/2 here. Loads are made of {} files of equal size",
            experiment.files
        ),
        "RL of loads is not by the published formula, whose P is not a distribution when memory holds a part of the data, so that it exceeds 100 %: the bits of each draw have the weight of a full shuffle's draw instead; RL* = ln(orders an epoch can have)/ln(N!)".to_string(),
    ]
}

/// The printed levels against the formula, at their number of records.
fn levels_by_formula(chunks: &[u64]) -> Vec<Row> {
    let level = |&chunk: &u64| Row {
        table: "Figure 7".to_string(),
        data: format!("{PUBLISHED_RECORDS} records, by the formula"),
        method: chunk_name(chunk),
        figure: RL.to_string(),
        published: json!(published_level(chunk)),
        measured: json!(percent(randomness_level(PUBLISHED_RECORDS, chunk))),
        differs: "the paper names no number of records; this one gives its levels".to_string(),
        ..Row::default()
    };
    chunks.iter().map(level).collect()
}

const RL: &str = "randomness level RL in percent";
const RL_EXACT: &str = "exact randomness RL* in percent";

fn percent(share: f64) -> f64 {
    (1e4 * share).round() / 100.0
}

fn chunk_name(chunk: u64) -> String {
    match chunk {
        1 => "single records".to_string(),
        chunk => format!("chunks of {chunk}"),
    }
}

/// The orders of both figures over this many records.
fn compared(config: &ReproduceConfig, records: u64) -> Vec<Compared> {
    let experiment = &config.experiment;
    let full = |figure, name: String| Compared {
        figure,
        name,
        order: Order::Full,
        unit_records: None,
        published: (figure == "Figure 7").then_some(100.0),
    };
    let mut orders: Vec<Compared> = experiment
        .chunks
        .iter()
        .map(|&chunk| match chunk {
            1 => full("Figure 7", chunk_name(1)),
            chunk => Compared {
                figure: "Figure 7",
                name: chunk_name(chunk),
                order: Order::Page { unit_bytes: chunk },
                unit_records: Some(chunk),
                published: published_level(chunk),
            },
        })
        .collect();
    orders.push(Compared {
        figure: "Figure 7",
        name: "constant order".to_string(),
        order: Order::Sequential,
        unit_records: None,
        published: Some(0.0),
    });
    let file_records = records.div_ceil(experiment.files.max(1));
    orders.extend(experiment.memory.iter().map(|&share| {
        if share >= 1.0 {
            return full("Figure 8", "memory 1, full order".to_string());
        }
        let loads = (2.0 / share).ceil() as u64;
        Compared {
            figure: "Figure 8",
            name: format!("memory 1/{}, {loads} loads", 1.0 / share),
            order: Order::Opportunistic {
                loads,
                unit_bytes: file_records,
            },
            unit_records: Some(file_records),
            published: None,
        }
    }));
    orders
}

/// Whether the units of an order are small enough for the blocks of a set, and for its loads.
fn fits(held: &DataInMemory, compared: &Compared) -> bool {
    let units = |records: u64| held.dataset().records().div_ceil(records);
    match (compared.order, compared.unit_records) {
        (Order::Page { .. }, Some(records)) => units(records) >= held.blocks,
        (Order::Opportunistic { loads, .. }, Some(records)) => units(records) >= loads,
        _ => true,
    }
}

fn train(
    config: &ReproduceConfig,
    held: &DataInMemory,
    optimum: f64,
    context: &mut RunContext<'_>,
) -> Result<Vec<Trained>, TrainError> {
    let mut orders = compared(config, held.dataset().records());
    orders.retain(|order| {
        let fits = fits(held, order);
        if !fits {
            let note = format!("{}, {}: too few records, left out", held.name, order.name);
            (context.observer)(Event::Note(&note));
        }
        fits
    });
    let mut trained: Vec<Trained> = Vec::new();
    let total = orders.len() as u64;
    for (done, compared) in orders.into_iter().enumerate() {
        (context.observer)(Event::Progress {
            what: &held.name,
            done: done as u64,
            total,
        });
        let training = |&inner: &InnerPasses| Training {
            order: compared.order,
            unit_records: compared.unit_records,
            inner,
            epochs: config.experiment.epochs,
            optimum,
            stop_at: f64::NAN,
        };
        let trainings: Vec<Training> = config
            .experiment
            .inner_passes
            .iter()
            .map(training)
            .collect();
        let runs = match trained
            .iter()
            .find(|other| other.compared.same_as(&compared))
        {
            Some(same) => same.runs.clone(),
            None => convergence::runs(held, &trainings, config.seeds, context.interrupt)?,
        };
        let plan = convergence::plan(held, &trainings[0], Batching::Batches(held.blocks), 0)?;
        trained.push(Trained {
            randomness: plan.randomness(),
            compared,
            runs,
        });
    }
    Ok(trained)
}

/// The rows of a table sorted by label, otherwise in their order.
fn by_label(rows: &RowTable) -> Vec<u64> {
    let mut sorted: Vec<u64> = (0..rows.len() as u64).collect();
    sorted.sort_by_key(|&i| rows.label(i as usize));
    sorted
}

/// All figures of one data set, by table, figure and order.
fn figures(config: &ReproduceConfig, held: &DataInMemory, trained: &[Trained]) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in ["Figure 7", "Figure 8"] {
        let of_table: Vec<&Trained> = trained
            .iter()
            .filter(|order| order.compared.figure == table)
            .collect();
        let mut sorted: Vec<(usize, Row)> = Vec::new();
        for order in of_table {
            let found = order_rows(config, held, order);
            sorted.extend(found.into_iter().enumerate());
        }
        // Each order lists the same figures, with inner passes within a figure.
        let mut places: HashMap<String, usize> = HashMap::new();
        for (place, row) in &sorted {
            places.entry(row.figure.clone()).or_insert(*place);
        }
        sorted.sort_by_key(|(_, row)| places[&row.figure]);
        rows.extend(sorted.into_iter().map(|(_, row)| row));
    }
    rows
}

fn order_rows(config: &ReproduceConfig, held: &DataInMemory, trained: &Trained) -> Vec<Row> {
    let compared = &trained.compared;
    let row = |figure: &str, inner: Option<&InnerPasses>, published: Value, measured: Value| Row {
        table: compared.figure.to_string(),
        data: held.name.clone(),
        method: compared.name.clone(),
        inner_passes: inner.map(ToString::to_string),
        figure: figure.to_string(),
        published,
        measured,
        differs: format!(
            "linear SVM instead of AlexNet; {} data, {} rows in {} blocks",
            held.published.map_or("real", |_| "generated"),
            held.dataset().records(),
            held.blocks
        ),
        ..Row::default()
    };
    let randomness = trained.randomness;
    let levels = vec![
        row(
            RL,
            None,
            json!(compared.published),
            json!(percent(randomness.rl)),
        ),
        row(
            RL_EXACT,
            None,
            Value::Null,
            json!(percent(randomness.rl_exact)),
        ),
    ];
    // The arrangement of the file does not change levels.
    let mut rows = match held.arrangement {
        None => levels,
        Some(_) => Vec::new(),
    };
    for (inner, runs) in config.experiment.inner_passes.iter().zip(&trained.runs) {
        let mut add = |figure: &str, measured| {
            rows.push(row(figure, Some(inner), Value::Null, measured));
        };
        let epochs = config.experiment.epochs;
        add(
            "epochs to a relative difference of 1e-3",
            match median_epochs(runs, TARGET) {
                Some(epochs) => json!(epochs),
                None => json!(format!("over {epochs}")),
            },
        );
        let accuracy = curve(runs, |epoch| epoch.accuracy);
        add("test accuracy in percent after epoch 1", json!(accuracy[0]));
        let difference = curve(runs, |epoch| epoch.difference);
        add("relative difference after each epoch", json!(difference));
        add("test accuracy in percent after each epoch", json!(accuracy));
    }
    rows
}

/// The median over seeds after each epoch.
fn curve(runs: &[Run], value: fn(&convergence::Epoch) -> f64) -> Vec<f64> {
    let epochs = runs.iter().map(|run| run.epochs.len()).min().unwrap_or(0);
    let after = |epoch: usize| median(runs.iter().map(|run| value(&run.epochs[epoch])).collect());
    (0..epochs).map(after).collect()
}

fn write_raw(
    raw: &mut RawRuns,
    held: &DataInMemory,
    config: &ReproduceConfig,
    trained: &Trained,
) -> Result<(), TrainError> {
    let compared = &trained.compared;
    if compared.figure == "Figure 8" && compared.order == Order::Full {
        return Ok(()); // written with Figure 7
    }
    for (inner, runs) in config.experiment.inner_passes.iter().zip(&trained.runs) {
        for run in runs {
            for (epoch, state) in (1..).zip(&run.epochs) {
                raw.line(&[
                    &format!("\"{}\"", held.name),
                    &held.dataset().records().to_string(),
                    &held.blocks.to_string(),
                    &compared.order.to_string(),
                    &compared.unit_records.unwrap_or(1).to_string(),
                    &format!("{:.4}", trained.randomness.rl),
                    &format!("{:.4}", trained.randomness.rl_exact),
                    &inner.to_string(),
                    &run.seed.to_string(),
                    &epoch.to_string(),
                    &format!("{:.4e}", state.difference),
                    &format!("{:.3}", state.accuracy),
                ])?;
            }
        }
    }
    Ok(())
}
