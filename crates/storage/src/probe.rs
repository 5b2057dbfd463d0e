//! Measures the disk under a path, through this crate's own reads.
//!
//! [`probe_dir`] fills a temporary file and measures every block size at every depth: the LIRS Table 2 of this
//! machine. [`quick_probe`] takes a third of a second on an existing file and measures the two figures that decide
//! how to read it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::spare_memory::memory_limit;
use crate::threads::no_thread;
use crate::{AlignedBuffer, DeviceModel, LocalFile, LocalMode, LocalOptions, PAGE_BYTES};
use crate::{RangeRead, ScratchFile, Storage, StorageError, huge_buffer};
use pelton_key::splitmix64;

/// Block sizes measured by [`probe_dir`].
pub const PROBE_BLOCKS: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Requests in flight measured by [`probe_dir`].
pub const PROBE_DEPTHS: [u32; 4] = [1, 16, 64, 128];

/// Threads that write at random: enough for a drive's parallelism, each with one write in flight.
const WRITERS: u64 = 16;

/// Memory that each reading thread of [`probe_dir`] uses if there is enough, unless one round of reads takes more.
const ARENA_BYTES: u64 = 16 << 20;

/// Stack of a thread, which only reads or writes.
const STACK_BYTES: usize = 256 << 10;

/// The same for [`quick_probe`], which runs before jobs with a small budget.
const QUICK_ARENA_BYTES: u64 = 4 << 20;

/// How long [`probe_dir`] measures, and on how large a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeOptions {
    /// Size of the temporary file. A file that fits a drive's own cache measures the cache.
    pub file_bytes: u64,
    /// Seconds for each pair of block size and depth, 42 in all.
    pub seconds_per_point: f64,
}

impl Default for ProbeOptions {
    /// 1 GiB and a quarter of a second a point: about 12 seconds.
    fn default() -> ProbeOptions {
        ProbeOptions {
            file_bytes: 1 << 30,
            seconds_per_point: 0.25,
        }
    }
}

/// The order in which blocks are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbePattern {
    /// Sequential.
    Sequential,
    /// Random.
    Random,
}

/// One measured rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbePoint {
    /// The order in which blocks were read.
    pub pattern: ProbePattern,
    /// Bytes a read.
    pub block_bytes: u64,
    /// Reads in flight.
    pub depth: u32,
    /// Reads a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
}

/// The measurements of [`probe_dir`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceProbe {
    /// The folder measured.
    pub folder: String,
    /// Size of the temporary file.
    pub file_bytes: u64,
    /// How it was read.
    pub mode: LocalMode,
    /// Notes on the figures.
    pub note: Option<String>,
    /// Every block size at every depth that memory allows.
    pub points: Vec<ProbePoint>,
    /// Bytes a second of 1 MiB writes, one after the other, flushed at the end.
    pub sequential_write_bytes_per_s: f64,
    /// 4 KiB writes a second at random offsets, 16 in flight, flushed at the end.
    pub random_write_iops: f64,
}

impl DeviceProbe {
    /// The rate for one pattern, block size and depth, if it was measured.
    pub fn point(
        &self,
        pattern: ProbePattern,
        block_bytes: u64,
        depth: u32,
    ) -> Option<&ProbePoint> {
        self.points.iter().find(|point| {
            (point.pattern, point.block_bytes, point.depth) == (pattern, block_bytes, depth)
        })
    }

    /// The fastest rate for one pattern and block size over all depths.
    pub fn best(&self, pattern: ProbePattern, block_bytes: u64) -> Option<&ProbePoint> {
        self.points
            .iter()
            .filter(|point| (point.pattern, point.block_bytes) == (pattern, block_bytes))
            .max_by(|a, b| a.iops.total_cmp(&b.iops))
    }

    /// This device in the form of LIRS Table 2: pages a second, sequential and random. Sequential
    /// reads are priced by the bandwidth of large blocks, as a sequential reader uses them.
    pub fn device_model(&self, name: &str) -> DeviceModel {
        let bandwidth = |point: &ProbePoint| point.bytes_per_s / PAGE_BYTES as f64;
        let sequential = self.best(ProbePattern::Sequential, 1 << 20);
        let random = self.best(ProbePattern::Random, PAGE_BYTES);
        DeviceModel {
            name: name.to_owned(),
            sequential_read_iops: sequential.map_or(0.0, bandwidth),
            random_read_iops: random.map_or(0.0, bandwidth),
            sequential_write_iops: self.sequential_write_bytes_per_s / PAGE_BYTES as f64,
            random_write_iops: self.random_write_iops,
            bandwidth_bytes_per_s: None,
            latency_s: 0.0,
        }
    }
}

/// The measurements of [`quick_probe`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuickProbe {
    /// How the file was read.
    pub mode: LocalMode,
    /// Notes on the figures.
    pub note: Option<String>,
    /// Random 4 KiB reads a second at depth 64.
    pub random_iops: f64,
    /// Bytes a second of 256 KiB reads, one after the other, at depth 16.
    pub sequential_bytes_per_s: f64,
}

/// Measures the disk under `folder` with a temporary file, which is deleted afterwards.
///
/// Errors: also [`StorageErrorKind::Interrupted`](crate::StorageErrorKind::Interrupted) soon after `interrupt` is
/// set.
pub fn probe_dir(
    folder: &Path,
    options: ProbeOptions,
    interrupt: &AtomicBool,
) -> Result<DeviceProbe, StorageError> {
    let uninterrupted = || {
        if interrupt.load(Ordering::Relaxed) {
            Err(StorageError::interrupted(folder.display()))
        } else {
            Ok(())
        }
    };
    let uninterrupted: &Uninterrupted<'_> = &uninterrupted;
    let file_bytes = options
        .file_bytes
        .max(1 << 20)
        .checked_next_multiple_of(1 << 20)
        .unwrap_or(u64::MAX);
    let scratch = ScratchFile::create(folder, file_bytes)?;
    let sequential_write_bytes_per_s = fill(&scratch, file_bytes, uninterrupted)?;
    let seconds = options.seconds_per_point;
    let random_write_iops = write_at_random(&scratch, file_bytes, seconds, uninterrupted)?;
    // The deepest reads of the largest blocks need 128 MiB.
    let most = memory_limit().unwrap_or(u64::MAX) / 4;
    let arena = ARENA_BYTES.min(most / 2);
    let (mut points, mut left_out) = (Vec::new(), 0);
    for pattern in [ProbePattern::Sequential, ProbePattern::Random] {
        for block_bytes in PROBE_BLOCKS {
            for depth in PROBE_DEPTHS {
                if u64::from(depth) * block_bytes > most {
                    left_out += 1;
                    continue;
                }
                let (file, at) = (scratch.reader(), (pattern, block_bytes, depth));
                points.push(measure(file, at, seconds, arena, uninterrupted)?);
            }
        }
    }
    let mode = scratch.reader().mode();
    let small = (left_out > 0).then(|| {
        format!("{left_out} of the figures are left out: they need more memory than this process may have")
    });
    let notes: Vec<String> = note(mode).into_iter().chain(small).collect();
    Ok(DeviceProbe {
        folder: folder.display().to_string(),
        file_bytes,
        mode,
        note: (!notes.is_empty()).then(|| notes.join("; ")),
        points,
        sequential_write_bytes_per_s,
        random_write_iops,
    })
}

/// Measures the disk under an existing file in about 0.3 seconds, reading only.
pub fn quick_probe(path: &Path) -> Result<QuickProbe, StorageError> {
    const SECONDS: f64 = 0.15;
    let file = LocalFile::open(path, LocalOptions::default())?;
    let arena = QUICK_ARENA_BYTES;
    let random = (ProbePattern::Random, PAGE_BYTES, 64);
    let random = measure(&file, random, SECONDS, arena, &|| Ok(()))?;
    let sequential = (ProbePattern::Sequential, 256 << 10, 16);
    let sequential = measure(&file, sequential, SECONDS, arena, &|| Ok(()))?;
    Ok(QuickProbe {
        mode: file.mode(),
        note: note(file.mode()),
        random_iops: random.iops,
        sequential_bytes_per_s: sequential.bytes_per_s,
    })
}

fn note(mode: LocalMode) -> Option<String> {
    (mode != LocalMode::Direct).then(|| {
        "direct reads are not available here: the figures include the page cache".to_owned()
    })
}

/// Fails once a probe is interrupted.
type Uninterrupted<'a> = dyn Fn() -> Result<(), StorageError> + Sync + 'a;

/// Writes the whole file; returns bytes a second.
fn fill(
    scratch: &ScratchFile,
    file_bytes: u64,
    uninterrupted: &Uninterrupted<'_>,
) -> Result<f64, StorageError> {
    // Words that do not compress, should the device try.
    let words = (0..1u64 << 17).flat_map(|i| splitmix64(i).to_le_bytes());
    let block = AlignedBuffer::from_iter(4096, words);
    let begun = Instant::now();
    for offset in (0..file_bytes).step_by(block.len()) {
        uninterrupted()?;
        scratch.write_at(offset, &block)?;
    }
    scratch.sync()?;
    Ok(file_bytes as f64 / begun.elapsed().as_secs_f64())
}

/// Writes 4 KiB blocks at random offsets; returns writes a second.
fn write_at_random(
    scratch: &ScratchFile,
    file_bytes: u64,
    seconds: f64,
    uninterrupted: &Uninterrupted<'_>,
) -> Result<f64, StorageError> {
    let begun = Instant::now();
    let until = begun + duration(seconds);
    let writer = |writer: u64| {
        let mut block = AlignedBuffer::new(4096);
        block.resize(PAGE_BYTES as usize, writer as u8);
        let mut written = 0u64;
        while written == 0 || Instant::now() < until {
            uninterrupted()?;
            let page = splitmix64(splitmix64(writer) ^ written) % (file_bytes / PAGE_BYTES);
            scratch.write_at(page * PAGE_BYTES, &block)?;
            written += 1;
        }
        Ok(written)
    };
    let written: u64 = each_thread(WRITERS, &writer)?.iter().sum();
    scratch.sync()?;
    Ok(written as f64 / begun.elapsed().as_secs_f64())
}

/// Reads blocks of this size for `seconds`, `depth` in flight. From depth 2 on two threads share the depth, so that
/// one keeps the device busy while the other's batch ends.
fn measure(
    file: &LocalFile,
    (pattern, block_bytes, depth): (ProbePattern, u64, u32),
    seconds: f64,
    arena_bytes: u64,
    uninterrupted: &Uninterrupted<'_>,
) -> Result<ProbePoint, StorageError> {
    let threads = depth.min(2);
    let file = file.at_depth(depth / threads)?;
    let blocks = (file.size()? / block_bytes).max(1);
    let each_depth = u64::from(depth / threads);
    let batch = (each_depth * 8)
        .min(arena_bytes / block_bytes)
        .max(each_depth);
    let next = AtomicU64::new(0);
    let place = |read: u64| match pattern {
        ProbePattern::Sequential => read % blocks,
        ProbePattern::Random => splitmix64(read) % blocks,
    };
    // Reads and bytes a second of one thread; it allocates its buffers.
    let reader = |_| {
        let mut arena = huge_buffer((batch * block_bytes) as usize);
        let (mut done, mut bytes) = (0u64, 0u64);
        let begun = Instant::now();
        loop {
            uninterrupted()?;
            let first = next.fetch_add(batch, Ordering::Relaxed);
            let mut reads: Vec<RangeRead<'_>> = arena
                .chunks_exact_mut(block_bytes as usize)
                .zip(first..)
                .map(|(buffer, read)| RangeRead {
                    offset: place(read) * block_bytes,
                    buffer,
                    filled: 0,
                })
                .collect();
            file.read_batch(&mut reads)?;
            done += reads.iter().filter(|read| read.filled > 0).count() as u64;
            bytes += reads.iter().map(|read| read.filled as u64).sum::<u64>();
            let elapsed = begun.elapsed().as_secs_f64();
            if elapsed >= seconds {
                return Ok((done as f64 / elapsed, bytes as f64 / elapsed));
            }
        }
    };
    let rates = each_thread(u64::from(threads), &reader)?;
    Ok(ProbePoint {
        pattern,
        block_bytes,
        depth,
        iops: rates.iter().map(|rate| rate.0).sum(),
        bytes_per_s: rates.iter().map(|rate| rate.1).sum(),
    })
}

/// Runs `work` on threads 0 to `threads` − 1 and collects the results.
fn each_thread<T: Send>(
    threads: u64,
    work: &(dyn Fn(u64) -> Result<T, StorageError> + Sync),
) -> Result<Vec<T>, StorageError> {
    let mut refused = None;
    let done = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map_while(|thread| {
                let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
                let begun = builder.spawn_scoped(scope, move || work(thread));
                begun.map_err(|source| refused = Some(source)).ok()
            })
            .collect();
        let finish = |handle: std::thread::ScopedJoinHandle<'_, _>| match handle.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        running.into_iter().map(finish).collect()
    });
    match refused {
        None => done,
        Some(source) => Err(no_thread("probe", source)),
    }
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
