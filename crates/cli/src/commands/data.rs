//! The data side: `pelton index`, `inspect`, `pack`, `probe` and `bench`.

use pelton_train::bench::BenchConfig;
use pelton_train::data_tools::{self, DeviceProbe, ProbeOptions, ProbePattern};

use super::{Failure, bytes_of, print_json, with_console};
use crate::arguments::{
    BenchArguments, IndexArguments, InspectArguments, PackArguments, ProbeArguments,
};
use crate::bytes::{Memory, human};
use crate::console::interrupt_flag;

/// Locates the records of files.
pub fn index(arguments: IndexArguments) -> Result<(), Failure> {
    let config = arguments.format.config(arguments.data);
    let figures = with_console(|observer| data_tools::index(&config, observer))?;
    if arguments.json {
        return print_json(&figures);
    }
    println!("records            {}", figures.records);
    println!("features           {}", figures.features);
    println!("stored values      {}", figures.nonzeros);
    println!("labels             {:?}", figures.labels);
    println!("bytes              {}", human(figures.bytes));
    println!(
        "location table     {} by {}, {:.2} bytes a record",
        human(figures.index_bytes),
        figures.source,
        figures.bytes_per_record
    );
    println!(
        "located            in {:.3} s, {} a second",
        figures.scan_s,
        human(figures.scan_bytes_per_s as u64)
    );
    println!(
        "one random access  reads {:.0} bytes on average, {} at most, rounded out to the device's unit",
        figures.mean_record_bytes, figures.longest_record_bytes
    );
    Ok(())
}

/// Shows one record.
pub fn inspect(arguments: InspectArguments) -> Result<(), Failure> {
    let config = arguments.format.config(arguments.data);
    let view = with_console(|observer| data_tools::inspect(&config, arguments.id, observer))?;
    if arguments.json {
        return print_json(&view);
    }
    println!(
        "record {} of {}: {} bytes at byte {}",
        view.id, view.file, view.length, view.offset
    );
    println!("label {}", view.label);
    const MOST: usize = 64;
    for (index, value) in view.entries.iter().take(MOST) {
        println!("{index:>10}  {value}");
    }
    if view.entries.len() > MOST {
        println!("       ... {} more", view.entries.len() - MOST);
    }
    if let Some(text) = &view.text {
        const MOST_CHARACTERS: usize = 400;
        let short: String = text.chars().take(MOST_CHARACTERS).collect();
        let dots = if short.len() < text.len() { " ..." } else { "" };
        println!("text: {short}{dots}");
    }
    Ok(())
}

/// Writes data as packed rows.
pub fn pack(arguments: PackArguments) -> Result<(), Failure> {
    let config = arguments.format.config(arguments.data);
    let summary = with_console(|observer| {
        data_tools::pack(
            &config,
            &arguments.out,
            arguments.delta,
            arguments.overwrite,
            observer,
        )
    })?;
    let bytes = std::fs::metadata(&arguments.out).map_or(0, |file| file.len());
    if arguments.json {
        return print_json(&serde_json::json!({
            "records": summary.records,
            "bytes": bytes,
            "out": arguments.out,
        }));
    }
    println!(
        "{} records, {} in {}",
        summary.records,
        human(bytes),
        arguments.out.display()
    );
    Ok(())
}

/// Measures the device under a folder.
pub fn probe(arguments: ProbeArguments) -> Result<(), Failure> {
    let options = ProbeOptions {
        file_bytes: bytes_of(arguments.size, "--size")?,
        seconds_per_point: arguments.seconds,
    };
    let probe = with_console(|_| data_tools::probe(&arguments.folder, options))?;
    if arguments.json {
        return print_json(&probe);
    }
    print_probe(&probe);
    Ok(())
}

fn print_probe(probe: &DeviceProbe) {
    if let Some(note) = &probe.note {
        println!("{note}");
    }
    println!("reads a second by block size (rows) and reads in flight (columns)");
    for (pattern, name) in [
        (ProbePattern::Sequential, "sequential"),
        (ProbePattern::Random, "random"),
    ] {
        let mut blocks: Vec<u64> = probe.points.iter().map(|point| point.block_bytes).collect();
        let mut depths: Vec<u32> = probe.points.iter().map(|point| point.depth).collect();
        blocks.sort_unstable();
        blocks.dedup();
        depths.sort_unstable();
        depths.dedup();
        print!("{name:>12}");
        depths.iter().for_each(|depth| print!("{depth:>10}"));
        println!("      best");
        for block in blocks {
            print!("{:>12}", human(block));
            for &depth in &depths {
                let iops = probe.point(pattern, block, depth).map(|point| point.iops);
                print!("{:>10.0}", iops.unwrap_or(f64::NAN));
            }
            let best = probe.best(pattern, block).map_or(0.0, |p| p.bytes_per_s);
            println!("  {}/s", human(best as u64));
        }
    }
    let model = probe.device_model("this device");
    println!();
    println!(
        "LIRS Table 2                      sequential read/write   random read/write (4 KiB IOPS)"
    );
    println!("  WD 10EZEX (HDD)                       40000/36000             600/300");
    println!("  Intel SSD 750                       563000/230000       430000/230000");
    println!("  Intel Optane SSD DC P4800X          614000/512000       550000/500000");
    println!(
        "  this device, measured         {:>13.0}/{:<13.0} {:>7.0}/{:.0}",
        model.sequential_read_iops,
        model.sequential_write_iops,
        model.random_read_iops,
        model.random_write_iops
    );
}

/// Measures how fast batches arrive.
pub fn bench(arguments: BenchArguments) -> Result<(), Failure> {
    let (memory_bytes, memory_share) = match arguments.memory {
        Memory::Bytes(bytes) => (bytes, None),
        Memory::Share(share) => (0, Some(share)),
    };
    let config = BenchConfig {
        data: arguments.format.config(arguments.data),
        order: arguments.order,
        batch: arguments.batch,
        access: arguments.access,
        memory_bytes,
        memory_share,
        epochs: arguments.epochs,
        seed: arguments.seed,
        threads: arguments.threads,
        on_bad_record: arguments.on_bad_record,
        scratch_dir: arguments.scratch.unwrap_or_else(std::env::temp_dir),
        cold: arguments.cold,
    };
    let interrupt = interrupt_flag();
    let report =
        with_console(|observer| pelton_train::bench::bench(&config, &interrupt, observer))?;
    if arguments.json {
        return print_json(&report);
    }
    println!(
        "{:.3e} examples/s, {}/s used, order {} by {}",
        report.examples_per_s,
        human(report.bytes_per_s as u64),
        report.order,
        report.access
    );
    println!(
        "read {}, used {}: amplification {:.3}; written {}",
        human(report.read_bytes),
        human(report.used_bytes),
        report.read_amplification,
        human(report.written_bytes)
    );
    println!(
        "first batch after {:.3} s, {:.1} CPU seconds, peak memory {} (budget {})",
        report.first_batch_s,
        report.cpu_s,
        human(report.peak_rss_bytes),
        human(report.memory_bytes)
    );
    println!(
        "randomness level {:.1} %, exact {:.1} %",
        100.0 * report.rl,
        100.0 * report.rl_exact
    );
    println!("{}", report.verdict);
    Ok(())
}
