//! Compares the data of all ranks when it is opened.
//!
//! The fingerprint of a data set covers the sizes of its files and 64 blocks of 4 KiB of each (of a folder the names of
//! all files and the beginnings of some), and how records are read. A digest of [`SAMPLES`] decoded records spread over
//! the data, with their labels, covers tables of labels and classes, and the files of a folder. So files of up to 256
//! KiB are compared whole. In larger ones, the comparison detects flipped labels and reordered lines, since they change
//! every block, but not single different records between the blocks and samples, which would take a pass over the data.
//!
//! Cost: these reads on each rank, at most [`SAMPLED_BYTES`], once for each data set.

use pelton_comm::Alike;
use pelton_format::{ClassMap, Dataset, Row, Rows};
use pelton_key::{Digest, splitmix64};

use crate::error::DataError;
use crate::record_bytes::fetch_bytes;

/// Number of records decoded.
const SAMPLES: u64 = 64;
/// Sampling stops at this many bytes.
const SAMPLED_BYTES: usize = 16 << 20;

/// The values to compare; `kind` is the role of the data in a job.
///
/// Errors: records that cannot be read. Records may be undecodable, if they are so on all ranks.
pub(crate) fn of_data(dataset: &Dataset, kind: &str) -> Result<Alike, DataError> {
    let name = |what: &str| format!("{kind}data with {what}");
    Ok(Alike::default()
        .with(name("the record count"), dataset.records())
        .with(name("the feature count"), dataset.features())
        .with(name("the class count"), dataset.labels().len())
        .with_digest(name("the fingerprint"), dataset.fingerprint())
        .with_digest(name("the classes"), of_labels(dataset.labels()))
        .with_digest(name("records like"), of_samples(dataset)?))
}

fn of_labels(labels: &ClassMap) -> u64 {
    let count = Digest::new("labels").word(labels.len() as u64);
    if labels.is_count() {
        return count.value();
    }
    let classes = 0..labels.len() as u32;
    let word = |class| match labels.name(class) {
        Some(name) => u64::from(crc32c::crc32c(name.as_bytes())),
        None => labels.value(class).to_bits(),
    };
    count.words(classes.map(word)).value()
}

/// A digest of records spread evenly, each at a random position in its part of the data.
fn of_samples(dataset: &Dataset) -> Result<u64, DataError> {
    let records = dataset.records();
    let samples = records.min(SAMPLES);
    let mut digest = Digest::new("samples");
    let mut rows = Rows::new(dataset.layout());
    let mut read = 0;
    for sample in 0..samples {
        let bound =
            |part: u64| (u128::from(records) * u128::from(part) / u128::from(samples)) as u64;
        let part = bound(sample)..bound(sample + 1);
        let id = part.start + splitmix64(sample) % (part.end - part.start);
        let bytes = fetch_bytes(dataset, id)?;
        rows.clear();
        digest = match dataset.decode(id, &bytes, &mut rows) {
            Ok(()) => digest.word(rows.label(0).into()).words(of_row(rows.row(0))),
            Err(_) => digest.word(id),
        };
        read += bytes.len();
        if read > SAMPLED_BYTES {
            break;
        }
    }
    Ok(digest.value())
}

fn of_row(row: Row<'_>) -> Vec<u64> {
    let values = |values: &[f32]| values.iter().map(|value| value.to_bits().into()).collect();
    match row {
        Row::Dense(dense) => values(dense),
        Row::Sparse {
            indices,
            values: of,
        } => {
            let mut words: Vec<u64> = values(of);
            words.extend(indices.iter().map(|&index| u64::from(index)));
            words
        }
        Row::Bytes(bytes) => vec![bytes.len() as u64, crc32c::crc32c(bytes).into()],
    }
}
