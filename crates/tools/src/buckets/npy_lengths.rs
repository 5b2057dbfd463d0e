//! Lengths from NumPy's `.npy`: a vector, or a column of a matrix, of integers or floating point.
//!
//! Unlike the records of a data set, lengths are read once in order, may be one-dimensional and have any width. Only
//! the three known keys of the header are read.

use std::io::Read;
use std::path::Path;

use pelton_data::DataError;

use super::column::{Column, unreadable, whole, wrong};

/// The first bytes of such a file.
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// The longest header read; NumPy's own are under 200 bytes.
const MOST_HEADER_BYTES: usize = 64 << 10;

/// The widest row read.
const MOST_ROW_BYTES: u64 = 1 << 24;

/// Calls the receiver with each length of a column.
pub(super) fn column(
    path: &Path,
    reader: &mut impl Read,
    column: &Column,
    push: &mut impl FnMut(u32) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let header = Header::read(path, reader)?;
    let place = match column {
        Column::Position(position) if *position as u64 <= header.columns => position - 1,
        column => {
            let asked = match column {
                Column::Position(position) => position.to_string(),
                Column::Name(name) => format!("'{name}'"),
            };
            let problem = format!(
                "has no column {asked}, only {}; use `column` 1 to {}",
                header.columns, header.columns
            );
            return Err(wrong(path, &problem));
        }
    };
    let width = header.number.bytes();
    let mut row = vec![0; width * header.columns as usize];
    for number in 0..header.rows {
        reader
            .read_exact(&mut row)
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => wrong(
                    path,
                    &format!("ends within row {number} of {}; copy it again", header.rows),
                ),
                _ => unreadable(path, &error),
            })?;
        let value = header.number.read(&row[place * width..][..width]);
        let length = whole(value).ok_or_else(|| {
            wrong(
                path,
                &format!("row {number}: {value} is not a length; lengths are whole numbers from 0 to 4294967295"),
            )
        })?;
        push(length)?;
    }
    Ok(())
}

/// A number type, by its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Signed(usize),
    Unsigned(usize),
    Floating(usize),
}

impl Number {
    fn parse(descr: &str) -> Option<Number> {
        let mut characters = descr.chars();
        let order = characters.next()?;
        let kind = characters.next()?;
        let bytes = characters.as_str().parse().ok()?;
        match (order, kind, bytes) {
            ('|', 'i', 1) | ('<', 'i', 1 | 2 | 4 | 8) => Some(Number::Signed(bytes)),
            ('|', 'u', 1) | ('<', 'u', 1 | 2 | 4 | 8) => Some(Number::Unsigned(bytes)),
            ('<', 'f', 4 | 8) => Some(Number::Floating(bytes)),
            _ => None,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Number::Signed(bytes) | Number::Unsigned(bytes) | Number::Floating(bytes) => bytes,
        }
    }

    fn read(self, bytes: &[u8]) -> f64 {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let word = u64::from_le_bytes(wide);
        let unused = 64 - 8 * bytes.len() as u32;
        match self {
            Number::Unsigned(_) => word as f64,
            Number::Signed(_) => ((word << unused) as i64 >> unused) as f64,
            Number::Floating(4) => f64::from(f32::from_bits(word as u32)),
            Number::Floating(_) => f64::from_bits(word),
        }
    }
}

/// The parsed header.
struct Header {
    number: Number,
    rows: u64,
    columns: u64,
}

impl Header {
    fn read(path: &Path, reader: &mut impl Read) -> Result<Header, DataError> {
        let wrong = |problem: &str| wrong(path, problem);
        let mut fill = |bytes: &mut [u8]| {
            let read = reader.read_exact(bytes);
            read.map_err(|_| wrong("ends within its header; copy it again"))
        };
        let mut start = [0; 10];
        fill(&mut start)?;
        let mut length = usize::from(u16::from_le_bytes([start[8], start[9]]));
        if start[6] > 1 {
            let mut more = [0; 2];
            fill(&mut more)?;
            length |= usize::from(u16::from_le_bytes(more)) << 16;
        }
        if length > MOST_HEADER_BYTES {
            return Err(wrong("has too long a header for an .npy file"));
        }
        let mut text = vec![0; length];
        fill(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        Header::parse(&text).map_err(|problem| wrong(&problem))
    }

    fn parse(text: &str) -> Result<Header, String> {
        let field = |key: &str| {
            let after = text.split_once(&format!("'{key}':"));
            after
                .map(|(_, after)| after.trim_start())
                .ok_or_else(|| format!("has no {key} in its .npy header; write it with numpy.save"))
        };
        let descr = field("descr")?.trim_start_matches('\'');
        let descr = descr.split('\'').next().unwrap_or("");
        let number = Number::parse(descr).ok_or_else(|| {
            let found: String = descr.chars().take(20).collect();
            format!("holds numbers of type '{found}'; save it as little-endian int64")
        })?;
        let shape = field("shape")?
            .strip_prefix('(')
            .and_then(|rest| rest.split_once(')'));
        let sizes = shape.and_then(|(shape, _)| {
            let sizes = shape
                .split(',')
                .map(str::trim)
                .filter(|size| !size.is_empty());
            sizes
                .map(|size| size.parse().ok())
                .collect::<Option<Vec<u64>>>()
        });
        let (rows, columns) = match sizes.as_deref() {
            Some(&[rows]) => (rows, 1),
            Some(&[rows, columns]) => (rows, columns),
            _ => return Err("is not a vector or matrix; save one length a sentence".to_string()),
        };
        if columns > 1 && !field("fortran_order")?.starts_with("False") {
            return Err("is in Fortran order; save it with numpy.ascontiguousarray".to_string());
        }
        if columns == 0 || columns > MOST_ROW_BYTES / number.bytes() as u64 {
            return Err(format!("has {columns} columns; save one length a sentence"));
        }
        Ok(Header {
            number,
            rows,
            columns,
        })
    }
}
