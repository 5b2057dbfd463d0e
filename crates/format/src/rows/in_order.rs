//! Fields of a file that has them in another order than the first file of the data set.
//!
//! Each record is decoded and its fields are then put in their places: one copy more, in such files alone.

use std::cell::RefCell;
use std::sync::Arc;

use pelton_batch::{FieldSpecs, Schema};

use crate::error::table::TableError;
use crate::error::{Fault, FormatError};
use crate::format::{Opened, Reading};
use crate::places::fingerprint::mix;
use crate::rows::fields::{FieldDecoder, RowWriter, fields};

/// What a decoder makes, in the order of `specs`.
#[derive(Debug)]
struct InOrder {
    decoder: Arc<dyn FieldDecoder>,
    specs: FieldSpecs,
}

thread_local! {
    static ROW: RefCell<Vec<u8>> = RefCell::default();
}

impl FieldDecoder for InOrder {
    fn specs(&self) -> &FieldSpecs {
        &self.specs
    }

    fn decode(
        &self,
        record: u64,
        bytes: &[u8],
        row: &mut RowWriter<'_>,
    ) -> Result<Option<f64>, Fault> {
        ROW.with_borrow_mut(|found| {
            let label = self
                .decoder
                .decode(record, bytes, &mut RowWriter::new(found))?;
            let found = fields(found)?;
            for spec in &self.specs.0 {
                let field = found.iter().find(|field| *field.name == *spec.name);
                let field = field.ok_or(Fault::NoRecord)?;
                row.put(field.name, field.dtype, &field.dims, field.bytes);
            }
            Ok(label)
        })
    }

    fn fingerprint(&self) -> u64 {
        let text = format!("{:?}", self.specs);
        let start = self.decoder.fingerprint();
        text.bytes()
            .fold(start, |hash, byte| mix(hash, u64::from(byte)))
    }
}

/// Gives the records of all files the fields of the first in its order.
///
/// Errors: a file that lacks some of them, or has others.
pub(crate) fn put_in_order(opened: &mut [Opened]) -> Result<(), FormatError> {
    let Some((first, others)) = opened.split_first_mut() else {
        return Ok(());
    };
    let Reading::Fields { decoder, .. } = &first.found.reading else {
        return Ok(());
    };
    let known = Schema {
        fields: decoder.specs().clone(),
        label: None,
    };
    for file in others {
        let Reading::Fields { decoder, .. } = &mut file.found.reading else {
            continue;
        };
        let names = |specs: &FieldSpecs| -> Vec<Arc<str>> {
            specs
                .0
                .iter()
                .map(|field| Arc::clone(&field.name))
                .collect()
        };
        if names(decoder.specs()) == names(&known.fields) {
            continue;
        }
        let places = known.places_in(decoder.specs()).map_err(|difference| {
            FormatError::Table(TableError::Columns {
                path: file.path.clone(),
                difference: Box::new(difference),
                of: first.path.display().to_string(),
            })
        })?;
        let specs = places.iter().map(|place| decoder.specs().0[*place].clone());
        *decoder = Arc::new(InOrder {
            specs: FieldSpecs(specs.collect()),
            decoder: Arc::clone(decoder),
        });
    }
    Ok(())
}
