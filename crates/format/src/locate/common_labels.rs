//! The labels of the files of a data set together.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;

use crate::locate::format::Opened;
use crate::record::error::FormatError;
use crate::record::labels::class_name::ClassName;
use crate::record::labels::stored::LabelForm;
use crate::record::labels::{ClassMap, FileLabels, LabelCollector, too_many_labels};
use crate::record::options::OpenOptions;
use crate::record::rows::Layout;

/// The known classes, for these files; remarks are added to `notes`.
pub(crate) fn known_classes(
    opened: &[Opened],
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Option<ClassMap> {
    let have_names = opened.iter().any(|file| !file.shard.names.is_empty());
    let known = options.labels.as_ref().filter(|_| !options.targets)?;
    let known = known.for_files(have_names);
    if options.positive.is_none() && !options.any_label {
        notes.extend(by_position(opened, &known));
    }
    Some(known)
}

/// Refuses files with text labels if targets are needed.
pub(crate) fn check_targets(opened: &[Opened]) -> Result<(), FormatError> {
    let named = |file: &&Opened| !file.shard.names.is_empty() && !file.shard.names_decorate_numbers;
    let Some(file) = opened.iter().find(named) else {
        return Ok(());
    };
    let what = format!(
        "its labels are text, such as {:?}, and a regression needs numbers; name another column with `label`, or train a classifier with `loss` hinge, squared-hinge or logistic",
        file.shard.names[0]
    );
    Err(FormatError::new(what).in_file(&file.path))
}

/// The remark on files with numeric labels if the known classes have names.
fn by_position(opened: &[Opened], known: &ClassMap) -> Option<String> {
    let numbered = |file: &&Opened| {
        file.shard.names.is_empty()
            && !file.shard.names_decorate_numbers
            && file.shard.decoder.label_form() != LabelForm::Cells
            && file.shard.labels.iter().nth(1).is_some()
    };
    let file = opened.iter().find(numbered).filter(|_| known.has_names())?;
    Some(format!(
        "{}: its labels are numbers, used as 0-based indices of the classes {}",
        file.path.display(),
        known.listed()
    ))
}

/// The names of the classes of all files in order, if they have names; each file's label values become indices into
/// that list, or into the `known` classes; an unknown name gets no index.
pub(crate) fn common_names(
    opened: &mut [Opened],
    known: Option<&ClassMap>,
) -> Result<Option<Vec<String>>, FormatError> {
    let Some(named) = opened.iter().find(|file| !file.shard.names.is_empty()) else {
        return Ok(None);
    };
    if let Some(numbered) = opened.iter().find(|file| file.shard.names.is_empty()) {
        let (found, expected) = ("classes by number", "classes by name");
        return Err(not_alike(numbered, found, named, expected));
    }
    if known.is_some_and(|known| !known.has_names()) {
        // Names of classes that are known by number are numbers themselves, or decorate the file's numbers.
        for file in opened {
            if !file.shard.names_decorate_numbers {
                let number = |name: &String| name.parse::<f64>().unwrap_or(f64::NAN);
                let numbers: Vec<f64> = file.shard.names.iter().map(number).collect();
                file.shard.labels = numbers.into();
            }
        }
        return Ok(None);
    }
    let names: Vec<String> = match known {
        Some(known) => known.names().to_vec(),
        None => {
            let all: BTreeSet<&String> = opened.iter().flat_map(|file| &file.shard.names).collect();
            all.into_iter().cloned().collect()
        }
    };
    let numbers: HashMap<&str, usize> = (0..)
        .zip(&names)
        .map(|(number, name)| (name.as_str(), number))
        .collect();
    for file in opened {
        let number = |name: &String| numbers.get(name.as_str()).map_or(f64::NAN, |n| *n as f64);
        let numbers: Vec<f64> = file.shard.names.iter().map(number).collect();
        file.shard.labels = numbers.into();
    }
    Ok(Some(names))
}

/// The error for two incompatible files of a data set.
pub(crate) fn not_alike(
    file: &Opened,
    found: impl Display,
    first: &Opened,
    expected: impl Display,
) -> FormatError {
    let first = first.path.display();
    let what = format!(
        "holds {found}, but {first} holds {expected}; train on them separately or convert one"
    );
    FormatError::new(what).in_file(&file.path)
}

/// Whether records state labels; if only some files have labels, notes the others.
pub(crate) fn labelled(opened: &[Opened], notes: &mut Vec<String>) -> bool {
    let has = |file: &&Opened| !matches!(file.shard.labels, FileLabels::None);
    let Some(with) = opened.iter().find(has) else {
        return false;
    };
    for without in opened.iter().filter(|file| !has(file)) {
        notes.push(format!(
            "{}: its records have no label, where those of {} have one, and count as labelled 0",
            without.path.display(),
            with.path.display()
        ));
    }
    true
}

/// The classes in their order.
pub(crate) fn labels_of(
    opened: &[Opened],
    names: Option<Vec<String>>,
    positive: Option<f64>,
    known: Option<ClassMap>,
    by_number: bool,
) -> Result<ClassMap, FormatError> {
    if let Some(known) = known {
        return Ok(known);
    }
    if positive.is_some() {
        return Ok(ClassMap::new(vec![1.0, -1.0]));
    }
    if let Some(names) = names {
        return Ok(ClassMap::named(names));
    }
    let counts = opened.iter().map(|file| match file.shard.labels {
        FileLabels::Count(count) => Some(count),
        FileLabels::None => Some(1),
        FileLabels::Listed(_) => None,
    });
    if let Some(counts) = counts.collect::<Option<Vec<usize>>>() {
        return Ok(ClassMap::counted(counts.into_iter().max().unwrap_or(0)));
    }
    let mut collector = LabelCollector::default();
    for file in opened {
        for label in file.shard.labels.iter() {
            if !collector.add(label) {
                return Err(too_many_labels(collector.limit()).in_file(&file.path));
            }
        }
    }
    let mut values = collector.into_values();
    if by_number || opened.iter().any(|file| file.shard.layout == Layout::Bytes) {
        // Classes of images and samples are numbered, so they keep the order of their numbers.
        values.sort_by(f64::total_cmp);
        return Ok(ClassMap::new(values));
    }
    Ok(ClassMap::from_first_appearance(values))
}

/// The label value that means +1. Unless labels are known beforehand, some records must have it, and some another.
pub(crate) fn positive_value(
    opened: &[Opened],
    class: &ClassName,
    names: Option<&[String]>,
    options: &OpenOptions,
) -> Result<f64, FormatError> {
    let value = class.value_among(names.unwrap_or_default());
    let mut labels = opened.iter().flat_map(|file| file.shard.labels.iter());
    let has_it = labels.clone().any(|label| Some(label) == value);
    let has_other = labels.any(|label| Some(label) != value);
    match value {
        Some(value) if options.labels.is_some() || has_it && has_other => Ok(value),
        _ => {
            let found = if has_it { "every" } else { "no" };
            let what = format!(
                "{found} record has the label {class}, which is to stand for +1; name another with `positive`"
            );
            let error = FormatError::new(what);
            Err(opened
                .iter()
                .take(1)
                .fold(error, |e, file| e.in_file(&file.path)))
        }
    }
}
