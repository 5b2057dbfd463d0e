//! How fast a text file is scanned, against `wc`, and parsed by one thread.
//!
//! `cargo run --release -p pelton-format --example format_speed -- [--format FORMAT] FILE…` prints for each file the
//! median of five runs on a warm page cache, and each of them. It compares streams of tokens with `wc -w`, which counts
//! words, and others with `wc -l`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use pelton_format::{Dataset, FormatKind, OpenOptions, Rows};

const RUNS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let mut format = None;
    if arguments
        .next_if(|argument| argument == "--format")
        .is_some()
    {
        let name = arguments.next().unwrap_or_default();
        format = Some(FormatKind::parse(&name.to_string_lossy())?);
    }
    for path in arguments.map(PathBuf::from) {
        measure(&path, format.as_ref())?;
    }
    Ok(())
}

fn measure(path: &Path, format: Option<&FormatKind>) -> Result<(), Box<dyn std::error::Error>> {
    let count = match format {
        Some(kind) if kind.name() == "tokens" => "-w",
        _ => "-l",
    };
    let options = OpenOptions {
        format: format.cloned(),
        sidecar: false,
        ..OpenOptions::default()
    };
    let paths = [path.to_path_buf()];
    let dataset = Dataset::open(&paths, &options)?;
    let gigabytes = std::fs::metadata(path)?.len() as f64 / 1e9;
    let mut scans = vec![];
    let mut counts = vec![];
    // Alternates, so that other load on the machine affects both.
    for _ in 0..RUNS {
        scans.push(Dataset::open(&paths, &options)?.index_report().scan_seconds);
        counts.push(seconds(|| {
            Command::new("wc").arg(count).arg(path).output().map(drop)
        })?);
    }
    let report = dataset.index_report();
    println!(
        "{}: {} records, {:.2} index bytes a record",
        path.display(),
        report.records,
        report.bytes_per_record
    );
    println!("  scans  {scans:.4?} s");
    println!("  wc {count}  {counts:.4?} s");
    println!("  scan   {:6.2} GB/s", gigabytes / median(scans));
    println!("  wc {count}  {:6.2} GB/s", gigabytes / median(counts));
    let (text, ids) = sample(&dataset, path)?;
    let first = dataset.locate(0).offset;
    let mut rows = Rows::new(dataset.layout());
    let mut locations = vec![];
    dataset.locate_into(&(0..ids).collect::<Vec<_>>(), &mut locations);
    let mut parses = vec![];
    for _ in 0..RUNS {
        parses.push(seconds(|| -> Result<(), Box<dyn std::error::Error>> {
            for (id, place) in (0..).zip(&locations) {
                if id % 1024 == 0 {
                    rows.clear();
                }
                let start = (place.offset - first) as usize;
                dataset.decode(id, &text[start..start + place.length as usize], &mut rows)?;
            }
            Ok(())
        })?);
    }
    println!(
        "  parse  {:6.0} MB/s, one thread",
        text.len() as f64 / 1e6 / median(parses)
    );
    let ids: Vec<u64> = (0..1 << 20)
        .map(|i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % dataset.records())
        .collect();
    let random = seconds(|| {
        locations.clear();
        dataset.locate_into(&ids, &mut locations);
        Ok::<(), std::io::Error>(())
    })?;
    println!(
        "  locate {:6.1} ns a record in random order",
        random * 1e9 / ids.len() as f64
    );
    Ok(())
}

/// The first 100 MB of the records' bytes and how many records they hold.
fn sample(dataset: &Dataset, path: &Path) -> std::io::Result<(Vec<u8>, u64)> {
    use std::io::{Read, Seek, SeekFrom};
    let first = dataset.locate(0).offset;
    let (mut low, mut high) = (1, dataset.records());
    while low < high {
        let middle = (low + high).div_ceil(2);
        let place = dataset.locate(middle - 1);
        if place.offset + place.length - first <= 100_000_000 {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let last = dataset.locate(low - 1);
    let mut file = std::fs::File::open(path)?;
    file.seek(SeekFrom::Start(first))?;
    let mut text = vec![0; (last.offset + last.length - first) as usize];
    file.read_exact(&mut text)?;
    Ok((text, low))
}

fn seconds<E>(work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_secs_f64())
}

fn median(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}
