//! How fast rows are read in random order: every row starts anywhere and is aligned out to the
//! storage's units, as a feed reads it.
//!
//! ```text
//! cargo run --release -p pelton-storage --example random_read -- FILE \
//!     [--row 44560] [--depth 64] [--threads 2] [--batch 256] [--seconds 3] [--mode direct]
//! fio --name=x --filename=FILE --ioengine=io_uring --direct=1 --rw=randread --bs=44k \
//!     --iodepth=64 --norandommap --runtime=3 --time_based
//! ```

use std::error::Error;
use std::time::{Duration, Instant};

use pelton_storage::{
    LocalFile, LocalMode, LocalOptions, RangeRead, Storage, StorageError, huge_buffer,
};

struct Settings {
    file: String,
    row_bytes: u64,
    depth: u32,
    threads: u64,
    batch: usize,
    seconds: f64,
    mode: LocalMode,
}

fn main() -> Result<(), Box<dyn Error>> {
    let settings = settings()?;
    let options = LocalOptions {
        mode: settings.mode,
        queue_depth: settings.depth,
    };
    let storage = LocalFile::open(&settings.file, options)?;
    let begun = Instant::now();
    let totals: Vec<Result<(u64, u64), StorageError>> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..settings.threads)
            .map(|thread| {
                let (storage, settings) = (&storage, &settings);
                scope.spawn(move || read_rows(storage, settings, thread))
            })
            .collect();
        callers
            .into_iter()
            .map(|caller| caller.join().expect("a reading thread panicked"))
            .collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let (mut rows, mut bytes) = (0, 0);
    for total in totals {
        let (more_rows, more_bytes) = total?;
        rows += more_rows;
        bytes += more_bytes;
    }
    println!(
        "{:?} depth {} threads {} batch {}: {:.0} rows/s, {:.3} GB/s read, {:.3} GB/s of rows",
        storage.mode(),
        settings.depth,
        settings.threads,
        settings.batch,
        rows as f64 / seconds,
        bytes as f64 / seconds / 1e9,
        (rows * settings.row_bytes) as f64 / seconds / 1e9
    );
    Ok(())
}

/// Reads batches of random rows until the time is up; returns rows and bytes.
fn read_rows(
    storage: &LocalFile,
    settings: &Settings,
    thread: u64,
) -> Result<(u64, u64), StorageError> {
    let units = storage.granularity();
    let rows = storage.size()? / settings.row_bytes;
    // Rows that are whole units start on units; others reach into one more unit at either end.
    let unit = u64::from(units.offset_bytes);
    let ragged = if settings.row_bytes.is_multiple_of(unit) {
        0
    } else {
        2 * unit
    };
    let stride =
        (settings.row_bytes + ragged).next_multiple_of(u64::from(units.memory_bytes)) as usize;
    let mut arena = huge_buffer(stride * settings.batch);
    let mut word = thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let (mut rows_read, mut bytes_read) = (0, 0);
    let until = Instant::now() + Duration::from_secs_f64(settings.seconds);
    while Instant::now() < until {
        let mut reads: Vec<RangeRead<'_>> = arena
            .chunks_exact_mut(stride)
            .filter_map(|buffer| {
                // xorshift64 (Marsaglia 2003): rows need only be scattered.
                word ^= word << 13;
                word ^= word >> 7;
                word ^= word << 17;
                let origin = word % rows * settings.row_bytes;
                let (offset, length) = units.align_out(origin, settings.row_bytes)?;
                Some(RangeRead {
                    offset,
                    buffer: &mut buffer[..length as usize],
                    filled: 0,
                })
            })
            .collect();
        storage.read_batch(&mut reads)?;
        rows_read += reads.len() as u64;
        bytes_read += reads.iter().map(|read| read.filled as u64).sum::<u64>();
    }
    Ok((rows_read, bytes_read))
}

fn settings() -> Result<Settings, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut settings = Settings {
        file: arguments
            .next()
            .ok_or("usage: random_read FILE [--row N] …")?,
        row_bytes: 44_560,
        depth: 64,
        threads: 2,
        batch: 256,
        seconds: 3.0,
        mode: LocalMode::Direct,
    };
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or("every flag takes a value")?;
        match flag.as_str() {
            "--row" => settings.row_bytes = value.parse()?,
            "--depth" => settings.depth = value.parse()?,
            "--threads" => settings.threads = value.parse()?,
            "--batch" => settings.batch = value.parse()?,
            "--seconds" => settings.seconds = value.parse()?,
            "--mode" => {
                settings.mode = match value.as_str() {
                    "direct" => LocalMode::Direct,
                    "buffered" => LocalMode::Buffered,
                    "pread" => LocalMode::Pread,
                    _ => LocalMode::Auto,
                }
            }
            _ => return Err(format!("unknown flag {flag}").into()),
        }
    }
    Ok(settings)
}
