//! Samples by index, for libraries that draw indices themselves.

use pelton_batch::Fields;
use pelton_plan::Place;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::Array;
use crate::error::of_feed;
use crate::loader::{Warned, to_python};
use crate::process::OfProcess;

/// Makes requested samples on the calling thread; safe from several threads and after a fork.
#[pyclass(frozen, module = "pelton._pelton")]
pub(crate) struct Samples {
    pub(crate) samples: OfProcess<pelton_feed::Samples>,
    pub(crate) warned: Warned,
}

#[pymethods]
impl Samples {
    /// Number of records.
    fn __len__(&self) -> usize {
        self.samples.len() as usize
    }

    /// Names and arrays of one sample; each array has it as its only row.
    pub(crate) fn sample(
        &self,
        py: Python<'_>,
        epoch: u64,
        id: u64,
    ) -> PyResult<Vec<(String, Array)>> {
        let fields = py.detach(|| self.samples.sample(epoch, id));
        let mut fields = fields.map_err(|error| of_feed(py, &error))?;
        self.warned.tell(py, self.samples.counted())?;
        Ok(take_all(&mut fields))
    }

    /// Some samples as a batch, as a loader's `next` hands it out.
    fn batch<'py>(
        &self,
        py: Python<'py>,
        epoch: u64,
        ids: Vec<u64>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let batch = py.detach(|| self.samples.batch(epoch, &ids));
        let batch = batch.map_err(|error| of_feed(py, &error))?;
        self.warned.tell(py, self.samples.counted())?;
        to_python(py, batch)
    }

    /// The batch that a loader returns at a step of an epoch.
    fn batch_at<'py>(
        &self,
        py: Python<'py>,
        epoch: u64,
        step: u64,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let batch = py.detach(|| self.samples.batch_at(Place { epoch, step }));
        match batch.map_err(|error| of_feed(py, &error))? {
            Some(batch) => to_python(py, batch),
            None => {
                let sentence = format!("epoch {epoch} has no step {step}");
                Err(PyIndexError::new_err(sentence))
            }
        }
    }
}

fn take_all(fields: &mut Fields) -> Vec<(String, Array)> {
    let names: Vec<String> = fields.iter().map(|(name, _)| name.to_owned()).collect();
    let take = |name: String| {
        let array = fields.remove(&name).expect("it was just named");
        (name, Array::from_array(array))
    };
    names.into_iter().map(take).collect()
}
