//! Where the units of one load lie: the moving placement of opportunistic order.
//!
//! A unit's first bytes may stay in memory all the time (`fixed_part.rs`). The rest of the units of a load,
//! sorted by place, is cut into one run a rank in proportion to their memory, to the byte, so that each rank
//! reads ascending places in long reads and no rank waits for another's longer part: a unit may lie on two
//! ranks. Every rank computes the same table from the plan. It takes 40 bytes a piece, 56 with checksums,
//! and units, of one or two pieces, are some thousand times larger.

use std::ops::Range;

use pelton_plan::Units;

use crate::cost::{cost, fitting};
use crate::fixed_part::FixedPart;
use crate::resident::{SUM_BYTES, Sums, records_in};
use crate::runs::{Place, cuts_by_weight};
use crate::space::Space;

/// Number of a load in the run: epochs one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LoadNumber {
    pub(crate) epoch: u64,
    pub(crate) load: u64,
}

impl LoadNumber {
    /// The one after it, where an epoch has `loads`.
    pub(crate) fn next(self, loads: u64) -> LoadNumber {
        let LoadNumber { epoch, load } = self;
        match load + 1 < loads {
            true => LoadNumber {
                epoch,
                load: load + 1,
            },
            false => LoadNumber {
                epoch: epoch + 1,
                load: 0,
            },
        }
    }
}

/// Bytes of a unit that lie together in the memory of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Its part of the space.
    pub(crate) range: Range<u64>,
    /// Who holds it.
    pub(crate) rank: u32,
    /// Whether it lies in the window of what stays, not in that of the load.
    pub(crate) fixed: bool,
    /// Where in that window.
    pub(crate) offset: u64,
}

impl Piece {
    pub(crate) fn length(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Where in its window byte `at` of the space is.
    pub(crate) fn offset_of(&self, at: u64) -> u64 {
        self.offset + (at - self.range.start)
    }
}

/// Where each unit of a load lies.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LoadTable {
    /// By place in the space.
    pieces: Vec<Piece>,
    /// Where records carry checksums: of each piece, its first record and where the checksum of that is.
    sums: Vec<(u64, u64)>,
    /// Bytes of the load's window that each rank needs.
    needed: Vec<u64>,
}

impl LoadTable {
    /// The table of a load, which reads some of the units, over ranks with memory in proportion to `weights`, beside what stays.
    pub(crate) fn new(
        space: &Space,
        (units, load): (&Units, &[u64]),
        weights: &[u64],
        fixed: &FixedPart,
        sum_bytes: u64,
    ) -> LoadTable {
        let mut drawn = Vec::new();
        for &unit in load {
            let ids = units.unit_records(unit);
            let range = unit_range(space, &ids);
            let rest = fixed.split(space, &ids, &range, &mut drawn);
            if rest < range.end {
                drawn.push(Piece {
                    range: rest..range.end,
                    rank: 0,
                    fixed: false,
                    offset: 0,
                });
            }
        }
        let (pieces, needed) = deal(space, drawn, weights, sum_bytes);
        let mut table = LoadTable {
            pieces,
            sums: Vec::new(),
            needed,
        };
        if sum_bytes > 0 {
            table.place_sums(space);
        }
        table
    }

    /// Checksums stand behind the data of a rank, those of what stays behind their piece.
    fn place_sums(&mut self, space: &Space) {
        for piece in &self.pieces {
            let records = records_in(space, &piece.range);
            let at = if piece.fixed {
                piece.offset + piece.length()
            } else {
                let needed = &mut self.needed[piece.rank as usize];
                let at = *needed;
                *needed += SUM_BYTES * (records.end - records.start);
                at
            };
            self.sums.push((records.start, at));
        }
    }

    /// The pieces that `rank` holds in the load's window, with their numbers.
    pub(crate) fn pieces_of(&self, rank: usize) -> impl Iterator<Item = (usize, &Piece)> {
        let own = move |piece: &Piece| !piece.fixed && piece.rank as usize == rank;
        let pieces = self.pieces.iter().enumerate();
        pieces.filter(move |(_, piece)| own(piece))
    }

    /// Bytes of its window that each rank needs.
    pub(crate) fn needed(&self) -> &[u64] {
        &self.needed
    }

    /// The piece that holds a byte of the space.
    #[inline]
    fn number_at(&self, at: u64) -> Option<usize> {
        let begun = self.pieces.partition_point(|piece| piece.range.start <= at);
        let number = begun.checked_sub(1)?;
        (at < self.pieces[number].range.end).then_some(number)
    }

    /// The piece that holds byte `at` of the space, if it is in this load.
    pub(crate) fn piece_at(&self, at: u64) -> Option<&Piece> {
        Some(&self.pieces[self.number_at(at)?])
    }

    /// Where byte `at` of the space is, if it is in this load.
    #[inline]
    pub(crate) fn place(&self, at: u64) -> Option<Place> {
        let piece = self.piece_at(at)?;
        Some(Place {
            held: Some((piece.rank, piece.offset_of(at))),
            until: piece.range.end,
            fixed: piece.fixed,
        })
    }

    /// The checksums of a piece.
    pub(crate) fn sums(&self, number: usize) -> Sums {
        let (first, at) = self.sums[number];
        let range = self.pieces[number].range.clone();
        Sums { range, first, at }
    }

    /// The checksums for byte `at`.
    pub(crate) fn sums_at(&self, at: u64) -> Sums {
        self.sums(self.number_at(at).expect("a byte of this load"))
    }
}

/// Gives what does not stay to the ranks, one run after the other; returns all pieces and the bytes of each
/// rank.
fn deal(
    space: &Space,
    drawn: Vec<Piece>,
    weights: &[u64],
    sum_bytes: u64,
) -> (Vec<Piece>, Vec<u64>) {
    let moving = drawn.iter().filter(|piece| !piece.fixed);
    let total = moving
        .map(|piece| cost(space, &piece.range, sum_bytes))
        .sum();
    let cuts = cuts_by_weight(total, weights);
    let mut rooms: Vec<u64> = cuts.windows(2).map(|cut| cut[1] - cut[0]).collect();
    // Records that are cut have a checksum more: the last rank with a share has room for what is left.
    if let Some(last) = rooms.iter_mut().rfind(|room| **room > 0) {
        *last = u64::MAX;
    }
    let mut pieces = Vec::with_capacity(drawn.len() + weights.len());
    let (mut rank, mut filled) = (0, vec![0; weights.len()]);
    for piece in drawn {
        if piece.fixed {
            pieces.push(piece);
            continue;
        }
        let mut rest = piece.range;
        while !rest.is_empty() {
            let end = fitting(space, &rest, rooms[rank], sum_bytes);
            if end == rest.start {
                rank += 1;
                continue;
            }
            let range = rest.start..end;
            rooms[rank] -= cost(space, &range, sum_bytes).min(rooms[rank]);
            pieces.push(Piece {
                range,
                rank: rank as u32,
                fixed: false,
                offset: filled[rank],
            });
            filled[rank] += end - rest.start;
            rest.start = end;
        }
    }
    (pieces, filled)
}

/// The part of the space that consecutive records fill.
pub(crate) fn unit_range(space: &Space, ids: &Range<u64>) -> Range<u64> {
    space.record(ids.start).start..space.record(ids.end - 1).end
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pelton_format::Dataset;
    use pelton_plan::{Catalog, Order, Plan, PlanSpec, Units};
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::two_files;
    use crate::loads::Loads;

    fn dataset() -> Dataset {
        two_files(400, 20, 11)
    }

    fn plan(dataset: &Dataset, loads: u64, unit_bytes: u64) -> Arc<Plan> {
        let order = Order::Opportunistic { loads, unit_bytes };
        let lengths = (0..dataset.records()).map(|id| dataset.locate(id).length);
        let units = Units::from_lengths(lengths, unit_bytes);
        let spec = PlanSpec::new(order, 8, 1);
        Arc::new(Plan::new(&spec, Catalog::of_units(units)).unwrap())
    }

    /// What a piece takes of its window: its bytes, and its checksums where they stand.
    fn taken(table: &LoadTable, number: usize, space: &Space) -> Vec<(u64, u64)> {
        let piece = &table.pieces[number];
        let mut taken = vec![(piece.offset, piece.offset + piece.length())];
        if !table.sums.is_empty() {
            let sums = table.sums(number);
            let records = records_in(space, &piece.range);
            assert_eq!(sums.first, records.start);
            let length = SUM_BYTES * (records.end - records.start);
            taken.push((sums.at, sums.at + length));
        }
        taken
    }

    proptest! {
        /// Every byte of a load has one place, no two share one, and none lies beyond its rank's memory.
        #[test]
        fn loads_and_what_stays_share_memory(
            memory in prop::collection::vec(0..6000_u64, 1..6),
            loads in 3..40_u64,
            checksums in any::<bool>(),
        ) {
            let dataset = dataset();
            let plan = plan(&dataset, loads, 100);
            let space = Arc::new(Space::new(&dataset).unwrap());
            let made = Loads::new(Arc::clone(&space), Arc::clone(&plan), &memory, checksums);
            // What stays, by rank, from the tables of all loads of an epoch.
            let mut stays: Vec<Vec<(u64, u64)>> = vec![Vec::new(); memory.len()];
            let mut covered = Vec::new();
            for load in 0..loads {
                let table = made.table(LoadNumber { epoch: 1, load });
                let mut moves: Vec<Vec<(u64, u64)>> = vec![Vec::new(); memory.len()];
                for (number, piece) in table.pieces.iter().enumerate() {
                    prop_assert!(!piece.range.is_empty());
                    covered.push((piece.range.start, piece.range.end));
                    let to = if piece.fixed { &mut stays } else { &mut moves };
                    to[piece.rank as usize].extend(taken(&table, number, &space));
                }
                for (rank, places) in moves.into_iter().enumerate() {
                    prop_assert!(apart(places) <= table.needed()[rank]);
                }
                // With something that stays, loads fit whatever is drawn.
                if !made.fixed.is_empty() {
                    made.check(LoadNumber { epoch: 1, load }, &table).unwrap();
                }
            }
            prop_assert_eq!(apart(covered), space.bytes());
            for (rank, places) in stays.into_iter().enumerate() {
                let fixed = made.fixed.of_rank(rank);
                prop_assert!(apart(places) <= fixed);
                prop_assert!(fixed + 2 * made.halves[rank] <= memory[rank]);
            }
        }
    }

    /// Asserts that ranges have nothing in common, and returns the end of the last.
    fn apart(mut ranges: Vec<(u64, u64)>) -> u64 {
        ranges.retain(|(start, end)| start < end);
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{pair:?}");
        }
        ranges.last().map_or(0, |(_, end)| *end)
    }

    #[test]
    fn ranks_have_shares_of_a_load_to_the_byte() {
        let dataset = dataset();
        let space = Space::new(&dataset).unwrap();
        let none = FixedPart::new(0, space.bytes(), &[1; 4], 0);
        for (sum_bytes, rounding) in [(0, 1), (SUM_BYTES, 8 * 4)] {
            let plan = plan(&dataset, 5, 1000);
            for load in 0..5 {
                let read = plan.epoch_order(3).unwrap().load_units(load).unwrap();
                let drawn = (plan.units().unwrap(), &read[..]);
                let table = LoadTable::new(&space, drawn, &[1; 4], &none, sum_bytes);
                let (least, most) = (table.needed().iter().min(), table.needed().iter().max());
                assert!(
                    most.unwrap() - least.unwrap() <= rounding,
                    "{:?}",
                    table.needed()
                );
                let weights = [0, 3, 1, 0];
                let table = LoadTable::new(&space, drawn, &weights, &none, sum_bytes);
                let needed = table.needed();
                assert_eq!((needed[0], needed[3]), (0, 0));
                assert!(
                    needed[1].abs_diff(3 * needed[2]) <= 4 * rounding,
                    "{needed:?}"
                );
            }
        }
    }
}
