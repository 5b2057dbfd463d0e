//! What a test of a net with a head over many classes tells besides loss and accuracy.

use pelton_comm::{Comm, Reduction};
use pelton_data::DataError;
use pelton_nn::{Evaluated, Input};

use crate::class_sizes::{SizeAccuracy, SizeCounts};
use crate::error::TrainError;
use crate::label_ranks::{LabelRanks, MOST_CUT, RankSums};

/// Hits by the size of the class, or where examples may have several labels, how these are ranked.
pub(super) struct Tested<'a> {
    sizes: Option<SizeCounts<'a>>,
    ranks: Option<RankSums>,
    /// Of `ranks`, over all ranks of the job.
    sums: Vec<f64>,
}

impl<'a> Tested<'a> {
    /// With the training examples of each class, if they are known, and of all.
    pub(super) fn new(sizes: Option<&'a [u64]>, several: bool, examples: u64) -> Tested<'a> {
        Tested {
            ranks: several.then(|| RankSums::new(sizes.map(|sizes| (sizes, examples)))),
            sizes: sizes.filter(|_| !several).map(SizeCounts::new),
            sums: Vec::new(),
        }
    }

    /// Best classes of an example that are looked at.
    pub(super) fn best(&self) -> usize {
        self.ranks.as_ref().map_or(0, |_| MOST_CUT)
    }

    pub(super) fn add(&mut self, input: Input<'_>, found: &Evaluated) {
        if let Some(sizes) = &mut self.sizes {
            sizes.add(input.labels(), &found.right);
        }
        if let Some(ranks) = &mut self.ranks {
            ranks.add_each(input, &found.best);
        }
    }

    /// Adds up over the ranks of the job, which all call it.
    pub(super) fn sum(&mut self, comm: &Comm) -> Result<(), TrainError> {
        if let Some(sizes) = &mut self.sizes {
            let summed = comm.all_reduce(sizes.numbers(), Reduction::Sum);
            summed.map_err(DataError::from)?;
        }
        if let Some(ranks) = &self.ranks {
            self.sums = ranks.numbers();
            let summed = comm.all_reduce(&mut self.sums, Reduction::Sum);
            summed.map_err(DataError::from)?;
        }
        Ok(())
    }

    pub(super) fn by_class_size(&self) -> Option<Vec<SizeAccuracy>> {
        self.sizes.as_ref()?.accuracies()
    }

    pub(super) fn label_ranks(&self) -> Option<LabelRanks> {
        Some(self.ranks.as_ref()?.figures(&self.sums))
    }
}
