//! LIRS Figure 11: shuffling rows, pages and larger units of rows smaller than a page.
//!
//! The paper reads two pages for every page unit, because the last row of a page may extend to the next one. Here
//! a unit is cut at row boundaries and read as one range: a unit of u pages touches at most u + 1, and only the
//! first is a random read.

use std::sync::atomic::Ordering;

use pelton_comm::Comm;
use pelton_data::DataConfig;
use pelton_fetch::{Access, OnBadRecord};
use pelton_plan::Order;
use pelton_run::{Event, Interrupt, RunContext};
use pelton_storage::{DeviceModel, DeviceUse, LocalMode, PAGE_BYTES};
use pelton_tools::bench::{BenchConfig, BenchReport, bench};
use pelton_train::TrainError;
use serde_json::{Value, json};

use super::convergence::{self, Run, Training, median_epochs};
use super::data_in_memory::{self, DataInMemory};
use super::method::Method;
use super::modelled::{self, UnitPages, Way};
use super::published::PublishedPages;
use super::raw_runs::RawRuns;
use crate::table::{ReproduceConfig, Reproduction, Row, interrupted, median};

const COLUMNS: &str = "data,unit_bytes,units,pages_touched,data_pages,epochs,compute_s,\
                       disk_load_s,disk_read_bytes,disk_used_bytes";

/// One size of units on one data set.
struct Unit {
    bytes: u64,
    counted: UnitPages,
    /// Epochs to the goal; all epochs run if it was not reached.
    epochs: f64,
    reached: bool,
    /// Seconds of computing until then.
    compute_s: f64,
    disk: Option<BenchReport>,
}

pub(super) fn lirs_pages(
    config: &ReproduceConfig,
    context: &mut RunContext<'_>,
) -> Result<Reproduction, TrainError> {
    let mut raw = RawRuns::create(&config.out.join("lirs-pages-runs.csv"), COLUMNS)?;
    let mut rows = Vec::new();
    for set in &config.experiment.sets {
        let held = data_in_memory::hold(config, set, context)?;
        let Some((held, pages)) = held.and_then(|held| {
            let pages = held.published?.pages?;
            Some((held, pages))
        }) else {
            return Err(TrainError::config(format!(
                "{}: Figure 11 has no such set; use kdd or higgs",
                set.name
            )));
        };
        rows.extend(one_set(config, &held, pages, &mut raw, context)?);
    }
    Ok(Reproduction {
        name: config.experiment.name.clone(),
        rows,
        notes: vec![
            "a unit is cut at row boundaries and read as one range; the paper reads each page unit and the page after it".to_string(),
            "HDD, SSD and Optane are modelled from the rates of LIRS Table 2; reading from this disk is measured with direct reads, the page cache emptied".to_string(),
        ],
        files: vec![raw.path()],
    })
}

fn one_set(
    config: &ReproduceConfig,
    held: &DataInMemory,
    published: PublishedPages,
    raw: &mut RawRuns,
    context: &mut RunContext<'_>,
) -> Result<Vec<Row>, TrainError> {
    let records = held.dataset().records();
    let mut training = Training {
        order: Method::BASELINE.order(held.blocks, records),
        unit_records: None,
        inner: config.experiment.inner_passes[0],
        epochs: config.experiment.epochs,
        optimum: convergence::optimum(held, context.interrupt)?.primal,
        stop_at: f64::NAN,
    };
    let bmf = convergence::runs(held, &[training], config.seeds, context.interrupt)?.concat();
    let goal = median(bmf.iter().map(Run::best).collect());
    training.stop_at = goal;
    let mut sizes = config.experiment.units.clone();
    sizes.retain(|&bytes| {
        let enough = modelled::units(held, bytes).units >= held.blocks;
        if !enough {
            let note = format!(
                "{}, {}: fewer than blocks, left out",
                held.name,
                unit_name(bytes)
            );
            (context.observer)(Event::Note(&note));
        }
        enough
    });
    let trainings: Vec<Training> = sizes
        .iter()
        .map(|&bytes| Training {
            order: order(bytes),
            ..training
        })
        .collect();
    let trained = convergence::runs(held, &trainings, config.seeds, context.interrupt)?;
    let mut units = Vec::new();
    for (done, (&bytes, runs)) in sizes.iter().zip(&trained).enumerate() {
        (context.observer)(Event::Progress {
            what: &held.name,
            done: done as u64,
            total: sizes.len() as u64,
        });
        let unit = measure(config, held, bytes, goal, runs, context);
        if context.interrupt.load(Ordering::Relaxed) {
            return Err(interrupted());
        }
        write_raw(raw, held, &unit)?;
        units.push(unit);
    }
    let mut rows = Vec::new();
    for unit in &units {
        rows.extend(unit_rows(held, unit));
    }
    rows.sort_by(|a, b| a.figure.cmp(&b.figure));
    rows.extend(against_published(config, held, published, &bmf, &units)?);
    Ok(rows)
}

fn order(unit_bytes: u64) -> Order {
    match unit_bytes {
        0 => Order::Full,
        unit_bytes => Order::Page { unit_bytes },
    }
}

fn measure(
    config: &ReproduceConfig,
    held: &DataInMemory,
    bytes: u64,
    goal: f64,
    runs: &[Run],
    context: &mut RunContext<'_>,
) -> Unit {
    let reached = median_epochs(runs, goal);
    let epochs = reached.unwrap_or(config.experiment.epochs as f64);
    let compute = |run: &Run| {
        let seconds = run.epochs.iter().map(|epoch| epoch.compute_s);
        seconds.take(epochs.ceil() as usize).sum::<f64>()
    };
    let disk = match read_from_disk(config, held, bytes, context.interrupt) {
        Ok(report) => Some(report),
        Err(error) => {
            let note = format!("{}: this disk is not measured: {error}", held.name);
            (context.observer)(Event::Note(&note));
            None
        }
    };
    Unit {
        bytes,
        counted: modelled::units(held, bytes),
        epochs,
        reached: reached.is_some(),
        compute_s: median(runs.iter().map(compute).collect()),
        disk,
    }
}

/// One epoch of the feed, past the page cache: rows by separate reads, units as ranges.
fn read_from_disk(
    config: &ReproduceConfig,
    held: &DataInMemory,
    unit_bytes: u64,
    interrupt: &Interrupt,
) -> Result<BenchReport, TrainError> {
    let access = match unit_bytes {
        0 => Access::Direct,
        _ => Access::Window { gap_bytes: Some(0) },
    };
    let bench_config = BenchConfig {
        data: DataConfig {
            io: LocalMode::Direct,
            ..held.config.clone()
        },
        order: order(unit_bytes),
        batch: Some(held.dataset().records().div_ceil(held.blocks)),
        access,
        memory_bytes: modelled::memory_bytes(held, config.experiment.memory_share),
        memory_share: None,
        epochs: 1,
        seed: 0,
        threads: 3,
        on_bad_record: OnBadRecord::Fail,
        scratch_dir: config.out.clone(),
        cold: true,
        stages: None,
        cache: None,
    };
    let comm = Comm::alone();
    let nobody = &mut |_: Event<'_>| {};
    Ok(bench(
        &bench_config,
        RunContext::new(&comm, interrupt, nobody),
    )?)
}

fn write_raw(raw: &mut RawRuns, held: &DataInMemory, unit: &Unit) -> Result<(), TrainError> {
    let disk = |value: fn(&BenchReport) -> String| unit.disk.as_ref().map_or(String::new(), value);
    raw.line(&[
        &held.name,
        &unit.bytes.to_string(),
        &unit.counted.units.to_string(),
        &unit.counted.pages.to_string(),
        &held.dataset().bytes().div_ceil(PAGE_BYTES).to_string(),
        &unit.epochs.to_string(),
        &format!("{:.6}", unit.compute_s),
        &disk(|report| format!("{:.6}", report.wall_s)),
        &disk(|report| report.read_bytes.to_string()),
        &disk(|report| report.used_bytes.to_string()),
    ])
}

fn unit_name(bytes: u64) -> String {
    match bytes {
        0 => "rows".to_string(),
        bytes => format!("units of {} KiB", bytes >> 10),
    }
}

/// The paper's reads of a unit: each of its pages and the one after them, at random.
fn as_published(held: &DataInMemory, unit_bytes: u64) -> DeviceUse {
    let units = held.dataset().bytes().div_ceil(unit_bytes);
    DeviceUse {
        random_read_pages: 2 * units,
        sequential_read_pages: units * (unit_bytes.div_ceil(PAGE_BYTES) - 1),
        ..DeviceUse::default()
    }
}

fn unit_rows(held: &DataInMemory, unit: &Unit) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |method: String, figure: &str, measured: Value, what: &str| {
        rows.push(Row {
            table: "Figure 11".to_string(),
            data: held.name.clone(),
            method,
            figure: figure.to_string(),
            measured,
            differs: format!("{}; {what}", held.differs()),
            ..Row::default()
        });
    };
    let name = unit_name(unit.bytes);
    let data_pages = held.dataset().bytes() as f64 / PAGE_BYTES as f64;
    let mut schemes = vec![(name.clone(), unit.counted.ranges())];
    if unit.bytes > 0 {
        schemes.push((
            format!("{name}, page after it read too"),
            as_published(held, unit.bytes),
        ));
    }
    for (scheme, used) in schemes {
        let pages = (used.random_read_pages + used.sequential_read_pages) as f64;
        let what = "counted from the rows' places, in 4 KiB pages";
        row(
            scheme.clone(),
            "pages read over pages of the data",
            json!(pages / data_pages),
            what,
        );
        for (device, model) in modelled::devices() {
            let figure = format!("loading seconds an epoch on {device} (modelled)");
            row(
                scheme.clone(),
                &figure,
                json!(model.seconds(&used)),
                "modelled",
            );
        }
    }
    let epochs = if unit.reached {
        json!(unit.epochs)
    } else {
        json!(format!("over {}", unit.epochs))
    };
    row(
        name.clone(),
        "epochs to the best of BMF",
        epochs,
        "median over seeds",
    );
    if let Some(disk) = &unit.disk {
        let what = "measured, direct reads, page cache emptied";
        let figure = "loading seconds an epoch on this disk (measured)";
        row(name.clone(), figure, json!(disk.wall_s), what);
        let figure = "bytes read over bytes used on this disk (measured)";
        row(name, figure, json!(disk.read_amplification), what);
    }
    rows
}

/// The figures with numbers in the paper: 4 KiB pages against rows and against BMF, on Optane.
fn against_published(
    config: &ReproduceConfig,
    held: &DataInMemory,
    published: PublishedPages,
    bmf: &[Run],
    units: &[Unit],
) -> Result<Vec<Row>, TrainError> {
    let find = |bytes: u64| units.iter().find(|unit| unit.bytes == bytes);
    let (Some(rows), Some(pages)) = (find(0), find(PAGE_BYTES)) else {
        return Ok(Vec::new());
    };
    let optane = DeviceModel::optane();
    let load = |unit: &Unit, used: DeviceUse| unit.epochs * optane.seconds(&used);
    let epochs = config.experiment.epochs as f64;
    let compute = |run: &Run| run.epochs.iter().map(|epoch| epoch.compute_s).sum::<f64>();
    let effort = (epochs, median(bmf.iter().map(compute).collect()));
    let share = config.experiment.memory_share;
    let bmf = modelled::times(
        held,
        Method::BASELINE,
        Way::Gathered,
        &optane,
        share,
        effort,
    )?;
    let scan = modelled::times(
        held,
        Method::LirsPage,
        Way::Published,
        &optane,
        share,
        (0.0, 0.0),
    )?;
    let mut found = Vec::new();
    let mut row = |method: &str, figure: &str, published: Value, measured: Value| {
        found.push(Row {
            table: "Figure 11".to_string(),
            data: held.name.clone(),
            method: method.to_string(),
            figure: figure.to_string(),
            published,
            measured,
            differs: format!(
                "{}; modelled device, computing as fast as here",
                held.differs()
            ),
            ..Row::default()
        });
    };
    let percent = |saved: f64| json!((1000.0 * saved).round() / 10.0);
    let schemes = [
        (
            "4 KiB units, page after it read too",
            as_published(held, PAGE_BYTES),
            true,
        ),
        ("4 KiB units, one range each", pages.counted.ranges(), false),
    ];
    for (scheme, used, is_published) in schemes {
        let adjacent = |value: f64| {
            if is_published {
                json!(value)
            } else {
                Value::Null
            }
        };
        let page_load = load(pages, used);
        let saved = 1.0 - page_load / load(rows, rows.counted.ranges());
        let figure = "loading time saved against rows on Optane, in percent (modelled)";
        row(
            scheme,
            figure,
            adjacent(published.loading_saved),
            percent(saved),
        );
        let total = scan.prepare_s + page_load + pages.compute_s;
        let figure = "total time saved against BMF on Optane, in percent (modelled)";
        row(
            scheme,
            figure,
            adjacent(published.total_saved),
            percent(1.0 - total / bmf.total_s),
        );
    }
    row(
        "4 KiB units",
        "epochs more than rows need",
        json!(published.more_epochs),
        json!(pages.epochs - rows.epochs),
    );
    Ok(found)
}
