//! Data of equally long records, for measurements of bytes only.

use std::path::PathBuf;

use pelton_data::DataConfig;
use pelton_format::{IndexCoding, Layout, PackedShape, PackedWriter, Row};
use pelton_key::{KeyedRng, Stage, key};
use pelton_train::TrainError;

use crate::experiment::SetConfig;
use crate::table::ReproduceConfig;

/// Bytes of a record in addition to its values: class and checksum.
const FRAME_BYTES: usize = 8;

/// The set's file, written if it does not exist, with the bytes and number of its records.
///
/// Errors: a name that is not `records:BYTES`; a folder that cannot be written.
pub fn records(
    config: &ReproduceConfig,
    set: &SetConfig,
) -> Result<(DataConfig, u64, u64), TrainError> {
    let bytes = set
        .name
        .strip_prefix("records:")
        .and_then(|bytes| bytes.parse().ok());
    let bytes: Option<usize> = bytes.filter(|bytes| (64..=1 << 24).contains(bytes));
    let (Some(bytes), Some(rows)) = (bytes, set.rows) else {
        return Err(TrainError::config(format!(
            "{}: is not a set of records; name it records:BYTES with rows, such as records:4096",
            set.name
        )));
    };
    let rows = ((rows as f64 * config.scale) as u64).max(1024);
    let path = config
        .out
        .join("data")
        .join(format!("records-{bytes}-{rows}.prow"));
    if !path.exists() {
        write(&path, bytes, rows)?;
    }
    let data = DataConfig {
        paths: vec![path.display().to_string()],
        ..DataConfig::default()
    };
    Ok((data, bytes as u64, rows))
}

fn write(path: &PathBuf, bytes: usize, rows: u64) -> Result<(), TrainError> {
    let width = (bytes - FRAME_BYTES) / size_of::<f32>();
    let shape = PackedShape {
        layout: Layout::Dense { width },
        features: width as u64,
        index_coding: IndexCoding::default(),
    };
    let mut writer = PackedWriter::create(path, shape)?;
    let mut rng = KeyedRng::new(key(0, 0, Stage::Sample(0)));
    let mut row = vec![0.0; width];
    for id in 0..rows {
        row.fill_with(|| rng.next_u64() as f32);
        let label = if id % 2 == 0 { 1.0 } else { -1.0 };
        writer.push(label, Row::Dense(&row))?;
    }
    writer.finish()?;
    Ok(())
}
