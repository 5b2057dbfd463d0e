//! Records of bytes in frames, possibly Examples: the common part of TFRecord and ArrayRecord.

pub(crate) mod example;
pub(crate) mod example_fields;
pub(crate) mod scan;

use std::fmt;
use std::sync::Arc;

use crate::locate::decoder::FIELDS;
use pelton_batch::FieldSpecs;

use crate::locate::decoder::{Decoded, Decoder};
use crate::locate::format::Source;
use crate::locate::places::located::text_of;
use crate::record::cells::label_column::LabelColumn;
use crate::record::cells::label_column::no_label_column;
use crate::record::error::{Fault, FormatError};
use crate::record::labels::stored::Label;
use crate::record::mixing::mix;
use crate::record::rows::NewRow;
use crate::record::rows::fields::RecordFields;
use crate::samples::framed::example::stops_at;
use crate::samples::framed::example_fields::ExampleFields;

/// The argument for records as bytes.
pub(crate) const AS_BYTES: &str = "bytes";
/// The field of records as bytes.
const BYTES: &str = "bytes";

/// Checks an argument of a format of such records; the error describes its fault.
pub(crate) fn check_argument(format: &str, argument: &str) -> Result<(), String> {
    match argument {
        AS_BYTES => Ok(()),
        _ => Err(format!(
            "is not how records can be read: use {format}, or {format}:{AS_BYTES} for records as they are"
        )),
    }
}

/// The remedy for a label that is not a feature of such records.
pub(crate) fn refuses_label(label: &LabelColumn) -> Option<&'static str> {
    use LabelColumn::{First, Json, Position};
    matches!(label, First | Position(_) | Json(_))
        .then_some("give the name of a feature, or leave it out for the one that is called label")
}

/// How the bytes of a record are framed.
pub(crate) trait Framing: fmt::Debug + Send + Sync + 'static {
    /// Calls `with` with the bytes of record `record` of the file, if their checksums fit.
    fn open<R>(
        &self,
        record: u64,
        frame: &[u8],
        with: impl FnOnce(&[u8]) -> Result<R, Fault>,
    ) -> Result<R, Fault>;
}

/// The kind of the bytes of records.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    Bytes(RecordFields),
    Example(ExampleFields),
}

impl Payload {
    /// Bytes, unparsed.
    pub(crate) fn bytes() -> Payload {
        let mut fields = RecordFields::default();
        fields.push_string(BYTES);
        Payload::Bytes(fields)
    }

    /// From the first record and the options.
    pub(crate) fn new(
        first: &[u8],
        format: &'static str,
        source: &Source<'_>,
        notes: &mut Vec<String>,
    ) -> Result<Payload, FormatError> {
        let label = &source.options.label;
        if source.argument() != AS_BYTES {
            if let Some(fields) = ExampleFields::of_first(first, format) {
                return Ok(Payload::Example(fields.with_label(label)?));
            }
            if let Some((at, field)) = stops_at(first) {
                notes.push(format!(
                    "{}: its first record begins as a tf.train.Example, but field {field} at byte {at} of it is not known there, so records are read as bytes; write them as Examples alone, or say that this is meant by `format` {format}:{AS_BYTES}",
                    source.path.display()
                ));
            }
        }
        match label {
            LabelColumn::Name(_) => Err(no_label_column(
                label.describe(),
                "none, since its records are bytes, not tf.train.Example",
            )),
            _ => Ok(Payload::bytes()),
        }
    }

    /// Distinguishes how records are read, for sidecars.
    pub(crate) fn hash(&self) -> u64 {
        match self {
            Payload::Bytes(_) => 0,
            Payload::Example(fields) => {
                let label = fields.label().unwrap_or_default().bytes();
                label.fold(1, |hash, byte| mix(hash, u64::from(byte)))
            }
        }
    }

    /// The schema of rows.
    fn fields(&self) -> &RecordFields {
        match self {
            Payload::Bytes(fields) => fields,
            Payload::Example(fields) => fields.fields(),
        }
    }

    /// Bytes of the rows of `records` unparsed records with `bytes` bytes together.
    pub(crate) fn row_bytes(records: u64, bytes: u64) -> u64 {
        bytes + records * Payload::bytes().fields().row_bytes()
    }

    /// Applies the tallies of a scan; returns remarks for the user.
    pub(crate) fn with_tallies(self, tallies: &[u64]) -> (Payload, Vec<String>) {
        let (Payload::Example(fields), Some((with_more, words))) = (&self, tallies.split_first())
        else {
            return (self, Vec::new());
        };
        let (more, words) = text_of(words).unwrap_or_default();
        let fields = fields.clone().with_words(words);
        let mut notes = Vec::new();
        if *with_more > 0 {
            notes.push(format!(
                "{with_more} records have features that the first one lacks, such as {more:?}, and these are left out; write the same features in every record"
            ));
        }
        let left_out = fields.left_out();
        if !left_out.is_empty() {
            notes.push(format!(
                "features without values, or with names that no field can have, are left out: {}",
                left_out.join(", ")
            ));
        }
        (Payload::Example(fields), notes)
    }
}

/// Records in frames as rows of fields.
#[derive(Debug)]
pub(crate) struct FramedDecoder<F> {
    pub(crate) framing: Arc<F>,
    pub(crate) payload: Payload,
}

impl<F: Framing> Decoder for FramedDecoder<F> {
    fn decode<'b>(&self, record: u64, frame: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        let mut row = row.fields(self.fields());
        self.framing
            .open(record, frame, |bytes| match &self.payload {
                Payload::Example(fields) => fields.decode(bytes, &mut row),
                Payload::Bytes(_) => {
                    row.put(&[bytes.len()], bytes);
                    Ok(())
                }
            })?;
        Ok(Label::Listed)
    }

    fn fingerprint(&self) -> [u64; 3] {
        [FIELDS, self.fields().hash(0), 0]
    }

    fn fields(&self) -> &RecordFields {
        self.payload.fields()
    }

    fn widened(&self, others: &[FieldSpecs]) -> Option<Arc<dyn Decoder>> {
        let Payload::Example(fields) = &self.payload else {
            return None;
        };
        Some(Arc::new(FramedDecoder {
            framing: Arc::clone(&self.framing),
            payload: Payload::Example(fields.widened(others)),
        }))
    }
}
