//! Batches, one after another.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::task::Poll;

use pelton_batch::{Batch, Layout};
use pelton_comm::Comm;
use pelton_data::PipelineLoader;
use pelton_feed::AugmentImages;
use pyo3::exceptions::{PyRuntimeError, PyUserWarning};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::array::Array;
use crate::error::{configuration, of_feed};
use crate::interruptible::LOOK_EVERY;
use crate::process::OfProcess;
use crate::ranks;

/// Hands out batches in the order of the plan, without end; its threads read ahead meanwhile.
#[pyclass(frozen, module = "pelton._pelton")]
pub(crate) struct Loader {
    /// Absent once it was closed. No thread has this lock while it runs Python, which may be a handler that closes it.
    loader: OfProcess<Mutex<Option<PipelineLoader>>>,
    /// Where it reads peers' memory.
    comm: Mutex<Option<Comm>>,
    /// Whether it is being closed, for a thread that waits for a batch.
    closes: AtomicBool,
    warned: Warned,
}

impl Loader {
    /// `comm` are the ranks whose memory it reads.
    pub(crate) fn new(loader: PipelineLoader, comm: Option<Comm>) -> Loader {
        Loader {
            comm: Mutex::new(comm),
            warned: Warned::default(),
            loader: OfProcess::new(Mutex::new(Some(loader))),
            closes: AtomicBool::new(false),
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut PipelineLoader) -> T) -> PyResult<T> {
        if !self.loader.is_own() {
            return Err(PyRuntimeError::new_err(
                "this loader was created before the process forked, and its threads belong to the parent; create loaders in the process that uses them, or start processes with the method spawn",
            ));
        }
        let mut loader = match self.loader.try_lock() {
            Ok(loader) => loader,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(PyRuntimeError::new_err(
                    "another thread is taking a batch from this loader; give each thread its own, or take turns",
                ));
            }
        };
        match loader.as_mut() {
            Some(loader) => Ok(look(loader)),
            None => Err(PyRuntimeError::new_err("this loader was closed")),
        }
    }
}

#[pymethods]
impl Loader {
    /// The next batch: epoch, step, whether it ends its epoch, ids, and fields; none once it is being closed. A field is its
    /// name, an array, its layout (0 stacked, 1 padded, 2 ragged, 3 packed) and the lengths or offsets, and the samples of
    /// rows or the dimensions of samples that have several, one after another.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        while !self.closes.load(Ordering::Relaxed) {
            match py.detach(|| self.with(|loader| loader.poll_next(LOOK_EVERY)))? {
                Poll::Ready(Some(Ok(batch))) => {
                    let counted: Vec<_> = self.with(|loader| loader.counted().collect())?;
                    self.warned.tell(py, counted.into_iter())?;
                    return to_python(py, batch).map(Some);
                }
                Poll::Ready(Some(Err(error))) => return Err(of_feed(py, &error)),
                Poll::Ready(None) => {
                    return Err(configuration(
                        "the loader ended with an error; create a new one",
                    ));
                }
                Poll::Pending => py.check_signals()?,
            }
        }
        Ok(None)
    }

    /// Its state, as JSON.
    fn state(&self) -> PyResult<String> {
        self.with(|loader| loader.state().to_json())
    }

    /// Counters since it began, as JSON, and whether it was waited for, and why.
    fn meters(&self) -> PyResult<(String, String)> {
        self.with(|loader| warned(loader))
    }

    /// Ends its threads and gives its memory back. A thread that waits for a batch gets none. Returns the last state and
    /// meters, unless it was closed before.
    fn close(&self, py: Python<'_>) -> Option<(String, (String, String))> {
        self.closes.store(true, Ordering::Relaxed);
        if !self.loader.is_own() {
            return None;
        }
        // Its threads may be waiting for Python's lock, to call a function.
        py.detach(|| {
            let loader = { self.loader.lock().unwrap_or_else(PoisonError::into_inner) }.take();
            let comm = { self.comm.lock().unwrap_or_else(PoisonError::into_inner) }.take();
            loader.map(|loader| {
                let left = (loader.state().to_json(), warned(&loader));
                if let Some(comm) = comm {
                    ranks::retire(loader, comm);
                }
                left
            })
        })
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        Python::attach(|py| self.close(py));
    }
}

/// Which remarks on augmentation were made.
#[derive(Default)]
pub(crate) struct Warned([AtomicBool; AugmentImages::REMARKS.len()]);

impl Warned {
    /// Warns once of what stages have counted.
    pub(crate) fn tell(
        &self,
        py: Python<'_>,
        counted: impl Iterator<Item = (&'static str, u64)>,
    ) -> PyResult<()> {
        for (name, _) in counted.filter(|(_, count)| *count > 0) {
            let mut remarks = AugmentImages::REMARKS.iter().zip(&self.0);
            if let Some(((_, text), warned)) = remarks.find(|((known, _), _)| *known == name)
                && !warned.swap(true, Ordering::Relaxed)
            {
                let text = CString::new(*text).expect("it has no zeros");
                PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 3)?;
            }
        }
        Ok(())
    }
}

fn warned(loader: &PipelineLoader) -> (String, String) {
    let meters = loader.meters();
    let bad: Vec<_> = meters.bad_examples.iter().map(|bad| &bad.problem).collect();
    let counters = serde_json::json!({
        "batches": meters.batches,
        "fresh_examples": meters.fresh_examples,
        "echoed_examples": meters.echoed_examples,
        "skipped_examples": meters.skipped_examples,
        "replaced_examples": meters.replaced_examples,
        "bad_examples": bad,
        "padded_fraction": meters.padded_fraction(),
        "batch_bytes": meters.batch_bytes,
        "read_bytes": meters.feed.read_bytes,
        "wait_s": meters.wait_s,
        "compute_s": meters.compute_s,
        "first_batch_s": meters.first_batch_s,
        "wall_s": meters.wall_s,
        "stages": meters.stages,
    });
    (counters.to_string(), meters.verdict().to_string())
}

/// A batch as a tuple, from which Python makes a dict.
pub(crate) fn to_python<'py>(py: Python<'py>, mut batch: Batch) -> PyResult<Bound<'py, PyTuple>> {
    let fields = PyList::empty(py);
    let names: Vec<String> = batch
        .fields
        .iter()
        .map(|(name, _)| name.to_owned())
        .collect();
    for name in names {
        let array = batch.fields.remove(&name).expect("it was just named");
        let layout = array.shape().layout.clone();
        let (kind, first, second) = match layout {
            Layout::Stacked => (0, None, None),
            Layout::Padded { lengths } => (1, Some(of_u32(&lengths)), None),
            Layout::Ragged { offsets, dims } => {
                let dims = dims.iter().flatten().map(|&dim| dim as i64);
                (2, Some(of_u64(&offsets)), Some(of_i64(dims)))
            }
            Layout::Packed {
                row_samples,
                lengths,
            } => (3, Some(of_u32(&lengths)), Some(of_u32(&row_samples))),
        };
        fields.append((name, Array::from_array(array), kind, first, second))?;
    }
    let ids = of_u64(&batch.ids);
    let head = (batch.epoch, batch.step, batch.ends_epoch, ids, fields);
    head.into_pyobject(py)
}

fn of_u32(numbers: &[u32]) -> Array {
    of_i64(numbers.iter().map(|&number| i64::from(number)))
}

/// Ids and offsets are far below 2^63.
fn of_u64(numbers: &[u64]) -> Array {
    of_i64(numbers.iter().map(|&number| number as i64))
}

fn of_i64(numbers: impl Iterator<Item = i64>) -> Array {
    Array::from_array(pelton_batch::Array::from_slice(
        &numbers.collect::<Vec<i64>>(),
    ))
}
