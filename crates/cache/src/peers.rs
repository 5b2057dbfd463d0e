//! Reads through the ranks' memory.
//!
//! A batch of ranges becomes one call of [`Window::get_while`](pelton_comm::Window::get_while): each
//! range is looked up among what is resident, cut where it passes from one rank's memory to another's,
//! and copied straight into the buffer that its reader lent. What only the backend holds is read
//! meanwhile. Nothing is allocated for a range; a batch takes one list.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use pelton_comm::{Get, Window};
use pelton_storage::RangeRead;

use crate::CacheError;
use crate::CacheOptions;
use crate::backend::{BackendRead, Bounce, read_pieces};
use crate::checksums::Checks;
use crate::meters::{Counters, add};
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
    checksums: bool,
    /// For readers of what is not resident yet; `None` where what is resident never changes.
    turns: Option<Arc<Turns>>,
    interrupt: Arc<AtomicBool>,
    /// What can be read now. Held for reading during a batch of gets, so that no window is closed under
    /// one.
    slots: RwLock<Slots>,
    bounces: Mutex<Vec<Bounce>>,
}

/// Windows that are open for reading: one, or two halves and what stays.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    pub(crate) residents: [Option<Resident>; 2],
    /// What stays of the units while the halves' loads come and go; their tables say where in it.
    pub(crate) fixed: Option<Window>,
    pub(crate) finished: bool,
}

/// The windows: those of `residents`, and that of what stays.
const WINDOWS: usize = 3;
const FIXED: usize = 2;

/// What one pass over a batch of ranges found.
#[derive(Debug, Default)]
struct Found<'b> {
    /// By window.
    gets: [Vec<Get<'b>>; WINDOWS],
    checks: [Checks; WINDOWS],
    backend: Vec<BackendRead<'b>>,
    local_bytes: u64,
    remote_bytes: u64,
    early_bytes: u64,
    /// Some range waits for what is not resident.
    incomplete: bool,
}

impl Peers {
    pub(crate) fn new(
        rank: usize,
        space: Arc<Space>,
        options: &CacheOptions,
        turns: Option<Arc<Turns>>,
        slots: Slots,
    ) -> Peers {
        Peers {
            rank,
            space,
            counters: Counters::default(),
            checksums: options.checksums,
            turns,
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
        let Some(turns) = &self.turns else {
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

    /// Reads on from where `filled` says, and returns whether all is read. What is not resident is read from
    /// the backend where `from_backend`, else left.
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
            mut checks,
            mut backend,
            ..
        } = found;
        for (number, (gets, checks)) in gets.iter_mut().zip(&mut checks).enumerate() {
            let Some(window) = slots.window(number).filter(|_| !gets.is_empty()) else {
                continue;
            };
            self.get(window, gets, checks, || {
                self.read_backend(span, std::mem::take(&mut backend))
            })?;
        }
        self.read_backend(span, backend)?;
        add(&self.counters.local_bytes, found.local_bytes);
        add(&self.counters.remote_bytes, found.remote_bytes);
        add(&self.counters.early_bytes, found.early_bytes);
        Ok(!found.incomplete)
    }

    /// Adds what `read` still wants to `found`; without the backend up to the first byte that is not
    /// resident.
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
            let source = slots.source(span, at);
            if source.kind == Kind::Absent && !from_backend {
                found.incomplete = true;
                return;
            }
            let until = usize::try_from(source.until - at).unwrap_or(usize::MAX);
            let length = rest.len().min(until);
            let (buffer, later) = std::mem::take(&mut rest).split_at_mut(length);
            rest = later;
            read.filled += length;
            match source.kind {
                Kind::Held {
                    slot,
                    window,
                    rank,
                    offset,
                } => {
                    if self.checksums {
                        let start = span.base + (at - span.start);
                        let table = &slots.residents[slot].as_ref().expect("it holds this").table;
                        let range = start..start + length as u64;
                        let number = found.gets[window].len();
                        found.checks[window].add(&self.space, table, number, rank, range);
                    }
                    let own = rank == self.rank;
                    found.local_bytes += if own { length as u64 } else { 0 };
                    found.remote_bytes += if own { 0 } else { length as u64 };
                    found.gets[window].push(Get {
                        rank,
                        offset,
                        buffer,
                    });
                }
                kind => {
                    found.early_bytes += u64::from(kind == Kind::Absent) * length as u64;
                    found.backend.push(BackendRead { offset: at, buffer });
                }
            }
        }
    }

    fn get<'b>(
        &self,
        window: &Window,
        gets: &mut Vec<Get<'b>>,
        checks: &'b mut Checks,
        work: impl FnOnce() -> Result<(), CacheError>,
    ) -> Result<(), CacheError> {
        if !self.checksums {
            return window.get_while(gets, work)?;
        }
        add(&self.counters.unverified_ranges, checks.partial);
        let compare = checks.request(gets);
        window.get_while(gets, work)??;
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

/// Where a byte of a file comes from.
struct Source {
    kind: Kind,
    /// How far that goes in the file.
    until: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Held {
        /// Whose table says so.
        slot: usize,
        window: usize,
        rank: usize,
        offset: u64,
    },
    /// The backend alone, now and later.
    Backend,
    /// A load that is not in memory now.
    Absent,
}

impl Slots {
    fn window(&self, number: usize) -> Option<&Window> {
        match number {
            FIXED => self.fixed.as_ref(),
            half => self.residents[half].as_ref().map(|half| &half.window),
        }
    }

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
                window: if place.fixed { FIXED } else { slot },
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pelton_comm::{Comm, run_ranks};
    use pelton_format::{Dataset, OpenOptions};
    use pelton_plan::{Catalog, Order, Plan, PlanSpec, Units};
    use pelton_storage::RangeRead;

    use crate::resident::Table;
    use crate::{CacheError, CacheOptions, PeerCache};

    const RECORDS: u64 = 400;
    const LOADS: Order = Order::Opportunistic {
        loads: 9,
        unit_bytes: 64,
    };

    /// Lines of 8 to 10 bytes.
    fn text() -> String {
        (0..RECORDS).map(|i| format!("{} 1:{i}\n", i % 2)).collect()
    }

    fn read(dataset: &Dataset, id: u64) -> Result<Vec<u8>, pelton_storage::StorageError> {
        let place = dataset.locate(id);
        let mut buffer = vec![0; place.length as usize];
        let mut reads = [RangeRead {
            offset: place.offset,
            buffer: &mut buffer,
            filled: 0,
        }];
        dataset.files()[0].storage().read_batch(&mut reads)?;
        Ok(buffer)
    }

    /// Changes one bit of what every rank holds in its first window.
    fn damage(comm: &Comm, cache: &PeerCache) -> Result<(), CacheError> {
        let resident = cache.peers().slots_mut().residents[0].take().unwrap();
        let begin = match &resident.table {
            Table::Runs { runs, .. } => {
                let place = runs.place(runs.held_by(comm.rank()).start);
                place.held.unwrap().1
            }
            Table::Load(_) => 0,
        };
        let at = begin as usize + 30;
        let mut window = resident.window.refill(comm)?;
        window.local()[at] ^= 4;
        let window = window.share(comm)?;
        let table = resident.table;
        cache.peers().slots_mut().residents[0] = Some(super::Resident { window, table });
        Ok(())
    }

    /// Changes one bit of every byte that stays.
    fn damage_fixed(comm: &Comm, cache: &PeerCache) -> Result<(), CacheError> {
        let fixed = cache.peers().slots_mut().fixed.take().unwrap();
        let mut fixed = fixed.refill(comm)?;
        for byte in fixed.local() {
            *byte ^= 4;
        }
        cache.peers().slots_mut().fixed = Some(fixed.share(comm)?);
        Ok(())
    }

    /// Reads all records of the first load, or all, of damaged memory; returns the errors.
    fn errors(
        order: Order,
        share: u64,
        damage: fn(&Comm, &PeerCache) -> Result<(), CacheError>,
    ) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, text()).unwrap();
        let dataset = Dataset::open(&[path], &OpenOptions::default()).unwrap();
        let mut over = Catalog::of(RECORDS);
        if let Order::Opportunistic { unit_bytes, .. } = order {
            let lengths = (0..RECORDS).map(|id| dataset.locate(id).length);
            over = Catalog::of_units(Units::from_lengths(lengths, unit_bytes));
        }
        let plan = Arc::new(Plan::new(&PlanSpec::new(order, 8, 1), over).unwrap());
        let errors = run_ranks(3, |comm| {
            let options = CacheOptions {
                memory_bytes: (dataset.bytes() + 8 * RECORDS) / share,
                checksums: true,
                end_epoch: Some(1),
                ..CacheOptions::default()
            };
            let cache = PeerCache::new(&comm, &dataset, &plan, &options)?;
            damage(&comm, &cache)?;
            let order = plan.epoch_order(0).unwrap();
            let end = order.load_positions(0).map_or(RECORDS, |load| load.end);
            let mut ids = vec![0; end as usize];
            order.fill(0, &mut ids);
            let errors = ids.iter().filter_map(|&id| {
                let result = read(&cache.dataset(), id);
                result.err().map(|error| (id, error.to_string()))
            });
            let errors: Vec<_> = errors.collect();
            cache.finish(&comm)?;
            Ok::<_, CacheError>(errors)
        });
        let errors = errors.unwrap();
        assert!(errors.iter().all(|of_rank| *of_rank == errors[0]));
        let of_records = errors[0].iter();
        of_records
            .map(|(id, error)| {
                assert!(error.contains(&format!("record {id} ")), "{error}");
                assert!(
                    error.contains("checksum") && error.contains("data"),
                    "{error}"
                );
                error.clone()
            })
            .collect()
    }

    #[test]
    fn damaged_memory_is_noticed_by_whoever_reads_it() {
        for (order, share) in [(Order::Full, 1), (Order::Full, 6), (LOADS, 12)] {
            let errors = errors(order, share, damage);
            let names = |rank| {
                errors
                    .iter()
                    .any(|error| error.contains(&format!("rank {rank} ")))
            };
            assert_eq!(errors.len(), 3, "{errors:?}");
            assert!((0..3).all(names), "{errors:?}");
        }
    }

    #[test]
    fn damage_of_what_stays_is_noticed() {
        let loads = Order::Opportunistic {
            loads: 40,
            unit_bytes: 64,
        };
        // Two or three units of some seven records, of each the first or more.
        let errors = errors(loads, 6, damage_fixed);
        assert!((2..12).contains(&errors.len()), "{errors:?}");
    }
}
