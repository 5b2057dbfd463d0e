//! Raw records of one length, with fields given by a spelling: `raw:u8[28,28],label:u8`.
//!
//! ```text
//! raw:FIELD,FIELD…     FIELD is TYPE, TYPE[LENGTH,…], or one of them behind NAME:
//! ```
//!
//! Types are u8, i8, i16, u16, i32, i64, u32, f16, bf16, f32 and f64, little-endian. `header[N]` in front leaves out
//! the first N bytes of each file, `pad[N]` N bytes of each record. Fields without a name are called data, data2, data3
//! …. Offsets are computed; the labels are read once.

use crate::locate::decoder::FIELDS;
use pelton_batch::{DType, FieldSpec};

use crate::locate::decoder::{Cut, Decoded, Decoder};
use crate::locate::field_labels::{Column, scan_labels};
use crate::locate::format::{Format, Shard, Source};
use crate::locate::places::Places;
use crate::record::cells::label_column::no_label_column;
use crate::record::error::{Fault, FormatError};
use crate::record::labels::checked_label;
use crate::record::labels::stored::Label;
use crate::record::rows::NewRow;
use crate::record::rows::fields::{self, MOST_DIMENSIONS, RecordFields, check_name};

/// Longest record.
const MOST_RECORD_BYTES: u64 = 1 << 32;

/// Raw records.
pub(crate) struct RawRecords;

impl Format for RawRecords {
    fn name(&self) -> &'static str {
        "raw"
    }

    fn argument(&self) -> Option<&'static str> {
        Some("FIELDS")
    }

    fn check(&self, argument: &str) -> Result<(), String> {
        parse(argument).map(drop)
    }

    fn open(&self, source: &Source<'_>, _: &mut Vec<String>) -> Result<Shard, FormatError> {
        let layout = parse(source.argument()).expect("it was checked");
        let RawLayout {
            header,
            record_bytes: bytes,
            fields,
        } = layout;
        let size = source.stamp.size;
        let records = size.saturating_sub(header) / bytes;
        if header + records * bytes != size || records == 0 {
            let what = format!(
                "its {} bytes after the header are not records of {bytes} bytes; check the types and lengths of `format`, and `header[N]`",
                size.saturating_sub(header)
            );
            return Err(FormatError::malformed(header + records * bytes, what));
        }
        let names: Vec<&str> = fields.iter().map(|field| &*field.spec.name).collect();
        let label = fields::label_field(&names, &source.options.label)?;
        let mut labels = Vec::new();
        if let Some(at) = label {
            let field = &fields[at];
            if !field.spec.dims.is_empty() {
                let columns = "of one number each if they are labels";
                return Err(no_label_column(names[at], columns));
            }
            let column = Column {
                from: header + field.at as u64,
                stride: bytes,
                count: records,
                dtype: field.spec.dtype,
            };
            let (file, interrupt) = (source.input()?, &source.options.interrupt);
            labels = scan_labels(&file, column, interrupt)?;
            // In ascending order, as in the data set, so that no table translates between the two.
            labels.sort_by(f64::total_cmp);
        }
        Ok(Shard {
            records,
            bytes: records * bytes,
            longest: bytes,
            places: Places::Fixed {
                from: header,
                bytes,
            },
            labels: labels.into(),
            ..Shard::fields(records, RawDecoder::new(fields, label))
        })
    }
}

/// A parsed spelling.
#[derive(Debug)]
pub struct RawLayout {
    header: u64,
    record_bytes: u64,
    fields: Vec<RawField>,
}

#[derive(Clone, Debug)]
struct RawField {
    spec: FieldSpec,
    dims: Vec<usize>,
    /// First byte in the record.
    at: usize,
    bytes: usize,
}

/// Parses a spelling; the error describes its fault.
pub fn parse(spelling: &str) -> Result<RawLayout, String> {
    let mut layout = RawLayout {
        header: 0,
        record_bytes: 0,
        fields: Vec::new(),
    };
    let mut rest = Some(spelling);
    let mut first = true;
    while let Some(text) = rest {
        // A comma in brackets separates lengths.
        let brackets = text.find('[').zip(text.find(']'));
        let comma = text.find(',');
        let end = match (brackets, comma) {
            (Some((open, close)), Some(comma)) if open < comma => text[close.max(open)..]
                .find(',')
                .map(|at| at + close.max(open)),
            _ => comma,
        };
        let part = &text[..end.unwrap_or(text.len())];
        rest = end.map(|end| &text[end + 1..]);
        layout
            .add(part.trim(), first)
            .map_err(|what| format!("is not a layout of records: {what} in `{part}`; write raw:TYPE[LENGTH,…],NAME:TYPE with u8, i8, i16, u16, i32, i64, u32, f16, bf16, f32 or f64"))?;
        first = false;
    }
    if layout.fields.is_empty() {
        Err("has no fields; write raw:TYPE[LENGTH,…],NAME:TYPE".into())
    } else {
        Ok(layout)
    }
}

impl RawLayout {
    fn add(&mut self, part: &str, first: bool) -> Result<(), String> {
        let (name, array) = match part.rsplit_once(':') {
            Some((name, array)) => (Some(name), array),
            None => (None, part),
        };
        let (element, dims) = match array.split_once('[') {
            Some((element, lengths)) => {
                let lengths = lengths.strip_suffix(']').ok_or("`]` is missing")?;
                let lengths = lengths
                    .split(',')
                    .map(|length| length.trim().parse::<u32>());
                let lengths: Result<Vec<u32>, _> = lengths.collect();
                (
                    element,
                    lengths.map_err(|_| "a length is not a whole number")?,
                )
            }
            None => (array, Vec::new()),
        };
        if dims.len() > MOST_DIMENSIONS || dims.contains(&0) {
            return Err(format!(
                "lengths are not 1 to {MOST_DIMENSIONS} numbers from 1"
            ));
        }
        let dims: Vec<usize> = dims.into_iter().map(|length| length as usize).collect();
        let elements = dims
            .iter()
            .try_fold(1u64, |all, &length| all.checked_mul(length as u64));
        let limit = || format!("records are longer than {MOST_RECORD_BYTES} bytes");
        let elements = elements
            .filter(|n| *n <= MOST_RECORD_BYTES)
            .ok_or_else(limit)?;
        match element {
            "header" if first && name.is_none() => {
                self.header = elements;
                return Ok(());
            }
            "pad" if name.is_none() => {
                self.record_bytes += elements;
                return if self.record_bytes <= MOST_RECORD_BYTES {
                    Ok(())
                } else {
                    Err(limit())
                };
            }
            _ => {}
        }
        let dtype = dtype_of(element).ok_or_else(|| format!("{element:?} is not a type"))?;
        let unnamed = || match self.fields.len() {
            0 => "data".to_owned(),
            n => format!("data{}", n + 1),
        };
        let name = name.map_or_else(unnamed, str::to_owned);
        let others: Vec<FieldSpec> = self.fields.iter().map(|field| field.spec.clone()).collect();
        check_name(&name, &others)?;
        let bytes = elements * dtype.bytes() as u64;
        let at = self.record_bytes as usize;
        self.record_bytes += bytes;
        if self.record_bytes > MOST_RECORD_BYTES || self.fields.len() >= usize::from(u16::MAX) {
            return Err(limit());
        }
        let known: Vec<Option<usize>> = dims.iter().copied().map(Some).collect();
        self.fields.push(RawField {
            spec: FieldSpec::new(&name, dtype, &known),
            dims,
            at,
            bytes: bytes as usize,
        });
        Ok(())
    }
}

fn dtype_of(text: &str) -> Option<DType> {
    Some(match text {
        "u8" => DType::U8,
        "i8" => DType::I8,
        "i16" => DType::I16,
        "u16" => DType::U16,
        "i32" => DType::I32,
        "i64" => DType::I64,
        "u32" => DType::U32,
        "f16" => DType::F16,
        "bf16" => DType::BF16,
        "f32" => DType::F32,
        "f64" => DType::F64,
        _ => return None,
    })
}

/// Fields at fixed offsets of a record.
#[derive(Clone, Debug)]
pub(crate) struct RawDecoder {
    fields: Vec<RawField>,
    label: Option<usize>,
    kept: RecordFields,
}

impl RawDecoder {
    fn new(fields: Vec<RawField>, label: Option<usize>) -> RawDecoder {
        let mut kept = RecordFields::default();
        for (at, field) in fields.iter().enumerate() {
            if Some(at) != label {
                kept.push_array(field.spec.clone());
            }
        }
        RawDecoder {
            fields,
            label,
            kept,
        }
    }

    /// Arrays one after another; the one with index `label` is the label.
    pub(crate) fn packed(
        arrays: &[(String, DType, Vec<usize>)],
        label: Option<usize>,
    ) -> RawDecoder {
        let mut at = 0;
        let fields = arrays.iter().map(|(name, dtype, dims)| {
            let bytes = dims.iter().product::<usize>() * dtype.bytes();
            let known: Vec<Option<usize>> = dims.iter().copied().map(Some).collect();
            let field = RawField {
                spec: FieldSpec::new(name, *dtype, &known),
                dims: dims.clone(),
                at,
                bytes,
            };
            at += bytes;
            field
        });
        RawDecoder::new(fields.collect(), label)
    }
}

impl Decoder for RawDecoder {
    #[inline]
    fn decode<'b>(&self, _: u64, bytes: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        let mut label = Label::Listed;
        let mut row = row.fields(&self.kept);
        for (i, field) in self.fields.iter().enumerate() {
            let bytes = bytes.get(field.at..field.at + field.bytes);
            let bytes = bytes.ok_or(Fault::NO_RECORD)?;
            if Some(i) == self.label {
                let value = fields::element_value(field.spec.dtype, bytes);
                if !value.is_finite() {
                    return Err(Fault::bad_label(&value.to_string()));
                }
                label = Label::Number(checked_label(value, || value.to_string())?);
            } else {
                row.put(&field.dims, bytes);
            }
        }
        Ok(label)
    }

    fn fingerprint(&self) -> [u64; 3] {
        [FIELDS, self.kept.hash(0), 0]
    }

    fn fields(&self) -> &RecordFields {
        &self.kept
    }

    fn cut(&self) -> Option<Cut> {
        let ([field], None) = (self.fields.as_slice(), self.label) else {
            return None;
        };
        Some(Cut {
            skip: field.at as u64,
            length: Some(field.bytes as u64),
            class: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        let layout = parse("header[16],u8[28,28], label:i64 ,pad[3],bf16,x:f32[2]").unwrap();
        assert_eq!(
            (layout.header, layout.record_bytes),
            (16, 784 + 8 + 3 + 2 + 8)
        );
        let fields: Vec<(&str, DType, usize)> = layout
            .fields
            .iter()
            .map(|field| (&*field.spec.name, field.spec.dtype, field.at))
            .collect();
        assert_eq!(
            fields,
            [
                ("data", DType::U8, 0),
                ("label", DType::I64, 784),
                ("data3", DType::BF16, 795),
                ("x", DType::F32, 797)
            ]
        );
        assert_eq!(layout.fields[0].dims, [28, 28]);
        let refuses = |text: &str, message: &str| {
            let error = parse(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        };
        refuses("", "\"\" is not a type");
        refuses("u9", "\"u9\" is not a type");
        refuses("u8,header[3]", "\"header\" is not a type");
        refuses("header[3]", "has no fields");
        refuses("u8[", "`]` is missing");
        refuses("u8]3[", "`]` is missing");
        refuses("u8[x]", "not a whole number");
        refuses("u8[-1]", "not a whole number");
        refuses("u8[0]", "from 1");
        refuses("x:u8,x:u8", "two fields");
        refuses(":u8", "1 to 255");
        refuses("f64[4294967295,4294967295]", "longer than");
        refuses("pad[4294967295],pad[4294967295],u8", "longer than");
    }
}
