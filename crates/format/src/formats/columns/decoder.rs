//! Records of columns as rows: named arrays, or features.

use std::sync::Arc;

use pelton_batch::FieldSpecs;

use super::column::ColumnKind;
use super::record::RecordLayout;
use crate::error::Fault;
use crate::labels::checked_label;
use crate::places::fingerprint::mix;
use crate::rows::features::{Cells, FeatureDecoder};
use crate::rows::fields::{FieldDecoder, RowWriter, element_value, overhead};
use crate::rows::number::Feature;

/// Columns as fields of a row.
#[derive(Debug)]
pub(crate) struct ColumnFields {
    layout: Arc<RecordLayout>,
    /// The column whose numbers are labels.
    label: Option<usize>,
    /// Whether 0, or nothing in a list or string, stands for what is missing.
    fills: bool,
    specs: FieldSpecs,
}

impl ColumnFields {
    pub(crate) fn new(
        layout: Arc<RecordLayout>,
        label: Option<usize>,
        fills: bool,
    ) -> ColumnFields {
        let kept = layout.columns().iter().enumerate();
        let kept = kept.filter(|(i, _)| Some(*i) != label);
        let specs = kept.map(|(_, column)| column.spec());
        ColumnFields {
            specs: FieldSpecs(specs.collect()),
            layout,
            label,
            fills,
        }
    }

    /// Bytes of a row, without the values of variable columns.
    pub(crate) fn row_bytes(&self) -> u64 {
        let fields = self.specs.0.iter().map(|field| {
            let known = field.bytes().unwrap_or(0) as u64;
            overhead(&field.name, field.dims.len()) + known
        });
        2 + fields.sum::<u64>()
    }
}

/// A number that is a label.
fn label_of(kind: &ColumnKind, bytes: &[u8]) -> Result<f64, Fault> {
    let ColumnKind::Numbers { element, .. } = kind else {
        return Err(Fault::NoRecord);
    };
    let value = element_value(element.dtype(), bytes);
    if !value.is_finite() {
        return Err(Fault::BadLabel {
            found: value.to_string(),
        });
    }
    checked_label(value, || value.to_string())
}

#[cold]
fn lacks_value(layout: &RecordLayout, i: usize, is_label: bool) -> Fault {
    let what = match is_label {
        true => {
            "holds no label (null); leave such records out with `on_bad_record` skip, or name another column with `label`"
        }
        false => {
            "holds no value (null); `missing` zero fills such values in, `on_bad_record` skip leaves such records out, and `format`, as in parquet:NAME,NAME, names other columns"
        }
    };
    Fault::Column {
        column: layout.columns()[i].name.clone(),
        what: what.into(),
    }
}

fn fingerprint(layout: &RecordLayout, label: Option<usize>) -> u64 {
    let text = format!("{:?}", layout.columns());
    let start = label.map_or(u64::MAX, |label| label as u64);
    text.bytes()
        .fold(start, |hash, byte| mix(hash, u64::from(byte)))
}

impl FieldDecoder for ColumnFields {
    fn specs(&self) -> &FieldSpecs {
        &self.specs
    }

    fn decode(&self, _: u64, bytes: &[u8], row: &mut RowWriter<'_>) -> Result<Option<f64>, Fault> {
        let mut label = None;
        let read = self.layout.each(bytes, |i, value| {
            let column = &self.layout.columns()[i];
            let zeros;
            let value = match value {
                None if self.fills && Some(i) != self.label => {
                    zeros = vec![0; column.kind.fixed_bytes().unwrap_or(0)];
                    &zeros
                }
                value => {
                    value.ok_or_else(|| lacks_value(&self.layout, i, Some(i) == self.label))?
                }
            };
            if Some(i) == self.label {
                label = Some(label_of(&column.kind, value)?);
                return Ok(());
            }
            let count = value.len() / column.kind.element_bytes();
            match &column.kind {
                ColumnKind::Numbers { element, dims } => {
                    row.put(&column.name, Some(element.dtype()), dims, value);
                }
                ColumnKind::List { element } => {
                    row.put(&column.name, Some(element.dtype()), &[count], value);
                }
                ColumnKind::Bytes => row.put(&column.name, None, &[count], value),
            }
            Ok(())
        });
        read.ok_or(Fault::NoRecord)??;
        Ok(label)
    }

    fn fingerprint(&self) -> u64 {
        let fingerprint = fingerprint(&self.layout, self.label);
        if self.fills {
            mix(fingerprint, 1)
        } else {
            fingerprint
        }
    }
}

/// Columns of numbers as features.
#[derive(Debug)]
pub(crate) struct ColumnFeatures {
    layout: Arc<RecordLayout>,
    label: Option<usize>,
    width: usize,
}

impl ColumnFeatures {
    /// Every column but the label's is of numbers, as many in each record.
    pub(crate) fn new(layout: Arc<RecordLayout>, label: Option<usize>) -> ColumnFeatures {
        let features = layout.columns().iter().enumerate().map(|(i, column)| {
            let elements = column.kind.fixed_bytes().unwrap_or(0) / column.kind.element_bytes();
            if Some(i) == label { 0 } else { elements }
        });
        ColumnFeatures {
            width: features.sum(),
            layout,
            label,
        }
    }

    fn decode_to<T: Feature>(
        &self,
        bytes: &[u8],
        missing: Option<&[f32]>,
        row: &mut [T],
    ) -> Result<Option<f64>, Fault> {
        let (mut label, mut filled) = (None, 0);
        let read = self.layout.each(bytes, |i, value| {
            let column = &self.layout.columns()[i];
            if Some(i) == self.label {
                let value = value.ok_or_else(|| lacks_value(&self.layout, i, true))?;
                label = Some(label_of(&column.kind, value)?);
                return Ok(());
            }
            let ColumnKind::Numbers { element, dims } = &column.kind else {
                return Err(Fault::NoRecord);
            };
            let count = dims.iter().product::<usize>();
            let cells = row.get_mut(filled..filled + count).ok_or(Fault::NoRecord)?;
            let stand_in = missing.and_then(|missing| missing.get(filled..filled + count));
            filled += count;
            let Some(value) = value else {
                let stand_in = stand_in.ok_or_else(|| FeatureFault::Null.of(&column.name))?;
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
                    _ => return Err(FeatureFault::Number(wide).of(&column.name)),
                };
            }
            Ok(())
        });
        read.ok_or(Fault::NoRecord)??;
        match filled == row.len() {
            true => Ok(label),
            false => Err(Fault::NoRecord),
        }
    }
}

impl FeatureDecoder for ColumnFeatures {
    fn width(&self) -> usize {
        self.width
    }

    fn label_column(&self) -> Option<usize> {
        let columns = self.layout.columns().len();
        self.label.filter(|_| self.width + 1 == columns)
    }

    fn decode(
        &self,
        bytes: &[u8],
        missing: Option<&[f32]>,
        row: Cells<'_>,
    ) -> Result<Option<f64>, Fault> {
        match row {
            Cells::Narrow(row) => self.decode_to(bytes, missing, row),
            Cells::Wide(row) => self.decode_to(bytes, missing, row),
        }
    }

    fn fingerprint(&self) -> u64 {
        fingerprint(&self.layout, self.label)
    }
}

/// What is wrong with a value of a column of features.
enum FeatureFault {
    Null,
    /// It is no finite number of 32 bits.
    Number(f64),
}

impl FeatureFault {
    #[cold]
    fn of(self, column: &str) -> Fault {
        let what = match self {
            FeatureFault::Null => {
                "holds no value (null); `missing` zero or `missing` mean fills such values in"
                    .into()
            }
            FeatureFault::Number(value) if value.is_nan() => {
                "holds NaN; `missing` zero or `missing` mean fills such values in".into()
            }
            FeatureFault::Number(value) if value.is_finite() => {
                format!("holds {value:?}, which is beyond 32-bit floating point; scale the feature")
            }
            FeatureFault::Number(value) => {
                format!("holds {value:?}, which is not finite; replace it or remove the record")
            }
        };
        Fault::Column {
            column: column.to_owned(),
            what,
        }
    }
}
