//! Accuracy by class size: how well classes with few training examples are told from others.

use pelton_data::{DataError, HeldOut, OpenedData, label_counts, several_classes};
use pelton_feed::BadExamples;
use pelton_run::RunContext;
use serde::Serialize;

/// Training examples of each class, or with each label.
///
/// Errors: data of one class, which `setting` cannot use; labels that cannot be read.
pub(crate) fn class_sizes(
    data: &OpenedData,
    setting: &str,
    held_out: Option<&HeldOut>,
    bad_examples: BadExamples,
    context: &mut RunContext<'_>,
) -> Result<Vec<u64>, DataError> {
    let trains = |id: u64| held_out.is_none_or(|held| held.training.contains(id));
    if data.dataset.label_lists().is_some() {
        return label_counts(&data.dataset, trains, bad_examples, context);
    }
    let of_records = several_classes(&data.dataset, setting, bad_examples, context)?;
    let mut sizes = vec![0_u64; data.dataset.labels().len()];
    for (id, &class) in of_records.iter().enumerate() {
        sizes[class as usize] += u64::from(trains(id as u64));
    }
    Ok(sizes)
}

/// The largest sizes of groups of classes; those of the last group are larger.
const GROUPS: [u64; 5] = [0, 1, 5, 20, 100];

/// The accuracy of test examples whose classes have about the same number of training examples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeAccuracy {
    /// Training examples of such a class, at least.
    pub least: u64,
    /// At most; none if there is no limit.
    pub most: Option<u64>,
    /// Classes of this size, in training.
    pub classes: u64,
    /// Their test examples.
    pub examples: u64,
    /// Part of those predicted right; none if there are none.
    pub accuracy: Option<f64>,
}

impl SizeAccuracy {
    /// The size, for people.
    pub fn size(&self) -> String {
        match self.most {
            None => format!("{} or more", self.least),
            Some(most) if most == self.least => most.to_string(),
            Some(most) => format!("{} to {most}", self.least),
        }
    }
}

/// Counts hits by the size of the class.
pub(crate) struct SizeCounts<'a> {
    sizes: &'a [u64],
    /// Examples and hits of each group.
    counts: [[u64; 2]; GROUPS.len() + 1],
}

impl<'a> SizeCounts<'a> {
    pub(crate) fn new(sizes: &'a [u64]) -> SizeCounts<'a> {
        SizeCounts {
            sizes,
            counts: Default::default(),
        }
    }

    /// Examples of these classes, and whether each is right.
    pub(crate) fn add(&mut self, labels: &[i64], right: &[bool]) {
        for (&label, &right) in labels.iter().zip(right) {
            let size = usize::try_from(label).map(|class| self.sizes[class]);
            let Ok(size) = size else { continue };
            let [examples, hits] = &mut self.counts[group(size)];
            *examples += 1;
            *hits += u64::from(right);
        }
    }

    /// The counts, to be added up over ranks.
    pub(crate) fn numbers(&mut self) -> &mut [u64] {
        self.counts.as_flattened_mut()
    }

    /// The groups that have classes; none if all classes are of one group.
    pub(crate) fn accuracies(&self) -> Option<Vec<SizeAccuracy>> {
        let mut classes = [0; GROUPS.len() + 1];
        self.sizes
            .iter()
            .for_each(|&size| classes[group(size)] += 1);
        let of = |at: usize| {
            let [examples, hits] = self.counts[at];
            SizeAccuracy {
                least: at.checked_sub(1).map_or(0, |before| GROUPS[before] + 1),
                most: GROUPS.get(at).copied(),
                classes: classes[at],
                examples,
                accuracy: (examples > 0).then(|| hits as f64 / examples as f64),
            }
        };
        let there: Vec<usize> = (0..classes.len()).filter(|&at| classes[at] > 0).collect();
        (there.len() > 1).then(|| there.into_iter().map(of).collect())
    }
}

fn group(size: u64) -> usize {
    GROUPS.partition_point(|&most| most < size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_counted_by_the_size_of_their_class() {
        let sizes = [1, 5, 2, 101, 0, 100, 1];
        let mut counts = SizeCounts::new(&sizes);
        counts.add(&[0, 6, 1, 3, 2, -1], &[true, false, true, true, true, true]);
        counts.add(&[0], &[false]);
        let found = counts.accuracies().unwrap();
        let texts: Vec<String> = found.iter().map(SizeAccuracy::size).collect();
        assert_eq!(texts, ["0", "1", "2 to 5", "21 to 100", "101 or more"]);
        let numbers = found
            .iter()
            .map(|group| (group.classes, group.examples, group.accuracy));
        let expected = [
            (1, 0, None),
            (2, 3, Some(1.0 / 3.0)),
            (2, 2, Some(1.0)),
            (1, 0, None),
            (1, 1, Some(1.0)),
        ];
        assert_eq!(numbers.collect::<Vec<_>>(), expected);
        assert_eq!(SizeCounts::new(&[7, 20, 6]).accuracies(), None);
    }
}
