//! Python functions as stages.

use std::any::Any;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use pelton_batch::{DType, FieldSpec, FieldSpecs};
use pelton_feed::{Appearance, Sample, Slots, Stage, StageFailure, Value, When};
use pelton_format::Dataset;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

/// What Python hands back of a field: name, type (none where it is bytes), dimensions and elements.
type Made = (String, Option<String>, Vec<usize>, Vec<u8>);

/// Exceptions of functions, the last of each thread that met one; the sentence of an error says which it was.
pub(crate) type Raised = Arc<Mutex<Vec<(String, PyErr)>>>;

/// A caller of Python functions, which takes and gives fields as tuples (`pelton/_stage.py`).
pub(crate) struct Callable {
    pub caller: Py<PyAny>,
    pub when: When,
    /// What comes out; while that is not known, what a record makes is noted in `seen`.
    pub fields: Option<FieldSpecs>,
    pub seen: Arc<Mutex<Option<FieldSpecs>>>,
    pub dataset: Arc<Dataset>,
    pub raised: Raised,
}

impl Callable {
    /// Calls the functions on one example.
    fn call(&self, sample: &Sample<'_>, at: &Appearance) -> Result<Vec<Made>, StageFailure> {
        Python::attach(|py| {
            let made = self.call_with(py, sample, at);
            made.map_err(|error| {
                let sentence = error.to_string();
                let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
                // Those of records that are left out are not asked for.
                if raised.len() >= 64 {
                    raised.remove(0);
                }
                raised.push((sentence.clone(), error));
                sentence.into()
            })
        })
    }

    fn call_with(
        &self,
        py: Python<'_>,
        sample: &Sample<'_>,
        at: &Appearance,
    ) -> PyResult<Vec<Made>> {
        let fields = PyList::empty(py);
        for (name, value) in sample.iter() {
            let dtype = match value {
                Value::Bytes(_) => None,
                value => Some(value.dtype().to_string()),
            };
            let dims = PyTuple::new(py, value.dims())?;
            fields.append((&**name, dtype, dims, PyBytes::new(py, value.bytes())))?;
        }
        let label = self.dataset.labels().value(at.label);
        self.caller
            .call1(py, (fields, label, at.id, at.key))?
            .extract(py)
    }
}

impl Stage for Callable {
    fn name(&self) -> &'static str {
        "map"
    }

    fn spec(&self, input: FieldSpecs) -> Result<FieldSpecs, String> {
        Ok(self.fields.clone().unwrap_or(input))
    }

    fn when(&self) -> When {
        self.when
    }

    fn makes_one_shape(&self) -> bool {
        true
    }

    fn run(
        &self,
        sample: &mut Sample<'_>,
        _: &mut Slots<'_>,
        at: &Appearance,
        _: &mut dyn Any,
    ) -> Result<(), StageFailure> {
        let made = self.call(sample, at)?;
        let names: Vec<Arc<str>> = sample.iter().map(|(name, _)| Arc::clone(name)).collect();
        for name in names {
            sample.remove(&name);
        }
        let fields = match &self.fields {
            Some(fields) => fields,
            None => &self.see(&made)?,
        };
        if made.len() != fields.0.len() {
            let found: Vec<&str> = made.iter().map(|(name, ..)| name.as_str()).collect();
            return Err(format!(
                "a function returned the fields {found:?} where it returned {} for another record; return the same ones for every record",
                fields.names()
            )
            .into());
        }
        for (name, dtype, dims, bytes) in made {
            let found = dtype_of(dtype.as_deref());
            let known = fields.get(&name).filter(|field| found == Some(field.dtype));
            let known = known.ok_or_else(|| {
                format!(
                    "a function returned `{name}` of {}, which it did not for another record; return the same fields with the same types for every record",
                    dtype.as_deref().unwrap_or("bytes")
                )
            })?;
            let value = match (dtype, found) {
                (Some(_), Some(dtype)) => Value::Numbers(dtype, dims, Cow::Owned(bytes)),
                _ => Value::Bytes(Cow::Owned(bytes)),
            };
            sample.set(&known.name, value);
        }
        Ok(())
    }
}

impl Callable {
    /// Notes the fields that a record made, with dimensions left open.
    fn see(&self, made: &[Made]) -> Result<FieldSpecs, StageFailure> {
        let field = |(name, dtype, dims, _): &Made| {
            let dtype = dtype_of(dtype.as_deref())?;
            Some(FieldSpec::new(name, dtype, &vec![None; dims.len()]))
        };
        let fields: Option<Vec<FieldSpec>> = made.iter().map(field).collect();
        let fields = FieldSpecs(fields.ok_or("a function made numbers that batches do not hold")?);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = Some(fields.clone());
        Ok(fields)
    }
}

fn dtype_of(name: Option<&str>) -> Option<DType> {
    Some(match name {
        None | Some("uint8") => DType::U8,
        Some("int32") => DType::I32,
        Some("int64") => DType::I64,
        Some("uint32") => DType::U32,
        Some("float16") => DType::F16,
        Some("float32") => DType::F32,
        Some("float64") => DType::F64,
        _ => return None,
    })
}
