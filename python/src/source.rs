//! Opened data.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use numpy::PyArray1;
use pelton_batch::{FieldSpec, FieldSpecs};
use pelton_comm::Comm;
use pelton_data::{ClassSetting, DataConfig, OpenedData, open};
use pelton_feed::{Stages, When};
use pelton_format::Contents;
use pelton_key::Digest;
use pelton_run::{Event, Interrupt, RunContext};
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;

use crate::callable::{Callable, dtype_of};
use crate::error::{of_job, of_settings};
use crate::interruptible::interruptible;
use crate::process::OfProcess;
use crate::rows::Rows;

/// Files opened as one data set: the position of every record is known, nothing else was read.
#[pyclass(frozen, module = "pelton._pelton")]
pub(crate) struct Source {
    pub(crate) opened: OfProcess<OpenedData>,
    interrupt: Interrupt,
    notes: Vec<String>,
}

#[pymethods]
impl Source {
    /// Opens what a data configuration in JSON names. Where records are items of a program, `maker` makes them, and
    /// `made` is what is known of their fields: name, type and dimensions. `rows` are arrays with their names and types,
    /// if records are just their rows.
    #[new]
    #[pyo3(signature = (config, maker=None, made=Vec::new(), rows=None))]
    fn new(
        py: Python<'_>,
        config: &str,
        maker: Option<Py<PyAny>>,
        made: Vec<(String, String, Vec<Option<usize>>)>,
        rows: Option<Vec<(String, String, Py<PyAny>)>>,
    ) -> PyResult<Source> {
        let config: DataConfig =
            serde_json::from_str(config).map_err(|error| of_settings(&error))?;
        // Damaged records are an error when a pipeline starts, unless it has another policy.
        let config = DataConfig {
            of_items: maker.is_some(),
            ..config.with_bytes().leaving_damage(true)
        };
        let opened = interruptible(py, |interrupt| {
            let mut notes = Vec::new();
            let comm = Comm::alone();
            let observer = &mut |event: Event<'_>| {
                if let Event::Note(note) = event {
                    notes.push(note.to_owned());
                }
            };
            let mut context = RunContext::new(&comm, interrupt, observer);
            let opened = open(&config, &config.paths, None, &mut context);
            opened.map(|opened| (opened, notes, Arc::clone(interrupt)))
        })?;
        let (mut opened, notes, interrupt) = opened.map_err(|error| of_job(py, &error))?;
        if let Some(rows) = rows {
            opened.first_stages = Stages::default().then(Rows::new(py, &rows)?);
        } else if let Some(caller) = maker {
            let known = made.iter().filter_map(|(name, dtype, dims)| {
                Some(FieldSpec::new(name, dtype_of(dtype)?, dims))
            });
            opened.first_stages = Stages::default().then(Callable {
                caller: PyWeakrefReference::new(caller.bind(py))?.unbind(),
                when: When::Read,
                together: caller.bind(py).getattr("together")?.extract()?,
                labels: None,
                makes: Some(FieldSpecs(known.collect())),
            });
        }
        Ok(Source {
            opened: OfProcess::new(opened),
            interrupt,
            notes,
        })
    }

    /// Ends what waits for a server, since the program ends.
    fn interrupt(&self) {
        self.interrupt.store(true, Ordering::Relaxed);
    }

    /// Number of records.
    fn __len__(&self) -> usize {
        self.opened.dataset.records() as usize
    }

    /// Notes on how it was opened.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// Bytes of the files, decompressed.
    #[getter]
    fn bytes(&self) -> u64 {
        self.opened.dataset.bytes()
    }

    /// Whether records are runs of text or bytes, as opposed to pictures, features or named arrays.
    #[getter]
    fn is_text(&self) -> bool {
        let contents = self.opened.dataset.contents();
        matches!(contents, Contents::Text | Contents::Tokens { .. })
    }

    /// Names of the classes in the order of their numbers; none where labels are numbers.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.opened.dataset.labels().names().to_vec()
    }

    /// The classes as the setting `classes` spells them, in JSON; none where records have no labels.
    #[getter]
    fn class_setting(&self) -> Option<String> {
        let labels = self.opened.dataset.labels();
        let setting = match (labels.has_names(), labels.is_count()) {
            (true, _) => ClassSetting::Names(labels.names().to_vec()),
            (false, _) if labels.len() < 2 => return None,
            (false, true) => ClassSetting::Count(labels.len() as u32),
            (false, false) => ClassSetting::Numbers(labels.values().to_vec()),
        };
        serde_json::to_string(&setting).ok()
    }

    /// Whether labels are whole numbers, as those of classes are.
    #[getter]
    fn whole_labels(&self) -> bool {
        let labels = self.opened.dataset.labels();
        labels.is_count() || labels.values().iter().all(|value| value.fract() == 0.0)
    }

    /// Stored fields of a record: name, type, and dimensions as far as known.
    #[getter]
    fn fields(&self) -> Vec<(String, String, Vec<Option<usize>>)> {
        let fields = self.opened.dataset.fields().0.into_iter();
        let field = |field: pelton_batch::FieldSpec| {
            let name = field.name.to_string();
            (name, field.dtype.to_string(), field.dims)
        };
        fields.map(field).collect()
    }

    /// The files in the order of their records, with the number of records of each.
    #[getter]
    fn files(&self) -> Vec<(String, u64)> {
        let files = self.opened.dataset.files().iter();
        files
            .map(|file| (file.record_path(0).display().to_string(), file.records()))
            .collect()
    }

    /// A number for every record that follows from its file's name below the folder that all are in and from its
    /// position there: it stays the same when more records or files are added.
    fn record_digests<'py>(&self, py: Python<'py>, seed: u64) -> Bound<'py, PyArray1<u64>> {
        let files = self.opened.dataset.files();
        let mut folder = files.first().and_then(|file| file.path().parent());
        for file in files {
            while folder.is_some_and(|folder| !file.path().starts_with(folder)) {
                folder = folder.and_then(Path::parent);
            }
        }
        let of_name = |name: &Path| {
            let digest = Digest::new("split").word(seed);
            digest.bytes(name.as_os_str().as_encoded_bytes())
        };
        let mut digests = Vec::with_capacity(self.opened.dataset.records() as usize);
        for (number, file) in files.iter().enumerate() {
            let below = |path: &Path| match folder {
                _ if file.is_made() => of_name(Path::new(&number.to_string())),
                Some(folder) => of_name(path.strip_prefix(folder).unwrap_or(path)),
                None => of_name(path),
            };
            if file.is_folder() {
                let paths = (0..file.records()).map(|record| file.record_path(record));
                digests.extend(paths.map(|path| {
                    let path = path.strip_prefix(file.path()).unwrap_or(&path);
                    of_name(path).value()
                }));
            } else {
                let of_file = below(file.path());
                digests.extend((0..file.records()).map(|record| of_file.word(record).value()));
            }
        }
        PyArray1::from_vec(py, digests)
    }

    /// File and byte offset of a record.
    fn locate(&self, id: u64) -> PyResult<(String, u64)> {
        let dataset = &self.opened.dataset;
        if id >= dataset.records() {
            let sentence = format!(
                "there is no record {id}; the data has {}",
                dataset.records()
            );
            return Err(pyo3::exceptions::PyIndexError::new_err(sentence));
        }
        let place = dataset.locate(id);
        let file = &dataset.files()[place.file as usize];
        let path = file.record_path(id - file.first_id());
        // In a folder, every file begins with its record.
        let offset = if file.is_folder() { 0 } else { place.offset };
        Ok((path.display().to_string(), offset))
    }
}
