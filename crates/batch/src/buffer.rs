//! Memory of arrays, which pools reuse.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;

/// Alignment of a buffer's first byte, for vector instructions and other libraries.
const ALIGNMENT: usize = 64;

/// Memory that begins at a multiple of 64 bytes and goes back to its pool when it is dropped.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: BytesMut,
    pool: Option<Arc<Pool>>,
}

impl Buffer {
    /// The bytes of `bytes`, which came from `pool`, if there is one.
    pub fn new(bytes: BytesMut, pool: Option<&Arc<Pool>>) -> Buffer {
        Buffer {
            bytes,
            pool: pool.map(Arc::clone),
        }
    }

    /// A copy of numbers, aligned.
    pub fn from_slice<T: bytemuck::Pod>(numbers: &[T]) -> Buffer {
        let from: &[u8] = bytemuck::cast_slice(numbers);
        let mut bytes = aligned(from.len());
        bytes.copy_from_slice(from);
        Buffer::new(bytes, None)
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.give(std::mem::take(&mut self.bytes));
        }
    }
}

/// Buffers of batches for reuse.
#[derive(Debug)]
pub struct Pool {
    spare: Mutex<Vec<BytesMut>>,
    /// Spare buffers that are kept.
    most_spare: usize,
}

impl Pool {
    /// A pool that keeps `most_spare` spare buffers: as many as there are arrays at a time.
    pub fn new(most_spare: usize) -> Arc<Pool> {
        Arc::new(Pool {
            spare: Mutex::default(),
            most_spare,
        })
    }

    /// Memory of `len` bytes of any content, to be written and made a [`Buffer`]. It can be split among threads and
    /// joined again without a copy.
    pub fn take(&self, len: usize) -> BytesMut {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |buffer: &BytesMut| {
            buffer.capacity() >= len && buffer.capacity() <= len + len / 4 + 4096
        };
        // The one returned last, which may still be in the processor's cache.
        let found = spare.iter().rposition(fits);
        let held = found.map(|i| spare.swap_remove(i));
        // If the pool is full, a spare one of another size is dropped.
        if held.is_none() && spare.len() >= self.most_spare && !spare.is_empty() {
            spare.remove(0);
        }
        drop(spare);
        let mut buffer = held.unwrap_or_else(|| aligned(len));
        buffer.resize(len, 0);
        buffer
    }

    fn give(&self, buffer: BytesMut) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < self.most_spare && buffer.capacity() > 0 {
            spare.push(buffer);
        }
    }
}

fn aligned(len: usize) -> BytesMut {
    let mut buffer = BytesMut::zeroed(len + ALIGNMENT);
    let skip = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    drop(buffer.split_to(skip));
    buffer.truncate(len);
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_used_again() {
        let pool = Pool::new(4);
        for len in [1, 63, 64, 65, 100_000] {
            let mut buffer = pool.take(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().align_offset(64), 0);
            let first = buffer.as_ptr();
            let mut parts = Vec::new();
            while buffer.len() > 7 {
                parts.push(buffer.split_to(7));
            }
            parts.push(buffer);
            let mut whole = parts.remove(0);
            parts.into_iter().for_each(|part| whole.unsplit(part));
            assert_eq!((whole.as_ptr(), whole.len()), (first, len), "no copy");
            drop(Buffer::new(whole, Some(&pool)));
            assert_eq!(pool.take(len).as_ptr(), first, "used again");
        }
    }
}
