//! Long work that Ctrl-C ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pelton_run::Interrupt;
use pyo3::prelude::*;

/// How often Python is asked whether a signal came.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Does `work` on a separate thread, without Python's lock, while this one checks for signals. One that raises an
/// exception ends the work, which looks at the flag it is given, and is raised.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Interrupt) -> T + Send,
) -> PyResult<T> {
    interruptible_or(py, || (), work)
}

/// The same; `end` ends work that may wait for others and then does not look at the flag.
pub(crate) fn interruptible_or<T: Send>(
    py: Python<'_>,
    end: impl FnOnce(),
    work: impl FnOnce(&Interrupt) -> T + Send,
) -> PyResult<T> {
    let interrupt: Interrupt = Arc::new(AtomicBool::new(false));
    let work = Mutex::new(Some(work));
    let work = || {
        let work = { work.lock().unwrap_or_else(PoisonError::into_inner) }.take();
        work.map(|work| work(&interrupt))
    };
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(1);
        let receiver = Mutex::new(receiver);
        let started = std::thread::Builder::new().spawn_scoped(scope, move || {
            if let Some(done) = work() {
                // After a signal, nobody receives the result.
                let _ = sender.send(done);
            }
        });
        let Ok(worker) = started else {
            // If no thread can be started, signals wait until the work is done.
            return Ok(py.detach(work).expect("nobody else did it"));
        };
        loop {
            match py.detach(|| {
                receiver
                    .lock()
                    .expect("only this thread takes it")
                    .recv_timeout(LOOK_EVERY)
            }) {
                Ok(done) => return Ok(done),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(signal) = py.check_signals() {
                        interrupt.store(true, Ordering::Relaxed);
                        end();
                        py.detach(|| worker.join().is_ok());
                        return Err(signal);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let panic = py.detach(|| worker.join());
                    std::panic::resume_unwind(panic.expect_err("work without a result panicked"));
                }
            }
        }
    })
}
