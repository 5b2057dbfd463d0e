//! The distinct labels of numbers at equal distances in a file.

use std::io::{BufReader, Read};
use std::sync::atomic::AtomicBool;

use pelton_batch::DType;

use crate::locate::places::input::Input;
use crate::record::error::{FormatError, check_interrupt};
use crate::record::labels::{LABEL_LIMIT, LabelCollector, too_many_labels};
use crate::record::rows::fields::element_value;

/// Numbers at equal distances in a file.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub(crate) from: u64,
    pub(crate) stride: u64,
    pub(crate) count: u64,
    pub(crate) dtype: DType,
}

/// Distinct labels of a column in order of first appearance, without invalid ones: one pass over the file.
pub(crate) fn scan_labels(
    file: &Input,
    column: Column,
    interrupt: &AtomicBool,
) -> Result<Vec<f64>, FormatError> {
    let mut reader = BufReader::with_capacity(1 << 20, file.from(column.from));
    let size = column.dtype.bytes();
    let mut labels = LabelCollector::default();
    let mut cell = [0; 8];
    for row in 0..column.count {
        check_interrupt(interrupt)?;
        reader.read_exact(&mut cell[..size])?;
        let value = element_value(column.dtype, &cell);
        if value.abs() < LABEL_LIMIT && !labels.add(value) {
            return Err(too_many_labels(labels.limit()));
        }
        if row + 1 < column.count {
            reader.seek_relative((column.stride - size as u64) as i64)?;
        }
    }
    Ok(labels.into_values())
}
