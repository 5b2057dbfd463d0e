//! Errors of the crates below as exceptions.

use std::fmt::Display;

use pelton_data::DataError as JobError;
use pelton_feed::FeedError;
use pelton_storage::StorageErrorKind;
use pyo3::create_exception;
use pyo3::exceptions::{
    PyException, PyFileNotFoundError, PyIndexError, PyKeyboardInterrupt, PyValueError,
};
use pyo3::prelude::*;

create_exception!(
    pelton,
    DataError,
    PyException,
    "Data could not be opened or read."
);
create_exception!(
    pelton,
    BadRecordError,
    DataError,
    "A record could not be read, decoded or processed by a function; `path`, `record` and `offset` say which."
);
create_exception!(
    pelton,
    ConfigurationError,
    PyValueError,
    "Settings that are invalid, or do not fit together or fit the data."
);
create_exception!(
    pelton,
    StateError,
    PyValueError,
    "A saved state that a loader cannot resume from."
);

/// A sentence about settings.
pub(crate) fn configuration(sentence: impl Display) -> PyErr {
    ConfigurationError::new_err(sentence.to_string())
}

/// The error in JSON settings, without the position in a text that the user did not write.
pub(crate) fn of_settings(error: &serde_json::Error) -> PyErr {
    let sentence = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    configuration(sentence.strip_suffix(&place).unwrap_or(&sentence))
}

/// The exception of a job's error.
pub(crate) fn of_job(py: Python<'_>, error: &JobError) -> PyErr {
    match error {
        JobError::Feed(error) => of_feed(py, error),
        JobError::Config(_) | JobError::Plan(_) | JobError::Demo(_) => configuration(error),
        error if error.is_interruption() => PyKeyboardInterrupt::new_err(()),
        error if is_missing(error) => PyFileNotFoundError::new_err(error.to_string()),
        error => DataError::new_err(error.to_string()),
    }
}

/// The exception of a loader's error.
pub(crate) fn of_feed(py: Python<'_>, error: &FeedError) -> PyErr {
    match error {
        FeedError::Example {
            path,
            record,
            offset,
            problem,
        } => {
            // Items of a program are not in a file.
            let sentence = if path.to_string_lossy().starts_with("items:") {
                format!(
                    "item {record}: {problem}; repair or leave it out, or skip bad items with `on_bad_record` skip"
                )
            } else {
                error.to_string()
            };
            let exception = BadRecordError::new_err(sentence);
            let value = exception.value(py);
            // Attributes of an exception that was just made can be set.
            let _ = value.setattr("path", path.display().to_string());
            let _ = value.setattr("record", *record);
            let _ = value.setattr("offset", *offset);
            exception
        }
        FeedError::NoRecord { .. } => PyIndexError::new_err(error.to_string()),
        FeedError::State(_) => StateError::new_err(error.to_string()),
        FeedError::Stages(_) => configuration(error),
        error if error.is_interruption() => PyKeyboardInterrupt::new_err(()),
        error => DataError::new_err(error.to_string()),
    }
}

/// Whether a file does not exist.
fn is_missing(error: &JobError) -> bool {
    let error = match error {
        JobError::Format(error) => error.storage(),
        JobError::Storage(error) => Some(error),
        _ => None,
    };
    error.is_some_and(|error| error.kind == StorageErrorKind::NotFound)
}
