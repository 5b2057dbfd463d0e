//! Several threads scan chunks of a file; their results are merged in the order of the file.
//!
//! Threads take chunks in order. A thread that finishes a chunk merges it, and all that were waiting for it, while
//! the others continue; results are reused, so a scan allocates no more than its threads do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use pelton_storage::on_threads;

/// Bytes of a chunk: half of a small second-level cache, so that they are still cached when they are read a second
/// time.
pub(crate) const CHUNK: u64 = 256 << 10;

/// Scans chunks `0..chunks` with up to `threads` threads, each with its own worker. `scan` may reuse an old result.
/// `merge` gets the results in order and returns whether to continue.
pub(crate) fn scan_in_order<W, T: Default + Send, E: Send>(
    chunks: u64,
    threads: usize,
    worker: impl Fn() -> W + Sync,
    scan: impl Fn(&mut W, u64, T) -> Result<T, E> + Sync,
    merge: impl FnMut(u64, &mut T) -> bool + Send,
) -> Result<(), E> {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let queue = Mutex::new(MergeQueue {
        merge,
        next: 0,
        waiting: BTreeMap::new(),
        spare: Vec::new(),
    });
    let work = || -> Result<(), E> {
        let mut worker = worker();
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= chunks || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let spare = lock(&queue).spare.pop().unwrap_or_default();
            let found = scan(&mut worker, chunk, spare)?;
            if !lock(&queue).add(chunk, found) {
                stop.store(true, Ordering::Relaxed);
            }
        }
    };
    let run = || {
        let outcome = work();
        if outcome.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        outcome
    };
    let threads = threads.clamp(1, 64).min(chunks.max(1) as usize);
    on_threads(threads, run).into_iter().collect()
}

fn lock<T>(queue: &Mutex<T>) -> MutexGuard<'_, T> {
    queue
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Chunks finished before their turn.
struct MergeQueue<T, M> {
    merge: M,
    next: u64,
    waiting: BTreeMap<u64, T>,
    spare: Vec<T>,
}

impl<T, M: FnMut(u64, &mut T) -> bool> MergeQueue<T, M> {
    /// False when the scan may stop early.
    fn add(&mut self, chunk: u64, found: T) -> bool {
        self.waiting.insert(chunk, found);
        let mut goes_on = true;
        while let Some(mut found) = self.waiting.remove(&self.next) {
            goes_on &= (self.merge)(self.next, &mut found);
            self.next += 1;
            self.spare.push(found);
        }
        goes_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order() {
        for threads in [1, 3, 8] {
            let mut merged = Vec::new();
            let scan = |_: &mut (), chunk, _: u64| Ok::<_, ()>(chunk * chunk);
            scan_in_order(
                100,
                threads,
                || (),
                scan,
                |chunk, found| {
                    merged.push((chunk, *found));
                    true
                },
            )
            .unwrap();
            assert!(merged.iter().copied().eq((0..100).map(|i| (i, i * i))));
        }
    }

    #[test]
    fn a_failure_or_the_merger_ends_it() {
        for threads in [1, 4] {
            let fails = |_: &mut (), chunk, _: u64| if chunk == 7 { Err(chunk) } else { Ok(chunk) };
            let outcome = scan_in_order(u64::MAX, threads, || (), fails, |_, _| true);
            assert_eq!(outcome, Err(7));
            let mut merged = 0;
            let scan = |_: &mut (), chunk, _: u64| Ok::<_, ()>(chunk);
            let outcome = scan_in_order(
                u64::MAX,
                threads,
                || (),
                scan,
                |_, _| {
                    merged += 1;
                    merged < 20
                },
            );
            assert_eq!(outcome, Ok(()));
            assert!(merged >= 20);
        }
    }
}
