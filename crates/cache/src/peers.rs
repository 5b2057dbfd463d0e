//! Reads through the ranks' memory.
//!
//! A batch of ranges becomes one call of [`Window::get_while`](pelton_comm::Window::get_while): each range is looked
//! up in the resident data, cut at the borders between ranks, and copied straight into the reader's buffer. Data that
//! is only in the backend is read at the same time. Nothing is allocated for a range; a batch takes one list.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use pelton_comm::Get;
use pelton_storage::RangeRead;

use crate::CacheError;
use crate::backend::{BackendRead, Bounce, read_pieces};
use crate::loads::Loads;
use crate::meters::{Counters, add};
use crate::options::CacheOptions;
use crate::resident::Resident;
use crate::runs::Place;
use crate::space::{FileSpan, Space};
use crate::turns::{Next, Turns};

/// The ranks' memory as this rank's readers see it.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) rank: usize,
    pub(crate) space: Arc<Space>,
    pub(crate) counters: Counters,
    /// For readers of non-resident data; `None` if the resident data never changes.
    of_loads: Option<OfLoads>,
    interrupt: Arc<AtomicBool>,
    /// The data that can be read now. Locked for reading during a batch of gets, so that no window is closed under
    /// one.
    slots: RwLock<Slots>,
    bounces: Mutex<Vec<Bounce>>,
}

/// The readers' view of loads that come and go.
#[derive(Debug)]
pub(crate) struct OfLoads {
    pub(crate) turns: Arc<Turns>,
    /// Set if records of passed loads may be read.
    pub(crate) stragglers: Option<Arc<Loads>>,
}

/// Windows that are open for reading: one, or two halves.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    pub(crate) residents: [Option<Resident>; 2],
    pub(crate) finished: bool,
}

/// The result of one pass over a batch of ranges.
#[derive(Debug, Default)]
struct Found<'b> {
    /// By window.
    gets: [Vec<Get<'b>>; 2],
    backend: Vec<BackendRead<'b>>,
    local_bytes: u64,
    remote_bytes: u64,
    early_bytes: u64,
    passed_bytes: u64,
    /// Some range waits for non-resident data.
    incomplete: bool,
}

impl Peers {
    pub(crate) fn new(
        rank: usize,
        space: Arc<Space>,
        options: &CacheOptions,
        of_loads: Option<OfLoads>,
        slots: Slots,
    ) -> Peers {
        Peers {
            rank,
            space,
            counters: Counters::default(),
            of_loads,
            interrupt: Arc::clone(&options.interrupt),
            slots: RwLock::new(slots),
            bounces: Mutex::default(),
        }
    }

    pub(crate) fn slots(&self) -> RwLockReadGuard<'_, Slots> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn slots_mut(&self) -> RwLockWriteGuard<'_, Slots> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads ranges of a file; waits for those that are not resident yet.
    pub(crate) fn read(
        &self,
        file: usize,
        reads: &mut [RangeRead<'_>],
    ) -> Result<(), Arc<CacheError>> {
        let span = &self.space.files()[file];
        for read in &mut *reads {
            read.filled = 0;
        }
        let Some(OfLoads { turns, .. }) = &self.of_loads else {
            self.read_resident(span, reads, true)?;
            return Ok(());
        };
        let mut seen = turns.opened();
        while !self.read_resident(span, reads, false)? {
            let begun = Instant::now();
            let next = turns.wait_for_load(seen, &self.interrupt);
            self.counters.waiting(begun);
            if next? == Next::ReadBackend {
                self.read_resident(span, reads, true)?;
                break;
            }
            seen = turns.opened();
        }
        Ok(())
    }

    /// Continues from `filled`, and returns whether everything is read. Non-resident data is read from the backend if
    /// `from_backend`, otherwise skipped.
    fn read_resident(
        &self,
        span: &FileSpan,
        reads: &mut [RangeRead<'_>],
        from_backend: bool,
    ) -> Result<bool, CacheError> {
        let slots = self.slots();
        if slots.finished {
            return Err(CacheError::Finished);
        }
        let mut found = Found::default();
        found.gets[0].reserve(reads.len());
        for read in reads {
            self.find(span, &slots, read, from_backend, &mut found);
        }
        let Found {
            mut gets,
            mut backend,
            ..
        } = found;
        for (resident, gets) in slots.residents.iter().zip(&mut gets) {
            let Some(resident) = resident.as_ref().filter(|_| !gets.is_empty()) else {
                continue;
            };
            resident.window.get_while(gets, || {
                self.read_backend(span, std::mem::take(&mut backend))
            })??;
        }
        self.read_backend(span, backend)?;
        add(&self.counters.local_bytes, found.local_bytes);
        add(&self.counters.remote_bytes, found.remote_bytes);
        add(&self.counters.early_bytes, found.early_bytes);
        add(&self.counters.passed_bytes, found.passed_bytes);
        Ok(!found.incomplete)
    }

    /// Adds the missing part of `read` to `found`; without the backend up to the first non-resident byte.
    fn find<'b>(
        &self,
        span: &FileSpan,
        slots: &Slots,
        read: &'b mut RangeRead<'_>,
        from_backend: bool,
        found: &mut Found<'b>,
    ) {
        let left = usize::try_from(span.size.saturating_sub(read.offset)).unwrap_or(usize::MAX);
        let wanted = read.buffer.len().min(left);
        let mut rest = &mut read.buffer[read.filled..wanted];
        while !rest.is_empty() {
            let at = read.offset + read.filled as u64;
            let mut source = slots.source(span, at);
            if source.kind == Kind::Absent && !from_backend {
                let Some(until) = self.passed_until(span, at) else {
                    found.incomplete = true;
                    return;
                };
                source = Source {
                    kind: Kind::Passed,
                    until,
                };
            }
            let until = usize::try_from(source.until - at).unwrap_or(usize::MAX);
            let length = rest.len().min(until);
            let (buffer, later) = std::mem::take(&mut rest).split_at_mut(length);
            rest = later;
            read.filled += length;
            match source.kind {
                Kind::Held { slot, rank, offset } => {
                    let own = rank == self.rank;
                    found.local_bytes += if own { length as u64 } else { 0 };
                    found.remote_bytes += if own { 0 } else { length as u64 };
                    found.gets[slot].push(Get {
                        rank,
                        offset,
                        buffer,
                    });
                }
                kind => {
                    found.early_bytes += u64::from(kind == Kind::Absent) * length as u64;
                    found.passed_bytes += u64::from(kind == Kind::Passed) * length as u64;
                    found.backend.push(BackendRead { offset: at, buffer });
                }
            }
        }
    }

    /// The end of the record at `at` of a file, if its load has passed and it is still needed.
    fn passed_until(&self, span: &FileSpan, at: u64) -> Option<u64> {
        let of_loads = self.of_loads.as_ref()?;
        let loads = of_loads.stragglers.as_ref()?;
        let place = span.base + (at - span.start);
        let id = self.space.record_at(place);
        let passed = loads.has_passed(of_loads.turns.wanted(), id);
        passed.then(|| self.space.record(id).end - span.base + span.start)
    }

    fn read_backend(&self, span: &FileSpan, reads: Vec<BackendRead<'_>>) -> Result<(), CacheError> {
        if reads.is_empty() {
            return Ok(());
        }
        let bounces = || self.bounces.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bounce = bounces().pop().unwrap_or_default();
        let asked = read_pieces(&*span.backend, reads, &mut bounce)?;
        bounces().push(bounce);
        add(&self.counters.backend_bytes, asked);
        Ok(())
    }

    /// Adds loading since `begun`.
    pub(crate) fn loaded(&self, begun: Instant, asked: u64) {
        self.counters.loading(begun);
        add(&self.counters.backend_bytes, asked);
    }
}

/// The source of a byte of a file.
struct Source {
    kind: Kind,
    /// The end of that source in the file.
    until: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Held {
        /// Which window.
        slot: usize,
        rank: usize,
        offset: u64,
    },
    /// The backend only, now and later.
    Backend,
    /// A load that is not in memory now.
    Absent,
    /// A load that was in memory, and does not return in this epoch.
    Passed,
}

impl Slots {
    #[inline]
    fn source(&self, span: &FileSpan, at: u64) -> Source {
        let outside = |until| Source {
            kind: Kind::Backend,
            until,
        };
        if at < span.start {
            return outside(span.start);
        }
        if at >= span.end {
            return outside(u64::MAX);
        }
        let Some((slot, place)) = self.place(span.base + (at - span.start)) else {
            return Source {
                kind: Kind::Absent,
                until: span.end,
            };
        };
        let kind = match place.held {
            Some((rank, offset)) => Kind::Held {
                slot,
                rank: rank as usize,
                offset,
            },
            None => Kind::Backend,
        };
        // Never beyond this file's part of the space.
        let until = (place.until - span.base + span.start).min(span.end);
        Source { kind, until }
    }

    #[inline]
    fn place(&self, at: u64) -> Option<(usize, Place)> {
        let in_slot = |slot: usize| {
            let resident = self.residents[slot].as_ref()?;
            Some((slot, resident.table.place(at)?))
        };
        in_slot(0).or_else(|| in_slot(1))
    }
}
