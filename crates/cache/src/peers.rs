//! Reads through the ranks' memory.
//!
//! A batch of ranges becomes one call of [`Window::get_while`](pelton_comm::Window::get_while): each
//! range is looked up among what is resident, cut where it passes from one rank's memory to another's,
//! and copied straight into the buffer that its reader lent. What only the backend holds is read
//! meanwhile. Nothing is allocated for a range; a batch takes one list.

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use pelton_comm::Get;
use pelton_storage::RangeRead;

use crate::CacheError;
use crate::backend::{BackendRead, Bounce, read_pieces};
use crate::checksums::Checks;
use crate::meters::{Counters, add};
use crate::resident::Resident;
use crate::space::{FileSpan, Space};

/// The ranks' memory as this rank's readers see it.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) rank: usize,
    pub(crate) space: Arc<Space>,
    pub(crate) counters: Counters,
    checksums: bool,
    /// What can be read now. Held for reading during a batch of gets, so that no window is closed under
    /// one.
    slots: RwLock<Slots>,
    bounces: Mutex<Vec<Bounce>>,
}

/// Windows that are open for reading: one, or two halves.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    pub(crate) residents: [Option<Resident>; 2],
    pub(crate) finished: bool,
}

/// What one pass over a batch of ranges found.
#[derive(Debug, Default)]
struct Found<'b> {
    /// By slot.
    gets: [Vec<Get<'b>>; 2],
    checks: [Checks; 2],
    backend: Vec<BackendRead<'b>>,
    local_bytes: u64,
    remote_bytes: u64,
    /// Some range waits for what is not resident.
    incomplete: bool,
}

impl Peers {
    pub(crate) fn new(rank: usize, space: Arc<Space>, checksums: bool, slots: Slots) -> Peers {
        Peers {
            rank,
            space,
            counters: Counters::default(),
            checksums,
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

    /// Reads ranges of a file.
    pub(crate) fn read(
        &self,
        file: usize,
        reads: &mut [RangeRead<'_>],
    ) -> Result<(), Arc<CacheError>> {
        let span = &self.space.files()[file];
        for read in &mut *reads {
            read.filled = 0;
        }
        self.read_resident(span, reads)?;
        Ok(())
    }

    /// Reads on where `filled` says, as far as memory and the backend hold what is wanted, and returns
    /// whether all is read.
    fn read_resident(
        &self,
        span: &FileSpan,
        reads: &mut [RangeRead<'_>],
    ) -> Result<bool, CacheError> {
        let slots = self.slots();
        if slots.finished {
            return Err(CacheError::Finished);
        }
        let mut found = Found::default();
        found.gets[0].reserve(reads.len());
        for read in reads {
            self.find(span, &slots, read, &mut found);
        }
        let Found {
            mut gets,
            mut checks,
            mut backend,
            ..
        } = found;
        for ((resident, gets), checks) in slots.residents.iter().zip(&mut gets).zip(&mut checks) {
            let Some(resident) = resident.as_ref().filter(|_| !gets.is_empty()) else {
                continue;
            };
            self.get(resident, gets, checks, || {
                self.read_backend(span, std::mem::take(&mut backend))
            })?;
        }
        self.read_backend(span, backend)?;
        add(&self.counters.local_bytes, found.local_bytes);
        add(&self.counters.remote_bytes, found.remote_bytes);
        Ok(!found.incomplete)
    }

    /// Adds what `read` still wants to `found`, up to the first byte that is not resident.
    fn find<'b>(
        &self,
        span: &FileSpan,
        slots: &Slots,
        read: &'b mut RangeRead<'_>,
        found: &mut Found<'b>,
    ) {
        let left = usize::try_from(span.size.saturating_sub(read.offset)).unwrap_or(usize::MAX);
        let wanted = read.buffer.len().min(left);
        let mut rest = &mut read.buffer[read.filled..wanted];
        while !rest.is_empty() {
            let at = read.offset + read.filled as u64;
            let (slot, held, until) = if at < span.start {
                (0, None, span.start)
            } else if at >= span.end {
                (0, None, u64::MAX)
            } else {
                let before = at - span.start;
                let Some((slot, place)) = slots.place(span.base + before) else {
                    found.incomplete = true;
                    return;
                };
                // Never beyond this file's part of the space.
                let until = place.until.min(span.base + (span.end - span.start)) - span.base;
                (slot, place.held, span.start + until)
            };
            let length = rest
                .len()
                .min(usize::try_from(until - at).unwrap_or(usize::MAX));
            let (buffer, later) = std::mem::take(&mut rest).split_at_mut(length);
            rest = later;
            read.filled += length;
            let Some((rank, offset)) = held else {
                found.backend.push(BackendRead { offset: at, buffer });
                continue;
            };
            let rank = rank as usize;
            if rank == self.rank {
                found.local_bytes += length as u64;
            } else {
                found.remote_bytes += length as u64;
            }
            if self.checksums {
                let start = span.base + (at - span.start);
                let range = start..start + length as u64;
                let table = &slots.residents[slot].as_ref().expect("it holds this").table;
                found.checks[slot].add(&self.space, table, found.gets[slot].len(), rank, range);
            }
            found.gets[slot].push(Get {
                rank,
                offset,
                buffer,
            });
        }
    }

    fn get<'b>(
        &self,
        resident: &Resident,
        gets: &mut Vec<Get<'b>>,
        checks: &'b mut Checks,
        work: impl FnOnce() -> Result<(), CacheError>,
    ) -> Result<(), CacheError> {
        if !self.checksums {
            return resident.window.get_while(gets, work)?;
        }
        add(&self.counters.unverified_ranges, checks.partial);
        let compare = checks.request(gets);
        resident.window.get_while(gets, work)??;
        let compared = compare.run(&self.space, gets)?;
        add(&self.counters.verified_records, compared);
        Ok(())
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

    /// Adds loading done since `begun`.
    pub(crate) fn loaded(&self, begun: Instant, asked: u64) {
        self.counters.loading(begun);
        add(&self.counters.backend_bytes, asked);
    }
}

impl Slots {
    #[inline]
    fn place(&self, at: u64) -> Option<(usize, crate::runs::Place)> {
        let in_slot = |slot: usize| {
            let resident = self.residents[slot].as_ref()?;
            Some((slot, resident.table.place(at)?))
        };
        in_slot(0).or_else(|| in_slot(1))
    }
}
