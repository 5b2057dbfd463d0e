//! The class of every record, and the records of the classes that a pipeline keeps.
//!
//! Most data list classes outside the records: the names of folders, tables, files of labels, the index of a tar file.
//! These need no reading. If only the records have their class (CIFAR, rows of features), rank 0 finds all classes in
//! one pass over the data.

use std::sync::Arc;

use pelton_feed::BadExamples;
use pelton_fetch::OnBadRecord;
use pelton_format::{ClassName, Dataset, LABELS_FIELD, Row};
use pelton_plan::Selection;
use pelton_run::RunContext;

use crate::error::DataError;
use crate::pass::Pass;

/// Marks an unknown class.
const UNKNOWN: u32 = u32::MAX;

/// The records of the named classes. A record of unknown class is kept if the policy continues with bad examples, so
/// that it is counted as one.
pub(crate) fn records_of(
    dataset: &Arc<Dataset>,
    names: &[ClassName],
    bad_examples: BadExamples,
    context: &mut RunContext<'_>,
) -> Result<Selection, DataError> {
    let mut wanted = vec![false; dataset.labels().len()];
    for name in names {
        wanted[class_called(dataset, name)? as usize] = true;
    }
    let classes = classes(dataset, bad_examples, context)?;
    let selection = Selection::new(dataset.records(), |id| match classes[id as usize] {
        UNKNOWN => true,
        class => wanted[class as usize],
    });
    if selection.is_empty() {
        return Err(DataError::Config(
            "no record has a class in `keep_classes`; name other classes".to_owned(),
        ));
    }
    Ok(selection)
}

/// The class of every record, for data of several classes; `setting` needs them. An unknown class counts as the first
/// if the policy continues with bad examples.
pub fn several_classes(
    dataset: &Arc<Dataset>,
    setting: &str,
    bad_examples: BadExamples,
    context: &mut RunContext<'_>,
) -> Result<Vec<u32>, DataError> {
    if dataset.labels().len() < 2 {
        return Err(DataError::Config(format!(
            "{setting} needs data with several classes, and this has none or one; leave it out, or name the label with `label`"
        )));
    }
    let mut classes = classes(dataset, bad_examples, context)?;
    let unknown = classes.iter_mut().filter(|class| **class == UNKNOWN);
    unknown.for_each(|class| *class = 0);
    Ok(classes)
}

/// Refuses data with a record of a class outside [`Dataset::labels`], to report it before the work starts. Costs
/// nothing if all are known, otherwise up to a pass before the error.
pub fn check_classes(
    dataset: &Arc<Dataset>,
    context: &mut RunContext<'_>,
) -> Result<(), DataError> {
    if dataset.has_unknown_class() {
        classes(dataset, BadExamples::Fail, context)?;
    }
    Ok(())
}

fn class_called(dataset: &Dataset, name: &ClassName) -> Result<u32, DataError> {
    let labels = dataset.labels();
    labels.class_called(name).ok_or_else(|| {
        DataError::Config(format!(
            "`keep_classes` {name}: the data has no such class; its classes are {}",
            labels.listed()
        ))
    })
}

fn classes(
    dataset: &Arc<Dataset>,
    bad_examples: BadExamples,
    context: &mut RunContext<'_>,
) -> Result<Vec<u32>, DataError> {
    if dataset.lists_classes() {
        listed(dataset, bad_examples)
    } else {
        read(dataset, bad_examples, context)
    }
}

/// From listed classes.
fn listed(dataset: &Dataset, bad_examples: BadExamples) -> Result<Vec<u32>, DataError> {
    let class = |id| match dataset.listed_class(id) {
        Ok(class) => Ok(class.unwrap_or(UNKNOWN)),
        Err(error) if bad_examples == BadExamples::Fail => {
            Err(pelton_fetch::FetchError::from(error).into())
        }
        Err(_) => Ok(UNKNOWN),
    };
    (0..dataset.records()).map(class).collect()
}

/// From the records themselves, read by the first rank.
fn read(
    dataset: &Arc<Dataset>,
    bad_examples: BadExamples,
    context: &mut RunContext<'_>,
) -> Result<Vec<u32>, DataError> {
    let mut classes = vec![UNKNOWN; dataset.records() as usize];
    if context.comm.rank() == 0 {
        let mut pass = pass(dataset, bad_examples, context)?;
        while pass.next_step(context.observer, |batch| {
            for i in 0..batch.rows.len() {
                classes[batch.rows.id(i) as usize] = batch.rows.label(i);
            }
        })? {}
    }
    context.comm.broadcast(&mut classes, 0)?;
    Ok(classes)
}

fn pass(
    dataset: &Arc<Dataset>,
    bad_examples: BadExamples,
    context: &RunContext<'_>,
) -> Result<Pass, DataError> {
    let on_bad_record = match bad_examples {
        BadExamples::Fail => OnBadRecord::Fail,
        _ => OnBadRecord::Skip { limit: None },
    };
    Pass::new(
        dataset,
        "looking for classes",
        on_bad_record,
        context.interrupt,
    )
}

/// The records with each label, of data whose records may have [several](Dataset::label_lists), among those that
/// `counts`. Rank 0 reads all records.
pub fn label_counts(
    dataset: &Arc<Dataset>,
    counts: impl Fn(u64) -> bool,
    bad_examples: BadExamples,
    context: &mut RunContext<'_>,
) -> Result<Vec<u64>, DataError> {
    let labels = dataset.label_lists().unwrap_or(0) as usize;
    let mut found = vec![0; labels];
    if context.comm.rank() == 0 {
        let mut pass = pass(dataset, bad_examples, context)?;
        while pass.next_step(context.observer, |batch| {
            for i in (0..batch.rows.len()).filter(|&i| counts(batch.rows.id(i))) {
                let Row::Bytes(row) = batch.rows.row(i) else {
                    continue;
                };
                let fields = dataset.record_fields().split(row).unwrap_or_default();
                let own = fields.iter().find(|field| field.name == LABELS_FIELD);
                for label in own.map_or(&[][..], |own| own.bytes).chunks_exact(8) {
                    let label = u64::from_le_bytes(label.try_into().expect("eight bytes"));
                    found[label as usize] += 1;
                }
            }
        })? {}
    }
    context.comm.broadcast(&mut found, 0)?;
    Ok(found)
}
