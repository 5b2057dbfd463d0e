//! The positions of the units of one load: the changing placement of opportunistic order.
//!
//! The units of a load, sorted by offset, are cut into one run a rank in proportion to the ranks' memory, to the
//! byte, so that each rank reads ascending offsets in long reads and no rank waits for another's longer part: a unit
//! may be on two ranks. Every rank computes the same table from the plan. It takes 40 bytes a piece; a unit has one
//! or two pieces and is some thousand times larger.

use std::ops::Range;

use pelton_plan::Units;

use crate::runs::{Place, cuts_by_weight};
use crate::space::Space;

/// Index of the load in the run: epochs one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LoadNumber {
    pub(crate) epoch: u64,
    pub(crate) load: u64,
}

impl LoadNumber {
    /// The next one, in epochs of `loads` loads.
    pub(crate) fn next(self, loads: u64) -> LoadNumber {
        let LoadNumber { epoch, load } = self;
        if load + 1 < loads {
            LoadNumber {
                epoch,
                load: load + 1,
            }
        } else {
            LoadNumber {
                epoch: epoch + 1,
                load: 0,
            }
        }
    }
}

/// Contiguous bytes of a unit in the memory of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Its part of the space.
    pub(crate) range: Range<u64>,
    /// The rank that holds it.
    pub(crate) rank: u32,
    /// Its offset in that window.
    pub(crate) offset: u64,
}

impl Piece {
    /// The position in its window of byte `at` of the space.
    pub(crate) fn offset_of(&self, at: u64) -> u64 {
        self.offset + (at - self.range.start)
    }
}

/// The position of each unit of a load.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LoadTable {
    /// Sorted by offset in the space.
    pieces: Vec<Piece>,
    /// Bytes of the load's window that each rank needs.
    needed: Vec<u64>,
}

impl LoadTable {
    /// The table of a load, which reads some of the units, over ranks with memory in proportion to `weights`.
    pub(crate) fn new(
        space: &Space,
        (units, load): (&Units, &[u64]),
        weights: &[u64],
    ) -> LoadTable {
        let drawn = load
            .iter()
            .map(|&unit| unit_range(space, &units.unit_records(unit)));
        let (pieces, needed) = deal(drawn.collect(), weights);
        LoadTable { pieces, needed }
    }

    /// The pieces that `rank` holds.
    pub(crate) fn pieces_of(&self, rank: usize) -> impl Iterator<Item = &Piece> {
        let own = move |piece: &&Piece| piece.rank as usize == rank;
        self.pieces.iter().filter(own)
    }

    /// Bytes of its window that each rank needs.
    pub(crate) fn needed(&self) -> &[u64] {
        &self.needed
    }

    /// The piece that holds byte `at` of the space, if it is in this load.
    #[inline]
    pub(crate) fn piece_at(&self, at: u64) -> Option<&Piece> {
        let begun = self.pieces.partition_point(|piece| piece.range.start <= at);
        let piece = &self.pieces[begun.checked_sub(1)?];
        (at < piece.range.end).then_some(piece)
    }

    /// The position of byte `at` of the space, if it is in this load.
    #[inline]
    pub(crate) fn place(&self, at: u64) -> Option<Place> {
        let piece = self.piece_at(at)?;
        Some(Place {
            held: Some((piece.rank, piece.offset_of(at))),
            until: piece.range.end,
        })
    }
}

/// Assigns the drawn units to the ranks, one run after the other; returns all pieces and the bytes of each rank.
fn deal(drawn: Vec<Range<u64>>, weights: &[u64]) -> (Vec<Piece>, Vec<u64>) {
    let total = drawn.iter().map(|range| range.end - range.start).sum();
    let cuts = cuts_by_weight(total, weights);
    let rooms: Vec<u64> = cuts.windows(2).map(|cut| cut[1] - cut[0]).collect();
    let mut pieces = Vec::with_capacity(drawn.len() + weights.len());
    let (mut rank, mut filled) = (0, vec![0; weights.len()]);
    for mut rest in drawn {
        while !rest.is_empty() {
            let end = rest.end.min(rest.start + (rooms[rank] - filled[rank]));
            if end == rest.start {
                rank += 1;
                continue;
            }
            pieces.push(Piece {
                range: rest.start..end,
                rank: rank as u32,
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

    proptest! {
        /// Every byte of a load has one position, no two share one, and all are within the memory that their rank
        /// needs.
        #[test]
        fn every_byte_of_a_load_has_a_place(
            memory in prop::collection::vec(0..6000_u64, 1..6),
            loads in 3..40_u64,
        ) {
            let dataset = dataset();
            let plan = plan(&dataset, loads, 100);
            let space = Arc::new(Space::new(&dataset).unwrap());
            let made = Loads::new(Arc::clone(&space), Arc::clone(&plan), &memory);
            let mut covered = Vec::new();
            for load in 0..loads {
                let table = made.table(LoadNumber { epoch: 1, load });
                let mut places: Vec<Vec<(u64, u64)>> = vec![Vec::new(); memory.len()];
                for piece in &table.pieces {
                    prop_assert!(!piece.range.is_empty());
                    covered.push((piece.range.start, piece.range.end));
                    let place = (piece.offset, piece.offset_of(piece.range.end));
                    places[piece.rank as usize].push(place);
                }
                for (rank, places) in places.into_iter().enumerate() {
                    prop_assert!(apart(places) <= table.needed()[rank]);
                }
            }
            prop_assert_eq!(apart(covered), space.bytes());
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
        let plan = plan(&dataset, 5, 1000);
        for load in 0..5 {
            let read = plan.epoch_order(3).unwrap().load_units(load).unwrap();
            let drawn = (plan.units().unwrap(), &read[..]);
            let table = LoadTable::new(&space, drawn, &[1; 4]);
            let (least, most) = (table.needed().iter().min(), table.needed().iter().max());
            assert!(most.unwrap() - least.unwrap() <= 1, "{:?}", table.needed());
            let table = LoadTable::new(&space, drawn, &[0, 3, 1, 0]);
            let needed = table.needed();
            assert_eq!((needed[0], needed[3]), (0, 0));
            assert!(needed[1].abs_diff(3 * needed[2]) <= 4, "{needed:?}");
        }
    }
}
