//! An array of a batch, for other libraries.

use std::sync::Arc;

use pelton_batch::{Buffer, DType};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Memory of a batch with a type and dimensions. NumPy borrows it (`numpy.asarray`) and keeps this object, and with it
/// the memory, for as long as any of its arrays looks at it; then the loader uses it again.
#[pyclass(frozen, module = "pelton._pelton")]
pub(crate) struct Array {
    owner: Arc<Buffer>,
    dtype: DType,
    dims: Vec<usize>,
    writable: bool,
}

impl Array {
    /// `array`, with writable memory unless it is shared.
    pub(crate) fn from_array(array: pelton_batch::Array) -> Array {
        let (dtype, dims) = (array.dtype(), array.shape().dims.clone());
        let owner = array.owner();
        drop(array);
        let writable = Arc::strong_count(&owner) == 1;
        Array {
            owner,
            dtype,
            dims,
            writable,
        }
    }
}

#[pymethods]
impl Array {
    /// NumPy's description of the memory.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let described = PyDict::new(py);
        described.set_item(pyo3::intern!(py, "version"), 3)?;
        described.set_item(pyo3::intern!(py, "typestr"), typestr(self.dtype))?;
        described.set_item(pyo3::intern!(py, "shape"), PyTuple::new(py, &self.dims)?)?;
        let data = (self.owner.as_ptr() as usize, !self.writable);
        described.set_item(pyo3::intern!(py, "data"), data)?;
        Ok(described)
    }

    /// Whether the numbers are bfloat16, which NumPy lacks: they are returned as unsigned 16-bit integers.
    #[getter]
    fn is_bfloat16(&self) -> bool {
        self.dtype == DType::BF16
    }
}

/// The type as the array interface spells it.
fn typestr(dtype: DType) -> &'static str {
    match dtype {
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::U16 => "<u2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U32 => "<u4",
        DType::F16 => "<f2",
        DType::BF16 => "<u2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
    }
}
