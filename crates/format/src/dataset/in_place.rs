//! Records that need no decoding: the range of the row in the file.
//!
//! Such rows can be read straight to their destination, without an intermediate buffer.

use pelton_batch::DType;

use crate::dataset::Dataset;
use crate::dataset::bad_record::bad_record;
use crate::dataset::data_file::DataFile;
use crate::record::error::FormatError;

/// The range of a record's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// Index of the file in [`Dataset::files`].
    pub file: u32,
    /// First byte of the row.
    pub offset: u64,
    /// Bytes of the row.
    pub length: u64,
    /// Its class.
    pub class: InPlaceClass,
}

/// How the class of a record is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlaceClass {
    /// It is known: the index in the data set's label list.
    Known(u32),
    /// In the byte at this distance before the row; [`Dataset::class_of_byte`] gives its meaning.
    Before(u8),
}

impl Dataset {
    /// The type of token ids, if records are documents of them and nothing else.
    pub fn ids(&self) -> Option<DType> {
        let mut files = self.files.iter();
        let are_documents = files.all(|file| file.decoder.are_documents());
        let field = are_documents.then(|| self.fields())?;
        Some(field.0.first()?.dtype)
    }

    /// Whether every row is a range of its record that is known before the record is read.
    pub fn reads_in_place(&self) -> bool {
        let has_cut = |file: &DataFile| file.decoder.cut().is_some();
        self.renumbers().is_none() && self.files().iter().all(has_cut)
    }

    /// The range of the row of record `id`; `None` if [`Dataset::reads_in_place`] is false. Panics unless `id` is below
    /// [`Dataset::records`].
    ///
    /// Errors: the data set does not know the class.
    #[inline]
    pub fn in_place(&self, id: u64) -> Result<Option<InPlace>, FormatError> {
        let (number, file) = self.file_of(id);
        let record = id - file.first_id;
        let Some(cut) = file.decoder.cut() else {
            return Ok(None);
        };
        let (offset, length) = file.places.get(record);
        let class = match cut.class {
            Some(class) => InPlaceClass::Before(class.before),
            None => {
                let class = file.labels.listed(record);
                InPlaceClass::Known(class.map_err(|fault| bad_record(file, record, fault))?)
            }
        };
        Ok(Some(InPlace {
            file: number as u32,
            offset: offset + cut.skip,
            length: cut.length.unwrap_or(length - cut.skip),
            class,
        }))
    }

    /// The class of record `id` with class byte `byte`.
    ///
    /// Errors: the byte is not a class. Panics like [`Dataset::in_place`].
    #[inline]
    pub fn class_of_byte(&self, id: u64, byte: u8) -> Result<u32, FormatError> {
        let (_, file) = self.file_of(id);
        let class = file.decoder.cut().and_then(|cut| cut.class);
        let class = class.unwrap_or_else(|| panic!("record {id} has no class byte"));
        let record = id - file.first_id;
        let label = class.label(byte);
        let class = label.and_then(|label| file.labels.class(record, label));
        class.map_err(|fault| bad_record(file, record, fault))
    }
}
