//! The classes of a data set: which label values there are and in what order.

use std::collections::HashMap;

use crate::class_name::ClassName;
use crate::error::Fault;

/// Up to here a class is looked for by going through the list.
const FEW: usize = 8;

/// The label values of a data set; a class is an index into them.
///
/// The order is LIBLINEAR's, so that models read alike: order of first appearance, except that
/// {-1, +1} is always [+1, -1].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelMap {
    values: Vec<f64>,
    /// Filled only when there are more than [`FEW`] values.
    classes: HashMap<u64, u32>,
    /// What classes are called, where the data says so.
    names: Vec<String>,
}

impl LabelMap {
    /// A map over distinct values in the given order.
    pub fn new(values: Vec<f64>) -> LabelMap {
        let classes = if values.len() <= FEW {
            HashMap::new()
        } else {
            (0u32..)
                .zip(&values)
                .map(|(class, value)| (bits(*value), class))
                .collect()
        };
        LabelMap {
            values,
            classes,
            names: Vec::new(),
        }
    }

    /// A map over names, whose values are 0, 1, 2 ….
    pub fn named(names: Vec<String>) -> LabelMap {
        let values = (0..names.len()).map(|i| i as f64).collect();
        LabelMap {
            names,
            ..LabelMap::new(values)
        }
    }

    /// Names of the classes, one each; empty where the data has numbers only.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// What a class is called: its name, or else its value. Panics unless `class` is below
    /// [`LabelMap::len`].
    pub fn describe(&self, class: u32) -> String {
        match self.names.get(class as usize) {
            Some(name) => name.clone(),
            None => self.values[class as usize].to_string(),
        }
    }

    /// A map over values in order of first appearance, put in LIBLINEAR's order.
    pub fn from_first_appearance(mut values: Vec<f64>) -> LabelMap {
        if values == [-1.0, 1.0] {
            values.swap(0, 1);
        }
        LabelMap::new(values)
    }

    /// The label values, one a class.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Number of classes.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is no class.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The class that a person calls so: by its name where classes have names, else by its label value.
    pub fn class_called(&self, class: &ClassName) -> Option<u32> {
        self.class_of(class.value_among(&self.names)?)
    }

    /// The class of a label value.
    #[inline]
    pub fn class_of(&self, value: f64) -> Option<u32> {
        if self.values.len() <= FEW {
            return self
                .values
                .iter()
                .position(|known| *known == value)
                .map(|class| class as u32);
        }
        self.classes.get(&bits(value)).copied()
    }
}

/// Equal values have equal bits once -0 is 0.
pub(crate) fn bits(value: f64) -> u64 {
    (value + 0.0).to_bits()
}

/// Distinct label values in order of first appearance, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct LabelCollector {
    values: Vec<f64>,
    seen: std::collections::HashSet<u64>,
}

/// From this magnitude on not every whole number is an f64, so that two labels may read alike: 2^53.
pub(crate) const LABEL_LIMIT: f64 = 9_007_199_254_740_992.0;

/// A label, or a fault where it is too large; `found` is how it is written.
#[inline]
pub(crate) fn checked_label(value: f64, found: impl FnOnce() -> String) -> Result<f64, Fault> {
    if value.abs() < LABEL_LIMIT {
        return Ok(value);
    }
    Err(Fault::LabelTooLarge { found: found() })
}

/// The most distinct labels a classification may have.
pub(crate) const MOST_LABELS: usize = 1 << 24;

/// The most distinct names of classes in a column: more are no classes, and would fill the memory.
pub(crate) const MOST_NAMES: usize = 1 << 16;

impl LabelCollector {
    /// Notes a label; false when there are too many.
    pub(crate) fn add(&mut self, value: f64) -> bool {
        if self.values.last().is_some_and(|last| *last == value) {
            return true;
        }
        if self.seen.insert(bits(value)) {
            self.values.push(value + 0.0);
        }
        self.values.len() <= MOST_LABELS
    }

    pub(crate) fn into_values(self) -> Vec<f64> {
        self.values
    }
}

/// How the label values of a file become classes of the data set.
#[derive(Clone, Debug)]
pub(crate) struct Classes {
    pub(crate) labels: std::sync::Arc<LabelMap>,
    /// This label against the rest: it stands for +1, any other for -1.
    pub(crate) positive: Option<f64>,
    /// A label that is none of them does not matter and counts as the first class.
    pub(crate) any: bool,
}

impl Classes {
    #[inline]
    pub(crate) fn class_of(&self, value: f64) -> Option<u32> {
        let value = match self.positive {
            Some(positive) if value == positive => 1.0,
            Some(_) => -1.0,
            None => value,
        };
        let class = self.labels.class_of(value);
        if self.any { class.or(Some(0)) } else { class }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn liblinear_order() {
        assert_eq!(
            LabelMap::from_first_appearance(vec![-1.0, 1.0]).values(),
            [1.0, -1.0]
        );
        assert_eq!(
            LabelMap::from_first_appearance(vec![1.0, -1.0]).values(),
            [1.0, -1.0]
        );
        assert_eq!(
            LabelMap::from_first_appearance(vec![0.0, 1.0]).values(),
            [0.0, 1.0]
        );
        assert_eq!(
            LabelMap::from_first_appearance(vec![3.0, 1.0, 2.0]).values(),
            [3.0, 1.0, 2.0]
        );
    }

    #[test]
    fn names_go_by_number() {
        let map = LabelMap::named(vec!["cat".into(), "dog".into()]);
        assert_eq!(map.values(), [0.0, 1.0]);
        assert_eq!(map.names(), ["cat", "dog"]);
        assert_eq!(
            (map.class_of(1.0), map.describe(1)),
            (Some(1), "dog".into())
        );
        assert_eq!(LabelMap::new(vec![2.5]).describe(0), "2.5");
    }

    #[test]
    fn few_and_many_are_found() {
        for count in [0usize, 1, 8, 9, 100] {
            let map = LabelMap::new((0..count).map(|i| i as f64 - 3.0).collect());
            for class in 0..count {
                assert_eq!(map.class_of(class as f64 - 3.0), Some(class as u32));
            }
            assert_eq!(map.class_of(1e9), None);
        }
        assert_eq!(
            LabelMap::new((0..20).map(f64::from).collect()).class_of(-0.0),
            Some(0)
        );
    }
}
