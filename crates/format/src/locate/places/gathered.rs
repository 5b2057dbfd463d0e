//! Reads rows of numbers at different offsets of a file as if each record were contiguous, at the cost of a copy.

use std::ops::Range;

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
        // The bytes that each range needs of each array: their offsets in the array and in the buffer, and the buffer.
        let mut buffers = Vec::with_capacity(reads.len() * self.parts.len());
        for read in reads.iter_mut() {
            let left = size.saturating_sub(read.offset);
            read.filled = left.min(read.buffer.len() as u64) as usize;
            let mut at = 0;
            for &(from, row_bytes) in &self.parts {
                let end = read.offset + read.filled as u64;
                let rows = self.needed(at..at + row_bytes, read.offset..end);
                at += row_bytes;
                if rows.is_empty() {
                    continue;
                }
                let begin = from + rows.start;
                let wanted = rows.end - rows.start;
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
                let rows = self.needed(at..at + row_bytes, read.offset..end);
                if rows.is_empty() {
                    at += row_bytes;
                    continue;
                }
                let ((_, skip, buffer), filled) = gathered.next().expect("one for each array");
                let mut record = first;
                while record * self.record_bytes < end {
                    let place = record * self.record_bytes + at;
                    let from = place.max(read.offset);
                    let to = (place + row_bytes).min(end);
                    if from < to {
                        let begin =
                            skip + (record * row_bytes + from - place - rows.start) as usize;
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

impl<S> Gathered<S> {
    /// The bytes of an array that a range needs; the array's rows are at `part` of each record.
    fn needed(&self, part: Range<u64>, range: Range<u64>) -> Range<u64> {
        let row_bytes = part.end - part.start;
        let of_array = |offset: u64| {
            let in_record = offset % self.record_bytes;
            offset / self.record_bytes * row_bytes + in_record.clamp(part.start, part.end)
                - part.start
        };
        of_array(range.start)..of_array(range.end)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pelton_storage::conformance::check_storage;
    use pelton_storage::{MemoryStorage, Metered};

    use super::*;

    /// Arrays with rows of these widths one after another, and their records.
    fn gathered(records: u64, widths: &[u64]) -> (Gathered<Metered>, Vec<u8>) {
        let record_bytes = widths.iter().sum();
        let file: Vec<u8> = (0..records * record_bytes + 100)
            .map(|i| (i * 7 + i / 251) as u8)
            .collect();
        let mut from = 100;
        let mut parts = Vec::new();
        for &width in widths {
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
            storage: Metered::new(Arc::new(MemoryStorage::new(file))),
            parts,
            record_bytes,
            records,
        };
        (gathered, expected)
    }

    #[test]
    fn rows_are_gathered() {
        let (narrow, expected) = gathered(5000, &[3, 8, 1]);
        check_storage(&narrow, &expected);
        let (wide, expected) = gathered(3, &[30_000, 1, 12_000, 9_000]);
        check_storage(&wide, &expected);
    }

    #[test]
    fn a_range_costs_its_own_bytes() {
        let (wide, expected) = gathered(4, &[30_000, 1, 12_000]);
        for offset in (0..expected.len()).step_by(1000) {
            let mut buffer = vec![0; 1000.min(expected.len() - offset)];
            let before = wide.storage.meter().bytes;
            let mut reads = [RangeRead {
                offset: offset as u64,
                buffer: &mut buffer,
                filled: 0,
            }];
            wide.read_batch(&mut reads).unwrap();
            assert_eq!(wide.storage.meter().bytes - before, buffer.len() as u64);
            assert_eq!(buffer, expected[offset..offset + buffer.len()]);
        }
    }
}
