//! Data that was opened.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelton_comm::Comm;
use pelton_data::{ClassSetting, DataConfig, OpenedData, open};
use pelton_format::Contents;
use pelton_run::{Event, Interrupt, RunContext};
use pyo3::prelude::*;

use crate::error::{of_job, of_settings};
use crate::interruptible::interruptible;
use crate::process::OfProcess;

/// Files opened as one data set: the position of every record is known, nothing else was read.
#[pyclass(frozen, module = "pelton._pelton")]
pub(crate) struct Source {
    pub(crate) opened: OfProcess<OpenedData>,
    interrupt: Interrupt,
    notes: Vec<String>,
}

#[pymethods]
impl Source {
    /// Opens what a data configuration in JSON names.
    #[new]
    fn new(py: Python<'_>, config: &str) -> PyResult<Source> {
        let config: DataConfig =
            serde_json::from_str(config).map_err(|error| of_settings(&error))?;
        // Damaged records are an error when a pipeline starts, unless it has another policy.
        let config = config.with_bytes().leaving_damage(true);
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
        let (opened, notes, interrupt) = opened.map_err(|error| of_job(py, &error))?;
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
        Ok((path.display().to_string(), place.offset))
    }
}
