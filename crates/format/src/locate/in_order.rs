//! Reorders the fields of a file that has them in another order than the first file of the data set.
//!
//! Each record is decoded and its fields are then reordered: one additional copy, only for such files.

use std::cell::RefCell;
use std::sync::Arc;

use pelton_batch::{FieldSpecs, Schema};

use crate::locate::decoder::{Decoded, Decoder};
use crate::locate::format::Opened;
use crate::record::cells::known_columns::other_columns;
use crate::record::contents::Contents;
use crate::record::error::{Fault, FormatError};
use crate::record::labels::stored::Label;
use crate::record::rows::fields::RecordFields;
use crate::record::rows::{Layout, NewRow, Row, Rows};

/// The rows of a decoder, with fields in another order.
#[derive(Debug)]
struct InOrder {
    decoder: Arc<dyn Decoder>,
    /// The index of each field in its rows.
    places: Vec<usize>,
    fields: RecordFields,
}

thread_local! {
    static ROWS: RefCell<Rows> = RefCell::new(Rows::new(Layout::Bytes));
}

impl Decoder for InOrder {
    fn decode<'b>(&self, record: u64, bytes: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        ROWS.with_borrow_mut(|rows| {
            let mut label = Label::None;
            rows.clear();
            rows.push_with(|row| {
                label = self.decoder.decode(record, bytes, row)?;
                Ok(0)
            })?;
            let Row::Bytes(found) = rows.row(0) else {
                return Err(Fault::NO_RECORD);
            };
            let found = self.decoder.fields().split(found)?;
            let mut row = row.fields(&self.fields);
            for &place in &self.places {
                row.put(&found[place].dims, found[place].bytes);
            }
            Ok(label)
        })
    }

    fn fingerprint(&self) -> [u64; 3] {
        let [reading, start, zero_based] = self.decoder.fingerprint();
        [reading, self.fields.hash(start), zero_based]
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }
}

/// Gives the records of all files the fields of the first in its order.
///
/// Errors: a file lacks some of them, or has others.
pub(crate) fn put_in_order(opened: &mut [Opened]) -> Result<(), FormatError> {
    let Some((first, others)) = opened.split_first_mut() else {
        return Ok(());
    };
    if first.shard.contents != Contents::Fields {
        return Ok(());
    }
    let known = Schema {
        fields: first.shard.decoder.fields().specs().clone(),
        label: None,
        codes: Vec::new(),
        crosses: Vec::new(),
    };
    for file in others {
        let specs = file.shard.decoder.fields().specs();
        let names = |specs: &FieldSpecs| -> Vec<Arc<str>> {
            let all = specs.0.iter();
            all.map(|field| Arc::clone(&field.name)).collect()
        };
        if file.shard.contents != Contents::Fields || names(specs) == names(&known.fields) {
            continue;
        }
        let places = known.places_in(specs).map_err(|difference| {
            other_columns(&difference, first.path.display()).in_file(&file.path)
        })?;
        file.shard.decoder = Arc::new(InOrder {
            fields: file.shard.decoder.fields().selected(&places),
            places,
            decoder: Arc::clone(&file.shard.decoder),
        });
    }
    Ok(())
}
