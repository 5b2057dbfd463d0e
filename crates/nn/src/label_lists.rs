//! The classes of examples that may have several, or none: the loss of an example is the mean over its own.
//!
//! A head over many classes takes an example once for each of its classes, with the factor one over their number.

use std::borrow::Cow;
use std::ops::Range;

use crate::input::Input;

/// The classes of some examples.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LabelLists {
    /// How many each example has.
    counts: Vec<usize>,
    /// Example by example.
    pub(crate) labels: Vec<u64>,
}

impl LabelLists {
    pub(crate) fn of(input: Input<'_>) -> LabelLists {
        let labels = input.labels();
        LabelLists {
            counts: match input.counts() {
                Some(counts) => counts.to_vec(),
                None => vec![1; labels.len()],
            },
            labels: labels.iter().map(|&y| y as u64).collect(),
        }
    }

    /// Appends it to a message.
    pub(crate) fn write(&self, message: &mut Vec<u64>) {
        message.push(self.counts.len() as u64);
        message.extend(self.counts.iter().map(|&count| count as u64));
        message.extend(&self.labels);
    }

    /// Takes it from the front of a message that [`write`](LabelLists::write) made.
    pub(crate) fn read(message: &mut &[u64]) -> LabelLists {
        let (rows, rest) = message.split_first().expect("a message of lists");
        let (counts, rest) = rest.split_at(*rows as usize);
        let counts: Vec<usize> = counts.iter().map(|&count| count as usize).collect();
        let (labels, rest) = rest.split_at(counts.iter().sum());
        *message = rest;
        LabelLists {
            counts,
            labels: labels.to_vec(),
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.counts.len()
    }

    /// Some examples.
    pub(crate) fn part(&self, rows: Range<usize>) -> LabelLists {
        let before: usize = self.counts[..rows.start].iter().sum();
        let counts = self.counts[rows].to_vec();
        let own = counts.iter().sum::<usize>();
        LabelLists {
            counts,
            labels: self.labels[before..before + own].to_vec(),
        }
    }

    /// Each class of each example, with the example.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let rows = self.counts.iter().enumerate();
        let rows = rows.flat_map(|(row, &count)| std::iter::repeat_n(row, count));
        rows.zip(self.labels.iter().copied())
    }

    fn are_single(&self) -> bool {
        self.counts.iter().all(|&count| count == 1)
    }

    /// The `features` \[rows, d\] of an example once for each of its classes, and the factor of each loss: that in
    /// `factors`, by class, over the number of the example's classes.
    pub(crate) fn repeated<'f>(
        &self,
        features: &'f [f32],
        d: usize,
        factors: Option<Vec<f32>>,
    ) -> (Cow<'f, [f32]>, Option<Vec<f32>>) {
        if self.are_single() {
            return (Cow::Borrowed(features), factors);
        }
        let mut factors = factors.unwrap_or_else(|| vec![1.0; self.labels.len()]);
        let mut repeated = Vec::with_capacity(factors.len() * d);
        for ((row, _), factor) in self.pairs().zip(&mut factors) {
            repeated.extend_from_slice(&features[row * d..][..d]);
            *factor /= self.counts[row] as f32;
        }
        (Cow::Owned(repeated), Some(factors))
    }

    /// What `score` makes of the [repeated](LabelLists::repeated) examples, with the gradient of an example summed over
    /// its classes: \[rows, d\].
    pub(crate) fn scored<S: Default, E>(
        &self,
        features: &[f32],
        d: usize,
        factors: Option<Vec<f32>>,
        score: impl FnOnce(&[f32], Option<&[f32]>) -> Result<(S, Vec<f32>), E>,
    ) -> Result<(S, Vec<f32>), E> {
        let (repeated, factors) = self.repeated(features, d, factors);
        if self.labels.is_empty() {
            return Ok((S::default(), vec![0.0; features.len()]));
        }
        let (sums, gradient) = score(&repeated, factors.as_deref())?;
        if self.are_single() {
            return Ok((sums, gradient));
        }
        let mut summed = vec![0.0; features.len()];
        for ((row, _), of_pair) in self.pairs().zip(gradient.chunks_exact(d)) {
            let own = &mut summed[row * d..][..d];
            own.iter_mut().zip(of_pair).for_each(|(sum, x)| *sum += x);
        }
        Ok((sums, summed))
    }

    /// Of each example, whether `of_pairs` holds for one of its classes.
    pub(crate) fn any(&self, of_pairs: &[bool]) -> Vec<bool> {
        let mut any = vec![false; self.rows()];
        for ((row, _), of_pair) in self.pairs().zip(of_pairs) {
            any[row] |= of_pair;
        }
        any
    }
}

impl FromIterator<LabelLists> for LabelLists {
    fn from_iter<I: IntoIterator<Item = LabelLists>>(lists: I) -> LabelLists {
        let mut all = LabelLists::default();
        for list in lists {
            all.counts.extend(list.counts);
            all.labels.extend(list.labels);
        }
        all
    }
}
