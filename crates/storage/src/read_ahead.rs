//! Any storage, with read-ahead for sequential readers.
//!
//! Over a network even a short read waits for a round trip. Here threads prefetch whole blocks, many at once, after
//! the last requested one: none after a jump, then twice as many each time the reader continues, up to [`DEPTH`]. So
//! a reader of a whole file gets the network's full rate, and one that jumps fetches a block a jump.
//!
//! Cost: up to `DEPTH` + [`KEPT`] blocks in memory, and a thread for each block in flight. Rejected: one thread that
//! reads several blocks as a batch, since the network idles from the end of one batch to the start of the next.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::{Granularity, RangeRead, Storage, StorageError};

/// Bytes of a block: at 100 MB/s it takes half of a round trip of 20 ms.
const BLOCK: u64 = 1 << 20;
/// Most blocks ahead of the last requested one.
const DEPTH: u64 = 16;
/// Blocks behind it that stay, for readers that are not quite sequential.
const KEPT: u64 = 3;

/// A storage with read-ahead.
pub struct ReadAhead {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Arc<dyn Storage>,
    size: u64,
    window: Mutex<Window>,
    changed: Condvar,
}

#[derive(Default)]
struct Window {
    /// The foremost requested block.
    foremost: u64,
    /// Number of blocks prefetched ahead of it.
    depth: u64,
    /// The next block to fetch.
    next: u64,
    blocks: BTreeMap<u64, Block>,
    threads: u64,
    idle: u64,
    ends: bool,
}

enum Block {
    Coming,
    There(Arc<Vec<u8>>),
    Failed(StorageError),
}

impl ReadAhead {
    /// Reads ahead in the first `size` bytes of `inner`. Panics unless `inner` reads any range of bytes.
    pub fn new(inner: Arc<dyn Storage>, size: u64) -> ReadAhead {
        assert_eq!(inner.granularity(), Granularity::BYTE);
        let shared = Shared {
            inner,
            size,
            window: Mutex::default(),
            changed: Condvar::new(),
        };
        ReadAhead {
            shared: Arc::new(shared),
        }
    }

    /// The bytes of a block.
    fn block(&self, number: u64) -> Result<Arc<Vec<u8>>, StorageError> {
        let shared = &self.shared;
        let mut window = shared.window();
        loop {
            match window.blocks.get(&number) {
                Some(Block::There(bytes)) => {
                    let bytes = Arc::clone(bytes);
                    window.go_on_to(number);
                    self.wake(&mut window);
                    return Ok(bytes);
                }
                Some(Block::Coming) => window = shared.wait(window),
                Some(Block::Failed(_)) => match window.blocks.remove(&number) {
                    Some(Block::Failed(error)) => return Err(error),
                    _ => unreachable!("the lock was held"),
                },
                None => break,
            }
        }
        // No thread fetches it yet: this one does, and others fetch the blocks after it.
        if window.claim(number) {
            self.wake(&mut window);
        }
        drop(window);
        let fetched = shared.fetch(number).map(Arc::new);
        let settled = match &fetched {
            Ok(bytes) => Some(Block::There(Arc::clone(bytes))),
            Err(_) => None,
        };
        shared.settle(number, settled);
        fetched
    }

    /// Starts threads for the blocks that may be fetched.
    fn wake(&self, window: &mut Window) {
        let wanted = window.end(self.shared.blocks()).saturating_sub(window.next);
        for _ in window.idle..wanted.min(DEPTH - window.threads + window.idle) {
            let shared = Arc::clone(&self.shared);
            let begun = std::thread::Builder::new().name("pelton-ahead".into());
            // Without another thread it is only slower.
            if begun.spawn(move || shared.work()).is_ok() {
                window.threads += 1;
            }
        }
        self.shared.changed.notify_all();
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        // Threads end by themselves once their block is fetched.
        self.shared.window().ends = true;
        self.shared.changed.notify_all();
    }
}

impl Window {
    /// One past the last block that may be fetched.
    fn end(&self, blocks: u64) -> u64 {
        (self.foremost + 1 + self.depth).min(blocks)
    }

    /// Records a request for a block that is present.
    fn go_on_to(&mut self, number: u64) {
        if number > self.foremost {
            self.foremost = number;
            self.depth = (2 * self.depth).clamp(1, DEPTH);
            let keep = number.saturating_sub(KEPT);
            self.blocks = self.blocks.split_off(&keep);
        }
    }

    /// Claims a block to fetch; false if it is behind the window and the window stays.
    fn claim(&mut self, number: u64) -> bool {
        let behind = number < self.next && self.foremost - number.min(self.foremost) <= 2 * DEPTH;
        if behind {
            return false;
        }
        if number >= self.next && number - self.next <= DEPTH {
            self.go_on_to(number);
        } else {
            self.blocks.clear();
            self.foremost = number;
            self.depth = 0;
        }
        self.next = number + 1;
        self.blocks.insert(number, Block::Coming);
        true
    }
}

impl Shared {
    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, window: MutexGuard<'a, Window>) -> MutexGuard<'a, Window> {
        let waited = self.changed.wait(window);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn blocks(&self) -> u64 {
        self.size.div_ceil(BLOCK)
    }

    /// Fetches blocks until there are none left to fetch.
    fn work(&self) {
        let mut window = self.window();
        while !window.ends {
            let number = window.next;
            if number >= window.end(self.blocks()) {
                window.idle += 1;
                window = self.wait(window);
                window.idle -= 1;
                continue;
            }
            window.next += 1;
            window.blocks.insert(number, Block::Coming);
            drop(window);
            let block = match self.fetch(number) {
                Ok(bytes) => Block::There(Arc::new(bytes)),
                Err(error) => Block::Failed(error),
            };
            self.settle(number, Some(block));
            window = self.window();
        }
    }

    /// Stores the outcome of a fetched block, unless the window has moved away.
    fn settle(&self, number: u64, block: Option<Block>) {
        let mut window = self.window();
        if let Some(place) = window.blocks.get_mut(&number)
            && matches!(place, Block::Coming)
        {
            match block {
                Some(block) => *place = block,
                None => {
                    window.blocks.remove(&number);
                }
            }
        }
        self.changed.notify_all();
    }

    fn fetch(&self, number: u64) -> Result<Vec<u8>, StorageError> {
        let offset = number * BLOCK;
        let mut bytes = vec![0; (self.size - offset).min(BLOCK) as usize];
        let mut reads = [RangeRead {
            offset,
            buffer: &mut bytes,
            filled: 0,
        }];
        self.inner.read_batch(&mut reads)?;
        let filled = reads[0].filled;
        bytes.truncate(filled);
        Ok(bytes)
    }
}

impl Storage for ReadAhead {
    fn name(&self) -> String {
        self.shared.inner.name()
    }

    fn size(&self) -> Result<u64, StorageError> {
        self.shared.inner.size()
    }

    fn granularity(&self) -> Granularity {
        Granularity::BYTE
    }

    fn will_need(&self, offset: u64, length: u64) -> u64 {
        self.shared.inner.will_need(offset, length)
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        for read in reads {
            read.filled = 0;
            while read.filled < read.buffer.len() {
                let at = read.offset.saturating_add(read.filled as u64);
                if at >= self.shared.size {
                    break;
                }
                let block = self.block(at / BLOCK)?;
                let there = block.get((at % BLOCK) as usize..).unwrap_or_default();
                let rest = &mut read.buffer[read.filled..];
                let length = there.len().min(rest.len());
                if length == 0 {
                    break;
                }
                rest[..length].copy_from_slice(&there[..length]);
                read.filled += length;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAhead")
            .field("inner", &self.shared.inner)
            .field("size", &self.shared.size)
            .finish_non_exhaustive()
    }
}
