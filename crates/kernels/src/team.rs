//! Steps that follow one another, each cut into parts for several threads, without a fork for each step.
//!
//! A thread takes a part by raising the part's counter of steps, and waits, spinning, only for parts that other threads
//! have taken and are working on. So any number of threads may arrive at any time: a single one does all parts. A
//! barrier would hang if two such runs share a pool, each waiting for threads that wait in the other; a fork and join
//! for each step costs 5 to 20 µs, as much as the step of a small LSTM.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A counter on a separate cache line.
#[repr(align(64))]
struct Counter(AtomicUsize);

/// Calls `work(step, part)` for `steps` steps of `parts` parts; no part of a step begins before all parts of the step
/// before are done. The writes of a part are visible to all parts of later steps.
pub fn steps(steps: usize, parts: usize, work: impl Fn(usize, usize) + Sync) {
    if parts == 1 {
        return (0..steps).for_each(|step| work(step, 0));
    }
    let taken: Vec<Counter> = (0..parts).map(|_| Counter(AtomicUsize::new(0))).collect();
    let done = Counter(AtomicUsize::new(0));
    let member = |own: usize| {
        for step in 0..steps {
            wait_until(|| done.0.load(Ordering::Acquire) >= step * parts);
            for i in 0..parts {
                // Its own part first: that part's share of the weights is in this core's cache.
                let part = (own + i) % parts;
                let counter = &taken[part].0;
                let won = counter.load(Ordering::Relaxed) == step
                    && counter
                        .compare_exchange(step, step + 1, Ordering::Relaxed, Ordering::Relaxed)
                        .is_ok();
                if won {
                    work(step, part);
                    done.0.fetch_add(1, Ordering::Release);
                }
            }
        }
    };
    rayon::scope(|scope| {
        for own in 1..parts {
            let member = &member;
            scope.spawn(move |_| member(own));
        }
        member(0);
    });
}

/// Spins at first, for waits are short; then lets others run, for there may be fewer cores than threads.
fn wait_until(ready: impl Fn() -> bool) {
    let mut tries = 0;
    while !ready() {
        tries += 1;
        if tries < 2_000 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every part of every step runs once, in its step, with more and with fewer threads than parts.
    #[test]
    fn parts_run_once_and_in_order() {
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.expect("a pool").install(|| {
                for parts in [1, 2, 3, 8] {
                    let runs: Vec<AtomicUsize> =
                        (0..100 * parts).map(|_| AtomicUsize::new(0)).collect();
                    steps(100, parts, |step, part| {
                        let before = &runs[..step * parts];
                        assert!(before.iter().all(|r| r.load(Ordering::Relaxed) == 1));
                        runs[step * parts + part].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(runs.iter().all(|r| r.load(Ordering::Relaxed) == 1));
                }
            });
        }
    }

    /// Two concurrent runs in one pool, as of two layers or two models.
    #[test]
    fn runs_next_to_each_other_end() {
        let count = AtomicUsize::new(0);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build();
        pool.expect("a pool").install(|| {
            let run = || {
                steps(500, 2, |_, _| {
                    count.fetch_add(1, Ordering::Relaxed);
                })
            };
            rayon::join(run, run);
        });
        assert_eq!(count.into_inner(), 2_000);
    }
}
