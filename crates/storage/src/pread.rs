//! A batch of reads by a small pool of threads calling `pread`: works on every Unix.
//!
//! Used if io_uring is refused (old kernels, some containers, other systems). The pool is process-wide and blocks in
//! the kernel, not on a core, so it is wider than the machine.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::RangeRead;

/// Threads of the pool: enough for a solid-state drive's parallelism at 4 KiB to show, few enough
/// that their stacks do not.
const THREADS: usize = 16;

/// Below this many bytes a batch is read by the caller: waking a thread costs about as much as
/// copying this much from the page cache.
const INLINE_BYTES: usize = 16 << 10;

/// Reads every range; the error carries its offset.
pub(crate) fn read_batch(file: &File, reads: &mut [RangeRead<'_>]) -> Result<(), (u64, io::Error)> {
    let bytes: usize = reads.iter().map(|read| read.buffer.len()).sum();
    match pool() {
        Some(pool) if reads.len() > 1 && bytes > INLINE_BYTES => pool.install(|| {
            reads
                .par_iter_mut()
                .try_for_each(|read| read_range(file, read))
        }),
        _ => reads.iter_mut().try_for_each(|read| read_range(file, read)),
    }
}

/// `None` if there are no threads: the system refused them, or this process is a fork of the one that has them.
pub(crate) fn pool() -> Option<&'static ThreadPool> {
    static POOL: OnceLock<(u32, Option<ThreadPool>)> = OnceLock::new();
    let (process, pool) = POOL.get_or_init(|| {
        let pool = ThreadPoolBuilder::new()
            .num_threads(THREADS)
            .thread_name(|index| format!("pread-{index}"))
            .build();
        (std::process::id(), pool.ok())
    });
    pool.as_ref().filter(|_| *process == std::process::id())
}

/// Reads one range to its end or the end of the file.
pub(crate) fn read_range(file: &File, read: &mut RangeRead<'_>) -> Result<(), (u64, io::Error)> {
    read.filled = 0;
    while read.filled < read.buffer.len() {
        let offset = read.offset + read.filled as u64;
        match file.read_at(&mut read.buffer[read.filled..], offset) {
            Ok(0) => break,
            Ok(got) => read.filled += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((offset, error)),
        }
    }
    Ok(())
}
