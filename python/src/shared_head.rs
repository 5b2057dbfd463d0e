//! A head shared by several processes: each gives its own examples and has a part of the classes.
//!
//! A step chooses classes, scores batches, runs their losses backward and moves the weights. Unless classes are
//! chosen for several batches together, a step has one batch, and the next batch replaces one that never went
//! backward.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use pelton_comm::{Comm, Reduction, share};
use pelton_key::mix;
use pelton_softmax::{ClassHead, HeadError, Observed, Update, class_vectors};

use crate::head_failure::{ExamplePosition, HeadFailure};

/// This rank's part of a head.
pub(crate) struct SharedHead {
    pub(crate) head: Box<dyn ClassHead>,
    comm: Comm,
    seed: u64,
    /// What the loss of an example counts for, by its class.
    class_weights: Option<Vec<f32>>,
    /// Classes that may take part in a step, if not all, until the first batch was compared with it.
    budget: Option<u64>,
    /// Steps and epochs so far: what is drawn depends on them.
    pub(crate) steps: u64,
    pub(crate) epochs: u64,
    /// How often batches were forgotten.
    forgotten: u64,
    step: Step,
    /// The position of the features scored last.
    pub(crate) read_at: usize,
}

/// The current step.
#[derive(Default)]
struct Step {
    /// Whether the classes were chosen for several batches.
    is_shared: bool,
    /// Of each scored batch, whether its loss went backward.
    backward: Vec<bool>,
}

/// A batch that was scored.
pub(crate) struct Scored {
    /// The mean loss of the examples of all ranks, by their weights.
    pub(crate) loss: f64,
    /// Those that were right.
    pub(crate) correct: usize,
    /// Classes that took part.
    pub(crate) active: u64,
    /// Of the features of this rank. Between ranks it is as many times larger as there are ranks: the mean of the
    /// gradients of all ranks' nets, which data-parallel training takes, is then that of the loss.
    pub(crate) gradient: Vec<f32>,
    /// How often batches had been forgotten, and the place among those of its step.
    pub(crate) ticket: (u64, usize),
}

/// Rows of a block that was saved.
pub(crate) struct Piece<'a> {
    pub(crate) name: String,
    pub(crate) first: u64,
    /// Rows of all ranks.
    pub(crate) total: u64,
    pub(crate) width: usize,
    pub(crate) values: &'a [f32],
}

/// Examples of all ranks.
struct Examples<'a> {
    features: Cow<'a, [f32]>,
    labels: Vec<u64>,
    /// How many each rank gave.
    counts: Vec<usize>,
}

impl SharedHead {
    pub(crate) fn new(
        head: Box<dyn ClassHead>,
        comm: Comm,
        seed: u64,
        class_weights: Option<Vec<f32>>,
        budget: u64,
    ) -> SharedHead {
        let budget = Some(budget).filter(|budget| *budget < head.classes());
        SharedHead {
            head,
            comm,
            seed,
            class_weights,
            budget,
            steps: 0,
            epochs: 0,
            forgotten: 0,
            step: Step::default(),
            read_at: 0,
        }
    }

    /// Observes examples before training: first for the mean of all, if the head subtracts it, then for those of
    /// classes.
    pub(crate) fn observe(
        &mut self,
        what: Observed,
        features: &[f32],
        labels: &[i64],
    ) -> Result<(), HeadFailure> {
        let all = self.examples(features, labels)?;
        let seen = self.head.observe(what, &all.features, &all.labels);
        seen.map_err(|error| all.failure(error))
    }

    /// Sets the weights of each class to its mean; returns how many classes have none.
    pub(crate) fn begin_at_means(&mut self) -> Result<u64, HeadFailure> {
        self.forget();
        Ok(self.head.begin_at_means()?)
    }

    /// Starts an epoch: builds graph or forest from the current weights.
    pub(crate) fn renew(&mut self, stop: &(dyn Fn() -> bool + Sync)) -> Result<(), HeadFailure> {
        self.head.renew(self.epochs, stop)?;
        self.epochs += 1;
        Ok(())
    }

    /// Chooses the classes of a step for several batches, by the labels of all of them.
    pub(crate) fn select(&mut self, labels: &[i64]) -> Result<(), HeadFailure> {
        let (labels, _) = self.labels(labels)?;
        self.choose(&labels)?;
        self.step.is_shared = true;
        Ok(())
    }

    /// Scores a batch with the classes chosen for the step, or else chosen for this batch.
    pub(crate) fn score(
        &mut self,
        features: &[f32],
        labels: &[i64],
    ) -> Result<Scored, HeadFailure> {
        let all = self.examples(features, labels)?;
        if !self.step.is_shared {
            self.choose(&all.labels)?;
        }
        self.read_at = all.features.as_ptr() as usize;
        let factors = self.class_weights.as_ref().map(|weights| {
            let labels = all.labels.iter();
            labels
                .map(|&label| weights[label as usize])
                .collect::<Vec<f32>>()
        });
        let counted = match &factors {
            None => all.labels.len() as f64,
            Some(factors) => factors.iter().copied().map(f64::from).sum(),
        };
        // If no example counts, the gradient is 0.
        let counted = if counted > 0.0 { counted } else { 1.0 };
        let weight = 1.0 / counted as f32;
        let scored = self
            .head
            .score(&all.features, &all.labels, weight, factors.as_deref());
        let (sums, gradient) = scored.map_err(|error| all.failure(error))?;
        let place = self.step.backward.len();
        self.step.backward.push(false);
        Ok(Scored {
            loss: sums.loss / counted,
            correct: sums.correct,
            active: self.head.active(),
            gradient: self.own_gradient(gradient, &all.counts)?,
            ticket: (self.forgotten, place),
        })
    }

    /// Makes a batch count in the step, `factor` times.
    pub(crate) fn backward(
        &mut self,
        ticket: (u64, usize),
        factor: f32,
    ) -> Result<(), HeadFailure> {
        let (forgotten, place) = ticket;
        if forgotten != self.forgotten {
            return Err(HeadFailure::Forgotten);
        }
        if std::mem::replace(&mut self.step.backward[place], true) {
            return Err(HeadFailure::Backward);
        }
        if factor != 1.0 {
            self.head.weigh(place, factor);
        }
        Ok(())
    }

    /// Moves the weights by all batches that went backward.
    pub(crate) fn update(&mut self, update: &Update) -> Result<(), HeadFailure> {
        if !self.step.backward.contains(&true) {
            return Err(HeadFailure::NotBackward);
        }
        for (place, _) in self
            .step
            .backward
            .iter()
            .enumerate()
            .filter(|(_, went)| !**went)
        {
            self.head.weigh(place, 0.0);
        }
        self.head.update(update)?;
        self.steps += 1;
        self.forget();
        Ok(())
    }

    /// The mean loss over all classes, and how many examples are right.
    pub(crate) fn evaluate(
        &mut self,
        features: &[f32],
        labels: &[i64],
    ) -> Result<(f64, usize), HeadFailure> {
        let all = self.examples(features, labels)?;
        let measured = self.head.evaluate(&all.features, &all.labels);
        let measured = measured.map_err(|error| all.failure(error))?;
        Ok((measured.loss / all.labels.len() as f64, measured.correct()))
    }

    /// The `k` best classes of each example of this rank: their numbers and scores, \[examples, k\].
    pub(crate) fn top(
        &mut self,
        features: &[f32],
        k: usize,
    ) -> Result<(Vec<i64>, Vec<f32>), HeadFailure> {
        let all = self.examples(features, &vec![0; features.len() / self.head.d()])?;
        let best = self.head.top(&all.features, k);
        let best = best.map_err(|error| all.failure(error))?;
        let rank = self.comm.rank();
        let first: usize = all.counts[..rank].iter().sum();
        let own = &best[first..first + all.counts[rank]];
        Ok(own
            .iter()
            .flatten()
            .map(|&(class, score)| (class as i64, score))
            .unzip())
    }

    /// This rank's class vectors; none of MACH.
    pub(crate) fn weights(&self) -> Option<Vec<f32>> {
        let mut saved = self.head.save(true);
        let mut read = |name: &str, _: Range<u64>| {
            let at = saved.iter().position(|block| block.name == name)?;
            Some(saved.swap_remove(at).values.into_owned())
        };
        let own = share(
            self.head.classes() as usize,
            self.comm.rank(),
            self.comm.size(),
        );
        class_vectors(&mut read, own.start as u64..own.end as u64)
    }

    /// Takes this rank's rows out of what ranks saved, however many they were.
    pub(crate) fn load(&mut self, pieces: &[Piece<'_>]) -> Result<(), HeadFailure> {
        let own = |piece: &Piece<'_>| {
            let rows = share(piece.total as usize, self.comm.rank(), self.comm.size());
            rows.start as u64..rows.end as u64
        };
        for piece in pieces {
            let rows = own(piece);
            rows_of(pieces, &piece.name, rows)?;
        }
        self.forget();
        self.head
            .load(&mut |name, rows| rows_of(pieces, name, rows).ok().flatten())?;
        Ok(())
    }

    fn choose(&mut self, labels: &[u64]) -> Result<(), HeadFailure> {
        if self.step.backward.contains(&true) {
            return Err(HeadFailure::Pending);
        }
        self.forget();
        if let Some(all) = self.budget {
            let own = labels.iter().collect::<HashSet<_>>().len();
            if 5 * own as u64 > 4 * all {
                return Err(HeadFailure::Budget { own, all });
            }
            self.budget = None;
        }
        let key = mix(mix(self.seed) ^ self.steps);
        self.head.select(labels, key)?;
        Ok(())
    }

    /// Scored batches that have not changed the weights are not used.
    pub(crate) fn forget(&mut self) {
        self.head.forget();
        self.step = Step::default();
        self.forgotten += 1;
    }

    /// The labels of all ranks, each of them a class, and how many each rank gave.
    fn labels(&self, labels: &[i64]) -> Result<(Vec<u64>, Vec<usize>), HeadFailure> {
        let parts = self.comm.all_gather_ragged(labels)?;
        let counts: Vec<usize> = parts.iter().map(Vec::len).collect();
        let classes = self.head.classes();
        let mut all = Vec::with_capacity(counts.iter().sum());
        for label in parts.into_iter().flatten() {
            match u64::try_from(label) {
                Ok(label) if label < classes => all.push(label),
                _ => {
                    let place = ExamplePosition::new(all.len(), &counts);
                    return Err(HeadFailure::Label {
                        place,
                        label,
                        classes,
                    });
                }
            }
        }
        if all.is_empty() {
            Err(HeadFailure::NoExamples)
        } else {
            Ok((all, counts))
        }
    }

    /// The examples of all ranks; on a single rank the features are not copied.
    fn examples<'a>(
        &self,
        features: &'a [f32],
        labels: &[i64],
    ) -> Result<Examples<'a>, HeadFailure> {
        let (labels, counts) = self.labels(labels)?;
        let features = match self.comm.size() {
            1 => Cow::Borrowed(features),
            _ => Cow::Owned(self.comm.all_gather_ragged(features)?.concat()),
        };
        Ok(Examples {
            features,
            labels,
            counts,
        })
    }

    /// The sum of all ranks' parts, for this rank's own examples.
    fn own_gradient(&self, gradient: Vec<f32>, counts: &[usize]) -> Result<Vec<f32>, HeadFailure> {
        if counts.len() == 1 {
            return Ok(gradient);
        }
        let counts: Vec<usize> = counts.iter().map(|count| count * self.head.d()).collect();
        let mut own = self
            .comm
            .reduce_scatter_ragged(&gradient, &counts, Reduction::Sum)?;
        own.iter_mut().for_each(|g| *g *= counts.len() as f32);
        Ok(own)
    }
}

impl Examples<'_> {
    /// An error about an example says where it is.
    fn failure(&self, error: HeadError) -> HeadFailure {
        match error {
            HeadError::NotFinite { example } => {
                HeadFailure::NotFinite(ExamplePosition::new(example, &self.counts))
            }
            HeadError::Inactive { example, label } => {
                HeadFailure::NotSelected(ExamplePosition::new(example, &self.counts), label)
            }
            error => error.into(),
        }
    }
}

/// Rows of a block joined from pieces, ascending; none if there is no such block.
fn rows_of(
    pieces: &[Piece<'_>],
    name: &str,
    rows: Range<u64>,
) -> Result<Option<Vec<f32>>, HeadFailure> {
    let mut pieces: Vec<&Piece<'_>> = pieces.iter().filter(|piece| piece.name == name).collect();
    let Some(first) = pieces.first() else {
        return Ok(None);
    };
    let width = first.width;
    pieces.sort_by_key(|piece| piece.first);
    let mut values = Vec::with_capacity((rows.end - rows.start) as usize * width);
    let mut next = rows.start;
    for piece in pieces {
        let end = piece.first + (piece.values.len() / piece.width.max(1)) as u64;
        if piece.width == width && piece.first <= next && next < end.min(rows.end) {
            let at = |row: u64| (row - piece.first) as usize * width;
            values.extend_from_slice(&piece.values[at(next)..at(end.min(rows.end))]);
            next = end.min(rows.end);
        }
    }
    if next < rows.end {
        Err(HeadFailure::Rows(name.to_string(), next..rows.end))
    } else {
        Ok(Some(values))
    }
}
