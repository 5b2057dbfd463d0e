//! Rows of arrays in memory as records.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use numpy::{Element, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pelton_batch::{DType, FieldSpec, FieldSpecs};
use pelton_feed::{Appearance, Sample, Slots, Stage, StageFailure, Value};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

use crate::callable::dtype_of;

/// Rows that one thread takes with Python's lock.
const TOGETHER: usize = 64;

/// Makes records of the rows of arrays in C's order; without any, records have no fields.
pub(crate) struct Rows {
    columns: Vec<Column>,
}

struct Column {
    name: Arc<str>,
    dtype: DType,
    /// Half precision as unsigned integers.
    array: Py<PyAny>,
    dims: Vec<usize>,
}

impl Rows {
    /// Of arrays with their names and types.
    pub fn new(py: Python<'_>, columns: &[(String, String, Py<PyAny>)]) -> PyResult<Rows> {
        let columns = columns.iter().map(|(name, dtype, array)| {
            let shape: Vec<usize> = array.bind(py).getattr("shape")?.extract()?;
            Ok(Column {
                name: name.as_str().into(),
                dtype: dtype_of(dtype).ok_or_else(|| PyIndexError::new_err(dtype.clone()))?,
                array: array.clone_ref(py),
                dims: shape[1..].to_vec(),
            })
        });
        let columns = columns.collect::<PyResult<_>>()?;
        Ok(Rows { columns })
    }

    fn fill(&self, py: Python<'_>, samples: &mut [(&mut Sample<'_>, Appearance)]) -> PyResult<()> {
        let mut fields: Vec<_> = (samples.iter())
            .map(|_| Vec::with_capacity(self.columns.len()))
            .collect();
        for column in &self.columns {
            let array = column.array.bind(py);
            for ((_, at), fields) in samples.iter().zip(&mut fields) {
                let bytes = match column.dtype {
                    DType::U8 => row::<u8>(array, at.id),
                    DType::I8 => row::<i8>(array, at.id),
                    DType::U16 | DType::F16 => row::<u16>(array, at.id),
                    DType::I16 => row::<i16>(array, at.id),
                    DType::U32 => row::<u32>(array, at.id),
                    DType::I32 => row::<i32>(array, at.id),
                    DType::I64 => row::<i64>(array, at.id),
                    DType::F32 => row::<f32>(array, at.id),
                    DType::F64 => row::<f64>(array, at.id),
                    DType::BF16 => Err(PyIndexError::new_err("NumPy has no bfloat16")),
                }?;
                let value = Value::Numbers(column.dtype, column.dims.clone(), Cow::Owned(bytes));
                fields.push((Arc::clone(&column.name), value));
            }
        }
        for ((sample, _), fields) in samples.iter_mut().zip(fields) {
            sample.set_all(fields);
        }
        Ok(())
    }
}

fn row<T: Element + bytemuck::Pod>(array: &Bound<'_, PyAny>, row: u64) -> PyResult<Vec<u8>> {
    let array = array.cast::<PyArrayDyn<T>>()?;
    let length = array.len() / array.shape()[0].max(1);
    let (array, at) = (array.readonly(), row as usize * length);
    let values = array.as_slice()?.get(at..at + length);
    let values = values.ok_or_else(|| PyIndexError::new_err(format!("there is no row {row}")))?;
    Ok(bytemuck::cast_slice(values).to_vec())
}

impl Stage for Rows {
    fn name(&self) -> &'static str {
        "items"
    }

    fn spec(&self, _: FieldSpecs) -> Result<FieldSpecs, String> {
        let known = self.columns.iter().map(|column| {
            let dims: Vec<_> = column.dims.iter().copied().map(Some).collect();
            FieldSpec::new(&column.name, column.dtype, &dims)
        });
        Ok(FieldSpecs(known.collect()))
    }

    fn is_open(&self) -> bool {
        true
    }

    fn run(
        &self,
        sample: &mut Sample<'_>,
        _: &mut Slots<'_>,
        at: &Appearance,
        _: &mut dyn Any,
    ) -> Result<(), StageFailure> {
        self.run_together(&mut [(sample, *at)])
            .pop()
            .unwrap_or(Ok(()))
    }

    fn together(&self) -> usize {
        TOGETHER
    }

    fn run_together(
        &self,
        samples: &mut [(&mut Sample<'_>, Appearance)],
    ) -> Vec<Result<(), StageFailure>> {
        if self.columns.is_empty() {
            samples
                .iter_mut()
                .for_each(|(sample, _)| sample.set_all(Vec::new()));
            return samples.iter().map(|_| Ok(())).collect();
        }
        let filled = Python::attach(|py| self.fill(py, samples));
        let each = samples.iter();
        match filled {
            Ok(()) => each.map(|_| Ok(())).collect(),
            Err(error) => {
                let text = error.to_string();
                each.map(|_| Err(text.clone().into())).collect()
            }
        }
    }
}
