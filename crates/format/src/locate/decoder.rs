//! Turns the records of a file into rows. A format's [`Shard`](crate::locate::format::Shard) has one decoder, made when
//! the file is opened; labels are mapped to classes of the data set afterwards
//! ([`StoredLabels`](crate::record::labels::stored)).

use std::fmt;
use std::sync::Arc;

use pelton_batch::FieldSpecs;
use pelton_key::Digest;

use crate::locate::table::Cells;
use crate::record::error::Fault;
use crate::record::labels::stored::{Label, LabelForm};
use crate::record::numbering::Numbering;
use crate::record::rows::NewRow;
use crate::record::rows::fields::RecordFields;

/// The label that a decoded record states.
pub(crate) type Decoded<'b> = Result<Label<'b>, Fault>;

/// Begins the fingerprint of decoders of records of fields, which the hash of their schema tells apart.
pub(crate) const FIELDS: u64 = Digest::new("fields").value();

/// Decodes the records of one file. It accesses no file: it sees the bytes of one record.
pub(crate) trait Decoder: fmt::Debug + Send + Sync {
    /// Writes the row in `bytes`, the file's record `record`, and returns the label that the record states. After a
    /// fault the caller drops the partial row.
    fn decode<'b>(&self, record: u64, bytes: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b>;

    /// Distinguishes how the same bytes are read: the decoder, the label, and whether indices count from 0. Saved runs
    /// contain these numbers.
    fn fingerprint(&self) -> [u64; 3];

    /// The schema of rows of named arrays.
    fn fields(&self) -> &RecordFields {
        RecordFields::NONE
    }

    /// How the file numbers features.
    fn numbering(&self) -> Numbering {
        Numbering::FromZero
    }

    /// Replaces `row` by the features as f64, unscaled; `None` if files hold at most f32.
    fn decode_wide<'b>(&self, _bytes: &'b [u8], _row: &mut Vec<f64>) -> Option<Decoded<'b>> {
        None
    }

    /// Whether features are a field of f64.
    fn is_wide(&self) -> bool {
        false
    }

    /// Whether records are text, so that numbers are parsed each time.
    fn parses_text(&self) -> bool {
        false
    }

    /// Whether records are documents of token ids and nothing else.
    fn are_documents(&self) -> bool {
        false
    }

    /// How many labels there are, if a record may have several, in the field `labels`.
    fn label_lists(&self) -> Option<u64> {
        None
    }

    /// How records state their labels.
    fn label_form(&self) -> LabelForm {
        LabelForm::Codes
    }

    /// Whether the class of every record is listed outside the records.
    fn lists_classes(&self) -> bool {
        false
    }

    /// How many features a record has, if some may be missing.
    fn may_miss(&self) -> Option<usize> {
        None
    }

    /// The same with a replacement for each feature that a record lacks. Without it, such a record is bad.
    fn filled(&self, _missing: Arc<[f32]>) -> Option<Arc<dyn Decoder>> {
        None
    }

    /// Its records as rows of a table, cell by cell.
    fn cells(&self) -> Option<&dyn Cells> {
        None
    }

    /// The same with pixels as features.
    fn pixels_as_features(&self) -> Option<Arc<dyn Decoder>> {
        None
    }

    /// The same with fields like those of other files, as far as only the lengths of variable fields differ.
    fn widened(&self, _others: &[FieldSpecs]) -> Option<Arc<dyn Decoder>> {
        None
    }

    /// The range of the row within its record, if nothing has to be decoded.
    fn cut(&self) -> Option<Cut> {
        None
    }
}

/// The range of a row of bytes within its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Bytes before the row.
    pub(crate) skip: u64,
    /// Bytes of the row, if it does not extend to the end of the record.
    pub(crate) length: Option<u64>,
    pub(crate) class: Option<ClassByte>,
}

/// The byte of a record that is its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassByte {
    /// Its distance before the row, in bytes.
    pub(crate) before: u8,
    /// How many classes there are; larger bytes are faults.
    pub(crate) classes: u32,
}

impl ClassByte {
    /// The label of a byte.
    #[inline]
    pub(crate) fn label(self, byte: u8) -> Result<Label<'static>, Fault> {
        if u32::from(byte) >= self.classes {
            return Err(Fault::new(format!(
                "its class byte is {found}, but classes are 0 to {}; the file is damaged or of another kind: fetch it again",
                self.classes - 1,
                found = byte
            )));
        }
        Ok(Label::Code(byte.into()))
    }
}
