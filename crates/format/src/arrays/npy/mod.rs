//! NumPy's `.npy`: an array of numbers, one record a row along its first dimension.
//!
//! Matrices of f4, f8, i4 or i8 are features, and one column is the label; in any other array each row is one field.
//! Numbers are little-endian, format versions 1 to 3. In Fortran order each number of a row is read from a separate
//! offset of the file. The header is a Python dictionary in text; only its three known keys are read and nothing is
//! evaluated. Features become f32.

pub(crate) mod matrix;
pub(crate) mod numbers;

use std::io::Read;

use pelton_batch::DType;

use crate::locate::places::input::Input;
use crate::record::cells::label_column::LabelColumn;
use crate::record::cells::label_column::no_label_column;
use crate::record::error::{Fault, FormatError};
use crate::record::labels::checked_label;
use crate::record::numbers::bad_number::rounded;
use crate::record::numbers::parse::Feature;
use crate::record::rows::feature_type::FeatureType;
use crate::record::rows::fields::{MOST_DIMENSIONS, element_value};

/// The remedy for a file of another kind.
pub(crate) const REMEDY: &str = "save an array of little-endian numbers: i1, i2, i4, i8, u1, u2, u4, f2, f4 or f8, and for features a matrix";

/// The longest header read; NumPy's own are under 200 bytes.
pub(crate) const MOST_HEADER_BYTES: usize = 64 << 10;

/// The header of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NpyHeader {
    /// The type of the numbers.
    pub number: DType,
    /// Lengths of the dimensions.
    pub shape: Vec<u64>,
    /// Offset of the first row, in bytes.
    pub data_offset: u64,
    /// Fortran order: the first index runs fastest, so a row is not contiguous.
    pub fortran: bool,
}

/// The remedy for an array that cannot be read in its order.
pub(crate) const REORDER: &str = "save it as np.ascontiguousarray makes it";

/// Most numbers of a row in Fortran order; each has a separate offset.
const MOST_PLACES: u64 = 4096;

impl NpyHeader {
    /// For an array that starts at `from`, the offsets and lengths of the parts of the first row; or the reason why
    /// rows cannot be read.
    pub(crate) fn parts(&self, from: u64) -> Result<Vec<(u64, u64)>, &'static str> {
        let size = self.number.bytes() as u64;
        let row_bytes = self.row_bytes().unwrap_or(0);
        if !self.fortran {
            return Ok(vec![(from, row_bytes)]);
        }
        if row_bytes / size > MOST_PLACES {
            return Err("it is in Fortran order, with more than 4096 numbers a row");
        }
        // In C order, the last index runs fastest.
        let mut places = vec![0];
        let (mut step, mut of_dimensions) = (self.shape[0], Vec::new());
        for length in &self.shape[1..] {
            of_dimensions.push((*length, step));
            step *= length;
        }
        for (length, step) in of_dimensions {
            places = places
                .iter()
                .flat_map(|place| (0..length).map(move |i| place + i * step))
                .collect();
        }
        Ok(places
            .iter()
            .map(|place| (from + place * size, size))
            .collect())
    }

    /// Dimensions of a row.
    pub(crate) fn row(&self) -> Vec<usize> {
        let row = self.shape.iter().skip(1);
        row.map(|length| *length as usize).collect()
    }

    /// Bytes of a row; `None` if rows are too long.
    pub(crate) fn row_bytes(&self) -> Option<u64> {
        let mut row = self.shape.iter().skip(1);
        let size = self.number.bytes() as u64;
        let bytes = row.try_fold(size, |all, length| all.checked_mul(*length));
        bytes.filter(|bytes| *bytes <= u64::from(u32::MAX) * size)
    }

    /// Rows and columns, if it is a matrix with a type of numbers that can be features.
    pub(crate) fn matrix(&self) -> Option<(u64, u64)> {
        let of_features = [DType::F32, DType::F64, DType::I32, DType::I64].contains(&self.number);
        match self.shape[..] {
            [rows, columns] if of_features => Some((rows, columns)),
            _ => None,
        }
    }
}

/// How rows are read.
#[derive(Clone, Copy, Debug)]
pub struct NpyRules {
    /// The type of the numbers.
    pub number: DType,
    /// Numbers a row.
    pub columns: usize,
    /// Column of the label, from 0; `None` if rows have none.
    pub label: Option<usize>,
    /// The type of features.
    pub dtype: FeatureType,
}

impl NpyRules {
    /// Features a row.
    pub fn features(&self) -> usize {
        self.columns - usize::from(self.label.is_some())
    }
}

/// The header at the start of `bytes`; errors name no path.
pub fn parse_npy_header(bytes: &[u8]) -> Result<NpyHeader, FormatError> {
    let wrong = |offset: usize, what: &str| FormatError::malformed(offset as u64, what.to_owned());
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
    let text = std::str::from_utf8(text).map_err(|_| wrong(text_from, "its header is not text"))?;
    let field = |key: &str| {
        let after = text.split_once(&format!("'{key}':"));
        let after = after.or_else(|| text.split_once(&format!("\"{key}\":")));
        after
            .map(|(_, after)| after.trim_start())
            .ok_or_else(|| wrong(text_from, &format!("its header has no {key}")))
    };
    let number = field("descr")?.trim_start_matches(['\'', '"']);
    let number: String = number
        .chars()
        .take_while(|c| !"'\",[".contains(*c))
        .take(20)
        .collect();
    let number = match number.as_str() {
        "|u1" | "|b1" => DType::U8,
        "|i1" => DType::I8,
        "<i2" => DType::I16,
        "<u2" => DType::U16,
        "<u4" => DType::U32,
        "<i4" => DType::I32,
        "<i8" => DType::I64,
        "<f2" => DType::F16,
        "<f4" => DType::F32,
        "<f8" => DType::F64,
        _ => return Err(wrong(text_from, &format!("its numbers are {number:?}"))),
    };
    let fortran = match field("fortran_order")? {
        order if order.starts_with("True") => true,
        order if order.starts_with("False") => false,
        _ => return Err(wrong(text_from, "its order cannot be read")),
    };
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
    match sizes {
        Some(shape) if shape.len() <= MOST_DIMENSIONS => Ok(NpyHeader {
            number,
            data_offset: (text_from + length) as u64,
            fortran: fortran && shape.len() > 1,
            shape,
        }),
        _ => Err(wrong(text_from, "its shape cannot be read")),
    }
}

/// The header of a whole file, and the elements after it; errors name no path.
pub fn npy_array(bytes: &[u8]) -> Result<(NpyHeader, &[u8]), FormatError> {
    let header = parse_npy_header(bytes)?;
    if header.fortran {
        return Err(FormatError::malformed(
            0,
            format!("it is in Fortran order; {REORDER}"),
        ));
    }
    let size = header.number.bytes() as u64;
    let mut lengths = header.shape.iter();
    let expected = lengths.try_fold(size, |all, length| all.checked_mul(*length));
    let data = bytes.get(header.data_offset as usize..).unwrap_or_default();
    if expected == Some(data.len() as u64) {
        Ok((header, data))
    } else {
        let what = format!(
            "{} numbers of {:?} take another number of bytes than the {} there are",
            header.number,
            header.shape,
            data.len()
        );
        Err(FormatError::malformed(header.data_offset, what))
    }
}

/// Writes the features of a row to `row` and returns the label, if rows have one.
pub fn decode_npy_row(
    bytes: &[u8],
    rules: NpyRules,
    row: &mut [f32],
) -> Result<Option<f64>, Fault> {
    decode_numbers(bytes, rules, row)
}

/// The same for features of any type.
#[inline]
pub(crate) fn decode_numbers<T: Feature>(
    bytes: &[u8],
    rules: NpyRules,
    row: &mut [T],
) -> Result<Option<f64>, Fault> {
    let size = rules.number.bytes();
    if bytes.len() != size * rules.columns || row.len() != rules.features() {
        return Err(Fault::new(
            "the row is not as long as its columns; the file is damaged: pack it again",
        ));
    }
    // A larger whole number may be rounded.
    let most = match rules.dtype {
        FeatureType::F32 => f64::INFINITY,
        FeatureType::Checked | FeatureType::F64 => T::MOST_EXACT,
    };
    let mut label = None;
    let label_at = rules.label.unwrap_or(usize::MAX);
    for (column, cell) in bytes.chunks_exact(size).enumerate() {
        let wide = element_value(rules.number, cell);
        let not_finite = || {
            let (column, found) = (column as u64 + 1, format!("{wide:?}"));
            if wide.is_finite() {
                Fault::overflow(column, &found)
            } else {
                Fault::not_finite(column, &found)
            }
        };
        if column == label_at {
            if !wide.is_finite() {
                return Err(not_finite());
            }
            label = Some(checked_label(wide, || wide.to_string())?);
        } else {
            let value = T::of(wide);
            if !value.wide().is_finite() {
                return Err(not_finite());
            }
            if wide.abs() >= most && rounds(rules.number, cell, value) {
                return Err(rounded::<T>(column as u64 + 1, written(rules.number, cell)));
            }
            row[column - usize::from(column > label_at)] = value;
        }
    }
    Ok(label)
}

/// Whether a feature differs from the whole number in its cell. Beyond 2^53 floating-point numbers are magnitudes, not
/// counts.
#[cold]
fn rounds<T: Feature>(number: DType, cell: &[u8], value: T) -> bool {
    match (number, cell.try_into()) {
        (DType::I64, Ok(cell)) => i128::from(i64::from_le_bytes(cell)) != value.wide() as i128,
        _ => {
            let wide = element_value(number, cell);
            wide.fract() == 0.0 && wide.abs() <= f64::MOST_EXACT && wide != value.wide()
        }
    }
}

/// The number of a cell, for a message.
fn written(number: DType, cell: &[u8]) -> String {
    match (number, cell.try_into()) {
        (DType::I64, Ok(cell)) => i64::from_le_bytes(cell).to_string(),
        _ => element_value(number, cell).to_string(),
    }
}

/// Header of an `.npy` file, checked against its size.
pub(crate) fn read_header(file: &Input, size: u64) -> Result<NpyHeader, FormatError> {
    let mut head = Vec::new();
    file.from(0)
        .take(MOST_HEADER_BYTES as u64 + 12)
        .read_to_end(&mut head)?;
    let header = parse_npy_header(&head).map_err(|error| error.with_remedy(REMEDY))?;
    let data = header.row_bytes().zip(header.shape.first());
    let end = data
        .and_then(|(row, rows)| row.checked_mul(*rows))
        .and_then(|data| data.checked_add(header.data_offset));
    if end != Some(size) {
        let sizes: Vec<String> = header.shape.iter().map(u64::to_string).collect();
        let sizes = sizes.join(" × ");
        let what = match header.shape.len() {
            0 => "a single number".to_owned(),
            2 => format!("a matrix of {sizes} numbers"),
            _ => format!("an array of {sizes} numbers"),
        };
        let what = format!("{what} does not fill the file of {size} bytes; {REMEDY}");
        return Err(FormatError::malformed(header.data_offset, what));
    }
    Ok(header)
}

/// The label's column, from 0.
pub(crate) fn label_column(columns: usize, wanted: &LabelColumn) -> Result<usize, FormatError> {
    let found = match wanted {
        LabelColumn::First => Some(0),
        LabelColumn::Last => columns.checked_sub(1),
        LabelColumn::Position(place) => place.checked_sub(1),
        LabelColumn::Name(_) | LabelColumn::Json(_) => None,
    };
    found
        .filter(|at| *at < columns)
        .ok_or_else(|| no_label_column(wanted.describe(), format!("1 to {columns}, without names")))
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
        let what = parse_npy_header(bytes).unwrap_err().to_string();
        assert!(what.contains(message), "{what}");
    }

    #[test]
    fn headers() {
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 29), }          \n";
        for version in [1, 2, 3] {
            let found = parse_npy_header(&header(version, text)).unwrap();
            assert_eq!((found.number, found.matrix()), (DType::F32, Some((3, 29))));
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
        refuses(&header(1, &text.replace("False", "Maybe")), "its order");
        let fortran = text
            .replace("False", "True")
            .replace("(3, 29)", "(5, 2, 3)");
        let fortran = parse_npy_header(&header(1, &fortran)).unwrap();
        // Offsets of [0, 0, 0], [0, 0, 1] … with 4 bytes each: 5 numbers apart by the second index, 10 by the third.
        let places = [0, 10, 20, 5, 15, 25].map(|place| (100 + 4 * place, 4));
        assert_eq!(fortran.parts(100).unwrap(), places);
        let wide = NpyHeader {
            shape: vec![2, 5000],
            ..fortran
        };
        assert!(wide.parts(0).unwrap_err().contains("Fortran order"));
        for (shape, row) in [("(3,)", 4), ("(3, 2, 1)", 8), ("()", 4)] {
            let text = text.replace("(3, 29)", shape);
            let found = parse_npy_header(&header(1, &text)).unwrap();
            assert_eq!((found.row_bytes(), found.matrix()), (Some(row), None));
        }
        for (name, number) in [("<f2", DType::F16), ("|u1", DType::U8), ("<u4", DType::U32)] {
            let found = parse_npy_header(&header(1, &text.replace("<f4", name))).unwrap();
            assert_eq!((found.number, found.matrix()), (number, None));
        }
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
            number: DType::F64,
            columns: 3,
            label: Some(1),
            dtype: FeatureType::Checked,
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
        // The seconds of a clock.
        assert!(fault(&[0.0, 1.0, 1.6e9 + 1.0]).contains("column 3 holds 1600000001, which"));
        assert!(decode_npy_row(&cells(&[1e9 + 0.5, 1.0, 1e30]), rules, &mut row).is_ok());
        let wide = NpyRules {
            dtype: FeatureType::F64,
            ..rules
        };
        let mut all = [0.0_f64; 2];
        let decoded = decode_numbers(&cells(&[0.0, 1.0, 1.6e9 + 1.0]), wide, &mut all);
        assert_eq!((decoded, all), (Ok(Some(1.0)), [0.0, 1.6e9 + 1.0]));
        let rules = NpyRules {
            number: DType::I64,
            columns: 2,
            label: Some(0),
            dtype: FeatureType::Checked,
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
