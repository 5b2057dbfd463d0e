//! Numbers that a user saves next to the data: an `.npy` file of one dimension.

use std::path::Path;

use crate::arrays::npy::npy_array;
use crate::record::error::FormatError;
use crate::record::rows::fields::element_value;
use pelton_storage::regular_file;

/// The remedy for another array.
const REMEDY: &str = "save a little-endian array of one dimension, of whole numbers or floats";

/// The numbers of a file of one dimension, for instance one a record.
///
/// Errors: another kind of file, or numbers that are not finite.
pub fn npy_numbers(path: &Path) -> Result<Vec<f64>, FormatError> {
    regular_file(path)?;
    let bytes = pelton_storage::read_file(path).map_err(|e| FormatError::io(path, "read it", e))?;
    numbers_of(&bytes).map_err(|error| error.with_remedy(REMEDY).in_file(path))
}

fn numbers_of(file: &[u8]) -> Result<Vec<f64>, FormatError> {
    let (header, data) = npy_array(file)?;
    if header.shape.len() != 1 {
        let what = format!("it has {} dimensions", header.shape.len());
        return Err(FormatError::malformed(header.data_offset, what));
    }
    let bytes_each = header.number.bytes();
    let numbers: Vec<f64> = data
        .chunks_exact(bytes_each)
        .map(|cell| element_value(header.number, cell))
        .collect();
    match numbers.iter().position(|number| !number.is_finite()) {
        None => Ok(numbers),
        Some(at) => {
            let offset = header.data_offset + (at * bytes_each) as u64;
            let what = format!("number {at} is {}", numbers[at]);
            Err(FormatError::malformed(offset, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let head = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((head.len() as u16).to_le_bytes());
        file.extend(head.bytes());
        file.extend(data);
        file
    }

    #[test]
    fn numbers_of_any_type_are_read_and_other_arrays_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let read = |file: &[u8]| {
            std::fs::write(&path, file).unwrap();
            npy_numbers(&path)
        };
        assert_eq!(
            read(&array("<i4", "(2,)", &[7, 0, 0, 0, 255, 255, 255, 255])).unwrap(),
            [7.0, -1.0]
        );
        let floats: Vec<u8> = [0.25_f64, 1e300]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        assert_eq!(read(&array("<f8", "(2,)", &floats)).unwrap(), [0.25, 1e300]);
        assert_eq!(read(&array("|u1", "(0,)", &[])).unwrap(), [0.0; 0]);
        let refuses = |file: &[u8], says: &str| {
            let error = read(file).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("x.npy"), "{error}");
        };
        refuses(&array("|u1", "(2, 1)", &[1, 2]), "2 dimensions");
        refuses(&array("|u1", "()", &[1]), "0 dimensions");
        refuses(
            &array("|u1", "(3,)", &[1, 2]),
            "take another number of bytes",
        );
        refuses(
            &array("<f4", "(2,)", &[[0; 4], f32::NAN.to_le_bytes()].concat()),
            "number 1 is NaN",
        );
        refuses(b"no array", "first bytes");
        assert!(npy_numbers(folder.path()).is_err());
    }
}
