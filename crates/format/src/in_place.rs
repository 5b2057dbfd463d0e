//! Records that need no decoding: where the row lies in the file as it is handed out.
//!
//! Such rows can be read straight to where they are used, without a buffer between.

use crate::bad_record::bad_record;
use crate::data_file::{DataFile, Decoder, Places};
use crate::dataset::Dataset;
use crate::error::FormatError;
use crate::rows::sample::SampleShape;

/// Where the row of a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// Number of the file in [`Dataset::files`].
    pub file: u32,
    /// First byte of the row.
    pub offset: u64,
    /// Bytes of the row.
    pub length: u64,
    /// Its class.
    pub class: InPlaceClass,
}

/// Where the class of a record is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlaceClass {
    /// It is known: the index in the data set's label list.
    Known(u32),
    /// In the byte that lies so many bytes before the row; [`Dataset::class_of_byte`] says what it means.
    Before(u8),
}

/// How rows of bytes lie in the records of a file.
#[derive(Clone, Copy)]
struct Cut {
    /// Bytes before the row.
    skip: u64,
    /// Bytes of the row, where it does not go on to the end of the record.
    length: Option<u64>,
    /// The class byte lies so many bytes before the row.
    class: Option<u8>,
}

impl Cut {
    fn of(decoder: &Decoder, places: &Places) -> Option<Cut> {
        let shape = match decoder {
            Decoder::Sample { shape, .. } => shape,
            Decoder::Fields { decoder, .. } => {
                let row = decoder.only_field()?;
                return Some(Cut {
                    skip: row.start as u64,
                    length: Some(row.len() as u64),
                    class: None,
                });
            }
            _ => return None,
        };
        match (shape, places) {
            (SampleShape::Whole | SampleShape::Tokens { .. } | SampleShape::Bytes { .. }, _) => {
                Some(Cut {
                    skip: 0,
                    length: None,
                    class: None,
                })
            }
            (SampleShape::Cifar { label, .. }, Places::Fixed { bytes, .. }) => {
                let skip = bytes.checked_sub(crate::rows::sample::CIFAR_PIXELS as u64)?;
                let class = skip.checked_sub(*label as u64)?;
                Some(Cut {
                    skip,
                    length: None,
                    class: Some(u8::try_from(class).ok()?),
                })
            }
            _ => None,
        }
    }
}

impl Dataset {
    /// Whether every row is a run of its record's own bytes that is known before they are read.
    pub fn reads_in_place(&self) -> bool {
        let has_cut = |file: &DataFile| Cut::of(&file.decoder, &file.places).is_some();
        self.renumbers().is_none() && self.files().iter().all(has_cut)
    }

    /// Where the row of record `id` lies; `None` where [`Dataset::reads_in_place`] is false. Panics unless
    /// `id` is below [`Dataset::records`].
    ///
    /// Errors: a class that the data set does not know.
    #[inline]
    pub fn in_place(&self, id: u64) -> Result<Option<InPlace>, FormatError> {
        let (number, file) = self.file_of(id);
        let record = id - file.first_id;
        let (codes, classes) = match &file.decoder {
            Decoder::Sample { codes, classes, .. } => (codes, classes),
            Decoder::Fields { codes, listed, .. } => (codes, listed),
            _ => return Ok(None),
        };
        let Some(cut) = Cut::of(&file.decoder, &file.places) else {
            return Ok(None);
        };
        let (offset, length) = file.places.get(record);
        let class = match cut.class {
            Some(before) => InPlaceClass::Before(before),
            None => InPlaceClass::Known(
                classes
                    .class(codes.get(record))
                    .map_err(|fault| bad_record(file, record, fault))?,
            ),
        };
        Ok(Some(InPlace {
            file: number as u32,
            offset: offset + cut.skip,
            length: cut.length.unwrap_or(length - cut.skip),
            class,
        }))
    }

    /// The class of record `id` whose class byte is `byte`.
    ///
    /// Errors: a byte that stands for no class. Panics like [`Dataset::in_place`].
    #[inline]
    pub fn class_of_byte(&self, id: u64, byte: u8) -> Result<u32, FormatError> {
        let (_, file) = self.file_of(id);
        let Decoder::Sample { shape, classes, .. } = &file.decoder else {
            panic!("record {id} has no class byte");
        };
        let class = shape
            .class_of_byte(byte)
            .and_then(|code| classes.class(code));
        class.map_err(|fault| bad_record(file, id - file.first_id, fault))
    }
}
