//! Records that are token ids and nothing else.

use pelton_batch::{DType, FieldSpec};
use pelton_key::Digest;

use crate::locate::decoder::{Cut, Decoded, Decoder};
use crate::record::labels::stored::Label;
use crate::record::rows::NewRow;
use crate::record::rows::fields::RecordFields;

/// The name of the field.
const TOKENS: &str = "tokens";

/// Ids as they are stored.
#[derive(Debug)]
pub(crate) struct IdsDecoder {
    bytes: usize,
    fields: RecordFields,
    /// Tells the places of records apart, where the file itself does not.
    places: u64,
}

impl IdsDecoder {
    /// Of records of `length` ids, or of any length.
    pub(crate) fn new(dtype: DType, length: Option<usize>, places: u64) -> IdsDecoder {
        let mut fields = RecordFields::default();
        fields.push_array(FieldSpec::new(TOKENS, dtype, &[length]));
        IdsDecoder {
            bytes: dtype.bytes(),
            fields,
            places,
        }
    }
}

impl Decoder for IdsDecoder {
    #[inline]
    fn decode<'b>(&self, _: u64, bytes: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        let ids = [bytes.len() / self.bytes];
        row.fields(&self.fields).put(&ids, bytes);
        Ok(Label::Listed)
    }

    fn fingerprint(&self) -> [u64; 3] {
        [
            Digest::new("windows").value(),
            self.fields.hash(0),
            self.places,
        ]
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn are_documents(&self) -> bool {
        self.fields.specs().0[0].dims[0].is_none()
    }

    /// Rows of unknown length begin with it.
    fn cut(&self) -> Option<Cut> {
        self.fields.specs().0[0].dims[0].map(|_| Cut {
            skip: 0,
            length: None,
            class: None,
        })
    }
}
