//! `.fvecs`: the vectors of collections for nearest-neighbour search (SIFT, GIST, Deep1B).
//!
//! ```text
//! vector  dimension i32 | as many f32
//! ```
//!
//! Numbers are little-endian. All vectors have the dimension of the first, so offsets are computed, without a scan; a
//! vector that states another is a bad record. Vectors have no labels. Format: Jégou, Douze and Schmid,
//! corpus-texmex.irisa.fr.

use pelton_key::Digest;

use crate::locate::decoder::{Decoded, Decoder};
use crate::locate::format::{Format, Match, Shard, Source};
use crate::locate::places::Places;
use crate::locate::places::byte_source::ByteSource;
use crate::record::cells::label_column::LabelColumn;
use crate::record::error::{Fault, FormatError};
use crate::record::kind::Head;
use crate::record::labels::stored::Label;
use crate::record::rows::{Layout, NewRow, Rows};

/// The largest dimension; a file with a larger one hardly contains vectors.
const MOST_NUMBERS: i32 = 1 << 20;
const REMEDY: &str = "fetch the file again, or name its format with `format`";

/// Vectors of f32.
pub(crate) struct Fvecs;

impl Format for Fvecs {
    fn name(&self) -> &'static str {
        "fvecs"
    }

    fn recognise(&self, head: &Head<'_>) -> Option<Match> {
        head.ends_in(&["fvecs"]).then_some(Match::Name)
    }

    fn has_features(&self) -> bool {
        true
    }

    fn refuses_label(&self, label: &LabelColumn) -> Option<&'static str> {
        (*label != LabelColumn::Last).then_some("leave it out: vectors of fvecs have no label")
    }

    fn open(&self, source: &Source<'_>, _: &mut Vec<String>) -> Result<Shard, FormatError> {
        let mut window = source.window()?;
        let shape = Shape::new(&mut window).map_err(|error| error.with_remedy(REMEDY))?;
        let Shape { records, width } = shape;
        let (layout, features) = (Layout::Dense { width }, width as u64);
        let bytes = shape.record_bytes();
        Ok(Shard {
            places: Places::Fixed { from: 0, bytes },
            bytes: records * bytes,
            longest: bytes,
            ..Shard::features(layout, features, records, records * features, FvecsDecoder)
        })
    }
}

/// Vectors of one dimension.
struct Shape {
    records: u64,
    width: usize,
}

impl Shape {
    /// From the first vector and the size of the file.
    fn new(file: &mut impl ByteSource) -> Result<Shape, FormatError> {
        let size = file.size();
        let first = file.bytes(0, size.min(4) as usize)?;
        let Some(width) = first
            .first_chunk::<4>()
            .map(|first| i32::from_le_bytes(*first))
        else {
            if size == 0 {
                return Ok(Shape {
                    records: 0,
                    width: 0,
                });
            }
            let what = "it ends within the dimension of its first vector";
            return Err(FormatError::malformed(0, what));
        };
        if !(1..=MOST_NUMBERS).contains(&width) {
            let what = format!(
                "its first vector has dimension {width}, which is not from 1 to {MOST_NUMBERS}"
            );
            return Err(FormatError::malformed(0, what));
        }
        let shape = Shape {
            records: size / (4 + 4 * width as u64),
            width: width as usize,
        };
        if size.is_multiple_of(shape.record_bytes()) {
            return Ok(shape);
        }
        // A vector of another dimension, or a file that ends within one.
        for record in 0..=shape.records {
            let at = record * shape.record_bytes();
            let head = file.bytes(at, (size - at).min(4) as usize)?;
            let Some(head) = head.first_chunk::<4>() else {
                break;
            };
            let found = i32::from_le_bytes(*head);
            if found != width {
                let what =
                    format!("vector {record} has dimension {found}, but the first has {width}");
                return Err(FormatError::malformed(at, what));
            }
        }
        let at = shape.records * shape.record_bytes();
        let end = at + shape.record_bytes();
        let what = format!(
            "it is cut off: vector {} needs the file to reach byte {end}, and it ends at {size}",
            shape.records
        );
        Err(FormatError::malformed(at, what))
    }

    fn record_bytes(&self) -> u64 {
        4 + 4 * self.width as u64
    }
}

/// Vectors as rows of features.
#[derive(Debug)]
struct FvecsDecoder;

impl Decoder for FvecsDecoder {
    fn decode<'b>(&self, _: u64, bytes: &'b [u8], row: &mut NewRow<'_>) -> Decoded<'b> {
        let row = row.dense();
        let (head, values) = bytes.split_first_chunk::<4>().ok_or(Fault::NO_RECORD)?;
        let (found, values) = (i32::from_le_bytes(*head), values.as_chunks::<4>().0);
        if usize::try_from(found) != Ok(row.len()) || values.len() != row.len() {
            return Err(Fault::new(format!(
                "it has dimension {found}, but the first vector has {}; {REMEDY}",
                row.len()
            )));
        }
        for (column, (cell, value)) in (1..).zip(row.iter_mut().zip(values)) {
            *cell = f32::from_le_bytes(*value);
            if !cell.is_finite() {
                let found = cell.to_string();
                return Err(Fault::not_finite(column, &found));
            }
        }
        Ok(Label::None)
    }

    fn fingerprint(&self) -> [u64; 3] {
        [Digest::new("fvecs").value(), 0, 0]
    }
}

/// The vectors of a file in memory, if all are valid.
pub fn load_fvecs(mut bytes: &[u8]) -> Option<Rows> {
    let shape = Shape::new(&mut bytes).ok()?;
    let mut rows = Rows::new(Layout::Dense { width: shape.width });
    for (record, vector) in (0..).zip(bytes.chunks_exact(shape.record_bytes() as usize)) {
        let decoded = rows.push_with(|row| FvecsDecoder.decode(record, vector, row).map(|_| 0));
        decoded.ok()?;
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fvecs(vectors: &[(i32, &[f32])]) -> Vec<u8> {
        let bytes = vectors.iter().flat_map(|(dimension, values)| {
            let values = values.iter().flat_map(|value| value.to_le_bytes());
            dimension.to_le_bytes().into_iter().chain(values)
        });
        bytes.collect()
    }

    fn refuses(bytes: &[u8], at: u64, message: &str) {
        let error = Shape::new(&mut &*bytes).err().expect(message).to_string();
        assert!(error.starts_with(&format!("byte {at}: ")), "{error}");
        assert!(error.contains(message), "{error}");
    }

    #[test]
    fn vectors_are_rows() {
        let rows = load_fvecs(&fvecs(&[(2, &[1.0, -2.5]), (2, &[0.0, 3e9])])).unwrap();
        assert_eq!(rows.values(), [1.0, -2.5, 0.0, 3e9]);
        assert_eq!(load_fvecs(&[]).unwrap().len(), 0);
    }

    #[test]
    fn what_is_wrong_with_a_file() {
        refuses(&[1, 0], 0, "ends within the dimension");
        refuses(
            &fvecs(&[(0, &[])]),
            0,
            "dimension 0, which is not from 1 to 1048576",
        );
        refuses(&fvecs(&[(-3, &[1.0])]), 0, "dimension -3,");
        refuses(&fvecs(&[(i32::MAX, &[1.0])]), 0, "dimension 2147483647,");
        let changes = fvecs(&[(2, &[1.0, 2.0]), (1, &[1.0])]);
        refuses(
            &changes,
            12,
            "vector 1 has dimension 1, but the first has 2",
        );
        let whole = fvecs(&[(2, &[1.0, 2.0]), (2, &[3.0, 4.0])]);
        refuses(
            &whole[..20],
            12,
            "vector 1 needs the file to reach byte 24, and it ends at 20",
        );
        refuses(&whole[..14], 12, "it is cut off");
        // Files of the right length.
        assert!(load_fvecs(&fvecs(&[(2, &[1.0, 2.0]), (1, &[1.0, 2.0])])).is_none());
        assert!(load_fvecs(&fvecs(&[(1, &[f32::NAN])])).is_none());
    }
}
