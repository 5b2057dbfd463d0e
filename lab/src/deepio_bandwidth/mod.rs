//! DeepIO Figures 10 to 12: bytes a second into the batches of all ranks from their own memory, from that of others,
//! from memory and backend together, and from the backend alone; and the predictions of [`crate::node_capacity`] for
//! more nodes.
//!
//! The backend is modelled: one node's share of the paper's parallel file system for each rank, in real time, over
//! files in the page cache. Ranks are threads; `bench/results` compares the same reads under MPI with a bare loop of
//! `MPI_Get`.

mod predicted;
mod read_path;
mod records;

use std::sync::atomic::Ordering;

use pelton_comm::run_ranks;
use pelton_data::DataConfig;
use pelton_fetch::{Access, OnBadRecord};
use pelton_plan::Order;
use pelton_run::{Event, Interrupt, RunContext};
use pelton_storage::LocalMode;
use pelton_tools::bench::{BenchConfig, BenchReport, PeerMode, bench};
use pelton_train::TrainError;

use super::experiment::SetConfig;
use super::raw_runs::RawRuns;
use crate::kept::{Kept, key_at_commit};
use crate::table::{ReproduceConfig, Reproduction, Row, interrupted};
use read_path::{Measured, ReadPath, Shape, row};

const COLUMNS: &str = "data,ranks,pipeline,memory,seed,epochs,bytes_per_s,wall_s,load_s,read_s,decode_s,\
                       local_bytes,remote_bytes,backend_bytes,used_bytes,rl,rl_exact,order";
/// Bytes of all records of a global batch, over all ranks.
const BATCH_BYTES: u64 = 512 << 10;
/// Fewest batches and units of an epoch, so that a load of scaled-down data still has several.
const LEAST_BATCHES: u64 = 128;
const LEAST_UNITS: u64 = 192;
/// Share of the data in memory when comparing numbers of loads.
const TRADED_AT: f64 = 0.25;
/// Memory for the look-ahead of each rank's feed.
const FEED_BYTES: u64 = 16 << 20;

pub(super) fn deepio_bandwidth(
    config: &ReproduceConfig,
    context: &mut RunContext<'_>,
) -> Result<Reproduction, TrainError> {
    let mut raw = RawRuns::create(&config.out.join("deepio-bandwidth-runs.csv"), COLUMNS)?;
    let mut kept = Kept::open(&config.out)?;
    let mut rows = Vec::new();
    for set in &config.experiment.sets {
        let (data, record_bytes, records) = records::records(config, set)?;
        let unit_bytes = config.experiment.units.first().copied().unwrap_or(1 << 20);
        let shape = Shape {
            batch: (BATCH_BYTES / record_bytes)
                .min(records / LEAST_BATCHES)
                .max(1),
            unit_bytes: unit_bytes.min(record_bytes * records / LEAST_UNITS),
        };
        let measured = one_set(config, set, &data, shape, (&mut raw, &mut kept), context)?;
        rows.extend(bandwidths(set, &measured));
        rows.extend(gains(set, &measured));
        rows.extend(predicted::rows(set, shape, &measured));
    }
    Ok(Reproduction {
        name: config.experiment.name.clone(),
        rows,
        notes: notes(),
        files: vec![raw.path()],
    })
}

fn notes() -> Vec<String> {
    vec![
        "backend: modelled in real time, a node's share of DeepIO's parallel file system for each rank: 4662.49 MB/s over 16 nodes; its rate of small reads is not published and assumed to be that of hard disks (LIRS Table 2) with that bandwidth in all".to_string(),
        "ranks are threads that share this machine's cores and memory, so that rates do not grow with their number beyond it".to_string(),
        "ordered mode and the backend alone read what each rank's look-ahead of 16 MiB asks for sorted by place, so that some records follow each other; the model has a read at a random place for each".to_string(),
        "bytes a second are bytes of records in batches over the seconds of an epoch, of opportunistic mode over those of three; filling memory before the first batch is not in them: all data where it fits, the part that stays, the first load".to_string(),
        "opportunistic mode takes the fewest loads that fit in memory by twos, or the number named: then the memory that two of them leave free holds the same part of every unit for the whole run".to_string(),
        predicted::ASSUMPTIONS.to_string(),
    ]
}

fn one_set(
    config: &ReproduceConfig,
    set: &SetConfig,
    data: &DataConfig,
    shape: Shape,
    (raw, kept): (&mut RawRuns, &mut Kept),
    context: &mut RunContext<'_>,
) -> Result<Vec<Measured>, TrainError> {
    let experiment = &config.experiment;
    let mut ways = vec![ReadPath::Anywhere, ReadPath::Near];
    for &memory in experiment.memory.iter().filter(|memory| **memory < 1.0) {
        ways.push(ReadPath::Hybrid(PeerMode::Ordered, memory));
        let in_loads = |loads| ReadPath::Hybrid(PeerMode::Opportunistic { loads }, memory);
        ways.push(in_loads(None));
        if memory == TRADED_AT {
            ways.extend(experiment.loads.iter().map(|&loads| in_loads(Some(loads))));
        }
    }
    ways.push(ReadPath::Backend);
    let mut all = Vec::new();
    for &ranks in &experiment.ranks {
        all.extend(ways.iter().map(|&way| Measured {
            ranks,
            way,
            runs: Vec::new(),
        }));
    }
    let total = config.seeds * all.len() as u64;
    let mut done = 0;
    // Read paths take turns, so that a slow moment of the machine affects all.
    for seed in 0..config.seeds {
        for measured in &mut all {
            let what = format!(
                "{} at scale {}, {shape:?}, {} ranks, {:?}, seed {seed}",
                set.name, config.scale, measured.ranks, measured.way
            );
            let key = key_at_commit(&what);
            let report = match kept.get(&key) {
                Some(report) => report,
                None => {
                    let report = run(data, measured, shape, seed, context.interrupt)?;
                    if context.interrupt.load(Ordering::Relaxed) {
                        return Err(interrupted());
                    }
                    kept.keep(&key, &report)?;
                    report
                }
            };
            write_raw(raw, set, measured, seed, &report)?;
            measured.runs.push(report);
            done += 1;
            let what = &set.name;
            (context.observer)(Event::Progress { what, done, total });
        }
    }
    Ok(all)
}

fn run(
    data: &DataConfig,
    measured: &Measured,
    shape: Shape,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<BenchReport, TrainError> {
    let config = BenchConfig {
        data: DataConfig {
            io: LocalMode::Buffered,
            device_model: Some("pfs".to_string()),
            ..data.clone()
        },
        order: Order::Full,
        batch: Some(shape.batch),
        access: Access::Direct,
        memory_bytes: FEED_BYTES,
        memory_share: None,
        epochs: measured.way.epochs(),
        seed,
        threads: 2,
        on_bad_record: OnBadRecord::Fail,
        scratch_dir: std::env::temp_dir(),
        cold: false,
        stages: None,
        cache: measured.way.peers(shape.unit_bytes),
    };
    let reports = run_ranks(measured.ranks, |comm| {
        bench(&config, RunContext::new(&comm, interrupt, &mut |_| {}))
    });
    let reports = reports.map_err(|failed| failed.source)?;
    Ok(reports.into_iter().next().expect("there is a rank 0"))
}

fn write_raw(
    raw: &mut RawRuns,
    set: &SetConfig,
    measured: &Measured,
    seed: u64,
    report: &BenchReport,
) -> Result<(), TrainError> {
    raw.line(&[
        &set.name,
        &measured.ranks.to_string(),
        &format!("\"{}\"", measured.way.name()),
        &measured.way.memory().to_string(),
        &seed.to_string(),
        &measured.way.epochs().to_string(),
        &format!("{:.0}", report.bytes_per_s),
        &format!("{:.6}", report.taking_s()),
        &format!("{:.6}", report.load_s),
        &format!("{:.6}", report.read_s),
        &format!("{:.6}", report.decode_s),
        &report.local_bytes.to_string(),
        &report.remote_bytes.to_string(),
        &report.backend_bytes.to_string(),
        &report.used_bytes.to_string(),
        &format!("{:.6}", report.rl.unwrap_or(f64::NAN)),
        &format!("{:.6}", report.rl_exact.unwrap_or(f64::NAN)),
        &report.order,
    ])
}

/// Rates, bytes moved, and the randomness of each order.
fn bandwidths(set: &SetConfig, all: &[Measured]) -> Vec<Row> {
    let mut rows = Vec::new();
    let what = "the paper shows its figures as pictures only; other machine, ranks as threads, backend modelled";
    let name = |measured: &Measured| match measured.ranks {
        1 => format!("1 rank, {}", measured.way.name()),
        ranks => format!("{ranks} ranks, {}", measured.way.name()),
    };
    let mut figure = |title: &str, value: &dyn Fn(&BenchReport) -> f64| {
        let of =
            |measured: &Measured| row(set, name(measured), title, measured.median(value), what);
        rows.extend(all.iter().map(of));
    };
    figure("MB a second into batches", &|run| run.bytes_per_s / 1e6);
    figure(
        "share of the bytes from memory that others hold, in percent",
        &|run| {
            let served = (run.local_bytes + run.remote_bytes).max(1);
            100.0 * run.remote_bytes as f64 / served as f64
        },
    );
    figure("bytes read from the backend over bytes used", &|run| {
        run.backend_bytes as f64 / run.used_bytes.max(1) as f64
    });
    figure("seconds of the ranks' threads waiting for bytes", &|run| {
        run.read_s
    });
    figure("seconds of the ranks' threads decoding", &|run| {
        run.decode_s
    });
    figure("seconds of filling memory", &|run| run.load_s);
    figure("randomness level RL, in percent", &|run| {
        100.0 * run.rl.unwrap_or(f64::NAN)
    });
    figure("exact randomness level RL*, in percent", &|run| {
        100.0 * run.rl_exact.unwrap_or(f64::NAN)
    });
    rows
}

/// The rate of opportunistic mode over that of ordered mode.
fn gains(set: &SetConfig, all: &[Measured]) -> Vec<Row> {
    let rate = |measured: &Measured| measured.median(|run| run.bytes_per_s);
    let mut rows = Vec::new();
    for measured in all {
        let ReadPath::Hybrid(PeerMode::Opportunistic { loads }, memory) = measured.way else {
            continue;
        };
        let other = ReadPath::Hybrid(PeerMode::Ordered, memory);
        let ordered = all
            .iter()
            .find(|other_run| other_run.way == other && other_run.ranks == measured.ranks);
        if let Some(ordered) = ordered {
            let loads = loads.map_or_else(String::new, |loads| format!(" in {loads} loads"));
            let ranks = measured.ranks;
            let method = format!("ranks {ranks}, memory {memory} of the data{loads}");
            let figure = "rate of opportunistic mode over that of ordered mode";
            let gain = rate(measured) / rate(ordered);
            rows.push(row(set, method, figure, gain, "backend modelled"));
        }
    }
    rows
}

#[cfg(test)]
mod tests;
