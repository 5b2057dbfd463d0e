//! The classes of examples that may have several, or none: the loss of an example is the mean over its own.

use std::ops::Range;

use pelton_softmax::Labels;

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

    /// As a head takes them.
    pub(crate) fn labels(&self) -> Labels<'_> {
        Labels {
            classes: &self.labels,
            counts: Some(&self.counts),
        }
    }

    /// The factor of each loss: that in `factors`, by class, over the number of the example's classes.
    pub(crate) fn means(&self, factors: Option<Vec<f32>>) -> Vec<f32> {
        let mut factors = factors.unwrap_or_else(|| vec![1.0; self.labels.len()]);
        for ((row, _), factor) in self.pairs().zip(&mut factors) {
            *factor /= self.counts[row] as f32;
        }
        factors
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
