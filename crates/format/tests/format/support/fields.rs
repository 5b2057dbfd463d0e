//! Helpers of the tests of named arrays.

use std::path::Path;

use pelton_batch::DType;
use pelton_format::{Contents, Dataset, FormatError, FormatKind, LabelColumn, OpenOptions, Row};
use pelton_storage::RangeRead;
use tempfile::TempDir;

use crate::support::{options, rows};

/// A field as tests compare it: name, type, dimensions and bytes.
pub type Shown = (String, Option<DType>, Vec<usize>, Vec<u8>);

pub fn shown(name: &str, dtype: Option<DType>, dims: &[usize], bytes: &[u8]) -> Shown {
    (name.into(), dtype, dims.to_vec(), bytes.to_vec())
}

/// Reading at the stated position of the only field gives that field.
fn check_in_place(dataset: &Dataset, id: u64, expected: &[u8]) {
    let place = dataset.in_place(id).unwrap().unwrap();
    let mut found = vec![0; place.length as usize];
    let mut reads = [RangeRead {
        offset: place.offset,
        buffer: &mut found,
        filled: 0,
    }];
    let storage = dataset.files()[place.file as usize].storage();
    storage.read_batch(&mut reads).unwrap();
    assert_eq!(found, expected);
}

/// The fields and the label of every record.
pub fn records(dataset: &Dataset) -> Vec<(Vec<Shown>, String)> {
    let rows = rows(dataset).unwrap();
    assert_eq!(rows.stored_values() as u64, dataset.nonzeros());
    records_of(dataset)
}

/// The same if the total bytes of rows are unknown.
pub fn records_of(dataset: &Dataset) -> Vec<(Vec<Shown>, String)> {
    assert_eq!(dataset.contents(), Contents::Fields);
    let rows = rows(dataset).unwrap();
    let specs = dataset.fields();
    (0..rows.len())
        .map(|i| {
            let Row::Bytes(row) = rows.row(i) else {
                panic!("rows of bytes");
            };
            let row = dataset.record_fields().split(row).unwrap();
            for (spec, field) in specs.0.iter().zip(&row) {
                assert_eq!(
                    (&*spec.name, spec.dims.len()),
                    (field.name, field.dims.len())
                );
                assert_eq!(spec.dtype, field.dtype.unwrap_or(DType::U8));
                let fits = |(known, length): (&Option<usize>, &usize)| {
                    known.is_none_or(|known| known == *length)
                };
                assert!(spec.dims.iter().zip(&field.dims).all(fits));
            }
            assert_eq!(specs.0.len(), row.len());
            if dataset.reads_in_place() {
                check_in_place(dataset, i as u64, row[0].bytes);
            }
            let row = row.into_iter();
            let row = row.map(|field| shown(field.name, field.dtype, &field.dims, field.bytes));
            (row.collect(), dataset.labels().describe(rows.label(i)))
        })
        .collect()
}

pub fn with(folder: &TempDir, format: Option<&str>, label: Option<&str>) -> OpenOptions {
    OpenOptions {
        format: format.map(|name| FormatKind::parse(name).unwrap()),
        label: label.map_or(LabelColumn::Last, |name| LabelColumn::Name(name.into())),
        ..options(folder.path())
    }
}

pub fn open(path: &Path, options: &OpenOptions) -> Result<Dataset, FormatError> {
    Dataset::open(&[path.to_path_buf()], options)
}

pub fn refuses(path: &Path, options: &OpenOptions, message: &str) {
    let error = open(path, options).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
}
