//! The ranks of a job, connected, and the memory in which they read one another's data.

use std::ffi::CString;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pelton_comm::tcp::Job;
use pelton_comm::{Comm, CommError, Joined, launched};
use pelton_data::{DataError as JobError, PipelineLoader};
use pyo3::exceptions::{PyConnectionError, PyRuntimeError, PyUserWarning};
use pyo3::prelude::*;

use crate::interruptible::interruptible;
use crate::listener::{Addresses, connect};
use crate::process::OfProcess;

/// How long the end of a program waits for ranks that still read its memory.
const AT_EXIT: Duration = Duration::from_secs(60);

/// This process among connected ranks. Loaders that read peers' memory have communicators of their own.
#[pyclass(frozen, module = "pelton._pelton")]
pub(crate) struct Ranks {
    connected: OfProcess<Mutex<Option<Connected>>>,
    job: Option<Job>,
}

struct Connected {
    comm: Comm,
    /// Where a launcher's variables or MPI connected them.
    joined: Option<Joined>,
}

impl Ranks {
    fn new(comm: Comm, joined: Option<Joined>, job: Option<Job>) -> Ranks {
        let connected = Connected { comm, joined };
        Ranks {
            connected: OfProcess::new(Mutex::new(Some(connected))),
            job,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connected>> {
        self.connected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// One more communicator of all ranks, which all call this.
    pub(crate) fn duplicate(&self) -> Result<Comm, JobError> {
        match &*self.lock() {
            Some(connected) if self.connected.is_own() => Ok(connected.comm.duplicate()?),
            _ => Err(JobError::Config(
                "ranks are connected to the process that began with them; read peers' memory there"
                    .to_string(),
            )),
        }
    }

    /// Ends the waits of all ranks with this reason.
    pub(crate) fn fail(&self, reason: &str) {
        if let Some(job) = &self.job {
            job.fail(reason);
        }
    }
}

#[pymethods]
impl Ranks {
    /// One rank.
    #[staticmethod]
    fn alone() -> Ranks {
        Ranks::new(Comm::alone(), None, None)
    }

    /// Ranks that have exchanged their addresses, and the names of their machines.
    #[staticmethod]
    fn connected(py: Python<'_>, addresses: Addresses<'_>, hosts: Vec<String>) -> PyResult<Ranks> {
        let (comm, job) = connect(py, &addresses, hosts)?;
        Ok(Ranks::new(comm, None, Some(job)))
    }

    /// The ranks that a launcher started: by its MPI, or by an address at which all meet; none without one.
    #[staticmethod]
    fn launched(py: Python<'_>) -> PyResult<Option<Ranks>> {
        let failed = |error: CommError| PyConnectionError::new_err(error.to_string());
        let Some(launched) = launched().map_err(failed)? else {
            return Ok(None);
        };
        let joined = interruptible(py, |interrupt| Joined::new(&launched, interrupt, &mut warn))?;
        let (joined, comm) = joined.map_err(failed)?;
        let job = joined.job();
        Ok(Some(Ranks::new(comm, Some(joined), job)))
    }

    #[getter]
    fn size(&self) -> PyResult<usize> {
        let connected = self.lock();
        let ended = || PyRuntimeError::new_err("these ranks have ended");
        Ok(connected.as_ref().ok_or_else(ended)?.comm.size())
    }

    /// Ends this rank's part: with a reason at once, and the others hear it; otherwise when no other rank reads its memory
    /// any more.
    #[pyo3(signature = (reason=None))]
    fn end(&self, py: Python<'_>, reason: Option<&str>) {
        if !self.connected.is_own() {
            return;
        }
        py.detach(|| {
            match reason {
                Some(reason) => self.fail(reason),
                None => wait_for_retired(),
            }
            let connected = self.lock().take();
            if let Some(Connected { comm, joined }) = connected {
                drop(comm);
                // It has said what is wrong already, if anything.
                let _ = joined.map(|joined| joined.end(reason));
            }
        });
    }
}

/// Tells what this process waits for.
fn warn(text: &str) {
    let text = CString::new(text).unwrap_or_default();
    // A program that turns warnings into errors waits all the same.
    let _ = Python::attach(|py| PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 1));
}

/// Loaders whose memory others may still read.
static RETIRED: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// Ends a loader, and its memory when all ranks have ended theirs, without waiting for that.
pub(crate) fn retire(loader: PipelineLoader, comm: Comm) {
    let count = |by: isize| {
        let (counted, changed) = &RETIRED;
        let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
        *counted = counted.saturating_add_signed(by);
        changed.notify_all();
    };
    count(1);
    let thread = std::thread::Builder::new().name("retired loader".to_string());
    let started = thread.spawn(move || {
        // A rank that failed is reported by whatever waits for it next.
        let _ = loader.finish(&comm);
        drop(comm);
        count(-1);
    });
    if started.is_err() {
        count(-1);
    }
}

fn wait_for_retired() {
    let (counted, changed) = &RETIRED;
    let counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = changed.wait_timeout_while(counted, AT_EXIT, |counted| *counted > 0);
}
