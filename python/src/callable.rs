//! Python functions as stages.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use pelton_batch::{DType, FieldSpecs};
use pelton_feed::{Appearance, Sample, Slots, Stage, StageFailure, Value, When};
use pelton_format::Dataset;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple, PyWeakrefMethods, PyWeakrefReference};

/// A field returned by Python: name, type (none for bytes), dimensions and elements.
type Made = (String, Option<String>, Vec<usize>, Vec<u8>);

/// A caller of Python functions, which takes and gives fields as tuples (`pelton/_stage.py`).
pub(crate) struct Callable {
    /// Weak, for Python's collector does not look into stages; the run in `pelton/_run.py` has the caller.
    pub caller: Py<PyWeakrefReference>,
    pub when: When,
    /// What knows the values of labels; absent where records have none.
    pub dataset: Option<Arc<Dataset>>,
    /// Whether labels are indices of classes.
    pub by_class: bool,
    /// Where it makes records: what is known of their fields.
    pub makes: Option<FieldSpecs>,
}

impl Callable {
    /// Calls the functions on one example.
    fn call(&self, sample: &Sample<'_>, at: &Appearance) -> Result<Vec<Made>, StageFailure> {
        Python::attach(|py| {
            let made = self.call_with(py, sample, at);
            made.map_err(|error| error.to_string().into())
        })
    }

    fn call_with(
        &self,
        py: Python<'_>,
        sample: &Sample<'_>,
        at: &Appearance,
    ) -> PyResult<Vec<Made>> {
        let fields = PyList::empty(py);
        // A generated record has no earlier fields.
        let given = sample.iter().filter(|_| self.makes.is_none());
        for (name, value) in given {
            let dtype = match value {
                Value::Bytes(_) => None,
                value => Some(value.dtype().to_string()),
            };
            let dims = PyTuple::new(py, value.dims())?;
            fields.append((&**name, dtype, dims, PyBytes::new(py, value.bytes())))?;
        }
        let label = match &self.dataset {
            Some(dataset) if !self.by_class => dataset.labels().value(at.label),
            _ => f64::from(at.label),
        };
        let caller = self.caller.bind(py).upgrade();
        let caller = caller.ok_or_else(|| PyRuntimeError::new_err("its pipeline is gone"))?;
        caller.call1((fields, label, at.id, at.key))?.extract()
    }
}

impl Stage for Callable {
    fn name(&self) -> &'static str {
        match self.makes {
            Some(_) => "items",
            None => "map",
        }
    }

    /// Stages after it use the fields before it; if there are none, its output is unknown.
    fn spec(&self, mut input: FieldSpecs) -> Result<FieldSpecs, String> {
        if let Some(made) = &self.makes {
            return Ok(made.clone());
        }
        if self.when == When::Appearance {
            return Ok(FieldSpecs::default());
        }
        for field in &mut input.0 {
            field.dims = vec![None; field.dims.len().max(1)];
        }
        Ok(input)
    }

    fn is_open(&self) -> bool {
        true
    }

    fn when(&self) -> When {
        self.when
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
        for (name, dtype, dims, bytes) in made {
            let value = match dtype.as_deref() {
                None => Value::Bytes(Cow::Owned(bytes)),
                Some(dtype) => {
                    let unknown = || format!("a function returned `{name}` of {dtype}");
                    Value::Numbers(
                        dtype_of(dtype).ok_or_else(unknown)?,
                        dims,
                        Cow::Owned(bytes),
                    )
                }
            };
            sample.set(&name.into(), value);
        }
        Ok(())
    }
}

pub(crate) fn dtype_of(name: &str) -> Option<DType> {
    Some(match name {
        "uint8" => DType::U8,
        "int8" => DType::I8,
        "int16" => DType::I16,
        "uint16" => DType::U16,
        "int32" => DType::I32,
        "int64" => DType::I64,
        "uint32" => DType::U32,
        "float16" => DType::F16,
        "float32" => DType::F32,
        "float64" => DType::F64,
        _ => return None,
    })
}
