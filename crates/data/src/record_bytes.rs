//! The bytes of a single record.

use pelton_fetch::FetchError;
use pelton_format::Dataset;
use pelton_storage::{AlignedBuffer, RangeRead};

use crate::error::DataError;

/// The bytes of one record.
pub fn fetch_bytes(dataset: &Dataset, id: u64) -> Result<Vec<u8>, DataError> {
    let place = dataset.locate(id);
    let storage = dataset.files()[place.file as usize].storage();
    let unit = u64::from(storage.granularity().offset_bytes);
    let start = place.offset - place.offset % unit;
    let length = (place.offset + place.length - start).next_multiple_of(unit) as usize;
    let mut buffer = AlignedBuffer::with_capacity(4096, length);
    buffer.resize(length, 0);
    let mut reads = [RangeRead {
        offset: start,
        buffer: &mut buffer,
        filled: 0,
    }];
    storage.read_batch(&mut reads)?;
    let filled = reads[0].filled as u64;
    let (from, to) = (place.offset - start, place.offset - start + place.length);
    if filled < to {
        return Err(FetchError::Shrunk {
            path: storage.name(),
            offset: place.offset,
            expected: place.length,
            found: filled.saturating_sub(from),
        }
        .into());
    }
    Ok(buffer[from as usize..to as usize].to_vec())
}
