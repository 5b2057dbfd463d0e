//! The threads that carry requests, and how other threads wait for them.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use pelton_storage::{StorageError, StorageErrorKind};
use tokio::runtime::{Builder, Runtime};

/// Threads that carry requests: one carries a gigabyte a second, much less with decryption.
const THREADS: usize = 4;
/// How often a waiting thread checks for an interrupt.
const LOOK: Duration = Duration::from_millis(50);
/// How long requests in flight may still take after an interrupt.
const GRACE: Duration = Duration::from_millis(400);

/// Chooses the implementation of encryption, unless the program has done so. Called before the first client is made.
pub(crate) fn choose_cryptography() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The runtime of this process, created when the first file is opened. A forked process creates its own: it has none
/// of its parent's threads, and its requests would never end.
fn runtime() -> Option<&'static Runtime> {
    static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);
    let make = || {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Builder::new_multi_thread()
            .worker_threads(THREADS.min(threads))
            .thread_name("pelton-remote")
            .enable_all()
            .build()
            .ok()
    };
    let mut found = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    match *found {
        Some((of, runtime)) if of == process => Some(runtime),
        _ => {
            // Lives as long as the process; dropping the parent's would wait for threads that do not exist here.
            let runtime: &'static Runtime = Box::leak(Box::new(make()?));
            *found = Some((process, runtime));
            Some(runtime)
        }
    }
}

/// Waits for `work` on `name`, or until it is interrupted.
pub(crate) fn wait_for<T>(
    name: &str,
    interrupt: &AtomicBool,
    work: impl Future<Output = Result<T, StorageError>>,
) -> Result<T, StorageError> {
    let Some(runtime) = runtime() else {
        let what =
            "no thread can be started for its requests; raise the limit of processes (ulimit -u)";
        let kind = StorageErrorKind::Remote { lasts: false };
        return Err(StorageError::new(kind, name, what));
    };
    let interrupted = async {
        let mut asked_at = None;
        loop {
            tokio::time::sleep(LOOK).await;
            if interrupt.load(Ordering::Relaxed)
                && asked_at.get_or_insert_with(Instant::now).elapsed() >= GRACE
            {
                return;
            }
        }
    };
    runtime.block_on(async {
        match select(pin!(work), pin!(interrupted)).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(_) => Err(StorageError::interrupted(name)),
        }
    })
}
