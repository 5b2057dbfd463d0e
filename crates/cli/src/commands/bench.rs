//! `pelton bench`.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::anyhow;
use pelton_tools::bench::{self, BenchConfig, BenchReport, StagesConfig};
use pelton_tools::{BadExamples, PipelineConfig};
use pelton_train::{OnBadRecord, memory_budget};

use crate::arguments::BenchArguments;
use crate::bytes::{Memory, human};
use crate::flags;
use crate::output::{Failure, print_json, print_with, usage};
use crate::ranks;
use crate::stage_arguments::StagesArguments;

/// Default bytes of a rank's feed, if the machine has them.
const USUAL_MEMORY: u64 = 256 << 20;

/// Measures how fast batches arrive.
pub fn bench(arguments: BenchArguments) -> Result<(), Failure> {
    let ranks = ranks::asked(arguments.ranks)?;
    let (memory_bytes, memory_share) = match arguments.memory {
        Some(Memory::Bytes(bytes)) => (bytes, None),
        Some(Memory::Share(share)) => (0, Some(share)),
        None => (memory_budget(USUAL_MEMORY, ranks), None),
    };
    let mut data = arguments.format.config(arguments.data);
    data.pair = arguments.stages.pair.clone();
    let stages = stages_of(arguments.stages, arguments.on_bad_record)?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let config = BenchConfig {
        data,
        order: arguments.order,
        batch: arguments.batch,
        access: arguments.access,
        memory_bytes,
        memory_share,
        epochs: arguments.epochs,
        seed: arguments.seed,
        threads: arguments
            .threads
            .unwrap_or(if stages.is_some() { processors } else { 3 }),
        on_bad_record: rows_policy(arguments.on_bad_record),
        scratch_dir: arguments.scratch.unwrap_or_else(std::env::temp_dir),
        stages,
        cold: arguments.cold,
        cache: arguments.peers.config().map_err(usage)?,
    };
    let report = ranks::run(ranks, |context| bench::bench(&config, context));
    let Some(mut report) = report? else {
        return Ok(());
    };
    report.verdict = flags::named(&report.verdict);
    if arguments.json {
        return print_json(&report);
    }
    print_with(|out| {
        writeln!(
            out,
            "{:.3e} examples/s, {}/s used, order {} by {}",
            report.examples_per_s,
            human(report.bytes_per_s as u64),
            report.order,
            report.access
        )?;
        writeln!(
            out,
            "read {}, used {}: amplification {:.3}; written {}",
            human(report.read_bytes),
            human(report.used_bytes),
            report.read_amplification,
            human(report.written_bytes)
        )?;
        write_stages(out, &report)?;
        if let Some(pipeline) = &report.pipeline {
            let served = (report.local_bytes + report.remote_bytes).max(1) as f64;
            writeln!(
                out,
                "peers' memory {pipeline}: read {} from the rank's own, {} from other ranks' ({:.1} %), {} from the backend; filled in {:.3} s",
                human(report.local_bytes),
                human(report.remote_bytes),
                100.0 * report.remote_bytes as f64 / served,
                human(report.backend_bytes),
                report.load_s
            )?;
        }
        writeln!(
            out,
            "{:.3} s: opened after {:.3} s, first batch after {:.3} s; {:.1} CPU seconds, peak memory {} (budget {}{})",
            report.wall_s,
            report.open_s,
            report.first_batch_s,
            report.cpu_s,
            human(report.peak_rss_bytes),
            human(report.memory_bytes),
            match report.resident_bytes {
                0 => String::new(),
                bytes => format!(", with {} of files", human(bytes)),
            }
        )?;
        writeln!(
            out,
            "randomness level {}, exact {}",
            percent(report.rl),
            percent(report.rl_exact)
        )?;
        writeln!(out, "{}", report.verdict)?;
        Ok(())
    })
}

fn percent(level: Option<f64>) -> String {
    match level {
        Some(level) => format!("{:.1} %", 100.0 * level),
        None => "not known".to_owned(),
    }
}

/// Writes the work of the stages, if there were any.
fn write_stages(out: &mut dyn Write, report: &BenchReport) -> io::Result<()> {
    if report.batch_bytes == 0 {
        return Ok(());
    }
    write!(
        out,
        "{} fresh and {} echoed examples, batches of {} in total",
        report.fresh_examples,
        report.echoed_examples,
        human(report.batch_bytes)
    )?;
    if report.padded_fraction > 0.0 {
        write!(out, ", {:.2} % padding", 100.0 * report.padded_fraction)?;
    }
    if report.dropped > 0 {
        write!(out, ", {} left out by --last drop", report.dropped)?;
    }
    let bad = report.skipped_records + report.replaced_records;
    if bad > 0 {
        write!(out, ", {bad} bad")?;
    }
    writeln!(out)?;
    let drawn: Vec<u64> = report.mixture.iter().copied().filter(|&n| n > 0).collect();
    match (
        report.distinct_records,
        drawn.iter().min(),
        drawn.iter().max(),
    ) {
        (None, Some(_), _) => writeln!(out, "examples of each file: {:?}", report.mixture)?,
        (Some(_), Some(least), Some(most)) => {
            writeln!(
                out,
                "{least} to {most} examples of each of {} classes",
                drawn.len()
            )?;
        }
        _ => {}
    }
    if let Some(distinct) = report.distinct_records {
        writeln!(out, "{distinct} different records in the first epoch")?;
    }
    for stage in &report.stages {
        writeln!(
            out,
            "  {:<8} {} threads, {:>8.3} s busy ({:>3.0} %), {:>9} examples",
            stage.name,
            stage.threads,
            stage.busy_s,
            100.0 * stage.occupancy(report.taking_s()),
            stage.records
        )?;
    }
    Ok(())
}

/// The requested stages; `None` if no flag names one.
fn stages_of(
    arguments: StagesArguments,
    bad_examples: BadExamples,
) -> Result<Option<StagesConfig>, Failure> {
    let StagesArguments {
        pipeline,
        pair: _,
        compute_ms,
        metrics,
        state,
        log,
    } = arguments;
    let any = pipeline.any()
        || compute_ms.is_some()
        || metrics.is_some()
        || state.is_some()
        || matches!(bad_examples, BadExamples::Replace { .. });
    let compute_ms = compute_ms.unwrap_or(0.0);
    if !(0.0..=1e6).contains(&compute_ms) {
        return Err(usage(anyhow!(
            "--compute-ms {compute_ms} is out of range; give 0 to 1000000 milliseconds"
        )));
    }
    Ok(any.then(|| StagesConfig {
        pipeline: {
            let mut config = PipelineConfig {
                bad_examples,
                ..PipelineConfig::default()
            };
            pipeline.apply(&mut config);
            config
        },
        compute: Duration::from_secs_f64(compute_ms / 1000.0),
        metrics,
        state,
        log,
    }))
}

/// The policy of a feed without stages; only stages can replace an example.
fn rows_policy(policy: BadExamples) -> OnBadRecord {
    match policy {
        BadExamples::Skip { limit } => OnBadRecord::Skip { limit },
        BadExamples::Fail | BadExamples::Replace { .. } => OnBadRecord::Fail,
    }
}
