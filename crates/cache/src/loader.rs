//! The loader: a thread of each rank that refills one half of its memory for loads while the other is read.
//!
//! Loads alternate between two windows. Load n + 2 takes the window of load n as soon as every rank's consumer has
//! received load n. All loaders then close that window together, each reads its part of the new load's units, and
//! they open it together: three collective operations a load, on a communicator of their own.
//!
//! Parts of the new load that are already in memory are not read again: those that this rank holds of both loads move
//! to their new offset, and units of the load in the other window are fetched from there. Within an epoch loads have
//! no unit in common; across its border two of L loads share 1/L of their units on average.
//!
//! A loader that fails notifies the others before the window is opened, so that all fail together. If a rank fails
//! elsewhere, waits end with its error.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use pelton_comm::{Comm, CommError, FillWindow, Get, Reduction};

use crate::CacheError;
use crate::agree::agree;
use crate::load::{Part, load};
use crate::load_table::{LoadNumber, LoadTable, Piece};
use crate::loads::Loads;
use crate::meters::add;
use crate::peers::Peers;
use crate::resident::{Resident, Table};
use crate::turns::Turns;

/// One rank's loader.
pub(crate) struct Loader {
    pub(crate) comm: Comm,
    pub(crate) peers: Arc<Peers>,
    pub(crate) loads: Arc<Loads>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) interrupt: Arc<AtomicBool>,
    /// The epoch before which loading ends.
    pub(crate) end_epoch: u64,
    /// Windows without a load yet, by half.
    pub(crate) spare: [Option<FillWindow>; 2],
    /// The next load.
    pub(crate) next: LoadNumber,
    /// Loads made so far.
    pub(crate) made: usize,
    /// The current or last load of each half.
    pub(crate) held: [Option<(LoadNumber, Arc<LoadTable>)>; 2],
}

/// The thread of a loader; it returns the windows without a load.
pub(crate) type LoaderThread = JoinHandle<Option<[Option<FillWindow>; 2]>>;

impl Loader {
    /// Makes loads in its own thread until it is stopped.
    pub(crate) fn start(mut self) -> Result<LoaderThread, CacheError> {
        let turns = Arc::clone(&self.turns);
        let name = format!("loader {}", self.comm.rank());
        let thread = thread::Builder::new().name(name).spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| self.run()));
            let result = result.unwrap_or(Err(CacheError::LoaderPanicked));
            match result {
                Ok(()) => {
                    self.turns.end(None);
                    Some(self.spare)
                }
                Err(error) => {
                    self.turns.end(Some(Arc::new(error)));
                    None
                }
            }
        });
        thread.map_err(|source| {
            turns.end(None);
            CacheError::NoThread { source }
        })
    }

    fn run(&mut self) -> Result<(), CacheError> {
        while self.next.epoch < self.end_epoch {
            let go_on = match &self.held[self.made % 2] {
                Some((old, _)) => {
                    let position = self.loads.position_after(*old);
                    self.turns.wait_for_consumer(position, &self.comm)?
                }
                None => true,
            };
            let mut stop = [u64::from(!go_on)];
            self.comm.all_reduce(&mut stop, Reduction::Max)?;
            if stop[0] > 0 {
                break;
            }
            self.make()?;
        }
        Ok(())
    }

    /// Makes the next load and opens it for reading. All ranks take part.
    pub(crate) fn make(&mut self) -> Result<(), CacheError> {
        let begun = Instant::now();
        let half = self.made % 2;
        let number = self.next;
        let mut window = self.close(half)?;
        let table = self.loads.table(number);
        let filled = self.fill(number, &table, half, &mut window);
        let filled = agree(&self.comm, filled);
        let asked = match filled {
            Ok(asked) => asked,
            Err(error) => {
                self.spare[half] = Some(window);
                return Err(error);
            }
        };
        let window = window.share(&self.comm)?;
        self.held[half] = Some((number, Arc::clone(&table)));
        let table = Table::Load(table);
        self.peers.slots_mut().residents[half] = Some(Resident { window, table });
        self.next = number.next(self.loads.count());
        self.made += 1;
        self.peers.loaded(begun, asked);
        self.turns.open();
        Ok(())
    }

    /// Ends reads of a half's window.
    fn close(&mut self, half: usize) -> Result<FillWindow, CommError> {
        if let Some(window) = self.spare[half].take() {
            return Ok(window);
        }
        let resident = self.peers.slots_mut().residents[half].take();
        let resident = resident.expect("a window that is not spare holds a load");
        resident.window.refill(&self.comm)
    }

    /// Brings this rank's part of a load into `window`, and returns the bytes read from the backend.
    fn fill(
        &self,
        number: LoadNumber,
        table: &LoadTable,
        half: usize,
        window: &mut FillWindow,
    ) -> Result<u64, CacheError> {
        self.loads.check(number, table)?;
        let space = &*self.loads.space;
        space.dataset().check_unchanged()?;
        let rank = self.comm.rank();
        let memory = window.local();
        let old = self.held[half].as_ref().map(|(_, old)| &**old);
        let (kept, rest) = divide(rank, table, old);
        move_pieces(&kept, memory);
        let (fetched, parts) = self.fetch(rest, half, memory)?;
        let asked = load(space, &parts, memory, &self.interrupt)?;
        let moved: u64 = kept.iter().map(|piece| piece.length as u64).sum();
        add(&self.peers.counters.kept_bytes, moved + fetched);
        Ok(asked)
    }

    /// Copies those of `wanted` that the other half holds, on any rank, and returns their bytes and the parts that
    /// remain to be read.
    fn fetch(
        &self,
        wanted: Vec<Part>,
        half: usize,
        memory: &mut [u8],
    ) -> Result<(u64, Vec<Part>), CacheError> {
        let slots = self.peers.slots();
        let (Some((_, table)), Some(other)) =
            (&self.held[1 - half], slots.residents[1 - half].as_ref())
        else {
            return Ok((0, wanted));
        };
        let (mut gets, mut parts, mut fetched) = (Vec::new(), Vec::new(), 0);
        let (mut rest, mut passed) = (memory, 0);
        for (part, piece) in wanted.into_iter().flat_map(|part| cut(part, table)) {
            let Some(piece) = piece else {
                parts.push(part);
                continue;
            };
            let length = (part.range.end - part.range.start) as usize;
            let (_, behind) = rest.split_at_mut(part.to - passed);
            let (buffer, behind) = behind.split_at_mut(length);
            (rest, passed) = (behind, part.to + length);
            fetched += length as u64;
            gets.push(Get {
                rank: piece.rank as usize,
                offset: piece.offset_of(part.range.start),
                buffer,
            });
        }
        other.window.get(&mut gets)?;
        Ok((fetched, parts))
    }
}

/// Parts that stay in a window and move to another offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    from: usize,
    to: usize,
    length: usize,
}

/// A rank's part of a new load: what the old load had on the same rank, and the rest.
fn divide(rank: usize, table: &LoadTable, old: Option<&LoadTable>) -> (Vec<Kept>, Vec<Part>) {
    let (mut kept, mut rest) = (Vec::new(), Vec::new());
    for piece in table.pieces_of(rank) {
        let part = Part {
            range: piece.range.clone(),
            to: piece.offset as usize,
        };
        let Some(old) = old else {
            rest.push(part);
            continue;
        };
        for (part, piece) in cut(part, old) {
            match piece.filter(|piece| piece.rank as usize == rank) {
                Some(piece) => kept.push(Kept {
                    from: piece.offset_of(part.range.start) as usize,
                    to: part.to,
                    length: (part.range.end - part.range.start) as usize,
                }),
                None => rest.push(part),
            }
        }
    }
    (kept, rest)
}

/// A part, cut at the ends of the pieces of another load that contain it. A load contains a unit to its end or not at
/// all.
fn cut(part: Part, other: &LoadTable) -> impl Iterator<Item = (Part, Option<&Piece>)> {
    let Part { mut range, mut to } = part;
    std::iter::from_fn(move || {
        if range.is_empty() {
            return None;
        }
        let piece = other.piece_at(range.start);
        let end = piece.map_or(range.end, |piece| piece.range.end.min(range.end));
        let part = Part {
            range: range.start..end,
            to,
        };
        to += (end - range.start) as usize;
        range.start = end;
        Some((part, piece))
    })
}

/// Moves pieces within `memory`; they have the same order before and after, without overlap.
///
/// First those that move down, lowest first, then those that move up, highest first: a move then overwrites only
/// bytes that have moved already or are in no piece.
fn move_pieces(pieces: &[Kept], memory: &mut [u8]) {
    let down = pieces.iter().filter(|piece| piece.to < piece.from);
    let up = pieces.iter().rev().filter(|piece| piece.to > piece.from);
    for Kept { from, to, length } in down.chain(up).copied() {
        memory.copy_within(from..from + length, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn moved_pieces_keep_their_bytes(
            units in prop::collection::vec((0..9_usize, 0..9_usize, 0..9_usize), 0..30)
        ) {
            let (mut from, mut to) = (0, 0);
            let units: Vec<Kept> = units
                .into_iter()
                .map(|(before, behind, length)| {
                    let unit = Kept { from: from + before, to: to + behind, length };
                    (from, to) = (unit.from + length, unit.to + length);
                    unit
                })
                .collect();
            let before: Vec<u8> = (0..from.max(to)).map(|i| i as u8).collect();
            let mut after = before.clone();
            move_pieces(&units, &mut after);
            for Kept { from, to, length } in units {
                prop_assert_eq!(&after[to..to + length], &before[from..from + length]);
            }
        }
    }
}
