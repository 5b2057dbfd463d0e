//! Rows whose numbers are at different offsets of a file, read as if each record were contiguous, at the cost of a
//! copy.

use pelton_storage::{AlignedBuffer, Granularity, RangeRead, Storage, StorageError};

/// Rows of several arrays, read as if each record were contiguous.
#[derive(Debug)]
pub(crate) struct Gathered<S> {
    pub(crate) storage: S,
    /// The offset of the first row of each array, and the bytes of its rows.
    pub(crate) parts: Vec<(u64, u64)>,
    pub(crate) record_bytes: u64,
    pub(crate) records: u64,
}

impl<S: Storage> Storage for Gathered<S> {
    fn name(&self) -> String {
        self.storage.name()
    }

    fn size(&self) -> Result<u64, StorageError> {
        self.storage.size()?;
        Ok(self.records * self.record_bytes)
    }

    fn granularity(&self) -> Granularity {
        Granularity::BYTE
    }

    fn will_need(&self, offset: u64, length: u64) -> u64 {
        let length = length.min((self.records * self.record_bytes).saturating_sub(offset));
        if length == 0 {
            return 0;
        }
        let first = offset / self.record_bytes;
        let records = (offset + length - 1) / self.record_bytes + 1 - first;
        let of_part = |(from, row_bytes): &(u64, u64)| {
            let begin = from + first * row_bytes;
            self.storage.will_need(begin, records * row_bytes)
        };
        self.parts.iter().map(of_part).sum()
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        let units = self.storage.granularity();
        let size = self.records * self.record_bytes;
        // The parts of each range in each array: the first record, where the rows begin in the buffer, and the
        // buffer.
        let mut buffers = Vec::with_capacity(reads.len() * self.parts.len());
        for read in reads.iter_mut() {
            let left = size.saturating_sub(read.offset);
            read.filled = left.min(read.buffer.len() as u64) as usize;
            if read.filled == 0 {
                continue;
            }
            let first = read.offset / self.record_bytes;
            let last = (read.offset + read.filled as u64 - 1) / self.record_bytes;
            for (from, row_bytes) in &self.parts {
                let begin = from + first * row_bytes;
                let wanted = (last - first + 1) * row_bytes;
                // Rows are in the file, far from the largest offset.
                let (start, length) = units.align_out(begin, wanted).unwrap_or((begin, wanted));
                let mut buffer = AlignedBuffer::with_capacity(4096, length as usize);
                buffer.resize(length as usize, 0);
                buffers.push((start, (begin - start) as usize, buffer));
            }
        }
        let mut batch: Vec<RangeRead<'_>> = buffers
            .iter_mut()
            .map(|(offset, _, buffer)| RangeRead {
                offset: *offset,
                buffer,
                filled: 0,
            })
            .collect();
        self.storage.read_batch(&mut batch)?;
        let filled: Vec<usize> = batch.iter().map(|read| read.filled).collect();
        let mut gathered = buffers.iter().zip(filled);
        for read in reads.iter_mut().filter(|read| read.filled > 0) {
            let first = read.offset / self.record_bytes;
            let end = read.offset + read.filled as u64;
            let mut at = 0;
            for (_, row_bytes) in &self.parts {
                let ((_, skip, buffer), filled) = gathered.next().expect("one for each array");
                let mut record = first;
                while record * self.record_bytes < end {
                    let place = record * self.record_bytes + at;
                    let from = place.max(read.offset);
                    let to = (place + row_bytes).min(end);
                    if from < to {
                        let begin = skip + ((record - first) * row_bytes + from - place) as usize;
                        let length = (to - from) as usize;
                        if begin + length > filled {
                            // The file became shorter.
                            read.filled = 0;
                            break;
                        }
                        let to = (from - read.offset) as usize;
                        read.buffer[to..to + length]
                            .copy_from_slice(&buffer[begin..begin + length]);
                    }
                    record += 1;
                }
                at += row_bytes;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pelton_storage::MemoryStorage;
    use pelton_storage::conformance::check_storage;

    use super::*;

    #[test]
    fn rows_are_gathered() {
        let (records, widths) = (5000u64, [3u64, 8, 1]);
        let file: Vec<u8> = (0..records * 12 + 100)
            .map(|i| (i * 7 + i / 251) as u8)
            .collect();
        let mut from = 100;
        let mut parts = Vec::new();
        for width in widths {
            parts.push((from, width));
            from += width * records;
        }
        let mut expected = Vec::new();
        for record in 0..records {
            for (from, width) in &parts {
                let at = (from + record * width) as usize;
                expected.extend_from_slice(&file[at..at + *width as usize]);
            }
        }
        let gathered = Gathered {
            storage: MemoryStorage::new(file),
            parts,
            record_bytes: 12,
            records,
        };
        check_storage(&gathered, &expected);
    }
}
