//! File order, every epoch.

use super::Sequential;
use crate::error::PlanError;
use crate::ordering::{EpochWalk, Ids, Inverse, Kind, Over, Spread, count_from};
use crate::randomness::Randomness;

impl Kind for Sequential {
    fn spread(&self) -> Spread {
        Spread::InOrder
    }

    fn is_fixed(&self) -> bool {
        true
    }

    fn randomness(&self, _: u64, _: u64) -> Randomness {
        Randomness::NONE
    }

    fn over(&self, _: &Over<'_>) -> Result<Box<dyn Ids>, PlanError> {
        Ok(Box::new(Sequential {}))
    }
}

impl Ids for Sequential {
    fn walk(&self, _: u64) -> Box<dyn EpochWalk> {
        Box::new(Sequential {})
    }

    fn inverse(&self, _: u64) -> Option<Box<dyn Inverse>> {
        Some(Box::new(Sequential {}))
    }
}

impl Inverse for Sequential {
    fn fill(&self, start: u64, out: &mut [u64]) {
        count_from(start, out);
    }

    fn ids_of_each(&self, _: &mut [u64]) {}

    fn positions_of_each(&self, _: &mut [u64]) {}
}
