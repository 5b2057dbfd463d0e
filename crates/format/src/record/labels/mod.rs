//! The classes of a data set: its label values, in order.

pub(crate) mod class_name;
pub(crate) mod classes_so_far;
pub(crate) mod codes;
pub(crate) mod file_classes;
pub(crate) mod label_cell;
pub(crate) mod stored;
pub(crate) mod table;

use std::collections::HashSet;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::record::error::{Fault, FormatError, FormatErrorKind};
use crate::record::labels::class_name::ClassName;
use crate::record::mixing::mix;

/// Up to this many classes are searched linearly.
const FEW: usize = 8;

/// The label values of a data set; a class is an index into them. Models keep the map of their training data, and
/// other data is read with it.
///
/// The order is LIBLINEAR's, so that models read alike: order of first appearance, except that {-1, +1} is always
/// [+1, -1]. Classes 0, 1, 2 … take no memory, and names are in one string, so that there may be hundreds of
/// millions.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Parts", into = "Parts")]
pub struct ClassMap {
    list: ClassList,
    /// Filled when all are asked for.
    values: OnceLock<Vec<f64>>,
    names: OnceLock<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq)]
enum ClassList {
    /// The values 0, 1, 2 … below this.
    Count(usize),
    /// Numbers, and their classes in ascending order of the numbers.
    Values(Vec<f64>, Vec<u32>),
    /// Names, concatenated, and the end of each. Their values are 0, 1, 2 ….
    Names(String, Vec<u64>),
}

/// The serialised form of a map.
#[derive(Serialize, Deserialize)]
struct Parts {
    /// Number of classes.
    count: usize,
    /// Labels in class order; empty if they are 0, 1, 2 … or names.
    labels: Vec<f64>,
    /// Names in class order; empty if classes have no names.
    names: Vec<String>,
}

impl From<Parts> for ClassMap {
    fn from(parts: Parts) -> ClassMap {
        match (parts.labels, parts.names) {
            (labels, names) if labels.is_empty() && names.is_empty() => {
                ClassMap::counted(parts.count)
            }
            (labels, names) => ClassMap::from_values(labels, names),
        }
    }
}

impl From<ClassMap> for Parts {
    fn from(map: ClassMap) -> Parts {
        Parts {
            count: map.len(),
            labels: if map.is_count() {
                Vec::new()
            } else {
                map.values().to_vec()
            },
            names: map.names().to_vec(),
        }
    }
}

impl PartialEq for ClassMap {
    fn eq(&self, other: &ClassMap) -> bool {
        self.list == other.list
    }
}

impl Default for ClassMap {
    fn default() -> ClassMap {
        ClassMap::new(Vec::new())
    }
}

impl From<ClassList> for ClassMap {
    fn from(list: ClassList) -> ClassMap {
        ClassMap {
            list,
            values: OnceLock::new(),
            names: OnceLock::new(),
        }
    }
}

fn is_counted(values: &[f64]) -> bool {
    values
        .iter()
        .enumerate()
        .all(|(i, value)| *value == i as f64)
}

impl ClassMap {
    /// A map over distinct values in the given order.
    pub fn new(values: Vec<f64>) -> ClassMap {
        if is_counted(&values) {
            return ClassList::Count(values.len()).into();
        }
        let mut ascending: Vec<u32> = if values.len() <= FEW {
            Vec::new()
        } else {
            (0..values.len() as u32).collect()
        };
        let value = |class: &u32| values[*class as usize];
        ascending.sort_unstable_by(|a, b| value(a).total_cmp(&value(b)));
        ClassList::Values(values, ascending).into()
    }

    /// The classes 0, 1, 2 … below `count`.
    pub fn counted(count: usize) -> ClassMap {
        ClassList::Count(count).into()
    }

    /// A map over names, with values 0, 1, 2 ….
    pub fn named(names: Vec<String>) -> ClassMap {
        if names.is_empty() {
            return ClassMap::default();
        }
        let bytes = names.iter().map(String::len).sum();
        let (mut text, mut ends) = (String::with_capacity(bytes), Vec::new());
        for name in names {
            text.push_str(&name);
            ends.push(text.len() as u64);
        }
        ClassList::Names(text, ends).into()
    }

    /// A map over names, or over values if `names` is empty.
    pub fn from_values(values: Vec<f64>, names: Vec<String>) -> ClassMap {
        if names.is_empty() {
            ClassMap::new(values)
        } else {
            ClassMap::named(names)
        }
    }

    /// Names of the classes, one each; empty if the data has numbers only. The list is built on first use;
    /// [`ClassMap::name`] does not need it.
    pub fn names(&self) -> &[String] {
        self.names.get_or_init(|| {
            let all = 0..self.len() as u32;
            all.map_while(|class| self.name(class).map(str::to_owned))
                .collect()
        })
    }

    /// The name of a class; `None` if the data has numbers only, or no such class.
    pub fn name(&self, class: u32) -> Option<&str> {
        let ClassList::Names(text, ends) = &self.list else {
            return None;
        };
        let class = class as usize;
        let end = *ends.get(class)? as usize;
        let start = class
            .checked_sub(1)
            .map_or(0, |before| ends[before] as usize);
        Some(&text[start..end])
    }

    /// Whether classes have names.
    pub fn has_names(&self) -> bool {
        matches!(self.list, ClassList::Names(..))
    }

    /// Whether the value of each class is the class itself.
    pub fn is_count(&self) -> bool {
        !matches!(self.list, ClassList::Values(..))
    }

    /// The display name of a class: its name, or its value. Panics unless `class` is below [`ClassMap::len`].
    pub fn describe(&self, class: u32) -> String {
        match self.name(class) {
            Some(name) => name.to_owned(),
            None => self.value(class).to_string(),
        }
    }

    /// The display names of the first classes, for messages.
    pub fn listed(&self) -> String {
        const MOST: usize = 20;
        let all = 0..self.len().min(MOST) as u32;
        let mut text = all
            .map(|class| self.describe(class))
            .collect::<Vec<_>>()
            .join(", ");
        if self.len() > MOST {
            text += &format!(" and {} more", self.len() - MOST);
        }
        text
    }

    /// Whether both have the same display names in the same order.
    pub fn reads_as(&self, other: &ClassMap) -> bool {
        let all = 0..self.len() as u32;
        self == other
            || self.len() == other.len()
                && all
                    .into_iter()
                    .all(|class| self.describe(class) == other.describe(class))
    }

    /// A hash of the classes and their order.
    pub fn fingerprint(&self) -> u64 {
        let start = mix(1, self.len() as u64);
        match &self.list {
            ClassList::Count(_) => mix(start, u64::MAX),
            ClassList::Values(values, _) => {
                values.iter().fold(start, |hash, v| mix(hash, bits(*v)))
            }
            ClassList::Names(text, ends) => {
                let hash = mix(start, u64::from(crc32c::crc32c(text.as_bytes())));
                ends.iter().fold(hash, |hash, end| mix(hash, *end))
            }
        }
    }

    /// The same map for files that state classes by name or by number: if the map has names and the files have numbers,
    /// the names are read as numbers if all of them are.
    pub(crate) fn for_files(&self, have_names: bool) -> ClassMap {
        if have_names || !self.has_names() {
            return self.clone();
        }
        let all = 0..self.len() as u32;
        let number = |name: &str| name.parse().ok().filter(|number: &f64| number.is_finite());
        let numbers = all.map(|class| self.name(class).and_then(number));
        match numbers.collect::<Option<Vec<f64>>>() {
            Some(numbers) => ClassMap::new(numbers),
            None => self.clone(),
        }
    }

    /// A map over values in order of first appearance, put in LIBLINEAR's order.
    pub fn from_first_appearance(mut values: Vec<f64>) -> ClassMap {
        if values == [-1.0, 1.0] {
            values.swap(0, 1);
        }
        ClassMap::new(values)
    }

    /// The label values, one a class. If they are 0, 1, 2 …, the list is built on first use; [`ClassMap::value`] does
    /// not need it.
    pub fn values(&self) -> &[f64] {
        match &self.list {
            ClassList::Values(values, _) => values,
            _ => {
                let all = || (0..self.len()).map(|class| class as f64).collect();
                self.values.get_or_init(all)
            }
        }
    }

    /// The label value of a class. Panics unless `class` is below [`ClassMap::len`].
    pub fn value(&self, class: u32) -> f64 {
        assert!((class as usize) < self.len(), "class {class}");
        match &self.list {
            ClassList::Values(values, _) => values[class as usize],
            _ => f64::from(class),
        }
    }

    /// Number of classes.
    pub fn len(&self) -> usize {
        match &self.list {
            ClassList::Count(count) => *count,
            ClassList::Values(values, _) => values.len(),
            ClassList::Names(_, ends) => ends.len(),
        }
    }

    /// Whether there are no classes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The class that the user names: by its name if classes have names, else by its label value.
    pub fn class_called(&self, class: &ClassName) -> Option<u32> {
        self.class_of(class.value_among(self.names())?)
    }

    /// The class of a label value.
    #[inline]
    pub fn class_of(&self, value: f64) -> Option<u32> {
        match &self.list {
            ClassList::Values(values, ascending) if ascending.is_empty() => {
                let class = values.iter().position(|known| *known == value)?;
                Some(class as u32)
            }
            ClassList::Values(values, ascending) => {
                let wanted = value + 0.0;
                let known = |class: &u32| (values[*class as usize] + 0.0).total_cmp(&wanted);
                let place = ascending.binary_search_by(known).ok()?;
                Some(ascending[place])
            }
            _ => {
                let class = value as u32;
                (f64::from(class) == value && (class as usize) < self.len()).then_some(class)
            }
        }
    }
}

/// The label values of a file.
#[derive(Clone, Debug)]
pub(crate) enum FileLabels {
    /// Its records do not state labels; jobs that need a label use 0.
    None,
    /// 0, 1, 2 … below this, which may be hundreds of millions.
    Count(usize),
    Listed(Vec<f64>),
}

impl From<Vec<f64>> for FileLabels {
    /// A scan that found no label leaves an empty list.
    fn from(values: Vec<f64>) -> FileLabels {
        if values.is_empty() {
            FileLabels::None
        } else {
            FileLabels::Listed(values)
        }
    }
}

impl FileLabels {
    pub(crate) fn iter(&self) -> impl Iterator<Item = f64> + Clone + '_ {
        let (count, listed) = match self {
            FileLabels::None => (1, &[][..]),
            FileLabels::Count(count) => (*count, &[][..]),
            FileLabels::Listed(values) => (0, &values[..]),
        };
        let counted = (0..count).map(|value| value as f64);
        counted.chain(listed.iter().copied())
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
    /// A bit for each whole number that occurred.
    whole: Vec<u64>,
    others: HashSet<u64>,
}

/// From this magnitude on, 2^53, not every whole number is an f64, so two labels may become equal.
pub(crate) const LABEL_LIMIT: f64 = 9_007_199_254_740_992.0;

/// A label, or a fault if it is too large; `found` gives its spelling.
#[inline]
pub(crate) fn checked_label(value: f64, found: impl FnOnce() -> String) -> Result<f64, Fault> {
    if value.abs() < LABEL_LIMIT {
        return Ok(value);
    }
    Err(Fault::new(format!(
        "label {found} is not below 2^53 in magnitude; number the classes, or scale the targets",
        found = found()
    )))
}

/// The most distinct labels a classification may have.
pub(crate) const MOST_LABELS: usize = 1 << 28;

/// The error for a file with more than `limit` distinct labels.
#[cold]
pub(crate) fn too_many_labels(limit: usize) -> FormatError {
    let what = format!(
        "has more than {limit} distinct labels, so they look like the targets of a regression; train one with `loss` squared, or name another column with `label`"
    );
    FormatError::new(what).of_kind(FormatErrorKind::Malformed)
}

/// Most labels that are not whole numbers from 0 on: more of them are targets of a regression.
const MOST_OTHERS: usize = 1 << 24;

/// The most distinct class names in a column: more of them are not classes, and would fill the memory.
pub(crate) const MOST_NAMES: usize = 1 << 16;

impl LabelCollector {
    /// Adds a label; returns false when there are too many.
    pub(crate) fn add(&mut self, value: f64) -> bool {
        if self.values.last().is_some_and(|last| *last == value) {
            return true;
        }
        let is_new = match value as usize {
            whole if whole as f64 == value && whole < MOST_LABELS => {
                let (word, bit) = (whole / 64, 1 << (whole % 64));
                if self.whole.len() <= word {
                    self.whole.resize(word + 1, 0);
                }
                let is_new = self.whole[word] & bit == 0;
                self.whole[word] |= bit;
                is_new
            }
            _ => self.others.insert(bits(value)),
        };
        if is_new {
            self.values.push(value + 0.0);
        }
        self.values.len() <= MOST_LABELS && self.others.len() <= MOST_OTHERS
    }

    /// The exceeded limit.
    pub(crate) fn limit(&self) -> usize {
        if self.others.len() > MOST_OTHERS {
            MOST_OTHERS
        } else {
            MOST_LABELS
        }
    }

    pub(crate) fn into_values(self) -> Vec<f64> {
        self.values
    }
}

/// Maps the label values of a file to classes of the data set.
#[derive(Clone, Debug)]
pub(crate) struct Classes {
    pub(crate) labels: std::sync::Arc<ClassMap>,
    /// This label is +1, any other is -1.
    pub(crate) positive: Option<f64>,
    /// An unknown label does not matter and counts as the first class.
    pub(crate) any: bool,
    /// Labels are targets, and a "class" is the bits of one as an f32.
    pub(crate) targets: bool,
    /// Subtracted from targets.
    pub(crate) centre: f64,
}

impl Classes {
    /// Whether the label values 0, 1, 2 … are the classes with these indices.
    pub(crate) fn are_counted(&self) -> bool {
        self.positive.is_none() && self.labels.is_count() && !self.targets
    }

    #[inline]
    pub(crate) fn class_of(&self, value: f64) -> Option<u32> {
        if self.targets && !self.any {
            let target = (value - self.centre) as f32;
            return target.is_finite().then_some(target.to_bits());
        }
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
            ClassMap::from_first_appearance(vec![-1.0, 1.0]).values(),
            [1.0, -1.0]
        );
        assert_eq!(
            ClassMap::from_first_appearance(vec![1.0, -1.0]).values(),
            [1.0, -1.0]
        );
        assert_eq!(
            ClassMap::from_first_appearance(vec![0.0, 1.0]).values(),
            [0.0, 1.0]
        );
        assert_eq!(
            ClassMap::from_first_appearance(vec![3.0, 1.0, 2.0]).values(),
            [3.0, 1.0, 2.0]
        );
    }

    #[test]
    fn names_go_by_number() {
        let map = ClassMap::named(vec!["cat".into(), "dog".into()]);
        assert_eq!(map.values(), [0.0, 1.0]);
        assert_eq!(map.names(), ["cat", "dog"]);
        assert_eq!(
            (map.class_of(1.0), map.describe(1)),
            (Some(1), "dog".into())
        );
        assert_eq!(
            (map.name(0), map.name(1), map.name(2)),
            (Some("cat"), Some("dog"), None)
        );
        assert_ne!(map, ClassMap::new(vec![0.0, 1.0]));
        assert_eq!(ClassMap::new(vec![2.5]).describe(0), "2.5");
    }

    #[test]
    fn maps_are_kept_and_told_apart() {
        let named = |names: &[&str]| ClassMap::named(names.iter().map(|n| n.to_string()).collect());
        let maps = [
            ClassMap::counted(3),
            ClassMap::new(vec![3.0, -1.5]),
            ClassMap::new(vec![-1.5, 3.0]),
            named(&["a", "bc"]),
            named(&["ab", "c"]),
            named(&["0", "1", "2"]),
        ];
        for (i, map) in maps.iter().enumerate() {
            let json = serde_json::to_string(map).unwrap();
            assert_eq!(&serde_json::from_str::<ClassMap>(&json).unwrap(), map);
            for (j, other) in maps.iter().enumerate() {
                let same = map.fingerprint() == other.fingerprint();
                assert_eq!(same, i == j, "{map:?} {other:?}");
            }
        }
        assert_eq!(
            serde_json::to_string(&maps[0]).unwrap(),
            r#"{"count":3,"labels":[],"names":[]}"#
        );
        assert!(maps[0].reads_as(&maps[5]) && !maps[1].reads_as(&maps[2]));
        assert_eq!(ClassMap::counted(22).listed().matches(',').count(), 19);
        assert!(ClassMap::counted(22).listed().ends_with("19 and 2 more"));
    }

    #[test]
    fn distinct_labels_in_the_order_of_first_appearance() {
        let mut labels = LabelCollector::default();
        for value in [3.0, 3.0, -0.0, 0.5, 3.0, 0.0, -1.0, 1e9, 0.5, 64.0] {
            assert!(labels.add(value));
        }
        assert_eq!(labels.into_values(), [3.0, 0.0, 0.5, -1.0, 1e9, 64.0]);
    }

    #[test]
    fn few_and_many_are_found() {
        for (count, shift) in [0usize, 1, 8, 9, 100]
            .into_iter()
            .flat_map(|n| [(n, 0.0), (n, 3.0)])
        {
            // Neither ascending nor descending, unless they are counted.
            let mut values: Vec<f64> = (0..count).map(|i| i as f64 - shift).collect();
            values.rotate_left(if shift == 0.0 { 0 } else { count / 3 });
            let map = ClassMap::new(values.clone());
            assert_eq!(map.is_count(), shift == 0.0 || count == 0);
            assert_eq!((map.values(), map.len()), (&values[..], count));
            for (class, value) in (0..).zip(values) {
                assert_eq!(
                    (map.class_of(value), map.value(class)),
                    (Some(class), value)
                );
            }
            for none in [1e9, -4.0, 0.5, f64::NAN, f64::INFINITY] {
                assert_eq!(map.class_of(none), None, "{none} of {count}");
            }
            assert_eq!(map.class_of(1e9), None);
        }
        assert_eq!(
            ClassMap::new((0..20).map(f64::from).collect()).class_of(-0.0),
            Some(0)
        );
    }
}
