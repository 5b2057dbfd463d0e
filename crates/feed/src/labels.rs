//! How the classes of a data set become labels for training.

use pelton_batch::Array;
use pelton_format::Dataset;

/// The label of every class: a 64-bit integer, or a 64-bit float if some labels are not whole. Custom functions get
/// the class of a record, and find its label here.
#[derive(Clone, Debug, PartialEq)]
pub enum Labels {
    /// The number of each class; named classes have one too.
    Same,
    /// Whole numbers, unchanged.
    Classes(Vec<i64>),
    /// Numbers.
    Numbers(Vec<f64>),
}

impl Labels {
    /// Of a data set, with `by_class` the numbers of classes only; `None` if its records have no labels.
    pub fn from_dataset(dataset: &Dataset, by_class: bool) -> Option<Labels> {
        let labels = dataset.labels();
        if !dataset.has_labels() {
            return None;
        }
        if labels.is_count() || by_class {
            return Some(Labels::Same);
        }
        Some(Labels::of_values(labels.values()))
    }

    fn of_values(values: &[f64]) -> Labels {
        if values.iter().all(|value| value.fract() == 0.0) {
            Labels::Classes(values.iter().map(|&value| value as i64).collect())
        } else {
            Labels::Numbers(values.to_vec())
        }
    }

    /// The labels of examples of these classes.
    pub fn array(&self, classes: impl Iterator<Item = u32>) -> Array {
        match self {
            Labels::Same => Array::from_slice(&classes.map(i64::from).collect::<Vec<i64>>()),
            Labels::Classes(values) => {
                let labels: Vec<i64> = classes.map(|class| values[class as usize]).collect();
                Array::from_slice(&labels)
            }
            Labels::Numbers(values) => {
                let labels: Vec<f64> = classes.map(|class| values[class as usize]).collect();
                Array::from_slice(&labels)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_classes() {
        let digits = Labels::of_values(&[0.0, 7.0, -1.0]).array([2, 1, 1].into_iter());
        assert_eq!(digits.values::<i64>(), Some(&[-1, 7, 7][..]));
        let numbers = Labels::of_values(&[16_777_217.5, 0.1]).array([1, 0].into_iter());
        assert_eq!(numbers.values::<f64>(), Some(&[0.1, 16_777_217.5][..]));
    }
}
