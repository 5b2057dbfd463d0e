//! The contract of every [`Storage`], as one executable check.
//!
//! A new backend or decorator is done when [`check_storage`] passes for it.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::{AlignedBuffer, Granularity, MemoryStorage, RangeRead, Storage, StorageError};
use pelton_key::splitmix64;

/// Reads `ranges` (offset, length) in one batch, each into its own aligned buffer, and returns the bytes of each.
pub fn read_ranges(
    storage: &dyn Storage,
    ranges: &[(u64, usize)],
) -> Result<Vec<Vec<u8>>, StorageError> {
    let mut buffers: Vec<AlignedBuffer> = ranges.iter().map(|&(_, n)| zeroed(n)).collect();
    let mut reads: Vec<RangeRead<'_>> = ranges
        .iter()
        .zip(&mut buffers)
        .map(|(&(offset, _), buffer)| RangeRead {
            offset,
            buffer: &mut buffer[..],
            filled: usize::MAX,
        })
        .collect();
    storage.read_batch(&mut reads)?;
    let bytes = |read: &RangeRead<'_>| {
        assert!(
            read.filled <= read.buffer.len(),
            "filled {} of a buffer of {}",
            read.filled,
            read.buffer.len()
        );
        read.buffer[..read.filled].to_vec()
    };
    Ok(reads.iter().map(bytes).collect())
}

/// Checks that `storage` holds exactly `expected` and keeps the contract of [`Storage`].
///
/// # Panics
/// If it does not; the message says what differs.
pub fn check_storage(storage: &dyn Storage, expected: &[u8]) {
    let units = storage.granularity();
    assert!(units.offset_bytes.is_power_of_two() && units.memory_bytes.is_power_of_two());
    assert!(!storage.name().is_empty(), "a storage needs a name");
    assert_eq!(storage.size().expect("size"), expected.len() as u64);
    storage.read_batch(&mut []).expect("an empty batch");

    check_small_ranges(storage, expected);
    check_end(storage, expected);
    check_many_ranges(storage, expected);
    check_adjacent_ranges(storage, expected);
    check_long_range(storage, expected);
    check_concurrent_callers(storage, expected);
    check_misaligned(storage);
    check_hints(storage, expected);
}

/// Checks one batch against `expected`.
///
/// # Panics
/// If a range fails or gives other bytes.
pub fn check_ranges(storage: &dyn Storage, expected: &[u8], ranges: &[(u64, usize)]) {
    let got = read_ranges(storage, ranges).expect("read");
    for (&(offset, length), got) in ranges.iter().zip(&got) {
        let wanted = &expected[within(offset, length, expected.len())];
        assert_eq!(got.len(), wanted.len(), "{length} bytes at {offset}");
        assert!(got == wanted, "other bytes in {length} at {offset}");
    }
}

fn check_small_ranges(storage: &dyn Storage, expected: &[u8]) {
    let unit = u64::from(storage.granularity().offset_bytes);
    let step = unit.max(expected.len() as u64 / 61 / unit * unit).max(1);
    for offset in (0..expected.len() as u64).step_by(step as usize) {
        let ranges = [1, 2, 3, 9].map(|units| (offset, (units * unit) as usize));
        check_ranges(storage, expected, &ranges);
    }
}

fn check_end(storage: &dyn Storage, expected: &[u8]) {
    let unit = u64::from(storage.granularity().offset_bytes);
    let last = expected.len() as u64 / unit * unit;
    let beyond = last + unit;
    let ranges = [
        (last, unit as usize),
        (last, 3 * unit as usize),
        (last.saturating_sub(unit), 8 * unit as usize),
        (beyond, unit as usize),
        (beyond + 1000 * unit, 2 * unit as usize),
        (last, 0),
        (0, 0),
    ];
    check_ranges(storage, expected, &ranges);
}

/// More ranges than any queue is deep, among them overlapping and empty ones.
fn check_many_ranges(storage: &dyn Storage, expected: &[u8]) {
    check_ranges(storage, expected, &scattered(storage, expected, 700, 1));
}

/// Ranges one after another, some empty, from within the storage to beyond its end.
fn check_adjacent_ranges(storage: &dyn Storage, expected: &[u8]) {
    let unit = u64::from(storage.granularity().offset_bytes);
    let size = expected.len() as u64;
    for begin in [0, size / 2, size.saturating_sub(50 * unit), size] {
        let mut offset = begin / unit * unit;
        let mut ranges = Vec::new();
        for number in 0..40 {
            let length = splitmix64(number ^ size) % 4 * unit;
            ranges.push((offset, length as usize));
            offset += length;
        }
        check_ranges(storage, expected, &ranges);
    }
}

fn check_long_range(storage: &dyn Storage, expected: &[u8]) {
    let unit = storage.granularity().offset_bytes as usize;
    let whole = expected.len().next_multiple_of(unit) + 4 * unit;
    check_ranges(storage, expected, &[(0, whole)]);
}

fn check_concurrent_callers(storage: &dyn Storage, expected: &[u8]) {
    std::thread::scope(|scope| {
        for caller in 0..4 {
            scope.spawn(move || {
                for batch in 0..5 {
                    let ranges = scattered(storage, expected, 50, splitmix64(caller) ^ batch);
                    check_ranges(storage, expected, &ranges);
                }
            });
        }
    });
}

/// Hints on any range, existing or not, change nothing that is read.
fn check_hints(storage: &dyn Storage, expected: &[u8]) {
    let size = expected.len() as u64;
    let (all, beyond) = ((0, size), (size, u64::MAX));
    for (offset, length) in [all, (size / 2, 1), (0, 0), beyond, (u64::MAX, u64::MAX)] {
        storage.will_need(offset, length);
    }
    check_small_ranges(storage, expected);
    if let Some(buffered) = storage.buffered() {
        assert_eq!(buffered.size().expect("size"), size);
        check_small_ranges(&*buffered, expected);
        check_end(&*buffered, expected);
    }
}

/// Checks that a decorator that keeps offsets passes hints on.
///
/// # Panics
/// If it does not.
pub fn check_decorator<S: Storage>(decorate: impl FnOnce(Arc<dyn Storage>) -> S) {
    let hinted = Arc::new(Hinted {
        inner: MemoryStorage::new(vec![7; 100_000]),
        hints: Mutex::default(),
    });
    let decorated = decorate(Arc::clone(&hinted) as Arc<dyn Storage>);
    let hints = [(0, 4096), (8192, 20_000), (98_304, 1696)];
    for (offset, length) in hints {
        assert_eq!(decorated.will_need(offset, length), length);
    }
    let passed = hinted.hints.lock().expect("no holder panics");
    assert_eq!(*passed, hints, "hints are passed on");
}

/// Records the hints that it gets.
#[derive(Debug)]
struct Hinted {
    inner: MemoryStorage,
    hints: Mutex<Vec<(u64, u64)>>,
}

impl Storage for Hinted {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn size(&self) -> Result<u64, StorageError> {
        self.inner.size()
    }

    fn granularity(&self) -> Granularity {
        self.inner.granularity()
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        self.inner.read_batch(reads)
    }

    fn will_need(&self, offset: u64, length: u64) -> u64 {
        let mut hints = self.hints.lock().expect("no holder panics");
        hints.push((offset, length));
        length
    }
}

fn check_misaligned(storage: &dyn Storage) {
    let units = storage.granularity();
    let (unit, memory) = (units.offset_bytes as usize, units.memory_bytes as usize);
    let mut wrong = Vec::new();
    if unit > 1 {
        wrong.extend([(1, 0..unit), (0, 0..unit - 1), (unit as u64 / 2, 0..unit)]);
    }
    if memory > 1 {
        wrong.push((0, 1..unit + 1));
    }
    for (offset, place) in wrong {
        let mut buffer = zeroed(2 * unit + memory);
        let mut reads = [RangeRead {
            offset,
            buffer: &mut buffer[place.clone()],
            filled: 0,
        }];
        let refused = storage.read_batch(&mut reads);
        assert!(
            matches!(&refused, Err(error) if error.to_string().contains("is not aligned to")),
            "{place:?} at {offset}: {refused:?}"
        );
    }
}

/// `count` aligned ranges all over `expected`, up to 16 units long.
pub(crate) fn scattered(
    storage: &dyn Storage,
    expected: &[u8],
    count: u64,
    seed: u64,
) -> Vec<(u64, usize)> {
    let unit = u64::from(storage.granularity().offset_bytes);
    let places = expected.len() as u64 / unit + 2;
    (0..count)
        .map(|i| {
            let word = splitmix64(seed ^ splitmix64(i));
            let offset = word % places * unit;
            (offset, (splitmix64(word) % 17 * unit) as usize)
        })
        .collect()
}

fn within(offset: u64, length: usize, size: usize) -> Range<usize> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(size);
    start..start.saturating_add(length).min(size)
}

fn zeroed(bytes: usize) -> AlignedBuffer {
    AlignedBuffer::from_iter(4096, std::iter::repeat_n(0, bytes))
}
