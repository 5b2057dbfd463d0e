//! Python functions as stages.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use numpy::{
    Element, PyArray1, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyUntypedArray,
    PyUntypedArrayMethods,
};
use pelton_batch::{DType, FieldSpecs};
use pelton_feed::{Appearance, Sample, Slots, Stage, StageFailure, Value, When};
use pelton_format::Dataset;
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyWeakrefMethods, PyWeakrefReference,
};

/// A caller of Python functions (`Chain` in `pelton/_stage.py`), which takes and gives lists of dicts of fields.
pub(crate) struct Callable {
    /// Weak, for Python's collector does not look into stages; the run in `pelton/_run.py` has the caller.
    pub caller: Py<PyWeakrefReference>,
    pub when: When,
    /// Most samples of a call.
    pub together: usize,
    /// Labels of samples, where records have some that are not among their fields.
    pub labels: Option<Labels>,
    /// Where it makes records: what is known of their fields.
    pub makes: Option<FieldSpecs>,
}

/// How functions get the labels of records.
pub(crate) struct Labels {
    /// What knows their values.
    pub dataset: Arc<Dataset>,
    /// Whether they are indices of classes.
    pub by_class: bool,
    /// Whether they are whole numbers.
    pub whole: bool,
}

const LABEL: &str = "label";
const RECORD: &str = "record";

/// What of `pelton._stage` and NumPy is used for each value.
struct Names {
    /// The type of a record's number as functions get it, which does not go into batches.
    number: Py<PyAny>,
    /// Any value as an array or bytes.
    plain: Py<PyAny>,
    array: Py<PyAny>,
    /// NumPy's numbers, the most usual of them, and what makes arrays of the others.
    scalar: Py<PyAny>,
    int64: Py<PyAny>,
    as_array: Py<PyAny>,
}

static NAMES: PyOnceLock<Names> = PyOnceLock::new();

impl Names {
    fn get(py: Python<'_>) -> PyResult<&Names> {
        NAMES.get_or_try_init(py, || {
            let (stage, numpy) = (py.import("pelton._stage")?, py.import("numpy")?);
            Ok(Names {
                number: stage.getattr("Number")?.unbind(),
                plain: stage.getattr("plain")?.unbind(),
                array: PyUntypedArray::type_object(py).into_any().unbind(),
                scalar: numpy.getattr("generic")?.unbind(),
                int64: numpy.getattr("int64")?.unbind(),
                as_array: numpy.getattr("asarray")?.unbind(),
            })
        })
    }
}

type Results = Vec<Result<(), StageFailure>>;

impl Callable {
    /// Calls the functions on several samples.
    fn call(&self, samples: &mut [(&mut Sample<'_>, Appearance)]) -> Results {
        let count = samples.len();
        Python::attach(|py| {
            let results = self.call_with(py, samples);
            results.unwrap_or_else(|error| {
                let text = error.to_string();
                (0..count).map(|_| Err(text.clone().into())).collect()
            })
        })
    }

    fn call_with(
        &self,
        py: Python<'_>,
        samples: &mut [(&mut Sample<'_>, Appearance)],
    ) -> PyResult<Results> {
        let names = Names::get(py)?;
        let given = PyList::empty(py);
        // A generated record has no earlier fields.
        if self.makes.is_none() {
            for (sample, at) in samples.iter() {
                given.append(self.dict_of(py, names, sample, at)?)?;
            }
        }
        let records: Vec<u64> = samples.iter().map(|(_, at)| at.id).collect();
        let keys: Vec<u64> = samples.iter().map(|(_, at)| at.key).collect();
        let own_label = samples
            .first()
            .is_some_and(|(sample, _)| sample.get(LABEL).is_some());
        let caller = self.caller.bind(py).upgrade();
        let caller = caller.ok_or_else(|| PyRuntimeError::new_err("its pipeline is gone"))?;
        let made = caller.call1((given, own_label, records, keys))?;
        let mut results = Vec::with_capacity(samples.len());
        for (made, (sample, _)) in made.cast::<PyList>()?.iter().zip(samples) {
            results.push(match made.cast::<PyDict>() {
                Ok(made) => take(py, names, made, sample).map_err(|error| error.to_string().into()),
                Err(_) => Err(PyErr::from_value(made).to_string().into()),
            });
        }
        Ok(results)
    }

    /// A sample as functions get it.
    fn dict_of<'py>(
        &self,
        py: Python<'py>,
        names: &Names,
        sample: &Sample<'_>,
        at: &Appearance,
    ) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(py);
        for (name, value) in sample.iter() {
            let interned = PyString::intern(py, name);
            match value {
                Value::Bytes(bytes) => fields.set_item(interned, PyBytes::new(py, bytes))?,
                value if value.dims().is_empty() && &**name == LABEL => {
                    let array = array_of(py, value.dtype(), &[1], value.bytes())?;
                    let number = array.call_method0(pyo3::intern!(py, "item"))?;
                    fields.set_item(interned, number)?;
                }
                value => {
                    let array = array_of(py, value.dtype(), &value.dims(), value.bytes())?;
                    fields.set_item(interned, array)?;
                }
            }
        }
        if let Some(labels) = &self.labels
            && sample.get(LABEL).is_none()
        {
            let label = match labels.by_class {
                true => f64::from(at.label),
                false => labels.dataset.labels().value(at.label),
            };
            match labels.whole {
                true => fields.set_item(pyo3::intern!(py, LABEL), label as i64)?,
                false => fields.set_item(pyo3::intern!(py, LABEL), label)?,
            }
        }
        // If the data has a field with this name, it stays unchanged.
        if sample.get(RECORD).is_none() {
            let number = names.number.bind(py).call1((at.id,))?;
            fields.set_item(pyo3::intern!(py, RECORD), number)?;
        }
        Ok(fields)
    }
}

/// Replaces the fields of a sample by those that functions made.
fn take(
    py: Python<'_>,
    names: &Names,
    made: &Bound<'_, PyDict>,
    sample: &mut Sample<'_>,
) -> PyResult<()> {
    let mut fields = Vec::with_capacity(made.len());
    for (name, value) in made.iter() {
        if value.get_type().is(names.number.bind(py)) {
            continue;
        }
        let name = name.cast::<PyString>()?.to_str()?;
        let value = value_of(py, names, name, &value)?;
        let mut known = sample.iter().map(|(known, _)| known);
        let known = known.find(|known| &***known == name).cloned();
        fields.push((known.unwrap_or_else(|| name.into()), value));
    }
    sample.set_all(fields);
    Ok(())
}

/// A copy of numbers, to which a function may write.
fn array_of<'py>(
    py: Python<'py>,
    dtype: DType,
    dims: &[usize],
    bytes: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    fn of<'py, T: Element + bytemuck::Pod>(
        py: Python<'py>,
        dims: &[usize],
        bytes: &[u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = match bytemuck::try_cast_slice::<u8, T>(bytes) {
            Ok(values) => PyArray1::from_slice(py, values),
            Err(_) => PyArray1::from_vec(py, bytemuck::pod_collect_to_vec(bytes)),
        };
        match dims {
            [_] => Ok(array.into_any()),
            dims => Ok(array.reshape(dims)?.into_any()),
        }
    }
    match dtype {
        DType::U8 => of::<u8>(py, dims, bytes),
        DType::I8 => of::<i8>(py, dims, bytes),
        DType::I16 => of::<i16>(py, dims, bytes),
        DType::U16 => of::<u16>(py, dims, bytes),
        DType::I32 => of::<i32>(py, dims, bytes),
        DType::I64 => of::<i64>(py, dims, bytes),
        DType::U32 => of::<u32>(py, dims, bytes),
        DType::F32 => of::<f32>(py, dims, bytes),
        DType::F64 => of::<f64>(py, dims, bytes),
        DType::F16 => {
            let array = of::<u16>(py, dims, bytes)?;
            array.call_method1(pyo3::intern!(py, "view"), ("float16",))
        }
        DType::BF16 => Err(PyTypeError::new_err(
            "functions cannot take bfloat16, which NumPy lacks; store another type",
        )),
    }
}

/// A value that a function returned.
fn value_of(
    py: Python<'_>,
    names: &Names,
    name: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<Value<'static>> {
    if let Ok(number) = value.cast_exact::<PyFloat>() {
        return Ok(number_of(DType::F64, &number.value().to_le_bytes()));
    }
    let kind = value.get_type();
    if (value.is_exact_instance_of::<PyInt>() || kind.is(names.int64.bind(py)))
        && let Ok(number) = value.extract::<i64>()
    {
        return Ok(number_of(DType::I64, &number.to_le_bytes()));
    }
    if let Ok(truth) = value.cast_exact::<PyBool>() {
        return Ok(number_of(DType::U8, &[truth.is_true().into()]));
    }
    // Boxes of a picture without any have their own shape.
    if !name.starts_with("box")
        && let Some(known) = known(names, value)?
    {
        return Ok(known);
    }
    if value.is_instance(names.scalar.bind(py))? {
        let array = names.as_array.bind(py).call1((value,))?;
        if let Some(known) = known(names, &array)? {
            return Ok(known);
        }
    }
    let plain = names.plain.bind(py).call1((name, value))?;
    let known = known(names, &plain)?;
    known.ok_or_else(|| {
        PyTypeError::new_err(format!("a function returned `{name}`, which is no field"))
    })
}

fn number_of(dtype: DType, bytes: &[u8]) -> Value<'static> {
    Value::Numbers(dtype, Vec::new(), Cow::Owned(bytes.to_vec()))
}

/// Bytes, or an array in C's order of a type that the native part knows; none for others, subclasses among them.
fn known(names: &Names, value: &Bound<'_, PyAny>) -> PyResult<Option<Value<'static>>> {
    if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        return Ok(Some(Value::Bytes(Cow::Owned(bytes.as_bytes().to_vec()))));
    }
    if !value.get_type().is(names.array.bind(value.py())) {
        return Ok(None);
    }
    let array = value.cast::<PyUntypedArray>()?;
    if !array.is_c_contiguous() {
        return Ok(None);
    }
    fn of<T: Element + bytemuck::Pod>(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        let array = value.cast::<PyArrayDyn<T>>()?.readonly();
        Ok(bytemuck::cast_slice(array.as_slice()?).to_vec())
    }
    let dtype = array.dtype();
    let (kind, size) = (dtype.kind(), dtype.itemsize());
    let found = match (kind, size) {
        _ if dtype.is_native_byteorder() == Some(false) => return Ok(None),
        (b'f', 4) => (DType::F32, of::<f32>(value)?),
        (b'i', 8) => (DType::I64, of::<i64>(value)?),
        (b'u', 1) => (DType::U8, of::<u8>(value)?),
        (b'i', 4) => (DType::I32, of::<i32>(value)?),
        (b'f', 8) => (DType::F64, of::<f64>(value)?),
        (b'u', 4) => (DType::U32, of::<u32>(value)?),
        (b'u', 2) => (DType::U16, of::<u16>(value)?),
        (b'i', 2) => (DType::I16, of::<i16>(value)?),
        (b'i', 1) => (DType::I8, of::<i8>(value)?),
        (b'f', 2) => {
            let words = value.call_method1(pyo3::intern!(value.py(), "view"), ("uint16",))?;
            (DType::F16, of::<u16>(&words)?)
        }
        _ => return Ok(None),
    };
    Ok(Some(Value::Numbers(
        found.0,
        array.shape().to_vec(),
        Cow::Owned(found.1),
    )))
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
        let mut results = self.call(&mut [(sample, *at)]);
        results.pop().unwrap_or(Ok(()))
    }

    fn together(&self) -> usize {
        self.together
    }

    fn run_together(&self, samples: &mut [(&mut Sample<'_>, Appearance)]) -> Results {
        self.call(samples)
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
