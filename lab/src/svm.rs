//! LIRS Tables 3 and 4 and Figures 9 and 10: block minimization with fixed and permuted blocks, LIRS
//! by row and by page, and a shuffle queue.
//!
//! The goal of every method is the least relative difference of block minimization with a new order of blocks every
//! epoch, within its epochs (section 5.1), as the median over seeds. The table also compares a fixed order of blocks.

use std::sync::atomic::Ordering;

use pelton_linear::InnerPasses;
use pelton_run::{Event, Interrupt, RunContext};
use pelton_storage::PAGE_BYTES;
use pelton_train::TrainError;
use serde_json::{Value, json};

use super::convergence::{self, OPTIMUM_GAP, Run, Training, median_epochs, median_epochs_to_best};
use super::data_in_memory::{self, DataInMemory};
use super::measured;
use super::method::Method;
use super::modelled::{self, Times, Way};
use super::raw_runs::RawRuns;
use crate::table::{ReproduceConfig, Reproduction, Row, interrupted, median};

/// LIRS saves 49.9 % of the total time of BMF on HDD on average (abstract), and takes 5.8 times as
/// long on HDD (section 5.2.2).
const AVERAGE_LEFT_ON_OPTANE: f64 = 0.501;
const AVERAGE_ON_HDD: f64 = 5.8;

const RUN_COLUMNS: &str = "data,rows,blocks,method,inner_passes,seed,epoch,relative_difference,accuracy_percent,compute_s";
const TIME_COLUMNS: &str = "data,method,device,total_s,prepare_s,load_s,compute_s,overlap_s,epochs,peak_rss_bytes,limit_bytes";

/// The files of raw runs.
struct Raw {
    runs: RawRuns,
    times: RawRuns,
}

/// The runs of every method.
type Trained = Vec<(Method, Vec<Run>)>;

/// The rows of one data set, by table.
#[derive(Default)]
struct Tables {
    epochs: Vec<Row>,
    accuracy: Vec<Row>,
    curves: Vec<Row>,
    times: Vec<Row>,
}

/// Tables 3 and 4, Figures 9 and 10.
pub(super) fn lirs_svm(
    config: &ReproduceConfig,
    context: &mut RunContext<'_>,
) -> Result<Reproduction, TrainError> {
    let file = |name: &str| config.out.join(name);
    let mut raw = Raw {
        runs: RawRuns::create(&file("lirs-svm-runs.csv"), RUN_COLUMNS)?,
        times: RawRuns::create(&file("lirs-svm-times.csv"), TIME_COLUMNS)?,
    };
    let mut rows = Vec::new();
    let mut notes = vec![
        format!(
            "{} epochs of BMF, {} seeds, medians; the optimum is solved to a relative duality gap of {OPTIMUM_GAP:e}; seed 0 of every method runs all epochs",
            config.experiment.epochs, config.seeds
        ),
        "the paper does not say how often a block is passed over in memory: its figures stand next to all of ours".to_string(),
        "HDD, SSD and Optane are modelled from the rates of LIRS Table 2; computing, and everything of this disk, is measured on this machine".to_string(),
    ];
    for set in &config.experiment.sets {
        let Some(held) = data_in_memory::hold(config, set, context)? else {
            notes.push(format!(
                "{}: left out, because the file does not exist or `scale` is below 0.3",
                set.name
            ));
            continue;
        };
        let tables = one_set(config, &held, &mut raw, &mut notes, context)?;
        rows.extend([tables.epochs, tables.accuracy, tables.curves, tables.times].concat());
    }
    rows.extend(averages(&rows));
    Ok(Reproduction {
        name: config.experiment.name.clone(),
        rows,
        notes,
        files: vec![raw.runs.path(), raw.times.path()],
    })
}

fn one_set(
    config: &ReproduceConfig,
    held: &DataInMemory,
    raw: &mut Raw,
    notes: &mut Vec<String>,
    context: &mut RunContext<'_>,
) -> Result<Tables, TrainError> {
    let optimum = convergence::optimum(held, context.interrupt)?;
    if optimum.relative_gap() > OPTIMUM_GAP {
        let gap = optimum.relative_gap();
        notes.push(format!(
            "{}: the optimum is known to {gap:.1e} only",
            held.name
        ));
    }
    let inner_passes = &config.experiment.inner_passes;
    let mut tables = Tables::default();
    for (done, &inner) in (0..).zip(inner_passes) {
        (context.observer)(Event::Progress {
            what: &held.name,
            done,
            total: inner_passes.len() as u64,
        });
        let (goal, trained) = train_all(config, held, inner, optimum.primal, context.interrupt)?;
        for (method, runs) in &trained {
            write_runs(&mut raw.runs, held, *method, inner, runs)?;
            tables.add(config, held, *method, inner, goal, runs);
        }
        // Times are compared for the reference's own inner passes, listed last.
        if Some(&inner) == inner_passes.last() && held.published.is_some() {
            tables.times = times(config, held, goal, &trained, &mut raw.times, context)?;
        }
    }
    Ok(tables)
}

/// The goal, and the runs of every method towards it.
fn train_all(
    config: &ReproduceConfig,
    held: &DataInMemory,
    inner: InnerPasses,
    optimum: f64,
    interrupt: &Interrupt,
) -> Result<(f64, Trained), TrainError> {
    let records = held.dataset().records();
    let mut training = Training {
        order: Method::BASELINE.order(held.blocks, records),
        unit_records: None,
        inner,
        epochs: config.experiment.epochs,
        optimum,
        // Nothing is below NaN.
        stop_at: f64::NAN,
    };
    let fixed = convergence::runs(held, &[training], config.seeds, interrupt)?.concat();
    let goal = median(fixed.iter().map(Run::best).collect());
    training.stop_at = goal;
    // If every page unit is one row, pages are rows.
    let pages_are_rows = modelled::units(held, PAGE_BYTES).units == records;
    let mut methods = Method::COMPARED[1..].to_vec();
    methods.retain(|method| !(pages_are_rows && *method == Method::LirsPage));
    if held.published.is_none() {
        methods.push(Method::FileOrder);
    }
    let trainings: Vec<Training> = methods
        .iter()
        .map(|method| Training {
            order: method.order(held.blocks, records),
            ..training
        })
        .collect();
    let runs = convergence::runs(held, &trainings, config.seeds, interrupt)?;
    let mut trained = vec![(Method::BASELINE, fixed)];
    for (method, runs) in methods.into_iter().zip(runs) {
        trained.push((method, runs.clone()));
        if pages_are_rows && method == Method::LirsRow {
            trained.push((Method::LirsPage, runs));
        }
    }
    Ok((goal, trained))
}

fn write_runs(
    raw: &mut RawRuns,
    held: &DataInMemory,
    method: Method,
    inner: InnerPasses,
    runs: &[Run],
) -> Result<(), TrainError> {
    let records = held.dataset().records().to_string();
    let method = format!("\"{}\"", method.name());
    for run in runs {
        for (epoch, state) in (1..).zip(&run.epochs) {
            raw.line(&[
                &held.name,
                &records,
                &held.blocks.to_string(),
                &method,
                &inner.to_string(),
                &run.seed.to_string(),
                &format!("{epoch}"),
                &format!("{:.6e}", state.difference),
                &format!("{:.4}", state.accuracy),
                &format!("{:.6}", state.compute_s),
            ])?;
        }
    }
    Ok(())
}

impl Tables {
    fn add(
        &mut self,
        config: &ReproduceConfig,
        held: &DataInMemory,
        method: Method,
        inner: InnerPasses,
        goal: f64,
        runs: &[Run],
    ) {
        let row = Row {
            data: held.name.clone(),
            method: method.name().to_string(),
            inner_passes: Some(inner.to_string()),
            differs: held.differs(),
            ..Row::default()
        };
        let most = config.experiment.epochs;
        let epochs = match median_epochs(runs, goal) {
            // Each seed has its own best; the goal is their median.
            _ if method == Method::BASELINE => json!(median_epochs_to_best(runs)),
            Some(epochs) => json!(epochs),
            None => json!(format!("over {most}")),
        };
        let published_epochs = match (held.published, method) {
            (Some(set), Method::BASELINE) => json!(set.epochs[0]),
            (Some(set), Method::LirsRow) => json!(set.epochs[1]),
            _ => Value::Null,
        };
        self.epochs.push(Row {
            table: "Table 3".to_string(),
            figure: format!("epochs to the best of {most} epochs of BMF"),
            published: published_epochs,
            measured: epochs,
            ..row.clone()
        });
        let accuracy = runs
            .iter()
            .filter_map(|run| Some(run.until(goal).last()?.accuracy));
        let published_accuracy = match (held.published, method) {
            (Some(set), Method::BASELINE) => json!(set.accuracy[0]),
            (Some(set), Method::LirsRow) => json!(set.accuracy[1]),
            _ => Value::Null,
        };
        let of = if held.test.is_some() {
            "test"
        } else {
            "training"
        };
        self.accuracy.push(Row {
            table: "Table 4".to_string(),
            figure: format!("{of} accuracy in percent when the goal of Table 3 is reached"),
            published: published_accuracy,
            measured: json!(median(accuracy.collect())),
            ..row.clone()
        });
        let curve = runs.first().map(|run| {
            let differences = run.epochs.iter().map(|epoch| epoch.difference);
            differences.collect::<Vec<f64>>()
        });
        self.curves.push(Row {
            table: "Figure 9".to_string(),
            figure: "relative difference after each epoch, seed 0".to_string(),
            measured: json!(curve),
            differs: format!("{}; the published curves are drawn only", held.differs()),
            ..row
        });
    }
}

/// Epochs to the goal and seconds of computing in them, medians over seeds.
fn effort(config: &ReproduceConfig, method: Method, goal: f64, runs: &[Run]) -> (f64, f64) {
    let epochs = match median_epochs(runs, goal) {
        _ if method == Method::BASELINE => median_epochs_to_best(runs),
        Some(epochs) => epochs,
        None => config.experiment.epochs as f64,
    };
    let compute = |run: &Run| {
        let seconds = run.epochs.iter().map(|epoch| epoch.compute_s);
        seconds.take(epochs.ceil() as usize).sum::<f64>()
    };
    (epochs, median(runs.iter().map(compute).collect()))
}

fn times(
    config: &ReproduceConfig,
    held: &DataInMemory,
    goal: f64,
    trained: &Trained,
    raw: &mut RawRuns,
    context: &mut RunContext<'_>,
) -> Result<Vec<Row>, TrainError> {
    let mut rows = Vec::new();
    let mut relative = Vec::new();
    let share = config.experiment.memory_share;
    // Rows larger than a page are their own units.
    let differ = |method: &Method| *method != Method::LirsPage || small_rows(held);
    for (device, model) in modelled::devices() {
        for (method, runs) in trained.iter().filter(|(method, _)| differ(method)) {
            let effort = effort(config, *method, goal, runs);
            for &way in Way::of(*method) {
                let times = modelled::times(held, *method, way, &model, share, effort)?;
                let name = format!("{}{}", method.name(), way.name(*method));
                write_times(
                    raw,
                    held,
                    &name,
                    &format!("{device} (modelled)"),
                    times,
                    None,
                )?;
                rows.push(time_row(held, &name, &format!("{device}, modelled"), times));
                relative.push((*method, way, device, times.total_s));
            }
        }
    }
    let relative = relative_rows(held, &relative);
    if config.program.is_none() {
        return Ok([rows, relative].concat());
    }
    for (method, runs) in trained.iter().filter(|(method, _)| differ(method)) {
        let (epochs, _) = effort(config, *method, goal, runs);
        for access in measured::paths(*method) {
            (context.observer)(Event::Progress {
                what: "this disk",
                done: rows.len() as u64,
                total: rows.len() as u64 + 1,
            });
            let is_ours = *method == Method::LirsRow && *access != "direct";
            let ours = if is_ours { " [ours]" } else { "" };
            let name = format!("{} by {access}{ours}", method.name());
            let epochs = epochs.ceil() as u64;
            let found = held.kept(
                &format!("{name}, {epochs} epochs, memory {share}, on this disk"),
                || {
                    measured::train(config, held, *method, access, epochs, context.interrupt)
                        .map_err(TrainError::config)
                },
            );
            if context.interrupt.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            match found {
                Ok(found) => {
                    write_times(raw, held, &name, "this disk", found.times, Some(&found))?;
                    let mut row = time_row(held, &name, "this disk, measured", found.times);
                    row.differs = format!(
                        "{}, memory {:.0} % of the data; {}; a checkpoint of w and the dual variables after each epoch counts as computing",
                        row.differs,
                        100.0 * found.memory_share,
                        found.cache
                    );
                    rows.push(row);
                }
                Err(problem) => (context.observer)(Event::Note(&format!(
                    "{}, {name}: this disk is not measured: {problem}",
                    held.name
                ))),
            }
        }
    }
    Ok([rows, relative].concat())
}

fn small_rows(held: &DataInMemory) -> bool {
    held.published.is_some_and(|set| set.pages.is_some())
}

fn write_times(
    raw: &mut RawRuns,
    held: &DataInMemory,
    method: &str,
    device: &str,
    times: Times,
    measured: Option<&measured::Measured>,
) -> Result<(), TrainError> {
    let seconds = |value: f64| format!("{value:.6}");
    let bytes = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
    raw.line(&[
        &held.name,
        &format!("\"{method}\""),
        device,
        &seconds(times.total_s),
        &seconds(times.prepare_s),
        &seconds(times.load_s),
        &seconds(times.compute_s),
        &seconds(times.overlap_s),
        &times.epochs.to_string(),
        &bytes(measured.map(|found| found.peak_rss_bytes)),
        &bytes(measured.and_then(|found| found.limit_bytes)),
    ])
}

fn time_row(held: &DataInMemory, method: &str, device: &str, times: Times) -> Row {
    Row {
        table: "Figure 10".to_string(),
        data: held.name.clone(),
        method: format!("{method}: {device}"),
        figure: "seconds to the goal of Table 3".to_string(),
        measured: json!(times),
        differs: format!("{}; the published times are drawn only", held.differs()),
        ..Row::default()
    }
}

/// The time of LIRS on Optane and on HDD divided by that of BMF on HDD, as the paper states times.
fn relative_rows(held: &DataInMemory, totals: &[(Method, Way, &str, f64)]) -> Vec<Row> {
    let total = |method: Method, way: Way, device: &str| {
        let mut totals = totals.iter();
        totals
            .find(|found| (found.0, found.1, found.2) == (method, way, device))
            .map_or(f64::NAN, |found| found.3)
    };
    let base = total(Method::BASELINE, Way::Gathered, "HDD");
    // The paper shuffles rows smaller than a page by pages.
    let method = if small_rows(held) {
        Method::LirsPage
    } else {
        Method::LirsRow
    };
    ["Optane", "HDD"]
        .into_iter()
        .map(|device| {
            let saved = held.published.filter(|_| device == "Optane");
            let left = saved.map(|set| (1000.0 - 10.0 * set.saved_on_optane).round() / 1000.0);
            Row {
                table: "Figure 10".to_string(),
                data: held.name.clone(),
                method: format!("{}: {device}, modelled", method.name()),
                figure: "total time over that of BMF on HDD".to_string(),
                published: json!(left),
                measured: json!(total(method, Way::Published, device) / base),
                differs: format!(
                    "{}; modelled devices, and computing as fast as here",
                    held.differs()
                ),
                ..Row::default()
            }
        })
        .collect()
}

/// The averages over data sets stated in the paper.
fn averages(rows: &[Row]) -> Vec<Row> {
    let mean = |device: &str| {
        let of_device = rows
            .iter()
            .filter(|row| row.figure.starts_with("total time over") && row.method.contains(device));
        let values: Vec<f64> = of_device.filter_map(|row| row.measured.as_f64()).collect();
        values.iter().sum::<f64>() / values.len() as f64
    };
    let row = |device: &str, published: f64, what: &str| Row {
        table: "Figure 10".to_string(),
        data: "mean of the four sets".to_string(),
        method: format!("LIRS: {device}, modelled"),
        figure: "total time over that of BMF on HDD".to_string(),
        published: json!(published),
        measured: json!(mean(device)),
        differs: format!("generated data; modelled devices; {what}"),
        ..Row::default()
    };
    vec![
        row(
            "Optane",
            AVERAGE_LEFT_ON_OPTANE,
            "published as 49.9 % saved",
        ),
        row("HDD", AVERAGE_ON_HDD, "published as 5.8 times longer"),
    ]
}
