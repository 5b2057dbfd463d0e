//! A pass over the texts of a data set, in the order of the files.

use std::sync::Arc;

use pelton_batch::DType;
use pelton_fetch::OnBadRecord;
use pelton_format::{Contents, Dataset, Row, members};
use pelton_run::{Interrupt, Observer};

use crate::error::DataError;
use crate::pass::Pass;

/// The field with the text, if there are several candidates.
const TEXT: &str = "text";

/// The texts of all records in the order of the files; of a tar sample its member `txt`, of a record with several
/// fields the one named `text`, or else the only text field.
pub struct Texts {
    pass: Pass,
    is_tar: bool,
    field: Option<String>,
    dataset: Arc<Dataset>,
}

impl Texts {
    /// Errors: records without text; memory that does not hold the longest.
    pub fn new(
        dataset: &Arc<Dataset>,
        what: &'static str,
        interrupt: &Interrupt,
    ) -> Result<Texts, DataError> {
        check_text(dataset)?;
        Ok(Texts {
            pass: Pass::new(dataset, what, OnBadRecord::Fail, interrupt)?,
            is_tar: dataset.contents() == Contents::Members,
            field: text_field(dataset),
            dataset: Arc::clone(dataset),
        })
    }

    /// Calls `with` on the texts of the next step, each with the id of its record; false after the last.
    pub fn next_step(
        &mut self,
        observer: Observer<'_>,
        mut with: impl FnMut(u64, &[u8]),
    ) -> Result<bool, DataError> {
        let (is_tar, field) = (self.is_tar, self.field.as_deref());
        let fields = self.dataset.record_fields();
        self.pass.next_step(observer, |batch| {
            for i in 0..batch.rows.len() {
                let Row::Bytes(bytes) = batch.rows.row(i) else {
                    continue;
                };
                let text = match field {
                    Some(name) => fields.get(name, bytes).map(|field| field.bytes),
                    None if is_tar => members(bytes)
                        .find(|member| member.is("txt"))
                        .map(|member| member.bytes),
                    None => Some(bytes),
                };
                if let Some(text) = text {
                    with(batch.rows.id(i), text);
                }
            }
        })
    }
}

/// The text field of records with several fields: the one named `text`, or else the only one of text or bytes.
pub(crate) fn text_field(dataset: &Dataset) -> Option<String> {
    if dataset.contents() != Contents::Fields {
        return None;
    }
    let all = dataset.fields().0;
    let mut texts = all
        .iter()
        .filter(|field| field.dtype == DType::U8 && field.dims == [None])
        .map(|field| &*field.name);
    let first = texts.clone().find(|name| *name == TEXT);
    let only = || texts.next().filter(|_| texts.next().is_none());
    first.or_else(only).map(str::to_owned)
}

/// Refuses records that are not text.
fn check_text(dataset: &Dataset) -> Result<(), DataError> {
    match dataset.contents() {
        Contents::Text | Contents::Tokens { .. } | Contents::Bytes { .. } | Contents::Members => {
            Ok(())
        }
        Contents::Fields if text_field(dataset).is_some() => Ok(()),
        contents => {
            let files = dataset.files().iter();
            let first = files.map(|file| file.path().display().to_string()).next();
            Err(DataError::Config(format!(
                "{}: has no text: its records are {contents}, without a field `text` and without exactly one field of strings; name text or tar files, files with such a field, or give `format` text",
                first.unwrap_or_default()
            )))
        }
    }
}
