//! Writes a data set of any format as LIBSVM text on standard output, so that other programs can read
//! it: `cargo run --release -p pelton-format --example to_libsvm -- FILE… > rows.libsvm`.
//!
//! Values are written as the shortest decimal that reads back as the same f32; zeros are left out.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use pelton_format::{Dataset, OpenOptions, Row, Rows};
use pelton_storage::{LocalMode, LocalOptions, RangeRead};

const RECORDS_AT_ONCE: u64 = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let options = OpenOptions {
        storage: LocalOptions {
            mode: LocalMode::Pread,
            ..LocalOptions::default()
        },
        ..OpenOptions::default()
    };
    let dataset = Dataset::open(&paths, &options)?;
    let mut out = BufWriter::with_capacity(1 << 20, std::io::stdout().lock());
    let mut rows = Rows::new(dataset.layout());
    let mut bytes = Vec::new();
    for id in 0..dataset.records() {
        let place = dataset.locate(id);
        bytes.resize(place.length as usize, 0);
        let storage = dataset.files()[place.file as usize].storage();
        storage.read_batch(&mut [RangeRead {
            offset: place.offset,
            filled: 0,
            buffer: &mut bytes,
        }])?;
        if id % RECORDS_AT_ONCE == 0 {
            rows.clear();
        }
        dataset.decode(id, &bytes, &mut rows)?;
        let row = rows.len() - 1;
        let label = dataset.labels().values()[rows.label(row) as usize];
        write!(out, "{label}")?;
        match rows.row(row) {
            Row::Dense(values) => {
                for (index, value) in (1..).zip(values).filter(|(_, value)| **value != 0.0) {
                    write!(out, " {index}:{value}")?;
                }
            }
            Row::Sparse { indices, values } => {
                for (index, value) in indices.iter().zip(values) {
                    write!(out, " {}:{value}", u64::from(*index) + 1)?;
                }
            }
            Row::Bytes(_) => return Err("these data hold bytes and no features".into()),
        }
        writeln!(out)?;
    }
    out.flush()?;
    Ok(())
}
