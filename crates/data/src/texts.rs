//! A pass over the texts of a data set, in the order of the files.

use std::sync::Arc;

use pelton_fetch::OnBadRecord;
use pelton_format::{Contents, Dataset, Row, members};
use pelton_run::{Interrupt, Observer};

use crate::error::DataError;
use crate::pass::Pass;

/// The texts of all records in the order of the files; of a tar sample its member `txt`.
pub struct Texts {
    pass: Pass,
    is_tar: bool,
}

impl Texts {
    /// Errors: records that hold no text; memory that does not hold the longest.
    pub fn new(
        dataset: &Arc<Dataset>,
        what: &'static str,
        interrupt: &Interrupt,
    ) -> Result<Texts, DataError> {
        check_text(dataset)?;
        Ok(Texts {
            pass: Pass::new(dataset, what, OnBadRecord::Fail, interrupt)?,
            is_tar: dataset.contents() == Contents::Members,
        })
    }

    /// Gives the texts of the next step to `with`, each with the id of its record; false after the last.
    pub fn next_step(
        &mut self,
        observer: Observer<'_>,
        mut with: impl FnMut(u64, &[u8]),
    ) -> Result<bool, DataError> {
        let is_tar = self.is_tar;
        self.pass.next_step(observer, |batch| {
            for i in 0..batch.rows.len() {
                let Row::Bytes(bytes) = batch.rows.row(i) else {
                    continue;
                };
                let text = match is_tar {
                    true => members(bytes)
                        .find(|member| member.is("txt"))
                        .map(|member| member.bytes),
                    false => Some(bytes),
                };
                if let Some(text) = text {
                    with(batch.rows.id(i), text);
                }
            }
        })
    }
}

/// Refuses records in which nobody would look for words.
fn check_text(dataset: &Dataset) -> Result<(), DataError> {
    match dataset.contents() {
        Contents::Text | Contents::Tokens { .. } | Contents::Bytes { .. } | Contents::Members => {
            Ok(())
        }
        contents => {
            let files = dataset.files().iter();
            let first = files.map(|file| file.path().display().to_string()).next();
            Err(DataError::Config(format!(
                "{}: its records are {contents} and no text; name text or tar files, or give `format` text",
                first.unwrap_or_default()
            )))
        }
    }
}
