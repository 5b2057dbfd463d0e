//! NumPy's `.npy`: a matrix of numbers, one record a row, one column of which is the label.
//!
//! Read are 2-D arrays of f4, f8, i4 or i8, little-endian, in C order, format versions 1 to 3. The
//! header is a Python dictionary in text; only its three known keys are read and nothing is
//! evaluated. Values become f32.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::delimited::LabelColumn;
use crate::error::{Fault, FormatError};
use crate::labels::{LABEL_LIMIT, LabelCollector, MOST_LABELS, checked_label};

/// The longest header read; NumPy's own are under 200 bytes.
const MOST_HEADER_BYTES: usize = 64 << 10;

/// What the numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NpyNumber {
    /// 32-bit floating point.
    F4,
    /// 64-bit floating point.
    F8,
    /// 32-bit integers.
    I4,
    /// 64-bit integers.
    I8,
}

impl NpyNumber {
    /// Bytes a number.
    pub fn bytes(self) -> usize {
        match self {
            NpyNumber::F4 | NpyNumber::I4 => 4,
            NpyNumber::F8 | NpyNumber::I8 => 8,
        }
    }

    fn read(self, bytes: &[u8]) -> f64 {
        let four = || bytes[..4].try_into().expect("four bytes");
        let eight = || bytes[..8].try_into().expect("eight bytes");
        match self {
            NpyNumber::F4 => f64::from(f32::from_le_bytes(four())),
            NpyNumber::F8 => f64::from_le_bytes(eight()),
            NpyNumber::I4 => f64::from(i32::from_le_bytes(four())),
            NpyNumber::I8 => i64::from_le_bytes(eight()) as f64,
        }
    }
}

/// What the header of a matrix says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NpyHeader {
    /// What the numbers are.
    pub number: NpyNumber,
    /// Number of rows.
    pub rows: u64,
    /// Number of columns.
    pub columns: u64,
    /// Where the first row starts.
    pub data_offset: u64,
}

/// How rows are read.
#[derive(Clone, Copy, Debug)]
pub struct NpyRules {
    /// What the numbers are.
    pub number: NpyNumber,
    /// Numbers a row.
    pub columns: usize,
    /// Column of the label, from 0; `None` where rows have none.
    pub label: Option<usize>,
}

impl NpyRules {
    /// Features a row.
    pub fn features(&self) -> usize {
        self.columns - usize::from(self.label.is_some())
    }
}

/// The header at the start of `bytes`, or the offset and the description of what is wrong.
pub fn parse_npy_header(bytes: &[u8]) -> Result<NpyHeader, (u64, String)> {
    let wrong = |offset: usize, what: &str| (offset as u64, what.to_string());
    if !bytes.starts_with(b"\x93NUMPY") {
        return Err(wrong(0, "its first bytes are not those of an .npy file"));
    }
    let short = || wrong(bytes.len(), "the file ends inside its header");
    let (length, text_from) = match bytes.get(6).ok_or_else(short)? {
        1 => {
            let length = bytes.get(8..10).ok_or_else(short)?;
            (
                u16::from_le_bytes(length.try_into().expect("two bytes")) as usize,
                10,
            )
        }
        2 | 3 => {
            let length = bytes.get(8..12).ok_or_else(short)?;
            (
                u32::from_le_bytes(length.try_into().expect("four bytes")) as usize,
                12,
            )
        }
        version => return Err(wrong(6, &format!("its format version is {version}"))),
    };
    if length > MOST_HEADER_BYTES {
        return Err(wrong(8, "its header is too long"));
    }
    let text = bytes.get(text_from..text_from + length).ok_or_else(short)?;
    let text = std::str::from_utf8(text).map_err(|_| wrong(text_from, "its header is no text"))?;
    let field = |key: &str| {
        let after = text.split_once(&format!("'{key}':"));
        let after = after.or_else(|| text.split_once(&format!("\"{key}\":")));
        after
            .map(|(_, after)| after.trim_start())
            .ok_or_else(|| wrong(text_from, &format!("its header has no {key}")))
    };
    let number = match field("descr")?.trim_start_matches(['\'', '"']) {
        descr if descr.starts_with("<f4") => NpyNumber::F4,
        descr if descr.starts_with("<f8") => NpyNumber::F8,
        descr if descr.starts_with("<i4") => NpyNumber::I4,
        descr if descr.starts_with("<i8") => NpyNumber::I8,
        descr => {
            let found: String = descr
                .chars()
                .take_while(|c| !"'\",[".contains(*c))
                .take(20)
                .collect();
            return Err(wrong(text_from, &format!("its numbers are {found:?}")));
        }
    };
    if !field("fortran_order")?.starts_with("False") {
        return Err(wrong(text_from, "it is in Fortran order"));
    }
    let shape = field("shape")?;
    let shape = shape
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(')'));
    let (shape, _) = shape.ok_or_else(|| wrong(text_from, "its shape cannot be read"))?;
    let sizes: Option<Vec<u64>> = shape
        .split(',')
        .map(str::trim)
        .filter(|size| !size.is_empty())
        .map(|size| size.parse().ok())
        .collect();
    match sizes.as_deref() {
        Some(&[rows, columns]) => Ok(NpyHeader {
            number,
            rows,
            columns,
            data_offset: (text_from + length) as u64,
        }),
        Some(sizes) => Err(wrong(
            text_from,
            &format!("it has {} dimensions", sizes.len()),
        )),
        None => Err(wrong(text_from, "its shape cannot be read")),
    }
}

/// Writes the features of a row to `row` and returns the label, where there is one.
pub fn decode_npy_row(
    bytes: &[u8],
    rules: NpyRules,
    row: &mut [f32],
) -> Result<Option<f64>, Fault> {
    let size = rules.number.bytes();
    if bytes.len() != size * rules.columns || row.len() != rules.features() {
        return Err(Fault::Malformed {
            what: "the row is not as long as its columns",
        });
    }
    let mut label = None;
    let label_at = rules.label.unwrap_or(usize::MAX);
    for (column, cell) in bytes.chunks_exact(size).enumerate() {
        let wide = rules.number.read(cell);
        let not_finite = || {
            let (column, found) = (column as u64 + 1, format!("{wide:?}"));
            if wide.is_finite() {
                Fault::Overflow { column, found }
            } else {
                Fault::NotFinite { column, found }
            }
        };
        if column == label_at {
            if !wide.is_finite() {
                return Err(not_finite());
            }
            label = Some(checked_label(wide, || wide.to_string())?);
        } else {
            let value = wide as f32;
            if !value.is_finite() {
                return Err(not_finite());
            }
            row[column - usize::from(column > label_at)] = value;
        }
    }
    Ok(label)
}

/// Header of an `.npy` file, checked against its size.
pub(crate) fn read_header(path: &Path, size: u64) -> Result<NpyHeader, FormatError> {
    let file = File::open(path).map_err(|e| FormatError::io(path, "open it", e))?;
    let mut head = Vec::new();
    file.take(MOST_HEADER_BYTES as u64 + 12)
        .read_to_end(&mut head)
        .map_err(|e| FormatError::io(path, "read it", e))?;
    let wrong = |(offset, what)| FormatError::Npy {
        path: path.to_path_buf(),
        offset,
        what,
    };
    let header = parse_npy_header(&head).map_err(wrong)?;
    let expected = header
        .columns
        .checked_mul(header.number.bytes() as u64)
        .and_then(|row| row.checked_mul(header.rows))
        .and_then(|data| data.checked_add(header.data_offset));
    if expected != Some(size) || header.columns > u64::from(u32::MAX) {
        let what = format!(
            "a matrix of {} × {} numbers does not fill the file of {size} bytes",
            header.rows, header.columns
        );
        return Err(wrong((header.data_offset, what)));
    }
    Ok(header)
}

/// The label's column, from 0.
pub(crate) fn label_column(
    path: &Path,
    header: &NpyHeader,
    wanted: &LabelColumn,
) -> Result<usize, FormatError> {
    let columns = header.columns as usize;
    let found = match wanted {
        LabelColumn::First => Some(0),
        LabelColumn::Last => columns.checked_sub(1),
        LabelColumn::Position(place) => place.checked_sub(1),
        LabelColumn::Name(_) | LabelColumn::Json(_) => None,
    };
    found
        .filter(|at| *at < columns)
        .ok_or_else(|| FormatError::NoLabelColumn {
            path: path.to_path_buf(),
            wanted: wanted.describe(),
            columns: format!("1 to {columns}, without names"),
        })
}

/// Distinct labels in order of first appearance: one pass over the file.
pub(crate) fn scan_labels(
    path: &Path,
    header: &NpyHeader,
    label: usize,
    interrupt: &AtomicBool,
) -> Result<Vec<f64>, FormatError> {
    let read_error = |e| FormatError::io(path, "read it", e);
    let file = File::open(path).map_err(|e| FormatError::io(path, "open it", e))?;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let size = header.number.bytes();
    let row_bytes = header.columns * size as u64;
    reader
        .seek(SeekFrom::Start(header.data_offset + (label * size) as u64))
        .map_err(read_error)?;
    let mut labels = LabelCollector::default();
    let mut cell = [0; 8];
    for row in 0..header.rows {
        if interrupt.load(Ordering::Relaxed) {
            let path = path.to_path_buf();
            return Err(FormatError::Interrupted { path });
        }
        reader.read_exact(&mut cell[..size]).map_err(read_error)?;
        let value = header.number.read(&cell);
        if value.abs() < LABEL_LIMIT && !labels.add(value) {
            let path = path.to_path_buf();
            return Err(FormatError::TooManyLabels {
                path,
                limit: MOST_LABELS,
            });
        }
        if row + 1 < header.rows {
            reader
                .seek_relative(row_bytes as i64 - size as i64)
                .map_err(read_error)?;
        }
    }
    Ok(labels.into_values())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version: u8, text: &str) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY".to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((text.len() as u16).to_le_bytes()),
            _ => bytes.extend((text.len() as u32).to_le_bytes()),
        }
        bytes.extend(text.as_bytes());
        bytes
    }

    fn refuses(bytes: &[u8], message: &str) {
        let (_, what) = parse_npy_header(bytes).unwrap_err();
        assert!(what.contains(message), "{what}");
    }

    #[test]
    fn headers() {
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 29), }          \n";
        for version in [1, 2, 3] {
            let found = parse_npy_header(&header(version, text)).unwrap();
            assert_eq!(
                (found.number, found.rows, found.columns),
                (NpyNumber::F4, 3, 29)
            );
            assert_eq!(found.data_offset as usize, header(version, text).len());
        }
        for cut in 0..header(1, text).len() {
            assert!(parse_npy_header(&header(1, text)[..cut]).is_err());
        }
        refuses(b"PK", "first bytes");
        refuses(&header(9, text), "version is 9");
        refuses(
            &header(1, &text.replace("<f4", "|S8")),
            "numbers are \"|S8\"",
        );
        refuses(
            &header(1, &text.replace("<f4", ">f4")),
            "numbers are \">f4\"",
        );
        refuses(&header(1, &text.replace("False", "True")), "Fortran");
        refuses(&header(1, &text.replace("(3, 29)", "(3,)")), "1 dimensions");
        refuses(
            &header(1, &text.replace("(3, 29)", "(3, 2, 1)")),
            "3 dimensions",
        );
        refuses(&header(1, &text.replace("(3, 29)", "(3, -29)")), "shape");
        refuses(
            &header(1, &text.replace("(3, 29)", "(99999999999999999999, 2)")),
            "shape",
        );
        refuses(&header(1, &text.replace("'shape'", "'shades'")), "no shape");
    }

    #[test]
    fn rows() {
        let cells = |values: &[f64]| {
            values
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect::<Vec<_>>()
        };
        let rules = NpyRules {
            number: NpyNumber::F8,
            columns: 3,
            label: Some(1),
        };
        let mut row = [0.0; 2];
        assert_eq!(
            decode_npy_row(&cells(&[1.5, -1.0, 2.5]), rules, &mut row),
            Ok(Some(-1.0))
        );
        assert_eq!(row, [1.5, 2.5]);
        let fault = |values: &[f64]| {
            decode_npy_row(&cells(values), rules, &mut [0.0; 2])
                .unwrap_err()
                .to_string()
        };
        assert!(fault(&[1.0, f64::NAN, 0.0]).contains("\"NaN\" in column 2 is not finite"));
        assert!(fault(&[1.0, 1.0, f64::INFINITY]).contains("column 3"));
        assert!(fault(&[1e300, 1.0, 0.0]).contains("beyond 32-bit"));
        assert!(fault(&[1.0]).contains("not as long"));
        let rules = NpyRules {
            number: NpyNumber::I8,
            columns: 2,
            label: Some(0),
        };
        let bytes: Vec<u8> = [7i64, -9].iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut row = [0.0];
        assert_eq!(decode_npy_row(&bytes, rules, &mut row), Ok(Some(7.0)));
        let unlabelled = NpyRules {
            label: None,
            ..rules
        };
        let mut both = [0.0; 2];
        assert_eq!(decode_npy_row(&bytes, unlabelled, &mut both), Ok(None));
        assert_eq!(both, [7.0, -9.0]);
        let bytes: Vec<u8> = [1i64 << 53, 0]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        let fault = decode_npy_row(&bytes, rules, &mut row).unwrap_err();
        assert!(fault.to_string().contains("2^53"), "{fault}");
        let bytes: Vec<u8> = [7i64, -9].iter().flat_map(|v| v.to_le_bytes()).collect();
        decode_npy_row(&bytes, rules, &mut row).unwrap();
        assert_eq!(row, [-9.0]);
    }
}
