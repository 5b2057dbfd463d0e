//! The module `pelton._pelton`, the native part of the Python package.
//!
//! Settings arrive as JSON in the configuration format of the command, so that a name means the same everywhere; the
//! friendlier interface is written in Python, in the files next to this crate's `src`. A `source::Source` is opened
//! data, a `pipeline::Pipeline` the stages on its records, a `loader::Loader` returns batches; NumPy borrows their
//! arrays (`array::Array`) without a copy. `estimator` trains linear models on arrays and files; `classes` has the
//! passes over the weights of very many classes. Ranks find each other through a `listener::Listener`. `command` is the
//! command that the package installs.

mod array;
mod callable;
mod classes;
mod error;
mod estimator;
mod interruptible;
mod listener;
mod loader;
mod pipeline;
mod process;
mod ranks;
mod rows;
mod samples;
mod source;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use pelton_storage::{CachedCopy, StorageError};
use pyo3::prelude::*;

use crate::error::of_job;
use crate::interruptible::interruptible;

/// What the Python files of the package import.
#[pymodule]
mod _pelton {
    #[pymodule_export]
    use crate::array::Array;
    #[pymodule_export]
    use crate::classes::{ClassIndex, class_losses, head_of_run, nearest_classes};
    #[pymodule_export]
    use crate::error::{BadRecordError, ConfigurationError, DataError, StateError};
    #[pymodule_export]
    use crate::estimator::{LinearRows, fit_linear, linear_model, linear_rows};
    #[pymodule_export]
    use crate::listener::Listener;
    #[pymodule_export]
    use crate::loader::Loader;
    #[pymodule_export]
    use crate::pipeline::Pipeline;
    #[pymodule_export]
    use crate::ranks::Ranks;
    #[pymodule_export]
    use crate::samples::Samples;
    #[pymodule_export]
    use crate::source::Source;

    use super::*;

    /// The command `pelton` with the words after its name; returns its exit code. It needs the process for itself.
    #[pyfunction]
    fn command(py: Python<'_>, words: Vec<OsString>) -> u8 {
        py.detach(|| pelton_cli::pelton(std::iter::once("pelton".into()).chain(words)))
    }

    /// The path of a checked copy in the cache folder, written by `fill`, which is given a path, where there is none.
    #[pyfunction]
    #[pyo3(signature = (cache_dir, stem, suffix, fill))]
    fn cached_copy(
        py: Python<'_>,
        cache_dir: Option<PathBuf>,
        stem: &str,
        suffix: &str,
        fill: &Bound<'_, PyAny>,
    ) -> PyResult<PathBuf> {
        let (folder, _) = pelton_storage::cache_folder(cache_dir.as_deref());
        let copy = CachedCopy {
            folder: &folder,
            stem,
            suffix,
            interrupt: &AtomicBool::new(false),
        };
        let of_storage = |error: StorageError| of_job(py, &error.into());
        let found = interruptible(py, |interrupt| CachedCopy { interrupt, ..copy }.find())?;
        if let Some(found) = found.map_err(of_storage)? {
            return Ok(found);
        }
        let file = copy.create().map_err(of_storage)?;
        fill.call1((file.temporary(),))?;
        let path = interruptible(py, |interrupt| {
            CachedCopy { interrupt, ..copy }.publish(file)
        })?;
        path.map_err(of_storage)
    }

    /// The default memory budget of a job: `usual` bytes, or less where there are fewer.
    #[pyfunction]
    fn memory_budget(usual: u64, ranks: usize) -> u64 {
        pelton_storage::memory_budget(usual, ranks)
    }

    /// A text whose addresses are shown without user, password and query.
    #[pyfunction]
    fn without_secrets(text: &str) -> String {
        pelton_storage::without_secrets(text).into_owned()
    }

    /// Version of the package.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        #[cfg(debug_assertions)]
        pelton_train::forbid_rayons_pool();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
