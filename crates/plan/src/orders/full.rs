//! A new uniformly random order of all records every epoch: a keyed permutation, computed and not stored.

use pelton_key::{Stage, key};

use super::Full;
use crate::error::PlanError;
use crate::ordering::{EpochWalk, Ids, Inverse, Kind, Over, Spread};
use crate::permutation::Permutation;
use crate::randomness::Randomness;

impl Kind for Full {
    fn spread(&self) -> Spread {
        Spread::Everywhere
    }

    fn randomness(&self, _: u64, _: u64) -> Randomness {
        Randomness::PERFECT
    }

    fn over(&self, over: &Over<'_>) -> Result<Box<dyn Ids>, PlanError> {
        Ok(Box::new(Shuffle {
            records: over.records,
            seed: over.seed,
        }))
    }
}

#[derive(Debug)]
struct Shuffle {
    records: u64,
    seed: u64,
}

impl Shuffle {
    fn of_epoch(&self, epoch: u64) -> Box<Permutation> {
        let key = key(self.seed, epoch, Stage::Order);
        Box::new(Permutation::new(self.records, key))
    }
}

impl Ids for Shuffle {
    fn walk(&self, epoch: u64) -> Box<dyn EpochWalk> {
        self.of_epoch(epoch)
    }

    fn inverse(&self, epoch: u64) -> Option<Box<dyn Inverse>> {
        Some(self.of_epoch(epoch))
    }
}

impl Inverse for Permutation {
    fn fill(&self, start: u64, out: &mut [u64]) {
        self.fill(start, out);
    }

    fn ids_of_each(&self, positions: &mut [u64]) {
        self.get_each(positions);
    }

    fn positions_of_each(&self, ids: &mut [u64]) {
        self.positions_of_each(ids);
    }

    fn fill_positions(&self, first: u64, out: &mut [u64]) {
        self.fill_positions(first, out);
    }
}
