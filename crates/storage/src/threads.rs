//! Starts threads on systems that may refuse them: containers and `ulimit -u` limit their number.
//!
//! [`std::thread::spawn`] and [`std::thread::scope`] panic then.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, available_parallelism, scope};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{StorageError, StorageErrorKind};

/// Starts a thread.
///
/// Errors: the system refuses more threads.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StorageError> {
    let started = Builder::new().name(name.to_string()).spawn(work);
    started.map_err(|source| no_thread(name, source))
}

/// The operating system refuses more threads.
pub(crate) fn no_thread(name: &str, source: io::Error) -> StorageError {
    let what = format!(
        "the thread `{name}` cannot be started ({source}); raise the limit on processes (pids of a container, or ulimit -u), or use fewer threads"
    );
    StorageError::new(StorageErrorKind::System, "", what).caused_by(source)
}

/// Runs `work` on `threads` threads including this one, and returns their results. There are fewer if the system
/// refuses more, so the work must not depend on their number.
///
/// Panics if `work` does.
pub fn on_threads<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    scope(|scope| {
        let start = |_| Builder::new().spawn_scoped(scope, &work).ok();
        let others: Vec<_> = (1..threads).map_while(start).collect();
        let mut made = vec![work()];
        for other in others {
            match other.join() {
                Ok(one) => made.push(one),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        made
    })
}

/// A pool of `threads` threads, 0 for Rayon's default; or of half as many, and so on, if the system refuses more.
///
/// Errors: it refuses even one.
pub fn thread_pool(threads: usize) -> Result<ThreadPool, StorageError> {
    let mut wanted = threads;
    loop {
        match ThreadPoolBuilder::new().num_threads(wanted).build() {
            Ok(pool) => return Ok(pool),
            Err(_) if wanted != 1 => {
                let most = available_parallelism().map_or(1, usize::from);
                wanted = if wanted == 0 { most } else { wanted / 2 };
            }
            Err(error) => {
                return Err(no_thread("compute", io::Error::other(error)));
            }
        }
    }
}

/// Runs `work` in the pool that this thread belongs to, or else in a process-wide one. Rayon's own panics if the
/// system refuses threads.
///
/// Errors: the system refuses more threads.
pub fn in_parallel<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, StorageError> {
    static POOL: Mutex<Option<(u32, &'static ThreadPool)>> = Mutex::new(None);
    if rayon::current_thread_index().is_some() {
        return Ok(work());
    }
    let mut kept = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    let pool = match *kept {
        Some((of, pool)) if of == process => pool,
        // A forked process has none of its parent's threads.
        _ => {
            let pool: &'static ThreadPool = Box::leak(Box::new(thread_pool(0)?));
            *kept = Some((process, pool));
            pool
        }
    };
    drop(kept);
    Ok(pool.install(work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_by_this_thread_and_others() {
        let queue = Mutex::new((0..1000).collect::<Vec<u32>>());
        for threads in [0, 1, 4] {
            let made = on_threads(threads, || {
                let mut sum = 0;
                while let Some(one) = { queue.lock().unwrap() }.pop() {
                    sum += one;
                }
                sum
            });
            assert_eq!(made.len(), threads.max(1));
            queue.lock().unwrap().extend(0..1000);
        }
    }
}
