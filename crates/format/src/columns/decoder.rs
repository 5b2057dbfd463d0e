//! Records of columns as rows: named arrays, or features.

use std::borrow::Cow;
use std::sync::Arc;

use pelton_key::Digest;

use crate::locate::decoder::FIELDS;

use crate::columns::column::{Column, ColumnKind};
use crate::columns::instants::spelled;
use crate::columns::record::RecordLayout;
use crate::columns::values::UNEVEN;
use crate::locate::decoder::{Decoded, Decoder};
use crate::locate::table::{Cell, Cells, TakeCell};
use crate::record::cells::encoding::as_utf8;
use crate::record::error::Fault;
use crate::record::labels::checked_label;
use crate::record::labels::stored::Label;
use crate::record::mixing::mix;
use crate::record::numbering::Numbering;
use crate::record::numbers::parse::Feature;
use crate::record::rows::NewRow;
use crate::record::rows::fields::{RecordFields, element_value};

/// Columns as fields of a row.
#[derive(Debug)]
pub(crate) struct ColumnFields {
    layout: Arc<RecordLayout>,
    /// The column of the labels.
    label: Option<usize>,
    /// Whether missing values become 0, or empty lists and strings.
    fills: bool,
    fields: RecordFields,
}

impl ColumnFields {
    pub(crate) fn new(
        layout: Arc<RecordLayout>,
        label: Option<usize>,
        fills: bool,
    ) -> ColumnFields {
        let mut fields = RecordFields::default();
        for (i, column) in layout.columns().iter().enumerate() {
            match &column.kind {
                _ if Some(i) == label => {}
                ColumnKind::Bytes | ColumnKind::Json => fields.push_string(&column.name),
                _ => fields.push_array(column.spec()),
            }
        }
        ColumnFields {
            fields,
            layout,
            label,
            fills,
        }
    }
}

/// A number that is a label.
fn label_of(kind: &ColumnKind, bytes: &[u8]) -> Result<f64, Fault> {
    let ColumnKind::Numbers { element, .. } = kind else {
        return Err(Fault::NO_RECORD);
    };
    let value = element_value(element.dtype(), bytes);
    if !value.is_finite() {
        return Err(Fault::bad_label(&value.to_string()));
    }
    checked_label(value, || value.to_string())
}

/// The fault of the label's column in a record without a label.
pub(crate) const NO_LABEL: &str = "holds no label (null); leave such records out with `on_bad_record` skip, or name another column with `label`";

#[cold]
fn lacks_value(layout: &RecordLayout, i: usize, is_label: bool) -> Fault {
    let what = if is_label {
        NO_LABEL
    } else {
        "holds no value (null); `missing` zero fills such values in, `on_bad_record` skip leaves such records out, and `format`, as in parquet:NAME,NAME, names other columns"
    };
    Fault::column(&layout.columns()[i].name, what)
}

fn fingerprint(layout: &RecordLayout, label: Option<usize>) -> u64 {
    let text = format!("{:?}", layout.columns());
    let start = label.map_or(u64::MAX, |label| label as u64);
    text.bytes()
        .fold(start, |hash, byte| mix(hash, u64::from(byte)))
}

impl Decoder for ColumnFields {
    fn decode<'b>(&self, _: u64, bytes: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        let mut label = Label::Listed;
        let mut row = row.fields(&self.fields);
        let read = self.layout.each(bytes, |i, value| {
            let column = &self.layout.columns()[i];
            let zeros;
            let value = match value {
                None if column.kind == ColumnKind::Json => &b"null"[..],
                None if self.fills && Some(i) != self.label => {
                    zeros = vec![0; column.kind.fixed_bytes().unwrap_or(0)];
                    &zeros
                }
                value => {
                    value.ok_or_else(|| lacks_value(&self.layout, i, Some(i) == self.label))?
                }
            };
            if Some(i) == self.label {
                label = Label::Number(label_of(&column.kind, value)?);
                return Ok(());
            }
            let count = |value: &[u8]| value.len() / column.kind.element_bytes();
            match &column.kind {
                ColumnKind::Numbers { dims, .. } => row.put(dims, value),
                ColumnKind::List { nested: true, .. } => {
                    let (length, value) = value.split_first_chunk().unwrap_or((&[0; 8], &[]));
                    let length = u64::from_le_bytes(*length);
                    if length == UNEVEN {
                        let what = "holds a list of lists that differ in length";
                        return Err(Fault::column(&column.name, what));
                    }
                    let lists = count(value).checked_div(length as usize).unwrap_or(0);
                    row.put(&[lists, length as usize], value);
                }
                _ => row.put(&[count(value)], value),
            }
            Ok(())
        });
        read.ok_or(Fault::NO_RECORD)??;
        Ok(label)
    }

    fn fingerprint(&self) -> [u64; 3] {
        let hash = fingerprint(&self.layout, self.label);
        [FIELDS, if self.fills { mix(hash, 1) } else { hash }, 0]
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }
}

/// Columns of numbers as features.
#[derive(Debug)]
pub(crate) struct ColumnFeatures {
    layout: Arc<RecordLayout>,
    label: Option<usize>,
    width: usize,
    /// The columns that are features, then those with only nulls.
    names: Vec<String>,
    /// Values for features that a record lacks.
    missing: Option<Arc<[f32]>>,
}

impl ColumnFeatures {
    /// Every column but the label's is numeric, with the same count in each record, or else is read as cells.
    pub(crate) fn new(
        layout: Arc<RecordLayout>,
        label: Option<usize>,
        nulls: Vec<String>,
    ) -> ColumnFeatures {
        let features = layout.columns().iter().enumerate().map(|(i, column)| {
            let elements = column.kind.fixed_bytes().unwrap_or(0) / column.kind.element_bytes();
            if Some(i) == label { 0 } else { elements }
        });
        let width = features.sum();
        let columns = layout.columns().iter().enumerate();
        let kept = columns.filter(|(i, _)| Some(*i) != label);
        ColumnFeatures {
            width,
            names: kept
                .map(|(_, column)| column.name.clone())
                .chain(nulls)
                .collect(),
            layout,
            label,
            missing: None,
        }
    }

    /// Features of a record.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    fn decode_to<'b, T: Feature>(&self, bytes: &[u8], row: &mut [T]) -> Decoded<'b> {
        let missing = self.missing.as_deref();
        let (mut label, mut filled) = (Label::Listed, 0);
        let read = self.layout.each(bytes, |i, value| {
            let column = &self.layout.columns()[i];
            if Some(i) == self.label {
                let value = value.ok_or_else(|| lacks_value(&self.layout, i, true))?;
                label = Label::Number(label_of(&column.kind, value)?);
                return Ok(());
            }
            let ColumnKind::Numbers { element, dims } = &column.kind else {
                return Err(Fault::NO_RECORD);
            };
            let count = dims.iter().product::<usize>();
            let cells = row
                .get_mut(filled..filled + count)
                .ok_or(Fault::NO_RECORD)?;
            let stand_in = missing.and_then(|missing| missing.get(filled..filled + count));
            filled += count;
            let Some(value) = value else {
                let stand_in = stand_in.ok_or_else(|| null_feature(&column.name))?;
                for (cell, value) in cells.iter_mut().zip(stand_in) {
                    *cell = T::of(f64::from(*value));
                }
                return Ok(());
            };
            let dtype = element.dtype();
            let values = value.chunks_exact(dtype.bytes());
            for (j, (cell, value)) in cells.iter_mut().zip(values).enumerate() {
                let wide = element_value(dtype, value);
                let value = T::of(wide);
                *cell = match stand_in {
                    _ if value.wide().is_finite() => value,
                    Some(stand_in) if wide.is_nan() => T::of(f64::from(stand_in[j])),
                    _ => return Err(bad_feature(&column.name, wide)),
                };
            }
            Ok(())
        });
        read.ok_or(Fault::NO_RECORD)??;
        if filled == row.len() {
            Ok(label)
        } else {
            Err(Fault::NO_RECORD)
        }
    }
}

impl Decoder for ColumnFeatures {
    fn decode<'b>(&self, _: u64, bytes: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        self.decode_to(bytes, row.dense())
    }

    fn decode_wide<'b>(&self, bytes: &'b [u8], row: &mut Vec<f64>) -> Option<Decoded<'b>> {
        row.clear();
        row.resize(self.width, 0.0);
        Some(self.decode_to(bytes, row))
    }

    fn fingerprint(&self) -> [u64; 3] {
        [
            Digest::new("columns").value(),
            fingerprint(&self.layout, self.label),
            0,
        ]
    }

    /// By columns, if each but the label's is one feature.
    fn numbering(&self) -> Numbering {
        let columns = self.layout.columns().len();
        match self.label.filter(|_| self.width + 1 == columns) {
            Some(label) => Numbering::of_columns(Some(label)),
            None => Numbering::FromZero,
        }
    }

    fn may_miss(&self) -> Option<usize> {
        Some(self.width)
    }

    fn cells(&self) -> Option<&dyn Cells> {
        let is_cell = |column: &Column| match &column.kind {
            ColumnKind::Numbers { dims, .. } => dims.is_empty(),
            ColumnKind::Bytes => true,
            ColumnKind::List { .. } | ColumnKind::Json => false,
        };
        let all = self.layout.columns().iter().all(is_cell);
        all.then_some(self)
    }

    fn filled(&self, missing: Arc<[f32]>) -> Option<Arc<dyn Decoder>> {
        Some(Arc::new(ColumnFeatures {
            layout: Arc::clone(&self.layout),
            names: self.names.clone(),
            missing: Some(missing),
            ..*self
        }))
    }
}

impl Cells for ColumnFeatures {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn has_text(&self) -> bool {
        let mut columns = self.layout.columns().iter().enumerate();
        let has_nulls = self.names.len() > columns.len() - usize::from(self.label.is_some());
        has_nulls
            || columns.any(|(i, column)| {
                let is_text = column.kind == ColumnKind::Bytes || column.units_a_day.is_some();
                Some(i) != self.label && is_text
            })
    }

    fn read<'b>(&self, _: u64, bytes: &'b [u8], take: &mut TakeCell<'_>) -> Decoded<'b> {
        let (mut label, mut at) = (Label::Listed, 0);
        let read = self.layout.each(bytes, |i, value| {
            let column = &self.layout.columns()[i];
            if Some(i) == self.label {
                let value = value.ok_or_else(|| lacks_value(&self.layout, i, true))?;
                label = Label::Number(label_of(&column.kind, value)?);
                return Ok(());
            }
            at += 1;
            let cell = match (value, &column.kind) {
                (None, _) => Cell::Missing,
                (Some(value), ColumnKind::Numbers { element, .. }) => {
                    let number = element_value(element.dtype(), value);
                    match column.units_a_day.zip(whole_value(value)) {
                        Some((units_a_day, since)) => {
                            Cell::Date(spelled(since, units_a_day), number)
                        }
                        None => Cell::Number(number),
                    }
                }
                (Some(value), _) => Cell::Text(as_utf8(Cow::Borrowed(value))),
            };
            take(at - 1, cell)
        });
        read.ok_or(Fault::NO_RECORD)??;
        Ok(label)
    }
}

/// The whole number that stores a date or a point in time.
fn whole_value(bytes: &[u8]) -> Option<i64> {
    match *bytes {
        [a, b, c, d] => Some(i64::from(i32::from_le_bytes([a, b, c, d]))),
        [a, b, c, d, e, f, g, h] => Some(i64::from_le_bytes([a, b, c, d, e, f, g, h])),
        _ => None,
    }
}

/// The fault of a missing value in a column of features.
#[cold]
fn null_feature(column: &str) -> Fault {
    let what = "holds no value (null); `missing` zero or `missing` mean fills such values in";
    Fault::column(column, what)
}

/// The fault of a number in a column of features that is not finite in 32 bits.
#[cold]
fn bad_feature(column: &str, value: f64) -> Fault {
    let what = if value.is_nan() {
        "NaN; `missing` zero or `missing` mean fills such values in".into()
    } else if value.is_finite() {
        format!("{value:?}, which is beyond 32-bit floating point; scale the feature")
    } else {
        format!("{value:?}, which is not finite; replace it or remove the record")
    };
    Fault::column(column, &format!("holds {what}"))
}
